//! What it means for views when rows of their tables come or go without entries in the logs: TRUNCATE, restored snapshots, imported files and
//! replayed logs. The views are built again over what they have. Those that are in a snapshot come back with their base table.
//!
//! What comes or goes is there before the views are told. If a node ends between, its operation has failed, and is to be repeated as a whole.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::syntax::parse;
use helenus_describe::view_statement;
use helenus_execution::coordinator::Outcome;
use helenus_execution::coordinator::replica::truncate::truncate_everywhere;
use helenus_execution::shard::context::ShardContext;
use helenus_projector::fresh;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::ddl::SnapshotSchema;
use helenus_views::statement::{build_again, check_truncate, dependents, execute};

use super::schema::change_view;

/// TRUNCATE waits so long until the views are empty, too. Clients wait ten seconds for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has the views that are computed of a table built again. Returns them. Call on the first shard.
pub async fn build_all_again(context: &Rc<ShardContext>, table: &Table) -> Result<Vec<Arc<Table>>> {
    change_view(context, |catalog, ddl| Ok(build_again(catalog, table, ddl))).await?;
    Ok(dependents(&context.catalog(), table).into_iter().cloned().collect())
}

/// Executes TRUNCATE: empties a table on every shard of every member. The views that are computed of it follow.
pub async fn truncate(context: Rc<ShardContext>, table: Arc<Table>) -> Result<Outcome> {
    check_truncate(&table)?;
    truncate_everywhere(&context, table.engine_id()).await?;
    follow_truncation(&context, &table).await?;
    Ok(Outcome::Void)
}

/// Has the views of a table built again that was truncated, and waits a while until that is done.
async fn follow_truncation(context: &Rc<ShardContext>, table: &Arc<Table>) -> Result<()> {
    if dependents(&context.catalog(), table).is_empty() {
        return Ok(());
    }
    let truncated = Arc::clone(table);
    let job = move |context: Rc<ShardContext>| {
        let job: futures::future::LocalBoxFuture<'static, _> =
            Box::pin(async move { build_all_again(&context, &truncated).await });
        job
    };
    let views = context.run_on(0, job).await??;
    let now_micros = context.clock.now_micros();
    let deadline = context.clock.monotonic() + PATIENCE;
    for view in views {
        match fresh::wait(context, &view, now_micros, deadline).await {
            Err(RequestError::ReadTimeout { .. }) => {
                tracing::info!(
                    view = view.full_name(),
                    "the rows of a view whose table was truncated are still being removed"
                );
            }
            // Dropped meanwhile.
            Err(RequestError::Invalid(_)) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Creates a view of a snapshot, if its base table is there and nothing has its name. Call on the first shard.
pub async fn create_again(context: &Rc<ShardContext>, schema: &SnapshotSchema) -> Result<()> {
    let (keyspace, view) = (schema.keyspace(), schema.table());
    let create =
        parse(&view_statement(keyspace, view)).map_err(|error| RequestError::Server(error.to_string()))?;
    let plan = |catalog: &Catalog, ddl: &_| match catalog.table(&keyspace.name, &view.name) {
        Some(_) => Ok(None),
        None => execute(catalog, &create, None, ddl).map(Some),
    };
    change_view(context, plan).await
}
