//! The partition denylist: partitions whose reads and writes coordinators refuse, by table.
//!
//! It is a part of the state that all members agree on, so that it holds on all of them, whatever the replication of the tables.
//!
//! Invariants:
//! * A table of the list has at least one denied partition, and is in the catalog: the entries of a table end with it.
//! * The list is bounded: by the numbers of keys that the proposer of a change names, and by [`KEY_BYTES_MAX`].

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use cql_lite::types::literal::{format_hex, parse_hex};
use helenus_engine::key::{
    PARTITION_END, PREFIX_OVERHEAD_BYTES, PartitionKeyTooLong, prefix_length, put_partition_prefix,
};
use helenus_query::stored_key::PartitionKey;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Most bytes of all keys of the list: it is stored with the cluster's metadata, and sent as a whole to members that are far behind.
pub const KEY_BYTES_MAX: usize = 4 << 20;

/// The partition key of an entry. Its text, in stored and sent documents, is the key in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeniedKey {
    /// The prefix of the partition's full keys (`helenus_engine::key`): so keys are in the order of their tokens.
    prefix: Vec<u8>,
}

impl DeniedKey {
    pub fn of(key: &PartitionKey) -> Result<Self, PartitionKeyTooLong> {
        let mut prefix = Vec::new();
        put_partition_prefix(&mut prefix, key.token, &key.bytes)?;
        Ok(Self { prefix })
    }

    /// The partition key, in the encoding in which partition keys are stored.
    pub fn bytes(&self) -> &[u8] {
        &self.prefix[PREFIX_OVERHEAD_BYTES..]
    }
}

impl Borrow<[u8]> for DeniedKey {
    fn borrow(&self) -> &[u8] {
        &self.prefix
    }
}

impl TryFrom<String> for DeniedKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = parse_hex(&text).map_err(|error| error.to_string())?;
        Self::of(&PartitionKey::new(bytes)).map_err(|error| error.to_string())
    }
}

impl From<DeniedKey> for String {
    fn from(key: DeniedKey) -> Self {
        format_hex(key.bytes())
    }
}

/// A change of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenylistChange {
    pub keyspace: String,
    pub table: String,
    /// The id of the table that has this name: another table of the name is not meant.
    pub table_id: Uuid,
    pub keys: BTreeSet<DeniedKey>,
    pub action: DenylistAction,
}

/// What becomes of the keys of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DenylistAction {
    /// They are denied, unless the list would have more keys then.
    Deny { keys_per_table_max: u64, keys_max: u64 },
    /// They are denied no more.
    Allow,
}

/// The reason why the list cannot be changed so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DenylistError {
    #[error("table '{keyspace}.{table}' does not exist")]
    UnknownTable { keyspace: String, table: String },
    #[error(
        "Partition denylist for {keyspace}.{table} would exceed the per-table allowance of ({max}): remove keys, or raise denylist_max_keys_per_table on the node that is asked"
    )]
    TooManyOfTable { keyspace: String, table: String, max: u64 },
    #[error(
        "Partition denylist would exceed the global allowance of ({max}): remove keys, or raise denylist_max_keys_total on the node that is asked"
    )]
    TooMany { max: u64 },
    #[error("Partition denylist would have keys of more than {KEY_BYTES_MAX} bytes: remove some")]
    TooManyBytes,
}

/// The denied partitions of one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeniedPartitions {
    keys: BTreeSet<DeniedKey>,
}

impl DeniedPartitions {
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys, in the order of their tokens.
    pub fn keys(&self) -> impl Iterator<Item = &DeniedKey> {
        self.keys.iter()
    }

    /// Whether the partition is denied.
    pub fn denies(&self, key: &PartitionKey) -> bool {
        // No table has a partition whose key is too long.
        DeniedKey::of(key).is_ok_and(|key| self.keys.contains(&key))
    }

    /// The denied partitions of which the range of full keys `[start, end)` may hold rows.
    pub fn within<'s>(&'s self, start: &[u8], end: &[u8]) -> impl Iterator<Item = &'s DeniedKey> + use<'s> {
        // A range that begins in the middle of a partition begins behind the prefix of that one.
        let first = match prefix_length(start).and_then(|length| start.split_at_checked(length)) {
            Some((prefix, position)) if position < PARTITION_END => prefix,
            _ => start,
        };
        let range = (Bound::Included(first), Bound::Excluded(end));
        let found = (first < end).then(|| self.keys.range::<[u8], _>(range));
        found.into_iter().flatten()
    }

    fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.prefix.len()).sum()
    }
}

/// The denied partitions of all tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denylist {
    tables: BTreeMap<Uuid, Arc<DeniedPartitions>>,
}

impl Denylist {
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The denied partitions of a table, if there are any.
    pub fn of(&self, table: &Uuid) -> Option<&DeniedPartitions> {
        self.tables.get(table).map(AsRef::as_ref)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.tables.values().map(|table| table.len()).sum()
    }

    /// The list after a change of it; `None`: it is so already.
    pub fn changed(&self, change: &DenylistChange) -> Result<Option<Self>, DenylistError> {
        let known = self.of(&change.table_id);
        let mut table = known.cloned().unwrap_or_default();
        match change.action {
            DenylistAction::Deny { .. } => table.keys.extend(change.keys.iter().cloned()),
            DenylistAction::Allow => table.keys.retain(|key| !change.keys.contains(key)),
        }
        if table.len() == known.map_or(0, DeniedPartitions::len) {
            return Ok(None);
        }
        let changed = self.with_table(change.table_id, table);
        if let DenylistAction::Deny { keys_per_table_max, keys_max } = change.action {
            changed.check_bounds(change, keys_per_table_max, keys_max)?;
        }
        Ok(Some(changed))
    }

    fn check_bounds(
        &self,
        change: &DenylistChange,
        keys_per_table_max: u64,
        keys_max: u64,
    ) -> Result<(), DenylistError> {
        if self.of(&change.table_id).is_some_and(|table| table.len() as u64 > keys_per_table_max) {
            let (keyspace, table) = (change.keyspace.clone(), change.table.clone());
            return Err(DenylistError::TooManyOfTable { keyspace, table, max: keys_per_table_max });
        }
        if self.len() as u64 > keys_max {
            return Err(DenylistError::TooMany { max: keys_max });
        }
        if self.tables.values().map(|table| table.bytes()).sum::<usize>() > KEY_BYTES_MAX {
            return Err(DenylistError::TooManyBytes);
        }
        Ok(())
    }

    fn with_table(&self, id: Uuid, table: DeniedPartitions) -> Self {
        let mut tables = self.tables.clone();
        if table.is_empty() {
            tables.remove(&id);
        } else {
            tables.insert(id, Arc::new(table));
        }
        Self { tables }
    }

    /// The list without the entries of tables that are gone; `None`: there are none of these.
    pub fn without_lost_tables(&self, exists: impl Fn(&Uuid) -> bool) -> Option<Self> {
        if self.tables.keys().all(&exists) {
            return None;
        }
        let kept = self.tables.iter().filter(|(id, _)| exists(id));
        Some(Self { tables: kept.map(|(id, table)| (*id, table.clone())).collect() })
    }
}

/// A [`Denylist`] for the disk and for other members: whole, or what has changed since another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DenylistDocument {
    /// The keys of each table that is new or has changed; none: the table is no part of the list any more.
    tables: BTreeMap<Uuid, BTreeSet<DeniedKey>>,
}

impl DenylistDocument {
    pub fn of(list: &Denylist) -> Self {
        Self::since(&Denylist::default(), list)
    }

    /// The changes from `base` to `list`.
    pub fn since(base: &Denylist, list: &Denylist) -> Self {
        let is_new = |(id, table): &(&Uuid, &Arc<DeniedPartitions>)| {
            base.tables.get(*id).is_none_or(|known| !Arc::ptr_eq(known, table) && known != *table)
        };
        let changed = list.tables.iter().filter(is_new).map(|(id, table)| (*id, table.keys.clone()));
        let gone = base.tables.keys().filter(|id| !list.tables.contains_key(*id));
        Self { tables: changed.chain(gone.map(|id| (*id, BTreeSet::new()))).collect() }
    }

    /// The list whose changes since `base` these are.
    pub fn over(self, base: &Denylist) -> Denylist {
        let unchanged = base.tables.iter().filter(|(id, _)| !self.tables.contains_key(*id));
        let mut tables: BTreeMap<_, _> = unchanged.map(|(id, table)| (*id, table.clone())).collect();
        let changed = self.tables.into_iter().filter(|(_, keys)| !keys.is_empty());
        tables.extend(changed.map(|(id, keys)| (id, Arc::new(DeniedPartitions { keys }))));
        Denylist { tables }
    }

    /// Whether nothing is denied, or nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::key::{REGULAR_END, REGULAR_START, full_key, token_bounds};

    use super::*;

    const LIMITLESS: DenylistAction = DenylistAction::Deny { keys_per_table_max: 1_000, keys_max: 10_000 };

    fn key(number: u8) -> PartitionKey {
        PartitionKey::new(vec![number; usize::from(number)])
    }

    fn change(table: u128, keys: &[u8], action: DenylistAction) -> DenylistChange {
        DenylistChange {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            table_id: Uuid::from_u128(table),
            keys: keys.iter().map(|number| DeniedKey::of(&key(*number)).unwrap()).collect(),
            action,
        }
    }

    fn list(changes: &[DenylistChange]) -> Denylist {
        changes.iter().fold(Denylist::default(), |list, change| list.changed(change).unwrap().unwrap())
    }

    fn of(list: &Denylist, table: u128) -> &DeniedPartitions {
        list.of(&Uuid::from_u128(table)).unwrap()
    }

    fn at(key: &PartitionKey, position: &[u8]) -> Vec<u8> {
        full_key(key.token, &key.bytes, position).unwrap()
    }

    #[test]
    fn what_is_denied_is_denied_until_it_is_allowed() {
        let denied = list(&[change(1, &[3, 4], LIMITLESS), change(2, &[5], LIMITLESS)]);
        assert!(of(&denied, 1).denies(&key(3)) && of(&denied, 1).denies(&key(4)));
        assert!(!of(&denied, 1).denies(&key(5)) && of(&denied, 2).denies(&key(5)));
        assert_eq!((denied.len(), of(&denied, 1).len()), (3, 2));
        assert_eq!(denied.changed(&change(1, &[3], LIMITLESS)), Ok(None));
        assert_eq!(denied.changed(&change(2, &[3], DenylistAction::Allow)), Ok(None));
        let less = denied.changed(&change(1, &[3], DenylistAction::Allow)).unwrap().unwrap();
        assert!(!of(&less, 1).denies(&key(3)) && of(&less, 1).denies(&key(4)));
        let none = less.changed(&change(1, &[4], DenylistAction::Allow)).unwrap().unwrap();
        assert_eq!(none.of(&Uuid::from_u128(1)), None);
        assert!(!none.is_empty() && Denylist::default().is_empty());
    }

    #[test]
    fn the_list_is_bounded() {
        let limits = |keys_per_table_max, keys_max| DenylistAction::Deny { keys_per_table_max, keys_max };
        let denied = list(&[change(1, &[3, 4], limits(2, 3)), change(2, &[5], limits(2, 3))]);
        let of_table =
            DenylistError::TooManyOfTable { keyspace: "ks".to_owned(), table: "t".to_owned(), max: 2 };
        assert_eq!(denied.changed(&change(1, &[5], limits(2, 9))), Err(of_table));
        assert_eq!(denied.changed(&change(2, &[6], limits(9, 3))), Err(DenylistError::TooMany { max: 3 }));
        // What is there already and what is allowed are no question of room, also below smaller limits.
        assert_eq!(denied.changed(&change(1, &[3], limits(1, 1))), Ok(None));
        assert!(denied.changed(&change(1, &[3], DenylistAction::Allow)).unwrap().is_some());
        let of_bytes = |bytes| DeniedKey::of(&PartitionKey::new(bytes));
        let mut large = change(1, &[], LIMITLESS);
        large.keys = (0..65_u8).map(|number| of_bytes(vec![number; 65_000]).unwrap()).collect();
        assert_eq!(Denylist::default().changed(&large), Err(DenylistError::TooManyBytes));
        assert!(of_bytes(vec![0; 65_536]).is_err());
        let malformed = serde_json::from_str::<DeniedKey>(r#""0x0""#);
        assert!(malformed.is_err(), "{malformed:?}");
    }

    #[test]
    fn a_range_holds_the_denied_partitions_that_it_touches() {
        let denied = list(&[change(1, &[3, 4, 5], LIMITLESS)]);
        let mut keys = [key(3), key(4), key(5)];
        keys.sort();
        let [first, second, third] = &keys;
        let within = |start: &[u8], end: &[u8]| -> Vec<Vec<u8>> {
            of(&denied, 1).within(start, end).map(|key| key.bytes().to_vec()).collect()
        };
        let all = [first.bytes.clone(), second.bytes.clone(), third.bytes.clone()];
        assert_eq!(within(&[], &[0xFF; 9]), all);
        // A row of a partition, from its middle to that of the next, and up to its first row.
        assert_eq!(within(&at(second, REGULAR_START), &at(second, REGULAR_END)), all[1..2]);
        assert_eq!(within(&at(second, REGULAR_START), &at(third, REGULAR_START)), all[1..3]);
        assert_eq!(within(&at(second, PARTITION_END), &at(third, REGULAR_START)), all[2..3]);
        assert_eq!(within(&at(&key(6), REGULAR_START), &at(&key(6), REGULAR_END)), [] as [Vec<u8>; 0]);
        let tokens = |tokens| {
            let (start, end) = token_bounds(&tokens);
            within(&start, &end)
        };
        assert_eq!(tokens(first.token..=second.token), all[..2]);
        assert_eq!(tokens(first.token + 1..=second.token - 1), [] as [Vec<u8>; 0]);
        assert_eq!(tokens(third.token..=i64::MAX), all[2..]);
        assert_eq!(within(&[0xFF; 9], &[]), [] as [Vec<u8>; 0]);
    }

    #[test]
    fn entries_end_with_their_table() {
        let denied = list(&[change(1, &[3], LIMITLESS), change(2, &[5], LIMITLESS)]);
        assert_eq!(denied.without_lost_tables(|_| true), None);
        let left = denied.without_lost_tables(|id| *id == Uuid::from_u128(2)).unwrap();
        assert_eq!(left, list(&[change(2, &[5], LIMITLESS)]));
    }

    #[test]
    fn a_document_has_all_or_what_has_changed() {
        let base =
            list(&[change(1, &[3], LIMITLESS), change(2, &[5], LIMITLESS), change(3, &[6], LIMITLESS)]);
        let golden = r#"{"00000000-0000-0000-0000-000000000001":["0x030303"],"00000000-0000-0000-0000-000000000002":["0x0505050505"],"00000000-0000-0000-0000-000000000003":["0x060606060606"]}"#;
        assert_eq!(serde_json::to_string(&DenylistDocument::of(&base)).unwrap(), golden);
        let whole: DenylistDocument = serde_json::from_str(golden).unwrap();
        assert_eq!(whole.over(&Denylist::default()), base);
        let mut changed = base.changed(&change(1, &[4], LIMITLESS)).unwrap().unwrap();
        changed = changed.changed(&change(2, &[5], DenylistAction::Allow)).unwrap().unwrap();
        let since = DenylistDocument::since(&base, &changed);
        assert_eq!(since.tables.keys().map(Uuid::as_u128).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(since.over(&base), changed);
        assert!(DenylistDocument::since(&base, &base).is_empty());
    }
}
