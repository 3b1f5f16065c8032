//! The limit that Cassandra's old indexes have for values: a change with a longer one is refused.

use cql_lite::types::{CqlType, ordered};
use helenus_engine::{Cell, CellKind, Mutation, Operation};

use crate::error::{RequestError, Result};
use crate::schema::catalog::Table;
use crate::schema::index::{IndexKind, IndexedPart};

/// Bytes from which on a value is too long.
const REFUSED_BYTES: usize = u16::MAX as usize;
/// Bytes of a pair of a map besides its key and value, as it is indexed by Cassandra.
const PAIR_BYTES: usize = 6;

/// Refuses changes with a value that is too long for an index of its column.
pub(super) fn check(table: &Table, mutation: &Mutation) -> Result<()> {
    // No value is longer than all changes.
    if mutation.bytes().len() < REFUSED_BYTES {
        return Ok(());
    }
    let indexes: Vec<_> = table.indexes.iter().filter(|index| index.kind == IndexKind::Legacy).collect();
    if indexes.is_empty() {
        return Ok(());
    }
    let malformed = |error: &dyn std::fmt::Display| RequestError::Server(error.to_string());
    for operation in mutation.view().map_err(|error| malformed(&error))?.operations() {
        let Operation::Row { row, .. } = operation.map_err(|error| malformed(&error))? else { continue };
        for cell in row.cells().filter(|cell| !matches!(cell.kind, CellKind::Tombstone { .. })) {
            for index in indexes.iter().filter(|index| index.column_id == cell.column) {
                let Some(column) = table.columns.iter().find(|column| column.id == cell.column) else {
                    continue;
                };
                let bytes = indexed_bytes(&column.column_type, index.part, &cell);
                if bytes >= REFUSED_BYTES {
                    return Err(RequestError::invalid(format!(
                        "Cannot index value of size {bytes} for index {} on {}.{}({}) (maximum allowed size={REFUSED_BYTES})",
                        index.name, table.keyspace, table.name, column.name
                    )));
                }
            }
        }
    }
    Ok(())
}

/// The bytes of what is indexed of a cell.
fn indexed_bytes(column_type: &CqlType, part: IndexedPart, cell: &Cell<'_>) -> usize {
    let key_bytes = |key_type: &CqlType| {
        let (mut rest, mut key) = (cell.path, Vec::new());
        // A path that cannot be read is not shorter than the key.
        ordered::decode(key_type, &mut rest, false, &mut key).map_or(cell.path.len(), |()| key.len())
    };
    match (column_type, part) {
        (CqlType::Set { element: key, .. }, IndexedPart::Values)
        | (CqlType::Map { key, .. }, IndexedPart::Keys) => key_bytes(key),
        (CqlType::Map { key, .. }, IndexedPart::Entries) => key_bytes(key) + cell.value.len() + PAIR_BYTES,
        _ => cell.value.len(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use helenus_engine::{MutationBuilder, RowBuilder};
    use uuid::Uuid;

    use super::*;
    use crate::schema::index::Index;
    use crate::schema::test_catalog::catalog_of;

    fn table(kind: IndexKind, column: &str, part: IndexedPart) -> Table {
        let schema = [
            "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE k.t (p int PRIMARY KEY, b blob, m map<text, blob>)",
        ];
        let mut table = Table::clone(&catalog_of(&schema).catalog.keyspaces["k"].tables["t"]);
        table.indexes.push(Arc::new(Index {
            name: "i".to_owned(),
            id: Uuid::from_u128(1),
            kind,
            column_id: table.column(column).unwrap().id,
            part,
            options: BTreeMap::new(),
        }));
        table
    }

    fn checked(table: &Table, column: &str, path: &[u8], bytes: usize) -> Result<(), String> {
        let mut row = RowBuilder::new();
        let (column, value) = (table.column(column).unwrap().id, vec![7; bytes]);
        row.cell(Cell { column, path, timestamp: 1, kind: CellKind::Live, value: &value });
        let mut builder = MutationBuilder::new(table.engine_id(), 1, b"key").unwrap();
        builder.row(&[2], &mut row);
        check(table, &builder.build()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_that_an_old_index_has_no_room_for_is_refused() {
        let refusal = |bytes, column| {
            Err(format!(
                "Cannot index value of size {bytes} for index i on k.t({column}) (maximum allowed size=65535)"
            ))
        };
        let old = table(IndexKind::Legacy, "b", IndexedPart::Value);
        assert_eq!(checked(&old, "b", &[], 65_534), Ok(()));
        assert_eq!(checked(&old, "b", &[], 65_535), refusal(65_535, "b"));
        let mut path = Vec::new();
        ordered::encode(&CqlType::Text, b"key", false, &mut path).unwrap();
        assert_eq!(checked(&old, "m", &path, 70_000), Ok(()), "another column");
        for kind in [IndexKind::StorageAttached, IndexKind::Sasi] {
            assert_eq!(checked(&table(kind, "b", IndexedPart::Value), "b", &[], 70_000), Ok(()));
        }
        let of_pairs = table(IndexKind::Legacy, "m", IndexedPart::Entries);
        assert_eq!(checked(&of_pairs, "m", &path, 65_525), Ok(()));
        assert_eq!(checked(&of_pairs, "m", &path, 65_526), refusal(65_535, "m"));
        let of_keys = table(IndexKind::Legacy, "m", IndexedPart::Keys);
        assert_eq!(checked(&of_keys, "m", &path, 70_000), Ok(()));
    }
}
