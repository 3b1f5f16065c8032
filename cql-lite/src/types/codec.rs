//! Framing of collections, tuples, user types and vectors, read without allocation.
//!
//! ```text
//! list, set  := count (i32), then per element: length (i32), bytes
//! map        := count (i32), then per entry: key and value, each length (i32), bytes
//! tuple, UDT := per field: length (i32; negative: null), bytes; trailing fields may be absent
//! vector     := the elements; each preceded by its length (unsigned vint) if the element type is variable
//! ```
//!
//! All numbers are big endian. The iterators check every bound and stop after the first error.

use std::net::IpAddr;

use super::cql_type::CqlType;

/// Why bytes are not a collection, tuple or vector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end inside a number or an element.
    #[error("Not enough bytes to read a {what}")]
    Truncated {
        /// The kind of value.
        what: &'static str,
    },
    /// Bytes are left after the last element.
    #[error("Unexpected extraneous bytes after {what} value")]
    TrailingBytes {
        /// The kind of value.
        what: &'static str,
    },
    /// An element is null, which the collection does not allow.
    #[error("null is not supported inside collections")]
    NullElement,
    /// Too many elements to sort.
    #[error("a collection of {count} elements is larger than the limit of {limit}")]
    TooManyElements {
        /// The number found.
        count: usize,
        /// The maximum.
        limit: usize,
    },
    /// A negative number of elements.
    #[error("The data cannot be deserialized as a {what}")]
    NegativeCount {
        /// The kind of value.
        what: &'static str,
    },
}

/// Splits a big-endian i32 off the front.
fn take_i32(input: &mut &[u8]) -> Option<i32> {
    let (head, rest) = input.split_first_chunk::<4>()?;
    *input = rest;
    Some(i32::from_be_bytes(*head))
}

fn take_bytes<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(head)
}

/// The elements of a list or set (see [`elements`]).
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    rest: &'a [u8],
    left: usize,
}

/// Reads a list or set. Zero bytes are an empty collection.
pub fn elements(bytes: &[u8]) -> Result<Elements<'_>, CodecError> {
    let mut rest = bytes;
    let left = take_count(&mut rest, "list")?;
    Ok(Elements { rest, left })
}

fn take_count(rest: &mut &[u8], what: &'static str) -> Result<usize, CodecError> {
    if rest.is_empty() {
        return Ok(0);
    }
    let count = take_i32(rest).ok_or(CodecError::Truncated { what })?;
    usize::try_from(count).map_err(|_| CodecError::NegativeCount { what })
}

impl<'a> Elements<'a> {
    /// Number of elements left, according to the collection's count.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// The bytes after the elements read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take_element(&mut self) -> Result<&'a [u8], CodecError> {
        let truncated = CodecError::Truncated { what: "list" };
        let Some(length) = take_i32(&mut self.rest) else { return Err(truncated) };
        let length = usize::try_from(length).map_err(|_| CodecError::NullElement)?;
        take_bytes(&mut self.rest, length).ok_or(truncated)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let element = self.take_element();
        if element.is_err() {
            self.left = 0;
        }
        Some(element)
    }
}

/// The entries of a map (see [`entries`]).
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    elements: Elements<'a>,
}

/// Reads a map. Zero bytes are an empty map.
pub fn entries(bytes: &[u8]) -> Result<Entries<'_>, CodecError> {
    let mut rest = bytes;
    let left = take_count(&mut rest, "map")?;
    Ok(Entries { elements: Elements { rest, left } })
}

impl<'a> Entries<'a> {
    /// Number of entries left, according to the map's count.
    pub fn remaining(&self) -> usize {
        self.elements.left
    }

    /// The bytes after the entries read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.elements.rest
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.elements.left = self.elements.left.checked_sub(1)?;
        let key = self.elements.take_element();
        let entry = key.and_then(|key| Ok((key, self.elements.take_element()?)));
        if entry.is_err() {
            self.elements.left = 0;
        }
        Some(entry)
    }
}

/// Looks up a key by its bytes. Exact for key types whose equal values have equal bytes.
pub fn entry<'a>(bytes: &'a [u8], key: &[u8]) -> Result<Option<&'a [u8]>, CodecError> {
    for entry in entries(bytes)? {
        let (candidate, value) = entry?;
        if candidate == key {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The fields of a tuple or user type (see [`fields`]).
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

/// Reads the fields of a tuple or user type; `None` is null. The iterator ends with the bytes and does not report
/// missing trailing fields.
pub fn fields(bytes: &[u8]) -> Fields<'_> {
    Fields { rest: bytes }
}

impl<'a> Fields<'a> {
    /// The bytes after the fields read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Option<&'a [u8]>, CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = match take_i32(&mut self.rest) {
            Some(length) => match usize::try_from(length) {
                Ok(length) => take_bytes(&mut self.rest, length).map(Some),
                Err(_) => Some(None),
            },
            None => None,
        };
        if field.is_none() {
            self.rest = &[];
        }
        Some(field.ok_or(CodecError::Truncated { what: "tuple" }))
    }
}

/// Field `index` of a tuple or user type; `None` if it is null or missing.
pub fn field(bytes: &[u8], index: usize) -> Result<Option<&[u8]>, CodecError> {
    match fields(bytes).nth(index) {
        Some(field) => field,
        None => Ok(None),
    }
}

/// The elements of a vector (see [`vector_elements`]).
#[derive(Debug, Clone)]
pub struct VectorElements<'a> {
    rest: &'a [u8],
    left: usize,
    element_length: Option<usize>,
}

/// Reads the `dimension` elements of a vector.
pub fn vector_elements<'a>(element: &CqlType, dimension: usize, bytes: &'a [u8]) -> VectorElements<'a> {
    VectorElements { rest: bytes, left: dimension, element_length: element.fixed_length() }
}

impl<'a> VectorElements<'a> {
    /// The bytes after the elements read so far.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take_element(&mut self) -> Option<&'a [u8]> {
        let length = match self.element_length {
            Some(length) => length,
            None => usize::try_from(take_unsigned_vint(&mut self.rest)?).ok()?,
        };
        take_bytes(&mut self.rest, length)
    }
}

impl<'a> Iterator for VectorElements<'a> {
    type Item = Result<&'a [u8], CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let element = self.take_element();
        if element.is_none() {
            self.left = 0;
        }
        Some(element.ok_or(CodecError::Truncated { what: "vector" }))
    }
}

/// Appends the number of elements of a list, set or map.
pub fn write_count(count: usize, out: &mut Vec<u8>) {
    debug_assert!(i32::try_from(count).is_ok(), "a collection of 2^31 elements");
    out.extend_from_slice(&(count as i32).to_be_bytes());
}

/// Appends an element of a list, set or map, or a field that is not null.
#[inline]
pub fn write_element(element: &[u8], out: &mut Vec<u8>) {
    debug_assert!(i32::try_from(element.len()).is_ok(), "an element of 2 GiB");
    out.extend_from_slice(&(element.len() as i32).to_be_bytes());
    out.extend_from_slice(element);
}

/// Appends a field that may be null.
#[inline]
pub fn write_field(field: Option<&[u8]>, out: &mut Vec<u8>) {
    match field {
        Some(bytes) => write_element(bytes, out),
        None => write_null(out),
    }
}

/// Appends a null field.
#[inline]
pub fn write_null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1i32).to_be_bytes());
}

/// Appends an element whose bytes `write` appends; the length is filled in afterwards.
pub fn write_element_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    debug_assert!(i32::try_from(out.len() - start - 4).is_ok(), "an element of 2 GiB");
    let length = (out.len() - start - 4) as i32;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

/// Appends an element of a vector.
pub fn write_vector_element(element: &CqlType, bytes: &[u8], out: &mut Vec<u8>) {
    if element.fixed_length().is_none() {
        write_unsigned_vint(bytes.len() as u64, out);
    }
    out.extend_from_slice(bytes);
}

/// The wire bytes of a list or set of the elements.
pub fn encode_elements<'a>(elements: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    write_count(elements.len(), &mut out);
    for element in elements {
        write_element(element, &mut out);
    }
    out
}

/// The wire bytes of a map of the entries.
pub fn encode_entries<'a>(entries: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    write_count(entries.len(), &mut out);
    for (key, value) in entries {
        write_element(key, &mut out);
        write_element(value, &mut out);
    }
    out
}

/// The wire bytes of a tuple or user type of the fields.
pub fn encode_fields<'a>(fields: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        write_field(field, &mut out);
    }
    out
}

/// An address from its 4 or 16 bytes.
pub fn inet(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(octets));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Splits an unsigned variable-length integer off the front: the number of leading one bits of the first byte is
/// the number of further bytes, big endian.
pub fn take_unsigned_vint(input: &mut &[u8]) -> Option<u64> {
    let (first, rest) = input.split_first()?;
    let extra = first.leading_ones() as usize;
    let (more, rest) = rest.split_at_checked(extra)?;
    *input = rest;
    let head = if extra >= 7 { 0 } else { u64::from(*first) & (0xFF >> (extra + 1)) };
    Some(more.iter().fold(head, |value, byte| (value << 8) | u64::from(*byte)))
}

/// Appends an unsigned variable-length integer (see [`take_unsigned_vint`]).
pub fn write_unsigned_vint(value: u64, out: &mut Vec<u8>) {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    let extra = if bits > 56 { 8 } else { (bits - 1) / 7 };
    let bytes = value.to_be_bytes();
    if extra == 8 {
        out.push(0xFF);
    } else {
        let prefix = if extra == 0 { 0 } else { !(0xFFu8 >> extra) };
        out.push(prefix | bytes[7 - extra]);
    }
    out.extend_from_slice(&bytes[8 - extra..]);
}

/// Splits a zigzag variable-length integer off the front.
pub(crate) fn take_signed_vint(input: &mut &[u8]) -> Option<i64> {
    let encoded = take_unsigned_vint(input)?;
    Some((encoded >> 1) as i64 ^ -((encoded & 1) as i64))
}

/// Appends a zigzag variable-length integer.
pub(crate) fn write_signed_vint(value: i64, out: &mut Vec<u8>) {
    write_unsigned_vint(((value << 1) ^ (value >> 63)) as u64, out);
}
