//! What the shards of a node have read and written of their own rows, by table, for `tablestats`.

use std::collections::BTreeMap;

use helenus_admin::reports::{CountReport, LatencyReport, LocalWorkReport};
use helenus_engine::TableId;
use helenus_execution::coordinator::local_work::{LocalKind, LocalWork, MetByReads};
use helenus_execution::shard::context::ShardContext;
use helenus_observe::metrics::{CountSnapshot, HistogramSnapshot, TimingsSnapshot};

/// The work on a table, over all shards.
#[derive(Debug, Default)]
pub(super) struct OfTable {
    /// In the order of [`LocalKind`].
    durations: [HistogramSnapshot; 3],
    rows: CountSnapshot,
    tombstones: CountSnapshot,
}

impl OfTable {
    pub(super) fn report(&self) -> LocalWorkReport {
        let of = |kind: LocalKind| latency(&self.durations[kind as usize]);
        LocalWorkReport {
            read: of(LocalKind::Read),
            scan: of(LocalKind::Scan),
            write: of(LocalKind::Write),
            rows_per_read: count(&self.rows),
            tombstones_per_read: count(&self.tombstones),
        }
    }
}

/// Durations as a report has them.
pub(super) fn latency(snapshot: &HistogramSnapshot) -> LatencyReport {
    LatencyReport {
        count: snapshot.count,
        sum_us: snapshot.sum_us,
        p50_us: snapshot.quantile_us(0.5),
        p75_us: snapshot.quantile_us(0.75),
        p95_us: snapshot.quantile_us(0.95),
        p98_us: snapshot.quantile_us(0.98),
        p99_us: snapshot.quantile_us(0.99),
        max_us: snapshot.quantile_us(1.0),
    }
}

fn count(snapshot: &CountSnapshot) -> CountReport {
    CountReport {
        count: snapshot.recorded(),
        p50: snapshot.quantile(0.5),
        p99: snapshot.quantile(0.99),
        max: snapshot.quantile(1.0),
    }
}

/// What a shard has done.
pub(super) struct OfShard {
    timings: [(LocalKind, Vec<(TableId, TimingsSnapshot)>); 3],
    /// Rows and tombstones.
    met: [Vec<(TableId, CountSnapshot)>; 2],
}

pub(super) fn of_shard(context: &ShardContext) -> OfShard {
    let kinds = [LocalKind::Read, LocalKind::Scan, LocalKind::Write];
    OfShard {
        timings: kinds.map(|kind| (kind, LocalWork::timings(context, kind))),
        met: [MetByReads::Rows, MetByReads::Tombstones].map(|what| LocalWork::met(context, what)),
    }
}

/// The work of all shards. Tables without work are left out.
pub(super) fn by_table(shards: Vec<OfShard>) -> BTreeMap<TableId, OfTable> {
    let mut tables: BTreeMap<TableId, OfTable> = BTreeMap::new();
    for OfShard { timings, met: [rows, tombstones] } in shards {
        for (kind, of_kind) in timings {
            for (id, more) in of_kind {
                tables.entry(id).or_default().durations[kind as usize].add(&more.durations);
            }
        }
        for (id, more) in rows {
            tables.entry(id).or_default().rows.add(&more);
        }
        for (id, more) in tombstones {
            tables.entry(id).or_default().tombstones.add(&more);
        }
    }
    tables
}
