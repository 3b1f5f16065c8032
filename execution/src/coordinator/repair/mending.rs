//! Mending: a replica that could not open some of its files gets back what they may hold, and gives them up by itself.
//!
//! 1. The replica names its damaged files. Only these are given up: one that is damaged later had rows that were not fetched. Nor are they once
//!    the replica was started again: what was fetched before need not be durable.
//! 2. It gets all that the other replicas have and it has not, its damaged files left out. All others of each range must answer, and none
//!    of them may leave out a file of its own. So nothing is lost that a second replica had: of `n` replicas `n - q + 1` others would be
//!    enough for what a quorum `q` has acknowledged, and all of them are for what any two have.
//! 3. It gives up those files all of whose tokens it has got back so, as far as it is a replica of them.
//! 4. The ranges are repaired as others are: the others get what only this replica had.
//!
//! Invariants:
//! * All this is one repair. One that is cancelled, or goes on after a restart, leaves the files as they are.
//! * What only this replica has may have been deleted by a tombstone in a damaged file, which the others have purged with what it deletes.
//!   So where it has something that is older than tombstones are kept, and that no other replica has, its files are not given up
//!   (`reconcile.rs`): it would come back.

use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_engine::TableId;
use helenus_internode::service::Failure;
use helenus_query::error::RequestError;
use helenus_ring::intervals::{complement, intervals, union};
use helenus_ring::placement::TokenRange;
use serde::{Deserialize, Serialize};

use super::runs::RepairRuns;
use crate::shard::context::{ShardContext, from_every_shard};

/// The files of a table of a node that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFiles {
    /// Stands for the run of the node's program.
    run: u64,
    /// Their generations, by shard.
    generations: Vec<Vec<u64>>,
}

impl DamagedFiles {
    pub fn is_empty(&self) -> bool {
        self.generations.iter().all(Vec::is_empty)
    }
}

/// Names the files of a table of this node that could not be opened.
pub async fn damaged_files(context: &Rc<ShardContext>, table_id: u128) -> Result<DamagedFiles, Failure> {
    let table = TableId(table_id.to_be_bytes());
    let generations = from_every_shard(context, move |context| {
        Box::pin(async move { Ok(context.shard.damaged_generations(table)?) })
    });
    Ok(DamagedFiles { run: run(context), generations: generations.await.map_err(|error| failed(&error))? })
}

/// A number that stands for this run of the program.
fn run(context: &ShardContext) -> u64 {
    RepairRuns::of(&context.node).run_of_program(|| context.random.borrow_mut().next_u64())
}

/// Gives up those of these files of this node all of whose tokens were fetched from the other replicas. Returns their number.
pub async fn give_up(
    context: &Rc<ShardContext>,
    table_id: u128,
    files: DamagedFiles,
    fetched: &[TokenRange],
) -> Result<u64, Failure> {
    if files.run != run(context) {
        return Err(Failure::Internal(
            "the node was started again since its damaged files were named".to_owned(),
        ));
    }
    if files.generations.len() != context.node.shard_count() {
        return Err(Failure::Malformed(
            "damaged files are named by shard, and shards are missing".to_owned(),
        ));
    }
    let table = TableId(table_id.to_be_bytes());
    let not_owned = {
        let view = context.cluster_view();
        let keyspace = context.catalog_view().table(table).map(|table| table.keyspace.clone());
        let placement = keyspace.as_ref().and_then(|keyspace| view.placement(keyspace));
        let Some(placement) = placement else { return Err(Failure::UnknownTable { table_id }) };
        let own = context.node.host_id;
        let owned = placement.ranges().filter(|(_, replicas)| replicas.contains(&own));
        complement(&intervals(&owned.map(|(range, _)| range).collect::<Vec<_>>()))
    };
    let known = union(&intervals(fetched), &not_owned);
    let given_up = from_every_shard(context, move |context| -> LocalBoxFuture<'static, _> {
        let (files, known) = (files.generations[context.index].clone(), known.clone());
        Box::pin(async move { Ok(context.shard.give_up_mended(table, &files, &known).await?) })
    });
    given_up.await.map(|counts| counts.into_iter().sum()).map_err(|error| failed(&error))
}

fn failed(error: &RequestError) -> Failure {
    Failure::Internal(error.to_string())
}
