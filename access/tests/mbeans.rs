//! GRANT and REVOKE on management beans succeed, change nothing, and warn the client of that.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeSet;

use cql_lite::syntax::parse;
use helenus_access::{RolesContext, Subject, authorize, plan_change};
use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, catalog_of};
use helenus_roles::{Alteration, RoleChange, Roles};

#[test]
fn what_is_granted_on_mbeans_gets_a_warning() {
    let created = |role: &str, is_superuser: bool| RoleChange::Create {
        role: role.to_owned(),
        properties: Alteration { is_superuser: Some(is_superuser), ..Alteration::default() },
        if_not_exists: false,
        creator: None,
    };
    let roles = [created("root", true), created("ann", false)]
        .iter()
        .fold(Roles::default(), |roles, change| roles.changed(1, change).unwrap().unwrap());
    let schema = catalog_of(&[CREATE_KEYSPACE]);
    let context = RolesContext {
        subject: Subject { roles: &roles, user: Some("root"), is_enforced: true },
        catalog: &schema.catalog,
        keyspace: None,
        data_centers: &BTreeSet::new(),
        has_logins: true,
        data_center: None,
        restricts_networks: false,
    };
    let told = "Permissions on MBeans have no effect: there are no MBeans";
    for (statement, expected) in [
        ("GRANT SELECT ON ALL MBEANS TO ann", vec![told]),
        ("GRANT EXECUTE ON MBEAN 'java.lang:type=Memory' TO ann", vec![told]),
        ("GRANT EXECUTE ON MBEANS 'java.lang:*' TO ann", vec![told]),
        (
            "REVOKE EXECUTE ON MBEAN 'java.lang:type=Memory' FROM ann",
            vec![told, "Role 'ann' was not granted EXECUTE on <mbean java.lang:type=Memory>"],
        ),
        ("GRANT SELECT ON KEYSPACE ks TO ann", vec![]),
    ] {
        let parsed = parse(statement).unwrap();
        authorize(&parsed, &context).unwrap();
        let planned = plan_change(&parsed, &context).unwrap().unwrap();
        assert_eq!(planned.warnings, expected, "{statement}");
    }
}
