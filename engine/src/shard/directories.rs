//! The directories in which a shard's table files lie.
//!
//! Each has the form of the shard's own: `tables/<table id>/<file>` and `snapshots/<name>/<table id>/<file>`. Number 0 is the shard's
//! own directory; the manifest numbers the others, and holds the number of each file's directory.
//!
//! Invariants:
//! * A directory that was named once keeps its number, whether files are still written there or not.
//! * A start that does not find a directory with files of the shard names it and changes nothing.
//! * A directory in which a file could not be written or read gets no new files for some minutes, while there is another.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::options::ShardOptions;
use super::quarantine::Quarantine;
use crate::error::EngineError;
use crate::io::{Disk, DiskError, DiskLock, DiskRoom, Environment};
use crate::manifest::Manifest;
use crate::mutation::TableId;

/// For how long a directory that has failed gets no new files.
const AVOIDED: Duration = Duration::from_mins(5);

/// The directories of a shard.
#[derive(Debug)]
pub(super) struct Directories {
    /// By number.
    roots: Vec<PathBuf>,
    /// How many of them the manifest named before.
    known: usize,
    /// The numbers of those that new files are written to; at least one.
    written: Vec<u32>,
    /// The numbers of those that have failed, each with the monotonic time until which it is avoided.
    avoided_until: RefCell<BTreeMap<u32, Duration>>,
}

impl Directories {
    /// The directories that manifest and options name. The manifest gets those that are new.
    pub fn new(options: &ShardOptions, manifest: &mut Manifest) -> Self {
        let mut roots = vec![options.directory.clone()];
        roots.extend(manifest.directories.iter().cloned());
        let known = roots.len();
        let mut written = Vec::new();
        for directory in &options.table_directories {
            let number = roots.iter().position(|root| root == directory).unwrap_or_else(|| {
                manifest.directories.push(directory.clone());
                roots.push(directory.clone());
                roots.len() - 1
            });
            written.push(number as u32);
        }
        if written.is_empty() {
            written.push(0);
        }
        Self { roots, known, written, avoided_until: RefCell::default() }
    }

    /// Whether the manifest did not name one of them before.
    pub fn has_new(&self) -> bool {
        self.known < self.roots.len()
    }

    /// Checks that all directories with files are there and that new ones are empty.
    pub async fn check(&self, disk: &Arc<dyn Disk>, manifest: &Manifest) -> Result<(), EngineError> {
        let files = || manifest.tables.values().flat_map(|table| &table.files);
        for (number, root) in self.roots.iter().enumerate().skip(1) {
            let tables = root.join("tables");
            if files().any(|file| file.directory as usize == number) && disk.list(&tables).await.is_err() {
                return Err(EngineError::MissingDirectory { path: root.clone(), what: "table files" });
            }
        }
        for root in self.roots.iter().skip(self.known) {
            // Files that no manifest names would go to the quarantine.
            if disk.list(&root.join("tables")).await.is_ok_and(|entries| !entries.is_empty()) {
                return Err(EngineError::ForeignDirectory { path: root.clone() });
            }
        }
        Ok(())
    }

    /// Makes what is missing, and locks all directories but the shard's own.
    pub async fn lock(&self, disk: &Arc<dyn Disk>) -> Result<Vec<Box<dyn DiskLock>>, DiskError> {
        let mut locks = Vec::new();
        for root in self.roots.iter().skip(1) {
            disk.create_directory(&root.join("tables")).await?;
            disk.sync_directory(root).await?;
            locks.push(disk.lock(&root.join("lock")).await?);
        }
        Ok(locks)
    }

    /// The quarantine of each directory: a move does not leave its file system.
    pub fn quarantines(&self, own: &Quarantine) -> Vec<Quarantine> {
        let others = self.roots.iter().skip(1).map(|root| Quarantine::within(root));
        std::iter::once(own.clone()).chain(others).collect()
    }

    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The directories of a table's files, by number.
    pub fn of_table(&self, id: TableId) -> Vec<PathBuf> {
        self.roots.iter().map(|root| table_directory(root, id)).collect()
    }

    /// Makes the creation and removal of directories of tables durable.
    pub async fn sync(&self, disk: &Arc<dyn Disk>) -> Result<(), DiskError> {
        for root in &self.roots {
            disk.sync_directory(&root.join("tables")).await?;
        }
        Ok(())
    }

    /// Avoids the directory of a file that could not be read or written, if that is the error. A full directory is avoided
    /// because it has the least room.
    #[cold]
    pub fn note_failure(&self, error: &EngineError, now: Duration) {
        let Some(error) = error.disk_error().filter(|error| !error.is_full()) else { return };
        for &number in &self.written {
            let root = self.roots.get(number as usize);
            if root.is_some_and(|root| error.path.starts_with(root)) {
                self.avoided_until.borrow_mut().insert(number, now + AVOIDED);
            }
        }
    }

    /// The directory for the next files: the one with the most free space, as Cassandra chooses.
    pub async fn choose(&self, environment: &Environment) -> u32 {
        match self.written.as_slice() {
            [only] => *only,
            several => match self.roomiest(environment).await {
                Ok((number, _)) => number,
                Err(_) => several.first().copied().unwrap_or(0),
            },
        }
    }

    /// The room for the next files.
    pub async fn room(&self, environment: &Environment) -> Result<DiskRoom, DiskError> {
        Ok(self.roomiest(environment).await?.1)
    }

    /// The directory for new files with the most free space. One that cannot be asked is left out while another can.
    async fn roomiest(&self, environment: &Environment) -> Result<(u32, DiskRoom), DiskError> {
        let now = environment.clock.monotonic();
        self.avoided_until.borrow_mut().retain(|_, until| *until > now);
        let sound: Vec<u32> = {
            let avoided = self.avoided_until.borrow();
            self.written.iter().copied().filter(|number| !avoided.contains_key(number)).collect()
        };
        let mut best: Option<Result<(u32, DiskRoom), DiskError>> = None;
        for number in if sound.is_empty() { self.written.clone() } else { sound } {
            let Some(root) = self.roots.get(number as usize) else { continue };
            let room = environment.disk.room(root).await;
            if let (Err(error), true) = (&room, self.written.len() > 1) {
                tracing::warn!(%error, "a directory of table files is left out");
            }
            let is_better = match (&best, &room) {
                (None | Some(Err(_)), _) => true,
                (Some(Ok((_, most))), Ok(room)) => room.free_bytes > most.free_bytes,
                (Some(Ok(_)), Err(_)) => false,
            };
            if is_better {
                best = Some(room.map(|room| (number, room)));
            }
        }
        best.unwrap_or_else(|| {
            let own = self.roots.first().map_or(Path::new(""), PathBuf::as_path);
            Err(DiskError::new("room on", own, io::ErrorKind::NotFound.into()))
        })
    }
}

/// The directory of a table's files.
pub(super) fn table_directory(root: &Path, id: TableId) -> PathBuf {
    root.join("tables").join(id.to_string())
}
