//! Settles the transactions of before a repair whose outcome is open on some replica: nothing that was proposed before it takes effect after
//! it any more. So no accepted proposal outlives the deletions that may be purged after the repair.
//!
//! Invariants:
//! * A range counts as repaired only when no replica has such a transaction any more.
//! * Transactions that begin meanwhile are left alone: they would be outbid for nothing.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use futures::StreamExt;
use helenus_query::schema::catalog::Table;
use helenus_ring::metadata::MENDING;

use super::batch::{Batch, RangeError, ask};
use super::message::{RepairRequest, RepairResponse};
use super::runs::RepairRun;
use crate::coordinator::paxos::message::PartitionName;
use crate::coordinator::paxos::settle;
use crate::shard::context::ShardContext;

/// How often partitions are tried again of which none could be settled: clients may use them.
const ATTEMPTS_MAX: u32 = 5;

/// Settles the open transactions of a batch of all replicas.
pub async fn settle(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    table: &Arc<Table>,
    batch: &Batch,
) -> Result<(), RangeError> {
    if batch.members.len() < 2 || context.cluster_view().topology.feature_level < MENDING {
        return Ok(());
    }
    let request = RepairRequest::OpenTransactions {
        table_id: u128::from_be_bytes(batch.table.0),
        ranges: batch.ranges.clone(),
        before_micros: run.began_micros,
    };
    let mut attempts = 0;
    loop {
        let asked = batch.members.iter().map(|member| ask(context, run, member, &request));
        let mut open = BTreeSet::new();
        for answer in futures::future::try_join_all(asked).await? {
            match answer {
                RepairResponse::OpenTransactions(partitions) => open.extend(partitions),
                other => return Err(RangeError::Unsettled(format!("{other:?} is no answer"))),
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        if attempts == ATTEMPTS_MAX {
            return Err(RangeError::Unsettled(format!("{} partitions", open.len())));
        }
        run.check(&context.node)?;
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
        attempts = if settled == 0 { attempts + 1 } else { 0 };
        tracing::debug!(table = table.name, count, settled, "open transactions were settled");
    }
}
