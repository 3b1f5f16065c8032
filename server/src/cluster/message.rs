//! Requests about the cluster.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ClusterRequest {
    /// Which program runs there.
    Version,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ClusterResponse {
    Version(String),
}
