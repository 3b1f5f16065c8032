//! The files that a node keeps itself: which of them are in its directories, and how they are encrypted.
//!
//! A file is the node's own by its place. What else lies in its directories (the lock, the socket of administration, logs of requests, what an
//! operator has put there) is never read through its encrypted disk, and is left alone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use helenus_admin::encryption_keys::{FileKind, FileProtection, StoredFiles};
use helenus_at_rest::{Protection, StoredFile, look_at};
use helenus_config::Config;
use helenus_engine::io::{DirectDisk, DirectoryEntry, Disk, DiskError};
use helenus_execution::coordinator::replica::hints;
use helenus_node_files::at_rest::AtRest;

use super::departure;
use super::liveness::generation;
use super::stored::{CATALOG_FILE, CHANGES_FILE};

/// The file of the node's identity.
pub const IDENTITY_FILE: &str = "node.json";
/// The directory within the data directory to which unknown files are moved.
pub const QUARANTINE: &str = "quarantine";
/// The small files of a node in its data directory. Their copies and temporary files have longer names.
const NODE_FILES: [&str; 5] = [IDENTITY_FILE, CATALOG_FILE, CHANGES_FILE, departure::FILE, generation::FILE];
/// What the files of a commit log begin with, where they lie in the directory of a shard.
const LOG_FILES: [&str; 3] = ["segment-", "spare-", "version-"];

/// A file that the node keeps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnFile {
    pub kind: FileKind,
    pub path: PathBuf,
}

/// What a directory is to the node.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// A data directory, or that of the commit logs.
    Root,
    Shard,
    /// The tables of a shard.
    Tables,
    /// All below is of this kind.
    Of(FileKind),
}

impl Place {
    /// What an entry of the directory is; `None`: it is not the node's.
    fn entry(self, entry: &DirectoryEntry) -> Option<Self> {
        let name = entry.name.as_str();
        match (self, entry.is_directory) {
            (Self::Of(_), _) => Some(self),
            (Self::Root, true) if name == QUARANTINE => Some(Self::Of(FileKind::Quarantine)),
            (Self::Root, true) => {
                let number = name.strip_prefix("shard-")?;
                number.parse::<usize>().is_ok().then_some(Self::Shard)
            }
            (Self::Root, false) => {
                let is_own = |own: &str| {
                    name.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                NODE_FILES.into_iter().any(is_own).then_some(Self::Of(FileKind::Node))
            }
            (Self::Shard, true) => Some(match name {
                "tables" => Self::Tables,
                "commit-log" => Self::Of(FileKind::CommitLog),
                "snapshots" => Self::Of(FileKind::Snapshots),
                "backups" => Self::Of(FileKind::Backups),
                QUARANTINE => Self::Of(FileKind::Quarantine),
                _ => Self::Of(FileKind::Node),
            }),
            (Self::Shard, false) if LOG_FILES.iter().any(|start| name.starts_with(start)) => {
                Some(Self::Of(FileKind::CommitLog))
            }
            (Self::Shard, false) => Some(Self::Of(FileKind::Node)),
            (Self::Tables, _) if name == hints::TABLE.0.to_string() => Some(Self::Of(FileKind::Hints)),
            (Self::Tables, _) => Some(Self::Of(FileKind::Tables)),
        }
    }
}

/// The directories that the settings name.
fn roots(config: &Config) -> Vec<(PathBuf, Place)> {
    let further = config.data_dirs.iter().chain(&config.commit_log_dir);
    let mut roots: Vec<PathBuf> = std::iter::once(&config.data_dir).chain(further).cloned().collect();
    roots.sort();
    roots.dedup();
    roots.into_iter().map(|root| (root, Place::Root)).collect()
}

/// The files in some places, ordered by kind and path.
async fn files_in(disk: &dyn Disk, mut left: Vec<(PathBuf, Place)>) -> Result<Vec<OwnFile>, DiskError> {
    let mut files = Vec::new();
    while let Some((directory, place)) = left.pop() {
        let entries = match disk.list(&directory).await {
            // It was never made, or is removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let Some(place) = place.entry(&entry) else { continue };
            let path = directory.join(&entry.name);
            match place {
                _ if entry.is_directory => left.push((path, place)),
                Place::Of(kind) => files.push(OwnFile { kind, path }),
                Place::Root | Place::Shard | Place::Tables => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The files of a node. It holds up the calling thread.
pub fn list(config: &Config) -> Result<Vec<OwnFile>, DiskError> {
    futures::executor::block_on(files_in(&DirectDisk::new(), roots(config)))
}

/// How the files of a node are encrypted, also those in its part of the archive of commit logs. It holds up the calling thread.
pub fn usage(config: &Config, archive: Option<PathBuf>) -> Result<Vec<StoredFiles>, DiskError> {
    let disk = DirectDisk::new();
    let archive = archive.map(|archive| (archive, Place::Of(FileKind::Archive)));
    futures::executor::block_on(usage_in(&disk, roots(config).into_iter().chain(archive).collect()))
}

async fn usage_in(disk: &dyn Disk, places: Vec<(PathBuf, Place)>) -> Result<Vec<StoredFiles>, DiskError> {
    let mut found: BTreeMap<(FileKind, FileProtection), (u64, u64)> = BTreeMap::new();
    for OwnFile { kind, path } in files_in(disk, places).await? {
        let Some(StoredFile { protection, bytes }) = look_at(disk, &path).await? else { continue };
        let protection = match protection {
            Protection::Key(id) => FileProtection::Key(id),
            Protection::Plain => FileProtection::Plain,
            Protection::Damaged => FileProtection::Damaged,
        };
        let (files, all_bytes) = found.entry((kind, protection)).or_default();
        *files += 1;
        *all_bytes += bytes;
    }
    let of_kind = |((kind, protection), (files, bytes))| StoredFiles { kind, protection, files, bytes };
    Ok(found.into_iter().map(of_kind).collect())
}

/// The files of a node that are not encrypted and should be. It holds up the calling thread.
pub fn plain(config: &Config, at_rest: &AtRest) -> Result<Vec<PathBuf>, DiskError> {
    let is_wanted = |path: &Path| at_rest.wants_encrypted(path);
    futures::executor::block_on(plain_in(&DirectDisk::new(), roots(config), is_wanted))
}

async fn plain_in(
    disk: &dyn Disk,
    places: Vec<(PathBuf, Place)>,
    is_wanted: impl Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, DiskError> {
    let mut plain = Vec::new();
    for OwnFile { path, .. } in files_in(disk, places).await?.into_iter().filter(|file| is_wanted(&file.path))
    {
        let stored = look_at(disk, &path).await?;
        if stored.is_some_and(|stored| stored.protection == Protection::Plain) {
            plain.push(path);
        }
    }
    Ok(plain)
}

/// Some paths for a message: the first ones, and how many there are.
pub fn named(paths: &[PathBuf]) -> String {
    const NAMED_MAX: usize = 5;
    let first: Vec<String> = paths.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
    let rest = if paths.len() > NAMED_MAX { ", ..." } else { "" };
    format!("{} files ({}{rest})", paths.len(), first.join(", "))
}

/// The directory of a node in the archive of commit logs.
pub fn archive_of(config: &Config, host_id: impl std::fmt::Display) -> Option<PathBuf> {
    config.commit_log_archive_dir.as_ref().map(|root: &PathBuf| Path::join(root, host_id.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::executor::block_on;
    use helenus_at_rest::{EncryptedDisk, MasterKeys, Randomness};
    use helenus_engine::io::{SeededRandom, SimulatedDisk};

    use super::*;

    const KEY: &str = "one AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn write(disk: &dyn Disk, path: &str) {
        block_on(async {
            let path = Path::new(path);
            disk.create_directory(path.parent().unwrap()).await.unwrap();
            disk.create(path).await.unwrap().write_and_sync_at(0, "contents".into()).await.unwrap();
        });
    }

    fn config() -> Config {
        Config {
            data_dir: "/data".into(),
            data_dirs: vec!["/more".into()],
            commit_log_dir: Some("/data/logs".into()),
            ..Config::default()
        }
    }

    #[test]
    fn files_are_told_by_their_place_and_what_is_not_the_nodes_is_left_alone() {
        let below = SimulatedDisk::new(1);
        let hints = format!("/data/shard-0/tables/{}/1-data.sst", hints::TABLE.0);
        let own = [
            (FileKind::Tables, "/data/shard-0/tables/07/1-data.sst"),
            (FileKind::Tables, "/more/shard-1/tables/07/2-data.sst"),
            (FileKind::CommitLog, "/data/logs/shard-0/segment-1.log"),
            (FileKind::CommitLog, "/data/shard-0/commit-log/segment-1.log"),
            (FileKind::Hints, hints.as_str()),
            (FileKind::Snapshots, "/data/shard-0/snapshots/kept/07/1-data.sst"),
            (FileKind::Backups, "/data/shard-0/backups/07/1-data.sst"),
            (FileKind::Quarantine, "/data/quarantine/shard-0/1-data.sst"),
            (FileKind::Node, "/data/catalog.changes.copy"),
            (FileKind::Node, "/data/node.json"),
            (FileKind::Node, "/data/shard-0/manifest"),
        ];
        let foreign = [
            "/data/audit/1.log",
            "/data/notes",
            "/data/shard-x/notes",
            "/data/lost+found/1",
            "/data/catalogue",
        ];
        for path in own.iter().map(|(_, path)| *path).chain(foreign) {
            write(&below, path);
        }
        let found = block_on(files_in(&below, roots(&config()))).unwrap();
        let found: Vec<_> = found.iter().map(|file| (file.kind, file.path.to_str().unwrap())).collect();
        assert_eq!(found, own);
    }

    #[test]
    fn files_are_counted_by_kind_and_key_and_plain_ones_named() {
        let below = SimulatedDisk::new(1);
        let keys = MasterKeys::parse(KEY.as_bytes()).unwrap();
        let disk = EncryptedDisk::new(Arc::new(below.clone()), keys, Randomness::new(SeededRandom::new(1)));
        write(&disk, "/data/shard-0/tables/07/1-data.sst");
        write(&disk, "/data/shard-1/tables/07/1-data.sst");
        write(&below, "/data/shard-0/manifest");
        write(&disk, "/archive/shard-0/segment-1.log");
        let stored = |kind, protection, files, bytes| StoredFiles { kind, protection, files, bytes };
        let one = FileProtection::Key("one".to_owned());
        let bytes = block_on(below.length(Path::new("/archive/shard-0/segment-1.log"))).unwrap();
        let mut places = roots(&config());
        places.push(("/archive".into(), Place::Of(FileKind::Archive)));
        let expected = [
            stored(FileKind::Tables, one.clone(), 2, 2 * bytes),
            stored(FileKind::Node, FileProtection::Plain, 1, 8),
            stored(FileKind::Archive, one, 1, bytes),
        ];
        assert_eq!(block_on(usage_in(&below, places)).unwrap(), expected);
        let plain = block_on(plain_in(&below, roots(&config()), |_| true)).unwrap();
        assert_eq!(plain, [PathBuf::from("/data/shard-0/manifest")]);
        assert_eq!(named(&plain), "1 files (/data/shard-0/manifest)");
        assert!(named(&vec!["/a".into(); 7]).ends_with("/a, /a, ...)"));
    }
}
