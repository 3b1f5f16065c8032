//! Clusters with a metadata log. Their nodes detect no failures: tests publish which nodes are alive.

use helenus::cluster::raft::MetadataLog;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_config::Config;
use helenus_engine::io::CrashStyle;
use helenus_internode::endpoint::Endpoint;
use helenus_query::error::Result;
use helenus_query::schema::catalog::Catalog;
use helenus_query::statement::Statement;
use helenus_ring::HostId;
use helenus_ring::member::{MemberState, TransitionPhase};
use helenus_ring::metadata::{Command, CommandOutcome};
use uuid::Uuid;

use super::DEADLINE;
use helenus::cluster::join::{JoinError, join};
use helenus::cluster::membership::{self, MembershipError};
use helenus::cluster::schema::change;
use helenus::cluster::{propose, roles, start};
use helenus::node::assembly::{self, Assembled};
use helenus::node::error::StartError;
use helenus::testing::client;
use helenus::testing::cluster::{self, Cluster};
use helenus::testing::links::Links;
use helenus_execution::coordinator::{self, replica};
use helenus_execution::shard::context::ShardContext;

const LATENCY: Duration = Duration::from_micros(300);

/// Runs a test in virtual time.
pub fn simulate<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Rc<World>) -> F) {
    cluster::simulate(seed, Links::with_latency(LATENCY), |cluster| test(Rc::new(World(cluster))));
}

/// A cluster whose nodes are booted with [`World::boot`] or [`World::enter`].
pub struct World(Cluster);

impl Deref for World {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

/// The first shard of a node.
#[derive(Clone)]
pub struct Node(Rc<ShardContext>);

impl Deref for Node {
    type Target = Rc<ShardContext>;

    fn deref(&self) -> &Rc<ShardContext> {
        &self.0
    }
}

impl Node {
    pub async fn ddl(&self, statement: &str) -> Result<coordinator::Outcome> {
        self.ddl_as(None, statement).await
    }

    /// Executes a statement about roles for the role of a client.
    pub async fn roles_as(&self, user: &str, statement: &str) -> Result<coordinator::Outcome> {
        let statement = Statement::new(statement, None, &self.catalog_view())?;
        let Statement::Roles(statement) = statement else {
            panic!("{} is not about roles", &*statement.text)
        };
        roles::execute(self.0.clone(), statement, Some(Rc::from(user))).await
    }

    /// For the role of a client, without the checks of a session.
    pub async fn ddl_as(&self, user: Option<&str>, statement: &str) -> Result<coordinator::Outcome> {
        let statement = Statement::new(statement, None, &self.catalog_view())?;
        let Statement::Schema(statement) = statement else {
            panic!("{} changes no schema", &*statement.text)
        };
        change(self.0.clone(), statement, user.map(Rc::from)).await
    }
}

impl World {
    pub fn host_id(&self, index: usize) -> HostId {
        self.machine(index).host_id
    }

    pub fn node(&self, index: usize) -> Node {
        Node(self.machine(index).context(0).unwrap())
    }

    pub fn catalog(&self, index: usize) -> Catalog {
        Catalog::clone(&self.node(index).catalog())
    }

    /// The leader, according to the nodes that know it and are up.
    pub fn leader(&self) -> Option<usize> {
        let leader = self.up().into_iter().find(|machine| {
            let log = MetadataLog::of(&self.node(machine.index)).unwrap();
            log.leader() == Some(machine.host_id)
        });
        leader.map(|machine| machine.index)
    }

    /// Adds the machine of this number, unless it is there.
    pub fn configure(&self, index: usize, change: impl FnOnce(&mut Config)) {
        if index < self.machine_count() {
            return;
        }
        assert_eq!(index, self.machine_count(), "machines are added in order");
        let mut config = Config {
            data_dir: "/data".into(),
            shards: Some(2),
            commit_log_segment_bytes: 1 << 20,
            ..Config::default()
        };
        change(&mut config);
        let host_id = Uuid::from_u128((u128::from(self.random_u64()) << 64) | (index as u128 + 1));
        self.add(host_id, format!("10.0.0.{}:7000", index + 1).parse().unwrap(), config);
    }

    pub fn set_clock_ahead(&self, index: usize, ahead: Duration) {
        self.machine(index).clock.skew.offset_micros.set(ahead.as_micros() as i64);
    }

    pub fn move_to_another_address(&self, index: usize) -> SocketAddr {
        let address = format!("10.0.1.{}:7000", index + 1).parse().unwrap();
        self.machine(index).address.set(address);
        address
    }

    /// Starts a node and returns when it participates in the metadata log.
    pub async fn boot(&self, index: usize, seeds: &[SocketAddr]) -> Node {
        self.configure(index, |_| {});
        let seeds: Vec<Endpoint> = seeds.iter().map(|seed| (*seed).into()).collect();
        let begin = async move |contexts: Vec<Rc<ShardContext>>| {
            start::start(&contexts[0], &seeds).await.unwrap();
            Ok(())
        };
        self.machine(index).boot(begin).await.unwrap();
        self.show_who_is_alive();
        self.node(index)
    }

    /// Assembles a node, or returns the reason why it does not start.
    pub async fn assemble(&self, index: usize) -> std::result::Result<Assembled, StartError> {
        self.machine(index).parts().assemble().await
    }

    /// Crashes a node; data that was not synced is lost.
    pub fn crash(&self, index: usize) {
        let machine = self.machine(index);
        if machine.is_running() {
            machine.crash(CrashStyle::LoseAll);
            self.show_who_is_alive();
        }
    }

    /// Publishes the liveness of all nodes at once: the failure detector is tested elsewhere.
    pub fn show_who_is_alive(&self) {
        let up = self.up();
        let alive = Arc::new(up.iter().map(|machine| machine.host_id).collect());
        for context in up.iter().flat_map(|machine| machine.contexts()) {
            let view = context.cluster().with_alive(Arc::clone(&alive));
            context.install_cluster(Arc::new(view));
        }
    }

    /// The addresses of the other nodes that are up.
    fn seeds(&self, index: usize) -> Vec<SocketAddr> {
        let others = self.up().into_iter().filter(|machine| machine.index != index);
        others.map(|machine| machine.address.get()).collect()
    }

    /// Boots a node and lets it ask the others to join.
    pub async fn try_join(&self, index: usize) -> Result<u64, JoinError> {
        let seeds = self.seeds(index);
        if self.machine_count() <= index || !self.machine(index).is_up() {
            self.boot(index, &seeds).await;
        }
        let seeds: Vec<Endpoint> = seeds.into_iter().map(Endpoint::from).collect();
        join(&self.node(index), &seeds, DEADLINE).await
    }

    /// Grows the cluster to this number of members, all `Normal`.
    pub async fn grow_to(&self, count: usize) {
        for index in self.up().len()..count {
            if index == 0 {
                self.boot(0, &[]).await;
                continue;
            }
            self.try_join(index).await.unwrap();
            let host_id = self.host_id(index);
            for phase in [TransitionPhase::WriteBoth, TransitionPhase::ReadNew] {
                let advance = Command::Advance { host_id, from: MemberState::Joining(phase) };
                let outcome = propose(&self.node(index), advance, DEADLINE).await.unwrap();
                assert!(matches!(outcome, CommandOutcome::Applied { .. }), "{outcome:?}");
            }
            self.settle().await;
        }
    }

    /// Runs a function on a node's first shard; `None`: the node is down, or crashed meanwhile.
    pub async fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        job: impl FnOnce(Rc<ShardContext>) -> F,
    ) -> Option<T> {
        let machine = self.machine(index);
        machine.run(job(machine.context(0)?)).await.ok()
    }

    /// Boots a node as in production, with all others as its seeds. Resolves when it would serve clients. `None`: it
    /// crashed meanwhile.
    pub async fn enter(&self, index: usize) -> Option<std::result::Result<(), MembershipError>> {
        let seeds = self.seeds(index);
        self.boot(index, &seeds).await;
        let seeds: Vec<Endpoint> = seeds.into_iter().map(Endpoint::from).collect();
        let contexts = self.machine(index).contexts();
        self.on(index, move |context| async move {
            membership::start(&context);
            membership::start_cleaning(&context);
            membership::enter(&context, &seeds).await?;
            assembly::note_replacement(&context).await.unwrap();
            for context in &contexts {
                replica::start(context).await?;
            }
            membership::wait_until_normal(&context).await
        })
        .await
    }

    /// Executes a statement on a node. Returns the number of rows of the answer; `None`: the node crashed meanwhile.
    pub async fn cql(&self, index: usize, text: &str, consistency: Consistency) -> Option<Result<usize>> {
        let text = text.to_owned();
        self.on(index, move |context| async move {
            let answer = client::ask(&context, &text, &client::options(consistency)).await?;
            Ok(answer.rows.len())
        })
        .await
    }

    /// The number of rows of a table on all shards of a node, whether the node is a replica or not.
    pub fn stored_rows(&self, index: usize, keyspace: &str, table: &str) -> u64 {
        let id = *self.catalog(index).table(keyspace, table).unwrap().id.as_bytes();
        let shards = self.machine(index).contexts();
        shards
            .iter()
            .map(|context| context.shard.statistics(helenus_engine::TableId(id)).unwrap().row_versions)
            .sum()
    }

    /// Advances the clock without requests to the cluster.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(15)).await;
    }

    /// Asserts that all running nodes have the same schema and the same members.
    pub fn assert_same_catalogs(&self) {
        let up = self.up();
        let first = self.node(up[0].index);
        for machine in up {
            let index = machine.index;
            let node = self.node(index);
            let (theirs, ours) = (format!("{:?}", node.catalog()), format!("{:?}", first.catalog()));
            assert_eq!(theirs, ours, "node {index}");
            assert_eq!(node.cluster().topology, first.cluster().topology, "node {index}");
            for context in machine.contexts() {
                assert!(Arc::ptr_eq(&context.catalog(), &node.catalog()));
                assert_eq!(
                    context.shard.table_ids().len(),
                    node.shard.table_ids().len() - usize::from(context.index > 0)
                );
            }
        }
    }
}
