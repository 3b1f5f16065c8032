//! What superusers alone may do, whatever permissions others have: change superusers, and make logins as a role costly.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::BTreeSet;

use cql_lite::syntax::parse;
use helenus_access::{RolesContext, Subject, authorize, plan_change};
use helenus_query::schema::test_catalog::catalog_of;
use helenus_roles::{Alteration, Permission, PermissionSet, Resource, RoleChange, Roles};

/// `ann` has all permissions on all roles and is no superuser; `boss` is one, since it is a member of `root`; `bob` is an ordinary role.
fn roles() -> Roles {
    let created = |role: &str, is_superuser: bool| RoleChange::Create {
        role: role.to_owned(),
        properties: Alteration { is_superuser: Some(is_superuser), ..Alteration::default() },
        if_not_exists: false,
        creator: None,
    };
    let identity = |identity: &str, role: &str| RoleChange::AddIdentity {
        identity: identity.to_owned(),
        role: role.to_owned(),
        if_not_exists: false,
    };
    let all = [Permission::Create, Permission::Alter, Permission::Drop, Permission::Authorize];
    let changes = [
        created("root", true),
        created("boss", false),
        created("ann", false),
        created("bob", false),
        RoleChange::GrantRole { role: "root".to_owned(), grantee: "boss".to_owned() },
        RoleChange::Grant {
            grants: [(Resource::AllRoles, PermissionSet::of(&all))].into(),
            grantee: "ann".to_owned(),
        },
        identity("spiffe://root", "root"),
        identity("spiffe://bob", "bob"),
    ];
    changes.iter().fold(Roles::default(), |roles, change| roles.changed(1, change).unwrap().unwrap())
}

/// The refusal of a statement; empty: it is none.
fn refusal(user: &str, is_enforced: bool, statement: &str) -> String {
    let (roles, schema) = (roles(), catalog_of::<&str>(&[]));
    let context = RolesContext {
        subject: Subject { roles: &roles, user: Some(user), is_enforced },
        catalog: &schema.catalog,
        keyspace: None,
        data_centers: &BTreeSet::new(),
        has_logins: true,
        data_center: None,
        restricts_networks: false,
    };
    let parsed = parse(statement).unwrap();
    let outcome = authorize(&parsed, &context).and_then(|()| plan_change(&parsed, &context).map(drop));
    outcome.map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn only_superusers_change_superusers_and_their_identities() {
    for (statement, expected) in [
        ("ALTER ROLE root WITH PASSWORD = 'x'", "Only superusers can alter a role with superuser status"),
        ("ALTER ROLE boss WITH GENERATED PASSWORD", "Only superusers can alter a role with superuser status"),
        ("ALTER USER root WITH PASSWORD 'x'", "Only superusers can alter a role with superuser status"),
        ("ALTER ROLE root WITH LOGIN = false", "Only superusers can alter a role with superuser status"),
        (
            "ADD IDENTITY 'spiffe://ann' TO ROLE 'root'",
            "Only superusers can add an identity to a role with superuser status",
        ),
        (
            "ADD IDENTITY IF NOT EXISTS 'spiffe://ann' TO ROLE 'boss'",
            "Only superusers can add an identity to a role with superuser status",
        ),
        (
            "DROP IDENTITY 'spiffe://root'",
            "Only superusers can drop an identity of a role with superuser status",
        ),
        ("DROP ROLE root", "Only superusers can drop a role with superuser status"),
    ] {
        for is_enforced in [true, false] {
            assert_eq!(refusal("ann", is_enforced, statement), expected, "{statement}");
        }
        if statement != "DROP ROLE root" {
            assert_eq!(refusal("boss", true, statement), "", "{statement}");
        }
    }
}

#[test]
fn permissions_on_roles_suffice_for_those_of_others() {
    for statement in [
        "ALTER ROLE bob WITH PASSWORD = 'x'",
        "ALTER ROLE ann WITH PASSWORD = 'x'",
        "ADD IDENTITY 'spiffe://new' TO ROLE 'bob'",
        "ADD IDENTITY 'spiffe://new' TO ROLE 'ann'",
        "DROP IDENTITY 'spiffe://bob'",
        "DROP IDENTITY IF EXISTS 'spiffe://nobody'",
    ] {
        assert_eq!(refusal("ann", true, statement), "", "{statement}");
    }
}

/// Each attempt to log in as a role costs the work of its hash.
#[test]
fn only_superusers_set_hashes_with_more_work_than_usual() {
    let rest = "qTgJmgsGZ9qN.xLa1lJr/.XAV/amfiGviLBqdVcK4dcIV2ktd/kxW";
    for role in ["ALTER ROLE ann", "ALTER ROLE bob", "CREATE ROLE new"] {
        let statement = |cost| format!("{role} WITH HASHED PASSWORD = '$2a${cost}${rest}'");
        let refused = "Invalid hashed password value: its cost must be from 4 to 10; only superusers set hashes with a greater one.";
        assert_eq!(refusal("ann", true, &statement("16")), refused);
        assert_eq!(refusal("ann", false, &statement("11")), refused);
        assert_eq!(refusal("ann", true, &statement("10")), "");
        assert_eq!(refusal("root", true, &statement("16")), "");
    }
}
