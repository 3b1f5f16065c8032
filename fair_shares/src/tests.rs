use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use helenus_io::{Clock, ManualClock};
use tokio::task::{JoinHandle, LocalSet, yield_now};

use super::*;

const MICROSECOND: Duration = Duration::from_micros(1);

/// A shard whose clock stands still but for the work of its futures.
struct Machine {
    clock: Rc<ManualClock>,
    node: RoleShares,
    shares: Rc<ShardShares>,
}

impl Machine {
    fn new() -> Self {
        let clock = Rc::new(ManualClock::new(0));
        let shares = ShardShares::new(clock.clone(), Arc::default());
        Self { clock, node: RoleShares::default(), shares }
    }

    fn role(&self, name: &str) -> Rc<ShardShare> {
        self.shares.of(self.node.of(name))
    }

    /// A future that works in turns of this length until `until` (monotonic time). The time that it has worked is added to `worked`.
    fn work(
        &self,
        role: &Rc<ShardShare>,
        turn: Duration,
        until: Duration,
        worked: &Rc<Cell<Duration>>,
    ) -> JoinHandle<()> {
        let (clock, worked) = (self.clock.clone(), worked.clone());
        tokio::task::spawn_local(within(self.shares.clone(), Some(role.clone()), async move {
            while clock.monotonic() < until {
                clock.advance(turn);
                worked.set(worked.get() + turn);
                turn_over().await;
            }
        }))
    }
}

/// Goes on in the next turn, as soon as there is one.
async fn turn_over() {
    let mut is_over = false;
    std::future::poll_fn(|task| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

/// The time that two roles get of 100 ms, with this many futures and turns of this many microseconds.
async fn share_out(
    machine: &Machine,
    futures: [usize; 2],
    turns: [u32; 2],
    roles: [&Rc<ShardShare>; 2],
) -> [u128; 2] {
    let until = machine.clock.monotonic() + Duration::from_millis(100);
    let worked = [(); 2].map(|()| Rc::new(Cell::new(Duration::ZERO)));
    let mut tasks = Vec::new();
    for role in 0..2 {
        tasks.extend(
            (0..futures[role])
                .map(|_| machine.work(roles[role], MICROSECOND * turns[role], until, &worked[role])),
        );
    }
    all(tasks).await;
    worked.map(|worked| worked.get().as_millis())
}

#[tokio::test]
async fn roles_get_the_same_time_whatever_the_number_and_length_of_their_turns() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let (ann, bob) = (machine.role("ann"), machine.role("bob"));
            for (futures, turns) in [([1, 200], [10, 10]), ([50, 2], [7, 150]), ([1, 30], [90, 20])] {
                let [of_ann, of_bob] = share_out(&machine, futures, turns, [&ann, &bob]).await;
                assert!(of_ann.abs_diff(of_bob) <= 10, "{futures:?} {turns:?}: {of_ann} ms and {of_bob} ms");
            }
            assert!(machine.shares.metrics.turns_waited.get() > 0);
        })
        .await;
}

#[tokio::test]
async fn a_role_with_more_shares_gets_more_time() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let (ann, bob) = (machine.role("ann"), machine.role("bob"));
            ann.set_shares(Some(300));
            let [of_ann, of_bob] = share_out(&machine, [2, 50], [20, 20], [&ann, &bob]).await;
            assert!((70..=80).contains(&of_ann) && (20..=30).contains(&of_bob), "{of_ann} and {of_bob} ms");
        })
        .await;
}

#[tokio::test]
async fn a_role_that_asks_little_waits_for_one_slice_of_another_that_asks_much() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let (noisy, quiet) = (machine.role("noisy"), machine.role("quiet"));
            let until = Duration::from_millis(50);
            let worked = Rc::new(Cell::new(Duration::ZERO));
            let mut working: Vec<_> =
                (0..500).map(|_| machine.work(&noisy, MICROSECOND * 20, until, &worked)).collect();
            let (clock, shares) = (machine.clock.clone(), machine.shares.clone());
            let longest = Rc::new(Cell::new(Duration::ZERO));
            let waited = longest.clone();
            working.push(tokio::task::spawn_local(async move {
                while clock.monotonic() < until {
                    let asked = clock.monotonic();
                    within(shares.clone(), Some(quiet.clone()), async { clock.advance(MICROSECOND * 10) })
                        .await;
                    waited.set(waited.get().max(clock.monotonic().saturating_sub(asked)));
                    // A client thinks before it asks again.
                    for _ in 0..10 {
                        yield_now().await;
                    }
                }
            }));
            all(working).await;
            // Its own turn, a slice, and a turn that has begun within that.
            assert!(longest.get() <= MICROSECOND * 130, "waited for {:?}", longest.get());
            assert!(worked.get() > Duration::from_millis(40));
        })
        .await;
}

#[tokio::test]
async fn a_role_does_not_save_up_time_while_it_asks_nothing() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let (ann, bob) = (machine.role("ann"), machine.role("bob"));
            let alone = Rc::new(Cell::new(Duration::ZERO));
            machine.work(&bob, MICROSECOND * 20, Duration::from_millis(500), &alone).await.unwrap();
            let [of_ann, of_bob] = share_out(&machine, [20, 20], [20, 20], [&ann, &bob]).await;
            assert!(of_ann.abs_diff(of_bob) <= 10, "{of_ann} ms and {of_bob} ms");
        })
        .await;
}

#[tokio::test]
async fn futures_that_end_while_they_wait_or_have_got_a_turn_hold_nobody_up() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let (ann, bob) = (machine.role("ann"), machine.role("bob"));
            let until = Duration::from_millis(20);
            let worked = Rc::new(Cell::new(Duration::ZERO));
            let roles = [&ann, &bob];
            let mut working: Vec<_> = (0..40)
                .map(|number| machine.work(roles[number % 2], MICROSECOND * 30, until, &worked))
                .collect();
            // Those that wait end in every state that they may be in.
            for doomed in (0..30).map(|number| number % working.len()).collect::<Vec<_>>() {
                for _ in 0..=doomed % 3 {
                    yield_now().await;
                }
                working.remove(doomed.min(working.len() - 1)).abort();
            }
            all(working).await;
            assert!(worked.get() + MICROSECOND * 100 >= until);
            assert!(machine.shares.queue.borrow().is_empty() || !machine.shares.gives_turns.get());
        })
        .await;
}

#[tokio::test]
async fn a_turn_that_panics_is_a_turn_that_ends() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let roles = [machine.role("ann"), machine.role("bob")];
            let (until, worked) = (Duration::from_millis(20), Rc::new(Cell::new(Duration::ZERO)));
            let panics = |number: usize| {
                let clock = machine.clock.clone();
                let doomed = async move {
                    clock.advance(MICROSECOND * 120);
                    turn_over().await;
                    panic!("as a bug does");
                };
                tokio::task::spawn_local(within(
                    machine.shares.clone(),
                    Some(roles[number % 2].clone()),
                    doomed,
                ))
            };
            let doomed: Vec<JoinHandle<()>> = (0..10).map(panics).collect();
            let working =
                (0..10).map(|number| machine.work(&roles[number % 2], MICROSECOND * 30, until, &worked));
            all(working.collect()).await;
            for task in doomed {
                assert!(task.await.unwrap_err().is_panic());
            }
            assert!(machine.shares.passed().is_none());
        })
        .await;
}

#[tokio::test]
async fn what_a_role_has_used_is_not_forgotten_when_it_leaves() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let (ann, _bob) = (machine.role("ann"), machine.role("bob"));
            let worked = Rc::new(Cell::new(Duration::ZERO));
            machine.work(&ann, Duration::from_millis(3), Duration::from_millis(1), &worked).await.unwrap();
            let used = ann.start_nanos.get();
            assert!(used >= 3_000_000);
            drop(ann);
            machine.role("carol");
            assert_eq!(machine.role("ann").start_nanos.get(), used);
        })
        .await;
}

#[tokio::test]
async fn a_role_alone_never_waits() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let ann = machine.role("ann");
            let worked = Rc::new(Cell::new(Duration::ZERO));
            let until = Duration::from_millis(10);
            all((0..20).map(|_| machine.work(&ann, MICROSECOND * 30, until, &worked)).collect()).await;
            assert_eq!(machine.shares.metrics.turns_waited.get(), 0);
            let bob = machine.role("bob");
            assert!(ann.share.has_others_beside_it());
            drop(bob);
            assert!(!ann.share.has_others_beside_it());
        })
        .await;
}

#[tokio::test]
async fn work_that_a_turn_passes_on_belongs_to_its_role() {
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            let machine = Machine::new();
            let (ann, _bob) = (machine.role("ann"), machine.role("bob"));
            let shares = machine.shares.clone();
            let passed = within(shares.clone(), Some(ann.clone()), async move { shares.passed() }).await;
            assert!(Arc::ptr_eq(&passed.unwrap(), &ann.share));
            assert!(machine.shares.passed().is_none());
        })
        .await;
}
