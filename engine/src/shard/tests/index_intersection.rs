//! Searches by several restrictions: in whichever memtables and files the columns of a row lie, a search finds every row that has them all, and
//! none that lacks one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::*;
use crate::io::SplitMix64;
use crate::key::{KeyRef, PARTITION_END, STATIC_POSITION};
use crate::row::RowRef;
use crate::secondary_index::{
    IndexDefinition, IndexId, IndexRestriction, IndexSearch, IndexTerms, Subject, TermRange,
};
use crate::shard::{FoundKeys, SearchWorth};

const PARTITIONS: u64 = 12;
const ROWS: u64 = 12;
const VALUES: u64 = 6;
/// A static column, two regular ones.
const COLUMNS: [u32; 3] = [1, 2, 3];

/// The values of a column, of all rows of the partition if it is static.
#[derive(Debug)]
struct ColumnTerms(u32);

impl IndexTerms for ColumnTerms {
    fn visit(&self, key: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
        let subject = if key.position == STATIC_POSITION { Subject::Partition } else { Subject::Row };
        for cell in row.cells().filter(|cell| cell.column == self.0) {
            visit(subject, cell.value);
        }
    }
}

/// The position of a row.
#[derive(Debug)]
struct PositionTerms;

impl IndexTerms for PositionTerms {
    fn visit(&self, key: &KeyRef<'_>, _: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
        if key.position != STATIC_POSITION {
            visit(Subject::Row, &key.position[1..]);
        }
    }
}

fn id(number: u32) -> IndexId {
    IndexId([number as u8; 16])
}

const OF_POSITIONS: u32 = 9;

fn indexed() -> TableOptions {
    let of_column =
        |column| IndexDefinition { id: id(column), terms: Arc::new(ColumnTerms(column)), vectors: None };
    let mut indexes: Vec<_> = COLUMNS.into_iter().map(of_column).collect();
    indexes.push(IndexDefinition { id: id(OF_POSITIONS), terms: Arc::new(PositionTerms), vectors: None });
    TableOptions { indexes, ..TableOptions::default() }
}

fn key_of(partition: u8, position: &[u8]) -> Vec<u8> {
    full_key(i64::from(partition), &[partition], position).unwrap()
}

/// All values that were written, by column, partition and row (0 for the static column). Each stays in the index of its memtable or file, because
/// none of these gets two values of one column of a row.
#[derive(Default)]
struct Written {
    values: BTreeMap<(u32, u8, u8), BTreeSet<u8>>,
    in_memtable: BTreeSet<(u32, u8, u8)>,
    rows: BTreeSet<(u8, u8)>,
    timestamp: i64,
}

impl Written {
    /// Writes one column of a row.
    fn put(&mut self, shard: &Shard, random: &mut SplitMix64) {
        let column = COLUMNS[random.below(3) as usize];
        let (partition, row) = (random.below(PARTITIONS) as u8, 1 + random.below(ROWS) as u8);
        let (position, row) = if column == 1 { (vec![1], 0) } else { (vec![2, row], row) };
        if !self.in_memtable.insert((column, partition, row)) {
            return;
        }
        let value = random.below(VALUES) as u8;
        self.timestamp += 1;
        let mut builder = MutationBuilder::new(TABLE, i64::from(partition), &[partition]).unwrap();
        let mut cells = RowBuilder::new();
        let timestamp = self.timestamp;
        cells.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value: &[value] });
        builder.row(&position, &mut cells);
        shard.apply(&builder.build().view().unwrap()).unwrap();
        self.values.entry((column, partition, row)).or_default().insert(value);
        if row != 0 {
            self.rows.insert((partition, row));
        }
    }

    fn has(&self, column: u32, partition: u8, row: u8, range: (u8, u8)) -> bool {
        let is_in = |value: &u8| range.0 <= *value && *value <= range.1;
        match column {
            OF_POSITIONS => is_in(&row),
            1 => self.values.get(&(1, partition, 0)).is_some_and(|values| values.iter().any(is_in)),
            _ => self.values.get(&(column, partition, row)).is_some_and(|values| values.iter().any(is_in)),
        }
    }
}

fn restriction(column: u32, (low, high): (u8, u8), as_range: bool) -> IndexRestriction {
    let terms = if as_range {
        TermRange::Between { lower: Bound::Included(vec![low]), upper: Bound::Included(vec![high]) }
    } else {
        TermRange::OneOf((low..=high).map(|value| vec![value]).collect())
    };
    IndexRestriction { index: id(column), terms }
}

/// Checks a search from a random start: of whole partitions, if only their static column is restricted.
async fn check(shard: &Shard, written: &Written, random: &mut SplitMix64) {
    let mut columns = COLUMNS.to_vec();
    columns.push(OF_POSITIONS);
    columns.retain(|_| random.chance(1, 2));
    if columns.is_empty() {
        return;
    }
    let restricted: Vec<_> = columns
        .iter()
        .map(|&column| {
            let low = random.below(VALUES) as u8;
            (column, (low, low + random.below(3) as u8), random.chance(1, 3))
        })
        .collect();
    let restrictions: Vec<_> =
        restricted.iter().map(|&(column, range, as_range)| restriction(column, range, as_range)).collect();
    let partition = random.below(PARTITIONS) as u8;
    let start = match random.below(4) {
        0 => Vec::new(),
        1 => key_of(partition, STATIC_POSITION),
        2 => key_of(partition, &[2, random.below(ROWS) as u8, 0]),
        _ => key_of(partition, PARTITION_END),
    };
    let keys_max = [1, 2, 1_000][random.below(3) as usize];
    let collected_max = [1, 3, 1_000][random.below(3) as usize];
    let by_partition = columns == [1];
    let is_wanted = |partition, row| {
        restricted.iter().all(|&(column, range, _)| written.has(column, partition, row, range))
    };
    let expected: BTreeSet<Vec<u8>> = if by_partition {
        let partitions = (0..PARTITIONS as u8).filter(|&partition| is_wanted(partition, 0));
        // A start within a partition wants the rest of it.
        let is_behind = |partition: &u8| key_of(*partition, &[3]) > start;
        partitions.filter(is_behind).map(|partition| key_of(partition, STATIC_POSITION)).collect()
    } else {
        let rows = written.rows.iter().filter(|&&(partition, row)| is_wanted(partition, row));
        rows.map(|&(partition, row)| key_of(partition, &[2, row])).filter(|key| *key >= start).collect()
    };
    let (mut from, mut found) = (start, Vec::new());
    loop {
        let range = (from.as_slice(), &[0xFF; 9][..]);
        let FoundKeys { keys, resume } =
            shard.find_by_all(TABLE, &restrictions, range, keys_max, collected_max).await.unwrap();
        assert!(keys.len() <= keys_max);
        found.extend(keys);
        match resume {
            Some(resume) => from = resume,
            None => break,
        }
    }
    assert!(found.is_sorted());
    assert!(found.iter().eq(expected.iter()), "{restricted:?}: {found:?} instead of {expected:?}");

    // Whatever of the search is looked up, no row is missed.
    let search = IndexSearch { restrictions };
    let all = shard.find_keys(TABLE, &search, &[], &[0xFF; 9], 1_000, Duration::MAX).await.unwrap();
    let covered =
        |key: &Vec<u8>| all.keys.contains(key) || all.keys.contains(&[&key[..11], STATIC_POSITION].concat());
    assert!(expected.iter().all(covered), "{search:?}: {all:?} lacks some of {expected:?}");
}

#[test]
fn a_search_by_several_restrictions_finds_what_has_them_all_wherever_the_columns_lie() {
    let mut random = SplitMix64::new(11);
    for seed in 0..8 {
        let disk = SimulatedDisk::new(seed);
        run(async {
            let shard = Shard::open(environment(&disk), ShardOptions::new(Path::new("shard"))).await.unwrap();
            shard.create_table(TABLE, indexed()).await.unwrap();
            let mut written = Written::default();
            // Four files would be merged, and with them what they have of a row.
            for round in 0..5 {
                for _ in 0..random.below(60) {
                    written.put(&shard, &mut random);
                }
                for _ in 0..40 {
                    check(&shard, &written, &mut random).await;
                }
                if round < 3 && random.chance(2, 3) {
                    shard.flush(TABLE).await.unwrap();
                    written.in_memtable.clear();
                }
            }
        });
    }
}

/// Rows whose column 2 has one of few values and whose column 3 has a value of its own.
fn put_many(shard: &Shard, rows: u32) {
    for number in 0..rows {
        let mut builder =
            MutationBuilder::new(TABLE, i64::from(number % 50), &[(number % 50) as u8]).unwrap();
        let mut row = RowBuilder::new();
        let (few, own) = ([(number % 20) as u8], number.to_be_bytes());
        row.cell(Cell { column: 2, path: &[], timestamp: 1, kind: CellKind::Live, value: &few });
        row.cell(Cell { column: 3, path: &[], timestamp: 1, kind: CellKind::Live, value: &own });
        builder.row(&[&[2], &number.to_be_bytes()[..]].concat(), &mut row);
        shard.apply(&builder.build().view().unwrap()).unwrap();
    }
}

fn numbers(low: u32, high: u32) -> IndexRestriction {
    let [lower, upper] = [low, high].map(|number| number.to_be_bytes().to_vec());
    let terms = TermRange::Between { lower: Bound::Included(lower), upper: Bound::Excluded(upper) };
    IndexRestriction { index: id(3), terms }
}

#[test]
fn estimates_decide_what_is_looked_up_and_what_is_scanned() {
    const COUNT: u32 = 25_000;
    let disk = SimulatedDisk::new(1);
    run(async {
        let shard = Shard::open(environment(&disk), ShardOptions::new(Path::new("shard"))).await.unwrap();
        shard.create_table(TABLE, indexed()).await.unwrap();
        put_many(&shard, COUNT);
        for is_flushed in [false, true] {
            if is_flushed {
                shard.flush(TABLE).await.unwrap();
            }
            let judge = |restrictions: &[IndexRestriction]| {
                shard.judge_search(TABLE, &IndexSearch { restrictions: restrictions.to_vec() }).unwrap()
            };
            let one_of_few = restriction(2, (4, 4), false);
            assert_eq!(judge(&[numbers(0, COUNT)]), SearchWorth::Broad);
            assert_eq!(judge(&[numbers(0, 500)]), SearchWorth::Narrow);
            assert_eq!(judge(std::slice::from_ref(&one_of_few)), SearchWorth::Narrow);
            assert_eq!(judge(&[numbers(0, COUNT), one_of_few.clone()]), SearchWorth::Narrow);
            let find = async |restrictions: &[IndexRestriction]| {
                let search = IndexSearch { restrictions: restrictions.to_vec() };
                let found =
                    shard.find_keys(TABLE, &search, &[], &[0xFF; 9], 100_000, Duration::MAX).await.unwrap();
                assert_eq!(found.resume, None);
                found.keys.len() as u32
            };
            // A range of similar size leaves out what it does not have. One with nearly everything is left to the filter.
            assert_eq!(find(&[one_of_few.clone(), numbers(0, 2_000)]).await, 100);
            assert_eq!(find(&[one_of_few.clone(), numbers(0, COUNT - 1_000)]).await, COUNT / 20);
            let cheapest = |searches: &[IndexRestriction]| {
                let of =
                    |restriction: &IndexRestriction| IndexSearch { restrictions: vec![restriction.clone()] };
                shard.cheapest_search(TABLE, searches.iter().map(of).collect()).unwrap().restrictions
            };
            assert_eq!(cheapest(&[one_of_few.clone(), numbers(7, 300)]), [numbers(7, 300)]);
            assert_eq!(cheapest(&[numbers(0, COUNT), one_of_few.clone()]), [one_of_few]);
        }
    });
}

#[test]
fn a_search_of_what_is_not_cached_ends_when_its_time_is_over_and_holds_little() {
    const ROWS: u32 = 12_000;
    let disk = SimulatedDisk::new(2);
    let mut random = SplitMix64::new(3);
    let open = async || {
        let options =
            ShardOptions { compaction_bytes_per_second: None, ..ShardOptions::new(Path::new("shard")) };
        let clock = Rc::new(ManualClock::new(5_000_000));
        let background = InlineBackground::new(Arc::new(disk.of_jobs()), Rc::clone(&clock) as Rc<dyn Clock>);
        let environment = Environment {
            clock: Rc::clone(&clock) as Rc<dyn Clock>,
            background: Rc::new(background),
            ..environment(&disk)
        };
        let shard = Shard::open(environment, options).await.unwrap();
        shard.create_table(TABLE, indexed()).await.unwrap();
        shard.indexes_built(TABLE).await.unwrap();
        (shard, clock)
    };
    run(async {
        let (shard, _) = open().await;
        for number in 0..ROWS {
            let mut builder = MutationBuilder::new(TABLE, 1, &[1]).unwrap();
            let mut row = RowBuilder::new();
            let behind: Vec<u8> = (0..1_000).map(|_| random.below(256) as u8).collect();
            let value = [&number.to_be_bytes()[..], &behind].concat();
            row.cell(Cell { column: 3, path: &[], timestamp: 1, kind: CellKind::Live, value: &value });
            builder.row(&[&[2], &number.to_be_bytes()[..]].concat(), &mut row);
            shard.apply(&builder.build().view().unwrap()).unwrap();
        }
        // Other flushes would wait for their pace.
        shard.close().await.unwrap();
    });
    run(async {
        let (shard, clock) = open().await;
        let search = IndexSearch { restrictions: vec![numbers(0, ROWS)] };
        let before = shard.block_cache.statistics().used_bytes;
        let find = |until| shard.find_keys(TABLE, &search, &[], &[0xFF; 9], 10_000, until);
        let mut found = std::pin::pin!(find(Duration::from_millis(1)));
        assert!(futures::poll!(&mut found).is_pending(), "it comes to its end in one turn");
        clock.advance(Duration::from_secs(1));
        let found = found.await;
        assert!(matches!(found, Err(EngineError::SearchTooLong { .. })), "{found:?}");
        // The index has four times as much.
        let read = shard.block_cache.statistics().used_bytes - before;
        assert!((1 << 19..=3 << 20).contains(&read), "{read} bytes");
        assert_eq!(find(Duration::MAX).await.unwrap().keys.len(), 10_000);
        shard.close().await.unwrap();
    });
}
