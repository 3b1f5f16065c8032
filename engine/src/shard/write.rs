//! Writing: commit log, then memtable, in one critical section. A mutation and its companions are one record of the log.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::backlog::PaceWait;
use super::memory::MemtableMemory;
use super::state::Shard;
use super::table_state::TableState;
use crate::commit_log::{CommitLogError, LogPosition};
use crate::error::EngineError;
use crate::memtable::INDEX_BYTES_MAX;
use crate::mutation::{MutationRef, TableId, ValidMutation, WRITE_BYTES_MAX};
use crate::table::ROW_BYTES_MAX;

/// Whether [`Shard::load`] appends a mutation to the commit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Append it, if its table is logged.
    Logged,
    /// Do not append it.
    PastLog,
}

/// Refuses a mutation that memtables and files cannot hold.
#[inline]
fn check_sizes(table: &TableState, mutation: &ValidMutation<'_>) -> Result<(), EngineError> {
    if mutation.view().own_bytes() > WRITE_BYTES_MAX {
        check_large(mutation)?;
    }
    let index_bytes = table.active.borrow().read(|memtable| memtable.index_bytes_of(mutation));
    if index_bytes > INDEX_BYTES_MAX {
        return Err(EngineError::MutationTooLarge { bytes: index_bytes, limit: INDEX_BYTES_MAX });
    }
    Ok(())
}

/// Refuses what memtables and files cannot hold. A mutation above the usual limit may come from a version of this
/// program without that limit. It is accepted as long as its rows have room in files.
#[cold]
fn check_large(mutation: &ValidMutation<'_>) -> Result<(), EngineError> {
    let bytes = mutation.size_in_files();
    if bytes > ROW_BYTES_MAX {
        return Err(EngineError::MutationTooLarge { bytes, limit: WRITE_BYTES_MAX });
    }
    Ok(())
}

/// The treatment of a write that waits for memory while the disk is full.
#[derive(Clone, Copy)]
enum WhenFull {
    Fail,
    Wait,
}

impl Shard {
    /// Appends the mutation to the commit log (buffered) and applies it to the memtable. It is visible
    /// immediately. It may be acknowledged when [`Shard::durable`] of the result resolves. Call [`Shard::admit`] before.
    pub fn apply(&self, mutation: &MutationRef<'_>) -> Result<LogPosition, EngineError> {
        Ok(self.load(mutation, Load::Logged)?.unwrap_or_default())
    }

    /// As [`Shard::apply`], for data that can be fetched again. `None`: the mutation is not in the commit log, as for every table that is
    /// not logged. It is durable when it is in files: [`Shard::flush`] writes them, [`Shard::in_files`] waits for them. A crash
    /// before may leave any part of it.
    #[inline]
    pub fn load(&self, mutation: &MutationRef<'_>, load: Load) -> Result<Option<LogPosition>, EngineError> {
        self.check_open()?;
        let tables = self.tables.borrow();
        let table = tables.get(&mutation.table).ok_or(EngineError::UnknownTable(mutation.table))?;
        let valid = mutation.validate().map_err(EngineError::Mutation)?;
        if mutation.has_companions() {
            return self.load_parts(&tables, mutation, load);
        }
        check_sizes(table, &valid)?;
        let position = self.append(mutation, load == Load::Logged && table.is_logged.get())?;
        self.apply_to(table, &valid, position)?;
        Ok(position)
    }

    /// As [`Shard::load`], of a mutation with companions: one record in the log, if any of the tables is logged. All is checked before
    /// anything is changed.
    #[cold]
    fn load_parts(
        &self,
        tables: &HashMap<TableId, Rc<TableState>>,
        mutation: &MutationRef<'_>,
        load: Load,
    ) -> Result<Option<LogPosition>, EngineError> {
        let mut parts: SmallVec<[(&TableState, ValidMutation<'_>); 4]> = SmallVec::new();
        for part in mutation.parts() {
            let part = part.map_err(EngineError::Mutation)?;
            let table = tables.get(&part.table).ok_or(EngineError::UnknownTable(part.table))?;
            let valid = part.validate().map_err(EngineError::Mutation)?;
            check_sizes(table, &valid)?;
            parts.push((table, valid));
        }
        let is_logged = load == Load::Logged && parts.iter().any(|(table, _)| table.is_logged.get());
        let position = self.append(mutation, is_logged)?;
        for (table, valid) in &parts {
            self.apply_to(table, valid, position)?;
        }
        Ok(position)
    }

    /// Appends a mutation to the log if it `is_logged`.
    #[inline]
    fn append(
        &self,
        mutation: &MutationRef<'_>,
        is_logged: bool,
    ) -> Result<Option<LogPosition>, EngineError> {
        if is_logged {
            return Ok(Some(self.log.append(mutation.bytes)?));
        }
        if let Some(failure) = self.log.failure() {
            return Err(EngineError::Refusing(failure.to_string()));
        }
        Ok(None)
    }

    /// Applies a part that is in the log at `position` to its memtable.
    #[inline]
    fn apply_to(
        &self,
        table: &TableState,
        valid: &ValidMutation<'_>,
        position: Option<LogPosition>,
    ) -> Result<(), EngineError> {
        if position.is_none() {
            table.has_unlogged.set(true);
        }
        if table.must_freeze_before(valid, &self.options) {
            self.freeze(table, position.unwrap_or_else(|| self.log.end_position()));
            self.signals.flush_wanted.notify_one();
        }
        if let Some(position) = position
            && !table.needs_log.replace(true)
        {
            self.memtable_index.note_logged(table.id, position);
        }
        let grown = table.apply(valid, position);
        self.watch.check()?;
        let grown = grown?;
        self.memory.grow(grown);
        let segment = position.unwrap_or_default().segment;
        let is_new_segment = segment > self.last_segment.replace(segment.max(self.last_segment.get()));
        if is_new_segment || (grown > 0 && self.memory.needs_flush()) {
            if self.is_flush_urgent() {
                self.flush_hurries.store(true, Ordering::Relaxed);
            }
            self.signals.flush_wanted.notify_one();
        }
        Ok(())
    }

    /// Resolves when all mutations up to and including the one at `position` are durable (in periodic mode immediately), or with an
    /// error if they never will be.
    pub fn durable(&self, position: LogPosition) -> impl Future<Output = Result<(), EngineError>> + use<> {
        let durable = self.log.durable(position);
        async move { durable.await.map_err(EngineError::from) }
    }

    /// The result of [`Shard::durable`], if it is known without waiting.
    #[inline]
    pub fn durable_at_once(&self, position: LogPosition) -> Option<Result<(), EngineError>> {
        Some(self.log.durable_at_once(position)?.map_err(EngineError::from))
    }

    /// Resolves when all mutations up to and including the one at `position` are on disk, in every mode, or with an error if they
    /// never will be.
    pub fn on_disk(&self, position: LogPosition) -> impl Future<Output = Result<(), EngineError>> + use<> {
        let on_disk = self.log.on_disk(position);
        async move { on_disk.await.map_err(EngineError::from) }
    }

    /// Back-pressure: waits while the memtable budget is used up, compactions are behind ([`super::write_pressure`]), or the log has too
    /// many unwritten bytes. An error means that waiting longer would not help, or [`EngineError::Backlog`]: it has waited for compactions
    /// for too long. [`EngineError::NoRoom`]: the disk is full; the same will succeed when it has room again.
    pub async fn admit(&self) -> Result<(), EngineError> {
        self.admit_within(self.wait_of_write()).await
    }

    /// As [`Shard::admit`], for rows of a long transfer, which waits for compactions as long as it takes and is not counted as refused.
    /// [`EngineError::Backlog`]: it has waited for `look_period`, and may look whether it is still wanted.
    pub async fn admit_transfer(&self, look_period: Duration) -> Result<(), EngineError> {
        self.admit_within(PaceWait { longest: look_period, is_counted: false }).await
    }

    /// As [`Shard::admit`], for what the node writes for itself (hints, the batch log): writes to other tables must not lose their
    /// hints because compactions of one table are behind.
    pub async fn admit_internal(&self) -> Result<(), EngineError> {
        self.admit_into_memory().await?;
        self.admit_into_log().await
    }

    /// Waits as the backlog of compactions asks for, and no more. [`EngineError::Backlog`]: it has waited for too long.
    pub async fn keep_pace_with_compactions(&self) -> Result<(), EngineError> {
        self.wait_for_pace(self.wait_of_write()).await
    }

    fn wait_of_write(&self) -> PaceWait {
        PaceWait { longest: self.options.backlog.wait_max, is_counted: true }
    }

    async fn admit_within(&self, wait: PaceWait) -> Result<(), EngineError> {
        self.admit_into_memory().await?;
        self.wait_for_pace(wait).await?;
        self.admit_into_log().await
    }

    async fn admit_into_memory(&self) -> Result<(), EngineError> {
        self.watch.check()?;
        if self.options.reserve.is_reached() {
            return Err(self.refuse_write(&self.options.reserve.reason()));
        }
        if self.memory.is_full() {
            self.wait_for_memory(MemtableMemory::is_full, WhenFull::Fail).await?;
        }
        Ok(())
    }

    #[inline]
    async fn wait_for_pace(&self, wait: PaceWait) -> Result<(), EngineError> {
        if self.write_pressure.is_on() {
            // It is rare, and need not make every admission larger.
            Box::pin(self.wait_for_compactions(wait)).await?;
        }
        Ok(())
    }

    async fn admit_into_log(&self) -> Result<(), EngineError> {
        match self.log.admit().await {
            Ok(()) => Ok(()),
            Err(error @ CommitLogError::NoRoom(_)) => Err(self.refuse_write(&error)),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Shard::admit`], for writes that must go on although the disk is full or memory is spent: small ones, without which the node
    /// could not free room, or could not go on when there is room again. It does not fail for want of room.
    pub async fn admit_essential(&self) -> Result<(), EngineError> {
        self.check_open()?;
        self.wait_for_memory(MemtableMemory::is_twice_full, WhenFull::Wait).await?;
        Ok(self.log.admit_essential().await?)
    }

    /// Waits while the memtables take too much memory.
    async fn wait_for_memory(
        &self,
        is_spent: fn(&MemtableMemory) -> bool,
        when_full: WhenFull,
    ) -> Result<(), EngineError> {
        while is_spent(&self.memory) {
            self.watch.check()?;
            if let Some(failure) = &*self.failure.borrow() {
                return Err(EngineError::Refusing(failure.clone()));
            }
            if self.is_closed.get() {
                return Err(EngineError::Closed);
            }
            if let Some(failure) = &*self.flush_failure.borrow() {
                match when_full {
                    WhenFull::Fail if failure.is_full() => return Err(self.refuse_write(failure)),
                    // The flush is tried again each second.
                    WhenFull::Wait if failure.is_full() => {}
                    _ => return Err(EngineError::FlushFailed(failure.to_string())),
                }
            }
            let space = self.signals.space.notified();
            self.signals.flush_wanted.notify_one();
            let begun = self.environment.clock.monotonic();
            space.await;
            let waited = self.environment.clock.monotonic().saturating_sub(begun);
            self.write_pressure.note(|waits| waits.memory += waited);
        }
        Ok(())
    }
}
