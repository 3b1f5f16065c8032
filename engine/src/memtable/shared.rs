//! A memtable that its shard, its readers and finally its flush share.

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use super::store::Memtable;
use crate::commit_log::LogPosition;
use crate::invariant::{BrokenInvariant, broken};
use crate::mutation::ValidMutation;

#[derive(Debug)]
enum State {
    Active(Box<Memtable>),
    Frozen(Arc<Memtable>),
}

/// A memtable that its shard, its readers and finally its flush share.
#[derive(Debug)]
pub struct SharedMemtable {
    state: RefCell<State>,
}

impl Default for SharedMemtable {
    fn default() -> Self {
        Self { state: RefCell::new(State::Active(Box::default())) }
    }
}

impl SharedMemtable {
    /// The memtable as it is now; no change may come while it is borrowed.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, Memtable> {
        Ref::map(self.state.borrow(), |state| match state {
            State::Active(memtable) => &**memtable,
            State::Frozen(memtable) => &**memtable,
        })
    }

    /// Runs `read` on the memtable as it is now.
    #[inline]
    pub fn read<R>(&self, read: impl FnOnce(&Memtable) -> R) -> R {
        read(&self.borrow())
    }

    /// As [`Memtable::apply`]. A frozen memtable takes nothing: its owner must have replaced it.
    pub fn apply(
        &self,
        mutation: &ValidMutation<'_>,
        position: Option<LogPosition>,
    ) -> Result<usize, BrokenInvariant> {
        match &mut *self.state.borrow_mut() {
            State::Active(memtable) => memtable.apply(mutation, position),
            State::Frozen(_) => Err(broken!("a frozen memtable is not written to")),
        }
    }

    /// Ends all changes; the memtable can now be read from other threads.
    pub fn freeze(&self) -> Arc<Memtable> {
        let mut state = self.state.borrow_mut();
        let frozen = match &mut *state {
            State::Frozen(memtable) => return Arc::clone(memtable),
            State::Active(memtable) => {
                memtable.order_partitions();
                Arc::new(std::mem::take(&mut **memtable))
            }
        };
        *state = State::Frozen(Arc::clone(&frozen));
        frozen
    }

    pub(super) fn order_partitions(&self) {
        if let State::Active(memtable) = &mut *self.state.borrow_mut() {
            memtable.order_partitions();
        }
    }
}
