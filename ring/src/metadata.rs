//! The state that all members agree on, and how commands change it: a state machine without side effects.
//!
//! Invariants:
//! * [`apply`] is deterministic: equal state, index and command give an equal result on every member. It reads no
//!   clock, draws no random numbers, and refuses with a [`CommandOutcome`] instead of failing.
//! * A command that is applied twice (its proposer did not learn of the first time) has no second effect.
//! * At most one transition is under way: a member joins or leaves, dead members are removed together, a new member takes the place of a
//!   dead one, or the replication of keyspaces changes.
//! * [`Topology::feature_level`] never goes down, and every member supports it: a program that does not is refused.
//! * [`Topology::version`] is the index of the last entry that changed members, schema or pending cleanups. [`Topology::epoch`] is the
//!   index of the last entry that changed ownership: a step of a transition, or a keyspace's replication.

mod change_feed;
mod checks;
mod command;
mod denylist;
mod encryption;
mod features;
mod gains;
mod members;
mod outcome;
mod replacement;
mod replication;
mod role_changes;
mod state;
mod uncleaned;
mod voters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::document::CatalogDocument;

pub use self::command::{
    Command, CommandOutcome, Creator, MemberUpdate, Refusal, SchemaChangeCommand, StreamsExtension,
};
pub use self::features::{
    AGED_HINTS, AGREED_CLEANUP, CAPS, CASSANDRA_5_SCHEMAS, CHANGE_FEEDS, DENYLIST, DISK_STATUS,
    ENCRYPTED_TABLES, FEATURE_VERSION, HINT_WINDOWS, INDEXES, MEMBER_SNAPSHOTS, MEMBER_UPLOADS, MENDING,
    RATE_LIMITS, RECEIPTS, REMOVALS, REMOVALS_TOGETHER, REPAIRS, REPLACEMENTS, REPLICATION_CHANGES,
    SCHEMA_DELTAS, SECURITY, SHARES_BETWEEN_NODES, STREAMED_ROW_PARTS, TRACES, TRANSACTION_TOKENS,
    TRUNCATION_TIMES,
};
pub use self::state::{ClusterState, StateDocument, dropped_keyspaces};
pub use self::uncleaned::{Uncleaned, by_replication_of};
pub use self::voters::SeenMembers;

use self::members::OldData;
use self::outcome::{Changed, malformed, refuse};
use crate::change_feed::ChangeFeed;
use crate::member::{Member, MemberState};
use crate::replication_change::ReplicationChange;
use crate::topology::Topology;

/// Applies a command. The state is unchanged unless the outcome is a new `Applied`.
pub fn apply(state: &ClusterState, index: u64, command: &Command) -> (ClusterState, CommandOutcome) {
    match changed(state, index, command) {
        Ok(Some(state)) => {
            let state = replication::begun(members::removals_begun(state, index), index);
            (state, CommandOutcome::Applied { version: index })
        }
        Ok(None) => (state.clone(), CommandOutcome::Applied { version: state.topology.version }),
        Err(outcome) => (state.clone(), outcome),
    }
}

/// The new state; `None`: the requested state holds already.
fn changed(state: &ClusterState, index: u64, command: &Command) -> Changed {
    if let Command::Found { member, catalog } = command {
        return found(state, index, member, catalog);
    }
    if !state.is_founded() {
        return refuse(Refusal::NotFounded);
    }
    match command {
        Command::Found { .. } => refuse(Refusal::AlreadyFounded),
        Command::ChangeSchema(change) | Command::ChangeTables(change) => change_schema(state, index, change),
        Command::Join { member } => members::join(state, index, member),
        Command::Advance { host_id, from } => members::advance(state, index, *host_id, *from, None),
        Command::AdvanceMembers { host_id, from, epoch } => {
            members::advance(state, index, *host_id, *from, Some(*epoch))
        }
        Command::Abort { host_id } => members::abort(state, index, *host_id),
        Command::StartLeave { host_id } => {
            members::start_leave(state, index, *host_id, false, OldData::Refused)
        }
        Command::StartRemoval { host_id } => {
            members::start_leave(state, index, *host_id, true, OldData::Refused)
        }
        Command::ForceLeave { host_id, is_removal } => {
            members::start_leave(state, index, *host_id, *is_removal, OldData::Accepted)
        }
        Command::StartRemovals { host_ids, accepts_old_data } => {
            let old_data = if *accepts_old_data { OldData::Accepted } else { OldData::Refused };
            members::start_removals(state, index, host_ids, old_data)
        }
        Command::AdvanceReplication { from, epoch } => replication::advance(state, index, *from, *epoch),
        Command::Cleaned { host_id, because_of, epoch } => {
            members::cleaned(state, index, host_id, because_of, *epoch)
        }
        Command::TakeBackRemoval { host_id, epoch } => {
            members::take_back_removal(state, index, *host_id, *epoch)
        }
        Command::Update(update) => members::update_member(state, index, update),
        Command::StartReplacement { member, replaced, accepts_loss } => {
            replacement::start(state, index, member, *replaced, *accepts_loss)
        }
        Command::ChangeRoles { id, change } => role_changes::change(state, index, *id, change),
        Command::ChangeDenylist { id, change } => denylist::change(state, index, *id, change),
        Command::ExtendStreams(extension) => change_feed::extend(state, index, extension),
    }
}

fn found(state: &ClusterState, index: u64, member: &Member, catalog: &CatalogDocument) -> Changed {
    if state.is_founded() {
        // The founder has proposed it again.
        let is_same = state.seniority.first() == Some(&member.host_id);
        return if is_same { Ok(None) } else { refuse(Refusal::AlreadyFounded) };
    }
    let catalog = catalog.catalog().map_err(|error| malformed(&error))?;
    let member = Member { state: MemberState::Normal, ..member.clone() };
    checks::check_tokens(&member)?;
    let feature_version = member.feature_version;
    Ok(Some(ClusterState {
        seniority: Arc::new(vec![member.host_id]),
        recent_changes: Arc::default(),
        removals: Arc::default(),
        uncleaned: Arc::default(),
        catalog: Arc::new(catalog),
        roles: Arc::default(),
        denylist: Arc::default(),
        topology: Arc::new(Topology {
            version: index,
            epoch: index,
            members: BTreeMap::from([(member.host_id, Arc::new(member))]),
            removed: BTreeSet::new(),
            feature_level: feature_version,
            replication_changes: BTreeMap::new(),
            given_up: BTreeSet::new(),
            replacement: None,
            change_feed: ChangeFeed::default(),
        }),
    }))
}

fn change_schema(state: &ClusterState, index: u64, change: &SchemaChangeCommand) -> Changed {
    let version = change.changed.version().map_err(|error| malformed(&error))?;
    if state.recent_changes.iter().any(|(done, _)| *done == version) {
        return Ok(None);
    }
    let old = &state.catalog;
    if old.version != change.base {
        return Err(CommandOutcome::Conflict { version: state.topology.version });
    }
    let mut catalog = change.changed.over(old).map_err(|error| malformed(&error))?;
    for name in &change.dropped {
        catalog.keyspaces.remove(name);
    }
    encryption::check_change(&state.topology, old, &catalog)?;
    let changed = if state.topology.feature_level >= REPLICATION_CHANGES && state.topology.members.len() > 1 {
        replication::with_catalog(state, index, catalog)
    } else {
        replaced_at_once(state, index, catalog)?
    };
    let changed = change_feed::after_schema_change(changed, old, change.first_streams_ms);
    let changed = role_changes::after_schema_change(changed, old, index, change.creator.as_ref());
    Ok(Some(denylist::after_schema_change(changed).with_recent_change(version, index)))
}

/// The state with a new catalog, where changes of replication need no transition (there is one member), or not all members know one.
fn replaced_at_once(
    state: &ClusterState,
    index: u64,
    catalog: Catalog,
) -> Result<ClusterState, CommandOutcome> {
    let changes = ReplicationChange::between(&state.catalog, &catalog);
    if let (Some((keyspace, _)), Some(member)) = (changes.first(), state.topology.in_transition()) {
        // Streams and pending replicas were planned for the previous replication.
        return refuse(Refusal::ReplicationInTransition {
            keyspace: keyspace.clone(),
            host_id: member.host_id,
            address: member.internode_address,
        });
    }
    members::check_cleaned(state.cleanup_due_by(changes.iter().map(|(_, change)| change)))?;
    let changes_ownership = !changes.is_empty();
    let mut changed = state::with_topology(state, index, changes_ownership, |topology| {
        // With one member nothing is left to be done.
        topology.replication_changes.clear();
    });
    changed.catalog = Arc::new(catalog);
    Ok(changed)
}

#[cfg(test)]
mod tests;
