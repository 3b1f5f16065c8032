//! The guarantees of tables: they return the rows that were written, in both directions; damage is an error and never data.

mod parts;
mod pieces;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use futures::executor::block_on;
use proptest::prelude::*;

use super::{
    BlockCache, Compression, KeyHash, ResidentParts, TableCursor, TableError, TableOptions, TableReader,
    TableStatistics, TableWriter,
};
use crate::cell::{Cell, CellKind, Deletion, Expiry, Liveness};
use crate::io::{CompleteFile, CrashStyle, Disk, DiskError, Fault, SimulatedDisk, SplitMix64};
use crate::key::{STATIC_POSITION, full_key};
use crate::row::RowRef;
use crate::row_writer::RowBuilder;

const PATH: &str = "/table";

/// Full key to row bytes (base 0).
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type RangeTombstoneList = Vec<(Vec<u8>, Vec<u8>, Deletion)>;

struct InMemory(Vec<u8>);

impl CompleteFile for InMemory {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let start = offset as usize;
        buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
        Ok(())
    }
}

fn row(timestamp: i64, value: &[u8]) -> Vec<u8> {
    let mut builder = RowBuilder::new();
    builder.set_liveness(Liveness { timestamp, expiry: None });
    builder.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value });
    builder.to_bytes()
}

async fn write(
    disk: &SimulatedDisk,
    rows: &Rows,
    range_tombstones: &RangeTombstoneList,
    options: TableOptions,
) -> Result<TableStatistics, TableError> {
    let mut writer = TableWriter::create(disk, Path::new(PATH), options).await?;
    for (key, bytes) in rows {
        writer.add(key, RowRef::new(bytes, 0)).await?;
    }
    for (start, end, deletion) in range_tombstones {
        writer.add_range_tombstone(start, end, *deletion)?;
    }
    let statistics = writer.finish().await?.statistics;
    disk.sync_directory(Path::new("/")).await?;
    Ok(statistics)
}

fn build(rows: &Rows, range_tombstones: &RangeTombstoneList, options: TableOptions) -> Vec<u8> {
    let disk = SimulatedDisk::new(1);
    block_on(async {
        let statistics = write(&disk, rows, range_tombstones, options).await.unwrap();
        let file = disk.read(Path::new(PATH)).await.unwrap();
        assert_eq!(*open(file.to_vec()).unwrap().statistics(), statistics);
        file.to_vec()
    })
}

fn open(file: Vec<u8>) -> Result<Arc<TableReader>, TableError> {
    TableReader::open(Arc::new(InMemory(file)), Path::new(PATH), 1).map(Arc::new)
}

/// Opens a table of which no filter and no leaf of the index stays in memory.
fn open_in_parts(file: Vec<u8>) -> Result<Arc<TableReader>, TableError> {
    let resident = ResidentParts::new(0);
    TableReader::open_within(Arc::new(InMemory(file)), Path::new(PATH), 1, &resident).map(Arc::new)
}

type Open = fn(Vec<u8>) -> Result<Arc<TableReader>, TableError>;
const WAYS_TO_OPEN: [Open; 2] = [open, open_in_parts];

fn may_contain_row(table: &Arc<TableReader>, key: &[u8]) -> bool {
    table.may_contain_row(None, KeyHash::of(key)).unwrap()
}

fn may_contain_partition(table: &Arc<TableReader>, key: &[u8]) -> bool {
    table.may_contain_partition(None, KeyHash::of(key)).unwrap()
}

/// Timestamps, deletions and values of a row, whatever its base.
fn content(row: RowRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    crate::row_writer::transcode(row, 0, &mut out).unwrap();
    out
}

fn read_forwards(table: &Arc<TableReader>, cache: Option<Rc<BlockCache>>) -> Result<Rows, TableError> {
    let mut cursor = TableCursor::new(Arc::clone(table), cache);
    let mut rows = Rows::new();
    let mut more = cursor.seek_first()?;
    while more {
        let (key, row) = cursor.current().unwrap();
        assert!(rows.last_key_value().is_none_or(|(last, _)| last.as_slice() < key));
        rows.insert(key.to_vec(), content(row));
        more = cursor.next()?;
    }
    Ok(rows)
}

fn read_backwards(table: &Arc<TableReader>) -> Result<Rows, TableError> {
    let mut cursor = TableCursor::new(Arc::clone(table), None);
    let mut rows = Rows::new();
    let mut more = cursor.seek_last()?;
    while more {
        rows.insert(cursor.key().to_vec(), content(cursor.row()));
        more = cursor.prev()?;
    }
    Ok(rows)
}

/// Partitions of very different sizes, with keys of different lengths.
fn sample(partitions: u64, rows_max: u64, seed: u64) -> Rows {
    let mut random = SplitMix64::new(seed);
    let mut rows = Rows::new();
    for partition in 0..partitions {
        let token = random.next_u64() as i64;
        let name = format!("partition-{partition}");
        for number in 0..=random.below(rows_max) {
            let mut position = vec![2];
            position.extend_from_slice(&(number * 3).to_be_bytes()[(number % 5) as usize..]);
            let value = vec![number as u8; random.below(60) as usize];
            let timestamp = 1_700_000_000_000_000 + random.below(1 << 30) as i64;
            rows.insert(full_key(token, name.as_bytes(), &position).unwrap(), row(timestamp, &value));
        }
    }
    rows
}

fn small_blocks(compression: Compression) -> TableOptions {
    TableOptions { compression, block_bytes: 512, ..TableOptions::default() }
}

const COMPRESSIONS: [Compression; 5] = [
    Compression::None,
    Compression::Lz4,
    Compression::Zstd { level: 1 },
    Compression::Snappy,
    Compression::Deflate,
];

#[test]
fn rows_come_out_as_they_went_in_both_ways() {
    for compression in COMPRESSIONS {
        let rows = sample(60, 100, 5);
        let table = open(build(&rows, &RangeTombstoneList::new(), small_blocks(compression))).unwrap();
        let cache = Rc::new(BlockCache::new(1 << 20));
        assert_eq!(read_forwards(&table, Some(Rc::clone(&cache))).unwrap(), rows);
        assert_eq!(read_forwards(&table, Some(Rc::clone(&cache))).unwrap(), rows);
        assert!(cache.statistics().hits > 0);
        assert_eq!(read_backwards(&table).unwrap(), rows);
        for (key, bytes) in &rows {
            assert!(may_contain_row(&table, key) && may_contain_partition(&table, key));
            let found = table.get(Some(&cache), key).unwrap().unwrap();
            assert_eq!(content(found.row()), *bytes);
            let absent = [key.as_slice(), b"\0"].concat();
            assert!(rows.contains_key(&absent) || table.get(Some(&cache), &absent).unwrap().is_none());
        }
    }
}

#[test]
fn an_index_of_several_leaves_finds_every_row() {
    let rows = sample(3000, 2, 8);
    let options = TableOptions { block_bytes: 64, ..TableOptions::default() };
    let table = open(build(&rows, &RangeTombstoneList::new(), options)).unwrap();
    assert_eq!(read_forwards(&table, None).unwrap(), rows);
    assert_eq!(read_backwards(&table).unwrap(), rows);
    for (key, bytes) in &rows {
        assert_eq!(content(table.get(None, key).unwrap().unwrap().row()), *bytes);
    }
}

#[test]
fn filters_exclude_most_of_what_is_absent() {
    let rows = sample(500, 10, 3);
    let table = open(build(&rows, &RangeTombstoneList::new(), TableOptions::default())).unwrap();
    let absent = sample(5000, 1, 4);
    let partitions = absent.keys().filter(|key| may_contain_partition(&table, key)).count();
    assert!(partitions < 100, "{partitions}");
    let neighbours: Vec<Vec<u8>> = rows.keys().map(|key| [key.as_slice(), b"\x07"].concat()).collect();
    let wrong = neighbours.iter().filter(|key| may_contain_row(&table, key)).count();
    assert!(wrong < neighbours.len() / 20, "{wrong} of {}", neighbours.len());
    let unfiltered = TableOptions { bloom_filter_fp_chance: 1.0, ..TableOptions::default() };
    let table = open(build(&rows, &RangeTombstoneList::new(), unfiltered)).unwrap();
    assert!(absent.keys().all(|key| may_contain_row(&table, key)));
}

#[test]
fn statistics_tell_what_is_in_the_table() {
    let mut rows = Rows::new();
    let key = |token, position: &[u8]| full_key(token, b"p", position).unwrap();
    let expiry = Expiry { ttl: 60, expires_at: 5000 };
    let mut builder = RowBuilder::new();
    builder
        .set_liveness(Liveness { timestamp: 10, expiry: Some(expiry) })
        .set_deletion(Deletion { timestamp: 5, local_deletion_time: 4000 })
        .cell(Cell { column: 1, path: &[], timestamp: 10, kind: CellKind::Expiring(expiry), value: b"v" })
        .cell(Cell {
            column: 2,
            path: &[],
            timestamp: 20,
            kind: CellKind::Tombstone { local_deletion_time: 4500 },
            value: &[],
        });
    rows.insert(key(1, &[2, 1]), builder.to_bytes());
    rows.insert(key(1, &[2, 2]), row(7, b"live"));
    rows.insert(key(2, &[2]), row(8, b"live"));
    let range_tombstone =
        (key(0, &[0]), key(0, &[0xFF]), Deletion { timestamp: 1, local_deletion_time: 6000 });
    let table = open(build(&rows, &vec![range_tombstone.clone()], TableOptions::default())).unwrap();
    let statistics = table.statistics();
    assert_eq!((statistics.rows, statistics.partitions, statistics.cells), (3, 2, 4));
    assert_eq!((statistics.tombstones, statistics.range_tombstones, statistics.expiring), (3, 1, 2));
    assert_eq!((statistics.min_timestamp, statistics.max_timestamp), (1, 20));
    assert_eq!((statistics.min_deletion_time, statistics.max_deletion_time), (Some(4000), Some(6000)));
    assert_eq!((statistics.min_ttl, statistics.max_ttl), (Some(60), Some(60)));
    assert_eq!(statistics.permanent, 4);
    assert_eq!(statistics.largest_partition_rows, 2);
    assert_eq!(statistics.min_key, range_tombstone.0);
    assert_eq!(statistics.max_key, key(2, &[2]));
    assert!(
        may_contain_partition(&table, &range_tombstone.0),
        "range tombstones count as part of their partition"
    );
    assert_eq!(table.range_tombstones().covering(&key(0, &[2, 9])), Some(range_tombstone.2));
    assert_eq!(table.range_tombstones().covering(&key(1, &[2, 9])), None);
}

#[test]
fn an_empty_table_and_one_of_range_tombstones_alone_can_be_read() {
    let table = open(build(&Rows::new(), &RangeTombstoneList::new(), TableOptions::default())).unwrap();
    assert!(read_forwards(&table, None).unwrap().is_empty());
    assert!(read_backwards(&table).unwrap().is_empty());
    assert!(table.get(None, b"key").unwrap().is_none());
    assert!(!TableCursor::new(Arc::clone(&table), None).seek(b"key").unwrap());
    let range_tombstone = (
        full_key(1, b"p", &[2, 1]).unwrap(),
        full_key(1, b"p", &[2, 5]).unwrap(),
        Deletion { timestamp: 1, local_deletion_time: 1 },
    );
    let table = open(build(&Rows::new(), &vec![range_tombstone], TableOptions::default())).unwrap();
    assert_eq!(table.range_tombstones().len(), 1);
    assert!(read_forwards(&table, None).unwrap().is_empty());
}

#[test]
fn the_writer_refuses_disorder_and_bad_keys() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let mut writer = TableWriter::create(&disk, Path::new(PATH), TableOptions::default()).await.unwrap();
        let key = |position: &[u8]| full_key(1, b"p", position).unwrap();
        let bytes = row(1, b"");
        let row = RowRef::new(&bytes, 0);
        writer.add(&key(&[2, 5]), row).await.unwrap();
        assert!(matches!(writer.add(&key(&[2, 5]), row).await, Err(TableError::Disorder { .. })));
        assert!(matches!(writer.add(&key(&[2, 4]), row).await, Err(TableError::Disorder { .. })));
        assert!(matches!(writer.add(&[0xFF; 9], row).await, Err(TableError::InvalidKey)));
        let deletion = Deletion { timestamp: 1, local_deletion_time: 1 };
        let other = full_key(2, b"p", &[2]).unwrap();
        assert!(matches!(
            writer.add_range_tombstone(&key(&[2]), &other, deletion),
            Err(TableError::InvalidKey)
        ));
        writer.add_range_tombstone(&key(&[2]), &key(&[3]), deletion).unwrap();
        let again = writer.add_range_tombstone(&key(&[2, 1]), &key(&[4]), deletion);
        assert!(matches!(again, Err(TableError::Disorder { .. })));
        assert_eq!(writer.finish().await.unwrap().statistics.rows, 1);
    });
}

/// Reads all contents of a table; stops at the first error.
fn read_all(file: Vec<u8>, open: Open) -> Result<(Rows, RangeTombstoneList), TableError> {
    let table = open(file)?;
    let rows = read_forwards(&table, None)?;
    assert_eq!(read_backwards(&table)?, rows);
    for (key, bytes) in &rows {
        let hash = KeyHash::of(key);
        assert!(table.may_contain_partition(None, hash)? && table.may_contain_row(None, hash)?);
        let found = table.get(None, key)?.map(|found| content(found.row()));
        assert_eq!(found.as_ref(), Some(bytes));
    }
    let range_tombstones = table.range_tombstones();
    let range_tombstones = (0..range_tombstones.len()).filter_map(|index| range_tombstones.get(index));
    Ok((
        rows,
        range_tombstones
            .map(|it| ([it.prefix, it.start].concat(), [it.prefix, it.end].concat(), it.deletion))
            .collect(),
    ))
}

#[test]
fn a_flipped_bit_anywhere_is_an_error_or_changes_nothing() {
    for (compression, open) in COMPRESSIONS.into_iter().flat_map(|it| WAYS_TO_OPEN.map(|open| (it, open))) {
        let rows = sample(4, 12, 11);
        let key = full_key(i64::MAX, b"z", &[2]).unwrap();
        let end = full_key(i64::MAX, b"z", &[3]).unwrap();
        let range_tombstones = vec![(key, end, Deletion { timestamp: 9, local_deletion_time: 9 })];
        let file = build(&rows, &range_tombstones, small_blocks(compression));
        let mut harmless = 0;
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match read_all(damaged, open) {
                Ok(read) => {
                    assert_eq!(read, (rows.clone(), range_tombstones.clone()), "bit {bit}");
                    harmless += 1;
                }
                Err(TableError::Damaged { path, offset, .. }) => {
                    assert_eq!(path, Path::new(PATH));
                    assert!(offset <= file.len() as u64);
                }
                Err(TableError::UnsupportedVersion { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(harmless <= 2 * 63 * 8, "only padding is unchecked: {harmless} bits");
    }
}

#[test]
fn a_truncated_table_is_an_error() {
    let file = build(&sample(4, 12, 11), &RangeTombstoneList::new(), TableOptions::default());
    for length in 0..file.len() {
        assert!(open(file[..length].to_vec()).is_err(), "length {length}");
    }
}

#[test]
fn a_crash_or_a_fault_at_any_operation_leaves_no_readable_half_table() {
    let rows = sample(40, 400, 2);
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let rehearsal = SimulatedDisk::new(1);
    block_on(write(&rehearsal, &rows, &RangeTombstoneList::new(), options.clone())).unwrap();
    let operations = rehearsal.operations();
    assert!(operations >= 5);
    for operation in 0..operations {
        for fault in [Fault::Error, Fault::NoSpace, Fault::ShortWrite] {
            let disk = SimulatedDisk::new(1);
            disk.fail_at(operation, fault);
            let failed = block_on(write(&disk, &rows, &RangeTombstoneList::new(), options.clone()));
            assert!(matches!(failed, Err(TableError::Disk(_))));
        }
        for style in CrashStyle::ALL {
            let disk = SimulatedDisk::new(1);
            disk.crash_at(operation);
            assert!(block_on(write(&disk, &rows, &RangeTombstoneList::new(), options.clone())).is_err());
            disk.restart(style, operation);
            let left = block_on(disk.read(Path::new(PATH)));
            if let Ok(Ok(table)) = left.map(|file| open(file.to_vec())) {
                match read_forwards(&table, None) {
                    Ok(read) => assert_eq!(read, rows),
                    Err(error) => assert!(matches!(error, TableError::Damaged { .. })),
                }
            }
        }
    }
}

#[test]
fn sizes_on_disk_stay_within_their_budgets() {
    let mut random = SplitMix64::new(1);
    let mut bytes = |length: usize| -> Vec<u8> { (0..length).map(|_| random.next_u64() as u8).collect() };
    let mut key_value = Rows::new();
    for number in 0..20_000_i64 {
        let token = i64::from_be_bytes(bytes(8).try_into().unwrap());
        let timestamp = 1_700_000_000_000_000 + number * 50;
        let mut builder = RowBuilder::new();
        builder.set_liveness(Liveness { timestamp, expiry: None });
        for column in 0..5 {
            let value = bytes(40);
            builder.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value: &value });
        }
        let key = full_key(token, &number.to_be_bytes(), &[2]).unwrap();
        key_value.insert(key, builder.to_bytes());
    }
    let file = build(&key_value, &RangeTombstoneList::new(), TableOptions::default());
    assert!(file.len() <= 230 * key_value.len(), "{} bytes a row", file.len() / key_value.len());
    let mut events = Rows::new();
    for order in 0..200_i64 {
        let token = i64::from_be_bytes(bytes(8).try_into().unwrap());
        for event in 0..100_i64 {
            let created = 1_700_000_000_000 + event * 3_600_000 + order * 977;
            let mut position = vec![2, 0x40];
            position.extend_from_slice(&(!created).to_be_bytes());
            let place = bytes(1)[0];
            let text = format!(
                "arrived at hub {place:03}, vehicle {:04}, state ok, next stop {:03}",
                event * 7 % 9999,
                place / 2
            );
            let key = full_key(token, &order.to_be_bytes(), &position).unwrap();
            events.insert(key, row(created * 1000 + 5, text.as_bytes()));
        }
    }
    let file = build(&events, &RangeTombstoneList::new(), TableOptions::default());
    assert!(file.len() <= 35 * events.len(), "{} bytes a row", file.len() / events.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A cursor that is moved at random agrees with a `BTreeMap`.
    #[test]
    fn a_cursor_moves_as_in_a_map(
        seed in any::<u64>(),
        partitions in 1..20_u64,
        block_bytes in prop_oneof![Just(64_usize), Just(300), Just(16384)],
        moves in prop::collection::vec((0..6_u8, any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        let rows = sample(partitions, 40, seed);
        let options = TableOptions { block_bytes, ..TableOptions::default() };
        let table = open(build(&rows, &RangeTombstoneList::new(), options)).unwrap();
        let mut cursor = TableCursor::new(table, Some(Rc::new(BlockCache::new(1 << 16))));
        let keys: Vec<_> = rows.keys().cloned().collect();
        let mut expected: Option<Vec<u8>> = None;
        for (action, index, beside) in moves {
            let mut target = index.get(&keys).clone();
            if beside {
                target.pop();
            }
            expected = match action {
                0 => rows.keys().next().cloned(),
                1 => rows.keys().next_back().cloned(),
                2 => rows.range(target.clone()..).next().map(|(key, _)| key.clone()),
                3 => rows.range(..target.clone()).next_back().map(|(key, _)| key.clone()),
                4 => expected.and_then(|at| {
                    rows.range((Bound::Excluded(at), Bound::Unbounded)).next().map(|(key, _)| key.clone())
                }),
                _ => expected.and_then(|at| rows.range(..at).next_back().map(|(key, _)| key.clone())),
            };
            let moved = match action {
                0 => cursor.seek_first(),
                1 => cursor.seek_last(),
                2 => cursor.seek(&target),
                3 => cursor.seek_before(&target),
                4 => cursor.next(),
                _ => cursor.prev(),
            };
            prop_assert_eq!(moved.unwrap(), expected.is_some());
            prop_assert_eq!(cursor.current().map(|(key, _)| key.to_vec()), expected.clone());
            if let Some(key) = &expected {
                prop_assert_eq!(&content(cursor.row()), &rows[key]);
            }
        }
    }

    /// Bytes that are not a table are refused.
    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(open(bytes).is_err());
    }
}

/// The contents of the stored tables: every kind of section.
fn stored_content() -> (Rows, RangeTombstoneList) {
    let key = |position: &[u8]| full_key(i64::MAX, b"z", position).unwrap();
    let range_tombstones = vec![(key(&[2]), key(&[3]), Deletion { timestamp: 9, local_deletion_time: 9 })];
    (sample(3, 6, 21), range_tombstones)
}

#[test]
fn a_table_of_version_1_is_read() {
    let stored = include_bytes!("testdata/version-1.table");
    assert_eq!(read_all(stored.to_vec(), open).unwrap(), stored_content());
    assert_eq!(open(stored.to_vec()).unwrap().statistics().positions, None);
}

#[test]
fn a_table_of_version_2_is_read() {
    let stored = include_bytes!("testdata/version-2.table");
    assert_eq!(read_all(stored.to_vec(), open).unwrap(), stored_content());
}

#[test]
fn a_table_of_version_3_is_read() {
    let stored = include_bytes!("testdata/version-3.table");
    assert_eq!(read_all(stored.to_vec(), open).unwrap(), stored_content());
}

#[test]
fn a_table_of_version_4_is_read_and_still_written_byte_by_byte() {
    let stored = include_bytes!("testdata/version-4.table");
    let (rows, range_tombstones) = stored_content();
    for open in WAYS_TO_OPEN {
        assert_eq!(read_all(stored.to_vec(), open).unwrap(), (rows.clone(), range_tombstones.clone()));
    }
    let written = build(&rows, &range_tombstones, small_blocks(Compression::None));
    assert!(written == stored, "the format changed: that needs a new version");
}

#[test]
fn the_statistics_tell_where_in_their_partitions_rows_lie() {
    let positions = |list: &[(&[u8], &[u8])]| {
        let key = |(name, position): &(&[u8], &[u8])| full_key(name.len() as i64, name, position).unwrap();
        let rows: Rows = list.iter().map(|entry| (key(entry), row(1, b"value"))).collect();
        let file = build(&rows, &RangeTombstoneList::new(), TableOptions::default());
        let positions = open(file).unwrap().statistics().positions.clone().unwrap();
        (positions.has_static, positions.first, positions.last)
    };
    assert_eq!(positions(&[]), (false, vec![], vec![]));
    assert_eq!(positions(&[(b"a", STATIC_POSITION)]), (true, vec![], vec![]));
    assert_eq!(positions(&[(b"a", &[2])]), (false, vec![2], vec![2]));
    let late_static: [(&[u8], &[u8]); 3] = [(b"a", &[2, 5]), (b"bb", STATIC_POSITION), (b"bb", &[2, 6])];
    assert_eq!(positions(&late_static), (true, vec![2, 5], vec![2, 6]));
    let several: [(&[u8], &[u8]); 4] =
        [(b"a", &[2, 5]), (b"bb", &[2, 4, 1]), (b"bb", &[2, 7]), (b"ccc", &[2, 6, 9])];
    assert_eq!(positions(&several), (false, vec![2, 4, 1], vec![2, 7]));
}

#[test]
fn a_file_read_through_the_disk_is_the_same_table() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let rows = sample(3, 5, 1);
        write(&disk, &rows, &RangeTombstoneList::new(), TableOptions::default()).await.unwrap();
        let table = TableReader::open_file(&disk, Path::new(PATH), 7).await.unwrap();
        assert_eq!(table.id(), 7);
        assert_eq!(table.file_bytes(), disk.length(Path::new(PATH)).await.unwrap());
        assert_eq!(read_forwards(&table, None).unwrap(), rows);
        let taken = TableWriter::create(&disk, Path::new(PATH), TableOptions::default()).await;
        assert!(matches!(taken.err(), Some(TableError::Disk(_))), "an existing file is never overwritten");
        let _: Bytes = disk.read(Path::new(PATH)).await.unwrap();
    });
}

#[test]
fn a_file_is_synced_while_it_is_written() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
        let mut writer = TableWriter::create(&disk, Path::new(PATH), options).await.unwrap();
        disk.sync_directory(Path::new("/")).await.unwrap();
        let written = 40 << 20;
        let bytes = row(1, &vec![7; 1 << 20]);
        for number in 0..written >> 20 {
            let key = full_key(i64::from(number), b"partition", &[2]).unwrap();
            writer.add(&key, RowRef::new(&bytes, 0)).await.unwrap();
        }
        disk.crash();
        disk.restart(CrashStyle::LoseAll, 1);
        let left = disk.length(Path::new(PATH)).await.unwrap();
        assert!(left >= u64::from(written as u32) - (20 << 20), "{left} bytes are on the disk");
    });
}
