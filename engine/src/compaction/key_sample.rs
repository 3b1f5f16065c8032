//! A sample of a table's keys, from which the number of different keys in several tables is estimated.
//!
//! The sample holds the least hashes of the keys. Hashes are spread evenly, so the greatest of the k least hashes gives an
//! estimate of the number of keys. The least hashes of a union are among the least hashes of its parts (a "k minimum values"
//! sketch). With [`KEYS_MAX`] keys the standard error is about 4 %.

/// Keys of a sample.
pub(crate) const KEYS_MAX: usize = 512;

/// The least hashes of the keys of one or several tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySample {
    /// In ascending order, without duplicates.
    hashes: Vec<u64>,
}

impl KeySample {
    /// The sample of a table with these hashes of keys, which come in any order.
    pub fn of(hashes: Vec<u64>) -> Self {
        let mut least = hashes;
        if least.len() > KEYS_MAX {
            least.select_nth_unstable(KEYS_MAX - 1);
            least.truncate(KEYS_MAX);
        }
        least.sort_unstable();
        least.dedup();
        least.shrink_to_fit();
        Self { hashes: least }
    }

    /// Adds the keys of another sample.
    pub fn add(&mut self, other: &Self) {
        let (mut left, mut right) = (self.hashes.iter().peekable(), other.hashes.iter().peekable());
        let mut union = Vec::with_capacity(KEYS_MAX);
        while union.len() < KEYS_MAX {
            let next = match (left.peek(), right.peek()) {
                (Some(&&left), Some(&&right)) => left.min(right),
                (Some(&&only), None) | (None, Some(&&only)) => only,
                (None, None) => break,
            };
            left.next_if(|hash| **hash == next);
            right.next_if(|hash| **hash == next);
            union.push(next);
        }
        self.hashes = union;
    }

    /// The estimated number of different keys.
    pub fn keys(&self) -> f64 {
        match self.hashes.get(KEYS_MAX - 1) {
            // All keys are in the sample.
            None => self.hashes.len() as f64,
            Some(&greatest) => {
                let share = (greatest as f64 + 1.0) / (u64::MAX as f64 + 1.0);
                (KEYS_MAX - 1) as f64 / share.max(f64::MIN_POSITIVE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SplitMix64;

    #[test]
    fn the_number_of_keys_is_estimated() {
        for count in [0, 1, 511, 512, 5_000, 200_000] {
            let hashes: Vec<u64> = (0..count).map(|key| SplitMix64::new(key).next_u64()).collect();
            let error = KeySample::of(hashes).keys() - count as f64;
            assert!(error.abs() <= count as f64 * 0.12, "{count}: {error}");
        }
    }
}
