//! How full the disks of the nodes are: the status that each node announces, and the store from which all shards of a node read
//! it.
//!
//! A status has two parts. The *usage* is Cassandra's guardrail (`data_disk_usage_percentage_…_threshold`, off by default): the
//! share of the disk that the data takes. The *reserve* is our own and always on: less than `disk_reserve_bytes` is free, so this
//! node refuses writes itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use helenus_config::Config;
use helenus_ring::HostId;
use serde::{Deserialize, Serialize};

/// The usage of a node's disk relative to the thresholds of the guardrail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub enum DiskUsage {
    /// Below the thresholds, or there are none.
    #[default]
    Spacious,
    /// Above the threshold of warnings.
    Stuffed,
    /// Above the threshold of failure: no coordinator accepts writes for this node.
    Full,
}

impl DiskUsage {
    /// Cassandra's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spacious => "SPACIOUS",
            Self::Stuffed => "STUFFED",
            Self::Full => "FULL",
        }
    }
}

/// The disk status that a node announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DiskStatus {
    pub usage: DiskUsage,
    /// The node refuses writes: less than its reserve is free.
    pub is_reserve_reached: bool,
}

impl DiskStatus {
    /// Whether coordinators must look at the disks before they accept a write.
    fn matters(self) -> bool {
        self != Self::default()
    }
}

/// A status with its number among the announcements of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskAnnouncement {
    /// Generation of the node's process.
    pub generation: u64,
    /// Number of the announcement within the generation; it only grows.
    pub sequence: u64,
    pub status: DiskStatus,
}

/// The newest known status of the disks of all nodes, shared by all shards of a node.
#[derive(Debug, Default)]
pub struct DiskTable {
    own: RwLock<DiskStatus>,
    others: RwLock<BTreeMap<HostId, DiskAnnouncement>>,
    /// Whether any status matters for writes: read by each of them.
    is_any_short: AtomicBool,
}

impl DiskTable {
    /// Whether the disk of any node is so full that writes must be checked.
    #[inline]
    pub fn is_any_short(&self) -> bool {
        self.is_any_short.load(Ordering::Relaxed)
    }

    /// The status of this node's disk.
    pub fn own(&self) -> DiskStatus {
        *self.own.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the status of this node's disk. Returns whether it has changed.
    pub fn set_own(&self, status: DiskStatus) -> bool {
        let before =
            std::mem::replace(&mut *self.own.write().unwrap_or_else(PoisonError::into_inner), status);
        self.look();
        before != status
    }

    /// The last status that another node has announced.
    pub fn of(&self, host_id: &HostId) -> DiskStatus {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        others.get(host_id).map_or_else(DiskStatus::default, |announcement| announcement.status)
    }

    /// Stores the status that another node announces, unless a newer one is known.
    pub fn learn(&self, host_id: HostId, announcement: DiskAnnouncement) {
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        let order = |announcement: &DiskAnnouncement| (announcement.generation, announcement.sequence);
        if others.get(&host_id).is_none_or(|known| order(known) < order(&announcement)) {
            others.insert(host_id, announcement);
        }
        drop(others);
        self.look();
    }

    pub fn forget_others_than(&self, members: impl Fn(&HostId) -> bool) {
        self.others.write().unwrap_or_else(PoisonError::into_inner).retain(|host_id, _| members(host_id));
        self.look();
    }

    fn look(&self) {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        let is_any_short =
            self.own().matters() || others.values().any(|announcement| announcement.status.matters());
        self.is_any_short.store(is_any_short, Ordering::Relaxed);
    }
}

/// The thresholds of the guardrail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    warn_percent: Option<u64>,
    fail_percent: Option<u64>,
    max_disk_bytes: Option<u64>,
}

impl Thresholds {
    pub fn of(config: &Config) -> Self {
        let percent = |threshold: i32| u64::try_from(threshold).ok();
        Self {
            warn_percent: percent(config.data_disk_usage_percentage_warn_threshold),
            fail_percent: percent(config.data_disk_usage_percentage_fail_threshold),
            max_disk_bytes: config.data_disk_usage_max_disk_size_bytes,
        }
    }

    pub fn is_enabled(&self) -> bool {
        self.warn_percent.or(self.fail_percent).is_some()
    }

    /// The usage in percent, rounded up, and what that means. As in Cassandra the disk is what the data takes and what is free, or
    /// the configured size if that is less; memtables count as used, because they will be written.
    pub fn usage(&self, data_bytes: u64, memtable_bytes: u64, free_bytes: u64) -> (u64, DiskUsage) {
        let total = data_bytes.saturating_add(free_bytes).min(self.max_disk_bytes.unwrap_or(u64::MAX));
        let used = u128::from(data_bytes) + u128::from(memtable_bytes);
        let percent = (used * 100).div_ceil(u128::from(total.max(1)));
        let percent = u64::try_from(percent).unwrap_or(u64::MAX);
        let is_above = |threshold: Option<u64>| threshold.is_some_and(|threshold| percent > threshold);
        let usage = if is_above(self.fail_percent) {
            DiskUsage::Full
        } else if is_above(self.warn_percent) {
            DiskUsage::Stuffed
        } else {
            DiskUsage::Spacious
        };
        (percent, usage)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_usage_is_what_cassandra_calls_it() {
        let thresholds = Thresholds { warn_percent: Some(70), fail_percent: Some(90), max_disk_bytes: None };
        assert!(thresholds.is_enabled());
        assert_eq!(thresholds.usage(50, 20, 50), (70, DiskUsage::Spacious));
        assert_eq!(thresholds.usage(500, 201, 500), (71, DiskUsage::Stuffed));
        assert_eq!(thresholds.usage(90, 0, 10), (90, DiskUsage::Stuffed));
        assert_eq!(thresholds.usage(901, 0, 99), (91, DiskUsage::Full));
        assert_eq!(thresholds.usage(0, 0, 0), (0, DiskUsage::Spacious));
        let small = Thresholds { max_disk_bytes: Some(100), ..thresholds };
        assert_eq!(small.usage(95, 0, 1_000_000), (95, DiskUsage::Full));
        let off = Thresholds { warn_percent: None, fail_percent: None, max_disk_bytes: None };
        assert!(!off.is_enabled());
        assert_eq!(off.usage(100, 100, 0), (200, DiskUsage::Spacious));
    }

    #[test]
    fn writes_are_checked_while_any_disk_is_short() {
        let table = DiskTable::default();
        let other = Uuid::from_u128(1);
        let learn = |generation, sequence, is_reserve_reached| {
            let status = DiskStatus { is_reserve_reached, ..DiskStatus::default() };
            table.learn(other, DiskAnnouncement { generation, sequence, status });
        };
        assert!(!table.is_any_short());
        learn(1, 5, true);
        assert!(table.is_any_short() && table.of(&other).is_reserve_reached);
        learn(1, 4, false);
        assert!(table.is_any_short(), "older news are passed over");
        learn(2, 1, false);
        assert!(!table.is_any_short());
        assert!(table.set_own(DiskStatus { usage: DiskUsage::Stuffed, is_reserve_reached: false }));
        assert!(table.is_any_short());
        assert!(table.set_own(DiskStatus::default()) && !table.set_own(DiskStatus::default()));
        learn(2, 2, true);
        table.forget_others_than(|_| false);
        assert!(!table.is_any_short() && table.of(&other) == DiskStatus::default());
    }
}
