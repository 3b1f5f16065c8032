//! One seed from its first event to its verdict.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus::cluster;
use helenus::config::Config;
use helenus_engine::io::{CrashStyle, SplitMix64};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::client::{Question, ask};
use crate::convergence;
use crate::faults;
use crate::machine::{Hardware, Machine};
use crate::network::Network;
use crate::panics;
use crate::plan::Plan;
use crate::trace::{Echo, Trace};
use crate::uuids::{SeededUuids, random_uuid};
use crate::workload::{SCHEMA, TABLES, keyspace, workload};
use crate::world::{World, pause_ms};

/// How long replicas may take to become equal once everything is well.
const CONVERGENCE_MAX: Duration = Duration::from_mins(1);

/// How long one step of the founding of the cluster may take.
const FOUNDING_MAX: Duration = Duration::from_secs(30);

/// What became of a seed.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub violations: Vec<String>,
    /// Of everything that happened.
    pub digest: u64,
    pub events: u64,
    pub virtual_time: Duration,
    pub last_events: Vec<String>,
}

/// Whether this program was built so that a seed gives the same events each time (`make simulate` does).
pub const REPLAYS: bool = cfg!(tokio_unstable);

/// Runs a plan on this thread, which must not have run another one: what the program keeps for each thread would carry
/// over.
pub fn run(plan: &Plan, echo: Echo) -> std::io::Result<Verdict> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    // Which of several waiters is woken first, and `select!` without an order, are the runtime's choice.
    #[cfg(tokio_unstable)]
    builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&plan.seed.to_be_bytes()));
    let runtime = builder.build()?;
    let tasks = Rc::new(LocalSet::new());
    let verdict = runtime.block_on(tasks.run_until(simulate(plan.clone(), tasks.clone(), echo)));
    drop(tasks);
    Ok(verdict)
}

async fn simulate(plan: Plan, tasks: Rc<LocalSet>, echo: Echo) -> Verdict {
    let start = Instant::now();
    let trace = Arc::new(Trace::new(echo));
    trace.note(plan.to_string());
    let mut random = SplitMix64::new(plan.seed);
    SeededUuids::seed(random.next_u64());
    let network = Rc::new(Network::new(&tasks, trace.clone(), random.next_u64()));
    let machines: Vec<Rc<Machine>> = (0..plan.nodes)
        .map(|index| {
            let hardware = Hardware {
                index,
                host_id: random_uuid(&mut random),
                address: address(index),
                config: config(&plan, index),
                planted_bug: plan.planted_bug,
                seed: random.next_u64(),
            };
            Rc::new(Machine::new(hardware, &tasks, network.clone(), trace.clone(), start))
        })
        .collect();
    for machine in &machines {
        network.connect(machine);
    }
    let world = Rc::new(World::new(plan, machines, network, trace.clone(), &tasks, random.next_u64()));
    if let Err(error) = found_cluster(&world).await {
        world.violation(format!("the cluster cannot be founded: {error}"));
    } else {
        run_load(&world).await;
    }
    for machine in &world.machines {
        if machine.is_running() {
            machine.crash(CrashStyle::KeepAll);
        }
    }
    for panic in panics::take() {
        world.violation(panic);
    }
    Verdict {
        violations: world.violations(),
        digest: trace.digest(),
        events: trace.events(),
        virtual_time: start.elapsed(),
        last_events: trace.last_events(),
    }
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)), 7000)
}

fn config(plan: &Plan, index: usize) -> Config {
    Config {
        data_dir: "/node".into(),
        listen: SocketAddr::new(address(index).ip(), 9042),
        shards: plan.shards.get(index).copied(),
        http_enabled: false,
        cluster_name: "simulation".to_owned(),
        seeds: vec![address(0).into()],
        // Small, so that memtables are flushed, tables merged and the log's segments reused within seconds.
        memtable_bytes: 256 << 10,
        commit_log_segment_bytes: 64 << 10,
        commit_log_total_bytes: 256 << 10,
        block_cache_bytes: 256 << 10,
        compaction_bytes_per_second: 0,
        ..Config::default()
    }
}

/// Brings all nodes up as one cluster with the schema of the load.
async fn found_cluster(world: &Rc<World>) -> Result<(), String> {
    let first = &world.machines[0];
    first.boot().await?;
    let statements = SCHEMA.iter().map(|statement| (*statement).to_owned());
    for statement in std::iter::once(keyspace(world.plan.nodes)).chain(statements) {
        let question = Question::new(statement, Consistency::One);
        ask(first, 0, question).await.map_err(|error| error.to_string())?;
    }
    for (index, machine) in world.machines.iter().enumerate().skip(1) {
        let up = world.machines.iter().take(index + 1);
        let alive: Arc<BTreeSet<_>> = Arc::new(up.clone().map(|machine| machine.host_id).collect());
        for machine in up {
            machine.set_alive(alive.clone());
        }
        machine.boot().await?;
    }
    for machine in &world.machines[1..] {
        let newest = first.context(0).ok_or("a node is down")?.cluster().topology.version;
        let context = machine.context(0).ok_or("a node is down")?;
        let applied = cluster::wait_applied(&context, newest, FOUNDING_MAX).await;
        applied.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn run_load(world: &Rc<World>) {
    let loads: Vec<_> = world.plan.load.iter().map(|kind| workload(*kind)).collect();
    for load in &loads {
        load.clone().prepare(world.clone()).await;
    }
    let clients: Vec<_> = loads
        .iter()
        .flat_map(|load| (0..world.plan.clients).map(|number| load.clone().client(world.clone(), number)))
        .map(tokio::task::spawn_local)
        .collect();
    let faults = tokio::task::spawn_local(faults::inject(world.clone()));
    tokio::time::sleep(world.plan.duration).await;
    world.is_load_over.set(true);
    faults::heal(world).await;
    for client in clients {
        if let Err(error) = client.await {
            world.violation(format!("a client ended early: {error}"));
        }
    }
    if let Err(error) = faults.await {
        world.violation(format!("the faults ended early: {error}"));
    }
    if !world.violations().is_empty() {
        return;
    }
    // Where no node has died, hints alone bring every write to every replica, but what became of a transaction whose
    // coordinator gave up is for the next one on its partition to find out.
    if !world.plan.kills_nodes() {
        let hinted: Vec<&str> = TABLES.iter().copied().filter(|table| *table != "transactions").collect();
        converge(world, &hinted, "hints").await;
    }
    for load in loads {
        load.check(world.clone()).await;
    }
    read_everything(world).await;
    converge(world, TABLES, "reads at ALL").await;
}

/// Reads every table at ALL, so that replicas that differ are repaired.
async fn read_everything(world: &World) {
    let mut random = world.random();
    for table in TABLES {
        let question = Question::new(format!("SELECT * FROM sim.{table}"), Consistency::All);
        if let Err(error) = world.insist(&mut random, &question, 10).await {
            world.violation(format!("after healing, a read at ALL of {table} fails: {error}"));
        }
    }
}

/// Waits until the replicas are equal in these tables.
async fn converge(world: &World, tables: &[&str], by: &str) {
    let deadline = world.trace.now_micros() + CONVERGENCE_MAX.as_micros() as u64;
    loop {
        let Some(difference) = convergence::difference(world, tables) else {
            return world.trace.note(format!("replicas are equal ({by})"));
        };
        if world.trace.now_micros() > deadline {
            return world.violation(format!("replicas are not equal after {by}: {difference}"));
        }
        pause_ms(1_000).await;
    }
}
