//! Stateless pseudo-randomness: every number is a hash of the seed and of what it is for.
//!
//! The data of a model needs no memory that way: any user, post or point can be computed again when an answer
//! is checked, in any order, at any size.

/// Hashes `parts` under `seed` (each part goes through the `SplitMix64` finaliser).
pub fn hash(seed: u64, parts: &[u64]) -> u64 {
    parts.iter().fold(mix(seed), |state, part| mix(state ^ mix(part.wrapping_add(0x5851_F42D_4C95_7F2D))))
}

/// Maps a hash to `0..bound` (0 when `bound` is 0).
pub fn below(hash: u64, bound: u64) -> u64 {
    ((u128::from(hash) * u128::from(bound)) >> 64) as u64
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Words of generated texts.
const WORDS: [&str; 32] = [
    "partition",
    "cluster",
    "token",
    "ring",
    "replica",
    "quorum",
    "commit",
    "segment",
    "memtable",
    "bloom",
    "filter",
    "column",
    "row",
    "cell",
    "query",
    "page",
    "driver",
    "index",
    "schema",
    "write",
    "read",
    "repair",
    "hint",
    "gossip",
    "shard",
    "core",
    "queue",
    "latency",
    "bytes",
    "harbour",
    "river",
    "letter",
];

/// A text of `words` words that follows from `hash`.
pub fn text(hash: u64, words: u64) -> String {
    let mut text = String::with_capacity(words as usize * 8);
    for index in 0..words {
        if index > 0 {
            text.push(' ');
        }
        let word = below(mix(hash.wrapping_add(index)), WORDS.len() as u64) as usize;
        text.push_str(WORDS.get(word).copied().unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_purpose_give_the_same_number() {
        assert_eq!(hash(7, &[1, 2]), hash(7, &[1, 2]));
        assert_ne!(hash(7, &[1, 2]), hash(7, &[2, 1]));
        assert_ne!(hash(7, &[1, 2]), hash(8, &[1, 2]));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut seen = [false; 10];
        for index in 0..1_000 {
            let number = below(hash(1, &[index]), 10) as usize;
            seen[number] = true;
        }
        assert!(seen.iter().all(|reached| *reached));
        assert_eq!(below(u64::MAX, 0), 0);
    }

    #[test]
    fn a_text_has_the_number_of_words_asked_for() {
        assert_eq!(text(3, 12).split(' ').count(), 12);
        assert_eq!(text(3, 12), text(3, 12));
        assert_eq!(text(3, 0), "");
    }
}
