//! What the shards of a node have read and written of their own rows, by table, for `tablestats`.

use std::collections::BTreeMap;

use helenus_admin::reports::{CountReport, LocalWorkReport};
use helenus_engine::TableId;
use helenus_execution::coordinator::local_work::{LocalKind, LocalWork, MetByReads};
use helenus_observe::AdminError;
use helenus_observe::metrics::{CountSnapshot, HistogramSnapshot};

use super::NodeAdmin;
use super::controls::latency;

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

fn count(snapshot: &CountSnapshot) -> CountReport {
    CountReport {
        count: snapshot.recorded(),
        p50: snapshot.quantile(0.5),
        p99: snapshot.quantile(0.99),
        max: snapshot.quantile(1.0),
    }
}

/// Tables without work are left out.
pub(super) async fn by_table(admin: &NodeAdmin) -> Result<BTreeMap<TableId, OfTable>, AdminError> {
    let shards = admin
        .on_every_shard(|context| {
            Box::pin(async move {
                let kinds = [LocalKind::Read, LocalKind::Scan, LocalKind::Write];
                let timings = kinds.map(|kind| (kind, LocalWork::timings(&context, kind)));
                let met =
                    [MetByReads::Rows, MetByReads::Tombstones].map(|what| LocalWork::met(&context, what));
                Ok((timings, met))
            })
        })
        .await?;
    let mut tables: BTreeMap<TableId, OfTable> = BTreeMap::new();
    for (timings, [rows, tombstones]) in shards {
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
    Ok(tables)
}
