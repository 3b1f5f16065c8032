//! What lies on the disk: snapshots, how they are taken and restored, and tables that the schema does not name.

use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_admin::reports::{ReplayReport, RestoredTable, UnknownTableReport};
use helenus_engine::TableId;
use helenus_observe::{AdminError, ReplayRequest, RestoreRequest};

use super::{NodeAdmin, failed};
use crate::cluster::import::{self, ImportRequest};
use crate::cluster::member_snapshots::SnapshotError;
use crate::cluster::restore::{self, RestoreError};
use crate::cluster::{replay, unknown_tables};
use helenus_execution::shard::context::{ShardContext, run_on};

fn refused(error: RestoreError) -> AdminError {
    match error {
        RestoreError::UnknownSnapshot(_)
        | RestoreError::NothingToImport(_)
        | RestoreError::NothingToReplay(_)
        | RestoreError::NoTarget
        | RestoreError::NothingOfTable(_)
        | RestoreError::UnknownFiles(_)
        | RestoreError::SeveralTables(_) => AdminError::Unknown(error.to_string()),
        other => AdminError::Failed(other.to_string()),
    }
}

impl NodeAdmin {
    pub(super) async fn restore_snapshot(
        &self,
        request: RestoreRequest,
    ) -> Result<Vec<RestoredTable>, AdminError> {
        self.back_up(|context| Box::pin(async move { Ok(restore::restore(&context, request).await?) })).await
    }

    pub(super) async fn import_files(
        &self,
        request: ImportRequest,
    ) -> Result<Vec<RestoredTable>, AdminError> {
        self.back_up(|context| Box::pin(async move { Ok(import::import(&context, request).await?) })).await
    }

    pub(super) async fn replay_logs(&self, request: ReplayRequest) -> Result<ReplayReport, AdminError> {
        self.back_up(|context| Box::pin(async move { Ok(replay::replay(&context, request).await?) })).await
    }

    pub(super) async fn archive_logs(&self) -> Result<(), AdminError> {
        self.back_up(|context| Box::pin(async move { Ok(replay::archive_log(&context).await?) })).await
    }

    /// Runs an operation that makes or uses backups as a job of the first shard, so that it completes even if the client disconnects.
    pub(super) async fn back_up<T: Send + 'static>(
        &self,
        job: impl FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, Result<T, SnapshotError>> + Send + 'static,
    ) -> Result<T, AdminError> {
        let outcome = run_on(&self.node.links[0], job).await.map_err(|error| failed(&error))?;
        outcome.map_err(|error| match error {
            SnapshotError::Selection(error) => AdminError::Unknown(error.to_string()),
            SnapshotError::Restore(error) => refused(error),
            SnapshotError::Upload(error) if error.is_unknown() => AdminError::Unknown(error.to_string()),
            other => AdminError::Failed(other.to_string()),
        })
    }

    pub(super) async fn unknown_table_reports(&self) -> Result<Vec<UnknownTableReport>, AdminError> {
        let found = run_on(&self.node.links[0], |context| {
            Box::pin(async move { unknown_tables::find(&context).await })
        });
        let found = found.await.and_then(|found| found).map_err(|error| failed(&error))?;
        let report = |(id, table): (TableId, unknown_tables::UnknownTable)| UnknownTableReport {
            id: id.to_string(),
            file_count: table.file_count,
            disk_bytes: table.disk_bytes,
            memtable_bytes: table.memtable_bytes,
            row_versions: table.row_versions,
        };
        Ok(found.into_iter().map(report).collect())
    }
}
