//! How far a view is built, for operators.

use std::collections::BTreeMap;
use std::rc::Rc;

use helenus_execution::shard::context::{ShardContext, run_on};
use helenus_observe::AdminError;
use helenus_projector::reports::{self, BuildReport};
use helenus_query::error::Result;
use helenus_ring::HostId;

use super::{NodeAdmin, failed};

/// The state of a member's part, in Cassandra's words.
pub(super) fn state(is_built: bool) -> &'static str {
    if is_built { "SUCCESS" } else { "STARTED" }
}

/// How far views are built, and the addresses of the members.
async fn builds(context: Rc<ShardContext>) -> Result<(Vec<BuildReport>, BTreeMap<HostId, String>)> {
    let builds = reports::builds(&context).await?;
    let view = context.cluster_view();
    let members = view.topology.members.values();
    let addresses = members.map(|member| (member.host_id, member.internode_address.ip().to_string()));
    Ok((builds, addresses.collect()))
}

impl NodeAdmin {
    /// The state on each member, by its address.
    pub(super) async fn view_build_states(
        &self,
        keyspace: &str,
        view: &str,
    ) -> Result<BTreeMap<String, String>, AdminError> {
        let asked = run_on(&self.node.links[0], |context| Box::pin(builds(context))).await;
        let asked = asked.map_err(|error| failed(&error))?;
        let (builds, addresses) = asked.map_err(|error| failed(&error))?;
        let build = builds.into_iter().find(|build| build.keyspace == keyspace && build.view == view);
        let build = build.ok_or_else(|| {
            AdminError::Unknown(format!("'{keyspace}.{view}' is no materialized view or projection"))
        })?;
        let named = build.members.into_iter().map(|(host_id, is_built)| {
            let address = addresses.get(&host_id).cloned().unwrap_or_else(|| host_id.to_string());
            (address, state(is_built).to_owned())
        });
        Ok(named.collect())
    }
}
