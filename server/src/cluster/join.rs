//! Joining: a node asks its seeds, and the leader admits it.
//!
//! Steps: the leader checks the node (name of the cluster, clock, protocol, id, addresses, tokens), adds it to the
//! metadata log as a learner that does not vote, and puts the join into the log. The node receives the log and
//! applies it. From then on it is `Joining`, and gets the data of its ranges ([`crate::streaming`]).
//!
//! A node that is to take the place of a dead member (setting `replace`) asks in the same way. It gets the tokens of that one.

use crate::cluster::raft::MetadataLog;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use helenus_internode::endpoint::Endpoint;
use helenus_internode::handshake::OTHER_HOST_CODE;
use helenus_internode::service::{self, Failure, MessageError, PROTOCOL_VERSION};
use helenus_internode::transport::{CallError, Destination};
use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_ring::allocation::{NewMember, allocate};
use helenus_ring::member::{Member, MemberState, TransitionPhase};
use helenus_ring::metadata::{self, Command, CommandOutcome, Refusal};

use super::feed_streams;
use super::log_throttle::LogThrottle;
use super::message::{ClusterRequest, ClusterResponse, JoinRequest, Place};
use super::only_copy::check_other_copies;
use super::propose::{commit, forward_to, wait_applied, within};
use super::seeds::resolve;
use crate::cluster::own_member::{is_own_address, own_member, version_as_member};
use helenus_execution::shard::context::ShardContext;

/// Largest difference between the clocks of members: timestamps order writes.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(10);
/// Timeout of a request to a seed.
const SEED_PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the seeds are asked again: starts with this one and grows up to the second one.
const SEED_RETRY_PAUSE: Duration = Duration::from_millis(50);
const SEED_RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Added to the timeout of a seed for the network round trip.
const SEED_ROUND_TRIP: Duration = Duration::from_secs(1);

/// The reason why a node did not become a member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("the cluster refuses this node: {0}")]
    Refused(#[from] Refusal),
    /// Refused before any request: another cluster name, version or clock.
    #[error("no seed accepts this node: {0}")]
    RefusedLinks(String),
    #[error(
        "every seed is this node itself: a node that takes the place of another one needs a live member among its seeds"
    )]
    NoOtherSeed,
    #[error("no seed has admitted this node within {} s; last answer: {last}", deadline.as_secs())]
    TimedOut { deadline: Duration, last: String },
    #[error(transparent)]
    Node(#[from] RequestError),
}

/// Makes this node a member, in state `Joining(WriteBoth)`, through any seed that answers. Call on the first shard.
/// Resolves with the version of the topology in which the node is a member, when the node has installed that version.
pub async fn join(
    context: &Rc<ShardContext>,
    seeds: &[Endpoint],
    deadline: Duration,
) -> Result<u64, JoinError> {
    let end = context.clock.monotonic() + deadline;
    let member = own_member(context, MemberState::Joining(TransitionPhase::WriteBoth));
    let config = &context.node.config;
    let place = config.replace.map(|of| Place { of, accepts_loss: config.replace_accept_loss });
    let mut last = "there are no seeds".to_owned();
    let mut pause = SEED_RETRY_PAUSE;
    let mut notices = LogThrottle::default();
    loop {
        let (mut asked, mut all_resolved) = (Vec::new(), true);
        for seed in seeds {
            match resolve(context, seed).await {
                Ok(addresses) => asked.extend(addresses),
                Err(error) => {
                    if notices.is_due(seed, &error, context.clock.monotonic()) {
                        tracing::warn!(%error, "a seed could not be resolved; it will be retried");
                    }
                    last = error.to_string();
                    all_resolved = false;
                }
            }
        }
        asked.retain(|address| !is_own_address(context, *address));
        if place.is_some() && all_resolved && asked.is_empty() {
            return Err(JoinError::NoOtherSeed);
        }
        let (asked_count, mut refusals) = (asked.len(), 0);
        for seed in asked {
            if let Some(version) = version_as_member(context) {
                return Ok(version);
            }
            let left = end.saturating_sub(context.clock.monotonic());
            let patience = left.min(SEED_PATIENCE);
            let request = JoinRequest {
                cluster_name: context.node.config.cluster_name.clone(),
                member: member.clone(),
                clock_micros: context.clock.now_micros(),
                forward: true,
                patience_ms: patience.as_millis() as u64,
            };
            match ask_to_join(context, seed, request, place, patience + SEED_ROUND_TRIP).await {
                Ok(ClusterResponse::Outcome(CommandOutcome::Applied { version })) => {
                    let left = end.saturating_sub(context.clock.monotonic()).max(SEED_PATIENCE);
                    wait_applied(context, version, left).await?;
                    return Ok(version);
                }
                Ok(
                    ClusterResponse::Refused(Refusal::NotFounded)
                    | ClusterResponse::Outcome(CommandOutcome::Refused(Refusal::NotFounded)),
                ) => {
                    // The seed was started at the same time as this node and is about to found the cluster.
                    last = format!("{seed}: {}", Refusal::NotFounded);
                }
                Ok(ClusterResponse::Outcome(CommandOutcome::Refused(
                    reason @ Refusal::ReplicationIsChanging { .. },
                ))) => {
                    last = format!("{seed}: {reason}");
                    if notices.is_due(&"replication", &reason, context.clock.monotonic()) {
                        tracing::info!(%reason, "waiting for the end of a change of replication");
                    }
                }
                Ok(
                    ClusterResponse::Refused(reason @ Refusal::StreamsNotActive { .. })
                    | ClusterResponse::Outcome(CommandOutcome::Refused(
                        reason @ Refusal::StreamsNotActive { .. },
                    )),
                ) => {
                    last = format!("{seed}: {reason}");
                    if notices.is_due(&"streams", &"", context.clock.monotonic()) {
                        tracing::info!(%reason, "waiting for the streams of change feeds");
                    }
                }
                Ok(
                    ClusterResponse::Refused(refusal)
                    | ClusterResponse::Outcome(CommandOutcome::Refused(refusal)),
                ) => return version_as_member(context).ok_or_else(|| refusal.into()),
                Ok(ClusterResponse::Outcome(CommandOutcome::Busy { host_id })) => {
                    last = format!("{seed}: member {host_id} is joining or leaving");
                    if notices.is_due(&"busy", &host_id, context.clock.monotonic()) {
                        tracing::info!(%host_id, "another member is joining or leaving; waiting for it to finish");
                    }
                }
                Ok(ClusterResponse::NoLeader) => {
                    last = format!("{seed}: the metadata log has no leader");
                }
                Ok(_) => last = format!("{seed}: an answer to another request"),
                Err(error) => {
                    if notices.is_due(&seed, &error, context.clock.monotonic()) {
                        tracing::warn!(%seed, %error, "a seed did not answer");
                    }
                    // Addresses may be reassigned while machines start; the other refusals are final.
                    let is_final = match &error {
                        SeedError::Call(CallError::Refused { code, .. }) => *code != OTHER_HOST_CODE,
                        _ => false,
                    };
                    refusals += usize::from(is_final);
                    last = match error {
                        // The error names the address itself.
                        SeedError::Call(error) => error.to_string(),
                        error => format!("{seed}: {error}"),
                    };
                }
            }
        }
        if refusals > 0 && refusals == asked_count {
            return Err(JoinError::RefusedLinks(last));
        }
        let left = end.saturating_sub(context.clock.monotonic());
        if left.is_zero() {
            return Err(JoinError::TimedOut { deadline, last });
        }
        context.clock.sleep(pause.min(left)).await;
        pause = (pause + SEED_RETRY_PAUSE).min(SEED_RETRY_PAUSE_MAX);
    }
}

/// The reason why a seed gave no answer.
#[derive(Debug, thiserror::Error)]
enum SeedError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("{0}")]
    Failed(Failure),
}

fn request_of(request: JoinRequest, place: Option<Place>) -> ClusterRequest {
    match place {
        _ if request.member.encrypts_tables => ClusterRequest::JoinEncrypting(Box::new(request), place),
        None => ClusterRequest::Join(Box::new(request)),
        Some(place) => ClusterRequest::Replace(Box::new(request), place),
    }
}

/// Asks a seed to be taken in. An older one does not know members that encrypt: it is asked as by one that does not, and learns it later.
async fn ask_to_join(
    context: &Rc<ShardContext>,
    seed: SocketAddr,
    mut request: JoinRequest,
    place: Option<Place>,
    deadline: Duration,
) -> Result<ClusterResponse, SeedError> {
    let encrypts = request.member.encrypts_tables;
    match ask_seed(context, seed, request_of(request.clone(), place), deadline).await {
        Err(SeedError::Failed(Failure::Malformed(_))) if encrypts => {
            request.member.encrypts_tables = false;
            ask_seed(context, seed, request_of(request, place), deadline).await
        }
        answer => answer,
    }
}

async fn ask_seed(
    context: &Rc<ShardContext>,
    seed: SocketAddr,
    request: ClusterRequest,
    deadline: Duration,
) -> Result<ClusterResponse, SeedError> {
    let request = service::encode_request(&request).map_err(SeedError::Failed)?;
    let to = Destination { host_id: None, address: seed, shard: 0 };
    let answer = context.transport.call(to, request, deadline).await?;
    service::decode_response::<ClusterRequest>(&answer)?.map_err(SeedError::Failed)
}

/// Executes [`ClusterRequest::Join`], or [`ClusterRequest::Replace`] if there is a place.
pub async fn handle(
    context: &Rc<ShardContext>,
    request: JoinRequest,
    place: Option<Place>,
) -> Result<ClusterResponse, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
    let patience = Duration::from_millis(request.patience_ms).min(SEED_PATIENCE);
    let leader = MetadataLog::of(context).map_err(|error| failed(&error))?.leader();
    if leader != Some(context.node.host_id) {
        let member = leader.and_then(|leader| context.cluster_view().topology.member(&leader).cloned());
        let (true, Some(member)) = (request.forward, member) else { return Ok(ClusterResponse::NoLeader) };
        // The leader compares its clock with the member that forwards the request.
        if let Err(refusal) = check_node(context, &request) {
            return Ok(ClusterResponse::Refused(refusal));
        }
        let clock_micros = context.clock.now_micros();
        let request = JoinRequest { forward: false, clock_micros, ..request };
        return forward_to(context, &member, request_of(request, place), patience).await;
    }
    if let Err(refusal) = check_node(context, &request) {
        return Ok(ClusterResponse::Refused(refusal));
    }
    take_in(context, &request, place, patience).await
}

/// The checks that do not need the metadata log.
fn check_node(context: &ShardContext, request: &JoinRequest) -> Result<(), Refusal> {
    let ours = &context.node.config.cluster_name;
    if *ours != request.cluster_name {
        return Err(Refusal::OtherCluster { ours: ours.clone(), theirs: request.cluster_name.clone() });
    }
    let theirs = request.member.protocol_version;
    if theirs == 0 || theirs > PROTOCOL_VERSION {
        return Err(Refusal::ProtocolVersion { ours: PROTOCOL_VERSION, theirs });
    }
    let skew = Duration::from_micros(context.clock.now_micros().abs_diff(request.clock_micros));
    if skew > CLOCK_SKEW_MAX {
        return Err(Refusal::ClockSkew {
            skew_ms: skew.as_millis() as u64,
            allowed_ms: CLOCK_SKEW_MAX.as_millis() as u64,
        });
    }
    Ok(())
}

async fn take_in(
    context: &Rc<ShardContext>,
    request: &JoinRequest,
    place: Option<Place>,
    patience: Duration,
) -> Result<ClusterResponse, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
    let log = MetadataLog::of(context).map_err(|error| failed(&error))?;
    let host_id: HostId = request.member.host_id;
    let state = log.state();
    let known = state.topology.member(&host_id);
    // The node knew no other member when it chose its tokens.
    let tokens = match (known, place) {
        (Some(known), _) => known.tokens.clone(),
        // The log gives it those of the dead member.
        (None, Some(_)) => request.member.tokens.clone(),
        (None, None) => {
            allocate(
                &state.topology,
                &NewMember {
                    data_center: &request.member.data_center,
                    rack: &request.member.rack,
                    token_count: request.member.tokens.len(),
                    replication_factor: context.node.config.allocate_tokens_for_replication_factor,
                    offset: host_id.as_u64_pair().1,
                },
            )
            .await
        }
    };
    let member = Member { tokens, ..request.member.clone() };
    let is_new = known.is_none();
    let streams_for = match place.and_then(|place| state.topology.member(&place.of)) {
        Some(replaced) => Member { tokens: replaced.tokens.clone(), ..member.clone() },
        None => member.clone(),
    };
    let command = match place {
        None => Command::Join { member },
        Some(Place { of: replaced, accepts_loss }) => {
            Command::StartReplacement { member, replaced, accepts_loss }
        }
    };
    // If the log would refuse the command now, it is not first replicated to the new node.
    let (_, expected) = metadata::apply(&state, state.topology.version + 1, &command);
    let waits_for_streams = matches!(expected, CommandOutcome::Refused(Refusal::StreamsNotActive { .. }));
    if !matches!(expected, CommandOutcome::Applied { .. }) && !waits_for_streams {
        return Ok(ClusterResponse::Outcome(expected));
    }
    if let Some(place) = place.filter(|_| is_new)
        && let Err(refusal) = check_dead(context, place)
    {
        return Ok(ClusterResponse::Refused(refusal));
    }
    if is_new
        && let Some(waits) =
            feed_streams::hold(context, &streams_for, patience).await.map_err(|error| failed(&error))?
    {
        return Ok(waits);
    }
    log.addresses.borrow_mut().insert(host_id, request.member.internode_address);
    let (voters, learners) = log.participants();
    if !voters.contains(&host_id) && !learners.contains(&host_id) {
        let added = within(context, patience, log.add_learner(host_id)).await;
        match added {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::debug!(%host_id, %error, "a new node could not be added to the metadata log");
                return Ok(ClusterResponse::NoLeader);
            }
            None => return Ok(ClusterResponse::NoLeader),
        }
    }
    let outcome = commit(context, &command, patience).await.map_err(|error| failed(&error))?;
    Ok(outcome.map_or(ClusterResponse::NoLeader, ClusterResponse::Outcome))
}

/// Refuses a place whose member is alive, or has the only copy of ranges that nobody has given up.
fn check_dead(context: &ShardContext, place: Place) -> Result<(), Refusal> {
    let host_id = place.of;
    if context.cluster_view().is_alive(&host_id) {
        return Err(Refusal::ReplacedAlive { host_id });
    }
    if place.accepts_loss {
        return Ok(());
    }
    check_other_copies(context, &[host_id].into())
}
