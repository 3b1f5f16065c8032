//! Hints: mutations that a replica missed, kept until they can be delivered.
//!
//! They are rows of an engine table of the shard that coordinated the write. The table is not visible in CQL and has
//! no part in the ring. The partition is the replica's host id, the position begins with the time, and the one cell
//! is the mutation. A second partition records when tables were truncated: older hints are not applied. A third one
//! records the times of truncations that all members have agreed on: they bind transactions (`super::truncate`). A fourth one records since
//! when members are down ([`absence`]).
//!
//! Invariants:
//! * A stored hint is durable. It is deleted when the replica has acknowledged it, when its mutation was sent to the
//!   partition's present replicas instead (the target has left or does not own the partition any more), or when it
//!   must not be applied any more: its table was dropped or truncated, or nine tenths of the table's
//!   `gc_grace_seconds` have passed since the mutation was written. So no tombstone is purged before the data that it deletes is known
//!   everywhere. What is delivered to other replicas than those that have missed it keeps the time at which it was written, in the hints
//!   for them as well: otherwise each delivery would put its end off.
//! * Whether a truncation is later goes by the time at which this node has stored the hint, the timestamp of the row: the node notes its
//!   truncations by the same clock. For a hint that another node has handed over, that is the time at which this one would have stored it.
//! * Hints are bounded: in bytes for each target, and none are stored for a target that has been down for longer than
//!   the window.
//! * Nothing is delivered before the hints and truncations of the last run are known: without a truncation deleted rows would come back.
//! * The hints of a target are delivered in the order in which they were written, several at a time. A position is
//!   never used twice.

mod absence;
pub mod replay;
mod target;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use helenus_engine::key::REGULAR_TAG;
use helenus_engine::read::Budget;
use helenus_engine::{DecodeError, Deletion, Mutation, TableId, TableOptions};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::Table;
use helenus_ring::HostId;
use uuid::Uuid;

use self::absence::Absences;
use self::target::HintTarget;
use crate::coordinator::transaction_tokens;
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;
use crate::shard::private_table::{PrivateChange, PrivateRange, PrivateRow, PrivateTable};

/// The engine's id of the hints table.
pub const TABLE: PrivateTable = PrivateTable(TableId(*b"helenus-hints---"));
/// Key of the partition with the times of truncations.
const TRUNCATIONS: &[u8] = b"truncations";
/// Key of the partition with the agreed times of truncations.
const AGREED_TRUNCATIONS: &[u8] = b"agreed-truncations";
/// Timestamp that deletes a row for good: no position is used twice.
const NEVER_AGAIN: i64 = i64::MAX - 1;
/// How often a shard looks for members that can receive hints.
const ROUND: Duration = Duration::from_secs(1);
/// Most hints in flight to a target …
const CHUNK_HINTS: usize = 128;
/// … and most bytes of them.
const CHUNK_BYTES: usize = 1 << 20;
/// Budget of one turn of a scan.
const SCAN_BUDGET: Budget = Budget { bytes: 4 << 20, tombstones: 10_000 };

/// The engine options of the table.
pub fn table_options() -> TableOptions {
    // Only this shard writes the table, and a hint before its removal. So a removal ends with its hint, in memory or in the first
    // compaction of both.
    TableOptions { gc_grace_seconds: 0, writes_once: true, ..TableOptions::default() }
}

/// The state of a shard's hints in memory.
#[derive(Default)]
pub struct Hints {
    targets: RefCell<BTreeMap<HostId, Rc<HintTarget>>>,
    absences: RefCell<Absences>,
    /// When tables were truncated, in microseconds since the epoch.
    truncated: RefCell<BTreeMap<TableId, i64>>,
    /// The last time of a truncation that was agreed on, in microseconds since the epoch.
    agreed: RefCell<BTreeMap<TableId, i64>>,
    /// Whether what the last run has left is known.
    is_loaded: Cell<bool>,
}

/// The hints and truncations that the last run has left.
#[derive(Default)]
struct Left {
    /// Size of the hints for each target, in bytes.
    bytes: BTreeMap<HostId, u64>,
    truncated: BTreeMap<TableId, i64>,
    agreed: BTreeMap<TableId, i64>,
    /// Since when members are down, in microseconds since the epoch.
    absent: BTreeMap<HostId, i64>,
}

impl Hints {
    /// Size of the hints stored for a member, in bytes.
    pub fn pending_bytes(&self, target: &HostId) -> u64 {
        self.targets.borrow().get(target).map_or(0, |target| target.bytes.get())
    }

    fn target(&self, host_id: HostId) -> Rc<HintTarget> {
        self.targets.borrow_mut().entry(host_id).or_default().clone()
    }

    /// Whether [`load`] has succeeded.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded.get()
    }

    /// Whether a mutation that this node had at that time was removed by a truncation.
    pub fn is_truncated(&self, table: &TableId, kept_micros: i64) -> bool {
        self.truncated.borrow().get(table).is_some_and(|truncated| kept_micros <= *truncated)
    }

    /// The last time of a truncation of a table that was agreed on: no transaction up to it is applied any more.
    pub fn agreed_truncation(&self, table: &TableId) -> Option<i64> {
        self.agreed.borrow().get(table).copied()
    }
}

/// The hints of a shard for a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingHints {
    pub target: HostId,
    /// When the oldest and the newest of them were written, in microseconds since the epoch. `None`: that is not found out quickly.
    pub oldest_micros: Option<i64>,
    pub newest_micros: Option<i64>,
}

/// The hints of a shard that wait to be delivered, by member.
pub fn pending(context: &ShardContext) -> Result<Vec<PendingHints>> {
    let targets: Vec<_> = context.replication().hints.targets.borrow().keys().copied().collect();
    let (shard, now_seconds) = (&context.shard, context.now_seconds());
    let created = |row: Option<PrivateRow<'_>>| {
        row.and_then(|row| row.position.get(1..)?.first_chunk().map(|time| i64::from_be_bytes(*time)))
    };
    let mut found = Vec::new();
    for target in targets {
        let range = PrivateRange::partition(target.as_bytes());
        let mut forwards = TABLE.scan(shard, &range, now_seconds, SCAN_BUDGET)?;
        let oldest_micros = created(forwards.next()?);
        let is_left = oldest_micros.is_some() || forwards.resume_bound()?.is_some();
        if is_left {
            let mut backwards = TABLE.scan_backwards(shard, &range, now_seconds, SCAN_BUDGET)?;
            found.push(PendingHints { target, oldest_micros, newest_micros: created(backwards.next()?) });
        }
    }
    Ok(found)
}

/// A stored hint.
struct Hint {
    position: Vec<u8>,
    age: WrittenAt,
    mutation: Bytes,
}

/// When something was written that waits to be delivered, in microseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct WrittenAt {
    /// By the clock of its coordinator: it expires after that.
    pub created_micros: i64,
    /// By the clock of this node, which keeps it: later truncations of this node have removed it.
    pub kept_micros: i64,
}

fn damaged(what: &str) -> RequestError {
    RequestError::Server(format!("the stored hints are damaged: {what} cannot be read"))
}

/// What has become of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is durable, or is not needed any more.
    Kept,
    /// None is kept: the target has been down for longer than the window.
    AwayTooLong,
    /// None is kept: there are none at all, none of this table, or too many for the target.
    NotKept,
    Failed,
}

/// Stores a hint for a mutation. `times`: when it was written first, and since when this node has it.
pub async fn store(
    context: &ShardContext,
    target: HostId,
    change: &PartitionMutation,
    times: WrittenAt,
) -> Stored {
    let config = &context.node.config;
    let bytes = change.mutation.bytes().len() as u64;
    let limit = config.max_hints_bytes / context.node.shard_count() as u64;
    let hints = &context.replication().hints;
    if context.has_bug(PlantedBug::SkipHint)
        || hints.is_truncated(&change.table.engine_id(), times.kept_micros)
    {
        return Stored::Kept;
    }
    let known = hints.target(target);
    let window = Duration::from_millis(config.max_hint_window_ms);
    if hints.absences.borrow().of(context, &target) > window {
        context.metrics.hints_dropped.increment();
        return Stored::AwayTooLong;
    }
    if !context.node.settings.keeps_hints()
        || change.table.options.delivery_seconds() == 0
        || known.bytes.get() + bytes > limit
    {
        context.metrics.hints_dropped.increment();
        return Stored::NotKept;
    }
    // Counted before it is written, so that concurrent writes see it in the limit.
    let _writing = known.begin_writing();
    known.bytes.set(known.bytes.get() + bytes);
    context.metrics.hints_pending_bytes.add(bytes as i64);
    match write_hint(context, target, &known, &change.mutation, times.created_micros).await {
        Ok(()) => {
            context.metrics.hints_stored.increment();
            Stored::Kept
        }
        Err(error) => {
            tracing::warn!(%target, %error, "a hint could not be stored");
            forget_bytes(context, &known, bytes);
            context.metrics.hints_dropped.increment();
            Stored::Failed
        }
    }
}

fn forget_bytes(context: &ShardContext, target: &HintTarget, bytes: u64) {
    target.bytes.set(target.bytes.get().saturating_sub(bytes));
    context.metrics.hints_pending_bytes.add(-(bytes as i64));
}

async fn write_hint(
    context: &ShardContext,
    target: HostId,
    known: &HintTarget,
    mutation: &Mutation,
    created_micros: i64,
) -> Result<()> {
    context.shard.admit_internal().await?;
    let position = position_at(context, created_micros);
    known.note_written(&position);
    write_hint_at(context, target, &position, context.next_timestamp(), mutation.bytes()).await
}

/// An unused position for a hint of that time.
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
    kept_micros: i64,
    mutation: &[u8],
) -> Result<()> {
    let mut change = TABLE.change(target.as_bytes());
    change.put(position, kept_micros, mutation);
    write_durably(context, change).await
}

/// Stores a hint that a leaving member hands over, durably. `age_micros`: how long that one has kept it.
pub async fn keep(
    context: &ShardContext,
    target: HostId,
    created_micros: i64,
    age_micros: u64,
    mutation: &[u8],
) -> Result<()> {
    let age_micros = i64::try_from(age_micros).unwrap_or(i64::MAX);
    let kept_micros = context.next_timestamp().saturating_sub(age_micros);
    let known = context.replication().hints.target(target);
    let bytes = mutation.len() as u64;
    let _writing = known.begin_writing();
    known.bytes.set(known.bytes.get() + bytes);
    context.metrics.hints_pending_bytes.add(bytes as i64);
    let written = async {
        context.shard.admit_internal().await?;
        let position = position_at(context, created_micros);
        known.note_written(&position);
        write_hint_at(context, target, &position, kept_micros, mutation).await
    };
    let written = written.await;
    if written.is_err() {
        forget_bytes(context, &known, bytes);
        return written;
    }
    context.metrics.hints_stored.increment();
    Ok(())
}

async fn write_durably(context: &ShardContext, change: PrivateChange) -> Result<()> {
    let written = change.apply(&context.shard)?;
    context.note_append(written);
    Ok(context.shard.durable(written).await?)
}

/// Removes a hint. The removal need not be durable: a hint may be replayed again.
fn remove(context: &ShardContext, target: HostId, known: &HintTarget, hint: &Hint) -> Result<()> {
    let mut change = TABLE.change(target.as_bytes());
    let local_deletion_time = context.now_seconds();
    change.delete(&hint.position, Deletion { timestamp: NEVER_AGAIN, local_deletion_time });
    change.apply(&context.shard)?;
    forget_bytes(context, known, hint.mutation.len() as u64);
    Ok(())
}

/// Records, durably, that hints written to a table up to now must not be applied.
pub async fn note_truncation(context: &ShardContext, table: TableId) -> Result<()> {
    let now = context.next_timestamp();
    context.replication().hints.truncated.borrow_mut().insert(table, now);
    write_truncation(context, TRUNCATIONS, table, now).await
}

/// Records, durably, the time of a truncation that all members have agreed on.
pub async fn note_agreed_truncation(context: &ShardContext, table: TableId, micros: i64) -> Result<()> {
    let latest = {
        let mut agreed = context.replication().hints.agreed.borrow_mut();
        let latest = agreed.entry(table).or_insert(micros);
        *latest = micros.max(*latest);
        *latest
    };
    write_truncation(context, AGREED_TRUNCATIONS, table, latest).await
}

async fn write_truncation(
    context: &ShardContext,
    partition: &[u8],
    table: TableId,
    micros: i64,
) -> Result<()> {
    let mut position = vec![REGULAR_TAG];
    position.extend_from_slice(&table.0);
    context.shard.admit_essential().await?;
    let mut change = TABLE.change(partition);
    // The later one is kept, in whatever order they are written.
    change.put(&position, micros, &micros.to_be_bytes());
    write_durably(context, change).await
}

/// Loads the hints that the last run has left. Nothing is loaded on an error.
pub async fn load(context: &Rc<ShardContext>) -> Result<()> {
    let left = read_left(context).await?;
    let hints = &context.replication().hints;
    for (host_id, bytes) in left.bytes {
        let known = hints.target(host_id);
        known.bytes.set(known.bytes.get() + bytes);
        context.metrics.hints_pending_bytes.add(bytes as i64);
    }
    hints.absences.borrow_mut().take_over(context, left.absent);
    let mut truncated = hints.truncated.borrow_mut();
    for (table, time) in left.truncated {
        // A truncation of this run is newer.
        truncated.entry(table).or_insert(time);
    }
    let mut agreed = hints.agreed.borrow_mut();
    for (table, time) in left.agreed {
        let latest = agreed.entry(table).or_insert(time);
        *latest = time.max(*latest);
    }
    hints.is_loaded.set(true);
    Ok(())
}

async fn read_left(context: &Rc<ShardContext>) -> Result<Left> {
    let mut left = Left::default();
    let mut range = PrivateRange::all();
    loop {
        let next = {
            let mut scan = TABLE.scan(&context.shard, &range, context.now_seconds(), SCAN_BUDGET)?;
            while let Some(row) = scan.next()? {
                left.note(&row)?;
            }
            scan.resume_bound()?
        };
        match next {
            Some(next) => range = range.rest(next),
            None => return Ok(left),
        }
        tokio::task::yield_now().await;
    }
}

impl Left {
    fn note(&mut self, row: &PrivateRow<'_>) -> Result<()> {
        let is_agreed = row.partition == AGREED_TRUNCATIONS;
        if row.partition == absence::PARTITION {
            let noted = absence::noted(row).map_err(|_| damaged("the absence of a member"))?;
            self.absent.extend(noted);
        } else if is_agreed || row.partition == TRUNCATIONS {
            let table = row.position.get(1..).and_then(|id| id.try_into().ok());
            // A truncation that is passed over would let deleted rows come back.
            let (Some(table), Ok(time)) = (table, row.value.try_into()) else {
                return Err(damaged("a truncation"));
            };
            let times = if is_agreed { &mut self.agreed } else { &mut self.truncated };
            times.insert(TableId(table), i64::from_be_bytes(time));
        } else {
            let target = Uuid::from_slice(row.partition).map_err(|_| damaged("a target"))?;
            *self.bytes.entry(target).or_default() += row.value.len() as u64;
        }
        Ok(())
    }
}

/// The mutation of a hint or batch together with its table, without the parts that must not be applied any more; `None`: nothing is left.
pub fn revive(context: &ShardContext, mutation: &Mutation, age: WrittenAt) -> Option<PartitionMutation> {
    let is_lasting = |table: &Table| !has_expired(context, table, age.created_micros);
    known(revive_parts(context, mutation, age.kept_micros, is_lasting))
}

/// The same where nothing has been purged since, however long ago that is: on a single node that has just started.
pub fn revive_at_start(
    context: &ShardContext,
    mutation: &Mutation,
    age: WrittenAt,
) -> Option<PartitionMutation> {
    known(revive_parts(context, mutation, age.kept_micros, |_| true))
}

fn known(revived: Result<Option<PartitionMutation>, DecodeError>) -> Option<PartitionMutation> {
    revived.unwrap_or_else(|error| {
        debug_assert!(false, "a stored mutation can be read: {error}");
        tracing::error!(%error, "a stored mutation cannot be read; it is dropped");
        None
    })
}

fn revive_parts(
    context: &ShardContext,
    mutation: &Mutation,
    kept_micros: i64,
    is_lasting: impl Fn(&Table) -> bool,
) -> Result<Option<PartitionMutation>, DecodeError> {
    let view = mutation.view()?;
    // What belongs to a change that is too old is not applied either: it would tell of something that never comes.
    let catalog = context.catalog_view();
    let lasting_table = |id| catalog.table(id).filter(|table| is_lasting(table)).cloned();
    let Some(table) = lasting_table(view.table) else { return Ok(None) };
    let is_truncated = |table: &TableId| context.replication().hints.is_truncated(table, kept_micros);
    let is_wanted = !is_truncated(&view.table);
    if !view.has_companions() {
        let revive = || PartitionMutation { token: view.token, table, mutation: mutation.clone() };
        return Ok(is_wanted.then(revive));
    }
    let mut kept = Vec::new();
    for (index, part) in view.parts().enumerate() {
        let part = part?;
        if index == 0 || part.table == transaction_tokens::TABLE {
            // Without its change, a quorum has the record of a token.
            if is_wanted {
                kept.push((part.token, table.clone(), part.to_mutation()?));
            }
        } else if let Some(table) = lasting_table(part.table)
            && !is_truncated(&part.table)
        {
            kept.push((part.token, table, part.to_mutation()?));
        }
    }
    let mut kept = kept.into_iter();
    let Some((token, table, head)) = kept.next() else { return Ok(None) };
    let companions: Vec<Mutation> = kept.map(|(_, _, companion)| companion).collect();
    let mutation = Mutation::with_companions(&head, &companions)?;
    Ok(Some(PartitionMutation { token, table, mutation }))
}

/// Whether something that was written at that time is too old to be applied to a table: nine tenths of its
/// `gc_grace_seconds`, now or since then, have passed, so that what has deleted it since may soon be purged, or was.
pub fn has_expired(context: &ShardContext, table: &Table, written_micros: i64) -> bool {
    let grace_micros = i64::from(table.options.delivery_seconds_of(written_micros)) * 1_000_000;
    let age_micros = context.clock.now_micros().saturating_sub(written_micros);
    age_micros > grace_micros / 10 * 9
}
