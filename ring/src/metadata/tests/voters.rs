//! Which members vote, where some do not answer and where they are spread.

use super::*;

/// Members 2 … of these data centers and racks, after the first in `a`, `r1`.
fn spread(places: &[(&str, &str)]) -> Log {
    let mut log = Log::empty();
    for (number, (center, rack)) in (1..).zip(places) {
        let member = Member { data_center: (*center).to_owned(), rack: (*rack).to_owned(), ..member(number) };
        if number == 1 {
            log.done(&Command::Found { member, catalog: CatalogDocument::of(&initial_catalog(id(1000))) });
        } else {
            log.join_wholly(member);
        }
    }
    log
}

fn ids(numbers: &[u128]) -> BTreeSet<HostId> {
    numbers.iter().map(|number| id(*number)).collect()
}

fn seen(log: &Log, voters: &[u128], down: &[u128], lost: &[u128]) -> SeenMembers {
    let alive = log.state.topology.members.keys().filter(|host_id| !ids(down).contains(host_id));
    SeenMembers { voters: ids(voters), alive: alive.copied().collect(), lost: ids(lost) }
}

#[test]
fn voters_are_spread_over_data_centers_and_racks() {
    let log = spread(&[
        ("a", "r1"),
        ("a", "r1"),
        ("a", "r1"),
        ("a", "r2"),
        ("b", "r1"),
        ("b", "r1"),
        ("b", "r2"),
        ("c", "r1"),
    ]);
    assert_eq!(log.voters(), ids(&[1, 4, 5, 7, 8]));
    // What is chosen stays chosen.
    let again = log.state.voters(&seen(&log, &[1, 4, 5, 7, 8], &[], &[]));
    assert_eq!(again, ids(&[1, 4, 5, 7, 8]));
    let others = log.state.voters(&seen(&log, &[2, 4, 6, 7, 8], &[], &[]));
    assert_eq!(others, ids(&[2, 4, 6, 7, 8]), "as well spread");
}

#[test]
fn a_voter_that_is_lost_is_replaced_only_if_another_member_can_vote() {
    let log = spread(&[("a", "r"); 7]);
    let five = [1, 2, 3, 4, 5];
    assert_eq!(log.state.voters(&seen(&log, &five, &[3], &[])), ids(&five), "it may come back soon");
    assert_eq!(log.state.voters(&seen(&log, &five, &[3], &[3])), ids(&[1, 2, 4, 5, 6]));
    assert_eq!(log.state.voters(&seen(&log, &five, &[3, 6], &[3, 6])), ids(&[1, 2, 4, 5, 7]));
    assert_eq!(log.state.voters(&seen(&log, &five, &[3, 6, 7], &[3, 6, 7])), ids(&five));
}

#[test]
fn a_member_that_does_not_answer_does_not_become_a_voter() {
    let log = spread(&[("a", "r"); 5]);
    // After a recovery: one votes, two answer, two are lost.
    assert_eq!(log.state.voters(&seen(&log, &[2], &[4, 5], &[4, 5])), ids(&[1, 2, 3]));
    assert_eq!(log.state.voters(&seen(&log, &[2], &[4, 5], &[])), ids(&[1, 2, 3]));
}
