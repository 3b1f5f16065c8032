//! Dead members that are removed together.

use super::uncleaned::{clean_all, log_of_new_members, new_member};
use super::*;

const LEAVING: MemberState = MemberState::Leaving(TransitionPhase::WriteBoth);
const LEFT: MemberState = MemberState::Leaving(TransitionPhase::ReadNew);

fn remove(numbers: &[u128]) -> Command {
    let host_ids = numbers.iter().map(|number| id(*number)).collect();
    Command::StartRemovals { host_ids, accepts_old_data: true }
}

fn advance(number: u128, from: MemberState) -> Command {
    Command::Advance { host_id: id(number), from }
}

#[test]
fn dead_members_are_removed_together_in_one_transition() {
    let mut log = log_of_new_members(5);
    log.done(&remove(&[2, 4]));
    log.again(&remove(&[2, 4]));
    log.again(&remove(&[4]));
    assert_eq!([2, 4].map(|number| log.state_of(number)), [Some(LEAVING); 2]);
    assert_eq!(*log.state.removals(), BTreeSet::from([id(2), id(4)]));
    assert_eq!(log.apply(&Command::Join { member: new_member(6) }), CommandOutcome::Busy { host_id: id(2) });
    log.done(&advance(2, LEAVING));
    log.again(&advance(4, LEAVING));
    assert_eq!([2, 4].map(|number| log.state_of(number)), [Some(LEFT); 2]);
    log.done(&advance(4, LEFT));
    assert_eq!([2, 4].map(|number| log.state_of(number)), [None; 2]);
    assert_eq!(log.state.topology.removed, BTreeSet::from([id(2), id(4)]));
    assert_eq!(log.voters(), [1, 3, 5].map(id).into());
    log.again(&remove(&[2, 4]));
    log.again(&advance(2, LEFT));
}

#[test]
fn a_second_removal_joins_the_first_or_follows_it() {
    let mut log = log_of_new_members(5);
    log.done(&remove(&[2]));
    log.done(&remove(&[4]));
    assert_eq!([2, 4].map(|number| log.state_of(number)), [Some(LEAVING); 2]);
    log.done(&advance(4, LEAVING));
    log.done(&advance(2, LEFT));
    assert_eq!(log.state.topology.members.len(), 3);
    // When the first is read no more, the second is noted, and begins with the end of the first.
    let mut log = log_of_new_members(5);
    clean_all(&mut log);
    log.done(&remove(&[2]));
    log.done(&advance(2, LEAVING));
    log.done(&remove(&[4]));
    log.again(&remove(&[4]));
    assert_eq!([2, 4].map(|number| log.state_of(number)), [Some(LEFT), Some(MemberState::Normal)]);
    assert_eq!(log.state.topology.given_up, BTreeSet::from([id(4)]));
    log.done(&advance(2, LEFT));
    assert_eq!((log.state_of(2), log.state_of(4)), (None, Some(LEAVING)));
    assert_eq!(*log.state.removals(), BTreeSet::from([id(4)]));
    // One that waits for old data to be removed goes when an operator does not wait.
    let mut log = log_of_new_members(5);
    log.done(&remove(&[2]));
    log.done(&advance(2, LEAVING));
    log.done(&remove(&[4]));
    log.done(&advance(2, LEFT));
    assert_eq!(log.state_of(4), Some(MemberState::Normal));
    log.done(&remove(&[4]));
    assert_eq!(log.state_of(4), Some(LEAVING));
    // One that is back is given up no more.
    let mut log = log_of_new_members(5);
    log.done(&remove(&[2]));
    log.done(&advance(2, LEAVING));
    log.done(&remove(&[4]));
    let epoch = log.state.topology.epoch;
    log.done(&Command::TakeBackRemoval { host_id: id(4), epoch });
    log.done(&advance(2, LEFT));
    assert_eq!(log.state_of(4), Some(MemberState::Normal));
}

#[test]
fn a_step_that_was_decided_for_other_members_is_not_taken() {
    let mut log = log_of_new_members(5);
    log.done(&remove(&[2]));
    let step = Command::AdvanceMembers { host_id: id(2), from: LEAVING, epoch: log.state.topology.epoch };
    log.done(&remove(&[4]));
    assert!(matches!(log.apply(&step), CommandOutcome::Conflict { .. }));
    let step = Command::AdvanceMembers { host_id: id(2), from: LEAVING, epoch: log.state.topology.epoch };
    log.done(&step);
    assert!(matches!(log.apply(&step), CommandOutcome::Conflict { .. }));
    assert_eq!([2, 4].map(|number| log.state_of(number)), [Some(LEFT); 2]);
}

#[test]
fn a_member_that_is_back_stays_and_the_others_are_still_removed() {
    let mut log = log_of_new_members(5);
    clean_all(&mut log);
    log.done(&remove(&[2, 3]));
    let epoch = log.state.topology.epoch;
    log.done(&Command::TakeBackRemoval { host_id: id(2), epoch });
    assert_eq!([2, 3].map(|number| log.state_of(number)), [Some(MemberState::Normal), Some(LEAVING)]);
    assert_eq!(*log.state.removals(), BTreeSet::from([id(3)]));
    // With two replicas: without both the ranges of 1 were those of 4 and 5, now only of one of these.
    let is_noted = |number| log.state.uncleaned().of(&id(number)) == Some(&BTreeSet::from([id(2)]));
    assert!([4, 5].into_iter().all(is_noted));
    log.refused(
        &Command::TakeBackRemoval { host_id: id(3), epoch },
        Refusal::WrongState { host_id: id(3), found: LEAVING },
    );
    log.done(&advance(3, LEAVING));
    log.done(&advance(3, LEFT));
    assert_eq!(log.state.topology.members.len(), 4);
}

#[test]
fn a_removal_waits_for_other_transitions_and_leaves_an_owner() {
    let mut log = log_of_new_members(3);
    log.refused(&remove(&[1, 2, 3]), Refusal::LastOwner { host_id: id(1) });
    log.refused(&remove(&[1, 9]), Refusal::UnknownMember { host_id: id(9) });
    log.done(&Command::Join { member: new_member(4) });
    assert_eq!(log.apply(&remove(&[2])), CommandOutcome::Busy { host_id: id(4) });
    log.refused(&remove(&[4]), Refusal::WrongState { host_id: id(4), found: WRITE_BOTH });
    log.done(&Command::Abort { host_id: id(4) });
    // One that has died while it left goes on leaving, and is removed with another.
    log.done(&Command::ForceLeave { host_id: id(2), is_removal: false });
    log.again(&remove(&[2]));
    log.done(&remove(&[2, 3]));
    assert_eq!(*log.state.removals(), BTreeSet::from([id(2), id(3)]));
}

#[test]
fn older_members_do_not_know_removals_together() {
    let mut log = Log::of(3);
    log.refused(&remove(&[2, 3]), Refusal::FeatureVersion { host_id: id(1), level: 8, known: 1 });
}

#[test]
fn the_commands_are_stored_and_sent_as_they_were() {
    let [one, two] = [1, 2].map(id);
    assert_eq!(
        serde_json::to_string(&remove(&[1, 2])).unwrap(),
        format!(r#"{{"StartRemovals":{{"host_ids":["{one}","{two}"],"accepts_old_data":true}}}}"#)
    );
    let advance = Command::AdvanceReplication { from: TransitionPhase::WriteBoth, epoch: 7 };
    assert_eq!(
        serde_json::to_string(&advance).unwrap(),
        r#"{"AdvanceReplication":{"from":"WriteBoth","epoch":7}}"#
    );
}

#[test]
fn removals_wait_together_for_those_that_stay_to_clean_up() {
    let careful = |numbers: &[u128]| Command::StartRemovals {
        host_ids: numbers.iter().map(|number| id(*number)).collect(),
        accepts_old_data: false,
    };
    let clean = |log: &mut Log, numbers: &[u128]| {
        for number in numbers {
            let because_of = log.state.uncleaned().of(&id(*number)).cloned().unwrap_or_default();
            let epoch = log.state.topology.epoch;
            // Only members that would gain ranges are waited for.
            let _ = log.apply(&Command::Cleaned { host_id: id(*number), because_of, epoch });
        }
    };
    // Each of the two dead ones has old data, and would gain ranges of the other.
    let mut log = log_of_new_members(5);
    log.done(&careful(&[1]));
    log.again(&careful(&[1]));
    log.done(&careful(&[2]));
    assert_eq!(log.state.topology.given_up, [1, 2].map(id).into());
    clean(&mut log, &[3, 4]);
    assert_eq!(*log.state.removals(), [1, 2].map(id).into());
    // A removal that has begun is taken back if a second one has to wait, and begins with it.
    let mut log = log_of_new_members(5);
    log.done(&remove(&[1]));
    log.done(&careful(&[2]));
    assert!(log.state.topology.is_settled() && log.state.removals().is_empty());
    assert_eq!(log.state.topology.given_up, [1, 2].map(id).into());
    let noted: Vec<u128> = log.state.uncleaned().members().map(HostId::as_u128).collect();
    clean(&mut log, &noted.into_iter().filter(|number| *number > 2).collect::<Vec<_>>());
    assert_eq!(*log.state.removals(), [1, 2].map(id).into());
    assert!(log.state.topology.given_up.is_empty());
}
