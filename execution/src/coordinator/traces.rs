//! Traces in the tables of `system_traces`, as Cassandra keeps them: for a day.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use cql_lite::types::codec;
use futures::future::LocalBoxFuture;
use helenus_query::bind::OwnedBindings;
use helenus_query::error::Result;
use helenus_query::plan::term::{BindValue, Bindings};
use helenus_query::run::keys::partition_keys;
use helenus_query::run::modify::{MutationSet, WriteContext};
use helenus_query::statement::Statement;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::write::write_all;
use crate::shard::context::ShardContext;
use crate::shard::trace::{TraceEvent, TraceLog};

const SESSION: &str = "INSERT INTO system_traces.sessions (session_id, client, command, coordinator, coordinator_port, \
    duration, parameters, request, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL 86400";
const EVENT: &str = "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_port, \
    source_elapsed, thread) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL 86400";
/// How long an answer waits until the steps of its trace are stored.
const PATIENCE: Duration = Duration::from_millis(200);

/// A traced request, as its coordinator knows it.
#[derive(Debug)]
pub struct TracedRequest {
    pub client: IpAddr,
    pub command: &'static str,
    pub request: &'static str,
    pub parameters: BTreeMap<String, String>,
    /// Microseconds since the epoch.
    pub started_micros: i64,
}

/// Stores the row of a trace, and the steps of this node. Resolves when that is done, or has taken long; it goes on then.
pub async fn store(context: &Rc<ShardContext>, log: &TraceLog, traced: TracedRequest) {
    let (session, duration, events) = (log.session, micros(log.elapsed(context)), log.take_events());
    in_background(context, move |context| {
        Box::pin(async move {
            store_events(&context, session, &events).await?;
            // Last: clients that see it read the steps.
            store_session(&context, session, duration, &traced).await
        })
    })
    .await;
}

/// Stores the steps of this node as a replica. As [`store`].
pub async fn store_of_replica(context: &Rc<ShardContext>, log: &TraceLog) {
    let (session, events) = (log.session, log.take_events());
    in_background(context, move |context| {
        Box::pin(async move { store_events(&context, session, &events).await })
    })
    .await;
}

async fn in_background(
    context: &Rc<ShardContext>,
    work: impl FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, Result<()>>,
) {
    let (done, is_done) = oneshot::channel::<()>();
    let work = work(context.clone());
    tokio::task::spawn_local(async move {
        if let Err(error) = work.await {
            // It has its own end: the request has its own outcome.
            tracing::debug!(%error, "a trace could not be stored");
        }
        drop(done);
    });
    tokio::select! {
        _ = is_done => {}
        () = context.clock.sleep(PATIENCE) => {}
    }
}

async fn store_session(
    context: &Rc<ShardContext>,
    session: Uuid,
    duration: [u8; 4],
    traced: &TracedRequest,
) -> Result<()> {
    let (source, port) = source(context);
    let parameters = codec::encode_entries(
        traced.parameters.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())),
    );
    let started_millis = (traced.started_micros / 1_000).to_be_bytes();
    let client = address_bytes(traced.client);
    let values: [&[u8]; 9] = [
        session.as_bytes(),
        &client,
        traced.command.as_bytes(),
        &source,
        &port,
        &duration,
        &parameters,
        traced.request.as_bytes(),
        &started_millis,
    ];
    insert(context, SESSION, &[&values]).await
}

async fn store_events(context: &Rc<ShardContext>, session: Uuid, events: &[TraceEvent]) -> Result<()> {
    let (source, port) = source(context);
    let threads: Vec<String> = events.iter().map(|event| format!("shard-{}", event.shard)).collect();
    let elapsed: Vec<[u8; 4]> = events.iter().map(|event| micros(event.elapsed)).collect();
    let rows: Vec<[&[u8]; 7]> = events
        .iter()
        .zip(threads.iter().zip(&elapsed))
        .map(|(event, (thread, elapsed))| -> [&[u8]; 7] {
            [
                session.as_bytes(),
                event.id.as_bytes(),
                event.activity.as_bytes(),
                &source,
                &port,
                elapsed,
                thread.as_bytes(),
            ]
        })
        .collect();
    let rows: Vec<&[&[u8]]> = rows.iter().map(|row| &row[..]).collect();
    insert(context, EVENT, &rows).await
}

/// Inserts rows of one partition with one mutation.
async fn insert(context: &Rc<ShardContext>, text: &str, rows: &[&[&[u8]]]) -> Result<()> {
    let mutations = {
        let statement = Statement::new(text, None, &context.catalog_view())?;
        let Statement::Modify(statement) = statement else { unreachable!("{text} is an INSERT") };
        let (plan, call) = (&statement.plan, context.call_context());
        let write = WriteContext {
            timestamp: context.next_timestamp(),
            now_seconds: context.now_seconds(),
            now_micros: 1,
            is_exact: false,
            counter_id: [0; 16],
            mutation_bytes_max: context.node.config.mutation_bytes_max(),
        };
        let mut set = MutationSet::default();
        for row in rows {
            let values: Vec<BindValue<'_>> = row.iter().map(|bytes| BindValue::Bytes(bytes)).collect();
            let owned = OwnedBindings::new(&values);
            let bindings = Bindings { values: &owned.borrow(), call: &call };
            let keys = partition_keys(&plan.partition, &plan.table, &bindings)?;
            set.add(plan, keys, &bindings, &write, None)?;
        }
        set.finish(&write, None)?
    };
    // It is enough that one node has it.
    write_all(context, mutations, Consistency::Any, WriteType::Simple).await
}

/// The address and the port by which clients reach this node.
fn source(context: &ShardContext) -> (Vec<u8>, [u8; 4]) {
    let information = &context.node.information;
    (address_bytes(information.rpc_address), i32::from(information.native_port).to_be_bytes())
}

fn micros(duration: Duration) -> [u8; 4] {
    i32::try_from(duration.as_micros()).unwrap_or(i32::MAX).to_be_bytes()
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
