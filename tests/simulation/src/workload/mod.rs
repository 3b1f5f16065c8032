//! Load with checkers: each kind knows the guarantees given to its clients.

pub mod batches;
pub mod caps;
pub mod compaction;
pub mod counters;
pub mod deletions;
pub mod feeds;
pub mod increments;
pub mod indexes;
pub mod load;
pub mod pages;
pub mod registers;
pub mod roles;
pub mod schema;
pub mod transactions;
pub mod truncations;
pub mod view_model;
pub mod views;

use std::rc::Rc;
use std::time::Duration;

use self::load::Workload;
use crate::plan::LoadKind;

/// The keyspace of the load, with that number of replicas in each data center.
pub fn keyspace(replicas_of_centers: &[usize]) -> String {
    let replication = if let [replicas] = replicas_of_centers {
        replication(*replicas)
    } else {
        let of_center =
            |(center, replicas): (usize, &usize)| format!(", '{}': {replicas}", center_name(center));
        let of_centers: String = replicas_of_centers.iter().enumerate().map(of_center).collect();
        format!("{{'class': 'NetworkTopologyStrategy'{of_centers}}}")
    };
    format!("CREATE KEYSPACE sim WITH replication = {replication}")
}

/// The name of a data center.
pub fn center_name(center: usize) -> String {
    format!("datacenter{}", center + 1)
}

/// Another number of replicas for the keyspace of the load.
pub fn other_replication(replicas: usize) -> String {
    format!("ALTER KEYSPACE sim WITH replication = {}", replication(replicas))
}

fn replication(replicas: usize) -> String {
    format!("{{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}")
}

/// The table of deletions, whose tombstones may be purged after that time; once they are repaired, if nodes repair by themselves.
pub fn deletions_table(gc_grace: Duration, repairs: bool) -> String {
    let mode = if repairs { "repair" } else { "timeout" };
    format!(
        "CREATE TABLE sim.deletions (k int PRIMARY KEY, v bigint) WITH gc_grace_seconds = {} AND tombstone_gc = \
         {{'mode': '{mode}', 'propagation_delay_in_seconds': 1}}",
        gc_grace.as_secs()
    )
}

/// The other tables of the load.
pub const SCHEMA: &[&str] = &[
    "CREATE TABLE sim.registers (k int, c int, v bigint, PRIMARY KEY (k, c))",
    "CREATE TABLE sim.transactions (k int PRIMARY KEY, v bigint)",
    "CREATE TABLE sim.pages (k int, c int, v bigint, PRIMARY KEY (k, c))",
    "CREATE TABLE sim.counters (k int PRIMARY KEY, n counter)",
    "CREATE TABLE sim.batches (k int PRIMARY KEY, v bigint)",
    "CREATE TABLE sim.truncations (k int PRIMARY KEY, v bigint)",
];

/// The load of a kind.
pub fn workload(kind: LoadKind) -> Rc<dyn Workload> {
    match kind {
        LoadKind::Registers => Rc::new(registers::Registers::default()),
        LoadKind::Transactions => Rc::new(transactions::Transactions::default()),
        LoadKind::Pages => Rc::new(pages::Pages),
        LoadKind::Counters => Rc::new(counters::Counters::default()),
        LoadKind::Batches => Rc::new(batches::Batches::default()),
        LoadKind::Deletions => Rc::new(deletions::Deletions::default()),
        LoadKind::Feeds => Rc::new(feeds::Feeds::default()),
        LoadKind::Increments => Rc::new(increments::Increments::default()),
        LoadKind::Indexes => Rc::new(indexes::Indexes::default()),
        LoadKind::Schema => Rc::new(schema::Schema::default()),
        LoadKind::Roles => Rc::new(roles::Roles::default()),
        LoadKind::Caps => Rc::new(caps::Caps::default()),
        LoadKind::Truncations => Rc::new(truncations::Truncations::default()),
        LoadKind::Views => Rc::new(views::Views::default()),
    }
}
