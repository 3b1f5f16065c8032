//! What a member has to stream in a transition, and how much of the old replicas is enough.

use std::collections::BTreeMap;

use helenus_query::schema::catalog::Replication;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::placement::TokenRange;

/// The ranges that one member has to stream for the keyspaces of one replication strategy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchPlan {
    /// Ranges by source. A range may be streamed from several sources: the union of their data is needed.
    pub sources: BTreeMap<HostId, Vec<TokenRange>>,
    /// Ranges that cannot be streamed until more of their replicas are alive.
    pub blocked: Vec<TokenRange>,
    /// Ranges whose only replica that ever had the data is dead.
    pub lost: Vec<TokenRange>,
}

impl FetchPlan {
    pub(super) fn fetch(&mut self, range: TokenRange, source: &Member) {
        self.sources.entry(source.host_id).or_default().push(range);
    }
}

/// The replications of a keyspace before and after the present transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replications {
    pub before: Replication,
    pub after: Replication,
}

/// How many of `count` replicas together have every write that a quorum of `factor` has acknowledged, and every transaction that a majority
/// of them has agreed on.
pub fn enough(count: usize, factor: usize) -> usize {
    let quorum = (factor / 2 + 1).min(count / 2 + 1);
    (count + 1).saturating_sub(quorum)
}

/// Where quorums are counted, with the replication factors: everywhere (`None`), and in each data center.
pub fn scopes(replication: &Replication) -> Vec<(Option<&String>, usize)> {
    let all = (None, replication.replica_count() as usize);
    match replication {
        Replication::Local | Replication::Simple { .. } => vec![all],
        Replication::NetworkTopology { data_centers } => {
            let each = data_centers.iter().map(|(name, factor)| (Some(name), *factor as usize));
            std::iter::once(all).chain(each).collect()
        }
    }
}
