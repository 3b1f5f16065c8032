//! Whether the disks of the replicas have room for a write, checked before the write begins.
//!
//! * A replica whose disk usage is above `data_disk_usage_percentage_fail_threshold` refuses the write for all, as in Cassandra.
//! * A replica whose reserve is reached refuses writes itself. The write goes on without it if the others satisfy the level; it gets
//!   a hint, like one that is down. Otherwise the write does not begin, and the client gets an error with the reason.
//!
//! Statements that change rows are refused, deletions too, as in Cassandra. Reads, TRUNCATE, DROP and the node's own writes are not.
//! Nothing here costs anything as long as no node says that its disk is short.

use cql_lite::frame::Consistency;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;
use helenus_ring::member::Member;
use smallvec::SmallVec;

use super::replica::write::demand;
use crate::shard::context::ShardContext;
use crate::shard::disk_status::{DiskStatus, DiskUsage};

/// The guardrail's name before its texts, as Cassandra writes them.
const GUARDRAIL: &str = "Guardrail replica_disk_usage violated:";

/// The status of a member's disk.
fn disk_of(context: &ShardContext, member: &Member) -> DiskStatus {
    let disks = &context.node.disks;
    if member.host_id == context.node.host_id { disks.own() } else { disks.of(&member.host_id) }
}

/// Refuses a write of these partitions if the disks of their replicas have no room for it. A warning for the client is added to
/// `warnings`.
pub fn check<'t>(
    context: &ShardContext,
    partitions: impl IntoIterator<Item = (&'t Table, &'t PartitionKey)>,
    level: Consistency,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let mut is_stuffed = false;
    for (table, key) in partitions {
        is_stuffed |= check_partition(context, table, key.token, level)?;
    }
    let now = context.clock.monotonic();
    if is_stuffed && context.replication().disk_warnings.is_due(now) {
        let warning = format!("{GUARDRAIL} Replica disk usage exceeds warning threshold");
        tracing::warn!("{warning}");
        warnings.push(warning);
    }
    Ok(())
}

/// As [`check`] for one partition. Returns whether the disk of a replica is nearly full.
fn check_partition(context: &ShardContext, table: &Table, token: i64, level: Consistency) -> Result<bool> {
    let view = context.cluster_view();
    let Some(placement) = view.placement(&table.keyspace) else {
        let own = context.node.disks.own();
        refuse_if_full(context, own.usage)?;
        if own.is_reserve_reached {
            return Err(refused(context, "The disk of this node is full".to_owned()));
        }
        return Ok(own.usage == DiskUsage::Stuffed);
    };
    let replicas = placement.replicas(token);
    let disks: SmallVec<[(&Member, DiskStatus); 4]> =
        replicas.all().map(|member| (&**member, disk_of(context, member))).collect();
    for (_, disk) in &disks {
        refuse_if_full(context, disk.usage)?;
    }
    let has_no_room =
        |member: &Member, disk: &DiskStatus| disk.is_reserve_reached && view.is_alive(&member.host_id);
    let is_hint_enough = level == Consistency::Any && context.node.settings.keeps_hints();
    if !is_hint_enough && disks.iter().any(|(member, disk)| has_no_room(member, disk)) {
        let demand = demand(context, &table.keyspace, replicas, level)?;
        let alive = disks.iter().filter(|(member, _)| view.is_alive(&member.host_id));
        let with_room = alive.clone().filter(|(_, disk)| !disk.is_reserve_reached);
        // If too few replicas are alive, the error is about that.
        let could_be_met = demand.is_met(alive.map(|(member, _)| *member));
        if could_be_met && !demand.is_met(with_room.map(|(member, _)| *member)) {
            let full: Vec<String> = disks
                .iter()
                .filter(|(member, disk)| has_no_room(member, disk))
                .map(|(member, _)| member.native_address.ip().to_string())
                .collect();
            return Err(refused(context, format!("Disks are full: {}", full.join(", "))));
        }
    }
    Ok(disks.iter().any(|(_, disk)| disk.usage == DiskUsage::Stuffed))
}

fn refuse_if_full(context: &ShardContext, usage: DiskUsage) -> Result<()> {
    if usage < DiskUsage::Full {
        return Ok(());
    }
    context.metrics.writes_refused_for_room.increment();
    Err(RequestError::invalid(format!(
        "{GUARDRAIL} Write request failed because disk usage exceeds failure threshold"
    )))
}

fn refused(context: &ShardContext, reason: String) -> RequestError {
    context.metrics.writes_refused_for_room.increment();
    RequestError::NoRoom(reason)
}
