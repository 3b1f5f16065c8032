//! A lookup in a table's filter, and the same in the `bloomfilter` crate: same keys, same number of bits.
//!
//! Every second key is there. The hash of the key is part of both; the engine computes it once for all tables of a read.

use std::hint::black_box;

use bloomfilter::Bloom;
use cql_lite::types::token::token;
use helenus_engine::key::{REGULAR_START, full_key};
use helenus_engine::table::{Filter, KeyHash, build_filter};

use crate::workload::{Failure, Workload};

/// Keys in the filter.
const KEYS: u64 = 100_000;
const FALSE_POSITIVE_CHANCE: f64 = 0.01;
/// Any: the crate takes its hash functions from it.
const SEED: [u8; 32] = [7; 32];

/// Full keys: those with even numbers are in the filter.
fn keys() -> Result<Vec<Vec<u8>>, Failure> {
    let key = |number: u64| {
        let partition_key = number.to_be_bytes();
        full_key(token(&partition_key), &partition_key, REGULAR_START)
    };
    (0..2 * KEYS).map(|number| Ok(key(number)?)).collect()
}

/// Bytes of our filter over the even keys.
fn filter_of(keys: &[Vec<u8>]) -> Vec<u8> {
    let hashes: Vec<u64> = keys.iter().step_by(2).map(|key| KeyHash::of(key).row).collect();
    build_filter(&hashes, FALSE_POSITIVE_CHANCE)
}

/// Checks the answer for the key with this number. A false positive is no failure.
fn check(number: u64, may_be_there: bool) -> Result<(), Failure> {
    if number.is_multiple_of(2) && !may_be_there { Err("a key is missing".into()) } else { Ok(()) }
}

/// The engine's filter.
pub struct OurFilter {
    keys: Vec<Vec<u8>>,
    filter: Filter,
}

impl OurFilter {
    pub fn prepare() -> Result<Self, Failure> {
        let keys = keys()?;
        let filter = Filter::read(&filter_of(&keys)).ok_or("no filter")?;
        Ok(Self { keys, filter })
    }
}

impl Workload for OurFilter {
    fn operation(&mut self, number: u64) -> Result<(), Failure> {
        let number = number % self.keys.len() as u64;
        let hash = KeyHash::of(black_box(&self.keys[number as usize]));
        check(number, self.filter.may_contain(hash.row))
    }
}

/// The filter of the crate.
pub struct CrateFilter {
    keys: Vec<Vec<u8>>,
    filter: Bloom<[u8]>,
}

impl CrateFilter {
    pub fn prepare() -> Result<Self, Failure> {
        let keys = keys()?;
        let mut filter = Bloom::new_with_seed(filter_of(&keys).len(), KEYS as usize, &SEED)?;
        for key in keys.iter().step_by(2) {
            filter.set(key.as_slice());
        }
        Ok(Self { keys, filter })
    }
}

impl Workload for CrateFilter {
    fn operation(&mut self, number: u64) -> Result<(), Failure> {
        let number = number % self.keys.len() as u64;
        check(number, self.filter.check(black_box(self.keys[number as usize].as_slice())))
    }
}
