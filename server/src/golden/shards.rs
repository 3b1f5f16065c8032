//! Directories of shards: the metadata log and the state of transactions, in tables and in the commit log.

use super::messages::{accepted, ballot, commit};
use super::metadata::{entries, purged, vote};
use super::*;

const SHARD: &str = "/shard";
const METADATA: &str = "shard-metadata-log";
const TRANSACTIONS: &str = "shard-transactions";

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work);
}

async fn open(disk: &SimulatedDisk) -> (Rc<Shard>, Rc<dyn Clock>) {
    let random = Rc::new(SeededRandom::new(disk.operations()));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Rc<dyn Clock> = Rc::new(ManualClock::new(1_700_000_000_000_000));
    let mut options = ShardOptions::new(SHARD);
    options.commit_log =
        CommitLogOptions { sync: SyncMode::Group, segment_bytes: 64 << 10, ..CommitLogOptions::default() };
    let background = Rc::new(InlineBackground::new(disk.clone(), clock.clone()));
    let environment = Environment { disk, background, clock: clock.clone(), random };
    let shard = Shard::open(environment, options).await.unwrap();
    let tables = [
        (log_store::TABLE.0, helenus_engine::TableOptions::default()),
        (paxos_store::TABLE, paxos_store::table_options()),
    ];
    shard.create_tables(&tables).await.unwrap();
    (shard, clock)
}

/// Copies a shard's directory out.
async fn store(disk: &SimulatedDisk, directory: &Path) {
    let _ = fs::remove_dir_all(directory);
    let mut waiting = vec![PathBuf::new()];
    while let Some(inside) = waiting.pop() {
        fs::create_dir_all(directory.join(&inside)).unwrap();
        for entry in disk.list(&Path::new(SHARD).join(&inside)).await.unwrap() {
            let path = inside.join(&entry.name);
            if entry.is_directory {
                waiting.push(path);
            } else {
                let bytes = disk.read(&Path::new(SHARD).join(&path)).await.unwrap();
                fs::write(directory.join(path), bytes).unwrap();
            }
        }
    }
}

/// A disk with a copy of the directory.
async fn load(directory: &Path) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let mut waiting = vec![PathBuf::new()];
    while let Some(inside) = waiting.pop() {
        disk.create_directory(&Path::new(SHARD).join(&inside)).await.unwrap();
        for entry in fs::read_dir(directory.join(&inside)).unwrap() {
            let entry = entry.unwrap();
            let path = inside.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
            } else {
                let file = disk.create(&Path::new(SHARD).join(&path)).await.unwrap();
                file.write_and_sync_at(0, fs::read(entry.path()).unwrap().into()).await.unwrap();
            }
        }
    }
    disk
}

async fn append(log: &mut LogStore, entries: &[Entry]) {
    let (sender, receiver) = LocalOneshot::channel();
    log.append(entries.to_vec(), IOFlushed::signal(sender)).await.unwrap();
    receiver.await.unwrap().unwrap();
}

async fn write_metadata_log(disk: &SimulatedDisk) {
    let (shard, clock) = open(disk).await;
    let mut log = LogStore::open(shard.clone(), clock).await.unwrap();
    let entries = entries();
    log.save_vote(&Vote::new(1, host(2))).await.unwrap();
    append(&mut log, &entries[..6]).await;
    shard.flush(log_store::TABLE.0).await.unwrap();
    log.save_vote(&vote()).await.unwrap();
    append(&mut log, &entries[6..]).await;
    // The last one is truncated and written again.
    log.truncate_after(Some(entries[entries.len() - 2].log_id)).await.unwrap();
    append(&mut log, &entries[entries.len() - 1..]).await;
    log.purge(purged()).await.unwrap();
}

fn name(number: u8) -> PartitionName {
    PartitionName { table_id: [9; 16], token: i64::from(number), key: vec![b'k', number] }
}

/// Registers by partition: promised to a read and to a write, accepted, accepted nothing, committed, forgotten.
fn registers() -> Vec<(PartitionName, Registers)> {
    let empty = Registers { low_bound_micros: i64::MIN, ..Registers::default() };
    let (read, write) = (ballot(2_000), ballot(1_000));
    vec![
        (name(1), Registers { promised: Some(read), promised_write: Some(write), ..empty.clone() }),
        (name(2), Registers { accepted: Some(accepted(Some(b"mutation".to_vec()))), ..empty.clone() }),
        (name(3), Registers { accepted: Some(accepted(None)), ..empty.clone() }),
        (name(4), Registers { committed: Some(commit()), ..empty.clone() }),
        (name(5), Registers { low_bound_micros: 3_000, ..empty }),
    ]
}

async fn write_transactions(disk: &SimulatedDisk) {
    let (shard, _) = open(disk).await;
    let empty = Registers::default();
    let promise = |is_write| Change::Promise { is_write };
    let promised = |micros| Registers { promised: Some(ballot(micros)), ..empty.clone() };
    paxos_store::save(&shard, &name(1), &promised(1_000), promise(true)).unwrap();
    paxos_store::save(&shard, &name(5), &promised(3_000), promise(true)).unwrap();
    let [_, (_, value), (_, nothing), ..] = &registers()[..] else { panic!("five partitions") };
    paxos_store::save(&shard, &name(2), value, Change::Accept).unwrap();
    shard.flush(paxos_store::TABLE).await.unwrap();
    paxos_store::save(&shard, &name(1), &promised(2_000), promise(false)).unwrap();
    paxos_store::save(&shard, &name(3), nothing, Change::Accept).unwrap();
    paxos_store::save_commit(&shard, &name(4), &commit()).unwrap();
    let last = paxos_store::forget(&shard, &name(5), &ballot(3_000), 1_700_000_000, 3_600).unwrap();
    shard.durable(last).await.unwrap();
}

pub fn write(directory: &Path) {
    let directory = directory.to_owned();
    run(async move {
        let disk = SimulatedDisk::new(1);
        write_metadata_log(&disk).await;
        store(&disk, &directory.join(METADATA)).await;
        let disk = SimulatedDisk::new(1);
        write_transactions(&disk).await;
        store(&disk, &directory.join(TRANSACTIONS)).await;
    });
}

#[test]
fn the_metadata_log_of_a_release_is_read() {
    run(async {
        for release in RELEASES {
            let disk = load(&directory(release).join(METADATA)).await;
            let (shard, clock) = open(&disk).await;
            let mut log = LogStore::open(shard, clock).await.unwrap();
            assert_eq!(log.read_vote().await.unwrap(), Some(vote()), "{release}");
            assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, Some(purged()), "{release}");
            let read = log.try_get_log_entries(..).await.unwrap();
            assert_eq!(format!("{read:?}"), format!("{:?}", &entries()[2..]), "{release}");
        }
    });
}

#[test]
fn the_state_of_transactions_of_a_release_is_read() {
    run(async {
        for release in RELEASES {
            let disk = load(&directory(release).join(TRANSACTIONS)).await;
            let (shard, _) = open(&disk).await;
            let part = paxos_store::load_part(&shard, &[], usize::MAX).unwrap();
            assert_eq!(part.states, registers(), "{release}");
            for (name, registers) in registers() {
                assert_eq!(paxos_store::load(&shard, &name).unwrap(), registers, "{release}");
            }
        }
    });
}
