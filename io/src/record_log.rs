//! A log of records that is kept in two copies, so that the loss, the damage or the roll-back of either one loses nothing. It continues a
//! [`TwoCopies`](super::TwoCopies) file: what changes little is appended instead of replacing all of it.
//!
//! The copies are `<name>` and `<name>.copy` of one directory. Both are made with their whole length, which is zeros behind the
//! header, so that an append neither changes a length nor needs more room.
//!
//! ```text
//! header := magic, 4 bytes | version u8 | number u64 | length of the file u64 | CRC32 of all these u32
//! record := length of the contents u32, not 0 | CRC32 of that and of the contents u32 | contents
//! log    := header | records | zeros
//! ```
//! Integers are little endian. Magic, version and number are the owner's.
//!
//! An append writes and syncs the record in the first copy, and then in the second. It has taken effect when all of that is done. So
//! * each copy has every record that has taken effect, and the first has at most one more;
//! * only one copy is being written at any time, so a crash tears at most one, and the other one is whole.
//!
//! | the copies | meaning | what is used |
//! |---|---|---|
//! | equal | | either |
//! | one is whole and begins with the other | a crash came between the two; or an older copy was put back | the longer one |
//! | one is whole, the other one torn, damaged, unreadable or missing | a crash came in a write, or the file was harmed | the whole one |
//! | one is whole, the other one is not and has more records, the first of them perhaps damaged | the whole one is an older copy | error |
//! | neither is whole | harm from outside | error |
//! | their records differ | harm from outside | error |
//!
//! What tells more records from one that a crash has torn: a crash leaves no record behind a torn one. In the second copy it leaves nothing at
//! all behind the end of the first one's records. A last record of the first copy that is damaged cannot be told from a torn one.
//!
//! What was read may be in the memory of the system only, from where a crash takes it. So the owner mends the log before it depends on
//! what was read ([`RecordLogPlace::mend`]). Both copies are written again in place, all of each one and not only synced: a sync that
//! succeeds says nothing of what an earlier one has failed to write. The copy whose records are used comes first. It may be what a crash
//! takes, so until it is durable the other one stays as it is.
//!
//! An append that fails is taken back: zeros are written where the record is and synced, in the second copy first. In that order at most
//! one copy is torn again, and when neither copy has a trace of the record, the append has never happened. That also holds after a failed
//! sync: what must be durable then are the zeros, which were written after it, and not what it may have lost. The log takes no more
//! records then, nor after an append that was given up.
//!
//! A file system that writes no place twice may have no room for an append, and then none for the zeros either. So where no sync has
//! failed, a copy that reads as zeros is as good as one that they were written to.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::disk::{Disk, DiskError, DiskFile};
use super::two_copies::{Defect, ReplaceError, copies_of, create_anew, is_absent};

const HEADER_BYTES: usize = 25;
const RECORD_HEAD_BYTES: usize = 8;

/// What distinguishes the logs of one owner from all other files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLogKind {
    pub magic: [u8; 4],
    /// The version of the records that the program writes, and the highest that it reads.
    pub version: u8,
}

/// The place of a log.
#[derive(Debug, Clone)]
pub struct RecordLogPlace {
    kind: RecordLogKind,
    /// The number in its header.
    number: u64,
    paths: [PathBuf; 2],
}

/// A log that takes records.
pub struct RecordLog {
    paths: [PathBuf; 2],
    files: [Arc<dyn DiskFile>; 2],
    /// The number in its header.
    number: u64,
    /// The records that have been appended.
    count: u64,
    /// Where the next record goes.
    end: u64,
    length: u64,
    /// Both copies end in the same way, and with zeros.
    takes_records: bool,
}

/// The records of a log.
#[derive(Debug, Clone)]
pub struct Records {
    pub contents: Vec<Bytes>,
    /// The copy that is not as it should be, if one is not.
    pub defect: Option<Defect>,
    /// They were read from the first copy.
    first_is_used: bool,
    /// That copy.
    bytes: Bytes,
}

/// What [`RecordLogPlace::mend`] has come to.
#[derive(Debug, Clone)]
pub struct Mended {
    /// The copy that is not as it should be still: it is missing, or cannot be written.
    pub defect: Option<Defect>,
    /// No crash takes back what was read. If not, the owner begins a new log before it depends on that.
    pub is_durable: bool,
}

/// Why the records of a log cannot be told.
#[derive(Debug, Clone, Error)]
pub enum RecordLogError {
    #[error(transparent)]
    Disk(DiskError),
    #[error("{}: {reason}, and its copy cannot be used either", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} has version {version}; this program knows versions up to {known}: run a newer one", path.display())]
    Version { path: PathBuf, version: u8, known: u8 },
    #[error("{}: {reason}, and its copy is older: it does not have all of its records", path.display())]
    OlderCopy { path: PathBuf, reason: String },
    #[error("{} and {} have different records", paths[0].display(), paths[1].display())]
    Differ { paths: [PathBuf; 2] },
}

/// A copy as it was found.
enum Found {
    Read(Copy),
    Useless(Useless),
}

/// A copy that has no header, and so no records to use.
enum Useless {
    Missing,
    Unreadable(DiskError),
    /// `bytes`: what may have records of this log all the same.
    Damaged {
        reason: String,
        bytes: Bytes,
    },
}

/// A copy that has a header.
struct Copy {
    /// The contents of the file, cut off at the length that its header states.
    bytes: Bytes,
    /// The records up to the first one that cannot be read.
    records: Vec<Bytes>,
    /// Where they end.
    end: usize,
    /// Why it is not whole.
    defect: Option<String>,
}

impl RecordLogPlace {
    /// The log `name` of a directory.
    pub fn new(directory: &Path, name: &str, kind: RecordLogKind, number: u64) -> Self {
        Self { kind, number, paths: copies_of(directory, name) }
    }

    /// The path of the first copy, which messages name.
    pub fn path(&self) -> &Path {
        &self.paths[0]
    }

    /// Makes an empty log with room for `room_bytes` of records; without any if the disk is full. What has its names is removed. Both copies
    /// are synced, and their names are not.
    pub async fn create(&self, disk: &dyn Disk, room_bytes: u64) -> Result<RecordLog, DiskError> {
        let [first, second] = &self.paths;
        let files = [create_anew(disk, first).await?, create_anew(disk, second).await?];
        let mut length = HEADER_BYTES as u64 + room_bytes;
        for file in &files {
            match file.reserve(length).await {
                Err(error) if error.is_full() => length = HEADER_BYTES as u64,
                reserved => reserved?,
            }
        }
        for file in &files {
            file.write_and_sync_at(0, self.header(length)).await?;
        }
        let (paths, number, end) = (self.paths.clone(), self.number, HEADER_BYTES as u64);
        Ok(RecordLog { paths, files, number, count: 0, end, length, takes_records: true })
    }

    fn header(&self, length: u64) -> Bytes {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&self.kind.magic);
        header.push(self.kind.version);
        header.extend_from_slice(&self.number.to_le_bytes());
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        Bytes::from(header)
    }

    /// Reads both copies. `None`: neither exists. Nothing is changed on the disk: the caller mends what was read, or begins a new log if
    /// [`Records::defect`] says so. What cannot be decided is read once more: a bit that only one read flips is no damage, but beside a copy that a
    /// crash has torn it looks like that.
    pub async fn load(&self, disk: &dyn Disk) -> Result<Option<Records>, RecordLogError> {
        match self.read(disk).await {
            Err(_) => self.read(disk).await,
            read => read,
        }
    }

    async fn read(&self, disk: &dyn Disk) -> Result<Option<Records>, RecordLogError> {
        let [first, second] = &self.paths;
        match [self.find(disk, first).await?, self.find(disk, second).await?] {
            [Found::Useless(Useless::Missing), Found::Useless(Useless::Missing)] => Ok(None),
            [Found::Read(first), Found::Read(second)] => self.choose(first, second).map(Some),
            [Found::Read(copy), Found::Useless(other)] => self.use_alone(copy, true, other).map(Some),
            [Found::Useless(other), Found::Read(copy)] => self.use_alone(copy, false, other).map(Some),
            [Found::Useless(Useless::Damaged { reason, .. }), _] => Err(damaged(first, reason)),
            [_, Found::Useless(Useless::Damaged { reason, .. })] => Err(damaged(second, reason)),
            [Found::Useless(Useless::Unreadable(error)), _]
            | [_, Found::Useless(Useless::Unreadable(error))] => Err(RecordLogError::Disk(error)),
        }
    }

    /// The path of the copy that is used, and of the other one.
    fn used_and_other(&self, first_is_used: bool) -> [&Path; 2] {
        let [first, second] = &self.paths;
        if first_is_used { [first, second] } else { [second, first] }
    }

    /// The records of two copies that have a header.
    fn choose(&self, first: Copy, second: Copy) -> Result<Records, RecordLogError> {
        let common = first.end.min(second.end);
        if first.bytes.get(..common) != second.bytes.get(..common) {
            return Err(RecordLogError::Differ { paths: self.paths.clone() });
        }
        let first_is_used = match (&first.defect, &second.defect) {
            (None, None) => first.end >= second.end,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(reason), Some(_)) => return Err(damaged(self.path(), reason.clone())),
        };
        let (copy, other) = if first_is_used { (first, second) } else { (second, first) };
        let [_, other_path] = self.used_and_other(first_is_used);
        let defect = match other.defect {
            Some(reason) if first_is_used && has_head(other.bytes.get(copy.end..)) => {
                return Err(older_copy(other_path, reason));
            }
            Some(reason) => Some(self.beside(&copy, first_is_used, reason, &other.bytes)?),
            None if other.end == copy.end => None,
            None => {
                let (has, not) = (other.records.len(), copy.records.len());
                Some(Defect::new(other_path, format!("older than its copy: {has} records, not {not}")))
            }
        };
        Ok(copy.into_records(first_is_used, defect))
    }

    /// The records of a copy beside one that has none to use.
    fn use_alone(&self, copy: Copy, is_first: bool, other: Useless) -> Result<Records, RecordLogError> {
        let [path, other_path] = self.used_and_other(is_first);
        if let Some(reason) = copy.defect {
            return Err(damaged(path, reason));
        }
        let defect = match other {
            Useless::Missing => Defect::missing(other_path),
            Useless::Unreadable(error) => Defect::new(other_path, error.to_string()),
            Useless::Damaged { reason, bytes } => self.beside(&copy, is_first, reason, &bytes)?,
        };
        Ok(copy.into_records(is_first, Some(defect)))
    }

    /// The defect of a copy with these bytes beside a whole one. It is refused if it has a record behind the end of that.
    fn beside(
        &self,
        whole: &Copy,
        whole_is_first: bool,
        reason: String,
        bytes: &[u8],
    ) -> Result<Defect, RecordLogError> {
        let [_, path] = self.used_and_other(whole_is_first);
        let rest = bytes.get(whole.end..).unwrap_or_default();
        if (0..rest.len()).any(|offset| rest.get(offset..).and_then(record).is_some()) {
            return Err(older_copy(path, reason));
        }
        Ok(Defect::new(path, reason))
    }

    async fn find(&self, disk: &dyn Disk, path: &Path) -> Result<Found, RecordLogError> {
        let useless = |useless| Ok(Found::Useless(useless));
        let bytes = match disk.read(path).await {
            Ok(bytes) => bytes,
            Err(error) if is_absent(&error) => return useless(Useless::Missing),
            Err(error) => return useless(Useless::Unreadable(error)),
        };
        let Some(header) = Header::read(&bytes) else {
            let reason = "the file ends inside its header".to_owned();
            return useless(Useless::Damaged { reason, bytes });
        };
        if !header.is_intact || header.magic != self.kind.magic {
            return useless(Useless::Damaged { reason: "its header is damaged".to_owned(), bytes });
        }
        if header.version > self.kind.version {
            let (path, known) = (path.to_path_buf(), self.kind.version);
            return Err(RecordLogError::Version { path, version: header.version, known });
        }
        if header.number != self.number {
            // Its records are those of another log.
            let reason = format!("it has number {}, not {}", header.number, self.number);
            return useless(Useless::Damaged { reason, bytes: Bytes::new() });
        }
        Ok(Found::Read(Copy::read(&bytes, header.length)))
    }

    /// Makes the records that were read durable, and gives them to the other copy. Both are written in place, which needs no room that
    /// they do not have. An error: no copy that has all of the records could be made durable.
    pub async fn mend(&self, disk: &dyn Disk, records: &Records) -> Result<Mended, DiskError> {
        let [used, other] = self.used_and_other(records.first_is_used);
        let failure = match write_in_place(disk, used, records.bytes.clone()).await {
            Ok(_) => None,
            Err(error) if records.defect.is_some() => return Err(error),
            Err(error) => Some(error),
        };
        match (failure, write_in_place(disk, other, records.bytes.clone()).await) {
            (None, Ok(true)) => Ok(Mended { defect: None, is_durable: true }),
            (None, Ok(false)) => Ok(Mended { defect: records.defect.clone(), is_durable: true }),
            (None, Err(error)) if is_absent(&error) => {
                Ok(Mended { defect: Some(Defect::missing(other)), is_durable: true })
            }
            // What a crash leaves in that copy may be another end of the log.
            (None, Err(error)) => {
                Ok(Mended { defect: Some(Defect::new(other, error.to_string())), is_durable: false })
            }
            (Some(error), Ok(_)) => {
                Ok(Mended { defect: Some(Defect::new(used, error.to_string())), is_durable: false })
            }
            (Some(_), Err(error)) => Err(error),
        }
    }

    /// Whether either copy has records, perhaps torn or damaged ones. A log that was being made has none.
    pub async fn has_records(&self, disk: &dyn Disk) -> Result<bool, DiskError> {
        for path in &self.paths {
            match disk.read(path).await {
                Ok(bytes) if bytes.iter().skip(HEADER_BYTES).any(|byte| *byte != 0) => return Ok(true),
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Removes both copies. The removal is not durable.
    pub async fn remove(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        for path in &self.paths {
            match disk.remove(path).await {
                Err(error) if !is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

struct Header {
    magic: [u8; 4],
    version: u8,
    number: u64,
    length: u64,
    /// Its checksum is right.
    is_intact: bool,
}

impl Header {
    /// `None`: the bytes end inside it.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (version, rest) = rest.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let checksum = u32::from_le_bytes(*rest.first_chunk()?);
        let covered = bytes.get(..bytes.len() - rest.len())?;
        Some(Self {
            magic: *magic,
            version: *version,
            number: u64::from_le_bytes(*number),
            length: u64::from_le_bytes(*length),
            is_intact: crc32fast::hash(covered) == checksum,
        })
    }
}

impl Copy {
    /// `length`: that of the file, as its header states it.
    fn read(bytes: &Bytes, length: u64) -> Self {
        let is_cut = (bytes.len() as u64) < length;
        let written = bytes.slice(..usize::try_from(length).map_or(bytes.len(), |end| end.min(bytes.len())));
        let (mut records, mut end) = (Vec::new(), HEADER_BYTES);
        let defect = loop {
            let rest = written.get(end..).unwrap_or_default();
            if rest.iter().all(|byte| *byte == 0) {
                break is_cut.then(|| format!("the file was cut to {} of {length} bytes", bytes.len()));
            }
            match record(rest) {
                Some(record_length) => {
                    let next = end + RECORD_HEAD_BYTES + record_length;
                    records.push(written.slice(end + RECORD_HEAD_BYTES..next));
                    end = next;
                }
                None => break Some(format!("the record at byte {end} is damaged or torn")),
            }
        };
        Self { bytes: written, records, end, defect }
    }

    fn into_records(self, first_is_used: bool, defect: Option<Defect>) -> Records {
        Records { contents: self.records, defect, first_is_used, bytes: self.bytes }
    }
}

/// Writes a copy again. A file system that needs room for that may have none: then what it has is made durable, and false is returned.
async fn write_in_place(disk: &dyn Disk, path: &Path, bytes: Bytes) -> Result<bool, DiskError> {
    let file = disk.open(path).await?;
    match file.write_and_sync_at(0, bytes).await {
        Err(error) if error.is_full() && !error.is_sync() => file.sync_data().await.map(|()| false),
        written => written.map(|()| true),
    }
}

/// Whether bytes begin with what may be the head of a record. One flipped bit among zeros is none.
fn has_head(bytes: Option<&[u8]>) -> bool {
    let head = bytes.and_then(|bytes| bytes.split_first_chunk::<4>());
    head.is_some_and(|(length, rest)| {
        let checksum = rest.first_chunk::<4>();
        *length != [0; 4] && checksum.is_some_and(|checksum| *checksum != [0; 4])
    })
}

/// The length of the contents of the record that some bytes begin with; `None`: it is not there, or not whole.
fn record(bytes: &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let contents = rest.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    (!contents.is_empty() && u32::from_le_bytes(*checksum) == record_checksum(*length, contents))
        .then_some(contents.len())
}

fn record_checksum(length: [u8; 4], contents: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(contents);
    hasher.finalize()
}

impl RecordLog {
    /// The number in its header and the number of its records.
    pub fn number_and_count(&self) -> (u64, u64) {
        (self.number, self.count)
    }

    /// Whether a record with contents of this length can be appended.
    pub fn has_room(&self, contents_bytes: usize) -> bool {
        let record_bytes = (RECORD_HEAD_BYTES + contents_bytes) as u64;
        self.takes_records && contents_bytes > 0 && record_bytes <= self.length - self.end
    }

    /// Appends a record for which [`RecordLog::has_room`] is true. Only one append may run at a time.
    pub async fn append(&mut self, disk: &dyn Disk, contents: &[u8]) -> Result<(), ReplaceError> {
        // Also if it is given up: then its parts are there, and nothing may be written over them.
        self.takes_records = false;
        let length = (contents.len() as u32).to_le_bytes();
        let checksum = record_checksum(length, contents).to_le_bytes();
        let record = Bytes::from([&length[..], &checksum, contents].concat());
        for (index, file) in self.files.iter().enumerate() {
            if let Err(error) = file.write_and_sync_at(self.end, record.clone()).await {
                return Err(self.take_back(disk, index, record.len(), error).await);
            }
        }
        self.end += record.len() as u64;
        self.count += 1;
        self.takes_records = true;
        Ok(())
    }

    /// Writes zeros over a record whose append has failed at this copy: there, and then in the one before it.
    async fn take_back(
        &self,
        disk: &dyn Disk,
        failed: usize,
        record_bytes: usize,
        error: DiskError,
    ) -> ReplaceError {
        for (path, file) in self.paths.iter().zip(&self.files).take(failed + 1).rev() {
            let zeros = Bytes::from(vec![0; record_bytes]);
            let mut written = file.write_and_sync_at(self.end, zeros).await;
            let may_be_zeros = !error.is_sync();
            if matches!(&written, Err(next) if may_be_zeros && next.is_full() && !next.is_sync())
                && self.has_zeros(disk, path, record_bytes).await
            {
                written = file.sync_data().await;
            }
            if let Err(next) = written {
                tracing::warn!(error = %next, "a record that could not be written could not be taken back either");
                return ReplaceError::Unknown(error);
            }
        }
        ReplaceError::Unchanged(error)
    }

    /// Whether a copy reads as zeros where the next record goes.
    async fn has_zeros(&self, disk: &dyn Disk, path: &Path, record_bytes: usize) -> bool {
        let Ok(bytes) = disk.read(path).await else { return false };
        let rest = usize::try_from(self.end).ok().and_then(|end| bytes.get(end..));
        let place = rest.and_then(|rest| rest.get(..record_bytes));
        place.is_some_and(|place| place.iter().all(|byte| *byte == 0))
    }
}

#[cold]
fn older_copy(path: &Path, reason: String) -> RecordLogError {
    RecordLogError::OlderCopy { path: path.to_path_buf(), reason }
}

#[cold]
fn damaged(path: &Path, reason: String) -> RecordLogError {
    RecordLogError::Damaged { path: path.to_path_buf(), reason }
}
