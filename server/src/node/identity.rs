//! The identity of a node in `node.json`: created once, together with the data directory.

use bytes::Bytes;
use helenus_ring::HostId;
use helenus_ring::allocation::{DEFAULT_TOKENS, first_tokens};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::files::node_files::NodeFiles;
use crate::node::error::StartError;

const FILE: &str = "node.json";
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
        Self { format: FORMAT, host_id, shards, tokens, cluster_name: None }
    }

    /// Loads the stored identity, or stores `new`. `shards`: the number in the settings, which must equal the stored
    /// one.
    pub async fn load_or_store(
        files: &NodeFiles,
        shards: Option<usize>,
        new: impl FnOnce() -> Self,
    ) -> Result<Self, StartError> {
        let damaged = |error: serde_json::Error| StartError::Damaged {
            path: files.path(FILE),
            message: error.to_string(),
        };
        if let Some(bytes) = files.load(FILE).await? {
            let identity: Self = serde_json::from_slice(&bytes).map_err(damaged)?;
            if identity.format != FORMAT {
                let message = format!("format {} is unknown", identity.format);
                return Err(StartError::Damaged { path: files.path(FILE), message });
            }
            return match shards {
                Some(asked) if asked != identity.shards => {
                    Err(StartError::ShardCount { stored: identity.shards, asked })
                }
                _ => Ok(identity),
            };
        }
        let identity = new();
        identity.store(files).await?;
        Ok(identity)
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

    /// Stores this identity.
    pub async fn store(&self, files: &NodeFiles) -> Result<(), StartError> {
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| StartError::Damaged { path: files.path(FILE), message: error.to_string() })?;
        Ok(files.replace(FILE, Bytes::from(bytes)).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use helenus_engine::io::SimulatedDisk;

    use super::*;

    #[test]
    fn an_identity_of_an_unknown_format_is_refused() {
        futures::executor::block_on(async {
            let disk = Arc::new(SimulatedDisk::new(1));
            let files = NodeFiles::open(disk, PathBuf::from("/node")).await.unwrap();
            let new = || Identity::with_tokens(Uuid::from_u128(1), 2, 4);
            let identity = Identity::load_or_store(&files, Some(2), new).await.unwrap();
            assert_eq!(Identity::load_or_store(&files, None, || unreachable!()).await.unwrap(), identity);
            Identity { format: FORMAT + 1, ..identity }.store(&files).await.unwrap();
            let refused = Identity::load_or_store(&files, None, || unreachable!()).await.unwrap_err();
            assert!(refused.to_string().contains("node.json"), "{refused}");
        });
    }
}
