//! The driver's session with what all models need: scripts, prepared statements, paging that counts its pages,
//! conditional batches, and errors that name the statement.

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
use scylla::value::{CqlValue, Row};

use crate::error::Error;
use crate::measure::CountedResponse;
use crate::options::Options;

/// A connected session.
pub struct Client {
    session: Session,
    page_size: i32,
    replication_factor: u32,
    replace: bool,
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
            .refresh_metadata_on_auto_schema_agreement(false);
        if let (Some(username), Some(password)) = (&options.username, &options.password) {
            builder = builder.user(username, password);
        }
        let session = builder.build().await.map_err(|source| Error::Connect {
            contact_points: contact_points.join(", "),
            source: Box::new(source),
        })?;
        Ok(Self {
            session,
            page_size: options.page_size,
            replication_factor: options.replication_factor,
            replace: options.replace,
        })
    }

    /// Makes `keyspace` (dropping an older one when asked to) and runs `script`, a `.cql` file.
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
        for statement in statements(script) {
            self.run(&statement).await?;
        }
        self.session.refresh_metadata().await.map_err(|source| Error::Metadata(Box::new(source)))
    }

    /// Runs one statement that takes no values and gives no rows.
    async fn run(&self, statement: &str) -> Result<(), Error> {
        self.session.query_unpaged(statement, ()).await.map_err(|source| execute_error(statement, source))?;
        Ok(())
    }

    /// Prepares a statement with the page size of the run. The driver may repeat it, where a node goes away: all the models'
    /// statements are idempotent, except those in [`Client::batch_if`].
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
        self.session
            .execute_unpaged(statement, values)
            .await
            .map_err(|source| execute_error(statement.get_statement(), source))?;
        Ok(())
    }

    /// Runs a conditional write; whether it was applied.
    pub async fn execute_if(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<bool, Error> {
        let text = statement.get_statement();
        let result = self.session.execute_unpaged(statement, values).await;
        applied(text, result.map_err(|source| execute_error(text, source))?)
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
        let text = statement.get_statement();
        let result = self
            .session
            .execute_unpaged(statement, values)
            .await
            .map_err(|source| execute_error(text, source))?
            .into_rows_result()
            .map_err(|source| answer_error(text, &source))?;
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
            .execute_iter(statement.clone(), values)
            .await
            .map_err(|source| answer_error(text, &source))?;
        let mut stream = pager.rows_stream::<R>().map_err(|source| answer_error(text, &source))?;
        let mut rows = 0;
        while let Some(row) = stream.try_next().await.map_err(|source| answer_error(text, &source))? {
            rows += 1;
            each(&mut state, row);
        }
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

    /// Runs a conditional batch in one partition; whether it was applied. `None`: unknown (the consensus round timed out, or the
    /// node went away before its answer), so the caller must read the row.
    pub async fn batch_if(
        &self,
        label: &str,
        batch: &Batch,
        values: impl BatchValues,
    ) -> Result<Option<bool>, Error> {
        match self.session.batch(batch, values).await {
            Ok(result) => applied(label, result).map(Some),
            Err(ExecutionError::LastAttemptError(
                RequestAttemptError::DbError(DbError::WriteTimeout { .. }, _)
                | RequestAttemptError::BrokenConnectionError(_),
            )) => Ok(None),
            Err(source) => Err(execute_error(label, source)),
        }
    }
}

/// Reads the `[applied]` column, always the first.
fn applied(statement: &str, result: scylla::response::query_result::QueryResult) -> Result<bool, Error> {
    let rows = result.into_rows_result().map_err(|source| answer_error(statement, &source))?;
    let row = rows.first_row::<Row>().map_err(|source| answer_error(statement, &source))?;
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(applied))) => Ok(*applied),
        other => Err(Error::Answer {
            statement: statement.to_owned(),
            detail: format!("the first column of a conditional write is not [applied]: {other:?}"),
        }),
    }
}

fn execute_error(statement: &str, source: ExecutionError) -> Error {
    Error::Execute { statement: statement.to_owned(), source: Box::new(source) }
}

fn answer_error(statement: &str, source: &dyn std::error::Error) -> Error {
    Error::Answer { statement: statement.to_owned(), detail: source.to_string() }
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
