//! The WHERE clause: which partitions and positions a statement is about, and what is left to filter.
//!
//! Invariants:
//! * Every relation ends up in exactly one of: the partition restriction, the clustering restrictions (a prefix of the
//!   clustering key: equalities, then at most one slice), the filters.
//! * What filters is said out loud: without ALLOW FILTERING a non-empty list of filters is refused.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::{self, Comparison};
use cql_lite::types::CqlType;

use super::names::{Scope, column_of, list_names};
use super::term::{Markers, Receiver, Term, resolve};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Column, Table};

/// What Cassandra says of a query that would have to filter.
pub const REQUIRES_ALLOW_FILTERING: &str = "Cannot execute this query as it might involve data filtering and thus may \
    have unpredictable performance. If you want to execute this query despite the performance unpredictability, use \
    ALLOW FILTERING";

/// The values that a column may have: one (`=`) or several (`IN`).
#[derive(Debug, Clone)]
pub enum Values {
    One(Term),
    Many(Vec<Term>),
    /// A term for the whole list (`IN ?`).
    List(Term),
}

/// A value for several columns: a term for each, or one term for the tuple.
#[derive(Debug, Clone)]
pub enum TupleTerm {
    Terms(Vec<Term>),
    Tuple(Term),
}

/// The values that several columns may have together.
#[derive(Debug, Clone)]
pub enum TupleValues {
    One(TupleTerm),
    Many(Vec<TupleTerm>),
    List(Term),
}

/// Which partitions.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one a prepared statement, and it is not moved around")]
pub enum PartitionRestriction {
    /// One set of values a partition key column: each combination is a partition.
    Keys(Vec<Values>),
    /// All partitions with a token between the bounds.
    Range(TokenRange),
}

#[derive(Debug, Clone)]
pub struct TokenBound {
    pub token: Term,
    pub inclusive: bool,
}

/// What holds of one or more clustering columns, from position `first` of the clustering key.
#[derive(Debug, Clone)]
pub enum ClusteringRestriction {
    Values { first: usize, values: Values },
    Tuples { first: usize, count: usize, values: TupleValues },
    Slice { first: usize, bounds: Vec<SliceBound> },
}

/// One end of a slice of clustering columns.
#[derive(Debug, Clone)]
pub struct SliceBound {
    /// How many columns it spans.
    pub count: usize,
    pub value: TupleTerm,
    pub is_lower: bool,
    pub inclusive: bool,
}

/// A condition that is checked on each row.
#[derive(Debug, Clone)]
pub struct Filter {
    pub subject: FilterSubject,
    pub test: FilterTest,
}

#[derive(Debug, Clone)]
pub enum FilterSubject {
    /// An index in [`Table::columns`].
    Column(usize),
    /// Several columns, compared as a tuple.
    Columns(Vec<usize>),
    /// The value at a key of a map column.
    Element { column: usize, key: Term },
}

#[derive(Debug, Clone)]
pub enum FilterTest {
    Compare(Comparison, Term),
    In(Values),
    CompareTuple(Comparison, TupleTerm),
    InTuples(TupleValues),
    Contains(Term),
    ContainsKey(Term),
}

impl FilterSubject {
    /// The columns that the filter reads.
    pub fn columns(&self) -> &[usize] {
        match self {
            Self::Column(column) | Self::Element { column, .. } => std::slice::from_ref(column),
            Self::Columns(columns) => columns,
        }
    }
}

/// Bounds of the tokens of partitions.
#[derive(Debug, Clone, Default)]
pub struct TokenRange {
    pub lower: Option<TokenBound>,
    pub upper: Option<TokenBound>,
}

/// A WHERE clause taken apart.
#[derive(Debug, Clone)]
pub struct Restrictions {
    pub partition: PartitionRestriction,
    /// What the tokens of the partitions that [`PartitionRestriction::Keys`] names must satisfy as well.
    pub key_tokens: Option<TokenRange>,
    pub clustering: Vec<ClusteringRestriction>,
    pub filters: Vec<Filter>,
    /// Columns (indexes in [`Table::columns`]) with an `=` relation.
    pub equal_columns: BTreeSet<usize>,
}

impl Restrictions {
    /// Whether the partition key is restricted to several values by IN.
    pub fn has_partition_in(&self) -> bool {
        matches!(&self.partition, PartitionRestriction::Keys(keys) if keys.iter().any(|v| !matches!(v, Values::One(_))))
    }
}

/// One relation with its names and terms resolved.
struct Resolved {
    subject: ResolvedSubject,
    test: FilterTest,
    is_slice: bool,
}

enum ResolvedSubject {
    Column(usize),
    Columns(Vec<usize>),
    Element { column: usize, key: Term },
    Token { lower: bool, upper: bool, inclusive: bool },
}

/// Resolves and sorts the relations of a WHERE clause. `allow_filtering`: also those that filter are wanted.
pub fn resolve_relations(
    relations: &[ast::Relation],
    scope: &Scope<'_>,
    table: &Table,
    markers: &mut Markers,
) -> Result<Restrictions> {
    let mut resolved = Vec::with_capacity(relations.len());
    for relation in relations {
        resolve_relation(relation, scope, table, markers, &mut resolved)?;
    }
    check_repetitions(&resolved, table)?;
    let equal_columns = resolved
        .iter()
        .filter_map(|relation| match (&relation.subject, &relation.test) {
            (ResolvedSubject::Column(column), FilterTest::Compare(Comparison::Equal, _)) => {
                Some(vec![*column])
            }
            (ResolvedSubject::Columns(columns), FilterTest::CompareTuple(Comparison::Equal, _)) => {
                Some(columns.clone())
            }
            _ => None,
        })
        .flatten()
        .collect();
    let PartitionPart { partition, key_tokens, rest } = partition_restriction(resolved, table)?;
    let (clustering, rest) = if matches!(partition, PartitionRestriction::Keys(_)) {
        clustering_restrictions(rest, table)
    } else {
        (Vec::new(), rest)
    };
    let filters = rest.into_iter().map(into_filter).collect::<Result<_>>()?;
    Ok(Restrictions { partition, key_tokens, clustering, filters, equal_columns })
}

fn resolve_relation(
    relation: &ast::Relation,
    scope: &Scope<'_>,
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
            column_of(table, column)?;
            return Err(RequestError::invalid(format!(
                "{column} LIKE {pattern} restriction is only supported on properly indexed columns"
            )));
        }
        ast::Relation::IsNotNull { .. } => {
            return Err(RequestError::invalid(format!("Unsupported restriction: {relation}")));
        }
        ast::Relation::CustomIndex { .. } => {
            return Err(RequestError::invalid("Custom index expressions are not supported by Helenus"));
        }
    }
    Ok(())
}

fn receiver_of(column: &Column) -> Receiver {
    Receiver::new(column.name.clone(), column.column_type.clone())
}

fn resolve_comparison(
    subject: &ast::Subject,
    operator: Comparison,
    value: &ast::Term,
    relation: &ast::Relation,
    scope: &Scope<'_>,
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
            let tuple = resolve_tuple(value, &columns, table, scope, markers)?;
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
            let (lower, upper, inclusive) = match operator {
                Comparison::Equal => (true, true, true),
                Comparison::Greater => (true, false, false),
                Comparison::GreaterOrEqual => (true, false, true),
                Comparison::Less => (false, true, false),
                Comparison::LessOrEqual => (false, true, true),
                Comparison::NotEqual => {
                    return Err(RequestError::invalid(format!("Unsupported \"!=\" relation: {relation}")));
                }
            };
            Ok(Resolved {
                subject: ResolvedSubject::Token { lower, upper, inclusive },
                test: FilterTest::Compare(operator, term),
                is_slice,
            })
        }
        ast::Subject::Element { column: name, key } => {
            let index = column_of(table, name)?;
            let column = &table.columns[index];
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
    scope: &Scope<'_>,
    table: &Table,
    markers: &mut Markers,
) -> Result<Resolved> {
    match subject {
        ast::Subject::Column(name) => {
            let index = column_of(table, name)?;
            let column = &table.columns[index];
            check_comparable(column, "IN")?;
            let test = match resolve_values(values, &receiver_of(column), scope, markers)? {
                // One value that may be is the value that must be.
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
                ast::InValues::Terms(terms) => {
                    let mut tuples = terms
                        .iter()
                        .map(|term| resolve_tuple(term, &columns, table, scope, markers))
                        .collect::<Result<Vec<_>>>()?;
                    if tuples.len() == 1 {
                        FilterTest::CompareTuple(Comparison::Equal, tuples.remove(0))
                    } else {
                        FilterTest::InTuples(TupleValues::Many(tuples))
                    }
                }
                ast::InValues::Marker(marker) => {
                    let tuple = tuple_receiver(&columns, table);
                    let receiver =
                        Receiver::new(format!("in({})", tuple.name), CqlType::list(tuple.value_type, true));
                    let list = resolve(&ast::Term::Marker(marker.clone()), &receiver, scope, markers)?;
                    FilterTest::InTuples(TupleValues::List(list))
                }
            };
            Ok(Resolved { subject: ResolvedSubject::Columns(columns), test, is_slice: false })
        }
        ast::Subject::Token(_) => {
            Err(RequestError::invalid(format!("IN cannot be used with the token function: {relation}")))
        }
        ast::Subject::Element { column, .. } => {
            Err(RequestError::invalid(format!("IN cannot be used on an element of {column}")))
        }
    }
}

/// The values of an IN list.
pub fn resolve_values(
    values: &ast::InValues,
    receiver: &Receiver,
    scope: &Scope<'_>,
    markers: &mut Markers,
) -> Result<Values> {
    Ok(match values {
        ast::InValues::Terms(terms) => {
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
            Values::List(resolve(&ast::Term::Marker(marker.clone()), &list, scope, markers)?)
        }
    })
}

fn tuple_receiver(columns: &[usize], table: &Table) -> Receiver {
    let names: Vec<&str> = columns.iter().map(|&index| table.columns[index].name.as_str()).collect();
    let types = columns.iter().map(|&index| table.columns[index].column_type.clone());
    Receiver::new(format!("({})", names.join(",")), CqlType::tuple(types))
}

fn resolve_tuple(
    value: &ast::Term,
    columns: &[usize],
    table: &Table,
    scope: &Scope<'_>,
    markers: &mut Markers,
) -> Result<TupleTerm> {
    match value {
        ast::Term::Tuple(items) => {
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
                if term.is_null() {
                    return Err(null_value(&receiver.name));
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

/// What is said of a null where a value is needed.
pub fn null_value(column: &str) -> RequestError {
    RequestError::invalid(format!("Invalid null value in condition for column {column}"))
}

/// What is said of an unset value where a value is needed.
pub fn unset_value(column: &str) -> RequestError {
    RequestError::invalid(format!("Invalid unset value for column {column}"))
}

fn check_repetitions(resolved: &[Resolved], table: &Table) -> Result<()> {
    let subject_columns = |relation: &Resolved| -> Vec<usize> {
        match &relation.subject {
            ResolvedSubject::Column(column) => vec![*column],
            ResolvedSubject::Columns(columns) => columns.clone(),
            ResolvedSubject::Element { .. } | ResolvedSubject::Token { .. } => Vec::new(),
        }
    };
    let name_of = |columns: &[usize]| list_names(columns.iter().map(|&index| &table.columns[index]));
    for (position, relation) in resolved.iter().enumerate() {
        let columns = subject_columns(relation);
        for other in &resolved[position + 1..] {
            let other_columns = subject_columns(other);
            let common: Vec<usize> =
                columns.iter().copied().filter(|column| other_columns.contains(column)).collect();
            if common.is_empty() {
                continue;
            }
            let contains =
                |r: &Resolved| matches!(r.test, FilterTest::Contains(_) | FilterTest::ContainsKey(_));
            if contains(relation) && contains(other) {
                continue;
            }
            let is_equal = |r: &Resolved| {
                matches!(
                    r.test,
                    FilterTest::Compare(Comparison::Equal, _)
                        | FilterTest::CompareTuple(Comparison::Equal, _)
                )
            };
            let is_in = |r: &Resolved| matches!(r.test, FilterTest::In(_) | FilterTest::InTuples(_));
            let shown = name_of(if columns.len() >= other_columns.len() { &columns } else { &other_columns });
            if is_equal(relation) || is_equal(other) {
                return Err(RequestError::invalid(format!(
                    "{shown} cannot be restricted by more than one relation if it includes an Equal"
                )));
            }
            if is_in(relation) || is_in(other) {
                return Err(RequestError::invalid(format!(
                    "{shown} cannot be restricted by more than one relation if it includes a IN"
                )));
            }
            if columns[0] != other_columns[0] {
                return Err(RequestError::invalid(format!(
                    "Column \"{}\" cannot be restricted by two inequalities not starting with the same column",
                    table.columns[common[0]].name
                )));
            }
            let side = |r: &Resolved| match &r.test {
                FilterTest::Compare(operator, _) | FilterTest::CompareTuple(operator, _) => {
                    Some(matches!(operator, Comparison::Greater | Comparison::GreaterOrEqual))
                }
                _ => None,
            };
            if let (Some(lower), Some(other_lower)) = (side(relation), side(other))
                && lower == other_lower
            {
                return Err(RequestError::invalid(format!(
                    "More than one restriction was found for the {} bound on {}",
                    if lower { "start" } else { "end" },
                    name_of(&common)
                )));
            }
        }
    }
    Ok(())
}

/// What the relations say of partitions, and the relations left over.
struct PartitionPart {
    partition: PartitionRestriction,
    key_tokens: Option<TokenRange>,
    rest: Vec<Resolved>,
}

fn partition_restriction(resolved: Vec<Resolved>, table: &Table) -> Result<PartitionPart> {
    let is_key = |relation: &Resolved| matches!(relation.subject, ResolvedSubject::Column(column) if table.columns[column].is_partition_key());
    let (tokens, rest): (Vec<_>, Vec<_>) =
        resolved.into_iter().partition(|relation| matches!(relation.subject, ResolvedSubject::Token { .. }));
    let has_tokens = !tokens.is_empty();
    let tokens = token_range(tokens, table)?;
    let complete = (0..table.partition_key_count).all(|column| {
        rest.iter().any(|relation| {
            matches!(relation.subject, ResolvedSubject::Column(index) if index == column)
                && matches!(relation.test, FilterTest::Compare(Comparison::Equal, _) | FilterTest::In(_))
        })
    });
    if !complete {
        return Ok(PartitionPart { partition: PartitionRestriction::Range(tokens), key_tokens: None, rest });
    }
    let (mut keys, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_key);
    keys.sort_by_key(|relation| match relation.subject {
        ResolvedSubject::Column(column) => column,
        _ => usize::MAX,
    });
    let values = keys.into_iter().filter_map(|relation| match relation.test {
        FilterTest::Compare(_, term) => Some(Values::One(term)),
        FilterTest::In(values) => Some(values),
        _ => None,
    });
    Ok(PartitionPart {
        partition: PartitionRestriction::Keys(values.collect()),
        key_tokens: has_tokens.then_some(tokens),
        rest,
    })
}

fn token_range(tokens: Vec<Resolved>, table: &Table) -> Result<TokenRange> {
    let (mut lower, mut upper) = (None, None);
    for relation in tokens {
        let (
            ResolvedSubject::Token { lower: is_lower, upper: is_upper, inclusive },
            FilterTest::Compare(_, term),
        ) = (relation.subject, relation.test)
        else {
            continue;
        };
        let repeated = |side: &str| {
            RequestError::invalid(format!(
                "More than one restriction was found for the {side} bound on {}",
                list_names(table.partition_key())
            ))
        };
        if is_lower && lower.replace(TokenBound { token: term.clone(), inclusive }).is_some() {
            return Err(repeated("start"));
        }
        if is_upper && upper.replace(TokenBound { token: term, inclusive }).is_some() {
            return Err(repeated("end"));
        }
    }
    Ok(TokenRange { lower, upper })
}

/// Takes the relations that form a prefix of the clustering key; the others are left to filter.
fn clustering_restrictions(
    mut rest: Vec<Resolved>,
    table: &Table,
) -> (Vec<ClusteringRestriction>, Vec<Resolved>) {
    let offset = table.partition_key_count;
    let mut restrictions = Vec::new();
    let mut next = 0;
    while next < table.clustering_key_count {
        let starts_here = |relation: &Resolved| match &relation.subject {
            ResolvedSubject::Column(column) => *column == offset + next,
            ResolvedSubject::Columns(columns) => columns[0] == offset + next,
            _ => false,
        };
        let is_contains = |relation: &Resolved| {
            matches!(relation.test, FilterTest::Contains(_) | FilterTest::ContainsKey(_))
        };
        let (here, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|relation| starts_here(relation) && !is_contains(relation));
        rest = others;
        let is_slice = here.iter().any(|relation| relation.is_slice);
        if is_slice {
            let bounds = here.into_iter().filter_map(slice_bound).collect();
            restrictions.push(ClusteringRestriction::Slice { first: next, bounds });
            break;
        }
        let Some(relation) = here.into_iter().next() else { break };
        match relation.test {
            FilterTest::Compare(_, term) => {
                restrictions.push(ClusteringRestriction::Values { first: next, values: Values::One(term) });
                next += 1;
            }
            FilterTest::In(values) => {
                restrictions.push(ClusteringRestriction::Values { first: next, values });
                next += 1;
            }
            FilterTest::CompareTuple(_, tuple) => {
                let count = subject_width(&relation.subject);
                restrictions.push(ClusteringRestriction::Tuples {
                    first: next,
                    count,
                    values: TupleValues::One(tuple),
                });
                next += count;
            }
            FilterTest::InTuples(values) => {
                let count = subject_width(&relation.subject);
                restrictions.push(ClusteringRestriction::Tuples { first: next, count, values });
                next += count;
            }
            FilterTest::Contains(_) | FilterTest::ContainsKey(_) => break,
        }
    }
    (restrictions, rest)
}

fn subject_width(subject: &ResolvedSubject) -> usize {
    match subject {
        ResolvedSubject::Columns(columns) => columns.len(),
        _ => 1,
    }
}

fn slice_bound(relation: Resolved) -> Option<SliceBound> {
    let count = subject_width(&relation.subject);
    let (operator, value) = match relation.test {
        FilterTest::Compare(operator, term) => (operator, TupleTerm::Terms(vec![term])),
        FilterTest::CompareTuple(operator, tuple) => (operator, tuple),
        _ => return None,
    };
    Some(SliceBound {
        count,
        value,
        is_lower: matches!(operator, Comparison::Greater | Comparison::GreaterOrEqual),
        inclusive: matches!(operator, Comparison::GreaterOrEqual | Comparison::LessOrEqual),
    })
}

fn into_filter(relation: Resolved) -> Result<Filter> {
    let subject = match relation.subject {
        ResolvedSubject::Column(column) => FilterSubject::Column(column),
        ResolvedSubject::Columns(columns) => FilterSubject::Columns(columns),
        ResolvedSubject::Element { column, key } => FilterSubject::Element { column, key },
        ResolvedSubject::Token { .. } => {
            return Err(RequestError::invalid("A token relation cannot be used as a filter"));
        }
    };
    Ok(Filter { subject, test: relation.test })
}

/// Refuses relations on clustering columns that do not lead on from each other, and CONTAINS on them: what is left would
/// have to filter, and these are the words for it.
pub fn check_clustering(restrictions: &Restrictions, table: &Table) -> Result<()> {
    let offset = table.partition_key_count;
    let name = |position: usize| table.clustering_key()[position].name.as_str();
    // First columns of the relations by position in the clustering key, and all the columns that are restricted.
    let (mut slices, mut starts, mut restricted) = (Vec::new(), Vec::new(), BTreeSet::new());
    for restriction in &restrictions.clustering {
        let (first, count) = match restriction {
            ClusteringRestriction::Values { first, .. } => (*first, 1),
            ClusteringRestriction::Tuples { first, count, .. } => (*first, *count),
            ClusteringRestriction::Slice { first, bounds } => {
                slices.push(*first);
                (*first, bounds.iter().map(|bound| bound.count).max().unwrap_or(1))
            }
        };
        starts.push(first);
        restricted.extend(first..first + count);
    }
    let mut has_contains = false;
    for filter in &restrictions.filters {
        let columns = filter.subject.columns();
        let Some(&first) = columns.first().filter(|&&index| table.columns[index].is_clustering()) else {
            continue;
        };
        if let FilterTest::Compare(operator, _) | FilterTest::CompareTuple(operator, _) = &filter.test
            && *operator != Comparison::Equal
        {
            slices.push(first - offset);
        }
        has_contains |= matches!(filter.test, FilterTest::Contains(_) | FilterTest::ContainsKey(_));
        starts.push(first - offset);
        restricted.extend(columns.iter().map(|index| index - offset));
    }
    starts.sort_unstable();
    if let Some(&slice) = slices.iter().min()
        && let Some(&later) = starts.iter().find(|start| **start > slice)
    {
        return Err(RequestError::invalid(format!(
            "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" is restricted by a non-EQ relation)",
            name(later),
            name(slice)
        )));
    }
    if has_contains {
        return Err(RequestError::invalid(
            "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering",
        ));
    }
    for (expected, &actual) in restricted.iter().enumerate() {
        if expected != actual {
            return Err(RequestError::invalid(format!(
                "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
                name(actual),
                name(expected)
            )));
        }
    }
    Ok(())
}
