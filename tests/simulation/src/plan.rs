//! The plan of a seed: the cluster, the load and the faults.
//!
//! Each seed has only some kinds of faults and load, so that interactions of two kinds are not hidden by all the
//! others.

use std::fmt;
use std::time::Duration;

use helenus_engine::io::SplitMix64;
use helenus_execution::planted::PlantedBug;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A node crashes and comes back; data that was not synced is lost in some way.
    Crash,
    /// All nodes crash at once.
    PowerLoss,
    /// Two groups of nodes do not receive messages of each other.
    Partition,
    /// Messages of one direction are lost.
    OneWay,
    /// A link is slow and loses messages.
    BadLink,
    /// A node is paused and resumed.
    Pause,
    /// A wall clock jumps or drifts.
    Clock,
    SlowDisk,
    FullDisk,
    /// A sync fails.
    FailedSync,
    /// A node restarts, and reads of its disk return flipped bits for a while.
    CorruptReads,
    /// A node crashes and comes back without one of its table files, or with a damaged one, and gets it back later.
    LostFile,
    /// A new node joins.
    Join,
    /// A node leaves with its data.
    Leave,
    /// A node dies for good, and is removed.
    Remove,
    /// Two nodes die for good at once, and are removed.
    RemoveTwo,
    /// The keyspace gets another number of replicas.
    Replication,
    /// As `Partition`, for up to a minute: nodes of the other side are taken for dead, and transitions begin meanwhile.
    LongPartition,
    /// A node repairs everything, and all nodes what is due by the schedule. There are no hints.
    Repair,
    /// A node dies for good, and a new one takes its place.
    Replace,
}

impl FaultKind {
    pub const ALL: [Self; 20] = [
        Self::Crash,
        Self::PowerLoss,
        Self::Partition,
        Self::OneWay,
        Self::BadLink,
        Self::Pause,
        Self::Clock,
        Self::SlowDisk,
        Self::FullDisk,
        Self::FailedSync,
        Self::CorruptReads,
        Self::LostFile,
        Self::Join,
        Self::Leave,
        Self::Remove,
        Self::RemoveTwo,
        Self::Replication,
        Self::LongPartition,
        Self::Repair,
        Self::Replace,
    ];

    /// Whether a node may lose data that was not durable: hints of unacknowledged writes, for example.
    pub fn kills_nodes(self) -> bool {
        matches!(
            self,
            Self::Crash
                | Self::PowerLoss
                | Self::FullDisk
                | Self::FailedSync
                | Self::CorruptReads
                | Self::LostFile
                | Self::Remove
                | Self::RemoveTwo
                | Self::LongPartition
                | Self::Replace
        )
    }
}

/// A kind of load with its own checker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadKind {
    Registers,
    Transactions,
    Pages,
    Counters,
    Batches,
    Schema,
    Deletions,
    Truncations,
    Indexes,
    Roles,
    Feeds,
    Caps,
    Increments,
    Views,
}

impl LoadKind {
    pub const ALL: [Self; 14] = [
        Self::Registers,
        Self::Transactions,
        Self::Pages,
        Self::Counters,
        Self::Batches,
        Self::Schema,
        Self::Deletions,
        Self::Truncations,
        Self::Indexes,
        Self::Roles,
        Self::Feeds,
        Self::Caps,
        Self::Increments,
        Self::Views,
    ];
}

/// Time that is added where members come and go and deletions are watched: a range has to be given up and to come back.
const RETURN_TIME: Duration = Duration::from_secs(35);
/// The rest of transactions where they have to be settled within a run.
const TRANSACTIONS_REST: Duration = Duration::from_secs(3);
/// The most members whose place new ones take.
const REPLACEMENTS_MAX: usize = 2;
/// Time that is added where partitions last.
const LONG_PARTITION_TIME: Duration = Duration::from_mins(1);
/// And not all that come and go do so in the first seconds.
const RETURN_CALM: Duration = Duration::from_secs(12);

/// The options from which a seed chooses.
#[derive(Debug, Clone)]
pub struct Choice {
    /// `None`: the seed chooses.
    pub nodes: Option<usize>,
    pub load: Vec<LoadKind>,
    pub faults: Vec<FaultKind>,
    pub planted_bug: Option<PlantedBug>,
    /// The files of the nodes are encrypted.
    pub is_encrypted: bool,
    /// Number of data centers; `None`: the seed chooses.
    pub centers: Option<usize>,
}

/// All decisions of a seed that are made in advance.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Number of nodes at the beginning.
    pub nodes: usize,
    /// Number of machines that may join.
    pub spares: usize,
    /// Number of shards of each node; those of spares come last.
    pub shards: Vec<usize>,
    /// Number of tokens of each node. There are few, because computing many even ones would take most of the time of
    /// a seed.
    pub tokens: usize,
    pub load: Vec<LoadKind>,
    pub clients: usize,
    pub faults: Vec<FaultKind>,
    /// Duration of load and faults.
    pub duration: Duration,
    /// Rate of streams; 0: no limit. There is so little data that without a limit a transition would be over before
    /// any fault could affect it.
    pub stream_bytes_per_second: u64,
    /// After that time the tombstones of deletions may be purged. It is longer than what a read has seen can be under way to other replicas
    /// as a repair: its timeout, and the longest pause of a node.
    pub gc_grace: Duration,
    /// After that time without transactions the state of a partition's transactions is settled and forgotten.
    pub transactions_rest: Duration,
    /// The longest time between two faults.
    pub calm: Duration,
    /// Planted in every node.
    pub planted_bug: Option<PlantedBug>,
    /// The files of the nodes are encrypted.
    pub is_encrypted: bool,
    /// Number of replicas of the keyspace at the beginning, in all data centers together.
    pub replicas: usize,
    /// The number of replicas in each data center. Nodes are in them by turns.
    pub replicas_of_centers: Vec<usize>,
    /// Whether a repair makes the replicas equal at the end, instead of reads at ALL.
    pub ends_with_repair: bool,
}

impl Plan {
    /// The plan of a seed within the choice.
    pub fn new(seed: u64, choice: &Choice) -> Self {
        let mut random = SplitMix64::new(seed ^ 0x0005_1A7E);
        let may_have_centers = choice.centers.is_some_and(|count| count > 1);
        let choice = &if may_have_centers { choice.within_centers() } else { choice.clone() };
        let nodes = if random.chance(2, 3) { 3 } else { 4 + random.below(4) as usize };
        let nodes = choice.nodes.unwrap_or(nodes);
        let load = choose_load(seed, &mut random, choice);
        let faults = if random.chance(1, 12) { Vec::new() } else { choose_faults(seed, &mut random, choice) };
        // Enough members must remain to do without those that leave.
        let goes = faults
            .iter()
            .any(|fault| matches!(fault, FaultKind::Leave | FaultKind::Remove | FaultKind::LongPartition));
        let mut nodes =
            if goes && choice.nodes.is_none() { nodes.max(4 + random.below(2) as usize) } else { nodes };
        // With five replicas a quorum of each write survives two of them.
        let loses_two = faults.contains(&FaultKind::RemoveTwo);
        if loses_two && choice.nodes.is_none() {
            nodes = nodes.max(7);
        }
        let replicas_of_centers = replicas_of_centers(seed, &faults, choice);
        if let [_, _, ..] = replicas_of_centers[..] {
            // Some have more nodes than replicas: one of them may leave, and not all have all rows.
            let centers = replicas_of_centers.len();
            let most = replicas_of_centers.iter().max().copied().unwrap_or(0);
            nodes = centers * most + random.below(centers as u64 + 1) as usize;
        }
        let replicas = match replicas_of_centers[..] {
            [] => nodes.min(if loses_two { 5 } else { 3 }),
            _ => replicas_of_centers.iter().sum(),
        };
        let replicas_of_centers =
            if replicas_of_centers.is_empty() { vec![replicas] } else { replicas_of_centers };
        let mut spares = if faults.contains(&FaultKind::Join) { 1 + random.below(2) as usize } else { 0 };
        if faults.contains(&FaultKind::Replace) {
            spares += REPLACEMENTS_MAX;
        }
        let shards = (0..nodes + spares).map(|_| 1 + random.below(2) as usize).collect();
        let mut plan = Self {
            seed,
            nodes,
            spares,
            shards,
            load,
            clients: 2 + random.below(4) as usize,
            faults,
            duration: Duration::from_millis(4_000 + random.below(12_000)),
            stream_bytes_per_second: if random.chance(1, 3) { 0 } else { 1_000 + random.below(8_000) },
            gc_grace: Duration::from_secs(14),
            transactions_rest: Duration::from_hours(1),
            calm: Duration::from_millis(2_600),
            planted_bug: choice.planted_bug,
            is_encrypted: choice.is_encrypted,
            tokens: 1 + random.below(3) as usize,
            replicas,
            replicas_of_centers,
            ends_with_repair: seed % 2 == 1,
        };
        if plan.faults.contains(&FaultKind::LongPartition) {
            plan.duration += LONG_PARTITION_TIME;
        }
        // Clocks must differ by less.
        if plan.load.contains(&LoadKind::Truncations) && !plan.faults.contains(&FaultKind::Clock) {
            plan.transactions_rest = TRANSACTIONS_REST;
        }
        // Where clocks jump, tombstones may be purged while messages are under way.
        if plan.faults.contains(&FaultKind::Clock) && plan.load.len() > 1 {
            plan.load.retain(|kind| *kind != LoadKind::Deletions);
        }
        if plan.load.contains(&LoadKind::Deletions) && plan.changes_owners() {
            plan.duration += RETURN_TIME;
            plan.calm = RETURN_CALM;
            if plan.faults.iter().all(|fault| matches!(fault, FaultKind::Join | FaultKind::Leave)) {
                plan.gc_grace = Duration::from_secs(2);
            }
        }
        plan
    }

    /// The number of data centers.
    pub fn centers(&self) -> usize {
        self.replicas_of_centers.len()
    }

    /// The number of the data center of a node.
    pub fn center_of(&self, node: usize) -> usize {
        node % self.centers()
    }

    /// The most by which clocks that have jumped are wrong, in microseconds. Views need clocks that differ by less than a second, also with a drift.
    pub fn clock_offset_micros_max(&self) -> i64 {
        if self.load.contains(&LoadKind::Views) { 200_000 } else { i64::MAX }
    }

    /// Whether nodes crash, even if they come back.
    pub fn kills_nodes(&self) -> bool {
        self.faults.iter().any(|fault| fault.kills_nodes())
    }

    /// Whether nodes keep hints. Where they repair, there are none: what a replica has missed it gets from repairs only.
    pub fn keeps_hints(&self) -> bool {
        !self.faults.contains(&FaultKind::Repair)
    }

    /// Whether a disk may be lost: data that only one node has is lost with it.
    pub fn loses_disks(&self) -> bool {
        let can_lose = |fault: &FaultKind| {
            matches!(
                fault,
                FaultKind::Remove | FaultKind::RemoveTwo | FaultKind::LongPartition | FaultKind::Replace
            )
        };
        self.faults.iter().any(can_lose)
    }

    /// Whether ranges change hands.
    pub fn changes_owners(&self) -> bool {
        let changes = |fault: &FaultKind| {
            matches!(
                fault,
                FaultKind::Join
                    | FaultKind::Leave
                    | FaultKind::Remove
                    | FaultKind::RemoveTwo
                    | FaultKind::Replication
                    | FaultKind::LongPartition
                    | FaultKind::Replace
            )
        };
        self.faults.iter().any(changes)
    }

    /// The numbers of replicas that the keyspace may have: fewer than at the beginning only where nothing is lost with one node.
    pub fn replication_factors(&self) -> std::ops::RangeInclusive<usize> {
        let can_lose_one = |fault: &FaultKind| {
            matches!(
                fault,
                FaultKind::LostFile | FaultKind::CorruptReads | FaultKind::Remove | FaultKind::Replace
            )
        };
        let least = if self.faults.contains(&FaultKind::RemoveTwo) {
            5
        } else if self.faults.iter().any(can_lose_one) || !self.faults.contains(&FaultKind::Replication) {
            self.replicas
        } else {
            1
        };
        // As many as there are members at all times: reads at ALL are checked.
        let goes = |fault: &FaultKind| {
            matches!(
                fault,
                FaultKind::Leave | FaultKind::Remove | FaultKind::LongPartition | FaultKind::Replace
            )
        };
        let most = if self.faults.iter().any(goes) { self.replicas } else { self.nodes.min(5) };
        least..=least.max(most)
    }
}

impl Choice {
    /// The same choice without the faults that are only made with one data center.
    fn within_centers(&self) -> Self {
        let faults = self.faults.iter().copied().filter(|fault| suits_centers(*fault)).collect();
        Self { faults, ..self.clone() }
    }
}

fn suits_centers(fault: FaultKind) -> bool {
    !matches!(
        fault,
        FaultKind::Remove
            | FaultKind::RemoveTwo
            | FaultKind::Replication
            | FaultKind::LongPartition
            | FaultKind::Replace
    )
}

/// The number of replicas in each of several data centers; empty: there is one. Drawn apart: what a seed draws otherwise is as it was
/// with one.
fn replicas_of_centers(seed: u64, faults: &[FaultKind], choice: &Choice) -> Vec<usize> {
    let mut random = SplitMix64::new(seed ^ 0x000D_C000);
    let drawn = match (random.below(8), choice.nodes) {
        (0, None) => 3,
        (1, None) => 2,
        _ => 1,
    };
    let count = choice.centers.unwrap_or(drawn);
    if count < 2 || !faults.iter().copied().all(suits_centers) {
        return Vec::new();
    }
    // With three data centers one replica in each is a plan that people have.
    let least = if count > 2 { 1 } else { 2 };
    (0..count).map(|_| least + random.below(2) as usize).collect()
}

/// The load of a seed. Each of these kinds is added to what a seed has chosen of the others, for one in four.
fn choose_load(seed: u64, random: &mut SplitMix64, choice: &Choice) -> Vec<LoadKind> {
    const ADDED: [(LoadKind, u64); 6] = [
        (LoadKind::Indexes, 0x000D_ECED),
        (LoadKind::Roles, 0x000A_07E5),
        (LoadKind::Feeds, 0x000F_EED5),
        (LoadKind::Caps, 0x0000_CA95),
        (LoadKind::Increments, 0x000C_0007),
        (LoadKind::Views, 0x0007_1E35),
    ];
    let is_added = |kind: LoadKind| ADDED.iter().any(|(added, _)| *added == kind);
    let others: Vec<LoadKind> = choice.load.iter().copied().filter(|kind| !is_added(*kind)).collect();
    let mut load = choose(random, &others, 2, 3);
    for (kind, stream) in ADDED.into_iter().filter(|(kind, _)| choice.load.contains(kind)) {
        if others.is_empty() || SplitMix64::new(seed ^ stream).chance(1, 4) {
            load.push(kind);
        }
    }
    load
}

/// Chooses kinds of faults. Replacements are drawn apart: what a seed draws otherwise is as it was without them.
fn choose_faults(seed: u64, random: &mut SplitMix64, choice: &Choice) -> Vec<FaultKind> {
    let others: Vec<FaultKind> =
        choice.faults.iter().copied().filter(|kind| *kind != FaultKind::Replace).collect();
    let mut faults = choose(random, &others, 1, 3);
    let may_replace = others.len() < choice.faults.len();
    if may_replace
        && (others.is_empty() || SplitMix64::new(seed ^ 0x0009_E91A).chance(1, others.len().min(4) as u64))
    {
        faults.push(FaultKind::Replace);
    }
    faults
}

/// Chooses each with that probability, and at least one.
fn choose<T: Copy>(random: &mut SplitMix64, from: &[T], numerator: u64, denominator: u64) -> Vec<T> {
    let mut chosen: Vec<T> = from.iter().copied().filter(|_| random.chance(numerator, denominator)).collect();
    if chosen.is_empty()
        && let Some(one) = from.get(random.below(from.len() as u64) as usize)
    {
        chosen.push(*one);
    }
    chosen
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            nodes,
            spares,
            shards,
            tokens,
            load,
            clients,
            faults,
            duration,
            planted_bug,
            replicas_of_centers,
            ..
        } = self;
        write!(
            formatter,
            "seed {seed}: {nodes} nodes and {spares} spare ones with {shards:?} shards and {tokens} tokens each, {clients} clients of each of {load:?}, \
             {faults:?} for {:.1} s",
            duration.as_secs_f64()
        )?;
        if replicas_of_centers.len() > 1 {
            write!(formatter, ", in data centers with {replicas_of_centers:?} replicas")?;
        }
        match planted_bug {
            Some(bug) => write!(formatter, ", with {bug:?} planted"),
            None => Ok(()),
        }
    }
}
