//! Receipts of requests: what a request cost goes to the client that asked for it, to the trace and to the log of slow requests.
//!
//! Invariant: a request without a receipt looks at the payload of its frame, which is empty, and does nothing else.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::ProtocolVersion;
use helenus_execution::coordinator::Outcome;
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::receipt::ReceiptLog;
use helenus_observe::receipt::{Count, Receipt};
use helenus_query::error::Result;

use super::respond::Responder;

/// The key of the custom payload of a request that asks for its receipt, whatever the value is, and of the answer's receipt.
pub const RECEIPT_KEY: &str = "helenus-receipt";

/// The receipt of a request that is under way.
pub struct OpenReceipt {
    pub log: Rc<ReceiptLog>,
    /// Whether the client has asked for it.
    is_wanted: bool,
    /// Monotonic time.
    started: Duration,
}

impl OpenReceipt {
    pub fn begin(is_wanted: bool, started: Duration) -> Self {
        Self { log: ReceiptLog::begin(), is_wanted, started }
    }

    /// Ends the receipt with the outcome, and puts it into the answer if the client has asked for it.
    pub fn end(
        &self,
        context: &ShardContext,
        outcome: &Result<Outcome>,
        responder: &mut Responder,
    ) -> Receipt {
        if let Ok(Outcome::Rows(page) | Outcome::OwnRows { page, .. }) = outcome {
            self.log.add(Count::RowsSent, page.row_count as u64);
            self.log.add(Count::BytesSent, page.rows.len() as u64);
        }
        let elapsed = context.clock.monotonic().saturating_sub(self.started);
        let receipt = self.log.end(context, elapsed);
        if self.is_wanted && responder.version >= ProtocolVersion::V4 {
            responder.custom_payload.push((RECEIPT_KEY.to_owned(), Some(receipt.text().into_bytes())));
        }
        receipt
    }
}

/// Whether the custom payload of a request asks for its receipt.
#[inline]
pub fn is_wanted(payload: &[(&str, Option<&[u8]>)]) -> bool {
    payload.iter().any(|(key, _)| *key == RECEIPT_KEY)
}
