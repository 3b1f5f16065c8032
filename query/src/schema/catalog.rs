//! The catalog: keyspaces, tables, columns and types as immutable values.
//!
//! Invariants:
//! * A `Catalog` never changes. A schema change creates a new one (sharing the unchanged parts) with a new version.
//! * Column ids are assigned by the table from `next_column_id` and never reused, so that data of a dropped column
//!   can never appear under a column that was added later.
//! * `Table::columns` is ordered: partition key, clustering key (both by position), static columns, regular columns
//!   (both by name). This is also the order of `SELECT *`.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use cql_lite::types::token::Partitioner;
use cql_lite::types::{CqlType, UserType};
use hashbrown::HashMap;
use helenus_engine::TableId;
use helenus_feed_tables::columns;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::constraint::{self, Constraints};
use super::index::Index;
use super::mask::ColumnMask;
use super::options::TableOptions;
use super::user_functions::UserFunctions;
use super::view::{self, View};

/// All keyspaces of the node at one moment.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// Changes with every schema change. Drivers compare it for schema agreement.
    pub version: Uuid,
    /// By name, including the system keyspaces.
    pub keyspaces: BTreeMap<String, Arc<Keyspace>>,
}

/// A catalog with its generation in this run of the node.
#[derive(Debug, Clone)]
pub struct CatalogView {
    pub generation: u64,
    pub catalog: Arc<Catalog>,
    /// Made when it is asked for: few schema changes are followed by such a question.
    tables_by_id: Arc<OnceLock<HashMap<Uuid, Arc<Table>>>>,
    /// Made at the first write.
    view_logs: Arc<OnceLock<HashMap<Uuid, Arc<Table>>>>,
}

impl CatalogView {
    pub fn new(generation: u64, catalog: Arc<Catalog>) -> Self {
        Self { generation, catalog, tables_by_id: Arc::default(), view_logs: Arc::default() }
    }

    /// The logs of the tables that views are computed of, by the ids of these tables.
    #[inline]
    pub fn view_logs(&self) -> &HashMap<Uuid, Arc<Table>> {
        self.view_logs.get_or_init(|| {
            let keyspaces = self.catalog.keyspaces.values();
            keyspaces
                .flat_map(|keyspace| keyspace.view_logs())
                .map(|(base, log)| (base.id, log.clone()))
                .collect()
        })
    }

    /// The table with this id.
    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        let by_id = self.tables_by_id.get_or_init(|| {
            let tables = self.catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
            tables.map(|table| (table.id, table.clone())).collect()
        });
        by_id.get(&Uuid::from_bytes(id.0))
    }
}

/// A keyspace: a replication strategy and its tables and types.
#[derive(Debug, Clone)]
pub struct Keyspace {
    pub name: String,
    pub replication: Replication,
    pub durable_writes: bool,
    /// Tables are computed by the node instead of stored (`system_views`, `system_virtual_schema`).
    pub is_virtual: bool,
    /// By name. A changed copy shares all other tables, so it costs the same with 10,000 of them.
    pub tables: OrdMap<String, Arc<Table>>,
    pub types: BTreeMap<String, Arc<UserType>>,
    pub user_functions: UserFunctions,
}

/// The replication of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replication {
    Local,
    Simple {
        replication_factor: u32,
    },
    /// Number of replicas in each data center.
    NetworkTopology {
        data_centers: BTreeMap<String, u32>,
    },
}

impl Replication {
    /// Replicas of each row, over all data centers.
    pub fn replica_count(&self) -> u32 {
        match self {
            Self::Local => 1,
            Self::Simple { replication_factor } => *replication_factor,
            Self::NetworkTopology { data_centers } => data_centers.values().sum(),
        }
    }
}

/// The source of a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// Rows in the engine.
    Stored,
    /// Rows computed by the node at each read; never written by clients.
    Virtual,
}

/// One table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub keyspace: String,
    pub name: String,
    pub id: Uuid,
    pub kind: TableKind,
    /// In the order of the invariants above.
    pub columns: Vec<Column>,
    pub partition_key_count: usize,
    pub clustering_key_count: usize,
    pub options: TableOptions,
    pub is_counter: bool,
    /// The table is `WITH COMPACT STORAGE`.
    pub compact: Option<CompactStorage>,
    /// In the order of the drops; no two have the same id.
    pub dropped_columns: Vec<DroppedColumn>,
    pub next_column_id: u32,
    /// By name.
    pub indexes: Vec<Arc<Index>>,
    /// By the ids of their columns.
    pub constraints: BTreeMap<u32, Constraints>,
    /// By the ids of their columns.
    pub masks: BTreeMap<u32, ColumnMask>,
    /// What the rows of a view are computed of.
    pub view: Option<Arc<View>>,
}

/// What a table WITH COMPACT STORAGE has beside its columns.
///
/// Its rows have no liveness: they live by their cells, so a null for the only cell deletes the row. If the table has no clustering columns, its
/// other columns are of the kind [`ColumnKind::Static`], as in Cassandra: no regular rows are written. If it has several clustering
/// columns, a row may leave out the last ones: they are null. If it has nothing but its key, rows have a liveness, which stands for the empty
/// value that Cassandra writes.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactStorage {
    /// The columns that clients do not see before COMPACT STORAGE is dropped: the clustering column and the value of a table
    /// without clustering columns, the value of one that has nothing but its key. Nothing was written to them.
    pub hidden_columns: Vec<Column>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Address of the column's cells in the engine; stable and unique within the table.
    pub id: u32,
    pub name: String,
    pub column_type: CqlType,
    pub kind: ColumnKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ColumnKind {
    PartitionKey { position: usize },
    Clustering { position: usize, descending: bool },
    Static,
    Regular,
}

/// A dropped column: all of its cells are hidden, or, if it was added again, those that are not newer than the drop.
#[derive(Debug, Clone, PartialEq)]
pub struct DroppedColumn {
    /// The id of the column, which it keeps if it is added again.
    pub id: u32,
    pub name: String,
    pub column_type: CqlType,
    pub is_static: bool,
    /// Cells with this timestamp (microseconds) or an older one are hidden.
    pub dropped_at_micros: i64,
}

impl Catalog {
    pub fn keyspace(&self, name: &str) -> Option<&Arc<Keyspace>> {
        self.keyspaces.get(name)
    }

    pub fn table(&self, keyspace: &str, table: &str) -> Option<&Arc<Table>> {
        self.keyspaces.get(keyspace)?.tables.get(table)
    }

    /// The keyspace and the name of a table with the option `encryption`.
    pub fn encrypted_table(&self) -> Option<(&str, &str)> {
        self.keyspaces.values().find_map(|keyspace| {
            let table = keyspace.tables.values().find(|table| table.options.is_encrypted)?;
            Some((keyspace.name.as_str(), table.name.as_str()))
        })
    }
}

/// See [`Keyspace::table_differences`].
pub type TableDifferences<'o, 'n> = Vec<(Option<&'o Arc<Table>>, Option<&'n Arc<Table>>)>;

impl Keyspace {
    pub fn user_type(&self, name: &str) -> Option<&Arc<UserType>> {
        self.types.get(name)
    }

    /// The log of a table's change feed. It stays while the feed is turned off, until one of the two tables is dropped.
    pub fn feed_log(&self, base: &str) -> Option<&Arc<Table>> {
        self.tables.get(&columns::log_name(base)).filter(|log| log.options.is_feed_log)
    }

    /// The table of whose change feed a table is the log, and which is still there.
    pub fn feed_base(&self, log: &Table) -> Option<&Arc<Table>> {
        let base = columns::base_name(&log.name).filter(|_| log.options.is_feed_log)?;
        self.tables.get(base)
    }

    /// The views of a base table.
    pub fn views_of(&self, base: &Table) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values().filter(|table| table.view.as_ref().is_some_and(|view| view.base == base.id))
    }

    /// The log of what changes in a table that views are computed of.
    pub fn view_log(&self, base: &str) -> Option<&Arc<Table>> {
        self.tables.get(&view::log_name(base))
    }

    /// The tables that views are computed of, with the logs of what changes in them.
    pub fn view_logs(&self) -> impl Iterator<Item = (&Arc<Table>, &Arc<Table>)> {
        self.tables.values().filter(|table| table.is_view_log()).filter_map(|log| {
            let base = view::owner_name(&log.name).and_then(|base| self.tables.get(base))?;
            Some((base, log))
        })
    }

    /// The table with the index of this name, and the index.
    pub fn index(&self, name: &str) -> Option<(&Arc<Table>, &Arc<Index>)> {
        self.tables.values().find_map(|table| Some((table, table.index(name)?)))
    }

    /// This name, or if an index has it, the first of `name_1`, `name_2`, … that none has.
    pub fn available_index_name(&self, name: &str) -> String {
        let numbered = (1_u64..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let available = names.find(|name| self.index(name).is_none());
        available.unwrap_or_else(|| unreachable!("a keyspace has fewer indexes than there are numbers"))
    }

    /// The tables in which two keyspaces differ, by name: the one in `old`, if any, and the one in `new`, if any. `None`: it has no tables. It
    /// costs as much as the differences, where one keyspace was made from the other.
    pub fn table_differences<'o, 'n>(
        old: Option<&'o Self>,
        new: Option<&'n Self>,
    ) -> TableDifferences<'o, 'n> {
        match (old, new) {
            (Some(old), Some(new)) => {
                let differences = old.tables.diff(&new.tables).map(|difference| match difference {
                    DiffItem::Add(_, new) => (None, Some(new)),
                    DiffItem::Update { old: (_, old), new: (_, new) } => (Some(old), Some(new)),
                    DiffItem::Remove(_, old) => (Some(old), None),
                });
                differences.collect()
            }
            (Some(old), None) => old.tables.values().map(|table| (Some(table), None)).collect(),
            (None, Some(new)) => new.tables.values().map(|table| (None, Some(table))).collect(),
            (None, None) => Vec::new(),
        }
    }
}

impl Table {
    /// A stored table that has no columns yet.
    pub fn without_columns(keyspace: &str, name: String, id: Uuid, options: TableOptions) -> Self {
        Self {
            keyspace: keyspace.to_owned(),
            name,
            id,
            kind: TableKind::Stored,
            columns: Vec::new(),
            partition_key_count: 0,
            clustering_key_count: 0,
            options,
            is_counter: false,
            compact: None,
            dropped_columns: Vec::new(),
            next_column_id: 0,
            indexes: Vec::new(),
            constraints: BTreeMap::new(),
            masks: BTreeMap::new(),
            view: None,
        }
    }

    /// The id of the table in the engine.
    pub fn engine_id(&self) -> TableId {
        TableId(*self.id.as_bytes())
    }

    /// Whether clients do not see the table: it holds what views need beside their rows.
    pub fn is_hidden(&self) -> bool {
        view::is_hidden(&self.name)
    }

    /// Whether the table is the log of what changes in a table that views are computed of.
    pub fn is_view_log(&self) -> bool {
        self.options.is_feed_log && self.is_hidden()
    }

    /// How the tokens of the table's partitions are computed.
    #[inline]
    pub fn partitioner(&self) -> Partitioner {
        if self.options.is_feed_log { Partitioner::Stream } else { Partitioner::Murmur3 }
    }

    /// Whether any index compares vectors.
    pub fn has_vector_indexes(&self) -> bool {
        self.indexes.iter().any(|index| {
            let mut columns = self.columns.iter();
            let column = columns.find(|column| column.id == index.column_id);
            column.is_some_and(|column| index.vectors(&column.column_type).is_some())
        })
    }

    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The secondary index of this name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.name == name)
    }

    /// The column of an index of this table.
    pub fn indexed_column(&self, index: &Index) -> &Column {
        let column = self.columns.iter().find(|column| column.id == index.column_id);
        column.unwrap_or_else(|| {
            unreachable!("index {} of {} has no column {}", index.name, self.full_name(), index.column_id)
        })
    }

    /// What an index of this table indexes, as CQL: `values(c)`.
    pub fn index_target(&self, index: &Index) -> String {
        index.part.target(&self.indexed_column(index).name)
    }

    /// Index of a column in [`Table::columns`].
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The latest drop of a column of this name.
    pub fn latest_drop(&self, name: &str) -> Option<&DroppedColumn> {
        self.dropped_columns.iter().rev().find(|dropped| dropped.name == name)
    }

    /// The timestamp up to which the cells of a column are hidden, if it was dropped and added again.
    pub fn hidden_until(&self, column_id: u32) -> Option<i64> {
        let dropped = self.dropped_columns.iter().find(|dropped| dropped.id == column_id)?;
        Some(dropped.dropped_at_micros)
    }

    pub fn partition_key(&self) -> &[Column] {
        &self.columns[..self.partition_key_count]
    }

    pub fn clustering_key(&self) -> &[Column] {
        &self.columns[self.partition_key_count..self.partition_key_count + self.clustering_key_count]
    }

    /// Static and regular columns.
    pub fn value_columns(&self) -> &[Column] {
        &self.columns[self.partition_key_count + self.clustering_key_count..]
    }

    pub fn has_static_columns(&self) -> bool {
        self.value_columns().iter().any(|column| column.kind == ColumnKind::Static)
    }

    /// Whether the table is WITH COMPACT STORAGE and has no clustering columns.
    pub fn is_static_compact(&self) -> bool {
        self.compact.is_some() && self.clustering_key_count == 0
    }

    /// Whether the table is WITH COMPACT STORAGE and has clustering columns.
    pub fn is_dense(&self) -> bool {
        self.compact.is_some() && self.clustering_key_count > 0
    }

    /// Whether the positions of rows have, in Cassandra, several components: the flag `compound` of `system_schema.tables`.
    pub fn is_compound(&self) -> bool {
        self.compact.is_none() || self.clustering_key_count > 1
    }

    /// Whether INSERT gives rows a liveness.
    pub fn marks_rows(&self) -> bool {
        self.compact.is_none() || (self.is_dense() && self.value_columns().is_empty())
    }

    /// Whether a row may leave out the last of its clustering columns.
    pub fn allows_short_clustering(&self) -> bool {
        self.is_dense() && self.is_compound()
    }

    /// Whether the clustering value of a row must not be empty. In Cassandra it is the name of the only cell.
    pub fn refuses_empty_clustering(&self) -> bool {
        self.is_dense() && !self.is_compound()
    }

    /// The columns that clients do not see. Their names are taken.
    pub fn hidden_columns(&self) -> &[Column] {
        self.compact.as_ref().map_or(&[], |compact| &compact.hidden_columns)
    }

    /// Sorts the columns into the order of the invariants and recounts the key columns.
    pub fn arrange_columns(&mut self) {
        fn rank(column: &Column) -> (u8, usize) {
            match column.kind {
                ColumnKind::PartitionKey { position } => (0, position),
                ColumnKind::Clustering { position, .. } => (1, position),
                ColumnKind::Static => (2, 0),
                ColumnKind::Regular => (3, 0),
            }
        }
        self.columns.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name)));
        self.partition_key_count = self.columns.iter().filter(|c| c.is_partition_key()).count();
        self.clustering_key_count = self.columns.iter().filter(|c| c.is_clustering()).count();
    }

    /// `keyspace.table`, for error messages.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }
}

impl Column {
    pub fn is_partition_key(&self) -> bool {
        matches!(self.kind, ColumnKind::PartitionKey { .. })
    }

    pub fn is_clustering(&self) -> bool {
        matches!(self.kind, ColumnKind::Clustering { .. })
    }

    pub fn is_primary_key(&self) -> bool {
        self.is_partition_key() || self.is_clustering()
    }

    pub fn is_static(&self) -> bool {
        self.kind == ColumnKind::Static
    }

    pub fn is_descending(&self) -> bool {
        matches!(self.kind, ColumnKind::Clustering { descending: true, .. })
    }

    /// The column as its constraints see it.
    pub fn constraint_target(&self) -> constraint::Target<'_> {
        let key = match self.kind {
            ColumnKind::PartitionKey { .. } => Some("partition"),
            ColumnKind::Clustering { .. } => Some("clustering"),
            ColumnKind::Static | ColumnKind::Regular => None,
        };
        constraint::Target { name: &self.name, column_type: &self.column_type, key }
    }

    /// The kind in `system_schema.columns.kind`.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            ColumnKind::PartitionKey { .. } => "partition_key",
            ColumnKind::Clustering { .. } => "clustering",
            ColumnKind::Static => "static",
            ColumnKind::Regular => "regular",
        }
    }

    /// Position within the key, -1 for other columns.
    pub fn key_position(&self) -> i32 {
        match self.kind {
            ColumnKind::PartitionKey { position } | ColumnKind::Clustering { position, .. } => {
                position as i32
            }
            ColumnKind::Static | ColumnKind::Regular => -1,
        }
    }
}
