//! Sharing a memtable between its shard, its readers and its flush.

use std::cell::{Ref, RefCell};
use std::sync::Arc;

use super::store::Memtable;
use crate::commit_log::LogPosition;
use crate::invariant::{BrokenInvariant, broken};
use crate::mutation::ValidMutation;

#[derive(Debug)]
enum MemtableState {
    Active(Box<Memtable>),
    Frozen(Arc<Memtable>),
}

/// A memtable that the shard, readers and finally the flush share.
#[derive(Debug)]
pub struct SharedMemtable {
    state: RefCell<MemtableState>,
}

impl Default for SharedMemtable {
    fn default() -> Self {
        Self { state: RefCell::new(MemtableState::Active(Box::default())) }
    }
}

impl From<Memtable> for SharedMemtable {
    fn from(memtable: Memtable) -> Self {
        Self { state: RefCell::new(MemtableState::Active(Box::new(memtable))) }
    }
}

impl SharedMemtable {
    /// Borrows the memtable. It must not be changed meanwhile.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, Memtable> {
        Ref::map(self.state.borrow(), |state| match state {
            MemtableState::Active(memtable) => &**memtable,
            MemtableState::Frozen(memtable) => &**memtable,
        })
    }

    /// Runs `read` on the memtable.
    #[inline]
    pub fn read<R>(&self, read: impl FnOnce(&Memtable) -> R) -> R {
        read(&self.borrow())
    }

    /// As [`Memtable::apply`]. The memtable must not be frozen.
    #[inline]
    pub fn apply<const WRITES_ONCE: bool>(
        &self,
        mutation: &ValidMutation<'_>,
        position: Option<LogPosition>,
    ) -> Result<usize, BrokenInvariant> {
        match &mut *self.state.borrow_mut() {
            MemtableState::Active(memtable) => memtable.apply::<WRITES_ONCE>(mutation, position),
            MemtableState::Frozen(_) => Err(broken!("a frozen memtable is not written to")),
        }
    }

    /// Freezes the memtable: it never changes again, and other threads can read it.
    pub fn freeze(&self) -> Arc<Memtable> {
        let mut state = self.state.borrow_mut();
        let frozen = match &mut *state {
            MemtableState::Frozen(memtable) => return Arc::clone(memtable),
            MemtableState::Active(memtable) => Arc::new(std::mem::take(&mut **memtable).into_frozen()),
        };
        *state = MemtableState::Frozen(Arc::clone(&frozen));
        frozen
    }

    pub(super) fn order_partitions(&self) {
        if let MemtableState::Active(memtable) = &mut *self.state.borrow_mut() {
            memtable.order_partitions();
        }
    }
}
