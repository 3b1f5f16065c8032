//! The files of a log: their names, the preparation of the next segment, the recycling of old ones.
//!
//! A file is called `segment-<n>.log` while it is part of the log, and `spare-<n>.log` while it is prepared or waits for reuse. `<n>`
//! (16 hex digits) is the highest segment number it ever had. Recycled files are already allocated and written. This makes a sync
//! cheap: no file-system metadata changes.
//!
//! Steps of a preparation, each of which a crash may follow:
//! 1. The file of a spare, or a new one, gets room for the whole segment. A new one is filled with zeros.
//! 2. Its header is written and synced: its life as segment *n* begins.
//! 3. It is renamed to `segment-<n>.log`, and the directory is synced.
//!
//! Invariants:
//! * What is called `segment-<n>.log` has a whole header for *n*, or was left by version 1 of the format. The empty file `version-2`
//!   says that version 1 has left nothing in this directory but segments that begin with a group.
//! * Between step 3 and its release a segment always exists. A later life of the same number replaces it in one step, by renaming.
//! * A prepared segment has room on the disk for all its bytes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::format::{Salt, SegmentHeader, segment_header};
use helenus_io::{Disk, DiskError, DiskFile, RandomSource};

/// New files are filled with zeros in pieces of this size. Each is synced, so that a group never waits long for the disk.
const FILL_BYTES: u64 = 256 << 10;

/// The file that says that segments have headers.
const VERSION_NAME: &str = "version-2";

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Segment,
    Spare,
}

impl Role {
    fn prefix(self) -> &'static str {
        match self {
            Self::Segment => "segment-",
            Self::Spare => "spare-",
        }
    }
}

/// The path of a file of the log.
pub fn file_path(directory: &Path, role: Role, number: u64) -> PathBuf {
    directory.join(format!("{}{number:016x}.log", role.prefix()))
}

fn parse_name(name: &str) -> Option<(Role, u64)> {
    let stem = name.strip_suffix(".log")?;
    [Role::Segment, Role::Spare].into_iter().find_map(|role| {
        let digits = stem.strip_prefix(role.prefix())?;
        (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?.map(|number| (role, number))
    })
}

/// The log's files in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogDirectory {
    /// Numbers of the segments, ascending.
    pub segments: Vec<u64>,
    /// Numbers of the spares, ascending.
    pub spares: Vec<u64>,
    /// Whether every segment has a header or begins with a group of version 1.
    pub has_headers: bool,
}

impl LogDirectory {
    pub async fn read(disk: &dyn Disk, directory: &Path) -> Result<Self, DiskError> {
        let mut found = Self::default();
        for entry in disk.list(directory).await? {
            match parse_name(&entry.name) {
                Some((Role::Segment, number)) => found.segments.push(number),
                Some((Role::Spare, number)) => found.spares.push(number),
                None => found.has_headers |= entry.name == VERSION_NAME,
            }
        }
        found.segments.sort_unstable();
        found.spares.sort_unstable();
        Ok(found)
    }
}

/// A file that is ready to be written as a segment. Its name and its header are durable.
pub struct OpenSegment {
    pub number: u64,
    pub salt: Salt,
    pub file: Arc<dyn DiskFile>,
}

/// A segment that was renamed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaving {
    number: u64,
    is_spare: bool,
}

/// The spare files, and how segments are made of them.
pub struct Files {
    pub disk: Arc<dyn Disk>,
    pub random: Rc<dyn RandomSource>,
    pub directory: PathBuf,
    /// Ascending.
    pub spares: Vec<u64>,
    pub spares_max: usize,
    pub segment_bytes: u64,
    /// Whether the directory has the file [`VERSION_NAME`], durably.
    pub has_headers: bool,
    /// Segments without groups whose life has begun: they only have to be opened.
    pub begun: BTreeMap<u64, Salt>,
    /// A segment whose name is gone, but perhaps not durably.
    pub leaving: Option<Leaving>,
}

impl Files {
    fn path(&self, role: Role, number: u64) -> PathBuf {
        file_path(&self.directory, role, number)
    }

    /// Prepares the segment `number`: from a spare file, else from a new file, which is filled with zeros until `hurry` returns true.
    /// A file that is not filled works, but its syncs are slower. After an error another attempt may succeed.
    pub async fn prepare(&mut self, number: u64, hurry: impl Fn() -> bool) -> Result<OpenSegment, DiskError> {
        self.note_version().await?;
        let path = self.path(Role::Segment, number);
        let (salt, file) = match self.begun.get(&number) {
            Some(salt) => {
                let file = self.disk.open(&path).await?;
                // The setting may have grown.
                file.reserve(self.segment_bytes).await?;
                (*salt, file)
            }
            None => self.begin_life(number, hurry).await?,
        };
        // Not only for the renaming of this attempt: that of an earlier one may not be durable yet.
        self.disk.sync_directory(&self.directory).await?;
        self.begun.remove(&number);
        Ok(OpenSegment { number, salt, file })
    }

    /// Says, durably, that segments have headers from now on.
    async fn note_version(&mut self) -> Result<(), DiskError> {
        if self.has_headers {
            return Ok(());
        }
        match self.disk.create(&self.directory.join(VERSION_NAME)).await {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.disk.sync_directory(&self.directory).await?;
        self.has_headers = true;
        Ok(())
    }

    /// Makes a file the segment `number`, in a new life. Its name is not durable yet.
    async fn begin_life(
        &mut self,
        number: u64,
        hurry: impl Fn() -> bool,
    ) -> Result<(Salt, Arc<dyn DiskFile>), DiskError> {
        let path = self.path(Role::Segment, number);
        let drawn = self.random.next_u128();
        let salt = Salt(drawn.map_err(|error| DiskError::new("random numbers for", &path, error))?);
        let (spare, file, is_new) = self.take_file(number).await?;
        let spare_path = self.path(Role::Spare, spare);
        let header = SegmentHeader { segment: number, salt, length: self.segment_bytes };
        if let Err(error) = self.write_header(&*file, &header, is_new, hurry).await {
            // The contents of a file cannot be trusted after a failed sync. The room of a new file may be needed elsewhere.
            if is_new || error.is_sync() {
                self.spares.retain(|known| *known != spare);
                if let Err(error) = self.disk.remove(&spare_path).await {
                    tracing::debug!(%error, "an unused file of the commit log stays");
                }
            }
            return Err(error);
        }
        self.disk.rename(&spare_path, &path).await?;
        self.spares.retain(|known| *known != spare);
        self.begun.insert(number, salt);
        Ok((salt, file))
    }

    /// A file to make a segment of, which stays among the spares: the number of the spare, and whether the file is new.
    async fn take_file(&mut self, number: u64) -> Result<(u64, Arc<dyn DiskFile>, bool), DiskError> {
        if let Some(spare) = self.spares.last() {
            return Ok((*spare, self.disk.open(&self.path(Role::Spare, *spare)).await?, false));
        }
        let path = self.path(Role::Spare, number);
        let (file, is_new) = match self.disk.create(&path).await {
            // An earlier attempt could not remove it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (self.disk.open(&path).await?, false)
            }
            created => (created?, true),
        };
        self.spares.push(number);
        Ok((number, file, is_new))
    }

    async fn write_header(
        &self,
        file: &dyn DiskFile,
        header: &SegmentHeader,
        is_new: bool,
        hurry: impl Fn() -> bool,
    ) -> Result<(), DiskError> {
        file.reserve(self.segment_bytes).await?;
        if is_new {
            self.fill(file, hurry).await?;
        }
        file.write_and_sync_at(0, Bytes::from(segment_header(header))).await
    }

    async fn fill(&self, file: &dyn DiskFile, hurry: impl Fn() -> bool) -> Result<(), DiskError> {
        let zeros = Bytes::from(vec![0; FILL_BYTES.min(self.segment_bytes) as usize]);
        let mut offset = 0;
        while offset < self.segment_bytes && !hurry() {
            let length = FILL_BYTES.min(self.segment_bytes - offset);
            file.write_and_sync_at(offset, zeros.slice(..length as usize)).await?;
            offset += length;
        }
        Ok(())
    }

    /// Whether a file is worth keeping. It is not if it is much shorter (never filled) or longer (the setting changed).
    async fn has_fitting_length(&self, path: &Path) -> Result<bool, DiskError> {
        let length = self.disk.length(path).await?;
        Ok(length <= self.segment_bytes && length >= self.segment_bytes / 2)
    }

    /// Removes superfluous spare files, and those whose size does not match the current segment size.
    pub async fn discard_misfits(&mut self) -> Result<(), DiskError> {
        let mut kept = Vec::new();
        for spare in std::mem::take(&mut self.spares) {
            let path = self.path(Role::Spare, spare);
            if kept.len() < self.spares_max && self.has_fitting_length(&path).await? {
                kept.push(spare);
            } else {
                self.disk.remove(&path).await?;
            }
        }
        self.spares = kept;
        Ok(())
    }

    /// Takes a segment out of the log, durably, and keeps its file for reuse if there are fewer than `spares_max` spares. After an
    /// error another attempt may succeed.
    pub async fn retire(&mut self, number: u64) -> Result<(), DiskError> {
        let begun = self.leaving.filter(|leaving| leaving.number == number);
        let leaving = if let Some(leaving) = begun {
            leaving
        } else {
            let path = self.path(Role::Segment, number);
            let is_spare = self.spares.len() < self.spares_max && self.has_fitting_length(&path).await?;
            if is_spare {
                self.disk.rename(&path, &self.path(Role::Spare, number)).await?;
            } else {
                self.disk.remove(&path).await?;
            }
            Leaving { number, is_spare }
        };
        self.leaving = Some(leaving);
        // Before that the file must not be reused: a crash could give it its name back.
        self.disk.sync_directory(&self.directory).await?;
        self.leaving = None;
        if leaving.is_spare {
            self.spares.push(number);
            self.spares.sort_unstable();
        }
        Ok(())
    }

    /// Gives up spare files, down to `spares_max`: their room is needed.
    pub async fn give_up_spares(&mut self) -> Result<(), DiskError> {
        while self.spares.len() > self.spares_max {
            if let Some(spare) = self.spares.pop() {
                self.disk.remove(&self.path(Role::Spare, spare)).await?;
            }
        }
        self.disk.sync_directory(&self.directory).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (role, number) in [(Role::Segment, 1), (Role::Spare, u64::MAX)] {
            let path = file_path(Path::new("/log"), role, number);
            assert_eq!(parse_name(path.file_name().unwrap().to_str().unwrap()), Some((role, number)));
        }
        assert_eq!(parse_name("segment-1.log"), None);
        assert_eq!(parse_name("segment-000000000000000g.log"), None);
        assert_eq!(parse_name("LOCK"), None);
    }
}
