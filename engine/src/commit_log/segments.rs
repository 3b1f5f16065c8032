//! The files of a log: their names, the preparation of the next segment, the recycling of old ones.
//!
//! A file is called `segment-<n>.log` while it is part of the log, and `spare-<n>.log` while it waits for reuse. `<n>` (16 hex
//! digits) is the highest segment number it ever had. Recycled files are already allocated and written. This makes a sync
//! cheap: no file-system metadata changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::io::{Disk, DiskError, DiskFile};

/// New files are filled with zeros in pieces of this size. Each is synced, so that a group never waits long for the disk.
const FILL_BYTES: u64 = 256 << 10;

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

/// The log's files in a directory: the numbers of segments and of spares, each ascending.
pub async fn list(disk: &dyn Disk, directory: &Path) -> Result<(Vec<u64>, Vec<u64>), DiskError> {
    let mut segments = Vec::new();
    let mut spares = Vec::new();
    for entry in disk.list(directory).await? {
        match parse_name(&entry.name) {
            Some((Role::Segment, number)) => segments.push(number),
            Some((Role::Spare, number)) => spares.push(number),
            None => {}
        }
    }
    segments.sort_unstable();
    spares.sort_unstable();
    Ok((segments, spares))
}

/// A file that is ready to be written as a segment. Its name is durable.
pub struct OpenSegment {
    pub number: u64,
    pub file: Arc<dyn DiskFile>,
}

/// The spare files, and how segments are made of them.
pub struct Files {
    pub disk: Arc<dyn Disk>,
    pub directory: PathBuf,
    /// Ascending.
    pub spares: Vec<u64>,
    pub spares_max: usize,
    pub segment_bytes: u64,
}

impl Files {
    /// Prepares the segment `number`: from a spare file, else from a new file, which is filled with zeros until `hurry` returns
    /// true. A file that is not filled works, but its syncs are slower.
    pub async fn prepare(&mut self, number: u64, hurry: impl Fn() -> bool) -> Result<OpenSegment, DiskError> {
        let path = file_path(&self.directory, Role::Segment, number);
        let recycled = self.spares.pop();
        let file = match recycled {
            Some(spare) => {
                self.disk.rename(&file_path(&self.directory, Role::Spare, spare), &path).await?;
                self.disk.open(&path).await?
            }
            None => self.disk.create(&path).await?,
        };
        self.disk.sync_directory(&self.directory).await?;
        if recycled.is_none() {
            self.fill(&*file, hurry).await?;
        }
        Ok(OpenSegment { number, file })
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
            let path = file_path(&self.directory, Role::Spare, spare);
            if kept.len() < self.spares_max && self.has_fitting_length(&path).await? {
                kept.push(spare);
            } else {
                self.disk.remove(&path).await?;
            }
        }
        self.spares = kept;
        Ok(())
    }

    /// Takes a segment out of the log, durably, and keeps its file for reuse if there are too few spares.
    pub async fn retire(&mut self, number: u64) -> Result<(), DiskError> {
        let path = file_path(&self.directory, Role::Segment, number);
        if self.spares.len() < self.spares_max && self.has_fitting_length(&path).await? {
            self.disk.rename(&path, &file_path(&self.directory, Role::Spare, number)).await?;
            self.spares.push(number);
        } else {
            self.disk.remove(&path).await?;
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
