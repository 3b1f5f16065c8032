//! Which members may still have data of ranges that they have given up.
//!
//! Such a member does not see what is deleted from those ranges, and the tombstones may be purged everywhere else. If a range came back to
//! it, deleted rows would be resurrected. So the log records which members have yet to clean up:
//! * The end of a join, a leaving that is cancelled, and a change of replication note the members that have given up ranges by it, and
//!   those that are noted already: of the ranges that they still have data of, some may now belong to the new member.
//! * A noted member removes the data, and says so ([`super::Command::Cleaned`]).
//! * While a member is noted, none begins to leave by which it would gain ranges, and a change of replication so waits.
//!   [`super::Command::ForceLeave`] does not ask.
//!
//! A join needs no such care: only the new member gains ranges by it. So it is where a new member takes the place of a dead one, whose part
//! in the notes it takes as well.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::member::HostId;
use crate::topology::Topology;

/// Stands in the place of a member because of which ranges were given up, where this keyspace's replication was the reason. The ids of
/// members are random (version 4), this one is derived from the name (version 8).
pub fn by_replication_of(keyspace: &str) -> HostId {
    // FNV-1a of 128 bits.
    let begin: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let prime: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = keyspace.bytes().fold(begin, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(prime));
    uuid::Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid()
}

fn is_by_replication(cause: &HostId) -> bool {
    cause.get_version_num() == 8
}

/// The members with data of ranges that they may have given up. For each, the members because of which: it owned those ranges without
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uncleaned(BTreeMap<HostId, BTreeSet<HostId>>);

impl Uncleaned {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members because of which one has given up ranges.
    pub fn of(&self, host_id: &HostId) -> Option<&BTreeSet<HostId>> {
        self.0.get(host_id)
    }

    /// The noted members.
    pub fn members(&self) -> impl Iterator<Item = &HostId> {
        self.0.keys()
    }

    /// Notes members that have given up ranges because of another one.
    pub(super) fn note(&mut self, host_ids: BTreeSet<HostId>, because_of: HostId) {
        for host_id in host_ids {
            self.0.entry(host_id).or_default().insert(because_of);
        }
    }

    /// A member has removed what it gave up because of these. If they are not all because of which it is noted, that says nothing: the data
    /// of ranges that passed through several hands is found without all of them.
    pub(super) fn forget(&mut self, host_id: &HostId, because_of: &BTreeSet<HostId>) {
        if self.0.get(host_id).is_some_and(|noted| noted.is_subset(because_of)) {
            self.0.remove(host_id);
        }
    }

    /// A member has taken the place of another one, with its tokens: what was given up because of that one, the new one has now.
    pub(super) fn pass_on(&mut self, from: &HostId, to: HostId) {
        for noted in self.0.values_mut() {
            if noted.remove(from) {
                noted.insert(to);
            }
        }
    }

    /// Drops the notes of former members: they hold no data, and the ranges that others had given up because of them are theirs again.
    pub(super) fn forget_strangers(&mut self, topology: &Topology) {
        let is_member = |host_id: &HostId| topology.members.contains_key(host_id);
        self.0.retain(|host_id, noted| {
            noted.retain(|cause| is_by_replication(cause) || is_member(cause));
            is_member(host_id) && !noted.is_empty()
        });
    }
}
