//! The registry that shares prepared statements between the shards of a node, and a shard's own plans of them.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lru::LruCache;

use super::{Statement, StatementId, statement_id};
use crate::error::{RequestError, Result};
use crate::plan::names::CalledFunctions;
use crate::schema::catalog::{CatalogView, Table};

/// The most statements that stay prepared on a node; the oldest go first.
const MAX_PREPARED: NonZeroUsize = NonZeroUsize::new(50_000).unwrap();

/// The shared part of a prepared statement, from which every shard makes its own plan.
#[derive(Debug, Clone)]
struct Registered {
    text: Arc<str>,
    keyspace: Option<Arc<str>>,
    /// The metadata id in the last answer to PREPARE.
    metadata_id: StatementId,
    /// Generation of the catalog at the last PREPARE.
    generation: u64,
    /// The tables of that catalog which the statement reads or writes.
    tables: Vec<Arc<Table>>,
    /// The functions of users in that catalog which the statement may call.
    called_functions: Vec<CalledFunctions>,
}

impl Registered {
    fn of(statement: &Statement) -> Self {
        Self {
            text: statement.text.clone(),
            keyspace: statement.keyspace.clone(),
            metadata_id: statement.metadata_id,
            generation: statement.generation,
            tables: tables(statement),
            called_functions: statement.called_functions.clone(),
        }
    }

    /// Whether clients must prepare the statement again: one of its tables was dropped, or altered in what statements depend on, or one of
    /// its functions was replaced or dropped, or has got another overload.
    fn is_outdated(&self, catalog: &CatalogView) -> bool {
        // A shard that takes a change later than others knows nothing of the present tables.
        if catalog.generation <= self.generation {
            return false;
        }
        let is_as_before = |before: &Arc<Table>| {
            let keyspace = catalog.catalog.keyspaces.get(&before.keyspace);
            let after = keyspace.and_then(|keyspace| keyspace.tables.get(&before.name));
            after.is_some_and(|after| means_the_same(before, after))
        };
        let are_called_as_before = |called: &CalledFunctions| called.mean_the_same_in(&catalog.catalog);
        !self.tables.iter().all(is_as_before) || !self.called_functions.iter().all(are_called_as_before)
    }

    /// Whether clients that know one need not learn the other.
    fn means_the_same(&self, other: &Self) -> bool {
        self.metadata_id == other.metadata_id
            && self.called_functions == other.called_functions
            && self.tables.len() == other.tables.len()
            && std::iter::zip(&self.tables, &other.tables).all(|(one, other)| means_the_same(one, other))
    }
}

/// Whether statements mean the same with two versions of a table. As in Cassandra, most options make no difference.
fn means_the_same(before: &Arc<Table>, after: &Arc<Table>) -> bool {
    Arc::ptr_eq(before, after)
        || before.id == after.id
            && before.columns == after.columns
            && before.indexes == after.indexes
            && before.compact == after.compact
            && before.options.default_time_to_live == after.options.default_time_to_live
            && before.options.gc_grace_seconds == after.options.gc_grace_seconds
}

/// The tables whose changes end a prepared statement.
fn tables(statement: &Statement) -> Vec<Arc<Table>> {
    match statement {
        Statement::Select(select) => vec![select.plan.table.clone()],
        Statement::Modify(modify) => vec![modify.plan.table.clone()],
        Statement::Batch(batch) => batch.plan.statements.iter().map(|plan| plan.table.clone()).collect(),
        Statement::Transaction(transaction) => vec![transaction.plan.table.clone()],
        Statement::Explain(explain) => tables(&explain.plan.statement),
        Statement::Check(check) => vec![check.plan.view.clone()],
        Statement::Truncate(_)
        | Statement::Use(_)
        | Statement::Schema(_)
        | Statement::Roles(_)
        | Statement::Describe(_) => Vec::new(),
    }
}

/// The prepared statements of a node. When it is full, the one prepared longest ago goes.
#[derive(Debug)]
pub struct Registry {
    statements: RwLock<LruCache<StatementId, Registered>>,
    evicted: AtomicU64,
}

impl Default for Registry {
    fn default() -> Self {
        Self { statements: RwLock::new(LruCache::sparse(MAX_PREPARED)), evicted: AtomicU64::new(0) }
    }
}

/// A prepared statement, as clients see it in `system.prepared_statements`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedText {
    pub id: StatementId,
    pub text: Arc<str>,
    pub keyspace: Option<Arc<str>>,
}

impl Registry {
    /// Registers a statement that a client has prepared. It is now the one prepared last.
    fn insert(&self, statement: &Statement) {
        let registered = Registered::of(statement);
        let mut statements = self.statements.write().unwrap_or_else(PoisonError::into_inner);
        // A shard that takes a change later than others may prepare with the catalog before it. Where that makes a difference, its client
        // must prepare again: the older preparation is kept, and found to be outdated.
        let is_known = |known: &mut Registered| {
            known.generation > registered.generation && known.means_the_same(&registered)
        };
        if statements.get_mut(&statement.id).is_some_and(is_known) {
            return;
        }
        let replaced = statements.push(statement.id, registered);
        if replaced.is_some_and(|(id, _)| id != statement.id) {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A statement that clients need not prepare again.
    fn get(&self, id: &StatementId, catalog: &CatalogView) -> Option<Registered> {
        let registered = self.statements.read().unwrap_or_else(PoisonError::into_inner).peek(id)?.clone();
        if !registered.is_outdated(catalog) {
            return Some(registered);
        }
        let mut statements = self.statements.write().unwrap_or_else(PoisonError::into_inner);
        // It may have been prepared again meanwhile.
        if statements.peek(id).is_some_and(|registered| registered.is_outdated(catalog)) {
            statements.pop(id);
        }
        statements.peek(id).cloned()
    }

    /// All prepared statements.
    pub fn all(&self) -> Vec<PreparedText> {
        let guard = self.statements.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(id, known): (&StatementId, &Registered)| PreparedText {
            id: *id,
            text: known.text.clone(),
            keyspace: known.keyspace.clone(),
        };
        guard.iter().map(of).collect()
    }

    /// How many had to go for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Number of prepared statements.
    pub fn len(&self) -> usize {
        self.statements.read().unwrap_or_else(PoisonError::into_inner).len()
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
            // Others may have taken its place meanwhile, or an older preparation.
            registry.insert(cached);
            return Ok(cached.clone());
        }
        let statement = Statement::new(text, keyspace, catalog)?;
        registry.insert(&statement);
        self.keep(&statement, statement.metadata_id);
        Ok(statement)
    }

    /// A prepared statement by its id, planned with the present catalog. Clients prepare it again after a change of its tables, as in
    /// Cassandra, so that they learn its markers and result columns.
    #[inline]
    pub fn get(&self, registry: &Registry, id: &[u8], catalog: &CatalogView) -> Result<Statement> {
        let unprepared = || RequestError::Unprepared { id: id.to_vec() };
        let id: StatementId = id.try_into().map_err(|_| unprepared())?;
        if let Some((cached, _)) = self.statements.borrow_mut().get(&id)
            && cached.generation == catalog.generation
        {
            return Ok(cached.clone());
        }
        let Some(registered) = registry.get(&id, catalog) else {
            self.statements.borrow_mut().pop(&id);
            return Err(unprepared());
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::test_catalog::{CREATE_KEYSPACE, catalog_of, changed};

    fn catalog() -> CatalogView {
        catalog_of(&[
            CREATE_KEYSPACE,
            "CREATE TYPE ks.u (a int)",
            "CREATE TABLE ks.t (k int PRIMARY KEY, v int, w u)",
            "CREATE TABLE ks.other (k int PRIMARY KEY)",
            "CREATE FUNCTION ks.f (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return 1'",
            "CREATE FUNCTION ks.s (s int, a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return 1'",
            "CREATE AGGREGATE ks.g (int) SFUNC s STYPE int",
        ])
    }

    /// The catalog after a change.
    fn after(before: &CatalogView, change: &str) -> CatalogView {
        CatalogView::new(before.generation + 1, changed(before, 1_000, change).catalog)
    }

    /// Whether clients must prepare the statement again after the change.
    fn ends(text: &str, change: &str) -> bool {
        let (registry, shard, other_shard) =
            (Registry::default(), StatementCache::default(), StatementCache::default());
        let before = catalog();
        let id = shard.prepare(&registry, text, Some("ks"), &before).unwrap().id;
        other_shard.get(&registry, &id, &before).unwrap();
        let after = after(&before, change);
        let outcomes = [&shard, &other_shard].map(|shard| match shard.get(&registry, &id, &after) {
            Ok(_) => false,
            Err(RequestError::Unprepared { id: unprepared }) => unprepared == id,
            Err(error) => panic!("{error}"),
        });
        assert_eq!(outcomes[0], outcomes[1], "all shards agree");
        assert_eq!(registry.is_empty(), outcomes[0]);
        outcomes[0]
    }

    #[test]
    fn a_change_of_its_table_ends_a_prepared_statement() {
        let batch = "BEGIN BATCH INSERT INTO other (k) VALUES (1); INSERT INTO t (k) VALUES (?) APPLY BATCH";
        for text in ["SELECT * FROM t", "SELECT k FROM t", "INSERT INTO t (k) VALUES (?)", batch] {
            for change in [
                "ALTER TABLE ks.t ADD x int",
                "ALTER TABLE ks.t DROP v",
                "ALTER TABLE ks.t RENAME k TO kk",
                "ALTER TABLE ks.t WITH default_time_to_live = 10",
                "ALTER TABLE ks.t WITH gc_grace_seconds = 10",
                "ALTER TYPE ks.u ADD b int",
                "CREATE INDEX ON ks.t (v)",
                "DROP TABLE ks.t",
                "DROP KEYSPACE ks",
            ] {
                assert!(ends(text, change), "{change}: {text}");
            }
            for change in [
                "ALTER TABLE ks.t WITH comment = 'x'",
                "CREATE TABLE ks.third (k int PRIMARY KEY)",
                "CREATE TYPE ks.second (a int)",
                "ALTER KEYSPACE ks WITH durable_writes = false",
            ] {
                assert!(!ends(text, change), "{change}: {text}");
            }
        }
        assert!(!ends("TRUNCATE t", "ALTER TABLE ks.t ADD x int"));
    }

    #[test]
    fn a_shard_that_takes_a_change_later_ends_nothing() {
        let (registry, first, late) =
            (Registry::default(), StatementCache::default(), StatementCache::default());
        let before = catalog();
        let after = after(&before, "ALTER TABLE ks.t ADD x int");
        let id = first.prepare(&registry, "SELECT * FROM t", Some("ks"), &after).unwrap().id;
        assert_eq!(late.get(&registry, &id, &before).unwrap().result_columns.len(), 3);
        assert_eq!(first.get(&registry, &id, &after).unwrap().result_columns.len(), 4);
        assert_eq!(late.get(&registry, &id, &after).unwrap().result_columns.len(), 4);
    }

    #[test]
    fn a_change_of_its_functions_ends_a_prepared_statement() {
        let function =
            |head: &str| format!("CREATE {head} CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return 2'");
        let in_a_batch = "BEGIN BATCH UPDATE t SET v = ks.f(?) WHERE k = 1 APPLY BATCH";
        for text in ["SELECT f(v) FROM t", "UPDATE t SET v = f(?) WHERE k = f(2)", in_a_batch] {
            for change in [
                &function("OR REPLACE FUNCTION ks.f (a int)"),
                &function("FUNCTION ks.f (a text)"),
                "DROP FUNCTION ks.f",
            ] {
                assert!(ends(text, change), "{change}: {text}");
            }
        }
        for change in [&function("OR REPLACE FUNCTION ks.s (s int, a int)"), "DROP AGGREGATE ks.g"] {
            assert!(ends("SELECT g(v) FROM t", change), "{change}");
        }
        for text in ["SELECT v, f(v) FROM t", "SELECT g(v) FROM t", "SELECT v FROM t"] {
            assert!(!ends(text, &function("FUNCTION ks.other (a int)")), "{text}");
        }
        assert!(!ends("SELECT g(v) FROM t", &function("OR REPLACE FUNCTION ks.f (a int)")));
        assert!(!ends("SELECT f(v) FROM t", "DROP AGGREGATE ks.g"));
    }

    #[test]
    fn a_statement_that_a_shard_still_has_is_registered_again() {
        let (registry, shard) = (Registry::default(), StatementCache::default());
        let catalog = catalog();
        let id = shard.prepare(&registry, "SELECT * FROM t", Some("ks"), &catalog).unwrap().id;
        registry.statements.write().unwrap().pop(&id);
        shard.prepare(&registry, "SELECT * FROM t", Some("ks"), &catalog).unwrap();
        assert!(StatementCache::default().get(&registry, &id, &catalog).is_ok());
    }

    #[test]
    fn an_older_preparation_replaces_a_newer_one_only_where_that_is_another() {
        for (change, is_other) in
            [("ALTER TABLE ks.t WITH comment = 'x'", false), ("ALTER TABLE ks.t ADD x int", true)]
        {
            let (registry, first, late) =
                (Registry::default(), StatementCache::default(), StatementCache::default());
            let before = catalog();
            let after = after(&before, change);
            let prepare = |shard: &StatementCache, catalog: &CatalogView| {
                shard.prepare(&registry, "SELECT * FROM t", Some("ks"), catalog).unwrap().id
            };
            let id = prepare(&first, &after);
            prepare(&late, &before);
            let generation = registry.statements.read().unwrap().peek(&id).unwrap().generation;
            assert_eq!(generation, if is_other { before.generation } else { after.generation }, "{change}");
            let third = StatementCache::default();
            assert_eq!(third.get(&registry, &id, &after).is_err(), is_other, "{change}");
            // Prepared again, it stays.
            prepare(&first, &after);
            assert!(third.get(&registry, &id, &after).is_ok(), "{change}");
        }
    }
}
