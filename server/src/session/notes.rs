//! What is noted of a request while it is carried out: its trace, its receipt.

use std::rc::Rc;

use futures::future::Either;
use helenus_execution::coordinator::Outcome;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::receipt::Receipt;
use helenus_query::error::Result;

use super::receipts::{CostWishes, OpenReceipt};
use super::respond::Responder;
use super::trace::Trace;

/// What a client wants to have noted of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Notes {
    pub is_traced: bool,
    pub costs: CostWishes,
}

/// What is noted of a request while it is carried out.
pub struct Noted {
    pub trace: Option<Trace>,
    pub receipt: OpenReceipt,
}

impl Noted {
    /// Runs a future as a part of the request.
    pub fn scope<F: Future>(
        &self,
        context: Rc<ShardContext>,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        let future = self.receipt.log.scope(context, future);
        match &self.trace {
            Some(trace) => Either::Left(trace.log.scope(future)),
            None => Either::Right(future),
        }
    }

    /// Runs a function as a part of the request.
    pub fn in_turn(self, context: &ShardContext, run: impl FnOnce(Self)) {
        let (receipt, trace) = (self.receipt.log.clone(), self.trace.as_ref().map(|trace| trace.log.clone()));
        let run = || receipt.in_turn(context, || run(self));
        match trace {
            Some(trace) => trace.in_turn(run),
            None => run(),
        }
    }

    /// Ends the receipt with the outcome.
    pub fn end(
        &mut self,
        context: &ShardContext,
        outcome: &Result<Outcome>,
        responder: &mut Responder,
    ) -> Receipt {
        let receipt = self.receipt.end(context, outcome, responder);
        if let Some(trace) = &mut self.trace {
            trace.note_receipt(context, &receipt);
        }
        receipt
    }
}

/// The outcome, or an error if the request is charged more than it may be.
pub fn judged(noted: Option<&Noted>, outcome: Result<Outcome>) -> Result<Outcome> {
    match noted {
        Some(noted) => noted.receipt.judged(outcome),
        None => outcome,
    }
}
