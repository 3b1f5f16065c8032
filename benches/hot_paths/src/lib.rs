//! The hot paths whose instructions `benches/micro/run` counts under valgrind (`make bench-micro`).
//!
//! [`engine_paths`] and [`request_paths`] are the paths, each a [`workload::Workload`]. [`filter_paths`] compares the filter with the
//! `bloomfilter` crate. A package of its own, so that what is counted is built without the rest of the server.
//!
//! Invariants of the workloads: one thread, a simulated disk, a clock that stands still, data made of the operation's
//! number. So a count changes only with the code (and the compiler).

pub mod engine_paths;
pub mod filter_paths;
pub mod request_paths;
pub mod workload;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use self::workload::{Failure, Workload};

/// Operations between two pauses: what one read of a busy connection brings.
const BATCH_OPERATIONS: u64 = 32;

/// Sets a workload up.
type Prepare = fn() -> LocalBoxFuture<'static, Result<Box<dyn Workload>, Failure>>;

/// The hot paths by the name under which `benches/micro/limits.json` has them. The last two are compared with each other and have no limit.
pub const WORKLOADS: [(&str, Prepare); 8] = [
    ("frame_to_plan", || async { Ok(Box::new(request_paths::FrameToPlan::prepare()?) as _) }.boxed_local()),
    ("values_to_mutation", || {
        async { Ok(Box::new(request_paths::ValuesToMutation::prepare()?) as _) }.boxed_local()
    }),
    ("put", || async { Ok(Box::new(engine_paths::Put::prepare().await?) as _) }.boxed_local()),
    ("cached_get", || async { Ok(Box::new(engine_paths::CachedGet::prepare().await?) as _) }.boxed_local()),
    ("merge_4_sources_100_rows", || {
        async { Ok(Box::new(engine_paths::MergedScan::prepare().await?) as _) }.boxed_local()
    }),
    ("100_rows_to_answer", || {
        async { Ok(Box::new(request_paths::RowsToAnswer::prepare()?) as _) }.boxed_local()
    }),
    ("filter", || async { Ok(Box::new(filter_paths::OurFilter::prepare()?) as _) }.boxed_local()),
    ("filter_of_the_crate", || {
        async { Ok(Box::new(filter_paths::CrateFilter::prepare()?) as _) }.boxed_local()
    }),
];

/// Runs a workload: `operations` to warm up, then as many in [`measured`]. Needs a `LocalSet`.
pub async fn run(prepare: Prepare, operations: u64) -> Result<(), Failure> {
    let mut workload = prepare().await?;
    let mut first = 0;
    while first < 2 * operations {
        // No batch is half warm-up.
        let phase_end = if first < operations { operations } else { 2 * operations };
        let end = phase_end.min(first + BATCH_OPERATIONS);
        if first < operations {
            for number in first..end {
                workload.operation(number)?;
            }
        } else {
            measured(&mut *workload, first, end)?;
        }
        workload.pause().await?;
        first = end;
    }
    Ok(())
}

/// The operations `first..end`. callgrind counts from the entry of this function to its end, by its name, so nothing
/// that it calls may have `measured` in its name.
#[inline(never)]
fn measured(workload: &mut dyn Workload, first: u64, end: u64) -> Result<(), Failure> {
    for number in first..end {
        workload.operation(number)?;
    }
    Ok(())
}
