//! References of a transaction to values of its rows with names.
//!
//! Invariant: each use of a reference has a bind value of its own, behind those of the client's markers. So a plan evaluates it as any
//! marker, once the rows are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use super::{Markers, Receiver, Term, resolve};
use crate::error::{RequestError, Result};
use crate::plan::names::NameScope;
use crate::schema::catalog::Table;

/// A value of a row with a name.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The index of the row among those with names.
    pub row: usize,
    /// Index in [`Table::columns`].
    pub column: usize,
    pub part: ReferencePart,
    pub value_type: CqlType,
    /// The name of the value as a column of a result.
    pub name: String,
}

/// The part of the column's value that is meant.
#[derive(Debug, Clone)]
pub enum ReferencePart {
    Whole,
    /// The value at a key of a map or an index of a list, or an element of a set.
    Element(Term),
    Field(usize),
}

/// A row with a name, as others may refer to it.
#[derive(Debug, Clone)]
pub struct NamedColumns {
    pub name: String,
    pub table: Arc<Table>,
    /// The columns that are selected of it.
    pub columns: BTreeSet<usize>,
}

/// The references of a transaction, and what they may refer to.
#[derive(Debug, Clone)]
pub struct References {
    rows: Vec<NamedColumns>,
    /// The number of the client's markers.
    marker_count: usize,
    used: Vec<Reference>,
}

impl References {
    pub fn new(marker_count: usize) -> Self {
        Self { rows: Vec::new(), marker_count, used: Vec::new() }
    }

    /// Adds a row, to which what follows may refer.
    pub fn add_row(&mut self, row: NamedColumns) -> Result<()> {
        if self.rows.iter().any(|known| known.name == row.name) {
            return Err(RequestError::invalid(format!(
                "The name '{}' has already been used by a LET assignment.",
                row.name
            )));
        }
        self.rows.push(row);
        Ok(())
    }

    /// The index of the row with this name.
    pub fn row(&self, name: &ast::Identifier) -> Result<usize> {
        self.rows.iter().position(|row| row.name == name.as_str()).ok_or_else(|| {
            RequestError::invalid(format!("Cannot resolve reference to tuple '{}'.", name.as_str()))
        })
    }

    /// All references, in the order of their bind values.
    pub fn into_used(self) -> Vec<Reference> {
        self.used
    }
}

/// Resolves a reference to a value: the index of its bind value among all of them, and its type.
pub fn resolve_reference(
    reference: &ast::RowReference,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<(usize, CqlType)> {
    let name = &reference.row;
    let Some(references) = markers.references.as_ref() else {
        return Err(RequestError::invalid(format!("Cannot resolve reference to tuple '{}'.", name.as_str())));
    };
    let row = references.row(name)?;
    let NamedColumns { table, columns, .. } = &references.rows[row];
    let Some(column_name) = &reference.column else {
        return Err(RequestError::invalid(format!(
            "Row reference ({name}) can only be used with IS NULL/IS NOT NULL conditions"
        )));
    };
    let index = table.column_index(column_name.as_str()).filter(|index| columns.contains(index));
    let index = index.ok_or_else(|| {
        RequestError::invalid(format!(
            "Column '{}' does not exist in tuple '{}'.",
            column_name.as_str(),
            name.as_str()
        ))
    })?;
    let column = &table.columns[index];
    let receiver = Receiver::new(column.name.clone(), column.column_type.clone());
    let (part, value_type) = match &reference.part {
        None => (ReferencePart::Whole, column.column_type.clone()),
        Some(ast::ReferencePart::Element(key)) => {
            let (key_receiver, value_type) = match &receiver.value_type {
                CqlType::List { element, .. } => (receiver.part("idx", CqlType::Int), (**element).clone()),
                CqlType::Set { element, .. } => {
                    (receiver.part("value", (**element).clone()), (**element).clone())
                }
                CqlType::Map { key, value, .. } => (receiver.part("key", (**key).clone()), (**value).clone()),
                _ => {
                    return Err(RequestError::invalid(format!(
                        "Invalid element access syntax for non-collection column {}",
                        receiver.name
                    )));
                }
            };
            // A key is evaluated before references have values.
            let references = markers.references.take();
            let key = resolve(key, &key_receiver, scope, markers);
            markers.references = references;
            (ReferencePart::Element(key?), value_type)
        }
        Some(ast::ReferencePart::Field(field)) => {
            let CqlType::UserType { definition, .. } = &receiver.value_type else {
                return Err(RequestError::invalid(format!(
                    "Cannot use field access on non-UDT column {}",
                    receiver.name
                )));
            };
            let field_index = definition.field_index(field.as_str()).ok_or_else(|| {
                RequestError::invalid(format!(
                    "Unknown field {} for column {}",
                    field.as_str(),
                    receiver.name
                ))
            })?;
            (ReferencePart::Field(field_index), definition.field_types[field_index].clone())
        }
    };
    let name = reference.result_name();
    let resolved = Reference { row, column: index, part, value_type: value_type.clone(), name };
    markers.add_reference(resolved).map(|index| (index, value_type))
}

impl Markers {
    /// Those of a transaction.
    pub fn of_transaction(references: References) -> Self {
        Self { references: Some(references), ..Self::default() }
    }

    /// Whether they are those of a transaction.
    pub fn are_of_transaction(&self) -> bool {
        self.references.is_some()
    }

    /// The number of references so far.
    pub fn reference_count(&self) -> usize {
        self.references.as_ref().map_or(0, |references| references.used.len())
    }

    pub fn references_mut(&mut self) -> Option<&mut References> {
        self.references.as_mut()
    }

    pub fn take_references(&mut self) -> Option<References> {
        self.references.take()
    }

    fn add_reference(&mut self, reference: Reference) -> Result<usize> {
        let none = || RequestError::Server("a reference is resolved outside of a transaction".to_owned());
        let references = self.references.as_mut().ok_or_else(none)?;
        references.used.push(reference);
        Ok(references.marker_count + references.used.len() - 1)
    }
}
