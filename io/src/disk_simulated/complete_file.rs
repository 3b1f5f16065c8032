//! A complete file of a simulated disk, read in parts.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::state::{DiskState, crashed, lock};
use crate::disk::{CompleteFile, DiskError, DiskFuture};
use crate::yield_now::yield_now;

pub(super) struct SimulatedCompleteFile {
    pub(super) state: Arc<Mutex<DiskState>>,
    pub(super) inode: u64,
    pub(super) length: u64,
    pub(super) path: PathBuf,
    pub(super) life: u64,
    pub(super) is_of_job: bool,
}

impl SimulatedCompleteFile {
    fn part(&self, state: &mut DiskState, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if state.crashed || state.life != self.life {
            return Err(crashed());
        }
        state.part_reads += 1;
        state.read_part(self.inode, &self.path, offset, buffer)
    }
}

impl CompleteFile for SimulatedCompleteFile {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.part(&mut lock(&self.state), offset, buffer)
            .map_err(|error| DiskError::new("read a part of", &self.path, error))
    }

    fn read_later(self: Arc<Self>, offset: u64, length: usize) -> DiskFuture<'static, Box<[u8]>> {
        Box::pin(async move {
            if self.is_of_job {
                let error = io::Error::other(
                    "a background job has opened the file; its reads hold up who waits for them",
                );
                return Err(DiskError::new("read a part of", &self.path, error));
            }
            let yields = lock(&self.state).random.below(3);
            for _ in 0..yields {
                yield_now().await;
            }
            let mut bytes = vec![0; length].into_boxed_slice();
            self.read_at(offset, &mut bytes)?;
            Ok(bytes)
        })
    }
}
