//! Searches for the nearest vectors: whatever is written, overwritten, deleted, flushed, compacted, restarted or lost, they find the right rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use helenus_vectors::Similarity;

use super::*;
use crate::cell::Deletion;
use crate::io::SplitMix64;
use crate::key::{KeyRef, STATIC_POSITION};
use crate::row::RowRef;
use crate::secondary_index::{
    IndexDefinition, IndexId, IndexRestriction, IndexTerms, NearestSearch, Subject, TermRange, VectorIndex,
};
use crate::shard::NearestRows;

const VECTORS: IndexId = IndexId([3; 16]);
const TAGS: IndexId = IndexId([4; 16]);
const STATICS: IndexId = IndexId([5; 16]);
const DIMENSION: usize = 8;

/// The values of a column.
#[derive(Debug)]
struct Column(u32);

impl IndexTerms for Column {
    fn visit(&self, key: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
        let subject = if key.position == STATIC_POSITION { Subject::Partition } else { Subject::Row };
        for cell in row.cells().filter(|cell| cell.kind == CellKind::Live && cell.column == self.0) {
            visit(subject, cell.value);
        }
    }
}

fn indexed() -> TableOptions {
    indexed_with(DIMENSION)
}

fn indexed_with(dimension: usize) -> TableOptions {
    let vectors = VectorIndex { dimension, similarity: Similarity::Euclidean, prefers_recall: false };
    TableOptions {
        indexes: vec![
            IndexDefinition { id: VECTORS, terms: Arc::new(Column(1)), vectors: Some(vectors) },
            IndexDefinition { id: TAGS, terms: Arc::new(Column(2)), vectors: None },
            IndexDefinition { id: STATICS, terms: Arc::new(Column(3)), vectors: None },
        ],
        ..TableOptions::default()
    }
}

/// The vector and the tag of each row, by partition and position.
type Model = BTreeMap<(u16, u16), (Vec<f32>, u8)>;

struct Table {
    shard: Rc<Shard>,
    timestamp: i64,
    model: Model,
}

fn bytes_of(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|component| component.to_be_bytes()).collect()
}

fn key_of(partition: u16, row: u16) -> Vec<u8> {
    let position = [&[2], &row.to_be_bytes()[..]].concat();
    full_key(i64::from(partition), &partition.to_be_bytes(), &position).unwrap()
}

async fn open_indexed(disk: &SimulatedDisk) -> Rc<Shard> {
    open_with_options(disk, indexed()).await
}

async fn open_with_options(disk: &SimulatedDisk, table: TableOptions) -> Rc<Shard> {
    // A compaction that is to wait for its pace would wait for ever: the clock stands still.
    let options = ShardOptions { compaction_bytes_per_second: None, ..ShardOptions::new(Path::new("shard")) };
    let shard = Shard::open(environment(disk), options).await.unwrap();
    shard.create_table(TABLE, table).await.unwrap();
    shard.indexes_built(TABLE).await.unwrap();
    shard
}

impl Table {
    async fn open(disk: &SimulatedDisk, timestamp: i64, model: Model) -> Self {
        Self { shard: open_indexed(disk).await, timestamp, model }
    }

    async fn close(self) -> (i64, Model) {
        self.shard.close().await.unwrap();
        (self.timestamp, self.model)
    }

    fn apply(&mut self, partition: u16, fill: impl FnOnce(&mut MutationBuilder, i64)) {
        self.timestamp += 1;
        let mut builder =
            MutationBuilder::new(TABLE, i64::from(partition), &partition.to_be_bytes()).unwrap();
        fill(&mut builder, self.timestamp);
        self.shard.apply(&builder.build().view().unwrap()).unwrap();
    }

    fn put(&mut self, partition: u16, row: u16, vector: Vec<f32>, tag: u8) {
        let value = bytes_of(&vector);
        self.apply(partition, |builder, timestamp| {
            let mut cells = RowBuilder::new();
            cells.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value: &value });
            cells.cell(Cell { column: 2, path: &[], timestamp, kind: CellKind::Live, value: &[tag] });
            builder.row(&[&[2], &row.to_be_bytes()[..]].concat(), &mut cells);
            let mut of_partition = RowBuilder::new();
            let value = [(partition % 2) as u8];
            of_partition.cell(Cell { column: 3, path: &[], timestamp, kind: CellKind::Live, value: &value });
            builder.row(STATIC_POSITION, &mut of_partition);
        });
        self.model.insert((partition, row), (vector, tag));
    }

    fn delete_partition(&mut self, partition: u16) {
        self.apply(partition, |builder, timestamp| {
            builder.delete_partition(Deletion { timestamp, local_deletion_time: 5 });
        });
        self.model.retain(|(of, _), _| *of != partition);
    }

    async fn find(&self, search: &NearestSearch, start: &[u8], end: &[u8]) -> NearestRows {
        let ranges = [(start.to_vec(), end.to_vec())];
        self.shard.find_nearest(TABLE, search, &ranges, 5, Duration::MAX).await.unwrap()
    }

    /// Searches, and returns how many of the nearest rows were found. Whatever is found is right.
    async fn check(
        &self,
        target: &[f32],
        wanted: usize,
        passes: impl Fn(u16, u8) -> bool,
        restriction: Option<(IndexId, u8)>,
    ) -> (usize, usize) {
        let restriction = restriction
            .map(|(index, value)| IndexRestriction { index, terms: TermRange::OneOf(vec![vec![value]]) });
        let restrictions = restriction.into_iter().collect();
        let search = NearestSearch { index: VECTORS, target: bytes_of(target), restrictions, wanted };
        let found = self.find(&search, &[], &[0xFF; 9]).await;
        let similarity = |vector: &[f32]| Similarity::Euclidean.of(target, vector).unwrap();
        let mut expected: Vec<(f32, Vec<u8>)> = self
            .model
            .iter()
            .filter(|((partition, _), (_, tag))| passes(*partition, *tag))
            .map(|((partition, row), (vector, _))| (similarity(vector), key_of(*partition, *row)))
            .collect();
        expected.sort_by(|(a, left), (b, right)| b.total_cmp(a).then(left.cmp(right)));
        assert!(
            found.rows.iter().all(|row| expected.contains(row)),
            "a row that is not there, or of another vector"
        );
        assert!(found.rows.is_sorted_by(|(a, _), (b, _)| a >= b));
        assert_eq!(found.rows.len(), wanted.min(expected.len()), "as many as are wanted");
        assert!(found.has_more || found.rows.len() == expected.len());
        expected.truncate(wanted);
        let found: BTreeSet<_> = found.rows.into_iter().map(|(_, key)| key).collect();
        (expected.iter().filter(|(_, key)| found.contains(key)).count(), expected.len())
    }

    async fn check_all(&self, random: &mut SplitMix64) {
        let (mut found, mut of) = (0, 0);
        for number in 0..20 {
            let target = vector(random);
            let wanted = [1, 10, 100][number % 3];
            let tag = (number % 5) as u8;
            for outcome in [
                self.check(&target, wanted, |_, _| true, None).await,
                self.check(&target, wanted, |_, of_row| of_row == tag, Some((TAGS, tag))).await,
                self.check(&target, wanted, |partition, _| partition % 2 == 1, Some((STATICS, 1))).await,
                self.check(&target, wanted, |_, of_row| of_row == 200, Some((TAGS, 200))).await,
            ] {
                (found, of) = (found + outcome.0, of + outcome.1);
            }
        }
        assert!(found as f64 >= 0.95 * of as f64, "{found} of {of}");
    }
}

fn vector(random: &mut SplitMix64) -> Vec<f32> {
    let place = random.below(40);
    (0..DIMENSION)
        .map(|component| {
            let around = random.below(1_000) as f32 / 1_000.0;
            (place.wrapping_mul(component as u64 * 7 + 3) % 11) as f32 + around
        })
        .collect()
}

fn write_some(table: &mut Table, random: &mut SplitMix64, count: usize) {
    for _ in 0..count {
        let (partition, row) = (random.below(200) as u16, random.below(40) as u16);
        let tag = if random.below(500) == 0 { 200 } else { random.below(5) as u8 };
        table.put(partition, row, vector(random), tag);
    }
}

#[test]
fn the_nearest_rows_are_found_through_overwrites_deletions_flushes_compactions_and_restarts() {
    let disk = SimulatedDisk::new(3);
    let mut random = SplitMix64::new(5);
    let (timestamp, model) = run(async {
        let mut table = Table::open(&disk, 10, Model::new()).await;
        table.check_all(&mut random).await;
        write_some(&mut table, &mut random, 4_000);
        table.check_all(&mut random).await;
        table.shard.flush(TABLE).await.unwrap();
        table.check_all(&mut random).await;
        // A third is overwritten, and a part deleted.
        write_some(&mut table, &mut random, 1_500);
        for partition in 0..20 {
            table.delete_partition(partition * 3);
        }
        table.check_all(&mut random).await;
        table.shard.flush(TABLE).await.unwrap();
        table.check_all(&mut random).await;
        table.close().await
    });
    run(async {
        let table = Table::open(&disk, timestamp, model).await;
        table.check_all(&mut random).await;
        table.shard.compact(TABLE).await.unwrap();
        table.check_all(&mut random).await;
        // In one partition, exactly.
        let target = vector(&mut random);
        let (start, end) = (key_of(7, 0), key_of(7, u16::MAX));
        let search =
            NearestSearch { index: VECTORS, target: bytes_of(&target), restrictions: Vec::new(), wanted: 3 };
        let found = table.find(&search, &start, &end).await;
        let mut expected: Vec<_> = table
            .model
            .iter()
            .filter(|((partition, _), _)| *partition == 7)
            .map(|((partition, row), (vector, _))| {
                (Similarity::Euclidean.of(&target, vector).unwrap(), key_of(*partition, *row))
            })
            .collect();
        expected.sort_by(|(a, left), (b, right)| b.total_cmp(a).then(left.cmp(right)));
        expected.truncate(3);
        assert_eq!(found.rows, expected);
        table.shard.close().await.unwrap();
    });
}

#[test]
fn an_index_of_vectors_is_made_for_files_from_before_and_again_when_it_is_damaged() {
    let disk = SimulatedDisk::new(4);
    let mut random = SplitMix64::new(6);
    let search =
        NearestSearch { index: VECTORS, target: bytes_of(&[1.0; 8]), restrictions: Vec::new(), wanted: 3 };
    let ranges = [(Vec::new(), vec![0xFF; 9])];
    let (timestamp, model) = run(async {
        let shard = Shard::open(environment(&disk), ShardOptions::new(Path::new("shard"))).await.unwrap();
        shard.create_table(TABLE, TableOptions::default()).await.unwrap();
        let mut table = Table { shard, timestamp: 10, model: Model::new() };
        write_some(&mut table, &mut random, 2_000);
        table.shard.flush(TABLE).await.unwrap();
        write_some(&mut table, &mut random, 100);
        let refused = table.shard.find_nearest(TABLE, &search, &ranges, 5, Duration::MAX).await.unwrap_err();
        assert!(matches!(refused, EngineError::IndexIncomplete { .. }));
        table.shard.alter_table(TABLE, indexed()).unwrap();
        table.shard.indexes_built(TABLE).await.unwrap();
        table.check_all(&mut random).await;
        table.close().await
    });
    run(async {
        let name = VECTORS.to_string();
        let files = disk.files();
        let path = files.keys().find(|path| path.to_string_lossy().contains(&name)).unwrap();
        assert!(disk.flip_bit(path, 300));
        let table = Table::open(&disk, timestamp, model).await;
        loop {
            let found = table.shard.find_nearest(TABLE, &search, &ranges, 5, Duration::MAX).await;
            match found {
                Ok(_) => break,
                Err(error) => assert!(matches!(error, EngineError::IndexIncomplete { .. }), "{error}"),
            }
            table.shard.indexes_built(TABLE).await.unwrap();
        }
        table.check_all(&mut random).await;
        table.shard.close().await.unwrap();
    });
}

fn nearest_to(target: &[f32], wanted: usize, tag: Option<u8>) -> NearestSearch {
    let of_tag = |tag| IndexRestriction { index: TAGS, terms: TermRange::OneOf(vec![vec![tag]]) };
    let restrictions = tag.into_iter().map(of_tag).collect();
    NearestSearch { index: VECTORS, target: bytes_of(target), restrictions, wanted }
}

#[test]
fn a_search_of_what_is_not_cached_ends_when_its_time_is_over_and_holds_little() {
    const WIDE: usize = 16_384;
    let disk = SimulatedDisk::new(5);
    let mut random = SplitMix64::new(7);
    let (timestamp, model) = run(async {
        let shard = open_with_options(&disk, indexed_with(WIDE)).await;
        let mut table = Table { shard, timestamp: 10, model: Model::new() };
        for row in 0..300 {
            table.put(1, row, (0..WIDE).map(|_| random.below(1_000) as f32).collect(), 0);
        }
        // Other flushes would wait for their pace.
        table.close().await
    });
    run(async {
        let shard = open_with_options(&disk, indexed_with(WIDE)).await;
        let table = Table { shard, timestamp, model };
        let before = table.shard.block_cache.statistics().used_bytes;
        let search = nearest_to(&vec![500.0; WIDE], 3, None);
        let ranges = [(Vec::new(), vec![0xFF; 9])];
        let found = table.shard.find_nearest(TABLE, &search, &ranges, 5, Duration::ZERO).await;
        assert!(matches!(found, Err(EngineError::SearchTooLong { .. })), "{found:?}");
        // The vectors take five times as much.
        let read = table.shard.block_cache.statistics().used_bytes - before;
        assert!(read <= 3 << 20, "{read} bytes");
        assert_eq!(table.find(&search, &[], &[0xFF; 9]).await.rows.len(), 3);
        table.shard.close().await.unwrap();
    });
}

#[test]
fn a_search_whose_index_goes_while_it_runs_is_refused() {
    let disk = SimulatedDisk::new(6);
    let mut random = SplitMix64::new(8);
    let (timestamp, model) = run(async {
        let mut table = Table::open(&disk, 10, Model::new()).await;
        // More than are compared one by one.
        for number in 0..3_000 {
            table.put(number % 100, number / 100, vector(&mut random), 1);
        }
        table.shard.flush(TABLE).await.unwrap();
        table.close().await
    });
    run(async {
        let table = Table::open(&disk, timestamp, model).await;
        let search = nearest_to(&[1.0; DIMENSION], 3, Some(1));
        let ranges = [(Vec::new(), vec![0xFF; 9])];
        let found = table.shard.find_nearest(TABLE, &search, &ranges, 5, Duration::MAX);
        let mut found = std::pin::pin!(found);
        assert!(futures::poll!(&mut found).is_pending(), "it waits for the disk");
        table.shard.alter_table(TABLE, TableOptions::default()).unwrap();
        let found = found.await;
        assert!(matches!(found, Err(EngineError::IndexIncomplete { .. })), "{found:?}");
        table.shard.close().await.unwrap();
    });
}

#[test]
fn a_search_of_many_partitions_ends_when_its_time_is_over() {
    let disk = SimulatedDisk::new(7);
    let mut random = SplitMix64::new(9);
    run(async {
        let mut table = Table::open(&disk, 10, Model::new()).await;
        for number in 0..400 {
            table.put(number % 200, number / 200, vector(&mut random), 1);
        }
        let ranges: Vec<_> =
            (0..200).map(|partition| (key_of(partition, 0), key_of(partition, u16::MAX))).collect();
        let search = nearest_to(&[1.0; DIMENSION], 400, None);
        let find = |until| table.shard.find_nearest(TABLE, &search, &ranges, 5, until);
        let found = find(Duration::ZERO).await;
        assert!(matches!(found, Err(EngineError::SearchTooLong { .. })), "{found:?}");
        assert_eq!(find(Duration::MAX).await.unwrap().rows.len(), 400);
        table.shard.flush(TABLE).await.unwrap();
        let (timestamp, model) = table.close().await;
        // What is missing for many of them is fetched at once.
        let table = Table::open(&disk, timestamp, model).await;
        let found = table.shard.find_nearest(TABLE, &search, &ranges, 5, Duration::MAX).await.unwrap();
        assert_eq!(found.rows.len(), 400);
        table.shard.close().await.unwrap();
    });
}

#[test]
fn rows_behind_many_that_were_overwritten_are_found() {
    let disk = SimulatedDisk::new(8);
    let mut random = SplitMix64::new(10);
    run(async {
        let mut table = Table::open(&disk, 10, Model::new()).await;
        let target = [0.0; DIMENSION];
        let around = |random: &mut SplitMix64, least: u64| -> Vec<f32> {
            (0..DIMENSION).map(|_| (least + random.below(1_000)) as f32).collect()
        };
        for number in 0..3_000 {
            let least = if number < 5 { 2_000 } else { 0 };
            table.put(number % 100, number / 100, around(&mut random, least), 1);
        }
        table.shard.flush(TABLE).await.unwrap();
        for number in 5..3_000 {
            table.put(number % 100, number / 100, around(&mut random, 100_000), 1);
        }
        for is_flushed in [false, true] {
            if is_flushed {
                table.shard.flush(TABLE).await.unwrap();
            }
            assert_eq!(table.check(&target, 5, |_, _| true, None).await, (5, 5));
            assert_eq!(table.check(&target, 5, |_, _| true, Some((TAGS, 1))).await, (5, 5));
        }
        table.shard.close().await.unwrap();
    });
}
