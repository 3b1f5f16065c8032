//! Slices of the ring: parts of equal size, whatever nodes own. The computation of views is divided among nodes by them.

/// The number of slices. Holders of slices are stored by their numbers, so it never changes.
pub const SLICES: u8 = 16;
/// Bits of a token that are the same in a slice.
const SLICE_BITS: u32 = SLICES.ilog2();

/// A part of the ring of the tokens of base tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice(pub u8);

impl Slice {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLICES).map(Self)
    }

    /// The slice of a token.
    pub fn of(token: i64) -> Self {
        Self((Self::ordered(token) >> (u64::BITS - SLICE_BITS)) as u8)
    }

    /// The first and the last token.
    pub fn tokens(self) -> (i64, i64) {
        let width = u64::BITS - SLICE_BITS;
        let first = u64::from(self.0) << width;
        let last = first | ((1 << width) - 1);
        (Self::ordered(first as i64) as i64, Self::ordered(last as i64) as i64)
    }

    pub fn contains(self, token: i64) -> bool {
        Self::of(token) == self
    }

    /// Tokens as unsigned numbers of the same order, and back.
    fn ordered(token: i64) -> u64 {
        token as u64 ^ (1 << 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_the_ring_in_order() {
        let mut next = i64::MIN;
        for slice in Slice::all() {
            let (first, last) = slice.tokens();
            assert_eq!(first, next);
            assert!(slice.contains(first) && slice.contains(last));
            next = last.wrapping_add(1);
        }
        assert_eq!(next, i64::MIN, "around the ring");
        assert_eq!((Slice::of(0), Slice::of(-1)), (Slice(8), Slice(7)));
    }
}
