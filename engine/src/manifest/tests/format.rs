use super::super::format::{Decoded, decode, encode};
use super::*;
use crate::io::Unusable;

fn read(bytes: &[u8]) -> Result<Decoded, Unusable<ManifestError>> {
    decode(bytes, Path::new("manifest"))
}

/// With the right checksum.
fn sealed(version: u8, body: &[u8]) -> Vec<u8> {
    let covered = if version == 1 { body.to_vec() } else { [&[version][..], body].concat() };
    let checksum = crc32fast::hash(&covered).to_le_bytes();
    [&b"HLMF"[..], &[version], &checksum, body].concat()
}

/// The obsolete files and the dropped table of version 2 stand apart, so that a test can swap them.
fn body() -> Vec<u8> {
    let mut body = vec![6, 0xAD, 2, 2, 2, 2, b'/', b'a', 3, b'/', b'b', b'c', 1];
    body.extend([9; 16]);
    body.extend([3, 77, 1, 0xAC, 2, 1, 5, 2, 1]);
    body.extend([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0, 0, 0, 0, 0]);
    body.extend([2, 4, 2, 0xAB, 2, 0, 1]);
    body.extend([8; 16]);
    body
}

#[test]
fn a_manifest_survives_a_round_trip() {
    assert_eq!(read(&encode(&sample())).unwrap(), Decoded { manifest: sample(), has_changes: true });
    let mut random = SplitMix64::new(1);
    let mut manifest = Manifest::new();
    for _ in 0..300 {
        manifest = any_edit(&mut random, &manifest, 9).1;
        assert_eq!(read(&encode(&manifest)).unwrap().manifest, manifest);
    }
}

#[test]
fn golden_bytes() {
    assert_eq!(encode(&sample()), sealed(3, &body()));
}

#[test]
fn version_2_is_read_whatever_the_order() {
    let mut body = body();
    let obsolete = body.len() - 16 - 6;
    body[obsolete..obsolete + 5].copy_from_slice(&[0xAB, 2, 0, 4, 2]);
    assert_eq!(read(&sealed(2, &body)).unwrap(), Decoded { manifest: sample(), has_changes: false });
    // In version 3 nothing but the order could be wrong, and nothing writes another one.
    assert!(matches!(read(&sealed(3, &body)), Err(Unusable::Damaged(_))));
}

#[test]
fn version_1_is_read() {
    let mut body = vec![0xAD, 2, 1];
    body.extend([9; 16]);
    body.extend([3, 77, 1, 0xAC, 2, 1, 5]);
    let mut expected =
        Manifest { sequence: 0, log_needed_from: 0, directories: Vec::new(), dropped: [].into(), ..sample() };
    let table = expected.tables.get_mut(&TABLE).unwrap();
    table.obsolete.clear();
    table.files[0].directory = 0;
    table.files[0].tokens = None;
    assert_eq!(read(&sealed(1, &body)).unwrap(), Decoded { manifest: expected, has_changes: false });
}

#[test]
fn a_directory_that_is_not_named_is_damage() {
    let mut unknown = sample();
    unknown.directories.pop();
    assert!(matches!(read(&encode(&unknown)), Err(Unusable::Damaged(_))));
}

#[test]
fn damage_is_noticed() {
    let encoded = encode(&sample());
    for index in 0..encoded.len() {
        let mut damaged = encoded.clone();
        damaged[index] ^= 1;
        // Also in the version: the other copy must be used.
        assert!(matches!(read(&damaged), Err(Unusable::Damaged(_))), "byte {index}");
        assert!(matches!(read(&encoded[..index]), Err(Unusable::Damaged(_))));
    }
}

#[test]
fn a_newer_version_is_refused_by_its_number() {
    let Err(Unusable::Refused(error)) = read(&sealed(4, &body())) else { panic!("read") };
    let error = error.to_string();
    assert!(
        error.contains("manifest manifest has version 4; this program knows versions up to 3"),
        "{error}"
    );
}
