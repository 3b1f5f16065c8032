//! Who may still have data of ranges that it has given up, and what has to wait for it.

use super::*;

pub(super) fn alter(factor: u32) -> String {
    format!(
        "ALTER KEYSPACE ks WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {factor}}}"
    )
}

/// A member whose program knows the newest features.
pub(super) fn new_member(number: u128) -> Member {
    Member { feature_version: FEATURE_VERSION, ..member(number) }
}

/// A cluster of members `1..=count` with the newest features, and a keyspace with two replicas.
pub(super) fn log_of_new_members(count: u128) -> Log {
    let mut log = Log::empty();
    let catalog = catalog_of(&[CREATE_KEYSPACE, &alter(2)]).catalog;
    log.done(&Command::Found { member: new_member(1), catalog: CatalogDocument::of(&catalog) });
    for number in 2..=count {
        log.join_wholly(new_member(number));
    }
    log
}

pub(super) fn cleaned(log: &mut Log, number: u128, because_of: &[u128]) {
    let because_of = because_of.iter().map(|number| id(*number)).collect();
    log.done(&Command::Cleaned { host_id: id(number), because_of, epoch: log.state.topology.epoch });
}

/// Every noted member cleans up.
pub(super) fn clean_all(log: &mut Log) {
    let uncleaned = log.state.uncleaned().clone();
    for host_id in uncleaned.members() {
        let because_of = uncleaned.of(host_id).cloned().unwrap_or_default();
        log.done(&Command::Cleaned { host_id: *host_id, because_of, epoch: log.state.topology.epoch });
    }
}

pub(super) fn cleanup_due(numbers: &[u128]) -> Refusal {
    Refusal::CleanupDue { host_ids: numbers.iter().map(|number| id(*number)).collect() }
}

#[test]
fn no_member_leaves_while_another_has_old_data() {
    let mut log = log_of_new_members(3);
    // 1 gave up ranges when 2 joined (of what has one replica), and both did when 3 joined.
    let because_of = |log: &Log, number| log.state.uncleaned().of(&id(number)).cloned().unwrap_or_default();
    assert_eq!(because_of(&log, 1), BTreeSet::from([id(2), id(3)]));
    assert_eq!(because_of(&log, 2), BTreeSet::from([id(3)]));
    assert_eq!(because_of(&log, 3), BTreeSet::new());
    log.refused(&Command::StartLeave { host_id: id(3) }, cleanup_due(&[1, 2]));
    log.refused(&Command::StartRemoval { host_id: id(3) }, cleanup_due(&[1, 2]));
    // Its own old data goes with it.
    log.refused(&Command::StartLeave { host_id: id(1) }, cleanup_due(&[2]));
    // A part of it says nothing.
    let epoch = log.state.topology.epoch;
    log.again(&Command::Cleaned { host_id: id(1), because_of: BTreeSet::from([id(2)]), epoch });
    cleaned(&mut log, 1, &[2, 3]);
    log.again(&Command::Cleaned {
        host_id: id(1),
        because_of: BTreeSet::from([id(2), id(3)]),
        epoch: log.state.topology.epoch,
    });
    log.refused(&Command::StartLeave { host_id: id(3) }, cleanup_due(&[2]));
    // 2 has removed what it gave up until another member joined, and not what it has given up to that one.
    let epoch = log.state.topology.epoch;
    log.join_wholly(new_member(4));
    let late = Command::Cleaned { host_id: id(2), because_of: BTreeSet::from([id(3), id(4)]), epoch };
    let version = log.state.topology.version;
    assert_eq!(log.apply(&late), CommandOutcome::Conflict { version });
    // 3, too, has given up ranges to 4: of system tables, which have three replicas.
    for (number, of, due) in [(1, vec![4], vec![1, 2, 3]), (2, vec![3, 4], vec![2, 3]), (3, vec![4], vec![3])]
    {
        log.refused(&Command::StartLeave { host_id: id(4) }, cleanup_due(&due));
        cleaned(&mut log, number, &of);
    }
    log.leave_wholly(4);
    assert!(log.state.uncleaned().is_empty());
}

#[test]
fn a_leaving_that_is_cancelled_leaves_old_data_with_the_others() {
    let mut log = log_of_new_members(3);
    let clean = |log: &mut Log| {
        cleaned(log, 1, &[2, 3]);
        cleaned(log, 2, &[3]);
    };
    clean(&mut log);
    log.done(&Command::StartLeave { host_id: id(3) });
    assert!(log.state.uncleaned().is_empty());
    log.done(&Command::Abort { host_id: id(3) });
    log.refused(&Command::StartLeave { host_id: id(3) }, cleanup_due(&[1, 2]));
    clean(&mut log);
    log.done(&Command::StartRemoval { host_id: id(3) });
    let epoch = log.state.topology.epoch;
    log.done(&Command::TakeBackRemoval { host_id: id(3), epoch });
    log.refused(&Command::StartRemoval { host_id: id(3) }, cleanup_due(&[1, 2]));
    // An operator may not want to wait. When the member has gone, the ranges are those of the others again.
    log.done(&Command::ForceLeave { host_id: id(3), is_removal: true });
    log.again(&Command::StartRemoval { host_id: id(3) });
    assert!(log.state.is_removal(&id(3)));
    log.done(&Command::Advance { host_id: id(3), from: MemberState::Leaving(TransitionPhase::WriteBoth) });
    log.done(&Command::Advance { host_id: id(3), from: MemberState::Leaving(TransitionPhase::ReadNew) });
    assert!(log.state.uncleaned().is_empty());
}

#[test]
fn members_of_older_programs_are_not_noted() {
    let mut log = log_of_new_members(1);
    let mut log_of_old = Log::of(4);
    assert!(log_of_old.state.uncleaned().is_empty());
    log_of_old.leave_wholly(4);
    // A join that is taken back gives nothing up.
    log.done(&Command::Join { member: new_member(2) });
    log.done(&Command::Abort { host_id: id(2) });
    assert!(log.state.uncleaned().is_empty());
}

#[test]
fn the_commands_are_stored_and_sent_as_they_were() {
    let because_of = BTreeSet::from([id(2), id(3)]);
    let commands = [
        Command::Cleaned { host_id: id(1), because_of, epoch: 9 },
        Command::ForceLeave { host_id: id(2), is_removal: true },
    ];
    let [one, two, three] = [1, 2, 3].map(id);
    assert_eq!(
        commands.map(|command| serde_json::to_string(&command).unwrap()),
        [
            format!(r#"{{"Cleaned":{{"host_id":"{one}","because_of":["{two}","{three}"],"epoch":9}}}}"#),
            format!(r#"{{"ForceLeave":{{"host_id":"{two}","is_removal":true}}}}"#),
        ]
    );
}

#[test]
fn a_member_with_old_data_is_noted_for_all_that_come_after() {
    // Of one replica: 1 gives up ranges to 3, and 3 gives a part of these up to 2, which takes none from 1.
    let mut log = log_of_new_members(1);
    let system =
        ["system_auth", "system_distributed", "system_traces"].map(|name| alter(1).replace("ks", name));
    let alters: Vec<&str> = system.iter().map(String::as_str).collect();
    log.done(&schema_change(&log.state, 1001, &alters));
    log.join_wholly(new_member(3));
    log.join_wholly(new_member(2));
    let because_of = log.state.uncleaned().of(&id(1)).unwrap();
    assert_eq!(*because_of, BTreeSet::from([id(2), id(3)]));
}
