//! The result of a SELECT for each row or group: its expressions resolved to columns, functions and aggregates.
//!
//! Invariants:
//! * A [`Selector`] names columns by their slot in [`Fetched`]: only needed columns are read from a row.
//! * Every result column has a type and the name that Cassandra gives it.

use std::sync::Arc;

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use super::names::{NameScope, column_of, display_name, result_name};
use super::term::{self, Expression, Markers, Receiver, Resolver, Row, Term, Typed};
use crate::error::{RequestError, Result};
use crate::functions::user::ResolvedAggregate;
use crate::functions::{self, AggregateFunction};
use crate::schema::catalog::Table;

/// The columns that a statement reads from a row, each with a slot.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// Slot to index in [`Table::columns`].
    pub columns: Vec<usize>,
    /// The slots for which timestamps and expiries are read as well.
    pub with_times: Vec<bool>,
}

impl Fetched {
    /// The slot of a column, which is created if needed.
    pub fn slot(&mut self, column: usize) -> usize {
        if let Some(slot) = self.slot_of(column) {
            return slot;
        }
        self.columns.push(column);
        self.with_times.push(false);
        self.columns.len() - 1
    }

    pub fn slot_of(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|&fetched| fetched == column)
    }
}

/// A resolved expression of the SELECT list or GROUP BY, evaluated on a row or a group.
pub type Selector = Expression<RowRead>;

/// A read of a selector from a row or a group.
#[derive(Debug, Clone)]
pub enum RowRead {
    /// A slot of [`Fetched`].
    Column(usize),
    WriteMetadata {
        kind: ast::WriteMetadata,
        slot: usize,
        part: CellPart,
    },
    /// An index in [`Selection::aggregates`].
    Aggregate(usize),
    Field {
        selector: Box<Selector>,
        index: usize,
    },
    Element {
        selector: Box<Selector>,
        /// The name of the collection, for messages.
        name: String,
        collection: CqlType,
        key: Term,
    },
    Slice {
        selector: Box<Selector>,
        name: String,
        collection: CqlType,
        from: Option<Term>,
        to: Option<Term>,
    },
}

/// The cells of a column that WRITETIME and TTL refer to.
#[derive(Debug, Clone)]
pub enum CellPart {
    /// The one cell of a simple column.
    Whole,
    /// Every cell of a collection: a list is returned.
    Each,
    /// The cell at a key of a set or map.
    Key { key: Term, name: String, collection: CqlType },
    /// The cell of a field of a user type.
    Field { field: u16, is_multi_cell: bool },
}

/// An aggregate and its arguments.
#[derive(Debug, Clone)]
pub struct Aggregate {
    pub function: AggregateFunction,
    pub arguments: Vec<Selector>,
}

/// A column of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultColumn {
    pub name: String,
    pub column_type: CqlType,
}

/// Everything between SELECT and FROM.
#[derive(Debug, Clone)]
pub struct Selection {
    pub selectors: Vec<Selector>,
    pub columns: Vec<ResultColumn>,
    pub aggregates: Vec<Aggregate>,
}

impl Selection {
    /// The slots to copy, if the selection has only columns.
    pub fn plain_slots(&self) -> Option<Vec<usize>> {
        self.selectors
            .iter()
            .map(|selector| match selector {
                Selector::Row(RowRead::Column(slot)) => Some(*slot),
                _ => None,
            })
            .collect()
    }
}

/// How the values of masked columns are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskedColumns {
    /// As they are: for who may see them.
    Clear,
    /// Through their masks.
    Masked,
}

/// Resolves the selected expressions of one statement.
pub struct SelectionResolver<'a> {
    resolver: Resolver<'a, SelectedRow<'a>>,
}

/// The row that selectors read: the columns requested so far.
struct SelectedRow<'a> {
    table: &'a Table,
    fetched: &'a mut Fetched,
    aggregates: Vec<Aggregate>,
    inside_aggregate: bool,
    masked: MaskedColumns,
}

impl SelectedRow<'_> {
    /// Reads a column.
    fn column(&mut self, index: usize) -> Result<Selector> {
        let read = Selector::Row(RowRead::Column(self.fetched.slot(index)));
        let column = &self.table.columns[index];
        match self.table.masks.get(&column.id) {
            Some(mask) if self.masked == MaskedColumns::Masked => {
                let (function, others) = mask.function(&column.name, &column.column_type)?;
                let others = others.into_iter().map(Selector::Constant);
                Ok(Selector::Function { function, arguments: std::iter::once(read).chain(others).collect() })
            }
            _ => Ok(read),
        }
    }
}

impl<'a> SelectionResolver<'a> {
    pub fn new(
        scope: NameScope<'a>,
        table: &'a Table,
        markers: &'a mut Markers,
        fetched: &'a mut Fetched,
        masked: MaskedColumns,
    ) -> Self {
        let row = SelectedRow { table, fetched, aggregates: Vec::new(), inside_aggregate: false, masked };
        Self { resolver: Resolver::new(scope, markers, row) }
    }

    /// Resolves the whole clause.
    pub fn resolve(mut self, clause: &ast::SelectClause) -> Result<Selection> {
        let (mut selectors, mut columns) = (Vec::new(), Vec::new());
        match clause {
            ast::SelectClause::All => {
                let row = &mut self.resolver.row;
                for (index, column) in row.table.columns.iter().enumerate() {
                    selectors.push(row.column(index)?);
                    columns.push(ResultColumn {
                        name: column.name.clone(),
                        column_type: column.column_type.clone(),
                    });
                }
            }
            ast::SelectClause::Items(items) => {
                for item in items {
                    let (selector, column_type) = self.selector(&item.expression)?;
                    let name = item
                        .alias
                        .as_ref()
                        .map_or_else(|| self.name_of(&item.expression), |alias| alias.as_str().to_owned());
                    selectors.push(selector);
                    columns.push(ResultColumn { name, column_type });
                }
            }
        }
        Ok(Selection { selectors, columns, aggregates: self.resolver.row.aggregates })
    }

    /// The name of a result column. A cast of a column to its own type has the column's name.
    fn name_of(&self, expression: &ast::Expression) -> String {
        let table = self.resolver.row.table;
        if let ast::Expression::Cast { operand, target } = expression
            && let ast::Expression::Column(name) = operand.as_ref()
            && let Ok(index) = column_of(table, name)
            && CqlType::native(target.name()).as_ref() == Some(&table.columns[index].column_type)
        {
            return display_name(operand);
        }
        result_name(expression, &self.resolver.scope)
    }

    /// Resolves one expression.
    pub fn selector(&mut self, expression: &ast::Expression) -> Result<Typed<RowRead>> {
        self.resolver.resolve_untyped(expression)
    }
}

impl Row for SelectedRow<'_> {
    type Read = RowRead;

    const IS_READ: bool = true;
    const MARKER_NAME: Option<&'static str> = Some("[selection]");

    fn read(resolver: &mut Resolver<'_, Self>, expression: &ast::Expression) -> Result<Typed<RowRead>> {
        let (read, value_type) = match expression {
            ast::Expression::Column(name) => {
                let row = &mut resolver.row;
                let index = column_of(row.table, name)?;
                return Ok((row.column(index)?, row.table.columns[index].column_type.clone()));
            }
            ast::Expression::CountRows => {
                resolver.row.refuse_nested_aggregate()?;
                return Ok(resolver.row.add_aggregate(functions::count_rows(), Vec::new()));
            }
            ast::Expression::WriteMetadata { kind, target } => write_metadata(resolver, *kind, target)?,
            ast::Expression::Field { operand, field } => {
                let (selector, operand_type) = resolver.resolve_untyped(operand)?;
                let (index, field_type) = field_of(&operand_type, &display_name(operand), field)?;
                (RowRead::Field { selector: Box::new(selector), index }, field_type)
            }
            ast::Expression::Element { operand, key } => {
                let (selector, collection) = resolver.resolve_untyped(operand)?;
                let (key_type, value_type) = element_types(&collection, operand, "Element")?;
                let name = display_name(operand);
                let receiver = element_receiver(&collection, &name, key_type);
                let key = term::resolve(key, &receiver, &resolver.scope, resolver.markers)?;
                (RowRead::Element { selector: Box::new(selector), name, collection, key }, value_type)
            }
            ast::Expression::Slice { operand, from, to } => {
                let (selector, collection) = resolver.resolve_untyped(operand)?;
                let (key_type, _) = element_types(&collection, operand, "Slice")?;
                let name = display_name(operand);
                let receiver = element_receiver(&collection, &name, key_type);
                let mut bound = |bound: &Option<Box<ast::Expression>>| {
                    bound
                        .as_ref()
                        .map(|bound| term::resolve(bound, &receiver, &resolver.scope, resolver.markers))
                        .transpose()
                };
                let (from, to) = (bound(from)?, bound(to)?);
                let result = collection.clone();
                (RowRead::Slice { selector: Box::new(selector), name, collection, from, to }, result)
            }
            other => return Err(Self::cannot_infer(other)),
        };
        Ok((Selector::Row(read), value_type))
    }

    fn aggregate(
        resolver: &mut Resolver<'_, Self>,
        name: &str,
        arguments: &[&ast::Expression],
    ) -> Result<Option<Typed<RowRead>>> {
        if !functions::is_aggregate(name) {
            return Ok(None);
        }
        resolver.row.refuse_nested_aggregate()?;
        resolver.row.inside_aggregate = true;
        let (mut selectors, mut types) = (Vec::new(), Vec::new());
        for argument in arguments {
            // `count(1)`: the constant only means that there is a row.
            if !matches!(argument, ast::Expression::Literal(_) | ast::Expression::Marker(_)) {
                let (selector, value_type) = resolver.resolve_untyped(argument)?;
                selectors.push(selector);
                types.push(value_type);
            }
        }
        resolver.row.inside_aggregate = false;
        let function =
            functions::resolve_aggregate(name, &types)?.ok_or_else(|| Self::unknown_function(name))?;
        Ok(Some(resolver.row.add_aggregate(function, selectors)))
    }

    fn aggregate_count(&self) -> usize {
        self.aggregates.len()
    }

    fn user_aggregate(
        resolver: &mut Resolver<'_, Self>,
        aggregate: &Arc<ResolvedAggregate>,
        arguments: Vec<Selector>,
        count_before: usize,
    ) -> Result<Typed<RowRead>> {
        let row = &mut resolver.row;
        row.refuse_nested_aggregate()?;
        if row.aggregates.len() > count_before {
            return nested_aggregate();
        }
        Ok(row.add_aggregate(AggregateFunction::User(aggregate.clone()), arguments))
    }

    fn cannot_infer(expression: &ast::Expression) -> RequestError {
        RequestError::invalid(format!(
            "Cannot infer type for term {expression} in selection clause (try using a cast to force a type)"
        ))
    }

    fn unknown_function(name: &str) -> RequestError {
        RequestError::invalid(format!("Unknown function '{name}'"))
    }
}

impl SelectedRow<'_> {
    fn refuse_nested_aggregate(&self) -> Result<()> {
        if self.inside_aggregate { nested_aggregate() } else { Ok(()) }
    }

    fn add_aggregate(&mut self, function: AggregateFunction, arguments: Vec<Selector>) -> Typed<RowRead> {
        let return_type = function.return_type().clone();
        self.aggregates.push(Aggregate { function, arguments });
        (Selector::Row(RowRead::Aggregate(self.aggregates.len() - 1)), return_type)
    }
}

fn nested_aggregate<T>() -> Result<T> {
    Err(RequestError::invalid("aggregate functions cannot be used as arguments of aggregate functions"))
}

/// The part of a column to which WRITETIME and TTL refer.
enum Part<'a> {
    Field(&'a ast::Identifier),
    Key(&'a ast::Expression),
}

/// WRITETIME, MAXWRITETIME and TTL.
fn write_metadata(
    resolver: &mut Resolver<'_, SelectedRow<'_>>,
    kind: ast::WriteMetadata,
    target: &ast::Expression,
) -> Result<(RowRead, CqlType)> {
    let table = resolver.row.table;
    let (operand, part) = match target {
        ast::Expression::Field { operand, field } => (&**operand, Some(Part::Field(field))),
        ast::Expression::Element { operand, key } => (&**operand, Some(Part::Key(key))),
        other => (other, None),
    };
    let ast::Expression::Column(name) = operand else {
        return Err(RequestError::invalid(format!(
            "Cannot use selection function {} on {target}",
            kind.name()
        )));
    };
    let index = column_of(table, name)?;
    let column = &table.columns[index];
    if column.is_primary_key() {
        return Err(RequestError::invalid(format!(
            "Cannot use selection function {} on PRIMARY KEY part {}",
            kind.name(),
            column.name
        )));
    }
    let value_type = if kind == ast::WriteMetadata::Ttl { CqlType::Int } else { CqlType::Bigint };
    let is_multi_cell = column.column_type.is_multi_cell();
    let (part, result) = match part {
        Some(Part::Key(key)) => {
            let collection = column.column_type.clone();
            let (key_type, _) = element_types(&collection, operand, "Element")?;
            let receiver = element_receiver(&collection, &column.name, key_type);
            let key = term::resolve(key, &receiver, &resolver.scope, resolver.markers)?;
            (CellPart::Key { key, name: column.name.clone(), collection }, value_type)
        }
        Some(Part::Field(field)) => {
            let field = field_of(&column.column_type, &column.name, field)?.0 as u16;
            (CellPart::Field { field, is_multi_cell }, value_type)
        }
        None if is_multi_cell && kind != ast::WriteMetadata::MaxWritetime => {
            (CellPart::Each, CqlType::list(value_type, true))
        }
        None => (CellPart::Whole, value_type),
    };
    let slot = resolver.row.fetched.slot(index);
    resolver.row.fetched.with_times[slot] = true;
    Ok((RowRead::WriteMetadata { kind, slot, part }, result))
}

/// The index and type of a field of an expression.
fn field_of(value_type: &CqlType, name: &str, field: &ast::Identifier) -> Result<(usize, CqlType)> {
    let CqlType::UserType { definition, .. } = value_type else {
        return Err(RequestError::invalid(format!(
            "Invalid field selection: {name} of type {value_type} is not a user type"
        )));
    };
    let index = definition
        .field_index(field.as_str())
        .ok_or_else(|| RequestError::invalid(format!("{name} of type {value_type} has no field {field}")))?;
    Ok((index, definition.field_types[index].clone()))
}

/// The receiver of a key of a collection.
fn element_receiver(collection: &CqlType, name: &str, key_type: CqlType) -> Receiver {
    let kind = if matches!(collection, CqlType::Map { .. }) { "key" } else { "value" };
    Receiver::new(format!("{kind}({name})"), key_type)
}

/// The types of a collection's keys and of the values at its keys.
fn element_types(collection: &CqlType, operand: &ast::Expression, kind: &str) -> Result<(CqlType, CqlType)> {
    match collection {
        CqlType::Map { key, value, .. } => Ok(((**key).clone(), (**value).clone())),
        CqlType::Set { element, .. } => Ok(((**element).clone(), (**element).clone())),
        CqlType::List { .. } => Err(RequestError::invalid(format!(
            "{kind} selection is only allowed on sets and maps, but {} is a list",
            display_name(operand)
        ))),
        _ => Err(RequestError::invalid(format!(
            "Invalid {} selection: {} {} type {collection} is not a collection",
            kind.to_lowercase(),
            display_name(operand),
            if kind == "Slice" { "of" } else { "is of" }
        ))),
    }
}
