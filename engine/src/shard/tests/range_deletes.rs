//! The work that range deletes in one partition make, counted: comparisons of bounds, steps of walks, range tombstones decoded.

use super::*;
use crate::cell::Deletion;
use crate::io::SplitMix64;
use crate::range_tombstone::work;

const COUNT: u64 = 40_000;
/// Rows lie between the range deletes from here on, one between two.
const ROWS_FROM: u64 = COUNT / 2;
const ROWS: u64 = 1_000;
const PAGE_ROWS: u64 = 10;
/// More than the depth of what holds the range tombstones, and those of a page, come to.
const PAGE_WORK_MAX: u64 = 1_000;

fn position(number: u64) -> Vec<u8> {
    [&[2, 0x40][..], &number.to_be_bytes()].concat()
}

/// Deletes `[start, end)`.
fn delete(shard: &Shard, (start, end): (u64, u64), timestamp: i64) {
    let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
    builder.delete_range(&position(start), &position(end), Deletion { timestamp, local_deletion_time: 5 });
    shard.load(&builder.build().view().unwrap(), Load::Logged).unwrap();
}

fn put_rows(shard: &Shard) {
    for number in ROWS_FROM..ROWS_FROM + ROWS {
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        let mut row = RowBuilder::new();
        row.cell(Cell { column: 1, path: &[], timestamp: i64::MAX, kind: CellKind::Live, value: b"value" });
        builder.row(&position(number * 10 + 7), &mut row);
        shard.load(&builder.build().view().unwrap(), Load::Logged).unwrap();
    }
}

/// Reads a page of versions and a page of a scan, forward and backward, and checks the work and the size of the answer.
fn check_pages(shard: &Shard, name: &str) {
    let (low, high) = (position(ROWS_FROM * 10 + 6), position((ROWS_FROM + ROWS) * 10));
    let start = full_key(1, b"key", &low).unwrap();
    let end = full_key(1, b"key", &high).unwrap();
    for reversed in [false, true] {
        let limit = VersionLimit { live_rows: PAGE_ROWS, ..VersionLimit::UNLIMITED };
        let request = VersionScanRequest {
            table: TABLE,
            start: &start,
            end: &end,
            reversed,
            now_seconds: 5,
            purgeable: Purgeable::Kept,
            is_long: false,
            part: None,
            limit,
        };
        work::take();
        let versions = shard.scan_versions(&request).unwrap();
        let worked = work::take();
        assert!(worked < PAGE_WORK_MAX, "{name}, reversed: {reversed}: {worked} for a page of versions");
        assert_eq!(versions.live_rows, PAGE_ROWS);
        assert!(versions.bytes < 100 * PAGE_ROWS, "{name}: an answer of {} bytes", versions.bytes);
        let request = ScanRequest { start: &start, end: &end, reversed, ..RANGE };
        let mut scan = shard.scan(&request).unwrap();
        for _ in 0..PAGE_ROWS {
            assert!(matches!(scan.next(), Ok(Step::Row(_))));
        }
        let worked = work::take();
        assert!(worked < PAGE_WORK_MAX, "{name}, reversed: {reversed}: {worked} for a page of a scan");
    }
}

/// Deletes in two halves, each flushed, then compacts; reads pages on the way.
fn check(name: &str, spans: &[(u64, u64)]) {
    run(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        put_rows(&shard);
        let half = spans.len() / 2;
        let mut timestamp = 0;
        for part in [&spans[..half], &spans[half..]] {
            work::take();
            for span in part {
                timestamp += 1;
                delete(&shard, *span, timestamp);
            }
            let worked = work::take() / part.len() as u64;
            assert!(worked < 150, "{name}: {worked} for each of the range deletes");
            check_pages(&shard, &format!("{name}, in the memtable"));
            shard.flush(TABLE).await.unwrap();
            let worked = work::take() / part.len() as u64;
            assert!(worked < 10, "{name}: {worked} for each range delete at the flush");
            check_pages(&shard, &format!("{name}, in a file"));
        }
        shard.compact(TABLE).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 1);
        let worked = work::take() / spans.len() as u64;
        assert!(worked < 40, "{name}: {worked} for each range delete at the compaction");
        check_pages(&shard, &format!("{name}, in a compacted file"));
    });
}

#[test]
fn a_page_looks_at_the_range_deletes_in_its_range() {
    let mut random = SplitMix64::new(3);
    let mut disjoint: Vec<(u64, u64)> = (0..COUNT).map(|number| (number * 10, number * 10 + 5)).collect();
    for index in (1..disjoint.len()).rev() {
        disjoint.swap(index, random.below(index as u64 + 1) as usize);
    }
    check("disjoint", &disjoint);
    let any: Vec<(u64, u64)> = (0..COUNT)
        .map(|_| {
            let (one, other) = (random.below(COUNT * 10), random.below(COUNT * 10));
            (one.min(other), one.max(other) + 1)
        })
        .collect();
    check("overlapping", &any);
    let nested: Vec<(u64, u64)> = (0..COUNT).map(|number| (number, COUNT * 10 - number)).collect();
    check("nested", &nested);
    let rising: Vec<(u64, u64)> = (0..COUNT).map(|number| (0, number * 10 + 5)).collect();
    check("rising bounds", &rising);
}
