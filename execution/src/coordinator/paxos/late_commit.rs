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

use helenus_engine::{Mutation, MutationBuilder, MutationRef, TableId};
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

/// A mutation of the same partition that changes nothing, with the records of tokens: what was agreed on stays agreed on. Whoever gets the state of this replica applies nothing either: a node that joins
/// later does not know of the truncation.
pub fn without_rows(rows: &MutationRef<'_>) -> Result<Mutation, Failure> {
    let malformed = |error: &dyn std::fmt::Display| Failure::Malformed(error.to_string());
    let emptied = MutationBuilder::new(rows.table, rows.token, rows.partition_key);
    let emptied = emptied.map(MutationBuilder::build).map_err(|error| malformed(&error))?;
    let records = transaction_tokens::records(rows).map_err(|error| malformed(&error))?;
    Mutation::with_companions(&emptied, &records).map_err(|error| malformed(&error))
}

/// The proposal as this replica accepts it: without rows, if a truncation is later.
pub fn as_accepted(context: &ShardContext, mut proposal: Proposal) -> Result<Proposal, Failure> {
    if let Some(bytes) = &proposal.mutation {
        let rows = MutationRef::parse(bytes).map_err(|error| Failure::Malformed(error.to_string()))?;
        if is_truncated(context, rows.table, &proposal.origin) {
            proposal.mutation = Some(without_rows(&rows)?.bytes().to_vec());
        }
    }
    Ok(proposal)
}
