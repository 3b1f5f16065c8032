//! Read corruption: reads of the disk return flipped bits. Whatever the engine returns is correct; otherwise it is a typed error that
//! names the file. After a read that was wrong once, a correct one succeeds. A file that has changed is reported again and again.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use helenus_engine::io::{
    CrashStyle, Disk, ManualClock, Persistence, ReadCorruption, SimulatedDisk, SplitMix64,
};
use helenus_engine::{EngineError, LogPosition, Shard};

use crate::support::model::{Model, VisibleRow};
use crate::support::random_operations::Generator;
use crate::support::{
    DIRECTORY, EVERYTHING, NOW, START_MICROS, TABLE, environment, read_all, run_local, small_options,
    table_options,
};

/// What no error names: the defects of the program, and failures of no file.
fn names_a_file(error: &EngineError) -> bool {
    let text = error.to_string();
    !matches!(error, EngineError::BrokenInvariant(_))
        && [".sst", ".log", "manifest"].iter().any(|name| text.contains(name))
        && text.contains(DIRECTORY)
}

fn corruption(path_contains: &str, reads_per_mille: u64, persistence: Persistence) -> ReadCorruption {
    ReadCorruption { path_contains: path_contains.to_owned(), reads_per_mille, bits_max: 3, persistence }
}

async fn open(disk: &SimulatedDisk) -> Result<Rc<Shard>, EngineError> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let mut options = small_options();
    options.memtable_bytes_max = 48 << 10;
    options.commit_log.segment_bytes = 8 << 10;
    options.commit_log_bytes_max = 24 << 10;
    let shard = Shard::open(environment(disk, &clock), options).await?;
    shard.create_table(TABLE, table_options()).await?;
    Ok(shard)
}

fn generator(seed: u64) -> Generator {
    Generator { partitions: 6, rows: 24, value_bytes_max: 300, ..Generator::new(seed) }
}

fn read(shard: &Shard) -> Result<Vec<VisibleRow>, EngineError> {
    read_all(shard, EVERYTHING, false, NOW)
}

/// A random history in several lives, in which reads of the disk are corrupt now and then.
struct Test {
    disk: SimulatedDisk,
    generator: Generator,
    random: SplitMix64,
    /// The rows of what was acknowledged.
    model: Model,
    noticed: u64,
}

impl Test {
    /// Passes on a result. An error ends the life, and names a file.
    fn noticed<T>(&mut self, result: Result<T, EngineError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                assert!(names_a_file(&error), "{error}");
                self.noticed += 1;
                None
            }
        }
    }

    async fn live(&mut self, operations: usize) {
        let opened = open(&self.disk).await;
        let Some(shard) = self.noticed(opened) else { return };
        for _ in 0..operations {
            match self.random.below(100) {
                0..70 => {
                    let mutation = self.generator.mutation(TABLE, START_MICROS);
                    // Fails if a flush fails that is needed for more room. Nothing is written then.
                    let admitted = shard.admit().await;
                    if self.noticed(admitted).is_none() {
                        return;
                    }
                    let position: LogPosition = shard.apply(&mutation.view().unwrap()).unwrap();
                    shard.durable(position).await.unwrap();
                    self.model.apply(&mutation.view().unwrap());
                }
                70..90 => {
                    let rows = read(&shard);
                    if let Some(rows) = self.noticed(rows) {
                        assert_eq!(rows, self.model.read(EVERYTHING, false, NOW));
                    }
                }
                90..96 => {
                    let flushed = shard.flush(TABLE).await;
                    self.noticed(flushed);
                }
                96..98 => {
                    let compacted = shard.compact(TABLE).await;
                    self.noticed(compacted);
                }
                98 => {
                    let closed = shard.close().await;
                    self.noticed(closed);
                    return;
                }
                _ => return self.disk.crash(),
            }
        }
    }

    fn check_everything(&self) {
        let rows = run_local(async { read(&*open(&self.disk).await?) });
        assert_eq!(rows.unwrap(), self.model.read(EVERYTHING, false, NOW));
    }
}

#[test]
fn a_read_that_is_wrong_once_is_an_error_and_loses_nothing() {
    let (mut noticed, mut corrupt) = (0, 0);
    for seed in 0..60 {
        let mut test = Test {
            disk: SimulatedDisk::new(seed),
            generator: generator(seed),
            random: SplitMix64::new(seed),
            model: Model::default(),
            noticed: 0,
        };
        for life in 0..8 {
            let corruption = corruption("", [0, 30, 200][life % 3], Persistence::Transient);
            test.disk.set_read_corruption(Some(corruption));
            run_local(test.live(120));
            test.disk.set_read_corruption(None);
            let style = CrashStyle::ALL[life % CrashStyle::ALL.len()];
            test.disk.restart(style, seed);
            test.check_everything();
            test.disk.restart(style, seed);
        }
        noticed += test.noticed;
        corrupt += test.disk.corrupt_reads();
    }
    assert!(noticed > 100 && corrupt > 100, "{noticed} errors of {corrupt} corrupt reads");
}

/// A shard with some files of its table, closed. Returns the rows.
fn prepared(disk: &SimulatedDisk, seed: u64) -> Vec<VisibleRow> {
    run_local(async {
        let shard = open(disk).await.unwrap();
        let mut generator = generator(seed);
        for number in 0..90 {
            shard.apply(&generator.mutation(TABLE, START_MICROS).view().unwrap()).unwrap();
            if number % 40 == 39 {
                shard.flush(TABLE).await.unwrap();
            }
        }
        let rows = read(&shard).unwrap();
        shard.close().await.unwrap();
        rows
    })
}

fn table_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    run_local(async {
        let directory = Path::new(DIRECTORY).join("tables").join(TABLE.to_string());
        let entries = disk.list(&directory).await.unwrap();
        entries.into_iter().map(|entry| directory.join(entry.name)).collect()
    })
}

#[test]
fn a_file_that_has_changed_stays_reported() {
    let mut reported = 0;
    for seed in 0..150 {
        let disk = SimulatedDisk::new(seed);
        let rows = prepared(&disk, seed % 5);
        let files = ["tables", "manifest"][seed as usize % 2];
        disk.set_read_corruption(Some(corruption(files, 300, Persistence::Persistent)));
        let mut first = None;
        for life in 0..4 {
            disk.restart(CrashStyle::KeepAll, seed);
            let outcome = run_local(async {
                let shard = open(&disk).await?;
                let outcome = read(&shard);
                match (&outcome, read(&shard)) {
                    (Err(error), Err(again)) => assert_eq!(error.to_string(), again.to_string()),
                    (Ok(rows), Ok(again)) => assert_eq!(*rows, again),
                    other => panic!("two reads of one life differ: {other:?}"),
                }
                if let Err(error) = &outcome {
                    // It fails at a damaged block, and leaves out a file that could not be opened.
                    let _ = shard.compact(TABLE).await;
                    assert_eq!(read(&shard).unwrap_err().to_string(), error.to_string());
                }
                outcome
            });
            // No more bits are flipped once a life has read everything.
            disk.set_read_corruption(None);
            match outcome {
                Ok(read) => assert_eq!(read, rows, "seed {seed}"),
                Err(error) => {
                    assert!(names_a_file(&error), "{error}");
                    // The text may differ: what one life has found while it read, another finds when it opens the file.
                    first.get_or_insert_with(|| error.to_string());
                    reported += 1;
                }
            }
            assert!(life == 0 || first.is_none() || reported > 0);
        }
    }
    assert!(reported > 100, "only {reported} errors");
}

#[test]
fn a_block_that_is_corrupt_for_a_while_is_an_error_for_that_while() {
    let mut noticed = 0;
    for seed in 0..60 {
        let disk = SimulatedDisk::new(seed);
        let rows = prepared(&disk, seed % 3);
        for path in table_files(&disk) {
            run_local(async {
                let shard = open(&disk).await.unwrap();
                // The first bytes of a table are data blocks, which are checked when they are read.
                assert!(disk.flip_bit(&path, seed * 37 % 800));
                match read(&shard) {
                    Ok(read) => assert_eq!(read, rows),
                    Err(error) => {
                        assert!(names_a_file(&error), "{error}");
                        assert!(error.to_string().contains(&*path.file_name().unwrap().to_string_lossy()));
                        shard.compact(TABLE).await.unwrap_err();
                        noticed += 1;
                    }
                }
                disk.flip_bit(&path, seed * 37 % 800);
                assert_eq!(read(&shard).unwrap(), rows);
                shard.close().await.unwrap();
            });
        }
    }
    assert!(noticed > 60, "only {noticed} errors");
}

#[test]
fn a_medium_that_fails_is_an_error_of_the_reads_that_need_it() {
    let disk = SimulatedDisk::new(1);
    let rows = prepared(&disk, 1);
    for path in table_files(&disk) {
        run_local(async {
            let shard = open(&disk).await.unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            disk.set_bad_medium(Some(name));
            let error = read(&shard).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(name)), "{error:?}");
            disk.set_bad_medium(None);
            assert!(read(&shard).unwrap() == rows, "no longer than the medium fails");
        });
    }
}

#[test]
fn a_file_that_is_cut_short_beneath_a_running_shard_is_an_error_that_names_it() {
    let disk = SimulatedDisk::new(1);
    prepared(&disk, 1);
    let path = table_files(&disk).remove(0);
    run_local(async {
        let shard = open(&disk).await.unwrap();
        assert!(disk.truncate(&path, 100));
        let error = read(&shard).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        shard.compact(TABLE).await.unwrap_err();
    });
}
