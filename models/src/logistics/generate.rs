//! Orders and their events: each follows from the seed, the size of the order and its numbers.
//!
//! Invariant: the events of an order have distinct times, in the order of their index.

use scylla::value::CqlTimestamp;
use uuid::{Builder, Uuid};

use crate::random::{below, hash, text};

/// 2025-01-01 in milliseconds since 1970.
const EPOCH_MS: i64 = 1_735_689_600_000;
/// Events follow each other by this much at most.
const GAP_MS: i64 = 60_000;

const STATES: [&str; 5] = ["collected", "loaded", "arrived at", "out for delivery from", "signed at"];

/// An event of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub created: CqlTimestamp,
    pub detail: String,
}

/// An order by its number among the orders of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    seed: u64,
    size: u32,
    number: u32,
}

impl Order {
    /// The `number`-th order of `size` events.
    pub fn new(seed: u64, size: u32, number: u32) -> Self {
        Self { seed, size, number }
    }

    /// The order's key.
    pub fn id(self) -> Uuid {
        let (high, low) = (self.draw(0, 1), self.draw(0, 2));
        Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes()).into_uuid()
    }

    /// The `index`-th event, oldest first; a run that writes more goes on behind the order's size.
    pub fn event(self, index: u32) -> Event {
        let draw = self.draw(1, index.into());
        let created = EPOCH_MS + i64::from(index) * GAP_MS + below(draw, GAP_MS as u64) as i64;
        let state =
            STATES.get(below(draw.rotate_left(23), STATES.len() as u64) as usize).copied().unwrap_or("at");
        Event { created: CqlTimestamp(created), detail: format!("{state} {}", text(draw, 3)) }
    }

    /// The newest `count` of the first `size` events, newest first.
    pub fn newest(self, size: u32, count: u32) -> Vec<Event> {
        (size.saturating_sub(count)..size).rev().map(|index| self.event(index)).collect()
    }

    fn draw(self, what: u64, number: u64) -> u64 {
        hash(self.seed, &[self.size.into(), self.number.into(), what, number])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn events_are_in_order_of_time() {
        let order = Order::new(1, 50, 3);
        let times: Vec<i64> = (0..1_000).map(|index| order.event(index).created.0).collect();
        assert!(times.is_sorted_by(|left, right| left < right));
        assert_eq!(order.event(5), Order::new(1, 50, 3).event(5));
    }

    #[test]
    fn the_newest_events_come_first() {
        let order = Order::new(1, 5, 0);
        assert_eq!(order.newest(5, 2), [order.event(4), order.event(3)]);
        assert_eq!(order.newest(5, 10).len(), 5);
    }

    #[test]
    fn orders_have_ids_of_their_own() {
        let ids: HashSet<_> =
            [5, 50].iter().flat_map(|size| (0..100).map(|n| Order::new(1, *size, n).id())).collect();
        assert_eq!(ids.len(), 200);
    }
}
