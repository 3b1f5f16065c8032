//! Queues of the transactions and serial reads of one partition that this node coordinates: they run in the order of
//! their arrival, instead of outbidding each other. Serial reads of an uncontended partition run concurrently.
//!
//! An agreed mutation is passed to the next transaction in the queue, whose first question carries it: so the next
//! one need not wait until the replicas have applied it. A `Lease` is passed on as well, for a while.
//!
//! This only improves speed: nothing is wrong if two transactions run at the same time, on this node or on several.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::state::Commit;
use crate::coordinator::paxos::held_lease::Lease;

/// A partition: its table and key.
pub type Name = ([u8; 16], Vec<u8>);

/// Time for which a partition counts as contended after a coordinator on another node was met.
const CONTENDED: Duration = Duration::from_secs(10);
/// Most partitions remembered as contended.
const CONTENDED_MAX: usize = 4_096;

/// The queues of all partitions that have running or waiting operations.
#[derive(Default, Clone)]
pub struct PartitionQueues {
    queues: Rc<RefCell<BTreeMap<Name, PartitionQueue>>>,
    /// The monotonic time until which a partition counts as contended.
    contended: Rc<RefCell<BTreeMap<Name, Duration>>>,
}

#[derive(Default, Clone)]
struct PartitionQueue {
    order: Arc<RwLock<()>>,
    state: Rc<QueueState>,
}

#[derive(Default)]
struct QueueState {
    /// The number of operations that run or wait.
    interested: Cell<usize>,
    /// The last agreed mutation; it may still be on its way to the replicas.
    agreed: RefCell<Option<Commit>>,
    lease: RefCell<Option<Lease>>,
}

enum Guard {
    Alone { _guard: OwnedRwLockWriteGuard<()> },
    Shared { _guard: OwnedRwLockReadGuard<()> },
}

/// A guard held by the operation at the head of the queue. When it is dropped, the next one runs.
pub struct QueueGuard {
    queues: PartitionQueues,
    name: Name,
    queue: PartitionQueue,
    guard: Option<Guard>,
}

impl PartitionQueues {
    fn begin(&self, name: Name) -> QueueGuard {
        let queue = self.queues.borrow_mut().entry(name.clone()).or_default().clone();
        queue.state.interested.set(queue.state.interested.get() + 1);
        QueueGuard { queues: self.clone(), name, queue, guard: None }
    }

    /// Resolves when all earlier operations have ended.
    pub async fn take(&self, table_id: [u8; 16], key: Vec<u8>) -> QueueGuard {
        let mut guard = self.begin((table_id, key));
        guard.be_alone().await;
        guard
    }

    /// Resolves when all earlier operations have ended, except those that share the head of the queue. On a partition
    /// that is contended at `now` (monotonic time), it is not shared.
    pub async fn share(&self, table_id: [u8; 16], key: Vec<u8>, now: Duration) -> QueueGuard {
        let mut guard = self.begin((table_id, key));
        if guard.is_contended(now) {
            guard.be_alone().await;
        } else {
            guard.guard = Some(Guard::Shared { _guard: guard.queue.order.clone().read_owned().await });
        }
        guard
    }

    /// The number of partitions with running or waiting operations.
    pub fn len(&self) -> usize {
        self.queues.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl QueueGuard {
    /// Resolves when this operation has the head of the queue to itself. If it shared the head, it first goes to the
    /// end of the queue.
    pub async fn be_alone(&mut self) {
        if matches!(self.guard, Some(Guard::Alone { .. })) {
            return;
        }
        self.guard = None;
        self.guard = Some(Guard::Alone { _guard: self.queue.order.clone().write_owned().await });
    }

    /// Whether other operations wait, or share the head of the queue.
    pub fn has_company(&self) -> bool {
        self.queue.state.interested.get() > 1
    }

    /// Whether other nodes are known to compete for the partition.
    pub fn is_contended(&self, now: Duration) -> bool {
        self.queues.contended.borrow().get(&self.name).is_some_and(|until| *until > now)
    }

    /// Records that other nodes compete for the partition.
    pub fn note_contention(&self, now: Duration) {
        let mut contended = self.queues.contended.borrow_mut();
        if contended.len() >= CONTENDED_MAX {
            contended.retain(|_, until| *until > now);
        }
        if contended.len() < CONTENDED_MAX || contended.contains_key(&self.name) {
            contended.insert(self.name.clone(), now + CONTENDED);
        }
    }

    /// The mutation that the operation before has agreed on.
    pub fn agreed_before(&self) -> Option<Commit> {
        self.queue.state.agreed.borrow().clone()
    }

    /// Leaves an agreed mutation to the next operation in the queue; `None`: the replicas know everything.
    pub fn leave(&self, agreed: Option<Commit>) {
        *self.queue.state.agreed.borrow_mut() = agreed;
    }

    pub fn has_lease(&self) -> bool {
        self.queue.state.lease.borrow().is_some()
    }

    pub fn set_lease(&self, lease: Lease) {
        *self.queue.state.lease.borrow_mut() = Some(lease);
    }

    /// Ends a transaction. Returns the lease if it must be given back and not passed on.
    pub fn finish(&self, now: Duration) -> Option<Lease> {
        let mut lease = self.queue.state.lease.borrow_mut();
        let keeps = lease.as_mut().is_some_and(|lease| lease.has_served(now)) && self.has_company();
        if keeps { None } else { lease.take() }
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        drop(self.guard.take());
        let interested = self.queue.state.interested.get().saturating_sub(1);
        self.queue.state.interested.set(interested);
        if interested == 0 {
            self.queues.queues.borrow_mut().remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn turns_are_taken_in_order_and_leave_nothing_behind() {
        let queues = PartitionQueues::default();
        let first = queues.take([1; 16], b"k".to_vec()).now_or_never().unwrap();
        let other = queues.take([1; 16], b"l".to_vec()).now_or_never().unwrap();
        let mut second = Box::pin(queues.take([1; 16], b"k".to_vec()));
        assert!((&mut second).now_or_never().is_none());
        assert!(first.has_company() && !other.has_company());
        drop(first);
        let second = second.now_or_never().unwrap();
        let mut given_up = Box::pin(queues.take([1; 16], b"k".to_vec()));
        assert!((&mut given_up).now_or_never().is_none());
        drop(given_up);
        drop(second);
        drop(other);
        assert!(queues.is_empty());
    }

    #[test]
    fn reads_share_the_queue_until_other_nodes_compete() {
        let queues = PartitionQueues::default();
        let share = || queues.share([1; 16], b"k".to_vec(), Duration::from_secs(1));
        let first = share().now_or_never().unwrap();
        let second = share().now_or_never().unwrap();
        let mut write = Box::pin(queues.take([1; 16], b"k".to_vec()));
        assert!((&mut write).now_or_never().is_none());
        // No operation overtakes the write.
        let mut third = Box::pin(share());
        assert!((&mut third).now_or_never().is_none());
        drop((first, second));
        let write = write.now_or_never().unwrap();
        write.note_contention(Duration::from_secs(1));
        drop(write);
        let third = third.now_or_never().unwrap();
        assert!(third.is_contended(Duration::from_secs(10)) && !third.is_contended(Duration::from_secs(11)));
        drop(third);
        let first = share().now_or_never().unwrap();
        assert!(share().now_or_never().is_none());
        drop(first);
        assert!(queues.is_empty());
    }
}
