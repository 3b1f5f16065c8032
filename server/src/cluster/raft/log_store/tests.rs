use std::path::PathBuf;
use std::sync::Arc;

use helenus_engine::commit_log::{CommitLogOptions, SyncMode};
use helenus_engine::io::{
    CrashStyle, Disk, Environment, Fault, InlineBackground, ManualClock, SeededRandom, SimulatedDisk,
    SplitMix64,
};
use helenus_engine::{ShardOptions, TableOptions};
use helenus_ring::metadata::Command;
use openraft::EntryPayload;
use openraft::impls::leader_id_std::LeaderId;
use openraft::vote::RaftLeaderId;
use uuid::Uuid;

use super::*;

const NODE: Uuid = Uuid::from_u128(1);

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(LeaderId { term, voted_for: NODE }.to_committed(), index)
}

fn entry(term: u64, index: u64) -> Entry {
    let command = Command::Abort { host_id: Uuid::from_u128(u128::from(term * 1_000 + index)) };
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(command) }
}

/// An entry whose parts do not fit into one mutation.
fn large_entry(term: u64, index: u64) -> Entry {
    let text = "x".repeat(3 * PART_BYTES + index as usize);
    let event = helenus_query::schema::ddl::SchemaChangeEvent {
        change_type: helenus_query::schema::ddl::ChangeType::Created,
        target: helenus_query::schema::ddl::ChangeTarget::Table,
        keyspace: text,
        name: String::new(),
        arguments: Vec::new(),
    };
    let catalog = helenus_query::schema::system_tables::initial_catalog(NODE);
    let command = Command::ChangeSchema(helenus_ring::metadata::SchemaChangeCommand {
        base: NODE,
        changed: helenus_query::schema::document::CatalogDocument::difference(&catalog, &catalog),
        dropped: Vec::new(),
        event,
        creator: None,
        first_streams_ms: None,
    });
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(command) }
}

fn vote(term: u64) -> Vote {
    Vote::new_committed(term, NODE)
}

async fn open(disk: &SimulatedDisk, sync: SyncMode) -> LogStore {
    try_to_open(disk, sync).await.unwrap()
}

async fn try_to_open(disk: &SimulatedDisk, sync: SyncMode) -> Result<LogStore, io::Error> {
    let random = Rc::new(SeededRandom::new(disk.operations()));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let clock: Rc<dyn Clock> = Rc::new(ManualClock::new(1_700_000_000_000_000));
    let mut options = ShardOptions::new(PathBuf::from("/shard"));
    options.commit_log = CommitLogOptions { sync, segment_bytes: 1 << 20, ..CommitLogOptions::default() };
    let environment = Environment {
        background: Rc::new(InlineBackground::new(disk.clone(), clock.clone())),
        disk,
        clock: clock.clone(),
        random,
    };
    let shard = Shard::open(environment, options).await.unwrap();
    shard.create_tables(&[(TABLE.0, TableOptions::default())]).await.unwrap();
    LogStore::open(shard, clock).await
}

async fn append(store: &mut LogStore, entries: Vec<Entry>) -> Result<(), io::Error> {
    let (sender, receiver) =
        <super::super::runtime::LocalOneshot as openraft::async_runtime::Oneshot>::channel();
    store.append(entries, IOFlushed::signal(sender)).await?;
    receiver.await.map_err(io::Error::other)?
}

/// The content of a log, as text to compare.
async fn contents(store: &mut LogStore) -> String {
    let entries = store.try_get_log_entries(..).await.unwrap();
    let state = store.get_log_state().await.unwrap();
    format!("{:?} {:?} {entries:?}", store.read_vote().await.unwrap(), state)
}

/// Runs a future on a thread of its own runtime, whose tasks end with it.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

#[test]
fn a_log_reads_back_as_it_was() {
    for sync in [SyncMode::Group, SyncMode::Periodic { period: std::time::Duration::from_secs(10) }] {
        let disk = SimulatedDisk::new(1);
        let before = run(async {
            let mut store = open(&disk, sync).await;
            store.save_vote(&vote(1)).await.unwrap();
            append(&mut store, (0..10).map(|index| entry(1, index)).collect()).await.unwrap();
            store.truncate_after(Some(log_id(1, 5))).await.unwrap();
            // At indexes where other entries were, in an older term than theirs.
            append(&mut store, vec![entry(0, 6), large_entry(2, 7), entry(2, 8)]).await.unwrap();
            store.purge(log_id(1, 3)).await.unwrap();
            store.save_vote(&vote(2)).await.unwrap();
            append(&mut store, vec![large_entry(2, 9)]).await.unwrap();
            let state = store.get_log_state().await.unwrap();
            assert_eq!(
                (state.last_purged_log_id, state.last_log_id),
                (Some(log_id(1, 3)), Some(log_id(2, 9)))
            );
            contents(&mut store).await
        });
        disk.crash();
        disk.restart(CrashStyle::LoseAll, 0);
        run(async {
            let mut store = open(&disk, sync).await;
            assert_eq!(contents(&mut store).await, before);
            // Entries written now are not hidden by deletions made before the restart.
            store.truncate_after(Some(log_id(0, 6))).await.unwrap();
            append(&mut store, vec![entry(3, 7)]).await.unwrap();
        });
        disk.crash();
        disk.restart(CrashStyle::LoseAll, 0);
        run(async {
            let mut store = open(&disk, sync).await;
            let state = store.get_log_state().await.unwrap();
            assert_eq!(state.last_log_id, Some(log_id(3, 7)));
        });
    }
}

#[test]
fn a_log_that_was_purged_beyond_its_end_is_empty_and_continues_there() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let mut store = open(&disk, SyncMode::Group).await;
        append(&mut store, vec![entry(1, 0), entry(1, 1)]).await.unwrap();
        store.purge(log_id(4, 100)).await.unwrap();
        append(&mut store, vec![entry(4, 101)]).await.unwrap();
    });
    run(async {
        let mut store = open(&disk, SyncMode::Group).await;
        let state = store.get_log_state().await.unwrap();
        assert_eq!(
            (state.last_purged_log_id, state.last_log_id),
            (Some(log_id(4, 100)), Some(log_id(4, 101)))
        );
        assert_eq!(store.try_get_log_entries(0..=101).await.unwrap().len(), 1);
    });
}

#[test]
fn entries_that_no_crash_can_have_cut_off_are_missed() {
    // Entries 0 to 4; the last has several parts. The rows that get lost, and the index that the error names.
    let cases =
        [(0..1, Some(0)), (0..2, Some(0)), (2..3, Some(2)), (1..4, Some(1)), (0..5, None), (3..5, None)];
    for (lost, missed) in cases {
        let disk = SimulatedDisk::new(1);
        run(async {
            let mut store = open(&disk, SyncMode::Group).await;
            let mut entries: Vec<Entry> = (0..4).map(|index| entry(1, index)).collect();
            entries.push(large_entry(1, 4));
            append(&mut store, entries).await.unwrap();
            let rows = (entry_position(lost.start), entry_position(lost.end));
            store.write(Vec::new(), Some(rows), |_| {}).await.unwrap();
        });
        run(async {
            let opened = try_to_open(&disk, SyncMode::Group).await;
            match missed {
                None => assert!(opened.is_ok(), "{lost:?}: the end of a log may be missing"),
                Some(index) => {
                    let error = opened.err().unwrap().to_string();
                    assert!(error.contains(&format!("number {index} is missing")), "{lost:?}: {error}");
                }
            }
        });
    }
}

#[test]
fn a_log_whose_write_has_failed_is_not_read_any_more() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let mut store = open(&disk, SyncMode::Group).await;
        append(&mut store, vec![entry(1, 0)]).await.unwrap();
        disk.fail_at(disk.operations(), Fault::Error);
        assert!(append(&mut store, vec![entry(1, 1)]).await.is_err());
        // Other members would receive entries from it that the disk may lack.
        assert!(store.try_get_log_entries(0..=1).await.is_err());
    });
    run(async {
        let mut store = open(&disk, SyncMode::Group).await;
        let entries = store.try_get_log_entries(..).await.unwrap();
        assert_eq!(entries.first().map(|entry| entry.log_id), Some(log_id(1, 0)));
    });
}

/// Random steps until one fails. `history`: the content before and after the present step.
async fn steps(store: &mut LogStore, random: &mut SplitMix64, history: &RefCell<[String; 2]>) {
    let mut term = 1;
    loop {
        let state = store.get_log_state().await.unwrap();
        let next = state.last_log_id.map_or(0, |last| last.index() + 1);
        let first = state.last_purged_log_id.map_or(0, |purged| purged.index() + 1);
        let mut after = store.clone();
        after.log = Rc::new(RefCell::new(Log {
            entries: store.log.borrow().entries.clone(),
            vote: store.log.borrow().vote,
            purged: store.log.borrow().purged,
            ..Log::default()
        }));
        let step = random.below(10);
        let done = match step {
            0 => {
                term += 1;
                after.log.borrow_mut().vote = Some(vote(term));
                history.borrow_mut()[1] = contents(&mut after).await;
                store.save_vote(&vote(term)).await
            }
            1 if next > first => {
                let kept = first + random.below(next - first);
                let last = kept.checked_sub(1).map(|index| log_id(1, index));
                after.log.borrow_mut().entries.split_off(&kept);
                history.borrow_mut()[1] = contents(&mut after).await;
                store.truncate_after(last).await
            }
            2 if next > first => {
                let upto = first + random.below(next - first);
                let purged = store.log.borrow().entries[&upto].log_id;
                let rest = after.log.borrow_mut().entries.split_off(&(upto + 1));
                after.log.borrow_mut().entries = rest;
                after.log.borrow_mut().purged = Some(purged);
                history.borrow_mut()[1] = contents(&mut after).await;
                store.purge(purged).await
            }
            _ => {
                let new = if step == 3 { large_entry(term, next) } else { entry(term, next) };
                after.log.borrow_mut().entries.insert(next, new.clone());
                history.borrow_mut()[1] = contents(&mut after).await;
                append(store, vec![new]).await
            }
        };
        if done.is_err() {
            return;
        }
        let present = history.borrow()[1].clone();
        history.borrow_mut()[0] = present;
    }
}

#[test]
fn acknowledged_writes_survive_a_crash_at_any_point() {
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let disk = SimulatedDisk::new(seed);
        let sync = if seed % 2 == 0 {
            SyncMode::Group
        } else {
            SyncMode::Periodic { period: std::time::Duration::from_secs(10) }
        };
        let history = RefCell::new([String::new(), String::new()]);
        for life in 0..4 {
            run(async {
                let mut store = open(&disk, sync).await;
                let found = contents(&mut store).await;
                if life > 0 {
                    assert!(
                        history.borrow().contains(&found),
                        "seed {seed}: {found:.500}\n{:.500}\n{:.500}",
                        history.borrow()[0],
                        history.borrow()[1]
                    );
                }
                *history.borrow_mut() = [found.clone(), found];
                disk.crash_at(disk.operations() + 10 + random.below(150));
                steps(&mut store, &mut random, &history).await;
            });
            let style = CrashStyle::ALL[random.below(CrashStyle::ALL.len() as u64) as usize];
            disk.restart(style, random.next_u64());
        }
    }
}
