//! Taking filters and indexes of files into memory for which there was no room when the files were opened.
//!
//! The output of a compaction is opened while its inputs still have their memory. When these are gone there is room.

use std::rc::Rc;

use super::damaged_file::is_damage;
use super::files::open_aside;
use super::state::Shard;
use super::table_state::LiveFile;
use crate::error::EngineError;

impl Shard {
    /// Opens files anew whose filters and indexes have room in memory now.
    pub(super) async fn take_parts_into_memory(&self) {
        for table in self.all_tables() {
            let files: Vec<Rc<LiveFile>> = table.files.borrow().iter().map(Rc::clone).collect();
            for file in files {
                // One that is damaged or that a compaction has failed on stays as it was found. One that is being compacted will be gone.
                let is_as_found = || file.damage.borrow().is_some() || file.failure.borrow().is_some();
                let is_live = || table.files.borrow().iter().any(|live| Rc::ptr_eq(live, &file));
                if is_as_found() || file.is_busy.get() || !is_live() {
                    continue;
                }
                if !file.reader.has_room_for_parts(&table.resident) {
                    continue;
                }
                match open_aside(&self.environment, &table, file.place.id()).await {
                    Ok(reader) => {
                        if !is_as_found() && table.replace_reader(&file, reader) {
                            // An index of the file may have been completed meanwhile, beside the former reader.
                            self.signals.indexes_wanted.notify_one();
                        }
                    }
                    Err(_) if !is_live() => {}
                    // Reads of the file go on as before, and meet what is wrong with it.
                    Err(error) => {
                        tracing::warn!(%error, "filters and index of a file are not taken into memory");
                        if matches!(&error, EngineError::Table(error) if is_damage(error)) {
                            file.damage.replace(Some(error.to_string()));
                        }
                    }
                }
            }
        }
    }
}
