//! Flushes tables with `memtable_flush_period_in_ms`, each that often.
//!
//! A flush of a table without new rows does nothing. The period begins when the last flush has ended, so there is at most one at a time.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::{EngineError, TableId};
use helenus_query::schema::catalog::{Catalog, CatalogView};

use super::context::ShardContext;

/// Longest time until a change of a table's period is noticed.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Pause after a flush that has failed. The engine tries it again by itself.
const FAILURE_PAUSE: Duration = Duration::from_mins(1);

/// Starts the periodic flushes of a shard.
pub fn spawn(context: &Rc<ShardContext>) {
    let (weak, clock) = (Rc::downgrade(context), context.clock.clone());
    tokio::task::spawn_local(async move {
        let mut schedule = Schedule::default();
        loop {
            clock.sleep(schedule.pause(clock.monotonic())).await;
            let Some(context) = weak.upgrade() else { return };
            if *context.node.stopping.borrow() {
                return;
            }
            schedule.follow(&context.catalog_view(), clock.monotonic());
            for table in schedule.due(clock.monotonic()) {
                let pause = flush(&context, table).await;
                schedule.flushed(table, pause, clock.monotonic());
            }
        }
    });
}

/// Flushes a table; returns the pause that its next flush needs beside its period.
async fn flush(context: &ShardContext, table: TableId) -> Duration {
    match context.shard.flush(table).await {
        // A table that is dropped is not flushed any more.
        Ok(()) | Err(EngineError::UnknownTable(_)) => Duration::ZERO,
        Err(error) => {
            tracing::warn!(shard = context.index, table = %table, %error, "a periodic flush failed");
            FAILURE_PAUSE
        }
    }
}

/// When which table is flushed. Times are monotonic.
#[derive(Default)]
struct Schedule {
    /// Generation of the catalog that `tables` follows.
    generation: Option<u64>,
    tables: BTreeMap<TableId, Periodic>,
}

struct Periodic {
    period: Duration,
    next: Duration,
}

impl Schedule {
    /// The time until the next flush is due, or a look at the catalog.
    fn pause(&self, now: Duration) -> Duration {
        let next = self.tables.values().map(|table| table.next).min();
        next.map_or(LOOK_PAUSE, |next| next.saturating_sub(now).min(LOOK_PAUSE))
    }

    /// Takes over the periods of a catalog. A new period begins now.
    fn follow(&mut self, view: &CatalogView, now: Duration) {
        if self.generation == Some(view.generation) {
            return;
        }
        self.generation = Some(view.generation);
        let mut before = std::mem::take(&mut self.tables);
        for (id, period) in periods(&view.catalog) {
            let known = before.remove(&id).filter(|known| known.period == period);
            self.tables.insert(id, known.unwrap_or(Periodic { period, next: now + period }));
        }
    }

    /// The tables whose flush is due.
    fn due(&self, now: Duration) -> Vec<TableId> {
        self.tables.iter().filter(|(_, table)| table.next <= now).map(|(id, _)| *id).collect()
    }

    fn flushed(&mut self, id: TableId, pause: Duration, now: Duration) {
        if let Some(table) = self.tables.get_mut(&id) {
            table.next = now + table.period + pause;
        }
    }
}

fn periods(catalog: &Catalog) -> impl Iterator<Item = (TableId, Duration)> {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter(|table| table.options.memtable_flush_period_in_ms > 0).map(|table| {
        let period = Duration::from_millis(u64::from(table.options.memtable_flush_period_in_ms));
        (table.engine_id(), period)
    })
}

#[cfg(test)]
mod tests {
    use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, catalog_of, changed};

    use super::*;

    fn view(generation: u64, catalog: &std::sync::Arc<Catalog>) -> CatalogView {
        CatalogView::new(generation, catalog.clone())
    }

    #[test]
    fn a_table_is_due_after_each_period_and_follows_its_option() {
        let at = Duration::from_millis;
        let before = catalog_of(&[
            CREATE_KEYSPACE,
            "CREATE TABLE t (k int PRIMARY KEY) WITH memtable_flush_period_in_ms = 500",
            "CREATE TABLE u (k int PRIMARY KEY)",
        ]);
        let mut schedule = Schedule::default();
        assert_eq!(schedule.pause(at(0)), LOOK_PAUSE);
        schedule.follow(&view(1, &before.catalog), at(0));
        assert_eq!(schedule.pause(at(100)), at(400));
        assert!(schedule.due(at(499)).is_empty());
        let [table] = schedule.due(at(500))[..] else { panic!("one table has a period") };
        schedule.flushed(table, Duration::ZERO, at(600));
        assert!(schedule.due(at(1_099)).is_empty());
        assert_eq!(schedule.due(at(1_100)), [table]);
        schedule.flushed(table, FAILURE_PAUSE, at(1_100));
        assert!(schedule.due(at(60_000)).is_empty());

        let after = changed(&before, 100, "ALTER TABLE t WITH memtable_flush_period_in_ms = 0");
        schedule.follow(&view(2, &after.catalog), at(60_000));
        assert!(schedule.due(at(600_000)).is_empty());
    }
}
