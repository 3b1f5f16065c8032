//! A cluster whose schema and topology a test installs by hand: it has no metadata log and detects no failures.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use helenus_config::Config;
use helenus_engine::io::CrashStyle;
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::FEATURE_VERSION;
use helenus_ring::topology::Topology;
use helenus_ring::view::ClusterView;
use uuid::Uuid;

use super::cluster::Cluster;
use crate::cluster::stored::CATALOG_FILE;
use crate::node::error::StartError;
use helenus_execution::coordinator::replica;
use helenus_execution::shard::context::ShardContext;

/// Nodes by their numbers, and the view that is installed on each.
pub struct Members {
    cluster: Cluster,
    catalog: Arc<Catalog>,
    /// All nodes, also those that are not members any more.
    nodes: RefCell<Vec<Member>>,
    topology: RefCell<Topology>,
    down: RefCell<BTreeSet<HostId>>,
}

impl Deref for Members {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

pub fn host_id(node: usize) -> HostId {
    Uuid::from_bytes([node as u8 + 1; 16])
}

fn address(node: usize) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, node as u8 + 1), 7000).into()
}

impl Members {
    /// A cluster without nodes.
    pub fn new(cluster: Cluster, catalog: Arc<Catalog>) -> Self {
        let feature_level = FEATURE_VERSION;
        let topology = Topology { version: 1, epoch: 1, feature_level, ..Topology::default() };
        Self {
            cluster,
            catalog,
            nodes: RefCell::default(),
            topology: RefCell::new(topology),
            down: RefCell::default(),
        }
    }

    /// Adds a node in the next epoch and returns its number. It is not started, and no node gets the new view.
    pub fn add_member(&self, tokens: &[i64], state: MemberState, config: Config) -> usize {
        let node = self.machine_count();
        let member = Member {
            internode_address: address(node),
            native_address: (address(node).ip(), 9042).into(),
            shard_count: config.shards.unwrap_or(1) as u16,
            state,
            ..helenus_testing::member(host_id(node), &config.data_center, &config.rack, tokens)
        };
        self.nodes.borrow_mut().push(member);
        self.add(host_id(node), address(node), config);
        self.change_ring(&[(node, Some(state))]);
        node
    }

    /// Starts a node with the schema and the present topology.
    pub async fn start(&self, node: usize) {
        let machine = self.machine(node);
        let (files, _) = machine.parts().open_files().await.unwrap();
        let catalog = helenus_testing::catalog_file(&self.catalog);
        files.replace(CATALOG_FILE, catalog.into()).await.unwrap();
        self.down.borrow_mut().remove(&host_id(node));
        let view = self.view();
        machine.boot(move |contexts| begin(contexts, view)).await.unwrap();
    }

    /// Crashes a node. The views of the others do not change.
    pub fn crash(&self, node: usize, style: CrashStyle) {
        self.machine(node).crash(style);
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn table(&self, keyspace: &str, name: &str) -> Arc<Table> {
        self.catalog.table(keyspace, name).unwrap().clone()
    }

    /// The present topology.
    pub fn topology(&self) -> Topology {
        self.topology.borrow().clone()
    }

    /// The present topology and liveness.
    pub fn view(&self) -> Arc<ClusterView> {
        self.view_of(self.topology())
    }

    /// A topology with the present liveness.
    pub fn view_of(&self, topology: Topology) -> Arc<ClusterView> {
        let down = self.down.borrow();
        let alive = (0..self.machine_count()).map(host_id).filter(|id| !down.contains(id)).collect();
        Arc::new(ClusterView::new(Arc::new(topology), Arc::new(alive), &self.catalog))
    }

    /// Installs the present view on a node.
    pub fn show(&self, node: usize) {
        self.install(node, &self.view());
    }

    /// Installs the present view on all nodes.
    pub fn show_all(&self) {
        (0..self.machine_count()).for_each(|node| self.show(node));
    }

    /// Installs a view on a node.
    pub fn install(&self, node: usize, view: &Arc<ClusterView>) {
        for context in self.machine(node).contexts() {
            context.install_cluster(view.clone());
        }
    }

    /// Installs a view on all nodes in which a node is down, or alive again.
    pub fn show_alive(&self, node: usize, is_alive: bool) {
        if is_alive {
            self.down.borrow_mut().remove(&host_id(node));
        } else {
            self.down.borrow_mut().insert(host_id(node));
        }
        self.show_all();
    }

    /// Starts the next epoch, with these states of nodes; `None`: it is removed. No node gets the new view.
    pub fn change_ring(&self, states: &[(usize, Option<MemberState>)]) {
        let mut topology = self.topology.borrow_mut();
        topology.version += 1;
        topology.epoch = topology.version;
        for (node, state) in states {
            if let Some(state) = state {
                let member = Member { state: *state, ..self.nodes.borrow()[*node].clone() };
                topology.members.insert(host_id(*node), Arc::new(member));
            } else {
                topology.members.remove(&host_id(*node));
                topology.removed.insert(host_id(*node));
            }
        }
    }

    /// Changes what else the members have agreed on. No node gets the new view.
    pub fn change_topology(&self, change: impl FnOnce(&mut Topology)) {
        change(&mut self.topology.borrow_mut());
    }

    /// Pretends that no member has ever left.
    pub fn forget_removed(&self) {
        self.topology.borrow_mut().removed.clear();
    }

    /// Pretends that nothing has been agreed yet.
    pub fn forget_agreements(&self) {
        self.forget_removed();
        self.topology.borrow_mut().version = 0;
    }
}

async fn begin(contexts: Vec<Rc<ShardContext>>, view: Arc<ClusterView>) -> Result<(), StartError> {
    for context in &contexts {
        context.install_cluster(view.clone());
    }
    for context in &contexts {
        let failed = |message: String| StartError::Shard { shard: context.index, message };
        replica::start(context).await.map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}
