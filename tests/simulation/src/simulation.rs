//! Runs one seed from its first event to its verdict.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus::config::{AtRestMode, Authenticator, Authorizer, Config, EncryptionAtRest};
use helenus::testing::client;
use helenus::testing::network::Network;
use helenus_engine::io::{CrashStyle, SplitMix64};
use helenus_internode::endpoint::Endpoint;
use helenus_testing::uuids::{SeededUuids, random_uuid};
use helenus_testing::virtual_time;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::agreement;
use crate::client::{Question, ROOT, ask};
use crate::convergence;
use crate::faults;
use crate::machine::{Hardware, Machine, Part};
use crate::network::Links;
use crate::panics;
use crate::plan::{FaultKind, LoadKind, Plan};
use crate::repairs;
use crate::trace::{Echo, Trace};
use crate::transitions;
use crate::workload::roles::UNCONFIRMED_MAX;
use crate::workload::{SCHEMA, caps, center_name, deletions_table, keyspace, views, workload};
use crate::world::{World, pause_ms};

/// Time limit for replicas to become equal after healing.
const CONVERGENCE_MAX: Duration = Duration::from_mins(1);

/// Time limit for one step of founding the cluster.
const FOUNDING_MAX: Duration = Duration::from_secs(30);

/// The result of a seed.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub violations: Vec<String>,
    /// Digest of all events.
    pub digest: u64,
    pub events: u64,
    pub virtual_time: Duration,
    /// Number of histories that were too long to be judged.
    pub unjudged: usize,
    pub last_events: Vec<String>,
}

/// Whether this program was built so that every run of a seed gives the same events (as `make simulate` does).
pub const REPLAYS: bool = cfg!(tokio_unstable);

/// Runs a plan on this thread, which must not have run another one: the program keeps state for each thread, which
/// would affect the next run.
pub fn run(plan: &Plan, echo: Echo) -> Verdict {
    virtual_time::run(plan.seed, |tasks| simulate(plan.clone(), tasks, echo))
}

async fn simulate(plan: Plan, tasks: Rc<LocalSet>, echo: Echo) -> Verdict {
    let start = Instant::now();
    let trace = Arc::new(Trace::new(echo));
    trace.note(plan.to_string());
    let mut random = SplitMix64::new(plan.seed);
    SeededUuids::seed(random.next_u64());
    let links = Rc::new(Links::new(trace.clone(), random.next_u64()));
    let network = Network::new(&tasks, links.clone());
    let machines: Vec<Rc<Machine>> = (0..plan.nodes + plan.spares)
        .map(|index| {
            let hardware = Hardware {
                index,
                host_id: random_uuid(&mut random),
                address: address(index),
                config: config(&plan, index),
                planted_bug: plan.planted_bug,
                is_encrypted: plan.is_encrypted,
                part: if index < plan.nodes { Part::Member } else { Part::Spare },
                seed: random.next_u64(),
            };
            Rc::new(Machine::new(hardware, &network, trace.clone(), start))
        })
        .collect();
    let world = Rc::new(World::new(plan, machines, links, trace.clone(), &tasks, random.next_u64()));
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
        unjudged: world.unjudged.get(),
        last_events: trace.last_events(),
    }
}

fn address(index: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, index as u8 + 1)), 7000)
}

fn config(plan: &Plan, index: usize) -> Config {
    let has_roles = plan.load.contains(&LoadKind::Roles);
    Config {
        data_dir: "/node".into(),
        listen: SocketAddr::new(address(index).ip(), 9042),
        shards: plan.shards.get(index).copied(),
        http_enabled: false,
        cluster_name: "simulation".to_owned(),
        data_center: center_name(plan.center_of(index)),
        // With one data center there is one rack: a spare machine may take the place of any other.
        rack: format!("rack{}", if plan.centers() > 1 { index / plan.centers() % 3 + 1 } else { 1 }),
        num_tokens: plan.tokens,
        internode: Some(address(index).into()),
        seeds: seeds(plan, index),
        // Small, so that memtables are flushed, tables compacted and log segments reused within seconds.
        memtable_bytes: 256 << 10,
        commit_log_segment_bytes: 64 << 10,
        commit_log_total_bytes: 256 << 10,
        // None, too little, enough: on one node reads fetch all their blocks from the disk, on another some.
        block_cache_bytes: [0, 8 << 10, 256 << 10][index % 3],
        compaction_bytes_per_second: 0,
        stream_throughput_bytes_per_second: plan.stream_bytes_per_second,
        stream_chunk_bytes: 512,
        automatic_repair: plan.faults.contains(&FaultKind::Repair),
        hinted_handoff_enabled: plan.keeps_hints(),
        encryption_at_rest: EncryptionAtRest {
            // Where it is off, segments of the commit log are used again: that has to work too.
            mode: if plan.is_encrypted && index.is_multiple_of(2) {
                AtRestMode::All
            } else {
                AtRestMode::Off
            },
            ..EncryptionAtRest::default()
        },
        authenticator: if has_roles {
            Authenticator::PasswordAuthenticator
        } else {
            Authenticator::AllowAllAuthenticator
        },
        authorizer: if has_roles { Authorizer::CassandraAuthorizer } else { Authorizer::AllowAllAuthorizer },
        unconfirmed_roles_limit_ms: UNCONFIRMED_MAX.as_millis() as u64,
        transaction_state_idle_seconds: plan.transactions_rest.as_secs(),
        ..Config::default()
    }
}

/// The founding nodes have the first one as their seed, nodes that join later have all of them.
fn seeds(plan: &Plan, index: usize) -> Vec<Endpoint> {
    let known = if index < plan.nodes { 1 } else { plan.nodes };
    (0..known).map(|index| address(index).into()).collect()
}

/// Starts all nodes as one cluster with the schema of the load.
async fn found_cluster(world: &Rc<World>) -> Result<(), String> {
    world.machines[0].boot().await?;
    if world.plan.load.contains(&LoadKind::Roles) {
        make_superuser(world).await?;
    }
    // A keyspace can name only data centers that have members.
    let is_made_later = world.plan.centers() > 1;
    if !is_made_later {
        make_schema(world).await?;
    }
    for machine in &world.members()[1..] {
        machine.boot().await?;
    }
    let deadline = Instant::now() + FOUNDING_MAX;
    while !faults::all_see_all(world) || !transitions::are_over(world) {
        if Instant::now() > deadline {
            return Err("the nodes do not see each other".to_owned());
        }
        pause_ms(50).await;
    }
    if is_made_later {
        make_schema(world).await?;
    }
    Ok(())
}

/// Makes the role of all clients.
async fn make_superuser(world: &World) -> Result<(), String> {
    let machine = &world.machines[0];
    let context = machine.context(0).ok_or("the first node is down")?;
    let made = machine.run(async move { client::make_superuser(&context, ROOT).await }).await?;
    made.map_err(|error| error.to_string())
}

/// Makes the keyspace and the tables of the load.
async fn make_schema(world: &World) -> Result<(), String> {
    let statements = SCHEMA.iter().map(|statement| (*statement).to_owned());
    let repairs = world.plan.faults.contains(&FaultKind::Repair);
    let made = [
        keyspace(&world.plan.replicas_of_centers),
        deletions_table(world.plan.gc_grace, repairs),
        caps::table(),
    ];
    for statement in made.into_iter().chain(statements) {
        let question = Question::new(statement, Consistency::One);
        ask(&world.machines[0], 0, question).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

async fn run_load(world: &Rc<World>) {
    /// Tables that are written by transactions.
    const UNFINISHED: [&str; 6] =
        ["transactions", "increments", "truncations", "deletions", "feeds", "feeds_scylla_cdc_log"];
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
    let agreement = tokio::task::spawn_local(agreement::watch(world.clone()));
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
    if let Err(error) = agreement.await {
        world.violation(format!("the agreement checker ended early: {error}"));
    }
    if !world.violations().is_empty() {
        return;
    }
    agree(world).await;
    // If no node has crashed, hints alone bring every write to every replica. But a transaction whose coordinator
    // gave up is only finished by the next one on its partition.
    if !world.plan.kills_nodes() && world.plan.keeps_hints() {
        let mut hinted = convergence::tables(world);
        hinted.retain(|table| !UNFINISHED.contains(&table.as_str()) && !table.starts_with(views::PREFIX));
        converge(world, &hinted, "hints").await;
    }
    deliver_hints(world).await;
    for load in loads {
        load.check(world.clone()).await;
    }
    let by = if world.plan.ends_with_repair {
        repairs::repair_everything(world).await;
        "a repair"
    } else {
        read_everything(world).await;
        "reads at ALL"
    };
    let mut repaired = convergence::tables(world);
    // Of its tombstones some nodes have purged more than others.
    repaired.retain(|table| table != "deletions");
    // Reads leave out the rows that are evicted. Not all replicas need have them.
    repaired.retain(|table| table != "caps" || world.plan.ends_with_repair);
    converge(world, &repaired, by).await;
    quarantine_is_empty(world);
}

/// Checks that no start has found anything that it did not know: crashes and failing disks leave nothing of the kind. Files of rows that
/// could not be opened may be there if a repair has mended them.
fn quarantine_is_empty(world: &World) {
    let faults = &world.plan.faults;
    let has_repairs = faults.contains(&FaultKind::Repair) || world.plan.ends_with_repair;
    let mends = has_repairs && faults.contains(&FaultKind::CorruptReads);
    let is_mended = |path: &Path| mends && path.to_string_lossy().ends_with("-data.sst");
    for machine in &world.machines {
        let quarantine = machine.config.data_dir.join("quarantine");
        let is_unknown = |path: &PathBuf| path.starts_with(&quarantine) && !is_mended(path);
        if let Some(path) = machine.disk.files().into_keys().find(is_unknown) {
            return world.violation(format!("n{} has quarantined {}", machine.index, path.display()));
        }
    }
}

/// Reads every table at ALL, so that differing replicas are repaired.
async fn read_everything(world: &World) {
    let mut random = world.random();
    for table in convergence::tables(world) {
        let question = Question::new(format!("SELECT * FROM sim.\"{table}\""), Consistency::All);
        if let Err(error) = world.insist(&mut random, &question, 10).await {
            world.violation(format!("after healing, a read at ALL of {table} fails: {error}"));
        }
    }
}

/// Waits until all members agree on members and schema.
async fn agree(world: &World) {
    let deadline = world.trace.now_micros() + CONVERGENCE_MAX.as_micros() as u64;
    while let Some(difference) = agreement::difference(world) {
        if world.trace.now_micros() > deadline {
            return world.violation(format!("after healing, {difference}"));
        }
        pause_ms(500).await;
    }
}

/// Waits until no node keeps hints any more: a hint may be the only copy of a write that was acknowledged at ANY.
async fn deliver_hints(world: &World) {
    let deadline = world.trace.now_micros() + CONVERGENCE_MAX.as_micros() as u64;
    let pending = || {
        let keepers = world.members().into_iter().flat_map(|keeper| keeper.contexts());
        keepers
            .flat_map(|context| {
                let bytes = |target: &Rc<Machine>| context.replication().hints.pending_bytes(&target.host_id);
                world.machines.iter().map(bytes).collect::<Vec<_>>()
            })
            .sum::<u64>()
    };
    while pending() > 0 {
        if world.trace.now_micros() > deadline {
            return world.violation(format!("after healing, {} bytes of hints are not delivered", pending()));
        }
        pause_ms(500).await;
    }
}

/// Waits until the replicas are equal in these tables.
async fn converge(world: &World, tables: &[String], by: &str) {
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
