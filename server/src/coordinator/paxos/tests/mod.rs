//! Proposers and replicas under every kind of trouble, without any I/O: what clients see must be linearizable.

mod contention;
mod linearizability;
mod model;
mod registers;
mod transactions;

use model::{Plan, Trouble};

fn violations(plan: &Plan, seeds: std::ops::Range<u64>) -> Vec<u64> {
    seeds.filter(|&seed| !linearizability::is_linearizable(&model::run(plan, seed).history)).collect()
}

/// The first seed below `limit` whose history is not linearizable.
fn first_violation(plan: &Plan, limit: u64) -> Option<u64> {
    (0..limit).find(|&seed| !linearizability::is_linearizable(&model::run(plan, seed).history))
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
fn a_quiet_network_lets_most_operations_through() {
    let plan = Plan { is_quiet: true, proposers: 1, ..Plan::default() };
    for seed in 0..50 {
        let outcome = model::run(&plan, seed);
        assert_eq!(outcome.unknown, 0, "seed {seed}");
        assert!(outcome.history.len() >= plan.operations, "seed {seed}");
        // A write takes a round of promises and one of proposals, a read one of promises.
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
fn the_checker_finds_old_owners_that_still_decide() {
    let plan = Plan { is_moving: true, trouble: Some(Trouble::IgnoresEpochs), ..Plan::default() };
    assert!(first_violation(&plan, 5_000).is_some());
}
