//! The receipt of a request: what it costs on this node and on its replicas. Like the trace of a request ([`super::trace`]) it goes with
//! the tasks of the request, so that no function has to pass it on.
//!
//! What a client is charged for is counted where a request has its rows: at the shard that owns them, or where the answers of replicas are
//! merged. What it took (blocks, files, time) is counted by the turns of its tasks.
//!
//! Invariants:
//! * Without a receipt a count costs a look at a thread-local value, and nothing is allocated.
//! * What another shard of the node or another node does comes back with its answer.
//! * An attempt to read that is done again is counted once ([`mark`], [`set_back`]), except for what it took.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::Either;
use helenus_engine::read::reconcile_answers::SeenRows;
use helenus_engine::shard::ReadWork;
use helenus_engine::{Mutation, Operation, RowRef};
use helenus_observe::receipt::{Count, Receipt};
use helenus_query::error::{RequestError, Result};
use pin_project_lite::pin_project;

use super::context::ShardContext;

tokio::task_local! {
    static RECEIPT: Rc<ReceiptLog>;
}

/// The counts of what an attempt to read has found.
const OF_ATTEMPTS: [Count; 6] = [
    Count::RangesRead,
    Count::PartitionsRead,
    Count::RowsRead,
    Count::CellsRead,
    Count::BytesRead,
    Count::TombstonesRead,
];

/// The receipt of a request while this shard works for it.
#[derive(Debug, Default)]
pub struct ReceiptLog {
    counts: RefCell<Receipt>,
    /// The turn that goes on.
    turn: Cell<Option<Turn>>,
    /// The time of the turns of this shard.
    worked: Cell<Duration>,
    /// The time of the processor in these turns.
    cpu: Cell<Duration>,
    /// The most that the request may be charged; `None`: any charge.
    max_charge: Cell<Option<u64>>,
    /// The time of the processor is measured. That takes two calls of the system a turn: it is for receipts that somebody sees.
    measures_cpu: Cell<bool>,
}

impl ReceiptLog {
    /// `max_charge`: the most that the request may be charged; `None`: any charge. `measures_cpu`: whether the time of the processor is measured.
    pub fn begin(max_charge: Option<u64>, measures_cpu: bool) -> Rc<Self> {
        let (max_charge, measures_cpu) = (Cell::new(max_charge), Cell::new(measures_cpu));
        Rc::new(Self { max_charge, measures_cpu, ..Self::default() })
    }

    /// Measures the time of the processor from now on.
    pub fn measure_cpu(&self, context: &ShardContext) {
        self.measures_cpu.set(true);
        self.so_far(context);
    }

    /// Lowers the most that the request may be charged.
    pub fn limit(&self, max_charge: u64) {
        self.max_charge.set(Some(self.max_charge.get().map_or(max_charge, |max| max.min(max_charge))));
    }

    /// What it is charged from now on is not looked at.
    fn lift_limit(&self) {
        self.max_charge.set(None);
    }

    fn is_limited(&self) -> bool {
        self.max_charge.get().is_some()
    }

    /// Refuses what is above the limit of the request, with these counts besides those so far.
    pub fn check(&self, besides: &Receipt) -> Result<()> {
        let Some(max) = self.max_charge.get() else { return Ok(()) };
        let mut counts = self.receipt();
        counts.add_all(besides);
        let charge = counts.charge();
        if charge <= max {
            return Ok(());
        }
        Err(RequestError::invalid(format!("The request is charged {charge}, more than its limit of {max}")))
    }

    /// The counts so far.
    pub fn receipt(&self) -> Receipt {
        *self.counts.borrow()
    }

    pub fn add(&self, count: Count, number: u64) {
        self.counts.borrow_mut().add(count, number);
    }

    /// The counts of a request that has taken this long on its coordinator. A turn that goes on is counted up to now.
    pub fn end(&self, context: &ShardContext, elapsed: Duration) -> Receipt {
        self.end_turn(context);
        self.add(Count::WaitedMicros, micros(elapsed.saturating_sub(self.worked.get())));
        self.receipt()
    }

    /// The counts so far. A turn that goes on is counted up to now.
    pub fn so_far(&self, context: &ShardContext) -> Receipt {
        if self.turn.get().is_some() {
            self.end_turn(context);
            self.begin_turn(context);
        }
        self.receipt()
    }

    fn begin_turn(&self, context: &ShardContext) {
        let began = context.clock.monotonic();
        let cpu = self.measures_cpu.get().then(|| context.clock.thread_cpu());
        let turn = Turn { began, cpu, work: context.shard.read_work() };
        self.turn.set(Some(turn));
    }

    /// Counts the turn that goes on, if there is one.
    fn end_turn(&self, context: &ShardContext) {
        let Some(Turn { began, cpu, work: before }) = self.turn.take() else { return };
        let cpu = cpu.map_or(Duration::ZERO, |before| context.clock.thread_cpu().saturating_sub(before));
        let (took, after) = (context.clock.monotonic().saturating_sub(began), context.shard.read_work());
        let cpu_before = self.cpu.replace(self.cpu.get() + cpu);
        self.worked.set(self.worked.get() + took);
        let mut counts = self.counts.borrow_mut();
        counts.add(Count::WorkedMicros, micros(took));
        // The parts of microseconds of many turns count, too.
        counts.add(Count::CpuMicros, micros(self.cpu.get()) - micros(cpu_before));
        counts.add(Count::FilesAsked, after.files - before.files);
        counts.add(Count::FiltersAsked, after.filters - before.filters);
        counts.add(Count::BlocksFromCache, after.blocks_from_cache - before.blocks_from_cache);
        counts.add(Count::BlocksFromDisk, after.blocks_from_disk - before.blocks_from_disk);
    }

    /// Runs a future as a part of the request.
    pub fn scope<F: Future>(
        self: &Rc<Self>,
        context: Rc<ShardContext>,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        RECEIPT.scope(self.clone(), Metered { log: self.clone(), context, future })
    }

    /// Runs a function as a part of the request.
    pub fn in_turn<T>(self: &Rc<Self>, context: &ShardContext, run: impl FnOnce() -> T) -> T {
        self.begin_turn(context);
        let value = RECEIPT.sync_scope(self.clone(), run);
        self.end_turn(context);
        value
    }
}

/// A turn of the shard's thread in which it works for a request.
#[derive(Debug, Clone, Copy)]
struct Turn {
    began: Duration,
    /// The time of the processor that the thread had had before. `None`: it is not measured.
    cpu: Option<Duration>,
    /// What the reads of the shard had done before.
    work: ReadWork,
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pin_project! {
    /// A future whose turns are counted.
    struct Metered<F> {
        log: Rc<ReceiptLog>,
        context: Rc<ShardContext>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let metered = self.project();
        metered.log.begin_turn(metered.context);
        let polled = metered.future.poll(task);
        metered.log.end_turn(metered.context);
        polled
    }
}

/// The receipt of the request that the present task works for.
pub fn current() -> Option<Rc<ReceiptLog>> {
    RECEIPT.try_with(Rc::clone).ok()
}

/// Whether the request that the present task works for gets a receipt.
#[inline]
pub fn is_wanted() -> bool {
    RECEIPT.try_with(|_| ()).is_ok()
}

/// Counts for the request that the present task works for, if it gets a receipt.
#[inline]
pub fn count(counts: impl FnOnce(&mut Receipt)) {
    // An error: it gets none.
    let _ = RECEIPT.try_with(|log| counts(&mut log.counts.borrow_mut()));
}

/// Counts a range that is read, and the replicas that it needs.
#[inline]
pub fn count_range(replicas: u64) {
    count(|receipt| {
        receipt.add(Count::RangesRead, 1);
        receipt.add(Count::ReplicasRead, replicas);
    });
}

/// Counts a mutation and the replicas to which it goes.
#[inline]
pub fn count_write(mutation: &Mutation, replicas: impl FnOnce() -> u64) {
    count(|receipt| {
        receipt.add(Count::PartitionsWritten, 1);
        receipt.add(Count::ReplicasWritten, replicas());
        add_mutation(receipt, mutation);
    });
}

/// Counts bytes that a commit log of this node has taken.
#[inline]
pub fn count_logged(bytes: usize) {
    count(|receipt| receipt.add(Count::BytesLogged, bytes as u64));
}

/// Refuses to go on if the charge of the request is above its limit.
#[inline]
pub fn check() -> Result<()> {
    RECEIPT.try_with(|log| log.check(&Receipt::default())).unwrap_or(Ok(()))
}

/// Refuses writes that would bring the charge of the request above its limit. To be called before the first of them is applied. `replicas`: of
/// a mutation.
pub fn check_writes<'a>(
    mutations: impl IntoIterator<Item = &'a Mutation>,
    replicas: impl Fn() -> u64,
) -> Result<()> {
    let Some(log) = current().filter(|log| log.is_limited()) else { return Ok(()) };
    let mut counts = Receipt::default();
    for mutation in mutations {
        counts.add(Count::PartitionsWritten, 1);
        counts.add(Count::ReplicasWritten, replicas());
        add_mutation(&mut counts, mutation);
    }
    log.check(&counts)
}

/// Refuses writes before their rows are known if the least that they can be charged, one row in each partition, is above the limit of the request.
pub fn check_partitions(partitions: u64, replicas: impl FnOnce() -> u64) -> Result<()> {
    let Some(log) = current().filter(|log| log.is_limited()) else { return Ok(()) };
    let mut counts = Receipt::default();
    for count in [Count::PartitionsWritten, Count::RowsWritten, Count::BytesWritten] {
        counts.add(count, partitions);
    }
    counts.add(Count::ReplicasWritten, replicas());
    log.check(&counts)
}

/// Lets the present request go on whatever it is charged, because a part of it cannot be taken back.
pub fn lift_limit() {
    if let Some(log) = current() {
        log.lift_limit();
    }
}

/// The changes of all tables: with the entries of change feeds.
fn add_mutation(receipt: &mut Receipt, mutation: &Mutation) {
    // A mutation of this node can be read. Otherwise it is refused where it is applied.
    let Ok(view) = mutation.view() else { return };
    let mut bytes = 0;
    for part in view.parts().flatten() {
        bytes += part.partition_key.len();
        for operation in part.operations().flatten() {
            match operation {
                Operation::Row { position, row } => {
                    receipt.add(Count::RowsWritten, 1);
                    let (cells, of_values) = size(row, None);
                    receipt.add(Count::CellsWritten, cells + row.column_deletions().count() as u64);
                    bytes += position.len() + of_values;
                }
                Operation::RangeTombstone { start, end, .. } => {
                    receipt.add(Count::RowsWritten, 1);
                    receipt.add(Count::CellsWritten, 1);
                    bytes += start.len() + end.len();
                }
            }
        }
    }
    receipt.add(Count::BytesWritten, bytes as u64);
}

/// The cells of a row, and the bytes of their values and of the names of elements. `columns`: those that count; `None`: all. Timestamps do not
/// count: their encoding depends on where a row is.
fn size(row: RowRef<'_>, columns: Option<&[u32]>) -> (u64, usize) {
    let is_counted = |column: u32| columns.is_none_or(|columns| columns.binary_search(&column).is_ok());
    let (mut cells, mut bytes) = (0, 0);
    for cell in row.cells().filter(|cell| is_counted(cell.column)) {
        cells += 1;
        bytes += cell.path.len() + cell.value.len();
    }
    (cells, bytes)
}

/// Counts the rows of a read, in their order.
#[derive(Debug, Default)]
struct RowCounts {
    partitions: u64,
    rows: u64,
    cells: u64,
    bytes: u64,
    /// The key of the partition of the last row.
    partition: Vec<u8>,
}

impl RowCounts {
    fn add(&mut self, partition_key: &[u8], position: &[u8], row: RowRef<'_>, columns: Option<&[u32]>) {
        if self.partitions == 0 || self.partition != partition_key {
            self.partitions += 1;
            self.bytes += partition_key.len() as u64;
            self.partition.clear();
            self.partition.extend_from_slice(partition_key);
        }
        let (cells, bytes) = size(row, columns);
        self.rows += 1;
        self.cells += cells;
        self.bytes += (position.len() + bytes) as u64;
    }

    fn add_to(&self, receipt: &mut Receipt) {
        receipt.add(Count::PartitionsRead, self.partitions);
        receipt.add(Count::RowsRead, self.rows);
        receipt.add(Count::CellsRead, self.cells);
        receipt.add(Count::BytesRead, self.bytes);
    }
}

/// Counts rows that a shard reads one after the other. What it has counted is added to the receipt when it is dropped.
#[derive(Debug)]
pub struct RowMeter(Option<RowCounts>);

impl RowMeter {
    /// A meter that counts if the present request gets a receipt.
    #[inline]
    pub fn begin() -> Self {
        Self(is_wanted().then(RowCounts::default))
    }

    /// `columns`: the projected columns, ordered by id; `None`: all.
    #[inline]
    pub fn add(&mut self, partition_key: &[u8], position: &[u8], row: RowRef<'_>, columns: Option<&[u32]>) {
        if let Some(counts) = &mut self.0 {
            counts.add(partition_key, position, row, columns);
        }
    }
}

impl Drop for RowMeter {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            count(|receipt| counts.add_to(receipt));
        }
    }
}

/// Counts deleted and expired rows and cells that a read has passed.
#[inline]
pub fn count_tombstones(tombstones: u64) {
    if tombstones > 0 {
        count(|receipt| receipt.add(Count::TombstonesRead, tombstones));
    }
}

/// Counts the rows of a range that were merged of what replicas have sent. `answers`: what each has sent.
#[inline]
pub fn count_merged<'a>(rows: &SeenRows, answers: impl Iterator<Item = &'a [Mutation]>, now_seconds: u32) {
    count(|receipt| {
        let mut counts = RowCounts::default();
        for row in rows.iter() {
            counts.add(row.partition_key(), row.position, row.row, None);
        }
        counts.add_to(receipt);
        // A deletion that several replicas have is one.
        let most = answers.map(|partitions| tombstones_of(partitions, now_seconds)).max();
        receipt.add(Count::TombstonesRead, most.unwrap_or(0));
    });
}

/// The deleted and expired rows and cells, and the deletions of ranges, in what a replica has sent.
pub fn tombstones_of(partitions: &[Mutation], now_seconds: u32) -> u64 {
    let mut tombstones = 0;
    for view in partitions.iter().filter_map(|mutation| mutation.view().ok()) {
        for operation in view.operations().flatten() {
            tombstones += match operation {
                Operation::Row { row, .. } => u64::from(row.visibility(now_seconds).1),
                Operation::RangeTombstone { .. } => 1,
            };
        }
    }
    tombstones
}

/// The receipt before an attempt, if there is one.
#[derive(Debug, Clone, Copy)]
pub struct Mark(Option<Receipt>);

/// To be called before an attempt that may have to be done again.
#[inline]
pub fn mark() -> Mark {
    Mark(RECEIPT.try_with(|log| log.receipt()).ok())
}

/// Forgets what was found since a mark, because it is read again.
#[inline]
pub fn set_back(mark: &Mark) {
    if let Mark(Some(earlier)) = mark {
        count(|receipt| receipt.set_back(&OF_ATTEMPTS, earlier));
    }
}

/// A receipt with which another shard of this node goes on.
#[derive(Debug, Clone, Copy)]
pub struct Passed {
    /// What the request may still be charged there.
    max_charge: Option<u64>,
    measures_cpu: bool,
}

/// The present receipt, for another shard.
pub fn passed() -> Option<Passed> {
    let left = |log: &Rc<ReceiptLog>| Some(log.max_charge.get()?.saturating_sub(log.receipt().charge()));
    RECEIPT.try_with(|log| Passed { max_charge: left(log), measures_cpu: log.measures_cpu.get() }).ok()
}

/// Runs a future on another shard as a part of a request that gets a receipt. Returns its counts besides, for [`take_back`].
pub async fn on_other_shard<T>(
    passed: Option<Passed>,
    context: Rc<ShardContext>,
    future: impl Future<Output = T>,
) -> (T, Option<Box<Receipt>>) {
    let Some(Passed { max_charge, measures_cpu }) = passed else { return (future.await, None) };
    let log = ReceiptLog::begin(max_charge, measures_cpu);
    let value = log.scope(context, future).await;
    (value, Some(Box::new(log.receipt())))
}

/// Adds the counts of another shard or node.
#[inline]
pub fn take_back(receipt: Option<&Receipt>) {
    if let Some(other) = receipt {
        count(|receipt| receipt.add_all(other));
    }
}

/// A future that is to become a task of its own on this shard, as a part of the present request.
pub fn carry<F: Future>(context: &Rc<ShardContext>, future: F) -> impl Future<Output = F::Output> + use<F> {
    match current() {
        Some(log) => Either::Left(log.scope(context.clone(), future)),
        None => Either::Right(future),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_which_a_part_is_done_goes_on() {
        let log = ReceiptLog::begin(Some(10), false);
        let mut written = Receipt::default();
        written.add(Count::RowsWritten, 1_000);
        assert!(log.check(&written).is_err());
        log.lift_limit();
        assert!(log.check(&written).is_ok());
    }
}
