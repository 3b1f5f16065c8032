//! Traces of requests that asked for one. They are written to `system_traces` before the request is answered, so that
//! a client that reads its trace at once finds it complete.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::request::Request;
use cql_lite::frame::response::WriteType;
use cql_lite::types::codec;
use helenus_query::bind::OwnedBindings;
use helenus_query::error::Result;
use helenus_query::plan::term::{BindValue, Bindings};
use helenus_query::run::keys::partition_keys;
use helenus_query::run::modify::{MutationSet, WriteContext};
use helenus_query::statement::Statement;
use uuid::Uuid;

use crate::session::connection_state::Connection;
use helenus_execution::coordinator::write::write_all;
use helenus_execution::shard::context::ShardContext;

/// Traces are kept for a day, as in Cassandra.
const SESSION: &str = "INSERT INTO system_traces.sessions (session_id, client, command, coordinator, coordinator_port, \
    duration, parameters, request, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL 86400";
const EVENT: &str = "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_port, \
    source_elapsed, thread) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL 86400";

/// The trace of a request in flight.
pub struct Trace {
    id: Uuid,
    /// Id of the first event; such an id contains its time.
    received: Uuid,
    started_micros: i64,
    started: Duration,
    command: &'static str,
    request: &'static str,
    parameters: BTreeMap<String, String>,
}

impl Trace {
    pub fn begin(connection: &Connection, request: &Request<'_>) -> Self {
        let context = &connection.context;
        let mut parameters = BTreeMap::new();
        let (command, name) = match request {
            Request::Query(query) => {
                parameters.insert("query".to_owned(), query.statement.to_owned());
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
                parameters.insert("query".to_owned(), prepare.statement.to_owned());
                ("QUERY", "Preparing CQL3 query")
            }
            _ => ("NONE", "Request"),
        };
        Self {
            id: context.time_uuid(),
            received: context.time_uuid(),
            started_micros: context.clock.now_micros(),
            started: context.clock.monotonic(),
            command,
            request: name,
            parameters,
        }
    }

    /// The id that is sent to the client.
    pub fn id(&self) -> [u8; 16] {
        *self.id.as_bytes()
    }

    /// Writes the trace. A failure is logged but not reported to the client, whose request has its own outcome.
    pub async fn finish(self, connection: &Rc<Connection>) {
        if let Err(error) = self.write(connection).await {
            tracing::warn!(%error, "a trace could not be written");
        }
    }

    /// Like [`Trace::finish`], in the background.
    pub fn finish_detached(self, connection: &Rc<Connection>) {
        let connection = connection.clone();
        tokio::task::spawn_local(async move { self.finish(&connection).await });
    }

    async fn write(self, connection: &Connection) -> Result<()> {
        let context = &connection.context;
        let ready = context.time_uuid();
        let duration_us = context.clock.monotonic().saturating_sub(self.started).as_micros() as i32;
        let source = address_bytes(context.node.information.rpc_address);
        let port = i32::from(context.node.information.native_port).to_be_bytes();
        let parameters = codec::encode_entries(
            self.parameters.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())),
        );
        let thread = format!("shard-{}", context.index);
        let events = [("Request received", self.received, 0), ("Answer is ready", ready, duration_us)];
        let session: [&[u8]; 9] = [
            self.id.as_bytes(),
            &address_bytes(connection.peer.ip()),
            self.command.as_bytes(),
            &source,
            &port,
            &duration_us.to_be_bytes(),
            &parameters,
            self.request.as_bytes(),
            &(self.started_micros / 1_000).to_be_bytes(),
        ];
        insert(context, SESSION, &session).await?;
        for (activity, event_id, elapsed) in events {
            let values: [&[u8]; 7] = [
                self.id.as_bytes(),
                event_id.as_bytes(),
                activity.as_bytes(),
                &source,
                &port,
                &elapsed.to_be_bytes(),
                thread.as_bytes(),
            ];
            insert(context, EVENT, &values).await?;
        }
        Ok(())
    }
}

async fn insert(context: &Rc<ShardContext>, text: &str, values: &[&[u8]]) -> Result<()> {
    let mutations = {
        let statement = Statement::new(text, None, &context.catalog_view())?;
        let values: Vec<BindValue<'_>> = values.iter().map(|bytes| BindValue::Bytes(bytes)).collect();
        let owned = OwnedBindings::new(&values);
        let values = owned.borrow();
        let call = context.call_context();
        let bindings = Bindings { values: &values, call: &call };
        let write = WriteContext {
            timestamp: context.next_timestamp(),
            now_seconds: context.now_seconds(),
            now_micros: 1,
            is_exact: false,
            counter_id: [0; 16],
            mutation_bytes_max: context.node.config.mutation_bytes_max(),
        };
        let mut set = MutationSet::default();
        let Statement::Modify(statement) = statement else { unreachable!("{text} is an INSERT") };
        let plan = &statement.plan;
        set.add(plan, partition_keys(&plan.partition, &plan.table, &bindings)?, &bindings, &write, None)?;
        set.finish(&write, None)?
    };
    // A trace is not worth waiting for: it is enough that one node has it.
    write_all(context, mutations, Consistency::Any, WriteType::Simple).await
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
