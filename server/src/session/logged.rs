//! What the audit log and the full query log get of a request: collected when it begins, recorded when it ends.
//!
//! Invariants:
//! * While both are off, a request looks at two flags and does nothing else.
//! * An entry is filtered by the keyspaces of the tables of its plan, and by those that its text names where it has none. The keyspace that the
//!   client uses is that of names without one, and hides nothing else. Statements about roles belong to no keyspace.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::request::{Batch, BatchQuery, Execute, Query, QueryParameters, Request, Value};
use cql_lite::frame::{Consistency, Opcode};
use helenus_audit::entry::{Category, Entry, EntryType};
use helenus_audit::record::{self, Record, RecordedRequest};
use helenus_audit::statement_text::{Described, describe, message_without_passwords, without_passwords};
use helenus_execution::coordinator::Outcome;
use helenus_query::error::{RequestError, Result};
use helenus_query::statement::{Description, Statement as Planned};
use uuid::Uuid;

use crate::session::connection_state::Connection;
use crate::session::request_logs::RequestLogs;
use helenus_answers::errors::to_response;

/// A statement of a request.
struct Statement {
    /// `None`: its id is not known.
    text: Option<Arc<str>>,
    /// What it was prepared as.
    prepared: Option<Planned>,
    /// Empty, or the values as they are shown.
    values: String,
}

impl Statement {
    fn of_text(text: &str, values: &[Value<'_>], shows_values: bool) -> Self {
        Self { text: Some(Arc::from(text)), prepared: None, values: shown(values, shows_values) }
    }

    /// `prepared`: `None` if its id is not known.
    fn of_prepared(prepared: Option<Planned>, values: &[Value<'_>], shows_values: bool) -> Self {
        let text = prepared.as_ref().map(|prepared| prepared.text.clone());
        Self { text, prepared, values: shown(values, shows_values) }
    }

    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("null")
    }
}

/// The values as they are shown.
fn shown(values: &[Value<'_>], shows_values: bool) -> String {
    if !shows_values || values.is_empty() {
        return String::new();
    }
    let shown = |value: &Value<'_>| match value {
        Value::Null => "null".to_owned(),
        Value::Unset => "unset".to_owned(),
        Value::Bytes(bytes) => {
            bytes.iter().fold("0x".to_owned(), |shown, byte| shown + &format!("{byte:02x}"))
        }
    };
    format!(" [{}]", values.iter().map(shown).collect::<Vec<_>>().join(", "))
}

/// The keyspaces of the tables that a statement reads or changes; of what belongs to none there are none. `None`: its plan names no tables.
fn keyspaces_of(statement: &Planned) -> Option<BTreeSet<String>> {
    let one = |keyspace: &String| BTreeSet::from([keyspace.clone()]);
    Some(match statement {
        Planned::Select(select) => one(&select.plan.table.keyspace),
        // What it changes is a table of another keyspace, which its values name.
        Planned::Modify(modify) if modify.plan.sets_table_extensions() => BTreeSet::new(),
        Planned::Modify(modify) => one(&modify.plan.table.keyspace),
        Planned::Batch(batch) => {
            batch.plan.statements.iter().map(|plan| plan.table.keyspace.clone()).collect()
        }
        Planned::Transaction(transaction) => one(&transaction.plan.table.keyspace),
        Planned::Truncate(truncate) => one(&truncate.plan.keyspace),
        Planned::Check(check) => one(&check.plan.view.keyspace),
        Planned::Explain(explain) => return keyspaces_of(&explain.plan.statement),
        Planned::Roles(_) => BTreeSet::new(),
        Planned::Use(_) | Planned::Schema(_) | Planned::Describe(_) => return None,
    })
}

/// The keyspaces by which a statement is filtered. `planned`: what it was planned as, if it is known.
fn filtered_by(planned: Option<&Planned>, described: &Described) -> BTreeSet<String> {
    if let Some(keyspaces) = planned.and_then(keyspaces_of) {
        return keyspaces;
    }
    let is_about_roles = described.entry_type.is_some_and(|own| own.category() == Category::Dcl);
    described.keyspace.iter().filter(|_| !is_about_roles).cloned().collect()
}

/// Those by which a batch is filtered: none, if one of its statements has none.
fn filtered_together(parts: impl Iterator<Item = BTreeSet<String>>) -> BTreeSet<String> {
    let mut together = BTreeSet::new();
    for part in parts {
        if part.is_empty() {
            return part;
        }
        together.extend(part);
    }
    together
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
            context.statements.get(&context.node.registry, id, &view).ok()
        };
        let mut keyspace = connection.keyspace.borrow().clone();
        let named = |name: Option<&str>| name.map(Rc::<str>::from);
        let (kind, statements) = match request {
            Request::Query(query) => {
                keyspace = named(query.parameters.keyspace).or(keyspace);
                let values = &query.parameters.values;
                (Kind::Statement, vec![Statement::of_text(query.statement, values, shows_values)])
            }
            Request::Execute(execute) => {
                let prepared = prepared(execute.id);
                // Names were resolved when it was prepared.
                keyspace = prepared.as_ref().map_or(keyspace, |prepared| named(prepared.keyspace.as_deref()));
                let values = &execute.parameters.values;
                (Kind::Statement, vec![Statement::of_prepared(prepared, values, shows_values)])
            }
            Request::Prepare(prepare) => {
                keyspace = named(prepare.keyspace).or(keyspace);
                (Kind::Prepare, vec![Statement::of_text(prepare.statement, &[], false)])
            }
            Request::Batch(batch) => {
                keyspace = named(batch.keyspace).or(keyspace);
                let statement = |(query, values): (BatchQuery<'_>, &[Value<'_>])| match query {
                    BatchQuery::Text(text) => Statement::of_text(text, values, shows_values),
                    BatchQuery::Prepared(id) => Statement::of_prepared(prepared(id), values, shows_values),
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
    pub fn end(self, connection: &Connection, statement: Option<&Planned>, outcome: &Result<Outcome>) {
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
    pub fn end_prepare(self, connection: &Connection, statement: &Planned) {
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

    fn audit(&self, connection: &Connection, known: Option<&Planned>, error: Option<&RequestError>) {
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
        known: Option<&Planned>,
        error: Option<&RequestError>,
    ) -> Vec<Entry> {
        let entry = |entry_type, operation, keyspaces| Entry {
            user: self.user.as_deref().map(str::to_owned),
            source: self.source,
            millis: self.started_micros / 1_000,
            entry_type,
            batch: None,
            keyspace: self.keyspace.as_deref().map(str::to_owned),
            scope: None,
            keyspaces,
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
        let of_statement = |statement: &Statement, known: Option<&Planned>| {
            let text = statement.text();
            let known = known.or(statement.prepared.as_ref());
            // Names of a prepared statement were resolved when it was prepared.
            let default_keyspace = match &statement.prepared {
                Some(prepared) => prepared.keyspace.as_deref(),
                None => self.keyspace.as_deref(),
            };
            let described = describe(text, default_keyspace);
            let own_type = described.entry_type.unwrap_or(EntryType::RequestFailure);
            let own_type = if self.kind == Kind::Prepare { EntryType::PrepareStatement } else { own_type };
            let operation = without_passwords(text, error.is_some()).into_owned() + &statement.values;
            let filtered_by = filtered_by(known, &described);
            let mut entry = entry(failed_type.unwrap_or(own_type), operation, filtered_by);
            let table =
                known.and_then(|known| Description::table(known)).filter(|_| described.scope.is_some());
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
        let parts = self.statements.iter().map(|statement| of_statement(statement, None));
        let parts: Vec<Entry> = parts.collect();
        let together = filtered_together(parts.iter().map(|part| part.keyspaces.clone()));
        if let Some(failed_type) = failed_type {
            let operation =
                format!("BATCH of {} statements at consistency {}", parts.len(), consistency.name());
            let text = self.statements.first().map_or("", Statement::text);
            return vec![Entry { error: message(text), ..entry(failed_type, operation, together) }];
        }
        let mut id = [0; 16];
        for half in id.chunks_exact_mut(8) {
            half.copy_from_slice(&connection.context.random.borrow_mut().next_u64().to_be_bytes());
        }
        let batch = uuid::Builder::from_random_bytes(id).into_uuid();
        let operation = format!("BatchId:[{batch}] - BATCH of [{}] statements", self.statements.len());
        let whole = entry(EntryType::Batch, operation, together);
        std::iter::once(whole)
            .chain(parts)
            .map(|entry| Entry { batch: Some::<Uuid>(batch), ..entry })
            .collect()
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
