//! The coordinator: finds the shards and replicas that own the data of a request, executes it there, and merges the
//! answers.
//!
//! Invariants:
//! * A partition is read and written only on the shard that owns its token, in turns of that shard's thread.
//! * A request that can be answered in the turn in which it arrived (this shard owns the partition, nothing to wait
//!   for) is answered in it: [`Execution::Ready`]. Only other requests become futures.
//! * A write is acknowledged when the commit logs of the owning shards have it as durable as configured.

pub mod batch;
pub mod batch_limits;
pub mod batch_log;
pub mod batch_request;
pub mod bound_statement;
pub mod caps;
pub mod change_feed;
pub mod denylist;
pub mod disk_room;
pub mod explain;
pub mod found_ranges;
pub mod index_file_guard;
pub mod key_ranges;
pub mod local_work;
pub mod local_write;
pub mod nearest;
pub mod own_rows;
pub mod paxos;
mod prepared_read;
pub mod read;
pub mod read_thresholds;
pub mod repair;
pub mod replica;
pub mod replicated_read;
pub mod row_batch;
pub mod rows_before_write;
pub mod shard_rows;
pub mod table_rate_limits;
pub mod top_partitions;
pub mod traces;
pub mod transaction;
pub mod transaction_tokens;
pub mod views;
pub mod virtual_read;
pub mod virtual_state;
pub mod virtual_write;
pub mod warning_pace;
pub mod write;

use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::{Consistency, SchemaChange};
use futures::future::LocalBoxFuture;
use helenus_query::bind::OwnedBindings;
use helenus_query::error::Result;
use helenus_query::functions::CallContext;
use helenus_query::plan::selection::ResultColumn;
use helenus_query::plan::term::{BindValue, Bindings};
use helenus_query::run::select::ResultPage;
use helenus_query::statement::Prepared;

use crate::shard::context::ShardContext;

/// The result of a request.
#[derive(Debug)]
pub enum Outcome {
    Void,
    /// Done, with warnings for the client.
    Warned(Vec<String>),
    SetKeyspace(String),
    SchemaChange {
        change: SchemaChange,
        /// Warnings for the client.
        warnings: Vec<String>,
    },
    /// Rows with the columns that the statement was prepared with.
    Rows(ResultPage),
    /// Rows with columns that are known only at execution (lightweight transactions, DESCRIBE).
    OwnRows {
        keyspace: String,
        table: String,
        columns: Vec<ResultColumn>,
        page: ResultPage,
    },
}

/// An answer now, or a future.
pub enum Execution {
    Ready(Result<Outcome>),
    Pending(LocalBoxFuture<'static, Result<Outcome>>),
}

/// Options of a client for the execution of a statement.
#[derive(Debug, Clone)]
pub struct RequestOptions {
    pub consistency: Consistency,
    pub serial_consistency: Option<Consistency>,
    /// Rows of a page; `None` without paging.
    pub page_rows: Option<usize>,
    pub paging_state: Option<Vec<u8>>,
    /// In microseconds; for writes without a timestamp of their own.
    pub timestamp: Option<i64>,
    pub now_seconds: Option<u32>,
    /// When the client stops waiting, by USING TIMEOUT: monotonic time on the clock of this node. `None`: the settings say how long each step may
    /// take.
    pub deadline: Option<Duration>,
    /// It is no statement of the node itself: thresholds of reads hold for it.
    pub is_of_client: bool,
}

impl RequestOptions {
    /// When the client stops waiting for a step that begins now and may take as long as a setting of the node says.
    pub fn deadline_or(&self, context: &ShardContext, setting_ms: u64) -> Duration {
        self.deadline.unwrap_or_else(|| context.clock.monotonic() + Duration::from_millis(setting_ms))
    }
}

/// One execution of a statement: its values and options as the client sent them.
pub struct Request<'a, P> {
    pub statement: &'a Arc<Prepared<P>>,
    pub values: &'a [BindValue<'a>],
    pub options: &'a RequestOptions,
    pub call: CallContext,
}

/// A [`Request`] that is independent of the frame in which it arrived.
#[derive(Debug)]
pub struct OwnedRequest<P> {
    pub statement: Arc<Prepared<P>>,
    pub values: OwnedBindings,
    pub options: RequestOptions,
    pub call: CallContext,
}

impl<P> Request<'_, P> {
    pub fn plan(&self) -> &P {
        &self.statement.plan
    }

    pub fn bindings(&self) -> Bindings<'_> {
        Bindings { values: self.values, call: &self.call }
    }

    pub fn to_owned(&self) -> OwnedRequest<P> {
        OwnedRequest {
            statement: self.statement.clone(),
            values: OwnedBindings::new(self.values),
            options: self.options.clone(),
            call: self.call,
        }
    }
}

impl<P> OwnedRequest<P> {
    /// The request with its own values in their borrowed form.
    pub fn with<'a>(&'a self, values: &'a [BindValue<'a>]) -> Request<'a, P> {
        Request { statement: &self.statement, values, options: &self.options, call: self.call }
    }
}
