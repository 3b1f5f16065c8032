//! Repair: makes the replicas of ranges equal, whatever they have missed (anti-entropy).
//!
//! 1. The replicas of ranges send digests of their parts ([`digests`]). No trees are stored: digests are computed from the rows.
//! 2. Parts that differ are divided again, until a part is small ([`compare`]).
//! 3. The versions of a small part that differs are read from all replicas and merged, and each replica gets what it lacks
//!    ([`reconcile`]), as in a read repair.
//!
//! 4. Transactions of before whose outcome is open are settled ([`transactions`]).
//!
//! A replica that cannot open some of its files gets their rows back first ([`mending`]).
//!
//! The node that carries a repair out ([`job`]) need not be a replica. What has been repaired, and when, is kept by the replicas
//! ([`history`], [`ages`]). Each node repairs the ranges of which it is the first replica by itself ([`schedule`]).
//!
//! Invariants:
//! * A range counts as repaired only if all of its replicas took part.
//! * Repair writes only versions that a replica has. Writes are fenced by the epoch, as all others are.
//! * What a repair holds in memory is bounded: digests of one request, and one answer of each replica for each small part that is merged at
//!   a time.

pub mod ages;
mod batch;
pub mod compare;
pub mod digests;
pub mod history;
pub mod job;
pub mod kept;
pub mod mending;
pub mod message;
mod notes;
pub mod purging;
pub mod reconcile;
pub mod runs;
pub mod schedule;
mod transactions;
mod unfinished;
mod watched;

use std::rc::Rc;

use tokio::sync::Mutex;

use crate::shard::context::ShardContext;

/// Starts the schedule of repairs, and the look for those that are late. Call on the first shard.
pub async fn start(context: &Rc<ShardContext>) {
    schedule::start(context).await;
    context.repeat(ages::LOOK_AGAIN, ages::look_for_late);
}

/// The state of repairs that a shard keeps.
#[derive(Debug, Default)]
pub struct RepairState {
    schedule: schedule::Schedule,
    told: Mutex<purging::Told>,
}

impl ShardContext {
    /// The state of repairs on the shard.
    fn repair(&self) -> &RepairState {
        self.layers.get()
    }
}
