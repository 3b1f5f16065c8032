//! What the tests of several crates share, as far as it needs no node: nodes in memory are in `helenus::testing`.
//!
//! [`virtual_time`] runs tests, [`clock`] and [`uuids`] are handed to nodes, [`linearizability`] checks what clients saw.
//! [`catalog_of`] makes the schema of a node on which statements were run, [`catalog_file`] the file that an earlier program
//! stored it in. [`member`] makes a member of a cluster.

#![allow(clippy::expect_used, reason = "a test that cannot be set up fails")]

pub mod clock;
pub mod linearizability;
pub mod uuids;
pub mod virtual_time;

use std::net::Ipv4Addr;

use helenus_query::schema::catalog::Catalog;
use helenus_query::schema::document::CatalogDocument;
use helenus_query::schema::store;
pub use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, KEYSPACE, catalog_of, changed};
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};

/// A catalog in the file of version 1, as programs before the metadata log stored it.
pub fn catalog_file(catalog: &Catalog) -> Vec<u8> {
    let document =
        serde_json::to_vec(&CatalogDocument::of(catalog)).expect("a catalog can be written as JSON");
    store::frame(store::CATALOG_VERSION, &document)
}

/// A member that is `Normal`, with addresses that follow from its host id.
pub fn member(host_id: HostId, data_center: &str, rack: &str, tokens: &[i64]) -> Member {
    let number = host_id.as_u128() as u32;
    let address = |port| (Ipv4Addr::from(0x7f00_0001 + number), port).into();
    Member {
        host_id,
        internode_address: address(7000),
        native_address: address(9042),
        shard_aware_port: 19042,
        shard_count: 1,
        data_center: data_center.to_owned(),
        rack: rack.to_owned(),
        tokens: tokens.to_vec(),
        state: MemberState::Normal,
        release_version: "1".to_owned(),
        protocol_version: 1,
        feature_version: 1,
        encrypts_tables: false,
    }
}
