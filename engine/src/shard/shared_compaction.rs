//! A large compaction has several threads: its subranges are merged by jobs of their own, in the order of keys, and one job writes what they
//! give ([`crate::compaction`]). Then the outputs are read back by several jobs as well.
//!
//! How many jobs are under way follows from the threads of the node that have nothing else to do. Each takes a second or so, and asks for
//! its thread anew; so no other work waits for a large compaction. The shard's own thread for long work only writes meanwhile: one job
//! has that thread's place.
//!
//! Invariants:
//! * It ends when all of its jobs have ended, also after an error. Then nothing reads its inputs or writes to its outputs.
//! * The subranges that are begun and not yet written are few, so that what they hold in memory is bounded.

use std::future::poll_fn;
use std::task::Poll;

use futures::channel::mpsc;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::state::Shard;
use crate::compaction::{
    Compacted, CompactionTask, KeyRange, SharedCompaction, SubrangeTasks, ToAssembly, Unverified, subranges,
};
use crate::error::EngineError;
use crate::io::{Background, JobContext, JobKind, ThreadBudget, ThreadClaim, run_in_background};
use crate::table::{Counted, TableError, verify_between};

/// Subranges that are begun and not yet written, for each thread.
const UNWRITTEN_PER_THREAD: usize = 2;
/// The most jobs of one compaction: the one that writes would not keep up with more.
const JOBS_MAX: usize = 16;

/// The jobs of a compaction that are under way.
struct Jobs<'b, T> {
    background: &'b dyn Background,
    budget: &'b ThreadBudget,
    under_way: FuturesUnordered<LocalBoxFuture<'b, Result<T, EngineError>>>,
    /// For all but one.
    claims: Vec<ThreadClaim>,
}

impl<'b, T: Send + 'static> Jobs<'b, T> {
    fn new(background: &'b dyn Background, budget: &'b ThreadBudget) -> Self {
        Self { background, budget, under_way: FuturesUnordered::new(), claims: Vec::new() }
    }

    /// Whether there is a thread for one more.
    fn has_thread(&mut self) -> bool {
        let begun = self.under_way.len();
        if begun > self.claims.len() && begun < JOBS_MAX {
            self.claims.extend(self.budget.claim());
        }
        begun <= self.claims.len()
    }

    fn begin<F>(&mut self, job: F)
    where
        F: FnOnce(JobContext) -> LocalBoxFuture<'static, Result<T, TableError>> + Send + 'static,
    {
        let background = self.background;
        let job = async move { Ok(run_in_background(background, JobKind::Part, job).await??) };
        self.under_way.push(job.boxed_local());
    }

    /// Gives back the threads that are not used: a job that has ended may not be the next one to get its thread.
    fn give_back(&mut self) {
        self.claims.truncate(self.under_way.len().saturating_sub(1));
    }

    /// Begins jobs as there are threads for them, until all have ended. After an error no more are begun; it is returned, or the one that was
    /// not caused by another.
    async fn run_all<F>(
        mut self,
        jobs: impl Iterator<Item = F>,
        mut take: impl FnMut(T),
    ) -> Result<(), EngineError>
    where
        F: FnOnce(JobContext) -> LocalBoxFuture<'static, Result<T, TableError>> + Send + 'static,
    {
        let mut waiting = jobs.peekable();
        let mut outcome = Ok(());
        loop {
            while outcome.is_ok() && waiting.peek().is_some() && self.has_thread() {
                if let Some(job) = waiting.next() {
                    self.begin(job);
                }
            }
            match self.under_way.next().await {
                Some(Ok(value)) => take(value),
                Some(Err(error)) => outcome = first_cause(outcome, error),
                None => return outcome,
            }
            self.give_back();
        }
    }
}

/// Of two errors the one that may have caused the other: what follows an error elsewhere is stopped.
fn first_cause(before: Result<(), EngineError>, error: EngineError) -> Result<(), EngineError> {
    match before {
        Err(before) if !is_stop(&before) => Err(before),
        _ => Err(error),
    }
}

fn is_stop(error: &EngineError) -> bool {
    matches!(error, EngineError::Table(TableError::Stopped))
}

/// What happens to the subranges under way.
enum Event {
    Merged(Result<(), EngineError>),
    Written,
    /// Nothing more is written.
    AssemblyEnded,
}

impl Shard {
    /// Carries out a compaction by one job, or by several if it is a large one and the node has threads for them.
    pub(super) async fn carry_out(
        &self,
        task: CompactionTask,
        job: JobKind,
    ) -> Result<Compacted, EngineError> {
        let background = &*self.environment.background;
        let is_shared = |bytes_min: u64| job == JobKind::Long && task.progress.total_bytes() >= bytes_min;
        let budget = background.part_budget().filter(|budget| budget.threads() > 1);
        // One at a time: the jobs of several would keep the threads, and wait for an assembly that waits for a thread.
        let turn = self.shared_compaction.try_lock();
        let is_shared = |bytes_min: u64| turn.is_some() && is_shared(bytes_min);
        if let Some(budget) = budget.filter(|_| self.options.shared_compaction_bytes.is_some_and(is_shared)) {
            let subrange_bytes = self.options.compaction_subrange_bytes;
            let (inputs, split) = (task.inputs.clone(), task.split.clone());
            // To look through the indexes of large files takes a while.
            let ranges = run_in_background(background, job, move |_| {
                Box::pin(async move { subranges(&inputs, &split, subrange_bytes) })
            })
            .await?;
            if ranges.len() > 1 {
                return self.carry_out_shared(task.share(subrange_bytes), ranges, (job, budget)).await;
            }
        }
        Ok(run_in_background(background, job, move |context| Box::pin(task.run(context))).await??)
    }

    async fn carry_out_shared(
        &self,
        shared: SharedCompaction,
        ranges: Vec<KeyRange>,
        (job, budget): (JobKind, &ThreadBudget),
    ) -> Result<Compacted, EngineError> {
        let background = &*self.environment.background;
        let SharedCompaction { assembly, subranges, to_assembly, assembled } = shared;
        let writing = run_in_background(background, job, move |context| Box::pin(assembly.run(context)));
        let jobs = Jobs::new(background, budget);
        let merging = merge_subranges(jobs, &subranges, &ranges, to_assembly, assembled);
        let (written, merged) = futures::join!(writing, merging);
        let written = written.map_err(EngineError::from).and_then(|written| Ok(written?));
        let (mut compacted, unverified) = match (written, merged) {
            (Ok(written), Ok(())) => written,
            (Ok(_), Err(error)) | (Err(error), Ok(())) => return Err(error),
            (Err(error), Err(other)) => return Err(if is_stop(&error) { other } else { error }),
        };
        // The job that wrote has ended, and with it the place of one of these.
        let _thread = budget.take();
        let begun = self.environment.clock.monotonic();
        verify_outputs(Jobs::new(background, budget), &unverified, &ranges).await?;
        compacted.verification = self.environment.clock.monotonic().saturating_sub(begun);
        compacted.duration += compacted.verification;
        Ok(compacted)
    }
}

/// Begins the merges of all subranges in their order, as there are threads and as they are written. Returns when all of them have ended.
async fn merge_subranges(
    mut jobs: Jobs<'_, ()>,
    tasks: &SubrangeTasks,
    ranges: &[KeyRange],
    to_assembly: ToAssembly,
    mut assembled: mpsc::UnboundedReceiver<()>,
) -> Result<(), EngineError> {
    let mut waiting = ranges.iter().peekable();
    let (mut outcome, mut unwritten, mut is_written) = (Ok(()), 0, true);
    loop {
        let can_go_on = outcome.is_ok() && is_written;
        while can_go_on
            && waiting.peek().is_some()
            && unwritten < UNWRITTEN_PER_THREAD * (jobs.claims.len() + 1)
            && jobs.has_thread()
        {
            let Some(task) = waiting.next().and_then(|range| to_assembly.begin(tasks, range.clone())) else {
                break;
            };
            jobs.begin(move |context| Box::pin(task.run(context)));
            unwritten += 1;
        }
        let is_begun = waiting.peek().is_none();
        if jobs.under_way.is_empty() && (is_begun || !can_go_on) {
            if is_begun && can_go_on {
                to_assembly.end();
            }
            return outcome;
        }
        match next_event(&mut jobs, &mut assembled, is_written).await {
            Event::Merged(Ok(())) => {}
            Event::Merged(Err(error)) => outcome = first_cause(outcome, error),
            Event::Written => unwritten -= 1,
            Event::AssemblyEnded => is_written = false,
        }
        jobs.give_back();
    }
}

async fn next_event(
    jobs: &mut Jobs<'_, ()>,
    assembled: &mut mpsc::UnboundedReceiver<()>,
    is_written: bool,
) -> Event {
    poll_fn(|context| {
        if let Poll::Ready(Some(merged)) = jobs.under_way.poll_next_unpin(context) {
            return Poll::Ready(Event::Merged(merged));
        }
        if !is_written {
            return Poll::Pending;
        }
        assembled.poll_next_unpin(context).map(|written| match written {
            Some(()) => Event::Written,
            None => Event::AssemblyEnded,
        })
    })
    .await
}

/// Reads outputs back in parts, at the bounds of the subranges.
async fn verify_outputs(
    jobs: Jobs<'_, (usize, Counted)>,
    outputs: &[Unverified],
    ranges: &[KeyRange],
) -> Result<(), EngineError> {
    let of_output = |(number, output): (usize, &Unverified)| {
        let statistics = output.reader.statistics();
        let is_met = |range: &&KeyRange| {
            range.start <= statistics.max_key
                && range.end.as_ref().is_none_or(|end| *end > statistics.min_key)
        };
        let parts: Vec<KeyRange> = ranges.iter().filter(is_met).cloned().collect();
        let reader = output.reader.clone();
        parts.into_iter().map(move |KeyRange { start, end }| {
            let reader = reader.clone();
            move |_: JobContext| {
                let verified = async move {
                    let pause = async |_| crate::io::yield_now().await;
                    Ok((number, verify_between(&reader, &start, end.as_deref(), pause).await?))
                };
                verified.boxed_local()
            }
        })
    };
    let mut counted = vec![Counted::default(); outputs.len()];
    let take = |(number, part): (usize, Counted)| {
        if let Some(counted) = counted.get_mut(number) {
            counted.add(part);
        }
    };
    jobs.run_all(outputs.iter().enumerate().flat_map(of_output), take).await?;
    for (output, counted) in outputs.iter().zip(&counted) {
        counted.check(&output.reader, &output.written)?;
    }
    Ok(())
}
