//! The context of a function call besides its arguments: the time of the request, a source of new UUIDs and the runtime of functions of
//! users.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};

use cql_lite::types::timeuuid;
use helenus_engine::io::whole_seconds;
use uuid::Uuid;

use super::user::{NoUserFunctions, UserFunctionRuntime};

/// Makes new UUIDs. The process has one source; a simulation provides its own.
pub trait UuidSource: fmt::Debug + Send + Sync {
    /// A random (version 4) UUID.
    fn random(&self) -> Uuid;
    /// A version 1 UUID that this source has not made before. Its time is the given one, or a little later if UUIDs
    /// are made faster than time passes.
    fn time_based(&self, unix_micros: i64) -> Uuid;
}

/// The call context of one request.
#[derive(Debug, Clone, Copy)]
pub struct CallContext {
    /// The time of the request, in microseconds since the epoch.
    pub now_micros: i64,
    uuids: &'static dyn UuidSource,
    user_functions: &'static dyn UserFunctionRuntime,
}

impl CallContext {
    /// A request at that time (microseconds since the epoch), with the process's source of UUIDs and without functions of users.
    pub fn at(now_micros: i64) -> CallContext {
        CallContext::with_uuids(now_micros, CallContext::process_uuids())
    }

    /// The process's source of UUIDs.
    pub fn process_uuids() -> &'static dyn UuidSource {
        static PROCESS: LazyLock<ProcessUuids> = LazyLock::new(ProcessUuids::new);
        &*PROCESS
    }

    /// A request at that time with its own source of UUIDs.
    pub fn with_uuids(now_micros: i64, uuids: &'static dyn UuidSource) -> CallContext {
        CallContext { now_micros, uuids, user_functions: &NoUserFunctions }
    }

    /// The same request, with a runtime for functions of users.
    #[must_use]
    pub fn with_user_functions(self, user_functions: &'static dyn UserFunctionRuntime) -> CallContext {
        CallContext { user_functions, ..self }
    }

    /// Calls functions of users.
    pub fn user_functions(&self) -> &'static dyn UserFunctionRuntime {
        self.user_functions
    }

    /// The time of the request in whole seconds since the epoch.
    pub fn now_seconds(&self) -> u32 {
        whole_seconds(self.now_micros)
    }

    /// A new random UUID.
    pub fn random_uuid(&self) -> Uuid {
        self.uuids.random()
    }

    /// A new timeuuid with the time of the request.
    pub fn new_timeuuid(&self) -> Uuid {
        self.uuids.time_based(self.now_micros)
    }

    /// The time of the request in milliseconds since the epoch.
    pub fn now_millis(&self) -> i64 {
        self.now_micros.div_euclid(1000)
    }
}

/// UUIDs that are unique among processes by a random node and clock sequence.
#[derive(Debug)]
struct ProcessUuids {
    /// The time of the last timeuuid, in units of 100 ns.
    last_tick: AtomicI64,
    clock_sequence: u16,
    node: [u8; 6],
}

#[allow(clippy::disallowed_methods, reason = "the source of a real node")]
impl ProcessUuids {
    fn new() -> ProcessUuids {
        let [n0, n1, n2, n3, n4, n5, c0, c1, ..] = *Uuid::new_v4().as_bytes();
        // The multicast bit marks a node that is not a network address (RFC 9562, section 6.10).
        ProcessUuids {
            last_tick: AtomicI64::new(i64::MIN),
            clock_sequence: u16::from_be_bytes([c0, c1]),
            node: [n0 | 1, n1, n2, n3, n4, n5],
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the source of a real node")]
impl UuidSource for ProcessUuids {
    fn random(&self) -> Uuid {
        Uuid::new_v4()
    }

    fn time_based(&self, unix_micros: i64) -> Uuid {
        let wanted = unix_micros.saturating_mul(10);
        let next = |last: i64| wanted.max(last.saturating_add(1));
        let last = self.last_tick.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        let tick = next(last.unwrap_or(i64::MIN));
        timeuuid::from_micros(tick.div_euclid(10), tick.rem_euclid(10) as u8, self.clock_sequence, self.node)
    }
}
