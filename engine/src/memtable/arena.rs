//! A bump allocator of byte strings that are addressed by location.
//!
//! Memory is allocated in chunks that grow from 256 bytes (there may be 10,000 memtables with a few rows each) to 1 MiB, and freed all at once
//! with the arena. A location is valid only in the arena that returned it.

use crate::invariant::broken;

const FIRST_CHUNK_BYTES: usize = 256;
/// How often the size of a chunk doubles.
const DOUBLINGS: usize = 12;
const MAX_CHUNK_BYTES: usize = 1 << 20;
const _: () =
    assert!(FIRST_CHUNK_BYTES << DOUBLINGS == MAX_CHUNK_BYTES && MAX_CHUNK_BYTES <= u32::MAX as usize);

/// The place of a byte string in its arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Location {
    pub chunk: u32,
    pub offset: u32,
    pub length: u32,
}

#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: Vec<Vec<u8>>,
    reserved_bytes: usize,
}

impl Arena {
    /// Bytes allocated.
    #[inline]
    pub fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }

    #[inline]
    pub fn get(&self, location: Location) -> &[u8] {
        self.slice(location.chunk, location.offset, location.length)
    }

    #[inline]
    pub fn slice(&self, chunk: u32, offset: u32, length: u32) -> &[u8] {
        let chunk = self.chunks.get(chunk as usize);
        let Some(bytes) = chunk.and_then(|bytes| bytes.get(offset as usize..)?.get(..length as usize)) else {
            broken!("a location lies in its arena");
            return &[];
        };
        bytes
    }

    #[inline]
    pub fn slice_mut(&mut self, chunk: u32, offset: u32, length: u32) -> &mut [u8] {
        let chunk = self.chunks.get_mut(chunk as usize);
        let Some(bytes) =
            chunk.and_then(|bytes| bytes.get_mut(offset as usize..)?.get_mut(..length as usize))
        else {
            broken!("a location lies in its arena");
            return &mut [];
        };
        bytes
    }

    /// Stores the concatenation of `parts` (less than 4 GiB together).
    #[inline]
    pub fn put(&mut self, parts: [&[u8]; 2]) -> Location {
        let length = parts[0].len() + parts[1].len();
        let fits = self.chunks.last().is_some_and(|chunk| chunk.capacity() - chunk.len() >= length);
        if !fits {
            self.add_chunk(length);
        }
        let index = self.chunks.len().saturating_sub(1);
        let Some(chunk) = self.chunks.last_mut() else {
            broken!("an arena that has made room has a chunk");
            return Location::default();
        };
        let offset = chunk.len();
        chunk.extend_from_slice(parts[0]);
        chunk.extend_from_slice(parts[1]);
        Location { chunk: index as u32, offset: offset as u32, length: length as u32 }
    }

    #[cold]
    fn add_chunk(&mut self, at_least: usize) {
        if u32::try_from(at_least).is_err() {
            broken!("a string of an arena is shorter than 4 GiB");
        }
        let usual = FIRST_CHUNK_BYTES << self.chunks.len().min(DOUBLINGS);
        let capacity = usual.max(at_least);
        self.chunks.push(Vec::with_capacity(capacity));
        self.reserved_bytes += capacity;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::{Watch, as_in_release};

    #[test]
    fn strings_of_all_sizes_are_found_again() {
        let mut arena = Arena::default();
        let strings: Vec<Vec<u8>> = [0, 1, 100, 5000, 3 << 20, 7, 900_000, 300_000]
            .iter()
            .map(|&size| vec![size as u8; size])
            .collect();
        let locations: Vec<_> = strings
            .iter()
            .map(|bytes| arena.put([&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]]))
            .collect();
        for (bytes, location) in strings.iter().zip(locations) {
            assert_eq!(arena.get(location), bytes);
        }
        assert!(arena.reserved_bytes() >= strings.iter().map(Vec::len).sum());
        as_in_release(|| {
            assert_eq!(arena.get(Location { chunk: 99, offset: 0, length: 1 }), b"");
            assert_eq!(Watch::default().check().unwrap_err().what(), "a location lies in its arena");
        });
    }
}
