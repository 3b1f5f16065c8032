//! Tables that every member encrypts, and members that would not.

use std::rc::Rc;

use cql_lite::frame::Consistency;
use helenus_config::AtRestMode;
use helenus_ring::metadata::Refusal;

use super::KEYSPACE;
use super::harness::{World, simulate};
use helenus::cluster::join::JoinError;

const ENCRYPTED: &str = "CREATE TABLE ks.t (k int PRIMARY KEY) WITH encryption = {'enabled': 'true'}";

/// Members of which only the first ones say that they encrypt; all their disks are plain.
async fn members(world: &Rc<World>, count: usize, encrypting: usize) {
    for index in 0..count {
        let mode = if index < encrypting { AtRestMode::Tables } else { AtRestMode::Off };
        world.configure(index, |config| config.encryption_at_rest.mode = mode);
        world.enter(index).await.unwrap().unwrap();
    }
    run(world, 0, KEYSPACE).await.unwrap();
}

async fn run(world: &Rc<World>, index: usize, text: &str) -> Result<usize, String> {
    let done = world.cql(index, text, Consistency::One).await.expect("the node is up");
    done.map_err(|error| error.to_string())
}

#[test]
fn a_table_is_refused_while_a_member_does_not_encrypt_alive_or_not() {
    simulate(201, |world| async move {
        members(&world, 3, 2).await;
        let plain = world.host_id(2).to_string();
        for _ in 0..2 {
            let refused = run(&world, 0, ENCRYPTED).await.unwrap_err();
            assert!(refused.contains("table ks.t") && refused.contains(&plain), "{refused}");
            world.crash(2);
        }
        run(&world, 0, "CREATE TABLE ks.other (k int PRIMARY KEY)").await.unwrap();
    });
}

#[test]
fn a_node_that_does_not_encrypt_does_not_join_beside_such_a_table() {
    simulate(202, |world| async move {
        members(&world, 2, 2).await;
        run(&world, 1, ENCRYPTED).await.unwrap();
        world.configure(2, |_| {});
        let refused = world.try_join(2).await.unwrap_err();
        assert!(matches!(&refused, JoinError::Refused(Refusal::PlainMember { .. })), "{refused}");
        world.crash(2);
        run(&world, 0, "ALTER TABLE ks.t WITH encryption = {}").await.unwrap();
        world.enter(2).await.unwrap().unwrap();
    });
}
