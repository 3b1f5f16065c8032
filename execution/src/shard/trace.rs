//! The trace of a request: what a node does for it, and when. It goes with the tasks of the request, so that no function has to pass it on.
//!
//! Invariants:
//! * Without a trace a note costs a look at a thread-local value; its text is not made.
//! * A trace has a bounded number of events.
//! * What another shard of the node does is noted there and comes back with its answer ([`on_other_shard`]).

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
    /// The shard that did it.
    pub shard: usize,
    /// Since the node began with the request.
    pub elapsed: Duration,
}

/// What this node has done for a request so far.
#[derive(Debug)]
pub struct TraceLog {
    /// The id of the trace, a timeuuid.
    pub session: Uuid,
    /// Wall clock at which the node began, in microseconds: all shards have the same one.
    started_micros: i64,
    events: RefCell<Vec<TraceEvent>>,
}

impl TraceLog {
    pub fn begin(context: &ShardContext, session: Uuid) -> Rc<Self> {
        Rc::new(Self { session, started_micros: context.clock.now_micros(), events: RefCell::default() })
    }

    /// Notes a step.
    pub fn note(&self, context: &ShardContext, activity: String) {
        let elapsed = self.elapsed(context);
        self.add(TraceEvent { id: context.time_uuid(), activity, shard: context.index, elapsed });
    }

    fn add(&self, mut event: TraceEvent) {
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            if events.len() == EVENTS_MAX - 1 {
                "Further steps are left out".clone_into(&mut event.activity);
            }
            events.push(event);
        }
    }

    /// The time since the node began with the request.
    pub fn elapsed(&self, context: &ShardContext) -> Duration {
        let elapsed = context.clock.now_micros().saturating_sub(self.started_micros);
        Duration::from_micros(u64::try_from(elapsed).unwrap_or(0))
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

/// A trace that another shard of this node goes on with.
#[derive(Debug, Clone, Copy)]
pub struct Passed {
    session: Uuid,
    started_micros: i64,
}

/// The present trace, for another shard.
pub fn passed() -> Option<Passed> {
    TRACE.try_with(|log| Passed { session: log.session, started_micros: log.started_micros }).ok()
}

/// Runs a future on another shard as a part of the traced request. Returns its steps besides, for [`take_back`].
pub async fn on_other_shard<T>(
    passed: Option<Passed>,
    future: impl Future<Output = T>,
) -> (T, Vec<TraceEvent>) {
    let Some(Passed { session, started_micros }) = passed else { return (future.await, Vec::new()) };
    let log = Rc::new(TraceLog { session, started_micros, events: RefCell::default() });
    let value = log.scope(future).await;
    (value, log.take_events())
}

/// Adds the steps of another shard.
pub fn take_back(events: Vec<TraceEvent>) {
    if !events.is_empty() {
        let _ = TRACE.try_with(|log| events.into_iter().for_each(|event| log.add(event)));
    }
}

/// A future that is to become a task of its own, as a part of the present request.
pub fn carry<F: Future>(future: F) -> impl Future<Output = F::Output> {
    match current() {
        Some(log) => Either::Left(log.scope(future)),
        None => Either::Right(future),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> TraceEvent {
        TraceEvent {
            id: Uuid::from_u128(number as u128),
            activity: number.to_string(),
            shard: 0,
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn a_trace_has_a_bounded_number_of_steps_and_the_last_one_says_so() {
        let log = TraceLog { session: Uuid::nil(), started_micros: 0, events: RefCell::default() };
        (0..EVENTS_MAX + 5).for_each(|number| log.add(event(number)));
        let events = log.take_events();
        assert_eq!(events.len(), EVENTS_MAX);
        assert_eq!(events[EVENTS_MAX - 2].activity, "998");
        assert_eq!(events[EVENTS_MAX - 1].activity, "Further steps are left out");
    }

    #[tokio::test]
    async fn steps_of_another_shard_come_back_to_the_trace_and_only_there() {
        let log =
            Rc::new(TraceLog { session: Uuid::from_u128(7), started_micros: 0, events: RefCell::default() });
        log.scope(async {
            let passed = passed();
            let (session, events) = on_other_shard(passed, async {
                take_back(vec![event(1)]);
                current().map(|log| log.session)
            })
            .await;
            assert_eq!(session, Some(Uuid::from_u128(7)));
            take_back(events);
        })
        .await;
        assert_eq!(log.take_events(), [event(1)]);
        assert!(passed().is_none() && current().is_none());
        take_back(vec![event(2)]);
        let ((), events) = on_other_shard(None, async { take_back(vec![event(3)]) }).await;
        assert!(events.is_empty());
    }
}
