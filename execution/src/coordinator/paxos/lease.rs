//! The order of nodes that compete for one partition: the partition's first live replica leases it to one coordinator
//! after the other, in the order of their requests. This is the granting side; [`super::contention`] is the
//! coordinator's side.
//!
//! Leases only improve speed. Nothing is lost or wrong if one is forgotten, granted twice, or ignored: promises and
//! quorums decide the outcome of transactions. So leases are kept in memory only, expire soon, and are requested only
//! after contention.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::partition_queue::Name;
use crate::coordinator::paxos::message::{LeaseAnswer, LeaseOrder, LeaseRequest};
use crate::shard::context::ShardContext;

/// A lease expires after this time: its holder is slow, or has crashed.
const LEASE: Duration = Duration::from_millis(500);
/// A waiting coordinator is answered after this time that it is still in the queue, and repeats its request.
pub const POLL: Duration = Duration::from_millis(100);
/// A coordinator that has not repeated its request for this time loses its place in the queue.
const FORGET: Duration = Duration::from_millis(400);
/// Above this number of partitions, those whose leases have expired are removed.
const PARTITIONS_MANY: usize = 1_024;

/// The leases that this shard has granted, and the queues of coordinators that wait for them.
#[derive(Default)]
pub struct Leases {
    partitions: RefCell<BTreeMap<Name, Queue>>,
}

#[derive(Default)]
struct Queue {
    /// The id of the granted lease, and the monotonic time at which it expires.
    holder: Option<(u64, Duration)>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    lease_id: u64,
    asked_at: Duration,
    wake: oneshot::Sender<()>,
}

/// The result of a request for a lease.
enum Taken {
    Granted { is_wanted: bool },
    Wait(oneshot::Receiver<()>),
}

impl Queue {
    /// Grants the lease to the next coordinator if the present lease has expired.
    fn advance(&mut self, now: Duration) {
        if self.holder.is_some_and(|(_, end)| end > now) {
            return;
        }
        self.holder = None;
        while let Some(next) = self.waiting.pop_front() {
            if next.asked_at + FORGET > now {
                self.holder = Some((next.lease_id, now + LEASE));
                // If the coordinator is about to repeat its request, it finds the lease then.
                let _ = next.wake.send(());
                return;
            }
        }
    }

    fn is_held_by(&self, lease_id: u64) -> bool {
        self.holder.is_some_and(|(holder, _)| holder == lease_id)
    }

    fn take(&mut self, lease_id: u64, now: Duration) -> Taken {
        let (wake, woken) = oneshot::channel();
        let waiting = Waiting { lease_id, asked_at: now, wake };
        if !self.is_held_by(lease_id) {
            match self.waiting.iter_mut().find(|waiting| waiting.lease_id == lease_id) {
                Some(place) => *place = waiting,
                None => self.waiting.push_back(waiting),
            }
        }
        self.advance(now);
        if self.is_held_by(lease_id) {
            Taken::Granted { is_wanted: !self.waiting.is_empty() }
        } else {
            Taken::Wait(woken)
        }
    }

    fn give_back(&mut self, lease_id: u64, now: Duration) {
        if self.is_held_by(lease_id) {
            self.holder = None;
        }
        self.waiting.retain(|waiting| waiting.lease_id != lease_id);
        self.advance(now);
    }

    fn is_idle(&self, now: Duration) -> bool {
        self.waiting.is_empty() && self.holder.is_none_or(|(_, end)| end <= now)
    }
}

impl Leases {
    /// Applies a function to the queue of a partition.
    fn with<T>(&self, name: &Name, now: Duration, act: impl FnOnce(&mut Queue) -> T) -> T {
        let mut partitions = self.partitions.borrow_mut();
        if partitions.len() > PARTITIONS_MANY {
            partitions.retain(|_, queue| !queue.is_idle(now));
        }
        let queue = partitions.entry(name.clone()).or_default();
        let result = act(queue);
        if queue.is_idle(now) {
            partitions.remove(name);
        }
        result
    }
}

/// Executes a request. A coordinator that must wait is answered when the lease is granted to it, or after [`POLL`].
pub async fn receive(context: &Rc<ShardContext>, request: LeaseRequest) -> LeaseAnswer {
    let LeaseRequest { table_id, key, lease_id, order } = request;
    let name = (table_id, key);
    let leases = &context.paxos().leases;
    let now = || context.clock.monotonic();
    if order == LeaseOrder::GiveBack {
        leases.with(&name, now(), |queue| queue.give_back(lease_id, now()));
        return LeaseAnswer::GivenBack;
    }
    match leases.with(&name, now(), |queue| queue.take(lease_id, now())) {
        Taken::Granted { is_wanted } => return LeaseAnswer::Granted { is_wanted },
        Taken::Wait(woken) => {
            tokio::select! {
                biased;
                _ = woken => {}
                () = context.clock.sleep(POLL) => {}
            }
        }
    }
    leases.with(&name, now(), |queue| {
        queue.advance(now());
        if queue.is_held_by(lease_id) {
            LeaseAnswer::Granted { is_wanted: !queue.waiting.is_empty() }
        } else {
            LeaseAnswer::InLine
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn is_granted(taken: &Taken) -> bool {
        matches!(taken, Taken::Granted { .. })
    }

    #[test]
    fn leases_are_granted_in_the_order_of_the_requests() {
        let mut queue = Queue::default();
        assert!(is_granted(&queue.take(1, ms(0))));
        let Taken::Wait(mut second) = queue.take(2, ms(1)) else { panic!("it is granted to another") };
        assert!(!is_granted(&queue.take(3, ms(2))));
        // A repeated request keeps its place in the queue.
        assert!(!is_granted(&queue.take(3, ms(90))));
        assert!(second.try_recv().is_err());
        queue.give_back(1, ms(100));
        assert_eq!(second.try_recv(), Ok(()));
        assert!(matches!(queue.take(2, ms(101)), Taken::Granted { is_wanted: true }));
        queue.give_back(2, ms(102));
        assert!(matches!(queue.take(3, ms(103)), Taken::Granted { is_wanted: false }));
        queue.give_back(3, ms(104));
        assert!(queue.is_idle(ms(104)));
    }

    #[test]
    fn neither_a_crashed_holder_nor_a_crashed_waiter_blocks_the_queue() {
        let mut queue = Queue::default();
        assert!(is_granted(&queue.take(1, ms(0))));
        assert!(!is_granted(&queue.take(2, ms(10))));
        assert!(!is_granted(&queue.take(3, ms(450))));
        // The first coordinator has not given the lease back, the second has not repeated its request.
        assert!(is_granted(&queue.take(3, ms(500))));
        assert!(!is_granted(&queue.take(4, ms(501))));
        queue.give_back(4, ms(502));
        assert!(queue.waiting.is_empty());
    }

    #[test]
    fn partitions_without_leases_are_forgotten() {
        let leases = Leases::default();
        let name = ([1; 16], b"k".to_vec());
        assert!(is_granted(&leases.with(&name, ms(0), |queue| queue.take(1, ms(0)))));
        assert_eq!(leases.partitions.borrow().len(), 1);
        leases.with(&name, ms(1), |queue| queue.give_back(1, ms(1)));
        assert!(leases.partitions.borrow().is_empty());
    }
}
