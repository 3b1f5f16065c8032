//! A replica's side of transactions.
//!
//! Invariants:
//! * A question is answered from the registers and the data in one turn of the owning shard's thread: nothing happens
//!   between reading, changing and writing them.
//! * State that an answer depends on (a promise, an accepted proposal, the data read) is synced before the answer is
//!   sent, whatever the sync mode of the commit log.
//! * Questions are fenced: no former replica answers one.
//! * Nothing is promised, accepted or applied that is not above the last truncation of the table that was agreed on. While the truncations
//!   of the last run cannot be read, no question is answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use helenus_engine::read::{Purgeable, VersionLimit, VersionScanRequest};
use helenus_engine::{Mutation, MutationRef, TableId};
use helenus_internode::service::Failure;
use helenus_ring::view::ClusterView;

use super::late_commit::{self, outdated_micros};
use super::message::{
    PartitionName, PaxosOrder, PaxosRequest, PaxosResponse, RangeVersions, ReadAnswer, ReadOrder, TableRead,
};
use super::proposer::{Promise, Question};
use super::state::{Commit, PromiseOutcome};
use super::store::{self, Change, StoreError};
use super::truncation;
use crate::coordinator::change_feed::anew;
use crate::coordinator::replica::{apply, epoch};
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;

/// The transaction state that a shard keeps in memory.
#[derive(Default)]
pub struct PaxosState {
    /// The last timestamp that this node issued as a single node: transactions of the cluster come after it.
    alone_until_micros: Cell<i64>,
    /// Queues of the transactions that this shard coordinates, by partition.
    pub queues: super::partition_queue::PartitionQueues,
    /// Leases of partitions that this shard has granted to coordinators.
    pub leases: super::lease::Leases,
    /// Replicas that are not asked for leases at the moment.
    pub silent: super::silent_replicas::SilentReplicas,
    /// Where the next scan for idle transactions begins: a full key, or nothing.
    pub settling_from: RefCell<Vec<u8>>,
}

impl ShardContext {
    /// The transaction state of the shard.
    #[inline]
    pub fn paxos(&self) -> &PaxosState {
        self.layers.get()
    }
}

/// Records the shard's last timestamp when a single node becomes a member of a larger cluster: transactions of the
/// cluster come after it.
pub fn view_changes(context: &ShardContext, next: &ClusterView) {
    if !next.is_alone() && context.cluster_view().is_alone() {
        let alone_until = &context.paxos().alone_until_micros;
        alone_until.set(alone_until.get().max(context.last_timestamp()));
    }
}

fn failed(error: &StoreError) -> Failure {
    match error {
        StoreError::Engine(error) => error.clone().into(),
        error => Failure::Internal(error.to_string()),
    }
}

/// Executes a request on the shard that owns the partition.
pub async fn receive(context: &Rc<ShardContext>, request: PaxosRequest) -> Result<PaxosResponse, Failure> {
    let owner = context.node.shard_of(request.partition.token);
    if let Some(commit) = request.order.commit() {
        let mutation = MutationRef::parse(&commit.mutation);
        let mutation = mutation.map_err(|error| Failure::Malformed(error.to_string()))?;
        if mutation.has_companions() {
            apply::apply_elsewhere(context, Some(request.epoch), &mutation).await?;
        }
    }
    if owner == context.index {
        return carry_out(context.clone(), request).await;
    }
    context
        .run_on(owner, move |context| Box::pin(carry_out(context, request)))
        .await
        .map_err(|error| Failure::Internal(error.to_string()))?
}

async fn carry_out(context: Rc<ShardContext>, request: PaxosRequest) -> Result<PaxosResponse, Failure> {
    if !context.replication().hints.is_loaded() {
        // What was agreed on before a truncation would be applied.
        return Err(Failure::Internal("the times of truncations cannot be read yet".to_owned()));
    }
    let wait = Duration::from_millis(context.node.config.cas_contention_timeout_ms);
    epoch::fence(&context, request.epoch, wait).await?;
    // What was promised is carried out, however far compactions are behind.
    if let PaxosOrder::Ask { question: Question::Prepare { is_write: true, .. }, .. }
    | PaxosOrder::AskOfTables { question: Question::Prepare { is_write: true, .. }, .. } = &request.order
    {
        context.shard.keep_pace_with_compactions().await.map_err(Failure::from)?;
    }
    // Transactions were checked for room when they began. What was begun ends, and SERIAL reads go on, also on a full disk.
    context.shard.admit_essential().await.map_err(Failure::from)?;
    // The turn reads and writes. What it reads is there before it begins.
    let _warm = context.shard.warm(|| touch(&context, &request)).await?;
    epoch::refuse_stale(&context, request.epoch)?;
    let PaxosRequest { partition, order, .. } = request;
    let is_late = |commit: &&Commit| anew::is_late_commit(&context, commit.origin.micros);
    let late = order.commit().filter(is_late).map(|commit| Bytes::copy_from_slice(&commit.mutation));
    let response = match order {
        PaxosOrder::Ask { question, read } => {
            let read = read.map(|order| TableRead { table_id: partition.table_id, order });
            answer(&context, &partition, question, read.as_slice())?
        }
        PaxosOrder::AskOfTables { question, reads } => answer(&context, &partition, question, &reads)?,
        PaxosOrder::Commit(commit) => {
            apply_commit(&context, &partition, &commit)?;
            PaxosResponse::Committed
        }
        PaxosOrder::Forget { ballot } => {
            let kept = truncation::kept_seconds(&context);
            let written = store::forget(&context.shard, &partition, &ballot, context.now_seconds(), kept)
                .map_err(|error| failed(&error))?;
            context.note_append(written);
            PaxosResponse::Forgotten
        }
    };
    let is_relied_on = match &response {
        PaxosResponse::Rejected { .. } | PaxosResponse::Forgotten => false,
        PaxosResponse::Committed => {
            if let Some(position) = context.last_append() {
                context.shard.durable(position).await.map_err(Failure::from)?;
            }
            false
        }
        PaxosResponse::Promised(_) | PaxosResponse::Accepted => true,
    };
    if let Some(position) = context.last_append().filter(|_| is_relied_on) {
        context.shard.on_disk(position).await.map_err(Failure::from)?;
    }
    if let Some(late) = late {
        let late = Mutation::from_bytes(late).map_err(|error| Failure::Malformed(error.to_string()))?;
        // Whoever sends a commit keeps a hint for a replica that fails.
        let told = anew::write_of_late(&context, &late).await;
        told.map_err(|error| Failure::Internal(error.to_string()))?;
    }
    Ok(response)
}

/// Reads what a request will read.
fn touch(context: &ShardContext, request: &PaxosRequest) -> Result<(), Failure> {
    store::load(&context.shard, &request.partition).map_err(|error| failed(&error))?;
    match &request.order {
        PaxosOrder::Ask { read: Some(order), .. } => {
            let table_id = request.partition.table_id;
            read_versions(context, &[TableRead { table_id, order: order.clone() }])?;
        }
        PaxosOrder::AskOfTables { reads, .. } => drop(read_versions(context, reads)?),
        PaxosOrder::Ask { read: None, .. } | PaxosOrder::Commit(_) | PaxosOrder::Forget { .. } => {}
    }
    Ok(())
}

/// Applies an agreed mutation and then records the commit, unless it was applied before. A commit that comes too late is only recorded,
/// without its rows.
fn apply_commit(context: &ShardContext, name: &PartitionName, commit: &Commit) -> Result<(), Failure> {
    let registers = store::load(&context.shard, name).map_err(|error| failed(&error))?;
    let is_known = registers.committed.as_ref().is_some_and(|known| known.ballot == commit.ballot);
    if is_known || registers.is_forgotten(commit) {
        return Ok(());
    }
    let malformed = |error: &dyn std::fmt::Display| Failure::Malformed(error.to_string());
    let mutation = Mutation::from_bytes(commit.mutation.clone().into()).map_err(|error| malformed(&error))?;
    let view = mutation.view().map_err(|error| malformed(&error))?;
    let is_of_partition =
        view.table.0 == name.table_id && view.token == name.token && view.partition_key == name.key;
    if !is_of_partition {
        return Err(malformed(&"a commit of another partition"));
    }
    let in_time = late_commit::in_time(context, &view, &commit.origin)?;
    let position = if let Some(in_time) = in_time {
        tracing::debug!(table = %view.table, ballot = %commit.ballot, "a commit is noted and not applied");
        if let Some(applied) = in_time.applied {
            let applied = applied.view().map_err(|error| malformed(&error))?;
            apply::apply_own(context, &applied).map_err(Failure::from)?;
        }
        let mutation = in_time.noted.bytes().to_vec();
        store::save_commit(&context.shard, name, &Commit { mutation, ..commit.clone() })
    } else {
        context.metrics.writes.increment();
        apply::apply_own(context, &view).map_err(Failure::from)?;
        store::save_commit(&context.shard, name, commit)
    };
    context.note_append(position.map_err(|error| failed(&error))?);
    Ok(())
}

/// Answers a question, in this turn.
fn answer(
    context: &ShardContext,
    name: &PartitionName,
    question: Question,
    reads: &[TableRead],
) -> Result<PaxosResponse, Failure> {
    let load = || store::load(&context.shard, name);
    let truncated_micros = context.replication().hints.agreed_truncation(&TableId(name.table_id));
    let refused_micros = outdated_micros(context).max(truncated_micros.unwrap_or(i64::MIN));
    match question {
        Question::Prepare { ballot, is_write, commit } => {
            if let Some(commit) = commit {
                apply_commit(context, name, &commit)?;
            }
            let above_micros = context.paxos().alone_until_micros.get().max(refused_micros);
            if ballot.micros <= above_micros {
                return Ok(PaxosResponse::Rejected { above_micros });
            }
            let before = load().map_err(|error| failed(&error))?;
            let mut after = before.clone();
            let permitted_above_micros = match after.promise(ballot, is_write) {
                PromiseOutcome::Rejected { above_micros } => {
                    return Ok(PaxosResponse::Rejected { above_micros });
                }
                PromiseOutcome::ReadPermitted { above_micros } => Some(above_micros),
                PromiseOutcome::Promised if context.has_bug(PlantedBug::ForgetPromise) => None,
                PromiseOutcome::Promised => {
                    let position = store::save(&context.shard, name, &after, Change::Promise { is_write })
                        .map_err(|error| failed(&error))?;
                    context.note_append(position);
                    None
                }
            };
            let read = (!reads.is_empty()).then(|| read_versions(context, reads)).transpose()?;
            Ok(PaxosResponse::Promised(Box::new(Promise {
                permitted_above_micros,
                is_stable: before.is_stable(),
                accepted: before.accepted,
                committed: before.committed,
                low_bound_micros: before.low_bound_micros,
                read,
            })))
        }
        Question::Propose { ballot, proposal } => {
            if ballot.micros <= refused_micros {
                return Ok(PaxosResponse::Rejected { above_micros: refused_micros });
            }
            let proposal = late_commit::as_accepted(context, proposal)?;
            let mut registers = load().map_err(|error| failed(&error))?;
            if let Err(above_micros) = registers.accept(ballot, proposal) {
                return Ok(PaxosResponse::Rejected { above_micros });
            }
            let position = store::save(&context.shard, name, &registers, Change::Accept)
                .map_err(|error| failed(&error))?;
            context.note_append(position);
            Ok(PaxosResponse::Accepted)
        }
    }
}

/// Reads the ranges of all tables, up to the first that is not read to its end.
fn read_versions(context: &ShardContext, reads: &[TableRead]) -> Result<ReadAnswer, Failure> {
    let mut answer = ReadAnswer::new();
    for TableRead { table_id, order } in reads {
        if !read_table(context, TableId(*table_id), order, &mut answer)? {
            break;
        }
    }
    Ok(answer)
}

/// Reads the ranges of one table. Returns whether all were read to their end.
fn read_table(
    context: &ShardContext,
    table: TableId,
    order: &ReadOrder,
    answer: &mut ReadAnswer,
) -> Result<bool, Failure> {
    let mut limit = VersionLimit {
        live_rows: order.max_rows,
        bytes: order.max_bytes,
        tombstones: order.max_tombstones,
        scanned_bytes: u64::MAX,
    };
    for (start, end) in &order.ranges {
        let versions = context
            .shard
            .scan_versions(&VersionScanRequest {
                table,
                start,
                end,
                reversed: order.reversed,
                now_seconds: order.now_seconds,
                purgeable: Purgeable::LeftOut,
                is_long: false,
                part: None,
                limit,
            })
            .map_err(Failure::from)?;
        limit.live_rows = limit.live_rows.saturating_sub(versions.live_rows);
        limit.bytes = limit.bytes.saturating_sub(versions.bytes);
        limit.tombstones = limit.tombstones.saturating_sub(versions.tombstones);
        let is_cut = versions.resume.is_some();
        answer.push(RangeVersions {
            partitions: versions.partitions.iter().map(|mutation| mutation.bytes().to_vec()).collect(),
            resume: versions.resume,
        });
        if is_cut {
            return Ok(false);
        }
    }
    Ok(true)
}
