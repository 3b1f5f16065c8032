//! What a seed stands for: the cluster, the load and the faults.
//!
//! Each seed has only some kinds of faults and load: what two kinds do together is not hidden by all the others.

use std::fmt;
use std::time::Duration;

use helenus::planted::PlantedBug;
use helenus_engine::io::SplitMix64;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A node dies and comes back; what was not synced is lost in some way.
    Crash,
    /// All nodes die at once.
    PowerLoss,
    /// Two groups of nodes do not hear each other.
    Partition,
    /// Messages of one direction are lost.
    OneWay,
    /// A link is slow and loses messages.
    BadLink,
    /// A node stands still and goes on.
    Pause,
    /// A wall clock jumps or drifts.
    Clock,
    SlowDisk,
    FullDisk,
    /// A sync fails.
    FailedSync,
}

impl FaultKind {
    pub const ALL: [Self; 10] = [
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
    ];

    /// Whether a node may forget what it had not made durable: hints of writes that nobody was told of, for example.
    pub fn kills_nodes(self) -> bool {
        matches!(self, Self::Crash | Self::PowerLoss | Self::FullDisk | Self::FailedSync)
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
}

impl LoadKind {
    pub const ALL: [Self; 5] =
        [Self::Registers, Self::Transactions, Self::Pages, Self::Counters, Self::Batches];
}

/// What a seed may choose from.
#[derive(Debug, Clone)]
pub struct Choice {
    /// `None`: the seed chooses.
    pub nodes: Option<usize>,
    pub load: Vec<LoadKind>,
    pub faults: Vec<FaultKind>,
    pub planted_bug: Option<PlantedBug>,
}

/// Everything that a seed decides in advance.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    /// Shards of each node.
    pub shards: Vec<usize>,
    pub load: Vec<LoadKind>,
    pub clients: usize,
    pub faults: Vec<FaultKind>,
    /// How long load and faults last.
    pub duration: Duration,
    /// In every node.
    pub planted_bug: Option<PlantedBug>,
}

impl Plan {
    /// The plan of a seed within the choice.
    pub fn new(seed: u64, choice: &Choice) -> Self {
        let mut random = SplitMix64::new(seed ^ 0x0005_1A7E);
        let nodes = if random.chance(2, 3) { 3 } else { 4 + random.below(4) as usize };
        let nodes = choice.nodes.unwrap_or(nodes);
        let shards = (0..nodes).map(|_| 1 + random.below(2) as usize).collect();
        let load = choose(&mut random, &choice.load, 2, 3);
        let faults =
            if random.chance(1, 12) { Vec::new() } else { choose(&mut random, &choice.faults, 1, 3) };
        Self {
            seed,
            nodes,
            shards,
            load,
            clients: 2 + random.below(4) as usize,
            faults,
            duration: Duration::from_millis(4_000 + random.below(12_000)),
            planted_bug: choice.planted_bug,
        }
    }

    pub fn kills_nodes(&self) -> bool {
        self.faults.iter().any(|fault| fault.kills_nodes())
    }
}

/// Each with that probability, and at least one.
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
        let Self { seed, nodes, shards, load, clients, faults, duration, planted_bug } = self;
        write!(
            formatter,
            "seed {seed}: {nodes} nodes with {shards:?} shards, {clients} clients of each of {load:?}, \
             {faults:?} for {:.1} s",
            duration.as_secs_f64()
        )?;
        match planted_bug {
            Some(bug) => write!(formatter, ", with {bug:?} planted"),
            None => Ok(()),
        }
    }
}
