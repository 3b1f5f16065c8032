//! The part of a node in the metadata log from its start to its stop.
//!
//! * With a stored state it continues from there. If its address has changed, it announces the new one.
//! * Without a stored state, and if its first seed is not the address of another node, it founds a cluster with itself as the only member
//!   ([`super::founding`]), unless its other seeds say that there is one: then its disk was lost, and it joins that cluster.
//! * Without a stored state, but with seeds, it waits for [`super::join::join`]. So does a node that is to take the place of another one,
//!   whatever its seeds are.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use helenus_internode::endpoint::Endpoint;
use helenus_internode::handshake::SAME_HOST_CODE;
use helenus_internode::transport::CallError;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::document::CatalogDocument;
use helenus_ring::member::MemberState;
use helenus_ring::metadata::{Command, CommandOutcome, MemberUpdate, Refusal};

use super::log_throttle::LogThrottle;
use super::propose::{commit, propose};
use super::raft::{MetadataLog, OpenMetadataLog};
use super::seeds::{RESOLVING_PAUSE, resolve, version_at};
use super::stored::{self, Contents, Stored};
use super::{departure, founding, unknown_tables, voters};
use crate::cluster::drops::PendingDrop;
use crate::cluster::own_member::{is_own_address, own_member, version_as_member};
use helenus_execution::shard::context::ShardContext;

/// Time limit for founding a cluster.
const FOUNDING_DEADLINE: Duration = Duration::from_secs(30);
/// Time for which resolving the first seed, which may be this node, is retried before the start fails.
const RESOLVING_DEADLINE: Duration = Duration::from_mins(1);
/// Time for which resolving the first seed is retried if there are other seeds.
const RESOLVING_PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(5);
/// Timeout of one attempt to announce a new address.
const UPDATE_DEADLINE: Duration = Duration::from_secs(30);
/// Pause before the next attempt.
const UPDATE_PAUSE: Duration = Duration::from_secs(5);

/// Whether a node without a stored state founds a cluster: no other node must be asked first.
async fn founds(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<bool> {
    let Some(first) = seeds.first() else { return Ok(true) };
    if context.node.config.replace.is_some() {
        // There is a cluster, even if none of the seeds answers now.
        return Ok(false);
    }
    let has_others = seeds.len() > 1;
    let deadline = if has_others { RESOLVING_PATIENCE_WITH_OTHERS } else { RESOLVING_DEADLINE };
    let end = context.clock.monotonic() + deadline;
    let mut notices = LogThrottle::default();
    loop {
        match resolve(context, first).await {
            Ok(addresses) if has_own(context, &addresses) => {
                return founding::is_wanted(context, seeds).await;
            }
            Ok(_) => return Ok(false),
            Err(error) => {
                if context.clock.monotonic() >= end {
                    if has_others {
                        tracing::warn!(%error, "the first seed could not be resolved; it counts as another node, and the other seeds are asked");
                        return Ok(false);
                    }
                    return Err(RequestError::Server(error.to_string()));
                }
                if notices.is_due(first, &error, context.clock.monotonic()) {
                    tracing::warn!(%error, "a seed could not be resolved; it will be retried");
                }
            }
        }
        context.clock.sleep(RESOLVING_PAUSE).await;
    }
}

fn has_own(context: &ShardContext, addresses: &[SocketAddr]) -> bool {
    addresses.iter().any(|address| is_own_address(context, *address))
}

/// Opens the metadata log and participates in it. Call on the first shard, when all shards are served. Returns
/// whether the node belongs to a cluster; if not, it must join one.
pub async fn start(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<bool> {
    departure::watch(context);
    let (stored, drops) = stored_state(context).await?;
    let is_founded = stored.as_ref().is_some_and(|stored| stored.state.is_founded());
    let log = Rc::new(MetadataLog::open(context, stored, drops).await?);
    OpenMetadataLog::begin(context, log.clone());
    let belongs = if is_founded {
        // A node whose join was interrupted knows the other member, but is no member itself.
        if context.cluster_view().is_alone() && version_as_member(context).is_some() {
            check_seeds_are_no_other_cluster(context, seeds).await?;
        }
        let (voters, _) = log.participants();
        if voters.len() == 1 && voters.contains(&context.node.host_id) {
            elect_at_once(&log).await?;
        }
        tokio::task::spawn_local(keep_member_updated(context.clone()));
        true
    } else if founds(context, seeds).await? {
        found(context, &log).await?;
        true
    } else {
        false
    };
    tokio::task::spawn_local(voters::keep(context.clone()));
    unknown_tables::report_when_replayed(context);
    Ok(belongs)
}

/// Returns an error if a node with this node's id answers at this node's former address: one of the two runs on a
/// copy of the other's data directory. Both would vote under one id.
pub async fn check_no_copy_runs(context: &Rc<ShardContext>) -> Result<()> {
    let own = own_member(context, MemberState::Normal);
    let view = context.cluster();
    let before = match view.topology.member(&own.host_id) {
        Some(known) if known.internode_address != own.internode_address => known.internode_address,
        _ => return Ok(()),
    };
    match version_at(context, Some(own.host_id), before).await? {
        Err(CallError::Refused { code: SAME_HOST_CODE, .. }) => Err(RequestError::Server(format!(
            "node {} runs at {before}: this data directory is a copy of that node's; start with an empty one",
            own.host_id
        ))),
        // An answer is this node's own: it is still reached at the address that it had.
        _ => Ok(()),
    }
}

/// The answers of the nodes at these addresses, as of [`version_at`].
async fn versions_at(
    context: &ShardContext,
    addresses: Vec<SocketAddr>,
) -> Result<Vec<(SocketAddr, Result<Option<u64>, CallError>)>> {
    let asked = addresses
        .into_iter()
        .map(|address| async move { Ok((address, version_at(context, None, address).await?)) });
    join_all(asked).await.into_iter().collect()
}

/// Returns an error if a node that is the only member of its cluster has seeds in another cluster: it may have been
/// started without seeds once. It would continue by itself, and there would be two clusters of one name. Seeds that
/// do not answer, or that do not accept this node's cluster name, cause no error: they may be former members.
async fn check_seeds_are_no_other_cluster(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<()> {
    let mut others = Vec::new();
    for resolved in join_all(seeds.iter().map(|seed| resolve(context, seed))).await {
        match resolved {
            Ok(addresses) if has_own(context, &addresses) => return Ok(()),
            Ok(addresses) => others.extend(addresses),
            Err(error) => tracing::warn!(%error, "no address of a seed; this node continues without it"),
        }
    }
    for (address, answer) in versions_at(context, others).await? {
        match answer {
            // Version 0: the seed is about to join a cluster, perhaps this one.
            Ok(Some(version)) if version > 0 => {
                return Err(RequestError::Server(format!(
                    "this node is the only member of its cluster, and its seed {address} is in another one of that name. To \
                     stay alone, start it without that seed. It joins the other cluster only with an empty data directory, \
                     without what it holds now"
                )));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(seed = %address, %error, "a seed did not answer; this single node continues without it");
            }
        }
    }
    Ok(())
}

/// Ends the participation of this node in the metadata log. Call before the shard is closed.
pub async fn stop(context: &ShardContext) {
    let Some(log) = OpenMetadataLog::end(context) else { return };
    if let Err(error) = log.shutdown().await {
        tracing::warn!(%error, "the metadata log did not stop cleanly");
    }
}

async fn stored_state(context: &ShardContext) -> Result<(Option<Stored>, Vec<PendingDrop>)> {
    let failed = |error: &dyn std::fmt::Display| RequestError::Server(error.to_string());
    match stored::load(&context.node.files).await.map_err(|error| failed(&error))? {
        None | Some(Contents::Catalog(_)) => Ok((None, Vec::new())),
        Some(Contents::State(stored, drops)) => Ok((Some(stored), drops)),
    }
}

/// Founds a cluster with this node as its only member.
async fn found(context: &Rc<ShardContext>, log: &MetadataLog) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        RequestError::Server(format!("the cluster could not be founded: {error}"))
    };
    log.initialize(context.node.host_id).await.map_err(|error| failed(&error))?;
    elect_at_once(log).await?;
    let mut leaders = log.watch_leader();
    let end = context.clock.monotonic() + FOUNDING_DEADLINE;
    loop {
        if leaders.leader() == Some(context.node.host_id) {
            let command = Command::Found {
                member: own_member(context, MemberState::Normal),
                catalog: CatalogDocument::of(&context.catalog()),
            };
            match commit(context, &command, FOUNDING_DEADLINE).await? {
                Some(CommandOutcome::Applied { .. }) => return Ok(()),
                Some(other) => return Err(failed(&format!("{other:?}"))),
                None => {}
            }
        }
        let left = end.saturating_sub(context.clock.monotonic());
        if left.is_zero() {
            return Err(failed(&"there is no leader"));
        }
        if let Some(Err(stopped)) = super::propose::within(context, left, leaders.changed()).await {
            return Err(failed(&stopped));
        }
    }
}

/// Starts an election at once: the only voter need not wait for another leader.
async fn elect_at_once(log: &MetadataLog) -> Result<()> {
    let elected = log.elect().await;
    elected.map_err(|error| RequestError::Server(format!("the metadata log has stopped: {error}")))
}

/// Announces this node's address and version to the others until they accept it. This also runs if nothing has
/// changed: a node that was removed while it was down learns of it here.
async fn keep_member_updated(context: Rc<ShardContext>) {
    let mut stopping = context.node.stopping.subscribe();
    loop {
        let Some(known) = context.cluster_view().topology.member(&context.node.host_id).cloned() else {
            return;
        };
        let update = MemberUpdate::of(&own_member(&context, known.state));
        if context.cluster_view().is_alone() && update == MemberUpdate::of(&known) {
            return;
        }
        match propose(&context, Command::Update(update), UPDATE_DEADLINE).await {
            Ok(CommandOutcome::Applied { .. }) => return,
            Ok(CommandOutcome::Refused(refusal @ Refusal::Removed { .. })) => {
                context.node.learn_removed(&refusal);
                return;
            }
            Ok(CommandOutcome::Refused(Refusal::UnknownMember { .. })) => {
                tracing::warn!(
                    "the join of this node was cancelled; the node ends when it reads that in the metadata log"
                );
                return;
            }
            Ok(CommandOutcome::Refused(refusal)) => {
                tracing::error!(%refusal, "the cluster does not accept this node any more");
                return;
            }
            Ok(other) => tracing::warn!(?other, "the cluster does not know this node's present address yet"),
            Err(error) => tracing::warn!(%error, "the cluster does not know this node's present address yet"),
        }
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = context.clock.sleep(UPDATE_PAUSE) => {}
        }
    }
}
