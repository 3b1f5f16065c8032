//! The simulated disk keeps its contract, and no more than that.

use super::fault::{ERRNO_IO, SECTOR_BYTES};
use super::*;
use futures::executor::block_on;

const FILE: &str = "/data/file";

async fn written(disk: &SimulatedDisk, data: &'static [u8]) -> Arc<dyn DiskFile> {
    disk.create_directory(Path::new("/data")).await.unwrap();
    disk.sync_directory(Path::new("/")).await.unwrap();
    let file = disk.create(Path::new(FILE)).await.unwrap();
    file.write_at(0, Bytes::from_static(data)).await.unwrap();
    file
}

#[test]
fn only_what_was_synced_survives_loss_of_power() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, b"first").await;
        file.sync_data().await.unwrap();
        disk.sync_directory(Path::new("/data")).await.unwrap();
        file.write_at(5, Bytes::from_static(b"second")).await.unwrap();
        disk.restart(CrashStyle::LoseAll, 0);
        assert_eq!(disk.read(Path::new(FILE)).await.unwrap(), &b"first"[..]);
        assert!(file.write_at(0, Bytes::new()).await.is_err(), "a file of an earlier life is dead");
    });
}

#[test]
fn a_name_is_lost_unless_its_directory_was_synced() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        written(&disk, b"data").await.sync_data().await.unwrap();
        disk.restart(CrashStyle::LoseAll, 0);
        assert!(disk.read(Path::new(FILE)).await.is_err());
    });
}

#[test]
fn names_survive_as_a_prefix() {
    for seed in 0..50 {
        block_on(async {
            let disk = SimulatedDisk::new(seed);
            for name in ["/a", "/b", "/c"] {
                disk.create(Path::new(name)).await.unwrap();
            }
            disk.rename(Path::new("/a"), Path::new("/d")).await.unwrap();
            disk.restart(CrashStyle::Prefix, seed);
            let names: Vec<_> =
                disk.list(Path::new("/")).await.unwrap().into_iter().map(|entry| entry.name).collect();
            let possible = [vec![], vec!["a"], vec!["a", "b"], vec!["a", "b", "c"], vec!["b", "c", "d"]];
            assert!(possible.iter().any(|expected| names == *expected), "{names:?}");
        });
    }
}

#[test]
fn a_failed_sync_drops_the_dirty_data_for_good() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, b"data").await;
        disk.sync_directory(Path::new("/data")).await.unwrap();
        disk.fail_at(disk.operations(), Fault::Error);
        assert_eq!(file.sync_data().await.unwrap_err().source.raw_os_error(), Some(ERRNO_IO));
        file.sync_data().await.unwrap();
        assert_eq!(disk.read(Path::new(FILE)).await.unwrap(), &b"data"[..]);
        disk.restart(CrashStyle::LoseAll, 0);
        assert!(disk.read(Path::new(FILE)).await.unwrap().is_empty());
    });
}

#[test]
fn each_sector_survives_by_itself() {
    let mut kept = BTreeSet::new();
    for seed in 0..64 {
        block_on(async {
            let disk = SimulatedDisk::new(seed);
            let file = written(&disk, &[0; 3 * SECTOR_BYTES]).await;
            file.sync_data().await.unwrap();
            disk.sync_directory(Path::new("/data")).await.unwrap();
            file.write_at(0, Bytes::from_static(&[1; 3 * SECTOR_BYTES])).await.unwrap();
            disk.restart(CrashStyle::RandomSectors, seed);
            let bytes = disk.read(Path::new(FILE)).await.unwrap();
            kept.insert(bytes.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect::<Vec<_>>());
            assert!(bytes.chunks(SECTOR_BYTES).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        });
    }
    assert_eq!(kept.len(), 8, "every combination of three sectors occurs");
}

#[test]
fn a_full_disk_fails_writes_until_there_is_room() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, b"data").await;
        disk.set_capacity_bytes(8);
        let error = file.write_at(4, Bytes::from_static(b"too much")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        disk.set_capacity_bytes(64);
        file.write_at(4, Bytes::from_static(b"too much")).await.unwrap();
    });
}

#[test]
fn what_is_reserved_can_be_written_on_a_full_disk() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, b"data").await;
        disk.sync_directory(Path::new("/data")).await.unwrap();
        disk.set_capacity_bytes(8);
        assert_eq!(file.reserve(9).await.unwrap_err().kind(), io::ErrorKind::StorageFull);
        file.reserve(8).await.unwrap();
        let room = disk.room(Path::new("/")).await.unwrap();
        assert_eq!(room, DiskRoom { free_bytes: 0, total_bytes: 8 });
        file.write_and_sync_at(6, Bytes::from_static(b"xy")).await.unwrap();
        assert_eq!(disk.overlapping_writes(), 0, "reserving writes nothing");
        disk.restart(CrashStyle::LoseAll, 0);
        assert_eq!(disk.read(Path::new(FILE)).await.unwrap(), &b"data\0\0xy"[..]);
        disk.remove(Path::new(FILE)).await.unwrap();
        assert_eq!(disk.used_bytes(), 0, "a file without a name takes no room");
    });
}

#[test]
fn after_a_planted_crash_every_call_fails_until_the_restart() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let file = written(&disk, b"data").await;
        disk.crash_at(disk.operations());
        assert!(file.sync_data().await.is_err());
        assert!(disk.is_crashed());
        assert!(disk.list(Path::new("/")).await.is_err());
        disk.restart(CrashStyle::KeepAll, 0);
        assert_eq!(disk.read(Path::new(FILE)).await.unwrap(), &b"data"[..]);
        disk.restart(CrashStyle::LoseAll, 0);
        assert!(disk.read(Path::new(FILE)).await.is_err(), "the death of the process made nothing durable");
    });
}

#[test]
fn a_lock_excludes_and_is_released_on_drop() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let lock = disk.lock(Path::new("/lock")).await.unwrap();
        assert_eq!(disk.lock(Path::new("/lock")).await.err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        assert!(disk.lock(Path::new("/lock")).await.is_ok());
    });
}

#[test]
fn of_overlapping_writes_any_may_survive_and_they_are_counted() {
    let mut kept = BTreeSet::new();
    for seed in 0..100 {
        block_on(async {
            let disk = SimulatedDisk::new(seed);
            let file = written(&disk, &[1; SECTOR_BYTES]).await;
            disk.sync_directory(Path::new("/data")).await.unwrap();
            file.sync_data().await.unwrap();
            for value in [2, 3] {
                file.write_at(0, Bytes::from(vec![value; SECTOR_BYTES])).await.unwrap();
            }
            assert_eq!(disk.overlapping_writes(), 1, "the first write was synced before the others");
            disk.restart(CrashStyle::Unordered, seed);
            kept.insert(disk.read(Path::new(FILE)).await.unwrap()[0]);
        });
    }
    assert_eq!(kept, BTreeSet::from([1, 2, 3]));
}

#[test]
fn a_corrupt_read_is_wrong_once_or_for_good() {
    for persistence in [Persistence::Transient, Persistence::Persistent] {
        block_on(async {
            let disk = SimulatedDisk::new(1);
            let file = written(&disk, b"data").await;
            disk.sync_directory(Path::new("/data")).await.unwrap();
            file.sync_data().await.unwrap();
            let path = Path::new(FILE);
            let of = |path: &str| ReadCorruption {
                path_contains: path.to_owned(),
                reads_per_mille: 1000,
                bits_max: 1,
                persistence,
            };
            disk.set_read_corruption(Some(of("other")));
            assert_eq!(disk.read(path).await.unwrap(), &b"data"[..]);
            disk.set_read_corruption(Some(of("data/")));
            let mut wrong = [0; 4];
            disk.open_complete(path).await.unwrap().read_at(0, &mut wrong).unwrap();
            assert_ne!(wrong, *b"data");
            assert_eq!(disk.corrupt_reads(), 1);
            disk.set_read_corruption(None);
            for style in [CrashStyle::KeepAll, CrashStyle::LoseAll] {
                let expected = if persistence == Persistence::Transient { b"data" } else { &wrong };
                assert_eq!(disk.read(path).await.unwrap(), &expected[..]);
                disk.restart(style, 0);
            }
        });
    }
}

#[test]
fn a_part_of_a_file_is_read_whatever_its_name_is() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        written(&disk, b"some data").await;
        let path = Path::new(FILE);
        let file = disk.open_complete(path).await.unwrap();
        disk.remove(path).await.unwrap();
        let mut part = [0; 4];
        file.read_at(5, &mut part).unwrap();
        assert_eq!((file.length(), &part), (9, b"data"));
        assert_eq!(file.read_at(6, &mut part).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        disk.set_bad_medium(Some("other"));
        file.read_at(0, &mut part).unwrap();
        disk.set_bad_medium(Some("file"));
        assert_eq!(file.read_at(0, &mut part).unwrap_err().source.raw_os_error(), Some(ERRNO_IO));
        disk.set_bad_medium(None);
        file.read_at(0, &mut part).unwrap();
        disk.restart(CrashStyle::KeepAll, 0);
        assert!(file.read_at(0, &mut part).is_err(), "a file of an earlier life is dead");
    });
}
