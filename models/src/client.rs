//! The driver's session with what all models need: scripts, prepared statements, paging that counts its pages,
//! transactions, charges, and errors that name the statement. What is asked about projections is in [`projections`],
//! EXPLAIN in [`explain`].

pub mod explain;
mod projections;

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::serialize::batch::BatchValues;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::Batch;
use scylla::statement::prepared::PreparedStatement;
use uuid::Uuid;

use crate::error::Error;
use crate::measure::CountedResponse;
use crate::options::Options;

/// A transaction that was sent this often without an answer is given up.
const ATTEMPTS_MAX: u32 = 16;

/// A trace is written behind the answer.
const TRACE_ATTEMPTS: NonZeroU32 = NonZeroU32::new(100).unwrap();
const TRACE_INTERVAL: Duration = Duration::from_millis(20);

/// A connected session.
pub struct Client {
    session: Session,
    page_size: i32,
    replication_factor: u32,
    replace: bool,
    has_extensions: bool,
    /// The traces of the statements of a request whose charge is wanted.
    traces: Mutex<Option<Vec<Uuid>>>,
}

impl Client {
    /// Connects to `contact_points` (`HOST:PORT` each).
    pub async fn connect(options: &Options, contact_points: &[String]) -> Result<Self, Error> {
        let profile = ExecutionProfile::builder()
            .request_timeout(Some(Duration::from_secs(options.timeout_seconds)))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(contact_points)
            .default_execution_profile_handle(profile.into_handle())
            .tracing_info_fetch_attempts(TRACE_ATTEMPTS)
            .tracing_info_fetch_interval(TRACE_INTERVAL)
            .refresh_metadata_on_auto_schema_agreement(false);
        if let (Some(username), Some(password)) = (&options.username, &options.password) {
            builder = builder.user(username, password);
        }
        let session = builder.build().await.map_err(|source| Error::Connect {
            contact_points: contact_points.join(", "),
            source: Box::new(source),
        })?;
        Ok(Self {
            has_extensions: has_projections(&session).await?,
            session,
            page_size: options.page_size,
            replication_factor: options.replication_factor,
            replace: options.replace,
            traces: Mutex::default(),
        })
    }

    /// Whether the server has what Helenus has beyond Cassandra: projections, transactions, charges and EXPLAIN.
    pub fn has_extensions(&self) -> bool {
        self.has_extensions
    }

    /// Makes `keyspace` (dropping an older one when asked to) and runs `script`, a `.cql` file, without its projections.
    pub async fn create(&self, keyspace: &str, script: &str) -> Result<(), Error> {
        let found =
            self.prepare("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?").await?;
        if self.select_one::<(String,)>(&found, (keyspace,)).await?.value.is_some() {
            if !self.replace {
                return Err(Error::KeyspaceExists(keyspace.to_owned()));
            }
            self.run(&format!("DROP KEYSPACE {keyspace}")).await?;
        }
        self.run(&format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {}}}",
            self.replication_factor
        ))
        .await?;
        for statement in statements(script).iter().filter(|statement| !is_projection(statement)) {
            self.run(statement).await?;
        }
        self.refresh().await
    }

    /// Makes the projections of `script`.
    pub async fn create_projections(&self, script: &str) -> Result<(), Error> {
        for statement in statements(script).iter().filter(|statement| is_projection(statement)) {
            self.run(statement).await?;
        }
        self.refresh().await
    }

    async fn refresh(&self) -> Result<(), Error> {
        self.session.refresh_metadata().await.map_err(|source| Error::Metadata(Box::new(source)))
    }

    /// Runs one statement that takes no values and gives no rows.
    async fn run(&self, statement: &str) -> Result<(), Error> {
        self.session.query_unpaged(statement, ()).await.map_err(|source| execute_error(statement, source))?;
        Ok(())
    }

    /// Prepares a statement with the page size of the run. The driver may repeat it, where a node goes away: all the models'
    /// statements are idempotent.
    pub async fn prepare(&self, statement: &str) -> Result<PreparedStatement, Error> {
        let mut prepared = self
            .session
            .prepare(statement)
            .await
            .map_err(|source| Error::Prepare { statement: statement.to_owned(), source: Box::new(source) })?;
        prepared.set_page_size(self.page_size);
        prepared.set_is_idempotent(true);
        Ok(prepared)
    }

    /// Runs a write.
    pub async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<(), Error> {
        let statement = self.traced(statement);
        let result = self.session.execute_unpaged(&statement, values).await;
        let result = result.map_err(|source| execute_error(statement.get_statement(), source))?;
        self.note_traces(result.tracing_id());
        Ok(())
    }

    /// Runs a transaction that changes nothing when it is run again: where its outcome is not known (the replicas did not agree in
    /// time, or the node went away before its answer), it is sent again.
    pub async fn transact(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<(), Error> {
        let statement = self.traced(statement);
        let text = statement.get_statement();
        for _ in 0..ATTEMPTS_MAX {
            match self.session.execute_unpaged(&statement, &values).await {
                Ok(result) => {
                    self.note_traces(result.tracing_id());
                    return Ok(());
                }
                Err(ExecutionError::LastAttemptError(
                    RequestAttemptError::DbError(DbError::WriteTimeout { .. }, _)
                    | RequestAttemptError::BrokenConnectionError(_),
                )) => {}
                Err(source) => return Err(execute_error(text, source)),
            }
        }
        Err(Error::Unanswered { statement: text.to_owned(), attempts: ATTEMPTS_MAX })
    }

    /// The statement, traced if the charge of the request is wanted.
    fn traced(&self, statement: &PreparedStatement) -> PreparedStatement {
        let mut statement = statement.clone();
        let is_wanted = self.traces.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        statement.set_tracing(is_wanted);
        statement
    }

    fn note_traces(&self, ids: impl IntoIterator<Item = Uuid>) {
        if let Some(traces) = &mut *self.traces.lock().unwrap_or_else(PoisonError::into_inner) {
            traces.extend(ids);
        }
    }

    /// Runs a request, and sums what its statements are charged; `None`: the server charges nothing. No other request may run
    /// meanwhile. The driver sends no custom payload that asks for a receipt, but a trace has it.
    pub async fn charged<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<(T, Option<u64>), Error> {
        if !self.has_extensions {
            return Ok((request.await?, None));
        }
        *self.traces.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        let answer = request.await;
        let Some(traces) = self.traces.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            unreachable!("two requests were run for their charges at once")
        };
        let answer = answer?;
        let mut charge = 0;
        for trace in traces {
            let trace_error =
                |detail: String| Error::Answer { statement: format!("the trace {trace}"), detail };
            let traced = self.session.get_tracing_info(&trace).await;
            let traced = traced.map_err(|error| trace_error(error.to_string()))?;
            let receipt = traced.parameters.and_then(|mut parameters| parameters.remove("receipt"));
            let receipt = receipt.ok_or_else(|| trace_error("it has no receipt".to_owned()))?;
            let receipt: serde_json::Value =
                serde_json::from_str(&receipt).map_err(|error| trace_error(error.to_string()))?;
            let of_statement = receipt.get("charge").and_then(serde_json::Value::as_u64);
            charge += of_statement.ok_or_else(|| trace_error("the receipt has no charge".to_owned()))?;
        }
        Ok((answer, Some(charge)))
    }

    /// Reads at most one row, in one request.
    pub async fn select_one<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<CountedResponse<Option<R>>, Error>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let statement = self.traced(statement);
        let text = statement.get_statement();
        let result = self.session.execute_unpaged(&statement, values).await;
        let result = result.map_err(|source| execute_error(text, source))?;
        self.note_traces(result.tracing_id());
        let result = result.into_rows_result().map_err(|source| answer_error(text, &source))?;
        let value = result.maybe_first_row::<R>().map_err(|source| answer_error(text, &source))?;
        let rows = u64::from(value.is_some());
        Ok(CountedResponse { value, rows, pages: 1 })
    }

    /// Reads all rows through the driver's pager.
    pub async fn select<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<CountedResponse<Vec<R>>, Error>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + 'static,
    {
        self.fold(statement, values, Vec::new(), Vec::push).await
    }

    /// Reads all rows through the driver's pager, one at a time: memory stays bounded by a page and `state`.
    pub async fn fold<R, T>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut state: T,
        mut each: impl FnMut(&mut T, R),
    ) -> Result<CountedResponse<T>, Error>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata> + 'static,
    {
        let text = statement.get_statement();
        let pager = self
            .session
            .execute_iter(self.traced(statement), values)
            .await
            .map_err(|source| answer_error(text, &source))?;
        let mut stream = pager.rows_stream::<R>().map_err(|source| answer_error(text, &source))?;
        let mut rows = 0;
        while let Some(row) = stream.try_next().await.map_err(|source| answer_error(text, &source))? {
            rows += 1;
            each(&mut state, row);
        }
        self.note_traces(stream.tracing_ids().iter().copied());
        // The driver notes the node that served each page, in order.
        let pages = stream.request_coordinators().count() as u64;
        Ok(CountedResponse { value: state, rows, pages })
    }

    /// Runs a batch of writes; `label` names it in errors.
    pub async fn batch(&self, label: &str, mut batch: Batch, values: impl BatchValues) -> Result<(), Error> {
        batch.set_is_idempotent(true);
        self.session.batch(&batch, values).await.map_err(|source| execute_error(label, source))?;
        Ok(())
    }
}

/// Whether the server knows projections.
async fn has_projections(session: &Session) -> Result<bool, Error> {
    let statement = "SELECT table_name FROM system_virtual_schema.tables \
                     WHERE keyspace_name = 'system_views' AND table_name = 'projections'";
    match session.query_unpaged(statement, ()).await {
        Ok(result) => {
            let rows = result.into_rows_result().map_err(|source| answer_error(statement, &source))?;
            Ok(rows.rows_num() > 0)
        }
        // A server without virtual tables.
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _))) => Ok(false),
        Err(source) => Err(execute_error(statement, source)),
    }
}

fn execute_error(statement: &str, source: ExecutionError) -> Error {
    Error::Execute { statement: statement.to_owned(), source: Box::new(source) }
}

fn answer_error(statement: &str, source: &dyn std::error::Error) -> Error {
    Error::Answer { statement: statement.to_owned(), detail: source.to_string() }
}

fn is_projection(statement: &str) -> bool {
    statement.starts_with("CREATE PROJECTION")
}

/// The statements of a script: comments (`--` to the end of the line) go, `;` ends a statement. The models'
/// scripts have neither sign in a literal.
fn statements(script: &str) -> Vec<String> {
    let without_comments: String = script
        .lines()
        .map(|line| line.split("--").next().unwrap_or_default())
        .flat_map(|line| [line, "\n"])
        .collect();
    without_comments
        .split(';')
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_split_at_semicolons_without_its_comments() {
        let script =
            "-- head; not a statement\nCREATE TABLE a (\n  b int -- b;\n);\n\nCREATE TABLE c (d int);\n";
        assert_eq!(statements(script), ["CREATE TABLE a (\n  b int \n)", "CREATE TABLE c (d int)"]);
    }
}
