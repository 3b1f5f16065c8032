//! What the tables of [`super::views`] hold after acknowledged writes, and what their views make of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use helenus_engine::io::SplitMix64;
use helenus_testing::clock::START_MICROS;

use crate::world::World;

/// The clustering columns have values below this.
pub const POSITIONS: i64 = 3;
/// How far back old timestamps are.
const OLD_MICROS_MAX: u64 = 30_000_000;

/// Timestamps for writes: most are of now, and some old.
#[derive(Default)]
pub struct Timestamps {
    used: RefCell<BTreeSet<i64>>,
}

impl Timestamps {
    /// A timestamp that no other write has.
    pub fn next(&self, world: &World, random: &mut SplitMix64) -> i64 {
        let now = START_MICROS + world.trace.now_micros() as i64;
        let old = if random.chance(1, 6) { random.below(OLD_MICROS_MAX) as i64 } else { 0 };
        let mut used = self.used.borrow_mut();
        let mut timestamp = now - old;
        while !used.insert(timestamp) {
            timestamp += 1;
        }
        timestamp
    }
}

/// A change of a partition.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    Insert {
        c: i64,
        d: i64,
        v: i64,
        w: i64,
    },
    UpdateV {
        c: i64,
        d: i64,
        v: i64,
    },
    UpdateW {
        c: i64,
        d: i64,
        w: i64,
    },
    DeleteV {
        c: i64,
        d: i64,
    },
    DeleteRow {
        c: i64,
        d: i64,
    },
    /// Rows of a group: `c` as it is, `d` from here on.
    DeleteRows {
        c: i64,
        from_d: i64,
    },
    /// Rows with `c` below this.
    DeleteRange {
        below_c: i64,
    },
    DeletePartition,
}

impl Change {
    /// `customers`: values of `v`.
    pub fn random(random: &mut SplitMix64, customers: &[i64]) -> Self {
        let c = random.below(POSITIONS as u64) as i64;
        let d = random.below(POSITIONS as u64) as i64;
        let w = random.below(10) as i64;
        let nth = random.below(customers.len().max(1) as u64) as usize;
        let v = customers.get(nth).copied().unwrap_or_default();
        match random.below(20) {
            0..7 => Self::Insert { c, d, v, w },
            7..11 => Self::UpdateV { c, d, v },
            11..14 => Self::UpdateW { c, d, w },
            14 => Self::DeleteV { c, d },
            15 | 16 => Self::DeleteRow { c, d },
            17 => Self::DeleteRows { c, from_d: d },
            18 => Self::DeleteRange { below_c: c + 1 },
            _ => Self::DeletePartition,
        }
    }

    pub fn text(self, k: i64, timestamp: Option<i64>, ttl_seconds: Option<u64>) -> String {
        let written = [
            ttl_seconds.map(|ttl| format!("TTL {ttl}")),
            timestamp.map(|timestamp| format!("TIMESTAMP {timestamp}")),
        ];
        let written: Vec<String> = written.into_iter().flatten().collect();
        let using =
            if written.is_empty() { String::new() } else { format!(" USING {}", written.join(" AND ")) };
        let deleted = timestamp.map_or_else(String::new, |timestamp| format!(" USING TIMESTAMP {timestamp}"));
        match self {
            Self::Insert { c, d, v, w } => {
                format!("INSERT INTO sim.viewed (k, c, d, v, w) VALUES ({k}, {c}, {d}, {v}, {w}){using}")
            }
            Self::UpdateV { c, d, v } => {
                format!("UPDATE sim.viewed{using} SET v = {v} WHERE k = {k} AND c = {c} AND d = {d}")
            }
            Self::UpdateW { c, d, w } => {
                format!("UPDATE sim.viewed{using} SET w = {w} WHERE k = {k} AND c = {c} AND d = {d}")
            }
            Self::DeleteV { c, d } => {
                format!("DELETE v FROM sim.viewed{deleted} WHERE k = {k} AND c = {c} AND d = {d}")
            }
            Self::DeleteRow { c, d } => {
                format!("DELETE FROM sim.viewed{deleted} WHERE k = {k} AND c = {c} AND d = {d}")
            }
            Self::DeleteRows { c, from_d } => {
                format!("DELETE FROM sim.viewed{deleted} WHERE k = {k} AND c = {c} AND d >= {from_d}")
            }
            Self::DeleteRange { below_c } => {
                format!("DELETE FROM sim.viewed{deleted} WHERE k = {k} AND c < {below_c}")
            }
            Self::DeletePartition => format!("DELETE FROM sim.viewed{deleted} WHERE k = {k}"),
        }
    }

    /// Does it to rows that have only seen older changes.
    fn apply(self, rows: &mut BTreeMap<(i64, i64), Row>) {
        match self {
            Self::Insert { c, d, v, w } => {
                rows.insert((c, d), Row { is_inserted: true, v: Some(v), w: Some(w) });
            }
            Self::UpdateV { c, d, v } => rows.entry((c, d)).or_default().v = Some(v),
            Self::UpdateW { c, d, w } => rows.entry((c, d)).or_default().w = Some(w),
            Self::DeleteV { c, d } => rows.entry((c, d)).or_default().v = None,
            Self::DeleteRow { c, d } => {
                rows.remove(&(c, d));
            }
            Self::DeleteRows { c, from_d } => rows.retain(|key, _| key.0 != c || key.1 < from_d),
            Self::DeleteRange { below_c } => rows.retain(|key, _| key.0 >= below_c),
            Self::DeletePartition => rows.clear(),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    is_inserted: bool,
    v: Option<i64>,
    w: Option<i64>,
}

/// A partition of the base table: its acknowledged changes by their timestamps.
pub struct Partition {
    pub key: i64,
    changes: BTreeMap<i64, Change>,
}

impl Partition {
    pub fn new(key: i64) -> Self {
        Self { key, changes: BTreeMap::new() }
    }

    pub fn apply(&mut self, changes: Vec<(i64, Change)>) {
        self.changes.extend(changes);
    }

    pub fn orders(&self) -> BTreeSet<Order> {
        let mut rows = BTreeMap::new();
        for change in self.changes.values() {
            change.apply(&mut rows);
        }
        let exists = |row: &Row| row.is_inserted || row.v.is_some() || row.w.is_some();
        let rows = rows.into_iter().filter(|(_, row)| exists(row));
        rows.map(|((c, d), Row { v, w, .. })| Order { k: self.key, c, d, v, w }).collect()
    }
}

/// A row of the joined table: its names by their timestamps.
#[derive(Default)]
pub struct Customer {
    names: BTreeMap<i64, Option<i64>>,
}

impl Customer {
    pub fn set(&mut self, timestamp: i64, name: Option<i64>) {
        self.names.insert(timestamp, name);
    }

    pub fn name(&self) -> Option<i64> {
        self.names.last_key_value().and_then(|(_, name)| *name)
    }
}

/// A row of the base table, or of its view by `v`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    pub k: i64,
    pub c: i64,
    pub d: i64,
    pub v: Option<i64>,
    pub w: Option<i64>,
}

/// A row of the view of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub k: i64,
    pub c: i64,
    pub rows: Option<i64>,
    pub total: Option<i64>,
}

/// A row of the view with names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    pub k: i64,
    pub name: i64,
    pub c: i64,
    pub d: i64,
    pub w: Option<i64>,
}

/// The view of groups of these rows.
pub fn groups(orders: &BTreeSet<Order>) -> BTreeSet<Group> {
    let mut groups: BTreeMap<(i64, i64), (i64, i64)> = BTreeMap::new();
    for order in orders {
        let (rows, total) = groups.entry((order.k, order.c)).or_default();
        *rows += 1;
        *total += order.w.unwrap_or(0);
    }
    let group = |((k, c), (rows, total))| Group { k, c, rows: Some(rows), total: Some(total) };
    groups.into_iter().map(group).collect()
}

/// The view with the names of these rows.
pub fn named(orders: &BTreeSet<Order>, names: &BTreeMap<i64, i64>) -> BTreeSet<Named> {
    let named = |order: &Order| {
        let name = *names.get(&order.v?)?;
        Some(Named { k: order.k, name, c: order.c, d: order.d, w: order.w })
    };
    orders.iter().filter_map(named).collect()
}
