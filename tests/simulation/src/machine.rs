//! A machine of the simulation: its node, the pace of its disk, and its part in the cluster.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use helenus::cluster::failure;
use helenus::config::Config;
use helenus::testing::machine;
use helenus::testing::network::Network;
use helenus::testing::node::begin;
use helenus_at_rest::{EncryptedDisk, MasterKeys, Randomness};
use helenus_engine::io::{CrashStyle, Disk, SeededRandom, SimulatedDisk, SplitMix64};
use helenus_execution::planted::PlantedBug;
use helenus_ring::HostId;
use helenus_testing::clock::VirtualClock;
use helenus_testing::uuids::SEEDED_UUIDS;
use tokio::time::Instant;

use crate::disk::{Pace, PacedDisk};
use crate::trace::Trace;

/// The properties of a machine that do not change with restarts of its node.
pub struct Hardware {
    pub index: usize,
    pub host_id: HostId,
    pub address: SocketAddr,
    pub config: Config,
    pub planted_bug: Option<PlantedBug>,
    /// Its files are encrypted.
    pub is_encrypted: bool,
    /// The part at the beginning.
    pub part: Part,
    pub seed: u64,
}

/// The part of a machine in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It may join later.
    Spare,
    /// It is a member, or is joining.
    Member,
    /// It was a member, or died while joining; it is not a member any more.
    Gone,
}

/// A machine of the simulation.
pub struct Machine {
    inner: Rc<machine::Machine>,
    pub pace: Arc<Pace>,
    trace: Arc<Trace>,
    pub part: Cell<Part>,
    /// Whether it was asked to leave.
    pub is_leaving: Cell<bool>,
    /// Its join was cancelled for the sake of a dead member: it starts again when no dead one is left to be removed or replaced.
    pub is_held_back: Cell<bool>,
    is_serving: Cell<bool>,
    /// Table files that it has lost, with their contents.
    pub lost_files: RefCell<Vec<(PathBuf, Vec<u8>)>>,
}

impl Deref for Machine {
    type Target = Rc<machine::Machine>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// The key of an encrypted cluster.
#[allow(clippy::expect_used, reason = "the text is a constant")]
fn master_keys() -> MasterKeys {
    MasterKeys::parse(b"simulated AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key of 32 bytes")
}

impl Machine {
    /// A machine that is switched off, with an empty disk. `start`: the start of the simulation.
    pub fn new(hardware: Hardware, network: &Rc<Network>, trace: Arc<Trace>, start: Instant) -> Self {
        let mut random = SplitMix64::new(hardware.seed);
        let disk = SimulatedDisk::new(random.next_u64());
        let pace = Arc::new(Pace::new(random.next_u64()));
        let index = hardware.index;
        let paced = Arc::new(PacedDisk::new(index, disk.clone(), pace.clone(), trace.clone()));
        let node_disk: Arc<dyn Disk> = if hardware.is_encrypted {
            Arc::new(EncryptedDisk::new(
                paced,
                master_keys(),
                Randomness::new(SeededRandom::new(random.next_u64())),
            ))
        } else {
            paced
        };
        let node_hardware = machine::Hardware {
            index,
            host_id: hardware.host_id,
            address: hardware.address,
            config: hardware.config,
            node_disk,
            disk,
            clock: VirtualClock::new(start),
            uuids: &SEEDED_UUIDS,
            planted_bug: hardware.planted_bug,
            random,
        };
        Self {
            inner: network.connect(node_hardware),
            pace,
            trace,
            part: Cell::new(hardware.part),
            is_leaving: Cell::new(false),
            is_held_back: Cell::new(false),
            is_serving: Cell::new(false),
            lost_files: RefCell::default(),
        }
    }

    /// Whether clients reach it.
    pub fn is_serving(&self) -> bool {
        self.is_serving.get()
    }

    /// The reason why a shard accepts no more writes, if one has failed.
    pub fn failure(&self) -> Option<String> {
        self.contexts().iter().find_map(|context| failure::reason(context))
    }

    /// Whether the machine is a member, or is joining.
    pub fn is_member(&self) -> bool {
        self.part.get() == Part::Member
    }

    /// Switches the machine on and returns when the node serves clients. An error if it crashed or refused to start.
    pub async fn boot(&self) -> Result<(), String> {
        self.inner.boot(|contexts| async move { begin(&contexts).await }).await?;
        self.is_serving.set(true);
        self.trace.note(format!("n{} serves", self.index));
        Ok(())
    }

    /// Crashes the node. `style` decides which un-synced contents of the disk survive.
    pub fn crash(&self, style: CrashStyle) {
        self.trace.note(format!("n{} crashes ({style:?})", self.index));
        self.is_serving.set(false);
        self.inner.crash(style);
    }

    /// Sets its clock to the time of the others.
    pub fn set_clock_right(&self) {
        self.clock.skew.offset_micros.set(0);
        self.clock.skew.drift_ppm.set(0);
    }
}
