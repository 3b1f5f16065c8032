//! Missing, wrong and new keys; files that are not encrypted.

use super::*;
use crate::{Protection, StoredFile, Update, look_at};

fn refusal<T>(outcome: Result<T, helenus_io::DiskError>) -> String {
    outcome.err().unwrap().to_string()
}

fn protection(below: &SimulatedDisk, path: &str) -> Option<Protection> {
    block_on(look_at(below, Path::new(path))).unwrap().map(|file| file.protection)
}

fn update(disk: &EncryptedDisk, path: &str) -> Update {
    block_on(disk.bring_up_to_date(Path::new(path))).unwrap()
}

#[test]
fn a_key_that_is_missing_or_wrong_is_named_with_the_file_and_nothing_is_changed() {
    let below = SimulatedDisk::new(1);
    write(&encrypted(&below, ONE, 1), "/file", secret(9_000));
    let files = below.files();
    let path = Path::new("/file");
    for (text, reason) in [(TWO, "not among the keys"), (&TWO.replace("two", "one"), "does not open it")] {
        let disk = encrypted(&below, text, 2);
        let refusals = block_on(async {
            [
                refusal(disk.read(path).await),
                refusal(disk.length(path).await),
                refusal(disk.open(path).await),
                refusal(disk.open_complete(path).await),
            ]
        });
        for message in refusals {
            assert!(
                message.contains("/file") && message.contains("\"one\"") && message.contains(reason),
                "{message}"
            );
        }
    }
    assert_eq!(below.files(), files);
}

#[test]
fn new_files_have_the_new_key_and_old_ones_are_read_with_theirs() {
    let below = SimulatedDisk::new(1);
    write(&encrypted(&below, ONE, 1), "/old", secret(9_000));
    let both = encrypted(&below, &format!("{ONE}{TWO}"), 2);
    write(&both, "/new", secret(500));
    assert_eq!(protection(&below, "/old"), Some(Protection::Key("one".to_owned())));
    assert_eq!(protection(&below, "/new"), Some(Protection::Key("two".to_owned())));
    block_on(async {
        assert_eq!(both.read(Path::new("/old")).await.unwrap(), secret(9_000));
        both.remove(Path::new("/old")).await.unwrap();
        let new = encrypted(&below, TWO, 3);
        assert_eq!(new.read(Path::new("/new")).await.unwrap(), secret(500));
        let bytes = below.length(Path::new("/new")).await.unwrap();
        let protection = Protection::Key("two".to_owned());
        let stored = look_at(&below, Path::new("/new")).await.unwrap();
        assert_eq!(stored, Some(StoredFile { protection, bytes }));
        assert_eq!(look_at(&below, Path::new("/old")).await.unwrap(), None);
    });
}

#[test]
fn files_from_before_are_read_and_encrypted_when_they_are_written() {
    let below = SimulatedDisk::new(1);
    write(&below, "/plain", secret(9_000));
    block_on(below.hard_link(Path::new("/plain"), Path::new("/snapshot"))).unwrap();
    let disk = encrypted(&below, ONE, 1);
    let path = Path::new("/plain");
    block_on(async {
        assert_eq!(disk.read(path).await.unwrap(), secret(9_000));
        assert_eq!(disk.length(path).await.unwrap(), 9_000);
        let mut part = [0; 8];
        disk.open_complete(path).await.unwrap().read_at(0, &mut part).unwrap();
        assert_eq!(&part, b"a secret");
        let file = disk.open(path).await.unwrap();
        file.write_and_sync_at(9_000, secret(10)).await.unwrap();
        let expected = [secret(9_000), secret(10)].concat();
        assert!(disk.read(path).await.unwrap() == expected);
        assert!(!has_secret(&below.files()[path]));
        assert_eq!(
            disk.read(Path::new("/snapshot")).await.unwrap(),
            secret(9_000),
            "another name keeps its file"
        );
        assert_eq!(disk.list(Path::new("/")).await.unwrap().len(), 2);
    });
}

#[test]
fn what_is_encrypted_stays_readable_after_encryption_is_turned_off() {
    let below = SimulatedDisk::new(1);
    write(&encrypted(&below, ONE, 1), "/old", secret(9_000));
    let disk = encrypted(&below, ONE, 2).that_encrypts_nothing_new();
    write(&disk, "/new", secret(9_000));
    assert_eq!(below.files()[Path::new("/new")], secret(9_000));
    block_on(async {
        disk.open(Path::new("/old")).await.unwrap().write_and_sync_at(9_000, secret(100)).await.unwrap();
        disk.open(Path::new("/new")).await.unwrap().write_and_sync_at(9_000, secret(100)).await.unwrap();
        let expected = [secret(9_000), secret(100)].concat();
        for path in ["/old", "/new"] {
            assert!(disk.read(Path::new(path)).await.unwrap() == expected);
        }
        assert!(!has_secret(&below.files()[Path::new("/old")]));
    });
}

#[test]
fn a_crash_while_a_file_is_encrypted_loses_nothing() {
    use helenus_io::CrashStyle;
    for point in 0.. {
        let mut was_crashed = false;
        for style in CrashStyle::ALL {
            let below = SimulatedDisk::new(point);
            write(&below, "/plain", secret(9_000));
            block_on(below.sync_directory(Path::new("/"))).unwrap();
            let disk = encrypted(&below, ONE, point);
            below.crash_at(below.operations() + point);
            let opened = block_on(disk.open(Path::new("/plain")));
            was_crashed |= opened.is_err();
            below.restart(style, point);
            assert_eq!(block_on(disk.read(Path::new("/plain"))).unwrap(), secret(9_000), "{point} {style:?}");
            block_on(disk.open(Path::new("/plain"))).unwrap();
            assert_eq!(block_on(disk.read(Path::new("/plain"))).unwrap(), secret(9_000), "{point} {style:?}");
        }
        if !was_crashed {
            return;
        }
    }
}

#[test]
fn where_plain_files_are_refused_each_is_named_and_none_of_its_bytes_is_read() {
    let below = SimulatedDisk::new(1);
    write(&below, "/plain", secret(9_000));
    write(&below, "/short", secret(100));
    write(&below, "/empty", Bytes::new());
    let disk = encrypted(&below, ONE, 1).that_refuses_plain_files();
    let files = below.files();
    for name in ["/plain", "/short"] {
        let path = Path::new(name);
        let refusals = block_on(async {
            [
                refusal(disk.read(path).await),
                refusal(disk.open(path).await),
                refusal(disk.open_complete(path).await),
            ]
        });
        for said in refusals {
            assert!(said.contains(name) && said.contains("the file is not encrypted"), "{said}");
        }
        assert_eq!(block_on(disk.length(path)).unwrap(), files[path].len() as u64, "lengths are no contents");
    }
    assert_eq!(below.files(), files, "nothing is changed");
    write(&disk, "/new", secret(9_000));
    block_on(async {
        assert_eq!(disk.read(Path::new("/new")).await.unwrap(), secret(9_000));
        assert_eq!(disk.read(Path::new("/empty")).await.unwrap(), Bytes::new());
        disk.open(Path::new("/empty")).await.unwrap().write_and_sync_at(0, secret(10)).await.unwrap();
        assert_eq!(disk.read(Path::new("/empty")).await.unwrap(), secret(10));
    });
}

#[test]
fn where_plain_files_are_refused_no_disguise_lets_bytes_in() {
    use crate::frame::DAMAGE;
    let magic = b"helenus-at-rest\0";
    // As a file with a damaged header, as its second copy, and as a file that was never synced.
    for (at, expected) in [(0, DAMAGE), (2_048, DAMAGE), (4_096, 0)] {
        let mut disguised = if at == 4_096 { vec![0; at] } else { secret(at).to_vec() };
        disguised.extend_from_slice(magic);
        disguised.extend_from_slice(&secret(9_000));
        let below = SimulatedDisk::new(1);
        write(&below, "/file", Bytes::from(disguised.clone()));
        let path = Path::new("/file");
        let disk = encrypted(&below, ONE, 1).that_refuses_plain_files();
        let expected = vec![expected; disguised.len()];
        block_on(async {
            assert!(disk.read(path).await.unwrap() == expected, "{at}");
            let complete = disk.open_complete(path).await.unwrap();
            let mut all = vec![7; disguised.len()];
            complete.read_at(0, &mut all).unwrap();
            assert!(all == expected, "{at}");
            assert!(complete.read_at(1, &mut all).is_err());
            disk.open(path).await.unwrap();
            assert!(disk.read(path).await.unwrap() == expected, "{at}: as it was read before it was written");
        });
        assert!(!has_secret(&below.files()[path]));
    }
}

#[test]
fn files_are_brought_up_to_date_and_then_need_the_current_key_only() {
    let below = SimulatedDisk::new(1);
    // More than is copied at once, and a part of a frame.
    let long = secret(256 * 4_040 + 5_000);
    write(&below, "/plain", long.clone());
    write(&below, "/empty", Bytes::new());
    write(&encrypted(&below, ONE, 1), "/old", long.clone());
    block_on(below.hard_link(Path::new("/old"), Path::new("/snapshot"))).unwrap();
    let both = encrypted(&below, &format!("{ONE}{TWO}"), 2);
    write(&both, "/new", secret(10));
    let stored = below.files()[Path::new("/old")].clone();
    assert_eq!(update(&both, "/plain"), Update::Encrypted);
    assert_eq!(update(&both, "/old"), Update::Rewrapped);
    for path in ["/plain", "/old", "/snapshot", "/new", "/empty"] {
        assert_eq!(update(&both, path), Update::None, "{path}");
    }
    let files = below.files();
    assert!(files[Path::new("/old")][4_096..] == stored[4_096..], "only the header is written anew");
    assert_ne!(files[Path::new("/old")][88..168], stored[88..168], "with another salt");
    let disk = encrypted(&below, TWO, 3).that_refuses_plain_files();
    block_on(async {
        for path in ["/plain", "/old", "/snapshot"] {
            assert!(disk.read(Path::new(path)).await.unwrap() == long, "{path}");
        }
        assert_eq!(disk.read(Path::new("/new")).await.unwrap(), secret(10));
    });
    assert!(
        refusal(block_on(encrypted(&below, ONE, 3).bring_up_to_date(Path::new("/old")))).contains("/old")
    );
    assert!(below.overwrite(Path::new("/old"), 16, &[9; 4_000]));
    assert_eq!(update(&both, "/old"), Update::Damaged);
    assert_eq!(protection(&below, "/old"), Some(Protection::Damaged));
    assert_eq!(protection(&below, "/empty"), None);
}

#[test]
fn a_crash_while_a_file_is_brought_up_to_date_loses_nothing() {
    use helenus_io::CrashStyle;
    for is_plain in [true, false] {
        for point in 0.. {
            let mut was_crashed = false;
            for style in CrashStyle::ALL {
                let below = SimulatedDisk::new(point);
                let path = Path::new("/file");
                if is_plain {
                    write(&below, "/file", secret(9_000));
                } else {
                    write(&encrypted(&below, ONE, point), "/file", secret(9_000));
                }
                block_on(below.sync_directory(Path::new("/"))).unwrap();
                let disk = encrypted(&below, &format!("{ONE}{TWO}"), point + 1);
                below.crash_at(below.operations() + point);
                was_crashed |= block_on(disk.bring_up_to_date(path)).is_err();
                below.restart(style, point);
                assert_eq!(block_on(disk.read(path)).unwrap(), secret(9_000), "{point} {style:?}");
                update(&disk, "/file");
                let new = encrypted(&below, TWO, point).that_refuses_plain_files();
                assert_eq!(block_on(new.read(path)).unwrap(), secret(9_000), "{point} {style:?}");
            }
            if !was_crashed {
                break;
            }
        }
    }
}
