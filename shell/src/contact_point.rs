//! One node for everything: the shell talks to the node that it was given, as cqlsh does.
//!
//! The driver spreads requests over all members that it learns of, at the addresses that they announce. Here each such address is
//! translated to that of the contact point, so every connection ends there, whichever member it is for. This includes connections
//! that are opened after a break, and nodes that are reached by another address than their own (a published port, a tunnel). Once
//! it is known which member the contact point is, connections for others are closed.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use scylla::{
    client::{
        PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder,
    },
    cluster::{ClusterState, NodeRef, metadata::Peer},
    errors::{NewSessionError, TranslationError},
    policies::{
        address_translator::{AddressTranslator, UntranslatedPeer},
        host_filter::HostFilter,
        load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo},
    },
    routing::Shard,
};
use uuid::Uuid;

use crate::target::Target;

/// Leads every address to the contact point.
struct AlwaysTo(SocketAddr);

#[async_trait::async_trait]
impl AddressTranslator for AlwaysTo {
    async fn translate_address(&self, _: &UntranslatedPeer) -> Result<SocketAddr, TranslationError> {
        Ok(self.0)
    }
}

/// Accepts every member until it is known which one the contact point is, then that one alone.
#[derive(Debug, Default)]
struct ContactOnly(OnceLock<Uuid>);

impl ContactOnly {
    fn accepts(&self, host_id: Uuid) -> bool {
        self.0.get().is_none_or(|known| *known == host_id)
    }
}

impl HostFilter for ContactOnly {
    fn accept(&self, peer: &Peer) -> bool {
        self.accepts(peer.host_id)
    }
}

/// Each request is tried once, over any connection: all lead to the same node.
#[derive(Debug)]
struct TryOnce;

impl LoadBalancingPolicy for TryOnce {
    fn pick<'a>(
        &'a self,
        _: &'a RoutingInfo,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let nodes = cluster.get_nodes_info();
        let connected = nodes.iter().find(|node| node.is_connected());
        connected.or_else(|| nodes.iter().find(|node| node.is_enabled())).map(|node| (node, None))
    }

    fn fallback<'a>(&'a self, _: &'a RoutingInfo, _: &'a ClusterState) -> FallbackPlan<'a> {
        Box::new(std::iter::empty())
    }

    fn name(&self) -> String {
        "TryOnce".to_owned()
    }
}

/// Opens a session with the node at an address.
pub async fn open_session(target: &Target, address: SocketAddr) -> Result<Session, NewSessionError> {
    let profile = ExecutionProfile::builder()
        .request_timeout(Some(target.request_timeout))
        .load_balancing_policy(Arc::new(TryOnce))
        .build();
    let contact = Arc::new(ContactOnly::default());
    let mut builder = SessionBuilder::new()
        .known_node_addr(address)
        .address_translator(Arc::new(AlwaysTo(address)))
        .host_filter(contact.clone())
        .pool_size(PoolSize::PerHost(std::num::NonZeroUsize::MIN))
        // The shell does not need the schema from the driver, and a type that the driver cannot read would make the connection
        // fail.
        .fetch_schema_metadata(false)
        .refresh_metadata_on_auto_schema_agreement(false)
        // The translated address has the ordinary port.
        .disallow_shard_aware_port(true)
        // The caller's limit is the target's timeout. It is shorter, so it is the one that is reported.
        .connection_timeout(target.connect_timeout.saturating_mul(2))
        .default_execution_profile_handle(profile.into_handle());
    if let Some(username) = &target.username {
        builder = builder.user(username, target.password.as_deref().unwrap_or_default());
    }
    let session = builder.build().await?;
    if session.get_cluster_state().get_nodes_info().len() > 1
        && let Some(host_id) = host_id(&session).await
    {
        // It was empty, so this cannot fail. A refresh that fails leaves some superfluous connections to the same node.
        let _ = contact.0.set(host_id);
        let _ = session.refresh_metadata().await;
    }
    Ok(session)
}

/// The id of the node that answers; `None`: it does not say.
async fn host_id(session: &Session) -> Option<Uuid> {
    let statement = "SELECT host_id FROM system.local WHERE key = 'local'";
    let answer = session.query_unpaged(statement, &[]).await.ok()?;
    let (host_id,) = answer.into_rows_result().ok()?.single_row::<(Uuid,)>().ok()?;
    Some(host_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_accepted_until_the_contact_point_is_known() {
        let (contact, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let filter = ContactOnly::default();
        assert!(filter.accepts(contact) && filter.accepts(other));
        filter.0.set(contact).unwrap();
        assert!(filter.accepts(contact) && !filter.accepts(other));
    }
}
