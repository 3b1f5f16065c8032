//! Permissions on statements that change the schema, where they are carried out.

use helenus_config::{Authenticator, Authorizer};
use helenus_query::error::RequestError;
use helenus_roles::{Alteration, Permission, Resource, RoleChange};

use super::KEYSPACE;
use super::harness::simulate;
use crate::cluster::roles::apply;

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
