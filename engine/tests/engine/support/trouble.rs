//! Trouble that comes and goes while a shard lives: a table file that is missing, cut short or damaged, and a full disk. While it lasts, the
//! shard may refuse, if the error says why. It may not answer wrongly, and when the trouble is over it has everything.

use std::path::{Path, PathBuf};

use helenus_engine::EngineError;
use helenus_engine::io::{SimulatedDisk, SplitMix64};

use super::{DIRECTORY, TABLE};

/// The bytes that writes keep free in tests with a full disk.
pub const RESERVE_BYTES: u64 = 32 << 10;

enum Kind {
    /// A file is missing, or a part of it. `contents`: what it held.
    Gone {
        path: PathBuf,
        contents: Vec<u8>,
    },
    /// One bit of a file has flipped.
    Flipped {
        path: PathBuf,
        bit: u64,
    },
    FullDisk,
}

/// At most one kind at a time.
#[derive(Default)]
pub struct Trouble {
    now: Option<Kind>,
    /// Requests that were refused because of a file.
    pub refused_for_damage: u64,
    /// Requests that were refused because of the full disk.
    pub refused_for_room: u64,
}

impl Trouble {
    pub fn lasts(&self) -> bool {
        self.now.is_some()
    }

    pub fn begin(&mut self, disk: &SimulatedDisk, random: &mut SplitMix64) {
        assert!(!self.lasts(), "one at a time");
        let tables = Path::new(DIRECTORY).join("tables").join(TABLE.to_string());
        let mut files: Vec<_> =
            disk.files().into_iter().filter(|(path, _)| path.starts_with(&tables)).collect();
        let choice = random.below(4);
        if choice == 0 || files.is_empty() {
            disk.set_capacity_bytes(disk.used_bytes() + random.below(3 * RESERVE_BYTES));
            self.now = Some(Kind::FullDisk);
            return;
        }
        let (path, contents) = files.swap_remove(random.below(files.len() as u64) as usize);
        let length = contents.len() as u64;
        self.now = Some(match choice {
            1 => {
                disk.set_at_rest(&path, None);
                Kind::Gone { path, contents }
            }
            2 => {
                disk.set_at_rest(&path, Some(&contents[..random.below(length) as usize]));
                Kind::Gone { path, contents }
            }
            _ => {
                let bit = random.below(8 * length);
                assert!(disk.flip_bit(&path, bit));
                Kind::Flipped { path, bit }
            }
        });
    }

    /// Puts everything right on the disk. The shard has yet to notice.
    pub fn end(&mut self, disk: &SimulatedDisk) {
        match self.now.take() {
            None => {}
            Some(Kind::FullDisk) => disk.set_capacity_bytes(u64::MAX),
            Some(Kind::Gone { path, contents }) => disk.set_at_rest(&path, Some(&contents)),
            // The file may have been compacted before the bit was read.
            Some(Kind::Flipped { path, bit }) => drop(disk.flip_bit(&path, bit)),
        }
    }

    pub fn end_full_disk(&mut self, disk: &SimulatedDisk) {
        if matches!(self.now, Some(Kind::FullDisk)) {
            self.end(disk);
        }
    }

    /// The outcome, or `None` if the trouble explains the error. Panics on any other error.
    pub fn explains<T>(&mut self, outcome: Result<T, EngineError>) -> Option<T> {
        let error = match outcome {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        match &self.now {
            Some(Kind::Gone { path, .. } | Kind::Flipped { path, .. }) => {
                let name = path.display().to_string();
                assert!(error.to_string().contains(&name), "{error} does not name {name}");
                self.refused_for_damage += 1;
            }
            Some(Kind::FullDisk) => {
                let is_refusal = matches!(error, EngineError::NoRoom(_) | EngineError::FlushFailed(_));
                assert!(is_refusal, "{error:?}");
                self.refused_for_room += 1;
            }
            None => panic!("{error}"),
        }
        None
    }
}
