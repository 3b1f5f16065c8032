//! Statements ready for execution, and the registry that shares prepared statements between the shards of the node.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock, RwLock};

use bytes::BytesMut;
use cql_lite::frame::{ColumnSpec, ColumnsMetadata, ProtocolVersion, type_codes};
use cql_lite::syntax;
use hashbrown::HashMap;
use lru::LruCache;
use md5::{Digest, Md5};

use crate::error::{RequestError, Result};
use crate::plan::selection::ResultColumn;
use crate::plan::term::MarkerSpec;
use crate::plan::{Plan, plan};
use crate::schema::catalog::CatalogView;

/// Identifies a prepared statement.
pub type StatementId = [u8; 16];

/// The most statements that stay prepared on a node; the oldest go first.
const MAX_PREPARED: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

/// A statement with its plan.
#[derive(Debug)]
pub struct Statement {
    pub id: StatementId,
    pub text: Arc<str>,
    /// The default keyspace of names without one.
    pub keyspace: Option<Arc<str>>,
    pub plan: Plan,
    pub markers: Vec<MarkerSpec>,
    pub partition_key_markers: Vec<u16>,
    /// The columns of the rows it returns.
    pub result_columns: Vec<ResultColumn>,
    /// Distinguishes the paging states of different statements.
    pub fingerprint: u32,
    /// Digest of the result columns.
    pub metadata_id: StatementId,
    /// Generation of the catalog with which it was planned.
    pub generation: u64,
    encoded: [OnceLock<StatementMetadata>; 3],
}

/// A statement's metadata in the encoding of a protocol version.
#[derive(Debug)]
pub struct StatementMetadata {
    pub bind: ColumnsMetadata,
    /// `None`: the statement returns no rows.
    pub result: Option<ColumnsMetadata>,
}

impl Statement {
    /// Parses and plans a statement.
    pub fn new(text: &str, keyspace: Option<&str>, catalog: &CatalogView) -> Result<Self> {
        let parsed = syntax::parse(text).map_err(|error| RequestError::Syntax(error.to_string()))?;
        let planned = plan(parsed, &catalog.catalog, keyspace)?;
        let result_columns = match &planned.plan {
            Plan::Select { select, .. } => select.result_columns(),
            _ => Vec::new(),
        };
        let id = statement_id(text, keyspace);
        Ok(Self {
            fingerprint: u32::from_be_bytes([id[0], id[1], id[2], id[3]]),
            id,
            text: text.into(),
            keyspace: keyspace.map(Into::into),
            plan: planned.plan,
            markers: planned.markers,
            partition_key_markers: planned.partition_key_markers,
            metadata_id: metadata_id(&result_columns),
            result_columns,
            generation: catalog.generation,
            encoded: [OnceLock::new(), OnceLock::new(), OnceLock::new()],
        })
    }

    /// The table of the bind variables and result columns.
    fn table_names(&self) -> (&str, &str) {
        let table = match &self.plan {
            Plan::Select { select, .. } => &select.table,
            Plan::Modify(modify) => &modify.table,
            Plan::Batch(batch) => match batch.statements.first() {
                Some(first) => &first.table,
                None => return ("", ""),
            },
            Plan::Truncate(table) => table,
            Plan::Use(_) | Plan::Schema(_) | Plan::Describe(_) => return ("", ""),
        };
        (&table.keyspace, &table.name)
    }

    /// The metadata in the encoding of a version, created at its first use.
    pub fn metadata(&self, version: ProtocolVersion) -> &StatementMetadata {
        let slot = &self.encoded[usize::from(version.number().clamp(3, 5) - 3)];
        slot.get_or_init(|| {
            let (keyspace, table) = self.table_names();
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
            StatementMetadata {
                bind: ColumnsMetadata::new(version, &bind),
                result: matches!(self.plan, Plan::Select { .. })
                    .then(|| columns_metadata(version, keyspace, table, &self.result_columns)),
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

/// The shared part of a prepared statement, from which every shard makes its own plan.
#[derive(Debug, Clone)]
struct Registered {
    text: Arc<str>,
    keyspace: Option<Arc<str>>,
    /// The metadata id in the last answer to PREPARE.
    metadata_id: StatementId,
}

/// The prepared statements of a node.
#[derive(Debug, Default)]
pub struct Registry {
    statements: RwLock<(HashMap<StatementId, Registered>, VecDeque<StatementId>)>,
}

impl Registry {
    fn insert(&self, statement: &Statement) {
        let Ok(mut guard) = self.statements.write() else { return };
        let (statements, order) = &mut *guard;
        let registered = Registered {
            text: statement.text.clone(),
            keyspace: statement.keyspace.clone(),
            metadata_id: statement.metadata_id,
        };
        if statements.insert(statement.id, registered).is_none() {
            order.push_back(statement.id);
            if order.len() > MAX_PREPARED.get()
                && let Some(oldest) = order.pop_front()
            {
                statements.remove(&oldest);
            }
        }
    }

    fn get(&self, id: &StatementId) -> Option<Registered> {
        self.statements.read().ok()?.0.get(id).cloned()
    }

    /// Number of prepared statements.
    pub fn len(&self) -> usize {
        self.statements.read().map_or(0, |guard| guard.0.len())
    }

    /// Whether nothing is prepared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A shard's own plans of prepared statements. When it is full, the one used longest ago goes.
pub struct StatementCache {
    statements: RefCell<LruCache<StatementId, (Arc<Statement>, StatementId)>>,
}

impl Default for StatementCache {
    fn default() -> Self {
        Self { statements: RefCell::new(LruCache::sparse(MAX_PREPARED)) }
    }
}

impl StatementCache {
    /// Prepares a statement for the whole node.
    pub fn prepare(
        &self,
        registry: &Registry,
        text: &str,
        keyspace: Option<&str>,
        catalog: &CatalogView,
    ) -> Result<Arc<Statement>> {
        let id = statement_id(text, keyspace);
        if let Some((cached, prepared_metadata_id)) = self.statements.borrow_mut().get(&id)
            && cached.generation == catalog.generation
            && *prepared_metadata_id == cached.metadata_id
        {
            return Ok(cached.clone());
        }
        let statement = Arc::new(Statement::new(text, keyspace, catalog)?);
        registry.insert(&statement);
        self.keep(&statement, statement.metadata_id);
        Ok(statement)
    }

    /// A prepared statement by its id, planned with the present catalog.
    #[inline]
    pub fn get(&self, registry: &Registry, id: &[u8], catalog: &CatalogView) -> Result<Arc<Statement>> {
        let unprepared = || RequestError::Unprepared { id: id.to_vec() };
        let id: StatementId = id.try_into().map_err(|_| unprepared())?;
        if let Some((cached, _)) = self.statements.borrow_mut().get(&id)
            && cached.generation == catalog.generation
        {
            return Ok(cached.clone());
        }
        let registered = registry.get(&id).ok_or_else(unprepared)?;
        let statement = Arc::new(Statement::new(&registered.text, registered.keyspace.as_deref(), catalog)?);
        self.keep(&statement, registered.metadata_id);
        Ok(statement)
    }

    /// Whether the result columns have changed since the last PREPARE.
    pub fn has_changed_metadata(&self, statement: &Statement) -> bool {
        self.statements
            .borrow()
            .peek(&statement.id)
            .is_some_and(|(_, prepared_metadata_id)| *prepared_metadata_id != statement.metadata_id)
    }

    fn keep(&self, statement: &Arc<Statement>, prepared_metadata_id: StatementId) {
        self.statements.borrow_mut().put(statement.id, (statement.clone(), prepared_metadata_id));
    }
}
