//! UUIDs of CQL functions, generated from a seed.

use std::cell::RefCell;

use cql_lite::types::timeuuid;
use helenus_engine::io::SplitMix64;
use helenus_query::functions::UuidSource;
use uuid::Uuid;

/// The source of this thread: a test that seeds it has a thread of its own.
pub static SEEDED_UUIDS: SeededUuids = SeededUuids;

thread_local! {
    static RANDOM: RefCell<SplitMix64> = RefCell::new(SplitMix64::new(0));
}

#[derive(Debug)]
pub struct SeededUuids;

impl SeededUuids {
    /// Starts the sequence of this thread.
    pub fn seed(seed: u64) {
        RANDOM.with(|random| *random.borrow_mut() = SplitMix64::new(seed));
    }
}

impl UuidSource for SeededUuids {
    fn random(&self) -> Uuid {
        RANDOM.with(|random| random_uuid(&mut random.borrow_mut()))
    }

    fn time_based(&self, unix_micros: i64) -> Uuid {
        let bits = RANDOM.with(|random| random.borrow_mut().next_u64());
        let [n0, n1, n2, n3, n4, n5, c0, c1] = bits.to_be_bytes();
        timeuuid::from_micros(unix_micros, 0, u16::from_be_bytes([c0, c1]), [n0 | 1, n1, n2, n3, n4, n5])
    }
}

/// A version 4 UUID.
pub fn random_uuid(random: &mut SplitMix64) -> Uuid {
    let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}
