//! Vectors in a quarter of their size: a byte for each component, from which similarities are estimated.
//!
//! What is quantised are the differences of vectors to the centroid of their list. So the steps follow how far the vectors of a list are from each
//! other, and not how far they are from the origin.
//!
//! ```text
//! quantised := lowest f32 | step f32 | one byte a component          big-endian
//! component := lowest + byte * step
//! ```

/// Bytes in front of those of the components.
const HEAD_BYTES: usize = 8;

/// A quantised vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantised<'a> {
    pub(crate) lowest: f32,
    pub(crate) step: f32,
    pub(crate) codes: &'a [u8],
}

impl<'a> Quantised<'a> {
    /// Reads a quantised vector. `None`: it is malformed, or does not have this dimension.
    pub fn parse(bytes: &'a [u8], dimension: usize) -> Option<Self> {
        let (head, codes) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let ([lowest, step], []) = head.as_chunks::<4>() else { return None };
        let [lowest, step] = [lowest, step].map(|bytes| f32::from_be_bytes(*bytes));
        let is_sound = lowest.is_finite() && step.is_finite();
        (is_sound && codes.len() == dimension).then_some(Self { lowest, step, codes })
    }

    /// The components, about.
    #[cfg(test)]
    fn components(&self) -> impl Iterator<Item = f32> {
        self.codes.iter().map(|code| self.lowest + f32::from(*code) * self.step)
    }
}

/// Appends the quantised form of a vector.
pub fn quantise(vector: &[f32], out: &mut Vec<u8>) {
    let lowest = vector.iter().copied().fold(f32::INFINITY, f32::min);
    let highest = vector.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let lowest = if lowest.is_finite() { lowest } else { 0.0 };
    let step = ((highest - lowest) / f32::from(u8::MAX)).max(0.0);
    for head in [lowest, step] {
        out.extend_from_slice(&head.to_be_bytes());
    }
    // The conversion saturates.
    let code = |component: &f32| if step > 0.0 { ((component - lowest) / step).round() as u8 } else { 0 };
    out.extend(vector.iter().map(code));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_bytes() {
        let mut bytes = Vec::new();
        quantise(&[-1.0, 0.0, 1.55], &mut bytes);
        let expected = [0xbf, 0x80, 0, 0, 0x3c, 0x23, 0xd7, 0x0a, 0, 100, 255];
        assert_eq!(bytes, expected);
        let mut bytes = Vec::new();
        quantise(&[2.0], &mut bytes);
        assert_eq!(bytes, [0x40, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Quantised::parse(&bytes, 1).unwrap().components().next(), Some(2.0));
        assert_eq!(Quantised::parse(&bytes, 2), None);
        assert_eq!(Quantised::parse(&bytes[..7], 0), None);
    }

    proptest! {
        #[test]
        fn a_component_is_off_by_half_a_step_at_most(vector in prop::collection::vec(-1e3_f32..1e3, 1..200)) {
            let mut bytes = Vec::new();
            quantise(&vector, &mut bytes);
            let quantised = Quantised::parse(&bytes, vector.len()).unwrap();
            for (component, exact) in quantised.components().zip(&vector) {
                prop_assert!((component - exact).abs() <= quantised.step * 0.51 + 1e-3);
            }
        }

        #[test]
        fn bytes_of_all_kinds_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            for dimension in 0..30 {
                let _ = Quantised::parse(&bytes, dimension);
            }
        }
    }
}
