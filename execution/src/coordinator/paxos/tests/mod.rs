//! Proposers and replicas under every kind of fault, without any I/O: the outcomes that clients see must be
//! linearizable.

mod model;
mod registers;

use helenus_testing::linearizability::{Judgement, Operation, judge};
use model::{Plan, Trouble};

fn is_right(plan: &Plan, seed: u64) -> bool {
    let outcome = model::run(plan, seed);
    let judgement = judge(&outcome.history, Some(0));
    assert_ne!(judgement, Judgement::Unknown, "seed {seed}");
    outcome.repeated == 0 && judgement == Judgement::Linearizable
}

fn violations(plan: &Plan, seeds: std::ops::Range<u64>) -> Vec<u64> {
    seeds.filter(|&seed| !is_right(plan, seed)).collect()
}

/// The first seed below `limit` whose run violates the checks.
fn first_violation(plan: &Plan, limit: u64) -> Option<u64> {
    (0..limit).find(|&seed| !is_right(plan, seed))
}

#[test]
fn compare_and_set_is_linearizable_while_messages_are_lost_and_replicas_crash() {
    assert_eq!(violations(&Plan::default(), 0..3_000), Vec::<u64>::new());
}

#[test]
fn it_stays_linearizable_while_a_replica_takes_the_place_of_another() {
    let plan = Plan { is_moving: true, ..Plan::default() };
    assert_eq!(violations(&plan, 0..3_000), Vec::<u64>::new());
}

#[test]
fn it_stays_linearizable_while_a_replica_misses_most() {
    let plan = Plan { has_bad_link: true, ..Plan::default() };
    assert_eq!(violations(&plan, 0..3_000), Vec::<u64>::new());
}

#[test]
fn a_quiet_network_lets_most_operations_through() {
    let plan = Plan { is_quiet: true, is_forgetting: false, proposers: 1, ..Plan::default() };
    for seed in 0..50 {
        let outcome = model::run(&plan, seed);
        assert_eq!(outcome.unknown, 0, "seed {seed}");
        assert!(outcome.history.len() >= plan.operations, "seed {seed}");
        // A write takes a round of promises and one of proposals, a read one round of promises.
        assert!(outcome.questions <= 2 * outcome.history.len(), "seed {seed}: {}", outcome.questions);
    }
}

#[test]
fn the_checker_finds_a_promise_that_a_crash_has_taken() {
    let plan = Plan { trouble: Some(Trouble::ForgetsPromises), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn the_checker_finds_answers_before_the_log_is_synced() {
    let plan = Plan { trouble: Some(Trouble::AnswersBeforeSync), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn the_checker_finds_replicas_that_hide_what_they_have_accepted() {
    let plan = Plan { trouble: Some(Trouble::HidesAccepted), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn the_checker_finds_replicas_that_claim_commits() {
    let plan = Plan { trouble: Some(Trouble::ClaimsCommits), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn the_checker_finds_state_that_is_forgotten_after_only_a_quorum_settled() {
    let plan = Plan { has_bad_link: true, trouble: Some(Trouble::ForgetsAtAQuorum), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn the_checker_finds_commits_that_are_forgotten_before_all_know_them() {
    let plan = Plan { has_bad_link: true, trouble: Some(Trouble::ForgetsAtOnce), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn the_checker_finds_forgetting_without_a_bound() {
    let plan = Plan { trouble: Some(Trouble::ForgetsWithoutABound), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn the_checker_finds_commits_that_do_not_list_those_before() {
    let plan = Plan { trouble: Some(Trouble::LosesTrails), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}

#[test]
fn an_outbid_proposer_learns_the_outcome_of_its_proposal() {
    let plan = Plan { is_forgetting: false, ..Plan::default() };
    let (mut swaps, mut hidden) = (0, 0);
    for seed in 0..500 {
        let outcome = model::run(&plan, seed);
        hidden += outcome.hidden;
        let is_swap = |operation| matches!(operation, Operation::CompareAndSet { applied: Some(true), .. });
        swaps += outcome.history.iter().filter(|call| is_swap(call.operation)).count();
    }
    assert!(hidden * 1_000 < swaps, "{hidden} of {swaps}");
}

#[test]
fn the_checker_finds_old_owners_that_still_decide() {
    let plan = Plan { is_moving: true, trouble: Some(Trouble::IgnoresEpochs), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}
