//! A client in memory: executes statements on a shard and decodes the rows.

use std::rc::Rc;

use cql_lite::frame::Consistency;
use helenus_access::{Subject, demands};
use helenus_query::bind::BorrowedValues;
use helenus_query::error::Result;
use helenus_query::statement::Statement;
use helenus_roles::{Alteration, RoleChange};

use crate::cluster;
use crate::session::request;
use helenus_execution::coordinator::{Execution, Outcome, RequestOptions};
use helenus_execution::shard::context::ShardContext;

/// Values in wire encoding; `None` is null.
pub type Row = Vec<Option<Vec<u8>>>;

/// The answer to a statement.
#[derive(Debug, Clone, Default)]
pub struct StatementResponse {
    /// Names of the columns.
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
    /// Paging state of the next page.
    pub next_page: Option<Vec<u8>>,
}

impl StatementResponse {
    /// All rows as numbers; a boolean is 0 or 1.
    pub fn integers(&self) -> Vec<Vec<Option<i64>>> {
        let number = |row: &Row, column: usize| match row[column].as_deref() {
            Some([byte]) => Some(i64::from(*byte)),
            _ => integer(row, column),
        };
        self.rows.iter().map(|row| (0..row.len()).map(|column| number(row, column)).collect()).collect()
    }

    /// Whether a conditional statement was applied: the first column.
    pub fn applied(&self) -> Option<bool> {
        self.rows.first()?.first()?.as_deref().map(|bytes| bytes == [1])
    }
}

/// Options without paging, timestamps and a serial level.
pub fn options(consistency: Consistency) -> RequestOptions {
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

/// Executes a statement to its end.
pub async fn execute(
    context: &Rc<ShardContext>,
    statement: &Statement,
    values: &BorrowedValues<'_>,
    options: &RequestOptions,
    warnings: &mut Vec<String>,
) -> Result<Outcome> {
    execute_as(context, None, statement, values, options, warnings).await
}

async fn execute_as(
    context: &Rc<ShardContext>,
    user: Option<&str>,
    statement: &Statement,
    values: &BorrowedValues<'_>,
    options: &RequestOptions,
    warnings: &mut Vec<String>,
) -> Result<Outcome> {
    match request::execute(context, statement, values, options, user.map(Rc::from), warnings)? {
        Execution::Ready(outcome) => outcome,
        Execution::Pending(outcome) => outcome.await,
    }
}

/// Executes a statement without bind values.
pub async fn ask(
    context: &Rc<ShardContext>,
    text: &str,
    options: &RequestOptions,
) -> Result<StatementResponse> {
    ask_as(context, None, text, options).await
}

/// Executes a statement without bind values for a role, which decides about statements about the schema and about roles; others are executed
/// for everybody.
pub async fn ask_as(
    context: &Rc<ShardContext>,
    user: Option<&str>,
    text: &str,
    options: &RequestOptions,
) -> Result<StatementResponse> {
    let statement = Statement::new(text, None, &context.catalog_view())?;
    let (values, mut warnings) = (BorrowedValues::new(), Vec::new());
    let outcome = execute_as(context, user, &statement, &values, options, &mut warnings).await?;
    Ok(match outcome {
        Outcome::Rows(page) => StatementResponse {
            columns: statement.result_columns.iter().map(|column| column.name.clone()).collect(),
            rows: rows(&page.rows, page.row_count, statement.result_columns.len()),
            next_page: page.paging_state.map(|state| state.encode(statement.fingerprint)),
        },
        Outcome::OwnRows { columns, page, .. } => StatementResponse {
            rows: rows(&page.rows, page.row_count, columns.len()),
            columns: columns.into_iter().map(|column| column.name).collect(),
            next_page: None,
        },
        Outcome::Void | Outcome::Warned(_) | Outcome::SetKeyspace(_) | Outcome::SchemaChange { .. } => {
            StatementResponse::default()
        }
    })
}

/// Makes a superuser, without a password.
pub async fn make_superuser(context: &Rc<ShardContext>, role: &str) -> Result<()> {
    let properties = Alteration { is_superuser: Some(true), ..Alteration::default() };
    let (role, creator) = (role.to_owned(), None);
    let change = RoleChange::Create { role, properties, if_not_exists: false, creator };
    cluster::roles::apply(context, change).await
}

/// Refuses as a session does what a role may not do: a statement without bind values.
pub fn authorize(context: &ShardContext, role: &str, text: &str) -> Result<()> {
    cluster::confirmation::check(context)?;
    let catalog = context.catalog_view();
    let statement = Statement::new(text, None, &catalog)?;
    let subject = Subject { roles: &context.roles(), user: Some(role), is_enforced: true };
    subject.ensure_all(&demands(&statement, &catalog.catalog))
}

/// Decodes rows of `[bytes]` cells.
fn rows(mut bytes: &[u8], row_count: usize, column_count: usize) -> Vec<Row> {
    let mut rows = Vec::with_capacity(row_count);
    for _ in 0..row_count {
        let mut row = Row::with_capacity(column_count);
        for _ in 0..column_count {
            let (length, rest) = bytes.split_first_chunk::<4>().expect("a row ends early");
            let (value, rest) = match usize::try_from(i32::from_be_bytes(*length)) {
                Err(_) => (None, rest),
                Ok(length) => {
                    let (value, rest) = rest.split_at(length);
                    (Some(value.to_vec()), rest)
                }
            };
            row.push(value);
            bytes = rest;
        }
        rows.push(row);
    }
    rows
}

/// The `int` or `bigint` in a column.
pub fn integer(row: &Row, column: usize) -> Option<i64> {
    let bytes = row.get(column)?.as_deref()?;
    match bytes.len() {
        4 => Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
        8 => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}
