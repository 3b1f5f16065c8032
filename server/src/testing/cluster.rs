//! Machines and the network between them, in virtual time.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use helenus_config::Config;
use helenus_engine::io::{CrashStyle, SimulatedDisk, SplitMix64};
use helenus_query::functions::CallContext;
use helenus_ring::HostId;
use helenus_testing::clock::VirtualClock;
use helenus_testing::virtual_time;
use tokio::time::Instant;

use super::links::Links;
use super::machine::{Hardware, Machine};
use super::network::Network;

/// Machines, by their numbers, and their links.
pub struct Cluster {
    pub links: Rc<Links>,
    network: Rc<Network>,
    machines: RefCell<Vec<Rc<Machine>>>,
    random: RefCell<SplitMix64>,
    start: Instant,
}

/// Runs a test in virtual time with a cluster that has no machines yet.
pub fn simulate<F: Future>(seed: u64, links: Links, test: impl FnOnce(Cluster) -> F) -> F::Output {
    virtual_time::run(seed, |outside| {
        let links = Rc::new(links);
        test(Cluster {
            network: Network::new(&outside, links.clone()),
            links,
            machines: RefCell::default(),
            random: RefCell::new(SplitMix64::new(seed)),
            start: Instant::now(),
        })
    })
}

impl Cluster {
    /// A random number below `bound`.
    pub fn random(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    pub fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next_u64()
    }

    /// The number of machines.
    pub fn machine_count(&self) -> usize {
        self.machines.borrow().len()
    }

    /// Adds a machine that is switched off, with an empty disk.
    pub fn add(&self, host_id: HostId, address: SocketAddr, config: Config) -> Rc<Machine> {
        let seed = self.random_u64();
        self.add_with_disk(host_id, address, config, SimulatedDisk::new(seed), seed)
    }

    /// Adds a machine that is switched off, with this disk.
    pub fn add_with_disk(
        &self,
        host_id: HostId,
        address: SocketAddr,
        config: Config,
        disk: SimulatedDisk,
        seed: u64,
    ) -> Rc<Machine> {
        let hardware = Hardware {
            index: self.machine_count(),
            host_id,
            address,
            config,
            node_disk: Arc::new(disk.clone()),
            disk,
            clock: VirtualClock::new(self.start),
            uuids: CallContext::process_uuids(),
            planted_bug: None,
            random: SplitMix64::new(seed),
        };
        let machine = self.network.connect(hardware);
        self.machines.borrow_mut().push(machine.clone());
        machine
    }

    pub fn machine(&self, index: usize) -> Rc<Machine> {
        self.machines.borrow()[index].clone()
    }

    /// The machines whose nodes are up.
    pub fn up(&self) -> Vec<Rc<Machine>> {
        self.machines.borrow().iter().filter(|machine| machine.is_up()).cloned().collect()
    }
}

impl Drop for Cluster {
    /// A node and its machine refer to each other until the node ends.
    fn drop(&mut self) {
        for machine in self.machines.borrow().iter().filter(|machine| machine.is_running()) {
            machine.crash(CrashStyle::LoseAll);
        }
    }
}
