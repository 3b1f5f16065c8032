//! Which master keys the files of a directory need, so that keys that nothing needs can be given up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use helenus_io::{Disk, DiskError};

use crate::header::{Beginning, HEADER_AREA_BYTES};

/// The files that one master key opens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyUse {
    pub files: u64,
    /// On the disk.
    pub bytes: u64,
}

/// The files below some directories, by the name of the master key that opens them; `None`: they are not encrypted. `disk` is the one
/// below the encrypted one. A file that disappears meanwhile is not counted.
pub async fn usage(
    disk: &dyn Disk,
    directories: Vec<PathBuf>,
) -> Result<BTreeMap<Option<String>, KeyUse>, DiskError> {
    let mut found: BTreeMap<Option<String>, KeyUse> = BTreeMap::new();
    let mut left = directories;
    while let Some(directory) = left.pop() {
        let entries = match disk.list(&directory).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let path = directory.join(&entry.name);
            if entry.is_directory {
                left.push(path);
                continue;
            }
            match beginning(disk, &path).await {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound || is_socket(&error) => {}
                Err(error) => return Err(error),
                // An empty file has nothing to encrypt.
                Ok((_, 0)) => {}
                Ok((id, bytes)) => {
                    let of_key = found.entry(id).or_default();
                    of_key.files += 1;
                    of_key.bytes += bytes;
                }
            }
        }
    }
    Ok(found)
}

/// The system's number of the error of opening a socket, as Linux has it: ENXIO.
const NO_DEVICE: i32 = 6;

/// Whether there is no file, but the socket of administration.
fn is_socket(error: &DiskError) -> bool {
    error.source.raw_os_error() == Some(NO_DEVICE)
}

async fn beginning(disk: &dyn Disk, path: &Path) -> Result<(Option<String>, u64), DiskError> {
    let file = disk.open_complete(path).await?;
    let mut bytes = vec![0; file.length().min(HEADER_AREA_BYTES as u64) as usize];
    file.read_at(0, &mut bytes)?;
    let id = match Beginning::read(&bytes) {
        Beginning::Encrypted(header) => Some(header.key_id()),
        Beginning::Plain | Beginning::Damaged => None,
    };
    Ok((id, file.length()))
}
