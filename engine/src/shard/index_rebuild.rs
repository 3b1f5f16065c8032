//! Making index files anew, on behalf of an operator.
//!
//! The task that makes missing indexes does it, so that no two jobs write one file. An index is searched until the new one takes its place.

use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::mutation::TableId;
use crate::secondary_index::IndexId;

impl TableState {
    fn set_outdated(&self, indexes: &[IndexId], is_outdated: bool) {
        for file in self.files.borrow().iter() {
            for index in file.indexes.borrow().iter().filter(|index| indexes.contains(&index.id)) {
                index.is_outdated.set(is_outdated);
            }
        }
    }

    /// Whether these indexes of all files that can be read are there, and made since they were asked for. One that was dropped is not waited for.
    fn has_fresh(&self, indexes: &[IndexId]) -> bool {
        let files = self.files.borrow();
        let mut readable = files.iter().filter(|file| file.damage.borrow().is_none());
        readable.all(|file| {
            let made = file.indexes.borrow();
            indexes
                .iter()
                .filter(|id| self.has_definition(**id))
                .all(|id| made.iter().any(|index| index.id == *id && !index.is_outdated.get()))
        })
    }
}

impl Shard {
    /// Makes the files of these indexes of a table anew; resolves when that is done. Searches go on meanwhile. Indexes of damaged files stay as
    /// they are. After an error some of the files are new, and all can be searched as before.
    pub async fn rebuild_indexes(&self, id: TableId, indexes: &[IndexId]) -> Result<(), EngineError> {
        let table = self.table(id)?;
        let _turn = table.rebuilding.lock().await;
        table.index_failure.take();
        table.set_outdated(indexes, true);
        self.signals.indexes_wanted.notify_one();
        loop {
            let built = self.signals.indexes_built.notified();
            // A table that was dropped meanwhile has nothing to rebuild.
            self.table(id)?;
            if table.has_fresh(indexes) {
                return Ok(());
            }
            if let Some(error) = table.index_failure.take() {
                // The task would try it again for ever.
                table.set_outdated(indexes, false);
                return Err(error);
            }
            self.check_open()?;
            built.await;
        }
    }
}
