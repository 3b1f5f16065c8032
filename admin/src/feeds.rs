//! The change feeds of tables: the report, and how it is shown.

use serde::{Deserialize, Serialize};

use crate::tables::{bytes, columns, row};

/// The feed of a table, as far as its log lies on the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedReport {
    pub keyspace: String,
    /// The table whose changes are in the feed.
    pub table: String,
    /// Whether changes are written to it now.
    pub is_enabled: bool,
    /// The option `ttl`; 0: entries are kept for ever.
    pub ttl_seconds: u32,
    /// Of the files of the log.
    pub disk_bytes: u64,
    pub memtable_bytes: u64,
    /// Entries in all memtables and files, also those that have expired and were not removed yet.
    pub entries: u64,
    /// When the oldest entry was written that is still kept, about; empty: there is none.
    pub oldest_at: String,
}

/// The report for people.
pub(crate) fn text(feeds: &[FeedReport]) -> String {
    if feeds.is_empty() {
        return "There are no change feeds\n".to_owned();
    }
    let mut rows =
        vec![row(&["Keyspace", "Table", "Feed", "Kept", "Files", "In memory", "Entries", "Oldest"])];
    rows.extend(feeds.iter().map(|feed| {
        let kept = match feed.ttl_seconds {
            0 => "for ever".to_owned(),
            seconds => format!("{seconds} s"),
        };
        row(&[
            &feed.keyspace,
            &feed.table,
            if feed.is_enabled { "on" } else { "off" },
            &kept,
            &bytes(feed.disk_bytes),
            &bytes(feed.memtable_bytes),
            &feed.entries.to_string(),
            &feed.oldest_at,
        ])
    }));
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_are_shown_a_line_each() {
        let feed = FeedReport {
            keyspace: "shop".to_owned(),
            table: "orders".to_owned(),
            is_enabled: true,
            ttl_seconds: 86_400,
            disk_bytes: 2_048,
            memtable_bytes: 5,
            entries: 7,
            oldest_at: "2026-11-27T20:15:00.000Z".to_owned(),
        };
        let off = FeedReport { table: "carts".to_owned(), ..FeedReport::default() };
        let shown = text(&[feed, off]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[1].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>(),
            ["shop", "orders", "on", "86400 s", "2.00 KiB", "5 bytes", "7", "2026-11-27T20:15:00.000Z"]
        );
        assert!(lines[2].contains("off") && lines[2].contains("for ever"), "{shown}");
        assert_eq!(text(&[]), "There are no change feeds\n");
    }
}
