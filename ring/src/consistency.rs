//! Consistency levels: how many replicas a request needs, which replicas count, and whether enough are alive.
//!
//! The numbers are Cassandra's: they follow from the keyspace's replication factor, not from the number of replicas
//! that exist. So a quorum of RF 3 is two even where only two nodes are members, and no answer counts as safer than it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::frame::Consistency;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, Replication, Table, TableKind};
use helenus_query::schema::system_keyspaces;
use smallvec::SmallVec;

use crate::member::{HostId, Member};
use crate::placement::Replicas;
use crate::view::ClusterView;

/// The use that a request makes of its replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// A lightweight transaction. Its level is the level of the commit.
    Conditional,
}

/// The replicas that count towards a level.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CountedReplicas {
    Anywhere,
    DataCenter(String),
    /// Only the coordinator itself.
    Node(HostId),
    /// The given number in each data center.
    Each(BTreeMap<String, u32>),
}

/// The replicas that a consistency level requires: how many, and which ones count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredReplicas {
    consistency: Consistency,
    scope: CountedReplicas,
    required: u32,
    /// While the keyspace's replication changes, or a member is replaced, what a write needs besides.
    other: Option<Box<OtherRequirement>>,
}

/// A write while a keyspace's replication changes, or a member is replaced: the level must be reached on both sides, each among its own
/// replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherRequirement {
    /// The replicas that are read.
    read: SmallVec<[HostId; 3]>,
    /// The replicas of the other side.
    members: SmallVec<[HostId; 3]>,
    required: RequiredReplicas,
}

/// The majority of `replicas`.
fn quorum(replicas: u32) -> u32 {
    replicas / 2 + 1
}

/// The number of replicas that a keyspace's replication gives to a data center. As in Cassandra, strategies without
/// data centers count all replicas.
fn local_replication_factor(replication: &Replication, data_center: &str) -> u32 {
    match replication {
        Replication::NetworkTopology { data_centers } => data_centers.get(data_center).copied().unwrap_or(0),
        other => other.replica_count(),
    }
}

/// The replicas that a level requires, seen from a coordinator `this_node` in `data_center`.
pub fn required(
    consistency: Consistency,
    replication: &Replication,
    data_center: &str,
    this_node: HostId,
) -> RequiredReplicas {
    let local = || CountedReplicas::DataCenter(data_center.to_owned());
    let (scope, required) = match consistency {
        Consistency::Any | Consistency::One => (CountedReplicas::Anywhere, 1),
        Consistency::Two => (CountedReplicas::Anywhere, 2),
        Consistency::Three => (CountedReplicas::Anywhere, 3),
        Consistency::All => (CountedReplicas::Anywhere, replication.replica_count()),
        Consistency::Quorum | Consistency::Serial => {
            (CountedReplicas::Anywhere, quorum(replication.replica_count()))
        }
        Consistency::LocalOne => (local(), 1),
        Consistency::NodeLocal => (CountedReplicas::Node(this_node), 1),
        Consistency::LocalQuorum | Consistency::LocalSerial => {
            (local(), quorum(local_replication_factor(replication, data_center)))
        }
        Consistency::EachQuorum => match replication {
            Replication::NetworkTopology { data_centers } => {
                let each: BTreeMap<_, _> =
                    data_centers.iter().map(|(name, &count)| (name.clone(), quorum(count))).collect();
                let sum = each.values().sum();
                (CountedReplicas::Each(each), sum)
            }
            other => (CountedReplicas::Anywhere, quorum(other.replica_count())),
        },
    };
    RequiredReplicas { consistency, scope, required, other: None }
}

impl RequiredReplicas {
    pub fn consistency(&self) -> Consistency {
        self.consistency
    }

    /// The number of responses required in total, as errors report it to the client.
    pub fn required(&self) -> u32 {
        self.other.as_ref().map_or(self.required, |other| self.required.max(other.required.required))
    }

    /// The number of these members that count, as errors report it to the client: fewer than are required.
    pub fn received<'m>(&self, members: impl IntoIterator<Item = &'m Member>) -> u32 {
        let count = self.count(members);
        if self.other.is_some() { count.min(self.required() - 1) } else { count }
    }

    /// The required replicas of a write to these replicas, or of a read that is to last, seen from the coordinator `this_node` in `data_center`, while ownership changes
    /// hands. ANY needs no more.
    ///
    /// * A member is in a transition: one more acknowledgement for each pending replica in the level's scope.
    /// * A member is replaced: the level on the other side too.
    /// * The keyspace's replication changes: the level on the other side too. If that has no replica in the coordinator's data center, the
    ///   rows are to be elsewhere: a quorum of all of them instead of a local one.
    #[must_use]
    pub fn of_write(mut self, replicas: &Replicas, data_center: &str, this_node: HostId) -> Self {
        if self.consistency == Consistency::Any {
            return self;
        }
        let Some(other) = &replicas.other else { return self.with_pending(replicas.pending.iter()) };
        let is_near = |member: &Arc<Member>| {
            other.members.contains(&member.host_id) && member.data_center == *data_center
        };
        let is_elsewhere = !replicas.all().any(is_near);
        let level = match self.consistency {
            // The coordinator may be no replica on the other side.
            Consistency::NodeLocal => Consistency::One,
            Consistency::LocalOne if is_elsewhere => Consistency::One,
            Consistency::LocalQuorum if is_elsewhere => Consistency::Quorum,
            level => level,
        };
        if !other.members.is_empty() {
            let required = required(level, &other.replication, data_center, this_node);
            let read = replicas.read.iter().map(|member| member.host_id).collect();
            self.other = Some(Box::new(OtherRequirement { read, members: other.members.clone(), required }));
        }
        self
    }

    fn with_pending<'m>(mut self, pending: impl Iterator<Item = &'m Arc<Member>>) -> Self {
        for member in pending {
            if !self.counts(member) {
                continue;
            }
            self.required += 1;
            if let CountedReplicas::Each(each) = &mut self.scope
                && let Some(needed) = each.get_mut(&member.data_center)
            {
                *needed += 1;
            }
        }
        self
    }

    /// Whether a response of this replica counts.
    pub fn counts(&self, member: &Member) -> bool {
        match &self.scope {
            CountedReplicas::Anywhere => true,
            CountedReplicas::DataCenter(name) => member.data_center == *name,
            CountedReplicas::Node(host_id) => member.host_id == *host_id,
            CountedReplicas::Each(each) => each.contains_key(&member.data_center),
        }
    }

    /// The number of these members that count.
    pub fn count<'m>(&self, members: impl IntoIterator<Item = &'m Member>) -> u32 {
        members.into_iter().filter(|member| self.counts(member)).count() as u32
    }

    /// Whether responses of these members are enough.
    pub fn is_met<'m>(&self, members: impl IntoIterator<Item = &'m Member>) -> bool {
        let Some(other) = &self.other else { return self.is_met_here(members) };
        let members: SmallVec<[&Member; 6]> = members.into_iter().collect();
        let on = |side: &[HostId]| -> SmallVec<[&'m Member; 6]> {
            members.iter().copied().filter(|member| side.contains(&member.host_id)).collect()
        };
        self.is_met_here(on(&other.read)) && other.required.is_met_here(on(&other.members))
    }

    /// As [`Self::is_met`], of one side.
    fn is_met_here<'m>(&self, members: impl IntoIterator<Item = &'m Member>) -> bool {
        match &self.scope {
            CountedReplicas::Each(each) => {
                let mut missing: BTreeMap<&str, u32> =
                    each.iter().map(|(name, &needed)| (name.as_str(), needed)).collect();
                for member in members {
                    if let Some(needed) = missing.get_mut(member.data_center.as_str()) {
                        *needed = needed.saturating_sub(1);
                    }
                }
                missing.values().all(|&needed| needed == 0)
            }
            _ => self.count(members) >= self.required,
        }
    }

    /// Takes as many of `members`, in their order, as are required. Returns them, and the others that count.
    pub fn choose(&self, members: Vec<Arc<Member>>) -> (Vec<Arc<Member>>, Vec<Arc<Member>>) {
        let (mut chosen, mut others): (Vec<Arc<Member>>, Vec<Arc<Member>>) = (Vec::new(), Vec::new());
        for member in members {
            let is_wanted = match &self.scope {
                CountedReplicas::Each(each) => each.get(&member.data_center).is_some_and(|&needed| {
                    let has = chosen.iter().filter(|known| known.data_center == member.data_center).count();
                    (has as u32) < needed
                }),
                _ => (chosen.len() as u32) < self.required,
            };
            let counts_on_other_side = |other: &OtherRequirement| {
                other.members.contains(&member.host_id) && other.required.counts(&member)
            };
            if self.counts(&member) && is_wanted {
                chosen.push(member);
            } else if self.counts(&member) || self.other.as_deref().is_some_and(counts_on_other_side) {
                others.push(member);
            }
        }
        // Those of the other side that are missing.
        while !others.is_empty() && !self.is_met(chosen.iter().map(|member| &**member)) {
            chosen.push(others.remove(0));
        }
        (chosen, others)
    }

    /// Returns the error for a level that the live replicas cannot satisfy, with the counts that Cassandra reports.
    pub fn check_alive<'m>(&self, alive: impl IntoIterator<Item = &'m Member> + Clone) -> Result<()> {
        if self.is_met(alive.clone()) {
            return Ok(());
        }
        if let Some(other) = &self.other {
            let on = |side: &[HostId]| -> SmallVec<[&'m Member; 6]> {
                alive.clone().into_iter().filter(|member| side.contains(&member.host_id)).collect()
            };
            let one_side = Self { other: None, ..self.clone() };
            one_side.check_alive(on(&other.read).iter().copied())?;
            return other.required.check_alive(on(&other.members).iter().copied());
        }
        let consistency = self.consistency;
        if let CountedReplicas::Each(each) = &self.scope {
            for (name, &required) in each {
                let alive =
                    alive.clone().into_iter().filter(|member| member.data_center == *name).count() as u32;
                if alive < required {
                    return Err(RequestError::Unavailable { consistency, required, alive });
                }
            }
        }
        Err(RequestError::Unavailable { consistency, required: self.required, alive: self.count(alive) })
    }
}

/// Refuses a level that does not fit the request. On a single node this also refuses a level that the node cannot
/// satisfy. In a cluster that is checked for each token when the request is executed.
pub fn check(
    catalog: &Catalog,
    cluster: &ClusterView,
    table: &Table,
    consistency: Consistency,
    access: Access,
) -> Result<()> {
    if table.kind == TableKind::Virtual {
        return Ok(());
    }
    let replication = catalog.keyspace(&table.keyspace).map(|keyspace| &keyspace.replication);
    let is_here_only = cluster.is_alone() || replication.is_none_or(|it| *it == Replication::Local);
    if is_here_only && system_keyspaces::is_system(&table.keyspace) {
        return Ok(());
    }
    if access == Access::Read && consistency == Consistency::Any {
        return Err(RequestError::invalid("ANY ConsistencyLevel is only supported for writes"));
    }
    if access == Access::Write && consistency.is_serial() {
        return Err(RequestError::invalid("You must use conditional updates for serializable writes"));
    }
    if access == Access::Conditional
        && consistency == Consistency::EachQuorum
        && !matches!(replication, Some(Replication::NetworkTopology { .. }))
    {
        return Err(RequestError::invalid(
            "consistency level EACH_QUORUM not compatible with replication strategy (org.apache.cassandra.locator.SimpleStrategy)",
        ));
    }
    if !is_here_only {
        return Ok(());
    }
    let replicas = replication.map_or(1, Replication::replica_count);
    let required = match (consistency, replication) {
        (Consistency::NodeLocal, _) => 1,
        // The single node is in the only data center that counts, whatever name the replication uses for it.
        (Consistency::LocalQuorum | Consistency::LocalSerial | Consistency::EachQuorum, _) => {
            quorum(replicas)
        }
        (level, Some(replication)) => required(level, replication, "", HostId::nil()).required,
        (_, None) => 1,
    };
    let alive = replicas.min(1);
    if required > alive {
        return Err(RequestError::Unavailable { consistency, required, alive });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use helenus_query::schema::system_tables;
    use uuid::Uuid;

    use super::*;
    use crate::member::MemberState;
    use crate::placement::OtherSide;

    fn single() -> ClusterView {
        ClusterView::new(Arc::default(), Arc::default(), &system_tables::initial_catalog(Uuid::nil()))
    }

    fn member(number: u8, data_center: &str) -> Member {
        Member {
            host_id: Uuid::from_bytes([number; 16]),
            internode_address: ([127, 0, 0, number], 7000).into(),
            native_address: ([127, 0, 0, number], 9042).into(),
            shard_aware_port: 19042,
            shard_count: 1,
            data_center: data_center.to_owned(),
            rack: "rack1".to_owned(),
            tokens: Vec::new(),
            state: MemberState::Normal,
            release_version: String::new(),
            protocol_version: 1,
            feature_version: 1,
            encrypts_tables: false,
        }
    }

    #[test]
    fn system_tables_of_a_node_answer_at_every_level() {
        let catalog = system_tables::initial_catalog(Uuid::nil());
        let local = catalog.table("system", "local").unwrap();
        check(&catalog, &single(), local, Consistency::All, Access::Read).unwrap();
        check(&catalog, &single(), local, Consistency::Three, Access::Read).unwrap();
    }

    #[test]
    fn more_replicas_than_live_are_unavailable() {
        let mut catalog = system_tables::initial_catalog(Uuid::nil());
        let mut keyspace = (**catalog.keyspace("system_traces").unwrap()).clone();
        keyspace.name = "shop".to_owned();
        keyspace.replication = Replication::Simple { replication_factor: 3 };
        let mut table = (*keyspace.tables["sessions"]).clone();
        table.keyspace = "shop".to_owned();
        catalog.keyspaces.insert("shop".to_owned(), Arc::new(keyspace));
        let check = |consistency, access| check(&catalog, &single(), &table, consistency, access);
        check(Consistency::One, Access::Read).unwrap();
        let error = check(Consistency::Quorum, Access::Write).unwrap_err();
        assert_eq!(error.to_string(), "Cannot achieve consistency level QUORUM");
        assert!(check(Consistency::Any, Access::Read).is_err());
        assert!(check(Consistency::Serial, Access::Write).is_err());
    }

    #[test]
    fn levels_follow_the_replication_factor() {
        let simple = Replication::Simple { replication_factor: 3 };
        let data_centers = BTreeMap::from([("east".to_owned(), 3), ("west".to_owned(), 5)]);
        let network = Replication::NetworkTopology { data_centers };
        let count = |level, replication| required(level, replication, "east", Uuid::nil()).required();
        let levels = [
            (Consistency::Any, 1, 1),
            (Consistency::One, 1, 1),
            (Consistency::Two, 2, 2),
            (Consistency::Three, 3, 3),
            (Consistency::Quorum, 2, 5),
            (Consistency::Serial, 2, 5),
            (Consistency::All, 3, 8),
            (Consistency::LocalOne, 1, 1),
            (Consistency::LocalQuorum, 2, 2),
            (Consistency::LocalSerial, 2, 2),
            (Consistency::EachQuorum, 2, 5),
            (Consistency::NodeLocal, 1, 1),
        ];
        for (level, of_simple, of_network) in levels {
            assert_eq!((count(level, &simple), count(level, &network)), (of_simple, of_network), "{level}");
        }
    }

    #[test]
    fn each_quorum_needs_a_majority_in_every_data_center() {
        let data_centers = BTreeMap::from([("east".to_owned(), 3), ("west".to_owned(), 1)]);
        let network = Replication::NetworkTopology { data_centers };
        let demand = required(Consistency::EachQuorum, &network, "east", Uuid::nil());
        let (first, second, third) = (member(1, "east"), member(2, "east"), member(3, "west"));
        assert!(!demand.is_met([&first, &second]));
        assert!(!demand.is_met([&first, &third]));
        assert!(demand.is_met([&first, &second, &third]));
        match demand.check_alive([&first, &second]) {
            Err(RequestError::Unavailable { required: 1, alive: 0, .. }) => {}
            other => panic!("{other:?}"),
        }
    }

    fn replicas(read: &[&Member], pending: &[&Member], other: Option<OtherSide>) -> Replicas {
        let shared = |members: &[&Member]| {
            members.iter().map(|member| Arc::new((*member).clone())).collect::<Vec<_>>()
        };
        Replicas { read: shared(read).into(), pending: shared(pending).into(), other: other.map(Arc::new) }
    }

    #[test]
    fn pending_replicas_raise_the_required_replicas_of_a_write() {
        let simple = Replication::Simple { replication_factor: 3 };
        let (near, far) = (member(1, "east"), member(2, "west"));
        let of = |level, pending: &[&Member]| {
            let required = required(level, &simple, "east", Uuid::nil());
            required.of_write(&replicas(&[], pending, None), "east", Uuid::nil()).required()
        };
        assert_eq!(of(Consistency::Quorum, &[&near]), 3);
        assert_eq!(of(Consistency::LocalQuorum, &[&near, &far]), 3);
        assert_eq!(of(Consistency::Any, &[&near]), 1);
    }

    /// What a write needs while a keyspace has the first members as replicas, under the first replication, and gets the second ones.
    fn changing(
        level: Consistency,
        before: (&Replication, &[&Member]),
        after: (&Replication, &[&Member]),
    ) -> RequiredReplicas {
        let is_old = |member: &Member| before.1.iter().any(|known| known.host_id == member.host_id);
        let pending: Vec<&Member> = after.1.iter().copied().filter(|member| !is_old(member)).collect();
        let members = after.1.iter().map(|member| member.host_id).collect();
        let other = OtherSide { replication: Arc::new(after.0.clone()), members };
        let replicas = replicas(before.1, &pending, Some(other));
        required(level, before.0, "east", Uuid::nil()).of_write(&replicas, "east", Uuid::nil())
    }

    #[test]
    fn a_write_reaches_its_level_under_both_replications() {
        let simple = |replication_factor| Replication::Simple { replication_factor };
        let (one, two, three) = (member(1, "east"), member(2, "east"), member(3, "east"));
        let (few, many): (&[&Member], &[&Member]) = (&[&one], &[&one, &two, &three]);
        // The only replica, and a majority of the three.
        let more = changing(Consistency::Quorum, (&simple(1), few), (&simple(3), many));
        assert!(more.is_met([&one, &two]) && more.is_met([&one, &three]));
        assert!(!more.is_met([&two, &three]) && !more.is_met([&one]));
        assert_eq!((more.required(), more.received([&two, &three])), (2, 1));
        match more.check_alive([&two, &three]) {
            Err(RequestError::Unavailable { required: 1, alive: 0, .. }) => {}
            other => panic!("{other:?}"),
        }
        match more.check_alive([&one]) {
            Err(RequestError::Unavailable { required: 2, alive: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
        let fewer = changing(Consistency::Quorum, (&simple(3), many), (&simple(1), few));
        assert!(fewer.is_met([&one, &two]) && !fewer.is_met([&two, &three]));
    }

    #[test]
    fn while_a_dead_replica_is_replaced_the_others_are_a_quorum_of_either_side() {
        let three = Replication::Simple { replication_factor: 3 };
        let [old, one, two, new] = [1, 2, 3, 4].map(|number| member(number, "east"));
        let write =
            changing(Consistency::Quorum, (&three, &[&old, &one, &two]), (&three, &[&new, &one, &two]));
        assert!(write.is_met([&one, &two]) && write.is_met([&old, &one, &new]));
        assert!(!write.is_met([&one, &new]) && !write.is_met([&old, &two]) && !write.is_met([&old, &new]));
        write.check_alive([&one, &two]).unwrap();
        assert!(write.check_alive([&one, &new]).is_err());
    }

    #[test]
    fn a_local_level_is_one_of_all_where_the_data_center_is_given_up() {
        let replication = |centers: &[(&str, u32)]| Replication::NetworkTopology {
            data_centers: centers.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let (east, west) = (member(1, "east"), member(2, "west"));
        let (both, only) = (replication(&[("east", 1), ("west", 1)]), replication(&[("west", 1)]));
        let level = Consistency::LocalQuorum;
        let local = changing(level, (&both, &[&east, &west]), (&only, &[&west]));
        assert!(local.is_met([&east, &west]) && !local.is_met([&east]));
        let each = changing(Consistency::EachQuorum, (&both, &[&east, &west]), (&only, &[&west]));
        assert!(each.is_met([&east, &west]) && !each.is_met([&west]));
    }
}
