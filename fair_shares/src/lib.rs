//! Turns of a shard's thread, shared among the roles of clients by the time that each has used.
//!
//! Every future that works for a role is polled within [`within`]. While more than one role has connections to the node, a poll is a turn:
//! its time is charged to the role, and a role that has used more than others waits until these have had theirs. That is start-time fair
//! queueing (Goyal, Vin and Cheng 1996), with the polls of futures as packets.
//!
//! Invariants:
//! * A future that waits for a turn gets one, whatever becomes of those before it: while some wait, a task gives turns away, to the role that
//!   has used least, one at a time: several at once would favour roles with many futures.
//! * No role saves up time: after a pause it begins where the others are. None gets rid of what it has used by leaving.
//! * Turns that were waited for take about `SLICE` between two looks at the sockets, so a role that asks little is heard. One that has used
//!   less than all who wait does not wait.
//! * While one role is connected, or none, a poll costs a branch or two.
//!
//! What a node does as a replica for a coordinator on another node is done for the role that has asked there.
//!
//! Not shared are turns before a login, and the work of the node itself.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use helenus_io::Clock;
use helenus_observe::metrics::ShardMetrics;
use pin_project_lite::pin_project;
use tokio::sync::Notify;

/// The shares of a role for which none were set.
const DEFAULT_SHARES: u32 = 100;
/// What a future does at a stretch while nobody else has a share: accepting connections, links and jobs wait no longer for each of them.
const TURN_ALONE: Duration = Duration::from_millis(1);
/// Turns within this time follow each other without a look at the sockets.
const SLICE: Duration = Duration::from_micros(100);
/// If nothing had a turn for this time the thread has slept or done something else, and a slice begins.
const PAUSE: Duration = Duration::from_micros(50);

/// The roles that have connections to a node.
#[derive(Debug, Default)]
pub struct RoleShares {
    roles: Mutex<HashMap<Arc<str>, std::sync::Weak<RoleShare>>>,
    count: Arc<AtomicUsize>,
}

/// A role that has connections to the node, for all shards.
#[derive(Debug)]
pub struct RoleShare {
    role: Arc<str>,
    shares: AtomicU32,
    /// The number of such roles on the node.
    count: Arc<AtomicUsize>,
}

impl RoleShares {
    /// A share without work, for as long as a client logs in: roles take turns meanwhile, so that it is heard soon.
    pub fn of_login(&self) -> Arc<RoleShare> {
        // No role has this name.
        self.of("")
    }

    /// The share of a role. It lasts as long as somebody holds it.
    pub fn of(&self, role: &str) -> Arc<RoleShare> {
        let mut roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = roles.get(role).and_then(std::sync::Weak::upgrade) {
            return known;
        }
        roles.retain(|_, share| share.strong_count() > 0);
        self.count.fetch_add(1, Ordering::Relaxed);
        let share = Arc::new(RoleShare {
            role: Arc::from(role),
            shares: AtomicU32::new(DEFAULT_SHARES),
            count: self.count.clone(),
        });
        roles.insert(share.role.clone(), Arc::downgrade(&share));
        share
    }
}

impl RoleShare {
    #[inline]
    fn has_others_beside_it(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 1
    }
}

impl Drop for RoleShare {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A role on a shard.
#[derive(Debug)]
pub struct ShardShare {
    share: Arc<RoleShare>,
    /// The virtual time at which its next turn begins, unless the shard is further. It outlives the connections of the role.
    start_nanos: Rc<Cell<u64>>,
    waiting: RefCell<VecDeque<Rc<Place>>>,
}

impl ShardShare {
    /// Sets the weight of the role, on all shards. While two roles want more time than there is, they get it in proportion to their shares.
    /// `shares`: at least 1; `None`: the default.
    pub fn set_shares(&self, shares: Option<u32>) {
        self.share.shares.store(shares.unwrap_or(DEFAULT_SHARES), Ordering::Relaxed);
    }
}

/// A future that waits for a turn.
#[derive(Debug)]
struct Place {
    waker: RefCell<Waker>,
    state: Cell<PlaceState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceState {
    Waits,
    /// The next poll is its turn.
    Granted,
    /// The future is gone, or needs no turn any more.
    Left,
}

/// What a shard knows of a role, also for a while after the last work for it.
struct KnownRole {
    share: Weak<ShardShare>,
    start_nanos: Rc<Cell<u64>>,
}

/// The turns of a shard.
pub struct ShardShares {
    clock: Rc<dyn Clock>,
    roles: RefCell<HashMap<Arc<str>, KnownRole>>,
    /// Those that have futures waiting.
    queue: RefCell<Vec<Rc<ShardShare>>>,
    /// The virtual time: where the latest turn began.
    virtual_nanos: Cell<u64>,
    /// The time that turns have taken since the last look at the sockets.
    used: Cell<Duration>,
    last_end: Cell<Duration>,
    /// The role of the future that is being polled.
    current: RefCell<Option<Rc<ShardShare>>>,
    /// There is a task that gives turns away.
    gives_turns: Cell<bool>,
    /// The task may give the next turn away.
    slice_over: Notify,
    metrics: Arc<ShardMetrics>,
}

/// Says for which role a future works.
pub trait Shared {
    /// `None`: it works for none, or for a client that need not log in.
    fn share(&self) -> Option<&Rc<ShardShare>>;
}

impl<T: Shared> Shared for Rc<T> {
    #[inline]
    fn share(&self) -> Option<&Rc<ShardShare>> {
        T::share(self)
    }
}

impl Shared for Option<Rc<ShardShare>> {
    #[inline]
    fn share(&self) -> Option<&Rc<ShardShare>> {
        self.as_ref()
    }
}

impl ShardShares {
    pub fn new(clock: Rc<dyn Clock>, metrics: Arc<ShardMetrics>) -> Rc<Self> {
        Rc::new(Self {
            clock,
            roles: RefCell::default(),
            queue: RefCell::default(),
            virtual_nanos: Cell::new(0),
            used: Cell::new(Duration::ZERO),
            last_end: Cell::new(Duration::ZERO),
            current: RefCell::new(None),
            gives_turns: Cell::new(false),
            slice_over: Notify::new(),
            metrics,
        })
    }

    /// A role on this shard.
    pub fn of(&self, share: Arc<RoleShare>) -> Rc<ShardShare> {
        let mut roles = self.roles.borrow_mut();
        let start_nanos = if let Some(known) = roles.get(&share.role) {
            if let Some(share) = known.share.upgrade() {
                return share;
            }
            known.start_nanos.clone()
        } else {
            let now = self.virtual_nanos.get();
            roles.retain(|_, known| known.share.strong_count() > 0 || known.start_nanos.get() > now);
            Rc::default()
        };
        let role = share.role.clone();
        let known = Rc::new(ShardShare { share, start_nanos, waiting: RefCell::default() });
        let (share, start_nanos) = (Rc::downgrade(&known), known.start_nanos.clone());
        roles.insert(role, KnownRole { share, start_nanos });
        known
    }

    /// The name of the role of the future that is being polled, for a request to another node. `None`: it works for none.
    pub fn role(&self) -> Option<Arc<str>> {
        let current = self.current.borrow();
        current.as_ref().map(|current| current.share.role.clone()).filter(|role| !role.is_empty())
    }

    /// The role of the future that is being polled, for a job on another shard.
    pub fn passed(&self) -> Option<Arc<RoleShare>> {
        self.current.borrow().as_ref().map(|current| current.share.clone())
    }

    /// Makes a future that is to become a task of its own run in turns of the same role as the future that is being polled.
    pub fn carry<F: Future>(self: &Rc<Self>, future: F) -> Within<Option<Rc<ShardShare>>, F> {
        within(self.clone(), self.current.borrow().clone(), future)
    }

    /// How long a future that is being polled should go on before it lets others have the thread.
    #[inline]
    pub fn turn_limit(&self) -> Duration {
        if self.are_shared() { SLICE } else { TURN_ALONE }
    }

    /// Whether the role of the future that is being polled has others beside it.
    #[inline]
    pub fn are_shared(&self) -> bool {
        self.current.borrow().as_ref().is_some_and(|current| current.share.has_others_beside_it())
    }

    /// Whether a role's future may have a turn now, without having waited for it.
    fn is_next(&self, own: &ShardShare, now: Duration) -> bool {
        if !own.waiting.borrow().is_empty() {
            return false;
        }
        if now.saturating_sub(self.last_end.get()) >= PAUSE {
            self.used.set(Duration::ZERO);
        }
        let queue = self.queue.borrow();
        if queue.is_empty() {
            return self.used.get() < SLICE;
        }
        let start = self.start_of(own);
        queue.iter().all(|other| start < self.start_of(other))
    }

    /// The virtual time at which a turn of a role would begin now.
    fn start_of(&self, own: &ShardShare) -> u64 {
        own.start_nanos.get().max(self.virtual_nanos.get())
    }

    /// Begins a turn, or has the future wait for one in `place`.
    fn begin(
        self: &Rc<Self>,
        own: &Rc<ShardShare>,
        place: &mut Option<Rc<Place>>,
        waker: &Waker,
    ) -> Option<Turn> {
        let now = self.clock.monotonic();
        let was_given = match place {
            Some(waits) if waits.state.get() == PlaceState::Waits => {
                if !waits.waker.borrow().will_wake(waker) {
                    waker.clone_into(&mut waits.waker.borrow_mut());
                }
                return None;
            }
            Some(_) => {
                *place = None;
                true
            }
            None if self.is_next(own, now) => false,
            None => {
                *place = Some(self.wait(own, waker));
                return None;
            }
        };
        let start = self.start_of(own);
        self.virtual_nanos.set(start);
        Some(Turn { began: now, start, was_given, own: own.clone(), work: self.work_for(own) })
    }

    /// Ends a turn and charges the role for it.
    fn end(&self, turn: &Turn) {
        let now = self.clock.monotonic();
        let (own, used) = (&turn.own, now.saturating_sub(turn.began));
        let shares = u64::from(own.share.shares.load(Ordering::Relaxed));
        let charged =
            u64::try_from(used.as_nanos()).unwrap_or(u64::MAX).saturating_mul(u64::from(DEFAULT_SHARES));
        own.start_nanos.set(turn.start.saturating_add((charged / shares).max(1)));
        self.used.set(self.used.get().saturating_add(used));
        self.last_end.set(now);
        if turn.was_given {
            self.go_on();
        }
    }

    /// Takes a place among the futures that wait.
    fn wait(self: &Rc<Self>, own: &Rc<ShardShare>, waker: &Waker) -> Rc<Place> {
        self.metrics.turns_waited.increment();
        let place =
            Rc::new(Place { waker: RefCell::new(waker.clone()), state: Cell::new(PlaceState::Waits) });
        let mut waiting = own.waiting.borrow_mut();
        if waiting.is_empty() {
            self.queue.borrow_mut().push(own.clone());
        }
        waiting.push_back(place.clone());
        if !self.gives_turns.replace(true) {
            tokio::task::spawn_local(self.clone().give_turns());
        }
        place
    }

    /// A future that waited, or was to have a turn, does not want it any more.
    fn leave(&self, place: &Place) {
        if place.state.replace(PlaceState::Left) == PlaceState::Granted {
            self.go_on();
        }
    }

    /// Gives turns away as long as futures wait for some.
    async fn give_turns(self: Rc<Self>) {
        loop {
            // The thread looks at the sockets, and tasks that are ready ask for their turns.
            tokio::task::yield_now().await;
            self.used.set(Duration::ZERO);
            if !self.give_turn() {
                self.gives_turns.set(false);
                return;
            }
            self.slice_over.notified().await;
        }
    }

    /// After a turn that was given away has ended: the next one, or a look at the sockets.
    fn go_on(&self) {
        if self.used.get() >= SLICE || !self.give_turn() {
            self.slice_over.notify_one();
        }
    }

    /// Makes a role the current one until the value is dropped.
    fn work_for(self: &Rc<Self>, own: &Rc<ShardShare>) -> Work {
        Work { before: self.current.replace(Some(own.clone())), shares: self.clone() }
    }

    /// Gives a turn to the role that has used least. Returns whether somebody took it.
    fn give_turn(&self) -> bool {
        let mut queue = self.queue.borrow_mut();
        while let Some(index) = (0..queue.len()).min_by_key(|index| self.start_of(&queue[*index])) {
            let mut waiting = queue[index].waiting.borrow_mut();
            let place = waiting.pop_front();
            let is_last = waiting.is_empty();
            drop(waiting);
            if is_last {
                queue.swap_remove(index);
            }
            if let Some(place) = place
                && place.state.get() == PlaceState::Waits
            {
                place.state.set(PlaceState::Granted);
                place.waker.borrow().wake_by_ref();
                return true;
            }
        }
        false
    }
}

/// Restores the role that was the current one before, also after a panic.
struct Work {
    shares: Rc<ShardShares>,
    before: Option<Rc<ShardShare>>,
}

impl Drop for Work {
    fn drop(&mut self) {
        *self.shares.current.borrow_mut() = self.before.take();
    }
}

/// A turn of a role. It ends when this is dropped.
struct Turn {
    /// Monotonic time.
    began: Duration,
    /// Virtual time.
    start: u64,
    /// It was waited for.
    was_given: bool,
    own: Rc<ShardShare>,
    work: Work,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.work.shares.end(self);
    }
}

/// The place of a future among those that wait. It is given up with the future.
struct Visitor {
    shares: Rc<ShardShares>,
    place: Option<Rc<Place>>,
}

impl Visitor {
    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            self.shares.leave(&place);
        }
    }

    fn poll<T>(
        &mut self,
        own: Option<&Rc<ShardShare>>,
        task: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Some(own) = own else { return poll(task) };
        if !own.share.has_others_beside_it() {
            self.leave();
            let _work = self.shares.work_for(own);
            return poll(task);
        }
        let Some(_turn) = self.shares.begin(own, &mut self.place, task.waker()) else { return Poll::Pending };
        poll(task)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.leave();
    }
}

pin_project! {
    /// A future that is polled in turns: see [`within`].
    pub struct Within<O, F> {
        visitor: Visitor,
        owner: O,
        #[pin]
        future: F,
    }
}

impl<O: Shared, F: Future> Future for Within<O, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.visitor.poll(this.owner.share(), task, |task| this.future.poll(task))
    }
}

/// Runs a future in turns of the role that it works for.
pub fn within<O: Shared, F: Future>(shares: Rc<ShardShares>, owner: O, future: F) -> Within<O, F> {
    Within { visitor: Visitor { shares, place: None }, owner, future }
}

#[cfg(test)]
mod tests;
