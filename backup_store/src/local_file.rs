//! Files of this machine: read in pieces for their checksum and their contents, and written under a temporary name.
//!
//! The files are read as they lie on the disk: encrypted ones are not decrypted. What waits for the disk runs on threads beside.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use crc32fast::Hasher;

use crate::directory::{beside, make_directory, sync_directory};
use crate::error::StoreError;

/// Bytes that are read at a time for a checksum.
const PIECE_BYTES: u64 = 1 << 20;

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { action, path, source }
}

/// A file that never changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalFile {
    pub path: PathBuf,
    pub name: String,
    pub bytes: u64,
    pub modified_ns: u64,
}

/// The files in a directory, by name, but hidden ones. A directory that is not there has none.
pub async fn list(directory: PathBuf) -> Result<Vec<LocalFile>, StoreError> {
    beside(move || {
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("list", &directory))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("list", &directory))?;
            let path = entry.path();
            let metadata = entry.metadata().map_err(failed("look at", &path))?;
            if !metadata.is_file() {
                continue;
            }
            let Ok(name) = entry.file_name().into_string() else {
                let source = io::Error::other("its name is no UTF-8");
                return Err(failed("name", &path)(source));
            };
            let modified = metadata.modified().map_err(failed("look at", &path))?;
            let modified_ns = modified.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos() as u64);
            if name.starts_with('.') {
                // No file of a node: a file system or a person has left it.
                continue;
            }
            files.push(LocalFile { name, bytes: metadata.len(), modified_ns, path });
        }
        files.sort();
        Ok(files)
    })
    .await
}

/// A file that is read from its beginning to its end.
pub struct FileReader {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    /// Bytes that are left.
    left: u64,
}

impl FileReader {
    pub async fn open(file: &LocalFile) -> Result<Self, StoreError> {
        let (path, left) = (file.path.clone(), file.bytes);
        beside(move || {
            let file = File::open(&path).map_err(failed("read", &path))?;
            Ok(Self { file, path, hasher: Hasher::new(), left })
        })
        .await
    }

    /// The next bytes, and the reader for those after them.
    pub async fn next(mut self, bytes_max: u64) -> Result<(Bytes, Self), StoreError> {
        beside(move || {
            let wanted = self.left.min(bytes_max);
            let mut piece = Vec::with_capacity(wanted as usize);
            let read = (&mut self.file).take(wanted).read_to_end(&mut piece);
            read.map_err(failed("read", &self.path))?;
            if piece.len() as u64 != wanted {
                return Err(StoreError::Changed { path: self.path });
            }
            self.hasher.update(&piece);
            self.left -= wanted;
            Ok((piece.into(), self))
        })
        .await
    }

    pub fn is_at_end(&self) -> bool {
        self.left == 0
    }

    /// The checksum of what was read.
    pub fn crc32(self) -> u32 {
        self.hasher.finalize()
    }
}

/// The checksum of a file.
pub async fn checksum(file: &LocalFile) -> Result<u32, StoreError> {
    let mut reader = FileReader::open(file).await?;
    while !reader.is_at_end() {
        reader = reader.next(PIECE_BYTES).await?.1;
    }
    Ok(reader.crc32())
}

/// What lies at a path; `None`: nothing.
pub async fn look_at(path: PathBuf) -> Result<Option<LocalFile>, StoreError> {
    beside(move || match fs::metadata(&path) {
        Ok(metadata) => {
            Ok(Some(LocalFile { name: String::new(), bytes: metadata.len(), modified_ns: 0, path }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("look at", &path)(error)),
    })
    .await
}

/// A file that is being written under a temporary name.
pub struct FileWriter {
    path: PathBuf,
    temporary: PathBuf,
    hasher: Hasher,
    bytes: u64,
    /// `None`: it has its name.
    file: Option<File>,
}

impl FileWriter {
    /// Makes the directory too.
    pub async fn create(path: PathBuf) -> Result<Self, StoreError> {
        beside(move || {
            if let Some(directory) = path.parent() {
                make_directory(directory).map_err(failed("make", directory))?;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let temporary = path.with_file_name(format!(".{name}.tmp"));
            let file = File::create(&temporary).map_err(failed("write", &temporary))?;
            Ok(Self { path, temporary, hasher: Hasher::new(), bytes: 0, file: Some(file) })
        })
        .await
    }

    pub async fn write(mut self, piece: Bytes) -> Result<Self, StoreError> {
        beside(move || {
            if let Some(file) = &mut self.file {
                file.write_all(&piece).map_err(failed("write", &self.temporary))?;
            }
            self.hasher.update(&piece);
            self.bytes += piece.len() as u64;
            Ok(self)
        })
        .await
    }

    /// Size and checksum of what was written.
    pub fn sum(&self) -> (u64, u32) {
        (self.bytes, self.hasher.clone().finalize())
    }

    /// Gives the file its name, durably.
    pub async fn finish(mut self) -> Result<(), StoreError> {
        beside(move || {
            if let Some(file) = self.file.take() {
                let named = file.sync_all().and_then(|()| fs::rename(&self.temporary, &self.path));
                if named.is_err() {
                    self.file = Some(file);
                }
                named.map_err(failed("write", &self.path))?;
            }
            self.path.parent().map_or(Ok(()), sync_directory).map_err(failed("write", &self.path))
        })
        .await
    }
}

impl Drop for FileWriter {
    /// What is not whole goes.
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
