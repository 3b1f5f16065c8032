//! Broken invariants: statements about the engine's own state that turn out false.
//!
//! An invariant holds unless the program has a defect, so no caller can do anything about a broken one. Builds with debug
//! assertions (tests, simulation) panic at the site. A release build stops the shard: the site reports it
//! ([`broken`]), the shard notices the report before it hands out an answer ([`Watch`]), and refuses all further work. No
//! answer is built on state that is known to be wrong.
//!
//! Data from a client, another node or the disk is input, not state. It is checked where it enters, and damage in it is a typed
//! error of its own.
//!
//! Steps of the mechanism:
//!
//! 1. A site calls `broken!` or `invariant!`. The report goes to a cell of the thread; the first report is kept.
//! 2. A fallible site returns the [`BrokenInvariant`] as an error. An infallible one returns a harmless value.
//! 3. Each public operation of the shard ends with [`Watch::check`] before it returns. It takes the report over into the
//!    shard and returns it as the error. The harmless value is never part of an answer.
//! 4. A background job is checked when it ends ([`take`]); its report travels to the shard's thread with the job's result
//!    ([`carry_over`]).

use std::cell::Cell;

use thiserror::Error;

/// A statement about the engine's own state that turned out false. One word wide, so that results on hot paths stay small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("broken invariant at {}:{}: {}; the shard has stopped", self.0.file, self.0.line, self.0.what)]
pub struct BrokenInvariant(&'static Site);

/// A place in the engine's code that checks an invariant.
#[derive(Debug, PartialEq, Eq)]
pub struct Site {
    pub what: &'static str,
    pub file: &'static str,
    pub line: u32,
}

impl BrokenInvariant {
    /// The statement that should hold.
    pub fn what(&self) -> &'static str {
        self.0.what
    }
}

thread_local! {
    /// The first report on this thread that no [`Watch`] has taken over yet.
    static REPORTED: Cell<Option<BrokenInvariant>> = const { Cell::new(None) };
}

/// Reports that an invariant is broken and evaluates to the [`BrokenInvariant`]. The argument is the statement that should
/// hold.
#[macro_export]
macro_rules! broken {
    ($what:literal) => {{
        static SITE: $crate::invariant::Site =
            $crate::invariant::Site { what: $what, file: file!(), line: line!() };
        $crate::invariant::report(&SITE)
    }};
}

/// Returns from the function with an error if the condition does not hold.
#[macro_export]
macro_rules! invariant {
    ($holds:expr, $what:literal) => {
        if !$holds {
            return Err($crate::broken!($what).into());
        }
    };
}

pub use crate::{broken, invariant};

/// The function behind `broken!`.
#[cold]
#[inline(never)]
pub fn report(site: &'static Site) -> BrokenInvariant {
    let broken = BrokenInvariant(site);
    tracing::error!(what = site.what, file = site.file, line = site.line, "an invariant is broken");
    assert!(!panics(), "{broken}");
    carry_over(broken);
    broken
}

/// Makes a report of another thread one of this thread.
pub fn carry_over(broken: BrokenInvariant) {
    REPORTED.set(REPORTED.get().or(Some(broken)));
}

/// Takes the report of this thread, if there is one.
#[inline]
pub fn take() -> Option<BrokenInvariant> {
    REPORTED.take()
}

/// The broken invariant that has stopped a shard, if any.
#[derive(Debug, Default)]
pub struct Watch {
    broken: Cell<Option<BrokenInvariant>>,
}

impl Watch {
    /// An error once any invariant was reported broken on this thread. Costs two loads and two branches.
    #[inline]
    pub fn check(&self) -> Result<(), BrokenInvariant> {
        if REPORTED.get().is_none() && self.broken.get().is_none() {
            return Ok(());
        }
        self.refuse()
    }

    #[cold]
    fn refuse(&self) -> Result<(), BrokenInvariant> {
        let broken = self.broken.get().or(take());
        self.broken.set(broken);
        broken.map_or(Ok(()), Err)
    }

    /// The broken invariant that has stopped the shard.
    pub fn broken(&self) -> Option<BrokenInvariant> {
        self.check().err()
    }
}

thread_local! {
    static IS_RELEASE: Cell<bool> = const { Cell::new(false) };
}

fn panics() -> bool {
    cfg!(debug_assertions) && !IS_RELEASE.get()
}

/// Runs `test` with reports as a release build treats them: without a panic.
pub fn as_in_release<R>(test: impl FnOnce() -> R) -> R {
    IS_RELEASE.set(true);
    let result = test();
    IS_RELEASE.set(false);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackgroundError, BackgroundPool, JobKind, run_in_background};

    fn halve(number: u32) -> Result<u32, BrokenInvariant> {
        invariant!(number.is_multiple_of(2), "the number is even");
        Ok(number / 2)
    }

    #[test]
    #[should_panic(expected = "the number is even")]
    fn a_test_build_panics() {
        assert!(halve(3).is_err());
    }

    #[test]
    fn a_release_build_stops_the_shard_and_keeps_it_stopped() {
        as_in_release(|| {
            let watch = Watch::default();
            assert_eq!(halve(4), Ok(2));
            assert_eq!(watch.check(), Ok(()));
            let broken = halve(3).unwrap_err();
            assert_eq!((broken.what(), broken.0.file), ("the number is even", file!()));
            let _second = broken!("the first report counts");
            assert_eq!(watch.check(), Err(broken));
            assert_eq!(watch.check(), Err(broken), "for good");
            assert_eq!(watch.broken(), Some(broken));
            assert_eq!(Watch::default().check(), Ok(()), "a shard that is opened anew");
        });
    }

    #[test]
    fn a_report_that_a_job_brings_back_stops_the_shard() {
        let (pool, watch) = (BackgroundPool::start(1).unwrap(), Watch::default());
        let outcome = futures::executor::block_on(run_in_background(&pool, JobKind::Soon, |_context| {
            Box::pin(async { as_in_release(|| broken!("a job works")).0.line })
        }));
        let broken = watch.check().unwrap_err();
        assert_eq!(broken.what(), "a job works");
        assert_eq!(outcome, Err(BackgroundError::BrokenInvariant(broken)));
    }
}
