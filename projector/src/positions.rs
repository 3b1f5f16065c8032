//! How far the views are, for the next holder of a slice: `system_distributed.view_positions`.
//!
//! A row is about a followed table (up to when its log was read) or about a view (how far it is built) in one slice. Rows are written with
//! the timestamps of the lease, so that an earlier holder cannot overwrite what a later one has written.

use std::ops::ControlFlow;
use std::rc::Rc;

use cql_lite::frame::Consistency;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use uuid::Uuid;

use crate::internal_statement::InternalStatement;
use crate::lease::Lease;

/// The statements about positions. They belong to one shard.
#[derive(Debug)]
pub struct PositionStatements {
    read: InternalStatement,
    write: InternalStatement,
}

impl Default for PositionStatements {
    fn default() -> Self {
        Self {
            read: InternalStatement::new(
                "SELECT micros, resume, is_done, build FROM system_distributed.view_positions WHERE id = ? AND slice = ?",
            ),
            write: InternalStatement::new(
                "INSERT INTO system_distributed.view_positions (id, slice, micros, resume, is_done, build) VALUES (?, ?, ?, ?, ?, ?)",
            ),
        }
    }
}

/// How far something is in a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// All entries of a log up to this time, in microseconds, were read.
    pub micros: Option<i64>,
    /// Where the scan of a view that is being built goes on: what is scanned, and behind which row.
    pub resume: Option<Vec<u8>>,
    /// The view is built.
    pub is_done: bool,
    /// Of a view: the build that this is about, if it is not the first one.
    pub build: Option<Uuid>,
}

/// The position of a followed table or of a view; `None`: nothing is known.
pub async fn read(
    context: &Rc<ShardContext>,
    statements: &PositionStatements,
    id: Uuid,
    lease: &Lease,
) -> Result<Option<Position>> {
    let mut found = None;
    let damaged = || RequestError::Server("system_distributed.view_positions has a damaged row".to_owned());
    statements
        .read
        .rows(context, &key(id, lease), Consistency::Quorum, |row| {
            let [micros, resume, is_done, build] = row else { return Err(damaged()) };
            let micros = micros.map(|bytes| bytes.try_into().map(i64::from_be_bytes)).transpose();
            found = Some(Position {
                micros: micros.map_err(|_| damaged())?,
                resume: resume.map(<[u8]>::to_vec),
                is_done: *is_done == Some(&[1][..]),
                build: build.map(Uuid::from_slice).transpose().map_err(|_| damaged())?,
            });
            Ok(ControlFlow::Break(()))
        })
        .await?;
    Ok(found)
}

/// Writes a position.
pub async fn write(
    context: &Rc<ShardContext>,
    statements: &PositionStatements,
    id: Uuid,
    lease: &Lease,
    position: &Position,
) -> Result<()> {
    let timestamp = lease.next_timestamp(context)?;
    let mut values = key(id, lease);
    values.push(position.micros.map(|micros| micros.to_be_bytes().to_vec()));
    values.push(position.resume.clone());
    values.push(Some(vec![u8::from(position.is_done)]));
    values.push(position.build.map(|build| build.as_bytes().to_vec()));
    statements.write.write(context, &values, Consistency::Quorum, Some(timestamp)).await?;
    Ok(())
}

fn key(id: Uuid, lease: &Lease) -> Vec<Option<Vec<u8>>> {
    vec![Some(id.as_bytes().to_vec()), Some(i32::from(lease.slice.0).to_be_bytes().to_vec())]
}
