//! The identity of a logged batch.

use helenus_engine::key::REGULAR_TAG;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::shard::context::ShardContext;

/// Identifies a batch for all time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchId {
    /// The coordinator's time, in microseconds since the epoch.
    pub created_micros: i64,
    pub random: u128,
}

impl BatchId {
    /// A new identity, with the coordinator's present time.
    pub fn new(context: &ShardContext) -> Self {
        Self { created_micros: context.next_timestamp(), random: context.random_uuid().as_u128() }
    }

    /// The position of the batch in the log.
    pub fn position(&self) -> Vec<u8> {
        let mut position = vec![REGULAR_TAG];
        position.extend_from_slice(&self.created_micros.to_be_bytes());
        position.extend_from_slice(Uuid::from_u128(self.random).as_bytes());
        position
    }
}
