//! The rotating files of a log: numbered, closed at a size or an age, and the oldest removed above a number of files.
//!
//! Invariants:
//! * A start continues no file: the first record goes to a new one.
//! * A file that could not be written is cut back to its last whole record if the disk allows it, and no more is written to it. So only the
//!   end of a file can lack something.
//! * The oldest files are removed first; never the one that is written to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often a new file is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollCycle {
    Minutely,
    Hourly,
    Daily,
}

impl RollCycle {
    pub const ALL: [Self; 3] = [Self::Minutely, Self::Hourly, Self::Daily];

    pub fn name(self) -> &'static str {
        match self {
            Self::Minutely => "MINUTELY",
            Self::Hourly => "HOURLY",
            Self::Daily => "DAILY",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cycle| cycle.name().eq_ignore_ascii_case(name))
    }

    fn seconds(self) -> u64 {
        match self {
            Self::Minutely => 60,
            Self::Hourly => 3_600,
            Self::Daily => 86_400,
        }
    }
}

/// Where a log is, and how much of it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    pub directory: PathBuf,
    /// Size in bytes at which a file is closed and the next one begins.
    pub file_bytes_max: u64,
    /// Bytes of all files above which the oldest is removed.
    pub log_bytes_max: u64,
    /// Files that are kept; 0: any number.
    pub files_max: usize,
    pub cycle: RollCycle,
}

/// What the names of a log's files have around their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileNames {
    pub prefix: &'static str,
    pub suffix: &'static str,
}

impl FileNames {
    fn name(self, number: u64) -> String {
        format!("{}-{number:010}.{}", self.prefix, self.suffix)
    }

    fn number(self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(self.prefix)?.strip_prefix('-')?;
        digits.strip_suffix(self.suffix)?.strip_suffix('.')?.parse().ok()
    }

    /// The files of a directory with their numbers, the oldest first. A directory that is not there has none.
    pub fn list(self, directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(|name| self.number(name)) {
                files.push((number, entry.path()));
            }
        }
        files.sort_unstable();
        Ok(files)
    }
}

/// The file that is written to.
#[derive(Debug)]
struct Current {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The number of the cycle in which it was begun.
    cycle: u64,
}

/// Writes records to numbered files.
#[derive(Debug)]
pub struct RotatingFiles {
    rotation: Rotation,
    names: FileNames,
    /// What every file begins with.
    head: &'static [u8],
    current: Option<Current>,
}

impl RotatingFiles {
    /// Makes the directory. No file is made before there is something to write.
    pub fn open(rotation: Rotation, names: FileNames, head: &'static [u8]) -> io::Result<Self> {
        fs::create_dir_all(&rotation.directory)?;
        Ok(Self { rotation, names, head, current: None })
    }

    /// Writes whole records. After an error none of them counts as written.
    pub fn write(&mut self, records: &[Vec<u8>]) -> io::Result<()> {
        let mut together = Vec::new();
        for record in records {
            let pending = together.len() as u64;
            let is_full = self.current.as_ref().is_some_and(|current| {
                current.bytes + pending > self.head.len() as u64
                    && current.bytes + pending + record.len() as u64 > self.rotation.file_bytes_max
            });
            if is_full {
                self.append(&together)?;
                together.clear();
                self.current = None;
            }
            together.extend_from_slice(record);
            if self.current.is_none() {
                self.begin_file()?;
            }
        }
        self.append(&together)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let now = cycle_now(self.rotation.cycle);
        if self.current.as_ref().is_some_and(|current| current.cycle != now) {
            self.current = None;
        }
        if self.current.is_none() {
            self.begin_file()?;
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        match current.file.write_all(bytes) {
            Ok(()) => {
                current.bytes += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // If this fails too, readers pass over the end that is cut off.
                let _ = if current.bytes > self.head.len() as u64 {
                    current.file.set_len(current.bytes)
                } else {
                    fs::remove_file(&current.path)
                };
                self.current = None;
                Err(error)
            }
        }
    }

    fn begin_file(&mut self) -> io::Result<()> {
        let files = self.names.list(&self.rotation.directory)?;
        let number = files.last().map_or(1, |(number, _)| number + 1);
        self.remove_oldest(&files)?;
        let path = self.rotation.directory.join(self.names.name(number));
        let mut file = open_new(&path)?;
        if let Err(error) = file.write_all(self.head) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        let bytes = self.head.len() as u64;
        self.current = Some(Current { path, file, bytes, cycle: cycle_now(self.rotation.cycle) });
        Ok(())
    }

    /// Makes room for one file more.
    fn remove_oldest(&self, files: &[(u64, PathBuf)]) -> io::Result<()> {
        let sizes: Vec<u64> =
            files.iter().map(|(_, path)| fs::metadata(path).map_or(0, |metadata| metadata.len())).collect();
        let mut total: u64 = sizes.iter().sum();
        let mut count = files.len();
        for ((_, path), bytes) in files.iter().zip(sizes) {
            let has_too_many = self.rotation.files_max > 0 && count >= self.rotation.files_max;
            if !has_too_many && total < self.rotation.log_bytes_max {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
            count -= 1;
        }
        Ok(())
    }
}

#[cfg(unix)]
fn open_new(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // What clients ask is for the owner of the process only.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn cycle_now(cycle: RollCycle) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / cycle.seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: FileNames = FileNames { prefix: "log", suffix: "txt" };

    fn rotation(directory: &Path) -> Rotation {
        Rotation {
            directory: directory.join("a/b"),
            file_bytes_max: 10,
            log_bytes_max: 1_000,
            files_max: 0,
            cycle: RollCycle::Daily,
        }
    }

    fn contents(rotation: &Rotation) -> Vec<String> {
        let files = NAMES.list(&rotation.directory).unwrap();
        files.iter().map(|(_, path)| fs::read_to_string(path).unwrap()).collect()
    }

    #[test]
    fn files_end_at_their_size_and_a_start_begins_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let rotation = rotation(directory.path());
        let records: Vec<Vec<u8>> = ["aaaa", "bbbb", "cccc", "a long record"].map(Into::into).into();
        let mut files = RotatingFiles::open(rotation.clone(), NAMES, b"h").unwrap();
        files.write(&records).unwrap();
        assert_eq!(contents(&rotation), ["haaaabbbb", "hcccc", "ha long record"]);
        RotatingFiles::open(rotation.clone(), NAMES, b"h").unwrap().write(&records[..1]).unwrap();
        assert_eq!(contents(&rotation).last().map(String::as_str), Some("haaaa"));
        let names: Vec<u64> = NAMES.list(&rotation.directory).unwrap().iter().map(|file| file.0).collect();
        assert_eq!(names, [1, 2, 3, 4]);
    }

    #[test]
    fn the_oldest_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let few = Rotation { files_max: 2, ..rotation(directory.path()) };
        let record = vec![b"0123456789".to_vec()];
        let mut files = RotatingFiles::open(few.clone(), NAMES, b"").unwrap();
        (0..5).for_each(|_| files.write(&record).unwrap());
        assert_eq!(contents(&few).len(), 2);
        let small = Rotation { log_bytes_max: 30, ..rotation(directory.path()) };
        let mut files = RotatingFiles::open(small.clone(), NAMES, b"").unwrap();
        (0..7).for_each(|_| files.write(&record).unwrap());
        assert_eq!(contents(&small).len(), 3);
        fs::write(small.directory.join("log-x.txt"), "").unwrap();
        assert_eq!(NAMES.list(&small.directory).unwrap().len(), 3);
    }
}
