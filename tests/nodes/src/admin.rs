//! A real node, queried over HTTP like the operator's commands do.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use helenus::admin::NodeAdmin;
use helenus_admin::reports::TokenReport;
use helenus_config::Config;
use helenus_observe::{Admin, AdminError, RestoreRequest, SnapshotOperation};
use helenus_query::schema::selection::TableSelection;

use helenus::embedded;
use helenus::node::Node;

fn start(directory: &tempfile::TempDir) -> Node {
    let config = Config { data_dir: directory.path().to_owned(), shards: Some(2), ..embedded::config() };
    embedded::start(config).unwrap()
}

fn admin(node: &Node) -> NodeAdmin {
    NodeAdmin::new(node.shared().clone())
}

#[tokio::test]
async fn a_single_node_is_up_and_owns_everything() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(&directory);
    let admin = admin(&node);
    let status = admin.cluster_status(None).await.unwrap();
    assert_eq!(status.members.len(), 1);
    let member = &status.members[0];
    assert_eq!((member.is_up, member.state.as_str(), member.token_count), (true, "normal", 16));
    assert_eq!(member.serving.as_deref(), Some("normal"));
    assert!((member.owns - 1.0).abs() < 1e-9);
    assert_eq!(member.host_id, node.shared().host_id.to_string());

    let ring = admin.ring(None).await.unwrap();
    let tokens: Vec<i64> = ring.tokens.iter().map(|token| token.token.parse().unwrap()).collect();
    assert!(tokens.is_sorted() && tokens.len() == 16);
    let is_own = |token: &TokenReport| token.replicas == [member.address.clone()];
    assert!(ring.tokens.iter().all(is_own));

    let info = admin.node_info().await.unwrap();
    assert_eq!((info.shard_count, info.token_count, info.state.as_str()), (2, 16, "normal"));
    let description = admin.describe_cluster().await.unwrap();
    assert_eq!(description.schema_versions.values().map(Vec::len).sum::<usize>(), 1);
    assert_eq!(description.data_centers, BTreeMap::from([("datacenter1".to_owned(), 1)]));
    assert!(description.unreachable.is_empty());
    tokio::task::spawn_blocking(move || node.shutdown()).await.unwrap().unwrap();
}

#[tokio::test]
async fn keyspaces_that_have_no_ring_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(&directory);
    let admin = admin(&node);
    for (keyspace, error) in [
        ("nowhere", "keyspace 'nowhere' does not exist"),
        ("system", "keyspace 'system' is local to each node"),
    ] {
        let refused = admin.ring(Some(keyspace.to_owned())).await.unwrap_err();
        assert_eq!(refused, AdminError::Unknown(error.to_owned()));
    }
    tokio::task::spawn_blocking(move || node.shutdown()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_drained_node_takes_no_clients_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(&directory);
    let address: SocketAddr = node.address();
    let mut before = TcpStream::connect(address).unwrap();
    let admin = admin(&node);
    admin.health().unwrap();
    admin.drain().await.unwrap();
    assert_eq!(admin.health().unwrap_err(), "the node is drained");
    // The connection that existed before is closed.
    assert!(matches!(before.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert!(TcpStream::connect(address).is_err());
    tokio::task::spawn_blocking(move || node.shutdown()).await.unwrap().unwrap();
}

#[tokio::test]
async fn operations_on_all_members_report_on_each() {
    let directory = tempfile::tempdir().unwrap();
    let node = start(&directory);
    let admin = admin(&node);
    let one = async |operation: &SnapshotOperation| {
        let mut report = admin.cluster_snapshots(operation.clone()).await.unwrap();
        assert_eq!(report.members.len(), 1);
        let member = report.members.remove(0);
        assert_eq!(member.host_id, node.shared().host_id.to_string());
        member
    };
    let name = admin.new_snapshot_name().await.unwrap();
    assert_ne!(admin.new_snapshot_name().await.unwrap(), name);
    let tables = TableSelection::Keyspaces(vec!["system_traces".to_owned()]);
    let take = SnapshotOperation::Take { name: name.clone(), tables };
    let taken = one(&take).await;
    assert!(taken.error.is_none() && taken.snapshots.iter().any(|snapshot| snapshot.table == "sessions"));
    assert!(one(&take).await.error.unwrap().contains(&name), "there is one of that name");
    assert_eq!(one(&SnapshotOperation::List).await.snapshots, taken.snapshots);
    let unknown = TableSelection::of(Some("nowhere"), None);
    let unknown = SnapshotOperation::Take { name: "other".to_owned(), tables: unknown };
    let refused = admin.cluster_snapshots(unknown).await.unwrap_err();
    assert_eq!(refused, AdminError::Unknown("keyspace 'nowhere' does not exist".to_owned()));
    let request =
        |name: &str| RestoreRequest { name: name.to_owned(), keyspace: None, table: None, into: None };
    let lacking = one(&SnapshotOperation::Restore(request("other"))).await.error.unwrap();
    assert_eq!(lacking, "there is no snapshot 'other' of such a table on this node");
    assert!(one(&SnapshotOperation::Clear { name }).await.error.is_none());
    assert!(one(&SnapshotOperation::List).await.snapshots.is_empty());
    tokio::task::spawn_blocking(move || node.shutdown()).await.unwrap().unwrap();
}
