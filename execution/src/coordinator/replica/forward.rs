//! Statements that read before they write (counters, lists changed by index or value).
//!
//! A replica of the partition leads: the shard that owns the partition reads and writes in one turn, and the
//! resulting mutation goes to the other replicas at the client's level. A coordinator that is no replica forwards the
//! statements as texts and values, one partition in each request.
//!
//! Invariants: the leader's own write is durable before it is replicated. Nothing is read or written if the request
//! is of an older epoch, so then the coordinator may repeat it. Nothing is written if the leader cannot read the rows: then another
//! replica leads. After any other failure it is unknown whether a counter was changed: the client gets a timeout, and nothing is
//! repeated.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::types::token::shard_of;
use helenus_engine::EngineError;
use helenus_internode::service::Failure;
use helenus_internode::transport::{CallError, PeerError};
use helenus_query::bind::{OwnedBindings, Rewritten, check};
use helenus_query::error::{FailureReason, RequestError, Result};
use helenus_query::plan::term::BindValue;
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::Table;
use helenus_query::statement::{Statement, statement_id};
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::placement::Replicas;

use super::message::{ReplicaRequest, ReplicaResponse};
use super::write::{self, WriteOptions};
use super::{admission, epoch};
use crate::coordinator::RequestOptions;
use crate::coordinator::bound_statement::{BoundStatement, Modification, unrepeatable_key};
use crate::coordinator::local_write::apply_statements;
use crate::coordinator::replica::failures::failure_reason;
use crate::coordinator::replica::forwarded::{
    ForwardRequest, ForwardedError, ForwardedKind, ForwardedStatement, ForwardedValue,
};
use crate::shard::context::{IGNORE_MSB, ShardContext};
use crate::shard::receipt;

/// Statements that read before they write, all on the partition of one token.
#[derive(Clone)]
pub struct Led {
    pub token: i64,
    pub table: Arc<Table>,
    pub statements: Vec<BoundStatement>,
    /// Includes the timestamp of all mutations of the request.
    pub options: RequestOptions,
    /// Time of the request, in microseconds since the epoch.
    pub now_micros: i64,
    pub kind: ForwardedKind,
    /// Monotonic time on the clock of this node.
    pub deadline: Duration,
}

/// The reason why a leader did not execute the statements.
enum LeadError {
    /// Nothing was done: the ring has changed.
    Stale(u64),
    Request(RequestError),
}

impl From<RequestError> for LeadError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<EngineError> for LeadError {
    fn from(error: EngineError) -> Self {
        Self::Request(error.into())
    }
}

impl From<Failure> for LeadError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::StaleRing { epoch } => Self::Stale(epoch),
            failure => Self::Request(RequestError::Server(failure.to_string())),
        }
    }
}

/// Refuses writes that are charged more than the request may be, before the first is sent. What they write is known only where they are led; this
/// is the least.
pub fn check_charge(context: &ShardContext, writes: &[Led]) -> Result<()> {
    let replicas = || {
        let view = context.cluster_view();
        let first = writes.first();
        let placed = first.and_then(|led| Some((view.placement(&led.table.keyspace)?, led.token)));
        placed.map_or(1, |(placement, token)| placement.replicas(token).all().count() as u64)
    };
    receipt::check_partitions(writes.len() as u64, replicas)
}

/// Sends the statements to a leader, which executes them and replicates the result at the client's level.
pub async fn write(context: &Rc<ShardContext>, led: Led) -> Result<()> {
    // The replicas that cannot read the rows, and the error of the last one.
    let mut unable: Vec<HostId> = Vec::new();
    let mut unreadable = None;
    loop {
        let chosen = match leader(context, &led, &unable) {
            Err(error @ RequestError::Unavailable { .. }) => return Err(unreadable.unwrap_or(error)),
            chosen => chosen?,
        };
        let (outcome, leader) = match chosen {
            Some((epoch, Some(leader))) => {
                (forward(context, &leader, epoch, &led).await, Some(leader.host_id))
            }
            here => {
                let epoch = here.map(|(epoch, _)| epoch);
                let owner = context.node.shard_of(led.token);
                let led = led.clone();
                let outcome =
                    context.run_on(owner, move |context| Box::pin(lead(context, epoch, led))).await?;
                (outcome, epoch.map(|_| context.node.host_id))
            }
        };
        match (outcome, leader) {
            (Ok(()), _) => return Ok(()),
            (Err(LeadError::Request(error @ RequestError::Unreadable(_))), Some(leader)) => {
                unable.push(leader);
                unreadable = Some(error);
            }
            (Err(LeadError::Request(error)), _) => return Err(error),
            (Err(LeadError::Stale(epoch)), _) => {
                let left = led.deadline.saturating_sub(context.clock.monotonic());
                if !epoch::catch_up(context, epoch, left).await {
                    return Err(timed_out(context, &led));
                }
            }
        }
    }
}

/// The epoch and the member that leads (`None` as member: this node), not one of `unable`. The outer `None`: the table exists on this node
/// only.
fn leader(
    context: &ShardContext,
    led: &Led,
    unable: &[HostId],
) -> Result<Option<(u64, Option<Arc<Member>>)>> {
    let view = context.cluster();
    let Some(placement) = view.placement(&led.table.keyspace) else { return Ok(None) };
    let replicas = placement.replicas(led.token);
    let epoch = view.topology.epoch;
    let consistency = led.options.consistency;
    write::check_alive_among(context, &led.table.keyspace, replicas, consistency)?;
    let able = || replicas.read.iter().filter(|member| !unable.contains(&member.host_id));
    if able().any(|member| member.host_id == context.node.host_id) {
        return Ok(Some((epoch, None)));
    }
    let config = &context.node.config;
    let distance = |member: &Member| {
        let is_near = member.data_center == config.data_center;
        (!is_near, !(is_near && member.rack == config.rack))
    };
    let alive: Vec<&Arc<Member>> = able().filter(|member| view.is_alive(&member.host_id)).collect();
    let nearest = alive.iter().map(|member| distance(member)).min();
    let equals: Vec<&Arc<Member>> =
        alive.into_iter().filter(|member| Some(distance(member)) == nearest).collect();
    let choice = context.random.borrow_mut().below(equals.len() as u64) as usize;
    if let Some(member) = equals.get(choice) {
        return Ok(Some((epoch, Some((*member).clone()))));
    }
    let required = required(context, &led.table, replicas, consistency);
    Err(RequestError::Unavailable { consistency, required, alive: 0 })
}

fn required(context: &ShardContext, table: &Table, replicas: &Replicas, level: Consistency) -> u32 {
    write::demand(context, &table.keyspace, replicas, level).map_or(1, |demand| demand.required())
}

fn timed_out(context: &ShardContext, led: &Led) -> RequestError {
    let view = context.cluster();
    let consistency = led.options.consistency;
    let required = view
        .placement(&led.table.keyspace)
        .map_or(1, |placement| required(context, &led.table, placement.replicas(led.token), consistency));
    let write_type = led.kind.write_type();
    RequestError::WriteTimeout { consistency, received: 0, required, write_type, contentions: 0 }
}

async fn forward(
    context: &Rc<ShardContext>,
    leader: &Member,
    epoch: u64,
    led: &Led,
) -> Result<(), LeadError> {
    let consistency = led.options.consistency;
    let left = led.deadline.saturating_sub(context.clock.monotonic());
    let request = ReplicaRequest::Forward(ForwardRequest {
        epoch,
        token: led.token,
        statements: led.statements.iter().map(forwarded).collect(),
        consistency: consistency.code(),
        timestamp: led.options.timestamp.unwrap_or_else(|| context.next_timestamp()),
        now_seconds: led.options.now_seconds,
        now_micros: led.now_micros,
        kind: led.kind,
        timeout_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    });
    let shard = shard_of(led.token, u32::from(leader.shard_count), IGNORE_MSB) as u16;
    match context.ask(leader, shard, &request, left).await {
        Ok(ReplicaResponse::Forwarded(Ok(()))) => Ok(()),
        Ok(ReplicaResponse::Forwarded(Err(error))) => {
            Err(error.into_request_error(consistency, led.kind.write_type()).into())
        }
        Ok(_) => Err(RequestError::Server("the leader's answer is none".to_owned()).into()),
        Err(PeerError::Failed(Failure::StaleRing { epoch })) => Err(LeadError::Stale(epoch)),
        Err(PeerError::Failed(Failure::Overloaded(message))) => Err(RequestError::Overloaded(message).into()),
        Err(PeerError::Call(error @ CallError::Overloaded { .. })) => {
            Err(RequestError::Overloaded(error.to_string()).into())
        }
        Err(error) => {
            tracing::debug!(leader = %leader.host_id, %error, "a leader did not answer a forwarded write");
            if failure_reason(&error) == FailureReason::Unknown {
                return Err(RequestError::Server(error.to_string()).into());
            }
            // The leader may have executed it.
            Err(timed_out(context, led).into())
        }
    }
}

fn forwarded(bound: &BoundStatement) -> ForwardedStatement {
    let (source, index) = bound.modification.source();
    ForwardedStatement {
        text: source.text.to_string(),
        keyspace: source.keyspace.as_deref().map(str::to_owned),
        index: index.map(|index| index as u32),
        values: bound
            .values
            .borrow()
            .iter()
            .map(|value| match value {
                BindValue::Null => ForwardedValue::Null,
                BindValue::Unset => ForwardedValue::Unset,
                BindValue::Bytes(bytes) => ForwardedValue::Bytes(bytes.to_vec()),
            })
            .collect(),
    }
}

/// Leads on the shard of this node that owns the partition.
async fn lead(context: Rc<ShardContext>, epoch: Option<u64>, led: Led) -> Result<(), LeadError> {
    let left = led.deadline.saturating_sub(context.clock.monotonic());
    if let Some(epoch) = epoch {
        epoch::fence(&context, epoch, left).await?;
    }
    context.shard.admit().await.map_err(RequestError::from)?;
    let level = led.options.consistency;
    let check = |changes: &[PartitionMutation]| {
        if let Some(epoch) = epoch {
            epoch::refuse_stale(&context, epoch)?;
        }
        write::check_charge(&context, changes)?;
        let bytes = changes.iter().map(|change| change.mutation.bytes().len() as u64).sum();
        admission::check_room(&context, bytes)?;
        changes.iter().try_for_each(|change| write::check_alive(&context, change, level))?;
        Ok::<(), LeadError>(())
    };
    let (changes, position) =
        apply_statements(&context, &led.statements, &led.options, led.token, check).await?;
    for change in &changes {
        write::count(&context, change);
    }
    if let Some(position) = position {
        context.shard.durable(position).await.map_err(RequestError::from)?;
    }
    if epoch.is_some() {
        // Only the other replicas are left: the mutation is one like those that read nothing, and entries of change feeds must not be longer
        // on their way than consumers wait.
        let config = &context.node.config;
        let timeout = Duration::from_millis(match led.kind {
            ForwardedKind::Counter => config.counter_write_request_timeout_ms,
            ForwardedKind::Simple | ForwardedKind::LoggedBatch | ForwardedKind::UnloggedBatch => {
                config.write_request_timeout_ms
            }
        });
        let (level, write_type) = (led.options.consistency, led.kind.write_type());
        let options = WriteOptions {
            in_flight_until: context.clock.monotonic() + timeout,
            is_applied_here: true,
            ..WriteOptions::new(&context, level, write_type, Some(led.deadline))
        };
        write::write(&context, changes, options).await?;
    }
    Ok(())
}

/// Executes statements that a coordinator forwarded to this node.
pub async fn receive(
    context: &Rc<ShardContext>,
    request: ForwardRequest,
) -> Result<ReplicaResponse, Failure> {
    let owner = context.node.shard_of(request.token);
    if owner == context.index {
        return receive_at_owner(context.clone(), request).await;
    }
    context
        .run_on(owner, move |context| Box::pin(receive_at_owner(context, request)))
        .await
        .map_err(|error| Failure::Internal(error.to_string()))?
}

async fn receive_at_owner(
    context: Rc<ShardContext>,
    request: ForwardRequest,
) -> Result<ReplicaResponse, Failure> {
    let consistency =
        Consistency::from_code(request.consistency).map_err(|error| Failure::Malformed(error.to_string()))?;
    let timeout = Duration::from_millis(request.timeout_ms);
    // The statements are planned after this node has caught up with the ring, with the schema known then.
    epoch::fence(&context, request.epoch, timeout).await?;
    let led = match unpack(&context, &request, consistency, timeout) {
        Ok(led) => led,
        Err(error) => return Ok(ReplicaResponse::Forwarded(Err(ForwardedError::of(error)))),
    };
    match lead(context, Some(request.epoch), led).await {
        Ok(()) => Ok(ReplicaResponse::Forwarded(Ok(()))),
        Err(LeadError::Stale(epoch)) => Err(Failure::StaleRing { epoch }),
        Err(LeadError::Request(error)) => Ok(ReplicaResponse::Forwarded(Err(ForwardedError::of(error)))),
    }
}

fn unpack(
    context: &ShardContext,
    request: &ForwardRequest,
    consistency: Consistency,
    timeout: Duration,
) -> Result<Led> {
    let mut call = context.call_context();
    call.now_micros = request.now_micros;
    let mut statements = Vec::with_capacity(request.statements.len());
    let mut table = None;
    for forwarded in &request.statements {
        let statement = statement(context, forwarded)?;
        let values = values(&statement, &forwarded.values)?;
        let modification = match (forwarded.index.map(|index| index as usize), statement) {
            (None, Statement::Modify(statement)) => Modification::Single(statement),
            (Some(index), Statement::Batch(batch)) if index < batch.plan.statements.len() => {
                Modification::InBatch { batch, index }
            }
            _ => return Err(RequestError::invalid("Only modifications are forwarded")),
        };
        let bound = BoundStatement::new(modification, values, call)?;
        // The same partition as at the coordinator.
        if bound.keys.iter().all(|key| key.token != request.token) {
            return Err(unrepeatable_key());
        }
        table = Some(bound.plan().table.clone());
        statements.push(bound);
    }
    let table = table.ok_or_else(|| RequestError::invalid("Nothing was forwarded"))?;
    Ok(Led {
        token: request.token,
        table,
        statements,
        options: RequestOptions {
            consistency,
            serial_consistency: None,
            page_rows: None,
            paging_state: None,
            timestamp: Some(request.timestamp),
            now_seconds: request.now_seconds,
            deadline: None,
            is_of_client: false,
        },
        now_micros: request.now_micros,
        kind: request.kind,
        deadline: context.clock.monotonic() + timeout,
    })
}

/// Usually found in the cache: drivers prepare on every node.
fn statement(context: &ShardContext, forwarded: &ForwardedStatement) -> Result<Statement> {
    let view = context.catalog_view();
    let keyspace = forwarded.keyspace.as_deref();
    let id = statement_id(&forwarded.text, keyspace);
    match context.statements.get(&context.node.registry, &id, &view) {
        Ok(statement) => Ok(statement),
        Err(_) => Statement::new(&forwarded.text, keyspace, &view),
    }
}

fn values(statement: &Statement, values: &[ForwardedValue]) -> Result<OwnedBindings> {
    if values.len() != statement.markers.len() {
        return Err(RequestError::invalid("The forwarded values do not fit the statement"));
    }
    let mut bound: Vec<BindValue<'_>> = values
        .iter()
        .map(|value| match value {
            ForwardedValue::Null => BindValue::Null,
            ForwardedValue::Unset => BindValue::Unset,
            ForwardedValue::Bytes(bytes) => BindValue::Bytes(bytes),
        })
        .collect();
    let rewritten = Rewritten::default();
    check(&statement.markers, &mut bound, &rewritten)?;
    Ok(OwnedBindings::new(&bound))
}
