//! Whose turn it is among the transactions of one partition that this node coordinates: they come one after the other, in
//! the order in which they arrived, instead of outbidding each other.
//!
//! This is for speed alone: nothing is wrong when two coordinate at a time, on this node or on others.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// A partition: its table and key.
type Name = ([u8; 16], Vec<u8>);

/// The partitions at which somebody works or waits.
#[derive(Default, Clone)]
pub struct Turns {
    partitions: Rc<RefCell<BTreeMap<Name, Arc<Mutex<()>>>>>,
}

/// Held by whoever has the turn; the next one has it when it is dropped.
pub struct Turn {
    turns: Turns,
    name: Name,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Resolves when all who came before are done.
    pub async fn take(&self, table_id: [u8; 16], key: Vec<u8>) -> Turn {
        let name = (table_id, key);
        let line = self.partitions.borrow_mut().entry(name.clone()).or_default().clone();
        let mut turn = Turn { turns: self.clone(), name, guard: None };
        turn.guard = Some(line.lock_owned().await);
        turn
    }

    /// At how many partitions somebody works or waits.
    pub fn len(&self) -> usize {
        self.partitions.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut partitions = self.turns.partitions.borrow_mut();
        // The map has one reference; whoever waits has another, and so has one who was given up while waiting.
        if partitions.get(&self.name).is_some_and(|line| Arc::strong_count(line) == 1) {
            partitions.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn turns_are_taken_in_order_and_leave_nothing_behind() {
        let turns = Turns::default();
        let first = turns.take([1; 16], b"k".to_vec()).now_or_never().unwrap();
        let other = turns.take([1; 16], b"l".to_vec()).now_or_never().unwrap();
        let mut second = Box::pin(turns.take([1; 16], b"k".to_vec()));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        let second = second.now_or_never().unwrap();
        let mut given_up = Box::pin(turns.take([1; 16], b"k".to_vec()));
        assert!((&mut given_up).now_or_never().is_none());
        drop(given_up);
        drop(second);
        drop(other);
        assert!(turns.is_empty());
    }
}
