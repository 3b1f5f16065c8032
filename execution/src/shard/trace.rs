//! The trace of a request: what a node does for it, and when. It goes with the tasks of the request, so that no function has to pass it on.
//!
//! Invariants:
//! * Without a trace a note costs a look at a thread-local value; its text is not made.
//! * A trace has a bounded number of events.
//! * What another thread does (another shard) is not noted there, only by the one who asks.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures::future::Either;
use uuid::Uuid;

use super::context::ShardContext;

/// Most events of a trace on a node. More would be a range of very many requests.
const EVENTS_MAX: usize = 1_000;

tokio::task_local! {
    static TRACE: Rc<TraceLog>;
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// A timeuuid, which has the time of the event.
    pub id: Uuid,
    pub activity: String,
    /// Since the node began with the request.
    pub elapsed: Duration,
}

/// What this node has done for a request so far.
#[derive(Debug)]
pub struct TraceLog {
    /// The id of the trace, a timeuuid.
    pub session: Uuid,
    /// Monotonic time at which the node began.
    started: Duration,
    events: RefCell<Vec<TraceEvent>>,
}

impl TraceLog {
    pub fn begin(context: &ShardContext, session: Uuid) -> Rc<Self> {
        Rc::new(Self { session, started: context.clock.monotonic(), events: RefCell::default() })
    }

    /// Notes a step.
    pub fn note(&self, context: &ShardContext, activity: String) {
        let mut events = self.events.borrow_mut();
        let activity = match events.len() {
            EVENTS_MAX.. => return,
            count if count == EVENTS_MAX - 1 => "Further steps are left out".to_owned(),
            _ => activity,
        };
        events.push(TraceEvent { id: context.time_uuid(), activity, elapsed: self.elapsed(context) });
    }

    /// The time since the node began with the request.
    pub fn elapsed(&self, context: &ShardContext) -> Duration {
        context.clock.monotonic().saturating_sub(self.started)
    }

    /// Takes the steps so far.
    pub fn take_events(&self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.events.borrow_mut())
    }

    /// Runs a future as a part of the traced request.
    pub fn scope<F: Future>(self: &Rc<Self>, future: F) -> impl Future<Output = F::Output> + use<F> {
        TRACE.scope(self.clone(), future)
    }

    /// Runs a function as a part of the traced request.
    pub fn in_turn<T>(self: &Rc<Self>, run: impl FnOnce() -> T) -> T {
        TRACE.sync_scope(self.clone(), run)
    }
}

/// The trace of the request that the present task works for.
pub fn current() -> Option<Rc<TraceLog>> {
    TRACE.try_with(Rc::clone).ok()
}

/// Notes a step of the request that the present task works for, if it is traced.
#[inline]
pub fn note(context: &ShardContext, activity: impl FnOnce() -> String) {
    // An error: it is not traced.
    let _ = TRACE.try_with(|log| log.note(context, activity()));
}

/// A future that is to become a task of its own, as a part of the present request.
pub fn carry<F: Future>(future: F) -> impl Future<Output = F::Output> {
    match current() {
        Some(log) => Either::Left(log.scope(future)),
        None => Either::Right(future),
    }
}
