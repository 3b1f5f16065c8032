//! The plans of INSERT, UPDATE and DELETE.
//!
//! Invariants: a plan names its partitions by values of the whole partition key; operations on counters and on other
//! columns never mix; a plan with a condition names exactly one row (or the static row) of one partition.

mod assignment;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use self::assignment::{resolve_assignment, resolve_deletion};
pub use self::plan::{ColumnOperation, JsonInsert, ModifyKind, ModifyPlan, Operation};
use super::condition::{Conditions, resolve_conditions};
use super::names::{NameScope, column_of, list_names};
use super::restrictions::{
    ClusteringRestriction, PartitionRestriction, Restrictions, TokenRange, Values, check_clustering,
    not_like, resolve_relations,
};
use super::term::{Markers, Receiver, Term, resolve};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Column, Table};

/// Plans an INSERT.
pub fn plan_insert(
    statement: &ast::Insert,
    table: &Arc<Table>,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<ModifyPlan> {
    if table.is_counter {
        return Err(RequestError::invalid(
            "INSERT statements are not allowed on counter tables, use UPDATE instead",
        ));
    }
    let mut plan = ModifyPlan {
        table: table.clone(),
        kind: ModifyKind::Insert,
        partition: Vec::new(),
        clustering: Vec::new(),
        operations: Vec::new(),
        timestamp: None,
        time_to_live: None,
        timeout: None,
        conditions: statement.if_not_exists.then_some(Conditions::NotExists),
        json: None,
    };
    match &statement.source {
        ast::InsertSource::Json { value, default } => {
            let receiver = Receiver::new("[json]", CqlType::Text);
            let document = match value {
                ast::JsonValue::Text(text) => ast::Expression::Literal(ast::Literal::String(text.clone())),
                ast::JsonValue::Marker(marker) => ast::Expression::Marker(marker.clone()),
            };
            plan.json = Some(JsonInsert {
                document: resolve(&document, &receiver, scope, markers)?,
                default_unset: *default == ast::JsonDefault::Unset,
            });
        }
        ast::InsertSource::Values { columns, values } => {
            if columns.len() != values.len() {
                return Err(RequestError::invalid("Unmatched column names/values"));
            }
            let mut given = BTreeSet::new();
            let mut terms: Vec<Option<Term>> = table.columns.iter().map(|_| None).collect();
            for (name, value) in columns.iter().zip(values) {
                let index = column_of(table, name)?;
                if !given.insert(index) {
                    return Err(RequestError::invalid("The column names contains duplicates"));
                }
                let column = &table.columns[index];
                let receiver = Receiver::new(column.name.clone(), column.column_type.clone());
                terms[index] = Some(resolve(value, &receiver, scope, markers)?);
            }
            fill_insert(&mut plan, terms)?;
        }
    }
    resolve_using(&statement.using, &mut plan, scope, markers)?;
    Ok(plan)
}

/// Distributes the values of an INSERT (by index in [`Table::columns`]) to keys and operations.
pub fn fill_insert(plan: &mut ModifyPlan, mut terms: Vec<Option<Term>>) -> Result<()> {
    let table = plan.table.clone();
    let (partition_count, clustering_count) = (table.partition_key_count, table.clustering_key_count);
    let missing: Vec<&Column> = table
        .partition_key()
        .iter()
        .zip(&terms)
        .filter(|(_, term)| term.is_none())
        .map(|(column, _)| column)
        .collect();
    if !missing.is_empty() {
        return Err(RequestError::invalid(format!(
            "Some partition key parts are missing: {}",
            list_names(missing)
        )));
    }
    plan.partition = terms[..partition_count].iter_mut().filter_map(Option::take).map(Values::One).collect();
    let values = terms.split_off(partition_count + clustering_count);
    let clustering: Vec<Option<Term>> = terms.split_off(partition_count);
    for (offset, term) in values.into_iter().enumerate() {
        if let Some(term) = term {
            let column = partition_count + clustering_count + offset;
            plan.operations.push(ColumnOperation { column, operation: Operation::Set(term) });
        }
    }
    if clustering.iter().all(Option::is_none) && clustering_count > 0 && plan.touches_only_static() {
        return Ok(());
    }
    check_inserted_clustering(&table, &clustering)?;
    if plan.operations.is_empty() && !table.marks_rows() {
        // Such a row would have nothing by which it lives.
        return Err(match table.value_columns() {
            [value] if table.is_dense() => RequestError::invalid(format!(
                "Column {} is mandatory for this COMPACT STORAGE table",
                value.name
            )),
            _ => {
                missing_clustering_keys(table.hidden_columns().iter().filter(|column| column.is_clustering()))
            }
        });
    }
    plan.clustering = clustering
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(first, term)| ClusteringRestriction::Values { first, values: Values::One(term) })
        .collect();
    Ok(())
}

/// Checks that the clustering columns of an INSERT have values, as far as the table asks for them.
fn check_inserted_clustering(table: &Table, terms: &[Option<Term>]) -> Result<()> {
    let columns = || table.clustering_key().iter().zip(terms);
    let mut missing = columns().filter(|(_, term)| term.is_none()).map(|(column, _)| column);
    let Some(first_missing) = missing.next() else { return Ok(()) };
    if !table.allows_short_clustering() || terms.iter().all(Option::is_none) {
        return Err(missing_clustering_keys(std::iter::once(first_missing).chain(missing)));
    }
    let mut behind = columns().skip_while(|(_, term)| term.is_some());
    match behind.find(|(_, term)| term.is_some()) {
        Some((given, _)) => Err(RequestError::invalid(format!(
            "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
            given.name, first_missing.name
        ))),
        None => Ok(()),
    }
}

fn missing_clustering_keys<'a>(columns: impl IntoIterator<Item = &'a Column>) -> RequestError {
    RequestError::invalid(format!("Some clustering keys are missing: {}", list_names(columns)))
}

/// Plans an UPDATE.
pub fn plan_update(
    statement: &ast::Update,
    table: &Arc<Table>,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<ModifyPlan> {
    let mut using = UsingTerms::resolve(&statement.using, scope, markers)?;
    let mut operations = Vec::new();
    for assignment in &statement.assignments {
        let index = column_of(table, &assignment.column)?;
        let column = &table.columns[index];
        if column.is_primary_key() {
            return Err(RequestError::invalid(format!("PRIMARY KEY part {} found in SET part", column.name)));
        }
        let operation = resolve_assignment(assignment, column, scope, markers)?;
        operations.push(ColumnOperation { column: index, operation });
    }
    let clauses = (statement.relations.as_slice(), statement.condition.as_ref());
    let mut plan = keyed_plan(ModifyKind::Update, table, operations, clauses, scope, markers)?;
    using.apply(&mut plan)?;
    if plan.clustering.iter().any(|c| matches!(c, ClusteringRestriction::Slice { .. })) {
        return Err(RequestError::invalid(
            "Slice restrictions are not supported on the clustering columns in UPDATE statements",
        ));
    }
    if plan.touches_only_static() && !plan.has_regular_conditions() {
        if !plan.clustering.is_empty() {
            return Err(RequestError::invalid(
                "Invalid restrictions on clustering columns since the UPDATE statement modifies only static columns",
            ));
        }
    } else if !plan.names_written_rows() {
        return Err(missing_clustering_keys(missing_clustering(&plan)));
    }
    check_conditional(&plan)?;
    Ok(plan)
}

/// The clustering columns that no relation of a modification names.
fn missing_clustering(plan: &ModifyPlan) -> Vec<&Column> {
    plan.table
        .clustering_key()
        .iter()
        .enumerate()
        .filter(|(position, _)| {
            !plan.clustering.iter().any(|restriction| match restriction {
                ClusteringRestriction::Values { first, .. } => first == position,
                ClusteringRestriction::Tuples { first, count, .. } => {
                    (*first..first + count).contains(position)
                }
                ClusteringRestriction::Slice { .. } => false,
            })
        })
        .map(|(_, column)| column)
        .collect()
}

/// Plans an UPDATE or DELETE: resolves its WHERE and IF clauses, in this order, in which their markers are numbered.
fn keyed_plan(
    kind: ModifyKind,
    table: &Arc<Table>,
    operations: Vec<ColumnOperation>,
    (relations, condition): (&[ast::Relation], Option<&ast::IfClause>),
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<ModifyPlan> {
    for relation in relations {
        if let ast::Relation::Contains { key, .. } = relation {
            let statement = if kind == ModifyKind::Update { "UPDATE" } else { "DELETE" };
            let key = if *key { " KEY" } else { "" };
            return Err(RequestError::invalid(format!("Cannot use {statement} with CONTAINS{key}")));
        }
    }
    let restrictions = resolve_relations(relations, scope, table, markers)?;
    if let Some(like) = relations.iter().find(|relation| matches!(relation, ast::Relation::Like { .. })) {
        // An index decides it, and modifications use none.
        return Err(not_like(like));
    }
    let (partition, clustering) = keys_of(restrictions, table, kind)?;
    let conditions =
        condition.map(|condition| resolve_conditions(condition, table, scope, markers)).transpose()?;
    Ok(ModifyPlan {
        table: table.clone(),
        kind,
        partition,
        clustering,
        operations,
        timestamp: None,
        time_to_live: None,
        timeout: None,
        conditions,
        json: None,
    })
}

/// Plans a DELETE.
pub fn plan_delete(
    statement: &ast::Delete,
    table: &Arc<Table>,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<ModifyPlan> {
    let mut operations = Vec::new();
    for deletion in &statement.deletions {
        let (ast::Deletion::Column(name)
        | ast::Deletion::Element { column: name, .. }
        | ast::Deletion::Field { column: name, .. }) = deletion;
        let index = column_of(table, name)?;
        let column = &table.columns[index];
        if column.is_primary_key() {
            return Err(RequestError::invalid(format!(
                "Invalid identifier {} for deletion (should not be a PRIMARY KEY part)",
                column.name
            )));
        }
        let operation = resolve_deletion(deletion, column, scope, markers)?;
        operations.push(ColumnOperation { column: index, operation });
    }
    let mut using = UsingTerms::resolve(&statement.using, scope, markers)?;
    let clauses = (statement.relations.as_slice(), statement.condition.as_ref());
    let mut plan = keyed_plan(ModifyKind::Delete, table, operations, clauses, scope, markers)?;
    using.apply(&mut plan)?;
    check_conditional(&plan)?;
    if !plan.operations.is_empty() {
        if plan.touches_only_static() && !plan.has_regular_conditions() {
            if !plan.clustering.is_empty() {
                return Err(RequestError::invalid(
                    "Invalid restrictions on clustering columns since the DELETE statement modifies only static columns",
                ));
            }
        } else if !plan.has_full_clustering() {
            return Err(RequestError::invalid("Range deletions are not supported for specific columns"));
        }
    }
    Ok(plan)
}

fn keys_of(
    restrictions: Restrictions,
    table: &Table,
    kind: ModifyKind,
) -> Result<(Vec<Values>, Vec<ClusteringRestriction>)> {
    let statement = if kind == ModifyKind::Update { "UPDATE" } else { "DELETE" };
    let filtered: Vec<usize> =
        restrictions.filters.iter().flat_map(|filter| filter.subject.columns().to_vec()).collect();
    let values: BTreeSet<usize> =
        filtered.iter().copied().filter(|&i| !table.columns[i].is_primary_key()).collect();
    if !values.is_empty() {
        return Err(RequestError::invalid(format!(
            "Non PRIMARY KEY columns found in where clause: {}",
            list_names(values.iter().map(|&index| &table.columns[index]))
        )));
    }
    let keys = match &restrictions.partition {
        PartitionRestriction::Range(TokenRange { lower: None, upper: None }) => {
            let restricted_otherwise = filtered.iter().any(|&index| {
                table.columns[index].is_partition_key() && !restrictions.equal_columns.contains(&index)
            });
            if restricted_otherwise {
                return Err(RequestError::invalid(
                    "Only EQ and IN relation are supported on the partition key (unless you use the token() function)"
                        .to_owned()
                        + if kind == ModifyKind::Update { " for UPDATE statements" } else { " for DELETE statements" },
                ));
            }
            let missing = table
                .partition_key()
                .iter()
                .enumerate()
                .filter(|(index, _)| !restrictions.equal_columns.contains(index) && !filtered.contains(index))
                .map(|(_, column)| column);
            return Err(RequestError::invalid(format!(
                "Some partition key parts are missing: {}",
                list_names(missing)
            )));
        }
        PartitionRestriction::Keys(keys) if restrictions.key_tokens.is_none() => keys.clone(),
        PartitionRestriction::Range(_) | PartitionRestriction::Keys(_) => {
            return Err(RequestError::invalid(format!(
                "The token function cannot be used in WHERE clauses for {statement} statements"
            )));
        }
    };
    check_clustering(&restrictions, table)?;
    if !restrictions.filters.is_empty() {
        return Err(RequestError::invalid(format!(
            "{statement} statements cannot filter rows: {} cannot be restricted",
            list_names(filtered.iter().map(|&index| &table.columns[index]))
        )));
    }
    Ok((keys, restrictions.clustering))
}

fn check_conditional(plan: &ModifyPlan) -> Result<()> {
    if plan.conditions.is_none() {
        return Ok(());
    }
    if plan.is_counter() {
        return Err(RequestError::invalid("Conditional updates are not supported on counter tables"));
    }
    if plan.partition.iter().any(|values| !matches!(values, Values::One(_))) {
        let statement = if plan.kind == ModifyKind::Delete { "deletions" } else { "updates" };
        return Err(RequestError::invalid(format!(
            "IN on the partition key is not supported with conditional {statement}"
        )));
    }
    let several = plan.clustering.iter().any(|restriction| match restriction {
        ClusteringRestriction::Values { values, .. } => !matches!(values, Values::One(_)),
        ClusteringRestriction::Tuples { values, .. } => {
            !matches!(values, super::restrictions::TupleValues::One(_))
        }
        ClusteringRestriction::Slice { .. } => false,
    });
    if several {
        let statement = if plan.kind == ModifyKind::Delete { "deletions" } else { "updates" };
        return Err(RequestError::invalid(format!(
            "IN on the clustering key columns is not supported with conditional {statement}"
        )));
    }
    if plan.kind == ModifyKind::Delete && !plan.has_full_clustering() {
        const MUST_RESTRICT: &str =
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to";
        if !plan.touches_only_static() {
            return Err(RequestError::invalid(format!("{MUST_RESTRICT} delete non static columns")));
        }
        if plan.has_regular_conditions() {
            return Err(RequestError::invalid(format!(
                "{MUST_RESTRICT} use IF condition on non static columns"
            )));
        }
    }
    Ok(())
}

/// The terms of a USING clause.
struct UsingTerms {
    timestamp: Option<Term>,
    time_to_live: Option<Term>,
    timeout: Option<Term>,
}

impl UsingTerms {
    fn resolve(using: &ast::Using, scope: &NameScope<'_>, markers: &mut Markers) -> Result<Self> {
        let mut term = |term: &Option<ast::Expression>, name: &str, value_type: CqlType| {
            term.as_ref()
                .map(|term| resolve(term, &Receiver::new(name, value_type), scope, markers))
                .transpose()
        };
        Ok(Self {
            timestamp: term(&using.timestamp, "[timestamp]", CqlType::Bigint)?,
            time_to_live: term(&using.time_to_live, "[ttl]", CqlType::Int)?,
            timeout: using
                .timeout
                .as_ref()
                .map(|term| resolve(term, &Receiver::timeout(), scope, markers))
                .transpose()?,
        })
    }

    fn apply(&mut self, plan: &mut ModifyPlan) -> Result<()> {
        plan.timestamp = self.timestamp.take();
        plan.time_to_live = self.time_to_live.take();
        plan.timeout = self.timeout.take();
        refuse_on_capped(plan)?;
        if plan.is_counter() {
            if plan.timestamp.is_some() {
                return Err(RequestError::invalid("Cannot provide custom timestamp for counter updates"));
            }
            if plan.time_to_live.is_some() {
                return Err(RequestError::invalid("Cannot provide custom TTL for counter updates"));
            }
        }
        if plan.timestamp.is_some() && plan.conditions.is_some() {
            return Err(RequestError::invalid("Cannot provide custom timestamp for conditional updates"));
        }
        Ok(())
    }
}

/// Refuses what could bring back rows that the cap of a table has evicted, or would have to read them.
fn refuse_on_capped(plan: &ModifyPlan) -> Result<()> {
    if plan.table.options.cap.is_none() {
        return Ok(());
    }
    let what = if plan.time_to_live.is_some() {
        "TTL is"
    } else if plan.conditions.is_some() {
        "Conditions are"
    } else if plan.needs_read() {
        "Changes of lists by index or value are"
    } else {
        return Ok(());
    };
    Err(RequestError::invalid(format!("{what} not supported on tables with a cap yet")))
}

fn resolve_using(
    using: &ast::Using,
    plan: &mut ModifyPlan,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<()> {
    UsingTerms::resolve(using, scope, markers)?.apply(plan)
}
