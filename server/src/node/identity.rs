//! The identity of a node in `node.json`: created once, together with the data directory.
//!
//! The order of the first start: the shards are made, one after the other and empty; then the identity is stored. A start that is cut
//! off before can be repeated. Once there is an identity, every shard that it counts must be there, and once there is anything
//! else of a node, there must be an identity: no start takes a directory that has lost a file for a new one.

use std::path::PathBuf;

use bytes::Bytes;
use helenus_engine::Shard;
use helenus_engine::shard::ShardDirectory;
use helenus_ring::HostId;
use helenus_ring::allocation::{DEFAULT_TOKENS, first_tokens};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cluster::departure;
use crate::cluster::liveness::generation;
use crate::cluster::own_files::IDENTITY_FILE;
use crate::cluster::stored::{CATALOG_FILE, CHANGES_FILE};
use crate::node::error::StartError;
use helenus_node_files::small_files::NodeFiles;

pub(super) const FILE: &str = IDENTITY_FILE;
const FORMAT: u32 = 1;

/// The identity of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    format: u32,
    pub host_id: HostId,
    /// Number of shards of the data directory: fixed when it is created.
    pub shards: usize,
    /// The tokens of the node.
    pub tokens: Vec<i64>,
    /// The cluster that the data belongs to, or that the node is joining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The dead member whose place the node has taken in the cluster, or asked for when it became a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<HostId>,
}

impl Identity {
    /// A new identity with the default number of tokens. See [`Identity::with_tokens`].
    pub fn new(host_id: Uuid, shards: usize) -> Self {
        Self::with_tokens(host_id, shards, DEFAULT_TOKENS)
    }

    /// A new identity with the tokens of the first member of a cluster: evenly spaced, rotated by its id. A node that
    /// joins other members gets its tokens when it joins.
    pub fn with_tokens(host_id: Uuid, shards: usize, token_count: usize) -> Self {
        let tokens = first_tokens(token_count, host_id.as_u64_pair().1);
        Self { format: FORMAT, host_id, shards, tokens, cluster_name: None, replaced: None }
    }

    /// Loads the stored identity and checks that its shards are there, or makes the shards of `new` and stores it in a
    /// directory that has nothing of a node. `shards`: the number in the settings, which must equal the stored one.
    pub async fn load_or_create(
        files: &NodeFiles,
        shards: Option<usize>,
        new: impl FnOnce() -> Self,
    ) -> Result<Self, StartError> {
        if let Some(identity) = Self::load(files, shards).await? {
            identity.check_shards(files).await?;
            return Ok(identity);
        }
        check_new(files).await?;
        let identity = new();
        for shard in 0..identity.shards {
            Shard::create(files.disk(), &shard_directory(files, shard))
                .await
                .map_err(|error| StartError::Shard { shard, message: error.to_string() })?;
        }
        identity.store(files).await?;
        Ok(identity)
    }

    /// Loads the stored identity, if there is one. `shards`: the number in the settings, which must equal the stored one.
    pub async fn load(files: &NodeFiles, shards: Option<usize>) -> Result<Option<Self>, StartError> {
        let Some(bytes) = files.load(FILE).await? else { return Ok(None) };
        Self::decode(&bytes, files, shards).map(Some)
    }

    /// Decodes the identity from the bytes of its file. `shards`: see [`Self::load`].
    pub fn decode(bytes: &[u8], files: &NodeFiles, shards: Option<usize>) -> Result<Self, StartError> {
        let damaged = |message: String| StartError::Damaged { path: files.path(FILE), message };
        let identity: Self = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if identity.format != FORMAT {
            return Err(damaged(format!("format {} is unknown", identity.format)));
        }
        if let Some(asked) = shards.filter(|asked| *asked != identity.shards) {
            return Err(StartError::ShardCount { stored: identity.shards, asked });
        }
        Ok(identity)
    }

    /// Checks that all shards are there, and no others that hold anything.
    async fn check_shards(&self, files: &NodeFiles) -> Result<(), StartError> {
        for shard in 0..self.shards {
            let directory = shard_directory(files, shard);
            match Shard::look_at(files.disk(), &directory).await? {
                ShardDirectory::Unused | ShardDirectory::Shard => {}
                ShardDirectory::Nothing | ShardDirectory::WithoutManifest => {
                    return Err(StartError::MissingShard { manifest: directory.join("manifest") });
                }
            }
        }
        for (shard, path) in shard_directories(files).await? {
            if shard >= self.shards && holds_anything(Shard::look_at(files.disk(), &path).await?) {
                return Err(StartError::SuperfluousShard { path, shards: self.shards });
            }
        }
        Ok(())
    }

    /// Stores the cluster's name in the identity and returns it. `is_member`: the node is a member of the stored
    /// cluster, so another name is an error. A node that has not been admitted yet may have had a wrong name before.
    pub async fn of_cluster(
        self,
        files: &NodeFiles,
        cluster_name: &str,
        is_member: bool,
    ) -> Result<Self, StartError> {
        match &self.cluster_name {
            Some(stored) if stored == cluster_name => return Ok(self),
            Some(stored) if is_member => {
                let (stored, configured) = (stored.clone(), cluster_name.to_owned());
                return Err(StartError::ClusterName { stored, configured });
            }
            _ => {}
        }
        let identity = Self { cluster_name: Some(cluster_name.to_owned()), ..self };
        identity.store(files).await?;
        Ok(identity)
    }

    /// Stores the member whose place the node asks for in the identity and returns it.
    pub async fn replacing(self, files: &NodeFiles, replaced: Option<HostId>) -> Result<Self, StartError> {
        if self.replaced == replaced {
            return Ok(self);
        }
        let identity = Self { replaced, ..self };
        identity.store(files).await?;
        Ok(identity)
    }

    /// Notes in the stored identity the member whose place the node takes.
    pub async fn note_replaced(files: &NodeFiles, replaced: HostId) -> Result<(), StartError> {
        match Self::load(files, None).await? {
            Some(known) => known.replacing(files, Some(replaced)).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Stores this identity.
    pub async fn store(&self, files: &NodeFiles) -> Result<(), StartError> {
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| StartError::Damaged { path: files.path(FILE), message: error.to_string() })?;
        Ok(files.replace(FILE, Bytes::from(bytes)).await?)
    }
}

/// The directory of a shard.
pub fn shard_directory(files: &NodeFiles, shard: usize) -> PathBuf {
    files.path(&format!("shard-{shard}"))
}

/// The directories of shards that are there, with their numbers.
async fn shard_directories(files: &NodeFiles) -> Result<Vec<(usize, PathBuf)>, StartError> {
    let entries = files.disk().list(files.directory()).await?;
    let shards = entries.into_iter().filter_map(|entry| {
        let number = entry.name.strip_prefix("shard-")?.parse().ok()?;
        entry.is_directory.then(|| (number, files.path(&entry.name)))
    });
    Ok(shards.collect())
}

fn holds_anything(found: ShardDirectory) -> bool {
    matches!(found, ShardDirectory::Shard | ShardDirectory::WithoutManifest)
}

/// Checks that a directory without an identity has nothing of a node.
async fn check_new(files: &NodeFiles) -> Result<(), StartError> {
    let missing = |found: PathBuf| StartError::MissingIdentity { path: files.path(FILE), found };
    for name in [CATALOG_FILE, CHANGES_FILE, departure::FILE, generation::FILE] {
        if files.exists(name).await? {
            return Err(missing(files.path(name)));
        }
    }
    for (_, path) in shard_directories(files).await? {
        if holds_anything(Shard::look_at(files.disk(), &path).await?) {
            return Err(missing(path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use helenus_engine::io::{CrashStyle, FileContents, SimulatedDisk};

    use super::*;

    async fn start(disk: &SimulatedDisk) -> Result<Identity, StartError> {
        let files = NodeFiles::open(Arc::new(disk.clone()), PathBuf::from("/node")).await?;
        Identity::load_or_create(&files, Some(2), || Identity::with_tokens(Uuid::from_u128(1), 2, 4)).await
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        futures::executor::block_on(future)
    }

    #[test]
    fn an_identity_of_an_unknown_format_is_refused() {
        run(async {
            let disk = Arc::new(SimulatedDisk::new(1));
            let files = NodeFiles::open(disk, PathBuf::from("/node")).await.unwrap();
            let new = || Identity::with_tokens(Uuid::from_u128(1), 2, 4);
            let identity = Identity::load_or_create(&files, Some(2), new).await.unwrap();
            assert_eq!(Identity::load_or_create(&files, None, || unreachable!()).await.unwrap(), identity);
            Identity { format: FORMAT + 1, ..identity }.store(&files).await.unwrap();
            let refused = Identity::load_or_create(&files, None, || unreachable!()).await.unwrap_err();
            assert!(refused.to_string().contains("node.json"), "{refused}");
        });
    }

    #[test]
    fn a_first_start_that_is_cut_off_can_be_repeated() {
        for point in 0.. {
            let disk = SimulatedDisk::new(point);
            disk.crash_at(point);
            let started = run(start(&disk));
            for style in CrashStyle::ALL {
                disk.restart(style, point);
            }
            run(start(&disk)).unwrap_or_else(|error| panic!("crash at {point}: {error}"));
            if started.is_ok() {
                return;
            }
        }
    }

    #[test]
    fn a_directory_that_has_lost_a_file_is_refused_by_its_name_and_not_touched() {
        let made = SimulatedDisk::new(1);
        run(start(&made)).unwrap();
        made.set_at_rest(
            Path::new("/node/shard-1/commit-log/segment-0000000000000001.log"),
            Some(b"records"),
        );
        let files = made.files();
        let without = |gone: &[&str]| -> FileContents {
            let is_gone = |path: &Path| gone.iter().any(|gone| path.starts_with(gone));
            files.clone().into_iter().filter(|(path, _)| !is_gone(path)).collect()
        };
        let superfluous = {
            let mut files = files.clone();
            files.insert("/node/shard-2/tables/x/file".into(), vec![1]);
            files
        };
        let cases = [
            (without(&["/node/node.json", "/node/node.json.copy"]), "/node/node.json"),
            (without(&["/node/shard-0"]), "/node/shard-0/manifest"),
            (without(&["/node/shard-1/manifest", "/node/shard-1/manifest.copy"]), "/node/shard-1/manifest"),
            (superfluous, "/node/shard-2"),
        ];
        for (files, named) in cases {
            let disk = SimulatedDisk::with_files(1, &files);
            let error = run(start(&disk)).unwrap_err().to_string();
            assert!(error.contains(named), "{named}: {error}");
            assert_eq!(disk.files(), files);
        }
        for (name, named) in
            [("catalog", "node.json"), ("removed.copy", "node.json"), ("generation", "node.json")]
        {
            let disk = SimulatedDisk::new(1);
            disk.set_at_rest(&Path::new("/node").join(name), Some(b"x"));
            let error = run(start(&disk)).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        // Any one copy may be missing.
        for gone in [
            "/node/node.json",
            "/node/node.json.copy",
            "/node/shard-0/manifest",
            "/node/shard-1/manifest.copy",
        ] {
            run(start(&SimulatedDisk::with_files(1, &without(&[gone])))).unwrap();
        }
    }
}
