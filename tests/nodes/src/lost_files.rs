//! Property: whatever happens to any one file of the data directory while the node is down, no acknowledged row is lost in silence.
//!
//! A node of two shards writes, flushes, compacts, creates, drops and truncates tables, and is killed. Then one file is removed, cut,
//! flipped in one bit, or put back as it was earlier; or a file is put back that the node had removed. The next start has all
//! acknowledged rows and no others; or it (or a read) fails and names a file, and then no file was deleted that an undamaged start keeps.
//!
//! Left out: the newest segment of a commit log that has records. An older state of it, or its absence, looks the same as a torn
//! end.
//!
//! `HELENUS_LOST_FILES_SEEDS`: the number of histories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_engine::commit_log::read_segment;
use helenus_engine::io::{CrashStyle, FileContents, SimulatedDisk, SplitMix64};
use helenus_ring::HostId;
use uuid::Uuid;

use helenus::testing::client::{self, integer};
use helenus::testing::cluster::{Cluster, simulate};
use helenus::testing::links::Links;
use helenus::testing::machine::Machine;
use helenus::testing::node::begin;

const HOST: HostId = Uuid::from_u128(7);
const STEPS: usize = 60;
const HARMS: usize = 40;
/// Earlier contents that are kept of each file.
const VERSIONS_MAX: usize = 4;
/// Time limit for a step, in virtual time.
const PATIENCE: Duration = Duration::from_mins(5);

/// Acknowledged rows by table.
type Rows = BTreeMap<String, BTreeMap<i64, String>>;

/// The files and rows that a history has left.
struct Left {
    files: FileContents,
    /// Earlier contents of files, also of those that are gone.
    earlier: BTreeMap<PathBuf, Vec<Vec<u8>>>,
    rows: Rows,
    /// The table of the step that was under way at the crash: it may have happened or not.
    uncertain: Option<String>,
}

fn machine(cluster: &Cluster, disk: SimulatedDisk, seed: u64) -> Rc<Machine> {
    let config = Config {
        data_dir: "/data".into(),
        shards: Some(2),
        num_tokens: 2,
        commit_log_segment_bytes: 64 << 10,
        commit_log_total_bytes: 1 << 20,
        memtable_bytes: 256 << 10,
        ..Config::default()
    };
    cluster.add_with_disk(HOST, ([10, 0, 0, 1], 7000).into(), config, disk, seed)
}

async fn boot(machine: &Rc<Machine>) -> Result<(), String> {
    machine.boot(|contexts| async move { begin(&contexts).await }).await
}

/// Executes a statement; the rows are pairs of a number and a text.
async fn ask(machine: &Rc<Machine>, statement: String) -> Result<BTreeMap<i64, String>, String> {
    // Each write has a time of its own, also after a restart.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let context = machine.context(0).ok_or("the node is down")?;
    let answered = machine.run(async move {
        client::ask(&context, &statement, &client::options(Consistency::One))
            .await
            .map_err(|error| error.to_string())
    });
    let answer = tokio::time::timeout(PATIENCE, answered).await.map_err(|_| "timed out")???;
    let text = |row: &client::Row| String::from_utf8(row[1].clone().unwrap()).unwrap();
    let rows = answer.rows.iter().filter(|row| row.len() == 2);
    Ok(rows.map(|row| (integer(row, 0).unwrap(), text(row))).collect())
}

/// Flushes, or flushes and compacts, all tables.
async fn tidy(machine: &Rc<Machine>, compacts: bool) -> Result<(), String> {
    for context in machine.contexts() {
        let tidied = machine.run(async move {
            for id in context.shard.table_ids() {
                context.shard.flush(id).await?;
                if compacts {
                    context.shard.compact(id).await?;
                }
            }
            Ok::<_, helenus_engine::EngineError>(())
        });
        tidied.await?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

impl Left {
    /// Remembers the contents that have changed.
    fn note_files(&mut self, disk: &SimulatedDisk) {
        let files = disk.files();
        for (path, contents) in &self.files {
            if files.get(path) != Some(contents) {
                let versions = self.earlier.entry(path.clone()).or_default();
                versions.push(contents.clone());
                if versions.len() > VERSIONS_MAX {
                    versions.remove(1);
                }
            }
        }
        self.files = files;
    }

    /// Performs a random step. An error: the disk has crashed.
    async fn step(
        &mut self,
        machine: &Rc<Machine>,
        random: &mut SplitMix64,
        number: usize,
    ) -> Result<(), String> {
        let tables: Vec<String> = self.rows.keys().cloned().collect();
        let choice = random.below(20);
        let Some(table) = tables.get(random.below(tables.len().max(1) as u64) as usize).cloned() else {
            return self.create(machine, number).await;
        };
        match choice {
            0..=1 => return self.create(machine, number).await,
            2 => {
                self.uncertain = Some(table.clone());
                ask(machine, format!("DROP TABLE ks.{table}")).await?;
                self.rows.remove(&table);
            }
            3 => {
                self.uncertain = Some(table.clone());
                ask(machine, format!("TRUNCATE ks.{table}")).await?;
                self.rows.insert(table, BTreeMap::new());
            }
            4..=5 => tidy(machine, choice == 5).await?,
            // Enough of them purge entries of the metadata log.
            6..=8 => {
                for part in 0..16 {
                    ask(machine, format!("ALTER TABLE ks.{table} WITH comment = '{number}.{part}'")).await?;
                }
            }
            _ => {
                for _ in 0..8 {
                    let (key, value) = (
                        random.below(40) as i64,
                        format!("{number}-{}", "v".repeat(random.below(900) as usize)),
                    );
                    self.uncertain = Some(table.clone());
                    ask(machine, format!("INSERT INTO ks.{table} (k, v) VALUES ({key}, '{value}')")).await?;
                    self.rows.entry(table.clone()).or_default().insert(key, value);
                }
            }
        }
        self.uncertain = None;
        Ok(())
    }

    async fn create(&mut self, machine: &Rc<Machine>, number: usize) -> Result<(), String> {
        let table = format!("t{number}");
        self.uncertain = Some(table.clone());
        ask(machine, format!("CREATE TABLE ks.{table} (k int PRIMARY KEY, v text)")).await?;
        self.rows.insert(table, BTreeMap::new());
        self.uncertain = None;
        Ok(())
    }
}

/// Runs a history until a crash, of the disk at any operation or after the last step.
fn history(seed: u64) -> Left {
    simulate(seed, Links::default(), |cluster| async move {
        let mut random = SplitMix64::new(seed);
        let machine = machine(&cluster, SimulatedDisk::new(seed), seed);
        boot(&machine).await.unwrap();
        let mut left =
            Left { files: FileContents::new(), earlier: BTreeMap::new(), rows: Rows::new(), uncertain: None };
        let keyspace =
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
        ask(&machine, keyspace.to_owned()).await.unwrap();
        let cut = (seed % 2 == 1).then(|| STEPS / 2 + random.below(STEPS as u64 / 2) as usize);
        for number in 0..STEPS {
            left.note_files(&machine.disk);
            if cut == Some(number) {
                machine.disk.crash_at(machine.disk.operations() + random.below(200));
            }
            if left.step(&machine, &mut random, number).await.is_err() {
                break;
            }
            if number % 20 == 19 && cut.is_none() {
                // A restart in between.
                machine.crash(CrashStyle::KeepAll);
                boot(&machine).await.unwrap();
            }
        }
        let styles = [CrashStyle::KeepAll, CrashStyle::LoseAll, CrashStyle::RandomSectors];
        machine.crash(styles[random.below(3) as usize]);
        left.note_files(&machine.disk);
        left
    })
}

/// What happened to a file.
#[derive(Debug)]
enum Harm {
    Removed,
    Cut(usize),
    Flipped(u64),
    PutBack(Vec<u8>),
}

/// Starts a node on these files and reads everything. Returns the files after the start, and the outcome.
fn start_and_check(files: &FileContents, left: &Left, seed: u64) -> (FileContents, StartOutcome) {
    let disk = SimulatedDisk::with_files(seed, files);
    let rows = left.rows.clone();
    let uncertain = left.uncertain.clone();
    simulate(seed, Links::default(), |cluster| async move {
        let machine = machine(&cluster, disk, seed);
        let checked = async {
            boot(&machine).await?;
            let files = machine.disk.files();
            for (table, expected) in rows.iter().filter(|(table, _)| Some(*table) != uncertain.as_ref()) {
                match ask(&machine, format!("SELECT k, v FROM ks.{table}")).await {
                    Ok(found) if found != *expected => return Ok(Err(difference(table, &found, expected))),
                    Ok(_) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok::<_, String>(Ok(files))
        };
        match checked.await {
            Ok(Ok(files)) => (files, StartOutcome::AllRows),
            Ok(Err(difference)) => (FileContents::new(), StartOutcome::Lost(difference)),
            Err(error) => (machine.disk.files(), StartOutcome::Refused(error)),
        }
    })
}

/// How a start and the reads behind it ended.
#[derive(Debug, PartialEq, Eq)]
enum StartOutcome {
    AllRows,
    Refused(String),
    /// Rows are missing, or there are others, and no error says so.
    Lost(String),
}

/// The rows in which a table differs, shortened.
fn difference(table: &str, found: &BTreeMap<i64, String>, expected: &BTreeMap<i64, String>) -> String {
    let keys: BTreeSet<&i64> = found.keys().chain(expected.keys()).collect();
    let short =
        |value: Option<&String>| value.map_or("nothing".to_owned(), |value| value.chars().take(8).collect());
    let different = keys.into_iter().filter(|key| found.get(key) != expected.get(key));
    let rows =
        different.map(|key| format!("{key}: {} not {}", short(found.get(key)), short(expected.get(key))));
    format!("{table}: {}", rows.collect::<Vec<_>>().join(", "))
}

/// The newest segments with records, one for each shard. A later one may hold bytes of its earlier life.
fn newest_segments(files: &FileContents) -> BTreeSet<PathBuf> {
    let mut newest = BTreeMap::new();
    for (path, contents) in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let number = name.strip_prefix("segment-").and_then(|name| name.strip_suffix(".log"));
        let Some(number) = number.and_then(|number| u64::from_str_radix(number, 16).ok()) else { continue };
        if !read_segment(&contents.clone().into(), number).unwrap_or_default().is_empty() {
            newest.insert(path.parent().unwrap(), path.clone());
        }
    }
    newest.into_values().collect()
}

/// Whether a file is still there, or was moved to the quarantine.
fn is_kept(path: &Path, after: &FileContents) -> bool {
    let inside = path.strip_prefix("/data").unwrap();
    after.contains_key(path)
        || after.keys().any(|other| other.starts_with("/data/quarantine") && other.ends_with(inside))
}

fn random_harm(left: &Left, random: &mut SplitMix64) -> Option<(PathBuf, Harm)> {
    let excluded = newest_segments(&left.files);
    let paths: BTreeSet<&PathBuf> = left.files.keys().chain(left.earlier.keys()).collect();
    let path = *paths.iter().nth(random.below(paths.len() as u64) as usize)?;
    if excluded.contains(path) {
        return None;
    }
    let earlier = left.earlier.get(path);
    let harm = match (left.files.get(path), random.below(4)) {
        (Some(_), 0) => Harm::Removed,
        (Some(contents), 1) => Harm::Cut(random.below(contents.len() as u64 + 1) as usize),
        (Some(contents), 2) if !contents.is_empty() => Harm::Flipped(random.below(contents.len() as u64 * 8)),
        _ => Harm::PutBack(earlier?.get(random.below(earlier?.len() as u64) as usize)?.clone()),
    };
    Some((path.clone(), harm))
}

fn harmed(files: &FileContents, path: &Path, harm: &Harm) -> FileContents {
    let mut files = files.clone();
    match harm {
        Harm::Removed => {
            files.remove(path);
        }
        Harm::Cut(length) => files.get_mut(path).unwrap().truncate(*length),
        Harm::Flipped(bit) => files.get_mut(path).unwrap()[(bit / 8) as usize] ^= 1 << (bit % 8),
        Harm::PutBack(contents) => {
            files.insert(path.to_path_buf(), contents.clone());
        }
    }
    files
}

#[test]
fn no_file_is_lost_in_silence() {
    let seeds = std::env::var("HELENUS_LOST_FILES_SEEDS").map_or(4, |seeds| seeds.parse().unwrap());
    let (mut refused, mut mended) = (0, 0);
    for seed in 0..seeds {
        let left = history(seed);
        let mut random = SplitMix64::new(seed);
        let (undamaged, started) = start_and_check(&left.files, &left, seed);
        assert_eq!(started, StartOutcome::AllRows, "seed {seed}");
        let is_quarantined = |path: &PathBuf| path.starts_with("/data/quarantine");
        let quarantined: Vec<&PathBuf> = undamaged.keys().filter(|path| is_quarantined(path)).collect();
        assert!(
            quarantined.is_empty(),
            "seed {seed}: a crash leaves nothing that is unknown: {quarantined:?}"
        );
        for _ in 0..HARMS {
            let Some((path, harm)) = random_harm(&left, &mut random) else { continue };
            let what = match &harm {
                Harm::PutBack(_) => "put back".to_owned(),
                other => format!("{other:?}"),
            };
            let context = format!("seed {seed}, {} {what}", path.display());
            let files = harmed(&left.files, &path, &harm);
            let (after, outcome) = start_and_check(&files, &left, seed);
            let error = match outcome {
                StartOutcome::AllRows => {
                    mended += 1;
                    continue;
                }
                StartOutcome::Lost(difference) => panic!("{context}: {difference}"),
                StartOutcome::Refused(error) => error,
            };
            refused += 1;
            assert!(error.contains("/data/"), "{context}: no file is named: {error}");
            for kept in files.keys() {
                let is_kept = is_kept(kept, &after) || !undamaged.contains_key(kept);
                assert!(is_kept, "{context}: {} was deleted, after {error}", kept.display());
            }
        }
    }
    println!("{refused} starts or reads refused, {mended} with every row");
    assert!(refused > 0 && mended > 0);
}
