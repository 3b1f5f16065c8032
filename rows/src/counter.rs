//! Counter contexts: the value of a counter cell.
//!
//! A context is a sequence of shards, each (id 16 bytes, clock i64 big endian, count i64 big endian), ordered
//! by id without duplicates. Of two shards with one id the higher clock wins, at equal clocks the higher count.

use std::cmp::Ordering;

/// Bytes of one shard of a context.
pub const SHARD_BYTES: usize = 32;

type Shard = [u8; SHARD_BYTES];

fn number(shard: &Shard, at: usize) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&shard[at..at + 8]);
    i64::from_be_bytes(bytes)
}

fn shards(context: &[u8]) -> &[Shard] {
    context.as_chunks::<SHARD_BYTES>().0
}

/// One shard in its encoding.
pub fn shard(id: [u8; 16], clock: i64, count: i64) -> [u8; SHARD_BYTES] {
    let mut out = [0; SHARD_BYTES];
    out[..16].copy_from_slice(&id);
    out[16..24].copy_from_slice(&clock.to_be_bytes());
    out[24..].copy_from_slice(&count.to_be_bytes());
    out
}

/// The counter's value: the sum of the counts. It wraps, as in Cassandra.
pub fn total(context: &[u8]) -> i64 {
    shards(context).iter().fold(0_i64, |sum, shard| sum.wrapping_add(number(shard, 24)))
}

/// The clock and count of one id.
pub fn find(context: &[u8], id: [u8; 16]) -> Option<(i64, i64)> {
    let shard = shards(context).iter().find(|shard| shard[..16] == id)?;
    Some((number(shard, 16), number(shard, 24)))
}

/// Appends the union of two contexts.
pub fn merge(left: &[u8], right: &[u8], out: &mut Vec<u8>) {
    let (mut left, mut right) = (shards(left).iter().peekable(), shards(right).iter().peekable());
    loop {
        let ordering = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left[..16].cmp(&right[..16]),
        };
        let chosen = match ordering {
            Ordering::Less => left.next(),
            Ordering::Greater => right.next(),
            Ordering::Equal => {
                let rank = |shard: &Shard| (number(shard, 16), number(shard, 24));
                left.next().into_iter().chain(right.next()).max_by_key(|shard| rank(shard))
            }
        };
        if let Some(chosen) = chosen {
            out.extend_from_slice(chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_clock_of_each_id_wins() {
        let left = [shard([1; 16], 5, 10), shard([3; 16], 1, 100)].concat();
        let right = [shard([1; 16], 6, 7), shard([2; 16], 1, 1000)].concat();
        let mut merged = Vec::new();
        merge(&left, &right, &mut merged);
        assert_eq!(total(&merged), 1107);
        assert_eq!(find(&merged, [1; 16]), Some((6, 7)));
        let mut other_way = Vec::new();
        merge(&right, &left, &mut other_way);
        assert_eq!(merged, other_way);
        let mut again = Vec::new();
        merge(&merged, &left, &mut again);
        assert_eq!(merged, again);
    }
}
