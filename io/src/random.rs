//! Randomness: a source of unpredictable numbers, and a small seeded generator.
//!
//! [`SplitMix64`] (Steele, Lea and Flood 2014) is for simulations, sampling and jitter, not for secrets. The same seed always gives
//! the same sequence, on every platform.

use std::cell::RefCell;
use std::io;

/// A source of random numbers that cannot be guessed or learned outside of the process.
pub trait RandomSource {
    /// The next 128 uniformly distributed bits. An error means that the system has no randomness to give.
    fn next_u128(&self) -> io::Result<u128>;
}

/// A repeatable source for simulations and tests.
#[derive(Debug)]
pub struct SeededRandom {
    generator: RefCell<SplitMix64>,
}

impl SeededRandom {
    /// A source whose sequence is a pure function of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { generator: RefCell::new(SplitMix64::new(seed)) }
    }
}

impl RandomSource for SeededRandom {
    fn next_u128(&self) -> io::Result<u128> {
        let mut generator = self.generator.borrow_mut();
        Ok((u128::from(generator.next_u64()) << 64) | u128::from(generator.next_u64()))
    }
}

/// Deterministic pseudo-random numbers from a 64-bit seed.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose sequence is a pure function of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 uniformly distributed bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound` (0 if `bound` is 0); the bias is below 2^-32 for bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `numerator / denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_seed_zero_is_the_published_one() {
        let mut random = SplitMix64::new(0);
        assert_eq!(random.next_u64(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.next_u64(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn a_seeded_source_repeats_its_sequence_and_no_number() {
        let numbers = |seed| {
            let random = SeededRandom::new(seed);
            (0..100).map(|_| random.next_u128().unwrap()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_eq!(numbers(1).union(&numbers(2)).count(), 200);
    }

    #[test]
    fn below_stays_below_its_bound() {
        let mut random = SplitMix64::new(7);
        assert!((0..1000).all(|_| random.below(10) < 10));
        assert_eq!(random.below(0), 0);
    }
}
