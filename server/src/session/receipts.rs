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
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::statement::Statement;

use helenus_answers::respond::Responder;

/// The key of the custom payload of a request that asks for its receipt, whatever the value is, and of the answer's receipt.
pub const RECEIPT_KEY: &str = "helenus-receipt";

/// The key of the custom payload of a request with the most that it may be charged: a whole number, as text.
pub const MAX_CHARGE_KEY: &str = "helenus-max-charge";

/// What a client wants to know of the cost of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CostWishes {
    /// The answer is to have its receipt.
    pub receipt: bool,
    /// The most that the request may be charged; `None`: any charge.
    pub max_charge: Option<u64>,
}

impl CostWishes {
    /// The wishes in a custom payload. Other keys are ignored.
    #[inline]
    pub fn of(payload: &[(&str, Option<&[u8]>)]) -> Result<Self> {
        payload.iter().try_fold(Self::default(), |wishes, (key, value)| match *key {
            RECEIPT_KEY => Ok(Self { receipt: true, ..wishes }),
            MAX_CHARGE_KEY => Ok(Self { max_charge: Some(max_charge(*value)?), ..wishes }),
            _ => Ok(wishes),
        })
    }
}

fn max_charge(value: Option<&[u8]>) -> Result<u64> {
    let number = value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    number
        .ok_or_else(|| RequestError::Protocol(format!("The value of {MAX_CHARGE_KEY} is not a whole number")))
}

/// The least `max_charge` of the tables of a statement; `None`: it may be charged anything.
pub fn limit_of_tables(statement: &Statement) -> Option<u64> {
    match statement {
        Statement::Select(select) => select.plan.table.options.max_charge,
        Statement::Modify(modify) => modify.plan.table.options.max_charge,
        Statement::Batch(batch) => limit_of_changes(&batch.plan.statements),
        Statement::Transaction(transaction) => transaction.plan.table.options.max_charge,
        Statement::Explain(explain) => limit_of_tables(&explain.plan.statement),
        Statement::Truncate(_)
        | Statement::Check(_)
        | Statement::Use(_)
        | Statement::Schema(_)
        | Statement::Roles(_)
        | Statement::Describe(_) => None,
    }
}

/// The same of changes that are carried out together.
pub fn limit_of_changes<'p>(changes: impl IntoIterator<Item = &'p ModifyPlan>) -> Option<u64> {
    changes.into_iter().filter_map(|plan| plan.table.options.max_charge).min()
}

/// The receipt of a request that is under way.
pub struct OpenReceipt {
    pub log: Rc<ReceiptLog>,
    /// Whether the client has asked for it.
    is_wanted: bool,
    is_limited: bool,
    /// Monotonic time.
    started: Duration,
}

impl OpenReceipt {
    /// `is_traced`: the receipt is kept with the trace of the request.
    pub fn begin(wishes: CostWishes, started: Duration, is_traced: bool) -> Self {
        let CostWishes { receipt: is_wanted, max_charge } = wishes;
        let log = ReceiptLog::begin(max_charge, is_wanted || is_traced);
        Self { log, is_wanted, is_limited: max_charge.is_some(), started }
    }

    /// Lowers the most that the request may be charged.
    pub fn limit(&mut self, max_charge: u64) {
        self.is_limited = true;
        self.log.limit(max_charge);
    }

    /// The outcome, or an error if it is one of a read that is charged more than the limit. What was written cannot be taken back: that is
    /// refused before.
    pub fn judged(&self, outcome: Result<Outcome>) -> Result<Outcome> {
        let is_read =
            matches!(outcome, Ok(Outcome::Rows(_))) && self.log.receipt().get(Count::PartitionsWritten) == 0;
        if is_read {
            self.log.check(&Receipt::default())?;
        }
        outcome
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
        // Who meets the limit learns by how much.
        let is_shown = self.is_wanted || (self.is_limited && outcome.is_err());
        if is_shown && responder.version >= ProtocolVersion::V4 {
            responder.custom_payload.push((RECEIPT_KEY.to_owned(), Some(receipt.text().into_bytes())));
        }
        receipt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_say_what_is_wanted_and_other_keys_are_ignored() {
        let wishes = |payload: &[(&str, Option<&[u8]>)]| CostWishes::of(payload).ok();
        let wanted = |receipt, max_charge| Some(CostWishes { receipt, max_charge });
        assert_eq!(wishes(&[]), wanted(false, None));
        assert_eq!(wishes(&[("other", Some(b"x"))]), wanted(false, None));
        assert_eq!(wishes(&[("helenus-receipt", None), ("other", None)]), wanted(true, None));
        assert_eq!(wishes(&[("helenus-max-charge", Some(b"70"))]), wanted(false, Some(70)));
        for value in [None, Some(&b""[..]), Some(b"-1"), Some(b"seven"), Some(b"\xff")] {
            assert_eq!(wishes(&[("helenus-max-charge", value)]), None, "{value:?}");
        }
    }
}
