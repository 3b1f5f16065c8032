//! Tearing the end of the commit log as a power failure could.
//!
//! Knows nothing of the log's format: the files are compared with an image taken when everything acknowledged was on
//! disk. The first byte that differs belongs to what was written later, and everything from a random point behind
//! it on is destroyed: zeroed up to the file's end or overwritten, sometimes with garbage added at the end. A file keeps the length that it
//! had in the image: that was durable. Files that appeared meanwhile are left alone, and so are the shards they belong to: their older file is
//! complete.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::SoakError;
use crate::random::Random;

/// Contents of every commit-log file of a node, by shard directory.
#[derive(Debug)]
pub struct LogImage {
    shards: BTreeMap<PathBuf, BTreeMap<PathBuf, Vec<u8>>>,
}

impl LogImage {
    /// Reads `<data-dir>/shard-<n>/commit-log/*` of a node that is idle or gone.
    pub fn read(data_dir: &Path) -> Result<Self, SoakError> {
        let mut shards = BTreeMap::new();
        for shard in entries(data_dir)? {
            let directory = shard.join("commit-log");
            if !directory.is_dir() {
                continue;
            }
            let mut files = BTreeMap::new();
            for path in entries(&directory)? {
                if path.is_file() {
                    let bytes = fs::read(&path).map_err(SoakError::io(path.display().to_string()))?;
                    files.insert(path, bytes);
                }
            }
            shards.insert(directory, files);
        }
        if shards.is_empty() {
            return Err(SoakError::Refused(format!("no commit log below {}", data_dir.display())));
        }
        Ok(Self { shards })
    }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, SoakError> {
    let context = || SoakError::io(directory.display().to_string());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(context())? {
        paths.push(entry.map_err(context())?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Tears what was added since the image; returns how many files were torn. The node must be gone.
pub fn tear(before: &LogImage, data_dir: &Path, random: &mut Random) -> Result<u64, SoakError> {
    let after = LogImage::read(data_dir)?;
    let mut torn = 0;
    for (directory, files) in &after.shards {
        let Some(known) = before.shards.get(directory) else { continue };
        if !files.keys().eq(known.keys()) {
            continue;
        }
        let changed: Vec<(&PathBuf, usize, usize, u64)> = files
            .iter()
            .filter_map(|(path, bytes)| {
                let old = known.get(path)?;
                let (first, end) = difference(old, bytes)?;
                Some((path, first, end, old.len() as u64))
            })
            .collect();
        // More than one changed file: the older one was completed before the newer one was begun, so tearing it
        // would be damage, not a torn end.
        if let [(path, first, end, length)] = changed[..] {
            tear_file(path, first, end, length, random)?;
            torn += 1;
        }
    }
    Ok(torn)
}

/// Range of the bytes that are new in `after`: from the first that differs to behind the last.
fn difference(before: &[u8], after: &[u8]) -> Option<(usize, usize)> {
    let common = before.len().min(after.len());
    let first = before.iter().zip(after).position(|(old, new)| old != new).unwrap_or(common);
    if first == after.len() {
        return None;
    }
    let end = if after.len() > before.len() {
        after.len()
    } else {
        (first..after.len()).rev().find(|&at| before.get(at) != after.get(at)).map_or(first, |at| at + 1)
    };
    Some((first, end))
}

/// `length`: what the file keeps at least, in bytes.
fn tear_file(
    path: &Path,
    first: usize,
    end: usize,
    length: u64,
    random: &mut Random,
) -> Result<(), SoakError> {
    let from = random.between(first as u64, end as u64);
    let garbage =
        |random: &mut Random, length: u64| -> Vec<u8> { (0..length).map(|_| random.next() as u8).collect() };
    let apply = |random: &mut Random| -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        match random.between(0, 3) {
            0 => {
                file.set_len(from)?;
                file.set_len(length.max(from))?;
            }
            1 => {
                file.seek(SeekFrom::Start(from))?;
                file.write_all(&vec![0; end - from as usize])?;
            }
            2 => {
                let length = end as u64 - from + random.between(1, 4_096);
                file.seek(SeekFrom::Start(from))?;
                file.write_all(&garbage(random, length))?;
            }
            _ => {
                file.set_len(from)?;
                file.seek(SeekFrom::End(0))?;
                let count = random.between(1, 65_536);
                file.write_all(&garbage(random, count))?;
                file.set_len(length.max(from + count))?;
            }
        }
        file.sync_all()
    };
    apply(random).map_err(SoakError::io(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_file(data_dir: &Path, name: &str) -> PathBuf {
        let directory = data_dir.join("shard-0/commit-log");
        fs::create_dir_all(&directory).expect("temporary directory");
        directory.join(name)
    }

    #[test]
    fn what_was_there_before_the_image_is_never_touched() {
        for seed in 0..200 {
            let home = tempfile::tempdir().expect("temporary directory");
            let file = log_file(home.path(), "segment-1.log");
            // A preallocated file: 100 bytes of groups, then zeros.
            fs::write(&file, [&[7_u8; 100][..], &[0; 400]].concat()).expect("write");
            let before = LogImage::read(home.path()).expect("image");
            fs::write(&file, [&[7_u8; 100][..], &[9; 50], &[0; 350]].concat()).expect("write");
            let torn = tear(&before, home.path(), &mut Random::new(seed)).expect("tear");
            let after = fs::read(&file).expect("read");
            assert_eq!(torn, 1);
            assert_eq!(after.get(..100), Some(&[7_u8; 100][..]), "seed {seed}");
        }
    }

    #[test]
    fn a_log_without_changes_or_with_new_files_is_left_alone() {
        let home = tempfile::tempdir().expect("temporary directory");
        fs::write(log_file(home.path(), "segment-1.log"), [7; 100]).expect("write");
        let before = LogImage::read(home.path()).expect("image");
        assert_eq!(tear(&before, home.path(), &mut Random::new(1)).expect("tear"), 0);
        fs::write(log_file(home.path(), "segment-2.log"), [7; 10]).expect("write");
        assert_eq!(tear(&before, home.path(), &mut Random::new(1)).expect("tear"), 0);
    }

    #[test]
    fn the_difference_is_from_the_first_to_behind_the_last_changed_byte() {
        assert_eq!(difference(b"abcdef", b"abcdef"), None);
        assert_eq!(difference(b"abcdef", b"aXcdYf"), Some((1, 5)));
        assert_eq!(difference(b"abc", b"abcdef"), Some((3, 6)));
    }
}
