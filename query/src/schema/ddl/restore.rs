//! The schema that a snapshot keeps, and the changes that prepare for its rows: they create a missing keyspace, types and table,
//! or check that the existing table takes the rows.
//!
//! The cells of a snapshot's files are addressed by column ids. So a table that takes them has the same columns with the same ids. One
//! that is created for them gets an id of its own: drops, hints and batches that name the old one do not concern it.

use std::sync::Arc;

use cql_lite::types::UserType;
use imbl::OrdMap;
use uuid::Uuid;

use super::{
    Change, ChangeTarget, ChangeType, DdlContext, MAX_TABLE_NAME_LENGTH, SchemaChangeEvent, TableAction,
    bounds, event, invalid, is_valid_name, refuse_system_keyspace,
};
use crate::error::Result;
use crate::schema::catalog::{Catalog, Column, Keyspace, Replication, Table};
use crate::schema::document::{CatalogDocument, DocumentError};
use crate::schema::index::Index;
use crate::schema::type_order::types_of_table;
use crate::schema::user_functions::UserFunctions;

/// The reason why the schema of a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotSchemaError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Document(#[from] DocumentError),
    #[error("it has no table")]
    NoTable,
}

/// The schema of a table at the time of its snapshot.
#[derive(Debug, Clone)]
pub struct SnapshotSchema {
    /// With the types that the table uses, and no other tables.
    keyspace: Keyspace,
    table: Arc<Table>,
}

impl SnapshotSchema {
    pub fn of(keyspace: &Keyspace, table: &Table) -> Self {
        let types = types_of_table(keyspace, table);
        let is_used = |name: &str| types.iter().any(|used| &*used.name == name);
        let mut keyspace = keyspace.clone();
        keyspace.types.retain(|name, _| is_used(name));
        keyspace.user_functions = UserFunctions::default();
        let table = Arc::new(table.clone());
        keyspace.tables = OrdMap::unit(table.name.clone(), Arc::clone(&table));
        Self { keyspace, table }
    }

    /// As JSON, in the form of the catalog's document.
    pub fn encode(&self) -> serde_json::Result<String> {
        let keyspaces = [(self.keyspace.name.clone(), Arc::new(self.keyspace.clone()))].into();
        serde_json::to_string_pretty(&CatalogDocument::of(&Catalog { version: Uuid::nil(), keyspaces }))
    }

    /// The inverse of [`Self::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotSchemaError> {
        let nothing = Catalog { version: Uuid::nil(), keyspaces: [].into() };
        let catalog = serde_json::from_slice::<CatalogDocument>(bytes)?.over(&nothing)?;
        let keyspace = catalog.keyspaces.into_values().next().ok_or(SnapshotSchemaError::NoTable)?;
        let keyspace = Arc::unwrap_or_clone(keyspace);
        let table = keyspace.tables.values().next().cloned().ok_or(SnapshotSchemaError::NoTable)?;
        Ok(Self { keyspace, table })
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The keyspace, with the types that the table uses, and no other tables.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Whether the table is a view, or kept beside one: its rows are computed of those of other tables.
    pub fn is_of_views(&self) -> bool {
        self.table.view.is_some() || self.table.is_hidden()
    }

    /// Grows with each change of the columns and types, so that the newest of several schemas of one table is found.
    pub fn age(&self) -> impl Ord + use<> {
        let dropped = &self.table.dropped_columns;
        let last_drop = dropped.iter().map(|column| column.dropped_at_micros).max();
        let fields: usize = self.keyspace.types.values().map(|known| known.field_names.len()).sum();
        (self.table.next_column_id, last_drop, dropped.len(), fields, self.table.compact.is_none())
    }

    /// Checks that a table of this schema takes the rows of another one.
    pub fn check_takes(&self, other: &Self) -> Result<()> {
        for user_type in types_of_table(&other.keyspace, &other.table) {
            if self.keyspace.types.get(&*user_type.name).is_none_or(|known| !begins_with(known, user_type)) {
                return invalid(format!(
                    "The type {}.{} differs between the schemas of {}",
                    self.keyspace.name,
                    user_type.name,
                    self.table.full_name()
                ));
            }
        }
        other.check_fit(&self.table)
    }

    /// The next change on the way to a table of this name that takes the rows. `None`: it is there.
    pub fn next_change(&self, catalog: &Catalog, name: &str, context: &DdlContext) -> Result<Option<Change>> {
        refuse_system_keyspace(&self.keyspace.name)?;
        if self.is_of_views() {
            return invalid(format!(
                "{} is computed by the node: it comes back with the table that it is computed of",
                self.table.full_name()
            ));
        }
        let changed = match catalog.keyspace(&self.keyspace.name) {
            None => self.missing_keyspace(context)?,
            Some(present) => match self.missing_type(present)? {
                Some(missing) => missing,
                None => match present.tables.get(name) {
                    Some(table) => {
                        self.check_fit(table)?;
                        match restored_log(present, table, context) {
                            Some(change) => change,
                            None => return Ok(None),
                        }
                    }
                    None => self.missing_table(present, name, context)?,
                },
            },
        };
        let (keyspace, effect, table_actions) = changed;
        let mut new = catalog.clone();
        new.version = context.new_version;
        new.keyspaces.insert(keyspace.name.clone(), Arc::new(keyspace));
        bounds::check_change(catalog, &new)?;
        Ok(Some(Change { catalog: Arc::new(new), effect: Some(effect), warnings: Vec::new(), table_actions }))
    }

    fn missing_keyspace(
        &self,
        context: &DdlContext,
    ) -> Result<(Keyspace, SchemaChangeEvent, Vec<TableAction>)> {
        if let Replication::NetworkTopology { data_centers } = &self.keyspace.replication
            && let Some(unknown) = data_centers.keys().find(|name| !context.data_centers.contains_key(*name))
        {
            return invalid(format!(
                "The keyspace {} of the snapshot has replicas in '{unknown}', which is no data center of this cluster. Create the keyspace first",
                self.keyspace.name
            ));
        }
        let mut keyspace = self.keyspace.clone();
        keyspace.tables.clear();
        keyspace.types.clear();
        let effect = event(ChangeType::Created, ChangeTarget::Keyspace, &keyspace.name, "");
        Ok((keyspace, effect, Vec::new()))
    }

    fn missing_type(
        &self,
        present: &Keyspace,
    ) -> Result<Option<(Keyspace, SchemaChangeEvent, Vec<TableAction>)>> {
        for user_type in types_of_table(&self.keyspace, &self.table) {
            match present.types.get(&*user_type.name) {
                Some(known) if begins_with(known, user_type) => {}
                Some(_) => {
                    return invalid(format!(
                        "The type {}.{} differs from that of the snapshot",
                        present.name, user_type.name
                    ));
                }
                None => {
                    let mut keyspace = present.clone();
                    keyspace.types.insert(user_type.name.to_string(), Arc::new(user_type.clone()));
                    let effect =
                        event(ChangeType::Created, ChangeTarget::Type, &keyspace.name, &user_type.name);
                    return Ok(Some((keyspace, effect, Vec::new())));
                }
            }
        }
        Ok(None)
    }

    fn missing_table(
        &self,
        present: &Keyspace,
        name: &str,
        context: &DdlContext,
    ) -> Result<(Keyspace, SchemaChangeEvent, Vec<TableAction>)> {
        if !is_valid_name(name) || name.len() > MAX_TABLE_NAME_LENGTH {
            return invalid(format!("'{name}' is no name of a table"));
        }
        if self.table.options.is_feed_log {
            return invalid(format!(
                "The snapshot of {} is one of the log of a change feed: restore its base table first, with the feed",
                self.table.full_name()
            ));
        }
        let mut table = Table::clone(&self.table);
        name.clone_into(&mut table.name);
        table.id = context.new_id;
        // The names of its indexes may be taken by those of other tables.
        let mut indexes: Vec<_> = std::mem::take(&mut table.indexes)
            .into_iter()
            .map(|index| {
                let name = present.available_index_name(&index.name);
                Arc::new(Index { name, ..Index::clone(&index) })
            })
            .collect();
        indexes.sort_by(|a, b| a.name.cmp(&b.name));
        table.indexes = indexes;
        let table = Arc::new(table);
        let mut keyspace = present.clone();
        keyspace.tables.insert(table.name.clone(), Arc::clone(&table));
        let effect = event(ChangeType::Created, ChangeTarget::Table, &keyspace.name, name);
        Ok((keyspace, effect, vec![TableAction::Create(table)]))
    }

    /// Checks that a table takes the rows.
    fn check_fit(&self, table: &Table) -> Result<()> {
        let snapshot = &self.table;
        let refused = |reason: String| {
            let name = table.full_name();
            invalid(format!(
                "The rows of the snapshot do not fit into the table {name}: {reason}. Restore it as another table"
            ))
        };
        let key = |table: &Table| {
            let named = |column: &Column| (column.name.clone(), column.column_type.to_string());
            let partition_key = table.partition_key().iter().map(named);
            // A table loses its COMPACT STORAGE, and its rows stay as they are.
            let hidden = table.hidden_columns().iter().filter(|column| column.is_clustering());
            let clustering_key = table.clustering_key().iter().chain(hidden);
            let clustering_key = clustering_key.map(|column| (named(column), column.is_descending()));
            (partition_key.collect::<Vec<_>>(), clustering_key.collect::<Vec<_>>())
        };
        if key(table) != key(snapshot) {
            return refused("its primary key is another".to_owned());
        }
        if table.is_counter != snapshot.is_counter {
            return refused("only one of them has counters".to_owned());
        }
        if table.compact.is_some() && snapshot.compact.is_none() {
            return refused("only it has COMPACT STORAGE".to_owned());
        }
        if table.options.cap.is_some() && snapshot.options.cap.is_none() {
            return refused("only it has a cap, and rows of tables without one may expire".to_owned());
        }
        let names = |column: &Column| (column.name.clone(), column.column_type.to_string(), column.kind);
        for column in snapshot.value_columns() {
            let present = table.value_columns().iter().find(|present| present.id == column.id);
            let is_dropped = || {
                table
                    .dropped_columns
                    .iter()
                    .any(|dropped| dropped.id == column.id && dropped.name == column.name)
            };
            match present {
                Some(present) if names(present) == names(column) => {}
                None if is_dropped() => {}
                _ => return refused(format!("it has no such column '{}'", column.name)),
            }
        }
        for dropped in &snapshot.dropped_columns {
            let is_known = table
                .dropped_columns
                .iter()
                .any(|known| known.id == dropped.id && known.name == dropped.name);
            if !is_known && snapshot.value_columns().iter().all(|column| column.id != dropped.id) {
                return refused(format!("the dropped column '{}' is unknown to it", dropped.name));
            }
        }
        Ok(())
    }
}

/// The log of a change feed whose past is not complete any more, because rows are restored into it. `None`: that is known.
fn restored_log(
    present: &Keyspace,
    table: &Table,
    context: &DdlContext,
) -> Option<(Keyspace, SchemaChangeEvent, Vec<TableAction>)> {
    let history = table.options.feed_history?.restored(context.now_micros)?;
    let mut log = table.clone();
    log.options.feed_history = Some(history);
    let log = Arc::new(log);
    let mut keyspace = present.clone();
    keyspace.tables.insert(log.name.clone(), Arc::clone(&log));
    let effect = event(ChangeType::Updated, ChangeTarget::Table, &keyspace.name, &log.name);
    Some((keyspace, effect, vec![TableAction::Alter(log)]))
}

/// Whether a type has all fields of another, and at most further ones behind them.
fn begins_with(known: &UserType, other: &UserType) -> bool {
    let fields = |user_type: &UserType| -> Vec<(String, String)> {
        let names = user_type.field_names.iter().map(ToString::to_string);
        names.zip(user_type.field_types.iter().map(ToString::to_string)).collect()
    };
    fields(known).starts_with(&fields(other))
}

#[cfg(test)]
mod tests {
    use helenus_feed_tables::history::FeedHistory;

    use super::*;
    use crate::schema::options::DataCenters;
    use crate::schema::test_catalog::{CREATE_KEYSPACE, catalog_of};

    const TYPES: [&str; 3] = [
        "CREATE TYPE ks.inner (a int)",
        "CREATE TYPE ks.outer (b frozen<inner>)",
        "CREATE TYPE ks.other (c int)",
    ];
    const TABLE: &str = "CREATE TABLE ks.t (p int, c text, s int static, v frozen<outer>, w int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)";

    fn catalog(statements: &[&str]) -> Catalog {
        Catalog::clone(&catalog_of(&[&[CREATE_KEYSPACE], statements].concat()).catalog)
    }

    fn snapshot(statements: &[&str]) -> SnapshotSchema {
        let catalog = catalog(statements);
        let keyspace = catalog.keyspace("ks").unwrap();
        let schema = SnapshotSchema::of(keyspace, catalog.table("ks", "t").unwrap());
        SnapshotSchema::decode(schema.encode().unwrap().as_bytes()).unwrap()
    }

    fn context() -> DdlContext {
        DdlContext {
            now_micros: 1,
            new_id: Uuid::from_u128(77),
            new_version: Uuid::from_u128(78),
            data_centers: DataCenters::from([("datacenter1".to_owned(), 1)]),
            user_functions: &crate::schema::test_catalog::EveryFunction,
            may_drop_compact_storage: false,
        }
    }

    /// Changes until the table is there.
    fn restore(schema: &SnapshotSchema, catalog: Catalog, name: &str) -> (Catalog, Vec<String>) {
        let (mut catalog, mut effects) = (catalog, Vec::new());
        while let Some(change) = schema.next_change(&catalog, name, &context()).unwrap() {
            let effect = change.effect.unwrap();
            effects.push(format!("{} {} {}", effect.change_type.name(), effect.target.name(), effect.name));
            catalog = Catalog::clone(&change.catalog);
        }
        (catalog, effects)
    }

    #[test]
    fn what_is_missing_is_created_with_the_same_column_ids() {
        let dropped = ["ALTER TABLE ks.t DROP w", "ALTER TABLE ks.t ADD z bigint"];
        let schema = snapshot(&[&TYPES[..], &[TABLE], &dropped].concat());
        let nothing = Catalog::clone(&catalog_of::<&str>(&[]).catalog);
        let (restored, effects) = restore(&schema, nothing, "t");
        let expected = ["CREATED KEYSPACE ", "CREATED TYPE inner", "CREATED TYPE outer", "CREATED TABLE t"];
        assert_eq!(effects, expected);
        let table = restored.table("ks", "t").unwrap();
        assert_eq!((&table.columns, table.id), (&schema.table().columns, Uuid::from_u128(77)));
        assert_eq!(table.dropped_columns, schema.table().dropped_columns);
        assert_eq!(table.next_column_id, schema.table().next_column_id);
        // Under another name, beside the table that is there.
        let (restored, effects) = restore(&schema, restored, "copy");
        assert_eq!(effects, ["CREATED TABLE copy"]);
        assert_eq!(restored.table("ks", "copy").unwrap().columns, schema.table().columns);
        assert!(schema.next_change(&restored, "no name", &context()).is_err());
    }

    #[test]
    fn indexes_are_restored_under_names_that_are_free() {
        let indexes = [
            "CREATE INDEX ON ks.t (w)",
            "CREATE INDEX named ON ks.t (c) USING 'sai'",
            "CREATE INDEX ON ks.t (s)",
        ];
        let schema = snapshot(&[&TYPES[..], &[TABLE], &indexes].concat());
        let nothing = Catalog::clone(&catalog_of::<&str>(&[]).catalog);
        let (restored, _) = restore(&schema, nothing, "t");
        assert_eq!(restored.table("ks", "t").unwrap().indexes, schema.table().indexes);
        let (restored, _) = restore(&schema, restored, "copy");
        let copied = &restored.table("ks", "copy").unwrap().indexes;
        let names: Vec<&str> = copied.iter().map(|index| index.name.as_str()).collect();
        assert_eq!(names, ["named_1", "t_s_idx_1", "t_w_idx_1"]);
        let columns = |table: &[Arc<Index>]| table.iter().map(|index| index.column_id).collect::<Vec<_>>();
        assert_eq!(columns(copied), columns(&schema.table().indexes));
    }

    #[test]
    fn a_table_that_is_there_is_taken_if_its_columns_are_the_same() {
        let schema = snapshot(&[&TYPES[..], &[TABLE]].concat());
        let refusal = |statements: &[&str]| match schema.next_change(&catalog(statements), "t", &context()) {
            Ok(None) => None,
            Ok(Some(change)) => panic!("{:?}", change.effect),
            Err(error) => Some(error.to_string()),
        };
        let with = |last: &[&'static str]| refusal(&[&TYPES[..], last].concat());
        assert_eq!(with(&[TABLE]), None);
        assert_eq!(with(&[TABLE, "ALTER TYPE ks.inner ADD d int"]), None, "a type may have grown");
        assert_eq!(with(&[TABLE, "ALTER TABLE ks.t ADD z int"]), None);
        assert_eq!(with(&[TABLE, "ALTER TABLE ks.t DROP w"]), None, "its cells stay hidden");
        for (other, reason) in [
            ("CREATE TABLE ks.t (p int, c text, PRIMARY KEY (p, c))", "primary key"),
            ("CREATE TABLE ks.t (p int PRIMARY KEY, s int)", "primary key"),
            // Keys of the same types with another meaning.
            (
                "CREATE TABLE ks.t (q int, c text, s int static, v frozen<outer>, w int, PRIMARY KEY (q, c)) WITH CLUSTERING ORDER BY (c DESC)",
                "primary key",
            ),
            (
                "CREATE TABLE ks.t (p int, c text, s int static, v int, w int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)",
                "no such column 'v'",
            ),
            (
                "CREATE TABLE ks.t (p int, c text, s int static, a int, v frozen<outer>, w int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)",
                "no such column",
            ),
        ] {
            let refused = with(&[other]).unwrap();
            assert!(refused.contains(reason), "{other}: {refused}");
        }
        let refused = refusal(&["CREATE TYPE ks.inner (a text)", TYPES[1], TABLE]).unwrap();
        assert!(refused.contains("ks.inner differs"), "{refused}");
        let dropped = snapshot(&[&TYPES[..], &[TABLE, "ALTER TABLE ks.t DROP w"]].concat());
        let refused = dropped.next_change(&catalog(&[&TYPES[..], &[TABLE]].concat()), "t", &context());
        assert!(refused.unwrap_err().to_string().contains("dropped column 'w'"));
    }

    #[test]
    fn rows_of_a_table_without_a_cap_do_not_fit_under_one() {
        let plain = "CREATE TABLE ks.t (p int, c int, PRIMARY KEY (p, c))";
        let capped = format!("{plain} WITH cap = 5");
        let fit = |from: &str, into: &str| snapshot(&[from]).next_change(&catalog(&[into]), "t", &context());
        assert!(fit(plain, &capped).unwrap_err().to_string().contains("only it has a cap"));
        for (from, into) in [(&*capped, &*capped), (&*capped, plain), (plain, plain)] {
            assert!(fit(from, into).unwrap().is_none());
        }
    }

    #[test]
    fn rows_with_compact_storage_fit_where_it_was_dropped() {
        for columns in ["(k int PRIMARY KEY, v int)", "(k int, c int, PRIMARY KEY (k, c))"] {
            let create = format!("CREATE TABLE ks.t {columns} WITH COMPACT STORAGE");
            let before = snapshot(&[&create]);
            let after = snapshot(&[&create, "ALTER TABLE ks.t DROP COMPACT STORAGE"]);
            assert!(before.age() < after.age());
            after.check_takes(&before).unwrap();
            before.check_takes(&before).unwrap();
            assert!(before.check_takes(&after).is_err());
            let nothing = Catalog::clone(&catalog_of::<&str>(&[]).catalog);
            let (restored, _) = restore(&before, nothing, "t");
            assert_eq!(restored.table("ks", "t").unwrap().compact, before.table().compact);
        }
    }

    #[test]
    fn the_newest_of_several_schemas_takes_the_rows_of_the_others() {
        let changes = [
            "ALTER TABLE ks.t ADD z int",
            "ALTER TABLE ks.t DROP w",
            "ALTER TYPE ks.inner ADD d int",
            "ALTER TABLE ks.t ADD y int",
        ];
        let schemas: Vec<_> = (0..=changes.len())
            .map(|count| snapshot(&[&TYPES[..], &[TABLE], &changes[..count]].concat()))
            .collect();
        for (index, pair) in schemas.windows(2).enumerate() {
            assert!(pair[0].age() < pair[1].age(), "{}", changes[index]);
            pair[1].check_takes(&pair[0]).unwrap();
        }
        let newest = schemas.last().unwrap();
        assert!(schemas.iter().all(|schema| newest.check_takes(schema).is_ok()));
        assert!(schemas[0].check_takes(newest).is_err());
    }

    #[test]
    fn a_log_that_takes_rows_is_complete_only_from_then_on() {
        let mut catalog = catalog(&[&TYPES[..], &[TABLE]].concat());
        let mut keyspace = Keyspace::clone(catalog.keyspace("ks").unwrap());
        let mut log = Table::clone(&keyspace.tables["t"]);
        log.options.is_feed_log = true;
        log.options.feed_history = Some(FeedHistory::begin(0, 0));
        keyspace.tables.insert(log.name.clone(), Arc::new(log.clone()));
        let schema = SnapshotSchema::of(&keyspace, &log);
        catalog.keyspaces.insert("ks".to_owned(), Arc::new(keyspace));
        let (restored, effects) = restore(&schema, catalog, "t");
        assert_eq!(effects.len(), 1);
        let log = restored.table("ks", "t").unwrap();
        assert_eq!(log.options.feed_history.unwrap().kept_from_micros(9), Some(1));
    }

    #[test]
    fn replicas_in_unknown_data_centers_are_refused() {
        let mut schema = snapshot(&[&TYPES[..], &[TABLE]].concat());
        schema.keyspace.replication =
            Replication::NetworkTopology { data_centers: [("elsewhere".to_owned(), 1)].into() };
        let nothing = Catalog::clone(&catalog_of::<&str>(&[]).catalog);
        let refused = schema.next_change(&nothing, "t", &context()).unwrap_err();
        assert!(refused.to_string().contains("'elsewhere'"), "{refused}");
        assert!(SnapshotSchema::decode(b"{}").is_err());
    }
}
