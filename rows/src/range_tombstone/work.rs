//! Counts the work of range tombstones in tests: comparisons of bounds, and steps of walks. The counts belong to the thread.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

pub fn note() {
    COUNT.with(|count| count.set(count.get() + 1));
}

/// The work of the thread since the last call.
pub fn take() -> u64 {
    COUNT.take()
}
