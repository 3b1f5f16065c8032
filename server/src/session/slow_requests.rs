//! Requests that took long are logged with their statement, so that an operator sees which.
//!
//! Invariants:
//! * Values that were bound are not logged.
//! * A shard logs a bounded number of lines a second. It counts the others, and says with the next line how many they were.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use helenus_execution::shard::context::ShardContext;
use helenus_query::statement::Description;

/// Most lines a second.
const LINES_A_SECOND: u32 = 5;
/// Most bytes of a statement in a line.
const TEXT_BYTES_MAX: usize = 2_000;

/// What a shard has logged lately.
#[derive(Debug, Default)]
pub struct SlowRequests {
    second: Cell<u64>,
    lines: Cell<u32>,
    untold: Cell<u64>,
}

impl SlowRequests {
    /// Whether a line may be written now; the number of requests without one since the last line.
    fn admit(&self, now: Duration) -> Option<u64> {
        if self.second.replace(now.as_secs()) != now.as_secs() {
            self.lines.set(0);
        }
        if self.lines.get() == LINES_A_SECOND {
            self.untold.set(self.untold.get() + 1);
            return None;
        }
        self.lines.set(self.lines.get() + 1);
        Some(self.untold.take())
    }
}

/// Notes a request if it took long. `statement`: `None` for a batch.
#[inline]
pub fn note(context: &ShardContext, client: SocketAddr, statement: Option<&Description>, duration: Duration) {
    let limit_ms = context.node.config.slow_query_log_timeout_ms;
    if limit_ms > 0 && duration >= Duration::from_millis(limit_ms) {
        note_slow(context, client, statement, duration);
    }
}

#[cold]
fn note_slow(
    context: &ShardContext,
    client: SocketAddr,
    statement: Option<&Description>,
    duration: Duration,
) {
    context.metrics.slow_requests.increment();
    let requests: &SlowRequests = context.layers.get();
    let Some(untold) = requests.admit(context.clock.monotonic()) else { return };
    let (text, keyspace) = match statement {
        Some(statement) => (shortened(&statement.text), statement.keyspace.as_deref().unwrap_or_default()),
        None => ("a batch", ""),
    };
    tracing::warn!(target: "helenus::slow_requests", statement = text, keyspace, %client, ?duration, untold, "a request was slow");
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_the_others_are_counted() {
        let requests = SlowRequests::default();
        let told = (0..8).filter_map(|_| requests.admit(Duration::from_millis(7_100))).count();
        assert_eq!(told, 5);
        assert_eq!(requests.admit(Duration::from_millis(8_000)), Some(3));
        assert_eq!(requests.admit(Duration::from_millis(8_000)), Some(0));
    }

    #[test]
    fn a_long_statement_is_cut_between_characters() {
        let text = format!("x{}", "ä".repeat(2_000));
        assert_eq!(shortened(&text).len(), 1_999);
        assert_eq!(shortened("short"), "short");
    }
}
