//! QUERY, PREPARE, EXECUTE and BATCH: from a decoded request to its execution, and to the answer on the connection.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::request::{Batch, BatchKind, BatchQuery, Execute, Query, QueryParameters, Request};
use cql_lite::frame::response::{Prepared, WriteType, encode_prepared};
use cql_lite::frame::{Consistency, Prefix, ProtocolVersion};
use cql_lite::syntax::ast;
use helenus_projector::{check, fresh};
use helenus_query::bind::{BorrowedValues, OwnedBindings, Rewritten, bind};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::modify;
use helenus_query::run::table_extensions::table_extensions;
use helenus_query::run::timeout::timeout_value;
use helenus_query::schema::catalog::TableKind;
use helenus_query::statement::{Description, Statement};

use super::{authorization, explain, guardrails, rate_limits};
use crate::cluster::{roles, schema, views};
use crate::session::charges::{Charges, OpenCharge};
use crate::session::connection_state::{Connection, WaitingRequest};
use crate::session::latencies::Measured;
use crate::session::logged::Logged;
use crate::session::notes::{Noted, Notes, judged};
use crate::session::receipts::{CostWishes, OpenReceipt, limit_of_changes, limit_of_tables};
use crate::session::trace::{self, Trace};
use helenus_answers::respond::Responder;
use helenus_execution::coordinator::batch::batch;
use helenus_execution::coordinator::batch_request::BatchRequest;
use helenus_execution::coordinator::bound_statement::{BoundStatement, Modification};
use helenus_execution::coordinator::transaction::{Transaction, transact};
use helenus_execution::coordinator::virtual_state::NodeReports;
use helenus_execution::coordinator::{
    self, Execution, Outcome, RequestOptions, disk_room, read, read_thresholds, virtual_write, write,
};
use helenus_execution::shard::context::ShardContext;
use helenus_fair_shares as shares;
use helenus_ring::consistency::{self, Access};

/// Executes a request that began at `started` (monotonic time) and answers it, now or later.
pub fn carry_out(
    connection: &Rc<Connection>,
    version: ProtocolVersion,
    stream: i16,
    started: Duration,
    notes: Notes,
    request: &Request<'_>,
) {
    let mut responder = Responder::new(version, stream);
    let is_traced = notes.is_traced || trace::is_chosen(&connection.context);
    let costs = connection.limited(notes.costs);
    let is_noted = is_traced || costs != CostWishes::default();
    // What is noted anyway stands for itself.
    let times = if is_noted { 1 } else { Charges::take(&connection.context, started) };
    if times == 0 {
        return begin(connection, responder, started, request, None);
    }
    let trace = is_traced.then(|| Trace::begin(connection, request, notes.is_traced));
    responder.tracing_id = trace.as_ref().filter(|_| notes.is_traced).map(Trace::id);
    let charge = Some(OpenCharge::begin(times, connection.user.borrow().clone()));
    let noted = Noted { trace, receipt: OpenReceipt::begin(costs, started, is_traced), charge };
    noted.in_turn(&connection.context, |noted| begin(connection, responder, started, request, Some(noted)));
}

/// Begins a request. `noted`: what is noted of it, if anything is.
fn begin(
    connection: &Rc<Connection>,
    mut responder: Responder,
    started: Duration,
    request: &Request<'_>,
    mut noted: Option<Noted>,
) {
    let mut measured = None;
    let mut logged = Logged::begin(connection, request, started);
    responder.knows_rate_limits =
        connection.startup.borrow().as_ref().is_some_and(|startup| startup.knows_rate_limits);
    let begun_execution = match (rate_limits::admit(connection, request), request) {
        (Err(refused), _) => Err(refused),
        (Ok(()), Request::Query(query)) => {
            run_query(connection, query, &mut responder, (started, &mut noted))
        }
        (Ok(()), Request::Execute(execute)) => {
            run_prepared(connection, execute, &mut responder, (started, &mut noted))
        }
        (Ok(()), Request::Batch(batch)) => {
            measured = Some(Measured::of_batch(false));
            let begun = run_batch(connection, batch, &mut responder.warnings, (started, &mut noted));
            begun.map(|(is_conditional, execution)| {
                measured = Some(Measured::of_batch(is_conditional));
                (None, Ok(execution))
            })
        }
        (Ok(()), Request::Prepare(prepare)) => {
            let keyspace = prepare.keyspace.map(Rc::from).or_else(|| connection.keyspace.borrow().clone());
            let outcome = check_length(connection, prepare.statement).and_then(|()| {
                let context = &connection.context;
                context.statements.prepare(
                    &context.node.registry,
                    prepare.statement,
                    keyspace.as_deref(),
                    &context.catalog_view(),
                )
            });
            match outcome {
                Ok(statement) => {
                    answer_prepared(connection, &responder, &statement);
                    if let Some(logged) = logged.take() {
                        logged.end_prepare(connection, &statement);
                    }
                    if let Some(trace) = noted.and_then(|noted| noted.trace) {
                        trace.finish_detached(connection);
                    }
                    return;
                }
                Err(error) => Err(error),
            }
        }
        (Ok(()), _) => Err(RequestError::Protocol("Unexpected message".to_owned())),
    };
    let (statement, execution) = match begun_execution {
        Ok((statement, Ok(execution))) => (statement, execution),
        Ok((statement, Err(error))) => (statement, Execution::Ready(Err(error))),
        Err(error) => (None, Execution::Ready(Err(error))),
    };
    measured = measured.or_else(|| statement.as_ref().and_then(Measured::of));
    if let (Some(noted), Some(statement)) = (&mut noted, &statement)
        && let Some(charge) = &mut noted.charge
    {
        charge.of_statement(&connection.context, statement);
    }
    if let Some(trace) = noted.as_mut().and_then(|noted| noted.trace.as_mut()) {
        if matches!(execution, Execution::Ready(_)) {
            trace.log.note(&connection.context, "Carried out at once".to_owned());
        }
        if let Some(statement) = &statement {
            trace.note_query(&statement.text);
        }
    }
    let waits_for_trace = noted.as_ref().is_some_and(|noted| noted.trace.is_some());
    match execution {
        Execution::Ready(outcome) if !waits_for_trace => {
            let outcome = judged(noted.as_ref(), outcome);
            warn_of_read(&connection.context, statement.as_ref(), &outcome, &mut responder.warnings);
            let receipt = noted.map(|mut noted| noted.end(&connection.context, &outcome, &mut responder));
            answer(connection, &responder, statement.as_deref(), &outcome);
            connection.record_duration(started, measured, statement.as_deref(), receipt.as_ref());
            if let Some(logged) = logged {
                logged.end(connection, statement.as_ref(), &outcome);
            }
        }
        execution => {
            let connection = connection.clone();
            let text = statement.as_ref().map(|statement| statement.text.clone());
            let number = connection.begin_request(WaitingRequest { started, text });
            let coordinating = connection.context.replication().coordinating();
            let (shares, share) = (connection.context.shares.clone(), connection.share.get().cloned());
            tokio::task::spawn_local(shares::within(shares, share, async move {
                let outcome = match execution {
                    Execution::Ready(outcome) => outcome,
                    Execution::Pending(future) => match &noted {
                        Some(noted) => noted.scope(connection.context.clone(), future).await,
                        None => future.await,
                    },
                };
                let outcome = judged(noted.as_ref(), outcome);
                warn_of_read(&connection.context, statement.as_ref(), &outcome, &mut responder.warnings);
                let receipt =
                    noted.as_mut().map(|noted| noted.end(&connection.context, &outcome, &mut responder));
                // Before the trace is stored, which is no part of the request.
                connection.record_duration(started, measured, statement.as_deref(), receipt.as_ref());
                if let Some(trace) = noted.and_then(|noted| noted.trace) {
                    trace.finish(&connection).await;
                }
                note(&connection, &outcome);
                if let Some(logged) = logged {
                    logged.end(&connection, statement.as_ref(), &outcome);
                }
                connection.end_request(number, |out| responder.respond(out, statement.as_deref(), &outcome));
                drop(coordinating);
            }));
        }
    }
}

/// Warns the client of what its SELECT has met and found.
#[inline]
fn warn_of_read(
    context: &ShardContext,
    statement: Option<&Statement>,
    outcome: &Result<Outcome>,
    warnings: &mut Vec<String>,
) {
    if let Some(Statement::Select(select)) = statement {
        read_thresholds::warn(context, select, outcome, warnings);
    }
}

fn answer(
    connection: &Connection,
    responder: &Responder,
    statement: Option<&Description>,
    outcome: &Result<Outcome>,
) {
    note(connection, outcome);
    connection.write(|out| responder.respond(out, statement, outcome));
}

/// Applies the effects of an outcome on the connection itself.
fn note(connection: &Connection, outcome: &Result<Outcome>) {
    match outcome {
        Ok(Outcome::SetKeyspace(keyspace)) => {
            *connection.keyspace.borrow_mut() = Some(Rc::from(keyspace.as_str()));
        }
        Ok(_) => {}
        Err(_) => connection.context.metrics.errors.increment(),
    }
}

fn answer_prepared(connection: &Connection, responder: &Responder, statement: &Statement) {
    let metadata = statement.metadata(responder.version);
    let prepared = Prepared {
        id: &statement.id,
        result_metadata_id: (responder.version >= ProtocolVersion::V5).then_some(&statement.metadata_id[..]),
        bind: &metadata.bind,
        bind_flags: 0,
        partition_key_indexes: &statement.partition_key_markers,
        result: metadata.result.as_ref(),
    };
    let prefix = Prefix { tracing_id: responder.tracing_id, warnings: &[], custom_payload: &[] };
    connection.write(|out| encode_prepared(out, responder.version, responder.stream, &prepared, &prefix));
}

fn check_length(connection: &Connection, text: &str) -> Result<()> {
    let limit = connection.context.node.config.max_statement_bytes;
    if text.len() > limit {
        return Err(RequestError::invalid(format!(
            "A statement of {} bytes is longer than the limit of {limit}",
            text.len()
        )));
    }
    Ok(())
}

/// The statement of a request, and its execution, or why it was refused.
type Begun = (Option<Statement>, Result<Execution>);

/// When a request began (monotonic time), and what is noted of it.
type NotedSince<'n> = (Duration, &'n mut Option<Noted>);

fn run_query(
    connection: &Rc<Connection>,
    query: &Query<'_>,
    responder: &mut Responder,
    noted: NotedSince<'_>,
) -> Result<Begun> {
    check_length(connection, query.statement)?;
    let keyspace = query.parameters.keyspace.map(Rc::from).or_else(|| connection.keyspace.borrow().clone());
    let view = connection.context.catalog_view();
    let statement = Statement::new(query.statement, keyspace.as_deref(), &view)?;
    connection.context.metrics.texts_executed.increment();
    let execution = run(connection, &statement, &query.parameters, responder, noted);
    Ok((Some(statement), execution))
}

fn run_prepared(
    connection: &Rc<Connection>,
    execute: &Execute<'_>,
    responder: &mut Responder,
    noted: NotedSince<'_>,
) -> Result<Begun> {
    let context = &connection.context;
    let statement = context.statements.get(&context.node.registry, execute.id, &context.catalog_view())?;
    let knows_metadata =
        responder.version >= ProtocolVersion::V5 || !context.statements.has_changed_metadata(&statement);
    responder.skip_metadata = execute.parameters.skip_metadata && knows_metadata;
    context.metrics.prepared_executed.increment();
    if let Some(known) = execute.result_metadata_id
        && known != statement.metadata_id
    {
        responder.known_metadata_id = Some(known.to_vec());
    }
    let execution = run(connection, &statement, &execute.parameters, responder, noted);
    Ok((Some(statement), execution))
}

fn options(context: &ShardContext, parameters: &QueryParameters<'_>) -> RequestOptions {
    let page_rows = match parameters.page_size {
        Some(size) => usize::try_from(size).ok(),
        None => usize::try_from(context.node.config.default_page_rows).ok(),
    };
    RequestOptions {
        consistency: parameters.consistency,
        serial_consistency: parameters.serial_consistency,
        page_rows: page_rows.filter(|rows| *rows > 0),
        paging_state: parameters.paging_state.map(<[u8]>::to_vec),
        timestamp: parameters.timestamp_us,
        now_seconds: parameters.now_in_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
        deadline: None,
        is_of_client: true,
    }
}

fn run(
    connection: &Rc<Connection>,
    statement: &Statement,
    parameters: &QueryParameters<'_>,
    responder: &mut Responder,
    (started, noted): NotedSince<'_>,
) -> Result<Execution> {
    let context = &connection.context;
    if parameters.page_size == Some(0) {
        return Err(RequestError::Protocol("The page size cannot be 0".to_owned()));
    }
    let rewritten = Rewritten::default();
    let values: BorrowedValues<'_> =
        bind(&statement.markers, &parameters.values, &parameters.names, &rewritten)?;
    let options = options(context, parameters);
    let masked = authorization::authorize(connection, statement)?;
    let statement = masked.as_ref().unwrap_or(statement);
    let user = connection.user.borrow().clone();
    let execute = || execute(context, statement, &values, &options, user, &mut responder.warnings);
    Noted::within_limit(noted, context, started, limit_of_tables(statement), execute)
}

/// Executes a statement with values in the order of its markers. Warnings for the client are added to `warnings`. `user`: the role of
/// the client, which may execute it.
pub fn execute(
    context: &Rc<ShardContext>,
    statement: &Statement,
    values: &BorrowedValues<'_>,
    options: &RequestOptions,
    user: Option<Rc<str>>,
    warnings: &mut Vec<String>,
) -> Result<Execution> {
    if let Statement::Explain(statement) = statement {
        let executed = || execute(context, &statement.plan.statement, values, options, user, warnings);
        return explain::explain(context, statement, values, options, executed);
    }
    let call = context.call_context();
    if let Statement::Modify(update) = statement
        && update.plan.sets_table_extensions()
    {
        let update = table_extensions(&update.plan, &Bindings { values, call: &call })?;
        let check = |warnings: &mut Vec<String>| context.guardrails().check_extensions(warnings);
        if !context.is_superuser(user.as_deref()) && !context.guard(warnings, check)? {
            return Ok(Execution::Ready(Ok(Outcome::Void)));
        }
        return Ok(Execution::Pending(Box::pin(schema::set_extensions(context.clone(), update))));
    }
    if let Statement::Modify(insert) = statement
        && let Some(plan) = modify::expand(&insert.plan, &Bindings { values, call: &call })?
    {
        let expanded = Statement::Modify(Arc::new(insert.with_plan(plan)));
        return execute(context, &expanded, values, options, user, warnings);
    }
    guardrails::check(context, statement, values, &call, options, user.as_deref(), warnings)?;
    check_consistency(context, statement, options.consistency)?;
    let limited = match timeout(statement, &Bindings { values, call: &call })? {
        Some(Duration::ZERO) => return Err(timed_out(statement, options.consistency)),
        Some(timeout) => {
            let deadline = Some(context.clock.monotonic().saturating_add(timeout));
            Some(RequestOptions { deadline, ..options.clone() })
        }
        None => None,
    };
    let options = limited.as_ref().unwrap_or(options);
    Ok(match statement {
        Statement::Select(statement) if statement.plan.freshness.is_some() => {
            let request = coordinator::Request { statement, values, options, call }.to_owned();
            Execution::Pending(Box::pin(fresh::select(context.clone(), request)))
        }
        Statement::Select(statement) => {
            read::select(context, &coordinator::Request { statement, values, options, call })
        }
        Statement::Modify(statement) if statement.plan.conditions.is_some() => {
            let modification = Modification::Single(statement.clone());
            let bound = BoundStatement::new(modification, OwnedBindings::new(values), call)?;
            if context.node.disks.is_any_short() {
                disk_room::check(context, bound.partitions(), options.consistency, warnings)?;
            }
            let transaction = Transaction::of_statement(bound, options.clone());
            Execution::Pending(Box::pin(transact(context.clone(), transaction)))
        }
        Statement::Modify(statement) if statement.plan.table.kind == TableKind::Virtual => {
            virtual_write::modify(context, &coordinator::Request { statement, values, options, call })
        }
        Statement::Modify(statement) => {
            write::modify(context, &coordinator::Request { statement, values, options, call }, warnings)
        }
        Statement::Batch(statement) => {
            let values = OwnedBindings::new(values);
            let bound = |index| {
                let modification = Modification::InBatch { batch: statement.clone(), index };
                BoundStatement::new(modification, values.clone(), call)
            };
            let statements = (0..statement.plan.statements.len()).map(bound).collect::<Result<_>>()?;
            let (kind, now_micros) = (statement.plan.kind, call.now_micros);
            let request = BatchRequest { kind, statements, options: options.clone(), now_micros };
            guardrails::check_batch(context, &request, user.as_deref(), warnings)?;
            batch(context, request, warnings)
        }
        Statement::Transaction(statement) => {
            let is_guarded = !context.is_superuser(user.as_deref());
            let transaction =
                Transaction::of_block(context, statement, values, call, options.clone(), is_guarded)?;
            guardrails::check_transaction(context, &transaction, user.as_deref(), warnings)?;
            if context.node.disks.is_any_short() {
                let partitions = transaction.statements.iter().flat_map(BoundStatement::partitions);
                disk_room::check(context, partitions, options.consistency, warnings)?;
            }
            Execution::Pending(Box::pin(transact(context.clone(), transaction)))
        }
        Statement::Use(_) if !context.node.config.use_statements_enabled => {
            return Err(RequestError::invalid("USE statements prohibited. (see use_statements_enabled)"));
        }
        Statement::Use(statement) => Execution::Ready(Ok(Outcome::SetKeyspace(statement.plan.clone()))),
        Statement::Truncate(statement) if statement.plan.kind == TableKind::Virtual => {
            let forgotten = (NodeReports::of(context).forget)(context.clone(), statement.plan.clone());
            Execution::Pending(Box::pin(async move { forgotten.await.map(|()| Outcome::Void) }))
        }
        Statement::Truncate(statement) => {
            Execution::Pending(Box::pin(views::truncate(context.clone(), statement.plan.clone())))
        }
        Statement::Check(statement) => {
            let (view, repairs) = (statement.plan.view.clone(), statement.plan.repair);
            Execution::Pending(Box::pin(check::check(context.clone(), view, repairs)))
        }
        Statement::Schema(statement) => {
            Execution::Pending(Box::pin(schema::change(context.clone(), statement.clone(), user)))
        }
        Statement::Roles(statement) => {
            Execution::Pending(Box::pin(roles::execute(context.clone(), statement.clone(), user)))
        }
        Statement::Explain(_) => unreachable!("an EXPLAIN is executed above"),
        Statement::Describe(statement) => {
            let keyspace = statement.keyspace.as_deref();
            Execution::Ready(schema::describe(context, &statement.plan, keyspace, options))
        }
    })
}

/// The value of USING TIMEOUT.
fn timeout(statement: &Statement, bindings: &Bindings<'_>) -> Result<Option<Duration>> {
    let term = match statement {
        Statement::Select(statement) => &statement.plan.timeout,
        Statement::Modify(statement) => &statement.plan.timeout,
        Statement::Batch(statement) => &statement.plan.timeout,
        Statement::Transaction(_)
        | Statement::Truncate(_)
        | Statement::Check(_)
        | Statement::Use(_)
        | Statement::Schema(_)
        | Statement::Roles(_)
        | Statement::Describe(_)
        | Statement::Explain(_) => &None,
    };
    term.as_ref().map(|term| timeout_value(term, bindings)).transpose()
}

/// The error of a statement that waits for nothing.
fn timed_out(statement: &Statement, consistency: Consistency) -> RequestError {
    let write_type = match statement {
        Statement::Modify(statement) if statement.plan.conditions.is_some() => WriteType::Cas,
        Statement::Modify(statement) if statement.plan.is_counter() => WriteType::Counter,
        Statement::Modify(_) => WriteType::Simple,
        Statement::Batch(_) => WriteType::Batch,
        _ => {
            return RequestError::ReadTimeout { consistency, received: 0, required: 1, data_present: false };
        }
    };
    RequestError::WriteTimeout { consistency, received: 0, required: 1, write_type, contentions: 0 }
}

/// Refuses a consistency level that the statement or the live replicas do not allow.
fn check_consistency(context: &ShardContext, statement: &Statement, level: Consistency) -> Result<()> {
    match statement {
        Statement::Select(statement) => {
            let view = context.catalog_view();
            let table = &statement.plan.table;
            consistency::check(&view.catalog, &context.cluster_view(), table, level, Access::Read)
        }
        Statement::Modify(statement) => check_modifications(context, [&statement.plan], level),
        Statement::Batch(statement) => check_modifications(context, &statement.plan.statements, level),
        Statement::Transaction(statement) => {
            let plan = &statement.plan;
            // One that only reads is a read at SERIAL, whichever level it is sent with.
            if plan.modifications.is_empty() {
                return Ok(());
            }
            let (view, cluster) = (context.catalog_view(), context.cluster_view());
            consistency::check(&view.catalog, &cluster, &plan.table, level, Access::Conditional)
        }
        Statement::Truncate(_)
        | Statement::Check(_)
        | Statement::Use(_)
        | Statement::Schema(_)
        | Statement::Roles(_)
        | Statement::Describe(_)
        | Statement::Explain(_) => Ok(()),
    }
}

/// Refuses a consistency level that one of the modifications of a request, or its live replicas, do not allow.
fn check_modifications<'p>(
    context: &ShardContext,
    plans: impl IntoIterator<Item = &'p ModifyPlan, IntoIter: Clone>,
    level: Consistency,
) -> Result<()> {
    let mut plans = plans.into_iter();
    let is_conditional = plans.clone().any(|plan| plan.conditions.is_some());
    let access = if is_conditional { Access::Conditional } else { Access::Write };
    let (view, cluster) = (context.catalog_view(), context.cluster_view());
    plans.try_for_each(|plan| consistency::check(&view.catalog, &cluster, &plan.table, level, access))
}

/// Begins a batch. Also returns whether it has conditions.
fn run_batch(
    connection: &Rc<Connection>,
    message: &Batch<'_>,
    warnings: &mut Vec<String>,
    (started, noted): NotedSince<'_>,
) -> Result<(bool, Execution)> {
    let context = &connection.context;
    let limit = context.node.config.max_batch_statements;
    if message.len() > limit {
        return Err(RequestError::invalid(format!(
            "A batch of {} statements is larger than the limit of {limit}",
            message.len()
        )));
    }
    let keyspace = message.keyspace.map(Rc::from).or_else(|| connection.keyspace.borrow().clone());
    let view = context.catalog_view();
    let call = context.call_context();
    let mut statements = Vec::with_capacity(message.len());
    for (query, values) in message.statements() {
        let statement = match query {
            BatchQuery::Prepared(id) => {
                context.metrics.prepared_executed.increment();
                context.statements.get(&context.node.registry, id, &view)?
            }
            BatchQuery::Text(text) => {
                check_length(connection, text)?;
                context.metrics.texts_executed.increment();
                Statement::new(text, keyspace.as_deref(), &view)?
            }
        };
        authorization::authorize(connection, &statement)?;
        let rewritten = Rewritten::default();
        let values = OwnedBindings::new(&bind(&statement.markers, values, &[], &rewritten)?);
        statements.push(BoundStatement::new(Modification::of(statement)?, values, call)?);
    }
    let kind = match message.kind {
        BatchKind::Logged => ast::BatchKind::Logged,
        BatchKind::Unlogged => ast::BatchKind::Unlogged,
        BatchKind::Counter => ast::BatchKind::Counter,
    };
    let options = RequestOptions {
        consistency: message.consistency,
        serial_consistency: message.serial_consistency,
        page_rows: None,
        paging_state: None,
        timestamp: message.timestamp_us,
        now_seconds: message.now_in_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
        deadline: None,
        is_of_client: true,
    };
    let request = BatchRequest { kind, statements, options, now_micros: call.now_micros };
    check_modifications(context, request.plans(), request.options.consistency)?;
    guardrails::check_batch(context, &request, connection.user.borrow().as_deref(), warnings)?;
    let is_conditional = request.plans().any(|plan| plan.conditions.is_some());
    if let Some(charge) = noted.as_mut().and_then(|noted| noted.charge.as_mut()) {
        charge.of_batch(&request);
    }
    let limit = limit_of_changes(request.plans());
    let execute = || batch(context, request, warnings);
    Ok((is_conditional, Noted::within_limit(noted, context, started, limit, execute)))
}
