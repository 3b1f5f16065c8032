//! How a node takes part in the metadata log from its start to its stop.
//!
//! * With a stored state it goes on from there; if it is reached elsewhere now, it lets the others know.
//! * Without one, and without another node's address as its first seed, it founds a cluster of one.
//! * Without one, but with seeds, it waits for [`super::join::join`].

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use helenus_internode::endpoint::Endpoint;
use helenus_internode::handshake::SAME_HOST_CODE;
use helenus_internode::service::{self};
use helenus_internode::transport::{CallError, Destination};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::document::CatalogDocument;
use helenus_ring::HostId;
use helenus_ring::member::MemberState;
use helenus_ring::metadata::{Command, MemberUpdate, Outcome, Refusal};

use super::message::{ClusterRequest, ClusterResponse};
use super::notices::Notices;
use super::propose::{commit, propose};
use super::raft::MetadataLog;
use super::stored::{Contents, Stored, decode_file};
use super::{departure, voters};
use crate::cluster::own_member::{own_member, version_as_member};
use crate::cluster::stored::CATALOG_FILE;
use crate::shard::context::ShardContext;

/// The longest that founding a cluster may take.
const FOUNDING_DEADLINE: Duration = Duration::from_secs(30);
/// How long one try to resolve a seed takes.
const RESOLVING_PATIENCE: Duration = Duration::from_secs(10);
/// How long the first seed, which may be this node, is asked for until the start fails.
const RESOLVING_DEADLINE: Duration = Duration::from_mins(1);
/// The same where there are other seeds to ask.
const RESOLVING_PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(5);
const RESOLVING_PAUSE: Duration = Duration::from_secs(1);
/// How long an answer is waited for from where this node was before, or from a seed that it does not need.
const COPY_PATIENCE: Duration = Duration::from_secs(2);
/// How long one try to let the others know of a new address takes.
const UPDATE_DEADLINE: Duration = Duration::from_secs(30);
/// How long to wait before the next.
const UPDATE_PAUSE: Duration = Duration::from_secs(5);

/// Whether a node that has no stored state founds a cluster: nobody else is to be asked first.
async fn founds(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<bool> {
    let Some(first) = seeds.first() else { return Ok(true) };
    let own = own_member(context, MemberState::Normal).internode_address;
    let has_others = seeds.len() > 1;
    let deadline = if has_others { RESOLVING_PATIENCE_WITH_OTHERS } else { RESOLVING_DEADLINE };
    let end = context.clock.monotonic() + deadline;
    let mut notices = Notices::default();
    loop {
        match resolve(context, first).await {
            Ok(addresses) => return Ok(addresses.contains(&own)),
            Err(error) => {
                if context.clock.monotonic() >= end {
                    if has_others {
                        tracing::warn!(%error, "it is taken for another node's; the other seeds are asked");
                        return Ok(false);
                    }
                    return Err(RequestError::Server(error.to_string()));
                }
                if notices.is_due(first, &error, context.clock.monotonic()) {
                    tracing::warn!(%error, "it is asked for again");
                }
            }
        }
        context.clock.sleep(RESOLVING_PAUSE).await;
    }
}

/// A seed that stands for no address.
#[derive(Debug, Clone, thiserror::Error)]
#[error("seed '{seed}' cannot be resolved: {reason}")]
pub struct Unresolved {
    seed: Endpoint,
    reason: String,
}

/// The addresses that a seed stands for now: at least one.
pub async fn resolve(context: &ShardContext, seed: &Endpoint) -> Result<Vec<SocketAddr>, Unresolved> {
    let unresolved = |reason: String| Unresolved { seed: seed.clone(), reason };
    match super::propose::within(context, RESOLVING_PATIENCE, context.transport.resolve(seed)).await {
        Some(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
        Some(Ok(_)) => Err(unresolved("the name stands for no address".to_owned())),
        Some(Err(error)) => Err(unresolved(error.to_string())),
        None => Err(unresolved(format!("no answer within {} s", RESOLVING_PATIENCE.as_secs()))),
    }
}

/// Opens the metadata log and takes part. On the first shard, when all shards are served. Returns whether the node belongs to
/// a cluster; if not, it is to join one.
pub async fn start(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<bool> {
    departure::watch(context);
    let stored = stored_state(context).await?;
    let is_founded = stored.as_ref().is_some_and(|stored| stored.state.is_founded());
    let log = Rc::new(MetadataLog::open(context, stored).await?);
    context.begin_metadata_log(log.clone());
    let belongs = if is_founded {
        // One that was taken in only half knows the other member, and is none itself.
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
    Ok(belongs)
}

/// An error when a node with the id of this one is reached where this one was before: one of the two has a copy of the other's
/// data directory. Both would vote with one voice.
pub async fn check_no_copy_runs(context: &Rc<ShardContext>) -> Result<()> {
    let own = own_member(context, MemberState::Normal);
    let view = context.cluster();
    let before = match view.topology.member(&own.host_id) {
        Some(known) if known.internode_address != own.internode_address => known.internode_address,
        _ => return Ok(()),
    };
    match version_at(context, Some(own.host_id), before).await? {
        Ok(_) | Err(CallError::Refused { code: SAME_HOST_CODE, .. }) => Err(RequestError::Server(format!(
            "node {} runs at {before}: this data directory is a copy of that node's; start with an empty one",
            own.host_id
        ))),
        Err(_) => Ok(()),
    }
}

/// The version of the topology that whoever is at an address works with (0: none yet; `None`: the answer is another). `host_id`:
/// who must be there.
async fn version_at(
    context: &ShardContext,
    host_id: Option<HostId>,
    address: SocketAddr,
) -> Result<Result<Option<u64>, CallError>> {
    let question = ClusterRequest::Applied { version: 0, patience_ms: 0 };
    let question =
        service::encode_request(&question).map_err(|error| RequestError::Server(error.to_string()))?;
    let to = Destination { host_id, address, shard: 0 };
    let answer = context.transport.call(to, question, COPY_PATIENCE).await;
    Ok(answer.map(|answer| match service::decode_response::<ClusterRequest>(&answer) {
        Ok(Ok(ClusterResponse::Applied { version })) => Some(version),
        _ => None,
    }))
}

/// An error when a node that is a cluster of its own is given seeds that are another cluster: it was started without them once,
/// perhaps. It would go on by itself, and there would be two clusters of one name. Seeds that do not answer, or that take this node
/// for one of another name, are no reason: they may have been members before.
async fn check_seeds_are_no_other_cluster(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<()> {
    let own = own_member(context, MemberState::Normal).internode_address;
    let mut others = Vec::new();
    for resolved in join_all(seeds.iter().map(|seed| resolve(context, seed))).await {
        match resolved {
            Ok(addresses) if addresses.contains(&own) => return Ok(()),
            Ok(addresses) => others.extend(addresses),
            Err(error) => tracing::warn!(%error, "this node is a cluster of its own and does without it"),
        }
    }
    let answers = others.iter().map(|&address| version_at(context, None, address));
    for (address, answer) in others.iter().zip(join_all(answers).await) {
        match answer? {
            // Version 0: it is about to join a cluster, this one perhaps.
            Ok(Some(version)) if version > 0 => {
                return Err(RequestError::Server(format!(
                    "this node is the only member of its cluster, and its seed {address} is in another one of that name. To \
                     stay alone, start it without that seed. It joins the other cluster only with an empty data directory, \
                     without what it holds now"
                )));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(seed = %address, %error, "this node is a cluster of its own and does without a seed");
            }
        }
    }
    Ok(())
}

/// Ends the part of this node in the metadata log; before the shard is closed.
pub async fn stop(context: &ShardContext) {
    let Some(log) = context.end_metadata_log() else { return };
    if let Err(error) = log.shutdown().await {
        tracing::warn!(%error, "the metadata log did not stop cleanly");
    }
}

async fn stored_state(context: &ShardContext) -> Result<Option<Stored>> {
    let failed = |error: &dyn std::fmt::Display| RequestError::Server(error.to_string());
    let Some(bytes) = context.node.files.load(CATALOG_FILE).await.map_err(|error| failed(&error))? else {
        return Ok(None);
    };
    match decode_file(&bytes).map_err(|error| failed(&error))? {
        Contents::Catalog(_) => Ok(None),
        Contents::State(stored) => Ok(Some(stored)),
    }
}

/// Makes this node a cluster of one.
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
                Some(Outcome::Applied { .. }) => return Ok(()),
                Some(other) => return Err(failed(&format!("{other:?}"))),
                None => {}
            }
        }
        let left = end.saturating_sub(context.clock.monotonic());
        if left.is_zero() {
            return Err(failed(&"there is no leader"));
        }
        // An error means that the log has stopped: the next try says why.
        let _ = super::propose::within(context, left, leaders.changed()).await;
    }
}

/// The only voter need not wait whether somebody else leads.
async fn elect_at_once(log: &MetadataLog) -> Result<()> {
    let elected = log.elect().await;
    elected.map_err(|error| RequestError::Server(format!("the metadata log has stopped: {error}")))
}

/// Lets the others know where this node is and what it runs, until they do. Also where nothing has changed: a node that
/// was removed while it was down learns of it here.
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
            Ok(Outcome::Applied { .. }) => return,
            Ok(Outcome::Refused(refusal @ Refusal::Removed { .. })) => {
                context.node.learn_removed(&refusal);
                return;
            }
            Ok(Outcome::Refused(Refusal::UnknownMember { .. })) => {
                tracing::warn!(
                    "the join of this node was taken back: the metadata log will say so, and it will end"
                );
                return;
            }
            Ok(Outcome::Refused(refusal)) => {
                tracing::error!(%refusal, "the cluster does not accept this node any more");
                return;
            }
            Ok(other) => tracing::warn!(?other, "the cluster does not know yet where this node is now"),
            Err(error) => tracing::warn!(%error, "the cluster does not know yet where this node is now"),
        }
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = context.clock.sleep(UPDATE_PAUSE) => {}
        }
    }
}
