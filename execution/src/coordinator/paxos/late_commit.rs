//! Commits that come too late for their rows: they are noted, so that their transaction counts as committed, and their rows are not applied.
//!
//! A commit is found again long after it was agreed on: when idle state is settled, when the next transaction carries it to a replica that
//! missed it, or when state is streamed. Its rows keep the timestamp of its origin, the ballot under which it was first proposed. Meanwhile
//! * its table may have been truncated: a truncation leaves no tombstone that would hide the rows. So the members agree on a time that is
//!   above all ballots of before ([`super::truncation`]), and no commit whose origin is not above it is applied;
//! * its rows may have been deleted, and the tombstone purged. Nine tenths of `gc_grace_seconds` after its origin a commit is not applied
//!   any more, as hints and batches are not.
//!
//! What was acknowledged at a level has been applied by as many replicas, when it was agreed on. A commit is therefore never late by its age
//! while its transaction may be in progress (`transaction_state_idle_seconds`, [`outdated_micros`]), however short `gc_grace_seconds` is.
//! Only a replica that missed the commit, and its hint, is left without the rows: like all that was away for longer than
//! `gc_grace_seconds`, it must be repaired. At ANY, no replica need have applied what was acknowledged: if its coordinator dies at once, and
//! the partition is not settled within `gc_grace_seconds` because a replica is away, the rows are lost, as those of a write at ANY whose
//! hint expires.
//!
//! The record of a token ([`crate::coordinator::transaction_tokens`]) is never late: what was agreed on stays agreed on.

use helenus_engine::{DecodeError, Mutation, MutationBuilder, MutationRef, TableId};
use helenus_internode::service::Failure;

use super::ballot::Ballot;
use super::state::Proposal;
use crate::coordinator::replica::hints;
use crate::coordinator::transaction_tokens;
use crate::shard::context::ShardContext;

/// The microseconds up to which no ballot can be from an operation in progress: they are that much older than this
/// replica's time. State that old may have been forgotten without a trace, so no ballot up to them is promised or
/// accepted.
pub fn outdated_micros(context: &ShardContext) -> i64 {
    let seconds = i64::try_from(context.node.config.transaction_state_idle_seconds).unwrap_or(i64::MAX);
    context.clock.now_micros().saturating_sub(seconds.saturating_mul(1_000_000))
}

/// Whether a truncation that the members have agreed on is later than a transaction.
pub fn is_truncated(context: &ShardContext, table: TableId, origin: &Ballot) -> bool {
    let agreed = context.replication().hints.agreed_truncation(&table);
    agreed.is_some_and(|truncated| origin.micros <= truncated)
}

/// Whether the rows of a commit must not be applied any more.
pub fn is_late(context: &ShardContext, table: TableId, origin: &Ballot) -> bool {
    if is_truncated(context, table, origin) {
        return true;
    }
    let view = context.catalog_view();
    let Some(table) = view.table(table) else { return false };
    origin.micros <= outdated_micros(context) && hints::has_expired(context, table, origin.micros)
}

/// What is left of an agreed mutation of which some comes too late.
pub struct Remainder {
    /// What is noted as agreed: the partition stays, without the changes that are late. Whoever gets the state of this replica does not
    /// apply them either: a node that joins later does not know of the truncation.
    pub noted: Mutation,
    /// The changes that are not late, if any.
    pub applied: Option<Mutation>,
}

/// What is left of a commit whose transaction began at `origin`; `None`: all of it. Besides what is late, companions are left out whose table
/// is gone, and all of a change that is too old: they would tell of something that never comes.
pub fn in_time(
    context: &ShardContext,
    mutation: &MutationRef<'_>,
    origin: &Ballot,
) -> Result<Option<Remainder>, Failure> {
    let is_head_old =
        is_late(context, mutation.table, origin) && !is_truncated(context, mutation.table, origin);
    without(mutation, |table| {
        let is_companion = table != mutation.table && table != transaction_tokens::TABLE;
        is_late(context, table, origin)
            || is_companion && (is_head_old || context.catalog_view().table(table).is_none())
    })
}

/// Leaves out the changes of the tables for which `is_late` says so; `None`: there are none.
fn without(
    mutation: &MutationRef<'_>,
    is_late: impl Fn(TableId) -> bool,
) -> Result<Option<Remainder>, Failure> {
    let malformed = |error: DecodeError| Failure::Malformed(error.to_string());
    let is_head_late = is_late(mutation.table);
    let (mut kept, mut has_late) = (Vec::new(), is_head_late);
    for companion in mutation.companions() {
        let companion = companion.map_err(malformed)?;
        if is_late(companion.table) {
            has_late = true;
        } else {
            kept.push(companion.to_mutation().map_err(malformed)?);
        }
    }
    if !has_late {
        return Ok(None);
    }
    let of_partition = MutationBuilder::new(mutation.table, mutation.token, mutation.partition_key)
        .map_err(|error| Failure::Malformed(error.to_string()))?;
    if is_head_late {
        let noted = Mutation::with_companions(&of_partition.build(), &kept).map_err(malformed)?;
        let applied = match kept.split_first() {
            Some((head, others)) => Some(Mutation::with_companions(head, others).map_err(malformed)?),
            None => None,
        };
        return Ok(Some(Remainder { noted, applied }));
    }
    let head = mutation.parts().next().unwrap_or(Err(DecodeError::Truncated { what: "a mutation" }));
    let head = head.and_then(|head| head.to_mutation());
    let noted = Mutation::with_companions(&head.map_err(malformed)?, &kept).map_err(malformed)?;
    Ok(Some(Remainder { applied: Some(noted.clone()), noted }))
}

/// The proposal as this replica accepts it: without the changes of tables that were truncated later.
pub fn as_accepted(context: &ShardContext, mut proposal: Proposal) -> Result<Proposal, Failure> {
    if let Some(bytes) = &proposal.mutation {
        let rows = MutationRef::parse(bytes).map_err(|error| Failure::Malformed(error.to_string()))?;
        if let Some(kept) = without(&rows, |table| is_truncated(context, table, &proposal.origin))? {
            proposal.mutation = Some(kept.noted.bytes().to_vec());
        }
    }
    Ok(proposal)
}
