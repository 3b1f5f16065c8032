//! The connection to the cluster: statements out, pages of rows in.
//!
//! Rows are kept as wire bytes with their CQL types, so that one formatter serves all of them.

use std::{
    io::ErrorKind,
    sync::Arc,
    time::{Duration, Instant},
};

use cql_lite::{
    frame::Consistency,
    types::{CqlType, UserType, Value},
};
use scylla::{
    client::session::Session,
    deserialize::row::ColumnIterator,
    errors::{ConnectionError, ConnectionPoolError, MetadataError, NewSessionError},
    frame::{
        response::result::{CollectionType, ColumnType, NativeType},
        types::{Consistency as DriverConsistency, SerialConsistency},
    },
    response::{PagingState, PagingStateResponse, query_result::QueryResult},
    statement::Statement,
};
use tokio::runtime::{Handle, Runtime};
use uuid::Uuid;

use crate::{
    contact_point,
    error::ShellError,
    interrupt::Interrupts,
    relay::Relay,
    target::{Target, format_address},
};

/// How long after it was refused a connection is tried again.
const REFUSED_INTERVAL: Duration = Duration::from_millis(100);

/// How statements are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub consistency: Consistency,
    /// Serial or local serial.
    pub serial_consistency: Consistency,
    pub tracing: bool,
    /// Whether the receipt of each statement is wanted. It comes with its trace.
    pub receipt: bool,
    /// Rows a page.
    pub page_rows: i32,
}

impl Settings {
    /// The same for statements of the shell itself.
    #[must_use]
    pub fn untraced(&self) -> Self {
        Self { tracing: false, receipt: false, ..self.clone() }
    }
}

/// A column of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub cql_type: CqlType,
}

/// A value in wire format; `None`: null.
pub type Cell = Option<Vec<u8>>;

/// A page of rows.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

impl Rows {
    /// The decoded value of a cell; `None` if it is null, absent or malformed.
    pub fn value(&self, row: usize, column: &str) -> Option<Value> {
        let index = self.columns.iter().position(|candidate| candidate.name == column)?;
        let bytes = self.rows.get(row)?.get(index)?.as_ref()?;
        Value::decode(&self.columns.get(index)?.cql_type, bytes).ok()
    }

    /// The text of a cell of a text column; empty if it is null.
    pub fn text(&self, row: usize, column: &str) -> String {
        match self.value(row, column) {
            Some(Value::Text(text) | Value::Ascii(text)) => text,
            _ => String::new(),
        }
    }
}

/// The answer to a statement, or one page of it.
#[derive(Debug, Clone)]
pub struct ResponsePage {
    /// `None`: the statement returns no rows.
    pub rows: Option<Rows>,
    /// Where the next page starts.
    pub next_page: Option<PagingState>,
    pub warnings: Vec<String>,
    pub trace_id: Option<Uuid>,
}

/// A connection with the runtime that drives it.
pub struct Connection {
    runtime: Runtime,
    session: Arc<Session>,
    target: Target,
    interrupts: Interrupts,
    /// What the connections of the session go through.
    _relay: Option<Relay>,
}

impl Connection {
    /// Connects, and changes to the keyspace of the target.
    pub fn open(target: Target) -> Result<Self, ShellError> {
        // The worker keeps the driver's background tasks going while the shell waits for input.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(ShellError::Startup)?;
        let (session, relay) = match runtime.block_on(connect(&target)) {
            Ok(connected) => connected,
            Err(error) => {
                // A look-up of a name that is still under way is not waited for.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let interrupts = Interrupts::default();
        let connection = Self { runtime, session: Arc::new(session), target, interrupts, _relay: relay };
        if let Some(keyspace) = &connection.target.keyspace {
            connection.use_keyspace(keyspace)?;
        }
        Ok(connection)
    }

    /// Connects anew as another user, to the same keyspace.
    pub fn login(&mut self, username: String, password: String) -> Result<(), ShellError> {
        let target = Target {
            username: Some(username),
            password: Some(password),
            keyspace: self.keyspace(),
            ..self.target.clone()
        };
        let are_caught = self.interrupts.are_caught();
        *self = Self::open(target)?;
        if are_caught { self.catch_interrupts() } else { Ok(()) }
    }

    fn use_keyspace(&self, keyspace: &str) -> Result<(), ShellError> {
        let statement = format!("USE {}", cql_lite::types::cql_type::quote_identifier(keyspace));
        let (_, _) = self.wait(self.session.query_single_page(statement, &[], PagingState::start()))?;
        Ok(())
    }

    /// Waits for a request of the driver.
    pub fn wait<T, E: Into<ShellError>>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ShellError> {
        self.block_on(future)?.map_err(Into::into)
    }

    /// Waits for anything, until Ctrl-C.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T, ShellError> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.interrupts.next() => Err(ShellError::Interrupted),
                outcome = future => Ok(outcome),
            }
        })
    }

    /// From now on Ctrl-C ends the present wait instead of the program.
    pub fn catch_interrupts(&self) -> Result<(), ShellError> {
        let _within = self.runtime.enter();
        self.interrupts.catch().map_err(ShellError::Startup)
    }

    /// Ctrl-C since the last wait.
    pub fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// The runtime that drives it.
    pub fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// The driver's session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The target of the connection.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The current keyspace.
    pub fn keyspace(&self) -> Option<String> {
        self.session.get_keyspace().map(|name| name.as_str().to_owned())
    }

    /// Runs a statement and collects the rows of all its pages.
    pub fn run_to_end(&self, text: &str, settings: &Settings) -> Result<Rows, ShellError> {
        let mut answer = self.run(text, settings, None)?;
        let mut rows = answer.rows.take().unwrap_or_default();
        while let Some(page) = answer.next_page.take() {
            answer = self.run(text, settings, Some(page))?;
            rows.rows.append(&mut answer.rows.take().unwrap_or_default().rows);
        }
        Ok(rows)
    }

    /// Runs a statement, or fetches its page at `page`.
    pub fn run(
        &self,
        text: &str,
        settings: &Settings,
        page: Option<PagingState>,
    ) -> Result<ResponsePage, ShellError> {
        self.block_on(self::page(&self.session, text, settings, page))?
    }
}

/// Runs a statement, or fetches its page at `page`.
pub async fn page(
    session: &Session,
    text: &str,
    settings: &Settings,
    page: Option<PagingState>,
) -> Result<ResponsePage, ShellError> {
    let statement = statement(text, settings)?;
    let page = page.unwrap_or_else(PagingState::start);
    let (result, paging) = session.query_single_page(statement, &[], page).await?;
    answer(result, paging)
}

/// Tries the addresses of the host until one answers; each has the whole time. Where all refuse, they are tried again
/// if the target says so.
async fn connect(target: &Target) -> Result<(Session, Option<Relay>), ShellError> {
    let place = format_address(&target.host, target.port);
    let unknown = |error: &dyn std::fmt::Display| {
        ShellError::Connection(format!("the address of {place} cannot be found: {error}"))
    };
    let addresses: Vec<_> =
        in_time(target, tokio::net::lookup_host(&place)).await?.map_err(|error| unknown(&error))?.collect();
    let begin = Instant::now();
    loop {
        let mut failure = unknown(&"it has none");
        let mut refusals = 0;
        for &address in &addresses {
            let relay = match in_time(target, Relay::open(target, address)).await.and_then(|opened| opened) {
                Ok(relay) => relay,
                Err(error) => {
                    failure = error;
                    continue;
                }
            };
            let reached = relay.as_ref().map_or(address, |relay| relay.address);
            match in_time(target, contact_point::open_session(target, reached)).await {
                Ok(Ok(session)) => return Ok((session, relay)),
                Ok(Err(error)) => {
                    refusals += usize::from(is_refusal(&error));
                    failure = error.into();
                }
                Err(error) => failure = error,
            }
        }
        let is_refused = !addresses.is_empty() && refusals == addresses.len();
        let is_over = begin.elapsed() + REFUSED_INTERVAL > target.connect_timeout;
        if !target.awaits_start || !is_refused || is_over {
            return Err(failure);
        }
        tokio::time::sleep(REFUSED_INTERVAL).await;
    }
}

/// Whether the connection was refused: no process listens at the address.
fn is_refusal(error: &NewSessionError) -> bool {
    matches!(
        error,
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::IoError(reason),
        })) if reason.kind() == ErrorKind::ConnectionRefused
    )
}

/// Waits for a part of connecting, no longer than the target allows.
async fn in_time<T>(target: &Target, part: impl Future<Output = T>) -> Result<T, ShellError> {
    tokio::time::timeout(target.connect_timeout, part).await.map_err(|_| {
        let place = format_address(&target.host, target.port);
        let seconds = target.connect_timeout.as_secs_f64();
        ShellError::Connection(format!("no answer from {place} within {seconds} seconds"))
    })
}

/// A statement of the driver with the settings applied.
pub fn statement(text: &str, settings: &Settings) -> Result<Statement, ShellError> {
    let mut statement = Statement::new(text);
    statement.set_consistency(driver_consistency(settings.consistency)?);
    statement.set_serial_consistency(Some(match settings.serial_consistency {
        Consistency::LocalSerial => SerialConsistency::LocalSerial,
        _ => SerialConsistency::Serial,
    }));
    statement.set_tracing(settings.tracing || settings.receipt);
    statement.set_page_size(settings.page_rows);
    Ok(statement)
}

/// The driver's name of a level.
pub fn driver_consistency(level: Consistency) -> Result<DriverConsistency, ShellError> {
    DriverConsistency::try_from(level.code())
        .map_err(|_| ShellError::Usage(format!("The consistency level {level} is not supported")))
}

fn answer(result: QueryResult, paging: PagingStateResponse) -> Result<ResponsePage, ShellError> {
    let next_page = match paging {
        PagingStateResponse::HasMorePages { state } => Some(state),
        PagingStateResponse::NoMorePages => None,
    };
    let warnings = result.warnings().map(str::to_owned).collect();
    let trace_id = result.tracing_id();
    let rows = if result.is_rows() { Some(read_rows(result)?) } else { None };
    Ok(ResponsePage { rows, next_page, warnings, trace_id })
}

fn malformed(error: impl std::fmt::Display) -> ShellError {
    ShellError::Statement(format!("Cannot read the answer: {error}"))
}

fn read_rows(result: QueryResult) -> Result<Rows, ShellError> {
    let result = result.into_rows_result().map_err(malformed)?;
    let columns = result
        .column_specs()
        .iter()
        .map(|spec| Ok(Column { name: spec.name().to_owned(), cql_type: cql_type(spec.typ())? }))
        .collect::<Result<_, ShellError>>()?;
    let mut rows = Vec::with_capacity(result.rows_num());
    for row in result.rows::<ColumnIterator<'_, '_>>().map_err(malformed)? {
        let cells = row
            .map_err(malformed)?
            .map(|column| Ok(column.map_err(malformed)?.slice.map(|slice| slice.as_slice().to_vec())))
            .collect::<Result<_, ShellError>>()?;
        rows.push(cells);
    }
    Ok(Rows { columns, rows })
}

/// The CQL type of a column of the driver.
pub fn cql_type(column: &ColumnType<'_>) -> Result<CqlType, ShellError> {
    Ok(match column {
        ColumnType::Native(native) => native_type(native)?,
        ColumnType::Collection { frozen, typ } => match typ {
            CollectionType::List(element) => CqlType::list(cql_type(element)?, *frozen),
            CollectionType::Set(element) => CqlType::set(cql_type(element)?, *frozen),
            CollectionType::Map(key, value) => CqlType::map(cql_type(key)?, cql_type(value)?, *frozen),
            other => return Err(ShellError::Statement(format!("Unknown collection type {other:?}"))),
        },
        ColumnType::Vector { typ, dimensions } => CqlType::vector(cql_type(typ)?, usize::from(*dimensions)),
        ColumnType::UserDefinedType { frozen, definition } => {
            let mut user_type = UserType {
                keyspace: definition.keyspace.as_ref().into(),
                name: definition.name.as_ref().into(),
                field_names: Vec::new(),
                field_types: Vec::new(),
            };
            for (name, field) in &definition.field_types {
                user_type.field_names.push(name.as_ref().into());
                user_type.field_types.push(cql_type(field)?);
            }
            CqlType::UserType { definition: Arc::new(user_type), frozen: *frozen }
        }
        ColumnType::Tuple(fields) => {
            CqlType::tuple(fields.iter().map(cql_type).collect::<Result<Vec<_>, ShellError>>()?)
        }
        other => return Err(ShellError::Statement(format!("Unknown type {other:?}"))),
    })
}

fn native_type(native: &NativeType) -> Result<CqlType, ShellError> {
    Ok(match native {
        NativeType::Ascii => CqlType::Ascii,
        NativeType::Boolean => CqlType::Boolean,
        NativeType::Blob => CqlType::Blob,
        NativeType::Counter => CqlType::Counter,
        NativeType::Date => CqlType::Date,
        NativeType::Decimal => CqlType::Decimal,
        NativeType::Double => CqlType::Double,
        NativeType::Duration => CqlType::Duration,
        NativeType::Float => CqlType::Float,
        NativeType::Int => CqlType::Int,
        NativeType::BigInt => CqlType::Bigint,
        NativeType::Text => CqlType::Text,
        NativeType::Timestamp => CqlType::Timestamp,
        NativeType::Inet => CqlType::Inet,
        NativeType::SmallInt => CqlType::Smallint,
        NativeType::TinyInt => CqlType::Tinyint,
        NativeType::Time => CqlType::Time,
        NativeType::Timeuuid => CqlType::Timeuuid,
        NativeType::Uuid => CqlType::Uuid,
        NativeType::Varint => CqlType::Varint,
        other => return Err(ShellError::Statement(format!("Unknown type {other:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(port: u16, connect_timeout: Duration, awaits_start: bool) -> Target {
        Target {
            host: "127.0.0.1".to_owned(),
            port,
            username: None,
            password: None,
            keyspace: None,
            connect_timeout,
            awaits_start,
            request_timeout: Duration::from_secs(30),
            tls: None,
        }
    }

    #[test]
    fn a_node_that_starts_is_waited_for_if_that_is_wanted() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let refused = |timeout, awaits_start| {
            let begin = Instant::now();
            let error = Connection::open(target(port, timeout, awaits_start)).err().unwrap().to_string();
            assert!(error.contains("refused"), "{error}");
            begin.elapsed()
        };
        let long = Duration::from_mins(1);
        assert!(refused(long, false) < long / 2);
        let short = Duration::from_millis(500);
        assert!(refused(short, true) >= short / 2);
        // A server that starts to listen meanwhile is found; here it does not answer.
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            std::net::TcpListener::bind(("127.0.0.1", port)).unwrap().accept().unwrap()
        });
        let error = Connection::open(target(port, Duration::from_secs(2), true)).err().unwrap();
        late.join().unwrap();
        assert!(!error.to_string().contains("refused"), "{error}");
    }

    #[test]
    fn who_accepts_and_never_answers_is_given_up_in_time() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let error = Connection::open(target(port, Duration::from_millis(500), true)).err().unwrap();
        assert_eq!(
            error.to_string(),
            format!("Connection error: no answer from 127.0.0.1:{port} within 0.5 seconds")
        );
    }

    #[test]
    fn every_level_for_clients_has_a_name_in_the_driver() {
        for level in Consistency::ALL {
            assert_eq!(driver_consistency(level).is_ok(), level != Consistency::NodeLocal, "{level}");
        }
    }
}
