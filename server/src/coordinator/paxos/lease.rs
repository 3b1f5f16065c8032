//! Which node comes first where several compete for one partition: the first live replica of the partition leases it to one
//! coordinator after the other, in the order in which they asked. The granting side; a coordinator's is [`super::contention`].
//!
//! Leases are for speed alone. Nothing is lost or wrong when one is forgotten, given twice, or ignored: what transactions
//! come to is decided by promises and quorums. So leases are kept in memory only, end by themselves soon, and are asked for only
//! where competitors were met.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::turns::Name;
use crate::coordinator::paxos::message::{LeaseAnswer, LeaseOrder, LeaseRequest};
use crate::shard::context::ShardContext;

/// A lease ends by itself after this time: its holder is slow, or gone.
const LEASE: Duration = Duration::from_millis(500);
/// Who waits hears after this time that it is still in line, and asks again.
pub const POLL: Duration = Duration::from_millis(100);
/// Who has not asked again for this time has lost its place.
const FORGET: Duration = Duration::from_millis(400);
/// More partitions than this are looked through for leases that have ended.
const PARTITIONS_MANY: usize = 1_024;

/// The leases that this shard has given, and who waits for them.
#[derive(Default)]
pub struct Leases {
    partitions: RefCell<BTreeMap<Name, Queue>>,
}

#[derive(Default)]
struct Queue {
    /// The lease that is given, with its end (monotonic time).
    holder: Option<(u64, Duration)>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    lease_id: u64,
    asked_at: Duration,
    wake: oneshot::Sender<()>,
}

/// What a request for a lease comes to.
enum Taken {
    Granted { is_wanted: bool },
    Wait(oneshot::Receiver<()>),
}

impl Queue {
    /// Gives the lease to the next one where it has ended.
    fn advance(&mut self, now: Duration) {
        if self.holder.is_some_and(|(_, end)| end > now) {
            return;
        }
        self.holder = None;
        while let Some(next) = self.waiting.pop_front() {
            if next.asked_at + FORGET > now {
                self.holder = Some((next.lease_id, now + LEASE));
                // Who is about to ask again finds it then.
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
    /// Does something to the queue of a partition.
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

/// Carries a request out; who must wait is answered when the lease is its own, or after [`POLL`].
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
    fn a_lease_goes_from_one_to_the_next_in_the_order_of_asking() {
        let mut queue = Queue::default();
        assert!(is_granted(&queue.take(1, ms(0))));
        let Taken::Wait(mut second) = queue.take(2, ms(1)) else { panic!("it is given away") };
        assert!(!is_granted(&queue.take(3, ms(2))));
        // Who asks again keeps its place.
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
    fn neither_a_holder_nor_a_waiter_that_is_gone_stops_the_line() {
        let mut queue = Queue::default();
        assert!(is_granted(&queue.take(1, ms(0))));
        assert!(!is_granted(&queue.take(2, ms(10))));
        assert!(!is_granted(&queue.take(3, ms(450))));
        // The first has not given it back, the second has not asked again.
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
