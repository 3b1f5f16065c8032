//! Paging state: the end of a page. It is self-contained, so that any node can continue, also after a restart.
//!
//! ```text
//! state := version u8 (1) | fingerprint of the statement u32 | result rows so far u64 | of this partition u64
//!          | flags u8 (1: rows of the partition were seen, 2: the row is unread)
//!          | partition key (u16 length, bytes) | position | crc32 of everything before
//! ```
//!
//! As in Cassandra, a state is good for any statement on the table. One that is damaged, or of another table, is refused with
//! Cassandra's error text.

use cql_lite::types::ordered;
use helenus_engine::key::{REGULAR_TAG, STATIC_POSITION};

use crate::error::{RequestError, Result};
use crate::schema::catalog::Table;
use crate::stored_key::key_components;

const VERSION: u8 = 1;
const HAS_ROWS: u8 = 1;
const IS_UNREAD: u8 = 2;

/// The paging state: the last row of a page, and the counts up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagingState {
    pub partition_key: Vec<u8>,
    pub position: Vec<u8>,
    /// Result rows on all pages so far.
    pub result_rows: u64,
    /// Result rows of the partition so far.
    pub partition_result_rows: u64,
    /// Regular rows of the partition were seen.
    pub has_rows: bool,
    /// The row itself has not been read: reading continues with it instead of behind it.
    pub is_unread: bool,
}

impl PagingState {
    /// Encodes the paging state for a client. `fingerprint` identifies the statement.
    pub fn encode(&self, fingerprint: u32) -> Vec<u8> {
        debug_assert!(u16::try_from(self.partition_key.len()).is_ok(), "keys are limited by `full_key`");
        let mut out = Vec::with_capacity(32 + self.partition_key.len() + self.position.len());
        out.push(VERSION);
        out.extend_from_slice(&fingerprint.to_be_bytes());
        out.extend_from_slice(&self.result_rows.to_be_bytes());
        out.extend_from_slice(&self.partition_result_rows.to_be_bytes());
        out.push(if self.has_rows { HAS_ROWS } else { 0 } | if self.is_unread { IS_UNREAD } else { 0 });
        out.extend_from_slice(&(self.partition_key.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.partition_key);
        out.extend_from_slice(&self.position);
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_be_bytes());
        out
    }

    /// Decodes the paging state of the statement with this fingerprint, or of another one on its table. The LIMIT of another one
    /// counts rows from here on.
    pub fn decode(state: &[u8], fingerprint: u32, table: &Table) -> Result<Self> {
        let parsed = Self::parse(state).and_then(|(paging_state, of_statement)| {
            if of_statement == fingerprint {
                return Some(paging_state);
            }
            paging_state.names_row_of(table).then_some(Self { result_rows: 0, ..paging_state })
        });
        parsed.ok_or_else(|| RequestError::Protocol("Invalid value for the paging state".to_owned()))
    }

    /// Whether a page of a statement on the table could end with the state.
    fn names_row_of(&self, table: &Table) -> bool {
        if key_components(&self.partition_key, table.partition_key_count).is_err() {
            return false;
        }
        let position = self.position.as_slice();
        if !self.is_unread {
            let is_complete = |end: PositionEnd<'_>| {
                end.rest.is_empty() && (end.missing == 0 || table.allows_short_clustering())
            };
            return position == STATIC_POSITION || position_end(position, table).is_some_and(is_complete);
        }
        // Reading goes on at a row, directly behind one, or at a bound of a slice or range tombstone. Backwards a bound may be that without
        // its last byte, a zero, which reading adds again.
        let is_bound = |position: &[u8]| match position.strip_prefix(STATIC_POSITION) {
            Some(rest) => matches!(rest, [] | [0]),
            None => position_end(position, table).is_some_and(|end| matches!(end.rest, [] | [0 | 0xFF])),
        };
        is_bound(position) || is_bound(&[position, &[0]].concat())
    }

    /// The state with the fingerprint of its statement.
    fn parse(state: &[u8]) -> Option<(Self, u32)> {
        let (content, checksum) = state.split_last_chunk::<4>()?;
        if crc32fast::hash(content) != u32::from_be_bytes(*checksum) {
            return None;
        }
        let (head, rest) = content.split_first_chunk::<24>()?;
        if head[0] != VERSION {
            return None;
        }
        let fingerprint = u32::from_be_bytes(head[1..5].try_into().ok()?);
        let key_length = usize::from(u16::from_be_bytes([head[22], head[23]]));
        let (partition_key, position) = rest.split_at_checked(key_length)?;
        let paging_state = Self {
            partition_key: partition_key.to_vec(),
            position: position.to_vec(),
            result_rows: u64::from_be_bytes(head[5..13].try_into().ok()?),
            partition_result_rows: u64::from_be_bytes(head[13..21].try_into().ok()?),
            has_rows: head[21] & HAS_ROWS != 0,
            is_unread: head[21] & IS_UNREAD != 0,
        };
        Some((paging_state, fingerprint))
    }
}

/// What is behind the clustering values of a position.
struct PositionEnd<'a> {
    rest: &'a [u8],
    /// How many clustering columns of the table have no value.
    missing: usize,
}

/// Passes over the clustering values of a position. `None`: it is none of regular rows of the table.
fn position_end<'a>(position: &'a [u8], table: &Table) -> Option<PositionEnd<'a>> {
    let (&REGULAR_TAG, mut rest) = position.split_first()? else { return None };
    let columns = table.clustering_key();
    let mut value = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        // No value starts with a zero or 0xFF.
        if matches!(rest, [] | [0 | 0xFF]) {
            return Some(PositionEnd { rest, missing: columns.len() - index });
        }
        value.clear();
        ordered::decode(&column.column_type, &mut rest, column.is_descending(), &mut value).ok()?;
    }
    Some(PositionEnd { rest, missing: 0 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cql_lite::types::CqlType;

    use super::*;
    use crate::schema::test_catalog::{CREATE_KEYSPACE, catalog_of};

    fn table(columns: &str) -> Arc<Table> {
        let create = format!("CREATE TABLE ks.t ({columns})");
        catalog_of(&[CREATE_KEYSPACE, &create]).catalog.table("ks", "t").unwrap().clone()
    }

    #[test]
    fn a_state_is_decoded_and_damage_or_another_table_is_refused() {
        let integers = table("p int, c int, PRIMARY KEY (p, c)");
        let mut position = vec![REGULAR_TAG];
        ordered::encode(&CqlType::Int, &[0, 0, 0, 9], false, &mut position).unwrap();
        let paging_state = PagingState {
            partition_key: vec![0, 0, 0, 3],
            position,
            result_rows: 70_000,
            partition_result_rows: 5,
            has_rows: true,
            is_unread: false,
        };
        let state = paging_state.encode(77);
        assert_eq!(PagingState::decode(&state, 77, &integers).unwrap(), paging_state);
        let elsewhere = PagingState::decode(&state, 78, &integers).unwrap();
        assert_eq!(elsewhere, PagingState { result_rows: 0, ..paging_state });
        for other in [
            "p int PRIMARY KEY",
            "p int, c int, d int, PRIMARY KEY (p, c, d)",
            "p int, q int, PRIMARY KEY ((p, q))",
        ] {
            assert!(PagingState::decode(&state, 78, &table(other)).is_err(), "{other}");
        }
        for index in 0..state.len() {
            let mut damaged = state.clone();
            damaged[index] ^= 1;
            assert!(PagingState::decode(&damaged, 77, &integers).is_err());
            assert!(PagingState::decode(&state[..index], 77, &integers).is_err());
        }
    }

    fn state(position: Vec<u8>, is_unread: bool) -> Vec<u8> {
        let state = PagingState {
            partition_key: vec![0, 0, 0, 3],
            position,
            result_rows: 0,
            partition_result_rows: 0,
            has_rows: false,
            is_unread,
        };
        state.encode(77)
    }

    fn position(values: &[i32], descending: bool, end: &[u8]) -> Vec<u8> {
        let mut position = vec![REGULAR_TAG];
        for value in values {
            ordered::encode(&CqlType::Int, &value.to_be_bytes(), descending, &mut position).unwrap();
        }
        [&position, end].concat()
    }

    #[test]
    fn where_a_page_may_end_unread_another_statement_may_go_on() {
        let tables = [
            table("p int, c int, d int, PRIMARY KEY (p, c, d)"),
            table("p int, c int, d int, PRIMARY KEY (p, c, d)) WITH CLUSTERING ORDER BY (c DESC, d DESC"),
        ];
        for (table, descending) in tables.iter().zip([false, true]) {
            let bounds = [vec![STATIC_POSITION[0]], vec![STATIC_POSITION[0], 0]].into_iter().chain(
                [&[][..], &[7], &[7, 256], &[-1, 0]]
                    .into_iter()
                    .flat_map(|values| [&[][..], &[0], &[0xFF]].map(|end| position(values, descending, end))),
            );
            for bound in bounds {
                let shown = format!("{bound:?}");
                assert!(PagingState::decode(&state(bound, true), 78, table).is_ok(), "{shown}");
            }
            // Without the zero at its end.
            let mut bound = position(&[7, if descending { 255 } else { 256 }], descending, &[]);
            if bound.pop_if(|last| *last == 0).is_some() {
                assert!(PagingState::decode(&state(bound, true), 78, table).is_ok());
            }
            for wrong in [
                vec![],
                vec![0],
                vec![STATIC_POSITION[0], 1],
                position(&[7], descending, &[1]),
                position(&[7, 8], descending, &[1]),
                position(&[7, 8, 9], descending, &[]),
            ] {
                let shown = format!("{wrong:?}");
                assert!(PagingState::decode(&state(wrong, true), 78, table).is_err(), "{shown}");
            }
        }
        let no_rows_but_one = table("p int PRIMARY KEY");
        assert!(PagingState::decode(&state(position(&[], false, &[]), true), 78, &no_rows_but_one).is_ok());
        assert!(PagingState::decode(&state(position(&[7], false, &[]), true), 78, &no_rows_but_one).is_err());
    }

    #[test]
    fn a_row_that_was_read_may_lack_clustering_values_in_compact_tables_only() {
        let columns = "p int, c int, d int, v int, PRIMARY KEY (p, c, d)";
        let (ordinary, compact) = (table(columns), table(&format!("{columns}) WITH COMPACT STORAGE --")));
        for (values, is_row_of_ordinary) in [(&[7, 8][..], true), (&[7], false)] {
            let read = |table| PagingState::decode(&state(position(values, false, &[]), false), 78, table);
            assert_eq!(read(&ordinary).is_ok(), is_row_of_ordinary);
            assert!(read(&compact).is_ok());
        }
        for end in [[0], [0xFF]] {
            assert!(
                PagingState::decode(&state(position(&[7, 8], false, &end), false), 78, &compact).is_err()
            );
        }
    }
}
