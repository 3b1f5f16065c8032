//! How a SELECT would be executed.

use std::rc::Rc;
use std::sync::Arc;

use helenus_engine::shard::SearchWorth;
use helenus_observe::receipt::{Count, Receipt};
use helenus_query::error::Result;
use helenus_query::plan::restrictions::PartitionRestriction;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::keys::partition_keys;
use helenus_query::schema::catalog::{Table, TableKind};
use helenus_query::schema::index::Index;
use helenus_query::schema::index_terms;
use helenus_query::statement::Prepared;

use super::statistics::Expected;
use super::steps::{Explained, FAN_OUT_MAX, Steps, add_replicas, counted, level, replica_count};
use crate::coordinator::prepared_read::PreparedRead;
use crate::coordinator::replica::read::level_demand;
use crate::coordinator::{Request, RequestOptions};
use crate::shard::context::ShardContext;

/// How the rows are found.
enum Access {
    /// The partitions, and the rows or ranges of rows in them, are named.
    Keys { tokens: Vec<i64>, ranges: usize, names_rows: bool },
    /// All partitions, or those of a range of tokens, are read.
    Scan { ranges: usize },
    /// Indexes find the rows.
    Index { names: Vec<String> },
}

/// Adds the steps of a SELECT.
pub async fn explain(
    context: &Rc<ShardContext>,
    explained: &Explained<'_>,
    statement: &Arc<Prepared<SelectPlan>>,
    steps: &mut Steps,
) -> Result<()> {
    let expected = Expected::of(context, &statement.plan.table).await?;
    let values = explained.values.borrow();
    // The rows of all pages.
    let options = RequestOptions { page_rows: None, paging_state: None, ..explained.options.clone() };
    let request = Request { statement, values: &values, options: &options, call: explained.call };
    let plan = request.plan();
    let prepared = PreparedRead::new(context, &request)?;
    let wanted = prepared.run(&request)?.wanted_result_rows();
    let limit = (wanted != usize::MAX).then(|| wanted.saturating_sub(1) as u64);
    let access = access(context, plan, &request, &prepared)?;
    let counts = expected_counts(context, explained, plan, &access, &expected, limit);
    let rows = counts.map(|counts| counts.get(Count::RowsRead));
    let consistency = explained.options.consistency;
    let all = replica_count(context, &plan.table);
    let needed = replicas_read(context, explained, &plan.table);
    let charge = counts.map(|counts| counts.charge());
    steps.add_expected("SELECT", plan.table.full_name(), level(consistency, needed, all), rows, charge);
    add_access(context, plan, &access, steps);
    add_work(explained, plan, &expected, limit, rows, steps);
    warn(plan, &access, limit, steps);
    expected.warn(&plan.table, steps);
    Ok(())
}

/// The replicas that each range needs.
fn replicas_read(context: &ShardContext, explained: &Explained<'_>, table: &Table) -> u64 {
    if replica_count(context, table) == 1 {
        return 1;
    }
    let demand = level_demand(context, &table.keyspace, explained.options.consistency);
    demand.map_or(1, |demand| u64::from(demand.required()))
}

fn access(
    context: &ShardContext,
    plan: &SelectPlan,
    request: &Request<'_, SelectPlan>,
    prepared: &PreparedRead,
) -> Result<Access> {
    let ranges = prepared.ranges.len();
    if let Some(index) = &plan.index
        && let Some(search) = index.bind(&plan.table, &request.bindings())?
    {
        let (table, search) = (plan.table.engine_id(), search.by_all());
        // As the execution decides.
        let is_used = match context.shard.judge_search(table, &search)? {
            SearchWorth::Broad => false,
            SearchWorth::Incomplete => !plan.allows_filtering,
            SearchWorth::Narrow => true,
        };
        if is_used {
            let is_searched = |index: &&Arc<Index>| {
                index_terms::id_of(&plan.table, index)
                    .is_some_and(|id| search.restrictions.iter().any(|restriction| restriction.index == id))
            };
            let names = plan.table.indexes.iter().filter(is_searched).map(|index| index.name.clone());
            return Ok(Access::Index { names: names.collect() });
        }
    }
    Ok(match &plan.restrictions.partition {
        PartitionRestriction::Keys(keys) => {
            let keys = partition_keys(keys, &plan.table, &request.bindings())?;
            let tokens = keys.iter().map(|key| key.token).collect();
            Access::Keys { tokens, ranges, names_rows: plan.names_rows() && plan.table.options.cap.is_none() }
        }
        PartitionRestriction::Range(_) => Access::Scan { ranges },
    })
}

/// The counts that a receipt of the whole result is expected to have; `None`: nothing is known of the table.
fn expected_counts(
    context: &ShardContext,
    explained: &Explained<'_>,
    plan: &SelectPlan,
    access: &Access,
    expected: &Expected,
    limit: Option<u64>,
) -> Option<Receipt> {
    let table = &plan.table;
    if table.kind == TableKind::Virtual {
        return None;
    }
    let filters = !plan.restrictions.filters.is_empty();
    let most = limit.filter(|_| !filters && !plan.is_grouped() && plan.result_order.is_empty());
    let up_to = |rows: u64| most.map_or(rows, |most| rows.min(most));
    let (ranges, rows) = match access {
        Access::Keys { ranges, names_rows: true, .. } => (*ranges as u64, up_to(*ranges as u64)),
        Access::Keys { ranges, .. } if table.clustering_key_count == 0 => {
            (*ranges as u64, up_to(*ranges as u64))
        }
        Access::Keys { tokens, ranges, .. } => {
            let of_partition = expected.rows_of_partition()?;
            let of_partition =
                table.options.cap.as_ref().map_or(of_partition, |cap| of_partition.min(cap.rows.into()));
            (*ranges as u64, up_to(of_partition.saturating_mul(tokens.len() as u64)))
        }
        Access::Scan { ranges } => {
            let view = context.cluster_view();
            let parts = view.placement(&table.keyspace).filter(|_| replica_count(context, table) > 1);
            (parts.map_or(*ranges as u64, |parts| parts.ranges().count() as u64), up_to(expected.rows()?))
        }
        // What an index finds is not known before it is asked.
        Access::Index { .. } => return None,
    };
    let mut counts = Receipt::default();
    counts.add(Count::RangesRead, ranges);
    counts.add(Count::RowsRead, rows);
    counts.add(Count::BytesRead, expected.bytes(rows));
    counts.add(Count::ReplicasRead, replicas_read(context, explained, table));
    Some(counts)
}

/// Adds how the rows are found, and where.
fn add_access(context: &ShardContext, plan: &SelectPlan, access: &Access, steps: &mut Steps) {
    let table = &plan.table;
    if table.kind == TableKind::Virtual {
        return steps.add("VIRTUAL", table.full_name(), "rows are computed by the node that is asked");
    }
    if plan.nearest.is_some() {
        steps.add("NEAREST", table.full_name(), "an index of vectors finds the rows that are nearest");
    }
    match access {
        Access::Keys { tokens, ranges, names_rows } => {
            let what = if *names_rows { "row" } else { "range" };
            let partitions = counted(tokens.len(), "partition");
            let detail = format!("{partitions} by key, {} of rows", counted(*ranges, what));
            let detail =
                if *names_rows { format!("{partitions}, {}", counted(*ranges, what)) } else { detail };
            steps.add("KEYS", table.full_name(), detail);
            add_replicas(context, table, tokens.iter().copied(), steps);
        }
        Access::Scan { .. } => {
            let detail = if matches!(&plan.restrictions.partition, PartitionRestriction::Range(range) if range.lower.is_some() || range.upper.is_some())
            {
                "partitions of a range of tokens"
            } else {
                "all partitions"
            };
            steps.add("SCAN", table.full_name(), detail);
            add_spread(context, table, steps);
        }
        Access::Index { names } => {
            steps.add("INDEX", names.join(", "), "the index finds keys, and the rows are read by them");
            if let PartitionRestriction::Range(_) = plan.restrictions.partition {
                add_spread(context, table, steps);
            }
        }
    }
}

/// Adds that all parts of the ring are asked.
fn add_spread(context: &ShardContext, table: &Table, steps: &mut Steps) {
    let view = context.cluster_view();
    match view.placement(&table.keyspace).filter(|_| replica_count(context, table) > 1) {
        None => steps.add("REPLICAS", "", "this node alone"),
        Some(placement) => {
            let members = placement.ownership().len();
            let parts = placement.ranges().count();
            let detail = format!(
                "{} of the ring on {}, up to 16 at a time",
                counted(parts, "part"),
                counted(members, "node")
            );
            steps.add("REPLICAS", "", detail);
        }
    }
}

/// Adds what is done with the rows.
fn add_work(
    explained: &Explained<'_>,
    plan: &SelectPlan,
    expected: &Expected,
    limit: Option<u64>,
    rows: Option<u64>,
    steps: &mut Steps,
) {
    let table = &plan.table;
    if table.kind != TableKind::Virtual {
        let files = counted(usize::try_from(expected.files).unwrap_or(usize::MAX), "file");
        steps.add("SOURCES", table.full_name(), format!("memtables and {files} of this node are merged"));
    }
    if let Some(cap) = &table.options.cap {
        let rows = counted(cap.rows as usize, "row");
        steps.add(
            "CAP",
            table.full_name(),
            format!("each partition is read from its first row on, up to {rows}"),
        );
    }
    if !plan.restrictions.filters.is_empty() {
        let columns = plan.restrictions.filters.iter().flat_map(|filter| filter.subject.columns());
        let mut names: Vec<&str> = columns.map(|column| table.columns[*column].name.as_str()).collect();
        names.dedup();
        steps.add("FILTER", names.join(", "), "rows that were read are compared with the restrictions");
    }
    if !plan.group_by.is_empty() {
        steps.add("GROUP", "", "rows are collected into groups");
    } else if plan.is_grouped() {
        steps.add("AGGREGATE", "", "all rows are collected into one");
    }
    if !plan.result_order.is_empty() {
        steps.add("SORT", "", "all rows of the result are sorted in memory");
    }
    if let Some(limit) = limit {
        steps.add("LIMIT", "", counted(usize::try_from(limit).unwrap_or(usize::MAX), "row"));
    }
    let detail = match (explained.options.page_rows, rows) {
        (None, _) => "one answer without pages".to_owned(),
        (Some(size), None) => format!("up to {} a page", counted(size, "row")),
        (Some(size), Some(rows)) => {
            let pages = rows.div_ceil(size.max(1) as u64).max(1);
            let pages = counted(usize::try_from(pages).unwrap_or(usize::MAX), "page");
            format!("up to {} a page: {pages} expected", counted(size, "row"))
        }
    };
    steps.add("PAGES", "", detail);
}

fn warn(plan: &SelectPlan, access: &Access, limit: Option<u64>, steps: &mut Steps) {
    let table = &plan.table;
    if table.kind == TableKind::Virtual {
        return;
    }
    let filtered = || {
        let filter = plan.restrictions.filters.first();
        filter.and_then(|filter| filter.subject.columns().first()).map(|column| &table.columns[*column].name)
    };
    match access {
        Access::Keys { tokens, .. } if tokens.len() > FAN_OUT_MAX => steps.warn(
            table.full_name(),
            format!(
                "fan-out: {} partitions in one request wait for the slowest of them; ask for each of them with a request of its own, \
                 several at a time",
                tokens.len()
            ),
        ),
        Access::Keys { names_rows: false, .. }
            if table.clustering_key_count > 0
                && plan.restrictions.clustering.is_empty()
                && limit.is_none()
                && plan.per_partition_limit.is_none()
                && !plan.distinct =>
        {
            let column = table.clustering_key().first().map_or("", |column| column.name.as_str());
            steps.warn(
                table.full_name(),
                format!(
                    "unbounded partition: all rows of a partition are read, however many there are; restrict {column}, or add LIMIT"
                ),
            );
        }
        Access::Scan { .. } if limit.is_none() || !plan.restrictions.filters.is_empty() => {
            let keys: Vec<&str> = table.partition_key().iter().map(|column| column.name.as_str()).collect();
            steps.warn(
                table.full_name(),
                format!(
                    "fan-out: all partitions of the table are read; restrict the partition key ({}), or keep a table whose key is what \
                     is asked for",
                    keys.join(", ")
                ),
            );
        }
        Access::Keys { .. } | Access::Scan { .. } | Access::Index { .. } => {}
    }
    if plan.needs_filtering
        && let Some(column) = filtered()
    {
        steps.warn(
            table.full_name(),
            format!(
                "filter: rows are read that the result does not need; CREATE INDEX ON {} ({column}), or a table with {column} in its key",
                table.full_name()
            ),
        );
    }
}
