//! Statements ready for execution: plans with the metadata that clients get.
//!
//! Invariant: the kind of a statement is decided once, when it is planned. From then on its type shows it ([`Prepared`] of a
//! plan).

mod cache;
mod explain;

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use cql_lite::frame::{ColumnSpec, ColumnsMetadata, ProtocolVersion, type_codes};
use cql_lite::syntax::{self, ast};
use helenus_roles::FunctionSignature;
use md5::{Digest, Md5};

pub use self::cache::{PreparedText, Registry, StatementCache};
pub use self::explain::ExplainPlan;
use crate::error::{RequestError, Result};
use crate::plan::modify::ModifyPlan;
use crate::plan::names::CalledFunctions;
use crate::plan::select::SelectPlan;
use crate::plan::selection::{MaskedColumns, ResultColumn};
use crate::plan::term::MarkerSpec;
use crate::plan::transaction::TransactionPlan;
use crate::plan::{BatchPlan, CheckPlan, Plan, Planned, plan, plan_for, plan_of_node};
use crate::schema::catalog::{CatalogView, Table};
use crate::schema::ddl::bounds;

/// Most markers of a statement: the protocol counts them with two bytes.
const MARKERS_MAX: usize = u16::MAX as usize;

/// Identifies a prepared statement.
pub type StatementId = [u8; 16];

/// A planned statement, shared by its clones.
#[derive(Debug, Clone)]
pub enum Statement {
    Select(Arc<Prepared<SelectPlan>>),
    Modify(Arc<Prepared<ModifyPlan>>),
    Batch(Arc<Prepared<BatchPlan>>),
    Transaction(Arc<Prepared<TransactionPlan>>),
    Truncate(Arc<Prepared<Arc<Table>>>),
    Check(Arc<Prepared<CheckPlan>>),
    Use(Arc<Prepared<String>>),
    /// CREATE, ALTER, DROP: executed on the newest catalog.
    Schema(Arc<Prepared<ast::Statement>>),
    /// Of roles and permissions: executed on the newest roles.
    Roles(Arc<Prepared<ast::Statement>>),
    Describe(Arc<Prepared<ast::Describe>>),
    Explain(Arc<Prepared<ExplainPlan>>),
}

/// A statement with a plan of one kind.
#[derive(Debug)]
pub struct Prepared<P> {
    description: Description,
    pub plan: P,
}

/// The properties that every statement has besides its plan.
#[derive(Debug, Clone)]
pub struct Description {
    pub id: StatementId,
    pub text: Arc<str>,
    /// The default keyspace of names without one.
    pub keyspace: Option<Arc<str>>,
    pub markers: Vec<MarkerSpec>,
    pub partition_key_markers: Vec<u16>,
    /// The columns of the rows that it returns. Empty: it returns no rows.
    pub result_columns: Vec<ResultColumn>,
    /// Tells the paging states of this statement from those of others.
    pub fingerprint: u32,
    /// Digest of the result columns.
    pub metadata_id: StatementId,
    /// Generation of the catalog with which it was planned.
    pub generation: u64,
    /// The table of the markers and of the result columns.
    table: Option<Arc<Table>>,
    /// The functions of users that it may call.
    called_functions: Vec<CalledFunctions>,
    /// The functions of users that it calls, in the order in which it names them.
    pub executed_functions: Vec<FunctionSignature>,
    encoded: [OnceLock<StatementMetadata>; 3],
    /// The same SELECT for who may not see the values of masked columns, once it was needed.
    masked: OnceLock<Arc<Prepared<SelectPlan>>>,
}

/// A statement's metadata in the encoding of a protocol version.
#[derive(Debug, Clone)]
pub struct StatementMetadata {
    pub bind: ColumnsMetadata,
    /// `None`: the statement returns no rows.
    pub result: Option<ColumnsMetadata>,
}

impl Statement {
    /// Parses and plans a statement.
    pub fn new(text: &str, keyspace: Option<&str>, catalog: &CatalogView) -> Result<Self> {
        let parsed = match syntax::parse(text).map_err(|error| RequestError::Syntax(error.to_string()))? {
            ast::Statement::Explain(explain) => return Self::explain(text, &explain, keyspace, catalog),
            parsed => parsed,
        };
        let planned = plan(parsed, &catalog.catalog, keyspace)?;
        Self::of_plan(text, keyspace, planned, catalog)
    }

    /// Parses and plans a statement of the node itself, which may modify tables that clients may not.
    pub fn of_node(text: &str, catalog: &CatalogView) -> Result<Self> {
        let parsed = syntax::parse(text).map_err(|error| RequestError::Syntax(error.to_string()))?;
        let modification = match parsed {
            ast::Statement::Insert(insert) => ast::Modification::Insert(insert),
            ast::Statement::Update(update) => ast::Modification::Update(update),
            ast::Statement::Delete(delete) => ast::Modification::Delete(delete),
            other => return Self::of_plan(text, None, plan(other, &catalog.catalog, None)?, catalog),
        };
        Self::of_plan(text, None, plan_of_node(&modification, &catalog.catalog)?, catalog)
    }

    fn of_plan(text: &str, keyspace: Option<&str>, planned: Planned, catalog: &CatalogView) -> Result<Self> {
        let result_columns = match &planned.plan {
            Plan::Select(select) => select.result_columns(),
            Plan::Transaction(transaction) => transaction.result_columns(),
            _ => Vec::new(),
        };
        check_described(&planned.markers, &result_columns)?;
        let id = statement_id(text, keyspace);
        let description = Description {
            fingerprint: u32::from_be_bytes([id[0], id[1], id[2], id[3]]),
            id,
            text: text.into(),
            keyspace: keyspace.map(Into::into),
            markers: planned.markers,
            partition_key_markers: planned.partition_key_markers,
            metadata_id: metadata_id(&result_columns),
            result_columns,
            generation: catalog.generation,
            table: planned.plan.table().cloned(),
            called_functions: planned.called_functions,
            executed_functions: planned.executed_functions,
            encoded: [OnceLock::new(), OnceLock::new(), OnceLock::new()],
            masked: OnceLock::new(),
        };
        Ok(match planned.plan {
            Plan::Select(plan) => Self::Select(Arc::new(Prepared { description, plan })),
            Plan::Modify(plan) => Self::Modify(Arc::new(Prepared { description, plan })),
            Plan::Batch(plan) => Self::Batch(Arc::new(Prepared { description, plan })),
            Plan::Transaction(plan) => Self::Transaction(Arc::new(Prepared { description, plan })),
            Plan::Truncate(plan) => Self::Truncate(Arc::new(Prepared { description, plan })),
            Plan::Check(plan) => Self::Check(Arc::new(Prepared { description, plan })),
            Plan::Use(plan) => Self::Use(Arc::new(Prepared { description, plan })),
            Plan::Schema(plan) => Self::Schema(Arc::new(Prepared { description, plan })),
            Plan::Roles(plan) => Self::Roles(Arc::new(Prepared { description, plan })),
            Plan::Describe(plan) => Self::Describe(Arc::new(Prepared { description, plan })),
        })
    }
}

impl Prepared<SelectPlan> {
    /// The same SELECT for who may not see the values of masked columns.
    pub fn masked(&self, catalog: &CatalogView) -> Result<Arc<Self>> {
        if let Some(known) = self.description.masked.get() {
            return Ok(known.clone());
        }
        let parsed = syntax::parse(&self.text).map_err(|error| RequestError::Syntax(error.to_string()))?;
        let planned = plan_for(parsed, &catalog.catalog, self.keyspace.as_deref(), MaskedColumns::Masked)?;
        let Plan::Select(plan) = planned.plan else {
            unreachable!("the text of a SELECT is that of a SELECT");
        };
        let masked = Arc::new(self.with_plan(plan));
        Ok(self.description.masked.get_or_init(|| masked).clone())
    }
}

/// Refuses a statement that cannot be described to its client.
fn check_described(markers: &[MarkerSpec], columns: &[ResultColumn]) -> Result<()> {
    if markers.len() > MARKERS_MAX {
        return Err(RequestError::invalid(format!(
            "Too many markers(?). {} markers exceed the allowed maximum of {MARKERS_MAX}",
            markers.len()
        )));
    }
    let (markers, columns) =
        (markers.iter().map(|marker| &marker.value_type), columns.iter().map(|column| &column.column_type));
    if !(bounds::are_within(markers, bounds::ALL_PARTS_MAX)
        && bounds::are_within(columns, bounds::ALL_PARTS_MAX))
    {
        return Err(RequestError::invalid(format!(
            "The types of a statement's markers and columns may have at most {} parts each",
            bounds::ALL_PARTS_MAX
        )));
    }
    Ok(())
}

impl Deref for Statement {
    type Target = Description;

    fn deref(&self) -> &Description {
        match self {
            Self::Select(statement) => statement,
            Self::Modify(statement) => statement,
            Self::Batch(statement) => statement,
            Self::Transaction(statement) => statement,
            Self::Truncate(statement) => statement,
            Self::Check(statement) => statement,
            Self::Use(statement) => statement,
            Self::Schema(statement) | Self::Roles(statement) => statement,
            Self::Describe(statement) => statement,
            Self::Explain(statement) => statement,
        }
    }
}

impl<P> Prepared<P> {
    /// The same statement with another plan.
    #[must_use]
    pub fn with_plan(&self, plan: P) -> Self {
        Self { description: self.description.clone(), plan }
    }
}

impl<P> Deref for Prepared<P> {
    type Target = Description;

    fn deref(&self) -> &Description {
        &self.description
    }
}

impl Description {
    /// The table that the statement reads or changes, if there is one; of a batch the first one.
    pub fn table(&self) -> Option<&Arc<Table>> {
        self.table.as_ref()
    }

    /// The metadata in the encoding of a version, created at its first use.
    pub fn metadata(&self, version: ProtocolVersion) -> &StatementMetadata {
        let slot = &self.encoded[usize::from(version.number().clamp(3, 5) - 3)];
        slot.get_or_init(|| {
            let (keyspace, table) =
                self.table.as_ref().map_or(("", ""), |table| (table.keyspace.as_str(), table.name.as_str()));
            let bind: Vec<ColumnSpec<'_>> = self
                .markers
                .iter()
                .map(|marker| ColumnSpec {
                    keyspace,
                    table,
                    name: &marker.name,
                    cql_type: &marker.value_type,
                })
                .collect();
            let result = || columns_metadata(version, keyspace, table, &self.result_columns);
            StatementMetadata {
                bind: ColumnsMetadata::new(version, &bind),
                result: (!self.result_columns.is_empty()).then(result),
            }
        })
    }
}

/// The columns of a result in the encoding of a version.
pub fn columns_metadata(
    version: ProtocolVersion,
    keyspace: &str,
    table: &str,
    columns: &[ResultColumn],
) -> ColumnsMetadata {
    let specs: Vec<ColumnSpec<'_>> = columns
        .iter()
        .map(|column| ColumnSpec { keyspace, table, name: &column.name, cql_type: &column.column_type })
        .collect();
    ColumnsMetadata::new(version, &specs)
}

/// A digest of names and types as reported to clients: it changes with the fields of a user type, not only with its
/// name.
fn metadata_id(columns: &[ResultColumn]) -> StatementId {
    let mut described = BytesMut::new();
    for column in columns {
        described.extend_from_slice(column.name.as_bytes());
        described.extend_from_slice(&[0]);
        type_codes::put_type(&mut described, ProtocolVersion::V5, &column.column_type);
    }
    Md5::digest(&described).into()
}

/// The id of a statement text in a keyspace.
pub fn statement_id(text: &str, keyspace: Option<&str>) -> StatementId {
    let mut digest = Md5::new();
    digest.update(keyspace.unwrap_or_default().as_bytes());
    digest.update([0]);
    digest.update(text.as_bytes());
    digest.finalize().into()
}
