//! Where companions of a mutation go.
//!
//! When a mutation is made, its companions have the same replicas as its partition. One that is delivered later (a hint, a batch that was left,
//! a write that is sent again because the ring has changed) may find its companions elsewhere: then they are written apart, to their own
//! replicas. The record of a token stays with its mutation: it has the same token.

use helenus_engine::{DecodeError, Mutation, MutationRef};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_ring::placement::Replicas;

use crate::shard::context::ShardContext;

/// Whether all companions have the replicas that their mutation has now.
pub fn are_together(context: &ShardContext, mutation: &Mutation) -> Result<bool, DecodeError> {
    if !mutation.has_companions() {
        return Ok(true);
    }
    let view = mutation.view()?;
    for companion in view.companions() {
        if !is_beside(context, &view, &companion?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The changes with those companions as changes of their own that have other replicas.
pub fn apart(context: &ShardContext, changes: Vec<PartitionMutation>) -> Result<Vec<PartitionMutation>> {
    if changes.iter().all(|change| !change.mutation.has_companions()) {
        return Ok(changes);
    }
    let malformed = |error: DecodeError| RequestError::Server(error.to_string());
    let mut all = Vec::with_capacity(changes.len());
    for change in changes {
        if are_together(context, &change.mutation).map_err(malformed)? {
            all.push(change);
        } else {
            all.extend(divided(context, &change).map_err(malformed)?);
        }
    }
    Ok(all)
}

#[cold]
fn divided(
    context: &ShardContext,
    change: &PartitionMutation,
) -> Result<Vec<PartitionMutation>, DecodeError> {
    let view = change.mutation.view()?;
    let (mut beside, mut elsewhere) = (Vec::new(), Vec::new());
    for (index, part) in view.parts().enumerate() {
        let part = part?;
        let table = context.catalog_view().table(part.table).cloned();
        match table {
            Some(table) if index > 0 && !is_beside(context, &view, &part) => {
                elsewhere.push(PartitionMutation { token: part.token, table, mutation: part.to_mutation()? });
            }
            _ => beside.push(part.to_mutation()?),
        }
    }
    let mut parts = beside.iter();
    let mut divided = Vec::with_capacity(1 + elsewhere.len());
    if let Some(head) = parts.next() {
        let mutation = Mutation::with_companions(head, parts.as_slice())?;
        divided.push(PartitionMutation { mutation, ..change.clone() });
    }
    divided.extend(elsewhere);
    Ok(divided)
}

/// Whether a companion has the replicas of its mutation. One of a table that no client sees has its mutation's token.
fn is_beside(context: &ShardContext, mutation: &MutationRef<'_>, companion: &MutationRef<'_>) -> bool {
    if companion.token == mutation.token {
        return true;
    }
    let catalog = context.catalog_view();
    let Some(table) = catalog.table(companion.table) else { return true };
    let view = context.cluster_view();
    let Some(placement) = view.placement(&table.keyspace) else { return true };
    are_same(placement.replicas(mutation.token), placement.replicas(companion.token))
}

fn are_same(one: &Replicas, other: &Replicas) -> bool {
    let is_within = |one: &Replicas, other: &Replicas| {
        one.read.iter().all(|member| other.read.iter().any(|known| known.host_id == member.host_id))
            && one
                .pending
                .iter()
                .all(|member| other.pending.iter().any(|known| known.host_id == member.host_id))
    };
    is_within(one, other) && is_within(other, one)
}
