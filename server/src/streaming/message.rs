//! Requests about streams.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum StreamRequest {}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum StreamResponse {}
