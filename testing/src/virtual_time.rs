//! Runs tests in virtual time: when no task can run, the clock jumps to the next timer.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// Turns that a test gives to other tasks until all of them wait for time to pass.
const TURNS: usize = 2_000;
/// Time between two looks at a condition, and the most looks.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: usize = 10_000;

/// A runtime of one thread, whose choices follow from the seed if the program is built with `--cfg tokio_unstable`.
pub fn runtime(seed: u64) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // The runtime chooses which of several waiters is woken first, and the order in `select!`.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_be_bytes()));
    #[cfg(not(tokio_unstable))]
    let _ = seed;
    builder.build().expect("a runtime without I/O can be built")
}

/// Runs `body` as a local task. The set is for tasks that do not belong to a node.
pub fn run<F: Future>(seed: u64, body: impl FnOnce(Rc<LocalSet>) -> F) -> F::Output {
    let runtime = runtime(seed);
    let tasks = Rc::new(LocalSet::new());
    // Within the runtime, because outside of it `Instant::now` is the real time.
    runtime.block_on(tasks.run_until(async { body(tasks.clone()).await }))
}

/// Runs other tasks until none can continue without time passing.
pub async fn settle() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// Waits until a condition holds.
pub async fn wait_until(mut holds: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if holds() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("the condition was not reached");
}
