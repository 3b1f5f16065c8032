//! Delivery of hints: to their replicas when these are back, or handed over to other members when this node leaves.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cql_lite::types::token::shard_of;
use helenus_engine::Mutation;
use helenus_engine::key::{REGULAR_START, behind};
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::{AGED_HINTS, HINT_WINDOWS};

use super::{
    CHUNK_BYTES, CHUNK_HINTS, Hint, ROUND, SCAN_BUDGET, TABLE, WrittenAt, absence, damaged, forget_bytes,
    remove, write_durably,
};
use crate::coordinator::change_feed::anew;
use crate::coordinator::replica::apply::apply_at_replica;
use crate::coordinator::replica::hints::revive;
use crate::coordinator::replica::hints::target::HintTarget;
use crate::coordinator::replica::message::{ReplicaRequest, ReplicaResponse};
use crate::coordinator::replica::{companions, write};
use crate::shard::context::{IGNORE_MSB, ShardContext};
use crate::shard::private_table::PrivateRange;
use crate::shard::status_table::ServingState;

/// Pause between two looks whether a delivery has ended.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause without a look at the rate.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Removes the hints from this shard, because this node leaves for good: hints for members that answer are delivered,
/// the others are handed over to a member that stays. False: the caller must try again.
pub async fn hand_over(context: &Rc<ShardContext>) -> Result<bool> {
    if !context.replication().hints.is_loaded() {
        return Ok(false);
    }
    begin_deliveries(context);
    let view = context.cluster();
    let targets: Vec<(HostId, Rc<HintTarget>)> = {
        let targets = context.replication().hints.targets.borrow();
        targets.iter().map(|(host_id, target)| (*host_id, target.clone())).collect()
    };
    for (host_id, target) in targets.into_iter().filter(|(_, target)| target.bytes.get() > 0) {
        if target.is_delivering.get() || view.is_alive(&host_id) {
            return Ok(false);
        }
        let keepers = view.topology.members.values().filter(|member| {
            member.state == MemberState::Normal
                && member.host_id != context.node.host_id
                && view.is_alive(&member.host_id)
        });
        // The same keeper for all hints, so that they stay in order.
        let Some(keeper) = keepers.min_by_key(|member| member.host_id) else { return Ok(false) };
        target.is_delivering.set(true);
        let outcome = hand_over_to(context, keeper, host_id, &target).await;
        target.is_delivering.set(false);
        if !outcome? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn hand_over_to(
    context: &Rc<ShardContext>,
    keeper: &Member,
    host_id: HostId,
    target: &HintTarget,
) -> Result<bool> {
    tracing::info!(target = %host_id, keeper = %keeper.host_id, bytes = target.bytes.get(), "hints are handed over");
    target.cursor.borrow_mut().clear();
    loop {
        let chunk = read_chunk(context, host_id, target).await?;
        if chunk.is_empty() {
            // The other counted hints do not exist: they were removed, or never written.
            forget_bytes(context, target, target.bytes.get());
            return Ok(true);
        }
        for hint in &chunk {
            if let Some(change) = change_of(context, hint) {
                let shard = shard_of(change.token, u32::from(keeper.shard_count), IGNORE_MSB) as u16;
                let request = keep_request(context, host_id, hint);
                let timeout = Duration::from_millis(context.node.config.write_request_timeout_ms);
                if let Err(error) = context.ask(keeper, shard, &request, timeout).await {
                    tracing::warn!(keeper = %keeper.host_id, %error, "a hint could not be handed over; it will be retried");
                    return Ok(false);
                }
            }
            context.shard.admit_essential().await?;
            remove(context, host_id, target, hint)?;
        }
    }
}

/// The request to keep a hint. A member with an older program takes the hint for one that it stores now, when a truncation is under way.
fn keep_request(context: &ShardContext, target: HostId, hint: &Hint) -> ReplicaRequest {
    let WrittenAt { created_micros, kept_micros } = hint.age;
    let mutation = hint.mutation.to_vec();
    if context.cluster_view().topology.feature_level < AGED_HINTS {
        return ReplicaRequest::KeepHint { target, created_micros, mutation };
    }
    let age_micros = context.clock.now_micros().saturating_sub(kept_micros).max(0).unsigned_abs();
    ReplicaRequest::KeepAgedHint { target, created_micros, age_micros, mutation }
}

/// Gives up the hints of this shard for a target, or all: an operator does not want them any more. Waits for a delivery to end its chunk. Hints
/// that are written meanwhile are not meant.
pub async fn give_up(context: &Rc<ShardContext>, target: Option<HostId>) -> Result<()> {
    if !context.replication().hints.is_loaded() {
        let reason = "the hints of the last run are not known yet: try again later";
        return Err(RequestError::Server(reason.to_owned()));
    }
    let given_up: Vec<(HostId, Rc<HintTarget>)> = {
        let targets = context.replication().hints.targets.borrow();
        let chosen = targets.iter().filter(|(host_id, _)| target.is_none_or(|target| target == **host_id));
        chosen.map(|(host_id, target)| (*host_id, target.clone())).collect()
    };
    for (host_id, target) in given_up {
        while target.is_delivering.get() {
            // Set again at each look: another truncation clears it when it begins.
            target.is_unwanted.set(true);
            context.clock.sleep(LOOK_PAUSE).await;
        }
        target.is_delivering.set(true);
        target.is_unwanted.set(false);
        let outcome = give_up_for(context, host_id, &target).await;
        target.is_delivering.set(false);
        outcome?;
    }
    Ok(())
}

async fn give_up_for(context: &Rc<ShardContext>, host_id: HostId, target: &HintTarget) -> Result<()> {
    let mut left = target.bytes.get();
    target.cursor.borrow_mut().clear();
    while left > 0 {
        let chunk = read_chunk(context, host_id, target).await?;
        let Some(last) = chunk.last() else { break };
        for hint in &chunk {
            left = left.saturating_sub(hint.mutation.len() as u64);
            context.shard.admit_essential().await?;
            remove(context, host_id, target, hint)?;
            context.metrics.hints_dropped.increment();
        }
        target.move_cursor(behind(&last.position));
    }
    Ok(())
}

/// Starts the task that looks, every second, for members that can receive their hints.
pub fn spawn_replay(context: &Rc<ShardContext>) {
    context.repeat(ROUND, async |context| {
        if let Err(error) = note_who_is_down(context).await {
            tracing::debug!(%error, "who is down could not be noted; it will be retried");
        }
        if context.replication().hints.is_loaded() && may_deliver(context) {
            begin_deliveries(context);
        }
    });
}

/// Whether hints are delivered now. A node that leaves delivers them even where an operator has paused that.
fn may_deliver(context: &ShardContext) -> bool {
    context.node.settings.delivers_hints() || context.node.status.state() == ServingState::Leaving
}

/// Looks who is down now, and notes it durably.
async fn note_who_is_down(context: &ShardContext) -> Result<()> {
    let absences = &context.replication().hints.absences;
    let changes = absences.borrow_mut().look(context);
    if changes.is_empty() || context.cluster_view().topology.feature_level < HINT_WINDOWS {
        return Ok(());
    }
    context.shard.admit_internal().await?;
    let mut change = TABLE.change(absence::PARTITION);
    changes.put(context, &mut change);
    write_durably(context, change).await?;
    absences.borrow_mut().are_noted(&changes);
    Ok(())
}

/// Starts delivery to every member that has hints, is reachable, and has no delivery in progress.
fn begin_deliveries(context: &Rc<ShardContext>) {
    let view = context.cluster();
    let targets: Vec<(HostId, Rc<HintTarget>)> = context
        .replication()
        .hints
        .targets
        .borrow()
        .iter()
        .filter(|(_, target)| target.bytes.get() > 0 && !target.is_delivering.get())
        .map(|(host_id, target)| (*host_id, target.clone()))
        .collect();
    for (host_id, target) in targets {
        // The member has left, or its join was cancelled. Version 0: no members are known yet.
        let has_left = view.topology.version > 0 && view.topology.member(&host_id).is_none();
        // A target that refuses writes until its disk has room says when that is over.
        let has_room = !context.node.disks.of(&host_id).is_reserve_reached;
        if has_left || (view.is_alive(&host_id) && has_room) {
            target.is_delivering.set(true);
            let context = context.clone();
            tokio::task::spawn_local(async move {
                tracing::debug!(target = %host_id, bytes = target.bytes.get(), "hints are replayed");
                if let Err(error) = deliver_all(&context, host_id, &target).await {
                    tracing::warn!(target = %host_id, %error, "hints could not be replayed");
                }
                target.is_delivering.set(false);
            });
        }
    }
}

/// Delivers a target's hints until none are left or one is refused.
async fn deliver_all(context: &Rc<ShardContext>, host_id: HostId, target: &HintTarget) -> Result<()> {
    loop {
        if *context.node.stopping.borrow() || !may_deliver(context) || target.is_unwanted.get() {
            return Ok(());
        }
        let chunk = read_chunk(context, host_id, target).await?;
        let Some(last) = chunk.last() else {
            if target.bytes.get() == 0 || target.writing.get() > 0 {
                return Ok(());
            }
            if target.cursor.borrow().is_empty() {
                // No hints are there: they were counted twice (written while the start was counting), or their write
                // was abandoned.
                forget_bytes(context, target, target.bytes.get());
                return Ok(());
            }
            target.cursor.borrow_mut().clear();
            continue;
        };
        let bytes: u64 = chunk.iter().map(|hint| hint.mutation.len() as u64).sum();
        let outcomes =
            futures::future::join_all(chunk.iter().map(|hint| deliver(context, host_id, hint))).await;
        let mut first_kept = None;
        for (hint, is_done) in chunk.iter().zip(outcomes) {
            if is_done {
                context.shard.admit_essential().await?;
                remove(context, host_id, target, hint)?;
            } else if first_kept.is_none() {
                first_kept = Some(hint.position.clone());
            }
        }
        if let Some(position) = first_kept {
            target.move_cursor(position);
            return Ok(());
        }
        target.move_cursor(behind(&last.position));
        keep_pace(context, target, bytes).await;
    }
}

/// Waits as long as these bytes may take at the present rate. A change of the rate is seen within a second, and so is an end of the delivery.
async fn keep_pace(context: &ShardContext, target: &HintTarget, bytes: u64) {
    let mut left = bytes as f64;
    while left > 0.0 && !*context.node.stopping.borrow() && may_deliver(context) && !target.is_unwanted.get()
    {
        let rate = match context.node.settings.hint_bytes_per_second() {
            0 => return,
            rate => (rate / context.node.shard_count() as u64).max(1) as f64,
        };
        let pause = Duration::from_secs_f64(left / rate).min(LONGEST_PAUSE);
        context.clock.sleep(pause).await;
        left -= rate * pause.as_secs_f64();
        if pause < LONGEST_PAUSE {
            return;
        }
    }
}

/// Reads the oldest hints of a target.
async fn read_chunk(context: &Rc<ShardContext>, host_id: HostId, target: &HintTarget) -> Result<Vec<Hint>> {
    let cursor = target.begin_chunk();
    let first: &[u8] = if cursor.is_empty() { REGULAR_START } else { &cursor };
    let mut range = PrivateRange::from_position(host_id.as_bytes(), first);
    let mut chunk = Vec::new();
    let mut bytes = 0;
    loop {
        let next = {
            let mut scan = TABLE.scan(&context.shard, &range, context.now_seconds(), SCAN_BUDGET)?;
            while let Some(row) = scan.next()? {
                if chunk.len() >= CHUNK_HINTS || bytes >= CHUNK_BYTES {
                    return Ok(chunk);
                }
                let Some(created) = row.position.get(1..9).and_then(|bytes| bytes.try_into().ok()) else {
                    return Err(damaged("a hint"));
                };
                bytes += row.value.len();
                chunk.push(Hint {
                    position: row.position.to_vec(),
                    age: WrittenAt {
                        created_micros: i64::from_be_bytes(created),
                        kept_micros: row.timestamp,
                    },
                    mutation: Bytes::copy_from_slice(row.value),
                });
            }
            scan.resume_bound()?
        };
        match next {
            Some(next) => range = range.rest(next),
            None => return Ok(chunk),
        }
        tokio::task::yield_now().await;
    }
}

/// The mutation of a hint; `None` if it must not be applied any more.
fn change_of(context: &ShardContext, hint: &Hint) -> Option<PartitionMutation> {
    match Mutation::from_bytes(hint.mutation.clone()) {
        Ok(mutation) => revive(context, &mutation, hint.age),
        Err(error) => {
            debug_assert!(false, "a stored hint can be read: {error}");
            tracing::error!(%error, "a stored hint cannot be read; it is dropped");
            None
        }
    }
}

/// Delivers one hint. True when it need not be kept any more.
async fn deliver(context: &Rc<ShardContext>, host_id: HostId, hint: &Hint) -> bool {
    let Some(change) = change_of(context, hint) else {
        context.metrics.hints_dropped.increment();
        return true;
    };
    let mutation = change.mutation.clone();
    let is_delivered = match ask(context, host_id, &change).await {
        Some(Ok(ReplicaResponse::NotOwner)) | None => {
            // The target has left, or the partition belongs to other replicas or is about to: the mutation is sent to
            // all of them.
            write::deliver(context, change, hint.age.created_micros, true).await
        }
        Some(Ok(_)) => true,
        Some(Err(error)) => {
            tracing::debug!(target = %host_id, %error, "a hint could not be delivered");
            false
        }
    };
    let is_done = is_delivered && is_told(context, &mutation).await;
    if is_done {
        context.metrics.hints_replayed.increment();
    }
    is_done
}

/// Whether those who compute views know of a change that has come late. Otherwise its hint is delivered again.
async fn is_told(context: &Rc<ShardContext>, mutation: &Mutation) -> bool {
    let told = anew::write_of_late(context, mutation).await;
    told.inspect_err(|error| tracing::debug!(%error, "a late change is not in the log of its views")).is_ok()
}

/// Asks a target to apply a mutation that it missed; `None`: the target is not a member any more.
async fn ask(
    context: &Rc<ShardContext>,
    host_id: HostId,
    change: &PartitionMutation,
) -> Option<Result<ReplicaResponse, PeerError>> {
    let bytes = change.mutation.bytes();
    if host_id == context.node.host_id {
        return Some(receive(context, bytes.clone()).await.map_err(PeerError::from));
    }
    let member = context.cluster().topology.member(&host_id)?.clone();
    let shard = shard_of(change.token, u32::from(member.shard_count), IGNORE_MSB) as u16;
    let timeout = Duration::from_millis(context.node.config.write_request_timeout_ms);
    let request = ReplicaRequest::Hint { mutation: bytes.to_vec() };
    match context.ask(&member, shard, &request, timeout).await {
        Ok(response) => Some(Ok(response)),
        Err(error) => Some(Err(error)),
    }
}

/// Applies a hint on this node, if it is a replica of the partition and no other replica is about to take it over.
pub async fn receive(context: &Rc<ShardContext>, mutation: Bytes) -> Result<ReplicaResponse, Failure> {
    let parsed =
        Mutation::from_bytes(mutation.clone()).map_err(|error| Failure::Malformed(error.to_string()))?;
    let view = parsed.view().map_err(|error| Failure::Malformed(error.to_string()))?;
    let Some(table) = context.catalog_view().table(view.table).cloned() else {
        return Err(Failure::UnknownTable { table_id: u128::from_be_bytes(view.table.0) });
    };
    let (epoch, is_settled) = {
        let cluster = context.cluster_view();
        let replicas = cluster.placement(&table.keyspace).map(|placement| placement.replicas(view.token));
        let is_settled = replicas.is_none_or(|replicas| {
            let is_still = replicas.pending.is_empty() && replicas.other.is_none();
            is_still && replicas.contains(&context.node.host_id)
        });
        // What belongs to it may have other replicas by now.
        let are_together = companions::are_together(context, &parsed)
            .map_err(|error| Failure::Malformed(error.to_string()))?;
        let is_settled = is_settled && are_together;
        (cluster.topology.epoch, is_settled)
    };
    // While ownership changes hands, the new replica may already have streamed the range from here: it must get this
    // mutation as well.
    if !is_settled {
        return Ok(ReplicaResponse::NotOwner);
    }
    apply_at_replica(context, Some(epoch), mutation).await?;
    Ok(ReplicaResponse::Written)
}
