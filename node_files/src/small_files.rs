//! The node's own small files by name: identity, catalog, generation. They are on the engine's disk, so that a simulated
//! node has them on its simulated disk.
//!
//! Invariants:
//! * A file is replaced as a whole and kept in two copies, `<name>` and `<name>.copy` ([`TwoCopies`]). The loss, the damage or the
//!   roll-back of either one loses nothing: the newer one is used, and both are written again, which is logged.
//! * Contents end with a seal: their number, which rises with each replacement, and a checksum.
//!
//! ```text
//! contents | "\n#helenus " | number, 20 decimal digits | " " | CRC-32 of all before it, 8 hexadecimal digits | "\n"
//! ```
//!
//! A file without a seal was written by an earlier program, or has lost its end. It counts as number 0, and is used if there is no
//! copy with a seal. The reader of the contents must notice that they are cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use helenus_engine::io::{Disk, DiskError, DiskRoom, LoadError, TwoCopies, Unusable};
use thiserror::Error;
use tokio::sync::Mutex;

/// The name of the directory of a shard's commit log.
const COMMIT_LOG_DIRECTORY: &str = "commit-log";
const SEAL_START: &[u8] = b"\n#helenus ";
const NUMBER_DIGITS: usize = 20;
const CHECKSUM_DIGITS: usize = 8;
const SEAL_BYTES: usize = SEAL_START.len() + NUMBER_DIGITS + 1 + CHECKSUM_DIGITS + 1;

/// Why a file could not be read or replaced.
#[derive(Debug, Clone, Error)]
pub enum FileError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{path}: {message}")]
    Damaged { path: PathBuf, message: String },
}

/// Small files in one directory.
pub struct NodeFiles {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// The numbers of the contents on disk, by name. Held by the present replacement: two replacements of one name would share their
    /// temporary files.
    numbers: Mutex<BTreeMap<String, u64>>,
}

impl NodeFiles {
    /// Opens the files in `directory`, which is created if it is missing.
    pub async fn open(disk: Arc<dyn Disk>, directory: PathBuf) -> Result<Self, DiskError> {
        disk.create_directory(&directory).await?;
        // Files that are seen now must stay: an earlier run may have replaced a file and crashed before that was
        // durable.
        disk.sync_directory(&directory).await?;
        Ok(Self { disk, directory, numbers: Mutex::default() })
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of a file, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether either copy of a file exists.
    pub async fn exists(&self, name: &str) -> Result<bool, DiskError> {
        TwoCopies::new(&self.directory, name).exists(&*self.disk).await
    }

    /// The content of a file; `None` if there is none. A copy that is missing, damaged or older is written again.
    pub async fn load(&self, name: &str) -> Result<Option<Bytes>, FileError> {
        let mut numbers = self.numbers.lock().await;
        let file = TwoCopies::new(&self.directory, name);
        let Some(newest) = self.newest(&file).await? else { return Ok(None) };
        let mut number = newest.number;
        if let Some(defect) = newest.defect {
            if number == 0 {
                tracing::info!(path = %file.path().display(), "kept in two copies from now on");
            } else {
                tracing::warn!(%defect, "not as it was left; the other copy is used, and both are written again");
            }
            number += 1;
            self.write(&file, number, &newest.value).await?;
        }
        numbers.insert(name.to_owned(), number);
        Ok(Some(newest.value))
    }

    /// The content of a file, and the defects of its copies as text. Nothing is written.
    pub async fn look_at(&self, name: &str) -> Result<Option<(Bytes, Option<String>)>, FileError> {
        let file = TwoCopies::new(&self.directory, name);
        let newest = self.newest(&file).await?;
        Ok(newest.map(|newest| {
            // A file of an earlier program has one copy and no seal.
            let defect = newest.defect.filter(|_| newest.number > 0).map(|defect| defect.to_string());
            (newest.value, defect)
        }))
    }

    /// The size of all files below the directory and `data_dirs`, in bytes, without the commit logs: as Cassandra counts data directories,
    /// the files of snapshots included.
    pub async fn data_bytes(&self, data_dirs: &[PathBuf]) -> Result<u64, DiskError> {
        let mut waiting = vec![self.directory.clone()];
        waiting.extend_from_slice(data_dirs);
        let mut bytes = 0;
        while let Some(directory) = waiting.pop() {
            let entries = match self.disk.list(&directory).await {
                // A table or a snapshot that was dropped meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let path = directory.join(&entry.name);
                if !entry.is_directory {
                    match self.disk.length(&path).await {
                        Ok(length) => bytes += length,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                } else if entry.name != COMMIT_LOG_DIRECTORY {
                    waiting.push(path);
                }
            }
        }
        Ok(bytes)
    }

    /// The room on the disk of the directory.
    pub async fn room(&self) -> Result<DiskRoom, DiskError> {
        self.disk.room(&self.directory).await
    }

    /// The free bytes of the disks of `data_dirs`. Directories of one file system share them.
    pub async fn free_bytes(&self, data_dirs: &[PathBuf]) -> Result<u64, DiskError> {
        let mut bytes = 0_u64;
        let mut counted = BTreeSet::new();
        for directory in data_dirs {
            if counted.insert(self.disk.file_system(directory).await?) {
                bytes = bytes.saturating_add(self.disk.room(directory).await?.free_bytes);
            }
        }
        Ok(bytes)
    }

    /// Replaces a file; resolves when the new one is durable.
    pub async fn replace(&self, name: &str, contents: Bytes) -> Result<(), FileError> {
        let mut numbers = self.numbers.lock().await;
        let file = TwoCopies::new(&self.directory, name);
        let last = match numbers.get(name) {
            Some(number) => *number,
            None => self.newest(&file).await?.map_or(0, |newest| newest.number),
        };
        // Also if the outcome is unknown, no number is used twice.
        numbers.insert(name.to_owned(), last + 1);
        self.write(&file, last + 1, &contents).await
    }

    async fn newest(&self, file: &TwoCopies) -> Result<Option<helenus_engine::io::Newest<Bytes>>, FileError> {
        let loaded = file.load(&*self.disk, |_, bytes| open_seal(bytes)).await;
        loaded.map_err(|error| match error {
            LoadError::Disk(error) => error.into(),
            other => FileError::Damaged { path: file.path().to_path_buf(), message: other.to_string() },
        })
    }

    async fn write(&self, file: &TwoCopies, number: u64, contents: &[u8]) -> Result<(), FileError> {
        let replaced = file.replace(&*self.disk, sealed(number, contents)).await;
        replaced.map(|_| ()).map_err(|error| error.into_disk_error().into())
    }
}

fn sealed(number: u64, contents: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(contents.len() + SEAL_BYTES);
    bytes.extend_from_slice(contents);
    bytes.extend_from_slice(SEAL_START);
    bytes.extend_from_slice(format!("{number:020} ").as_bytes());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(format!("{checksum:08x}\n").as_bytes());
    Bytes::from(bytes)
}

/// The number and the contents of a file.
fn open_seal(bytes: &Bytes) -> Result<(u64, Bytes), Unusable<String>> {
    let damaged = |message: &str| Unusable::Damaged(message.to_owned());
    let begin = bytes.len().saturating_sub(SEAL_BYTES);
    let Some(rest) = bytes.get(begin..).and_then(|seal| seal.strip_prefix(SEAL_START)) else {
        return Ok((0, bytes.clone()));
    };
    let text = std::str::from_utf8(rest).map_err(|_| damaged("its seal cannot be read"))?;
    let (number, checksum) = text
        .trim_end_matches('\n')
        .split_once(' ')
        .filter(|(number, checksum)| number.len() == NUMBER_DIGITS && checksum.len() == CHECKSUM_DIGITS)
        .and_then(|(number, checksum)| {
            Some((number.parse::<u64>().ok()?, u32::from_str_radix(checksum, 16).ok()?))
        })
        .ok_or_else(|| damaged("its seal cannot be read"))?;
    let covered = bytes.get(..begin + SEAL_START.len() + NUMBER_DIGITS + 1).unwrap_or_default();
    if number == 0 || crc32fast::hash(covered) != checksum {
        return Err(damaged("its checksum is wrong"));
    }
    Ok((number, bytes.slice(..begin)))
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use helenus_engine::io::{CrashStyle, SimulatedDisk};

    use super::*;

    async fn open(disk: &SimulatedDisk) -> NodeFiles {
        NodeFiles::open(Arc::new(disk.clone()), PathBuf::from("/node")).await.unwrap()
    }

    fn load(disk: &SimulatedDisk) -> Result<Option<Bytes>, FileError> {
        block_on(async { open(disk).await.load("catalog").await })
    }

    #[test]
    fn a_file_is_the_old_or_the_new_one_wherever_a_crash_comes() {
        for crash_after in 0.. {
            let disk = SimulatedDisk::new(crash_after);
            let replaced = block_on(async {
                let files = open(&disk).await;
                files.replace("catalog", Bytes::from_static(b"old")).await.unwrap();
                disk.crash_at(disk.operations() + crash_after);
                files.replace("catalog", Bytes::from_static(b"new")).await
            });
            for style in CrashStyle::ALL {
                disk.restart(style, crash_after);
            }
            let found = load(&disk).unwrap();
            match replaced {
                Ok(()) => {
                    assert_eq!(found.as_deref(), Some(&b"new"[..]));
                    return;
                }
                Err(_) => assert!(matches!(found.as_deref(), Some(b"old" | b"new")), "{found:?}"),
            }
        }
    }

    #[test]
    fn the_size_of_the_data_is_that_of_all_files_but_the_logs() {
        let disk = SimulatedDisk::new(1);
        futures::executor::block_on(async {
            let files = NodeFiles::open(Arc::new(disk.clone()), PathBuf::from("/node")).await.unwrap();
            for (path, length) in
                [("catalog", 5), ("shard-0/tables/t/1-data.sst", 20), ("shard-0/commit-log/segment", 100)]
            {
                let path = files.path(path);
                disk.create_directory(path.parent().unwrap()).await.unwrap();
                disk.create(&path).await.unwrap().reserve(length).await.unwrap();
            }
            assert_eq!(files.data_bytes(&[]).await.unwrap(), 25);
            let other = Path::new("/other");
            disk.create_directory(&other.join("shard-0/tables")).await.unwrap();
            disk.create(&other.join("shard-0/tables/2-data.sst")).await.unwrap().reserve(7).await.unwrap();
            let data_dirs = [other.to_path_buf(), "/missing".into()];
            assert_eq!(files.data_bytes(&data_dirs).await.unwrap(), 32);
            disk.set_capacity_bytes(disk.used_bytes() + 1_000);
            assert_eq!(files.free_bytes(&[other.to_path_buf(), other.to_path_buf()]).await.unwrap(), 1_000);
        });
    }

    #[test]
    fn leftovers_of_a_crash_do_no_harm() {
        let disk = SimulatedDisk::new(1);
        block_on(async {
            let files = open(&disk).await;
            assert_eq!(files.load("catalog").await.unwrap(), None);
            for leftover in ["catalog.tmp", "catalog.copy.tmp"] {
                disk.create(&files.path(leftover)).await.unwrap();
            }
            files.replace("catalog", Bytes::from_static(b"new")).await.unwrap();
            assert_eq!(files.load("catalog").await.unwrap().as_deref(), Some(&b"new"[..]));
        });
    }

    #[test]
    fn either_copy_may_be_missing_damaged_or_older() {
        for name in ["/node/catalog", "/node/catalog.copy"] {
            let path = Path::new(name);
            let disk = SimulatedDisk::new(1);
            let replace = |contents| {
                block_on(async { open(&disk).await.replace("catalog", Bytes::from_static(contents)).await })
            };
            replace(b"first").unwrap();
            let old = disk.files()[path].clone();
            replace(b"second").unwrap();
            let new = disk.files()[path].clone();
            let mut harms: Vec<Option<Vec<u8>>> =
                vec![None, Some(old), Some(b"of an earlier program".to_vec())];
            harms.extend((0..new.len()).map(|length| Some(new[..length].to_vec())));
            harms.extend((0..new.len()).map(|byte| {
                let mut damaged = new.clone();
                damaged[byte] ^= 0x10;
                Some(damaged)
            }));
            for harm in harms {
                disk.set_at_rest(path, harm.as_deref());
                assert_eq!(load(&disk).unwrap().as_deref(), Some(&b"second"[..]), "{name}: {harm:?}");
                let files = disk.files();
                assert_eq!(files[Path::new("/node/catalog")], files[Path::new("/node/catalog.copy")]);
            }
        }
    }

    #[test]
    fn a_file_of_an_earlier_program_is_read_and_sealed() {
        let disk = SimulatedDisk::new(1);
        disk.set_at_rest(Path::new("/node/catalog"), Some(b"{}\n"));
        for _ in 0..2 {
            assert_eq!(load(&disk).unwrap().as_deref(), Some(&b"{}\n"[..]));
            let bytes = disk.files()[Path::new("/node/catalog.copy")].clone();
            assert_eq!(bytes, b"{}\n\n#helenus 00000000000000000001 5fb70da3\n");
        }
        disk.set_at_rest(Path::new("/node/catalog"), None);
        assert_eq!(load(&disk).unwrap().as_deref(), Some(&b"{}\n"[..]));
    }
}
