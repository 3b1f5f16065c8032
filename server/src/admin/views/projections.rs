//! Views of materialized views and projections: how far they are.

use helenus_observe::AdminError;
use helenus_projector::reports::{self, BuildReport};
use helenus_query::schema::virtual_tables::RowWriter;

use super::source::Views;
use crate::admin::{failed, view_builds};

/// `projections`: the slices that this node holds.
pub async fn projections(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let shards = views
        .admin
        .on_every_shard(|context| Box::pin(std::future::ready(Ok(reports::of_shard(&context)))))
        .await?;
    let mut slices: Vec<_> = shards.into_iter().flatten().collect();
    slices.sort_by(|a, b| (&a.keyspace, &a.view, a.slice).cmp(&(&b.keyspace, &b.view, b.slice)));
    for slice in slices {
        writer
            .row()
            .set("keyspace_name", slice.keyspace)
            .set("view_name", slice.view)
            .set("slice", i32::from(slice.slice.0))
            .set("built", slice.is_built)
            .set("failed_units", slice.failed_units as i64)
            .set("lag_ms", slice.lag_ms)
            .set("rows_scanned", slice.rows_scanned as i64);
    }
    Ok(())
}

/// `system.built_views`, of the whole cluster.
pub async fn built_views(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    for build in builds(views).await?.into_iter().filter(|build| build.is_built) {
        writer
            .row()
            .set("keyspace_name", build.keyspace)
            .set("view_name", build.view)
            .set("status_replicated", true);
    }
    Ok(())
}

/// `system_distributed.view_build_status`.
pub async fn view_build_status(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    for build in builds(views).await? {
        for (host_id, is_built) in build.members {
            writer
                .row()
                .set("keyspace_name", build.keyspace.as_str())
                .set("view_name", build.view.as_str())
                .set("host_id", host_id)
                .set("status", view_builds::state(is_built));
        }
    }
    Ok(())
}

async fn builds(views: &Views) -> Result<Vec<BuildReport>, AdminError> {
    reports::builds(&views.context).await.map_err(|error| failed(&error))
}
