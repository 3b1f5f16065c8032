//! The token of a partition key, and the shard of a token.
//!
//! The token is the first half of `MurmurHash3` x64 128 (seed 0) with Cassandra's deviation: the bytes after the last
//! whole block of 16 are sign-extended before they are mixed in. The token -2^63 never occurs.

const C1: u64 = 0x87C3_7B91_1142_53D5;
const C2: u64 = 0x4CF5_AD43_2745_937F;

/// The token of a partition key in its serialized form (see [`write_composite_component`]).
#[inline]
pub fn token(partition_key: &[u8]) -> i64 {
    if partition_key.is_empty() {
        // No data has the empty key: as in Cassandra its token is before all others.
        return i64::MIN;
    }
    match murmur3_first_half(partition_key) {
        i64::MIN => i64::MAX,
        hash => hash,
    }
}

/// How the token of a partition key is computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Partitioner {
    /// By [`token`], as all tables but the logs of change feeds.
    #[default]
    Murmur3,
    /// ScyllaDB's `CDCPartitioner`: the first eight bytes of a stream's id, big endian. Other keys have the least token.
    Stream,
}

impl Partitioner {
    /// The token of a partition key in its serialized form.
    #[inline]
    pub fn token(self, partition_key: &[u8]) -> i64 {
        match (self, partition_key.first_chunk::<8>()) {
            (Self::Murmur3, _) => token(partition_key),
            (Self::Stream, Some(first)) if partition_key.len() == 16 => i64::from_be_bytes(*first),
            (Self::Stream, _) => i64::MIN,
        }
    }
}

/// The first 64 bits of the hash.
#[inline]
pub fn murmur3_first_half(key: &[u8]) -> i64 {
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let both = u128::from_le_bytes(*block);
        h1 ^= mix_k1(both as u64);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= mix_k2((both >> 64) as u64);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    if !tail.is_empty() {
        let (low, high) = tail.split_at(tail.len().min(8));
        if !high.is_empty() {
            h2 ^= mix_k2(signed_tail(high));
        }
        h1 ^= mix_k1(signed_tail(low));
    }
    let length = key.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    // The second half of the hash is not needed.
    finalize(h1).wrapping_add(finalize(h2)) as i64
}

/// Up to eight bytes, little endian, each sign-extended before it is shifted and combined.
///
/// Sign extension of a negative byte sets all bits above it, and the extended bytes are combined by XOR. A byte is
/// therefore inverted if an odd number of the bytes below it are negative, which a prefix XOR of the sign bits gives.
#[inline]
fn signed_tail(bytes: &[u8]) -> u64 {
    let word = little_endian(bytes);
    let mut odd = ((word >> 7) & 0x0101_0101_0101_0101) << 8;
    odd ^= odd << 8;
    odd ^= odd << 16;
    odd ^= odd << 32;
    word ^ odd.wrapping_mul(0xFF)
}

/// Loads one to eight bytes as a number, with overlapping loads instead of one load for each byte.
#[inline]
fn little_endian(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (low, high) = (u32::from_le_bytes(*low), u32::from_le_bytes(*high));
        return u64::from(low) | (u64::from(high) << (8 * (length - 4)));
    }
    let byte = |index: usize| bytes.get(index).map_or(0, |byte| u64::from(*byte) << (8 * index));
    byte(0) | byte(length / 2) | byte(length.saturating_sub(1))
}

#[inline]
fn mix_k1(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline]
fn mix_k2(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

#[inline]
fn finalize(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ (hash >> 33)
}

/// Appends one column of a partition key of several columns: length (u16), bytes, a zero byte. The key of one column
/// is the value itself. Returns false, writing nothing, if the value has more than 65,535 bytes.
#[must_use]
pub fn write_composite_component(value: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(length) = u16::try_from(value.len()) else { return false };
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(value);
    out.push(0);
    true
}

/// Iterates over the columns of a composite partition key; stops at the first malformed one.
pub fn composite_components(mut key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = key.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        key = rest.get(1..)?;
        Some(value)
    })
}

/// The shard that owns a token, among `shards` (at least one), by ScyllaDB's biased token round robin. The `ignore_msb`
/// (less than 64) most significant bits of the token are ignored, which spreads each shard's tokens over the ring.
#[inline]
pub fn shard_of(token: i64, shards: u32, ignore_msb: u32) -> u32 {
    let biased = (token as u64) ^ (1 << 63);
    let shifted = biased.wrapping_shl(ignore_msb);
    ((u128::from(shifted) * u128::from(shards)) >> 64) as u32
}
