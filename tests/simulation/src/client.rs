//! Clients: execute statements on a node, with a timeout, and report the outcome.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus::coordinator::{Execution, Outcome, RequestOptions};
use helenus::session::request;
use helenus::shard::context::ShardContext;
use helenus::shard::status_table::ServingState;
use helenus_query::bind::BorrowedValues;
use helenus_query::error::RequestError;
use helenus_query::statement::Statement;
use tokio::sync::oneshot;

use crate::machine::Machine;

/// Timeout of a client; longer than any timeout of the server.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Values in wire encoding; `None` is null.
pub type Row = Vec<Option<Vec<u8>>>;

/// The answer to a statement.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub rows: Vec<Row>,
    /// Paging state of the next page.
    pub next_page: Option<Vec<u8>>,
}

/// The reason why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AskError {
    /// The statement was refused before anything was done.
    #[error("refused: {0}")]
    Refused(String),
    /// The statement may have been executed, or may be executed later.
    #[error("unknown: {0}")]
    Unknown(String),
}

/// A statement with its values in its text.
#[derive(Debug, Clone)]
pub struct Question {
    pub text: String,
    pub consistency: Consistency,
    pub serial_consistency: Option<Consistency>,
    pub page_rows: Option<usize>,
    pub paging_state: Option<Vec<u8>>,
}

impl Question {
    pub fn new(text: impl Into<String>, consistency: Consistency) -> Self {
        Self { text: text.into(), consistency, serial_consistency: None, page_rows: None, paging_state: None }
    }
}

/// Executes a statement on a shard of a node.
pub async fn ask(machine: &Machine, shard: usize, question: Question) -> Result<Answer, AskError> {
    let context = machine.context(shard).filter(|_| machine.is_serving());
    let Some(context) = context else { return Err(AskError::Refused("the node is down".to_owned())) };
    if context.node.status.state() > ServingState::Serving {
        return Err(AskError::Refused("the node accepts no clients".to_owned()));
    }
    let (sender, receiver) = oneshot::channel();
    let coordinating = context.replication().coordinating();
    machine.spawn(async move {
        // The client may have timed out.
        let _ = sender.send(execute(&context, &question).await);
        drop(coordinating);
    });
    match tokio::time::timeout(TIMEOUT, receiver).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(error))) => Err(classify(&error)),
        Ok(Err(_)) => Err(AskError::Unknown("connection lost".to_owned())),
        Err(_) => Err(AskError::Unknown("no answer".to_owned())),
    }
}

fn classify(error: &RequestError) -> AskError {
    match error {
        RequestError::Syntax(_)
        | RequestError::Invalid(_)
        | RequestError::Configuration(_)
        | RequestError::AlreadyExists { .. }
        | RequestError::Unavailable { .. } => AskError::Refused(error.to_string()),
        _ => AskError::Unknown(error.to_string()),
    }
}

async fn execute(context: &Rc<ShardContext>, question: &Question) -> Result<Answer, RequestError> {
    let statement = Statement::new(&question.text, None, &context.catalog_view())?;
    let options = RequestOptions {
        consistency: question.consistency,
        serial_consistency: question.serial_consistency,
        page_rows: question.page_rows,
        paging_state: question.paging_state.clone(),
        timestamp: None,
        now_seconds: None,
    };
    let values = BorrowedValues::new();
    let mut warnings = Vec::new();
    let outcome = match request::execute(context, &statement, &values, &options, &mut warnings)? {
        Execution::Ready(outcome) => outcome?,
        Execution::Pending(future) => future.await?,
    };
    Ok(match outcome {
        Outcome::Rows(page) => Answer {
            rows: rows(&page.rows, page.row_count, statement.result_columns.len()),
            next_page: page.paging_state.map(|state| state.encode(statement.fingerprint)),
        },
        Outcome::OwnRows { columns, page, .. } => {
            Answer { rows: rows(&page.rows, page.row_count, columns.len()), next_page: None }
        }
        Outcome::Void | Outcome::SetKeyspace(_) | Outcome::SchemaChange { .. } => Answer::default(),
    })
}

/// Decodes rows of `[bytes]` cells.
fn rows(mut bytes: &[u8], row_count: usize, column_count: usize) -> Vec<Row> {
    let mut rows = Vec::with_capacity(row_count);
    for _ in 0..row_count {
        let mut row = Row::with_capacity(column_count);
        for _ in 0..column_count {
            let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return rows };
            bytes = rest;
            row.push(match usize::try_from(i32::from_be_bytes(*length)) {
                Err(_) => None,
                Ok(length) => {
                    let Some((value, rest)) = bytes.split_at_checked(length) else { return rows };
                    bytes = rest;
                    Some(value.to_vec())
                }
            });
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

/// Whether a conditional statement was applied: the first column of its answer.
pub fn applied(answer: &Answer) -> Option<bool> {
    answer.rows.first()?.first()?.as_deref().map(|bytes| bytes == [1])
}
