//! Encryption of the node's files as the settings have it: the disks of its threads, and the master keys that they share.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use helenus_at_rest::{EncryptedDisk, KeyError, KeySource, MasterKeys, Randomness};
use helenus_config::{AtRestMode, Config, PlainFilesMode};
use helenus_engine::io::{DirectDisk, Disk, SystemRandom};
use helenus_query::schema::catalog::Catalog;

use super::table_scope::TableScope;

/// Encryption of a node's files; without keys there is none, and nothing is between the node and its disks.
#[derive(Debug, Clone, Default)]
pub struct AtRest {
    keyed: Option<Keyed>,
}

#[derive(Debug, Clone)]
struct Keyed {
    source: KeySource,
    keys: MasterKeys,
    mode: AtRestMode,
    plain_files: PlainFilesMode,
    /// Which files are encrypted in the mode `tables`.
    tables: Arc<TableScope>,
}

/// Encryption of the files of a node that has been started.
#[derive(Default)]
pub struct OpenAtRest(OnceLock<AtRest>);

impl AtRest {
    /// Reads the master keys, if the settings name any.
    pub fn open(config: &Config) -> Result<Self, KeyError> {
        let Some(source) = config.encryption_at_rest.key_source() else { return Ok(Self::default()) };
        let keys = MasterKeys::open(&source)?;
        if let Some(warning) = source.warning() {
            tracing::warn!("{warning}");
        }
        tracing::info!(keys = ?keys.ids(), "master keys of the node's files were read");
        let (mode, plain_files) = (config.encryption_at_rest.mode, config.encryption_at_rest.plain_files);
        let tables = Arc::default();
        Ok(Self { keyed: Some(Keyed { source, keys, mode, plain_files, tables }) })
    }

    /// Files that are not encrypted are read, whatever the settings say.
    #[must_use]
    pub fn that_accepts_plain_files(mut self) -> Self {
        if let Some(keyed) = &mut self.keyed {
            keyed.plain_files = PlainFilesMode::Accept;
        }
        self
    }

    fn wrap(
        &self,
        disk: Arc<dyn Disk>,
        new: fn(Arc<dyn Disk>, MasterKeys, Randomness) -> EncryptedDisk,
    ) -> Arc<dyn Disk> {
        let Some(keyed) = &self.keyed else { return disk };
        let disk = keyed.in_mode(new(disk, keyed.keys.clone(), Randomness::new(SystemRandom)));
        Arc::new(match keyed.plain_files {
            PlainFilesMode::Accept => disk,
            PlainFilesMode::Refuse => disk.that_refuses_plain_files(),
        })
    }

    /// A disk as the node uses it.
    pub fn disk(&self, below: impl Disk + 'static) -> Arc<dyn Disk> {
        self.wrap(Arc::new(below), EncryptedDisk::new)
    }

    /// The disk of background jobs.
    pub fn disk_of_jobs(&self) -> Arc<dyn Disk> {
        self.wrap(Arc::new(DirectDisk::new()), EncryptedDisk::of_jobs)
    }

    /// A disk on which the files can be encrypted that are there and should be; `None`: new files are not encrypted. It holds up the calling
    /// thread.
    pub fn disk_of_updates(&self) -> Option<EncryptedDisk> {
        let keyed = self.keyed.as_ref().filter(|keyed| keyed.mode != AtRestMode::Off)?;
        let random = Randomness::new(SystemRandom);
        Some(keyed.in_mode(EncryptedDisk::of_jobs(Arc::new(DirectDisk::new()), keyed.keys.clone(), random)))
    }

    /// From now on files of tables are made as this catalog has it, where tables choose.
    pub fn note_catalog(&self, catalog: &Catalog) {
        if let Some(keyed) = self.keyed.as_ref().filter(|keyed| keyed.mode == AtRestMode::Tables) {
            keyed.tables.note(catalog);
        }
    }

    /// Prepares for a catalog that is about to be stored. What becomes plain is still encrypted.
    pub fn prepare_for_catalog(&self, catalog: &Catalog) {
        if let Some(keyed) = self.keyed.as_ref().filter(|keyed| keyed.mode == AtRestMode::Tables) {
            keyed.tables.prepare(catalog);
        }
    }

    /// Whether all new files are encrypted.
    pub fn encrypts(&self) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| keyed.mode == AtRestMode::All)
    }

    /// Whether new files are encrypted but those of tables that do not ask for it.
    pub fn encrypts_by_table(&self) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| keyed.mode == AtRestMode::Tables)
    }

    /// Whether a file at this path would be encrypted if it were made anew. Before a catalog was noted this is said of no file of a table, if
    /// tables choose.
    pub fn wants_encrypted(&self, path: &Path) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| match keyed.mode {
            AtRestMode::Off => false,
            AtRestMode::Tables => keyed.tables.wants_encrypted(path),
            AtRestMode::All => true,
        })
    }

    /// Whether files that are not encrypted are errors.
    pub fn refuses_plain_files(&self) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| keyed.plain_files == PlainFilesMode::Refuse)
    }

    /// The names of the master keys. The last one is the current one.
    pub fn key_ids(&self) -> Vec<String> {
        self.keyed.as_ref().map(|keyed| keyed.keys.ids()).unwrap_or_default()
    }

    /// Reads the master keys again, if there are any. It holds up the calling thread. After an error the former ones stay in use.
    pub fn reload(&self) -> Result<(), KeyError> {
        let Some(Keyed { source, keys, .. }) = &self.keyed else { return Ok(()) };
        keys.reload(source)?;
        tracing::info!(keys = ?keys.ids(), "master keys of the node's files were read again");
        Ok(())
    }
}

impl Keyed {
    fn in_mode(&self, disk: EncryptedDisk) -> EncryptedDisk {
        match self.mode {
            AtRestMode::Off => disk.that_encrypts_nothing_new(),
            AtRestMode::Tables => disk.that_encrypts(self.tables.clone()),
            AtRestMode::All => disk,
        }
    }
}

impl OpenAtRest {
    /// Gives a node its encryption.
    ///
    /// # Panics
    /// If it has some already: that is a bug.
    pub fn set(&self, at_rest: AtRest) {
        assert!(self.0.set(at_rest).is_ok(), "a node gets its master keys once");
    }

    pub fn get(&self) -> AtRest {
        self.0.get().cloned().unwrap_or_default()
    }
}
