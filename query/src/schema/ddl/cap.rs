//! The rules for tables with a cap.

use super::{configuration, invalid};
use crate::error::Result;
use crate::schema::catalog::Table;
use crate::schema::options::{ChangeFeedOptions, TableOptions};

/// Refuses a cap where it cannot hold.
pub fn check_cap(table: &Table) -> Result<()> {
    if table.options.cap.is_none() {
        return Ok(());
    }
    if table.clustering_key_count == 0 {
        return configuration("cap needs clustering columns: without them a partition has one row");
    }
    if table.is_counter || table.compact.is_some() {
        return configuration("cap is not supported on tables with counters or COMPACT STORAGE");
    }
    if table.options.feed().is_some_and(ChangeFeedOptions::needs_row_of_before) {
        // Their writes are led by a replica, which does not read the first rows of the partition.
        return configuration(
            "cap is not supported on tables whose change feed has preimages or postimages yet",
        );
    }
    check_indexes(table)
}

/// Refuses indexes on a table with a cap.
pub(super) fn check_indexes(table: &Table) -> Result<()> {
    if table.options.cap.is_some() && !table.indexes.is_empty() {
        return invalid("Indexes are not supported on tables with a cap yet");
    }
    Ok(())
}

/// Refuses to drop columns of a table with a cap: rows that have nothing else would make room for evicted ones.
pub(super) fn check_drop(table: &Table) -> Result<()> {
    if table.options.cap.is_some() {
        return invalid("Columns of tables with a cap cannot be dropped yet");
    }
    Ok(())
}

/// Keeps the earlier caps of a table in its new options.
pub(super) fn change_cap(before: &TableOptions, options: &mut TableOptions, now_micros: i64) -> Result<()> {
    match (&before.cap, &options.cap) {
        (None, Some(_)) => configuration(
            "A cap can only be given when a table is created: what the table has from before may expire and make room for evicted rows",
        ),
        (Some(old), Some(new)) if old != new => {
            options.cap = Some(old.changed_to(new.rows, now_micros));
            Ok(())
        }
        _ => Ok(()),
    }
}
