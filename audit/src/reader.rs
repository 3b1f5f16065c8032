//! Reads the files of a full query log in their order.
//!
//! Invariant: what is not as it was written is named with its file and offset. Only the end of a file may be missing: the node was killed, or
//! its disk was full. Then reading goes on with the next file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::query_log::NAMES;
use crate::record::{BODY_BYTES_MAX, HEAD, RECORD_HEAD_BYTES, Record};

/// The reason why reading ends early.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{0} has no files of a full query log (queries-NUMBER.fql)")]
    Empty(PathBuf),
    #[error("{path} is no file of a full query log that this program knows")]
    Foreign { path: PathBuf },
    #[error("{path}: the record at offset {offset} is damaged: {reason}")]
    Damaged { path: PathBuf, offset: u64, reason: String },
}

/// The place of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    pub offset: u64,
}

/// What is found next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Record(Record),
    /// The file ends within a record.
    CutOff,
}

/// The records of a directory, or of one file.
#[derive(Debug)]
pub struct LogReader {
    files: VecDeque<PathBuf>,
    current: Option<(PathBuf, BufReader<File>, u64)>,
}

impl LogReader {
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |source| ReadError::File { path: path.to_owned(), source };
        let files: VecDeque<PathBuf> = if path.metadata().map_err(failed)?.is_dir() {
            NAMES.list(path).map_err(failed)?.into_iter().map(|(_, file)| file).collect()
        } else {
            VecDeque::from([path.to_owned()])
        };
        if files.is_empty() {
            return Err(ReadError::Empty(path.to_owned()));
        }
        Ok(Self { files, current: None })
    }

    /// The next record, or the end of a file that is cut off, with its place; `None`: there is nothing more.
    pub fn read(&mut self) -> Result<Option<(Place, Item)>, ReadError> {
        loop {
            let (path, mut file, offset) = match self.current.take() {
                Some(current) => current,
                None => match self.files.pop_front() {
                    None => return Ok(None),
                    Some(path) => {
                        let opened = File::open(&path);
                        let file = opened.map_err(|source| ReadError::File { path: path.clone(), source })?;
                        (path, BufReader::new(file), 0)
                    }
                },
            };
            let failed = |source| ReadError::File { path: path.clone(), source };
            let place = Place { path: path.clone(), offset };
            if offset == 0 {
                let head = read_up_to(&mut file, HEAD.len()).map_err(failed)?;
                if head.len() < HEAD.len() && HEAD.starts_with(&head) {
                    return Ok(Some((place, Item::CutOff)));
                }
                if head != HEAD {
                    return Err(ReadError::Foreign { path });
                }
                self.current = Some((path, file, HEAD.len() as u64));
                continue;
            }
            let head = read_up_to(&mut file, RECORD_HEAD_BYTES).map_err(failed)?;
            if head.is_empty() {
                continue;
            }
            let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = head.first_chunk::<RECORD_HEAD_BYTES>() else {
                return Ok(Some((place, Item::CutOff)));
            };
            let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
            let damaged = |reason: String| ReadError::Damaged { path: path.clone(), offset, reason };
            if length > BODY_BYTES_MAX {
                return Err(damaged(format!("its length is {length} bytes")));
            }
            let body = read_up_to(&mut file, length).map_err(failed)?;
            if body.len() < length {
                return Ok(Some((place, Item::CutOff)));
            }
            if crc32fast::hash(&body) != u32::from_be_bytes([c0, c1, c2, c3]) {
                return Err(damaged("its checksum is wrong".to_owned()));
            }
            let record = Record::decode(&body).map_err(|error| damaged(error.to_string()))?;
            let next = offset + (RECORD_HEAD_BYTES + length) as u64;
            self.current = Some((path, file, next));
            return Ok(Some((place, Item::Record(record))));
        }
    }
}

/// Reads the given number of bytes, or fewer at the end of the file. Allocates for the bytes that the file has, not for a length that it claims.
fn read_up_to(file: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::request;

    fn file(records: &[Record]) -> Vec<u8> {
        HEAD.iter().copied().chain(records.iter().flat_map(Record::encode)).collect()
    }

    fn all(directory: &Path) -> Result<Vec<Item>, ReadError> {
        let mut reader = LogReader::open(directory)?;
        let mut items = Vec::new();
        while let Some((_, item)) = reader.read()? {
            items.push(item);
        }
        Ok(items)
    }

    #[test]
    fn a_file_that_is_cut_off_is_followed_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: u64| directory.path().join(format!("queries-{number:010}.fql"));
        let records = [Record::Request(request(1, 1, "SELECT")), Record::Gap(3)];
        let whole = file(&records);
        std::fs::write(path(2), &whole).unwrap();
        for length in [0, 5, HEAD.len() + 3, whole.len() - 1] {
            std::fs::write(path(1), &whole[..length]).unwrap();
            let items = all(directory.path()).unwrap();
            let cut = items.iter().position(|item| *item == Item::CutOff).unwrap();
            assert_eq!(items[cut + 1..], records.clone().map(Item::Record), "{length}");
        }
        std::fs::write(path(1), &whole[..HEAD.len()]).unwrap();
        assert_eq!(all(directory.path()).unwrap(), records.map(Item::Record));
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("queries-0000000001.fql");
        let first = Record::Gap(1).encode().len();
        let mut bytes = file(&[Record::Gap(1), Record::Gap(2), Record::Gap(3)]);
        *bytes.get_mut(HEAD.len() + first + 12).unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = all(directory.path()).unwrap_err().to_string();
        let place = format!("the record at offset {} is damaged: its checksum is wrong", HEAD.len() + first);
        assert!(error.starts_with(&path.display().to_string()) && error.ends_with(&place), "{error}");
        std::fs::write(&path, b"something else").unwrap();
        assert!(matches!(all(&path), Err(ReadError::Foreign { .. })));
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(all(empty.path()), Err(ReadError::Empty(_))));
    }
}
