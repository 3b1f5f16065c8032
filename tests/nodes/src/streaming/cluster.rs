//! Nodes that stream to each other. Topologies are installed by hand, and writes go to the replicas' shards directly.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use bytes::Bytes;
use cql_lite::types::token;
use helenus_config::Config;
use helenus_engine::io::{CrashStyle, SplitMix64};
use helenus_engine::key::{KeyRef, token_bounds};
use helenus_engine::read::{Purgeable, VersionLimit, VersionScanRequest};
use helenus_engine::{
    Cell as EngineCell, CellKind, Deletion, Liveness, Mutation, MutationBuilder, RowBuilder, TableId,
};
use helenus_internode::service;
use helenus_ring::HostId;
use helenus_ring::intervals;
use helenus_ring::member::MemberState;
use helenus_ring::placement::Placement;
use helenus_ring::topology::Topology;
use helenus_testing::catalog_of;
use helenus_testing::clock::START_MICROS;

use helenus::streaming::message::{FetchRequest, StreamRequest, StreamResponse};
use helenus::streaming::place::Place;
use helenus::streaming::plan::Sides;
use helenus::streaming::sender;
use helenus::testing::cluster::simulate;
use helenus::testing::links::Links;
use helenus::testing::members::{Members, host_id};
use helenus_execution::shard::context::ShardContext;

/// The tables that are written to; writes to the second one are not logged.
pub const TABLES: [&str; 2] = ["ks.logged", "quick.t"];
const TOKENS: usize = 4;

/// Runs a test in virtual time with a cluster without nodes; its keyspaces have `replicas` replicas.
pub fn with_cluster<F>(seed: u64, replicas: u32, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let mut statements = Vec::new();
    for (keyspace, durable) in [("ks", true), ("quick", false)] {
        statements.push(format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': \
             {replicas}}} AND durable_writes = {durable}"
        ));
    }
    // Each of its ranges has one source.
    let single = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    statements.push(format!("CREATE KEYSPACE alone WITH replication = {single}"));
    statements.push("CREATE TABLE alone.t (p blob, c blob, v blob, PRIMARY KEY (p, c))".to_owned());
    for table in TABLES {
        statements.push(format!("CREATE TABLE {table} (p blob, c blob, v blob, PRIMARY KEY (p, c))"));
    }
    simulate(seed, Links::default(), |cluster| {
        let members = Members::new(cluster, catalog_of(&statements).catalog);
        test(Cluster { members, timestamp: Cell::new(1) })
    });
}

/// Changes a byte of a chunk.
pub fn damage(answer: &Bytes) -> Option<Bytes> {
    let Ok(StreamResponse::StreamChunk(mut chunk)) =
        service::decode_response::<StreamRequest>(answer).unwrap()
    else {
        return None;
    };
    if chunk.count == 0 {
        return None;
    }
    chunk.mutations[40] ^= 1;
    Some(service::encode_response::<StreamRequest>(&Ok(StreamResponse::StreamChunk(chunk))).unwrap())
}

/// A cluster with [`TABLES`].
pub struct Cluster {
    members: Members,
    timestamp: Cell<i64>,
}

impl Deref for Cluster {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.members
    }
}

impl Cluster {
    /// Adds a node, starts it, and returns its number.
    pub async fn add(&self, shards: u16, state: MemberState) -> usize {
        let mut tokens: Vec<i64> = (0..TOKENS).map(|_| self.random_u64() as i64).collect();
        tokens.sort_unstable();
        let config = Config {
            data_dir: "/node".into(),
            shards: Some(usize::from(shards)),
            memtable_bytes: 4 << 20,
            commit_log_segment_bytes: 1 << 20,
            ..Config::default()
        };
        let number = self.add_member(&tokens, state, config);
        self.restart(number).await;
        number
    }

    /// Stops a node as it is: it does not answer any more. Data that was not synced is lost.
    pub fn stop(&self, number: usize) {
        self.stop_with(number, CrashStyle::LoseAll);
    }

    fn stop_with(&self, number: usize, style: CrashStyle) {
        self.machine(number).crash(style);
        self.show_alive(number, false);
    }

    pub async fn restart(&self, number: usize) {
        self.links.heal(number);
        self.start(number).await;
        self.show_all();
    }

    /// Simulates a power failure and a restart of a node.
    pub async fn crash(&self, number: usize, style: CrashStyle) {
        self.stop_with(number, style);
        self.restart(number).await;
    }

    pub fn set_state(&self, number: usize, state: MemberState) {
        self.change_ring(&[(number, Some(state))]);
        self.show_all();
    }

    /// Installs the present members on one node, as of some epoch.
    pub fn install_on(&self, number: usize, epoch: u64) {
        let topology = Topology { version: epoch, epoch, ..self.topology() };
        self.install(number, &self.view_of(topology));
    }

    pub fn first_shard(&self, number: usize) -> Rc<ShardContext> {
        self.machine(number).context(0).unwrap()
    }

    fn table_id(&self, name: &str) -> TableId {
        let (keyspace, table) = name.split_once('.').unwrap();
        self.table(keyspace, table).engine_id()
    }

    /// Writes partitions to all live replicas, also pending ones: rows, deletions, overwritten rows.
    pub async fn write(&self, partitions: usize, value_bytes: usize) {
        for name in TABLES {
            let table = self.table_id(name);
            let keyspace = name.split_once('.').unwrap().0;
            for _ in 0..partitions {
                self.apply(keyspace, &self.mutation(table, value_bytes)).await;
                if self.random(200) == 0 {
                    self.flush(table).await;
                }
            }
            // Data that is not logged would not survive a restart.
            self.flush(table).await;
        }
    }

    /// Writes rows that grow cell by cell, one in each partition.
    pub async fn grow_rows(&self, partitions: u64, cells: u64, value_bytes: usize) {
        for name in TABLES {
            let table = self.table_id(name);
            for partition in 0..partitions {
                let key = [b"large", partition.to_be_bytes().as_slice()].concat();
                for cell in 0..cells {
                    let timestamp = self.timestamp.replace(self.timestamp.get() + 1);
                    let value = vec![cell as u8; value_bytes];
                    let path = cell.to_be_bytes();
                    let mut row = RowBuilder::new();
                    row.set_liveness(Liveness { timestamp, expiry: None });
                    row.cell(EngineCell {
                        column: 1,
                        path: &path,
                        timestamp,
                        kind: CellKind::Live,
                        value: &value,
                    });
                    let mut builder = MutationBuilder::new(table, token::token(&key), &key).unwrap();
                    builder.row(&[2, 5], &mut row);
                    self.apply(name.split_once('.').unwrap().0, &builder.build()).await;
                }
            }
            self.flush(table).await;
        }
    }

    /// Applies a mutation on all live replicas.
    async fn apply(&self, keyspace: &str, mutation: &Mutation) {
        let view = mutation.view().unwrap();
        let replicas = self.view().placement(keyspace).unwrap().replicas(view.token).clone();
        for machine in self.up() {
            if !replicas.contains(&machine.host_id) {
                continue;
            }
            let contexts = machine.contexts();
            let context = &contexts[contexts[0].node.shard_of(view.token)];
            context.shard.admit().await.unwrap();
            context.shard.apply(&view).unwrap();
        }
    }

    /// The sizes of all chunks of a table on a node's first shard, and how many of them end inside a row.
    pub async fn chunks(&self, number: usize, name: &str) -> (Vec<usize>, usize) {
        let context = self.first_shard(number);
        let (mut sizes, mut inside, mut resume_from) = (Vec::new(), 0, None);
        loop {
            let request = FetchRequest {
                epoch: context.cluster_view().topology.epoch,
                table_id: u128::from_be_bytes(self.table_id(name).0),
                ranges: intervals::ranges(&[i64::MIN..=i64::MAX]),
                shard: 0,
                resume_from: resume_from.take(),
                max_bytes: context.node.config.stream_chunk_bytes,
            };
            let chunk = sender::fetch(&context, host_id(number), request).await.unwrap();
            sizes.push(chunk.mutations.len());
            let Some(resume) = chunk.resume else { return (sizes, inside) };
            inside += usize::from(Place::decode(&resume).unwrap().inside.is_some());
            resume_from = Some(resume);
        }
    }

    async fn flush(&self, table: TableId) {
        for context in self.up().iter().flat_map(|machine| machine.contexts()) {
            context.shard.flush(table).await.unwrap();
        }
    }

    fn mutation(&self, table: TableId, value_bytes: usize) -> Mutation {
        let mut random = SplitMix64::new(self.random_u64());
        let key = random.below(5_000).to_be_bytes();
        let timestamp = self.timestamp.replace(self.timestamp.get() + 1);
        let mut builder = MutationBuilder::new(table, token::token(&key), &key).unwrap();
        let deletion = Deletion { timestamp, local_deletion_time: (START_MICROS / 1_000_000) as u32 };
        match random.below(10) {
            0 => drop(builder.delete_partition(deletion)),
            1 => drop(builder.delete_range(&[2, 3], &[2, 6], deletion)),
            2 => {
                let mut row = RowBuilder::new();
                row.set_deletion(deletion);
                builder.row(&[2, 1 + random.below(8) as u8], &mut row);
            }
            _ => {
                let value: Vec<u8> = (0..value_bytes).map(|_| random.next_u64() as u8).collect();
                let mut row = RowBuilder::new();
                row.set_liveness(Liveness { timestamp, expiry: None });
                row.cell(EngineCell { column: 1, path: &[], timestamp, kind: CellKind::Live, value: &value });
                builder.row(&[2, 1 + random.below(8) as u8], &mut row);
            }
        }
        builder.build()
    }

    /// All versions that a node has of a table, by partition.
    fn versions(&self, number: usize, table: TableId) -> BTreeMap<Vec<u8>, Bytes> {
        let (start, end) = token_bounds(&(i64::MIN..=i64::MAX));
        let mut all = BTreeMap::new();
        for context in self.machine(number).contexts() {
            let request = VersionScanRequest {
                table,
                start: &start,
                end: &end,
                reversed: false,
                now_seconds: context.now_seconds(),
                purgeable: Purgeable::Kept,
                is_long: false,
                part: None,
                limit: VersionLimit::UNLIMITED,
            };
            for partition in context.shard.scan_versions(&request).unwrap().partitions {
                let view = partition.view().unwrap();
                assert_eq!(context.node.shard_of(view.token), context.index, "on the shard it belongs to");
                let key = helenus_engine::key::full_key(view.token, view.partition_key, &[]).unwrap();
                assert!(all.insert(key, partition.bytes().clone()).is_none());
            }
        }
        all
    }

    /// Checks that a node has, for all ranges that it gains, the data of an old replica. Returns the number of
    /// partitions.
    pub fn check_receiver(&self, number: usize) -> usize {
        let receiver = host_id(number);
        let sides = Sides::of(&self.topology()).unwrap();
        let mut gained = 0;
        for name in TABLES {
            let keyspace = &self.catalog().keyspaces[name.split_once('.').unwrap().0];
            let [before, after] = sides.placements(&sides.replications(keyspace).unwrap());
            let has = |placement: &Placement, token: i64, host_id: HostId| {
                placement.replicas(token).read.iter().any(|member| member.host_id == host_id)
            };
            let table = self.table_id(name);
            let received = self.versions(number, table);
            for other in self.up().iter().map(|machine| machine.index).filter(|other| *other != number) {
                for (key, bytes) in self.versions(other, table) {
                    let token = KeyRef::parse(&key).unwrap().token;
                    let is_gained = has(&after, token, receiver) && !has(&before, token, receiver);
                    if is_gained && has(&before, token, host_id(other)) {
                        assert!(received.get(&key) == Some(&bytes), "{name}, token {token} of node {other}");
                        gained += 1;
                    }
                }
            }
        }
        gained
    }

    pub fn received_bytes(&self, number: usize) -> u64 {
        let report = helenus::streaming::progress(&self.first_shard(number));
        report.receiving.map_or(0, |receiving| receiving.bytes)
    }

    pub fn sent_bytes(&self, number: usize) -> u64 {
        helenus::streaming::progress(&self.first_shard(number)).sent_bytes.values().sum()
    }
}
