//! Schema statements: planned on the newest catalog that this node knows, put into the metadata log, and acknowledged
//! when every live member has installed the result.
//!
//! The log accepts a change only if the schema is the one on which it was planned; otherwise the change is planned
//! again. [`crate::cluster::applying`] installs a change on a node.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::syntax::ast::{self, Statement};
use cql_lite::types::codec;
use helenus_access::{Subject, created_resources, schema_demands};
use helenus_config::Authorizer;
use helenus_describe::{ClusterSummary, describe as describe_catalog};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::selection::ResultColumn;
use helenus_query::run::select::ResultPage;
use helenus_query::run::table_extensions::TableExtensions;
use helenus_query::schema::catalog::{Catalog, Keyspace, Table};
use helenus_query::schema::ddl::{
    self, Change, DdlContext, SchemaChangeEvent, SnapshotSchema, protocol_change,
};
use helenus_query::schema::document::CatalogDocument;
use helenus_query::schema::options::Compressor;
use helenus_query::schema::virtual_tables::SNITCH;
use helenus_query::statement::Prepared;
use helenus_ring::metadata::{
    self, CAPS, CASSANDRA_5_SCHEMAS, CHANGE_FEEDS, Command, Creator, ENCRYPTED_TABLES, FEATURE_VERSION,
    INDEXES, RATE_LIMITS, RECEIPTS, REPAIRS, REPLICATION_CHANGES, SCHEMA_DELTAS, SECURITY,
    SchemaChangeCommand, dropped_keyspaces,
};
use helenus_ring::replication_change::ReplicationChange;
use helenus_views::statement as view_statement;

use crate::cluster::applying::tables_to_prepare;
use crate::cluster::raft::MetadataLog;
use crate::cluster::{self, drops};
use helenus_execution::coordinator::{Outcome, RequestOptions};
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::file_handling::FileHandling;

/// The lock of the schema change in progress; used on the first shard.
#[derive(Default)]
pub struct SchemaLock(tokio::sync::Mutex<()>);

/// Most plans of one change, each on a newer catalog.
const PLANS_MAX: usize = 50;
/// Time limit for a change to get into the metadata log: less than the ten seconds that drivers wait for an answer,
/// so that they get one if there is no majority.
const PROPOSE_DEADLINE: Duration = Duration::from_secs(8);
/// Time that a change of replication waits, before it is proposed, for members that have old data of ranges that they would gain.
const CLEANUP_PATIENCE: Duration = Duration::from_secs(2);
const CLEANUP_PAUSE: Duration = Duration::from_millis(250);
/// Time to wait for live members that have not applied a change.
const AGREEMENT_PATIENCE: Duration = Duration::from_secs(10);
/// Time to wait for the newest catalog before a statement is refused or found to have no effect.
const CATCH_UP_DEADLINE: Duration = Duration::from_secs(2);
/// The warning where a change of replication is no transition yet. The first sentence is Cassandra's.
const MORE_REPLICAS: &str = "When increasing replication factor you need to run a full (-full) repair to distribute the data. \
     Until a row has been read at ALL, its new replicas may not have it.";
/// Refuses masks of columns. The sentences are Cassandra's.
const MASKING_DISABLED: &str = "Cannot mask columns because dynamic data masking is not enabled. You can enable it with the \
     dynamic_data_masking_enabled property on cassandra.yaml";
/// Longest pause after the change of another member came first, in milliseconds.
const CONFLICT_PAUSE_MS_MAX: u64 = 50;

fn ddl_context(context: &ShardContext) -> DdlContext {
    DdlContext {
        now_micros: context.next_timestamp(),
        new_id: context.time_uuid(),
        new_version: context.random_uuid(),
        data_centers: context
            .cluster_view()
            .topology
            .data_centers()
            .into_iter()
            .map(|(name, members)| (name, members as usize))
            .collect(),
        user_functions: context.user_functions(),
        may_drop_compact_storage: context.node.config.drop_compact_storage_enabled,
    }
}

/// Executes CREATE, ALTER and DROP. `user`: the role of the client.
pub async fn change(
    context: Rc<ShardContext>,
    statement: Arc<Prepared<Statement>>,
    user: Option<Rc<str>>,
) -> Result<Outcome> {
    let user = user.map(|user| user.to_string());
    context.run_on(0, move |context| Box::pin(change_here(context, statement, user))).await?
}

async fn change_here(
    context: Rc<ShardContext>,
    statement: Arc<Prepared<Statement>>,
    user: Option<String>,
) -> Result<Outcome> {
    let guardrails = context.guardrails();
    let mut warnings = Vec::new();
    // As in Cassandra, guardrails do not hold for superusers.
    let is_guarded = !context.is_superuser(user.as_deref());
    let allowed = if is_guarded {
        context
            .guard(&mut warnings, |warnings| guardrails.check_schema_statement(&statement.plan, warnings))?
    } else {
        Cow::Borrowed(&statement.plan)
    };
    if !context.node.config.dynamic_data_masking_enabled && ddl::declares_mask(&allowed) {
        return Err(RequestError::invalid(MASKING_DISABLED));
    }
    let is_enforced = context.node.config.authorizer == Authorizer::CassandraAuthorizer;
    let plan = |catalog: &Catalog| {
        let keyspace = statement.keyspace.as_deref();
        // Demands follow from the catalog, which may be newer than the one on which the session looked.
        let subject = Subject { roles: &context.roles(), user: user.as_deref(), is_enforced };
        subject.ensure_all(&schema_demands(&allowed, keyspace, catalog))?;
        view_statement::execute(catalog, &allowed, keyspace, &ddl_context(&context)).map(Some)
    };
    let check = |change: &Change| {
        let mut warnings = Vec::new();
        if !is_guarded {
            return Ok(warnings);
        }
        context
            .guard(&mut warnings, |warnings| guardrails.check_schema_change(&allowed, change, warnings))
            .map(|()| warnings)
    };
    // As in Cassandra, permissions on a view are those on its base table.
    let creator = user.clone().filter(|_| !matches!(*allowed, Statement::CreateView(_)));
    Ok(match agree(&context, creator, plan, check).await? {
        None => Outcome::Void,
        Some(agreed) => Outcome::SchemaChange {
            change: protocol_change(agreed.effect),
            warnings: [agreed.warnings, warnings].concat(),
        },
    })
}

/// Executes an UPDATE of the extensions of a table.
pub async fn set_extensions(context: Rc<ShardContext>, update: TableExtensions) -> Result<Outcome> {
    context.run_on(0, move |context| Box::pin(set_extensions_here(context, update))).await?
}

async fn set_extensions_here(context: Rc<ShardContext>, update: TableExtensions) -> Result<Outcome> {
    let TableExtensions { keyspace, table, extensions } = &update;
    let plan = |catalog: &Catalog| {
        ddl::set_extensions(catalog, keyspace, table, extensions, &ddl_context(&context)).map(Some)
    };
    agree(&context, None, plan, |_| Ok(Vec::new())).await.map(|_| Outcome::Void)
}

/// Makes the table of this name that takes the rows of a snapshot, with all that it needs, or checks that the present one does. Call on
/// the first shard.
pub async fn make_place(context: &Rc<ShardContext>, schema: &SnapshotSchema, name: &str) -> Result<()> {
    let plan = |catalog: &Catalog| schema.next_change(catalog, name, &ddl_context(context));
    while agree(context, None, plan, |_| Ok(Vec::new())).await?.is_some() {}
    Ok(())
}

/// Puts a change of a view into the metadata log, if there is one. Call on the first shard.
pub(super) async fn change_view(
    context: &Rc<ShardContext>,
    plan: impl Fn(&Catalog, &DdlContext) -> Result<Option<Change>>,
) -> Result<()> {
    let plan = |catalog: &Catalog| plan(catalog, &ddl_context(context));
    agree(context, None, plan, |_| Ok(Vec::new())).await.map(drop)
}

/// A change that every live member has installed.
struct Agreed {
    effect: SchemaChangeEvent,
    warnings: Vec<String>,
}

/// The change, with what it means for the logs of change feeds and for views.
fn followed(before: &Catalog, change: Change, context: &DdlContext) -> Result<Change> {
    let change = helenus_feed_logs::followed(before, change, context)?;
    helenus_views::following::followed(before, change, context)
}

/// What a table or keyspace may have from a feature level on.
struct Addition<T> {
    level: u16,
    /// The beginning of the sentence that refuses it: "Indexes can be created".
    permission: &'static str,
    is_used_by: fn(&T) -> bool,
}

/// What members with older programs would ignore of a table, and drop with their next change of it.
const ADDITIONS: &[Addition<Table>] = &[
    Addition {
        level: INDEXES,
        permission: "Indexes can be created",
        is_used_by: |table| !table.indexes.is_empty(),
    },
    Addition {
        level: CASSANDRA_5_SCHEMAS,
        permission: "Constraints of columns can be declared",
        is_used_by: |table| !table.constraints.is_empty(),
    },
    Addition {
        level: CASSANDRA_5_SCHEMAS,
        permission: "Columns can be masked",
        is_used_by: |table| !table.masks.is_empty(),
    },
    Addition {
        level: CASSANDRA_5_SCHEMAS,
        permission: "SnappyCompressor and DeflateCompressor can be used",
        is_used_by: |table| {
            matches!(table.options.compression.compressor, Compressor::Snappy | Compressor::Deflate)
        },
    },
    Addition {
        level: REPAIRS,
        permission: "tombstone_gc can be set",
        is_used_by: |table| table.options.set_tombstone_gc.is_some(),
    },
    Addition {
        level: CASSANDRA_5_SCHEMAS,
        permission: "Tables can have COMPACT STORAGE",
        is_used_by: |table| table.compact.is_some(),
    },
    Addition {
        level: CASSANDRA_5_SCHEMAS,
        permission: "Indexes on vectors can be created",
        is_used_by: Table::has_vector_indexes,
    },
    Addition {
        level: CASSANDRA_5_SCHEMAS,
        permission: "memtable_flush_period_in_ms can be set",
        is_used_by: |table| table.options.memtable_flush_period_in_ms != 0,
    },
    Addition {
        level: RATE_LIMITS,
        permission: "per_partition_rate_limit and rate_limit can be set",
        is_used_by: |table| table.options.has_rate_limit(),
    },
    Addition { level: CAPS, permission: "cap can be set", is_used_by: |table| table.options.cap.is_some() },
    Addition {
        level: RECEIPTS,
        permission: "max_charge can be set",
        is_used_by: |table| table.options.max_charge.is_some(),
    },
    Addition {
        level: ENCRYPTED_TABLES,
        permission: "encryption can be set",
        is_used_by: |table| table.options.is_encrypted,
    },
    Addition {
        level: CHANGE_FEEDS,
        permission: "cdc can be set",
        is_used_by: |table| table.options.cdc.is_some() || (table.options.is_feed_log && !table.is_hidden()),
    },
    Addition {
        level: SECURITY,
        permission: "Materialized views and projections can be created",
        is_used_by: |table| table.view.is_some() || table.is_hidden(),
    },
];

/// The same for what a keyspace has beside tables.
const KEYSPACE_ADDITIONS: &[Addition<Keyspace>] = &[Addition {
    level: CASSANDRA_5_SCHEMAS,
    permission: "User-defined functions can be created",
    is_used_by: |keyspace| !keyspace.user_functions.is_empty(),
}];

impl<T> Addition<T> {
    /// Refuses those that something uses, and that the level does not have.
    fn check_all(additions: &[Self], level: u16, of: &T) -> Result<()> {
        let missing = additions.iter().find(|addition| level < addition.level && (addition.is_used_by)(of));
        match missing {
            None => Ok(()),
            Some(Addition { level: needed, permission, .. }) => Err(RequestError::invalid(format!(
                "{permission} when all members support that (feature level {needed}; it is {level})"
            ))),
        }
    }
}

/// Refuses the [`ADDITIONS`] in tables and keyspaces that are changed while a member does not know them.
fn check_understood(before: &Catalog, after: &Catalog, level: u16) -> Result<()> {
    if level >= FEATURE_VERSION {
        return Ok(());
    }
    for keyspace in after.keyspaces.values() {
        let known = before.keyspace(&keyspace.name).map(AsRef::as_ref);
        let changed =
            Keyspace::table_differences(known, Some(keyspace)).into_iter().filter_map(|(_, table)| table);
        for table in changed {
            Addition::check_all(ADDITIONS, level, &**table)?;
        }
        if known.map(|known| &known.user_functions) != Some(&keyspace.user_functions) {
            Addition::check_all(KEYSPACE_ADDITIONS, level, &**keyspace)?;
        }
    }
    Ok(())
}

/// Puts a change into the metadata log. `creator`: the role that gets all permissions on what it makes. `plan` makes it from a catalog, and is called again when another change came first. `check`
/// refuses it, or returns warnings. `None`: there is nothing to change.
async fn agree(
    context: &Rc<ShardContext>,
    creator: Option<String>,
    plan: impl Fn(&Catalog) -> Result<Option<Change>>,
    check: impl Fn(&Change) -> Result<Vec<String>>,
) -> Result<Option<Agreed>> {
    wait_for_cleanup(context, &plan).await?;
    // One at a time: concurrent changes of this node would only have to be planned again.
    let turn = context.layers.get::<SchemaLock>().0.lock().await;
    for attempt in 0..PLANS_MAX {
        let catalog = context.catalog();
        let planned = plan(&catalog).and_then(|change| {
            change.map(|change| followed(&catalog, change, &ddl_context(context))).transpose()
        });
        let has_effect =
            |change: &Option<Change>| change.as_ref().is_some_and(|change| change.effect.is_some());
        if attempt == 0 && !planned.as_ref().is_ok_and(has_effect) {
            // Nothing will be proposed, so the log cannot confirm that this is the newest catalog. Without a leader
            // it is as new as any.
            let _ = cluster::catch_up_with_leader(context, CATCH_UP_DEADLINE).await;
            if context.catalog().version != catalog.version {
                continue;
            }
        }
        let Some(change) = planned? else { return Ok(None) };
        let warnings = check(&change)?;
        let Some(effect) = change.effect else { return Ok(None) };
        let level = context.cluster_view().topology.feature_level;
        check_understood(&catalog, &change.catalog, level)?;
        // Options that the engine would refuse must not enter the log.
        tables_to_prepare(&catalog, &change.catalog, &FileHandling::default())?;
        drops::rehearse(context, &catalog, &change.catalog).await.map_err(|error| {
            RequestError::Server(format!(
                "nothing was dropped, because a snapshot cannot be taken before (setting auto_snapshot): {error}"
            ))
        })?;
        let gets_replicas = |(_, change): &(String, ReplicationChange)| {
            change.after.replica_count() > change.before.replica_count()
        };
        let more_replicas = ReplicationChange::between(&catalog, &change.catalog).iter().any(gets_replicas);
        let unaided = (more_replicas && level < REPLICATION_CHANGES).then(|| MORE_REPLICAS.to_owned());
        let first_streams_ms = first_streams_ms(context, &catalog, &change.catalog);
        let is_delta = level >= SCHEMA_DELTAS;
        let changes = if is_delta { CatalogDocument::delta } else { CatalogDocument::difference };
        let command = if is_delta { Command::ChangeTables } else { Command::ChangeSchema };
        let command = command(SchemaChangeCommand {
            base: catalog.version,
            changed: changes(&catalog, &change.catalog),
            dropped: dropped_keyspaces(&catalog, &change.catalog),
            event: effect.clone(),
            creator: created_by(creator.as_deref(), &effect, &change.catalog, level),
            first_streams_ms,
        });
        match cluster::propose(context, command, PROPOSE_DEADLINE).await? {
            metadata::CommandOutcome::Applied { version } => {
                drop(turn);
                let by = cluster::wait_applied_everywhere(context, version, AGREEMENT_PATIENCE).await;
                cluster::announce_agreed(context, version, change.catalog.version, &by.behind).await;
                let warnings = [change.warnings, warnings, unaided.into_iter().collect()].concat();
                return Ok(Some(Agreed { effect, warnings }));
            }
            metadata::CommandOutcome::Conflict { .. } => {
                // Changes that compete with those of other members would otherwise meet again.
                let pause_ms = context.random.borrow_mut().below(CONFLICT_PAUSE_MS_MAX);
                context.clock.sleep(Duration::from_millis(pause_ms)).await;
            }
            metadata::CommandOutcome::Busy { .. } => {}
            metadata::CommandOutcome::Refused(
                refusal @ (metadata::Refusal::ReplicationInTransition { .. }
                | metadata::Refusal::CleanupDue { .. }
                | metadata::Refusal::PlainMember { .. }),
            ) => {
                return Err(RequestError::Configuration(refusal.to_string()));
            }
            metadata::CommandOutcome::Refused(refusal) => {
                return Err(RequestError::Server(refusal.to_string()));
            }
        }
    }
    Err(RequestError::Server(format!(
        "the schema was changed by others {PLANS_MAX} times while this change was under way"
    )))
}

/// The time of the first streams of change feeds, if a change turns on the first feed, or makes the first log of views.
fn first_streams_ms(context: &ShardContext, before: &Catalog, after: &Catalog) -> Option<i64> {
    let has_feed = || {
        after.keyspaces.iter().any(|(name, keyspace)| {
            let known = before.keyspace(name).map(AsRef::as_ref);
            let differences = Keyspace::table_differences(known, Some(keyspace));
            differences.into_iter().any(|(_, table)| {
                table.is_some_and(|table| table.options.feed().is_some() || table.is_view_log())
            })
        })
    };
    let is_first = context.cluster_view().topology.change_feed.is_empty() && has_feed();
    is_first.then(|| context.clock.now_micros() / 1_000)
}

/// Who gets all permissions on what a change has made. Members that do not know roles could not apply it.
fn created_by(
    creator: Option<&str>,
    effect: &SchemaChangeEvent,
    after: &Catalog,
    level: u16,
) -> Option<Creator> {
    let created = created_resources(effect, after);
    let role = creator.filter(|_| level >= SECURITY && !created.is_empty())?;
    Some(Creator { role: role.to_owned(), created })
}

/// Where changes of replication are no transitions yet: waits a while for members that would gain ranges by a change, and still have old data of ranges: where there is little data it is soon
/// removed. The log decides in the end.
async fn wait_for_cleanup(
    context: &Rc<ShardContext>,
    plan: impl Fn(&Catalog) -> Result<Option<Change>>,
) -> Result<()> {
    let end = context.clock.monotonic() + CLEANUP_PATIENCE;
    while context.clock.monotonic() < end {
        let state = MetadataLog::of(context)?.state();
        let is_due = |change: Change| {
            let changes = ReplicationChange::between(&state.catalog, &change.catalog);
            !state.cleanup_due_by(changes.iter().map(|(_, change)| change)).is_empty()
        };
        // Later the log waits by itself.
        let decides_at_once = state.topology.feature_level < REPLICATION_CHANGES;
        // What cannot be planned is reported by who plans it in earnest.
        if !decides_at_once
            || state.uncleaned().is_empty()
            || !plan(&state.catalog).ok().flatten().is_some_and(is_due)
        {
            return Ok(());
        }
        context.clock.sleep(CLEANUP_PAUSE).await;
    }
    Ok(())
}

/// The addresses of the replicas of each range of a keyspace, keyed by the end of the range.
fn range_ownership(context: &ShardContext, keyspace: Option<&str>) -> BTreeMap<String, Vec<String>> {
    let view = context.cluster_view();
    let Some(placement) = keyspace.and_then(|keyspace| view.placement(keyspace)) else {
        return BTreeMap::new();
    };
    placement
        .ranges()
        .map(|(range, replicas)| {
            let addresses = replicas.read.iter().map(|member| format!("/{}", member.internode_address));
            (range.end.to_string(), addresses.collect())
        })
        .collect()
}

/// Executes DESCRIBE.
pub fn describe(
    context: &ShardContext,
    statement: &ast::Describe,
    keyspace: Option<&str>,
    _options: &RequestOptions,
) -> Result<Outcome> {
    let ownership = range_ownership(context, keyspace);
    let summary = ClusterSummary {
        name: &context.node.config.cluster_name,
        partitioner: "Murmur3Partitioner",
        snitch: SNITCH,
        range_ownership: &ownership,
    };
    let description = describe_catalog(&context.catalog(), keyspace, summary, statement)?;
    let mut page = ResultPage { row_count: description.rows.len(), ..ResultPage::default() };
    for row in &description.rows {
        for (value, (_, column_type)) in row.iter().zip(&description.columns) {
            codec::write_element(&value.encode(column_type), &mut page.rows);
        }
    }
    let columns = description
        .columns
        .into_iter()
        .map(|(name, column_type)| ResultColumn { name: name.to_owned(), column_type })
        .collect();
    Ok(Outcome::OwnRows { keyspace: "system".to_owned(), table: "describe".to_owned(), columns, page })
}

#[cfg(test)]
mod tests {
    use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, catalog_of, changed, with_view};

    use super::*;

    #[test]
    fn what_older_members_do_not_understand_waits_for_their_upgrade() {
        let before = catalog_of(&[CREATE_KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, v int)"]);
        let refusal = |statement: &str, level: u16| {
            let after = changed(&before, 100, statement);
            check_understood(&before.catalog, &after.catalog, level).err().map(|error| error.to_string())
        };
        let index = "CREATE INDEX ON t (v)";
        let expected = "Indexes can be created when all members support that (feature level 13; it is 12)";
        assert_eq!(refusal(index, INDEXES - 1).as_deref(), Some(expected));
        assert_eq!(refusal(index, INDEXES), None);
        let vectors =
            catalog_of(&[CREATE_KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY, v vector<float, 2>)"]);
        let indexed = changed(&vectors, 100, "CREATE INDEX ON t (v) USING 'sai'");
        let check = |level| check_understood(&vectors.catalog, &indexed.catalog, level);
        assert!(check(CASSANDRA_5_SCHEMAS - 1).is_err());
        assert!(check(CASSANDRA_5_SCHEMAS).is_ok());
        let option = "ALTER TABLE t WITH tombstone_gc = {'mode': 'timeout'}";
        assert!(refusal(option, REPAIRS - 1).is_some());
        assert_eq!(refusal(option, REPAIRS), None);
        let period = "ALTER TABLE t WITH memtable_flush_period_in_ms = 100";
        assert!(refusal(period, CASSANDRA_5_SCHEMAS - 1).is_some());
        assert_eq!(refusal(period, CASSANDRA_5_SCHEMAS), None);
        assert_eq!(refusal("ALTER TABLE t WITH memtable_flush_period_in_ms = 0", 1), None);
        for option in ["per_partition_rate_limit", "rate_limit"] {
            let limit = format!("ALTER TABLE t WITH {option} = {{'max_reads_per_second': 5}}");
            assert!(refusal(&limit, RATE_LIMITS - 1).is_some());
            assert_eq!(refusal(&limit, RATE_LIMITS), None);
            assert_eq!(refusal(&format!("ALTER TABLE t WITH {option} = {{}}"), 1), None);
        }
        let capped = "CREATE TABLE f (k int, c int, PRIMARY KEY (k, c)) WITH cap = 5";
        assert!(refusal(capped, CAPS - 1).is_some());
        assert_eq!(refusal(capped, CAPS), None);
        assert!(refusal("ALTER TABLE t WITH max_charge = 5", RECEIPTS - 1).is_some());
        assert_eq!(refusal("ALTER TABLE t WITH max_charge = 5", RECEIPTS), None);
        assert_eq!(refusal("ALTER TABLE t WITH max_charge = 0", 1), None);
        let compact = "CREATE TABLE c (k int PRIMARY KEY, v int) WITH COMPACT STORAGE";
        assert!(refusal(compact, CASSANDRA_5_SCHEMAS - 1).is_some());
        assert_eq!(refusal(compact, CASSANDRA_5_SCHEMAS), None);
        for compressor in ["SnappyCompressor", "DeflateCompressor"] {
            let option = format!("ALTER TABLE t WITH compression = {{'class': '{compressor}'}}");
            assert!(refusal(&option, CASSANDRA_5_SCHEMAS - 1).is_some());
            assert_eq!(refusal(&option, CASSANDRA_5_SCHEMAS), None);
        }
        for rule in ["CHECK v > 5", "MASKED WITH DEFAULT"] {
            let alter = format!("ALTER TABLE t ALTER v {rule}");
            assert!(refusal(&alter, CASSANDRA_5_SCHEMAS - 1).is_some());
            assert_eq!(refusal(&alter, CASSANDRA_5_SCHEMAS), None);
        }
        assert!(refusal("ALTER TABLE t WITH cdc = true", CHANGE_FEEDS - 1).is_some());
        assert_eq!(refusal("ALTER TABLE t WITH cdc = true", CHANGE_FEEDS), None);
        assert_eq!(refusal("ALTER TABLE t WITH cdc = false", 1), None);
        assert_eq!(refusal("ALTER TABLE t ADD w int", 1), None);
        let tables = ["CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE w (k int PRIMARY KEY)"];
        let plain = catalog_of(&[&[CREATE_KEYSPACE], &tables[..]].concat());
        let create = "CREATE MATERIALIZED VIEW w AS SELECT * FROM t WHERE k IS NOT NULL PRIMARY KEY (k)";
        let viewed = with_view(&plain, create);
        let check = |level| check_understood(&plain.catalog, &viewed.catalog, level);
        assert!(check(SECURITY - 1).is_err());
        assert!(check(SECURITY).is_ok());
        let function =
            "CREATE FUNCTION f (a int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return a'";
        assert!(refusal(function, CASSANDRA_5_SCHEMAS - 1).is_some());
        assert_eq!(refusal(function, CASSANDRA_5_SCHEMAS), None);
    }
}
