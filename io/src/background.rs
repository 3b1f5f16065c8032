//! Long work over immutable inputs (building a table, compaction) that must not hold up a shard.
//!
//! A job is a closure that creates a local future on the thread which runs it. So a job may use `Rc` internally; its input and its
//! result are `Send`. The real implementation is `BackgroundPool`. [`InlineBackground`] runs the job as part of the awaiting
//! task, which keeps a simulation on one thread and deterministic.
//!
//! A long job may have parts, which are jobs as well. How many of them are under way follows from the threads of the node that have
//! nothing else to do ([`ThreadBudget`]).

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use thiserror::Error;

use super::clock::Clock;
use super::disk::Disk;
use super::thread_budget::ThreadBudget;
use crate::invariant::{self, BrokenInvariant};

/// The resources of a job on the thread that runs it.
pub struct JobContext {
    pub disk: Arc<dyn Disk>,
    pub clock: Rc<dyn Clock>,
}

/// The result of a job. [`run_in_background`] downcasts it.
pub type JobOutput = Box<dyn Any + Send>;

/// Work for a background thread.
pub type Job = Box<dyn FnOnce(JobContext) -> LocalBoxFuture<'static, JobOutput> + Send>;

/// The urgency of a job. A job waits only for other jobs of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Writers may have to wait for it: a flush.
    Soon,
    /// It takes seconds, and should not wait for those that take hours: a small compaction.
    Short,
    /// It may take hours: a compaction.
    Long,
    /// A part of a long one, which takes a second or so. Only for those who have a thread for it: see [`Background::part_budget`].
    Part,
}

/// Why a job has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BackgroundError {
    #[error("a background job panicked")]
    Panicked,
    #[error("the background threads have stopped")]
    Stopped,
    #[error("a background job returned a value of an unexpected type")]
    UnexpectedType,
    #[error(transparent)]
    BrokenInvariant(BrokenInvariant),
}

/// Runs jobs away from the shard.
pub trait Background {
    /// Starts `job`. Await the answer: an implementation may make progress only while it is polled.
    fn spawn(&self, kind: JobKind, job: Job) -> LocalBoxFuture<'static, Result<JobOutput, BackgroundError>>;

    /// The threads for parts of long jobs, which the shards of a node share. A long job that only waits for its parts has a thread for one of
    /// them; each further one needs a claim. `None`: jobs have no parts.
    fn part_budget(&self) -> Option<&ThreadBudget> {
        None
    }
}

/// The broken invariant that a job has reported on its thread, if any.
type Reported = Option<BrokenInvariant>;

/// Runs `job` in the background and returns what it returns.
pub async fn run_in_background<T, F>(
    background: &dyn Background,
    kind: JobKind,
    job: F,
) -> Result<T, BackgroundError>
where
    T: Send + 'static,
    F: FnOnce(JobContext) -> LocalBoxFuture<'static, T> + Send + 'static,
{
    let boxed: Job = Box::new(move |context| {
        let future = job(context);
        Box::pin(async move {
            let value = future.await;
            Box::new((value, invariant::take())) as JobOutput
        })
    });
    let output = background.spawn(kind, boxed).await?;
    let output = output.downcast::<(T, Reported)>().map_err(|_| BackgroundError::UnexpectedType)?;
    let (value, reported) = *output;
    match reported {
        None => Ok(value),
        Some(broken) => {
            // The result of the job must not be used, and the shard has to stop.
            invariant::carry_over(broken);
            Err(BackgroundError::BrokenInvariant(broken))
        }
    }
}

/// Runs each job inside the task that awaits it.
#[derive(Clone)]
pub struct InlineBackground {
    disk: Arc<dyn Disk>,
    clock: Rc<dyn Clock>,
    budget: Option<ThreadBudget>,
}

impl InlineBackground {
    /// Jobs use this disk and this clock.
    pub fn new(disk: Arc<dyn Disk>, clock: Rc<dyn Clock>) -> Self {
        Self { disk, clock, budget: None }
    }

    /// As if there were this many threads for long jobs and their parts.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { budget: Some(ThreadBudget::new(threads)), ..self }
    }
}

impl Background for InlineBackground {
    fn spawn(&self, kind: JobKind, job: Job) -> LocalBoxFuture<'static, Result<JobOutput, BackgroundError>> {
        let context = JobContext { disk: Arc::clone(&self.disk), clock: Rc::clone(&self.clock) };
        let budget = self.budget.clone().filter(|_| kind == JobKind::Long);
        Box::pin(async move {
            let _thread = budget.map(|budget| budget.take());
            Ok(job(context).await)
        })
    }

    fn part_budget(&self) -> Option<&ThreadBudget> {
        self.budget.as_ref()
    }
}
