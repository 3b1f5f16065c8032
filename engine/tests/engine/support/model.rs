//! The reference: the rules of visibility written down as plainly as possible over ordered maps.

use std::collections::BTreeMap;

use helenus_engine::key::full_key;
use helenus_engine::read::RowView;
use helenus_engine::{Cell, CellKind, Deletion, Liveness, MutationRef, Operation};

/// Column and path, timestamp, kind, value.
type VisibleCell = ((u32, Vec<u8>), i64, CellKind, Vec<u8>);

/// A row as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleRow {
    pub key: Vec<u8>,
    pub liveness: Option<Liveness>,
    pub cells: Vec<VisibleCell>,
}

impl VisibleRow {
    pub fn of(view: &RowView<'_>) -> Self {
        view.row.validate().expect("the engine returns well-formed rows");
        assert_eq!(view.row.deletion(), None, "readers see no deletions");
        assert_eq!(view.row.column_deletions().count(), 0, "readers see no deletions");
        let cells = view
            .row
            .cells()
            .map(|cell| ((cell.column, cell.path.to_vec()), cell.timestamp, cell.kind, cell.value.to_vec()));
        Self { key: view.key.to_vec(), liveness: view.row.liveness(), cells: cells.collect() }
    }
}

#[derive(Debug, Clone)]
struct Version {
    timestamp: i64,
    kind: CellKind,
    value: Vec<u8>,
}

impl Version {
    /// The documented order of two versions of one cell.
    fn rank(&self) -> (i64, u8, u32, u32, &[u8]) {
        let (class, first, second) = match self.kind {
            CellKind::Live | CellKind::Counter => (0, 0, 0),
            CellKind::Expiring(expiry) => (1, expiry.expires_at, expiry.ttl),
            CellKind::Tombstone { local_deletion_time } => (2, local_deletion_time, 0),
        };
        (self.timestamp, class, first, second, &self.value)
    }
}

#[derive(Debug, Clone, Default)]
struct Row {
    liveness: Option<Liveness>,
    deleted_to: Option<i64>,
    columns_deleted_to: BTreeMap<u32, i64>,
    cells: BTreeMap<(u32, Vec<u8>), Version>,
}

#[derive(Debug, Clone, Default)]
struct Partition {
    rows: BTreeMap<Vec<u8>, Row>,
    range_tombstones: Vec<(Vec<u8>, Vec<u8>, Deletion)>,
}

/// Everything ever written to one table.
#[derive(Debug, Clone, Default)]
pub struct Model {
    partitions: BTreeMap<Vec<u8>, Partition>,
}

fn liveness_rank(liveness: &Liveness) -> (i64, Option<(u32, u32)>) {
    (liveness.timestamp, liveness.expiry.map(|expiry| (expiry.expires_at, expiry.ttl)))
}

impl Row {
    fn put_cell(&mut self, cell: &Cell<'_>) {
        let version = Version { timestamp: cell.timestamp, kind: cell.kind, value: cell.value.to_vec() };
        let address = (cell.column, cell.path.to_vec());
        match self.cells.get_mut(&address) {
            Some(present) if present.rank() >= version.rank() => {}
            Some(present) => *present = version,
            None => {
                self.cells.insert(address, version);
            }
        }
    }

    fn visible(&self, key: Vec<u8>, range_tombstone: Option<i64>, now_seconds: u32) -> Option<VisibleRow> {
        let deleted_to = self.deleted_to.max(range_tombstone);
        let survives = |timestamp: i64| deleted_to.is_none_or(|deleted_to| timestamp > deleted_to);
        let liveness = self
            .liveness
            .filter(|liveness| survives(liveness.timestamp) && !liveness.is_expired(now_seconds));
        let cells: Vec<_> = self
            .cells
            .iter()
            .filter(|(_, version)| survives(version.timestamp))
            .filter(|((column, _), version)| {
                self.columns_deleted_to.get(column).is_none_or(|deleted_to| version.timestamp > *deleted_to)
            })
            .filter(|(_, version)| match version.kind {
                CellKind::Live | CellKind::Counter => true,
                CellKind::Expiring(expiry) => expiry.expires_at > now_seconds,
                CellKind::Tombstone { .. } => false,
            })
            .map(|(address, version)| {
                (address.clone(), version.timestamp, version.kind, version.value.clone())
            })
            .collect();
        (liveness.is_some() || !cells.is_empty()).then_some(VisibleRow { key, liveness, cells })
    }
}

impl Model {
    pub fn apply(&mut self, mutation: &MutationRef<'_>) {
        let prefix = full_key(mutation.token, mutation.partition_key, &[]).unwrap();
        let partition = self.partitions.entry(prefix).or_default();
        for operation in mutation.operations() {
            match operation.unwrap() {
                Operation::RangeTombstone { start, end, deletion } => {
                    // Older range tombstones within the new one have no effect any more.
                    partition.range_tombstones.retain(|(from, to, older)| {
                        from.as_slice() < start || to.as_slice() > end || *older > deletion
                    });
                    partition.range_tombstones.push((start.to_vec(), end.to_vec(), deletion));
                }
                Operation::Row { position, row } => {
                    let target = partition.rows.entry(position.to_vec()).or_default();
                    if let Some(liveness) = row.liveness() {
                        target.liveness =
                            target.liveness.into_iter().chain([liveness]).max_by_key(liveness_rank);
                    }
                    if let Some(deletion) = row.deletion() {
                        target.deleted_to = target.deleted_to.max(Some(deletion.timestamp));
                    }
                    for (column, deletion) in row.column_deletions() {
                        let entry = target.columns_deleted_to.entry(column).or_insert(i64::MIN);
                        *entry = deletion.timestamp.max(*entry);
                    }
                    for cell in row.cells() {
                        target.put_cell(&cell);
                    }
                }
            }
        }
    }

    /// The visible rows with full keys in `[start, end)`.
    pub fn read(&self, range: (&[u8], &[u8]), reversed: bool, now_seconds: u32) -> Vec<VisibleRow> {
        let mut rows = Vec::new();
        for (prefix, partition) in &self.partitions {
            // No key of a partition lies before its prefix or behind the prefix with 0xFF.
            if prefix.as_slice() >= range.1 || (range.0 > prefix.as_slice() && !range.0.starts_with(prefix)) {
                continue;
            }
            for (position, row) in &partition.rows {
                let key = [prefix.as_slice(), position].concat();
                if key.as_slice() < range.0 || key.as_slice() >= range.1 {
                    continue;
                }
                let covers =
                    |start: &[u8], end: &[u8]| start <= position.as_slice() && position.as_slice() < end;
                let range_tombstone = partition
                    .range_tombstones
                    .iter()
                    .filter(|(start, end, _)| covers(start, end))
                    .map(|(_, _, deletion)| deletion.timestamp)
                    .max();
                rows.extend(row.visible(key, range_tombstone, now_seconds));
            }
        }
        if reversed {
            rows.reverse();
        }
        rows
    }

    /// Removes all data, as TRUNCATE does.
    pub fn clear(&mut self) {
        self.partitions.clear();
    }
}
