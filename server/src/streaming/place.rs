//! A place in a stream: before a row, or inside one that is sent in parts.
//!
//! ```text
//! before a row := the first full key (or any prefix of one) that is still to be sent
//! inside a row := partition prefix | 0x04 | length of the position (u32 big endian) | position of the row
//!                 | column (u32 big endian) | path of the first cell that is still to be sent
//! ```
//!
//! The receiver returns a place unchanged, and stores it with its progress. No position of a row and no bound begins with 0x04
//! ([`helenus_engine::key`]).

use helenus_engine::DecodeError;
use helenus_engine::key;
use helenus_engine::read::AddressBuf;

/// Where a position would begin, if the place is inside a row.
const INSIDE_TAG: u8 = 0x04;
const _: () = assert!(key::REGULAR_END[0] < INSIDE_TAG && INSIDE_TAG < key::PARTITION_END[0]);

/// A place in a stream. Places are ordered as the stream is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The full key of the next row, or a bound before it.
    pub key: Vec<u8>,
    /// The cell of that row at which the stream continues; `None`: at the start of the row.
    pub inside: Option<AddressBuf>,
}

impl Place {
    /// The place before this bound.
    pub fn before(key: Vec<u8>) -> Self {
        Self { key, inside: None }
    }

    /// An error if it is inside a row that has no full key.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let Some(inside) = &self.inside else { return Ok(self.key.clone()) };
        let prefix_length =
            key::prefix_length(&self.key).ok_or(DecodeError::Truncated { what: "a row key" })?;
        let (prefix, position) = self.key.split_at(prefix_length);
        let mut out = prefix.to_vec();
        out.push(INSIDE_TAG);
        out.extend_from_slice(&(position.len() as u32).to_be_bytes());
        out.extend_from_slice(position);
        out.extend_from_slice(&inside.column.to_be_bytes());
        out.extend_from_slice(&inside.path);
        Ok(out)
    }

    /// The inverse of [`Self::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const CUT: DecodeError = DecodeError::Truncated { what: "a place inside a row" };
        let whole = || Self::before(bytes.to_vec());
        let Some(prefix_length) = key::prefix_length(bytes) else { return Ok(whole()) };
        let (prefix, rest) = bytes.split_at(prefix_length);
        let Some((&INSIDE_TAG, rest)) = rest.split_first() else { return Ok(whole()) };
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(CUT)?;
        let (position, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or(CUT)?;
        let (column, path) = rest.split_first_chunk::<4>().ok_or(CUT)?;
        let inside = AddressBuf { column: u32::from_be_bytes(*column), path: path.to_vec() };
        Ok(Self { key: [prefix, position].concat(), inside: Some(inside) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_it_was_and_ordered_as_the_stream_is() {
        let row = |clustering: &[u8]| {
            key::full_key(5, b"key", &[&[key::REGULAR_TAG], clustering].concat()).unwrap()
        };
        let inside = |clustering: &[u8], column, path: &[u8]| Place {
            key: row(clustering),
            inside: Some(AddressBuf { column, path: path.to_vec() }),
        };
        let ordered = [
            Place::default(),
            Place::before(key::token_bounds(&(5..=5)).0),
            Place::before(key::full_key(5, b"key", key::STATIC_POSITION).unwrap()),
            Place::before(row(b"a")),
            inside(b"a", 1, b""),
            inside(b"a", 2, b"x"),
            inside(b"a", 2, b"xx"),
            inside(b"a", 300, b""),
            Place::before(key::behind(&row(b"a"))),
            Place::before(row(b"b")),
            inside(b"b", 1, &[0, 4]),
            Place::before(key::full_key(5, b"key", key::PARTITION_END).unwrap()),
            Place::before(key::token_bounds(&(6..=6)).0),
        ];
        assert!(ordered.is_sorted_by(|left, right| left < right));
        for place in &ordered {
            let encoded = place.encode().unwrap();
            assert_eq!(Place::decode(&encoded).as_ref(), Ok(place));
            if place.inside.is_some() {
                let prefix_length = key::prefix_length(&encoded).unwrap();
                let fixed = 1 + 4 + (place.key.len() - prefix_length) + 4;
                for cut in 1..fixed {
                    let cut = &encoded[..prefix_length + cut];
                    assert!(Place::decode(cut).is_err(), "{cut:?}");
                }
            }
        }
    }
}
