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
use std::sync::Arc;

use cql_lite::syntax;
use helenus_query::schema::catalog::{Catalog, CatalogView};
use helenus_query::schema::ddl::{self, DdlContext};
use helenus_query::schema::document::CatalogDocument;
use helenus_query::schema::options::DataCenters;
use helenus_query::schema::store;
use helenus_query::schema::system_tables::initial_catalog;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use uuid::Uuid;

/// Makes the keyspace [`KEYSPACE`] with one replica.
pub const CREATE_KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
/// The keyspace of names without one.
pub const KEYSPACE: &str = "ks";

/// The catalog of a node on which these statements were run, in this order.
///
/// Ids of tables and versions of the schema are numbers that follow from the order of the statements.
pub fn catalog_of<S: AsRef<str>>(statements: &[S]) -> CatalogView {
    let start = CatalogView::new(1, Arc::new(initial_catalog(Uuid::nil())));
    (1_u128..).zip(statements).fold(start, |view, (number, text)| changed(&view, number, text.as_ref()))
}

/// The catalog after one more statement, which is the `number`th since the start. Keyspaces that it does not change are
/// shared with the catalog before it.
pub fn changed(view: &CatalogView, number: u128, text: &str) -> CatalogView {
    let context = DdlContext {
        now_micros: 1_700_000_000_000_000,
        new_table_id: Uuid::from_u128(number),
        new_version: Uuid::from_u128(number << 64),
        data_centers: DataCenters::from([("datacenter1".to_owned(), 1)]),
    };
    let statement = syntax::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let change = ddl::execute(&view.catalog, &statement, Some(KEYSPACE), &context);
    let catalog = change.unwrap_or_else(|error| panic!("{text}: {error}")).catalog;
    CatalogView::new(view.generation, catalog)
}

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
    }
}
