//! Missing, wrong and new keys; files that are not encrypted.

use super::*;
use crate::{KeyUse, usage};

fn refusal<T>(outcome: Result<T, helenus_io::DiskError>) -> String {
    outcome.err().unwrap().to_string()
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
    block_on(async {
        assert_eq!(both.read(Path::new("/old")).await.unwrap(), secret(9_000));
        let found = usage(&below, vec!["/".into()]).await.unwrap();
        let ids: Vec<_> = found.keys().map(|id| id.as_deref()).collect();
        assert_eq!(ids, [Some("one"), Some("two")]);
        both.remove(Path::new("/old")).await.unwrap();
        let new = encrypted(&below, TWO, 3);
        assert_eq!(new.read(Path::new("/new")).await.unwrap(), secret(500));
        let found = usage(&below, vec!["/".into()]).await.unwrap();
        let stored = below.length(Path::new("/new")).await.unwrap();
        assert_eq!(found, [(Some("two".to_owned()), KeyUse { files: 1, bytes: stored })].into());
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
