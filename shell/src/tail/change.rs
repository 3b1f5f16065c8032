//! Entries of a feed into changes as they are shown: the images of a row go with its change, the two ends of a range are one.

use cql_lite::types::{CqlType, Value, cql_type::quote_identifier, literal, timeuuid};
use uuid::Uuid;

use super::entry::{Entry, ValueColumn};
use crate::connection::Cell;

/// What `cdc$operation` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    PreImage,
    Update,
    Insert,
    DeleteRow,
    DeletePartition,
    DeleteRange,
    PostImage,
    /// A number without a meaning here.
    Unknown(i8),
}

impl Operation {
    /// The name that is shown.
    pub fn name(self) -> String {
        match self {
            Self::PreImage => "PREIMAGE".to_owned(),
            Self::Update => "UPDATE".to_owned(),
            Self::Insert => "INSERT".to_owned(),
            Self::DeleteRow => "DELETE ROW".to_owned(),
            Self::DeletePartition => "DELETE PARTITION".to_owned(),
            Self::DeleteRange => "DELETE RANGE".to_owned(),
            Self::PostImage => "POSTIMAGE".to_owned(),
            Self::Unknown(number) => format!("OPERATION {number}"),
        }
    }

    fn of(number: i8) -> Self {
        match number {
            0 => Self::PreImage,
            1 => Self::Update,
            2 => Self::Insert,
            3 => Self::DeleteRow,
            4 => Self::DeletePartition,
            5..=8 => Self::DeleteRange,
            9 => Self::PostImage,
            other => Self::Unknown(other),
        }
    }
}

/// A value with its column.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    pub name: String,
    pub cql_type: CqlType,
    pub bytes: Vec<u8>,
}

impl Field {
    /// The value as CQL.
    pub fn literal(&self) -> String {
        literal::format(&self.cql_type, &self.bytes)
    }
}

/// A change of one column.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// The whole value is this now.
    Set(Field),
    /// There is no value now.
    Deleted(String),
    /// These elements or fields are in it now.
    Added(Field),
    /// These elements, keys or fields are not in it now.
    Removed(Field),
}

/// An end of a range of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// The clustering columns that bound it; none: the range is open at this end.
    pub fields: Vec<Field>,
    pub is_inclusive: bool,
    /// The last of these columns has its largest values first: the range begins with the largest.
    pub is_descending: bool,
}

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub time: Uuid,
    pub operation: Operation,
    /// The primary key as far as the change has one.
    pub key: Vec<Field>,
    /// The ends of a range, in the order of the table's rows.
    pub from: Option<Bound>,
    pub to: Option<Bound>,
    pub edits: Vec<Edit>,
    pub ttl_seconds: Option<i64>,
    /// The row of before and after, if the feed has images.
    pub before: Option<Vec<Field>>,
    pub after: Option<Vec<Field>>,
}

impl Change {
    /// When it was, in microseconds since the epoch.
    pub fn unix_micros(&self) -> i64 {
        timeuuid::unix_micros(&self.time)
    }
}

/// The changes of entries that are in order.
pub fn changes(entries: &[Entry]) -> Vec<Change> {
    entries.chunk_by(Entry::is_in_group_of).flat_map(of_group).collect()
}

/// The changes that one statement or batch has made in one stream.
fn of_group(entries: &[Entry]) -> Vec<Change> {
    let mut changes: Vec<(&Entry, Change)> = Vec::new();
    // Images of before that wait for the change of their row.
    let mut images: Vec<&Entry> = Vec::new();
    for entry in entries {
        match Operation::of(entry.operation) {
            Operation::PreImage => images.push(entry),
            Operation::PostImage => {
                let shown = changes.iter_mut().rfind(|(changed, change)| {
                    change.after.is_none() && change.from.is_none() && changed.is_of_row_of(entry)
                });
                match shown {
                    Some((_, change)) => change.after = Some(image(entry)),
                    None => changes.push((entry, change(entry, Operation::PostImage))),
                }
            }
            Operation::DeleteRange => take_bound(entry, &mut changes),
            operation => {
                let mut change = change(entry, operation);
                if let Some(waiting) = images.iter().position(|image| image.is_of_row_of(entry)) {
                    change.before = Some(image(images.remove(waiting)));
                }
                changes.push((entry, change));
            }
        }
    }
    let alone = images.into_iter().map(|entry| change(entry, Operation::PreImage));
    alone.chain(changes.into_iter().map(|(_, change)| change)).collect()
}

/// Begins a range, or ends the one that is open.
fn take_bound<'a>(entry: &'a Entry, changes: &mut Vec<(&'a Entry, Change)>) {
    let (is_start, is_inclusive) = (entry.operation <= 6, matches!(entry.operation, 5 | 7));
    let layout = &entry.layout;
    let last = layout.clustering.iter().rfind(|column| entry.cells[**column].is_some());
    let is_descending = last.is_some_and(|column| layout.descending.contains(column));
    let bound = Bound { fields: fields(entry, &layout.clustering), is_inclusive, is_descending };
    if !is_start
        && let Some((_, open)) = changes.last_mut()
        && open.operation == Operation::DeleteRange
        && open.to.is_none()
    {
        open.to = Some(bound);
        return;
    }
    let mut change = change(entry, Operation::DeleteRange);
    change.key = fields(entry, &entry.layout.partition_key);
    *(if is_start { &mut change.from } else { &mut change.to }) = Some(bound);
    changes.push((entry, change));
}

fn change(entry: &Entry, operation: Operation) -> Change {
    let mut key = fields(entry, &entry.layout.partition_key);
    key.append(&mut fields(entry, &entry.layout.clustering));
    let (mut edits, mut before, mut after) = (Vec::new(), None, None);
    match operation {
        Operation::PreImage => before = Some(image(entry)),
        Operation::PostImage => after = Some(image(entry)),
        _ => edits = entry.layout.values.iter().flat_map(|column| column_edits(entry, column)).collect(),
    }
    let ttl_seconds = entry.ttl_seconds.filter(|ttl_seconds| *ttl_seconds > 0);
    Change { time: entry.time, operation, key, from: None, to: None, edits, ttl_seconds, before, after }
}

/// The values of an image.
fn image(entry: &Entry) -> Vec<Field> {
    entry.layout.values.iter().filter_map(|column| value(entry, column)).collect()
}

/// The columns among these that have values.
fn fields(entry: &Entry, columns: &[usize]) -> Vec<Field> {
    columns.iter().filter_map(|column| field(entry, *column)).collect()
}

fn field(entry: &Entry, index: usize) -> Option<Field> {
    let bytes = entry.cells.get(index)?.clone()?;
    let column = &entry.layout.columns[index];
    Some(Field { name: column.name.clone(), cql_type: column.cql_type.clone(), bytes })
}

/// The value of a column; of a list its elements without their times.
fn value(entry: &Entry, column: &ValueColumn) -> Option<Field> {
    let field = field(entry, column.value)?;
    if !column.is_list {
        return Some(field);
    }
    let CqlType::Map { value: element, .. } = &field.cql_type else { return Some(field) };
    let Ok(Value::Map(elements)) = Value::decode(&field.cql_type, &field.bytes) else { return Some(field) };
    let cql_type = CqlType::list((**element).clone(), true);
    let list = Value::List(elements.into_iter().map(|(_, element)| element).collect());
    Some(Field { bytes: list.encode(&cql_type), cql_type, ..field })
}

fn column_edits(entry: &Entry, column: &ValueColumn) -> Vec<Edit> {
    let is_deleted = column.deleted.is_some_and(|deleted| is_true(&entry.cells[deleted]));
    let mut edits = Vec::new();
    match value(entry, column) {
        // Part of the value stays where the column has elements and was not deleted as a whole.
        Some(value) if column.deleted_elements.is_some() && !is_deleted => edits.push(Edit::Added(value)),
        Some(value) => edits.push(Edit::Set(value)),
        None if is_deleted => edits.push(Edit::Deleted(entry.layout.columns[column.value].name.clone())),
        None => {}
    }
    edits.extend(column.deleted_elements.and_then(|elements| removed(entry, column, elements)));
    edits
}

/// The elements that are deleted; of a user type the names of the fields.
fn removed(entry: &Entry, column: &ValueColumn, elements: usize) -> Option<Edit> {
    let field = field(entry, elements)?;
    let column = &entry.layout.columns[column.value];
    let name = column.name.clone();
    let CqlType::UserType { definition, .. } = &column.cql_type else {
        return Some(Edit::Removed(Field { name, ..field }));
    };
    let Ok(Value::Set(indexes)) = Value::decode(&field.cql_type, &field.bytes) else {
        return Some(Edit::Removed(Field { name, ..field }));
    };
    let names = indexes.into_iter().map(|index| match index {
        Value::Smallint(index) => usize::try_from(index)
            .ok()
            .and_then(|index| definition.field_names.get(index))
            .map_or_else(|| index.to_string(), |name| quote_identifier(name).into_owned()),
        other => format!("{other:?}"),
    });
    let cql_type = CqlType::set(CqlType::Text, true);
    let names = Value::Set(names.map(Value::Text).collect());
    Some(Edit::Removed(Field { name, bytes: names.encode(&cql_type), cql_type }))
}

fn is_true(cell: &Cell) -> bool {
    cell.as_ref().is_some_and(|bytes| bytes.first().is_some_and(|byte| *byte != 0))
}

#[cfg(test)]
mod tests;
