//! Limits for the bytes in flight to replicas and from them. Requests above a limit are refused.

use std::rc::Rc;

use helenus_internode::service::Failure;
use helenus_query::error::{RequestError, Result};

use crate::shard::context::ShardContext;

/// Counts bytes as in flight until it is dropped.
pub struct InFlight {
    context: Rc<ShardContext>,
    bytes: u64,
    is_received: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let state = self.context.replication();
        let counter = if self.is_received { &state.received_bytes } else { &state.coordinated_bytes };
        counter.set(counter.get().saturating_sub(self.bytes));
    }
}

/// Whether there is room for `bytes` beside the bytes in flight. A single write is never too large.
fn has_room(context: &ShardContext, under_way: u64, bytes: u64) -> bool {
    let limit = context.node.config.max_write_bytes_in_flight / context.node.shard_count() as u64;
    under_way == 0 || under_way + bytes <= limit
}

/// Counts bytes as in flight.
pub(super) fn reserve(context: &Rc<ShardContext>, bytes: u64, is_received: bool) -> InFlight {
    let state = context.replication();
    let counter = if is_received { &state.received_bytes } else { &state.coordinated_bytes };
    counter.set(counter.get() + bytes);
    InFlight { context: context.clone(), bytes, is_received }
}

/// Refuses a write to be coordinated by this shard while too many bytes are in flight.
pub fn check_room(context: &ShardContext, bytes: u64) -> Result<()> {
    if has_room(context, context.replication().coordinated_bytes.get(), bytes) {
        return Ok(());
    }
    Err(RequestError::Overloaded("too many writes are on their way to replicas".to_owned()))
}

/// Reserves room for a mutation that another node sent.
pub fn receive(context: &Rc<ShardContext>, bytes: u64) -> Result<InFlight, Failure> {
    if has_room(context, context.replication().received_bytes.get(), bytes) {
        return Ok(reserve(context, bytes, true));
    }
    Err(Failure::Overloaded("too many writes are waiting to become durable".to_owned()))
}
