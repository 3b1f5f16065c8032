//! A small pool of operating-system threads for background jobs.
//!
//! Each thread has a current-thread runtime of its own (for timers) and a disk whose calls block that thread. Each
//! kind of job has its own queue and its own threads. A thread runs one job at a time to its end. When the last handle is
//! dropped, the threads finish their queued jobs and stop. The threads for parts of long jobs are those of the node ([`PartThreads`]).
//!
//! The threads have a lower priority than those of shards ([`super::priority`]).

#![allow(clippy::disallowed_methods, reason = "this is the one place that starts background threads")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::{io, thread};

use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

use super::background::{Background, BackgroundError, Job, JobContext, JobKind, JobOutput};
use super::clock_real::RealClock;
use super::disk::Disk;
use super::disk_real::DirectDisk;
use super::priority::{FLUSH_NICENESS, LOW_NICENESS, lower_priority};
use super::thread_budget::ThreadBudget;
use crate::invariant::broken;

struct Task {
    job: Job,
    answer: oneshot::Sender<Result<JobOutput, BackgroundError>>,
}

/// A handle on the pool; clones share the same threads and may be sent to other shards.
#[derive(Clone)]
pub struct BackgroundPool {
    soon: Sender<Task>,
    short: Sender<Task>,
    long: Sender<Task>,
    parts: Option<PartThreads>,
}

/// The threads of a node for parts of the long jobs of all its shards; clones share them.
#[derive(Clone)]
pub struct PartThreads {
    queue: Sender<Task>,
    budget: ThreadBudget,
}

impl PartThreads {
    /// `threads`: those that may be at long work at the same time, over all `shards`.
    pub fn start_on(threads: usize, shards: usize, disk: &Arc<dyn Disk>) -> io::Result<Self> {
        // Each shard may have a part under way without a claim. So no part waits for a thread, however long others keep theirs.
        let queue = start_threads("compaction-part", threads + shards, LOW_NICENESS, disk, None)?;
        Ok(Self { queue, budget: ThreadBudget::new(threads) })
    }
}

impl BackgroundPool {
    /// Starts `threads` threads (at least one) for each kind of job, and one for short ones.
    pub fn start(threads: usize) -> io::Result<Self> {
        Self::start_on(threads, &(Arc::new(DirectDisk::new()) as Arc<dyn Disk>))
    }

    /// As `start`, with another disk for the jobs. Its calls may hold up the thread that makes them.
    pub fn start_on(threads: usize, disk: &Arc<dyn Disk>) -> io::Result<Self> {
        Self::start_with(threads, disk, None)
    }

    /// As `start_on`. Long jobs may have parts on the threads of the node.
    pub fn start_with(threads: usize, disk: &Arc<dyn Disk>, parts: Option<PartThreads>) -> io::Result<Self> {
        let budget = parts.as_ref().map(|parts| &parts.budget);
        Ok(Self {
            soon: start_threads("flush", threads, FLUSH_NICENESS, disk, None)?,
            short: start_threads("compaction", 1, LOW_NICENESS, disk, None)?,
            long: start_threads("background", threads, LOW_NICENESS, disk, budget)?,
            parts,
        })
    }
}

/// `budget`: of which each job takes a thread.
fn start_threads(
    name: &str,
    threads: usize,
    niceness: i32,
    disk: &Arc<dyn Disk>,
    budget: Option<&ThreadBudget>,
) -> io::Result<Sender<Task>> {
    let (queue, tasks) = channel();
    let tasks = Arc::new(Mutex::new(tasks));
    for number in 0..threads.max(1) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (tasks, disk, budget) = (Arc::clone(&tasks), Arc::clone(disk), budget.cloned());
        thread::Builder::new().name(format!("{name}-{number}")).spawn(move || {
            lower_priority(niceness);
            run_tasks(&runtime, &tasks, &disk, budget.as_ref());
        })?;
    }
    Ok(queue)
}

fn run_tasks(
    runtime: &tokio::runtime::Runtime,
    tasks: &Mutex<Receiver<Task>>,
    disk: &Arc<dyn Disk>,
    budget: Option<&ThreadBudget>,
) {
    let clock = Rc::new(RealClock::new());
    loop {
        // The lock is held only while waiting for one task; a poisoned lock means another thread died in `recv`.
        let next = match tasks.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => return,
        };
        let Ok(task) = next else { return };
        let context = JobContext { disk: Arc::clone(disk), clock: Rc::clone(&clock) as _ };
        let job = task.job;
        let thread = budget.map(ThreadBudget::take);
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(async move { job(context).await })));
        drop(thread);
        // The spawner may have been dropped; then the result is not needed.
        drop(task.answer.send(outcome.map_err(|_| BackgroundError::Panicked)));
    }
}

impl Background for BackgroundPool {
    fn spawn(&self, kind: JobKind, job: Job) -> LocalBoxFuture<'static, Result<JobOutput, BackgroundError>> {
        let (answer, result) = oneshot::channel();
        let queue = match kind {
            JobKind::Soon => &self.soon,
            JobKind::Short => &self.short,
            JobKind::Long => &self.long,
            JobKind::Part => {
                let Some(parts) = &self.parts else {
                    let broken = broken!("a job has parts only where there are threads for them");
                    return Box::pin(async move { Err(BackgroundError::BrokenInvariant(broken)) });
                };
                &parts.queue
            }
        };
        let sent = queue.send(Task { job, answer });
        Box::pin(async move {
            if sent.is_err() {
                return Err(BackgroundError::Stopped);
            }
            result.await.unwrap_or(Err(BackgroundError::Stopped))
        })
    }

    fn part_budget(&self) -> Option<&ThreadBudget> {
        self.parts.as_ref().map(|parts| &parts.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::super::background::run_in_background;
    use super::*;

    #[test]
    fn a_job_runs_elsewhere_and_its_result_comes_back() {
        let pool = BackgroundPool::start(2).unwrap();
        let here = thread::current().id();
        let elsewhere =
            futures::executor::block_on(run_in_background(&pool, JobKind::Soon, move |_context| {
                Box::pin(async move { thread::current().id() != here })
            }));
        assert_eq!(elsewhere, Ok(true));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_background_threads_are_nicer_to_others() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let before = own();
        let pool = BackgroundPool::start(1).unwrap();
        let of = |kind| {
            let found = run_in_background(&pool, kind, |_context| {
                Box::pin(async { rustix::process::getpriority_process(None).unwrap() })
            });
            futures::executor::block_on(found).unwrap()
        };
        // The system knows no niceness above 19.
        assert_eq!(of(JobKind::Soon), (before + FLUSH_NICENESS).min(19));
        assert_eq!(of(JobKind::Short), (before + LOW_NICENESS).min(19));
        assert_eq!(of(JobKind::Long), (before + LOW_NICENESS).min(19));
        assert_eq!(own(), before);
    }

    #[test]
    fn a_panicking_job_is_an_error_and_the_pool_lives_on() {
        let pool = BackgroundPool::start(1).unwrap();
        let panicked: Result<(), _> =
            futures::executor::block_on(run_in_background(&pool, JobKind::Soon, |_context| {
                Box::pin(async { panic!("a planted panic") })
            }));
        assert_eq!(panicked, Err(BackgroundError::Panicked));
        let fine = futures::executor::block_on(run_in_background(&pool, JobKind::Soon, |_context| {
            Box::pin(async { 7_u8 })
        }));
        assert_eq!(fine, Ok(7));
    }

    #[test]
    fn a_long_job_takes_a_thread_of_the_node_and_its_parts_have_others() {
        let disk: Arc<dyn Disk> = Arc::new(DirectDisk::new());
        let parts = PartThreads::start_on(2, 1, &disk).unwrap();
        let budget = parts.budget.clone();
        let pool = BackgroundPool::start_with(1, &disk, Some(parts)).unwrap();
        assert_eq!(pool.part_budget().map(ThreadBudget::threads), Some(2));
        let (done, parts_done) = channel();
        let claims = budget.clone();
        let long = run_in_background(&pool, JobKind::Long, move |_context| {
            Box::pin(async move {
                let claimed = claims.claim();
                let is_last = claims.claim().is_none();
                (claimed.is_some() && is_last, parts_done.recv().is_ok() && parts_done.recv().is_ok())
            })
        });
        let part = || {
            let done = done.clone();
            run_in_background(&pool, JobKind::Part, move |_context| {
                Box::pin(async move { done.send(()).is_ok() })
            })
        };
        let outcome = futures::executor::block_on(futures::future::join3(long, part(), part()));
        assert_eq!(outcome, (Ok((true, true)), Ok(true), Ok(true)));
        assert!(budget.claim().is_some());
        let without = BackgroundPool::start(1).unwrap();
        assert!(without.part_budget().is_none());
    }

    #[test]
    fn a_flush_does_not_wait_for_a_long_job() {
        let pool = BackgroundPool::start(1).unwrap();
        let (flushed, unblocked) = channel();
        let long = run_in_background(&pool, JobKind::Long, move |_context| {
            Box::pin(async move { unblocked.recv().is_ok() })
        });
        let soon = run_in_background(&pool, JobKind::Soon, move |_context| {
            Box::pin(async move { flushed.send(()).is_ok() })
        });
        let outcome = futures::executor::block_on(futures::future::join(long, soon));
        assert_eq!(outcome, (Ok(true), Ok(true)));
    }
}
