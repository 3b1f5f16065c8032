//! The operating system's randomness. Only this file asks for it.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

use super::random::RandomSource;

/// Random numbers of the operating system, as good as its cryptographic generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn next_u128(&self) -> io::Result<u128> {
        let mut bytes = [0_u8; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(u128::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_comes_twice() {
        let numbers: std::collections::BTreeSet<_> =
            (0..100).map(|_| SystemRandom.next_u128().unwrap()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
