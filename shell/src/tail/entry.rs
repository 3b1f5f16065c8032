//! The rows of a log table, with the role that each of its columns has for the table it is about.

use std::{cmp::Ordering, rc::Rc};

use cql_lite::types::{CqlType, Value, compare::compare};
use uuid::Uuid;

use crate::{
    connection::{Cell, Column, Rows},
    error::ShellError,
};

const PREFIX: &str = "cdc$";
const DELETED: &str = "cdc$deleted_";
const DELETED_ELEMENTS: &str = "cdc$deleted_elements_";

/// A column of the table that has the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseColumn {
    pub name: String,
    pub kind: ColumnKind,
    /// Its place in the partition key or among the clustering columns.
    pub position: i32,
    /// A list that is not frozen: the log has its elements by their times.
    pub is_list: bool,
    /// A clustering column whose largest values come first.
    pub is_descending: bool,
}

/// What a column of a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    PartitionKey,
    Clustering,
    /// A regular or static one.
    Other,
}

/// What is changed in one column: indexes of columns of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueColumn {
    pub value: usize,
    pub is_list: bool,
    pub deleted: Option<usize>,
    pub deleted_elements: Option<usize>,
}

/// The columns of a log table by their roles.
#[derive(Debug, PartialEq)]
pub struct Layout {
    pub columns: Vec<Column>,
    /// The indexes of the key's columns, in order.
    pub partition_key: Vec<usize>,
    pub clustering: Vec<usize>,
    /// Those of the clustering columns whose largest values come first.
    pub descending: Vec<usize>,
    pub values: Vec<ValueColumn>,
}

impl Layout {
    /// The roles of the columns of a log; `None`: it has not all columns of the key, because they are just being renamed.
    pub fn new(columns: &[Column], base: &[BaseColumn]) -> Option<Self> {
        let index = |name: &str| columns.iter().position(|column| column.name == name);
        let mut keys: Vec<&BaseColumn> =
            base.iter().filter(|column| column.kind != ColumnKind::Other).collect();
        keys.sort_by_key(|column| column.position);
        let key = |kind: ColumnKind| {
            let names = keys.iter().filter(|column| column.kind == kind);
            names.map(|column| index(&column.name)).collect::<Option<Vec<_>>>()
        };
        let mut values = Vec::new();
        for (value, column) in columns.iter().enumerate() {
            if column.name.starts_with(PREFIX) || keys.iter().any(|key| key.name == column.name) {
                continue;
            }
            values.push(ValueColumn {
                value,
                is_list: base.iter().any(|known| known.name == column.name && known.is_list),
                deleted: index(&format!("{DELETED}{}", column.name))
                    .filter(|deleted| columns[*deleted].cql_type == CqlType::Boolean),
                deleted_elements: index(&format!("{DELETED_ELEMENTS}{}", column.name))
                    .filter(|deleted| columns[*deleted].cql_type != CqlType::Boolean),
            });
        }
        Some(Self {
            columns: columns.to_vec(),
            partition_key: key(ColumnKind::PartitionKey)?,
            clustering: key(ColumnKind::Clustering)?,
            descending: base
                .iter()
                .filter(|known| known.is_descending)
                .filter_map(|known| index(&known.name))
                .collect(),
            values,
        })
    }
}

/// A row of the log.
#[derive(Debug, Clone)]
pub struct Entry {
    pub layout: Rc<Layout>,
    pub cells: Vec<Cell>,
    pub time: Uuid,
    pub stream: Vec<u8>,
    pub sequence: i32,
    pub operation: i8,
    pub ttl_seconds: Option<i64>,
}

impl Entry {
    /// The entries of a page.
    pub fn read_all(rows: Rows, layout: &Rc<Layout>) -> Result<Vec<Self>, ShellError> {
        let missing =
            |column: &str| ShellError::Statement(format!("The log has a row without a value of {column}"));
        let index = |column: &'static str| {
            let found = rows.columns.iter().position(|candidate| candidate.name == column);
            found.ok_or_else(|| missing(column))
        };
        let stream_id = index("cdc$stream_id")?;
        let mut entries = Vec::with_capacity(rows.rows.len());
        for row in 0..rows.rows.len() {
            let Some(Value::Timeuuid(time)) = rows.value(row, "cdc$time") else {
                return Err(missing("cdc$time"));
            };
            let Some(Value::Int(sequence)) = rows.value(row, "cdc$batch_seq_no") else {
                return Err(missing("cdc$batch_seq_no"));
            };
            let Some(Value::Tinyint(operation)) = rows.value(row, "cdc$operation") else {
                return Err(missing("cdc$operation"));
            };
            let ttl_seconds = match rows.value(row, "cdc$ttl") {
                Some(Value::Bigint(ttl_seconds)) => Some(ttl_seconds),
                _ => None,
            };
            let stream = rows.rows[row][stream_id].clone().ok_or_else(|| missing("cdc$stream_id"))?;
            let layout = Rc::clone(layout);
            entries.push(Self { layout, cells: Vec::new(), time, stream, sequence, operation, ttl_seconds });
        }
        for (entry, cells) in entries.iter_mut().zip(rows.rows) {
            entry.cells = cells;
        }
        Ok(entries)
    }

    /// The order of the feed: by time, those of one statement as they were numbered.
    pub fn order(&self, other: &Self) -> Ordering {
        compare(&CqlType::Timeuuid, self.time.as_bytes(), other.time.as_bytes())
            .then_with(|| self.stream.cmp(&other.stream))
            .then_with(|| self.sequence.cmp(&other.sequence))
    }

    /// Whether both were written by one statement or batch, to one stream.
    pub fn is_in_group_of(&self, other: &Self) -> bool {
        self.time == other.time && self.stream == other.stream
    }

    /// Whether both are about the same row.
    pub fn is_of_row_of(&self, other: &Self) -> bool {
        let key = |entry: &Self| {
            let columns = entry.layout.partition_key.iter().chain(&entry.layout.clustering);
            columns.map(|column| entry.cells[*column].clone()).collect::<Vec<_>>()
        };
        key(self) == key(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, cql_type: CqlType) -> Column {
        Column { name: name.to_owned(), cql_type }
    }

    fn base(name: &str, kind: ColumnKind, position: i32) -> BaseColumn {
        BaseColumn { name: name.to_owned(), kind, position, is_list: false, is_descending: false }
    }

    #[test]
    fn columns_have_the_roles_of_their_names() {
        let columns = [
            column("cdc$stream_id", CqlType::Blob),
            column("b", CqlType::Int),
            column("a", CqlType::Int),
            column("tags", CqlType::set(CqlType::Text, true)),
            column("cdc$deleted_tags", CqlType::Boolean),
            column("cdc$deleted_elements_tags", CqlType::set(CqlType::Text, true)),
        ];
        let base = [
            base("a", ColumnKind::PartitionKey, 0),
            base("b", ColumnKind::Clustering, 0),
            base("tags", ColumnKind::Other, -1),
        ];
        let layout = Layout::new(&columns, &base).unwrap();
        assert_eq!((layout.partition_key, layout.clustering), (vec![2], vec![1]));
        let tags = ValueColumn { value: 3, is_list: false, deleted: Some(4), deleted_elements: Some(5) };
        assert_eq!(layout.values, [tags]);
        // A column that is not in the table any more.
        assert_eq!(Layout::new(&columns, &base[..2]).unwrap().values.len(), 1);
        let renamed = [base[0].clone(), BaseColumn { name: "d".to_owned(), ..base[1].clone() }];
        assert_eq!(Layout::new(&columns, &renamed), None);
    }

    #[test]
    fn names_that_look_like_roles_of_others_are_told_by_their_types() {
        let columns = [
            column("tags", CqlType::set(CqlType::Text, true)),
            column("elements_tags", CqlType::Int),
            column("cdc$deleted_elements_tags", CqlType::Boolean),
        ];
        let base = [base("tags", ColumnKind::Other, -1), base("elements_tags", ColumnKind::Other, -1)];
        let layout = Layout::new(&columns, &base).unwrap();
        assert_eq!(layout.values[0].deleted_elements, None);
        assert_eq!(layout.values[1].deleted, Some(2));
    }
}
