//! Statements of the node itself, by which services of the coordinator read and write tables: as a client's would, with replicas and levels.
//!
//! * The text names its tables with their keyspaces. It is planned when it is first used, and again after each change of the catalog.
//! * It may modify what clients may not: logs, views and what is kept beside them. Nobody's permissions, guardrails and page sizes apply.
//! * What is refused to everybody (partitions of the denylist, rate limits, disks without room) is refused here, too.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::Consistency;
use cql_lite::frame::request::Value;
use cql_lite::types::codec;
use helenus_execution::coordinator::bound_statement::{BoundStatement, Modification};
use helenus_execution::coordinator::transaction::{Transaction, transact};
use helenus_execution::coordinator::{Execution, Outcome, Request, RequestOptions, read, write};
use helenus_execution::shard::context::ShardContext;
use helenus_query::bind::{OwnedBindings, Rewritten, bind};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::TableKind;
use helenus_query::statement::{Prepared, Statement};

/// Rows of a page: what is in memory at a time.
pub const PAGE_ROWS: usize = 1_000;

/// A value in wire encoding; `None` is null.
pub type OwnedValue = Option<Vec<u8>>;

/// Where a page has ended.
#[derive(Debug)]
pub struct NextPage(Vec<u8>);

impl NextPage {
    /// The place as bytes, which another node understands, too.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// A SELECT, INSERT, UPDATE or DELETE of the node itself. It belongs to one shard.
#[derive(Debug)]
pub struct InternalStatement {
    text: String,
    /// The plan of the newest catalog with which it was used.
    planned: RefCell<Option<Statement>>,
}

impl InternalStatement {
    /// All names of tables in the text have their keyspaces.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), planned: RefCell::default() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads all rows of a SELECT, page by page, until `each` breaks. A row has its values in the order of the selected columns.
    pub async fn rows(
        &self,
        context: &Rc<ShardContext>,
        values: &[OwnedValue],
        level: Consistency,
        mut each: impl FnMut(&[Option<&[u8]>]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut next = None;
        loop {
            match self.page(context, values, level, next, &mut each).await? {
                ControlFlow::Continue(Some(more)) => next = Some(more),
                ControlFlow::Continue(None) | ControlFlow::Break(()) => return Ok(()),
            }
        }
    }

    /// Reads a page of a SELECT, and returns what the next one is asked for with; none after the last. `from`: what the page before has returned.
    pub async fn page(
        &self,
        context: &Rc<ShardContext>,
        values: &[OwnedValue],
        level: Consistency,
        from: Option<NextPage>,
        mut each: impl FnMut(&[Option<&[u8]>]) -> Result<ControlFlow<()>>,
    ) -> Result<ControlFlow<(), Option<NextPage>>> {
        let statement = self.statement(context)?;
        let Statement::Select(select) = &statement else { return Err(self.misused("reads no rows")) };
        let columns = select.result_columns.len();
        let rewritten = Rewritten::default();
        let values = bind(&select.markers, &as_received(values), &[], &rewritten)?;
        let mut options = options(level);
        options.page_rows = Some(PAGE_ROWS);
        options.paging_state = from.map(|NextPage(state)| state);
        let call = context.call_context();
        let request = Request { statement: select, values: &values, options: &options, call };
        let page = match completed(read::select(context, &request)).await? {
            Outcome::Rows(page) => page,
            other => return Err(self.misused(&format!("has another outcome than rows: {other:?}"))),
        };
        let read = for_each_row(&page.rows, page.row_count, columns, &mut each)?;
        let next = page.paging_state.map(|state| NextPage(state.encode(select.fingerprint)));
        Ok(read.map_continue(|()| next))
    }

    /// Executes an INSERT, UPDATE or DELETE. One with IF is decided at SERIAL, has the time of its ballot, and its outcome says whether it was
    /// applied ([`was_applied`]). `timestamp_micros`: of a statement without IF and USING TIMESTAMP; `None`: now.
    pub async fn write(
        &self,
        context: &Rc<ShardContext>,
        values: &[OwnedValue],
        level: Consistency,
        timestamp_micros: Option<i64>,
    ) -> Result<Outcome> {
        let modify = self.modification(context)?;
        let rewritten = Rewritten::default();
        let values = bind(&modify.markers, &as_received(values), &[], &rewritten)?;
        let call = context.call_context();
        let mut options = options(level);
        if modify.plan.conditions.is_some() {
            debug_assert!(timestamp_micros.is_none(), "a ballot has its own time");
            options.serial_consistency = Some(Consistency::Serial);
            let modification = Modification::Single(modify.clone());
            let bound = BoundStatement::new(modification, OwnedBindings::new(&values), call)?;
            return transact(context.clone(), Transaction::of_statement(bound, options)).await;
        }
        options.timestamp = timestamp_micros;
        let request = Request { statement: &modify, values: &values, options: &options, call };
        // Warnings are for clients.
        completed(write::modify(context, &request, &mut Vec::new())).await
    }

    /// The mutations of an INSERT, UPDATE or DELETE without IF, for [`write_together`].
    pub fn mutations(
        &self,
        context: &Rc<ShardContext>,
        values: &[OwnedValue],
        level: Consistency,
        timestamp_micros: i64,
    ) -> Result<Vec<PartitionMutation>> {
        let modify = self.modification(context)?;
        let rewritten = Rewritten::default();
        let values = bind(&modify.markers, &as_received(values), &[], &rewritten)?;
        let mut options = options(level);
        options.timestamp = Some(timestamp_micros);
        let call = context.call_context();
        let request = Request { statement: &modify, values: &values, options: &options, call };
        write::prepare(context, &request, &mut Vec::new())
    }

    /// The plan of a statement that modifies stored rows.
    fn modification(&self, context: &ShardContext) -> Result<Arc<Prepared<ModifyPlan>>> {
        let Statement::Modify(modify) = self.statement(context)? else {
            return Err(self.misused("modifies nothing"));
        };
        if modify.plan.table.kind == TableKind::Virtual {
            return Err(self.misused("modifies a virtual table"));
        }
        Ok(modify)
    }

    /// The statement as the present catalog has it.
    fn statement(&self, context: &ShardContext) -> Result<Statement> {
        let view = context.catalog_view();
        let mut planned = self.planned.borrow_mut();
        if let Some(known) = planned.as_ref().filter(|known| known.generation == view.generation) {
            return Ok(known.clone());
        }
        let statement = Statement::of_node(&self.text, &view)?;
        Ok(planned.insert(statement).clone())
    }

    /// The error of a statement that is not what its user takes it for.
    #[cold]
    fn misused(&self, what: &str) -> RequestError {
        debug_assert!(false, "{}: {what}", self.text);
        RequestError::Server(format!("a statement of the node {what}: {}", self.text))
    }
}

/// Writes the mutations of several statements.
pub async fn write_together(
    context: &Rc<ShardContext>,
    mutations: Vec<PartitionMutation>,
    level: Consistency,
) -> Result<()> {
    if mutations.is_empty() {
        return Ok(());
    }
    completed(write::apply_all(context, mutations, &options(level))).await.map(drop)
}

/// Whether a statement with IF was applied. `None`: the outcome is of one without.
pub fn was_applied(outcome: &Outcome) -> Result<Option<bool>> {
    let Outcome::OwnRows { columns, page, .. } = outcome else { return Ok(None) };
    let mut applied = None;
    let _ = for_each_row(&page.rows, page.row_count, columns.len(), &mut |row| {
        applied = row.first().copied().flatten().map(|value| value == [1]);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(applied)
}

fn options(consistency: Consistency) -> RequestOptions {
    RequestOptions {
        consistency,
        serial_consistency: None,
        page_rows: None,
        paging_state: None,
        timestamp: None,
        now_seconds: None,
        deadline: None,
        is_of_client: false,
    }
}

fn as_received(values: &[OwnedValue]) -> Vec<Value<'_>> {
    values.iter().map(|value| value.as_deref().map_or(Value::Null, Value::Bytes)).collect()
}

async fn completed(execution: Execution) -> Result<Outcome> {
    match execution {
        Execution::Ready(outcome) => outcome,
        Execution::Pending(outcome) => outcome.await,
    }
}

/// Decodes the rows of a page.
fn for_each_row(
    rows: &[u8],
    row_count: usize,
    column_count: usize,
    each: &mut impl FnMut(&[Option<&[u8]>]) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    // Rows have the form of tuples, one behind the other.
    let mut values = codec::fields(rows);
    let mut row = Vec::with_capacity(column_count);
    for _ in 0..row_count {
        row.clear();
        for _ in 0..column_count {
            let value = values.next().ok_or_else(|| RequestError::Server("a row ends early".to_owned()))?;
            row.push(value.map_err(|error| RequestError::Server(error.to_string()))?);
        }
        if each(&row)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
