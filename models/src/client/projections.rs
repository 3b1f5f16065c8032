//! Projections: waiting for them, and having them checked.

use std::time::{Duration, Instant};

use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::statement::unprepared::Statement;
use scylla::value::CqlTimestamp;

use super::{Client, answer_error, execute_error};
use crate::error::{Error, ensure_equal};

/// A projection that is not caught up with what was written after so long has lost its keeper. Building one over the guide's data
/// set takes hours.
const CATCH_UP_MAX: Duration = Duration::from_hours(12);

/// Longer than the server waits before it says that a projection is not caught up yet.
const WAIT_MAX: Duration = Duration::from_mins(1);

impl Client {
    /// Waits until all is in the projection that was written before.
    pub async fn wait_for(&self, projection: &str) -> Result<(), Error> {
        let text = format!("SELECT * FROM {projection} LIMIT 1 USING TIMEOUT 20s WITH FRESHNESS 0 ms");
        let mut statement = Statement::new(text.clone());
        statement.set_request_timeout(Some(WAIT_MAX));
        statement.set_is_idempotent(true);
        let started = Instant::now();
        loop {
            match self.session.query_unpaged(statement.clone(), ()).await {
                Ok(_) => return Ok(()),
                Err(ExecutionError::LastAttemptError(
                    RequestAttemptError::DbError(DbError::ReadTimeout { .. }, _)
                    | RequestAttemptError::BrokenConnectionError(_),
                )) if started.elapsed() < CATCH_UP_MAX => {}
                Err(source) => return Err(execute_error(&text, source)),
            }
        }
    }

    /// Has the server compare the projection with what it is computed of; an error if they differ. The number of its rows.
    pub async fn check_projection(&self, projection: &str) -> Result<u64, Error> {
        let text = format!("CHECK PROJECTION {projection}");
        let mut statement = Statement::new(text.clone());
        statement.set_request_timeout(Some(CATCH_UP_MAX));
        let result = self.session.query_unpaged(statement, ()).await;
        let result = result.map_err(|source| execute_error(&text, source))?;
        let result = result.into_rows_result().map_err(|source| answer_error(&text, &source))?;
        let (_, rows, _, missing, different, orphaned, ..) = result
            .first_row::<(String, i64, i64, i64, i64, i64, i64, CqlTimestamp)>()
            .map_err(|source| answer_error(&text, &source))?;
        ensure_equal(&text, &(0, 0, 0), &(missing, different, orphaned))?;
        Ok(rows.max(0) as u64)
    }
}
