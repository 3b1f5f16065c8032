//! Byte-comparable encoding of clustering values: `memcmp` of two components orders as
//! [`compare`](super::compare::compare) of their values.
//!
//! A component starts with a marker byte and is prefix-free, so components are concatenated without separators. In
//! descending order every byte of the component is inverted.
//!
//! ```text
//! component := 0x40                                        the empty value (no bytes)
//!            | 0x41 body                                   a value; for `uuid` 0x41 + version, then body
//! body      := integers      big endian, sign bit flipped, fixed width
//!            | float, double bits: sign bit flipped, all bits flipped if negative; one NaN
//!            | boolean       one byte, 0 or 1
//!            | date, time    the wire bytes
//!            | uuid          16 bytes; version 1 with the time's fields in order
//!            | timeuuid      16 bytes: the time's fields in order, other bytes with the sign bit flipped
//!            | text, bytes   with 0x00 written as 0x00 0xFF, then 0x00 0x00
//!            | varint        length class, minimal two's complement bytes
//!            | decimal       sign, exponent, digits in pairs (see `ordered/number`)
//!            | list, set     components of the elements, then 0x3E
//!            | map           components of key and value alternately, then 0x3E
//!            | tuple, UDT    components of the fields, 0x3F for null; nulls at the end are left out; 0x3E
//!            | vector        components of the elements
//! ```
//!
//! No component starts with 0x00 or 0xFF, inverted or not. Decoding returns the wire bytes of an equal value, which may
//! differ from the original bytes: decimals lose trailing zeros, varints lose padding, NaNs lose their payload, and
//! tuples are padded with nulls up to their number of fields.

mod component;
mod error;
mod number;

pub use component::{decode, encode};
pub use error::OrderedError;
