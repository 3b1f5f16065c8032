//! The runtime of the Raft library: local tasks of the first shard's thread, with random numbers from a seed.
//!
//! Invariants:
//! * Election timeouts are drawn from the node's seed ([`seeded`]). A task inherits a seed from the task that spawned
//!   it, so several nodes in one thread draw independently and repeat their draws in every run.
//! * Time is tokio's: real time in a node, virtual (paused) time in a simulation. The library asks for the time
//!   without a context, so [`Clock`](helenus_engine::io::Clock) cannot be passed in.
#![allow(
    clippy::disallowed_methods,
    reason = "the runtime that openraft is handed: a simulation stops and advances this clock"
)]

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use helenus_engine::io::SplitMix64;
use openraft::AsyncRuntime;
use openraft::async_runtime::{
    Instant, Mpsc, MpscReceiver, MpscSender, MpscWeakSender, Mutex, Oneshot, OneshotSender, RecvError,
    SendError, TryRecvError, Watch, WatchReceiver, WatchSender, watch,
};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, oneshot, watch as tokio_watch};

tokio::task_local! {
    static SEED: Cell<u64>;
}

/// Runs a future whose random numbers, and those of the tasks that it spawns, follow from `seed`.
pub fn seeded<F: Future>(seed: u64, future: F) -> impl Future<Output = F::Output> {
    SEED.scope(Cell::new(seed), future)
}

/// The next number of the present task; always the same number in a task outside of [`seeded`].
fn next_seed() -> u64 {
    SEED.try_with(|seed| {
        let mut random = SplitMix64::new(seed.get());
        seed.set(random.next_u64());
        random.next_u64()
    })
    .unwrap_or(0)
}

/// The runtime of the metadata log.
#[derive(Debug)]
pub struct LocalRuntime {
    runtime: tokio::runtime::Runtime,
    tasks: tokio::task::LocalSet,
}

impl AsyncRuntime for LocalRuntime {
    type JoinError = tokio::task::JoinError;
    type JoinHandle<T: 'static> = tokio::task::JoinHandle<T>;
    type Sleep = tokio::time::Sleep;
    type Instant = LocalInstant;
    type TimeoutError = tokio::time::error::Elapsed;
    type Timeout<R, T: Future<Output = R>> = tokio::time::Timeout<T>;
    type ThreadLocalRng = StdRng;
    type Mpsc = LocalMpsc;
    type Watch = LocalWatch;
    type Oneshot = LocalOneshot;
    type Mutex<T: 'static> = LocalMutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + 'static,
        T::Output: 'static,
    {
        tokio::task::spawn_local(seeded(next_seed(), future))
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        tokio::time::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        tokio::time::sleep_until(deadline.0)
    }

    fn timeout<R, F: Future<Output = R>>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        tokio::time::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R>>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        tokio::time::timeout_at(deadline.0, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        error.is_panic()
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        StdRng::seed_from_u64(next_seed())
    }

    #[allow(
        clippy::expect_used,
        reason = "the library asks for it in its own tests only, and leaves no error"
    )]
    fn new(_threads: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        Self { runtime, tasks: tokio::task::LocalSet::new() }
    }

    fn block_on<F: Future<Output = T>, T>(&mut self, future: F) -> T {
        self.tasks.block_on(&self.runtime, future)
    }
}

/// A time on tokio's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalInstant(tokio::time::Instant);

impl Instant for LocalInstant {
    fn now() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Add<Duration> for LocalInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for LocalInstant {
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

impl Sub<Duration> for LocalInstant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

impl Sub for LocalInstant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}

impl SubAssign<Duration> for LocalInstant {
    fn sub_assign(&mut self, duration: Duration) {
        self.0 -= duration;
    }
}

/// Bounded channels.
#[derive(Debug)]
pub struct LocalMpsc;

pub struct LocalSender<T>(mpsc::Sender<T>);
pub struct LocalWeakSender<T>(mpsc::WeakSender<T>);
pub struct LocalReceiver<T>(mpsc::Receiver<T>);

impl Mpsc for LocalMpsc {
    type Sender<T> = LocalSender<T>;
    type Receiver<T> = LocalReceiver<T>;
    type WeakSender<T> = LocalWeakSender<T>;

    fn channel<T>(buffer: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        let (sender, receiver) = mpsc::channel(buffer);
        (LocalSender(sender), LocalReceiver(receiver))
    }
}

impl<T> Clone for LocalSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Clone for LocalWeakSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> MpscSender<LocalMpsc, T> for LocalSender<T> {
    async fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message).await.map_err(|error| SendError(error.0))
    }

    fn downgrade(&self) -> LocalWeakSender<T> {
        LocalWeakSender(self.0.downgrade())
    }
}

impl<T> MpscWeakSender<LocalMpsc, T> for LocalWeakSender<T> {
    fn upgrade(&self) -> Option<LocalSender<T>> {
        self.0.upgrade().map(LocalSender)
    }
}

impl<T> MpscReceiver<T> for LocalReceiver<T> {
    fn recv(&mut self) -> impl Future<Output = Option<T>> {
        self.0.recv()
    }

    fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.0.try_recv().map_err(|error| match error {
            mpsc::error::TryRecvError::Empty => TryRecvError::Empty,
            mpsc::error::TryRecvError::Disconnected => TryRecvError::Disconnected,
        })
    }
}

/// Channels for one value.
#[derive(Debug)]
pub struct LocalOneshot;

pub struct LocalOneshotSender<T>(oneshot::Sender<T>);

impl Oneshot for LocalOneshot {
    type Sender<T> = LocalOneshotSender<T>;
    type Receiver<T> = oneshot::Receiver<T>;
    type ReceiverError = oneshot::error::RecvError;

    fn channel<T>() -> (Self::Sender<T>, Self::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (LocalOneshotSender(sender), receiver)
    }
}

impl<T> OneshotSender<T> for LocalOneshotSender<T> {
    fn send(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }
}

/// Channels for the latest value.
#[derive(Debug)]
pub struct LocalWatch;

pub struct LocalWatchSender<T>(tokio_watch::Sender<T>);
pub struct LocalWatchReceiver<T>(tokio_watch::Receiver<T>);

impl Watch for LocalWatch {
    type Sender<T> = LocalWatchSender<T>;
    type Receiver<T> = LocalWatchReceiver<T>;
    type Ref<'a, T: 'a> = tokio_watch::Ref<'a, T>;

    fn channel<T>(init: T) -> (Self::Sender<T>, Self::Receiver<T>) {
        let (sender, receiver) = tokio_watch::channel(init);
        (LocalWatchSender(sender), LocalWatchReceiver(receiver))
    }
}

impl<T> Clone for LocalWatchSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Clone for LocalWatchReceiver<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> WatchSender<LocalWatch, T> for LocalWatchSender<T> {
    fn send(&self, value: T) -> Result<(), watch::SendError<T>> {
        self.0.send(value).map_err(|error| watch::SendError(error.0))
    }

    fn send_if_modified<F: FnOnce(&mut T) -> bool>(&self, modify: F) -> bool {
        self.0.send_if_modified(modify)
    }

    fn borrow_watched(&self) -> tokio_watch::Ref<'_, T> {
        self.0.borrow()
    }

    fn subscribe(&self) -> LocalWatchReceiver<T> {
        LocalWatchReceiver(self.0.subscribe())
    }
}

impl<T> WatchReceiver<LocalWatch, T> for LocalWatchReceiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        self.0.changed().await.map_err(|_| RecvError(()))
    }

    fn borrow_watched(&self) -> tokio_watch::Ref<'_, T> {
        self.0.borrow()
    }

    fn borrow_and_update(&mut self) -> tokio_watch::Ref<'_, T> {
        self.0.borrow_and_update()
    }
}

/// A lock whose waiters get it in order.
pub struct LocalMutex<T>(tokio::sync::Mutex<T>);

impl<T: 'static> Mutex<T> for LocalMutex<T> {
    type Guard<'a> = tokio::sync::MutexGuard<'a, T>;

    fn new(value: T) -> Self {
        Self(tokio::sync::Mutex::new(value))
    }

    fn lock(&self) -> impl Future<Output = Self::Guard<'_>> {
        self.0.lock()
    }
}

impl fmt::Display for LocalInstant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.0)
    }
}
