//! Long work over immutable inputs (building a table, compaction) that must not hold up a shard.
//!
//! A job is a closure that creates a local future on the thread which runs it. So a job may use `Rc` internally; its input and its
//! result are `Send`. The real implementation is `BackgroundPool`. [`InlineBackground`] runs the job as part of the awaiting
//! task, which keeps a simulation on one thread and deterministic.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use thiserror::Error;

use super::clock::Clock;
use super::disk::Disk;
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
}

impl InlineBackground {
    /// Jobs use this disk and this clock.
    pub fn new(disk: Arc<dyn Disk>, clock: Rc<dyn Clock>) -> Self {
        Self { disk, clock }
    }
}

impl Background for InlineBackground {
    fn spawn(&self, _kind: JobKind, job: Job) -> LocalBoxFuture<'static, Result<JobOutput, BackgroundError>> {
        let context = JobContext { disk: Arc::clone(&self.disk), clock: Rc::clone(&self.clock) };
        Box::pin(async move { Ok(job(context).await) })
    }
}
