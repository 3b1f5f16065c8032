//! Since when this node has watched each table, when it last gained ranges, and until when it was up, kept for the schedule over restarts.
//!
//! They are rows ([`super::kept`]) with a time in microseconds as their value. Those of tables are named by their ids.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::{EngineError, TableId};
use helenus_internode::service::Failure;
use helenus_query::schema::catalog::TableKind;
use helenus_ring::intervals::{difference, intervals};

use super::kept::{self, Changes};
use crate::shard::context::ShardContext;

const PARTITION: &[u8] = b"watched";
/// Name of the row with the time until which the node was up …
const UP_UNTIL: &[u8] = b"";
/// … of that with the time at which it began to watch …
const BEGAN: &[u8] = &[0];
/// … and of that with the epoch of the ring, and the time at which the node last gained ranges.
const EPOCH: &[u8] = &[1];
/// How often the time is noted until which the node was up.
const NOTE_PERIOD_MICROS: i64 = 60_000_000;

/// What is watched.
#[derive(Debug, Default)]
pub struct Watched {
    /// When this node first saw each table; 0: it was there when the node began to watch at all.
    since: BTreeMap<TableId, i64>,
    /// When the node began to watch.
    began_micros: i64,
    /// The last time that is noted until which the node was up; `None`: nothing was loaded yet.
    up_until_micros: Option<i64>,
    /// How long the node was away before this start, once.
    away: Option<Duration>,
    /// The epoch of the ring, and when the node last gained ranges.
    epoch: (u64, i64),
    /// The ranges of the node in each keyspace, as of that epoch; `None`: not known since the start.
    held: Option<BTreeMap<String, Vec<RangeInclusive<i64>>>>,
}

impl Watched {
    /// Since when a table is watched, in microseconds; one that was not seen yet is new. What was there when the node began to watch (it has
    /// joined, or was upgraded) was last repaired nobody knows when: it counts as watched before, so that it is due within a quarter of
    /// `interval_micros`, and not all at one time.
    pub fn since(&self, table: TableId, interval_micros: i64) -> i64 {
        match self.since.get(&table) {
            None => i64::MAX,
            Some(0) => {
                let spread = u64::from(table.0[14]) << 8 | u64::from(table.0[15]);
                let quarter = interval_micros / 4;
                self.began_micros - 3 * quarter - (quarter / 65_536).saturating_mul(spread as i64)
            }
            Some(since) => *since,
        }
    }

    /// Since when the node may have ranges of which it does not know when they were repaired: since it gained some, in microseconds.
    pub fn ring_since(&self) -> i64 {
        self.epoch.1
    }

    /// Notes the time if the node has gained ranges since the last look.
    fn note_ring(&mut self, context: &ShardContext, changes: &mut Changes, now_micros: i64) {
        let view = context.cluster();
        let epoch = view.topology.epoch;
        if self.epoch.0 == epoch && self.held.is_some() {
            return;
        }
        let own = context.node.host_id;
        let catalog = context.catalog();
        let of_keyspace = |name: &String| {
            let placement = view.placement(name)?;
            let held = placement.ranges().filter(|(_, replicas)| replicas.contains(&own));
            Some((name.clone(), intervals(&held.map(|(range, _)| range).collect::<Vec<_>>())))
        };
        let held: BTreeMap<_, _> = catalog.keyspaces.keys().filter_map(of_keyspace).collect();
        if self.epoch.0 != epoch {
            // A keyspace that is new has no rows of before.
            let gains = |(name, tokens): (&String, &Vec<RangeInclusive<i64>>)| {
                let before = self.held.as_ref().map(|before| before.get(name));
                match before {
                    None => true,
                    Some(before) => before.is_some_and(|before| !difference(tokens, before).is_empty()),
                }
            };
            let is_first = self.epoch.0 == 0;
            let since_micros = if !is_first && held.iter().any(gains) { now_micros } else { self.epoch.1 };
            self.epoch = (epoch, since_micros);
            changes.set(EPOCH, Some(&[epoch.to_be_bytes(), since_micros.to_be_bytes()].concat()));
        }
        self.held = Some(held);
    }

    /// How long the node was away before this start. Returned once.
    pub fn take_away(&mut self) -> Option<Duration> {
        self.away.take()
    }
}

/// Brings it up to date with the schema and the time. Call on the first shard.
pub async fn update(context: &Rc<ShardContext>, watched: &RefCell<Watched>) -> Result<(), Failure> {
    let is_loaded = watched.borrow().up_until_micros.is_some();
    if !is_loaded {
        let loaded = load(context).await.map_err(Failure::from)?;
        *watched.borrow_mut() = loaded;
    }
    context.shard.admit_internal().await.map_err(Failure::from)?;
    let now_micros = context.clock.now_micros();
    let tables: BTreeSet<TableId> = {
        let catalog = context.catalog();
        let keyspaces = catalog.keyspaces.values();
        let tables = keyspaces.flat_map(|keyspace| keyspace.tables.values());
        tables.filter(|table| table.kind == TableKind::Stored).map(|table| table.engine_id()).collect()
    };
    let mut changes = Changes::of(context, PARTITION);
    {
        let mut watched = watched.borrow_mut();
        let is_first = watched.began_micros == 0;
        if is_first {
            watched.began_micros = now_micros;
            changes.set(BEGAN, Some(&now_micros.to_be_bytes()));
        }
        let since_micros: i64 = if is_first { 0 } else { now_micros };
        for table in tables.iter().filter(|table| !watched.since.contains_key(table)) {
            changes.set(&table.0, Some(&since_micros.to_be_bytes()));
        }
        for table in watched.since.keys().filter(|table| !tables.contains(table)) {
            changes.set(&table.0, None);
        }
        watched.note_ring(context, &mut changes, now_micros);
        let noted = watched.up_until_micros.unwrap_or(i64::MIN);
        if now_micros >= noted.saturating_add(NOTE_PERIOD_MICROS) {
            changes.set(UP_UNTIL, Some(&now_micros.to_be_bytes()));
            watched.up_until_micros = Some(now_micros);
        }
        watched.since.retain(|table, _| tables.contains(table));
        for table in tables {
            watched.since.entry(table).or_insert(since_micros);
        }
    }
    // Not waited for: what a crash loses is noted again.
    changes.apply(context).map(|_| ()).map_err(Failure::from)
}

async fn load(context: &Rc<ShardContext>) -> Result<Watched, EngineError> {
    let mut loaded = Watched { up_until_micros: Some(i64::MIN), ..Watched::default() };
    for (name, value) in kept::load(context, PARTITION).await? {
        if name == EPOCH
            && let (halves, []) = value.as_chunks::<8>()
            && let [epoch, micros] = halves
        {
            loaded.epoch = (u64::from_be_bytes(*epoch), i64::from_be_bytes(*micros));
            continue;
        }
        let Ok(micros) = <[u8; 8]>::try_from(value.as_slice()).map(i64::from_be_bytes) else {
            tracing::warn!("a row of the schedule of repairs cannot be read; it is noted again");
            continue;
        };
        match (<[u8; 16]>::try_from(name.as_slice()), name.as_slice()) {
            (Ok(table), _) => {
                loaded.since.insert(TableId(table), micros);
            }
            (Err(_), BEGAN) => loaded.began_micros = micros,
            (Err(_), UP_UNTIL) => {
                loaded.up_until_micros = Some(micros);
                let away = context.clock.now_micros().saturating_sub(micros);
                loaded.away = Some(Duration::from_micros(u64::try_from(away).unwrap_or(0)));
            }
            (Err(_), _) => tracing::warn!("a row of the schedule of repairs has an unknown name"),
        }
    }
    Ok(loaded)
}
