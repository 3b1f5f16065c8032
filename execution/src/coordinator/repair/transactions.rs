//! Settles the transactions of before a repair whose outcome is open on some replica: nothing that was proposed before it takes effect after
//! it any more. So no accepted proposal outlives the deletions that may be purged after the repair.
//!
//! Invariants:
//! * A range counts as repaired only when no replica has such a transaction any more.
//! * Transactions that begin meanwhile are left alone: they would be outbid for nothing.
//! * It ends: when ownership changes, when nothing can be settled for a while, and when a replica goes on to name what was settled.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use helenus_query::schema::catalog::Table;
use helenus_ring::metadata::MENDING;

use super::batch::{Batch, RangeError, ask};
use super::message::{RepairRequest, RepairResponse};
use super::runs::RepairRun;
use crate::coordinator::paxos::message::PartitionName;
use crate::coordinator::paxos::open::ANSWER_PARTITIONS_MAX;
use crate::coordinator::paxos::settle;
use crate::shard::context::ShardContext;

/// How often partitions are tried again that could not be settled: clients may use them.
const ATTEMPTS_MAX: u32 = 5;
/// Before they are tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Settles the open transactions of a batch of all replicas. Returns the tokens of those that could not be settled.
pub async fn settle(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    table: &Arc<Table>,
    batch: &Batch,
) -> Result<Vec<i64>, RangeError> {
    if batch.members.len() < 2 || context.cluster_view().topology.feature_level < MENDING {
        return Ok(Vec::new());
    }
    let request = RepairRequest::OpenTransactions {
        table_id: u128::from_be_bytes(batch.table.0),
        ranges: batch.ranges.clone(),
        before_micros: run.began_micros,
    };
    let (mut attempts, mut before) = (0, BTreeSet::new());
    loop {
        // Former owners name what they have kept, and it would be settled among the present ones again and again.
        if context.cluster_view().topology.epoch != batch.epoch {
            return Err(RangeError::RingChanged);
        }
        let asked = batch.members.iter().map(|member| ask(context, run, member, &request));
        let (mut open, mut is_cut) = (BTreeSet::new(), false);
        for answer in futures::future::try_join_all(asked).await? {
            match answer {
                RepairResponse::OpenTransactions(partitions) => {
                    is_cut |= partitions.len() >= ANSWER_PARTITIONS_MAX;
                    open.extend(partitions);
                }
                other => return Err(RangeError::Unsettled(format!("{other:?} is no answer"))),
            }
        }
        if open.is_empty() {
            return Ok(Vec::new());
        }
        if open == before {
            attempts += 1;
            if attempts == ATTEMPTS_MAX && is_cut {
                return Err(RangeError::Unsettled("more partitions than a replica names at once".to_owned()));
            }
            if attempts == ATTEMPTS_MAX {
                return Ok(open.into_iter().map(|(token, _)| token).collect());
            }
            context.clock.sleep(PAUSE).await;
        } else {
            attempts = 0;
        }
        run.check(&context.node)?;
        before.clone_from(&open);
        let count = open.len();
        let settling = open.into_iter().map(|(token, key)| {
            let table = table.clone();
            let name = PartitionName { table_id: batch.table.0, token, key };
            context.run_on(context.node.shard_of(token), move |context| {
                Box::pin(async move { settle::finish(&context, &name, table).await })
            })
        });
        let settled = futures::stream::iter(settling).buffer_unordered(settle::AT_A_TIME);
        let settled = settled.filter(|outcome| std::future::ready(matches!(outcome, Ok(true)))).count().await;
        tracing::debug!(table = table.name, count, settled, "open transactions were settled");
    }
}
