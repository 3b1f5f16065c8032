//! A disk whose files are encrypted on the disk below it.
//!
//! * Every file that is made is encrypted, with a key of its own; where a [`Scope`] chooses, those that it names.
//! * A file that is not encrypted is read as it is, or refused. One that is opened for writing is encrypted first: as a copy, which takes its name.
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
use crate::frame::{CONTENTS_BYTES, Session};
use crate::header::{Beginning, COPIES, COPY_BYTES, HEADER_AREA_BYTES, SALT_BYTES, area};
use crate::keys::{KEY_BYTES, MasterKeys, Secret};
use crate::plain::PlainFiles;
use crate::scope::Scope;

/// A file that is not encrypted is copied in parts of this size: full frames.
const COPIED_BYTES: usize = 256 * CONTENTS_BYTES;

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
    encrypted: Encrypted,
    plain_files: PlainFiles,
}

/// Which new files are encrypted.
#[derive(Clone)]
enum Encrypted {
    None,
    All,
    Chosen(Arc<dyn Scope>),
}

/// What was done to bring a file up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// Nothing: it has the current master key, or there is nothing in it.
    None,
    /// Nothing: its header is damaged.
    Damaged,
    /// It was not encrypted, and is.
    Encrypted,
    /// Its own key was wrapped by the current master key.
    Rewrapped,
}

impl EncryptedDisk {
    pub fn new(below: Arc<dyn Disk>, keys: MasterKeys, random: Randomness) -> Self {
        let plain_files = PlainFiles::Accepted;
        Self { below, keys, random, reads: Reads::Later, encrypted: Encrypted::All, plain_files }
    }

    /// The disk of background jobs: `below` may hold up the calling thread with every read.
    pub fn of_jobs(below: Arc<dyn Disk>, keys: MasterKeys, random: Randomness) -> Self {
        Self { reads: Reads::Here, ..Self::new(below, keys, random) }
    }

    /// New files are not encrypted from now on. Those that are, stay so and are read.
    #[must_use]
    pub fn that_encrypts_nothing_new(self) -> Self {
        Self { encrypted: Encrypted::None, ..self }
    }

    /// From now on only those new files are encrypted that the scope names. All that are encrypted are read.
    #[must_use]
    pub fn that_encrypts(self, scope: Arc<dyn Scope>) -> Self {
        Self { encrypted: Encrypted::Chosen(scope), ..self }
    }

    /// Files that are not encrypted are errors from now on, but those that a scope accepts.
    #[must_use]
    pub fn that_refuses_plain_files(self) -> Self {
        Self { plain_files: PlainFiles::Refused, ..self }
    }

    /// The master keys that it uses.
    pub fn keys(&self) -> &MasterKeys {
        &self.keys
    }

    /// Whether a file that is made at this path is encrypted.
    fn encrypts(&self, path: &Path) -> bool {
        match &self.encrypted {
            Encrypted::None => false,
            Encrypted::All => true,
            Encrypted::Chosen(scope) => scope.encrypts(path),
        }
    }

    /// What becomes of a file at this path that is not encrypted.
    fn plain_files_at(&self, path: &Path) -> PlainFiles {
        match &self.encrypted {
            Encrypted::Chosen(scope) if scope.accepts_plain(path) => PlainFiles::Accepted,
            _ => self.plain_files,
        }
    }

    /// The header area of a file with this key of its own, by the current master key.
    fn header(&self, file_key: &Secret) -> Result<Vec<u8>, KeyError> {
        let salt: [u8; SALT_BYTES] = self.random.next_32()?;
        Ok(area(&self.keys.current()?, file_key, &salt)?)
    }

    fn new_file(&self, file: Arc<dyn DiskFile>, path: &Path) -> Result<EncryptedFile, KeyError> {
        let file_key = Zeroizing::new(self.random.next_32()?);
        let header = self.header(&file_key)?;
        let session = Session::new(&file_key, self.random.next()?)?;
        Ok(EncryptedFile::new(file, path, header, session, self.reads))
    }

    async fn load(&self, path: &Path, whole: bool) -> Result<Loaded, DiskError> {
        let file = self.below.open_complete(path).await?;
        load(file, path, (&self.keys, self.plain_files_at(path)), self.reads, whole).await
    }

    /// The contents of a file for writing to it. A file that is not encrypted is encrypted first. `None`: it is empty.
    async fn load_for_writing(&self, path: &Path) -> Result<Option<Contents>, DiskError> {
        for _ in 0..2 {
            match self.load(path, true).await? {
                Loaded::Encrypted(contents) => return Ok(Some(contents)),
                Loaded::Plain(file) if file.length() == 0 => return Ok(None),
                Loaded::Plain(file) => self.encrypt(path, file).await?,
            }
        }
        Err(error("encrypt", path, io::Error::from(io::ErrorKind::InvalidData)))
    }

    /// Replaces a file that is not encrypted by an encrypted copy of what is read of it. Its other names keep what they have.
    async fn encrypt(&self, path: &Path, file: Arc<dyn CompleteFile>) -> Result<(), DiskError> {
        let copy = self.encrypted_copy(path, &file).await?;
        if let Err(error) = self.below.rename(&copy, path).await {
            // Its room may be needed.
            let _ = self.below.remove(&copy).await;
            return Err(error);
        }
        match path.parent() {
            Some(parent) => self.below.sync_directory(parent).await,
            None => Ok(()),
        }
    }

    /// Writes an encrypted copy of what is read of a file, synced, beside `path`. Returns its name.
    async fn encrypted_copy(&self, path: &Path, file: &Arc<dyn CompleteFile>) -> Result<PathBuf, DiskError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".encrypting");
        let copy = PathBuf::from(name);
        match self.below.remove(&copy).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = async {
            let target = self.create_encrypted(&copy).await?;
            let length = file.length();
            for offset in (0..length).step_by(COPIED_BYTES) {
                let part_length = (length - offset).min(COPIED_BYTES as u64) as usize;
                let part = self.reads.part(file, offset, part_length).await?;
                target.write_at(offset, Bytes::from(part)).await?;
            }
            target.sync_data().await
        };
        if let Err(error) = written.await {
            let _ = self.below.remove(&copy).await;
            return Err(error);
        }
        Ok(copy)
    }

    async fn create_encrypted(&self, path: &Path) -> Result<EncryptedFile, DiskError> {
        let file = self.below.create(path).await?;
        self.new_file(file, path).map_err(|key| error("create", path, key))
    }

    /// How a file begins, and the file.
    async fn beginning(&self, path: &Path) -> Result<(Beginning, Arc<dyn CompleteFile>), DiskError> {
        let file = self.below.open_complete(path).await?;
        let area_bytes = file.length().min(HEADER_AREA_BYTES as u64) as usize;
        Ok((Beginning::read(&self.reads.part(&file, 0, area_bytes).await?), file))
    }

    /// Gives a file of another directory a name where the scope wants no plain file: a plain one is copied.
    async fn link_encrypted(&self, existing: &Path, new: &Path) -> Result<(), DiskError> {
        let (Beginning::Plain, file) = self.beginning(existing).await? else {
            return self.below.hard_link(existing, new).await;
        };
        // It may be refused where it is.
        self.load(existing, false).await?;
        let copy = self.encrypted_copy(new, &file).await?;
        let linked = self.below.hard_link(&copy, new).await;
        // It has its name now, or is of no use.
        let _ = self.below.remove(&copy).await;
        linked
    }

    /// Whether a file at this path need not be encrypted.
    fn plain_is_right(&self, path: &Path) -> bool {
        matches!(&self.encrypted, Encrypted::Chosen(scope) if scope.accepts_plain(path))
    }

    /// Encrypts a file that is not encrypted, unless a scope accepts it, whatever becomes of others, and wraps the key of one anew that needs
    /// another master key than the current one. Nobody may write to the file meanwhile.
    pub async fn bring_up_to_date(&self, path: &Path) -> Result<Update, DiskError> {
        let (beginning, file) = self.beginning(path).await?;
        let header = match beginning {
            Beginning::Unwritten => return Ok(Update::None),
            Beginning::Damaged => return Ok(Update::Damaged),
            Beginning::Plain if self.plain_is_right(path) => return Ok(Update::None),
            Beginning::Plain => return self.encrypt(path, file).await.map(|()| Update::Encrypted),
            Beginning::Encrypted(header) => header,
        };
        drop(file);
        let refused = |key| error("open", path, key);
        let file_key = header.unwrap_key(&self.keys).map_err(refused)?;
        if header.key_id() == self.keys.current().map_err(refused)?.id {
            return Ok(Update::None);
        }
        let area = Bytes::from(self.header(&file_key).map_err(refused)?);
        let file = self.below.open(path).await?;
        // One copy after the other: wherever a crash comes, one of them is whole.
        for at in COPIES.into_iter().rev() {
            file.write_and_sync_at(at as u64, area.slice(at..at + COPY_BYTES)).await?;
        }
        Ok(Update::Rewrapped)
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
            if !self.encrypts(path) {
                return self.below.create(path).await;
            }
            Ok(Arc::new(self.create_encrypted(path).await?) as Arc<dyn DiskFile>)
        })
    }

    fn open<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Arc<dyn DiskFile>> {
        Box::pin(async move {
            let refused = |key| error("open", path, key);
            if !self.encrypts(path) && matches!(self.load(path, false).await?, Loaded::Plain(_)) {
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
        Box::pin(async move {
            match &self.encrypted {
                Encrypted::Chosen(scope) if scope.refuses_links(new) && existing.parent() != new.parent() => {
                    self.link_encrypted(existing, new).await
                }
                _ => self.below.hard_link(existing, new).await,
            }
        })
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
            // The length of a file is no secret, whatever is in it: also files that are not the disk's own are counted.
            let accepting = Self { plain_files: PlainFiles::Accepted, ..self.clone() };
            match accepting.load(path, false).await? {
                Loaded::Plain(file) => Ok(file.length()),
                Loaded::Encrypted(contents) => Ok(contents.length()),
            }
        })
    }

    fn read<'a>(&'a self, path: &'a Path) -> DiskFuture<'a, Bytes> {
        Box::pin(async move {
            let stored = self.below.read(path).await?;
            Ok(decrypt(&stored, path, &self.keys, self.plain_files_at(path))?.map_or(stored, Bytes::from))
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
