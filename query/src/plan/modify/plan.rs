//! The plan of an INSERT, UPDATE or DELETE.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::types::CqlType;

use crate::functions::ResolvedFunction;
use crate::plan::condition::Conditions;
use crate::plan::restrictions::{ClusteringRestriction, Values};
use crate::plan::term::Term;
use crate::schema::catalog::{Table, TableKind};
use crate::schema::system_keyspaces::SYSTEM_SCHEMA;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModifyKind {
    Insert,
    Update,
    Delete,
}

/// A planned modification.
#[derive(Debug, Clone)]
pub struct ModifyPlan {
    pub table: Arc<Table>,
    pub kind: ModifyKind,
    /// One set of values for each partition key column.
    pub partition: Vec<Values>,
    /// A prefix of the clustering key: all of it, except for deletions of ranges and changes of static columns.
    pub clustering: Vec<ClusteringRestriction>,
    pub operations: Vec<ColumnOperation>,
    pub timestamp: Option<Term>,
    pub time_to_live: Option<Term>,
    /// How long the coordinator waits for replicas; `None`: as the settings say. Statements of a batch have none: the batch has one.
    pub timeout: Option<Term>,
    pub conditions: Option<Conditions>,
    /// The document of INSERT JSON: keys and operations are made at execution.
    pub json: Option<JsonInsert>,
}

#[derive(Debug, Clone)]
pub struct JsonInsert {
    pub document: Term,
    /// Columns that are missing in the document are left unchanged instead of deleted.
    pub default_unset: bool,
}

/// A change of one column.
#[derive(Debug, Clone)]
pub struct ColumnOperation {
    /// Index in [`Table::columns`].
    pub column: usize,
    pub operation: Operation,
}

#[derive(Debug, Clone)]
pub enum Operation {
    /// The whole value; null deletes it.
    Set(Term),
    /// Appends elements to a list, or adds them to a set or map.
    Add(Term),
    /// Adds a number to that of the column (or subtracts it), if there is one. Only in a transaction.
    Calculate {
        /// Of the column's value and the number.
        function: Box<ResolvedFunction>,
        number: Term,
    },
    /// Prepends elements to a list.
    Prepend(Term),
    /// Removes elements from a list (by value), set or map (by key).
    Subtract(Term),
    /// Sets the value at a key of a map or an index of a list.
    SetElement {
        key: Term,
        value: Term,
    },
    SetField {
        field: u16,
        value: Term,
    },
    Delete,
    /// Deletes the value at a key of a map, an element of a set, an index of a list.
    DeleteElement(Term),
    DeleteField(u16),
    CounterAdd(Term),
    CounterSubtract(Term),
}

impl ModifyPlan {
    /// Whether this is a change of the schema: the extensions of tables are the only content of the schema tables that can be written.
    pub fn sets_table_extensions(&self) -> bool {
        self.table.kind == TableKind::Virtual && self.table.keyspace == SYSTEM_SCHEMA
    }

    /// Whether rows must be read before they can be changed (lists by index or value, numbers by a difference).
    pub fn needs_read(&self) -> bool {
        self.operations.iter().any(|change| {
            if matches!(change.operation, Operation::Calculate { .. }) {
                return true;
            }
            let is_list = matches!(self.table.columns[change.column].column_type, CqlType::List { .. });
            is_list
                && matches!(
                    change.operation,
                    Operation::Subtract(_) | Operation::SetElement { .. } | Operation::DeleteElement(_)
                )
        })
    }

    /// Whether only static columns (and the partition key) are named.
    pub fn touches_only_static(&self) -> bool {
        !self.operations.is_empty()
            && self.operations.iter().all(|change| self.table.columns[change.column].is_static())
    }

    /// The columns that it may write, with those of the key that it writes to: indexes in [`Table::columns`]. `None`: it deletes whole rows,
    /// whatever columns they have.
    pub fn written_columns(&self) -> Option<BTreeSet<usize>> {
        if self.json.is_some() {
            // The document names them, and it is known at execution only.
            return Some((0..self.table.columns.len()).collect());
        }
        if self.kind == ModifyKind::Delete && self.operations.is_empty() {
            return None;
        }
        let keys = 0..self.table.partition_key_count + self.clustering_values();
        Some(keys.chain(self.operations.iter().map(|operation| operation.column)).collect())
    }

    /// The columns whose values an answer may show because of the conditions, alone or in a batch: indexes in [`Table::columns`]. `None`:
    /// there are no conditions.
    pub fn shown_columns(&self) -> Option<BTreeSet<usize>> {
        let table = &self.table;
        Some(match self.conditions.as_ref()? {
            Conditions::Exists | Conditions::NotExists => (0..table.columns.len()).collect(),
            Conditions::Columns(conditions) => {
                let keys = 0..table.partition_key_count + table.clustering_key_count;
                keys.chain(conditions.iter().map(|condition| condition.column)).collect()
            }
        })
    }

    pub fn is_counter(&self) -> bool {
        self.table.is_counter
    }

    /// Whether the statement names a static column to change.
    pub fn changes_static_columns(&self) -> bool {
        self.operations.iter().any(|operation| self.table.columns[operation.column].is_static())
    }

    /// Whether a condition reads columns of a row.
    pub fn has_regular_conditions(&self) -> bool {
        let Some(Conditions::Columns(conditions)) = &self.conditions else { return false };
        conditions.iter().any(|condition| !self.table.columns[condition.column].is_static())
    }

    /// Whether all clustering columns have values (and not slices).
    pub fn has_full_clustering(&self) -> bool {
        self.clustering_values() == self.table.clustering_key_count
    }

    /// Whether the clustering columns have values enough for rows that are written: all of them, or in some tables WITH COMPACT STORAGE
    /// the first ones.
    pub fn names_written_rows(&self) -> bool {
        self.has_full_clustering() || (self.table.allows_short_clustering() && self.clustering_values() > 0)
    }

    /// The number of clustering columns that have values.
    fn clustering_values(&self) -> usize {
        let counts = self.clustering.iter().map(|restriction| match restriction {
            ClusteringRestriction::Values { .. } => 1,
            ClusteringRestriction::Tuples { count, .. } => *count,
            ClusteringRestriction::Slice { .. } => 0,
        });
        counts.sum()
    }
}
