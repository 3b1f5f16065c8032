//! Secondary indexes: whatever is written, flushed, compacted, restarted or lost, a search finds every row that has the term.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::*;
use crate::cell::Deletion;
use crate::commit_log::LogPosition;
use crate::key::{KeyRef, STATIC_POSITION};
use crate::row::RowRef;
use crate::secondary_index::{
    IndexDefinition, IndexId, IndexRestriction, IndexSearch, IndexTerms, Subject, TermRange,
};
use crate::shard::FoundKeys;

const VALUES: IndexId = IndexId([1; 16]);
const KEYS: IndexId = IndexId([2; 16]);

/// The values of column 1, of partitions where they are static.
#[derive(Debug)]
struct ValueTerms;

impl IndexTerms for ValueTerms {
    fn visit(&self, key: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
        let subject = if key.position == STATIC_POSITION { Subject::Partition } else { Subject::Row };
        for cell in row.cells().filter(|cell| cell.kind == CellKind::Live) {
            visit(subject, cell.value);
        }
    }
}

/// The first byte of the partition key.
#[derive(Debug)]
struct KeyTerms;

impl IndexTerms for KeyTerms {
    fn visit(&self, key: &KeyRef<'_>, _: RowRef<'_>, visit: &mut dyn FnMut(Subject, &[u8])) {
        visit(Subject::Partition, &key.partition_key[..1]);
    }
}

fn indexed() -> TableOptions {
    TableOptions {
        indexes: vec![
            IndexDefinition { id: VALUES, terms: Arc::new(ValueTerms), vectors: None },
            IndexDefinition { id: KEYS, terms: Arc::new(KeyTerms), vectors: None },
        ],
        ..TableOptions::default()
    }
}

type Model = BTreeMap<(u8, u8), u8>;

/// A partition with key `[partition]`, in token order.
fn key_of(partition: u8, position: &[u8]) -> Vec<u8> {
    full_key(i64::from(partition), &[partition], position).unwrap()
}

struct Writer {
    timestamp: i64,
    model: Model,
    /// The position of the last mutation in the log.
    written: LogPosition,
}

impl Default for Writer {
    fn default() -> Self {
        Self { timestamp: 10, model: Model::new(), written: LogPosition::default() }
    }
}

impl Writer {
    fn apply(&mut self, shard: &Shard, partition: u8, fill: impl FnOnce(&mut MutationBuilder, i64)) {
        self.timestamp += 1;
        let mut builder = MutationBuilder::new(TABLE, i64::from(partition), &[partition]).unwrap();
        fill(&mut builder, self.timestamp);
        self.written = shard.apply(&builder.build().view().unwrap()).unwrap();
    }

    fn put(&mut self, shard: &Shard, partition: u8, position: u8, value: u8) {
        self.apply(shard, partition, |builder, timestamp| {
            let mut row = RowBuilder::new();
            row.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value: &[value, 0, 7] });
            builder.row(&[2, position], &mut row);
        });
        self.model.insert((partition, position), value);
    }

    fn delete_partition(&mut self, shard: &Shard, partition: u8) {
        self.apply(shard, partition, |builder, timestamp| {
            let deletion = Deletion { timestamp, local_deletion_time: 5 };
            builder.delete_partition(deletion);
        });
        self.model.retain(|(of, _), _| *of != partition);
    }
}

fn search(index: IndexId, terms: TermRange) -> IndexSearch {
    IndexSearch { restrictions: vec![IndexRestriction { index, terms }] }
}

async fn find(shard: &Shard, search: &IndexSearch, start: &[u8], keys_max: usize) -> Vec<Vec<u8>> {
    let (mut keys, mut start) = (Vec::new(), start.to_vec());
    loop {
        let found =
            shard.find_keys(TABLE, search, &start, &[0xFF; 9], keys_max, Duration::MAX).await.unwrap();
        assert!(found.keys.len() <= keys_max && found.keys.is_sorted());
        let FoundKeys { keys: more, resume } = found;
        assert!(keys.last().zip(more.first()).is_none_or(|(last, first)| last < first));
        keys.extend(more);
        match resume {
            Some(resume) => start = resume,
            None => return keys,
        }
    }
}

/// Every row of the model that has an accepted value is found, from any start.
async fn check(shard: &Shard, model: &Model) {
    for keys_max in [1, 3, 1_000] {
        for (low, high) in [(0, 0), (3, 3), (2, 5), (0, 255)] {
            let terms = if low == high {
                TermRange::OneOf(vec![vec![low, 0, 7], vec![200]])
            } else {
                TermRange::Between {
                    lower: Bound::Included(vec![low]),
                    upper: Bound::Excluded(vec![high.saturating_add(1)]),
                }
            };
            let is_wanted = |value: u8| low <= value && value <= high;
            for start in [vec![], key_of(9, &[]), key_of(9, &[2, 4]), key_of(9, &[2, 4, 0])] {
                let found: BTreeSet<_> =
                    find(shard, &search(VALUES, terms.clone()), &start, keys_max).await.into_iter().collect();
                for (&(partition, position), &value) in model {
                    let key = key_of(partition, &[2, position]);
                    let is_expected = is_wanted(value) && key >= start;
                    assert!(!is_expected || found.contains(&key), "{partition} {position} {value}");
                    assert!(key >= start || !found.contains(&key));
                }
            }
        }
        let partitions: BTreeSet<u8> = model.keys().map(|(partition, _)| *partition).collect();
        for partition in partitions {
            let of_key = search(KEYS, TermRange::OneOf(vec![vec![partition]]));
            let expected = [key_of(partition, STATIC_POSITION)];
            for start in [&[][..], &[2, 4]] {
                assert_eq!(find(shard, &of_key, &key_of(partition, start), keys_max).await, expected);
            }
        }
    }
}

async fn open_indexed(disk: &SimulatedDisk) -> Rc<Shard> {
    let shard = Shard::open(environment(disk), ShardOptions::new(Path::new("shard"))).await.unwrap();
    shard.create_table(TABLE, indexed()).await.unwrap();
    shard.indexes_built(TABLE).await.unwrap();
    shard
}

fn index_files(disk: &SimulatedDisk) -> usize {
    disk.files().keys().filter(|path| path.to_string_lossy().contains(".index")).count()
}

#[test]
fn searches_find_every_row_through_flushes_compactions_and_restarts() {
    let disk = SimulatedDisk::new(3);
    let mut writer = Writer::default();
    let mut random = crate::io::SplitMix64::new(5);
    for round in 0..6 {
        run(async {
            let shard = open_indexed(&disk).await;
            check(&shard, &writer.model).await;
            for step in 0..150 {
                let (partition, position) = (random.below(20) as u8, random.below(8) as u8);
                match random.below(30) {
                    0 => writer.delete_partition(&shard, partition),
                    1 => shard.flush(TABLE).await.unwrap(),
                    2 if step % 2 == 0 => shard.compact(TABLE).await.unwrap(),
                    _ => writer.put(&shard, partition, position, random.below(7) as u8),
                }
            }
            check(&shard, &writer.model).await;
            if round % 2 == 0 {
                shard.close().await.unwrap();
            } else {
                shard.on_disk(writer.written).await.unwrap();
            }
        });
    }
    run(async {
        let shard = open_indexed(&disk).await;
        shard.compact(TABLE).await.unwrap();
        assert_eq!(index_files(&disk), 2, "those of files that are gone are removed");
        // What no row has any more is not in the index of a merged file.
        let gone = search(VALUES, TermRange::OneOf(vec![vec![200]]));
        assert_eq!(find(&shard, &gone, &[], 10).await, Vec::<Vec<u8>>::new());
        let all = search(VALUES, TermRange::Between { lower: Bound::Unbounded, upper: Bound::Unbounded });
        assert_eq!(find(&shard, &all, &[], 10).await.len(), writer.model.len());
        shard.truncate(TABLE).await.unwrap();
        assert_eq!(index_files(&disk), 0);
        assert_eq!(find(&shard, &all, &[], 10).await.len(), 0);
    });
}

#[test]
fn an_index_of_a_table_with_rows_is_built_and_a_dropped_one_leaves_nothing() {
    let disk = SimulatedDisk::new(4);
    let mut writer = Writer::default();
    run(async {
        let shard = open(&disk).await;
        for number in 0..40 {
            writer.put(&shard, number % 11, number, number % 5);
            if number % 15 == 14 {
                shard.flush(TABLE).await.unwrap();
            }
        }
        let any = search(VALUES, TermRange::OneOf(vec![vec![1, 0, 7]]));
        let refused = shard.find_keys(TABLE, &any, &[], &[0xFF; 9], 10, Duration::MAX).await.unwrap_err();
        assert!(matches!(refused, EngineError::IndexIncomplete { .. }));
        shard.alter_table(TABLE, indexed()).unwrap();
        let refused = shard.find_keys(TABLE, &any, &[], &[0xFF; 9], 10, Duration::MAX).await.unwrap_err();
        assert!(matches!(refused, EngineError::IndexIncomplete { .. }), "never too little");
        shard.indexes_built(TABLE).await.unwrap();
        check(&shard, &writer.model).await;
        let statuses = shard.index_statuses(TABLE).unwrap();
        assert!(statuses.iter().all(|status| status.is_complete && status.indexed_files == 3));
        // One of them is dropped while the node is down.
        shard.close().await.unwrap();
    });
    run(async {
        let shard = open(&disk).await;
        let mut only_values = indexed();
        only_values.indexes.truncate(1);
        shard.alter_table(TABLE, only_values).unwrap();
        shard.indexes_built(TABLE).await.unwrap();
        while index_files(&disk) != 3 {
            tokio::task::yield_now().await;
        }
        shard.alter_table(TABLE, TableOptions::default()).unwrap();
        while index_files(&disk) != 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(rows(&shard).unwrap(), writer.model.len());
        shard.alter_table(TABLE, indexed()).unwrap();
        shard.indexes_built(TABLE).await.unwrap();
        check(&shard, &writer.model).await;
    });
}

#[test]
fn a_missing_a_damaged_and_an_unfinished_index_file_are_made_again() {
    let disk = SimulatedDisk::new(5);
    let mut writer = Writer::default();
    run(async {
        let shard = open_indexed(&disk).await;
        for number in 0..200 {
            writer.put(&shard, number % 11, number, number % 5);
        }
        shard.flush(TABLE).await.unwrap();
        shard.close().await.unwrap();
    });
    let files = disk.files();
    let paths: Vec<_> =
        files.keys().filter(|path| path.to_string_lossy().ends_with(".index")).cloned().collect();
    assert_eq!(paths.len(), 2);
    for path in &paths {
        let bytes = &files[path];
        // Nothing of it, a flipped bit anywhere, a cut, and one that was being written.
        let mut cases = vec![None, Some(bytes[..bytes.len() / 2].to_vec()), Some(Vec::new())];
        for at in [0, 5, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            cases.push(Some(flipped));
        }
        for case in cases {
            let mut changed = files.clone();
            match case {
                None => drop(changed.remove(path)),
                Some(bytes) => drop(changed.insert(path.clone(), bytes)),
            }
            changed.insert(path.with_extension("index.tmp"), b"half".to_vec());
            changed.insert(path.with_extension("index.tmp.0"), b"part".to_vec());
            let disk = SimulatedDisk::with_files(1, &changed);
            run(async {
                let shard = open_indexed(&disk).await;
                let all =
                    search(VALUES, TermRange::Between { lower: Bound::Unbounded, upper: Bound::Unbounded });
                let of_keys =
                    search(KEYS, TermRange::Between { lower: Bound::Unbounded, upper: Bound::Unbounded });
                for search in [&all, &of_keys] {
                    // A damaged block is met by the first search.
                    if let Err(error) =
                        shard.find_keys(TABLE, search, &[], &[0xFF; 9], 1_000, Duration::MAX).await
                    {
                        assert!(matches!(error, EngineError::IndexIncomplete { .. }), "{error}");
                        shard.indexes_built(TABLE).await.unwrap();
                    }
                }
                check(&shard, &writer.model).await;
                assert_eq!(index_files(&disk), 2, "what was not finished is removed");
                assert!(disk.files().keys().all(|path| !path.starts_with("shard/quarantine")));
            });
        }
    }
}

#[test]
fn rebuilt_indexes_replace_the_former_ones_and_searches_go_on() {
    let disk = SimulatedDisk::new(6);
    let mut writer = Writer::default();
    run(async {
        let shard = open_indexed(&disk).await;
        for number in 0..200 {
            writer.put(&shard, number % 11, number, number % 5);
            if number % 90 == 80 {
                shard.flush(TABLE).await.unwrap();
            }
        }
        // Nobody has read the damaged blocks when the files are made anew.
        let files = disk.files();
        let of_values = format!("{VALUES}.index");
        let paths: Vec<_> =
            files.keys().filter(|path| path.to_string_lossy().ends_with(&of_values)).collect();
        assert_eq!(paths.len(), 2);
        assert!(paths.iter().all(|path| disk.flip_bit(path, 100)));
        shard.rebuild_indexes(TABLE, &[VALUES]).await.unwrap();
        check(&shard, &writer.model).await;

        // A failure leaves the former ones.
        disk.set_capacity_bytes(disk.used_bytes());
        assert!(shard.rebuild_indexes(TABLE, &[VALUES, KEYS]).await.unwrap_err().is_full());
        disk.set_capacity_bytes(u64::MAX);
        assert!(shard.index_statuses(TABLE).unwrap().iter().all(|status| !status.is_building));
        check(&shard, &writer.model).await;

        let searches = async {
            let any = search(VALUES, TermRange::OneOf(vec![vec![1, 0, 7]]));
            let mut was_building = false;
            loop {
                shard.find_keys(TABLE, &any, &[], &[0xFF; 9], 10, Duration::MAX).await.unwrap();
                let statuses = shard.index_statuses(TABLE).unwrap();
                let is_building = statuses.iter().any(|status| status.is_building);
                if was_building && !is_building {
                    return;
                }
                was_building |= is_building;
                tokio::task::yield_now().await;
            }
        };
        let (rebuilt, ()) = futures::join!(shard.rebuild_indexes(TABLE, &[VALUES, KEYS]), searches);
        rebuilt.unwrap();
        assert_eq!(index_files(&disk), 4, "nothing else is left");
        check(&shard, &writer.model).await;
        shard.close().await.unwrap();
    });
    run(async {
        let shard = open_indexed(&disk).await;
        check(&shard, &writer.model).await;
        let statuses = shard.index_statuses(TABLE).unwrap();
        assert!(statuses.iter().all(|status| status.is_complete && !status.is_building));
    });
}

#[test]
fn the_index_of_each_file_is_described() {
    let disk = SimulatedDisk::new(7);
    let mut writer = Writer::default();
    run(async {
        let shard = open_indexed(&disk).await;
        for (partition, position, value) in [(3, 1, 7), (5, 1, 0), (5, 2, 9)] {
            writer.put(&shard, partition, position, value);
        }
        shard.flush(TABLE).await.unwrap();
        let statuses = shard.index_file_statuses(TABLE).unwrap();
        let [values, keys] = statuses.as_slice() else { panic!("{statuses:?}") };
        assert_eq!((values.index, values.rows, values.entries, values.tokens), (VALUES, 3, 3, (3, 5)));
        assert_eq!(values.terms, Some((vec![0, 0, 7], vec![9, 0, 7])));
        assert_eq!((keys.index, keys.rows, keys.entries), (KEYS, 3, 2));
        assert_eq!(keys.terms, Some((vec![3], vec![5])));
        assert_eq!(keys.path, values.path);
        let statistics = shard.statistics(TABLE).unwrap();
        assert_eq!(statistics.index_bytes, keys.disk_bytes + values.disk_bytes);
        assert_eq!(statistics.missing_indexes, 0);
    });
}

#[test]
fn the_index_files_of_a_range_are_counted() {
    let disk = SimulatedDisk::new(7);
    let mut writer = Writer::default();
    run(async {
        let shard = open_indexed(&disk).await;
        shard.set_auto_compaction(TABLE, false).unwrap();
        let count = |indexes: &[IndexId], start: &[u8], end: &[u8]| {
            shard.index_file_count(TABLE, indexes, (start, end)).unwrap()
        };
        let everything: (&[u8], &[u8]) = (&[], &[0xFF; 9]);
        for partition in 0..3 {
            writer.put(&shard, partition, 1, 1);
            assert_eq!(
                count(&[VALUES], everything.0, everything.1),
                usize::from(partition),
                "memtables do not count"
            );
            shard.flush(TABLE).await.unwrap();
        }
        assert_eq!(count(&[VALUES, KEYS], everything.0, everything.1), 6);
        assert_eq!(count(&[VALUES], &key_of(1, &[]), &key_of(2, &[])), 1);
        shard.compact(TABLE).await.unwrap();
        assert_eq!(count(&[VALUES], everything.0, everything.1), 1);
    });
}
