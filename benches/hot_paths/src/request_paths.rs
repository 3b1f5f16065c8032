//! The server's hot paths: from the bytes of an EXECUTE to a plan with its values, from there to a mutation, and from stored
//! rows to an answer.

use std::hint::black_box;
use std::sync::Arc;

use bytes::BytesMut;
use cql_lite::frame::client::encode_request;
use cql_lite::frame::request::Value;
use cql_lite::frame::{
    Consistency, Decoder, Execute, Flags, ProtocolVersion, QueryParameters, Request, Role, decode_request,
};
use cql_lite::syntax;
use helenus_answers::respond::Responder;
use helenus_engine::key::REGULAR_START;
use helenus_engine::{Cell, CellKind, Liveness, RowBuilder, RowRef};
use helenus_execution::coordinator::Outcome;
use helenus_query::bind::{Rewritten, bind};
use helenus_query::functions::CallContext;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::term::{BindValue, Bindings};
use helenus_query::run::keys;
use helenus_query::run::keys::partition_keys;
use helenus_query::run::modify::{MutationSet, WriteContext};
use helenus_query::run::select::{Flow, PageBounds, SelectRun};
use helenus_query::schema::catalog::CatalogView;
use helenus_query::schema::ddl::{self, DdlContext};
use helenus_query::schema::options::DataCenters;
use helenus_query::schema::system_tables::initial_catalog;
use helenus_query::statement::{Prepared, Registry, Statement, StatementCache};
use helenus_query::stored_key::SourceRow;
use uuid::Uuid;

use crate::workload::{Failure, Workload};

const VERSION: ProtocolVersion = ProtocolVersion::V4;
const NOW_MICROS: i64 = 1_700_000_000_000_000;
const NOW_SECONDS: u32 = 1_700_000_000;
const ROWS: usize = 100;
const BODY_BYTES_MAX: usize = 1 << 20;
const PAGE: PageBounds = PageBounds { rows: Some(5_000), bytes: 1 << 20 };

const SCHEMA: [&str; 3] = [
    "CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE bench.items (id bigint PRIMARY KEY, a blob, b blob, c blob, d blob, e blob)",
    "CREATE TABLE bench.events (parcel bigint, at timestamp, place text, note text, PRIMARY KEY (parcel, at)) \
     WITH CLUSTERING ORDER BY (at DESC)",
];
const PUT: &str = "INSERT INTO bench.items (id, a, b, c, d, e) VALUES (?, ?, ?, ?, ?, ?)";
const HISTORY: &str = "SELECT at, place, note FROM bench.events WHERE parcel = ? LIMIT 100";

/// The catalog of a node on which `SCHEMA` was run.
fn catalog() -> Result<CatalogView, Failure> {
    let mut catalog = Arc::new(initial_catalog(Uuid::from_u128(1)));
    for (number, text) in (2..).zip(SCHEMA) {
        let context = DdlContext {
            now_micros: NOW_MICROS,
            new_id: Uuid::from_u128(number),
            new_version: Uuid::from_u128(number),
            data_centers: DataCenters::from([("datacenter1".to_owned(), 1)]),
            user_functions: &helenus_query::functions::user::NoUserFunctions,
            may_drop_compact_storage: false,
        };
        catalog = ddl::execute(&catalog, &syntax::parse(text)?, None, &context)?.catalog;
    }
    Ok(CatalogView::new(1, catalog))
}

/// An EXECUTE of an INSERT of six values: frame decoded, statement found, values checked.
pub struct FrameToPlan {
    catalog: CatalogView,
    registry: Registry,
    statements: StatementCache,
    decoder: Decoder,
    input: BytesMut,
    frame: BytesMut,
}

impl FrameToPlan {
    pub fn prepare() -> Result<Self, Failure> {
        let (registry, statements, catalog) = (Registry::default(), StatementCache::default(), catalog()?);
        let statement = statements.prepare(&registry, PUT, None, &catalog)?;
        let mut parameters = QueryParameters::new(Consistency::LocalOne);
        let (id, value) = (7_i64.to_be_bytes(), [7; 40]);
        parameters.values.push(Value::Bytes(&id));
        parameters.values.extend([Value::Bytes(&value); 5]);
        parameters.timestamp_us = Some(NOW_MICROS);
        let execute = Execute { id: &statement.id, result_metadata_id: None, parameters };
        let mut frame = BytesMut::new();
        encode_request(&mut frame, VERSION, 1, Flags::default(), &[], &Request::Execute(execute));
        let decoder = Decoder::new(Role::Server, BODY_BYTES_MAX);
        Ok(Self { catalog, registry, statements, decoder, input: BytesMut::new(), frame })
    }
}

impl Workload for FrameToPlan {
    fn operation(&mut self, _number: u64) -> Result<(), Failure> {
        self.input.extend_from_slice(&self.frame);
        let envelope = self.decoder.next(&mut self.input)?.ok_or("the frame is not whole")?;
        let decoded = decode_request(&envelope.header, envelope.body, false)?;
        let Request::Execute(execute) = &decoded.request else { return Err("not an EXECUTE".into()) };
        let statement = self.statements.get(&self.registry, execute.id, &self.catalog)?;
        let rewritten = Rewritten::default();
        let values =
            bind(&statement.markers, &execute.parameters.values, &execute.parameters.names, &rewritten)?;
        black_box((statement, values));
        Ok(())
    }
}

/// An INSERT of six values, from its values to the mutation that the engine takes.
pub struct ValuesToMutation {
    statement: Arc<Prepared<ModifyPlan>>,
}

impl ValuesToMutation {
    pub fn prepare() -> Result<Self, Failure> {
        match Statement::new(PUT, None, &catalog()?)? {
            Statement::Modify(statement) => Ok(Self { statement }),
            _ => Err("not an INSERT".into()),
        }
    }
}

impl Workload for ValuesToMutation {
    fn operation(&mut self, number: u64) -> Result<(), Failure> {
        let (id, value) = (number.to_be_bytes(), [7; 40]);
        let mut values = [BindValue::Bytes(&value); 6];
        values[0] = BindValue::Bytes(&id);
        let call = CallContext::at(NOW_MICROS);
        let write = WriteContext {
            mutation_bytes_max: 16 << 20,
            timestamp: NOW_MICROS,
            now_seconds: NOW_SECONDS,
            now_micros: NOW_MICROS,
            is_exact: false,
            counter_id: [0; 16],
        };
        let mut set = MutationSet::default();
        let bindings = Bindings { values: &values, call: &call };
        let plan = &self.statement.plan;
        set.add(plan, partition_keys(&plan.partition, &plan.table, &bindings)?, &bindings, &write, None)?;
        black_box(set.finish(&write, None)?);
        Ok(())
    }
}

/// A hundred rows as the engine hands them out: read into slots, selected, written as a RESULT frame.
pub struct RowsToAnswer {
    statement: Arc<Prepared<SelectPlan>>,
    partition_key: [u8; 8],
    /// Position and row bytes (base 0).
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    out: BytesMut,
}

impl RowsToAnswer {
    pub fn prepare() -> Result<Self, Failure> {
        let catalog = catalog()?;
        let Statement::Select(statement) = Statement::new(HISTORY, None, &catalog)? else {
            return Err("not a SELECT".into());
        };
        let table = catalog.catalog.table("bench", "events").ok_or("no table bench.events")?;
        let id = |name| table.column(name).map(|column| column.id).ok_or("no such column");
        let (place, note) = (id("place")?, id("note")?);
        let mut rows = Vec::with_capacity(ROWS);
        for number in (0..ROWS as i64).rev() {
            let mut position = REGULAR_START.to_vec();
            let at_ms = 1_700_000_000_000 + number * 60_000;
            keys::encode(&table.clustering_key()[0], &at_ms.to_be_bytes(), &mut position)?;
            let timestamp = NOW_MICROS + number;
            let text = format!("parcel 7 step {number}: loaded on the truck to the next hub");
            let mut row = RowBuilder::new();
            row.set_liveness(Liveness { timestamp, expiry: None });
            for (column, value) in [(place, &b"hub-123"[..]), (note, text.as_bytes())] {
                row.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value });
            }
            rows.push((position, row.to_bytes()));
        }
        Ok(Self { statement, partition_key: 7_i64.to_be_bytes(), rows, out: BytesMut::new() })
    }
}

impl Workload for RowsToAnswer {
    fn operation(&mut self, _number: u64) -> Result<(), Failure> {
        let values = [BindValue::Bytes(&self.partition_key)];
        let call = CallContext::at(NOW_MICROS);
        let bindings = Bindings { values: &values, call: &call };
        let mut run = SelectRun::new(&self.statement.plan, bindings, NOW_SECONDS, PAGE, None)?;
        let mut flow = Flow::Continue;
        for (position, row) in &self.rows {
            let row = RowRef::new(row, 0);
            flow = run.row(&SourceRow { partition_key: &self.partition_key, position, row })?;
        }
        if flow != Flow::Done {
            return Err("the answer is not complete".into());
        }
        self.out.clear();
        let mut responder = Responder::new(VERSION, 1);
        responder.skip_metadata = true;
        responder.respond(&mut self.out, Some(&self.statement), &Ok(Outcome::Rows(run.page(false)?)));
        black_box(&self.out);
        Ok(())
    }
}
