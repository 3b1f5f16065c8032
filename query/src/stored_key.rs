//! Stored keys: partition keys of several components, clustering positions, and rows as they come from the engine.
//!
//! Invariant: the bytes of a partition key with one component are the component's wire bytes. For several components,
//! each is preceded by its length and followed by a zero byte, as in Cassandra.

use std::ops::Range;

use cql_lite::types::token::Partitioner;
use cql_lite::types::{CqlType, ordered, token};
use helenus_engine::RowRef;
use smallvec::SmallVec;

use crate::error::{RequestError, Result};

/// The largest size of a partition key, and of the clustering values of a row together, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// A partition key with its token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    pub token: i64,
    pub bytes: Vec<u8>,
}

impl PartitionKey {
    /// A key of a table with the ordinary partitioner.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { token: token::token(&bytes), bytes }
    }

    pub fn of(partitioner: Partitioner, bytes: Vec<u8>) -> Self {
        Self { token: partitioner.token(&bytes), bytes }
    }
}

/// A row as a source returns it.
#[derive(Debug, Clone, Copy)]
pub struct SourceRow<'a> {
    pub partition_key: &'a [u8],
    pub position: &'a [u8],
    pub row: RowRef<'a>,
}

/// The wire bytes of a partition key of several columns.
pub fn composite_key<B: AsRef<[u8]>>(components: &[B]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for component in components {
        let component = component.as_ref();
        let length = u16::try_from(component.len()).map_err(|_| key_too_long(component.len()))?;
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(component);
        bytes.push(0);
    }
    Ok(bytes)
}

/// Visits the components of a partition key, as ranges of wire bytes. `None` if the bytes are not such a key.
fn split_key(bytes: &[u8], count: usize, mut visit: impl FnMut(usize, Range<usize>)) -> Option<()> {
    if count == 1 {
        visit(0, 0..bytes.len());
        return Some(());
    }
    let mut at = 0;
    for index in 0..count {
        let length = bytes.get(at..at + 2)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if at + 2 + length > bytes.len() {
            return None;
        }
        visit(index, at + 2..at + 2 + length);
        at += 3 + length;
    }
    Some(())
}

/// The ranges of the components of a stored partition key.
#[inline]
pub fn key_components(bytes: &[u8], count: usize) -> Result<SmallVec<[Range<usize>; 4]>> {
    let mut components = SmallVec::new();
    split_key(bytes, count, |_, range| components.push(range)).ok_or_else(malformed_key)?;
    Ok(components)
}

/// One component of a stored partition key with `count` components.
#[inline]
pub fn key_component(bytes: &[u8], count: usize, number: usize) -> Result<&[u8]> {
    let mut component = None;
    split_key(bytes, count, |index, range| {
        if index == number {
            component = bytes.get(range);
        }
    })
    .and(component)
    .ok_or_else(malformed_key)
}

fn malformed_key() -> RequestError {
    RequestError::Server("a stored partition key is malformed".to_owned())
}

/// Decodes a clustering value from the start of a stored position and appends its wire bytes. False: the position has no more values. Rows
/// that were written WITH COMPACT STORAGE may have none for the last clustering columns.
#[inline]
pub fn decode_clustering(
    value_type: &CqlType,
    rest: &mut &[u8],
    descending: bool,
    out: &mut Vec<u8>,
) -> Result<bool> {
    if rest.is_empty() {
        return Ok(false);
    }
    decode_present_clustering(value_type, rest, descending, out).map(|()| true)
}

/// As [`decode_clustering`], of a position that has more values.
#[inline]
pub fn decode_present_clustering(
    value_type: &CqlType,
    rest: &mut &[u8],
    descending: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    ordered::decode(value_type, rest, descending, out)
        .map_err(|error| RequestError::Server(format!("a stored clustering key is malformed: {error}")))
}

pub(crate) fn check_key(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Err(RequestError::invalid("Key may not be empty"));
    }
    if bytes.len() > MAX_KEY_BYTES {
        return Err(key_too_long(bytes.len()));
    }
    Ok(())
}

pub(crate) fn key_too_long(length: usize) -> RequestError {
    RequestError::invalid(format!("Key length of {length} is longer than maximum of {MAX_KEY_BYTES}"))
}
