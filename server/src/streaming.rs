//! Data that changes owners: ranges sent from shard to shard in checksummed, resumable pieces.

pub mod message;

use std::rc::Rc;

use self::message::{StreamRequest, StreamResponse};
use crate::internode::message::Failure;
use crate::ring::HostId;
use crate::shard_thread::ShardContext;

/// Carries out what another node asks about streams.
pub async fn handle(
    _context: &Rc<ShardContext>,
    _from: HostId,
    request: StreamRequest,
) -> Result<StreamResponse, Failure> {
    match request {}
}
