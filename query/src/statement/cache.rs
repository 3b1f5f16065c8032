//! The registry that shares prepared statements between the shards of a node, and a shard's own plans of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use lru::LruCache;

use super::{Statement, StatementId, statement_id};
use crate::error::{RequestError, Result};
use crate::schema::catalog::CatalogView;

/// The most statements that stay prepared on a node; the oldest go first.
const MAX_PREPARED: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

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
    evicted: AtomicU64,
}

/// A prepared statement, as clients see it in `system.prepared_statements`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedText {
    pub id: StatementId,
    pub text: Arc<str>,
    pub keyspace: Option<Arc<str>>,
}

impl Registry {
    fn insert(&self, statement: &Statement) {
        let mut guard = self.statements.write().unwrap_or_else(PoisonError::into_inner);
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
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn get(&self, id: &StatementId) -> Option<Registered> {
        self.statements.read().unwrap_or_else(PoisonError::into_inner).0.get(id).cloned()
    }

    /// All prepared statements.
    pub fn all(&self) -> Vec<PreparedText> {
        let guard = self.statements.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(id, known): (&StatementId, &Registered)| PreparedText {
            id: *id,
            text: known.text.clone(),
            keyspace: known.keyspace.clone(),
        };
        guard.0.iter().map(of).collect()
    }

    /// How many had to go for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Number of prepared statements.
    pub fn len(&self) -> usize {
        self.statements.read().unwrap_or_else(PoisonError::into_inner).0.len()
    }

    /// Whether nothing is prepared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A shard's own plans of prepared statements. When it is full, the one used longest ago goes.
pub struct StatementCache {
    statements: RefCell<LruCache<StatementId, (Statement, StatementId)>>,
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
    ) -> Result<Statement> {
        let id = statement_id(text, keyspace);
        if let Some((cached, prepared_metadata_id)) = self.statements.borrow_mut().get(&id)
            && cached.generation == catalog.generation
            && *prepared_metadata_id == cached.metadata_id
        {
            return Ok(cached.clone());
        }
        let statement = Statement::new(text, keyspace, catalog)?;
        registry.insert(&statement);
        self.keep(&statement, statement.metadata_id);
        Ok(statement)
    }

    /// A prepared statement by its id, planned with the present catalog.
    #[inline]
    pub fn get(&self, registry: &Registry, id: &[u8], catalog: &CatalogView) -> Result<Statement> {
        let unprepared = || RequestError::Unprepared { id: id.to_vec() };
        let id: StatementId = id.try_into().map_err(|_| unprepared())?;
        if let Some((cached, _)) = self.statements.borrow_mut().get(&id)
            && cached.generation == catalog.generation
        {
            return Ok(cached.clone());
        }
        let registered = registry.get(&id).ok_or_else(unprepared)?;
        let statement = Statement::new(&registered.text, registered.keyspace.as_deref(), catalog)?;
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

    fn keep(&self, statement: &Statement, prepared_metadata_id: StatementId) {
        self.statements.borrow_mut().put(statement.id, (statement.clone(), prepared_metadata_id));
    }
}
