//! The manifest of an upload: which files make a node's part of a snapshot.
//!
//! It is text: a line of its own, then JSON. The line has the version of the format and the CRC-32 (IEEE) of all bytes after it, in 8 hex
//! digits:
//!
//! ```text
//! helenus upload 1 9ae0daaf
//! {"cluster":"shop", …}
//! ```
//!
//! Invariant: a manifest is written after all objects that it names, and removed before the first of them. So a snapshot without one is not
//! there, and one with one is whole.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::name::{HostFolder, is_inside};

const MAGIC: &str = "helenus upload ";
const VERSION: u32 = 1;
/// The largest manifest that is read: some million files.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// A node's part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub cluster: String,
    pub host_id: String,
    pub snapshot: String,
    /// As `2015-05-21T11:03:02.000Z`.
    pub uploaded_at: String,
    /// By keyspace, name and id.
    pub tables: Vec<ManifestTable>,
}

/// A table of it. What a snapshot of a former version does not say is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ManifestTable {
    pub keyspace: String,
    pub name: String,
    pub id: String,
    /// When the snapshot was taken.
    pub created_at: String,
    pub files: Vec<ManifestFile>,
}

/// A file of it, at the same place in each shard's directory as on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ManifestFile {
    /// `shard-<n>/<table id>/<name>`.
    pub path: String,
    pub bytes: u64,
    pub crc32: u32,
    /// When the file was last written, in nanoseconds since the epoch. Where path, size and this time are the same, the node does not read the file
    /// again for its checksum.
    pub modified_ns: u64,
}

impl ManifestFile {
    pub fn object(&self, folder: &HostFolder) -> String {
        folder.file(&self.path, self.bytes, self.crc32)
    }
}

impl Manifest {
    pub fn encode(&self) -> Result<Bytes, serde_json::Error> {
        let body = serde_json::to_string(self)?;
        Ok(format!("{MAGIC}{VERSION} {:08x}\n{body}\n", crc32fast::hash(format!("{body}\n").as_bytes()))
            .into())
    }

    /// The inverse of [`Self::encode`]; `object` and `store` are for errors.
    pub fn decode(contents: &[u8], object: &str, store: &str) -> Result<Self, StoreError> {
        let damaged = |reason: &str| StoreError::Damaged {
            object: object.to_owned(),
            store: store.to_owned(),
            reason: reason.to_owned(),
        };
        let end = contents.iter().position(|byte| *byte == b'\n');
        let (line, body) = contents.split_at(end.ok_or_else(|| damaged("it has no first line"))?);
        let body = body.strip_prefix(b"\n").unwrap_or(body);
        let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix(MAGIC));
        let (version, crc32) = line
            .and_then(|line| line.split_once(' '))
            .ok_or_else(|| damaged("it is no manifest of an upload"))?;
        let version: u32 = version.parse().map_err(|_| damaged("its version is no number"))?;
        if version != VERSION {
            return Err(StoreError::Newer { object: object.to_owned(), store: store.to_owned(), version });
        }
        if u32::from_str_radix(crc32, 16).ok() != Some(crc32fast::hash(body)) {
            return Err(damaged("its checksum is another one"));
        }
        let manifest: Self =
            serde_json::from_slice(body).map_err(|error| damaged(&format!("it cannot be read: {error}")))?;
        if let Some(file) = manifest.files().find(|file| !is_inside(&file.path)) {
            return Err(damaged(&format!("the path {:?} leads out of its directory", file.path)));
        }
        Ok(manifest)
    }

    pub fn files(&self) -> impl Iterator<Item = &ManifestFile> {
        self.tables.iter().flat_map(|table| &table.files)
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files().map(|file| file.bytes).sum()
    }

    /// The objects of all files.
    pub fn objects(&self, folder: &HostFolder) -> BTreeSet<String> {
        self.files().map(|file| file.object(folder)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = ManifestFile {
            path: "shard-0/07/0000000001-data.sst".to_owned(),
            bytes: 512,
            crc32: 0xAB,
            modified_ns: 1_700_000_000_000_000_001,
        };
        Manifest {
            cluster: "shop".to_owned(),
            host_id: "7f3c".to_owned(),
            snapshot: "monday".to_owned(),
            uploaded_at: "2026-01-31T12:00:00.000Z".to_owned(),
            tables: vec![ManifestTable {
                keyspace: "k".to_owned(),
                name: "t".to_owned(),
                id: "07".to_owned(),
                created_at: "2026-01-31T11:00:00.000Z".to_owned(),
                files: vec![file],
            }],
        }
    }

    const GOLDEN: &str = "helenus upload 1 555b4eec\n{\"cluster\":\"shop\",\"host_id\":\"7f3c\",\"snapshot\":\"monday\",\
        \"uploaded_at\":\"2026-01-31T12:00:00.000Z\",\"tables\":[{\"keyspace\":\"k\",\"name\":\"t\",\"id\":\"07\",\
        \"created_at\":\"2026-01-31T11:00:00.000Z\",\"files\":[{\"path\":\"shard-0/07/0000000001-data.sst\",\"bytes\":512,\
        \"crc32\":171,\"modified_ns\":1700000000000000001}]}]}\n";

    fn decode(text: &str) -> Result<Manifest, StoreError> {
        Manifest::decode(text.as_bytes(), "o", "/s")
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(manifest().encode().unwrap(), GOLDEN.as_bytes());
        assert_eq!(decode(GOLDEN).unwrap(), manifest());
    }

    #[test]
    fn damage_is_named() {
        let says = |text: &str| decode(text).unwrap_err().to_string();
        for position in 0..GOLDEN.len() {
            let mut bytes = GOLDEN.as_bytes().to_vec();
            bytes[position] ^= 1;
            let error = Manifest::decode(&bytes, "o", "/s").unwrap_err().to_string();
            assert!(error.contains("object o of the backup store /s"), "{error}");
            let cut = Manifest::decode(&GOLDEN.as_bytes()[..position], "o", "/s").unwrap_err().to_string();
            assert!(cut.contains("is damaged"), "{cut}");
        }
        assert!(says("").contains("no first line"));
        assert!(says("helenus upload 2 00000000\n{}").contains("newer program: its version is 2"));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let mut evil = manifest();
        evil.tables[0].files[0].path = "../../etc/cron.d/x".to_owned();
        let error = Manifest::decode(&evil.encode().unwrap(), "o", "/s").unwrap_err().to_string();
        assert!(error.contains("leads out of its directory"), "{error}");
    }
}
