//! The stored tables that an operator names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalog::{Catalog, Table, TableKind};

/// Names of tables or keyspaces.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TableSelection {
    All,
    /// All tables of keyspaces. Of two names the second may be that of a table in the first; a keyspace of that name comes first.
    Keyspaces(Vec<String>),
    /// Tables with their keyspaces.
    Tables(Vec<(String, String)>),
}

/// A name that the schema does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    #[error("keyspace '{0}' does not exist")]
    Keyspace(String),
    #[error("table '{0}.{1}' does not exist")]
    Table(String, String),
    #[error("'{1}' is neither a keyspace nor a table of keyspace '{0}'")]
    KeyspaceOrTable(String, String),
}

impl TableSelection {
    /// Everything, a keyspace, or a table.
    pub fn of(keyspace: Option<&str>, table: Option<&str>) -> Self {
        match (keyspace, table) {
            (None, _) => Self::All,
            (Some(keyspace), None) => Self::Keyspaces(vec![keyspace.to_owned()]),
            (Some(keyspace), Some(table)) => Self::Tables(vec![(keyspace.to_owned(), table.to_owned())]),
        }
    }

    /// The same tables by their full names.
    pub fn by_name(tables: &[Arc<Table>]) -> Self {
        Self::Tables(tables.iter().map(|table| (table.keyspace.clone(), table.name.clone())).collect())
    }

    /// The stored tables that are selected, each once, by keyspace and name.
    pub fn tables(&self, catalog: &Catalog) -> Result<Vec<Arc<Table>>, SelectionError> {
        let mut selected = BTreeMap::new();
        let mut select = |table: &Arc<Table>| {
            if table.kind == TableKind::Stored {
                selected.insert((table.keyspace.clone(), table.name.clone()), table.clone());
            }
        };
        let keyspace =
            |name: &String| catalog.keyspace(name).ok_or_else(|| SelectionError::Keyspace(name.clone()));
        match self {
            Self::All => catalog.keyspaces.values().flat_map(|known| known.tables.values()).for_each(select),
            Self::Keyspaces(names) => match names.as_slice() {
                [first, second] if catalog.keyspace(second).is_none() => {
                    let missing = || SelectionError::KeyspaceOrTable(first.clone(), second.clone());
                    select(keyspace(first)?.tables.get(second).ok_or_else(missing)?);
                }
                names => {
                    for name in names {
                        keyspace(name)?.tables.values().for_each(&mut select);
                    }
                }
            },
            Self::Tables(names) => {
                for (first, second) in names {
                    let missing = || SelectionError::Table(first.clone(), second.clone());
                    select(keyspace(first)?.tables.get(second).ok_or_else(missing)?);
                }
            }
        }
        Ok(selected.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::test_catalog::{CREATE_KEYSPACE, catalog_of};

    /// Two keyspaces, of which the second has the name of a table of the first.
    fn selected(selection: &TableSelection) -> Result<Vec<String>, SelectionError> {
        let other = CREATE_KEYSPACE.replace("ks", "twin");
        let view = catalog_of(&[
            CREATE_KEYSPACE,
            &other,
            "CREATE TABLE ks.a (k int PRIMARY KEY)",
            "CREATE TABLE ks.twin (k int PRIMARY KEY)",
            "CREATE TABLE twin.c (k int PRIMARY KEY)",
        ]);
        let tables = selection.tables(&view.catalog)?;
        Ok(tables.iter().map(|table| format!("{}.{}", table.keyspace, table.name)).collect())
    }

    fn keyspaces(names: &[&str]) -> TableSelection {
        TableSelection::Keyspaces(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn names_are_those_of_keyspaces_or_of_a_keyspace_and_a_table() {
        assert_eq!(selected(&keyspaces(&["ks"])).unwrap(), ["ks.a", "ks.twin"]);
        assert_eq!(selected(&keyspaces(&["twin", "ks", "ks"])).unwrap(), ["ks.a", "ks.twin", "twin.c"]);
        assert_eq!(selected(&keyspaces(&["ks", "a"])).unwrap(), ["ks.a"]);
        // The keyspace of that name comes first, and the table is among the selected ones too.
        assert_eq!(selected(&keyspaces(&["ks", "twin"])).unwrap(), ["ks.a", "ks.twin", "twin.c"]);
        let tables = [("twin", "c"), ("ks", "a"), ("ks", "a")];
        let tables = tables.map(|(keyspace, table)| (keyspace.to_owned(), table.to_owned())).to_vec();
        assert_eq!(selected(&TableSelection::Tables(tables)).unwrap(), ["ks.a", "twin.c"]);
        let all = selected(&TableSelection::All).unwrap();
        assert!(all.contains(&"twin.c".to_owned()) && all.iter().any(|name| name.starts_with("system")));
        assert!(!all.contains(&"system_virtual_schema.tables".to_owned()));
    }

    #[test]
    fn names_that_the_schema_does_not_have_are_refused() {
        for (selection, message) in [
            (keyspaces(&["none"]), "keyspace 'none' does not exist"),
            (keyspaces(&["none", "a"]), "keyspace 'none' does not exist"),
            (keyspaces(&["ks", "none"]), "'none' is neither a keyspace nor a table of keyspace 'ks'"),
            (keyspaces(&["ks", "twin", "a"]), "keyspace 'a' does not exist"),
            (TableSelection::of(Some("ks"), Some("none")), "table 'ks.none' does not exist"),
        ] {
            assert_eq!(selected(&selection).unwrap_err().to_string(), message);
        }
    }
}
