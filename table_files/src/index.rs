//! The index of a table: which block may hold a key.
//!
//! The index has two levels of nodes: leaves point to data blocks, the root points to leaves. A node is searched in place, without
//! decoding. The first eight bytes of all keys, behind their common prefix, are stored together as numbers. Full keys are
//! compared only if these numbers are equal.
//!
//! ```text
//! leaves := leaf, one after the other
//! leaf  := node | crc32 u32 of the node
//! root  := node
//! node  := count u32 | prefix length u32 | count x head u64 | count x target | prefix | key rests     little endian
//! target := end of the key's rest u32 (from the start of the rests) | length u32 | offset u64
//! head  := first 8 bytes of the key's rest as a big-endian number, filled up with zeros
//! ```
//!
//! A target of the root is the node of a leaf without its checksum. Before version 4 of the format leaves have no checksums.
//!
//! The key of an entry is a *separator*: greater than every key of the block before, at most the first key of its own.

use std::cmp::Ordering;

use smallvec::SmallVec;

use super::block::common_prefix;
use super::error::TableError;

/// The most entries of a leaf.
pub const LEAF_ENTRIES_MAX: usize = 128;

/// Bytes of the checksum behind a leaf.
pub const LEAF_CHECKSUM_BYTES: usize = 4;

const HEAD_BYTES: usize = 8;
const TARGET_BYTES: usize = 16;

/// The place of a block in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPosition {
    pub leaf: usize,
    pub entry: usize,
}

/// The part of the file that an index entry points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHandle {
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// The shortest key greater than `before` and at most `first`, which must be greater than `before`.
pub fn separator<'a>(before: &[u8], first: &'a [u8]) -> &'a [u8] {
    first.get(..=common_prefix(before, first)).unwrap_or(first)
}

fn head(rest: &[u8]) -> u64 {
    if let Some(bytes) = rest.first_chunk::<HEAD_BYTES>() {
        return u64::from_be_bytes(*bytes);
    }
    let mut bytes = [0; HEAD_BYTES];
    for (target, byte) in bytes.iter_mut().zip(rest) {
        *target = *byte;
    }
    u64::from_be_bytes(bytes)
}

/// Collects the entries of one node.
#[derive(Debug, Default)]
pub struct NodeBuilder {
    keys: Vec<u8>,
    entries: Vec<(usize, BlockHandle)>,
}

impl NodeBuilder {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn add(&mut self, separator: &[u8], target: BlockHandle) {
        self.keys.extend_from_slice(separator);
        self.entries.push((self.keys.len(), target));
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.entries.iter().map(move |(end, _)| {
            let key = &self.keys[start..*end];
            start = *end;
            key
        })
    }

    /// The first separator; empty if there is none.
    pub fn first_key(&self) -> &[u8] {
        self.keys().next().unwrap_or_default()
    }

    /// Appends the node's bytes and empties the builder. Fails if the keys are larger than 32 bits can address.
    pub fn write_to(&mut self, out: &mut Vec<u8>) -> Result<(), TableError> {
        const TOO_LARGE: TableError = TableError::TooLarge { what: "index nodes" };
        let count = u32::try_from(self.entries.len()).map_err(|_| TOO_LARGE)?;
        // So the ends of all keys' rests fit as well.
        u32::try_from(self.keys.len()).map_err(|_| TOO_LARGE)?;
        let first = self.first_key();
        // Keys ascend, so the common prefix of the first and the last is the common prefix of all.
        let prefix = common_prefix(first, self.keys().last().unwrap_or_default());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&(prefix as u32).to_le_bytes());
        for key in self.keys() {
            out.extend_from_slice(&head(&key[prefix..]).to_le_bytes());
        }
        let mut end = 0;
        for (key, (_, target)) in self.keys().zip(&self.entries) {
            end += (key.len() - prefix) as u32;
            out.extend_from_slice(&end.to_le_bytes());
            out.extend_from_slice(&target.length.to_le_bytes());
            out.extend_from_slice(&target.offset.to_le_bytes());
        }
        out.extend_from_slice(&first[..prefix]);
        for key in self.keys() {
            out.extend_from_slice(&key[prefix..]);
        }
        self.keys.clear();
        self.entries.clear();
        Ok(())
    }
}

/// The separator of an entry, as it is read from a node.
pub type Separator = SmallVec<[u8; 64]>;

/// A view of a node.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    heads: &'a [[u8; HEAD_BYTES]],
    targets: &'a [[u8; TARGET_BYTES]],
    prefix: &'a [u8],
    rests: &'a [u8],
}

impl<'a> Node<'a> {
    /// `None` if the bytes are not a node.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let (prefix_length, rest) = rest.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (heads, rest) = rest.split_at_checked(count.checked_mul(HEAD_BYTES)?)?;
        let (targets, rest) = rest.split_at_checked(count.checked_mul(TARGET_BYTES)?)?;
        let (prefix, rests) = rest.split_at_checked(u32::from_le_bytes(*prefix_length) as usize)?;
        Some(Self { heads: heads.as_chunks().0, targets: targets.as_chunks().0, prefix, rests })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    pub fn target(&self, index: usize) -> Option<BlockHandle> {
        let (_, rest) = self.targets.get(index)?.split_first_chunk::<4>()?;
        let (length, offset) = rest.split_first_chunk::<4>()?;
        Some(BlockHandle {
            offset: u64::from_le_bytes(*offset.first_chunk()?),
            length: u32::from_le_bytes(*length),
        })
    }

    #[inline]
    fn rest_end(&self, index: usize) -> Option<usize> {
        self.targets.get(index)?.first_chunk::<4>().map(|end| u32::from_le_bytes(*end) as usize)
    }

    /// The separator of an entry without the node's common prefix.
    #[inline]
    fn rest(&self, index: usize) -> Option<&'a [u8]> {
        let start = index.checked_sub(1).map_or(Some(0), |before| self.rest_end(before))?;
        self.rests.get(start..self.rest_end(index)?)
    }

    /// The separator of an entry.
    pub fn separator(&self, index: usize) -> Option<Separator> {
        let mut separator = SmallVec::from_slice(self.prefix);
        separator.extend_from_slice(self.rest(index)?);
        Some(separator)
    }

    /// The last entry whose separator is less than or equal to `key`; 0 if there is none.
    #[inline]
    pub fn floor(&self, key: &[u8]) -> Option<usize> {
        let (start, rest) = key.split_at_checked(self.prefix.len()).unwrap_or((key, &[]));
        match start.cmp(self.prefix) {
            Ordering::Less => return Some(0),
            Ordering::Greater => return self.len().checked_sub(1),
            Ordering::Equal => {}
        }
        let wanted = head(rest);
        let mut low = 0;
        let mut high = self.len();
        while low < high {
            let middle = usize::midpoint(low, high);
            let found = self.heads.get(middle).map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
            if found < wanted || (found == wanted && self.rest(middle)? <= rest) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low.saturating_sub(1))
    }

    /// Whether the separator of an entry is greater than `key`.
    pub fn is_after(&self, index: usize, key: &[u8]) -> Option<bool> {
        let rest = self.rest(index)?;
        let (start, key_rest) = key.split_at_checked(self.prefix.len()).unwrap_or((key, &[]));
        Some(self.prefix.cmp(start).then_with(|| rest.cmp(key_rest)) == Ordering::Greater)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(keys: &[&[u8]]) -> Vec<u8> {
        let mut builder = NodeBuilder::default();
        for (number, key) in keys.iter().enumerate() {
            builder.add(key, BlockHandle { offset: number as u64 * 100, length: number as u32 });
        }
        let mut bytes = Vec::new();
        builder.write_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn golden_bytes() {
        let expected = [
            &[2, 0, 0, 0, 1, 0, 0, 0][..],
            &[0, 0, 0, 0, 0, 0, 0, b'b', 0, 0, 0, 0, 0, 0, b'd', b'c'],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[3, 0, 0, 0, 1, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0],
            b"abcd",
        ]
        .concat();
        assert_eq!(node(&[b"ab", b"acd"]), expected);
    }

    #[test]
    fn the_floor_of_a_key_is_the_last_separator_not_after_it() {
        let keys: [&[u8]; 7] =
            [b"pre", b"pre\0", b"pre12345678", b"pre123456789", b"pre2", b"pre2\0\0", b"prf"];
        let bytes = node(&keys);
        let node = Node::new(&bytes).unwrap();
        let mut probes: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        for key in keys {
            probes.push([key, b"\0"].concat());
            probes.push([key, b"z"].concat());
            probes.push(key[..key.len() - 1].to_vec());
        }
        for probe in probes {
            let expected = keys.iter().rposition(|key| *key <= probe.as_slice()).unwrap_or(0);
            assert_eq!(node.floor(&probe), Some(expected), "{probe:?}");
            for (index, key) in keys.iter().enumerate() {
                assert_eq!(node.is_after(index, &probe), Some(*key > probe.as_slice()));
            }
        }
    }

    #[test]
    fn a_separator_stands_between_two_keys() {
        for (before, first) in [("abc", "abd"), ("abc", "abcd"), ("a", "b"), ("abczz", "abdaa")] {
            let found = separator(before.as_bytes(), first.as_bytes());
            assert!(before.as_bytes() < found && found <= first.as_bytes());
        }
        assert_eq!(separator(b"abczz", b"abdaa"), b"abd");
    }
}
