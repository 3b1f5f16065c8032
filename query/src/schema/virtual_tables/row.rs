//! Writes rows by column name, from values of Rust types.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cql_lite::types::codec::{encode_elements, encode_entries};
use uuid::Uuid;

use super::Row;
use crate::schema::catalog::Table;

/// Collects the rows of a table.
#[derive(Debug)]
pub struct RowWriter<'a> {
    table: &'a Table,
    rows: Vec<Row>,
}

impl<'a> RowWriter<'a> {
    pub fn new(table: &'a Table) -> Self {
        Self { table, rows: Vec::new() }
    }

    /// Begins a row of nulls.
    pub fn row(&mut self) -> RowFields<'_> {
        self.rows.push(vec![None; self.table.columns.len()]);
        RowFields { table: self.table, row: self.rows.last_mut() }
    }

    pub fn finish(self) -> Vec<Row> {
        self.rows
    }
}

/// The row being written.
pub struct RowFields<'a> {
    table: &'a Table,
    row: Option<&'a mut Row>,
}

impl RowFields<'_> {
    /// Sets a column. A name that the table lacks is a bug in the table's definition.
    pub fn set(&mut self, column: &str, value: impl IntoWire) -> &mut Self {
        let index = self.table.column_index(column);
        debug_assert!(index.is_some(), "{} has no column {column}", self.table.full_name());
        if let Some(row) = self.row.as_deref_mut()
            && let Some(field) = index.and_then(|index| row.get_mut(index))
        {
            *field = value.into_wire();
        }
        self
    }
}

/// A value in the wire encoding of the CQL type that it is for.
pub trait IntoWire {
    fn into_wire(self) -> Option<Vec<u8>>;
}

impl IntoWire for &str {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.as_bytes().to_vec())
    }
}

impl IntoWire for String {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.into_bytes())
    }
}

impl IntoWire for &[u8] {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.to_vec())
    }
}

impl IntoWire for bool {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(vec![u8::from(self)])
    }
}

impl IntoWire for i32 {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.to_be_bytes().to_vec())
    }
}

impl IntoWire for i64 {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.to_be_bytes().to_vec())
    }
}

impl IntoWire for f64 {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.to_be_bytes().to_vec())
    }
}

impl IntoWire for f32 {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.to_be_bytes().to_vec())
    }
}

impl IntoWire for Uuid {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(self.as_bytes().to_vec())
    }
}

impl IntoWire for IpAddr {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(match self {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        })
    }
}

impl<T: IntoWire> IntoWire for Option<T> {
    fn into_wire(self) -> Option<Vec<u8>> {
        self.and_then(IntoWire::into_wire)
    }
}

impl IntoWire for &BTreeMap<String, String> {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(encode_entries(self.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()))))
    }
}

impl IntoWire for BTreeMap<String, String> {
    fn into_wire(self) -> Option<Vec<u8>> {
        (&self).into_wire()
    }
}

impl IntoWire for &BTreeMap<String, BTreeMap<String, String>> {
    fn into_wire(self) -> Option<Vec<u8>> {
        let encoded: BTreeMap<String, Vec<u8>> =
            self.iter().map(|(key, value)| Some((key.clone(), value.into_wire()?))).collect::<Option<_>>()?;
        (&encoded).into_wire()
    }
}

impl IntoWire for &BTreeMap<String, Vec<u8>> {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(encode_entries(self.iter().map(|(key, value)| (key.as_bytes(), value.as_slice()))))
    }
}

/// A list of texts, or a set where they are sorted.
impl IntoWire for Vec<String> {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(encode_elements(self.iter().map(String::as_bytes)))
    }
}

impl IntoWire for Vec<bool> {
    fn into_wire(self) -> Option<Vec<u8>> {
        let bytes: Vec<[u8; 1]> = self.into_iter().map(|value| [u8::from(value)]).collect();
        Some(encode_elements(bytes.iter().map(<[u8; 1]>::as_slice)))
    }
}

/// A set of addresses without their ports.
impl IntoWire for BTreeSet<IpAddr> {
    fn into_wire(self) -> Option<Vec<u8>> {
        let encoded: BTreeSet<Vec<u8>> = self.into_iter().filter_map(IntoWire::into_wire).collect();
        Some(encode_elements(encoded.iter().map(Vec::as_slice)))
    }
}

/// A set of blobs, sorted.
impl IntoWire for &[[u8; 16]] {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(encode_elements(self.iter().map(<[u8; 16]>::as_slice)))
    }
}

impl IntoWire for &[&str] {
    fn into_wire(self) -> Option<Vec<u8>> {
        Some(encode_elements(self.iter().map(|text| text.as_bytes())))
    }
}
