//! Column metadata in wire format: the columns of a result, or bind variables.

use bytes::{Bytes, BytesMut};

use super::{type_codes, version::ProtocolVersion, wire};
use crate::types::cql_type::CqlType;

/// Flags of row metadata.
pub(super) mod metadata_flags {
    pub const GLOBAL_TABLE: u32 = 0x01;
    pub const HAS_MORE_PAGES: u32 = 0x02;
    pub const NO_METADATA: u32 = 0x04;
    pub const METADATA_CHANGED: u32 = 0x08;
}

/// A column of a result, or a bind variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSpec<'a> {
    pub keyspace: &'a str,
    pub table: &'a str,
    pub name: &'a str,
    pub cql_type: &'a CqlType,
}

/// Encoded column metadata for one protocol version, built once for a prepared statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnsMetadata {
    column_count: i32,
    is_global: bool,
    encoded: Bytes,
}

impl ColumnsMetadata {
    /// Encodes columns. Keyspace and table are written once if all columns share them.
    pub fn new(version: ProtocolVersion, columns: &[ColumnSpec<'_>]) -> Self {
        let mut encoded = BytesMut::new();
        let global = columns.first().filter(|first| {
            columns.iter().all(|column| column.keyspace == first.keyspace && column.table == first.table)
        });
        if let Some(first) = global {
            wire::put_string(&mut encoded, first.keyspace);
            wire::put_string(&mut encoded, first.table);
        }
        for column in columns {
            if global.is_none() {
                wire::put_string(&mut encoded, column.keyspace);
                wire::put_string(&mut encoded, column.table);
            }
            wire::put_string(&mut encoded, column.name);
            type_codes::put_type(&mut encoded, version, column.cql_type);
        }
        Self { column_count: columns.len() as i32, is_global: global.is_some(), encoded: encoded.freeze() }
    }

    /// Number of columns.
    pub fn column_count(&self) -> i32 {
        self.column_count
    }

    /// The metadata flags that belong to the encoded columns.
    pub(super) fn flags(&self) -> u32 {
        if self.is_global { metadata_flags::GLOBAL_TABLE } else { 0 }
    }

    /// The encoded columns, as they follow flags, count, paging state and metadata id. The result metadata id is a digest
    /// of these bytes.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }
}
