//! A small file that is kept in two copies, so that the loss, the damage or the roll-back of either one loses nothing.
//!
//! The copies are `<name>` and `<name>.copy` of one directory. Their contents carry a number that rises with each replacement. Where it
//! stands is the owner's business; [`TwoCopies::load`] asks the owner's function for it.
//!
//! A replacement writes the contents under two temporary names (`….tmp`) and syncs both. Then it renames the first, renames the second,
//! and syncs the directory. It has taken effect when all of that is done, and only then may anything depend on it.
//!
//! | a crash comes | `<name>` | `<name>.copy` | the next start uses |
//! |---|---|---|---|
//! | before the first rename | old | old | old |
//! | between the renames | new | old | new, and writes both again before it does anything else |
//! | after the second rename | new | new | new |
//!
//! On a full disk the second renaming may be refused. Then the replacement takes effect with the first copy alone, and the next one
//! writes both.
//!
//! Both copies are valid in each row, because a name is only ever given to synced contents. So one that is missing, damaged or older
//! than the other was harmed from outside, or belongs to the second row. In the second row nothing depends on the new contents yet, so
//! the old ones would be as right.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::disk::{Disk, DiskError, DiskFile};

/// The place of a file that is kept in two copies.
#[derive(Debug, Clone)]
pub struct TwoCopies {
    directory: PathBuf,
    paths: [PathBuf; 2],
}

/// The effect of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    Both,
    /// The disk is full: the first copy has the new contents, the second one the old ones.
    FirstAlone,
}

/// The effect of a failed replacement.
#[derive(Debug, Clone, Error)]
pub enum ReplaceError {
    /// The old contents are valid.
    #[error(transparent)]
    Unchanged(DiskError),
    /// The old or the new contents are valid. It is not known before the next start.
    #[error(transparent)]
    Unknown(DiskError),
}

impl ReplaceError {
    /// The disk call that failed.
    pub fn into_disk_error(self) -> DiskError {
        match self {
            Self::Unchanged(error) | Self::Unknown(error) => error,
        }
    }
}

/// Why the owner's function cannot use a copy.
#[derive(Debug, Clone)]
pub enum Unusable<E> {
    /// The copy is damaged. The other one is used.
    Damaged(E),
    /// The file must not be used, whatever the other copy contains: a newer program wrote it.
    Refused(E),
}

/// Why there are no contents to use.
#[derive(Debug, Clone, Error)]
pub enum LoadError<E> {
    #[error(transparent)]
    Disk(DiskError),
    /// As the owner's function reported it.
    #[error("{0}")]
    Contents(E),
    #[error("{} and {} have the same number {number} and different contents", paths[0].display(), paths[1].display())]
    Differ { paths: [PathBuf; 2], number: u64 },
}

/// The newest contents.
#[derive(Debug, Clone)]
pub struct Newest<T> {
    pub value: T,
    /// The number of the contents.
    pub number: u64,
    /// The copy that must be written again, if one must.
    pub defect: Option<Defect>,
}

/// A copy that is not as it should be. It is displayed with its path.
#[derive(Debug, Clone)]
pub struct Defect {
    pub path: PathBuf,
    /// The copy does not exist.
    pub is_missing: bool,
    reason: String,
}

impl Defect {
    pub(super) fn new(path: &Path, reason: String) -> Self {
        Self { path: path.to_path_buf(), is_missing: false, reason }
    }

    pub(super) fn missing(path: &Path) -> Self {
        Self { is_missing: true, ..Self::new(path, "missing".to_owned()) }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.reason)
    }
}

/// A copy as it was found.
enum Found<T, E> {
    Missing,
    Unreadable(DiskError),
    Damaged(E),
    Valid { value: T, number: u64, bytes: Bytes },
}

impl<T, E: fmt::Display> Found<T, E> {
    /// Why the other copy is used; `None` if both are equal.
    fn reason(&self, used: u64) -> Option<String> {
        match self {
            Self::Missing => Some("missing".to_owned()),
            Self::Unreadable(error) => Some(error.to_string()),
            Self::Damaged(error) => Some(error.to_string()),
            Self::Valid { number, .. } if *number < used => {
                Some(format!("older than its copy: number {number}, not {used}"))
            }
            Self::Valid { .. } => None,
        }
    }
}

impl TwoCopies {
    /// The file `name` of a directory.
    pub fn new(directory: &Path, name: &str) -> Self {
        Self { directory: directory.to_path_buf(), paths: copies_of(directory, name) }
    }

    /// The path of the first copy, which messages name.
    pub fn path(&self) -> &Path {
        &self.paths[0]
    }

    /// Whether either copy exists.
    pub async fn exists(&self, disk: &dyn Disk) -> Result<bool, DiskError> {
        for path in &self.paths {
            match disk.length(path).await {
                Ok(_) => return Ok(true),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads both copies and returns the one with the higher number. `None`: neither exists. `decode` gets the path for its errors,
    /// and returns the number and the value. Nothing is changed on the disk: the caller replaces the file if [`Newest::defect`] says so.
    /// What cannot be decided is read once more: a bit that only one read flips is no damage.
    pub async fn load<T, E: fmt::Display>(
        &self,
        disk: &dyn Disk,
        decode: impl Fn(&Path, &Bytes) -> Result<(u64, T), Unusable<E>>,
    ) -> Result<Option<Newest<T>>, LoadError<E>> {
        match self.read(disk, &decode).await {
            Err(_) => self.read(disk, &decode).await,
            read => read,
        }
    }

    async fn read<T, E: fmt::Display>(
        &self,
        disk: &dyn Disk,
        decode: impl Fn(&Path, &Bytes) -> Result<(u64, T), Unusable<E>>,
    ) -> Result<Option<Newest<T>>, LoadError<E>> {
        let [first, second] = &self.paths;
        let found = (find(disk, first, &decode).await?, find(disk, second, &decode).await?);
        let (path, other, value, number) = match found {
            (
                Found::Valid { value, number, bytes },
                Found::Valid { value: other_value, number: other_number, bytes: other_bytes },
            ) => {
                if number == other_number && bytes != other_bytes {
                    return Err(LoadError::Differ { paths: self.paths.clone(), number });
                }
                if number >= other_number {
                    let other = Found::Valid { value: other_value, number: other_number, bytes: other_bytes };
                    (second, other, value, number)
                } else {
                    (first, Found::Valid { value, number, bytes }, other_value, other_number)
                }
            }
            (Found::Valid { value, number, .. }, other) => (second, other, value, number),
            (other, Found::Valid { value, number, .. }) => (first, other, value, number),
            (Found::Missing, Found::Missing) => return Ok(None),
            (Found::Damaged(error), _) | (_, Found::Damaged(error)) => {
                return Err(LoadError::Contents(error));
            }
            (Found::Unreadable(error), _) | (_, Found::Unreadable(error)) => {
                return Err(LoadError::Disk(error));
            }
        };
        let defect = other.reason(number).map(|reason| Defect {
            is_missing: matches!(other, Found::Missing),
            ..Defect::new(path, reason)
        });
        Ok(Some(Newest { value, number, defect }))
    }

    /// Replaces both copies. Only one replacement of a file may run at a time.
    pub async fn replace(&self, disk: &dyn Disk, contents: Bytes) -> Result<Replaced, ReplaceError> {
        let temporary = self.paths.clone().map(temporary);
        for path in &temporary {
            write_anew(disk, path, contents.clone()).await.map_err(ReplaceError::Unchanged)?;
        }
        let [first, second] = &self.paths;
        let [first_temporary, second_temporary] = &temporary;
        disk.rename(first_temporary, first).await.map_err(|error| {
            // On a full disk nothing was renamed.
            if error.is_full() { ReplaceError::Unchanged(error) } else { ReplaceError::Unknown(error) }
        })?;
        let replaced = match disk.rename(second_temporary, second).await {
            Ok(()) => Replaced::Both,
            // On a full disk nothing was renamed. The first copy is enough, and the next replacement writes both.
            Err(error) if error.is_full() => {
                tracing::warn!(%error, "the copy of a small file is not replaced until there is room");
                Replaced::FirstAlone
            }
            Err(error) => return Err(ReplaceError::Unknown(error)),
        };
        disk.sync_directory(&self.directory).await.map_err(ReplaceError::Unknown)?;
        Ok(replaced)
    }
}

fn temporary(path: PathBuf) -> PathBuf {
    let mut name = path.into_os_string();
    name.push(".tmp");
    PathBuf::from(name)
}

/// The two copies of the file `name`.
pub(super) fn copies_of(directory: &Path, name: &str) -> [PathBuf; 2] {
    [directory.join(name), directory.join(format!("{name}.copy"))]
}

pub(super) fn is_absent(error: &DiskError) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

async fn find<T, E>(
    disk: &dyn Disk,
    path: &Path,
    decode: impl Fn(&Path, &Bytes) -> Result<(u64, T), Unusable<E>>,
) -> Result<Found<T, E>, LoadError<E>> {
    let bytes = match disk.read(path).await {
        Ok(bytes) => bytes,
        Err(error) if is_absent(&error) => return Ok(Found::Missing),
        Err(error) => return Ok(Found::Unreadable(error)),
    };
    match decode(path, &bytes) {
        Ok((number, value)) => Ok(Found::Valid { value, number, bytes }),
        Err(Unusable::Damaged(error)) => Ok(Found::Damaged(error)),
        Err(Unusable::Refused(error)) => Err(LoadError::Contents(error)),
    }
}

/// Writes and syncs a file. What a crash has left under its name is removed first.
async fn write_anew(disk: &dyn Disk, path: &Path, contents: Bytes) -> Result<(), DiskError> {
    create_anew(disk, path).await?.write_and_sync_at(0, contents).await
}

/// Creates a file. What a crash has left under its name is removed first.
pub(super) async fn create_anew(disk: &dyn Disk, path: &Path) -> Result<Arc<dyn DiskFile>, DiskError> {
    match disk.create(path).await {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove(path).await?;
            disk.create(path).await
        }
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::{CrashStyle, Persistence, ReadCorruption, SimulatedDisk};

    /// Contents are a number as text.
    fn decode(_: &Path, bytes: &Bytes) -> Result<(u64, u64), Unusable<String>> {
        let text = String::from_utf8_lossy(bytes);
        match text.parse() {
            Ok(number) => Ok((number, number)),
            Err(_) if text.starts_with("newer") => Err(Unusable::Refused(text.into_owned())),
            Err(_) => Err(Unusable::Damaged(format!("{text:?} is no number"))),
        }
    }

    fn file() -> TwoCopies {
        TwoCopies::new(Path::new("/"), "file")
    }

    fn replace(disk: &SimulatedDisk, number: u64) -> Result<Replaced, ReplaceError> {
        block_on(file().replace(disk, Bytes::from(number.to_string())))
    }

    fn load(disk: &SimulatedDisk) -> Result<Option<Newest<u64>>, LoadError<String>> {
        block_on(file().load(disk, decode))
    }

    fn newest(disk: &SimulatedDisk) -> (u64, Option<String>) {
        let newest = load(disk).unwrap().unwrap();
        (newest.value, newest.defect.map(|defect| defect.to_string()))
    }

    #[test]
    fn the_old_or_the_new_contents_are_there_wherever_a_crash_comes() {
        for point in 0.. {
            for style in CrashStyle::ALL {
                let disk = SimulatedDisk::new(point);
                replace(&disk, 1).unwrap();
                disk.crash_at(disk.operations() + point);
                let replaced = replace(&disk, 2);
                disk.restart(style, point);
                let (number, defect) = newest(&disk);
                match replaced {
                    Ok(replaced) => {
                        assert_eq!(replaced, Replaced::Both);
                        assert_eq!((number, defect), (2, None));
                        if style == CrashStyle::ALL[5] {
                            return;
                        }
                    }
                    Err(ReplaceError::Unchanged(_)) => assert_eq!((number, defect), (1, None)),
                    Err(ReplaceError::Unknown(_)) => {
                        assert!(number == 1 || number == 2);
                        assert!(defect.is_none() || number == 2, "only the second copy can be older");
                    }
                }
                // Whatever was found, it can be replaced, and is then in both copies.
                replace(&disk, 3).unwrap();
                assert_eq!(newest(&disk), (3, None));
            }
        }
    }

    #[test]
    fn either_copy_may_be_missing_damaged_or_older() {
        for name in ["/file", "/file.copy"] {
            let path = Path::new(name);
            let disk = SimulatedDisk::new(1);
            assert!(load(&disk).unwrap().is_none());
            replace(&disk, 8).unwrap();
            let old = block_on(disk.read(path)).unwrap();
            replace(&disk, 9).unwrap();
            for contents in [None, Some(Bytes::from_static(b"rubbish")), Some(Bytes::new()), Some(old)] {
                disk.set_at_rest(path, contents.as_deref());
                let (number, defect) = newest(&disk);
                assert_eq!(number, 9);
                assert!(defect.unwrap().starts_with(&format!("{name}: ")), "{contents:?}");
                replace(&disk, 9).unwrap();
                assert_eq!(newest(&disk), (9, None));
            }
        }
    }

    #[test]
    fn a_bit_that_one_read_flips_is_no_damage() {
        let mut again = 0;
        for seed in 0..800 {
            let disk = SimulatedDisk::new(seed);
            replace(&disk, 99).unwrap();
            if seed % 2 == 0 {
                disk.set_at_rest(Path::new("/file.copy"), None);
            }
            disk.set_read_corruption(Some(ReadCorruption {
                path_contains: String::new(),
                reads_per_mille: 300,
                bits_max: 1,
                persistence: Persistence::Transient,
            }));
            let begin = disk.operations();
            let loaded = load(&disk);
            if disk.corrupt_reads() == 1 && disk.operations() - begin > 2 {
                assert_eq!(loaded.unwrap().unwrap().value, 99, "{seed}");
                again += 1;
            }
        }
        assert!(again > 20, "{again}");
    }

    #[test]
    fn what_cannot_be_decided_is_refused() {
        let disk = SimulatedDisk::new(1);
        replace(&disk, 1).unwrap();
        disk.set_at_rest(Path::new("/file"), Some(b"01"));
        let error = load(&disk).unwrap_err();
        assert!(error.to_string().contains("/file and /file.copy have the same number 1"), "{error}");
        disk.set_at_rest(Path::new("/file"), Some(b"newer"));
        assert!(matches!(load(&disk), Err(LoadError::Contents(_))), "although the other copy is valid");
        disk.set_at_rest(Path::new("/file"), Some(b"x"));
        disk.set_at_rest(Path::new("/file.copy"), None);
        assert!(matches!(load(&disk), Err(LoadError::Contents(_))), "damaged, and the other one is missing");
    }
}
