//! Cleanup: removes the data of ranges that this node does not own any more, as `nodetool cleanup` does.
//!
//! Invariant: data of a range that this node owns, or is about to own, is never removed. The ranges are computed, and
//! the files to clean are chosen, in one turn in which no member is in a transition. Later data is in other files.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::TableId;
use helenus_query::error::RequestError;

use super::ranges::{complement, intervals};
use super::replicated_tables;
use helenus_execution::shard::context::ShardContext;

/// The reason why a cleanup was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    #[error("keyspace '{0}' does not exist")]
    UnknownKeyspace(String),
    #[error("Node is involved in cluster membership changes. Not safe to run cleanup.")]
    RingIsChanging,
    #[error(transparent)]
    Node(#[from] RequestError),
}

/// Pause before files that a compaction was reading are tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// Cleans up one keyspace, or all replicated ones. Call from any shard. Returns the number of files that were
/// rewritten or removed.
pub async fn cleanup(context: &Rc<ShardContext>, keyspace: Option<String>) -> Result<usize, CleanupError> {
    if let Some(name) = &keyspace
        && context.catalog().keyspace(name).is_none()
    {
        return Err(CleanupError::UnknownKeyspace(name.clone()));
    }
    let jobs = (0..context.node.shard_count()).map(|shard| {
        let keyspace = keyspace.clone();
        context.run_on(shard, move |context| Box::pin(clean_shard(context, keyspace)))
    });
    let mut files = 0;
    for cleaned in futures::future::join_all(jobs).await {
        files += cleaned??;
    }
    Ok(files)
}

async fn clean_shard(context: Rc<ShardContext>, keyspace: Option<String>) -> Result<usize, CleanupError> {
    let catalog = context.catalog();
    let mut files = 0;
    for keyspace in
        catalog.keyspaces.values().filter(|known| keyspace.as_ref().is_none_or(|name| *name == known.name))
    {
        for table in replicated_tables(keyspace) {
            files += clean_table(&context, &keyspace.name, table).await?;
        }
    }
    Ok(files)
}

/// Cleans up one table on this shard. Returns the number of files that were rewritten or removed.
pub(crate) async fn clean_table(
    context: &Rc<ShardContext>,
    keyspace: &str,
    table: TableId,
) -> Result<usize, CleanupError> {
    let failed = |error| CleanupError::Node(RequestError::from(error));
    let mut files = 0;
    loop {
        if given_up(context, keyspace)?.is_empty() {
            return Ok(files);
        }
        match context.shard.flush(table).await {
            Ok(()) => {}
            // Dropped meanwhile.
            Err(helenus_engine::EngineError::UnknownTable(_)) => return Ok(files),
            Err(error) => return Err(failed(error)),
        }
        // One turn from here to the choice of the files: nothing else of the shard runs.
        let ranges = given_up(context, keyspace)?;
        let dropped = context.shard.drop_ranges(table, &ranges).await.map_err(failed)?;
        files += dropped.rewritten_files;
        if dropped.busy_files == 0 {
            return Ok(files);
        }
        context.clock.sleep(BUSY_PAUSE).await;
    }
}

/// The tokens of a keyspace that this node does not own.
fn given_up(context: &ShardContext, keyspace: &str) -> Result<Vec<RangeInclusive<i64>>, CleanupError> {
    let view = context.cluster_view();
    if view.topology.in_transition().is_some() {
        return Err(CleanupError::RingIsChanging);
    }
    let Some(placement) = view.placement(keyspace).filter(|_| !view.is_alone()) else {
        return Ok(Vec::new());
    };
    let owned: Vec<_> = placement
        .ranges()
        .filter(|(_, replicas)| replicas.contains(&context.node.host_id))
        .map(|(range, _)| range)
        .collect();
    Ok(complement(&intervals(&owned)))
}
