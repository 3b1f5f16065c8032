//! Changes of the partition denylist, and what changes of the schema mean for it.

use helenus_query::stored_key::PartitionKey;

use super::*;
use crate::denylist::{DeniedKey, DeniedPartitions, DenylistAction, DenylistChange, DenylistError};

const TABLE: &str = "CREATE TABLE t (k int PRIMARY KEY)";
const DENY: DenylistAction = DenylistAction::Deny { keys_per_table_max: 2, keys_max: 3 };

/// A founded cluster whose members know the denylist, with the table `ks.t`.
fn founded() -> Log {
    let mut log = Log::empty();
    let catalog = CatalogDocument::of(&initial_catalog(id(1000)));
    log.done(&Command::Found { member: Member { feature_version: DENYLIST, ..member(1) }, catalog });
    log.done(&schema_change(&log.state, 1001, &[TABLE]));
    log
}

fn table_id(log: &Log) -> Uuid {
    log.state.catalog.table("ks", "t").unwrap().id
}

fn change(log: &Log, number: u128, keys: &[i32], action: DenylistAction) -> Command {
    let key = |key: &i32| DeniedKey::of(&PartitionKey::new(key.to_be_bytes().to_vec())).unwrap();
    let change = DenylistChange {
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
        table_id: table_id(log),
        keys: keys.iter().map(key).collect(),
        action,
    };
    Command::ChangeDenylist { id: id(number), change }
}

fn denied(log: &Log) -> Vec<i32> {
    let of_table = log.state.denylist.of(&table_id(log));
    let keys = of_table.into_iter().flat_map(DeniedPartitions::keys);
    let mut keys: Vec<i32> = keys.map(|key| i32::from_be_bytes(key.bytes().try_into().unwrap())).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_partition_is_denied_until_it_is_allowed() {
    let mut log = founded();
    let epoch = log.state.topology.epoch;
    log.done(&change(&log, 1, &[7, 8], DENY));
    assert_eq!(denied(&log), [7, 8]);
    log.again(&change(&log, 2, &[7], DENY));
    log.done(&change(&log, 3, &[7], DenylistAction::Allow));
    assert_eq!(denied(&log), [8]);
    log.again(&change(&log, 1, &[7, 8], DENY));
    assert_eq!(denied(&log), [8], "it was proposed again, and another change has come since");
    assert_eq!(log.state.topology.epoch, epoch, "ownership is unchanged");
}

#[test]
fn a_denylist_that_is_full_stays_as_it_is() {
    let mut log = founded();
    log.done(&change(&log, 1, &[1, 2], DENY));
    let refusal = DenylistError::TooManyOfTable { keyspace: "ks".to_owned(), table: "t".to_owned(), max: 2 };
    log.refused(&change(&log, 2, &[3], DENY), Refusal::Denylist(refusal));
    assert_eq!(denied(&log), [1, 2]);
}

#[test]
fn partitions_are_denied_when_all_members_know_the_denylist() {
    let mut log = Log::founded();
    log.done(&schema_change(&log.state, 1001, &[TABLE]));
    log.refused(&change(&log, 1, &[7], DENY), Refusal::DenylistTooEarly { needed: DENYLIST, level: 1 });
}

#[test]
fn entries_go_with_their_table_and_not_with_its_name() {
    let mut log = founded();
    log.done(&change(&log, 1, &[7], DENY));
    let late = change(&log, 2, &[8], DENY);
    let altered = [TABLE, "ALTER TABLE t ADD v int"];
    log.done(&schema_change(&log.state, 1002, &altered));
    assert_eq!(denied(&log), [7], "an altered table is the same table");
    log.done(&schema_change(&log.state, 1003, &[]));
    assert!(log.state.denylist.is_empty());
    // Another table has the name now: catalogs of tests count their tables' ids.
    log.done(&schema_change(&log.state, 1004, &["CREATE TABLE u (k int PRIMARY KEY)", TABLE]));
    assert!(denied(&log).is_empty());
    let unknown = DenylistError::UnknownTable { keyspace: "ks".to_owned(), table: "t".to_owned() };
    log.refused(&late, Refusal::Denylist(unknown));
}

#[test]
fn the_changes_of_a_state_have_its_changed_denylist() {
    let mut log = founded();
    log.done(&change(&log, 1, &[7], DENY));
    let base = log.state.clone();
    log.done(&change(&log, 2, &[8], DENY));
    let document = serde_json::to_vec(&log.state.document_since(&base)).unwrap();
    let document: StateDocument = serde_json::from_slice(&document).unwrap();
    assert_eq!(document.state_over(&base).unwrap().denylist, log.state.denylist);
    let same = serde_json::to_value(log.state.document_since(&log.state)).unwrap();
    assert!(same.get("denylist").is_none());
}

#[test]
fn commands_and_refusals_have_their_golden_bytes() {
    let key = DeniedKey::of(&PartitionKey::new(vec![0, 0, 0, 7])).unwrap();
    let change = |action| DenylistChange {
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
        table_id: id(5),
        keys: BTreeSet::from([key.clone()]),
        action,
    };
    let command =
        |action| serde_json::to_string(&Command::ChangeDenylist { id: id(9), change: change(action) });
    let of_table = DenylistError::TooManyOfTable { keyspace: "ks".to_owned(), table: "t".to_owned(), max: 2 };
    let refusal = |refusal: Refusal| serde_json::to_string(&CommandOutcome::Refused(refusal));
    let head = r#"{"ChangeDenylist":{"id":"00000000-0000-0000-0000-000000000009","change":{"keyspace":"ks","table":"t","table_id":"00000000-0000-0000-0000-000000000005","keys":["0x00000007"],"action":"#;
    for (written, golden) in [
        (command(DENY), format!(r#"{head}{{"Deny":{{"keys_per_table_max":2,"keys_max":3}}}}}}}}}}"#)),
        (command(DenylistAction::Allow), format!(r#"{head}"Allow"}}}}}}"#)),
        (
            refusal(Refusal::Denylist(of_table)),
            r#"{"Refused":{"Denylist":{"TooManyOfTable":{"keyspace":"ks","table":"t","max":2}}}}"#.to_owned(),
        ),
        (
            refusal(Refusal::DenylistTooEarly { needed: 15, level: 14 }),
            r#"{"Refused":{"DenylistTooEarly":{"needed":15,"level":14}}}"#.to_owned(),
        ),
    ] {
        assert_eq!(written.unwrap(), golden);
    }
}
