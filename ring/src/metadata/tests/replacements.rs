//! A new member takes the place of a dead one.

use super::uncleaned::{alter, clean_all, cleanup_due, log_of_new_members, new_member};
use super::*;
use crate::topology::Replacement;

const LEAVING: MemberState = MemberState::Leaving(TransitionPhase::WriteBoth);
const LEFT: MemberState = MemberState::Leaving(TransitionPhase::ReadNew);

/// Member `new` is to take the place of `old`.
fn replace(old: u128, new: u128) -> Command {
    Command::StartReplacement { member: new_member(new), replaced: id(old), accepts_loss: false }
}

fn advance(log: &mut Log, number: u128, from: MemberState) {
    let epoch = log.state.topology.epoch;
    log.done(&Command::AdvanceMembers { host_id: id(number), from, epoch });
}

fn states(log: &Log, numbers: [u128; 2]) -> [Option<MemberState>; 2] {
    numbers.map(|number| log.state_of(number))
}

#[test]
fn both_take_each_step_together_and_the_new_member_has_the_tokens() {
    let mut log = log_of_new_members(4);
    // Nobody has to clean up first: no member gains ranges.
    log.refused(&Command::StartRemoval { host_id: id(2) }, cleanup_due(&[1, 3]));
    let epoch = log.state.topology.epoch;
    log.done(&replace(2, 9));
    log.again(&replace(2, 9));
    assert!(log.state.topology.epoch > epoch);
    assert_eq!(states(&log, [2, 9]), [Some(LEAVING), Some(WRITE_BOTH)]);
    let replacement = Replacement { old: id(2), new: id(9), accepts_loss: false };
    assert_eq!(log.state.topology.replacement, Some(replacement));
    assert_eq!(*log.state.removals(), [id(2)].into());
    assert_eq!(log.voters(), [1, 3, 4].map(id).into());
    let tokens = |log: &Log, number| log.state.topology.member(&id(number)).unwrap().tokens.clone();
    assert_eq!(tokens(&log, 9), tokens(&log, 2));
    assert_ne!(tokens(&log, 9), new_member(9).tokens);
    advance(&mut log, 9, WRITE_BOTH);
    assert_eq!(states(&log, [2, 9]), [Some(LEFT), Some(READ_NEW)]);
    log.again(&Command::Advance { host_id: id(9), from: WRITE_BOTH });
    log.again(&Command::Advance { host_id: id(2), from: LEAVING });
    // Whoever drives one drives both.
    advance(&mut log, 2, LEFT);
    assert_eq!(states(&log, [2, 9]), [None, Some(MemberState::Normal)]);
    log.again(&Command::Advance { host_id: id(9), from: READ_NEW });
    let topology = &log.state.topology;
    assert_eq!((&topology.removed, topology.replacement), (&[id(2)].into(), None));
    assert!(log.state.removals().is_empty() && topology.is_settled());
    assert_eq!(log.voters(), [1, 3, 4, 9].map(id).into());
    log.refused(&Command::Join { member: new_member(2) }, Refusal::Removed { host_id: id(2) });
}

#[test]
fn what_was_given_up_because_of_the_dead_member_the_new_one_has_now() {
    let mut log = log_of_new_members(1);
    log.join_wholly(new_member(2));
    log.join_wholly(new_member(3));
    let because_of = |log: &Log, number| log.state.uncleaned().of(&id(number)).cloned();
    assert_eq!(because_of(&log, 1), Some([2, 3].map(id).into()));
    assert_eq!(because_of(&log, 2), Some([id(3)].into()));
    log.done(&replace(2, 9));
    advance(&mut log, 9, WRITE_BOTH);
    advance(&mut log, 9, READ_NEW);
    // The new member has no old data itself.
    assert_eq!(because_of(&log, 1), Some([3, 9].map(id).into()));
    assert_eq!([2, 9].map(|number| because_of(&log, number)), [None, None]);
    log.refused(&Command::StartLeave { host_id: id(9) }, cleanup_due(&[1]));
    clean_all(&mut log);
    log.leave_wholly(9);
}

#[test]
fn it_is_taken_back_as_a_whole() {
    for (step, taken_back_by) in [(0, 9), (0, 2), (1, 9)] {
        let mut log = log_of_new_members(4);
        let noted = log.state.uncleaned().clone();
        log.done(&replace(2, 9));
        if step == 1 {
            advance(&mut log, 9, WRITE_BOTH);
        }
        log.done(&Command::Abort { host_id: id(taken_back_by) });
        assert_eq!(states(&log, [2, 9]), [Some(MemberState::Normal), None]);
        assert_eq!(log.state.topology.replacement, None);
        assert!(log.state.removals().is_empty() && log.state.topology.is_settled());
        assert_eq!(*log.state.uncleaned(), noted, "nobody else has given up anything");
        assert!(log.state.topology.removed.is_empty());
        // It may be tried again.
        log.done(&replace(2, 9));
    }
    // The dead member is back.
    let mut log = log_of_new_members(4);
    log.done(&replace(2, 9));
    let epoch = log.state.topology.epoch;
    log.done(&Command::TakeBackRemoval { host_id: id(2), epoch });
    assert_eq!(states(&log, [2, 9]), [Some(MemberState::Normal), None]);
    log.again(&Command::TakeBackRemoval { host_id: id(2), epoch });
    // Too late.
    log.done(&replace(2, 9));
    advance(&mut log, 9, WRITE_BOTH);
    let epoch = log.state.topology.epoch;
    let found = LEFT;
    log.refused(
        &Command::TakeBackRemoval { host_id: id(2), epoch },
        Refusal::WrongState { host_id: id(2), found },
    );
    log.refused(&Command::Abort { host_id: id(2) }, Refusal::WrongState { host_id: id(2), found });
}

#[test]
fn it_is_refused_with_what_to_do() {
    let mut log = log_of_new_members(4);
    log.refused(&replace(7, 9), Refusal::ReplacedUnknown { host_id: id(7) });
    log.refused(&replace(2, 3), Refusal::AlreadyMember { host_id: id(3) });
    let elsewhere = |data_center: &str, rack: &str| Command::StartReplacement {
        member: Member { data_center: data_center.to_owned(), rack: rack.to_owned(), ..new_member(9) },
        replaced: id(2),
        accepts_loss: false,
    };
    let refusal = Refusal::ReplacedElsewhere {
        host_id: id(2),
        data_center: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
    };
    log.refused(&elsewhere("datacenter1", "rack2"), refusal.clone());
    log.refused(&elsewhere("datacenter2", "rack1"), refusal.clone());
    assert!(refusal.to_string().contains(r#"set data_center = "datacenter1" and rack = "rack1""#));
    // The address of the dead member may be taken, no other one.
    let at = |number: u128| Command::StartReplacement {
        member: Member { host_id: id(9), ..new_member(number) },
        replaced: id(2),
        accepts_loss: false,
    };
    let address = new_member(3).internode_address;
    log.refused(&at(3), Refusal::AddressTaken { address, by: id(3) });
    log.done(&at(2));
    log.again(&at(2));
    log.refused(&replace(3, 9), Refusal::AlreadyMember { host_id: id(9) });
    // Others wait, also for its end.
    let moving = log.state.topology.in_transition().unwrap().host_id;
    for command in [replace(2, 10), replace(3, 10), Command::Join { member: new_member(10) }] {
        assert_eq!(log.apply(&command), CommandOutcome::Busy { host_id: moving }, "{command}");
    }
    for dead in [vec![2], vec![3], vec![2, 3]] {
        let host_ids = dead.iter().map(|number| id(*number)).collect();
        let removal = Command::StartRemovals { host_ids, accepts_old_data: true };
        assert!(matches!(log.apply(&removal), CommandOutcome::Busy { .. }), "{dead:?}");
    }
    advance(&mut log, 9, WRITE_BOTH);
    advance(&mut log, 9, READ_NEW);
    log.refused(&replace(2, 10), Refusal::ReplacedGone { host_id: id(2) });
    // One that joins or leaves.
    log.done(&Command::Join { member: new_member(10) });
    log.refused(&replace(10, 11), Refusal::ReplacedMoving { host_id: id(10), found: WRITE_BOTH });
    log.done(&Command::Abort { host_id: id(10) });
    log.done(&Command::ForceLeave { host_id: id(3), is_removal: true });
    log.refused(&replace(3, 11), Refusal::ReplacedMoving { host_id: id(3), found: LEAVING });
}

#[test]
fn a_removal_that_waits_begins_when_the_replacement_is_over() {
    let mut log = log_of_new_members(5);
    clean_all(&mut log);
    log.done(&replace(2, 9));
    advance(&mut log, 9, WRITE_BOTH);
    let removal = Command::StartRemovals { host_ids: [id(4)].into(), accepts_old_data: false };
    log.done(&removal);
    assert_eq!(log.state.topology.given_up, [id(4)].into());
    advance(&mut log, 9, READ_NEW);
    assert_eq!((log.state_of(9), log.state_of(4)), (Some(MemberState::Normal), Some(LEAVING)));
}

#[test]
fn older_members_do_not_know_it() {
    let mut log = Log::of(3);
    log.refused(&replace(2, 9), Refusal::FeatureVersion { host_id: id(1), level: 11, known: 1 });
    let mut log = log_of_new_members(3);
    let known = REPLACEMENTS - 1;
    let member = Member { feature_version: known, ..new_member(9) };
    let older = Command::StartReplacement { member, replaced: id(2), accepts_loss: true };
    log.refused(&older, Refusal::FeatureVersion { host_id: id(9), level: FEATURE_VERSION, known });
}

#[test]
fn a_change_of_replication_waits_for_it() {
    let mut log = log_of_new_members(4);
    clean_all(&mut log);
    log.done(&replace(2, 9));
    log.done(&schema_change(&log.state, 1001, &[&alter(3)]));
    assert_eq!(log.state.topology.replication_phase(), None);
    advance(&mut log, 9, WRITE_BOTH);
    advance(&mut log, 9, READ_NEW);
    assert_eq!(log.state.topology.replication_phase(), Some(TransitionPhase::WriteBoth));
}

#[test]
fn the_command_is_stored_and_sent_as_it_was() {
    let command = Command::StartReplacement { member: new_member(9), replaced: id(2), accepts_loss: true };
    let member = serde_json::to_string(&new_member(9)).unwrap();
    let replaced = id(2);
    assert_eq!(
        serde_json::to_string(&command).unwrap(),
        format!(
            r#"{{"StartReplacement":{{"member":{member},"replaced":"{replaced}","accepts_loss":true}}}}"#
        )
    );
}
