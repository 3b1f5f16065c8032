//! Traces of requests that asked for one, or that were chosen by `settraceprobability`. They are written to `system_traces` before the
//! request is answered, so that a client that reads its trace at once finds it complete.

use std::collections::BTreeMap;
use std::rc::Rc;

use cql_lite::frame::request::Request;
use helenus_audit::statement_text::without_passwords;
use helenus_execution::coordinator::traces::{self, TracedRequest};
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::trace::TraceLog;
use helenus_observe::receipt::Receipt;

use crate::session::connection_state::Connection;

/// The trace of a request in flight.
pub struct Trace {
    pub log: Rc<TraceLog>,
    request: TracedRequest,
    /// Whether the client has asked for it.
    is_wanted: bool,
}

impl Trace {
    pub fn begin(connection: &Connection, request: &Request<'_>, is_wanted: bool) -> Self {
        let context = &connection.context;
        let mut parameters = BTreeMap::new();
        let (command, name) = match request {
            Request::Query(query) => {
                parameters.insert("query".to_owned(), shown(query.statement));
                parameters
                    .insert("consistency_level".to_owned(), query.parameters.consistency.name().to_owned());
                ("QUERY", "Execute CQL3 query")
            }
            Request::Execute(execute) => {
                parameters
                    .insert("consistency_level".to_owned(), execute.parameters.consistency.name().to_owned());
                ("QUERY", "Execute CQL3 prepared query")
            }
            Request::Batch(batch) => {
                parameters.insert("consistency_level".to_owned(), batch.consistency.name().to_owned());
                ("QUERY", "Execute batch of CQL3 queries")
            }
            Request::Prepare(prepare) => {
                parameters.insert("query".to_owned(), shown(prepare.statement));
                ("QUERY", "Preparing CQL3 query")
            }
            _ => ("NONE", "Request"),
        };
        let log = TraceLog::begin(context, context.time_uuid());
        log.note(context, "Request received".to_owned());
        Self {
            log,
            request: TracedRequest {
                client: connection.peer.ip(),
                command,
                request: name,
                parameters,
                started_micros: context.clock.now_micros(),
            },
            is_wanted,
        }
    }

    /// The id that is sent to the client.
    pub fn id(&self) -> [u8; 16] {
        *self.log.session.as_bytes()
    }

    /// Notes the text of a prepared statement, which is known only when it was found.
    pub fn note_query(&mut self, text: &str) {
        self.request.parameters.entry("query".to_owned()).or_insert_with(|| shown(text));
    }

    /// Notes what the request cost.
    pub fn note_receipt(&mut self, context: &ShardContext, receipt: &Receipt) {
        self.log.note(context, format!("The charge is {}", receipt.charge()));
        self.request.parameters.insert("receipt".to_owned(), receipt.text());
    }

    /// Stores the trace. A client that has asked for it gets its answer when that is done, or has taken long; others do not wait.
    pub async fn finish(self, connection: &Rc<Connection>) {
        let context = &connection.context;
        self.log.note(context, "Answer is ready".to_owned());
        if self.is_wanted {
            traces::store(context, &self.log, self.request).await;
        } else {
            self.store_detached(connection);
        }
    }

    /// Like [`Trace::finish`], without waiting.
    pub fn finish_detached(self, connection: &Rc<Connection>) {
        self.log.note(&connection.context, "Answer is ready".to_owned());
        self.store_detached(connection);
    }

    fn store_detached(self, connection: &Rc<Connection>) {
        let context = connection.context.clone();
        tokio::task::spawn_local(async move { traces::store(&context, &self.log, self.request).await });
    }
}

/// The text of a statement for a trace, which every client may read: without passwords, also where it turns out to be no statement.
fn shown(text: &str) -> String {
    without_passwords(text, true).into_owned()
}

/// Whether a request that has not asked for a trace gets one.
pub fn is_chosen(context: &ShardContext) -> bool {
    const STEPS: u64 = 1 << 32;
    let probability = context.node.settings.trace_probability();
    probability > 0.0 && (context.random.borrow_mut().below(STEPS) as f64) < probability * STEPS as f64
}
