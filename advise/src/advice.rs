//! The rules: what is advised for each request, and for each table.
//!
//! * A SELECT whose key names its partitions is served. It may still read too much at once, or too many partitions.
//! * Another one is served by a table that is there, by an index, or by a further table. Where the file says how often requests come, the ways
//!   are compared by their charges and by what they add to those of writes. Otherwise an index is advised while it finds few rows in no
//!   particular order, because it keeps one copy of the data; else a further table.
//! * A large partition is divided by what all requests name anyway, or by days.
//! * A collection that grows becomes rows.

use std::collections::BTreeSet;

use cql_lite::syntax::ast;
use helenus_query::plan::Plan;
use helenus_query::plan::modify::{ModifyKind, ModifyPlan, Operation};
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::{Table, TableKind};

use crate::candidate::{self, Candidate, Copied, access_of, named, unfiltered};
use crate::error::AdviseError;
use crate::estimate::{
    self, ASSUMED_ROWS, Access, ELEMENTS_MAX, LARGE_PARTITION_BYTES, LARGE_PARTITION_ROWS, Volume,
};
use crate::need::{Need, keys_named};
use crate::workload::{Request, Workload};

/// Rows of one request above which it should have a limit.
const ROWS_AT_ONCE_MAX: u64 = 5_000;
/// Partitions of one request above which it waits for too many, as for EXPLAIN.
const FAN_OUT_MAX: u64 = 10;
/// Rows that the newest elements of a collection are taken to be, for comparison.
const NEWEST_ROWS: u64 = 10;

/// What an advice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A table that is there serves the request.
    ExistingTable,
    Index,
    /// A second table with the same rows under another key.
    Table,
    /// The table should have another key.
    Key,
    /// Rows in the place of a collection.
    Rows,
    Limit,
    FanOut,
    Scan,
    Transaction,
    ReadBeforeWrite,
    /// The file does not say enough.
    Facts,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::ExistingTable => "existing table",
            Self::Index => "index",
            Self::Table => "table",
            Self::Key => "key",
            Self::Rows => "rows",
            Self::Limit => "limit",
            Self::FanOut => "fan-out",
            Self::Scan => "scan",
            Self::Transaction => "transaction",
            Self::ReadBeforeWrite => "read before write",
            Self::Facts => "facts",
        }
    }
}

/// An advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub kind: Kind,
    /// One of several ways is recommended; what stands alone, too.
    pub is_recommended: bool,
    pub reason: String,
    /// Statements of the schema.
    pub statements: Vec<String>,
    /// The request as it would be.
    pub request: Option<String>,
    /// What the request would be charged.
    pub charge: Option<u64>,
    /// What each write that the further copy follows would be charged more.
    pub writes_more: Option<u64>,
}

impl Advice {
    fn note(kind: Kind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            is_recommended: true,
            reason: reason.into(),
            statements: Vec::new(),
            request: None,
            charge: None,
            writes_more: None,
        }
    }
}

/// A request with its advice.
#[derive(Debug)]
pub struct Advised {
    pub line: usize,
    pub text: String,
    pub requests: Option<u64>,
    /// How rows are found, or the kind of a write.
    pub access: &'static str,
    /// `None`: the file does not say how many rows there are.
    pub charge: Option<u64>,
    /// Empty: nothing is to be done.
    pub advice: Vec<Advice>,
}

/// A table with its advice.
#[derive(Debug)]
pub struct AdvisedTable {
    pub table: String,
    pub advice: Vec<Advice>,
}

/// All advice on a file.
#[derive(Debug)]
pub struct Report {
    pub requests: Vec<Advised>,
    /// Those with advice of their own.
    pub tables: Vec<AdvisedTable>,
}

/// A write of the application.
struct Write {
    plan: ModifyPlan,
    requests: Option<u64>,
}

/// Advises on a file.
pub fn advise(workload: &Workload) -> Result<Report, AdviseError> {
    let mut plans = Vec::with_capacity(workload.requests.len());
    for request in &workload.requests {
        plans.push(match &request.statement {
            // It is planned with what it needs.
            ast::Statement::Select(_) => None,
            statement => {
                let plan = workload.schema.plan(statement.clone());
                Some(plan.map_err(|error| AdviseError::at(request.line, error.to_string()))?)
            }
        });
    }
    let mut writes = Vec::new();
    for (request, plan) in workload.requests.iter().zip(&plans) {
        let statements = match plan {
            Some(Plan::Modify(plan)) => std::slice::from_ref(plan),
            Some(Plan::Batch(batch)) => &batch.statements,
            _ => &[],
        };
        let of_request = |plan: &ModifyPlan| Write { plan: plan.clone(), requests: request.requests };
        writes.extend(statements.iter().map(of_request));
    }
    let advisor = Advisor { workload, writes };
    let mut requests = Vec::with_capacity(plans.len());
    for (request, plan) in workload.requests.iter().zip(&plans) {
        requests.push(match (&request.statement, plan) {
            (ast::Statement::Select(select), _) => advisor.select(request, select)?,
            (_, Some(Plan::Modify(plan))) => advisor.modification(request, plan),
            (_, Some(Plan::Batch(batch))) => {
                let of_first = batch.statements.first();
                let charge = of_first.map(|first| {
                    let replicas = workload.schema.replicas(&first.table);
                    estimate::batch(batch, replicas, advisor.volume(&first.table).row_bytes())
                });
                let mut advised = advised(request, "BATCH", charge);
                if batch.statements.iter().any(|statement| statement.conditions.is_some()) {
                    advised.advice.push(transaction());
                }
                advised
            }
            _ => unreachable!("a workload has reads and writes"),
        });
    }
    Ok(Report { requests, tables: advisor.tables() })
}

fn advised(request: &Request, access: &'static str, charge: Option<u64>) -> Advised {
    let Request { line, text, requests, .. } = request;
    Advised { line: *line, text: text.clone(), requests: *requests, access, charge, advice: Vec::new() }
}

fn transaction() -> Advice {
    Advice::note(Kind::Transaction, "the replicas agree in several rounds; without IF the write takes one")
}

struct Advisor<'w> {
    workload: &'w Workload,
    writes: Vec<Write>,
}

/// A SELECT and what is known of it.
struct Selected<'r> {
    request: &'r Request,
    select: &'r ast::Select,
    need: Need,
    plan: SelectPlan,
    replicas: u64,
    /// What it is charged now, as far as it is known.
    charge: Option<u64>,
}

impl Selected<'_> {
    /// Rows that it finds, where no more are read than that.
    fn found(&self) -> u64 {
        let most = self.need.limit.unwrap_or(u64::MAX);
        self.request.rows.or(self.need.limit).unwrap_or(ASSUMED_ROWS).min(most)
    }
}

impl Advisor<'_> {
    fn volume(&self, table: &Table) -> Volume {
        Volume::new(table, self.workload.facts(table))
    }

    fn select(&self, request: &Request, select: &ast::Select) -> Result<Advised, AdviseError> {
        let schema = &self.workload.schema;
        let (need, plan) =
            Need::of(schema, select).map_err(|error| AdviseError::at(request.line, error.to_string()))?;
        let served = unfiltered(schema, select);
        let replicas = estimate::replicas_read(
            request.consistency,
            schema.replicas(&plan.table),
            schema.local_replicas(&plan.table),
        );
        let access = access_of(&plan);
        let mut selected = Selected { request, select, need, plan, replicas, charge: None };
        selected.charge = self.expected(&selected, access);
        let mut advised = advised(request, access.name(), selected.charge);
        let by_keys = matches!(access, Access::Rows | Access::Partitions);
        let is_decided = served.is_some() && selected.plan.restrictions.filters.is_empty();
        if by_keys && is_decided {
            self.advise_on_size(&selected, access, &mut advised);
        } else {
            self.advise_on_access(&selected, access, served.is_some(), &mut advised);
        }
        Ok(advised)
    }

    /// The charge of a SELECT as it is.
    fn expected(&self, selected: &Selected<'_>, access: Access) -> Option<u64> {
        let Selected { request, select, need, plan, replicas, .. } = selected;
        let volume = self.volume(&plan.table);
        let filters = !plan.restrictions.filters.is_empty();
        let stops_early = !filters && !plan.is_grouped() && plan.result_order.is_empty();
        let most = need.limit.filter(|_| stops_early).unwrap_or(u64::MAX);
        let keys = keys_named(select, &plan.table);
        let facts = self.workload.facts(&plan.table);
        let rows = match access {
            Access::Rows => keys,
            Access::Partitions if select.distinct => keys,
            Access::Partitions if filters => volume.rows_of_partition()?.saturating_mul(keys),
            Access::Partitions => match request.rows {
                Some(rows) => rows,
                None if most != u64::MAX => volume.rows_of_partition().unwrap_or(most).saturating_mul(keys),
                None => volume.rows_of_partition()?.saturating_mul(keys),
            },
            Access::Index => selected.found(),
            Access::Scan if select.distinct => facts.partitions.or(volume.rows())?,
            Access::Scan => volume.rows()?,
        };
        let rows = rows.min(most);
        Some(estimate::read(*replicas, estimate::ranges(access, keys, rows), rows, volume.row_bytes()))
    }

    /// Of a SELECT that is served by its key.
    fn advise_on_size(&self, selected: &Selected<'_>, access: Access, advised: &mut Advised) {
        let Selected { request, select, need, plan, .. } = selected;
        let table = &plan.table;
        let keys = keys_named(select, table);
        if keys > FAN_OUT_MAX {
            let reason = format!(
                "{keys} partitions in one request wait for the slowest of them; ask for each by a request of its own"
            );
            advised.advice.push(Advice::note(Kind::FanOut, reason));
        }
        let is_bounded = need.limit.is_some()
            || select.per_partition_limit.is_some()
            || select.limit.is_some()
            || select.distinct
            || request.rows.is_some();
        if access != Access::Partitions || is_bounded || !plan.restrictions.clustering.is_empty() {
            return;
        }
        match self.volume(table).rows_of_partition() {
            Some(rows) if rows > ROWS_AT_ONCE_MAX => {
                let column = table.clustering_key().first().map_or("", |column| column.name.as_str());
                let reason =
                    format!("all {rows} rows of a partition are read; restrict {column}, or add LIMIT");
                advised.advice.push(Advice::note(Kind::Limit, reason));
            }
            Some(_) => {}
            None => {
                let reason = format!(
                    "say how large partitions of {} are: `-- rows: …, partitions: …` above its CREATE TABLE",
                    named(table)
                );
                advised.advice.push(Advice::note(Kind::Facts, reason));
            }
        }
    }

    /// Of a SELECT that filters, scans or uses an index.
    fn advise_on_access(
        &self,
        selected: &Selected<'_>,
        access: Access,
        is_taken: bool,
        advised: &mut Advised,
    ) {
        let Selected { select, need, plan, .. } = selected;
        let (schema, table) = (&self.workload.schema, &plan.table);
        let mut ways = Vec::new();
        if let Some(candidate) = candidate::existing(schema, select, need, table) {
            ways.push(self.existing(selected, candidate));
        }
        let is_indexed = access == Access::Index && is_taken;
        if !is_indexed && let Some(candidate) = candidate::indexes(schema, select, need, table) {
            ways.push(self.index(selected, candidate));
        }
        if let Some(candidate) = candidate::table(schema, select, need, table) {
            ways.push(self.second_table(selected, candidate));
        }
        if is_indexed {
            // It stays unless the requests of the file say that another way is cheaper.
            if let Some(best) = self.cheapest(selected, &ways)
                && self.total(selected, selected.charge, &Copied::default()).is_some_and(|now| best.1 < now)
            {
                advised.advice.push(ways.swap_remove(best.0).advice);
            }
            return;
        }
        let chosen = match self.cheapest(selected, &ways) {
            Some((chosen, _)) => Some(chosen),
            None => Self::usual(selected, &ways),
        };
        if let Some(chosen) = chosen {
            for (number, way) in ways.iter_mut().enumerate() {
                way.advice.is_recommended = number == chosen;
            }
            ways.sort_by_key(|way| !way.advice.is_recommended);
        } else {
            let keys: Vec<&str> = table.partition_key().iter().map(|column| column.name.as_str()).collect();
            let reason = format!(
                "all partitions are read; restrict the partition key ({}), or keep a second table that lists in one partition what is wanted",
                keys.join(", ")
            );
            advised.advice.push(Advice::note(Kind::Scan, reason));
        }
        advised.advice.extend(ways.into_iter().map(|way| way.advice));
    }

    fn existing(&self, selected: &Selected<'_>, candidate: Candidate) -> Way {
        let bytes = self.volume(&candidate.table).row_bytes();
        let reason = format!(
            "{} has these columns under the right key, if it holds the same rows",
            named(&candidate.table)
        );
        Way {
            advice: Advice {
                request: Some(candidate.select),
                charge: Some(estimate::read(selected.replicas, 1, selected.found(), bytes)),
                ..Advice::note(Kind::ExistingTable, reason)
            },
            copied: Copied::default(),
        }
    }

    fn index(&self, selected: &Selected<'_>, candidate: Candidate) -> Way {
        let (found, bytes) = (selected.found(), self.volume(&selected.plan.table).row_bytes());
        let reason = format!(
            "one copy of the data stays; each of {found} rows{} is read by its key, and all parts of the ring are asked",
            if selected.request.rows.is_some() { "" } else { " (taken for granted: say `-- rows: …`)" }
        );
        Way {
            advice: Advice {
                statements: candidate.statements,
                request: Some(candidate.select),
                charge: Some(estimate::read(selected.replicas, found, found, bytes)),
                ..Advice::note(Kind::Index, reason)
            },
            copied: Copied::default(),
        }
    }

    fn second_table(&self, selected: &Selected<'_>, candidate: Candidate) -> Way {
        let table = &selected.plan.table;
        let (found, bytes) = (selected.found(), self.volume(table).row_bytes());
        let writes: Vec<&Write> = self.writes_of(table, &candidate.copied.columns).collect();
        let mut reason = format!(
            "keep a second table: the rows of a request lie together, in its order; the application writes it with {} ({} of the file)",
            named(table),
            if writes.len() == 1 { "1 statement".to_owned() } else { format!("{} statements", writes.len()) }
        );
        if writes.iter().any(|write| moves_rows(write, &candidate.copied)) {
            let keys = candidate.copied.keys.iter().map(|column| table.columns[*column].name.as_str());
            let keys = keys.collect::<Vec<_>>().join(", ");
            reason = format!(
                "{reason}; a write that changes {keys} has to read the row and delete it there first"
            );
        }
        if writes.iter().any(|write| self.rows_followed(write, &candidate.copied) != Some(1)) {
            reason += "; a write of static columns changes all rows of its partition there";
        }
        // Of the dearest of them.
        let of_writes = writes.iter().map(|write| self.write_more(write, &candidate.copied));
        let plain = estimate::write(self.workload.schema.replicas(table), bytes);
        let writes_more = of_writes
            .chain([Some(plain)])
            .collect::<Option<Vec<u64>>>()
            .and_then(|all| all.into_iter().max());
        Way {
            advice: Advice {
                statements: candidate.statements,
                request: Some(candidate.select),
                charge: Some(estimate::read(selected.replicas, 1, found, bytes)),
                writes_more,
                ..Advice::note(Kind::Table, reason)
            },
            copied: candidate.copied,
        }
    }

    /// The writes that a copy of columns of a table has to follow.
    fn writes_of(&self, table: &Table, copied: &BTreeSet<usize>) -> impl Iterator<Item = &Write> {
        let values: BTreeSet<usize> =
            copied.iter().copied().filter(|column| !table.columns[*column].is_primary_key()).collect();
        let (keyspace, name, copied) = (table.keyspace.clone(), table.name.clone(), copied.clone());
        self.writes.iter().filter(move |write| {
            let of_table = write.plan.table.keyspace == keyspace && write.plan.table.name == name;
            of_table
                && match write.plan.written_columns() {
                    None => true,
                    Some(written) if values.is_empty() => !written.is_disjoint(&copied),
                    Some(written) => !written.is_disjoint(&values),
                }
        })
    }

    /// What the requests and the writes that follow are charged together. `None`: the file does not say how often they come.
    fn total(&self, selected: &Selected<'_>, charge: Option<u64>, copied: &Copied) -> Option<u64> {
        let mut total = selected.request.requests?.saturating_mul(charge?);
        if !copied.columns.is_empty() {
            for write in self.writes_of(&selected.plan.table, &copied.columns) {
                total = total.saturating_add(write.requests?.saturating_mul(self.write_more(write, copied)?));
            }
        }
        Some(total)
    }

    /// Rows of a copy that a write changes. `None`: the file does not say how many a partition has.
    fn rows_followed(&self, write: &Write, copied: &Copied) -> Option<u64> {
        let table = &write.plan.table;
        let is_static =
            |column: &usize| table.columns[*column].is_static() && copied.columns.contains(column);
        let of_partition = !copied.is_of_partitions
            && write.plan.written_columns().is_some_and(|written| written.iter().any(is_static));
        if of_partition { self.volume(table).rows_of_partition() } else { Some(1) }
    }

    /// What a write is charged more for a copy that it has to follow.
    fn write_more(&self, write: &Write, copied: &Copied) -> Option<u64> {
        let table = &write.plan.table;
        let (replicas, bytes) = (self.workload.schema.replicas(table), self.volume(table).row_bytes());
        let mut more = 0_u64;
        let is_deletion = write.plan.written_columns().is_none();
        if !is_deletion {
            more = estimate::write(replicas, bytes);
        }
        if moves_rows(write, copied) {
            more = more.saturating_add(estimate::read(1, 1, 1, bytes));
        }
        if is_deletion || moves_rows(write, copied) {
            more = more.saturating_add(estimate::write(replicas, 1));
        }
        Some(more.saturating_mul(self.rows_followed(write, copied)?))
    }

    /// The cheapest way with its total. `None`: that is not known.
    fn cheapest(&self, selected: &Selected<'_>, ways: &[Way]) -> Option<(usize, u64)> {
        let mut cheapest: Option<(usize, u64)> = None;
        for (number, way) in ways.iter().enumerate() {
            let total = self.total(selected, way.advice.charge, &way.copied)?;
            if cheapest.is_none_or(|(_, least)| total < least) {
                cheapest = Some((number, total));
            }
        }
        cheapest
    }

    /// The way that is taken where nothing is known of the numbers of requests.
    fn usual(selected: &Selected<'_>, ways: &[Way]) -> Option<usize> {
        let of = |kind: Kind| ways.iter().position(|way| way.advice.kind == kind);
        let is_small = selected.found() <= ASSUMED_ROWS;
        of(Kind::ExistingTable)
            .or_else(|| of(Kind::Index).filter(|_| is_small))
            .or_else(|| of(Kind::Table))
            .or_else(|| of(Kind::Index))
    }

    fn modification(&self, request: &Request, plan: &ModifyPlan) -> Advised {
        let table = &plan.table;
        let replicas = self.workload.schema.replicas(table);
        let charge = estimate::modification(plan, replicas, self.volume(table).row_bytes());
        let mut advised = advised(request, "WRITE", Some(charge));
        if plan.conditions.is_some() {
            advised.advice.push(transaction());
        } else if plan.needs_read() {
            let reason = "elements of a list are found by their place or value; a set or map needs no read";
            advised.advice.push(Advice::note(Kind::ReadBeforeWrite, reason));
        }
        advised
    }

    /// The SELECTs that name partitions of a table.
    fn selects_by_key(&self, table: &Table) -> Vec<&ast::Select> {
        let selects = self.workload.requests.iter().filter_map(|request| match &request.statement {
            ast::Statement::Select(select) => Some(select),
            _ => None,
        });
        selects
            .filter(|select| {
                self.workload.schema.table(&select.from).is_some_and(|asked| asked.id == table.id)
                    && unfiltered(&self.workload.schema, select)
                        .is_some_and(|plan| matches!(access_of(&plan), Access::Rows | Access::Partitions))
            })
            .collect()
    }

    fn tables(&self) -> Vec<AdvisedTable> {
        let tables = self.workload.facts.keys().filter_map(|(keyspace, name)| {
            self.workload.schema.tables(keyspace).find(|table| table.name == *name)
        });
        let advised = tables.filter(|table| table.kind == TableKind::Stored).map(|table| AdvisedTable {
            table: named(table),
            advice: self.key(table).into_iter().chain(self.collections(table)).collect(),
        });
        advised.filter(|advised| !advised.advice.is_empty()).collect()
    }

    /// Another key for a table whose partitions are large.
    fn key(&self, table: &Table) -> Option<Advice> {
        let volume = self.volume(table);
        let (rows, bytes) = (volume.rows_of_partition()?, volume.partition_bytes()?);
        if table.clustering_key_count == 0 || (rows <= LARGE_PARTITION_ROWS && bytes <= LARGE_PARTITION_BYTES)
        {
            return None;
        }
        let size = format!("a partition has {rows} rows and {} MiB", bytes.div_ceil(1 << 20));
        let selects = self.selects_by_key(table);
        // The last clustering column stays: it is the order of the rows.
        let most = table.clustering_key_count - 1;
        let named_by_all = |column: usize| {
            let name = table.columns[column].name.as_str();
            !selects.is_empty()
                && selects.iter().all(|select| {
                    Need::of(&self.workload.schema, select).is_ok_and(|(need, plan)| {
                        need.equal.iter().any(|known| plan.table.columns[*known].name == name)
                    })
                })
        };
        let first = table.partition_key_count;
        let moved = (0..most).take_while(|position| named_by_all(first + position)).count();
        let definition = candidate::with_narrower_key(&self.workload.schema, table, moved, &selects);
        let statements: Vec<String> = definition.into_iter().collect();
        let reason = if moved > 0 {
            let columns = table.clustering_key().iter().take(moved).map(|column| column.name.as_str());
            let columns = columns.collect::<Vec<_>>().join(", ");
            format!("{size}; every request names {columns}: make them a part of the partition key")
        } else {
            format!(
                "{size}; add a column to the partition key that requests can name, for example the day of the row"
            )
        };
        Some(Advice { statements, ..Advice::note(Kind::Key, reason) })
    }

    /// Rows in the place of collections that grow.
    fn collections(&self, table: &Table) -> Vec<Advice> {
        let elements = self.workload.facts(table).elements;
        let mut advice = Vec::new();
        for (index, column) in table.columns.iter().enumerate() {
            if !column.column_type.is_multi_cell() {
                continue;
            }
            let grows = self.writes.iter().any(|write| {
                write.plan.table.id == table.id
                    && write.plan.operations.iter().any(|change| {
                        let adds = matches!(
                            change.operation,
                            Operation::Add(_) | Operation::Prepend(_) | Operation::SetElement { .. }
                        );
                        change.column == index && adds
                    })
            });
            match elements {
                _ if !grows => {}
                None => advice.push(Advice::note(
                    Kind::Facts,
                    format!(
                        "{} grows and is read whole; say how many elements it gets: `-- elements: …` above the CREATE TABLE",
                        column.name
                    ),
                )),
                Some(elements) if elements > ELEMENTS_MAX => {
                    let volume = self.volume(table);
                    let whole = estimate::read(1, 1, 1, volume.row_bytes());
                    let newest = estimate::read(1, 1, NEWEST_ROWS, volume.row_bytes().div_ceil(elements));
                    let statements =
                        candidate::rows_of_collection(&self.workload.schema, table, column).into_iter();
                    advice.push(Advice {
                        statements: statements.collect(),
                        charge: Some(newest),
                        ..Advice::note(
                            Kind::Rows,
                            format!(
                                "{} gets {elements} elements, and is read whole (charge {whole} at ONE) for one of them; keep a row for each: {NEWEST_ROWS} of them are charged {newest}",
                                column.name
                            ),
                        )
                    });
                }
                Some(_) => {}
            }
        }
        advice
    }
}

/// A write to rows that are there takes them from one key of a copy to another, or away, so their present key has to be read. An INSERT is taken to
/// make new rows.
fn moves_rows(write: &Write, copied: &Copied) -> bool {
    if write.plan.kind == ModifyKind::Insert || copied.keys.is_empty() {
        return false;
    }
    write.plan.written_columns().is_none_or(|written| !written.is_disjoint(&copied.keys))
}

/// A way to serve a SELECT.
struct Way {
    advice: Advice,
    copied: Copied,
}
