//! The ids of indexes in the engine.
//!
//! Invariants:
//! * Two definitions of an index with the same id make the same terms. ALTER TYPE … ADD changes the terms of values of the type, and so the id:
//!   the engine then builds the index again.
//! * The id is the same on all nodes and in all releases, as long as [`TERMS_VERSION`] is.

use cql_lite::types::CqlType;
use cql_lite::types::token::murmur3_first_half;
use helenus_engine::secondary_index::IndexId;

use super::encoding::TermEncoding;
use crate::schema::catalog::{Column, ColumnKind, Table};
use crate::schema::index::Index;

/// To be raised when terms are made in another way.
const TERMS_VERSION: u32 = 1;

/// The id in the engine of an index of this column of the table. The encoding is that of the index.
pub fn engine_id(table: &Table, column: &Column, index: &Index, encoding: &TermEncoding) -> IndexId {
    let hash = murmur3_first_half(&how_terms_are_made(table, column, index, encoding)).to_be_bytes();
    let mut id = *index.id.as_bytes();
    for (byte, hashed) in id[8..].iter_mut().zip(hash) {
        *byte ^= hashed;
    }
    IndexId(id)
}

/// All that the terms of an index depend on.
fn how_terms_are_made(table: &Table, column: &Column, index: &Index, encoding: &TermEncoding) -> Vec<u8> {
    // The columns in front are read to find the value of a clustering column.
    let read = match column.kind {
        ColumnKind::Clustering { position, .. } => &table.clustering_key()[..=position],
        ColumnKind::PartitionKey { .. } | ColumnKind::Static | ColumnKind::Regular => {
            std::slice::from_ref(column)
        }
    };
    let mut types = String::new();
    for column in read {
        put_type(&column.column_type, &mut types);
        types.push(';');
    }
    let text = format!("{TERMS_VERSION};{};{types}", index.part.name());
    let mut bytes = text.into_bytes();
    if let Some(analysis) = encoding.analysis() {
        bytes.extend_from_slice(&analysis.canonical());
    }
    bytes
}

/// Appends the structure of a type. The names of fields are left out: terms do not depend on them.
fn put_type(described: &CqlType, out: &mut String) {
    let (name, is_frozen, parts): (_, _, Vec<&CqlType>) = match described {
        CqlType::List { element, frozen } => ("list", *frozen, vec![element]),
        CqlType::Set { element, frozen } => ("set", *frozen, vec![element]),
        CqlType::Map { key, value, frozen } => ("map", *frozen, vec![key, value]),
        CqlType::Tuple(fields) => ("tuple", true, fields.iter().collect()),
        CqlType::UserType { definition, frozen } => {
            ("user", *frozen, definition.field_types.iter().collect())
        }
        CqlType::Vector { element, dimension } => {
            out.push_str("vector<");
            out.push_str(&dimension.to_string());
            out.push(',');
            put_type(element, out);
            out.push('>');
            return;
        }
        simple => {
            out.push_str(&simple.to_string());
            return;
        }
    };
    out.push_str(if is_frozen { "frozen " } else { "" });
    out.push_str(name);
    out.push('<');
    for part in parts {
        put_type(part, out);
        out.push(',');
    }
    out.push('>');
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::definitions;
    use crate::schema::test_catalog::catalog_of;

    const SCHEMA: [&str; 8] = [
        crate::schema::test_catalog::CREATE_KEYSPACE,
        "CREATE TYPE inner (a int)",
        "CREATE TYPE outer (i frozen<inner>)",
        "CREATE TABLE t (p int, c frozen<inner>, d int, v text, u frozen<list<frozen<outer>>>, PRIMARY KEY (p, c, d))",
        "CREATE INDEX of_clustering ON t (d)",
        "CREATE INDEX of_text ON t (v)",
        "CREATE INDEX of_type ON t (full(u))",
        "CREATE CUSTOM INDEX of_case ON t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': false}",
    ];

    /// The ids of the indexes in the engine after one more statement.
    fn ids(statement: &str) -> Vec<String> {
        let statements = SCHEMA.iter().copied().chain([statement]).collect::<Vec<_>>();
        let view = catalog_of(&statements);
        let table = view.catalog.table("ks", "t").unwrap();
        let mut indexes: Vec<_> = table.indexes.iter().zip(definitions(table)).collect();
        indexes.sort_by_key(|(index, _)| index.id);
        indexes.into_iter().map(|(_, definition)| Uuid::from_bytes(definition.id.0).to_string()).collect()
    }

    #[test]
    fn a_field_more_changes_the_ids_of_the_indexes_whose_terms_depend_on_it() {
        let before = ids("CREATE TYPE other (a int)");
        assert_eq!(before, GOLDEN);
        let after = ids("ALTER TYPE inner ADD b text");
        let is_changed: Vec<bool> =
            before.iter().zip(&after).map(|(before, after)| before != after).collect();
        assert_eq!(is_changed, [true, false, true, false]);
        let after = ids("ALTER TYPE outer ADD b text");
        let is_changed: Vec<bool> =
            before.iter().zip(&after).map(|(before, after)| before != after).collect();
        assert_eq!(is_changed, [false, false, true, false]);
    }

    #[test]
    fn other_changes_keep_the_ids() {
        for statement in [
            "ALTER TYPE inner RENAME a TO b",
            "ALTER TABLE t ADD w frozen<inner>",
            "ALTER TABLE t WITH comment = 'c'",
        ] {
            assert_eq!(ids(statement), GOLDEN, "{statement}");
        }
    }

    /// As in all releases so far. The last half of an id of these tests is a hash, combined with the number of the statement.
    const GOLDEN: [&str; 4] = [
        "00000000-0000-0000-3b6b-ca9b657de81e",
        "00000000-0000-0000-e870-6ee4f4edd06b",
        "00000000-0000-0000-e33e-5fbee3a87d58",
        "00000000-0000-0000-5f95-de507da54e7b",
    ];
}
