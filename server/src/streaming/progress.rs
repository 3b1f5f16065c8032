//! The progress of transfers: for operators (in memory), and for the next start (in an engine table of the first
//! shard).
//!
//! A *stream task* (unit) covers the ranges of one table on one shard of one source. Those ranges depend on which
//! members are alive. So the progress names its tokens, and data that was streamed from a source is not streamed
//! again when an attempt needs more or fewer ranges from it. Progress is stored after the data is durable, so after a
//! crash it can only be too small; chunks that are streamed twice change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helenus_admin::reports::{PeerProgress, StreamingReport, TransferProgress};
use helenus_engine::key::REGULAR_TAG;
use helenus_engine::read::Budget;
use helenus_engine::{Deletion, LogPosition, TableId, TableOptions};
use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

use helenus_execution::shard::context::{NodeShared, ShardContext};
use helenus_execution::shard::private_table::{PrivateChange, PrivateRange, PrivateTable};
use helenus_ring::intervals::{before, difference, share, union};

/// The table with the stored progress.
pub const TABLE: PrivateTable = PrivateTable(TableId(*b"helenus-transfer"));
/// The engine options of the table.
pub fn table_options() -> TableOptions {
    // Only this shard writes the table, so nothing can bring back data that a tombstone hides.
    TableOptions { gc_grace_seconds: 0, ..TableOptions::default() }
}

/// Key of a cell that is present when everything of the partition's epoch is there.
const DONE: &[u8] = b"done";
/// Prefix of the key of a task. A key without it, or with another one, is from another version: the data is streamed
/// again.
const TASK_TAG: u8 = 2;

/// Identifies a stream task within the transition of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamTaskKey([u8; 16]);

impl StreamTaskKey {
    pub fn new(source: HostId, shard: u16, table: TableId) -> Self {
        let mut digest = Md5::new();
        digest.update(source.as_bytes());
        digest.update(shard.to_be_bytes());
        digest.update(table.0);
        Self(digest.finalize().into())
    }
}

/// The progress of a stream task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTaskProgress {
    /// The tokens that are being streamed: sorted and disjoint, like those of `fetched`.
    pub wanted: Vec<RangeInclusive<i64>>,
    /// Where the next chunk of them continues; `None`: at the beginning (or, if the task is done, nowhere).
    pub resume: Option<Vec<u8>>,
    /// All of `wanted` is there.
    pub is_done: bool,
    /// Other tokens that are there.
    pub fetched: Vec<RangeInclusive<i64>>,
    pub bytes: u64,
}

impl StreamTaskProgress {
    /// The progress of the task if these are all tokens that must be there in the end.
    #[must_use]
    pub fn towards(self, all: &[RangeInclusive<i64>]) -> Self {
        if difference(all, &self.fetched) == self.wanted {
            return self;
        }
        let fetched = union(&self.fetched, &self.passed());
        let wanted = difference(all, &fetched);
        Self { is_done: wanted.is_empty(), wanted, resume: None, fetched, bytes: self.bytes }
    }

    /// The tokens of `wanted` that are there.
    fn passed(&self) -> Vec<RangeInclusive<i64>> {
        if self.is_done {
            return self.wanted.clone();
        }
        let token = self.resume.as_deref().and_then(|resume| resume.first_chunk::<8>());
        token.map_or_else(Vec::new, |token| before(&self.wanted, helenus_engine::key::decode_token(*token)))
    }

    /// The share of its tokens, from 0 to 1, that is there.
    pub fn share_done(&self) -> f64 {
        share(&union(&self.fetched, &self.passed()), &union(&self.fetched, &self.wanted))
    }
}

/// The stored progress of the transition of an epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredProgress {
    pub tasks: BTreeMap<StreamTaskKey, StreamTaskProgress>,
    /// This node has everything that it gains.
    pub is_done: bool,
}

fn damaged(error: &dyn std::fmt::Display) -> RequestError {
    RequestError::Server(format!("the stored progress of a transfer is damaged: {error}"))
}

fn position(name: &[u8]) -> Vec<u8> {
    [&[REGULAR_TAG], name].concat()
}

/// Loads the stored progress of an epoch. Call on the first shard.
pub fn load(context: &ShardContext, epoch: u64) -> Result<StoredProgress> {
    let mut stored = StoredProgress::default();
    let range = PrivateRange::partition(&epoch.to_be_bytes());
    let mut scan = TABLE.scan(&context.shard, &range, context.now_seconds(), Budget::UNLIMITED)?;
    while let Some(row) = scan.next()? {
        let name = row.position.get(1..).unwrap_or_default();
        if name == DONE {
            stored.is_done = true;
            continue;
        }
        // A task of another version: its data is streamed again.
        let Some((&TASK_TAG, unit)) = name.split_first() else { continue };
        let unit = unit.try_into().map_err(|error| damaged(&error))?;
        let progress = postcard::from_bytes(row.value).map_err(|error| damaged(&error))?;
        stored.tasks.insert(StreamTaskKey(unit), progress);
    }
    Ok(stored)
}

/// Stores the progress of a task. Call on the first shard. Does not wait until it is durable: too little progress
/// does no harm.
pub async fn store_task(
    context: &Rc<ShardContext>,
    epoch: u64,
    unit: StreamTaskKey,
    progress: &StreamTaskProgress,
) -> Result<()> {
    let value = postcard::to_stdvec(progress).map_err(|error| damaged(&error))?;
    write(context, epoch, &[&[TASK_TAG], unit.0.as_slice()].concat(), &value).await.map(|_| ())
}

/// Stores, durably, that this node has everything. Call on the first shard.
pub async fn store_done(context: &Rc<ShardContext>, epoch: u64) -> Result<()> {
    let position = write(context, epoch, DONE, &[]).await?;
    Ok(context.shard.durable(position).await?)
}

async fn write(context: &Rc<ShardContext>, epoch: u64, name: &[u8], value: &[u8]) -> Result<LogPosition> {
    let mut change = TABLE.change(&epoch.to_be_bytes());
    change.put(&position(name), context.next_timestamp(), value);
    apply(context, change).await
}

async fn apply(context: &Rc<ShardContext>, change: PrivateChange) -> Result<LogPosition> {
    context.shard.admit_essential().await?;
    let position = change.apply(&context.shard)?;
    context.note_append(position);
    Ok(position)
}

/// Removes the stored progress of other epochs: their transitions have ended. Call on the first shard.
pub async fn forget_others(context: &Rc<ShardContext>, epoch: u64) -> Result<()> {
    let mut epochs = Vec::new();
    {
        let now_seconds = context.now_seconds();
        let mut scan = TABLE.scan(&context.shard, &PrivateRange::all(), now_seconds, Budget::UNLIMITED)?;
        while let Some(row) = scan.next()? {
            epochs.push(row.partition.to_vec());
            scan.skip_partition()?;
        }
    }
    for other in epochs.into_iter().filter(|known| known.as_slice() != epoch.to_be_bytes()) {
        let mut change = TABLE.change(&other);
        change.delete_partition(Deletion {
            timestamp: context.next_timestamp(),
            local_deletion_time: context.now_seconds(),
        });
        apply(context, change).await?;
    }
    Ok(())
}

/// The state of a stream task in the report.
#[derive(Debug, Clone, Copy)]
pub struct StreamTaskState {
    pub source: HostId,
    pub bytes: u64,
    /// Size estimated by the source, in bytes.
    pub estimated_bytes: u64,
    /// The share of its tokens that is complete, from 0 to 1.
    pub share_done: f64,
    pub is_done: bool,
}

impl StreamTaskState {
    /// The expected total size in bytes: first the source's estimate, later an extrapolation of the chunks received.
    fn expected_bytes(&self) -> u64 {
        if self.is_done {
            self.bytes
        } else if self.share_done > 0.05 {
            (self.bytes as f64 / self.share_done) as u64
        } else {
            self.estimated_bytes.max(self.bytes)
        }
    }
}

struct Receiving {
    member: HostId,
    epoch: u64,
    units: BTreeMap<StreamTaskKey, StreamTaskState>,
    /// Bytes that earlier runs had received.
    bytes_before: u64,
    began: Duration,
    is_done: bool,
    /// Ranges whose only replica is dead, when everything else is there.
    lost_ranges: usize,
    waiting_for: Option<String>,
}

/// The transfers of a node, shared by its shards.
#[derive(Default)]
pub struct Transfers {
    state: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    receiving: Option<Receiving>,
    /// The last transfer whose transition has ended.
    ended: Option<TransferProgress>,
    sent_bytes: BTreeMap<HostId, u64>,
    /// Dead members that an operator has asked this node to remove; true: even if data is lost with them.
    asked_removals: BTreeMap<HostId, bool>,
}

impl Transfers {
    /// The transfers to and from a node because of ranges that change owners.
    pub fn of(node: &NodeShared) -> &Self {
        node.layers.get()
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        // Each change of the values is a whole one: a panic of another holder of the lock leaves them usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a transfer, or restarts it with other tasks.
    pub fn begin(
        &self,
        member: HostId,
        epoch: u64,
        units: BTreeMap<StreamTaskKey, StreamTaskState>,
        now: Duration,
    ) {
        let bytes_before = units.values().map(|unit| unit.bytes).sum();
        self.state().receiving = Some(Receiving {
            member,
            epoch,
            units,
            bytes_before,
            began: now,
            is_done: false,
            lost_ranges: 0,
            waiting_for: None,
        });
    }

    fn with_receiving(&self, epoch: u64, change: impl FnOnce(&mut Receiving)) {
        if let Some(receiving) = self.state().receiving.as_mut().filter(|known| known.epoch == epoch) {
            change(receiving);
        }
    }

    pub fn note_unit(&self, epoch: u64, unit: StreamTaskKey, bytes: u64, share_done: f64, is_done: bool) {
        self.with_receiving(epoch, |receiving| {
            if let Some(state) = receiving.units.get_mut(&unit) {
                *state = StreamTaskState { bytes, share_done, is_done, ..*state };
            }
        });
    }

    /// Records the reason why the transfer waits, or that it does not wait.
    pub fn note_waiting(&self, epoch: u64, reason: Option<String>) {
        self.with_receiving(epoch, |receiving| receiving.waiting_for = reason);
    }

    /// Records that everything is there except ranges whose only replica is dead.
    pub fn note_lost(&self, epoch: u64, ranges: usize) {
        self.with_receiving(epoch, |receiving| receiving.lost_ranges = ranges);
    }

    pub fn note_done(&self, epoch: u64) {
        self.with_receiving(epoch, |receiving| {
            receiving.is_done = true;
            receiving.waiting_for = None;
        });
    }

    /// Records that the transition has ended, and with it the transfer. The transfer stays to be shown. `now`:
    /// [`helenus_engine::io::Clock::monotonic`].
    pub fn end(&self, now: Duration) {
        let mut state = self.state();
        if let Some(receiving) = state.receiving.take() {
            state.ended = Some(receiving.progress(now));
        }
    }

    /// The transfer that is under way, or the last one since the start of the node; and whether it is under way.
    pub fn latest(&self, now: Duration) -> Option<(TransferProgress, bool)> {
        let state = self.state();
        match &state.receiving {
            Some(receiving) => Some((receiving.progress(now), true)),
            None => state.ended.clone().map(|ended| (ended, false)),
        }
    }

    pub fn note_sent(&self, to: HostId, bytes: u64) {
        *self.state().sent_bytes.entry(to).or_default() += bytes;
    }

    pub fn is_done(&self, epoch: u64) -> bool {
        self.state().receiving.as_ref().is_some_and(|known| known.epoch == epoch && known.is_done)
    }

    /// If not 0, everything is there except this number of ranges whose only replica is dead.
    pub fn lost_ranges(&self, epoch: u64) -> usize {
        let state = self.state();
        state.receiving.as_ref().filter(|known| known.epoch == epoch).map_or(0, |known| known.lost_ranges)
    }

    /// Records that an operator has asked this node to remove dead members. `accepts_loss`: even if data is lost with them.
    pub fn ask_removals(&self, host_ids: &BTreeSet<HostId>, accepts_loss: bool) {
        let mut state = self.state();
        for host_id in host_ids {
            *state.asked_removals.entry(*host_id).or_default() |= accepts_loss;
        }
    }

    pub fn forget_removals(&self, host_ids: &BTreeSet<HostId>) {
        self.state().asked_removals.retain(|host_id, _| !host_ids.contains(host_id));
    }

    /// Whether data may be lost with all of these dead members that this node was asked to remove, and it was asked for some.
    pub fn is_loss_accepted(&self, removals: &BTreeSet<HostId>) -> bool {
        let state = self.state();
        let mut asked = removals.iter().filter_map(|host_id| state.asked_removals.get(host_id)).peekable();
        asked.peek().is_some() && asked.all(|accepts_loss| *accepts_loss)
    }

    pub fn is_removal_asked(&self, host_id: &HostId) -> bool {
        self.state().asked_removals.contains_key(host_id)
    }

    /// `now`: [`helenus_engine::io::Clock::monotonic`].
    pub fn report(&self, mode: &str, now: Duration) -> StreamingReport {
        let state = self.state();
        StreamingReport {
            uncleaned: Vec::new(),
            waits_for: Vec::new(),
            replication_changes: BTreeMap::new(),
            mode: mode.to_owned(),
            receiving: state.receiving.as_ref().map(|receiving| receiving.progress(now)),
            sent_bytes: state.sent_bytes.clone(),
        }
    }
}

impl Receiving {
    fn progress(&self, now: Duration) -> TransferProgress {
        let mut peers: BTreeMap<HostId, PeerProgress> = BTreeMap::new();
        for unit in self.units.values() {
            let peer = peers.entry(unit.source).or_insert(PeerProgress {
                peer: unit.source,
                bytes: 0,
                estimated_bytes: 0,
                units: 0,
                units_done: 0,
            });
            peer.bytes += unit.bytes;
            peer.estimated_bytes += unit.expected_bytes();
            peer.units += 1;
            peer.units_done += usize::from(unit.is_done);
        }
        let bytes: u64 = peers.values().map(|peer| peer.bytes).sum();
        let estimated_bytes: u64 = peers.values().map(|peer| peer.estimated_bytes).sum();
        let seconds = now.saturating_sub(self.began).as_secs_f64();
        let speed = (bytes.saturating_sub(self.bytes_before)) as f64 / seconds.max(0.001);
        let left = estimated_bytes.saturating_sub(bytes);
        let is_known = speed >= 1.0 && !self.is_done;
        TransferProgress {
            member: self.member,
            epoch: self.epoch,
            bytes,
            estimated_bytes,
            percent: if self.is_done {
                100.0
            } else {
                // 100 is reserved for completed transfers.
                (100.0 * bytes as f64 / estimated_bytes.max(1) as f64).min(99.9)
            },
            bytes_per_second: speed as u64,
            seconds_left: is_known.then_some((left as f64 / speed) as u64),
            is_done: self.is_done,
            waiting_for: self.waiting_for.clone(),
            peers: peers.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn streamed_ranges_are_not_streamed_again_when_other_ranges_are_wanted() {
        let at = |token| Some(helenus_engine::key::encode_token(token).to_vec());
        let begun = StreamTaskProgress::default().towards(&[0..=9, 20..=29]);
        assert_eq!((&begun.wanted, begun.is_done), (&vec![0..=9, 20..=29], false));
        let halfway = StreamTaskProgress { resume: at(25), bytes: 15, ..begun };
        assert!((halfway.share_done() - 0.75).abs() < 1e-9);
        // The same tokens continue within the partition.
        assert_eq!(halfway.clone().towards(&[0..=9, 20..=29]), halfway);
        let other = halfway.towards(&[5..=9, 20..=39]);
        assert_eq!((&other.wanted, &other.resume, other.bytes), (&vec![25..=39], &None, 15));
        let done = StreamTaskProgress { is_done: true, ..other };
        assert_eq!(done.clone().towards(&[5..=9, 20..=39]), done);
        // Back to the first tokens: they are among those that are there.
        let back = done.towards(&[0..=9, 20..=29]);
        assert!(back.is_done && back.wanted.is_empty());
    }

    #[test]
    fn a_report_shows_how_much_is_left() {
        let transfers = Transfers::default();
        let source = Uuid::from_u128(7);
        let key = |number: u16| StreamTaskKey::new(source, number, TABLE.0);
        let unit =
            StreamTaskState { source, bytes: 0, estimated_bytes: 1_000, share_done: 0.0, is_done: false };
        let units = BTreeMap::from([(key(0), unit), (key(1), unit)]);
        transfers.begin(Uuid::from_u128(9), 3, units, Duration::from_secs(10));
        transfers.note_unit(3, key(0), 500, 0.25, false);
        transfers.note_unit(2, key(1), 999, 1.0, true);
        let report = transfers.report("JOINING", Duration::from_secs(15));
        let receiving = report.receiving.unwrap();
        // A quarter of the first task is there: it will have 2,000 bytes. For the other one only the estimate is
        // known.
        assert_eq!((receiving.bytes, receiving.estimated_bytes), (500, 3_000));
        assert_eq!((receiving.bytes_per_second, receiving.seconds_left), (100, Some(25)));
        assert_eq!((receiving.peers.len(), receiving.peers[0].units), (1, 2));
        assert!(!transfers.is_done(3));
        transfers.note_done(3);
        assert!(transfers.is_done(3) && !transfers.is_done(4));
        assert!(
            (transfers.report("JOINING", Duration::from_secs(20)).receiving.unwrap().percent - 100.0).abs()
                < 1e-9
        );
        transfers.end(Duration::from_secs(20));
        assert_eq!(transfers.report("NORMAL", Duration::from_secs(30)).receiving, None);
        let latest = |seconds| transfers.latest(Duration::from_secs(seconds)).unwrap();
        assert!(latest(30).0.is_done && !latest(30).1);
        transfers.end(Duration::from_secs(30));
        assert!(latest(40).0.is_done && !latest(40).1);
    }
}
