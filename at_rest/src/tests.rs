//! The encrypted disk beside a model of what a disk keeps, its format, and what damage and missing keys do.

mod damage;
mod format;
mod keys;
mod model;
mod scope;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use helenus_io::{Disk, DiskFile, SeededRandom, SimulatedDisk};

use crate::{EncryptedDisk, MasterKeys, Randomness};

const ONE: &str = "one AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
const TWO: &str = "two AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n";

fn keys(text: &str) -> MasterKeys {
    MasterKeys::parse(text.as_bytes()).unwrap()
}

fn encrypted(below: &SimulatedDisk, text: &str, seed: u64) -> EncryptedDisk {
    EncryptedDisk::new(Arc::new(below.clone()), keys(text), Randomness::new(SeededRandom::new(seed)))
}

/// Bytes that no encrypted file should have in it.
fn secret(length: usize) -> Bytes {
    Bytes::from(b"a secret that must not be read ".iter().copied().cycle().take(length).collect::<Vec<u8>>())
}

fn has_secret(bytes: &[u8]) -> bool {
    bytes.windows(8).any(|window| window == b"a secret")
}

fn write(disk: &dyn Disk, path: &str, contents: Bytes) -> Arc<dyn DiskFile> {
    block_on(async {
        let file = disk.create(Path::new(path)).await.unwrap();
        file.write_and_sync_at(0, contents).await.unwrap();
        file
    })
}
