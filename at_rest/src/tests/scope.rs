//! A disk of which only some files are encrypted.

use super::*;
use crate::{Scope, Update};

/// Encrypts what is not below `/plain`.
struct Chosen;

impl Scope for Chosen {
    fn encrypts(&self, path: &Path) -> bool {
        !path.starts_with("/plain")
    }

    fn accepts_plain(&self, path: &Path) -> bool {
        !self.encrypts(path)
    }

    fn refuses_links(&self, path: &Path) -> bool {
        path.starts_with("/chosen")
    }
}

fn disk(below: &SimulatedDisk) -> EncryptedDisk {
    block_on(async {
        for directory in ["/plain", "/chosen", "/links"] {
            below.create_directory(Path::new(directory)).await.unwrap();
        }
    });
    encrypted(below, ONE, 1).that_encrypts(Arc::new(Chosen))
}

fn is_plain(below: &SimulatedDisk, path: &str) -> bool {
    has_secret(&below.files()[Path::new(path)])
}

#[test]
fn files_are_encrypted_by_their_path_and_all_are_read() {
    let below = SimulatedDisk::new(1);
    for disk in [disk(&below), disk(&below).that_refuses_plain_files()] {
        for path in ["/plain/file", "/chosen/file", "/file"] {
            write(&disk, path, secret(9_000));
            assert_eq!(is_plain(&below, path), path.starts_with("/plain"), "{path}");
            block_on(async {
                let path = Path::new(path);
                assert_eq!(disk.read(path).await.unwrap(), secret(9_000));
                // What is plain by right stays so when it is written again.
                disk.open(path).await.unwrap().write_and_sync_at(9_000, secret(10)).await.unwrap();
                assert_eq!(disk.length(path).await.unwrap(), 9_010);
            });
            assert_eq!(is_plain(&below, path), path.starts_with("/plain"), "{path}");
            block_on(disk.remove(Path::new(path))).unwrap();
        }
    }
}

#[test]
fn a_plain_file_is_refused_where_it_has_no_right_to_be() {
    let below = SimulatedDisk::new(1);
    let disk = disk(&below).that_refuses_plain_files();
    for path in ["/plain/file", "/chosen/file"] {
        write(&below, path, secret(100));
    }
    block_on(async {
        assert_eq!(disk.read(Path::new("/plain/file")).await.unwrap(), secret(100));
        let refused = disk.read(Path::new("/chosen/file")).await.unwrap_err().to_string();
        assert!(refused.contains("/chosen/file") && refused.contains("is not encrypted"), "{refused}");
        assert_eq!(disk.bring_up_to_date(Path::new("/plain/file")).await.unwrap(), Update::None);
        assert_eq!(disk.bring_up_to_date(Path::new("/chosen/file")).await.unwrap(), Update::Encrypted);
    });
    assert!(is_plain(&below, "/plain/file") && !is_plain(&below, "/chosen/file"));
}

#[test]
fn a_plain_file_is_copied_where_its_link_would_be_plain() {
    let below = SimulatedDisk::new(1);
    let disk = disk(&below);
    write(&disk, "/plain/file", secret(9_000));
    write(&below, "/chosen/old", secret(9_000));
    let link =
        |from: &'static str, to: &'static str| block_on(disk.hard_link(Path::new(from), Path::new(to)));
    link("/plain/file", "/chosen/file").unwrap();
    assert!(!is_plain(&below, "/chosen/file"));
    assert_eq!(block_on(disk.read(Path::new("/chosen/file"))).unwrap(), secret(9_000));
    // A name within a directory, and one where plain files may be linked, is a name of the same file.
    link("/chosen/old", "/chosen/again").unwrap();
    link("/plain/file", "/links/file").unwrap();
    assert!(is_plain(&below, "/chosen/again") && is_plain(&below, "/links/file"));
    let taken = link("/plain/file", "/chosen/file").unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
    let left = below.files().into_keys().filter(|path| path.to_str().unwrap().ends_with(".encrypting"));
    assert_eq!(left.count(), 0);
}
