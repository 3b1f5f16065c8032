//! From a parsed statement to a plan: names are looked up, types resolved, and everything is decided that does not
//! depend on bind values.

pub mod condition;
pub mod direct_rows;
pub mod freshness;
pub mod index_search;
pub mod like_pattern;
mod modification;
pub mod modify;
pub mod names;
pub mod nearest;
pub mod restrictions;
pub mod row_layout;
pub mod select;
pub mod selection;
pub mod term;
pub mod transaction;

use std::sync::Arc;

use cql_lite::syntax::ast::{self, Statement};
use cql_lite::types::CqlType;
use helenus_roles::FunctionSignature;

use self::modification::{check_modifiable, is_of_nodes, is_of_views, not_modifiable, plan_modification};
use self::modify::ModifyPlan;
use self::names::{CalledFunctions, NameScope, table_of};
use self::restrictions::{PartitionRestriction, Values};
use self::select::{SelectPlan, plan_select};
use self::selection::MaskedColumns;
use self::term::{MarkerSpec, Markers, Receiver, Term, resolve};
use self::transaction::{TransactionPlan, plan_transaction};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Catalog, Table, TableKind};
use crate::schema::virtual_tables;

/// The operation of a statement.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for a statement, and it is moved twice")]
pub enum Plan {
    Select(SelectPlan),
    Modify(ModifyPlan),
    Batch(BatchPlan),
    Transaction(TransactionPlan),
    Use(String),
    Truncate(Arc<Table>),
    Check(CheckPlan),
    /// CREATE, ALTER, DROP: executed on the newest catalog.
    Schema(Statement),
    /// Of roles and permissions: executed on the newest roles.
    Roles(Statement),
    Describe(ast::Describe),
}

impl Plan {
    /// The table of the markers and of the result columns.
    pub fn table(&self) -> Option<&Arc<Table>> {
        match self {
            Self::Select(select) => Some(&select.table),
            Self::Modify(modify) => Some(&modify.table),
            Self::Batch(batch) => batch.statements.first().map(|first| &first.table),
            Self::Transaction(transaction) => Some(&transaction.table),
            Self::Truncate(table) => Some(table),
            Self::Check(check) => Some(&check.view),
            Self::Use(_) | Self::Schema(_) | Self::Roles(_) | Self::Describe(_) => None,
        }
    }
}

/// A planned CHECK PROJECTION.
#[derive(Debug)]
pub struct CheckPlan {
    /// A materialized view or projection.
    pub view: Arc<Table>,
    /// Rows that differ from what they are computed of are computed again.
    pub repair: bool,
}

/// A planned BATCH.
#[derive(Debug)]
pub struct BatchPlan {
    pub kind: ast::BatchKind,
    pub statements: Vec<ModifyPlan>,
    /// How long the coordinator waits for replicas; `None`: as the settings say.
    pub timeout: Option<Term>,
}

/// A plan with the markers of its values.
#[derive(Debug)]
pub struct Planned {
    pub plan: Plan,
    pub markers: Vec<MarkerSpec>,
    /// The functions of users that it may call.
    pub called_functions: Vec<CalledFunctions>,
    /// The functions of users that it calls, in the order in which it names them.
    pub executed_functions: Vec<FunctionSignature>,
    /// For each partition key column, the index of the marker bound to it. Empty unless each column has its own
    /// marker.
    pub partition_key_markers: Vec<u16>,
}

/// Plans a statement. `keyspace`: the default keyspace of the session or request.
pub fn plan(statement: Statement, catalog: &Catalog, keyspace: Option<&str>) -> Result<Planned> {
    plan_for(statement, catalog, keyspace, MaskedColumns::Clear)
}

/// Plans a statement. `masked`: how a SELECT reads masked columns.
pub fn plan_for(
    statement: Statement,
    catalog: &Catalog,
    keyspace: Option<&str>,
    masked: MaskedColumns,
) -> Result<Planned> {
    let mut markers = Markers::default();
    let plan = match statement {
        Statement::Select(select) => {
            let (_, table) = table_of(catalog, &select.from, keyspace)?;
            let scope = NameScope { catalog, keyspace: Some(&table.keyspace), table: Some(table) };
            Plan::Select(plan_select(&select, table, &scope, &mut markers, masked)?)
        }
        Statement::Insert(insert) => Plan::Modify(plan_modification(
            &ast::Modification::Insert(insert),
            catalog,
            keyspace,
            &mut markers,
        )?),
        Statement::Update(update) => Plan::Modify(plan_modification(
            &ast::Modification::Update(update),
            catalog,
            keyspace,
            &mut markers,
        )?),
        Statement::Delete(delete) => Plan::Modify(plan_modification(
            &ast::Modification::Delete(delete),
            catalog,
            keyspace,
            &mut markers,
        )?),
        Statement::Batch(batch) => Plan::Batch(plan_batch(&batch, catalog, keyspace, &mut markers)?),
        Statement::Transaction(transaction) => {
            let (plan, of_transaction) = plan_transaction(&transaction, catalog, keyspace)?;
            markers = of_transaction;
            Plan::Transaction(plan)
        }
        Statement::Use(name) => {
            if catalog.keyspace(name.as_str()).is_none() {
                return Err(RequestError::invalid(format!("Keyspace '{}' does not exist", name.as_str())));
            }
            Plan::Use(name.into_string())
        }
        Statement::Truncate(truncate) => {
            let (home, table) = table_of(catalog, &truncate.table, keyspace)?;
            if home.feed_base(table).is_some_and(|base| base.options.feed().is_some()) {
                let name = table.full_name();
                return Err(RequestError::invalid(format!(
                    "Cannot truncate CDC log table {name} while its feed is on"
                )));
            }
            check_truncatable(table)?;
            Plan::Truncate(table.clone())
        }
        Statement::CheckView(check) => {
            let (_, view) = table_of(catalog, &check.name, keyspace)?;
            if view.view.is_none() {
                let name = view.full_name();
                return Err(RequestError::invalid(format!("{name} is no materialized view or projection")));
            }
            Plan::Check(CheckPlan { view: view.clone(), repair: check.repair })
        }
        Statement::Describe(describe) => Plan::Describe(describe),
        Statement::Explain(_) => unreachable!("of an EXPLAIN the statement in it is planned"),
        other if is_of_roles(&other) => Plan::Roles(other),
        other => Plan::Schema(other),
    };
    finish(plan, markers)
}

/// Plans a modification by the node itself: of logs, views and what is kept beside them, too, which clients may not write.
pub fn plan_of_node(modification: &ast::Modification, catalog: &Catalog) -> Result<Planned> {
    let mut markers = Markers::default();
    let plan = modification::plan_of_node(modification, catalog, None, &mut markers)?;
    finish(Plan::Modify(plan), markers)
}

fn finish(plan: Plan, mut markers: Markers) -> Result<Planned> {
    let (called_functions, executed_functions) = (markers.take_called(), markers.take_executed());
    let markers = markers.finish()?;
    let partition_key_markers = partition_key_markers(&plan);
    Ok(Planned { plan, markers, called_functions, executed_functions, partition_key_markers })
}

/// Whether a statement is about roles, permissions or identities.
fn is_of_roles(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateRole(_)
            | Statement::AlterRole(_)
            | Statement::DropRole(_)
            | Statement::GrantRole(_)
            | Statement::RevokeRole(_)
            | Statement::ListRoles(_)
            | Statement::ListUsers
            | Statement::ListSuperusers
            | Statement::Grant(_)
            | Statement::Revoke(_)
            | Statement::ListPermissions(_)
            | Statement::AddIdentity(_)
            | Statement::DropIdentity(_)
    )
}

fn check_truncatable(table: &Table) -> Result<()> {
    if is_of_nodes(table) {
        return Err(not_modifiable(table));
    }
    if table.kind != TableKind::Virtual || virtual_tables::is_truncatable(table) {
        return Ok(());
    }
    if !is_of_views(table) {
        return Err(not_modifiable(table));
    }
    Err(RequestError::invalid(format!("Truncation is not supported by table {}", table.full_name())))
}

fn plan_batch(
    batch: &ast::Batch,
    catalog: &Catalog,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<BatchPlan> {
    let scope = NameScope { catalog, keyspace, table: None };
    let timestamp = batch
        .using
        .timestamp
        .as_ref()
        .map(|term| resolve(term, &Receiver::new("[timestamp]", CqlType::Bigint), &scope, markers))
        .transpose()?;
    let timeout = batch
        .using
        .timeout
        .as_ref()
        .map(|term| resolve(term, &Receiver::timeout(), &scope, markers))
        .transpose()?;
    if batch.using.time_to_live.is_some() {
        return Err(RequestError::invalid("Global TTL on the BATCH statement is not supported."));
    }
    let mut statements = Vec::with_capacity(batch.statements.len());
    for statement in &batch.statements {
        let mut plan = plan_modification(statement, catalog, keyspace, markers)?;
        if let Some(timestamp) = &timestamp {
            if plan.timestamp.is_some() {
                return Err(RequestError::invalid(
                    "Timestamp must be set either on BATCH or individual statements",
                ));
            }
            plan.timestamp = Some(timestamp.clone());
        }
        statements.push(plan);
    }
    let plan = BatchPlan { kind: batch.kind, statements, timeout };
    check_batch(plan.kind, plan.statements.iter(), timestamp.is_some())?;
    Ok(plan)
}

/// Checks which statements may be combined in a batch.
pub fn check_batch<'a>(
    kind: ast::BatchKind,
    statements: impl Iterator<Item = &'a ModifyPlan>,
    has_timestamp: bool,
) -> Result<()> {
    let (mut has_counters, mut has_others, mut has_conditions) = (false, false, false);
    for statement in statements {
        if statement.timeout.is_some() {
            return Err(RequestError::invalid(
                "TIMEOUT must be set on the BATCH and not on individual statements",
            ));
        }
        if statement.table.kind == TableKind::Virtual {
            check_modifiable(&statement.table)?;
            return Err(RequestError::invalid(match kind {
                ast::BatchKind::Logged => "Cannot include a virtual table statement in a logged batch",
                _ => "Statements about virtual tables are not supported in batches by Helenus",
            }));
        }
        has_counters |= statement.is_counter();
        has_others |= !statement.is_counter();
        has_conditions |= statement.conditions.is_some();
    }
    if has_timestamp && has_conditions {
        return Err(RequestError::invalid("Cannot provide custom timestamp for conditional BATCH"));
    }
    if has_timestamp && has_counters {
        return Err(RequestError::invalid("Cannot provide custom timestamp for counter BATCH"));
    }
    if kind == ast::BatchKind::Counter && has_others {
        return Err(RequestError::invalid("Cannot include non-counter statement in a counter batch"));
    }
    if has_counters && has_others {
        return Err(RequestError::invalid(
            "Counter and non-counter mutations cannot exist in the same batch",
        ));
    }
    if kind == ast::BatchKind::Logged && has_counters {
        return Err(RequestError::invalid("Cannot include a counter statement in a logged batch"));
    }
    Ok(())
}

/// For each partition key column, the index of the marker that is bound to it.
fn partition_key_markers(plan: &Plan) -> Vec<u16> {
    let keys = match plan {
        Plan::Select(select) => match &select.restrictions.partition {
            PartitionRestriction::Keys(keys) => keys,
            PartitionRestriction::Range(_) => return Vec::new(),
        },
        Plan::Modify(modify) => &modify.partition,
        Plan::Batch(batch) => match &batch.statements[..] {
            [first, ..] => &first.partition,
            [] => return Vec::new(),
        },
        Plan::Transaction(transaction) => match transaction.partition() {
            Some(keys) => keys,
            None => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let markers: Option<Vec<u16>> = keys
        .iter()
        .map(|values| match values {
            Values::One(Term::Marker { index }) => u16::try_from(*index).ok(),
            _ => None,
        })
        .collect();
    markers.unwrap_or_default()
}
