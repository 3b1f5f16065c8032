//! A node of two shards in one thread. Its disk outlives it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::types::timeuuid;
use futures::future::LocalBoxFuture;
use helenus::config::Config;
use helenus::files::node_files::NodeFiles;
use helenus::node::assembly::{self, Addresses, Assembled, NodeParts};
use helenus::node::identity::Identity;
use helenus::node::serve::serve;
use helenus::shard::context::{ShardContext, ShardParts};
use helenus_engine::io::{Clock, Environment, InlineBackground, SimulatedDisk, SplitMix64};
use helenus_internode::transport::Isolated;
use helenus_query::functions::UuidSource;
use tokio::time::Instant;
use uuid::Uuid;

const SHARDS: usize = 2;
/// The first moment, in microseconds since the epoch.
const START_MICROS: i64 = 1_700_000_000_000_000;

/// Wall time that only the suite moves; waiting is done in the virtual time of the runtime.
#[derive(Debug, Clone)]
pub struct SuiteClock {
    micros: Rc<Cell<i64>>,
    start: Instant,
}

impl SuiteClock {
    pub fn new() -> Self {
        Self { micros: Rc::new(Cell::new(START_MICROS)), start: Instant::now() }
    }

    pub fn advance(&self, duration: Duration) {
        self.micros.set(self.micros.get() + duration.as_micros() as i64);
    }
}

impl Clock for SuiteClock {
    fn now_micros(&self) -> i64 {
        self.micros.get()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// UUIDs that say when they were made and nothing else; random ones are counted.
#[derive(Debug)]
struct PlainUuids;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
}

impl UuidSource for PlainUuids {
    fn random(&self) -> Uuid {
        MADE.set(MADE.get() + 1);
        uuid::Builder::from_random_bytes(u128::from(MADE.get()).to_be_bytes()).into_uuid()
    }

    fn time_based(&self, unix_micros: i64) -> Uuid {
        timeuuid::from_micros(unix_micros, 0, 0, [1, 0, 0, 0, 0, 0])
    }
}

/// Opens the node on its disk; returns its shards when clients may come.
pub async fn open(disk: &SimulatedDisk, clock: &SuiteClock) -> Vec<Rc<ShardContext>> {
    let clock: Rc<dyn Clock> = Rc::new(clock.clone());
    let disk = Arc::new(disk.clone());
    let config = Config { data_dir: PathBuf::from("/data"), shards: Some(SHARDS), ..Config::default() };
    let files = NodeFiles::open(disk.clone(), config.data_dir.clone()).await.unwrap();
    let identity = Identity::load_or_store(&files, Some(SHARDS), || {
        Identity::with_tokens(Uuid::from_u128(1), SHARDS, 2)
    });
    let identity = identity.await.unwrap();
    let parts = NodeParts {
        config,
        identity,
        addresses: Addresses {
            native: SocketAddr::from(([127, 0, 0, 1], 9042)),
            shard_aware_port: 19042,
            internode: None,
        },
        files,
        started_seconds: clock.now_seconds(),
        catalog_version: Uuid::from_u128(2),
    };
    let Assembled { shared, queues, catalog, cluster } = assembly::assemble(parts).await.unwrap();
    let mut random = SplitMix64::new(1);
    let mut shards = Vec::new();
    for (index, queue) in queues.into_iter().enumerate() {
        let parts = ShardParts {
            environment: Environment {
                disk: disk.clone(),
                background: Rc::new(InlineBackground::new(disk.clone(), clock.clone())),
                clock: clock.clone(),
            },
            transport: Rc::new(Isolated),
            random_seed: random.next_u64(),
            uuids: &PlainUuids,
            planted_bug: None,
        };
        let shard = assembly::open_shard(index, shared.clone(), parts, catalog.clone(), cluster.clone());
        let shard = shard.await.unwrap();
        tokio::task::spawn_local(serve(shard.clone(), queue));
        shards.push(shard);
    }
    for shard in &shards {
        assembly::begin(shard).await.unwrap();
    }
    shards
}
