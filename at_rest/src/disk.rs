//! A disk whose files are encrypted on the disk below it.
//!
//! * Every file that is made is encrypted, with a key of its own.
//! * A file that is not encrypted is read as it is. One that is opened for writing is encrypted first: as a copy, which takes its name.
//! * A file whose master key is not known, or does not open it, is an error of every call that needs its contents. It is never taken for a
//!   damaged one, so nothing removes or replaces it.
//! * Names, directories, locks and room are those of the disk below.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use helenus_io::{
    CompleteFile, DirectoryEntry, Disk, DiskError, DiskFile, DiskFuture, DiskLock, DiskRoom, RandomSource,
};
use zeroize::Zeroizing;

use crate::contents::{Contents, Loaded, Reads, decrypt, error, load};
use crate::error::KeyError;
use crate::file::EncryptedFile;
use crate::frame::Session;
use crate::header::{SALT_BYTES, area};
use crate::keys::{KEY_BYTES, MasterKeys};

/// Random numbers for keys, shared by threads.
#[derive(Clone)]
pub struct Randomness {
    source: Arc<Mutex<dyn RandomSource + Send>>,
}

impl Randomness {
    pub fn new(source: impl RandomSource + Send + 'static) -> Self {
        Self { source: Arc::new(Mutex::new(source)) }
    }

    fn next(&self) -> Result<u128, KeyError> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).next_u128().map_err(KeyError::Random)
    }

    fn next_32(&self) -> Result<[u8; KEY_BYTES], KeyError> {
        let mut bytes = [0; KEY_BYTES];
        for half in bytes.chunks_exact_mut(KEY_BYTES / 2) {
            half.copy_from_slice(&self.next()?.to_le_bytes());
        }
        Ok(bytes)
    }
}

/// A disk whose files are encrypted on the disk below it. Clones share that disk and the keys.
#[derive(Clone)]
pub struct EncryptedDisk {
    below: Arc<dyn Disk>,
    keys: MasterKeys,
    random: Randomness,
    reads: Reads,
    encrypts: bool,
}

impl EncryptedDisk {
    pub fn new(below: Arc<dyn Disk>, keys: MasterKeys, random: Randomness) -> Self {
        Self { below, keys, random, reads: Reads::Later, encrypts: true }
    }

    /// The disk of background jobs: `below` may hold up the calling thread with every read.
    pub fn of_jobs(below: Arc<dyn Disk>, keys: MasterKeys, random: Randomness) -> Self {
        Self { below, keys, random, reads: Reads::Here, encrypts: true }
    }

    /// New files are not encrypted from now on. Those that are, stay so and are read.
    #[must_use]
    pub fn that_encrypts_nothing_new(self) -> Self {
        Self { encrypts: false, ..self }
    }

    /// The master keys that it uses.
    pub fn keys(&self) -> &MasterKeys {
        &self.keys
    }

    fn new_file(&self, file: Arc<dyn DiskFile>, path: &Path) -> Result<EncryptedFile, KeyError> {
        let master = self.keys.current()?;
        let file_key = Zeroizing::new(self.random.next_32()?);
        let salt: [u8; SALT_BYTES] = self.random.next_32()?;
        let header = area(&master, &file_key, &salt)?;
        let session = Session::new(&file_key, self.random.next()?)?;
        Ok(EncryptedFile::new(file, path, header, session, self.reads))
    }

    async fn load(&self, path: &Path, whole: bool) -> Result<Loaded, DiskError> {
        load(self.below.open_complete(path).await?, path, &self.keys, self.reads, whole).await
    }

    /// The contents of a file for writing to it. A file that is not encrypted is encrypted first. `None`: it is empty.
    async fn load_for_writing(&self, path: &Path) -> Result<Option<Contents>, DiskError> {
        for _ in 0..2 {
            match self.load(path, true).await? {
                Loaded::Encrypted(contents) => return Ok(Some(contents)),
                Loaded::Plain(file) if file.length() == 0 => return Ok(None),
                Loaded::Plain(file) => {
                    drop(file);
                    self.encrypt(path).await?;
                }
            }
        }
        Err(error("encrypt", path, io::Error::from(io::ErrorKind::InvalidData)))
    }

    /// Replaces a file that is not encrypted by an encrypted copy. Its other names keep what they have.
    async fn encrypt(&self, path: &Path) -> Result<(), DiskError> {
        let contents = self.below.read(path).await?;
        let mut name = path.as_os_str().to_owned();
        name.push(".encrypting");
        let copy = PathBuf::from(name);
        match self.below.remove(&copy).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = async {
            self.create(&copy).await?.write_and_sync_at(0, contents).await?;
            self.below.rename(&copy, path).await
        };
        if let Err(error) = written.await {
            // Its room may be needed.
            let _ = self.below.remove(&copy).await;
            return Err(error);
        }
        match path.parent() {
            Some(parent) => self.below.sync_directory(parent).await,
            None => Ok(()),
        }
    }
}

impl Disk for EncryptedDisk {
    fn beside(&self, name: &str) -> Result<Arc<dyn Disk>, DiskError> {
        Ok(Arc::new(Self { below: self.below.beside(name)?, ..self.clone() }))
    }

    fn create_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.below.create_directory(path)
    }

    fn create<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
        Box::pin(async move {
            let file = self.below.create(path).await?;
            if !self.encrypts {
                return Ok(file);
            }
            let file = self.new_file(file, path).map_err(|key| error("create", path, key))?;
            Ok(Arc::new(file) as Arc<dyn DiskFile>)
        })
    }

    fn open<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
        Box::pin(async move {
            let refused = |key| error("open", path, key);
            if !self.encrypts && matches!(self.load(path, false).await?, Loaded::Plain(_)) {
                return self.below.open(path).await;
            }
            let file = match self.load_for_writing(path).await? {
                Some(contents) => {
                    let session =
                        self.random.next().and_then(|id| contents.opener.session(id)).map_err(refused)?;
                    let file = self.below.open(path).await?;
                    EncryptedFile::existing(file, path, contents, session, self.reads)
                }
                None => self.new_file(self.below.open(path).await?, path).map_err(refused)?,
            };
            Ok(Arc::new(file) as Arc<dyn DiskFile>)
        })
    }

    fn sync_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.below.sync_directory(path)
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> DiskFuture<'a, ()> {
        self.below.rename(from, to)
    }

    fn remove<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.below.remove(path)
    }

    fn remove_directory<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, ()> {
        self.below.remove_directory(path)
    }

    fn hard_link<'a>(&'a self, existing: &'a Path, new: &'a Path) -> DiskFuture<'a, ()> {
        self.below.hard_link(existing, new)
    }

    fn list<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Vec<DirectoryEntry>> {
        self.below.list(path)
    }

    fn length<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
        Box::pin(async move {
            let stored = self.below.length(path).await?;
            if stored == 0 {
                return Ok(0);
            }
            match self.load(path, false).await? {
                Loaded::Plain(file) => Ok(file.length()),
                Loaded::Encrypted(contents) => Ok(contents.length()),
            }
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Bytes> {
        Box::pin(async move {
            let stored = self.below.read(path).await?;
            Ok(decrypt(&stored, path, &self.keys)?.map_or(stored, Bytes::from))
        })
    }

    fn open_complete<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn CompleteFile>> {
        Box::pin(async move {
            Ok(match self.load(path, false).await? {
                Loaded::Plain(file) => file,
                Loaded::Encrypted(contents) => Arc::new(contents),
            })
        })
    }

    fn lock<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Box<dyn DiskLock>> {
        self.below.lock(path)
    }

    fn room<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, DiskRoom> {
        self.below.room(path)
    }

    fn file_system<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, u64> {
        self.below.file_system(path)
    }
}
