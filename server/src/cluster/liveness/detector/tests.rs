//! Detectors of many nodes in virtual time, connected by a network that delays, drops and counts messages.

use std::collections::BTreeSet;

use helenus_engine::io::SplitMix64;
use uuid::Uuid;

use super::*;

const LATENCY: Duration = Duration::from_millis(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn id(number: usize) -> HostId {
    Uuid::from_u128(number as u128 + 1)
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (number / 250) as u8, (number % 250) as u8], 7_000))
}

fn identity(number: usize, generation: u64) -> NodeIdentity {
    NodeIdentity { host_id: id(number), address: address(number), generation }
}

struct Node {
    detector: Detector,
    is_killed: bool,
    paused_until: Duration,
}

struct Cluster {
    now: Duration,
    nodes: Vec<Node>,
    /// The time at which each node has something to do, by node and in order.
    due_at: Vec<Option<Duration>>,
    due: BTreeSet<(Duration, usize)>,
    /// Messages in flight by the time of their arrival.
    network: BTreeMap<(Duration, u64), (usize, Bytes)>,
    random: SplitMix64,
    sent: u64,
    sent_bytes: u64,
    /// Percentage of messages that get lost.
    lost_percent: u64,
    /// Whether messages from the first to the second node are blocked.
    cut: fn(usize, usize) -> bool,
}

impl Cluster {
    fn new(count: usize) -> Self {
        let mut cluster = Self {
            now: Duration::ZERO,
            nodes: Vec::new(),
            due_at: vec![None; count],
            due: BTreeSet::new(),
            network: BTreeMap::new(),
            random: SplitMix64::new(7),
            sent: 0,
            sent_bytes: 0,
            lost_percent: 0,
            cut: |_, _| false,
        };
        for number in 0..count {
            let detector = cluster.detector(number, count, 1_000);
            cluster.nodes.push(Node { detector, is_killed: false, paused_until: Duration::ZERO });
        }
        for number in 0..count {
            cluster.take_sends(number);
        }
        cluster
    }

    fn detector(&mut self, number: usize, count: usize, generation: u64) -> Detector {
        let seed = self.random.next_u64();
        let mut detector = Detector::new(identity(number, generation), Settings::default(), seed, self.now);
        let others = (0..count).filter(|other| *other != number);
        detector.set_members(others.map(|other| (id(other), address(other))).collect(), self.now).unwrap();
        detector
    }

    fn restart(&mut self, number: usize, generation: u64) {
        let detector = self.detector(number, self.nodes.len(), generation);
        self.nodes[number] = Node { detector, is_killed: false, paused_until: Duration::ZERO };
        self.take_sends(number);
    }

    /// Must be called after every call of a detector.
    fn take_sends(&mut self, from: usize) {
        let due = self.nodes[from].detector.next_due();
        if let Some(before) = std::mem::replace(&mut self.due_at[from], due) {
            self.due.remove(&(before, from));
        }
        self.due.extend(due.map(|due| (due, from)));
        for (to, bytes) in self.nodes[from].detector.take_sends() {
            self.sent += 1;
            self.sent_bytes += bytes.len() as u64;
            let to = (to.host_id.as_u128() - 1) as usize;
            if self.random.below(100) >= self.lost_percent && !(self.cut)(from, to) {
                let arrival = self.now + LATENCY + Duration::from_micros(self.random.below(500));
                self.network.insert((arrival, self.sent), (to, bytes));
            }
        }
    }

    /// Advances the clock.
    fn run(&mut self, duration: Duration) {
        self.run_until(self.now + duration, |_| false);
    }

    /// Advances the clock until a condition holds. Returns how long that took, if it ever held.
    fn run_until(&mut self, end: Duration, is_so: impl Fn(&Self) -> bool) -> Option<Duration> {
        let start = self.now;
        loop {
            if is_so(self) {
                return Some(self.now.saturating_sub(start));
            }
            let message = self.network.first_key_value().map(|(&(time, _), _)| time);
            let timer = self.due.first().map(|&(time, number)| (time.max(self.now), number));
            let next = timer.map(|(time, _)| time).into_iter().chain(message).min();
            match next {
                Some(time) if time <= end => self.now = time,
                _ => {
                    self.now = end;
                    return None;
                }
            }
            if message == Some(self.now) {
                let Some((_, (to, bytes))) = self.network.pop_first() else { continue };
                let node = &mut self.nodes[to];
                if node.paused_until > self.now {
                    // The message is kept in a buffer meanwhile.
                    self.sent += 1;
                    self.network.insert((node.paused_until, self.sent), (to, bytes));
                } else if !node.is_killed {
                    // Messages for an earlier generation are refused; that is no failure.
                    let _ = node.detector.receive(&bytes, self.now);
                    self.take_sends(to);
                }
            } else if let Some((_, number)) = timer {
                let node = &mut self.nodes[number];
                if node.is_killed || node.paused_until > self.now {
                    self.due.pop_first();
                    let later = (!node.is_killed).then_some(node.paused_until);
                    self.due_at[number] = later;
                    self.due.extend(later.map(|later| (later, number)));
                } else {
                    node.detector.tick(self.now).unwrap();
                    self.take_sends(number);
                }
            }
        }
    }

    fn sees(&self, number: usize, other: usize) -> bool {
        self.nodes[number].detector.active().contains_key(&id(other))
    }

    fn all_see_all(&self) -> bool {
        let count = self.nodes.len();
        self.nodes.iter().all(|node| node.detector.active().len() == count - 1)
    }

    fn nobody_sees(&self, other: usize) -> bool {
        (0..self.nodes.len()).filter(|number| *number != other).all(|number| !self.sees(number, other))
    }

    /// The nodes, except `besides`, that some other node does not see.
    fn missed(&self, besides: usize) -> BTreeSet<usize> {
        let mut missed = BTreeSet::new();
        for number in (0..self.nodes.len()).filter(|number| *number != besides) {
            let active = self.nodes[number].detector.active();
            missed.extend(
                (0..self.nodes.len()).filter(|other| {
                    *other != number && *other != besides && !active.contains_key(&id(*other))
                }),
            );
        }
        missed
    }
}

#[test]
fn nodes_that_start_together_see_each_other_at_once() {
    for count in [2, 3, 5, 30] {
        let mut cluster = Cluster::new(count);
        let took = cluster.run_until(seconds(10), Cluster::all_see_all).unwrap();
        assert!(took < seconds(3), "{count} nodes took {took:?}");
    }
}

#[test]
fn a_single_node_waits_for_nothing() {
    let mut cluster = Cluster::new(1);
    cluster.run(seconds(60));
    assert_eq!(cluster.nodes[0].detector.next_due(), None);
    assert_eq!(cluster.sent, 0);
}

/// The figures of the decision record: `cargo test -p helenus --lib figures_of -- --nocapture`.
#[test]
fn figures_of_a_killed_node_in_small_and_large_clusters() {
    for count in [3, 30, 300] {
        let mut cluster = Cluster::new(count);
        let met = cluster.run_until(seconds(60), Cluster::all_see_all).unwrap();
        cluster.run(seconds(10));
        (cluster.sent, cluster.sent_bytes) = (0, 0);
        cluster.run(seconds(10));
        let rate = |amount: u64| amount as f64 / 10.0 / count as f64;
        let (messages, bytes) = (rate(cluster.sent), rate(cluster.sent_bytes));
        assert!(cluster.all_see_all());
        cluster.nodes[1].is_killed = true;
        let first = cluster.run_until(cluster.now + seconds(30), |cluster| !cluster.sees(0, 1));
        let rest = cluster.run_until(cluster.now + seconds(30), |cluster| cluster.nobody_sees(1));
        let (first, all) = (first.unwrap(), first.unwrap() + rest.unwrap());
        println!(
            "{count} members: all see all after {met:?}; {messages:.1} messages and {bytes:.0} bytes a second and member; a killed \
             one is down for the first after {first:?}, for all after {all:?}"
        );
        assert!(all < seconds(10), "{count} members took {all:?}");
        assert_eq!(cluster.missed(1), BTreeSet::new());
    }
}

#[test]
fn wherever_in_the_round_a_node_is_killed_it_is_found_in_time() {
    for delay_ms in (0..2_000).step_by(250) {
        let mut cluster = Cluster::new(5);
        cluster.run(seconds(5) + Duration::from_millis(delay_ms));
        cluster.nodes[3].is_killed = true;
        let end = cluster.now + seconds(10);
        assert!(cluster.run_until(end, |cluster| cluster.nobody_sees(3)).is_some());
    }
}

#[test]
fn a_short_pause_is_no_failure() {
    let mut cluster = Cluster::new(5);
    cluster.run(seconds(5));
    for number in [1, 3, 1] {
        cluster.nodes[number].paused_until = cluster.now + seconds(3);
        let end = cluster.now + seconds(10);
        assert_eq!(cluster.run_until(end, |cluster| !cluster.all_see_all()), None, "pause of {number}");
    }
}

#[test]
fn a_long_pause_is_one_and_ends_with_the_pause() {
    let mut cluster = Cluster::new(5);
    cluster.run(seconds(5));
    let end = cluster.now + seconds(30);
    cluster.nodes[2].paused_until = end;
    assert!(cluster.run_until(cluster.now + seconds(10), |cluster| cluster.nobody_sees(2)).is_some());
    assert_eq!(cluster.missed(2), BTreeSet::new());
    // The node is never forgotten, and never seen in between.
    assert_eq!(cluster.run_until(end, |cluster| !cluster.nobody_sees(2)), None);
    let back = cluster.run_until(end + seconds(10), Cluster::all_see_all).unwrap();
    assert!(back < seconds(5), "{back:?}");
    // The paused node does not suspect the others.
    assert_eq!(cluster.run_until(cluster.now + seconds(20), |cluster| !cluster.all_see_all()), None);
}

#[test]
fn a_leaving_node_announces_it() {
    let mut cluster = Cluster::new(5);
    cluster.run(seconds(5));
    let now = cluster.now;
    cluster.nodes[4].detector.leave(now).unwrap();
    cluster.take_sends(4);
    let took = cluster.run_until(now + seconds(10), |cluster| cluster.nobody_sees(4)).unwrap();
    assert!(took < seconds(2), "{took:?}");
    assert!(cluster.nodes[4].detector.active().is_empty());
    // Messages that others still send do not bring it back.
    assert_eq!(cluster.run_until(now + seconds(20), |cluster| !cluster.nobody_sees(4)), None);
}

#[test]
fn a_restarted_node_is_back_whatever_its_clock_says() {
    for generation in [1_001, 1_000, 1] {
        let mut cluster = Cluster::new(4);
        cluster.run(seconds(5));
        cluster.nodes[1].is_killed = true;
        cluster.run(seconds(20));
        assert!(cluster.nobody_sees(1));
        cluster.restart(1, generation);
        let took = cluster.run_until(cluster.now + seconds(20), Cluster::all_see_all);
        assert!(took.is_some_and(|took| took < seconds(5)), "generation {generation}: {took:?}");
    }
}

#[test]
fn a_quick_restart_is_back_whatever_its_clock_says() {
    for generation in [1_001, 1_000, 1] {
        let mut cluster = Cluster::new(4);
        cluster.run(seconds(5));
        cluster.restart(1, generation);
        cluster.run(seconds(10));
        assert!(cluster.all_see_all(), "generation {generation}");
        assert_eq!(cluster.run_until(cluster.now + seconds(20), |cluster| !cluster.all_see_all()), None);
    }
}

#[test]
fn a_partitioned_cluster_reunites() {
    let mut cluster = Cluster::new(6);
    cluster.run(seconds(5));
    cluster.cut = |from, to| (from < 3) != (to < 3);
    cluster.run(seconds(30));
    for number in 0..6 {
        assert_eq!(cluster.nodes[number].detector.active().len(), 2);
    }
    cluster.cut = |_, _| false;
    let took = cluster.run_until(cluster.now + seconds(30), Cluster::all_see_all);
    assert!(took.is_some_and(|took| took < seconds(10)), "{took:?}");
}

#[test]
fn lost_messages_are_no_failures() {
    let mut cluster = Cluster::new(7);
    cluster.run(seconds(5));
    cluster.lost_percent = 10;
    assert_eq!(cluster.run_until(seconds(120), |cluster| !cluster.all_see_all()), None);
}

#[test]
fn one_cut_link_is_no_failure() {
    let mut cluster = Cluster::new(5);
    cluster.run(seconds(5));
    cluster.cut = |from, to| from == 1 && to == 2;
    assert_eq!(cluster.run_until(seconds(120), |cluster| !cluster.all_see_all()), None);
}

#[test]
fn a_former_member_does_not_count() {
    let mut cluster = Cluster::new(4);
    cluster.run(seconds(5));
    let now = cluster.now;
    for number in 0..3 {
        let others = (0..3).filter(|other| *other != number).map(|other| (id(other), address(other)));
        cluster.nodes[number].detector.set_members(others.collect(), now).unwrap();
        cluster.take_sends(number);
    }
    assert!(cluster.nobody_sees(3));
    assert_eq!(cluster.run_until(now + seconds(20), |cluster| !cluster.nobody_sees(3)), None);
}

#[test]
fn invalid_bytes_are_an_error_and_change_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.run(seconds(5));
    let now = cluster.now;
    for length in 0..64 {
        let bytes: Vec<u8> = (0..length).map(|_| cluster.random.next_u64() as u8).collect();
        let _ = cluster.nodes[0].detector.receive(&bytes, now);
    }
    assert!(cluster.nodes[0].detector.receive(&[255; 40], now).is_err());
    cluster.run(seconds(10));
    assert!(cluster.all_see_all());
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = || {
        let mut cluster = Cluster::new(6);
        cluster.run(seconds(3));
        cluster.nodes[2].is_killed = true;
        cluster.run(seconds(20));
        cluster.restart(2, 2_000);
        cluster.run(seconds(5));
        (cluster.sent, cluster.sent_bytes, cluster.random.next_u64())
    };
    assert_eq!(history(), history());
}
