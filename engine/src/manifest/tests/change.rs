use super::super::change::ChangeError;
use super::*;

fn table(manifest: &mut Manifest) -> &mut ManifestTable {
    manifest.tables.get_mut(&TABLE).unwrap()
}

/// A change of every kind.
fn sample_change() -> (Manifest, Change) {
    let before = Manifest {
        tables: sample()
            .tables
            .into_iter()
            .chain([(TableId([7; 16]), ManifestTable::new(LogPosition::default()))])
            .collect(),
        ..sample()
    };
    let mut edit = ManifestEdit::default();
    let table = edit.table(&before, TABLE).unwrap();
    let moved = table.files[0];
    table.flushed_to.offset = 78;
    table.files.clear();
    table.obsolete = [FileId { generation: 299, directory: 0 }, moved.id()].into();
    table.files.push(ManifestFile { generation: 301, tokens: None, directory: 0, ..moved });
    edit.drop_table(TableId([7; 16]));
    edit.forget_dropped(TableId([8; 16]));
    edit.add_table(TableId([10; 16]), ManifestTable::new(LogPosition { segment: 4, offset: 0 }));
    let change = edit.finish(&before, 302, 3);
    (before, change)
}

#[test]
fn golden_bytes() {
    let mut expected = vec![7, 0xAE, 2, 3, 3];
    // The dropped table.
    expected.extend([7; 16]);
    expected.push(0);
    // The changed one: a file goes and another comes, an obsolete file is forgotten and another is new.
    expected.extend([9; 16]);
    expected.extend([1, 3, 78, 1, 0xAC, 2, 1, 0xAD, 2, 1, 5, 0, 0, 1, 4, 2, 1, 0xAC, 2, 2]);
    // The new one.
    expected.extend([10; 16]);
    expected.extend([2, 4, 0, 0, 0, 0, 0]);
    expected.push(1);
    expected.extend([7; 16]);
    expected.push(1);
    expected.extend([8; 16]);
    assert_eq!(sample_change().1.encode(), expected);
}

#[test]
fn a_change_leads_to_what_the_edit_has_made() {
    let mut random = SplitMix64::new(2);
    let mut manifest = Manifest::new();
    for number in 0..2_000 {
        let (change, expected) = any_edit(&mut random, &manifest, 5);
        let decoded = Change::decode(&change.encode()).unwrap();
        assert_eq!(decoded, change);
        decoded.apply(&mut manifest).unwrap();
        assert_eq!(manifest, expected, "edit {number}");
    }
    assert!(manifest.next_generation > 1_000);
}

#[test]
fn an_edit_costs_what_it_changes() {
    let (mut manifest, _) = sample_change();
    let file = manifest.tables[&TABLE].files[0];
    let files = (0..1_000).map(|generation| ManifestFile { generation, ..file }).collect();
    manifest.tables.insert(TABLE, ManifestTable { files, ..ManifestTable::new(LogPosition::default()) });
    let mut edit = ManifestEdit::default();
    edit.table(&manifest, TABLE).unwrap().files.push(ManifestFile { generation: 1_000, ..file });
    let bytes = edit.finish(&manifest, 1_001, 3).encode().len();
    assert!(bytes < 60, "{bytes}");
}

#[test]
fn a_change_that_does_not_fit_is_refused() {
    let (before, change) = sample_change();
    let is_refused = |spoil: &dyn Fn(&mut Manifest)| {
        let mut other = before.clone();
        spoil(&mut other);
        let spoilt = other.clone();
        let is_refused = change.apply(&mut other).is_err();
        assert!(!is_refused || other == spoilt, "what is refused changes nothing");
        is_refused
    };
    assert!(!is_refused(&|_| ()));
    let misfits: [&dyn Fn(&mut Manifest); 9] = [
        &|manifest| manifest.sequence += 1,
        &|manifest| assert!(manifest.tables.remove(&TABLE).is_some()),
        &|manifest| assert!(manifest.tables.remove(&TableId([7; 16])).is_some()),
        &|manifest| {
            manifest.tables.insert(TableId([10; 16]), ManifestTable::new(LogPosition::default()));
        },
        &|manifest| assert!(manifest.dropped.remove(&TableId([8; 16]))),
        &|manifest| table(manifest).files.clear(),
        &|manifest| table(manifest).files[0].generation = 301,
        &|manifest| table(manifest).obsolete.clear(),
        &|manifest| manifest.directories.clear(),
    ];
    for (index, misfit) in misfits.into_iter().enumerate() {
        assert!(is_refused(misfit), "{index}");
    }
    let mut earlier = Manifest { sequence: 4, ..before.clone() };
    let expected = ChangeError::Sequence { expected: 5, found: 7 };
    assert_eq!(change.apply(&mut earlier).unwrap_err(), expected);
}

#[test]
fn a_drop_fits_if_an_earlier_table_with_its_id_is_listed() {
    let (mut before, change) = sample_change();
    let mut expected = before.clone();
    change.apply(&mut expected).unwrap();
    assert!(before.dropped.insert(TableId([7; 16])));
    change.apply(&mut before).unwrap();
    assert_eq!(before, expected);
    // Without the table there is nothing to drop.
    let mut edit = ManifestEdit::default();
    edit.drop_table(TableId([7; 16]));
    let change = edit.finish(&before, 302, 3);
    assert!(change.apply(&mut before).is_err());
}

#[test]
fn bytes_that_are_no_change_are_refused() {
    let bytes = sample_change().1.encode();
    for length in 0..bytes.len() {
        assert!(Change::decode(&bytes[..length]).is_err(), "{length}");
    }
    assert!(Change::decode(&[&bytes[..], &[0]].concat()).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // It is another change, or none. A checksum distinguishes it.
        if let Ok(other) = Change::decode(&flipped) {
            assert_ne!(other, sample_change().1);
        }
    }
}
