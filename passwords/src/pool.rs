//! Hashing of passwords beside the threads of shards.
//!
//! Invariants:
//! * The number of threads, the number of hashes that wait, and the bytes of each are bounded. Over the bound a hash is refused at once.
//! * Sources take turns: a source that queues many hashes delays only itself.
//! * The same credentials are hashed once for all that ask for them meanwhile.
//! * A hash whose waiters are gone is not computed.
//!
//! The threads start with the first hash, and end with the pool. They have a low priority: requests of clients who are in come first.
#![allow(clippy::disallowed_methods, reason = "this is a place that starts threads, for hashes of passwords")]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use hashbrown::HashMap;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::metrics::ShardMetrics;
use helenus_roles::password::{self, PasswordError};
use helenus_tls::source::Source;
use tokio::sync::oneshot;

use crate::digest::Digest;
use crate::fair_queue::{Added, FairQueue};

/// Most hashes that wait.
const QUEUE_LENGTH: usize = 256;
/// Most threads, and the cores for each.
const THREADS_MAX: usize = 4;
const CORES_PER_THREAD: usize = 4;
/// Bytes of a password that a hash depends on.
const PASSWORD_BYTES: usize = 72;

/// There is no room for another hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Too many passwords wait to be hashed; try again later")]
pub struct PoolFull;

/// A handle on the pool, which ends with the last one.
#[derive(Debug)]
pub struct HashingPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    queue: FairQueue<Work>,
    /// Credentials that wait or are being hashed.
    verifications: HashMap<Digest, Verification>,
    threads: usize,
    is_ending: bool,
}

enum Work {
    /// Its entry in `verifications` is there until it is done.
    Verify(Digest),
    Hash(Hash),
}

struct Verification {
    password: Box<[u8]>,
    hash: Box<str>,
    /// Of the shard that asked first; it counts the hash.
    metrics: Arc<ShardMetrics>,
    waiting: Vec<oneshot::Sender<bool>>,
}

struct Hash {
    password: Box<str>,
    answer: oneshot::Sender<Result<String, PasswordError>>,
}

/// Without the password: it has no place in logs.
impl std::fmt::Debug for Verification {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Verification").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Verify(_) => "Verify",
            Self::Hash(_) => "Hash",
        })
    }
}

impl Default for HashingPool {
    fn default() -> Self {
        Self::new(QUEUE_LENGTH)
    }
}

impl HashingPool {
    /// The pool of a node.
    pub fn of(context: &ShardContext) -> &Self {
        context.node.layers.get()
    }

    fn new(queue_length: usize) -> Self {
        let state = State {
            queue: FairQueue::new(queue_length),
            verifications: HashMap::new(),
            threads: 0,
            is_ending: false,
        };
        let shared = Shared { state: Mutex::new(state), wake: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Begins to find out whether a password has a hash. The answer fails if its place was taken by another source.
    pub fn verify(
        &self,
        source: Source,
        digest: Digest,
        password: &str,
        hash: &str,
        metrics: &Arc<ShardMetrics>,
    ) -> Result<oneshot::Receiver<bool>, PoolFull> {
        self.verify_queued(source, digest, password, hash, metrics).inspect(|_| self.start_threads())
    }

    /// Begins to hash a new password. The answer fails if its place was taken by another source.
    pub fn hash(
        &self,
        source: Source,
        password: &str,
    ) -> Result<oneshot::Receiver<Result<String, PasswordError>>, PoolFull> {
        let (answer, receiver) = oneshot::channel();
        let mut end = PASSWORD_BYTES.min(password.len());
        while !password.is_char_boundary(end) {
            end += 1;
        }
        let password = password.get(..end).unwrap_or(password).into();
        self.shared.add(&mut self.shared.state(), source, Work::Hash(Hash { password, answer }))?;
        self.start_threads();
        Ok(receiver)
    }

    fn verify_queued(
        &self,
        source: Source,
        digest: Digest,
        password: &str,
        hash: &str,
        metrics: &Arc<ShardMetrics>,
    ) -> Result<oneshot::Receiver<bool>, PoolFull> {
        let (answer, receiver) = oneshot::channel();
        let mut state = self.shared.state();
        if let Some(verification) = state.verifications.get_mut(&digest) {
            verification.waiting.push(answer);
            return Ok(receiver);
        }
        self.shared.add(&mut state, source, Work::Verify(digest))?;
        let bytes = password.as_bytes();
        let verification = Verification {
            password: bytes.get(..PASSWORD_BYTES).unwrap_or(bytes).into(),
            hash: hash.into(),
            metrics: metrics.clone(),
            waiting: vec![answer],
        };
        state.verifications.insert(digest, verification);
        drop(state);
        self.shared.wake.notify_one();
        Ok(receiver)
    }

    fn start_threads(&self) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let wanted = (cores / CORES_PER_THREAD).clamp(1, THREADS_MAX);
        let mut state = self.shared.state();
        while state.threads < wanted {
            let shared = self.shared.clone();
            let name = format!("password-{}", state.threads);
            let started = thread::Builder::new().name(name).spawn(move || {
                lower_priority();
                while shared.work_once(true) {}
            });
            match started {
                Ok(_) => state.threads += 1,
                Err(error) => {
                    tracing::error!(%error, "no thread for hashes of passwords can be started");
                    return;
                }
            }
        }
    }
}

impl Drop for HashingPool {
    fn drop(&mut self) {
        self.shared.state().is_ending = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, state: &mut State, source: Source, work: Work) -> Result<(), PoolFull> {
        match state.queue.add(source, work) {
            Added::Instead(Work::Verify(digest)) => {
                state.verifications.remove(&digest);
            }
            Added::Queued | Added::Instead(Work::Hash(_)) => {}
            Added::Refused(_) => return Err(PoolFull),
        }
        self.wake.notify_one();
        Ok(())
    }

    /// Carries out the next work; waits for it if `waits`. Returns whether there was some.
    fn work_once(&self, waits: bool) -> bool {
        let mut state = self.state();
        let work = loop {
            if state.is_ending {
                return false;
            }
            match state.queue.next() {
                Some(work) => break work,
                None if waits => {
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                None => return false,
            }
        };
        match work {
            Work::Hash(Hash { password, answer }) => {
                drop(state);
                if !answer.is_closed() {
                    // Who asked may have gone.
                    let _ = answer.send(password::hash(&password));
                }
            }
            Work::Verify(digest) => self.verify(state, digest),
        }
        true
    }

    fn verify<'s>(&'s self, mut state: MutexGuard<'s, State>, digest: Digest) {
        let Some(verification) = state.verifications.get_mut(&digest) else { return };
        verification.waiting.retain(|answer| !answer.is_closed());
        let mut has_hash = false;
        if !verification.waiting.is_empty() {
            let password = std::mem::take(&mut verification.password);
            let hash = std::mem::take(&mut verification.hash);
            let metrics = verification.metrics.clone();
            drop(state);
            has_hash = password::verify(&password, &hash);
            metrics.password_hashes.increment();
            state = self.state();
        }
        let done = state.verifications.remove(&digest);
        drop(state);
        for answer in done.into_iter().flat_map(|verification| verification.waiting) {
            // Who asked may have gone.
            let _ = answer.send(has_hash);
        }
    }
}

#[cfg(target_os = "linux")]
fn lower_priority() {
    // Of this thread alone. Without it the work is done all the same.
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), 10) {
        tracing::debug!(%error, "hashes of passwords have no lower priority");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::super::digest::DigestKey;
    use super::*;

    /// Of the password `secret`, with little work.
    const HASH: &str = "$2a$04$zVHmKQtGGQob.b/Nc7l9NO8UlrYcW05FiuCj/SxsFO/ZtiN9.mNzy";

    fn source(number: u8) -> Source {
        Source::of(std::net::IpAddr::from([10, 0, 0, number]))
    }

    fn digest(password: &str) -> Digest {
        static KEY: OnceLock<DigestKey> = OnceLock::new();
        KEY.get_or_init(|| DigestKey::random().unwrap()).digest("ann", HASH, password)
    }

    /// A pool without threads, and its counters.
    struct Pool(HashingPool, Arc<ShardMetrics>);

    impl Pool {
        fn new(queue_length: usize) -> Self {
            Self(HashingPool::new(queue_length), Arc::default())
        }

        fn queue(&self, from: u8, password: &str) -> Result<oneshot::Receiver<bool>, PoolFull> {
            self.0.verify_queued(source(from), digest(password), password, HASH, &self.1)
        }

        fn work_once(&self) -> bool {
            self.0.shared.work_once(false)
        }

        fn hashes(&self) -> u64 {
            self.1.password_hashes.get()
        }
    }

    #[tokio::test]
    async fn passwords_are_verified_and_hashed_by_threads_of_the_pool() {
        let pool = HashingPool::default();
        let hash = pool.hash(source(1), "secret").unwrap().await.unwrap().unwrap();
        let metrics = Arc::default();
        let verify = |password| pool.verify(source(1), digest(password), password, &hash, &metrics).unwrap();
        let (right, wrong) = (verify("secret"), verify("Secret"));
        assert_eq!((right.await, wrong.await), (Ok(true), Ok(false)));
        assert_eq!(metrics.password_hashes.get(), 2);
    }

    #[tokio::test]
    async fn the_same_credentials_are_hashed_once_for_all_that_wait() {
        let pool = Pool::new(1);
        let waiting: Vec<_> = (0..10).map(|_| pool.queue(1, "wrong").unwrap()).collect();
        assert!(pool.work_once());
        assert!(!pool.work_once());
        for answer in waiting {
            assert_eq!(answer.await, Ok(false));
        }
        assert_eq!(pool.hashes(), 1);
    }

    #[tokio::test]
    async fn over_the_bound_a_hash_is_refused_and_another_source_has_room() {
        let pool = Pool::new(2);
        let first = pool.queue(1, "one").unwrap();
        let second = pool.queue(1, "two").unwrap();
        assert_eq!(pool.queue(1, "three").unwrap_err(), PoolFull);
        let other = pool.queue(2, "other").unwrap();
        second.await.unwrap_err();
        while pool.work_once() {}
        assert_eq!((first.await, other.await), (Ok(false), Ok(false)));
        assert!(pool.0.shared.state().verifications.is_empty());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_hashed() {
        let pool = Pool::new(10);
        drop(pool.queue(1, "one").unwrap());
        let second = pool.queue(1, "two").unwrap();
        while pool.work_once() {}
        assert_eq!(second.await, Ok(false));
        assert_eq!(pool.hashes(), 1);
    }

    #[tokio::test]
    async fn a_long_password_takes_no_more_memory_than_counts() {
        let pool = Pool::new(10);
        let password = "x".repeat(60_000);
        let answer = pool.queue(1, &password).unwrap();
        assert_eq!(pool.0.shared.state().verifications[&digest(&password)].password.len(), PASSWORD_BYTES);
        assert!(pool.work_once());
        assert_eq!(answer.await, Ok(false));
    }
}
