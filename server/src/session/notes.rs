//! What is noted of a request while it is carried out: its trace, its receipt, and what it is summed under.

use std::rc::Rc;
use std::time::Duration;

use futures::future::Either;
use helenus_execution::coordinator::Outcome;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::receipt::Receipt;
use helenus_query::error::Result;

use super::charges::OpenCharge;
use super::receipts::{CostWishes, OpenReceipt};
use super::trace::Trace;
use helenus_answers::respond::Responder;

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
    /// `None`: it is not among those that are summed.
    pub charge: Option<OpenCharge>,
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

    /// Runs a function as a part of a request that may be charged no more than `max_charge` (`None`: than what is known already). A request of
    /// which nothing is noted gets a receipt then. `started`: when it began; monotonic time.
    pub fn within_limit<T>(
        noted: &mut Option<Self>,
        context: &ShardContext,
        started: Duration,
        max_charge: Option<u64>,
        run: impl FnOnce() -> T,
    ) -> T {
        let Some(max_charge) = max_charge else { return run() };
        if let Some(noted) = noted {
            noted.receipt.limit(max_charge);
            return run();
        }
        let costs = CostWishes { receipt: false, max_charge: Some(max_charge) };
        let receipt = OpenReceipt::begin(costs, started, false);
        let log = receipt.log.clone();
        *noted = Some(Self { trace: None, receipt, charge: None });
        log.in_turn(context, run)
    }

    /// Ends the receipt with the outcome.
    pub fn end(
        &mut self,
        context: &ShardContext,
        outcome: &Result<Outcome>,
        responder: &mut Responder,
    ) -> Receipt {
        let receipt = self.receipt.end(context, outcome, responder);
        if let Some(charge) = &self.charge {
            charge.end(context, &receipt, outcome.is_err());
        }
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
