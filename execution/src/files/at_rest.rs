//! Encryption of the node's files as the settings have it: the disks of its threads, and the master keys that they share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use helenus_at_rest::{EncryptedDisk, KeyError, KeySource, KeyUse, MasterKeys, Randomness, usage};
use helenus_config::{AtRestMode, Config};
use helenus_engine::io::{DirectDisk, Disk, DiskError, SystemRandom};

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
        Ok(Self { keyed: Some(Keyed { source, keys, mode: config.encryption_at_rest.mode }) })
    }

    fn wrap(
        &self,
        disk: Arc<dyn Disk>,
        new: fn(Arc<dyn Disk>, MasterKeys, Randomness) -> EncryptedDisk,
    ) -> Arc<dyn Disk> {
        let Some(Keyed { keys, mode, .. }) = &self.keyed else { return disk };
        let encrypted = new(disk, keys.clone(), Randomness::new(SystemRandom));
        match mode {
            AtRestMode::All => Arc::new(encrypted),
            AtRestMode::Off => Arc::new(encrypted.that_encrypts_nothing_new()),
        }
    }

    /// A disk as the node uses it.
    pub fn disk(&self, below: impl Disk + 'static) -> Arc<dyn Disk> {
        self.wrap(Arc::new(below), EncryptedDisk::new)
    }

    /// The disk of background jobs.
    pub fn disk_of_jobs(&self) -> Arc<dyn Disk> {
        self.wrap(Arc::new(DirectDisk::new()), EncryptedDisk::of_jobs)
    }

    /// Whether new files are encrypted.
    pub fn encrypts(&self) -> bool {
        self.keyed.as_ref().is_some_and(|keyed| keyed.mode == AtRestMode::All)
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

/// The files below some directories, by the name of the master key that opens them. It holds up the calling thread.
pub fn key_usage(directories: Vec<PathBuf>) -> Result<BTreeMap<Option<String>, KeyUse>, DiskError> {
    futures::executor::block_on(usage(&DirectDisk::new(), directories))
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
