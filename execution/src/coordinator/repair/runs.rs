//! The repairs that a node carries out, under way and ended: their progress, for operators, and their cancellation.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use helenus_config::Config;
use helenus_engine::io::RateLimiter;
use helenus_observe::RepairRanges;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use serde::{Deserialize, Serialize};

use crate::shard::context::NodeShared;

/// Ended repairs that are remembered, of those of operators and of the schedule each.
const ENDED_MAX: usize = 16;
/// Failures of one repair that are kept as texts; the others are counted.
const FAILURES_MAX: usize = 16;

/// Somebody does not want a repair any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cancelled {
    #[error("the repair was cancelled")]
    ByOperator,
    #[error("the node is shutting down")]
    ByShutdown,
}

/// What a repair is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairScope {
    /// All keyspaces without one.
    pub keyspace: Option<String>,
    /// All tables of it without any.
    pub tables: Vec<String>,
    pub ranges: RepairRanges,
    /// Only replicas of these data centers take part; all without any.
    pub data_centers: Vec<String>,
    /// Whether this node takes part too, wherever it is.
    pub and_this_node: bool,
    /// Whether ranges are repaired among the replicas that are alive, if some are down.
    pub without_dead: bool,
}

impl RepairScope {
    /// Whether a replica takes part. `own`: this node.
    pub fn includes(&self, member: &Member, own: HostId) -> bool {
        self.data_centers.is_empty()
            || self.data_centers.contains(&member.data_center)
            || self.and_this_node && member.host_id == own
    }
}

/// Why a node repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Operator,
    /// An operator has asked for it before the node was started again: what is done is left out.
    Resumed,
    /// It is time to.
    Schedule,
}

/// How a repair stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    Running,
    /// Every range was repaired, among the replicas that were to take part.
    Done,
    /// Some ranges were not repaired.
    Incomplete,
    Cancelled,
}

/// One repair.
#[derive(Debug)]
pub struct RepairRun {
    /// Unique on this node since its start.
    pub id: u64,
    pub scope: RepairScope,
    pub cause: Cause,
    /// Microseconds since the epoch.
    pub began_micros: i64,
    progress: Mutex<Progress>,
    is_cancelled: AtomicBool,
    differing_parts: AtomicU64,
    compared_bytes: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    written_mutations: AtomicU64,
}

#[derive(Debug, Clone)]
struct Progress {
    state: RunState,
    ended_micros: Option<i64>,
    /// The share that is done, from 0 to 1.
    done: f64,
    current: String,
    failures: Vec<String>,
    failure_count: u64,
}

/// A repair as it stands.
#[derive(Debug, Clone)]
pub struct RunReport {
    pub id: u64,
    pub scope: RepairScope,
    pub cause: Cause,
    pub began_micros: i64,
    pub ended_micros: Option<i64>,
    pub state: RunState,
    /// The share that is done, from 0 to 1.
    pub done: f64,
    /// The table that is being repaired.
    pub current: String,
    pub differing_parts: u64,
    /// Bytes of rows that the replicas together have read for comparisons.
    pub compared_bytes: u64,
    /// Bytes of rows that other nodes have sent to this one.
    pub received_bytes: u64,
    /// Bytes of rows that this node has sent to replicas that lacked them.
    pub sent_bytes: u64,
    pub written_mutations: u64,
    /// The first failures.
    pub failures: Vec<String>,
    pub failure_count: u64,
}

impl RepairRun {
    /// An error if the repair is not wanted any more.
    pub fn check(&self, node: &NodeShared) -> Result<(), Cancelled> {
        if *node.stopping.borrow() {
            Err(Cancelled::ByShutdown)
        } else if self.is_cancelled.load(Ordering::Relaxed) {
            Err(Cancelled::ByOperator)
        } else {
            Ok(())
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Each change of the values is a whole one: a panic of another holder of the lock leaves them usable.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note_progress(&self, done: f64, current: String) {
        let mut progress = self.progress();
        (progress.done, progress.current) = (done, current);
    }

    /// Notes why some ranges were not repaired. Returns whether that is kept as a new reason.
    pub fn note_failure(&self, failure: String) -> bool {
        let mut progress = self.progress();
        progress.failure_count += 1;
        let is_new = progress.failures.len() < FAILURES_MAX && !progress.failures.contains(&failure);
        if is_new {
            progress.failures.push(failure);
        }
        is_new
    }

    pub fn note_difference(&self) {
        self.differing_parts.fetch_add(1, Ordering::Relaxed);
    }

    pub fn note_compared(&self, bytes: u64) {
        self.compared_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn note_received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes a mutation that was written to a replica, with the bytes that went through the network.
    pub fn note_written(&self, sent_bytes: u64) {
        self.written_mutations.fetch_add(1, Ordering::Relaxed);
        self.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
    }

    pub fn report(&self) -> RunReport {
        let progress = self.progress().clone();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RunReport {
            id: self.id,
            scope: self.scope.clone(),
            cause: self.cause,
            began_micros: self.began_micros,
            ended_micros: progress.ended_micros,
            state: progress.state,
            done: progress.done,
            current: progress.current,
            differing_parts: count(&self.differing_parts),
            compared_bytes: count(&self.compared_bytes),
            received_bytes: count(&self.received_bytes),
            sent_bytes: count(&self.sent_bytes),
            written_mutations: count(&self.written_mutations),
            failures: progress.failures,
            failure_count: progress.failure_count,
        }
    }

    fn end(&self, state: RunState, now_micros: i64) {
        let mut progress = self.progress();
        progress.state = state;
        progress.ended_micros = Some(now_micros);
        progress.current.clear();
    }
}

/// The repairs of a node, shared by its shards.
#[derive(Debug, Default)]
pub struct RepairRuns {
    /// The oldest first.
    runs: Mutex<VecDeque<Arc<RepairRun>>>,
    last_id: AtomicU64,
    pace: OnceLock<RateLimiter>,
    run_of_program: OnceLock<u64>,
}

impl RepairRuns {
    /// The repairs of a node.
    pub fn of(node: &NodeShared) -> &Self {
        node.layers.get()
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Arc<RepairRun>>> {
        // Each change of the list is a whole one.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rate at which the node reads and writes for repairs, over all of them.
    pub fn pace(&self, config: &Config) -> RateLimiter {
        let rate = config.repair_throughput_bytes_per_second;
        self.pace.get_or_init(|| RateLimiter::new((rate > 0).then_some(rate))).clone()
    }

    /// A number that stands for this run of the program. `random` gives it when it is first asked for.
    pub fn run_of_program(&self, random: impl FnOnce() -> u64) -> u64 {
        *self.run_of_program.get_or_init(random)
    }

    /// Registers a repair that begins now.
    pub fn begin(&self, scope: RepairScope, cause: Cause, began_micros: i64) -> Arc<RepairRun> {
        let run = Arc::new(RepairRun {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            scope,
            cause,
            began_micros,
            progress: Mutex::new(Progress {
                state: RunState::Running,
                ended_micros: None,
                done: 0.0,
                current: String::new(),
                failures: Vec::new(),
                failure_count: 0,
            }),
            is_cancelled: AtomicBool::new(false),
            differing_parts: AtomicU64::new(0),
            compared_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            written_mutations: AtomicU64::new(0),
        });
        self.runs().push_back(Arc::clone(&run));
        run
    }

    /// Notes that a repair has ended. Old ended ones are forgotten.
    pub fn end(&self, run: &RepairRun, state: RunState, now_micros: i64) {
        run.end(state, now_micros);
        let mut runs = self.runs();
        let is_like_it = |other: &Arc<RepairRun>| {
            (other.cause == Cause::Schedule) == (run.cause == Cause::Schedule)
                && other.progress().state != RunState::Running
        };
        while runs.iter().filter(|run| is_like_it(run)).count() > ENDED_MAX {
            let Some(oldest) = runs.iter().position(is_like_it) else { break };
            runs.remove(oldest);
        }
    }

    /// All that are remembered, the oldest first.
    pub fn reports(&self) -> Vec<RunReport> {
        self.runs().iter().map(|run| run.report()).collect()
    }

    /// A repair that is under way and was asked for with the same scope.
    pub fn running_with(&self, scope: &RepairScope) -> Option<Arc<RepairRun>> {
        let runs = self.runs();
        let is_same = |run: &&Arc<RepairRun>| {
            run.cause != Cause::Schedule && run.scope == *scope && run.progress().state == RunState::Running
        };
        runs.iter().find(is_same).cloned()
    }

    /// Cancels the repair of this id, or all that are under way. Returns their number.
    pub fn cancel(&self, id: Option<u64>) -> usize {
        let runs = self.runs();
        let running = runs
            .iter()
            .filter(|run| id.is_none_or(|id| run.id == id) && run.progress().state == RunState::Running);
        running.map(|run| run.is_cancelled.store(true, Ordering::Relaxed)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_ended_repairs_are_forgotten_and_running_ones_are_not() {
        let runs = RepairRuns::default();
        let running = runs.begin(RepairScope::default(), Cause::Operator, 1);
        for number in 0..100 {
            let run = runs.begin(RepairScope::default(), Cause::Schedule, number);
            runs.end(&run, RunState::Done, number + 1);
        }
        let reports = runs.reports();
        assert_eq!(reports.len(), ENDED_MAX + 1);
        let of_operator = runs.begin(RepairScope::default(), Cause::Operator, 7);
        runs.end(&of_operator, RunState::Done, 8);
        assert_eq!(runs.reports().len(), ENDED_MAX + 2);
        assert_eq!((reports[0].id, reports[0].state.clone()), (running.id, RunState::Running));
        assert_eq!(reports.last().unwrap().began_micros, 99);
        assert!(runs.running_with(&RepairScope::default()).is_some());
        assert_eq!(runs.cancel(None), 1);
        assert!(running.is_cancelled.load(Ordering::Relaxed));
    }

    #[test]
    fn equal_failures_are_kept_once_and_counted() {
        let runs = RepairRuns::default();
        let run = runs.begin(RepairScope::default(), Cause::Operator, 1);
        for number in 0..50 {
            run.note_failure(format!("failure {}", number / 2));
        }
        let report = run.report();
        assert_eq!((report.failures.len(), report.failure_count), (FAILURES_MAX, 50));
    }
}
