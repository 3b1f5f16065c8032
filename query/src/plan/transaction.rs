//! The plan of a transaction (`BEGIN TRANSACTION`).
//!
//! Invariants: a transaction is about one table; its rows with names are single rows, found by their primary key; its modifications name
//! their partitions and rows without looking at what is read, so that all that must be read is known before.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast::{self, Comparison};
use cql_lite::types::CqlType;

use super::condition::is_equality;
use super::modification::plan_modification;
use super::modify::{ModifyKind, ModifyPlan};
use super::names::{NameScope, column_of, table_of};
use super::restrictions::{ClusteringRestriction, PartitionRestriction, TupleValues, Values};
use super::select::{SelectPlan, plan_select};
use super::selection::{MaskedColumns, ResultColumn};
use super::term::{
    Bindings, Bound, Markers, NamedColumns, Receiver, Reference, References, Term, resolve, resolve_reference,
};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Catalog, Table, TableKind};

/// Most LETs and modifications of a transaction: all of them take one turn of a shard.
const PARTS_MAX: usize = 256;

/// A planned transaction.
#[derive(Debug)]
pub struct TransactionPlan {
    pub table: Arc<Table>,
    /// The client's name for this execution: a uuid. `None`: it is executed as often as it is asked for.
    pub token: Option<Term>,
    /// The rows with names.
    pub rows: Vec<RowPlan>,
    pub returning: Option<ReturningPlan>,
    /// All must hold for the modifications to be made.
    pub conditions: Vec<TransactionCondition>,
    pub modifications: Vec<ModifyPlan>,
    /// Which of the modifications have values that are computed of references.
    pub are_referring: Vec<bool>,
    /// The references to values of rows, whose values are bound behind those of the client's markers.
    pub references: Vec<Reference>,
    /// The number of the client's markers.
    pub marker_count: usize,
}

/// A row with a name.
#[derive(Debug)]
pub struct RowPlan {
    pub select: SelectPlan,
    /// It and its place, for messages: `LET assignment row at [1:20]`.
    description: String,
}

/// What a transaction returns: what was there before its modifications.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for a transaction")]
pub enum ReturningPlan {
    Select(SelectPlan),
    /// The values of references: indexes in [`TransactionPlan::references`].
    References(Vec<usize>),
}

/// A condition of a transaction.
#[derive(Debug)]
pub enum TransactionCondition {
    RowIsNull {
        /// Index in [`TransactionPlan::rows`].
        row: usize,
        negated: bool,
    },
    IsNull {
        /// Index in [`TransactionPlan::references`].
        reference: usize,
        negated: bool,
    },
    Compare {
        /// Index in [`TransactionPlan::references`].
        reference: usize,
        operator: Comparison,
        value: Term,
    },
}

impl TransactionPlan {
    /// The columns of the rows that it returns.
    pub fn result_columns(&self) -> Vec<ResultColumn> {
        match &self.returning {
            None => Vec::new(),
            Some(ReturningPlan::Select(select)) => select.result_columns(),
            Some(ReturningPlan::References(indexes)) => indexes
                .iter()
                .map(|&index| &self.references[index])
                .map(|it| ResultColumn { name: it.name.clone(), column_type: it.value_type.clone() })
                .collect(),
        }
    }

    /// All reads of rows.
    pub fn reads(&self) -> impl Iterator<Item = &SelectPlan> {
        let returned = self.returning.iter().filter_map(|returning| match returning {
            ReturningPlan::Select(select) => Some(select),
            ReturningPlan::References(_) => None,
        });
        self.rows.iter().map(|row| &row.select).chain(returned)
    }

    /// The restrictions of the partition key by the first part that has some.
    pub(super) fn partition(&self) -> Option<&[Values]> {
        let read = self.reads().next().map(|select| match &select.restrictions.partition {
            PartitionRestriction::Keys(keys) => keys.as_slice(),
            PartitionRestriction::Range(_) => &[],
        });
        read.or_else(|| self.modifications.first().map(|modification| modification.partition.as_slice()))
    }
}

impl TransactionPlan {
    /// The value of the token, if it has one.
    pub fn token(&self, bindings: &Bindings<'_>) -> Result<Option<[u8; 16]>> {
        let Some(token) = &self.token else { return Ok(None) };
        match token.evaluate(bindings)? {
            Bound::Bytes(bytes) => match bytes.as_ref().try_into() {
                Ok(token) => Ok(Some(token)),
                Err(_) => Err(RequestError::invalid("The token of a transaction is a uuid")),
            },
            Bound::Null => Err(RequestError::invalid("Invalid null value for the token of a transaction")),
            Bound::Unset => {
                Err(RequestError::invalid("Invalid 'unset' value for the token of a transaction"))
            }
        }
    }
}

impl RowPlan {
    /// Refuses a LIMIT that allows several rows; a marker for it has its value only now.
    pub fn check_limit(&self, bindings: &Bindings<'_>) -> Result<()> {
        let Some(limit) = &self.select.limit else { return Ok(()) };
        if names_one_row(&self.select) || limit.evaluate(bindings)?.as_bytes() == Some(&ONE) {
            return Ok(());
        }
        Err(incomplete_primary_key(&self.description))
    }
}

/// The bytes of `LIMIT 1`.
const ONE: [u8; 4] = 1_i32.to_be_bytes();

/// Plans a transaction. Returns its markers as well.
pub(super) fn plan_transaction(
    transaction: &ast::Transaction,
    catalog: &Catalog,
    keyspace: Option<&str>,
) -> Result<(TransactionPlan, Markers)> {
    if transaction.modifications.is_empty() && transaction.returning.is_none() {
        return Err(RequestError::invalid("Transaction contains no reads or writes"));
    }
    if transaction.modifications.is_empty() && !transaction.conditions.is_empty() {
        return Err(RequestError::invalid("A transaction with conditions needs modifications"));
    }
    if transaction.modifications.is_empty() && transaction.token.is_some() {
        return Err(RequestError::invalid(
            "A transaction that only reads takes no token: it can be repeated",
        ));
    }
    let parts = transaction.rows.len() + transaction.modifications.len();
    if parts > PARTS_MAX {
        return Err(RequestError::invalid(format!(
            "A transaction has at most {PARTS_MAX} LETs and modifications, not {parts}"
        )));
    }
    let mut markers = Markers::of_transaction(References::new(transaction.marker_count));
    let scope = NameScope { catalog, keyspace, table: None };
    let token = Receiver::new("[token]", CqlType::Uuid);
    let token = transaction.token.as_ref().map(|value| resolve(value, &token, &scope, &mut markers));
    let token = token.transpose()?;
    let mut rows = Vec::with_capacity(transaction.rows.len());
    for row in &transaction.rows {
        rows.push(plan_row(row, catalog, keyspace, &mut markers)?);
    }
    let index_of = |bind_value: usize| bind_value - transaction.marker_count;
    let returning = match &transaction.returning {
        None => None,
        Some(ast::Returning::Select { select, place }) => {
            let description = format!("returning select {}", at(*place));
            Some(ReturningPlan::Select(plan_returned(
                select,
                *place,
                &description,
                catalog,
                keyspace,
                &mut markers,
            )?))
        }
        Some(ast::Returning::References(references)) => {
            let mut indexes = Vec::with_capacity(references.len());
            for reference in references {
                if let Some(references) = markers.references_mut() {
                    references.row(&reference.row)?;
                }
                if reference.column.is_none() {
                    return Err(RequestError::invalid("SELECT references must specify a column."));
                }
                indexes.push(index_of(resolve_reference(reference, &scope, &mut markers)?.0));
            }
            Some(ReturningPlan::References(indexes))
        }
    };
    let conditions = transaction
        .conditions
        .iter()
        .map(|condition| plan_condition(condition, transaction.marker_count, &scope, &mut markers))
        .collect::<Result<_>>()?;
    let mut modifications = Vec::with_capacity(transaction.modifications.len());
    let mut are_referring = Vec::with_capacity(transaction.modifications.len());
    for (modification, place) in &transaction.modifications {
        let references_before = markers.reference_count();
        modifications.push(plan_change(modification, *place, catalog, keyspace, &mut markers)?);
        are_referring.push(markers.reference_count() > references_before);
    }
    let references = markers.take_references().map(References::into_used).unwrap_or_default();
    let tables = rows.iter().map(|row: &RowPlan| &row.select.table);
    let tables = tables.chain(returning.iter().filter_map(|returning| match returning {
        ReturningPlan::Select(select) => Some(&select.table),
        ReturningPlan::References(_) => None,
    }));
    let table = only_table(tables.chain(modifications.iter().map(|modification| &modification.table)))?;
    let marker_count = transaction.marker_count;
    let plan = TransactionPlan {
        table,
        token,
        rows,
        returning,
        conditions,
        modifications,
        are_referring,
        references,
        marker_count,
    };
    Ok((plan, markers))
}

/// The table of all parts of a transaction.
fn only_table<'t>(mut tables: impl Iterator<Item = &'t Arc<Table>>) -> Result<Arc<Table>> {
    let Some(first) = tables.next() else {
        return Err(RequestError::invalid("Transaction contains no reads or writes"));
    };
    if let Some(other) = tables.find(|table| table.id != first.id) {
        return Err(RequestError::invalid(format!(
            "A transaction cannot span multiple tables: {} and {}",
            first.full_name(),
            other.full_name()
        )));
    }
    if first.kind == TableKind::Virtual {
        return Err(RequestError::invalid("Transactions are not supported by virtual tables"));
    }
    if first.options.cap.is_some() {
        return Err(RequestError::invalid("Transactions are not supported on tables with a cap yet"));
    }
    Ok(first.clone())
}

fn at(place: ast::Place) -> String {
    format!("at [{}:{}]", place.line, place.column)
}

fn incomplete_primary_key(description: &str) -> RequestError {
    RequestError::invalid(format!(
        "SELECT must specify either all primary key elements or all partition key elements and LIMIT 1. In both cases partition key elements must be always specified with equality operators; {description}"
    ))
}

/// Plans a LET.
fn plan_row(
    row: &ast::NamedRow,
    catalog: &Catalog,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<RowPlan> {
    let ast::NamedRow { name, select, place } = row;
    let description = format!("LET assignment {} {}", name.as_str(), at(*place));
    if select.json || select.distinct || select.per_partition_limit.is_some() {
        return Err(RequestError::invalid(format!(
            "JSON, DISTINCT and PER PARTITION LIMIT are not allowed in LET; {description}"
        )));
    }
    let plan = plan_read(select, *place, catalog, keyspace, markers)?;
    if matches!(plan.restrictions.partition, PartitionRestriction::Range(_)) {
        return Err(RequestError::invalid(format!(
            "Range queries are not allowed for reads within a transaction; {description}"
        )));
    }
    let may_be_one = match &plan.limit {
        Some(Term::Constant(limit)) => limit.as_deref() == Some(&ONE),
        Some(_) => true,
        None => false,
    };
    if plan.restrictions.has_partition_in() || !(names_one_row(&plan) || may_be_one) {
        return Err(incomplete_primary_key(&description));
    }
    check_found_by_key(&plan, &description)?;
    let columns = selected_columns(select, &plan.table, &description)?;
    let named = NamedColumns { name: name.as_str().to_owned(), table: plan.table.clone(), columns };
    if let Some(references) = markers.references_mut() {
        references.add_row(named)?;
    }
    Ok(RowPlan { select: plan, description })
}

/// The columns that a LET selects.
fn selected_columns(select: &ast::Select, table: &Table, description: &str) -> Result<BTreeSet<usize>> {
    let ast::SelectClause::Items(items) = &select.clause else {
        return Ok((0..table.columns.len()).collect());
    };
    let column = |item: &ast::SelectedItem| match (&item.expression, &item.alias) {
        (ast::Expression::Column(name), None) => column_of(table, name),
        _ => Err(RequestError::invalid(format!("LET selects columns without an alias only; {description}"))),
    };
    items.iter().map(column).collect()
}

/// Plans a SELECT whose rows the transaction returns.
fn plan_returned(
    select: &ast::Select,
    place: ast::Place,
    description: &str,
    catalog: &Catalog,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<SelectPlan> {
    let plan = plan_read(select, place, catalog, keyspace, markers)?;
    if matches!(plan.restrictions.partition, PartitionRestriction::Range(_)) {
        return Err(RequestError::invalid(format!(
            "SELECT must specify either all partition key elements. Partition key elements must be always specified with equality operators; {description}"
        )));
    }
    check_found_by_key(&plan, description)?;
    Ok(plan)
}

/// Plans a SELECT, and refuses what none may have within a transaction.
fn plan_read(
    select: &ast::Select,
    place: ast::Place,
    catalog: &Catalog,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<SelectPlan> {
    let refuse = |what: &str| Err(RequestError::invalid(format!("{what}; SELECT statement {}", at(place))));
    if !select.order_by.is_empty() {
        return refuse("No ORDER BY clause allowed within a transaction");
    }
    if !select.group_by.is_empty() {
        return refuse("No GROUP BY clause allowed within a transaction");
    }
    if select.timeout.is_some() {
        return refuse("Statements within transactions may not specify a timeout");
    }
    if select.freshness.is_some() {
        return refuse("Statements within transactions may not specify a freshness");
    }
    let (_, table) = table_of(catalog, &select.from, keyspace)?;
    let scope = NameScope { catalog, keyspace: Some(&table.keyspace), table: Some(table) };
    let plan = plan_select(select, table, &scope, markers, MaskedColumns::Clear)?;
    if table.is_counter {
        return refuse("Counter columns cannot be accessed within a transaction");
    }
    if plan.is_grouped() {
        return refuse("No aggregation functions allowed within a transaction");
    }
    if plan.restrictions.has_partition_in() && plan.limit.is_some() {
        return refuse(
            "Partition key is present in IN clause and there is a LIMIT... this is currently not supported",
        );
    }
    Ok(plan)
}

/// Whether all columns of the primary key have one value.
fn names_one_row(plan: &SelectPlan) -> bool {
    let is_one = |restriction: &ClusteringRestriction| match restriction {
        ClusteringRestriction::Values { values, .. } => values.only().is_some(),
        ClusteringRestriction::Tuples { values, .. } => matches!(values, TupleValues::One(_)),
        ClusteringRestriction::Slice { .. } => false,
    };
    plan.names_rows() && plan.restrictions.clustering.iter().all(is_one)
}

/// Refuses restrictions of rows by more than their primary key: what must be read would depend on what is read.
fn check_found_by_key(plan: &SelectPlan, description: &str) -> Result<()> {
    if plan.restrictions.filters.is_empty()
        && plan.index.is_none()
        && plan.nearest.is_none()
        && plan.restrictions.key_tokens.is_none()
    {
        return Ok(());
    }
    Err(RequestError::invalid(format!(
        "SELECT within a transaction may restrict columns of the primary key only; {description}"
    )))
}

/// Plans a modification.
fn plan_change(
    modification: &ast::Modification,
    place: ast::Place,
    catalog: &Catalog,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<ModifyPlan> {
    if let ast::Modification::Insert(insert) = modification
        && let ast::InsertSource::Values { columns, values } = &insert.source
    {
        let (_, table) = table_of(catalog, &insert.table, keyspace)?;
        for (name, value) in columns.iter().zip(values) {
            let column = &table.columns[column_of(table, name)?];
            if let Some(reference) = first_reference(value).filter(|_| column.is_primary_key()) {
                return Err(RequestError::invalid(format!(
                    "Value reference {reference} cannot be used to insert PRIMARY KEY column {}",
                    column.name
                )));
            }
        }
    }
    let plan = plan_modification(modification, catalog, keyspace, markers)?;
    let refuse = |what: &str| {
        let kind = match plan.kind {
            ModifyKind::Insert => "INSERT",
            ModifyKind::Update => "UPDATE",
            ModifyKind::Delete => "DELETE",
        };
        Err(RequestError::invalid(format!("{what}; {kind} statement {}", at(place))))
    };
    if plan.conditions.is_some() {
        return refuse("Updates within transactions may not specify their own conditions");
    }
    if plan.timestamp.is_some() {
        return refuse("Updates within transactions may not specify custom timestamps");
    }
    if plan.time_to_live.is_some() {
        return refuse("Updates within transactions may not specify custom ttls");
    }
    if plan.timeout.is_some() {
        return refuse("Statements within transactions may not specify a timeout");
    }
    if plan.is_counter() {
        return refuse("Counter columns cannot be accessed within a transaction");
    }
    Ok(plan)
}

/// The first reference in an expression.
fn first_reference(expression: &ast::Expression) -> Option<&ast::RowReference> {
    use ast::Expression as E;
    match expression {
        E::Reference(reference) => Some(reference),
        E::Function { arguments: items, .. } | E::List(items) | E::Set(items) | E::Tuple(items) => {
            items.iter().find_map(first_reference)
        }
        E::MapOrUserType(entries) => {
            entries.iter().find_map(|(key, value)| first_reference(key).or_else(|| first_reference(value)))
        }
        E::Cast { operand, .. } | E::TypeHint { operand, .. } | E::Negation(operand) => {
            first_reference(operand)
        }
        E::Arithmetic { left, right, .. } => first_reference(left).or_else(|| first_reference(right)),
        _ => None,
    }
}

fn plan_condition(
    condition: &ast::TransactionCondition,
    marker_count: usize,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<TransactionCondition> {
    match condition {
        ast::TransactionCondition::IsNull { reference, negated } if reference.column.is_none() => {
            let Some(references) = markers.references_mut() else {
                return Err(RequestError::invalid("A condition needs a row"));
            };
            Ok(TransactionCondition::RowIsNull { row: references.row(&reference.row)?, negated: *negated })
        }
        ast::TransactionCondition::IsNull { reference, negated } => {
            let (index, _) = resolve_reference(reference, scope, markers)?;
            Ok(TransactionCondition::IsNull { reference: index - marker_count, negated: *negated })
        }
        ast::TransactionCondition::Compare { left, operator, right } => {
            let (reference, value, operator) = match (left, right) {
                (ast::Expression::Reference(left), ast::Expression::Reference(right)) => {
                    return Err(RequestError::invalid(format!(
                        "A condition compares a reference with a value, and not with another reference: {left} {} {right}",
                        operator.symbol()
                    )));
                }
                (ast::Expression::Reference(reference), value) => (reference, value, *operator),
                (value, ast::Expression::Reference(reference)) => (reference, value, reversed(*operator)),
                _ => {
                    return Err(RequestError::invalid(
                        "Either the left-hand or right-hand side must be a reference!",
                    ));
                }
            };
            if let Some(reference) = first_reference(value) {
                return Err(RequestError::invalid(format!(
                    "A condition compares a reference with a value, and not with another reference: {reference}"
                )));
            }
            let (index, value_type) = resolve_reference(reference, scope, markers)?;
            if !is_equality(operator) && value_type.any(&|part| *part == CqlType::Duration) {
                return Err(RequestError::invalid(format!(
                    "Slice conditions ( {} ) are not supported on durations",
                    operator.symbol()
                )));
            }
            let value = resolve(value, &Receiver::new(reference.result_name(), value_type), scope, markers)?;
            if value.is_null() {
                return Err(null_comparison());
            }
            Ok(TransactionCondition::Compare { reference: index - marker_count, operator, value })
        }
    }
}

/// The error for a comparison with null.
fn null_comparison() -> RequestError {
    RequestError::invalid("Invalid comparison with null for operator; use IS NULL or IS NOT NULL instead")
}

/// The value with which a condition compares.
pub fn compared_value<'a>(value: &'a Term, bindings: &Bindings<'a>) -> Result<std::borrow::Cow<'a, [u8]>> {
    match value.evaluate(bindings)? {
        Bound::Bytes(bytes) => Ok(bytes),
        Bound::Null => Err(null_comparison()),
        Bound::Unset => Err(RequestError::invalid("Invalid 'unset' value in condition")),
    }
}

/// The operator with its sides exchanged.
fn reversed(operator: Comparison) -> Comparison {
    match operator {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        Comparison::Equal | Comparison::NotEqual => operator,
    }
}
