//! A table from pieces is the table of a single writer, wherever the pieces end.

use std::sync::Mutex;

use super::*;
use crate::partition_watch::{FilePartitions, PartitionWatch, WrittenPartition};
use crate::{Counted, PieceBuilder, TablePiece, WrittenTable, verify, verify_between};

const DELETION: Deletion = Deletion { timestamp: 1_700_000_000_000_000, local_deletion_time: 5 };

type KeyAndRow<'a> = (&'a Vec<u8>, &'a Vec<u8>);

/// Prefix, bytes and tombstones of each partition.
type Seen = Arc<Mutex<Vec<(Vec<u8>, u64, u64)>>>;

#[derive(Debug, Default)]
struct Watch(Seen);

impl PartitionWatch for Watch {
    fn begin(&self, _path: &Path) -> Box<dyn FilePartitions> {
        Box::new(Watch(Arc::clone(&self.0)))
    }
}

impl FilePartitions for Watch {
    fn look_at(&mut self, partition: &WrittenPartition<'_>) {
        self.0.lock().unwrap().push((partition.prefix.to_vec(), partition.bytes, partition.tombstones));
    }
}

fn prefix_of(key: &[u8]) -> &[u8] {
    &key[..crate::key::prefix_length(key).unwrap()]
}

/// Some partitions are deleted, and some have nothing but a deletion.
fn deletions(rows: &Rows, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let mut prefixes: Vec<Vec<u8>> =
        rows.keys().map(|key| prefix_of(key).to_vec()).filter(|_| random.chance(1, 20)).collect();
    for number in 0..10_u8 {
        prefixes.push(full_key(random.next_u64() as i64, &[number], &[]).unwrap());
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// The rows and deletions in their order, cut into pieces by several builders.
fn pieces(
    rows: &Rows,
    deleted: &[Vec<u8>],
    options: &TableOptions,
    random: &mut SplitMix64,
) -> Vec<TablePiece> {
    let mut partitions: BTreeMap<&[u8], Vec<KeyAndRow<'_>>> = BTreeMap::new();
    for (key, row) in rows {
        partitions.entry(prefix_of(key)).or_default().push((key, row));
    }
    for prefix in deleted {
        partitions.entry(prefix).or_default();
    }
    let mut builder = PieceBuilder::new(options);
    let mut pieces = Vec::new();
    for (prefix, rows) in partitions {
        if random.chance(1, 3) {
            pieces.extend(builder.take(true).unwrap());
        }
        if random.chance(1, 5) {
            // What a thread has, another one goes on behind.
            pieces.extend(builder.take(true).unwrap());
            builder = PieceBuilder::new(options);
        }
        if deleted.iter().any(|deleted| deleted == prefix) {
            builder.add_range_tombstone(&[prefix, &[0]].concat(), &[prefix, &[0xFF]].concat(), DELETION);
        }
        for (key, row) in rows {
            if random.chance(1, 10) {
                pieces.extend(builder.take(false).unwrap());
            }
            builder.add(key, RowRef::new(row, 0)).unwrap();
            // Also behind the last row of a partition.
            if random.chance(1, 10) {
                pieces.extend(builder.take(false).unwrap());
            }
        }
    }
    pieces.extend(builder.take(true).unwrap());
    pieces
}

#[test]
fn a_table_from_pieces_is_that_of_a_single_writer() {
    for seed in 0..30 {
        let mut random = SplitMix64::new(seed);
        let rows = sample(1 + seed * 2, 1 + seed, seed);
        let deleted = deletions(&rows, &mut random);
        let (seen, seen_in_pieces) = (Seen::default(), Seen::default());
        let options = |seen: &Seen| TableOptions {
            block_bytes: 512,
            partition_watch: Some(Arc::new(Watch(Arc::clone(seen)))),
            ..TableOptions::default()
        };
        let pieces = pieces(&rows, &deleted, &options(&seen_in_pieces), &mut random);
        block_on(async {
            let disk = SimulatedDisk::new(seed);
            let mut written = Vec::new();
            for (path, options, pieces) in
                [("single", options(&seen), None), ("pieces", options(&seen_in_pieces), Some(&pieces))]
            {
                let mut writer = TableWriter::create(&disk, Path::new(path), options).await.unwrap();
                match pieces {
                    Some(pieces) => {
                        for piece in pieces {
                            writer.append(piece).await.unwrap();
                        }
                    }
                    None => add_all(&mut writer, &rows, &deleted).await,
                }
                let WrittenTable { statistics, row_hashes } = writer.finish().await.unwrap();
                let table = TableReader::open_file(&disk, Path::new(path), 1).await.unwrap();
                verify(&table, &statistics, async |_| {}).await.unwrap();
                written.push((statistics, row_hashes, table));
            }
            let [(statistics, hashes, single), (in_pieces, piece_hashes, table)] = &written[..] else {
                panic!("two tables")
            };
            assert_eq!((in_pieces, piece_hashes), (statistics, hashes), "seed {seed}");
            assert_eq!(read_forwards(table, None).unwrap(), rows);
            assert_eq!(read_backwards(table).unwrap(), rows);
            let range_tombstones = |table: &TableReader| {
                let all = table.range_tombstones();
                (0..all.len()).map(|number| all.get(number).unwrap().prefix.to_vec()).collect::<Vec<_>>()
            };
            assert_eq!(range_tombstones(table), range_tombstones(single));
            assert_eq!(*seen_in_pieces.lock().unwrap(), *seen.lock().unwrap(), "seed {seed}");
            let mut counted = Counted::default();
            let mut start = Vec::new();
            for bound in rows.keys().map(|key| prefix_of(key)).filter(|_| random.chance(1, 30)) {
                if bound > start.as_slice() {
                    counted.add(verify_between(table, &start, Some(bound), async |_| {}).await.unwrap());
                    start = bound.to_vec();
                }
            }
            counted.add(verify_between(table, &start, None, async |_| {}).await.unwrap());
            counted.check(table, statistics).unwrap();
            let missing = Counted { rows: counted.rows - 1, ..counted };
            assert!(matches!(missing.check(table, statistics), Err(TableError::Damaged { .. })));
        });
    }
}

/// As a merge does it: the deletion of a partition, then its rows.
async fn add_all(writer: &mut TableWriter, rows: &Rows, deleted: &[Vec<u8>]) {
    let mut deleted = deleted.iter().peekable();
    let mut delete = |writer: &mut TableWriter, up_to: Option<&[u8]>| {
        while let Some(prefix) =
            deleted.next_if(|prefix| up_to.is_none_or(|up_to| prefix.as_slice() <= up_to))
        {
            let (start, end) = ([prefix.as_slice(), &[0]].concat(), [prefix.as_slice(), &[0xFF]].concat());
            writer.add_range_tombstone(&start, &end, DELETION).unwrap();
        }
    };
    for (key, row) in rows {
        delete(writer, Some(prefix_of(key)));
        writer.add(key, RowRef::new(row, 0)).await.unwrap();
    }
    delete(writer, None);
}

#[test]
fn a_piece_must_come_behind_what_is_there() {
    block_on(async {
        let rows = sample(5, 5, 1);
        let options = TableOptions::default();
        let pieces = pieces(&rows, &[], &options, &mut SplitMix64::new(1));
        let disk = SimulatedDisk::new(1);
        let mut writer = TableWriter::create(&disk, Path::new(PATH), options).await.unwrap();
        let last = pieces.last().unwrap();
        assert!(last.min_key() > pieces[0].min_key() && pieces[0].begins_partition());
        writer.append(last).await.unwrap();
        assert!(matches!(writer.append(&pieces[0]).await, Err(TableError::Disorder { .. })));
    });
}
