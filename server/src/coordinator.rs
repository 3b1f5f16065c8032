//! The coordinator: finds the owners of what a request is about, has the work done there, and joins the answers.
//!
//! Invariants:
//! * A partition is read and written only on the shard that owns its token, in turns of that shard's thread.
//! * What can be answered in the turn in which the request came (this shard owns the partition, nothing must be waited
//!   for) is: [`Execution::Ready`]. Only the rest becomes a future.
//! * A write is acknowledged when the owners' commit logs have it as durable as configured.

pub(crate) mod batch;
pub(crate) mod batch_limits;
pub(crate) mod batch_log;
pub(crate) mod batch_request;
pub(crate) mod block;
pub(crate) mod consistency;
pub(crate) mod key_ranges;
pub(crate) mod local_write;
pub(crate) mod own_rows;
pub(crate) mod paxos;
mod prepared_read;
pub(crate) mod read;
pub mod replica;
pub(crate) mod replicated_read;
pub(crate) mod rows_before_write;
pub(crate) mod transaction;
pub(crate) mod transaction_statement;
pub(crate) mod virtual_read;
pub(crate) mod virtual_state;
pub(crate) mod write;

use std::sync::Arc;

use cql_lite::frame::{Consistency, SchemaChange};
use futures::future::LocalBoxFuture;
use helenus_query::bind::OwnedBindings;
use helenus_query::error::Result;
use helenus_query::functions::CallContext;
use helenus_query::plan::selection::ResultColumn;
use helenus_query::run::select::ResultPage;
use helenus_query::statement::Statement;

/// What a request came to.
#[derive(Debug)]
pub enum Outcome {
    Void,
    SetKeyspace(String),
    SchemaChange {
        change: SchemaChange,
        /// What the client is to be warned of.
        warnings: Vec<String>,
    },
    /// Rows with the columns that the statement was prepared with.
    Rows(ResultPage),
    /// Rows whose columns only the answer knows (lightweight transactions, DESCRIBE).
    OwnRows {
        keyspace: String,
        table: String,
        columns: Vec<ResultColumn>,
        page: ResultPage,
    },
}

/// An answer now or later.
pub enum Execution {
    Ready(Result<Outcome>),
    Pending(LocalBoxFuture<'static, Result<Outcome>>),
}

/// What a client says about how a statement is carried out.
#[derive(Debug, Clone)]
pub struct RequestOptions {
    pub consistency: Consistency,
    pub serial_consistency: Option<Consistency>,
    /// Rows of a page; `None`: no paging.
    pub page_rows: Option<usize>,
    pub paging_state: Option<Vec<u8>>,
    /// Microseconds; for writes without a timestamp of their own.
    pub timestamp: Option<i64>,
    pub now_seconds: Option<u32>,
}

/// A statement with its values, free of the frame it came in.
#[derive(Debug, Clone)]
pub struct OwnedRequest {
    pub statement: Arc<Statement>,
    pub bindings: OwnedBindings,
    pub options: RequestOptions,
    pub call: CallContext,
}
