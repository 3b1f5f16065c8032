//! Partitions of the files of flushes and compactions are measured for who looks at them: each once, with its range tombstones.

use std::path::Path;
use std::sync::{Arc, Mutex};

use helenus_engine::io::SimulatedDisk;
use helenus_engine::{
    Deletion, FilePartitions, MutationBuilder, PartitionWatch, TableOptions, WrittenPartition,
};

use crate::support::{NOW, TABLE, apply, open, put, run_local, table_options};

/// Token, bytes and tombstones of each partition.
type Seen = Arc<Mutex<Vec<(i64, u64, u64)>>>;

#[derive(Debug, Default)]
struct Watch(Seen);

struct File(Seen);

fn token_of(prefix: &[u8]) -> i64 {
    helenus_engine::key::KeyRef::parse(prefix).unwrap().token
}

impl PartitionWatch for Watch {
    fn begin(&self, path: &Path) -> Box<dyn FilePartitions> {
        assert!(path.to_str().unwrap().ends_with(".sst.tmp"), "{}", path.display());
        Box::new(File(Arc::clone(&self.0)))
    }
}

impl FilePartitions for File {
    fn look_at(&mut self, partition: &WrittenPartition<'_>) {
        let seen = (token_of(partition.prefix), partition.bytes, partition.tombstones);
        self.0.lock().unwrap().push(seen);
    }
}

#[test]
fn each_partition_of_a_file_is_seen_once_with_its_tombstones() {
    run_local(async {
        let shard = open(&SimulatedDisk::new(1)).await;
        let seen = Seen::default();
        let mut options: TableOptions = table_options();
        options.writer.partition_watch = Some(Arc::new(Watch(Arc::clone(&seen))));
        shard.alter_table(TABLE, options).unwrap();
        shard.set_auto_compaction(TABLE, false).unwrap();
        let delete = |token: i64, timestamp: i64| {
            let mut builder = MutationBuilder::new(TABLE, token, b"key").unwrap();
            builder.delete_partition(Deletion { timestamp, local_deletion_time: NOW });
            builder.build()
        };
        // The second partition has rows behind its range tombstone, and the third nothing but one.
        apply(&shard, &put(1, 0, 5, &[7; 500]));
        apply(&shard, &delete(2, 4));
        apply(&shard, &put(2, 0, 5, b"a"));
        apply(&shard, &put(2, 1, 5, b"b"));
        apply(&shard, &delete(3, 4));
        shard.flush(TABLE).await.unwrap();
        let flushed = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(flushed.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>(), [(1, 0), (2, 1), (3, 1)]);
        let (large, small) = (flushed[0].1, flushed[1].1);
        assert!(large > 500 && small < 200, "{flushed:?}");

        apply(&shard, &put(1, 1, 5, &[7; 500]));
        shard.flush(TABLE).await.unwrap();
        seen.lock().unwrap().clear();
        shard.compact(TABLE).await.unwrap();
        let compacted = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(compacted.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>(), [(1, 0), (2, 1), (3, 1)]);
        assert_eq!((compacted[0].1, compacted[1].1), (2 * large, small));
    });
}
