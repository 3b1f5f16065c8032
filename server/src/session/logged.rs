//! What the audit log and the full query log get of a request: collected when it begins, recorded when it ends.
//!
//! Invariant: while both are off, a request looks at two flags and does nothing else.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::request::{Batch, BatchQuery, Execute, Query, QueryParameters, Request, Value};
use cql_lite::frame::{Consistency, Opcode};
use helenus_audit::entry::{Entry, EntryType};
use helenus_audit::record::{self, Record, RecordedRequest};
use helenus_audit::statement_text::{describe, message_without_passwords, without_passwords};
use helenus_execution::coordinator::Outcome;
use helenus_query::error::{RequestError, Result};
use helenus_query::statement::Description;
use uuid::Uuid;

use crate::session::connection_state::Connection;
use crate::session::request_logs::RequestLogs;
use helenus_answers::errors::to_response;

/// A statement of a request.
struct Statement {
    /// `None`: its id is not known.
    text: Option<Arc<str>>,
    /// Empty, or the values as they are shown.
    values: String,
}

impl Statement {
    fn new(text: Option<Arc<str>>, values: &[Value<'_>], shows_values: bool) -> Self {
        let shown = |value: &Value<'_>| match value {
            Value::Null => "null".to_owned(),
            Value::Unset => "unset".to_owned(),
            Value::Bytes(bytes) => {
                bytes.iter().fold("0x".to_owned(), |shown, byte| shown + &format!("{byte:02x}"))
            }
        };
        let shows_values = shows_values && !values.is_empty();
        let list = || values.iter().map(shown).collect::<Vec<_>>().join(", ");
        Self { text, values: if shows_values { format!(" [{}]", list()) } else { String::new() } }
    }

    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("null")
    }
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Statement,
    Prepare,
    Batch(Consistency),
}

/// A request that is recorded when it ends.
pub struct Logged {
    logs: Arc<RequestLogs>,
    kind: Kind,
    statements: Vec<Statement>,
    user: Option<Rc<str>>,
    /// That of names without one.
    keyspace: Option<Rc<str>>,
    source: SocketAddr,
    version: u8,
    started_micros: i64,
    /// Of the monotonic clock.
    started: Duration,
    /// For the full query log.
    body: Option<(Opcode, Vec<u8>)>,
}

impl Logged {
    /// Collects what is recorded of a request that began at `started` (monotonic time); `None`: nothing is.
    #[inline]
    pub fn begin(connection: &Connection, request: &Request<'_>, started: Duration) -> Option<Self> {
        let logs = &connection.logs;
        if logs.is_on() { Self::collect(logs.clone(), connection, request, started) } else { None }
    }

    #[cold]
    fn collect(
        logs: Arc<RequestLogs>,
        connection: &Connection,
        request: &Request<'_>,
        started: Duration,
    ) -> Option<Self> {
        let shows_values = logs.shows_values() && logs.audit.is_on();
        let prepared = |id: &[u8]| {
            let context = &connection.context;
            let view = context.catalog_view();
            let known = context.statements.get(&context.node.registry, id, &view);
            known.ok().map(|statement| (statement.text.clone(), statement.keyspace.clone()))
        };
        let mut keyspace = connection.keyspace.borrow().clone();
        let named = |name: Option<&str>| name.map(Rc::<str>::from);
        let (kind, statements) = match request {
            Request::Query(query) => {
                keyspace = named(query.parameters.keyspace).or(keyspace);
                let text = Some(Arc::from(query.statement));
                (Kind::Statement, vec![Statement::new(text, &query.parameters.values, shows_values)])
            }
            Request::Execute(execute) => {
                let (text, own) = prepared(execute.id).unzip();
                // Names were resolved when it was prepared.
                keyspace = if text.is_some() { named(own.flatten().as_deref()) } else { keyspace };
                (Kind::Statement, vec![Statement::new(text, &execute.parameters.values, shows_values)])
            }
            Request::Prepare(prepare) => {
                keyspace = named(prepare.keyspace).or(keyspace);
                (Kind::Prepare, vec![Statement::new(Some(Arc::from(prepare.statement)), &[], false)])
            }
            Request::Batch(batch) => {
                keyspace = named(batch.keyspace).or(keyspace);
                let statement = |(query, values): (BatchQuery<'_>, &[Value<'_>])| {
                    let text = match query {
                        BatchQuery::Text(text) => Some(Arc::from(text)),
                        BatchQuery::Prepared(id) => prepared(id).map(|(text, _)| text),
                    };
                    Statement::new(text, values, shows_values)
                };
                (Kind::Batch(batch.consistency), batch.statements().map(statement).collect())
            }
            _ => return None,
        };
        let body = logs.queries.is_on().then(|| body(request, &statements, keyspace.as_deref())).flatten();
        let now = connection.context.clock.monotonic();
        let elapsed = now.saturating_sub(started).as_micros() as i64;
        Some(Self {
            kind,
            statements,
            user: connection.user.borrow().clone(),
            keyspace,
            source: connection.peer,
            version: connection.version.get() as u8,
            started_micros: connection.context.clock.now_micros() - elapsed,
            started,
            body,
            logs,
        })
    }

    /// Whether a log that is to miss nothing, and has no room, may get something of the request, however it ends.
    fn is_awaited(&self, connection: &Connection) -> bool {
        let (audit, queries) = (&self.logs.audit, &self.logs.queries);
        if self.body.is_some() && queries.holds_requests() {
            return true;
        }
        let is_recorded = |entry: Entry| {
            let ends = [entry.entry_type, EntryType::RequestFailure, EntryType::UnauthorizedAttempt];
            ends.into_iter().any(|entry_type| audit.admits(&Entry { entry_type, ..entry.clone() }))
        };
        audit.holds_requests() && self.entries(connection, None, None).into_iter().any(is_recorded)
    }

    /// Records the request with its outcome. `statement`: what it was planned as, if it is known.
    #[cold]
    pub fn end(self, connection: &Connection, statement: Option<&Description>, outcome: &Result<Outcome>) {
        self.audit(connection, statement, outcome.as_ref().err());
        let rows = match outcome {
            Ok(Outcome::Rows(page) | Outcome::OwnRows { page, .. }) => {
                record::Outcome::Rows(page.row_count as u64)
            }
            Ok(_) => record::Outcome::Done,
            Err(error) => record::Outcome::Error(to_response(error).kind.code().number() as u32),
        };
        self.record(connection, rows);
    }

    /// Records a PREPARE.
    #[cold]
    pub fn end_prepare(self, connection: &Connection, statement: &Description) {
        self.audit(connection, Some(statement), None);
    }

    fn record(self, connection: &Connection, outcome: record::Outcome) {
        let Some((opcode, body)) = self.body else { return };
        let duration = connection.context.clock.monotonic().saturating_sub(self.started);
        self.logs.queries.record(&Record::Request(RecordedRequest {
            started_micros: self.started_micros,
            duration_micros: duration.as_micros() as u64,
            source: self.source,
            version: self.version,
            user: self.user.as_deref().unwrap_or_default().to_owned(),
            outcome,
            opcode,
            body,
        }));
    }

    fn audit(&self, connection: &Connection, known: Option<&Description>, error: Option<&RequestError>) {
        if self.logs.audit.is_on() {
            for entry in self.entries(connection, known, error) {
                self.logs.audit.record(&entry);
            }
        }
    }

    /// The entries of the audit log. `known`: see [`Self::end`].
    fn entries(
        &self,
        connection: &Connection,
        known: Option<&Description>,
        error: Option<&RequestError>,
    ) -> Vec<Entry> {
        let entry = |entry_type, operation| Entry {
            user: self.user.as_deref().map(str::to_owned),
            source: self.source,
            millis: self.started_micros / 1_000,
            entry_type,
            batch: None,
            keyspace: self.keyspace.as_deref().map(str::to_owned),
            scope: None,
            operation,
            error: None,
        };
        let failed_type = match error {
            None => None,
            Some(RequestError::Unauthorized(_)) => Some(EntryType::UnauthorizedAttempt),
            Some(_) => Some(EntryType::RequestFailure),
        };
        let is_syntax = matches!(error, Some(RequestError::Syntax(_)));
        let message = |text: &str| {
            let error = error?.to_string();
            Some(message_without_passwords(&error, text, is_syntax).into_owned())
        };
        let of_statement = |statement: &Statement, known: Option<&Description>| {
            let text = statement.text();
            let described = describe(text, self.keyspace.as_deref());
            let own_type = described.entry_type.unwrap_or(EntryType::RequestFailure);
            let own_type = if self.kind == Kind::Prepare { EntryType::PrepareStatement } else { own_type };
            let operation = without_passwords(text, error.is_some()).into_owned() + &statement.values;
            let mut entry = entry(failed_type.unwrap_or(own_type), operation);
            let table = known.and_then(Description::table).filter(|_| described.scope.is_some());
            (entry.keyspace, entry.scope) = match table {
                Some(table) => (Some(table.keyspace.clone()), Some(table.name.clone())),
                None => (described.keyspace.or_else(|| entry.keyspace.take()), described.scope),
            };
            entry
        };
        let Kind::Batch(consistency) = self.kind else {
            let whole = |statement: &Statement| Entry {
                error: message(statement.text()),
                ..of_statement(statement, known)
            };
            return self.statements.first().map(whole).into_iter().collect();
        };
        if let Some(failed_type) = failed_type {
            let count = self.statements.len();
            let operation = format!("BATCH of {count} statements at consistency {}", consistency.name());
            let text = self.statements.first().map_or("", Statement::text);
            return vec![Entry { error: message(text), ..entry(failed_type, operation) }];
        }
        let mut id = [0; 16];
        for half in id.chunks_exact_mut(8) {
            half.copy_from_slice(&connection.context.random.borrow_mut().next_u64().to_be_bytes());
        }
        let batch = uuid::Builder::from_random_bytes(id).into_uuid();
        let operation = format!("BatchId:[{batch}] - BATCH of [{}] statements", self.statements.len());
        let whole = Entry { batch: Some(batch), ..entry(EntryType::Batch, operation) };
        let parts = self.statements.iter();
        let parts =
            parts.map(|statement| Entry { batch: Some::<Uuid>(batch), ..of_statement(statement, None) });
        std::iter::once(whole).chain(parts).collect()
    }
}

/// Whether a request has to wait, because a log that is to miss nothing has no room and may get something of it.
#[cold]
pub fn is_awaited(connection: &Connection, request: &Request<'_>) -> bool {
    let logged = Logged::collect(connection.logs.clone(), connection, request, Duration::MAX);
    logged.is_some_and(|logged| logged.is_awaited(connection))
}

/// A statement with parameters of a request, in a keyspace.
fn as_query<'a>(
    statement: &'a str,
    parameters: &'a QueryParameters<'_>,
    keyspace: Option<&'a str>,
) -> Request<'a> {
    let parameters = QueryParameters {
        consistency: parameters.consistency,
        skip_metadata: false,
        values: parameters.values.iter().copied().collect(),
        names: parameters.names.clone(),
        page_size: parameters.page_size,
        paging_state: parameters.paging_state,
        serial_consistency: parameters.serial_consistency,
        timestamp_us: parameters.timestamp_us,
        keyspace,
        now_in_seconds: parameters.now_in_seconds,
    };
    Request::Query(Query { statement, parameters })
}

/// A text as it is recorded.
fn recorded(text: &str) -> Cow<'_, str> {
    without_passwords(text, describe(text, None).entry_type.is_none())
}

/// The request with the texts of its statements, without passwords; `None`: it has none, or one is not known.
fn body(
    request: &Request<'_>,
    statements: &[Statement],
    keyspace: Option<&str>,
) -> Option<(Opcode, Vec<u8>)> {
    let texts = statements.iter().map(|statement| statement.text.as_deref().map(recorded));
    let texts: Vec<Cow<'_, str>> = texts.collect::<Option<_>>()?;
    Some(match request {
        Request::Query(Query { parameters, .. }) | Request::Execute(Execute { parameters, .. }) => {
            let statement = texts.first()?;
            (Opcode::Query, record::request_body(&as_query(statement, parameters, keyspace)))
        }
        Request::Batch(batch) => {
            let mut copy = Batch::new(batch.kind, batch.consistency);
            for ((_, values), text) in batch.statements().zip(&texts) {
                copy.push(BatchQuery::Text(text), values);
            }
            copy.serial_consistency = batch.serial_consistency;
            copy.timestamp_us = batch.timestamp_us;
            copy.now_in_seconds = batch.now_in_seconds;
            copy.keyspace = keyspace;
            (Opcode::Batch, record::request_body(&Request::Batch(copy)))
        }
        _ => return None,
    })
}
