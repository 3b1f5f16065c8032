//! A node of two shards in one thread. Its disk outlives it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::types::timeuuid;
use helenus::config::Config;
use helenus::testing::node::{NodeParts, begin};
use helenus_engine::io::{SimulatedDisk, SplitMix64};
use helenus_execution::shard::context::ShardContext;
use helenus_internode::transport::Isolated;
use helenus_query::functions::UuidSource;
use helenus_testing::clock::{Skew, VirtualClock};
use tokio::time::Instant;
use uuid::Uuid;

/// A wall clock that only the suite moves; waiting is done in virtual time.
pub fn clock() -> VirtualClock {
    let clock = VirtualClock::new(Instant::now());
    clock.skew.drift_ppm.set(Skew::STANDSTILL_PPM);
    clock
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

/// Opens the node on its disk, with the settings of a file, for the `start`th time; returns its shards when clients may come.
pub async fn open(
    disk: &SimulatedDisk,
    clock: &VirtualClock,
    settings: Config,
    start: u64,
) -> Vec<Rc<ShardContext>> {
    let parts = NodeParts {
        config: Config { data_dir: "/data".into(), shards: Some(2), num_tokens: 2, ..settings },
        host_id: Uuid::from_u128(1),
        address: ([127, 0, 0, 1], 7000).into(),
        disk: Arc::new(disk.clone()),
        clock: Rc::new(clock.clone()),
        transport: Rc::new(Isolated),
        uuids: &PlainUuids,
        planted_bug: None,
        // No start may repeat the versions of the schema that an earlier one made.
        random: &RefCell::new(SplitMix64::new(start)),
    };
    let shards = parts.open().await.unwrap();
    begin(&shards).await.unwrap();
    shards
}
