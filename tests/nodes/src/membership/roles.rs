//! Permissions on statements that change the schema, where they are carried out; roles on nodes that are cut off.

use std::time::Duration;

use helenus_config::{Authenticator, Authorizer};
use helenus_query::error::RequestError;
use helenus_roles::{Alteration, Permission, Resource, RoleChange};

use super::KEYSPACE;
use super::harness::{World, simulate};
use helenus::cluster::confirmation;
use helenus::cluster::roles::apply;

/// What a statement demands follows from the catalog. A session may have looked at an older one: there the index of a DROP INDEX was not
/// there yet, and nothing was demanded.
#[test]
fn a_schema_statement_is_authorised_on_the_catalog_that_it_changes() {
    simulate(91, |world| async move {
        world.configure(0, |config| {
            config.authenticator = Authenticator::PasswordAuthenticator;
            config.authorizer = Authorizer::CassandraAuthorizer;
        });
        let node = world.boot(0, &[]).await;
        let made = |role: &str, is_superuser| RoleChange::Create {
            role: role.to_owned(),
            properties: Alteration { is_superuser: Some(is_superuser), ..Alteration::default() },
            if_not_exists: false,
            creator: None,
        };
        apply(&node, made("root", true)).await.unwrap();
        apply(&node, made("ann", false)).await.unwrap();
        node.ddl_as(Some("root"), KEYSPACE).await.unwrap();
        node.ddl_as(Some("root"), "CREATE TABLE ks.t (k int PRIMARY KEY, v int)").await.unwrap();
        node.ddl_as(Some("root"), "CREATE INDEX i ON ks.t (v)").await.unwrap();
        for (user, statement) in [
            (Some("ann"), "DROP INDEX ks.i"),
            (Some("ann"), "DROP TABLE IF EXISTS ks.t"),
            (Some("nobody"), "DROP KEYSPACE ks"),
            (None, "DROP KEYSPACE ks"),
        ] {
            let refused = node.ddl_as(user, statement).await;
            assert!(matches!(refused, Err(RequestError::Unauthorized(_))), "{statement}: {refused:?}");
        }
        assert!(node.catalog().keyspaces["ks"].tables["t"].indexes.len() == 1);
        let table = Resource::table("ks", "t");
        assert!(
            node.roles().role("root").unwrap().granted(&table).contains(Permission::Drop),
            "it made the table"
        );
    });
}

/// A node that is cut off does not know whether what it has was revoked meanwhile.
#[test]
fn that_a_permission_is_there_already_is_promised_only_with_the_leader() {
    simulate(93, |world| async move {
        for index in 0..3 {
            world.configure(index, |config| {
                config.authenticator = Authenticator::PasswordAuthenticator;
                config.authorizer = Authorizer::CassandraAuthorizer;
            });
        }
        world.grow_to(3).await;
        for (role, is_superuser) in [("root", true), ("ann", false)] {
            let properties = Alteration { is_superuser: Some(is_superuser), ..Alteration::default() };
            let (role, creator) = (role.to_owned(), None);
            let create = RoleChange::Create { role, properties, if_not_exists: false, creator };
            apply(&world.node(0), create).await.unwrap();
        }
        let grant = "GRANT SELECT ON ALL KEYSPACES TO ann";
        world.node(0).roles_as("root", grant).await.unwrap();
        let follower = (world.leader().unwrap() + 1) % 3;
        let there = world.node(follower);
        there.roles_as("root", grant).await.unwrap();
        let others: Vec<usize> = (0..3).filter(|index| *index != follower).collect();
        for other in &others {
            world.links.set_silent(*other, true);
        }
        let refused = there.roles_as("root", grant).await;
        assert!(matches!(refused, Err(RequestError::Server(_))), "{refused:?}");
        // What it knows it tells.
        there.roles_as("root", "LIST ALL PERMISSIONS OF ann").await.unwrap();
        there.roles_as("root", "LIST ALL PERMISSIONS ON ALL ROLES OF ann").await.unwrap();
        for other in &others {
            world.links.set_silent(*other, false);
        }
        world.settle().await;
        there.roles_as("root", grant).await.unwrap();
    });
}

/// Three members whose clients log in; a node may go on for ten seconds with roles that it cannot confirm.
async fn three_with_logins(world: &World) {
    for index in 0..3 {
        world.configure(index, |config| {
            config.authenticator = Authenticator::PasswordAuthenticator;
            config.authorizer = Authorizer::CassandraAuthorizer;
            config.unconfirmed_roles_limit_ms = 10_000;
        });
    }
    world.grow_to(3).await;
    for index in 0..3 {
        begin(world, index).await;
    }
}

/// Does what the start of a node does before it accepts clients.
async fn begin(world: &World, index: usize) {
    world.on(index, async |context| confirmation::begin(&context).await).await.unwrap();
}

fn is_refused(world: &World, index: usize) -> bool {
    matches!(confirmation::check(&world.node(index)), Err(RequestError::RolesUnconfirmed { .. }))
}

/// Cuts a member off in a way that it does not hear of, and looks at it before and after the limit.
async fn cut_off(world: &World, member: usize) {
    let others: Vec<usize> = (0..3).filter(|index| *index != member).collect();
    world.settle().await;
    assert!((0..3).all(|index| !is_refused(world, index)), "all are confirmed");
    for other in &others {
        world.links.set_silent(*other, true);
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(!is_refused(world, member), "the limit is ten seconds");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(is_refused(world, member));
    let node = world.node(member);
    assert!(node.metrics.roles_unconfirmed.get() > 0);
    assert!(confirmation::age(&node).unwrap() > Duration::from_secs(10));
    for other in &others {
        world.links.set_silent(*other, false);
    }
    world.settle().await;
    assert!((0..3).all(|index| !is_refused(world, index)), "it knows the newest roles again");
}

#[test]
fn a_member_that_cannot_ask_the_leader_refuses_clients_after_the_limit() {
    simulate(94, |world| async move {
        three_with_logins(&world).await;
        let follower = (world.leader().unwrap() + 1) % 3;
        cut_off(&world, follower).await;
    });
}

/// It takes itself for the leader for a while, and its own log for the newest.
#[test]
fn a_leader_that_no_majority_confirms_refuses_clients_after_the_limit() {
    simulate(95, |world| async move {
        three_with_logins(&world).await;
        let leader = world.leader().unwrap();
        cut_off(&world, leader).await;
    });
}

#[test]
fn a_member_that_starts_alone_refuses_clients() {
    simulate(96, |world| async move {
        three_with_logins(&world).await;
        world.settle().await;
        (0..3).for_each(|index| world.crash(index));
        world.boot(0, &[]).await;
        begin(&world, 0).await;
        assert!(is_refused(&world, 0), "it does not know what was revoked while it was away");
        world.boot(1, &[]).await;
        begin(&world, 1).await;
        world.settle().await;
        assert!(!is_refused(&world, 0) && !is_refused(&world, 1), "a majority is there");
    });
}
