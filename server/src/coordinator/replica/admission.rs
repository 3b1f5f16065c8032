//! How much may be under way to replicas and from them: above the bounds requests are refused.

use std::rc::Rc;

use helenus_internode::service::Failure;
use helenus_query::error::{RequestError, Result};

use crate::shard::context::ShardContext;

/// Bytes that count as under way until this is dropped.
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

/// Whether there is room for more bytes beside those under way. One write alone is never too large.
fn has_room(context: &ShardContext, under_way: u64, bytes: u64) -> bool {
    let limit = context.node.config.max_write_bytes_in_flight / context.node.shard_count() as u64;
    under_way == 0 || under_way + bytes <= limit
}

/// Counts bytes as under way.
pub(super) fn reserve(context: &Rc<ShardContext>, bytes: u64, is_received: bool) -> InFlight {
    let state = context.replication();
    let counter = if is_received { &state.received_bytes } else { &state.coordinated_bytes };
    counter.set(counter.get() + bytes);
    InFlight { context: context.clone(), bytes, is_received }
}

/// Refuses a write that this shard is to coordinate while too much is under way.
pub fn check_room(context: &ShardContext, bytes: u64) -> Result<()> {
    if has_room(context, context.replication().coordinated_bytes.get(), bytes) {
        return Ok(());
    }
    Err(RequestError::Overloaded("too many writes are on their way to replicas".to_owned()))
}

/// Room for a mutation that another node has sent.
pub fn receive(context: &Rc<ShardContext>, bytes: u64) -> Result<InFlight, Failure> {
    if has_room(context, context.replication().received_bytes.get(), bytes) {
        return Ok(reserve(context, bytes, true));
    }
    Err(Failure::Overloaded("too many writes are waiting to become durable".to_owned()))
}
