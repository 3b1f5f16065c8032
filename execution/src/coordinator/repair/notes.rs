//! Tells the replicas which of their ranges were repaired, and notes it on the node that repairs them.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_ring::intervals::{ranges, union};

use super::batch::Batch;
use super::history;
use super::message::RepairRequest;
use super::runs::RepairRun;
use crate::shard::context::ShardContext;

/// How often this node notes what it has repaired for others, to go on from there.
const OWN_NOTE_PERIOD: Duration = Duration::from_secs(10);
/// How long a replica may take to note what was repaired.
const NOTE_DEADLINE: Duration = Duration::from_secs(30);

/// What this node is to note of its repairs. It notes also what it has repaired for others, to go on from there after a restart, but not
/// each batch of it: there may be very many.
#[derive(Default)]
pub struct OwnNotes {
    table_id: Option<u128>,
    tokens: Vec<RangeInclusive<i64>>,
    written: Duration,
}

impl OwnNotes {
    /// Tells all other replicas that these tokens are repaired, and notes them here soon. One that does not note it takes them for older than they are.
    pub async fn add(
        &mut self,
        context: &Rc<ShardContext>,
        run: &RepairRun,
        batch: &Batch,
        tokens: Vec<RangeInclusive<i64>>,
    ) {
        let table_id = u128::from_be_bytes(batch.table.0);
        let request =
            RepairRequest::Repaired { table_id, ranges: ranges(&tokens), began_micros: run.began_micros };
        let own = context.node.host_id;
        let others = batch.members.iter().filter(|member| member.host_id != own);
        let told = others.map(|member| {
            let request = &request;
            async move {
                if let Err(error) = context.ask(member, 0, request, NOTE_DEADLINE).await {
                    tracing::debug!(replica = %member.host_id, %error, "a replica has not noted a repair");
                }
            }
        });
        futures::future::join_all(told).await;
        self.table_id = Some(table_id);
        self.tokens = union(&self.tokens, &tokens);
        if context.clock.monotonic() >= self.written + OWN_NOTE_PERIOD {
            self.write(context, run).await;
        }
    }

    pub async fn write(&mut self, context: &Rc<ShardContext>, run: &RepairRun) {
        self.written = context.clock.monotonic();
        let Some(table_id) = self.table_id.filter(|_| !self.tokens.is_empty()) else { return };
        let tokens = ranges(&std::mem::take(&mut self.tokens));
        if let Err(error) = history::note(context, table_id, &tokens, run.began_micros).await {
            tracing::warn!(%error, "a repair could not be noted");
        }
    }
}
