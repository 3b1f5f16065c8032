//! Bloom filters, blocked by cache line: a probe touches one line of 64 bytes.
//!
//! ```text
//! filter := lines (64 bytes each, starting at a multiple of 64 in the file) | probes u8 | 7 zero bytes
//! ```
//!
//! In a table checksums come behind it ([`super::filter_parts`]).
//!
//! The high bits of a hash select a line. 9-bit pieces of a product of the hash select `probes` bits in it. The hash functions below
//! are part of the file format. An empty section means that there is no filter: every key may be in the table.

use crate::key;
use crate::prefetch::prefetch;

/// Bytes of a line: the cache line of most processors. Part of the file format.
pub const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = 512;
/// Bytes behind the lines. Part of the file format.
pub(super) const TRAILER_BYTES: usize = 8;
/// Seven pieces of nine bits fit into one 64-bit product.
const PROBES_PER_WORD: u32 = 7;
const PROBES_MAX: u32 = 14;
const BITS_PER_KEY_MAX: u32 = 32;
const _: () = assert!(LINE_BITS == 8 * LINE_BYTES as u64 && LINE_BITS == 1 << 9);
const _: () = assert!(PROBES_PER_WORD * 9 <= u64::BITS && PROBES_MAX <= 2 * PROBES_PER_WORD);

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const SEED: u64 = 0xA076_1D64_78BD_642F;

/// The hashes of a full key. They are computed once for all tables in which the key is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash {
    /// The hash of the partition. It depends on the token only, which is itself a hash.
    pub partition: u64,
    /// The hash of the whole key.
    pub row: u64,
}

impl KeyHash {
    /// The hashes of a full key. For a bare partition prefix only `partition` is meaningful.
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        Self { partition: partition_hash(key), row: row_hash(key) }
    }
}

#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hash of the token at the start of a key.
#[inline]
pub fn partition_hash(key: &[u8]) -> u64 {
    let token = key.first_chunk::<8>().copied().map_or(0, u64::from_be_bytes);
    fold(token ^ SEED, MULTIPLIER)
}

/// Hash of all bytes of a key.
#[inline]
pub fn row_hash(key: &[u8]) -> u64 {
    let (words, tail) = key.as_chunks::<8>();
    let mut hash = SEED ^ key.len() as u64;
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), MULTIPLIER);
    }
    let mut last = [0; 8];
    for (target, byte) in last.iter_mut().zip(tail) {
        *target = *byte;
    }
    fold(hash ^ u64::from_le_bytes(last), SEED)
}

/// The partition prefix of a key; the whole key if it has no complete prefix.
pub fn partition_of(key: &[u8]) -> &[u8] {
    key::prefix_length(key).and_then(|length| key.get(..length)).unwrap_or(key)
}

/// The bits per key and the number of probes for a given rate of false positives.
fn dimensions(false_positive_chance: f64) -> Option<(u32, u32)> {
    if false_positive_chance.is_nan() || false_positive_chance >= 1.0 {
        return None;
    }
    (2..=BITS_PER_KEY_MAX)
        .map(|bits| (bits, ((f64::from(bits) * 0.65).round() as u32).clamp(1, PROBES_MAX)))
        // The rate of an unblocked filter is cheap to compute, and a lower bound of a blocked filter's rate.
        .find(|(bits, probes)| {
            unblocked_rate(*bits, *probes) <= false_positive_chance
                && expected_rate(*bits, *probes) <= false_positive_chance
        })
        .or(Some((BITS_PER_KEY_MAX, PROBES_MAX)))
}

/// The expected rate of false positives of an unblocked filter.
fn unblocked_rate(bits_per_key: u32, probes: u32) -> f64 {
    (1.0 - (-f64::from(probes) / f64::from(bits_per_key)).exp()).powi(probes as i32)
}

/// The expected rate of false positives of a blocked filter. The number of keys per line is Poisson distributed.
fn expected_rate(bits_per_key: u32, probes: u32) -> f64 {
    let mean = LINE_BITS as f64 / f64::from(bits_per_key);
    let mut probability = (-mean).exp();
    let mut rate = 0.0;
    for keys in 0..(4 * mean as i32 + 20) {
        let unset = (1.0 - 1.0 / LINE_BITS as f64).powi(keys * probes as i32);
        rate += probability * (1.0 - unset).powi(probes as i32);
        probability *= mean / f64::from(keys + 1);
    }
    rate
}

/// The line of a hash.
#[inline]
pub(super) fn line_of(hash: u64, lines: usize) -> usize {
    ((u128::from(hash) * lines as u128) >> 64) as usize
}

/// Calls `visit` with each bit (0..512) of a hash until it returns false. True if it never did.
#[inline]
fn all_bits(hash: u64, probes: u32, mut visit: impl FnMut(u64) -> bool) -> bool {
    let mut word = hash.wrapping_mul(MULTIPLIER);
    for probe in 0..probes {
        if probe == PROBES_PER_WORD {
            word = fold(hash, SEED);
        }
        if !visit(word % LINE_BITS) {
            return false;
        }
        word >>= 9;
    }
    true
}

/// False only if no key with this hash was added to the line.
#[inline]
pub(super) fn line_may_contain(line: &[u8; LINE_BYTES], hash: u64, probes: u32) -> bool {
    all_bits(hash, probes, |bit| line.get((bit / 8) as usize).is_none_or(|byte| byte & (1 << (bit % 8)) != 0))
}

/// The number of probes; `None` if no filter has it.
pub(super) fn probes_of(trailer: [u8; TRAILER_BYTES]) -> Option<u32> {
    let [probes, ..] = trailer;
    Some(u32::from(probes)).filter(|probes| (1..=PROBES_MAX).contains(probes))
}

/// The filter's bytes for these hashes; empty if `false_positive_chance` is 1 or more, or there are no hashes.
pub fn build(hashes: &[u64], false_positive_chance: f64) -> Vec<u8> {
    let Some((bits_per_key, probes)) = dimensions(false_positive_chance) else { return Vec::new() };
    if hashes.is_empty() {
        return Vec::new();
    }
    let lines = (hashes.len() as u64 * u64::from(bits_per_key)).div_ceil(LINE_BITS) as usize;
    let mut filter = vec![0_u8; lines * LINE_BYTES + TRAILER_BYTES];
    for hash in hashes {
        let start = line_of(*hash, lines) * LINE_BYTES;
        all_bits(*hash, probes, |bit| {
            filter[start + (bit / 8) as usize] |= 1 << (bit % 8);
            true
        });
    }
    filter[lines * LINE_BYTES] = probes as u8;
    filter
}

/// A line of a filter, in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE_BYTES]);
const _: () = assert!(size_of::<Line>() == LINE_BYTES && align_of::<Line>() == LINE_BYTES);

/// A filter in memory.
#[derive(Debug, Clone)]
pub struct Filter {
    lines: Box<[Line]>,
    probes: u32,
}

impl Filter {
    /// Reads the bytes of a filter; `None` if they are none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (lines, trailer) = bytes.split_last_chunk::<TRAILER_BYTES>()?;
        let is_whole = !lines.is_empty() && lines.len().is_multiple_of(LINE_BYTES);
        let probes = probes_of(*trailer)?;
        is_whole.then(|| Self::of_lines(lines, probes))
    }

    pub(super) fn of_lines(lines: &[u8], probes: u32) -> Self {
        let (lines, _) = lines.as_chunks::<LINE_BYTES>();
        Self { lines: lines.iter().copied().map(Line).collect(), probes }
    }

    /// Prefetches the line of a hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(Line(line)) = self.lines.get(line_of(hash, self.lines.len())) {
            prefetch(line);
        }
    }

    /// False only if no key with this hash was added.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let Some(Line(line)) = self.lines.get(line_of(hash, self.lines.len())) else { return true };
        line_may_contain(line, hash, self.probes)
    }
}

#[cfg(test)]
mod tests {
    use bloomfilter::Bloom;
    use proptest::prelude::*;

    use super::*;
    use crate::io::SplitMix64;

    /// Absent keys that are looked up in a filter.
    const ABSENT: u64 = 20_000;

    /// The share of absent keys that a filter takes for present. All absent keys are longer than those of the test.
    fn false_positive_rate(may_contain: impl Fn(&[u8]) -> bool) -> f64 {
        let wrong = (0..ABSENT).filter(|number| {
            let mut key = vec![b'-'; 32];
            key.extend_from_slice(&number.to_be_bytes());
            may_contain(&key)
        });
        wrong.count() as f64 / ABSENT as f64
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// The `bloomfilter` crate is the reference: same keys, same bits. A blocked filter has more false positives; decision 2 says
        /// what for. Down to 0.5 % they are at most 1.3 times as many by theory.
        #[test]
        fn keys_are_found_and_others_are_not_much_oftener_than_in_the_bloomfilter_crate(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..32), 200..1500),
            per_mille in 5..300_u32,
            seed in any::<[u8; 32]>(),
        ) {
            let hashes: Vec<u64> = keys.iter().map(|key| row_hash(key)).collect();
            let bytes = build(&hashes, f64::from(per_mille) / 1000.0);
            let ours = Filter::read(&bytes).unwrap();
            let bitmap_bytes = bytes.len() - TRAILER_BYTES;
            let mut theirs = Bloom::<[u8]>::new_with_seed(bitmap_bytes, keys.len(), &seed).unwrap();
            for key in &keys {
                theirs.set(key);
            }
            for key in &keys {
                prop_assert!(ours.may_contain(row_hash(key)) && theirs.check(key));
            }
            let our_rate = false_positive_rate(|key| ours.may_contain(row_hash(key)));
            let their_rate = false_positive_rate(|key| theirs.check(key));
            let noise = 5.0 * (their_rate.max(0.001) / ABSENT as f64).sqrt();
            prop_assert!(our_rate <= 1.4 * their_rate + noise, "{our_rate} against {their_rate}");
        }
    }

    #[test]
    fn what_was_put_in_is_found_and_little_else() {
        let mut random = SplitMix64::new(1);
        let hashes: Vec<u64> = (0..20_000).map(|_| random.next_u64()).collect();
        for chance in [0.1, 0.01, 0.001] {
            let bytes = build(&hashes, chance);
            let filter = Filter::read(&bytes).unwrap();
            assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
            let wrong = (0..50_000).filter(|_| filter.may_contain(random.next_u64())).count();
            let rate = wrong as f64 / 50_000.0;
            assert!(rate < chance * 1.3, "{rate} for {chance}");
        }
        let bits = build(&hashes, 0.01).len() * 8 / hashes.len();
        assert!((9..=11).contains(&bits), "{bits} bits a key");
    }

    #[test]
    fn a_filter_is_as_small_as_it_can_be() {
        for per_mille in 1..1_000 {
            let chance = f64::from(per_mille) / 1_000.0;
            let (bits, probes) = dimensions(chance).unwrap();
            assert!(bits == BITS_PER_KEY_MAX || expected_rate(bits, probes) <= chance);
            for fewer in 2..bits {
                let probes = ((f64::from(fewer) * 0.65).round() as u32).clamp(1, PROBES_MAX);
                assert!(expected_rate(fewer, probes) > chance, "{fewer} bits a key are enough for {chance}");
            }
        }
    }

    #[test]
    fn a_chance_of_one_means_no_filter() {
        assert!(build(&[1, 2, 3], 1.0).is_empty());
        assert!(Filter::read(&[]).is_none());
        assert!(Filter::read(&[0; 72]).is_none(), "no probes");
    }

    #[test]
    fn the_hashes_are_part_of_the_format() {
        let key = crate::key::full_key(42, b"partition", &[2, 1, 2, 3]).unwrap();
        assert_eq!(partition_hash(&key), partition_hash(partition_of(&key)));
        assert_eq!(
            (partition_hash(&key), row_hash(&key), row_hash(b"")),
            (11_176_664_646_898_891_236, 13_002_948_846_399_825_729, 17_617_202_122_610_259_517)
        );
        assert_eq!(build(&[u64::MAX / 3], 0.01)[64..], [7, 0, 0, 0, 0, 0, 0, 0]);
    }
}
