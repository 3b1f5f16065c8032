//! Requests at an even rate: the generic cell rate algorithm (ITU-T I.371). An allowance grows evenly, and holds what a second brings at most.

use std::time::Duration;

const SECOND_NANOS: u64 = 1_000_000_000;

/// Takes one request from an allowance of `per_second` requests. `even_nanos`: when all that was admitted before would have been asked evenly; 0:
/// nothing was. Returns that with this request; `None`: it is refused. `now`: monotonic time.
pub fn admit(even_nanos: u64, per_second: u64, now: Duration) -> Option<u64> {
    // More than one a nanosecond cannot be told apart.
    let interval_nanos = SECOND_NANOS.checked_div(per_second)?.max(1);
    let now = nanos(now);
    let next = even_nanos.max(now) + interval_nanos;
    (next - now <= SECOND_NANOS).then_some(next)
}

/// Whether nothing of an allowance is used.
pub fn is_whole(even_nanos: u64, now: Duration) -> bool {
    even_nanos <= nanos(now)
}

fn nanos(time: Duration) -> u64 {
    // Enough for centuries.
    time.as_nanos() as u64
}
