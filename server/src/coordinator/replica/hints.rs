//! Hints: mutations that a replica has missed, kept until it can be given them.
//!
//! They are rows of an engine table of the shard that coordinated the write (no table of CQL, no place in the ring): the
//! partition is the replica's host id, the position begins with the time, the one cell is the mutation. A second partition
//! keeps when tables were truncated: what is older does not come back.
//!
//! Invariants:
//! * A stored hint is durable. It is deleted when the replica has acknowledged it, when its partition was given to the
//!   replicas of today instead (the target has left or owns it no more), or when it must not be applied any more: its table was
//!   dropped or truncated, or nine tenths of the table's `gc_grace_seconds` have passed, so that no tombstone is ever
//!   forgotten before the data that it deletes is known everywhere.
//! * Bounded: bytes a target, and no hints for a target that has been down for longer than the window.
//! * Per target hints leave in the order in which they came, some at a time; a position is never used twice.

mod target;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cql_lite::types::token::shard_of;
use helenus_engine::key::{REGULAR_END, REGULAR_START, REGULAR_TAG, behind, full_key};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{
    Cell, CellKind, Deletion, Mutation, MutationBuilder, RowBuilder, TableId, TableOptions,
};
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use uuid::Uuid;

use self::target::Target;
use super::message::{ReplicaRequest, ReplicaResponse};
use super::write::{self, apply_at_replica};
use crate::planted::PlantedBug;
use crate::shard::context::{IGNORE_MSB, ShardContext};

/// The engine's id of the hints.
pub const TABLE: TableId = TableId(*b"helenus-hints---");
const COLUMN: u32 = 1;
/// The partition of the times of truncations.
const TRUNCATIONS: &[u8] = b"truncations";
/// Deletes a row for good: no position is used twice.
const NEVER_AGAIN: i64 = i64::MAX - 1;
/// How often a shard looks whether someone can be given hints.
const ROUND: Duration = Duration::from_secs(1);
/// Hints that are under way to a target at a time ...
const CHUNK_HINTS: usize = 128;
/// ... and their bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// Work of one turn of a scan.
const SCAN_BUDGET: Budget = Budget { bytes: 4 << 20, tombstones: 10_000 };

/// The settings of the table.
pub fn table_options() -> TableOptions {
    // Only this shard writes it: nothing can bring back what a tombstone hides.
    TableOptions { gc_grace_seconds: 0, ..TableOptions::default() }
}

/// What a shard keeps in memory about its hints.
#[derive(Default)]
pub struct Hints {
    targets: RefCell<BTreeMap<HostId, Rc<Target>>>,
    /// When (monotonic) this shard saw a member go down.
    down_since: RefCell<BTreeMap<HostId, Duration>>,
    /// When (microseconds since the epoch) tables were truncated.
    truncated: RefCell<BTreeMap<TableId, i64>>,
}

impl Hints {
    /// Bytes of the hints that wait for a member.
    pub fn pending_bytes(&self, target: &HostId) -> u64 {
        self.targets.borrow().get(target).map_or(0, |target| target.bytes.get())
    }

    fn target(&self, host_id: HostId) -> Rc<Target> {
        self.targets.borrow_mut().entry(host_id).or_default().clone()
    }

    /// Whether a mutation of that time was wiped by a truncation.
    pub fn is_truncated(&self, table: &TableId, created_micros: i64) -> bool {
        self.truncated.borrow().get(table).is_some_and(|truncated| created_micros <= *truncated)
    }
}

/// A stored hint.
struct Hint {
    position: Vec<u8>,
    created_micros: i64,
    mutation: Bytes,
}

fn server(error: &dyn std::fmt::Display) -> RequestError {
    RequestError::Server(format!("hints: {error}"))
}

/// Keeps a mutation, written at `begun_micros`, for a replica; true when the hint is durable or nothing is left to keep.
pub async fn store(
    context: &ShardContext,
    target: HostId,
    change: &PartitionMutation,
    begun_micros: i64,
) -> bool {
    let config = &context.node.config;
    let bytes = change.mutation.bytes().len() as u64;
    let limit = config.max_hints_bytes / context.node.shard_count() as u64;
    let hints = &context.replication().hints;
    if context.has_bug(PlantedBug::SkipHint) || hints.is_truncated(&change.table.engine_id(), begun_micros) {
        return true;
    }
    let known = hints.target(target);
    let window = Duration::from_millis(config.max_hint_window_ms);
    let is_too_late = hints
        .down_since
        .borrow()
        .get(&target)
        .is_some_and(|since| context.clock.monotonic().saturating_sub(*since) > window);
    if !config.hinted_handoff_enabled
        || change.table.options.gc_grace_seconds == 0
        || is_too_late
        || known.bytes.get() + bytes > limit
    {
        context.metrics.hints_dropped.increment();
        return false;
    }
    // Counted before it is written: others that come meanwhile see it.
    let _writing = known.begin_writing();
    known.bytes.set(known.bytes.get() + bytes);
    context.metrics.hints_pending_bytes.add(bytes as i64);
    match write_hint(context, target, &known, &change.mutation).await {
        Ok(()) => {
            context.metrics.hints_stored.increment();
            true
        }
        Err(error) => {
            tracing::warn!(%target, %error, "a hint could not be stored");
            forget_bytes(context, &known, bytes);
            context.metrics.hints_dropped.increment();
            false
        }
    }
}

fn forget_bytes(context: &ShardContext, target: &Target, bytes: u64) {
    target.bytes.set(target.bytes.get().saturating_sub(bytes));
    context.metrics.hints_pending_bytes.add(-(bytes as i64));
}

async fn write_hint(
    context: &ShardContext,
    target: HostId,
    known: &Target,
    mutation: &Mutation,
) -> Result<()> {
    context.shard.admit().await?;
    let position = position_at(context, context.next_timestamp());
    known.note_written(&position);
    write_hint_at(context, target, &position, mutation.bytes()).await
}

/// A position of a hint of that time that was never used.
fn position_at(context: &ShardContext, created_micros: i64) -> Vec<u8> {
    let mut position = vec![REGULAR_TAG];
    position.extend_from_slice(&created_micros.to_be_bytes());
    position.extend_from_slice(&context.random.borrow_mut().next_u64().to_be_bytes());
    position
}

async fn write_hint_at(
    context: &ShardContext,
    target: HostId,
    position: &[u8],
    mutation: &[u8],
) -> Result<()> {
    let timestamp = context.next_timestamp();
    let mut row = RowBuilder::new();
    row.cell(Cell { column: COLUMN, path: &[], timestamp, kind: CellKind::Live, value: mutation });
    write_row(context, target.as_bytes(), position, &mut row, true).await
}

/// Keeps a hint of a member that leaves, durably.
pub async fn keep(
    context: &ShardContext,
    target: HostId,
    created_micros: i64,
    mutation: &[u8],
) -> Result<()> {
    let known = context.replication().hints.target(target);
    let bytes = mutation.len() as u64;
    let _writing = known.begin_writing();
    known.bytes.set(known.bytes.get() + bytes);
    context.metrics.hints_pending_bytes.add(bytes as i64);
    let position = position_at(context, created_micros);
    context.shard.admit().await?;
    known.note_written(&position);
    let written = write_hint_at(context, target, &position, mutation).await;
    if written.is_err() {
        forget_bytes(context, &known, bytes);
        return written;
    }
    context.metrics.hints_stored.increment();
    Ok(())
}

/// Gives the hints of this shard away, because this node leaves for good: those for members that answer are delivered, the others
/// are kept by a member that stays. False: it is to be tried again.
pub async fn hand_over(context: &Rc<ShardContext>) -> Result<bool> {
    begin_deliveries(context);
    let view = context.cluster();
    let targets: Vec<(HostId, Rc<Target>)> = {
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
        // The same for all, so that they stay in order.
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
    target: &Target,
) -> Result<bool> {
    tracing::info!(target = %host_id, keeper = %keeper.host_id, bytes = target.bytes.get(), "hints are handed over");
    target.cursor.borrow_mut().clear();
    loop {
        let chunk = read_chunk(context, host_id, target).await?;
        if chunk.is_empty() {
            // What is counted besides is hidden: removed, or never written.
            forget_bytes(context, target, target.bytes.get());
            return Ok(true);
        }
        for hint in &chunk {
            let mutation = Mutation::from_bytes(hint.mutation.clone()).ok();
            if let Some(change) =
                mutation.and_then(|mutation| revive(context, &mutation, hint.created_micros))
            {
                let shard = shard_of(change.token, u32::from(keeper.shard_count), IGNORE_MSB) as u16;
                let request = ReplicaRequest::KeepHint {
                    target: host_id,
                    created_micros: hint.created_micros,
                    mutation: hint.mutation.to_vec(),
                };
                let timeout = Duration::from_millis(context.node.config.write_request_timeout_ms);
                if let Err(error) = context.ask(keeper, shard, &request, timeout).await {
                    tracing::warn!(keeper = %keeper.host_id, %error, "a hint was not taken over; another attempt follows");
                    return Ok(false);
                }
            }
            context.shard.admit().await?;
            remove(context, host_id, target, hint).await?;
        }
    }
}

async fn write_row(
    context: &ShardContext,
    partition: &[u8],
    position: &[u8],
    row: &mut RowBuilder,
    is_durable: bool,
) -> Result<()> {
    let mut builder = MutationBuilder::new(TABLE, 0, partition).map_err(|error| server(&error))?;
    builder.row(position, row);
    let mutation = builder.build();
    let written = context.shard.apply(&mutation.view().map_err(|error| server(&error))?)?;
    if is_durable {
        context.note_append(written);
        context.shard.durable(written).await?;
    }
    Ok(())
}

/// Takes a hint out. It need not be durable: a hint may be replayed again.
async fn remove(context: &ShardContext, target: HostId, known: &Target, hint: &Hint) -> Result<()> {
    let mut row = RowBuilder::new();
    row.set_deletion(Deletion { timestamp: NEVER_AGAIN, local_deletion_time: context.now_seconds() });
    write_row(context, target.as_bytes(), &hint.position, &mut row, false).await?;
    forget_bytes(context, known, hint.mutation.len() as u64);
    Ok(())
}

/// Remembers, durably, that what was written to a table up to now is to stay away.
pub async fn note_truncation(context: &ShardContext, table: TableId) -> Result<()> {
    let now = context.next_timestamp();
    context.replication().hints.truncated.borrow_mut().insert(table, now);
    let mut position = vec![REGULAR_TAG];
    position.extend_from_slice(&table.0);
    let mut row = RowBuilder::new();
    row.cell(Cell {
        column: COLUMN,
        path: &[],
        timestamp: now,
        kind: CellKind::Live,
        value: &now.to_be_bytes(),
    });
    context.shard.admit().await?;
    write_row(context, TRUNCATIONS, &position, &mut row, true).await
}

/// Finds what the last run has left.
pub async fn load(context: &Rc<ShardContext>) -> Result<()> {
    let mut start = Vec::new();
    loop {
        let next = {
            let mut scan = context.shard.scan(&ScanRequest {
                table: TABLE,
                start: &start,
                end: &[0xFF; 9],
                reversed: false,
                now_seconds: context.now_seconds(),
                budget: SCAN_BUDGET,
            })?;
            loop {
                match scan.next()? {
                    Step::Row(view) => {
                        let Some(cell) = view.row.cells().next() else { continue };
                        if view.partition_key == TRUNCATIONS {
                            let table = view.position.get(1..).and_then(|id| id.try_into().ok());
                            if let (Some(table), Ok(time)) = (table, cell.value.try_into()) {
                                let time = i64::from_be_bytes(time);
                                context
                                    .replication()
                                    .hints
                                    .truncated
                                    .borrow_mut()
                                    .insert(TableId(table), time);
                            }
                        } else if let Ok(target) = Uuid::from_slice(view.partition_key) {
                            let known = context.replication().hints.target(target);
                            known.bytes.set(known.bytes.get() + cell.value.len() as u64);
                            context.metrics.hints_pending_bytes.add(cell.value.len() as i64);
                        }
                    }
                    Step::Exhausted => break scan.resume_bound()?,
                    Step::End => break None,
                }
            }
        };
        match next {
            Some(next) => start = next,
            None => return Ok(()),
        }
        tokio::task::yield_now().await;
    }
}

/// Begins to look, every second, for members that can be given their hints.
pub fn spawn_replay(context: &Rc<ShardContext>) {
    context.repeat(ROUND, async |context| {
        note_who_is_down(context);
        begin_deliveries(context);
    });
}

fn note_who_is_down(context: &ShardContext) {
    let view = context.cluster();
    let now = context.clock.monotonic();
    let mut down = context.replication().hints.down_since.borrow_mut();
    down.retain(|host_id, _| view.topology.member(host_id).is_some() && !view.is_alive(host_id));
    for host_id in view.topology.members.keys().filter(|host_id| !view.is_alive(host_id)) {
        down.entry(*host_id).or_insert(now);
    }
}

/// Begins to deliver to everyone who has hints, is reachable, and is not being delivered to.
fn begin_deliveries(context: &Rc<ShardContext>) {
    let view = context.cluster();
    let targets: Vec<(HostId, Rc<Target>)> = context
        .replication()
        .hints
        .targets
        .borrow()
        .iter()
        .filter(|(_, target)| target.bytes.get() > 0 && !target.is_delivering.get())
        .map(|(host_id, target)| (*host_id, target.clone()))
        .collect();
    for (host_id, target) in targets {
        // It has left, or its join was taken back. Version 0: nothing is known of the members yet.
        let has_left = view.topology.version > 0 && view.topology.member(&host_id).is_none();
        if has_left || view.is_alive(&host_id) {
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

/// Gives a target its hints until there are none or one is not taken.
async fn deliver_all(context: &Rc<ShardContext>, host_id: HostId, target: &Target) -> Result<()> {
    let rate = context.node.config.hinted_handoff_throttle_bytes_per_second;
    let rate = if rate == 0 { 0 } else { (rate / context.node.shard_count() as u64).max(1) };
    loop {
        if *context.node.stopping.borrow() {
            return Ok(());
        }
        let chunk = read_chunk(context, host_id, target).await?;
        let Some(last) = chunk.last() else {
            if target.bytes.get() == 0 || target.writing.get() > 0 {
                return Ok(());
            }
            if target.cursor.borrow().is_empty() {
                // Nothing is there: it was counted twice (written while the start was counting), or its writer was given up.
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
                context.shard.admit().await?;
                remove(context, host_id, target, hint).await?;
            } else if first_kept.is_none() {
                first_kept = Some(hint.position.clone());
            }
        }
        if let Some(position) = first_kept {
            target.move_cursor(position);
            return Ok(());
        }
        target.move_cursor(behind(&last.position));
        if let Some(pause_micros) = (bytes * 1_000_000).checked_div(rate) {
            context.clock.sleep(Duration::from_micros(pause_micros)).await;
        }
    }
}

/// The oldest hints of a target.
async fn read_chunk(context: &Rc<ShardContext>, host_id: HostId, target: &Target) -> Result<Vec<Hint>> {
    let key = |position: &[u8]| full_key(0, host_id.as_bytes(), position).map_err(|error| server(&error));
    let cursor = target.begin_chunk();
    let mut start = key(if cursor.is_empty() { REGULAR_START } else { &cursor })?;
    let end = key(REGULAR_END)?;
    let mut chunk = Vec::new();
    let mut bytes = 0;
    loop {
        let next = {
            let mut scan = context.shard.scan(&ScanRequest {
                table: TABLE,
                start: &start,
                end: &end,
                reversed: false,
                now_seconds: context.now_seconds(),
                budget: SCAN_BUDGET,
            })?;
            loop {
                if chunk.len() >= CHUNK_HINTS || bytes >= CHUNK_BYTES {
                    return Ok(chunk);
                }
                match scan.next()? {
                    Step::Row(view) => {
                        let created = view.position.get(1..9).and_then(|bytes| bytes.try_into().ok());
                        let (Some(cell), Some(created)) = (view.row.cells().next(), created) else {
                            continue;
                        };
                        bytes += cell.value.len();
                        chunk.push(Hint {
                            position: view.position.to_vec(),
                            created_micros: i64::from_be_bytes(created),
                            mutation: Bytes::copy_from_slice(cell.value),
                        });
                    }
                    Step::Exhausted => break scan.resume_bound()?,
                    Step::End => break None,
                }
            }
        };
        match next {
            Some(next) => start = next,
            None => return Ok(chunk),
        }
        tokio::task::yield_now().await;
    }
}

/// The stored table with this id.
pub fn table_by_id(catalog: &Catalog, id: &TableId) -> Option<std::sync::Arc<Table>> {
    catalog
        .keyspaces
        .values()
        .flat_map(|keyspace| keyspace.tables.values())
        .find(|table| table.id.as_bytes() == &id.0)
        .cloned()
}

/// A kept mutation with its table; `None` when it must not be applied any more.
pub fn revive(context: &ShardContext, mutation: &Mutation, created_micros: i64) -> Option<PartitionMutation> {
    let view = mutation.view().ok()?;
    let table = table_by_id(&context.catalog(), &view.table)?;
    if context.replication().hints.is_truncated(&view.table, created_micros) {
        return None;
    }
    let grace_micros = i64::from(table.options.gc_grace_seconds) * 1_000_000;
    let age_micros = context.clock.now_micros().saturating_sub(created_micros);
    if age_micros > grace_micros / 10 * 9 {
        return None;
    }
    Some(PartitionMutation { token: view.token, table, mutation: mutation.clone() })
}

/// Gives a target a hint; true when it need not be kept any more.
async fn deliver(context: &Rc<ShardContext>, host_id: HostId, hint: &Hint) -> bool {
    let change = Mutation::from_bytes(hint.mutation.clone())
        .ok()
        .and_then(|mutation| revive(context, &mutation, hint.created_micros));
    let Some(change) = change else {
        context.metrics.hints_dropped.increment();
        return true;
    };
    let is_done = match ask(context, host_id, &change).await {
        Some(Ok(ReplicaResponse::NotOwner)) | None => {
            // The target has left, or the partition belongs to others or is about to: all of them are given it.
            write::deliver(context, change).await
        }
        Some(Ok(_)) => true,
        Some(Err(error)) => {
            tracing::debug!(target = %host_id, %error, "a hint was not taken");
            false
        }
    };
    if is_done {
        context.metrics.hints_replayed.increment();
    }
    is_done
}

/// Asks a target to apply a mutation that it has missed; `None`: it is no member any more.
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

/// Applies a hint for this node, if it has the partition and nobody else is to take it over.
pub async fn receive(context: &Rc<ShardContext>, mutation: Bytes) -> Result<ReplicaResponse, Failure> {
    let parsed =
        Mutation::from_bytes(mutation.clone()).map_err(|error| Failure::Malformed(error.to_string()))?;
    let view = parsed.view().map_err(|error| Failure::Malformed(error.to_string()))?;
    let Some(table) = table_by_id(&context.catalog(), &view.table) else {
        return Err(Failure::UnknownTable { table_id: u128::from_be_bytes(view.table.0) });
    };
    let (epoch, is_settled) = {
        let cluster = context.cluster_view();
        let replicas = cluster.placement(&table.keyspace).map(|placement| placement.replicas(view.token));
        let is_settled = replicas
            .is_none_or(|replicas| replicas.pending.is_empty() && replicas.contains(&context.node.host_id));
        (cluster.topology.epoch, is_settled)
    };
    // While ownership changes hands the new owner may have fetched what is here already: it must get this as well.
    if !is_settled {
        return Ok(ReplicaResponse::NotOwner);
    }
    apply_at_replica(context, Some(epoch), mutation).await?;
    Ok(ReplicaResponse::Written)
}
