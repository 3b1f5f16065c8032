//! The columns of a log table by those of its base table. Made once for two versions of the tables, and used for each write.

use cql_lite::types::CqlType;
use helenus_feed_tables::columns::{END_OF_BATCH, OPERATION, TTL, deleted_elements_name, deleted_name};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_rows::mutation::TableId;

/// The columns of a log table, by their ids.
#[derive(Debug)]
pub struct LogLayout {
    /// The log table.
    pub table: TableId,
    pub operation: u32,
    pub ttl: u32,
    pub end_of_batch: u32,
    /// In the order of the base table's key.
    pub partition_key: Vec<u32>,
    pub clustering: Vec<ClusteringColumn>,
    /// By the ids of the base table's columns, ascending.
    pub columns: Vec<LoggedColumn>,
}

/// A clustering column of the base table.
#[derive(Debug)]
pub struct ClusteringColumn {
    /// The log's column.
    pub log: u32,
    pub column_type: CqlType,
    pub descending: bool,
}

/// A column of the base table that is no key, with the columns that it has in the log.
#[derive(Debug)]
pub struct LoggedColumn {
    /// In the base table.
    pub id: u32,
    pub is_static: bool,
    /// In the base table.
    pub column_type: CqlType,
    /// Cells up to this timestamp are hidden from readers: the column was dropped and added again.
    pub hidden_until: Option<i64>,
    pub value: u32,
    pub deleted: u32,
    /// `None`: the column has one cell.
    pub deleted_elements: Option<u32>,
}

impl LogLayout {
    /// The layout of the log of a table. Columns that the log has not (any more) are left out: the base table has lost them too, since the write
    /// was planned.
    pub fn new(base: &Table, log: &Table) -> Result<Self> {
        let id = |name: &str| log.column(name).map(|column| column.id);
        let required = |name: &str| {
            id(name).ok_or_else(|| {
                RequestError::Server(format!(
                    "the log {} of a change feed has no column {name}",
                    log.full_name()
                ))
            })
        };
        let partition_key =
            base.partition_key().iter().map(|column| required(&column.name)).collect::<Result<_>>()?;
        let mut clustering = Vec::with_capacity(base.clustering_key_count);
        for column in base.clustering_key() {
            clustering.push(ClusteringColumn {
                log: required(&column.name)?,
                column_type: column.column_type.clone(),
                descending: column.is_descending(),
            });
        }
        let mut columns: Vec<LoggedColumn> = Vec::with_capacity(base.value_columns().len());
        for column in base.value_columns() {
            let (Some(value), Some(deleted)) = (id(&column.name), id(&deleted_name(&column.name))) else {
                continue;
            };
            let is_multi_cell = column.column_type.is_multi_cell();
            columns.push(LoggedColumn {
                id: column.id,
                is_static: column.is_static(),
                column_type: column.column_type.clone(),
                hidden_until: base.hidden_until(column.id),
                value,
                deleted,
                deleted_elements: is_multi_cell
                    .then(|| required(&deleted_elements_name(&column.name)))
                    .transpose()?,
            });
        }
        columns.sort_by_key(|column| column.id);
        Ok(Self {
            table: log.engine_id(),
            operation: required(OPERATION)?,
            ttl: required(TTL)?,
            end_of_batch: required(END_OF_BATCH)?,
            partition_key,
            clustering,
            columns,
        })
    }

    /// The column with this id in the base table.
    pub fn column(&self, id: u32) -> Option<&LoggedColumn> {
        let index = self.columns.binary_search_by_key(&id, |column| column.id).ok()?;
        self.columns.get(index)
    }
}
