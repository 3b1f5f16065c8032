//! Changes of the replication of keyspaces.

use helenus_query::schema::catalog::Replication;

use super::uncleaned::{alter, clean_all, cleaned, cleanup_due, log_of_new_members, new_member};
use super::*;
use crate::view::ClusterView;

use TransitionPhase::{ReadNew, WriteBoth};

fn simple(replication_factor: u32) -> Replication {
    Replication::Simple { replication_factor }
}

/// A cluster of `count` members without old data, and a keyspace with two replicas.
fn clean_log(count: u128) -> Log {
    let mut log = log_of_new_members(count);
    clean_all(&mut log);
    assert!(log.state.uncleaned().is_empty());
    log
}

/// Alters the replication of the keyspace; `version` is the schema's.
fn altered(log: &mut Log, version: u128, factors: &[u32]) {
    let statements: Vec<String> = [2].iter().chain(factors).map(|factor| alter(*factor)).collect();
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    log.done(&schema_change(&log.state, version, &statements));
}

fn phase(log: &Log) -> Option<TransitionPhase> {
    log.state.topology.replication_changes.get("ks").and_then(|change| change.phase)
}

fn read_replication(log: &Log) -> Replication {
    log.state.topology.replication_of(log.state.catalog.keyspace("ks").unwrap()).clone()
}

fn advance(log: &Log, from: TransitionPhase) -> Command {
    Command::AdvanceReplication { from, epoch: log.state.topology.epoch }
}

/// The numbers of the replicas of a token that are read, and of the pending ones.
fn replicas(log: &Log, token: i64) -> (Vec<u128>, Vec<u128>) {
    let view = ClusterView::new(log.state.topology.clone(), Arc::default(), &log.state.catalog);
    let replicas = view.placement("ks").unwrap().replicas(token).clone();
    let numbers = |members: &[Arc<Member>]| members.iter().map(|it| it.host_id.as_u128()).collect();
    (numbers(&replicas.read), numbers(&replicas.pending))
}

#[test]
fn more_replicas_are_written_before_they_are_read() {
    let mut log = clean_log(4);
    assert_eq!(replicas(&log, 100), (vec![1, 2], vec![]));
    altered(&mut log, 1001, &[3]);
    assert_eq!(log.state.catalog.keyspace("ks").unwrap().replication, simple(3));
    assert_eq!(read_replication(&log), simple(2));
    assert_eq!((phase(&log), log.state.topology.epoch), (Some(WriteBoth), log.index));
    assert_eq!(replicas(&log, 100), (vec![1, 2], vec![3]));
    let advance_first = advance(&log, WriteBoth);
    log.done(&advance_first);
    assert_eq!(replicas(&log, 100), (vec![1, 2, 3], vec![]));
    assert_eq!(read_replication(&log), simple(3));
    // A driver that has not heard of the step.
    assert!(matches!(log.apply(&advance_first), CommandOutcome::Conflict { .. }));
    let second = advance(&log, ReadNew);
    log.done(&second);
    assert!(log.state.topology.is_settled() && log.state.topology.replication_changes.is_empty());
    assert!(log.state.uncleaned().is_empty(), "nobody has given anything up");
}

#[test]
fn fewer_replicas_are_read_before_the_others_are_left_out() {
    let mut log = clean_log(4);
    altered(&mut log, 1001, &[1]);
    assert_eq!(replicas(&log, 100), (vec![1, 2], vec![]));
    let first = advance(&log, WriteBoth);
    log.done(&first);
    assert_eq!(replicas(&log, 100), (vec![1], vec![2]));
    let second = advance(&log, ReadNew);
    log.done(&second);
    assert_eq!(replicas(&log, 100), (vec![1], vec![]));
    // Everyone had ranges as the second replica.
    assert_eq!(log.state.uncleaned().of(&id(2)), Some(&BTreeSet::from([by_replication_of("ks")])));
    // They may gain these again when they have removed them.
    altered(&mut log, 1002, &[1, 2]);
    assert_eq!(phase(&log), None);
    assert_eq!(replicas(&log, 100), (vec![1], vec![]));
    clean_all(&mut log);
    assert_eq!((phase(&log), log.state.topology.epoch), (Some(WriteBoth), log.index));
}

#[test]
fn a_change_waits_for_a_member_in_transition_and_members_wait_for_it() {
    let mut log = clean_log(4);
    log.done(&Command::StartLeave { host_id: id(4) });
    altered(&mut log, 1001, &[3]);
    assert_eq!(phase(&log), None);
    log.done(&Command::Advance { host_id: id(4), from: MemberState::Leaving(WriteBoth) });
    log.done(&Command::Advance { host_id: id(4), from: MemberState::Leaving(ReadNew) });
    assert_eq!((phase(&log), log.state.topology.epoch), (Some(WriteBoth), log.index));
    let changing = Refusal::ReplicationIsChanging { keyspace: "ks".to_owned() };
    log.refused(&Command::Join { member: new_member(5) }, changing.clone());
    log.refused(&Command::StartLeave { host_id: id(1) }, changing);
    // A dead member is not waited for, and is removed afterwards.
    let removal = Command::StartRemovals { host_ids: BTreeSet::from([id(1)]), accepts_old_data: false };
    log.done(&removal);
    log.again(&removal);
    assert_eq!(log.state.topology.given_up, BTreeSet::from([id(1)]));
    let first = advance(&log, WriteBoth);
    log.done(&first);
    let second = advance(&log, ReadNew);
    log.done(&second);
    assert_eq!(log.state_of(1), Some(MemberState::Leaving(WriteBoth)));
    assert!(log.state.topology.given_up.is_empty() && log.state.is_removal(&id(1)));
}

#[test]
fn rows_are_kept_where_a_change_would_leave_no_replica() {
    let mut log = clean_log(3);
    altered(&mut log, 1001, &[0]);
    assert_eq!(phase(&log), None, "it waits for a replication that keeps the rows");
    assert_eq!(replicas(&log, 100), (vec![1, 2], vec![]));
    altered(&mut log, 1002, &[0, 2]);
    assert!(log.state.topology.replication_changes.is_empty() && log.state.uncleaned().is_empty());
}

#[test]
fn a_change_can_be_taken_back_before_it_is_read_and_ends_first_afterwards() {
    let mut log = clean_log(4);
    altered(&mut log, 1001, &[3]);
    altered(&mut log, 1002, &[3, 2]);
    assert!(log.state.topology.replication_changes.is_empty());
    assert_eq!(log.state.topology.epoch, log.index);
    // Those that were about to be replicas have had writes.
    assert_eq!(log.state.uncleaned().members().count(), 4);
    clean_all(&mut log);
    altered(&mut log, 1003, &[3, 2, 3]);
    let first = advance(&log, WriteBoth);
    log.done(&first);
    altered(&mut log, 1004, &[3, 2, 3, 1]);
    assert_eq!(replicas(&log, 100), (vec![1, 2, 3], vec![]));
    let second = advance(&log, ReadNew);
    log.done(&second);
    // The next change has begun with the end of the first.
    assert_eq!(phase(&log), Some(WriteBoth));
    assert_eq!(read_replication(&log), simple(3));
    let first = advance(&log, WriteBoth);
    log.done(&first);
    assert_eq!(replicas(&log, 100), (vec![1], vec![2, 3]));
}

#[test]
fn a_keyspace_that_is_dropped_takes_its_change_with_it() {
    let mut log = clean_log(4);
    altered(&mut log, 1001, &[3]);
    let mut new = helenus_query::schema::catalog::Catalog::clone(&log.state.catalog);
    new.version = id(1002);
    new.keyspaces.remove("ks");
    log.done(&Command::ChangeSchema(SchemaChangeCommand {
        base: log.state.catalog.version,
        changed: CatalogDocument::difference(&log.state.catalog, &new),
        dropped: vec!["ks".to_owned()],
        event: event("t"),
        creator: None,
        first_streams_ms: None,
    }));
    assert!(log.state.topology.is_settled());
    log.join_wholly(new_member(5));
}

#[test]
fn one_member_has_everything_at_once_and_older_members_change_at_once() {
    let mut log = log_of_new_members(1);
    altered(&mut log, 1001, &[3]);
    assert!(log.state.topology.replication_changes.is_empty());
    assert_eq!(log.state.topology.epoch, log.index);
}

#[test]
fn members_before_transitions_refuse_what_old_data_forbids() {
    let old = |number| Member { feature_version: AGREED_CLEANUP, ..member(number) };
    let mut log = Log::empty();
    let catalog = catalog_of(&[CREATE_KEYSPACE, &alter(2)]).catalog;
    log.done(&Command::Found { member: old(1), catalog: CatalogDocument::of(&catalog) });
    log.join_wholly(old(2));
    log.join_wholly(old(3));
    let (two, three, one) = (alter(2), alter(3), alter(1));
    log.refused(&schema_change(&log.state, 1002, &[&two, &three]), cleanup_due(&[1, 2]));
    cleaned(&mut log, 1, &[2, 3]);
    cleaned(&mut log, 2, &[3]);
    log.done(&schema_change(&log.state, 1002, &[&two, &three]));
    log.join_wholly(old(4));
    assert!(!log.state.uncleaned().is_empty());
    log.done(&schema_change(&log.state, 1003, &[&two, &three, &one]));
    assert!(log.state.topology.replication_changes.is_empty());
}
