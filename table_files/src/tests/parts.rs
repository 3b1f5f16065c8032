//! Tables of which filters and leaves of the index are read in parts: they are the same tables, and damage to a part is found when it is
//! read.

use super::*;
use crate::cache::{BlockKey, BlockKind};
use crate::{TableCursorBuffers, verify};

/// Small blocks, so that the index has many leaves.
const BLOCK_BYTES: usize = 64;

fn options() -> TableOptions {
    TableOptions { compression: Compression::None, block_bytes: BLOCK_BYTES, ..TableOptions::default() }
}

/// A table whose index has several leaves, and whose filters have several parts.
fn large() -> (Rows, Vec<u8>) {
    let rows = sample(16_000, 2, 8);
    let file = build(&rows, &RangeTombstoneList::new(), options());
    (rows, file)
}

/// Reads without the disk until everything is in the cache. Returns also how many blocks were fetched.
fn read_cold<T>(
    cache: &BlockCache,
    mut read: impl FnMut() -> Result<T, TableError>,
) -> Result<(T, usize), TableError> {
    let mut held: Vec<BlockKey> = Vec::new();
    loop {
        let (result, missing) = cache.without_disk(&mut read);
        if missing.is_empty() {
            for key in &held {
                cache.unpin(*key);
            }
            return result.map(|result| (result, held.len()));
        }
        for missing in missing {
            let fetched = block_on(missing.table.fetch(&missing, 300, 1 << 20))?;
            assert!(fetched.blocks.iter().any(|(key, _)| *key == missing.key()));
            for (key, data) in &fetched.blocks {
                cache.pin(*key, data);
                held.push(*key);
            }
        }
    }
}

#[test]
fn a_large_table_in_parts_has_the_same_rows() {
    let (rows, file) = large();
    let whole = open(file.clone()).unwrap();
    let table = open_in_parts(file).unwrap();
    assert_eq!(table.resident_bytes(), 0);
    assert_eq!(whole.resident_bytes(), whole.memory_bytes() - table.index_root.len() as u64);
    assert!(table.memory_bytes() * 20 < whole.memory_bytes());
    assert!(table.leaf_count().unwrap() > 20);
    assert_eq!(read_backwards(&table).unwrap(), rows);
    for cache_bytes in [0, 64 << 20] {
        let cache = Rc::new(BlockCache::new(cache_bytes));
        assert_eq!(read_forwards(&table, Some(Rc::clone(&cache))).unwrap(), rows);
        let (read, _) = read_cold(&cache, || read_forwards(&table, Some(Rc::clone(&cache)))).unwrap();
        assert!(read == rows);
        for (key, bytes) in rows.iter().step_by(311) {
            let get = || table.get(Some(&cache), key);
            assert_eq!(content(read_cold(&cache, get).unwrap().0.unwrap().row()), *bytes);
            let absent = [key.as_slice(), b"\x07"].concat();
            for key in [key, &absent] {
                let hash = KeyHash::of(key);
                let expected = (may_contain_partition(&whole, key), may_contain_row(&whole, key));
                let look = || {
                    let partition = table.may_contain_partition(Some(&cache), hash)?;
                    Ok((partition, table.may_contain_row(Some(&cache), hash)?))
                };
                assert_eq!(read_cold(&cache, look).unwrap().0, expected);
            }
        }
    }
    block_on(verify(&table, table.statistics(), async |_| {})).unwrap();
}

#[test]
fn an_absent_key_costs_a_part_of_the_filter_and_no_block() {
    let (rows, file) = large();
    let table = open_in_parts(file).unwrap();
    let absent: Vec<_> = rows.keys().step_by(11).map(|key| [key.as_slice(), b"\x07"].concat()).collect();
    let (mut fetched, mut maybe) = (0, 0);
    for key in &absent {
        let cache = BlockCache::new(0);
        let look = || table.may_contain_row(Some(&cache), KeyHash::of(key));
        let (may_contain, blocks) = read_cold(&cache, look).unwrap();
        fetched += blocks;
        maybe += usize::from(may_contain);
    }
    assert_eq!(fetched, absent.len());
    assert!(maybe < absent.len() / 20, "{maybe} of {}", absent.len());
}

#[test]
fn the_memory_for_parts_is_reserved_and_given_back() {
    let (_, file) = large();
    let file = Arc::new(InMemory(file));
    let bytes = TableReader::open(file.clone(), Path::new(PATH), 1).unwrap().resident_bytes();
    let resident = ResidentParts::new(bytes * 5 / 2);
    let open = |id| TableReader::open_within(file.clone(), Path::new(PATH), id, &resident).unwrap();
    let mut tables: Vec<_> = (0..4).map(open).collect();
    let sizes = |tables: &[TableReader]| tables.iter().map(TableReader::resident_bytes).collect::<Vec<_>>();
    let first = sizes(&tables);
    assert_eq!(first[..2], [bytes, bytes]);
    assert!(0 < first[2] && first[2] < bytes && first[3] < bytes, "{first:?}");
    assert_eq!(resident.used_bytes(), first.iter().sum::<u64>());
    assert!(resident.used_bytes() <= bytes * 5 / 2);
    tables.remove(0);
    tables.push(open(5));
    assert_eq!(sizes(&tables)[3], bytes, "what the first table had is there for the last");
    drop(tables);
    assert_eq!(resident.used_bytes(), 0);
    let damaged = InMemory(file.0[..file.0.len() - 1].to_vec());
    assert!(TableReader::open_within(Arc::new(damaged), Path::new(PATH), 6, &resident).is_err());
    assert_eq!(resident.used_bytes(), 0);
}

#[test]
fn parts_of_an_old_table_are_resident_whatever_the_limit_is() {
    let resident = ResidentParts::new(0);
    let stored = include_bytes!("../testdata/version-3.table").to_vec();
    let table = TableReader::open_within(Arc::new(InMemory(stored)), Path::new(PATH), 1, &resident).unwrap();
    assert!(table.resident_bytes() > 0 && resident.used_bytes() == table.resident_bytes());
    assert_eq!(read_forwards(&Arc::new(table), None).unwrap(), stored_content().0);
    assert_eq!(resident.used_bytes(), 0);
}

/// Offsets in the file at which a part begins or ends: of the filters, and of the leaves of the index.
fn borders(table: &Arc<TableReader>) -> Vec<u64> {
    let footer = &table.footer;
    let mut borders = Vec::new();
    for filter in [&footer.partition_filter, &footer.row_filter] {
        let parts = (filter.offset..filter.offset + filter.length).step_by(16 << 10);
        borders.extend(parts);
        borders.push(filter.offset + filter.length);
    }
    let leaves = &footer.index_leaves;
    let root = crate::index::Node::new(&table.index_root).unwrap();
    borders.extend((0..root.len()).map(|leaf| root.target(leaf).unwrap().offset));
    borders.push(leaves.offset + leaves.length);
    borders
}

#[test]
fn damage_anywhere_in_a_part_is_found_when_the_part_is_read() {
    let (rows, file) = large();
    let places = borders(&open(file.clone()).unwrap());
    assert!(places.len() > 30);
    // Beside each border, and in the middle of what lies between two.
    let middles = places.windows(2).map(|pair| u64::midpoint(pair[0], pair[1]));
    let beside = places.iter().flat_map(|place| [place - 5, place - 1, *place]);
    let mut offsets: Vec<u64> = middles.chain(beside).step_by(3).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let first = *places.first().unwrap();
    let end = *places.last().unwrap();
    for offset in offsets.into_iter().filter(|offset| (first..end).contains(offset)) {
        let mut damaged = file.clone();
        damaged[offset as usize] ^= 4;
        let is_padding = open(damaged.clone()).is_ok();
        let read = open_in_parts(damaged).and_then(|table| {
            block_on(table.check_filters())?;
            assert!(read_forwards(&table, None)? == rows);
            Ok(())
        });
        match read {
            Ok(()) => assert!(is_padding, "offset {offset}"),
            Err(TableError::Damaged { path, offset: found, .. }) => {
                assert_eq!(path, Path::new(PATH));
                assert!(!is_padding && found <= offset && offset - found <= 64 << 10, "{found} for {offset}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn damage_to_one_part_costs_what_needs_it_and_nothing_else() {
    let (rows, mut file) = large();
    let section = open(file.clone()).unwrap().footer.partition_filter;
    file[section.offset as usize + (16 << 10) + 100] ^= 1;
    assert!(open(file.clone()).is_err());
    let table = open_in_parts(file).unwrap();
    let cache = BlockCache::new(64 << 20);
    let (mut found, mut lost) = (0, 0);
    for key in rows.keys() {
        let look = || table.may_contain_partition(Some(&cache), KeyHash::of(key));
        match read_cold(&cache, look) {
            Ok((true, _)) => found += 1,
            Ok((false, _)) => panic!("a partition is not found"),
            Err(error) => {
                let expected = section.offset + (16 << 10);
                assert!(matches!(error, TableError::Damaged { offset, .. } if offset == expected), "{error}");
                lost += 1;
            }
        }
    }
    assert!(found > 0 && lost > 0, "{found} {lost}");
}

#[test]
fn of_a_table_with_a_damaged_leaf_the_other_blocks_are_salvaged() {
    let (rows, mut file) = large();
    let table = open(file.clone()).unwrap();
    let root = crate::index::Node::new(&table.index_root).unwrap();
    file[root.target(1).unwrap().offset as usize + 20] ^= 1;
    let table = open_in_parts(file).unwrap();
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let mut writer = TableWriter::create(&disk, Path::new(PATH), TableOptions::default()).await.unwrap();
        let salvaged = crate::salvage(&table, &mut writer).await.unwrap();
        writer.finish().await.unwrap();
        assert_eq!(salvaged.lost_blocks.len(), 1, "{:?}", salvaged.lost_blocks);
        let left =
            read_forwards(&TableReader::open_file(&disk, Path::new(PATH), 2).await.unwrap(), None).unwrap();
        assert_eq!(left.len() as u64, salvaged.rows);
        assert!(left.len() < rows.len() && left.len() > rows.len() / 2);
        assert!(left.iter().all(|(key, bytes)| rows.get(key) == Some(bytes)));
    });
}

#[test]
fn a_long_read_leaves_no_parts_in_the_cache() {
    let (rows, file) = large();
    let table = open_in_parts(file).unwrap();
    let cache = Rc::new(BlockCache::new(64 << 20));
    let pattern = crate::ReadPattern::LongRange;
    let mut cursor =
        TableCursor::for_pattern(table, Rc::clone(&cache), pattern, TableCursorBuffers::default());
    let mut count = 0;
    let mut more = cursor.seek_first().unwrap();
    while more {
        count += 1;
        more = cursor.next().unwrap();
    }
    assert_eq!((count, cache.statistics().blocks), (rows.len(), 0));
}

#[test]
fn a_fetch_for_a_scan_goes_on_across_leaves_in_both_directions() {
    let (_, file) = large();
    let table = open_in_parts(file).unwrap();
    let cache = Rc::new(BlockCache::new(0));
    for reversed in [false, true] {
        let mut cursor = TableCursor::new(Arc::clone(&table), Some(Rc::clone(&cache)));
        let mut read = || if reversed { cursor.seek_last() } else { cursor.seek_first() };
        let mut held = Vec::new();
        loop {
            let (_, missing) = cache.without_disk(&mut read);
            let [missing] = &missing[..] else { panic!("one block is missing") };
            let fetched = block_on(missing.table.fetch(missing, 300, 1 << 20)).unwrap();
            if let BlockKind::Data(_) = missing.kind {
                assert_eq!(fetched.blocks.len(), 300, "more than two leaves have");
                assert!(fetched.next.is_some());
                break;
            }
            assert_eq!(fetched.blocks.len(), 1);
            let (key, data) = &fetched.blocks[0];
            cache.pin(*key, data);
            held.push(*key);
        }
        for key in held {
            cache.unpin(key);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Gets, absent keys and cursors of a table in parts are those of the table in memory.
    #[test]
    fn a_table_in_parts_is_the_same_table(
        seed in any::<u64>(),
        partitions in 1..400_u64,
        block_bytes in prop_oneof![Just(64_usize), Just(300), Just(16384)],
        cache_bytes in prop_oneof![Just(0_usize), Just(20_000), Just(1 << 20)],
        moves in prop::collection::vec((0..6_u8, any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        let rows = sample(partitions, 20, seed);
        let options = TableOptions { block_bytes, ..TableOptions::default() };
        let file = build(&rows, &RangeTombstoneList::new(), options);
        let (whole, table) = (open(file.clone()).unwrap(), open_in_parts(file).unwrap());
        let cache = Rc::new(BlockCache::new(cache_bytes));
        let mut expected = TableCursor::new(Arc::clone(&whole), None);
        let mut cursor = TableCursor::new(Arc::clone(&table), Some(Rc::clone(&cache)));
        let keys: Vec<_> = rows.keys().cloned().collect();
        for (action, index, beside) in moves {
            let mut key = index.get(&keys).clone();
            if beside {
                key.pop();
            }
            let step = |cursor: &mut TableCursor| match action {
                0 => cursor.seek_first(),
                1 => cursor.seek_last(),
                2 => cursor.seek(&key),
                3 => cursor.seek_before(&key),
                4 => cursor.next(),
                _ => cursor.prev(),
            };
            prop_assert_eq!(step(&mut cursor).unwrap(), step(&mut expected).unwrap());
            prop_assert_eq!(cursor.key(), expected.key());
            prop_assert_eq!(content_of(&cursor), content_of(&expected));
            let hash = KeyHash::of(&key);
            prop_assert_eq!(
                table.may_contain_partition(Some(&cache), hash).unwrap(),
                whole.may_contain_partition(None, hash).unwrap()
            );
            prop_assert_eq!(
                table.may_contain_row(Some(&cache), hash).unwrap(),
                whole.may_contain_row(None, hash).unwrap()
            );
            let get = |table: &Arc<TableReader>, cache: Option<&BlockCache>| {
                table.get(cache, &key).unwrap().map(|row| content(row.row()))
            };
            prop_assert_eq!(get(&table, Some(&cache)), get(&whole, None));
        }
    }
}

fn content_of(cursor: &TableCursor) -> Option<Vec<u8>> {
    cursor.current().map(|(_, row)| content(row))
}
