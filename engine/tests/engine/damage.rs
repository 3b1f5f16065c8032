//! Life with damage: files that are missing or damaged at a start, blocks that rot, and what an examination does about them.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use helenus_engine::io::{Clock, CrashStyle, Fault, ManualClock, SimulatedDisk};
use helenus_engine::key::token_bounds;
use helenus_engine::shard::{Examination, FileOutcome, RowRequest};
use helenus_engine::table::Compression;
use helenus_engine::{
    EngineError, MutationBuilder, RowBuilder, Shard, ShardOptions, TableOptions, TableWriterOptions, key,
};

use crate::support::{
    DIRECTORY, EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, put, read_all,
    run_local, small_options, table_options, while_time_passes,
};

/// The file with the tokens 0 to 9 is the first, that with 100 to 109 the second.
const FIRST: u64 = 1;
const SECOND: u64 = 2;

fn path_of(generation: u64) -> PathBuf {
    Path::new(DIRECTORY).join("tables").join(TABLE.to_string()).join(format!("{generation:010}-data.sst"))
}

fn options() -> ShardOptions {
    small_options()
}

/// Small blocks, uncompressed: a bit that flips is in a block of its own, and most of a file is blocks.
fn with_small_blocks() -> TableOptions {
    let writer = TableWriterOptions {
        block_bytes: 512,
        compression: Compression::None,
        ..TableWriterOptions::default()
    };
    let mut options = TableOptions { writer, ..table_options() };
    options.compaction.enabled = false;
    options
}

async fn reopen(disk: &SimulatedDisk) -> Rc<Shard> {
    reopen_with_clock(disk).await.0
}

async fn reopen_with_clock(disk: &SimulatedDisk) -> (Rc<Shard>, Rc<ManualClock>) {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let shard = Shard::open_existing(environment(disk, &clock), options()).await.unwrap();
    shard.create_tables(&[(TABLE, with_small_blocks()), (OTHER_TABLE, with_small_blocks())]).await.unwrap();
    (shard, clock)
}

/// A disk with a closed shard: two files of `TABLE`.
fn filled() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let shard = Shard::open(environment(&disk, &clock), options()).await.unwrap();
        shard
            .create_tables(&[(TABLE, with_small_blocks()), (OTHER_TABLE, with_small_blocks())])
            .await
            .unwrap();
        for base in [0, 100] {
            for token in base..base + 10 {
                apply(&shard, &put(token, 1, 1, &[token as u8; 300]));
            }
            shard.flush(TABLE).await.unwrap();
        }
        shard.close().await.unwrap();
    });
    disk.restart(CrashStyle::KeepAll, 0);
    disk
}

fn rows_of(shard: &Shard, tokens: std::ops::RangeInclusive<i64>) -> Result<usize, EngineError> {
    let (start, end) = token_bounds(&tokens);
    read_all(shard, (&start, &end), false, NOW).map(|rows| rows.len())
}

fn look_up(shard: &Shard, token: i64) -> Result<(), EngineError> {
    let key = key::full_key(token, b"key", &[2, 2]).unwrap();
    let request = RowRequest { table: TABLE, key: &key, columns: None, now_seconds: NOW };
    shard.look_up(&request, |_| ()).map(|_| ())
}

fn assert_names(error: &EngineError, generation: u64) {
    let text = error.to_string();
    assert!(text.contains(&path_of(generation).display().to_string()), "{text}");
}

#[test]
fn a_missing_file_costs_its_tokens_and_nothing_else() {
    let disk = filled();
    let bytes = disk.files()[&path_of(FIRST)].clone();
    disk.set_at_rest(&path_of(FIRST), None);
    run_local(async {
        let shard = reopen(&disk).await;
        assert_eq!(shard.statistics(TABLE).unwrap().damaged_files, 1);
        // Its tokens are refused, also where the row is not there or lies in memory; a range that touches them too.
        for token in [0, 5, 9] {
            assert_names(&look_up(&shard, token).unwrap_err(), FIRST);
        }
        for tokens in [i64::MIN..=i64::MAX, 9..=9, -5..=0] {
            assert_names(&rows_of(&shard, tokens).unwrap_err(), FIRST);
        }
        apply(&shard, &put(5, 7, 2, b"new"));
        assert_names(&rows_of(&shard, 5..=5).unwrap_err(), FIRST);
        // Others are served, and so are other tables.
        look_up(&shard, 10).unwrap();
        assert_eq!(rows_of(&shard, 10..=i64::MAX).unwrap(), 10);
        assert_eq!(rows_of(&shard, i64::MIN..=-1).unwrap(), 0);
        let mut builder = MutationBuilder::new(OTHER_TABLE, 5, b"key").unwrap();
        builder.row(&[2, 1], &mut RowBuilder::new());
        apply(&shard, &builder.build());
        // Nothing that would hide the loss is done.
        assert_names(&shard.snapshot(TABLE, "monday", &[]).await.unwrap_err(), FIRST);
        assert_names(&shard.drop_ranges(TABLE, &[5..=6]).await.unwrap_err(), FIRST);
        shard.drop_ranges(TABLE, &[20..=30]).await.unwrap();
        shard.close().await.unwrap();
    });
    // The manifest goes on naming the file.
    disk.restart(CrashStyle::KeepAll, 0);
    run_local(async {
        let shard = reopen(&disk).await;
        assert_names(&rows_of(&shard, 0..=9).unwrap_err(), FIRST);
        let found = shard.examine(&[TABLE], Examination::Verify).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.clone(), found[0].outcome.clone()), (path_of(FIRST), FileOutcome::Damaged));
        let found = shard.examine(&[TABLE], Examination::Scrub).await.unwrap();
        assert_eq!(found[0].outcome, FileOutcome::Damaged, "nothing is given up without being told so");
        // The file is put back while the shard runs.
        disk.set_at_rest(&path_of(FIRST), Some(&bytes));
        let found = shard.examine(&[TABLE], Examination::Scrub).await.unwrap();
        assert_eq!(found[0].outcome, FileOutcome::Mended);
        assert_eq!(rows_of(&shard, 0..=9).unwrap(), 11);
        assert_eq!(shard.statistics(TABLE).unwrap().damaged_files, 0);
        assert_eq!(shard.examine(&[TABLE], Examination::Verify).await.unwrap(), []);
        let progress = shard.examination();
        assert!(!progress.is_running && progress.files_done == progress.files && progress.bytes_done > 0);
    });
}

#[test]
fn a_file_whose_frame_is_damaged_is_as_one_that_is_missing() {
    let length = filled().files()[&path_of(FIRST)].len();
    for cut in [0, 10, length - 1] {
        let disk = filled();
        assert!(disk.truncate(&path_of(FIRST), cut));
        run_local(async {
            let shard = reopen(&disk).await;
            assert_names(&rows_of(&shard, 0..=9).unwrap_err(), FIRST);
            assert_eq!(rows_of(&shard, 100..=109).unwrap(), 10);
        });
    }
}

#[test]
fn a_file_that_is_given_up_leaves_a_copy_and_the_others() {
    for is_there in [true, false] {
        let disk = filled();
        if is_there {
            assert!(disk.truncate(&path_of(FIRST), 1000));
        } else {
            disk.set_at_rest(&path_of(FIRST), None);
        }
        run_local(async {
            let shard = reopen(&disk).await;
            let found = shard.examine(&[TABLE], Examination::ScrubAndGiveUp).await.unwrap();
            assert_eq!(found[0].outcome, FileOutcome::GivenUp);
            assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap(), 10);
            shard.close().await.unwrap();
        });
        assert_eq!(quarantined(&disk).len(), usize::from(is_there));
        assert!(!disk.files().contains_key(&path_of(FIRST)));
        disk.restart(CrashStyle::KeepAll, 0);
        run_local(async {
            let shard = reopen(&disk).await;
            assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap(), 10);
            assert_eq!(shard.statistics(TABLE).unwrap().damaged_files, 0);
        });
    }
}

#[test]
fn a_file_whose_tokens_were_all_fetched_is_given_up_durably_and_no_other() {
    let disk = filled();
    assert!(disk.truncate(&path_of(FIRST), 1000));
    run_local(async {
        let shard = reopen(&disk).await;
        assert_eq!(shard.damaged_generations(TABLE).unwrap(), [FIRST]);
        for (generation, fetched) in [(FIRST, 0..=8), (FIRST, 1..=100), (SECOND, 0..=109)] {
            assert_eq!(shard.give_up_mended(TABLE, &[generation], &[fetched]).await.unwrap(), 0);
        }
        assert_names(&rows_of(&shard, 0..=9).unwrap_err(), FIRST);
        apply(&shard, &put(5, 1, 1, b"fetched"));
        assert_eq!(shard.give_up_mended(TABLE, &[FIRST], &[-9..=-5, 0..=9]).await.unwrap(), 1);
        assert_eq!(rows_of(&shard, 0..=9).unwrap(), 1);
    });
    assert_eq!(quarantined(&disk).len(), 1);
    disk.restart(CrashStyle::LoseAll, 0);
    run_local(async {
        let shard = reopen(&disk).await;
        assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap(), 11);
        assert_eq!(shard.statistics(TABLE).unwrap().damaged_files, 0);
    });
}

#[test]
fn a_block_that_rots_costs_its_rows_and_a_scrub_keeps_the_others() {
    let disk = filled();
    run_local(async {
        let shard = reopen(&disk).await;
        assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap(), 20);
        // In the first block.
        assert!(disk.flip_bit(&path_of(FIRST), 8 * 100));
        let found = shard.examine(&[TABLE], Examination::Verify).await.unwrap();
        assert_eq!((found.len(), found[0].outcome.clone()), (1, FileOutcome::Damaged));
        assert_eq!(shard.statistics(TABLE).unwrap().damaged_files, 1);
        let found = shard.examine(&[TABLE], Examination::ScrubAndGiveUp).await.unwrap();
        let FileOutcome::Salvaged { rows, lost_blocks } = found[0].outcome else { panic!("{found:?}") };
        assert!((1..10).contains(&rows) && lost_blocks == 1, "{found:?}");
        assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap() as u64, 10 + rows);
        assert_eq!(shard.statistics(TABLE).unwrap().damaged_files, 0);
        assert_eq!(shard.examine(&[TABLE], Examination::Verify).await.unwrap(), []);
        shard.close().await.unwrap();
        let files = disk.files();
        assert!(!files.contains_key(&path_of(FIRST)) && files.contains_key(&path_of(SECOND)));
        assert_eq!(quarantined(&disk).len(), 1);
    });
    disk.restart(CrashStyle::KeepAll, 0);
    run_local(async {
        let shard = reopen(&disk).await;
        assert_eq!(shard.examine(&[TABLE], Examination::Verify).await.unwrap(), []);
        shard.snapshot(TABLE, "monday", &[]).await.unwrap();
    });
}

#[test]
fn a_file_that_is_put_in_the_place_of_a_damaged_one_is_read_after_a_scrub() {
    // Another file of the same name: an open one goes on with what it was.
    for verifies_first in [false, true] {
        let disk = filled();
        run_local(async {
            let shard = reopen(&disk).await;
            let whole = disk.files()[&path_of(FIRST)].clone();
            assert!(disk.flip_bit(&path_of(FIRST), 8 * 100));
            assert_names(&read_all(&shard, EVERYTHING, false, NOW).unwrap_err(), FIRST);
            if verifies_first {
                assert_eq!(shard.examine(&[TABLE], Examination::Verify).await.unwrap().len(), 1);
            }
            disk.set_at_rest(&path_of(FIRST), Some(&whole));
            let found = shard.examine(&[TABLE], Examination::Scrub).await.unwrap();
            assert!(found.iter().all(|finding| finding.outcome == FileOutcome::Mended), "{found:?}");
            assert_eq!(found.len(), usize::from(verifies_first));
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 20);
            assert_eq!(shard.statistics(TABLE).unwrap().damaged_files, 0);
        });
    }
}

#[test]
fn a_bad_medium_is_an_error_and_may_recover() {
    let disk = filled();
    disk.set_bad_medium(Some("0000000001-data.sst"));
    run_local(async {
        let shard = reopen(&disk).await;
        assert_names(&rows_of(&shard, 3..=3).unwrap_err(), FIRST);
        assert_eq!(shard.disk_failures().len(), 1, "the policy of the owner decides");
        disk.set_bad_medium(None);
        let found = shard.examine(&[TABLE], Examination::Scrub).await.unwrap();
        // Unless the shard has tried it by itself.
        assert!(found.iter().all(|finding| finding.outcome == FileOutcome::Mended), "{found:?}");
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap().len(), 20);
    });
}

#[test]
fn a_file_that_is_put_back_is_in_use_within_a_minute() {
    let disk = filled();
    let bytes = disk.files()[&path_of(FIRST)].clone();
    disk.set_at_rest(&path_of(FIRST), None);
    run_local(async {
        let (shard, clock) = reopen_with_clock(&disk).await;
        assert_names(&rows_of(&shard, 3..=3).unwrap_err(), FIRST);
        disk.set_at_rest(&path_of(FIRST), Some(&bytes));
        while_time_passes(&clock, async {
            while rows_of(&shard, 3..=3).is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(clock.now_micros() - START_MICROS <= 61_000_000);
    });
}

#[test]
fn deletions_outlive_what_a_damaged_file_may_hold() {
    let disk = filled();
    let bytes = disk.files()[&path_of(FIRST)].clone();
    disk.set_at_rest(&path_of(FIRST), None);
    run_local(async {
        let (shard, clock) = reopen_with_clock(&disk).await;
        let mut builder = MutationBuilder::new(TABLE, 5, b"key").unwrap();
        builder.delete_partition(helenus_engine::Deletion { timestamp: 5, local_deletion_time: NOW });
        apply(&shard, &builder.build());
        shard.flush(TABLE).await.unwrap();
        // Long after the grace period.
        clock.advance(std::time::Duration::from_secs(1_000_000));
        shard.compact(TABLE).await.unwrap();
        disk.set_at_rest(&path_of(FIRST), Some(&bytes));
        shard.examine(&[TABLE], Examination::Scrub).await.unwrap();
        assert_eq!(rows_of(&shard, 0..=9).unwrap(), 9, "the deleted row stays deleted");
        shard.truncate(TABLE).await.unwrap();
    });
}

/// The names in the quarantine.
fn quarantined(disk: &SimulatedDisk) -> Vec<String> {
    let inside = disk.files().into_keys().filter(|path| path.starts_with("shard/quarantine"));
    inside.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn an_error_that_says_nothing_of_the_file_gives_nothing_up() {
    let mut refused = 0;
    for is_live in [false, true] {
        for point in 0..12 {
            let disk = filled();
            let bytes = disk.files()[&path_of(FIRST)].clone();
            run_local(async {
                if !is_live {
                    disk.set_at_rest(&path_of(FIRST), None);
                }
                let shard = reopen(&disk).await;
                disk.set_at_rest(&path_of(FIRST), Some(&bytes));
                disk.fail_at(disk.operations() + point, Fault::NoSpace);
                refused += usize::from(shard.examine(&[TABLE], Examination::ScrubAndGiveUp).await.is_err());
                disk.clear_faults();
                shard.examine(&[TABLE], Examination::Scrub).await.unwrap();
                assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap(), 20, "point {point}");
                assert_eq!(shard.examine(&[TABLE], Examination::Verify).await.unwrap(), []);
            });
            assert_eq!(quarantined(&disk), Vec::<String>::new(), "point {point}");
        }
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn a_crash_while_rows_are_given_up_leaves_the_damaged_file_or_what_was_salvaged() {
    let damaged = || {
        let disk = filled();
        assert!(disk.flip_bit(&path_of(FIRST), 8 * 100));
        disk
    };
    let rehearsal = damaged();
    let salvaged = run_local(async {
        let shard = reopen(&rehearsal).await;
        shard.examine(&[TABLE], Examination::ScrubAndGiveUp).await.unwrap();
        rows_of(&shard, i64::MIN..=i64::MAX).unwrap()
    });
    let (mut kept, mut replaced) = (0, 0);
    for style in CrashStyle::ALL {
        for point in 0..200 {
            let disk = damaged();
            let is_over = run_local(async {
                let shard = reopen(&disk).await;
                disk.crash_at(disk.operations() + point);
                let _ = shard.examine(&[TABLE], Examination::ScrubAndGiveUp).await;
                !disk.is_crashed()
            });
            if is_over {
                break;
            }
            disk.restart(style, point);
            run_local(async {
                let shard = reopen(&disk).await;
                match rows_of(&shard, i64::MIN..=i64::MAX) {
                    Ok(rows) => {
                        assert_eq!(rows, salvaged, "point {point}");
                        assert_eq!(quarantined(&disk), ["0000000001-data.sst"], "point {point}");
                        replaced += 1;
                    }
                    Err(error) => {
                        assert_names(&error, FIRST);
                        kept += 1;
                    }
                }
                shard.examine(&[TABLE], Examination::ScrubAndGiveUp).await.unwrap();
                assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap(), salvaged, "point {point}");
            });
            assert!(quarantined(&disk).iter().all(|name| name == "0000000001-data.sst"), "point {point}");
        }
    }
    assert!(kept > 10 && replaced > 0, "{kept} and {replaced}");
}

#[test]
fn a_directory_is_checked_without_a_change() {
    let check = async |disk: &SimulatedDisk| {
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let before = disk.files();
        let report = Shard::check(&environment(disk, &clock), &options()).await.unwrap();
        assert_eq!(disk.files(), before);
        report
    };
    let disk = filled();
    run_local(async {
        let report = check(&disk).await;
        assert_eq!((report.tables, report.files), (2, 2));
        assert!(report.problems.is_empty() && report.remarks.is_empty(), "{report:?}");
        assert!(report.file_bytes > 6_000, "{report:?}");
        // Whatever is flipped, missing or unknown is named.
        assert!(disk.flip_bit(&path_of(SECOND), 8 * 100));
        disk.set_at_rest(&path_of(FIRST), None);
        disk.set_at_rest(&path_of(77), Some(b"x"));
        disk.set_at_rest(&Path::new(DIRECTORY).join("manifest"), None);
        let report = check(&disk).await;
        assert_eq!((report.problems.len(), report.remarks.len()), (2, 2), "{report:?}");
        for (problem, generation) in report.problems.iter().zip([FIRST, SECOND]) {
            assert!(problem.contains(&path_of(generation).display().to_string()), "{problem}");
        }
        assert!(report.remarks[1].contains("0000000077-data.sst"), "{report:?}");
        let changes = |path: &PathBuf| path.to_str().unwrap().contains("manifest.changes-");
        let changes: Vec<PathBuf> = disk.files().into_keys().filter(changes).collect();
        disk.set_at_rest(&changes[1], Some(b"rubbish"));
        let report = check(&disk).await;
        assert!(report.remarks[1].starts_with(changes[1].to_str().unwrap()), "{report:?}");
        let kept = disk.files()[&changes[0]].clone();
        disk.set_at_rest(&changes[0], Some(&kept[..30]));
        let report = check(&disk).await;
        assert!(report.problems[0].contains(changes[0].to_str().unwrap()), "{report:?}");
        disk.set_at_rest(&changes[0], Some(&kept));
        disk.set_at_rest(&Path::new(DIRECTORY).join("manifest.copy"), None);
        let report = check(&disk).await;
        assert!(report.problems[0].contains("manifest"), "{report:?}");
    });
}

#[test]
fn a_truncation_removes_damaged_files_too() {
    let disk = filled();
    assert!(disk.truncate(&path_of(FIRST), 100));
    run_local(async {
        let shard = reopen(&disk).await;
        shard.truncate(TABLE).await.unwrap();
        assert_eq!(rows_of(&shard, i64::MIN..=i64::MAX).unwrap(), 0);
        shard.close().await.unwrap();
    });
    assert!(!disk.files().contains_key(&path_of(FIRST)));
    disk.restart(CrashStyle::KeepAll, 0);
    run_local(async {
        assert_eq!(rows_of(&*reopen(&disk).await, i64::MIN..=i64::MAX).unwrap(), 0);
    });
}
