//! Compares a view with what it is computed of, and repairs it: `CHECK PROJECTION v [REPAIR]`.
//!
//! 1. When the view is fresh, the base table is read page by page. The row that each unit should have is compared with the row that is in the view.
//! 2. Then the view is read page by page: the unit of each row should have this row.
//! 3. Clients write meanwhile, so what differs is only *suspected*. Suspects are compared again when the view has become fresh, and once more
//!    after [`SETTLING`]. What still differs then, and whose row should have been the same all the time, is at fault.
//! 4. With REPAIR the origins of the rows at fault are written, since a lost origin may be the fault, and the holders of the slices recompute the units. A row counts as repaired when it does not differ any more.
//!
//! A row that the view's cap may have evicted, because it would stand behind the last one of its partition, is not judged.
//!
//! Invariants: nothing but pages and a bounded number of suspects is in memory; the shard does other things between any two reads; the view itself is
//! only written by the holders of its slices.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::types::{CqlType, codec};
use futures::stream::{self, StreamExt, TryStreamExt};
use helenus_execution::coordinator::Outcome;
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::selection::ResultColumn;
use helenus_query::run::select::ResultPage;
use helenus_query::schema::catalog::Table;
use helenus_views::computation::Values;

use crate::internal_statement::{InternalStatement, NextPage};
use crate::live_view::{LEVEL, LiveView, page};
use crate::recompute::wanted;
use crate::state::ViewsState;
use crate::unit::stored_unit;
use crate::{changes, fresh};

/// Units that are compared at the same time.
const COMPARED_AT_A_TIME: usize = 16;
/// Most suspects that are collected before they are compared again.
const SUSPECTS_MAX: usize = 5_000;
/// Longer than a row stays in the view that has expired in the base table.
const SETTLING: Duration = Duration::from_secs(4);
/// How often suspects are compared again. Those that should have another row each time are being written; they are not at fault.
const ROUNDS: usize = 4;
/// How often repaired rows are looked at before they count as not repaired.
const ROUNDS_OF_REPAIR: usize = 3;
/// A view that does not become fresh for so long cannot be checked.
const PATIENCE: Duration = Duration::from_mins(10);

/// Reads and compares the whole view, however long that takes. The answer is one row.
pub async fn check(context: Rc<ShardContext>, view: Arc<Table>, repairs: bool) -> Result<Outcome> {
    let live = ViewsState::of(&context).views(&context).of_table(view.id).cloned();
    let Some(live) = live else {
        return Err(RequestError::invalid(format!("{} is not a view that is kept", view.full_name())));
    };
    let state = ViewsState::of(&context);
    if state.is_checking.replace(true) {
        return Err(RequestError::Overloaded("another CHECK PROJECTION runs on this node".to_owned()));
    }
    let _running = Running(context.clone());
    check_alone(context.clone(), live, view, repairs).await
}

/// A check that runs on a shard. It ends when this is dropped, also where its request is given up.
struct Running(Rc<ShardContext>);

impl Drop for Running {
    fn drop(&mut self) {
        ViewsState::of(&self.0).is_checking.set(false);
    }
}

/// Checks a view while no other check runs on this shard.
async fn check_alone(
    context: Rc<ShardContext>,
    live: Rc<LiveView>,
    view: Arc<Table>,
    repairs: bool,
) -> Result<Outcome> {
    let mut check = Check { context, view: live, repairs, suspects: Vec::new(), found: Found::default() };
    check.wait().await?;
    check.compare_units().await?;
    check.compare_rows().await?;
    check.clear_up().await?;
    let checked_at_ms = check.context.clock.now_micros().div_euclid(1_000);
    tracing::info!(view = view.full_name(), found = ?check.found, repairs, "a view was checked");
    Ok(answer(&view, &check.found, checked_at_ms))
}

/// What was found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Found {
    /// Rows in the view.
    rows: u64,
    /// Units of the base table.
    units: u64,
    missing: u64,
    different: u64,
    orphaned: u64,
    repaired: u64,
}

/// How a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The view has no row of a unit that should have one.
    Missing,
    /// The row has other values than it should have.
    Different,
    /// Nothing gives this row.
    Orphaned,
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    unit: Values,
    /// Of a row that was found in the view; `None`: the row that the unit should have.
    key: Option<Values>,
}

/// What differed when it was compared.
#[derive(Debug, Clone)]
struct Suspect {
    subject: Subject,
    fault: Fault,
    /// What the table of origins should have of the row.
    origin: Values,
    /// The row that the unit should have, as a number; `None`: it changed while it was compared.
    wanted: Option<u64>,
}

struct Check {
    context: Rc<ShardContext>,
    view: Rc<LiveView>,
    repairs: bool,
    suspects: Vec<Suspect>,
    found: Found,
}

impl Check {
    /// Waits until all is in the view that was acknowledged before.
    async fn wait(&self) -> Result<()> {
        let deadline = self.context.clock.monotonic().saturating_add(PATIENCE);
        fresh::wait(&self.context, self.view.table(), i64::MAX, deadline).await
    }

    /// Goes through the base table.
    async fn compare_units(&mut self) -> Result<()> {
        let view = self.view.clone();
        for slice in Slice::all() {
            // Rows of a group are one behind the other.
            let mut last: Option<Values> = None;
            let mut next = None;
            loop {
                let (units, more) = self.page_of(&view.scan_base, slice, next).await?;
                let mut subjects = Vec::new();
                for unit in units {
                    // A partition may have nothing but static columns, which are in no view.
                    if last.as_ref() != Some(&unit) && unit.iter().all(Option::is_some) {
                        subjects.push(Subject { unit: unit.clone(), key: None });
                    }
                    last = Some(unit);
                }
                self.found.units += subjects.len() as u64;
                self.suspect(subjects).await?;
                match more {
                    Some(more) => next = Some(more),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Goes through the view.
    async fn compare_rows(&mut self) -> Result<()> {
        let view = self.view.clone();
        for slice in Slice::all() {
            let mut next = None;
            loop {
                let (keys, more) = self.page_of(&view.scan_view, slice, next).await?;
                self.found.rows += keys.len() as u64;
                let subject =
                    |key: Values| Ok(Subject { unit: view.computation.unit_of(&key)?, key: Some(key) });
                let subjects = keys.into_iter().map(subject).collect::<Result<Vec<_>>>()?;
                self.suspect(subjects).await?;
                match more {
                    Some(more) => next = Some(more),
                    None => break,
                }
            }
        }
        Ok(())
    }

    async fn page_of(
        &self,
        statement: &InternalStatement,
        slice: Slice,
        from: Option<NextPage>,
    ) -> Result<(Vec<Values>, Option<NextPage>)> {
        let (first, last) = slice.tokens();
        let tokens = vec![Some(first.to_be_bytes().to_vec()), Some(last.to_be_bytes().to_vec())];
        if *self.context.node.stopping.borrow() {
            return Err(RequestError::Server("the node stops".to_owned()));
        }
        page(&self.context, statement, &tokens, from).await
    }

    /// Compares, and keeps what differs.
    async fn suspect(&mut self, subjects: Vec<Subject>) -> Result<()> {
        let found = self.compare(subjects).await?;
        self.suspects.extend(found);
        if self.suspects.len() >= SUSPECTS_MAX {
            self.clear_up().await?;
        }
        Ok(())
    }

    /// Those that differ.
    async fn compare(&self, subjects: Vec<Subject>) -> Result<Vec<Suspect>> {
        stream::iter(subjects)
            .map(|subject| self.compare_one(subject))
            .buffer_unordered(COMPARED_AT_A_TIME)
            .try_filter_map(|found| std::future::ready(Ok(found)))
            .try_collect()
            .await
    }

    async fn compare_one(&self, subject: Subject) -> Result<Option<Suspect>> {
        let (context, view) = (&self.context, &self.view);
        let computation = &view.computation;
        let row = wanted(context, view, &subject.unit).await?;
        let wanted_key = row.as_ref().map(|row| computation.key_in(row));
        let fault = match (&subject.key, &row, &wanted_key) {
            (None, Some(row), Some(key)) => match view.row(context, key).await? {
                None if view.may_be_evicted(context, key).await? => return Ok(None),
                None => Fault::Missing,
                Some(present) if is_same(view.table(), &present, row) => return Ok(None),
                Some(_) => Fault::Different,
            },
            // Whether the unit has another row is seen by its row.
            (None, ..) => return Ok(None),
            (Some(key), ..) if wanted_key.as_ref() == Some(key) => return Ok(None),
            (Some(key), ..) if view.row(context, key).await?.is_none() => return Ok(None),
            (Some(_), ..) => Fault::Orphaned,
        };
        // The row was read between two equal states of its unit, or it is not known what it had to be.
        let after = number_of(wanted(context, view, &subject.unit).await?.as_ref());
        let wanted = (after == number_of(row.as_ref())).then_some(after);
        // The table of origins has of a row what its key has; the other values do not matter.
        let Some(key) = subject.key.as_ref().or(wanted_key.as_ref()) else {
            unreachable!("what differs has a row, or should have one")
        };
        let origin = computation.origin_of(key);
        Ok(Some(Suspect { subject, fault, origin, wanted }))
    }

    /// Compares the suspects again, counts what is at fault, and repairs it if that is asked for.
    async fn clear_up(&mut self) -> Result<()> {
        let mut suspects = std::mem::take(&mut self.suspects);
        let mut faults = Vec::new();
        for round in 0..ROUNDS {
            if suspects.is_empty() {
                break;
            }
            if round > 0 {
                self.context.clock.sleep(SETTLING).await;
            }
            self.wait().await?;
            let before: BTreeMap<Subject, Option<u64>> =
                suspects.into_iter().map(|suspect| (suspect.subject, suspect.wanted)).collect();
            let again = self.compare(before.keys().cloned().collect()).await?;
            let is_as_before = |suspect: &Suspect| {
                suspect.wanted.is_some() && before.get(&suspect.subject) == Some(&suspect.wanted)
            };
            let (same, others): (Vec<_>, Vec<_>) =
                again.into_iter().partition(|suspect| round > 0 && is_as_before(suspect));
            faults.extend(same);
            suspects = others;
        }
        for suspect in &faults {
            *match suspect.fault {
                Fault::Missing => &mut self.found.missing,
                Fault::Different => &mut self.found.different,
                Fault::Orphaned => &mut self.found.orphaned,
            } += 1;
        }
        if self.repairs && !faults.is_empty() {
            self.found.repaired += self.repair(faults).await?;
        }
        Ok(())
    }

    /// Has the units of rows at fault recomputed. Returns how many rows do not differ any more.
    async fn repair(&self, faults: Vec<Suspect>) -> Result<u64> {
        let (context, view) = (&self.context, &self.view);
        let base = view.base();
        let log = {
            let view = context.catalog_view();
            view.catalog.keyspace(&base.keyspace).and_then(|keyspace| keyspace.view_log(&base.name)).cloned()
        };
        let Some(log) = log else {
            return Err(RequestError::invalid(format!(
                "{} is not a view that is kept",
                view.table().full_name()
            )));
        };
        for suspect in &faults {
            let origin: Values = suspect.subject.unit.iter().chain(&suspect.origin).cloned().collect();
            view.put_origin.write(context, &origin, LEVEL, None).await?;
        }
        let units = faults.iter().map(|suspect| stored_unit(base, &suspect.subject.unit));
        changes::touch(context, base, &log, &units.collect::<Result<Vec<_>>>()?).await?;
        let count = faults.len();
        let mut left: Vec<Subject> = faults.into_iter().map(|suspect| suspect.subject).collect();
        for _ in 0..ROUNDS_OF_REPAIR {
            self.wait().await?;
            left = self.compare(left).await?.into_iter().map(|suspect| suspect.subject).collect();
            if left.is_empty() {
                break;
            }
        }
        Ok((count - left.len()) as u64)
    }
}

/// A number that tells rows from each other.
fn number_of(row: Option<&Values>) -> u64 {
    let mut hasher = DefaultHasher::new();
    row.hash(&mut hasher);
    hasher.finish()
}

/// Whether a row in the view has the values that it should have. A collection that is not frozen has no elements or is null: both are stored alike.
fn is_same(view: &Table, present: &Values, wanted: &Values) -> bool {
    let of_column = |(place, value): (usize, &Option<Vec<u8>>)| {
        let column_type = view.columns.get(place).map(|column| &column.column_type);
        let is_collection =
            column_type.is_some_and(|column| column.is_collection() && column.is_multi_cell());
        let has_elements = value.as_ref().is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
        if is_collection && !has_elements { None } else { value.clone() }
    };
    present.iter().enumerate().map(of_column).eq(wanted.iter().enumerate().map(of_column))
}

fn answer(view: &Table, found: &Found, checked_at_ms: i64) -> Outcome {
    let counts = [
        ("rows", found.rows),
        ("units", found.units),
        ("missing", found.missing),
        ("different", found.different),
        ("orphaned", found.orphaned),
        ("repaired", found.repaired),
    ];
    let mut page = ResultPage { row_count: 1, ..ResultPage::default() };
    let mut columns = Vec::new();
    let mut put = |name: &str, column_type: CqlType, value: &[u8]| {
        columns.push(ResultColumn { name: name.to_owned(), column_type });
        codec::write_element(value, &mut page.rows);
    };
    put("view", CqlType::Text, view.full_name().as_bytes());
    for (name, count) in counts {
        put(name, CqlType::Bigint, &(count as i64).to_be_bytes());
    }
    put("checked_at", CqlType::Timestamp, &checked_at_ms.to_be_bytes());
    let (keyspace, table) = (view.keyspace.clone(), view.name.clone());
    Outcome::OwnRows { keyspace, table, columns, page }
}
