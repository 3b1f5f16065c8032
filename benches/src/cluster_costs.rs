//! What a node pays for being one of 3, 30 or 300: `helenus-cluster-costs [--lost-percent N] [MEMBERS…]`.
//!
//! * Gossip: the failure detectors of all members in virtual time (1 ms a message, of which so many of a hundred get lost), idle;
//!   messages, bytes and CPU time a second of one of them; for how many seconds a member was down for another though it ran (looked
//!   at each second); how soon a killed member is down for the first and for all others. Besides, what each tells all others
//!   of itself (facts).
//! * A schema change: CPU time to apply a CREATE TABLE to the agreed state, to compute where the replicas of all ranges are, and to
//!   write the state as its file; the file's size.
//! * A ring lookup: CPU time to find the replicas of a token.
//!
//! CPU time is that of this thread as the kernel counts it, so other work on the machine does not add to it.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cql_lite::syntax::parse;
use helenus::cluster::liveness::detector::{Detector, NodeIdentity, Settings};
use helenus::cluster::message::ClusterRequest;
use helenus::cluster::stored::Stored;
use helenus_engine::io::SplitMix64;
use helenus_execution::shard::status_table::{NodeStatus, ServingState};
use helenus_internode::service;
use helenus_query::schema::catalog::{Catalog, Replication};
use helenus_query::schema::ddl::{self, DdlContext};
use helenus_query::schema::document::CatalogDocument;
use helenus_query::schema::system_tables::initial_catalog;
use helenus_ring::member::{Member, MemberState, TransitionPhase};
use helenus_ring::metadata::{self, ClusterState, Command, CommandOutcome, SchemaChangeCommand};
use helenus_ring::placement::Placement;
use helenus_ring::view::ClusterView;
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

/// What went wrong; it ends the program.
type Failure = Box<dyn Error>;

/// The allocator of the server's program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const LATENCY: Duration = Duration::from_millis(1);
const WARM_UP: Duration = Duration::from_secs(20);
const MEASURED: Duration = Duration::from_mins(1);
const TOKENS: usize = 16;
/// Tables of the schema that is changed.
const TABLES: usize = 50;
const CHANGES: u64 = 20;
const LOOKUPS: u64 = 2_000_000;
/// How often each node tells all others its facts when nothing has changed.
const FACTS_PERIOD_SECONDS: f64 = 5.0;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("helenus-cluster-costs: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut sizes = Vec::new();
    let mut lost_percent = 0;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--lost-percent" {
            lost_percent = arguments.next().ok_or("--lost-percent needs a number")?.parse()?;
        } else {
            sizes.push(argument.parse().map_err(|error| format!("{argument}: {error}"))?);
        }
    }
    if sizes.is_empty() {
        sizes = vec![3, 30, 300];
    }
    println!(
        "| members | gossip: messages/s | bytes/s | CPU µs/s | wrongly down s | killed: first s | all s | facts: bytes/s | schema change: apply µs | placements µs | file µs | file KiB | lookup ns |"
    );
    println!("{}|", "|---:".repeat(13));
    for members in sizes {
        let gossip = gossip(members, lost_percent)?;
        let change = schema_change(members)?;
        println!(
            "| {members} | {:.1} | {:.0} | {:.0} | {} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            gossip.messages,
            gossip.bytes,
            gossip.cpu_micros,
            gossip.wrongly_down_seconds,
            gossip.first_seconds,
            gossip.all_seconds,
            facts_bytes(members)?,
            change.apply_micros,
            change.placement_micros,
            change.file_micros,
            change.file_bytes as f64 / 1_024.0,
            change.lookup_nanos,
        );
    }
    Ok(())
}

/// CPU time of this thread so far, in nanoseconds.
fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn host_id(number: usize) -> Uuid {
    Uuid::from_u128(number as u128 + 1)
}

fn address(number: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, (number / 250) as u8, (number % 250) as u8 + 1], port))
}

/// A second of one node.
struct Gossip {
    messages: f64,
    bytes: f64,
    cpu_micros: f64,
    wrongly_down_seconds: usize,
    first_seconds: f64,
    all_seconds: f64,
}

/// Messages by the time of their arrival, and in order.
type Network = BTreeMap<(Duration, u64), (usize, Bytes)>;

struct Nodes {
    now: Duration,
    detectors: Vec<Detector>,
    due_at: Vec<Option<Duration>>,
    due: BTreeSet<(Duration, usize)>,
    network: Network,
    sent: u64,
    sent_bytes: u64,
    lost_percent: u64,
    random: SplitMix64,
    killed: Option<usize>,
}

impl Nodes {
    fn new(count: usize, lost_percent: u64) -> Result<Self, Failure> {
        let mut nodes = Self {
            now: Duration::ZERO,
            detectors: Vec::new(),
            due_at: vec![None; count],
            due: BTreeSet::new(),
            network: Network::new(),
            sent: 0,
            sent_bytes: 0,
            lost_percent,
            random: SplitMix64::new(3),
            killed: None,
        };
        for number in 0..count {
            let identity =
                NodeIdentity { host_id: host_id(number), address: address(number, 7_000), generation: 1 };
            let mut detector = Detector::new(identity, Settings::default(), number as u64, nodes.now);
            let others = (0..count).filter(|other| *other != number);
            let others = others.map(|other| (host_id(other), address(other, 7_000))).collect();
            detector.set_members(others, nodes.now)?;
            nodes.detectors.push(detector);
        }
        for number in 0..count {
            nodes.take_sends(number);
        }
        Ok(nodes)
    }

    fn take_sends(&mut self, from: usize) {
        let Some(detector) = self.detectors.get_mut(from) else { return };
        let due = detector.next_due();
        if let Some(before) = std::mem::replace(&mut self.due_at[from], due) {
            self.due.remove(&(before, from));
        }
        self.due.extend(due.map(|due| (due, from)));
        for (to, bytes) in detector.take_sends() {
            self.sent += 1;
            self.sent_bytes += bytes.len() as u64;
            let to = (to.host_id.as_u128() - 1) as usize;
            if self.random.below(100) >= self.lost_percent {
                self.network.insert((self.now + LATENCY, self.sent), (to, bytes));
            }
        }
    }

    fn run(&mut self, duration: Duration) -> Result<(), Failure> {
        let end = self.now + duration;
        loop {
            let message = self.network.first_key_value().map(|(&(time, _), _)| time);
            let timer = self.due.first().map(|&(time, number)| (time.max(self.now), number));
            let next = message.into_iter().chain(timer.map(|(time, _)| time)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return Ok(());
            };
            self.now = next;
            if message == Some(next) {
                let Some((_, (to, bytes))) = self.network.pop_first() else { continue };
                if self.killed == Some(to) {
                    continue;
                }
                self.detectors[to].receive(&bytes, self.now)?;
                self.take_sends(to);
            } else if let Some((_, number)) = timer {
                if self.killed == Some(number) {
                    self.due.pop_first();
                    continue;
                }
                self.detectors[number].tick(self.now)?;
                self.take_sends(number);
            }
        }
    }
}

fn gossip(count: usize, lost_percent: u64) -> Result<Gossip, Failure> {
    let mut nodes = Nodes::new(count, lost_percent)?;
    nodes.run(WARM_UP)?;
    let (sent, bytes) = (nodes.sent, nodes.sent_bytes);
    let mut cpu = 0.0;
    let mut wrongly_down_seconds = 0;
    for _ in 0..MEASURED.as_secs() {
        let began = cpu_nanos();
        nodes.run(Duration::from_secs(1))?;
        cpu += cpu_nanos() - began;
        let missing = nodes.detectors.iter().map(|detector| count - 1 - detector.active().len());
        wrongly_down_seconds += missing.sum::<usize>();
    }
    let node_seconds = count as f64 * MEASURED.as_secs_f64();
    let mut gossip = Gossip {
        messages: (nodes.sent - sent) as f64 / node_seconds,
        bytes: (nodes.sent_bytes - bytes) as f64 / node_seconds,
        cpu_micros: cpu / 1e3 / node_seconds,
        wrongly_down_seconds,
        first_seconds: 0.0,
        all_seconds: 0.0,
    };
    let victim = count - 1;
    let killed_at = nodes.now;
    nodes.killed = Some(victim);
    while gossip.all_seconds == 0.0 {
        nodes.run(Duration::from_millis(100))?;
        let since = nodes.now.saturating_sub(killed_at).as_secs_f64();
        if since > 120.0 {
            return Err("a killed member was not found in two minutes".into());
        }
        let others = nodes.detectors.iter().take(victim);
        let knowing = others.filter(|other| !other.active().contains_key(&host_id(victim))).count();
        if knowing > 0 && gossip.first_seconds == 0.0 {
            gossip.first_seconds = since;
        }
        if knowing == victim {
            gossip.all_seconds = since;
        }
    }
    Ok(gossip)
}

/// Bytes a second that a node sends to tell all others its facts.
fn facts_bytes(members: usize) -> Result<f64, Failure> {
    let facts = NodeStatus {
        generation: 1_700_000_000_000_000,
        sequence: 1_000,
        state: ServingState::Serving,
        schema_version: host_id(7),
        topology_version: 1_000,
        data_bytes: 1 << 40,
    };
    let bytes = service::encode_request(&ClusterRequest::Status(facts))?.bytes.len();
    Ok((members - 1) as f64 * bytes as f64 / FACTS_PERIOD_SECONDS)
}

fn member(number: usize, random: &mut SplitMix64) -> Member {
    let tokens: BTreeSet<i64> = (0..TOKENS).map(|_| random.next_u64() as i64).collect();
    Member {
        host_id: host_id(number),
        internode_address: address(number, 7_000),
        native_address: address(number, 9_042),
        shard_aware_port: 19_042,
        shard_count: 8,
        data_center: "datacenter1".to_owned(),
        rack: format!("rack{}", number % 3 + 1),
        tokens: tokens.into_iter().collect(),
        state: MemberState::Normal,
        release_version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_version: 1,
        feature_version: 1,
        encrypts_tables: false,
    }
}

/// The agreed state of a cluster, and the index of the next entry.
struct Log {
    state: ClusterState,
    index: u64,
}

impl Log {
    fn done(&mut self, command: &Command) -> Result<(), Failure> {
        self.index += 1;
        let (state, outcome) = metadata::apply(&self.state, self.index, command);
        self.state = state;
        match outcome {
            CommandOutcome::Applied { .. } => Ok(()),
            other => Err(format!("{command}: {other:?}").into()),
        }
    }

    /// A schema change that carries a statement out.
    fn change(&self, statement: &str) -> Result<Command, Failure> {
        let version = u128::from(self.index) + 1_000_000;
        let context = DdlContext {
            now_micros: 1,
            new_id: Uuid::from_u128(version << 64),
            new_version: Uuid::from_u128(version),
            data_centers: [("datacenter1".to_owned(), self.state.topology.members.len())].into(),
            user_functions: &helenus_query::functions::user::NoUserFunctions,
            may_drop_compact_storage: false,
        };
        let old: &Arc<Catalog> = &self.state.catalog;
        let change = ddl::execute(old, &parse(statement)?, Some("ks"), &context)?;
        Ok(Command::ChangeSchema(SchemaChangeCommand {
            base: old.version,
            changed: CatalogDocument::difference(old, &change.catalog),
            dropped: Vec::new(),
            event: change.effect.ok_or("the statement changes nothing")?,
            creator: None,
            first_streams_ms: None,
        }))
    }
}

struct Change {
    apply_micros: f64,
    placement_micros: f64,
    file_micros: f64,
    file_bytes: usize,
    lookup_nanos: f64,
}

fn schema_change(members: usize) -> Result<Change, Failure> {
    let mut random = SplitMix64::new(7);
    let mut log = Log { state: ClusterState::empty(), index: 0 };
    let catalog = CatalogDocument::of(&initial_catalog(host_id(0)));
    log.done(&Command::Found { member: member(0, &mut random), catalog })?;
    for number in 1..members {
        let member = member(number, &mut random);
        let host_id = member.host_id;
        log.done(&Command::Join { member })?;
        for phase in [TransitionPhase::WriteBoth, TransitionPhase::ReadNew] {
            log.done(&Command::Advance { host_id, from: MemberState::Joining(phase) })?;
        }
    }
    let keyspace =
        "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 3}";
    let keyspace = log.change(keyspace)?;
    log.done(&keyspace)?;
    let table = |number: u64| {
        format!("CREATE TABLE t{number} (a text, b timeuuid, c text, d blob, PRIMARY KEY (a, b))")
    };
    for number in 0..TABLES as u64 {
        let change = log.change(&table(number))?;
        log.done(&change)?;
    }
    let alive: Arc<BTreeSet<Uuid>> = Arc::new(log.state.topology.members.keys().copied().collect());
    let (mut applying, mut placing, mut writing, mut file_bytes) = (0.0, 0.0, 0.0, 0);
    for number in 0..CHANGES {
        let change = log.change(&table(1_000 + number))?;
        let began = cpu_nanos();
        log.done(&change)?;
        let applied = cpu_nanos();
        black_box(ClusterView::new(log.state.topology.clone(), alive.clone(), &log.state.catalog));
        let placed = cpu_nanos();
        let stored = Stored { state: log.state.clone(), ..Stored::empty() };
        file_bytes = stored.encode_file(Vec::new())?.len();
        applying += applied - began;
        placing += placed - applied;
        writing += cpu_nanos() - placed;
    }
    let replication = Replication::NetworkTopology { data_centers: [("datacenter1".to_owned(), 3)].into() };
    let placement = Placement::new(&log.state.topology, &replication);
    let began = cpu_nanos();
    for _ in 0..LOOKUPS {
        black_box(placement.replicas(black_box(random.next_u64() as i64)));
    }
    let micros = |nanos: f64| nanos / 1e3 / CHANGES as f64;
    Ok(Change {
        apply_micros: micros(applying),
        placement_micros: micros(placing),
        file_micros: micros(writing),
        file_bytes,
        lookup_nanos: (cpu_nanos() - began) / LOOKUPS as f64,
    })
}
