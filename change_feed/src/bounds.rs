//! Rows and ends of ranges by their clustering columns.

use helenus_query::error::Result;
use helenus_query::stored_key::decode_clustering;
use helenus_rows::key::{PARTITION_END, PARTITION_START, REGULAR_END, REGULAR_TAG};

use crate::layout::LogLayout;

/// Behind all rows with a prefix. No component of a position begins with it.
const BEHIND_PREFIX: &[u8] = &[0xFF];
/// Behind exactly one row.
const BEHIND_ROW: &[u8] = &[0x00];

/// An end of a range of rows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bound {
    /// The values of the first clustering columns. Rows that have them are at the end.
    pub clustering: Vec<Vec<u8>>,
    /// Whether the range has the rows at the end.
    pub is_inclusive: bool,
}

/// Whether a half-open range of positions is the whole partition.
pub fn is_partition(start: &[u8], end: &[u8]) -> bool {
    start == PARTITION_START && end == PARTITION_END
}

/// The values of the clustering columns of a regular row.
pub fn clustering_of(layout: &LogLayout, position: &[u8]) -> Result<Vec<Vec<u8>>> {
    Ok(components(layout, position)?.0)
}

/// The first end of the range `[start, …)` of positions.
pub fn start_bound(layout: &LogLayout, start: &[u8]) -> Result<Bound> {
    let (clustering, rest) = components(layout, start)?;
    Ok(Bound { clustering, is_inclusive: rest.is_empty() })
}

/// The last end of the range `[…, end)` of positions.
pub fn end_bound(layout: &LogLayout, end: &[u8]) -> Result<Bound> {
    if end == REGULAR_END {
        return Ok(Bound { clustering: Vec::new(), is_inclusive: true });
    }
    let (clustering, rest) = components(layout, end)?;
    Ok(Bound { clustering, is_inclusive: !rest.is_empty() })
}

/// The values of the clustering columns in a position, and what follows them: nothing, or the mark of a bound.
fn components<'p>(layout: &LogLayout, position: &'p [u8]) -> Result<(Vec<Vec<u8>>, &'p [u8])> {
    let Some((&REGULAR_TAG, mut rest)) = position.split_first() else { return Ok((Vec::new(), &[])) };
    let mut values = Vec::with_capacity(layout.clustering.len());
    for column in &layout.clustering {
        if rest == BEHIND_PREFIX || rest == BEHIND_ROW {
            break;
        }
        let mut value = Vec::new();
        if !decode_clustering(&column.column_type, &mut rest, column.descending, &mut value)? {
            break;
        }
        values.push(value);
    }
    Ok((values, rest))
}
