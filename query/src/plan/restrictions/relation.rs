//! One relation of a WHERE clause: resolves its names and terms.
//!
//! Invariant: a resolved relation compares values of the types of its columns; no value is null.

use cql_lite::syntax::ast::{self, Comparison};
use cql_lite::types::CqlType;

use super::resolved::{Resolved, ResolvedSubject};
use super::{FilterTest, TupleTerm, TupleValues, Values, null_value};
use crate::error::{RequestError, Result};
use crate::plan::names::{NameScope, column_of, list_names};
use crate::plan::term::{Markers, Receiver, resolve};
use crate::schema::catalog::{Column, Table};

pub(super) fn resolve_relation(
    relation: &ast::Relation,
    scope: &NameScope<'_>,
    table: &Table,
    markers: &mut Markers,
    out: &mut Vec<Resolved>,
) -> Result<()> {
    match relation {
        ast::Relation::Compare { operator: Comparison::NotEqual, .. } => {
            return Err(RequestError::invalid(format!("Unsupported \"!=\" relation: {relation}")));
        }
        ast::Relation::Compare { subject, operator, value } => {
            out.push(resolve_comparison(subject, *operator, value, relation, scope, table, markers)?);
        }
        ast::Relation::Between { subject, from, to } => {
            for (operator, value) in [(Comparison::GreaterOrEqual, from), (Comparison::LessOrEqual, to)] {
                out.push(resolve_comparison(subject, operator, value, relation, scope, table, markers)?);
            }
        }
        ast::Relation::In { negated: true, .. } => {
            return Err(RequestError::invalid(format!("Unsupported NOT IN relation: {relation}")));
        }
        ast::Relation::In { subject, values, .. } => {
            out.push(resolve_in(subject, values, relation, scope, table, markers)?);
        }
        ast::Relation::Contains { negated: true, .. } => {
            return Err(RequestError::invalid(format!("Unsupported NOT CONTAINS relation: {relation}")));
        }
        ast::Relation::Contains { column, key, value, .. } => {
            let index = column_of(table, column)?;
            let receiver = &table.columns[index];
            let part = match (&receiver.column_type, key) {
                (CqlType::Map { key, .. }, true) => receiver_of(receiver).part("key", (**key).clone()),
                (_, true) => {
                    return Err(RequestError::invalid(format!(
                        "Cannot use CONTAINS KEY on non-map column {}",
                        receiver.name
                    )));
                }
                (
                    CqlType::List { element: value, .. }
                    | CqlType::Set { element: value, .. }
                    | CqlType::Map { value, .. },
                    false,
                ) => receiver_of(receiver).part("value", (**value).clone()),
                (_, false) => {
                    return Err(RequestError::invalid(format!(
                        "Cannot use CONTAINS on non-collection column {}",
                        receiver.name
                    )));
                }
            };
            let term = resolve(value, &part, scope, markers)?;
            let test = if *key { FilterTest::ContainsKey(term) } else { FilterTest::Contains(term) };
            out.push(Resolved { subject: ResolvedSubject::Column(index), test, is_slice: false });
        }
        ast::Relation::Like { column, pattern } => {
            let index = column_of(table, column)?;
            let column = &table.columns[index];
            check_comparable(column, "LIKE")?;
            let pattern = resolve(pattern, &receiver_of(column), scope, markers)?;
            let indexes = table.indexes.iter().filter(|index| index.column_id == column.id);
            let parts = indexes.filter(|index| index.decides_like(&column.column_type));
            let Some(finds_parts) = parts.map(|index| index.finds_parts_of_texts()).max() else {
                return Err(not_like(relation));
            };
            let test = FilterTest::Like { pattern, finds_parts };
            out.push(Resolved { subject: ResolvedSubject::Column(index), test, is_slice: false });
        }
        ast::Relation::IsNotNull { .. } => {
            return Err(RequestError::invalid(format!("Unsupported restriction: {relation}")));
        }
        ast::Relation::CustomIndex { .. } => {
            return Err(RequestError::invalid("Custom index expressions are not supported by Helenus"));
        }
        ast::Relation::Qualified { table, .. } => {
            let table = table.as_str();
            return Err(RequestError::invalid(format!("{table} is no name of a table in this statement")));
        }
    }
    Ok(())
}

/// The error for LIKE where no index decides it.
pub fn not_like(relation: &ast::Relation) -> RequestError {
    RequestError::invalid(format!(
        "LIKE restriction is only supported on properly indexed columns. {relation} is not valid."
    ))
}

fn receiver_of(column: &Column) -> Receiver {
    Receiver::new(column.name.clone(), column.column_type.clone())
}

fn resolve_comparison(
    subject: &ast::Subject,
    operator: Comparison,
    value: &ast::Expression,
    relation: &ast::Relation,
    scope: &NameScope<'_>,
    table: &Table,
    markers: &mut Markers,
) -> Result<Resolved> {
    let is_slice = operator != Comparison::Equal;
    match subject {
        ast::Subject::Column(name) => {
            let index = column_of(table, name)?;
            let column = &table.columns[index];
            if is_slice && column.column_type.any(&|part| *part == CqlType::Duration) {
                return Err(RequestError::invalid(match column.column_type {
                    CqlType::Duration => {
                        "Slice restrictions are not supported on duration columns".to_owned()
                    }
                    CqlType::Tuple(_) => {
                        "Slice restrictions are not supported on tuples containing durations".to_owned()
                    }
                    CqlType::UserType { .. } => {
                        "Slice restrictions are not supported on UDTs containing durations".to_owned()
                    }
                    _ => {
                        "Slice restrictions are not supported on collections containing durations".to_owned()
                    }
                }));
            }
            check_comparable(column, operator.symbol())?;
            let term = resolve(value, &receiver_of(column), scope, markers)?;
            if is_slice && column.is_partition_key() && term.is_null() {
                return Err(null_value(&column.name));
            }
            Ok(Resolved {
                subject: ResolvedSubject::Column(index),
                test: FilterTest::Compare(operator, term),
                is_slice,
            })
        }
        ast::Subject::Columns(names) => {
            let columns = clustering_columns(names, table, relation)?;
            let tuple = resolve_tuple(value, &columns, is_slice, table, scope, markers)?;
            Ok(Resolved {
                subject: ResolvedSubject::Columns(columns),
                test: FilterTest::CompareTuple(operator, tuple),
                is_slice,
            })
        }
        ast::Subject::Token(names) => {
            check_token_columns(names, table)?;
            let term =
                resolve(value, &Receiver::new("partition key token", CqlType::Bigint), scope, markers)?;
            let subject = ResolvedSubject::Token {
                lower: !matches!(operator, Comparison::Less | Comparison::LessOrEqual),
                upper: !matches!(operator, Comparison::Greater | Comparison::GreaterOrEqual),
                inclusive: !matches!(operator, Comparison::Less | Comparison::Greater),
            };
            Ok(Resolved { subject, test: FilterTest::Compare(operator, term), is_slice })
        }
        ast::Subject::Element { column: name, key } => {
            let index = column_of(table, name)?;
            let column = &table.columns[index];
            if matches!(column.column_type, CqlType::List { .. }) {
                return Err(RequestError::invalid(format!(
                    "Indexes on list entries ({}[index] = value) are not currently supported.",
                    column.name
                )));
            }
            let CqlType::Map { key: key_type, value: value_type, frozen } = &column.column_type else {
                return Err(RequestError::invalid(format!("Column {} cannot be used as a map", column.name)));
            };
            if *frozen {
                return Err(RequestError::invalid(format!(
                    "Map-entry equality predicates on frozen map column {} are not supported",
                    column.name
                )));
            }
            if is_slice {
                return Err(RequestError::invalid("Only EQ relations are supported on map entries"));
            }
            let receiver = receiver_of(column);
            let key = resolve(key, &receiver.part("key", (**key_type).clone()), scope, markers)?;
            let term = resolve(value, &receiver.part("value", (**value_type).clone()), scope, markers)?;
            Ok(Resolved {
                subject: ResolvedSubject::Element { column: index, key },
                test: FilterTest::Compare(operator, term),
                is_slice,
            })
        }
    }
}

fn resolve_in(
    subject: &ast::Subject,
    values: &ast::InValues,
    relation: &ast::Relation,
    scope: &NameScope<'_>,
    table: &Table,
    markers: &mut Markers,
) -> Result<Resolved> {
    match subject {
        ast::Subject::Column(name) => {
            let index = column_of(table, name)?;
            let column = &table.columns[index];
            check_comparable(column, "IN")?;
            let test = match resolve_values(values, &receiver_of(column), scope, markers)? {
                // A list with one value is an equality.
                Values::Many(mut terms) if terms.len() == 1 => {
                    FilterTest::Compare(Comparison::Equal, terms.remove(0))
                }
                values => FilterTest::In(values),
            };
            Ok(Resolved { subject: ResolvedSubject::Column(index), test, is_slice: false })
        }
        ast::Subject::Columns(names) => {
            let columns = clustering_columns(names, table, relation)?;
            let test = match values {
                ast::InValues::Values(terms) => {
                    let mut tuples = terms
                        .iter()
                        .map(|term| resolve_tuple(term, &columns, false, table, scope, markers))
                        .collect::<Result<Vec<_>>>()?;
                    if tuples.len() == 1 {
                        FilterTest::CompareTuple(Comparison::Equal, tuples.remove(0))
                    } else {
                        FilterTest::InTuples(TupleValues::Many(tuples))
                    }
                }
                ast::InValues::Marker(marker) => {
                    let tuple = tuple_receiver(&columns, table);
                    let name = format!("in{}", tuple.name);
                    let receiver = Receiver::new(name, CqlType::list(tuple.value_type, true));
                    let list = resolve(&ast::Expression::Marker(marker.clone()), &receiver, scope, markers)?;
                    FilterTest::InTuples(TupleValues::List(list))
                }
            };
            Ok(Resolved { subject: ResolvedSubject::Columns(columns), test, is_slice: false })
        }
        ast::Subject::Token(_) | ast::Subject::Element { .. } => {
            Err(RequestError::invalid(format!("Unsupported IN relation: {relation}")))
        }
    }
}

/// The values of an IN list.
pub fn resolve_values(
    values: &ast::InValues,
    receiver: &Receiver,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Values> {
    Ok(match values {
        ast::InValues::Values(terms) => {
            let receiver = Receiver::new(receiver.name.clone(), receiver.value_type.clone());
            Values::Many(
                terms.iter().map(|term| resolve(term, &receiver, scope, markers)).collect::<Result<_>>()?,
            )
        }
        ast::InValues::Marker(marker) => {
            let list = Receiver::new(
                format!("in({})", receiver.name),
                CqlType::list(receiver.value_type.clone(), true),
            );
            Values::List(resolve(&ast::Expression::Marker(marker.clone()), &list, scope, markers)?)
        }
    })
}

fn tuple_receiver(columns: &[usize], table: &Table) -> Receiver {
    let names: Vec<&str> = columns.iter().map(|&index| table.columns[index].name.as_str()).collect();
    let types = columns.iter().map(|&index| table.columns[index].column_type.clone());
    Receiver::new(format!("({})", names.join(",")), CqlType::tuple(types))
}

fn resolve_tuple(
    value: &ast::Expression,
    columns: &[usize],
    is_slice: bool,
    table: &Table,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<TupleTerm> {
    match value {
        ast::Expression::Tuple(items) => {
            if items.len() != columns.len() {
                return Err(RequestError::invalid(format!(
                    "Expected {} elements in value tuple, but got {}: {value}",
                    columns.len(),
                    items.len()
                )));
            }
            let terms = columns.iter().zip(items).map(|(&index, item)| {
                let receiver = receiver_of(&table.columns[index]);
                let term = resolve(item, &receiver, scope, markers)?;
                if term.is_null() && is_slice {
                    return Err(null_value(&receiver.name));
                }
                if term.is_null() {
                    return Err(RequestError::invalid(format!(
                        "Invalid null value for column {}",
                        receiver.name
                    )));
                }
                Ok(term)
            });
            Ok(TupleTerm::Terms(terms.collect::<Result<_>>()?))
        }
        marker => Ok(TupleTerm::Tuple(resolve(marker, &tuple_receiver(columns, table), scope, markers)?)),
    }
}

fn clustering_columns(
    names: &[ast::Identifier],
    table: &Table,
    relation: &ast::Relation,
) -> Result<Vec<usize>> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let index = column_of(table, name)?;
        let column = &table.columns[index];
        if !column.is_clustering() {
            return Err(RequestError::invalid(format!(
                "Multi-column relations can only be applied to clustering columns but was applied to: {}",
                column.name
            )));
        }
        if columns.contains(&index) {
            return Err(RequestError::invalid(format!(
                "Column \"{}\" appeared twice in a relation: {relation}",
                column.name
            )));
        }
        if columns.last().is_some_and(|&previous| index != previous + 1) {
            return Err(RequestError::invalid(format!(
                "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: {relation}"
            )));
        }
        columns.push(index);
    }
    Ok(columns)
}

fn check_token_columns(names: &[ast::Identifier], table: &Table) -> Result<()> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        columns.push(column_of(table, name)?);
    }
    let expected: Vec<usize> = (0..table.partition_key_count).collect();
    if columns == expected {
        return Ok(());
    }
    let mut sorted = columns.clone();
    sorted.sort_unstable();
    if sorted == expected {
        return Err(RequestError::invalid(format!(
            "The token function arguments must be in the partition key order: {}",
            list_names(table.partition_key())
        )));
    }
    Err(RequestError::invalid(
        "The token() function must be applied to all partition key components or none of them",
    ))
}

fn check_comparable(column: &Column, operator: &str) -> Result<()> {
    if !column.column_type.is_multi_cell() {
        return Ok(());
    }
    Err(RequestError::invalid(if column.column_type.is_user_type() {
        format!(
            "Non-frozen UDT column '{}' ({}) cannot be restricted by any relation",
            column.name, column.column_type
        )
    } else {
        format!(
            "Collection column '{}' ({}) cannot be restricted by a '{operator}' relation",
            column.name, column.column_type
        )
    }))
}
