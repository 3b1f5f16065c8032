//! Random histories of one partition on three replicas, beside a plain list that drops rows at once.

use std::collections::BTreeMap;

use helenus_engine::io::SplitMix64;
use helenus_engine::read::reconcile_answers::{ReplicaAnswer, reconcile_answers};
use helenus_engine::{Liveness, Mutation, MutationBuilder, RowBuilder, TableId};

use super::*;

const NOW_SECONDS: u32 = 1_000;
const NOW_MICROS: i64 = 1_000_000_000;
const REPLICAS: usize = 3;
const QUORUM: usize = 2;

/// What a partition keeps, by a list: each row with the smallest cap since it was written.
struct Expected {
    cap: u32,
    rows: BTreeMap<u8, u32>,
}

impl Expected {
    fn evict(&mut self) {
        let mut kept = 0;
        self.rows.retain(|_, smallest| {
            let stays = kept < *smallest;
            kept += u32::from(stays);
            stays
        });
    }

    fn insert(&mut self, row: u8) {
        self.rows.insert(row, self.cap);
        self.evict();
    }

    fn change_cap(&mut self, rows: u32) {
        self.cap = rows;
        self.rows.values_mut().for_each(|smallest| *smallest = rows.min(*smallest));
        self.evict();
    }
}

fn position(row: u8) -> [u8; 2] {
    [key::REGULAR_TAG, row]
}

fn deletion(timestamp: i64) -> Deletion {
    Deletion { timestamp, local_deletion_time: NOW_SECONDS }
}

/// The rows of a partition whose replicas have these mutations, in whatever order.
fn live_rows<'m>(mutations: impl IntoIterator<Item = &'m Mutation>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let answers: Vec<_> = mutations
        .into_iter()
        .map(|mutation| ReplicaAnswer { partitions: std::slice::from_ref(mutation), resume: None })
        .collect();
    let merged = reconcile_answers(&answers, false, NOW_SECONDS).unwrap();
    merged.rows.iter().map(|row| (row.position.to_vec(), row.row.bytes.to_vec())).collect()
}

fn search(cap: &Cap, rows: &[(Vec<u8>, Vec<u8>)]) -> MarkSearch {
    let mut search = MarkSearch::new(cap.clone(), NOW_MICROS);
    let mut is_kept =
        |(position, row): &(Vec<u8>, Vec<u8>)| search.row(position, RowRef::new(row, 0)).unwrap();
    let last_kept = rows.iter().take_while(|row| is_kept(row)).count();
    let behind = rows.get(last_kept + 1..).unwrap_or_default();
    for (position, row) in behind.iter().take(2).chain(behind.last()) {
        search.evicted(position, RowRef::new(row, 0)).unwrap();
    }
    search
}

/// The rows that a reader sees.
fn kept_rows(cap: &Cap, rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut search = MarkSearch::new(cap.clone(), NOW_MICROS);
    let mut kept = Vec::new();
    for (position, row) in rows {
        let before = search.kept;
        search.row(position, RowRef::new(row, 0)).unwrap();
        if search.kept > before {
            kept.push(position[1]);
        }
    }
    kept
}

struct Replicas {
    random: SplitMix64,
    of_replica: [Vec<Mutation>; REPLICAS],
}

impl Replicas {
    /// Brings a mutation to a quorum, in any order with others.
    fn write(&mut self, mutation: &Mutation) {
        let absent = self.random.below(REPLICAS as u64 + 1) as usize;
        for (replica, mutations) in self.of_replica.iter_mut().enumerate() {
            if replica != absent {
                let at = self.random.below(mutations.len() as u64 + 1) as usize;
                mutations.insert(at, mutation.clone());
            }
        }
    }

    /// What this many replicas have together.
    fn read(&mut self, count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let first = self.random.below(REPLICAS as u64) as usize;
        let asked = (first..first + count).map(|index| index % REPLICAS);
        live_rows(asked.flat_map(|replica| &self.of_replica[replica]))
    }
}

fn builder() -> MutationBuilder {
    MutationBuilder::new(TableId([7; 16]), 1, b"k").unwrap()
}

fn put_marks(builder: &mut MutationBuilder, marks: &[Mark]) {
    for Mark { start, end, timestamp } in marks {
        builder.delete_range(start, end, deletion(*timestamp));
    }
}

fn run(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let first_cap = 1 + random.below(5) as u32;
    let mut cap = Cap::new(first_cap);
    let mut expected = Expected { cap: first_cap, rows: BTreeMap::new() };
    let mut replicas = Replicas { random: SplitMix64::new(!seed), of_replica: Default::default() };
    for step in 1..80_i64 {
        let timestamp = step * 10;
        let mut change = builder();
        let row = random.below(24) as u8;
        match random.below(20) {
            0..=10 => {
                let mut content = RowBuilder::new();
                content.set_liveness(Liveness { timestamp, expiry: None });
                change.row(&position(row), &mut content);
                expected.insert(row);
            }
            11..=14 => {
                let mut content = RowBuilder::new();
                content.set_deletion(deletion(timestamp));
                change.row(&position(row), &mut content);
                put_marks(
                    &mut change,
                    &search(&cap, &replicas.read(QUORUM)).before_removal(timestamp, false),
                );
                expected.rows.remove(&row);
            }
            15 => {
                let end = row + random.below(6) as u8;
                change.delete_range(&position(row), &position(end), deletion(timestamp));
                put_marks(
                    &mut change,
                    &search(&cap, &replicas.read(QUORUM)).before_removal(timestamp, false),
                );
                expected.rows.retain(|present, _| !(row..end).contains(present));
            }
            16 | 17 => put_marks(&mut change, &search(&cap, &replicas.read(REPLICAS)).of_evicted()),
            18 => {
                let rows = 1 + random.below(8) as u32;
                if rows != cap.rows {
                    cap = cap.changed_to(rows, timestamp);
                    expected.change_cap(rows);
                }
            }
            _ => {
                change.delete_partition(deletion(timestamp));
                put_marks(
                    &mut change,
                    &search(&cap, &replicas.read(QUORUM)).before_removal(timestamp, false),
                );
                expected.rows.clear();
            }
        }
        if !change.is_empty() {
            replicas.write(&change.build());
        }
        let seen = kept_rows(&cap, &replicas.read(QUORUM));
        let wanted: Vec<u8> = expected.rows.keys().copied().collect();
        assert_eq!(seen, wanted, "seed {seed}, step {step}, {cap:?}");
    }
}

#[test]
fn readers_of_a_quorum_see_exactly_the_first_rows_after_every_change() {
    for seed in 0..400 {
        run(seed);
    }
}

#[test]
fn a_removed_row_makes_room_for_new_rows_and_brings_back_none() {
    let rows: Vec<_> = (1..=4_u8)
        .map(|row| {
            let mut content = RowBuilder::new();
            content.set_liveness(Liveness { timestamp: 5, expiry: None });
            (position(row).to_vec(), content.to_bytes())
        })
        .collect();
    let cap = Cap::new(2);
    let mark = |timestamp| vec![Mark::from(key::behind(&position(2)), timestamp)];
    assert_eq!(search(&cap, &rows).before_removal(9, false), mark(8));
    assert_eq!(
        search(&cap, &rows).before_removal(3, false),
        mark(5),
        "evicted rows stay so whatever the deletion's timestamp"
    );
    assert_eq!(search(&cap, &rows).of_evicted(), mark(5));
    assert_eq!(
        search(&cap, &rows[..2]).before_removal(9, false),
        mark(8),
        "some replicas may have dropped what is behind"
    );
    assert_eq!(search(&cap, &rows[..2]).of_evicted(), []);
    assert_eq!(search(&cap, &rows[..1]).before_removal(9, false), []);
}

#[test]
fn a_mark_hides_nothing_that_is_written_later() {
    let rows: Vec<_> = [(1, 5), (2, 5), (3, 5), (4, NOW_MICROS + 9)]
        .map(|(row, timestamp)| {
            let mut content = RowBuilder::new();
            content.set_liveness(Liveness { timestamp, expiry: None });
            (position(row).to_vec(), content.to_bytes())
        })
        .to_vec();
    let cap = Cap::new(2);
    let mark = |timestamp| Mark::from(key::behind(&position(2)), timestamp);
    let row =
        |row, timestamp| Mark { start: position(row).to_vec(), end: key::behind(&position(row)), timestamp };
    let of_future = row(4, NOW_MICROS + 9);
    assert_eq!(search(&cap, &rows).before_removal(9, false), [mark(8), of_future.clone()]);
    assert_eq!(search(&cap, &rows).of_evicted(), [mark(5), of_future.clone()]);
    assert_eq!(
        search(&cap, &rows).before_removal(NOW_MICROS + 5, false),
        [mark(NOW_MICROS), of_future.clone()],
        "a deletion from the future"
    );
    assert_eq!(
        search(&cap, &rows).before_removal(4, true),
        [mark(3), row(3, 5), of_future.clone()],
        "the new rows of the same change stay"
    );
    assert_eq!(search(&cap, &[&rows[..2], &rows[3..]].concat()).of_evicted(), [of_future]);
}
