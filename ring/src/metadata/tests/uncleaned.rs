//! Who may still have data of ranges that it has given up, and what has to wait for it.

use super::*;

/// A member whose program knows the newest features.
fn new_member(number: u128) -> Member {
    Member { feature_version: FEATURE_VERSION, ..member(number) }
}

/// A cluster of members `1..=count` with the newest features.
fn log_of_new_members(count: u128) -> Log {
    let mut log = Log::empty();
    let catalog = CatalogDocument::of(&initial_catalog(id(1000)));
    log.done(&Command::Found { member: new_member(1), catalog });
    for number in 2..=count {
        log.join_wholly(new_member(number));
    }
    log
}

fn cleaned(log: &mut Log, number: u128, because_of: &[u128]) {
    let because_of = because_of.iter().map(|number| id(*number)).collect();
    log.done(&Command::Cleaned { host_id: id(number), because_of, epoch: log.state.topology.epoch });
}

fn cleanup_due(numbers: &[u128]) -> Refusal {
    Refusal::CleanupDue { host_ids: numbers.iter().map(|number| id(*number)).collect() }
}

#[test]
fn no_member_leaves_while_another_has_old_data() {
    let mut log = log_of_new_members(3);
    // 1 gave up ranges when 2 joined, and both when 3 did.
    let because_of = |log: &Log, number| log.state.uncleaned().of(&id(number)).cloned().unwrap_or_default();
    assert_eq!(because_of(&log, 1), BTreeSet::from([id(2), id(3)]));
    assert_eq!(because_of(&log, 2), BTreeSet::from([id(3)]));
    assert_eq!(because_of(&log, 3), BTreeSet::new());
    log.refused(&Command::StartLeave { host_id: id(3) }, cleanup_due(&[1, 2]));
    log.refused(&Command::StartRemoval { host_id: id(3) }, cleanup_due(&[1, 2]));
    // Its own old data goes with it.
    log.refused(&Command::StartLeave { host_id: id(1) }, cleanup_due(&[2]));
    cleaned(&mut log, 1, &[2]);
    assert_eq!(because_of(&log, 1), BTreeSet::from([id(3)]));
    cleaned(&mut log, 1, &[3]);
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
    for (number, of) in [(1, vec![4]), (2, vec![3, 4]), (3, vec![4])] {
        log.refused(
            &Command::StartLeave { host_id: id(4) },
            match number {
                1 => cleanup_due(&[1, 2, 3]),
                2 => cleanup_due(&[2, 3]),
                _ => cleanup_due(&[3]),
            },
        );
        cleaned(&mut log, number, &of);
    }
    log.leave_wholly(4);
    assert!(log.state.uncleaned().is_empty());
}

#[test]
fn a_leaving_that_is_cancelled_leaves_old_data_with_the_others() {
    let mut log = log_of_new_members(1);
    log.join_wholly(new_member(2));
    cleaned(&mut log, 1, &[2]);
    log.done(&Command::StartLeave { host_id: id(2) });
    assert!(log.state.uncleaned().is_empty());
    log.done(&Command::Abort { host_id: id(2) });
    log.refused(&Command::StartLeave { host_id: id(2) }, cleanup_due(&[1]));
    cleaned(&mut log, 1, &[2]);
    log.done(&Command::StartRemoval { host_id: id(2) });
    let epoch = log.state.topology.epoch;
    log.done(&Command::TakeBackRemoval { host_id: id(2), epoch });
    log.refused(&Command::StartRemoval { host_id: id(2) }, cleanup_due(&[1]));
    // An operator may not want to wait. When the member has gone, the ranges are those of the others again.
    log.done(&Command::ForceLeave { host_id: id(2), is_removal: true });
    assert!(log.state.is_removal(&id(2)));
    log.done(&Command::Advance { host_id: id(2), from: MemberState::Leaving(TransitionPhase::WriteBoth) });
    log.done(&Command::Advance { host_id: id(2), from: MemberState::Leaving(TransitionPhase::ReadNew) });
    assert!(log.state.uncleaned().is_empty());
}

#[test]
fn members_of_older_programs_are_not_noted() {
    let mut log = log_of_new_members(1);
    let mut log_of_old = Log::of(3);
    log_of_old.leave_wholly(3);
    assert!(log_of_old.state.uncleaned().is_empty());
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
