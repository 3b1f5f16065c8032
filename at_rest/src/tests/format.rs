//! The bytes of a file, as every version must read them.

use std::collections::BTreeSet;

use super::*;

/// Where the file with the bytes of version 1 is.
fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/version-1")
}

/// A file with a full slot, a slot of two frames, and a reserved length.
fn written(seed: u64) -> (Vec<u8>, Bytes) {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, &format!("{TWO}{ONE}"), seed);
    block_on(async {
        let path = Path::new("/file");
        let file = disk.create(path).await.unwrap();
        file.write_and_sync_at(0, secret(4_500)).await.unwrap();
        file.write_and_sync_at(4_500, secret(200)).await.unwrap();
        file.reserve(5_000).await.unwrap();
        file.sync_data().await.unwrap();
        let stored = below.read(path).await.unwrap();
        let last = stored.iter().rposition(|byte| *byte != 0).unwrap();
        (stored[..=last].to_vec(), disk.read(path).await.unwrap())
    })
}

#[test]
fn the_bytes_of_a_file_are_those_of_version_1() {
    let (stored, contents) = written(7);
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(golden(), &stored).unwrap();
    }
    let golden = std::fs::read(golden()).unwrap();
    assert!(golden == stored, "the format has changed");
    let below = SimulatedDisk::with_files(1, &[("/old".into(), golden)].into());
    let read = block_on(encrypted(&below, ONE, 1).read(Path::new("/old"))).unwrap();
    assert_eq!(read, contents);
    let expected = [secret(4_500), secret(200), Bytes::from_static(&[0; 300])].concat();
    assert!(contents == expected);
}

/// Session and counter of all heads of frames with contents.
fn nonces(below: &SimulatedDisk, path: &Path) -> BTreeSet<Vec<u8>> {
    let stored = below.files()[path].clone();
    let slots = stored.get(4096..).unwrap_or_default().chunks(4096);
    slots
        .flat_map(|slot| {
            let heads =
                (0..slot.len().saturating_sub(40)).filter(|at| slot[*at..].starts_with(&[0xE5, 0xA7, 1]));
            heads.map(|at| slot[at + 16..at + 40].to_vec()).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn no_nonce_comes_twice() {
    let below = SimulatedDisk::new(1);
    let disk = encrypted(&below, ONE, 3);
    let path = Path::new("/log");
    let mut seen = BTreeSet::new();
    // The same place is written again and again, with failures between, and by one opening after the other.
    block_on(async {
        drop(disk.create(path).await.unwrap());
        for opening in 0..20_u8 {
            let file = disk.open(path).await.unwrap();
            for number in 0..10_u8 {
                if number % 3 == 1 {
                    below.fail_at(below.operations(), helenus_io::Fault::NoSpace);
                }
                let before = nonces(&below, path);
                // It may fail.
                let _ = file.write_at(0, Bytes::from(vec![opening.wrapping_add(number); 100])).await;
                for nonce in nonces(&below, path).difference(&before) {
                    assert!(seen.insert(nonce.clone()), "{nonce:?}");
                }
            }
        }
    });
    assert!(seen.len() > 130, "{}", seen.len());
}

#[test]
fn two_files_and_two_disks_have_nothing_in_common() {
    let (one, _) = written(1);
    let (other, _) = written(2);
    let same =
        one[4096..].iter().zip(&other[4096..]).filter(|(one, other)| one == other && **one != 0).count();
    assert!(same < one.len() / 50, "{same}");
    assert_ne!(one[88..168], other[88..168], "salt and wrapped key");
}
