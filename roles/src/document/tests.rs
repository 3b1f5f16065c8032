//! The texts in which roles and their changes are stored and sent: later programs read these.

use super::*;
use crate::change::{Access, Alteration, RoleChange};
use crate::permission::PermissionSet;
use crate::resource::{FunctionSignature, Resource};
use crate::role::SaltedHash;
use cql_lite::syntax::ast::Permission;

fn texts(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn check<T: Serialize + for<'d> Deserialize<'d> + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), text);
    assert_eq!(serde_json::from_str::<T>(text).unwrap(), *value);
}

#[test]
fn a_change_has_this_text() {
    let properties = Alteration {
        is_superuser: Some(true),
        salted_hash: Some(SaltedHash::new("$2a$10$x")),
        datacenters: Some(Access::Only(texts(&["dc1"]))),
        cidr_groups: Some(Access::All),
        ..Alteration::default()
    };
    check(
        &RoleChange::Create {
            role: "ann".to_owned(),
            properties,
            if_not_exists: true,
            creator: Some("root".to_owned()),
        },
        r#"{"Create":{"role":"ann","properties":{"is_superuser":true,"can_login":null,"salted_hash":"$2a$10$x","datacenters":{"Only":["dc1"]},"cidr_groups":"All"},"if_not_exists":true,"creator":"root"}}"#,
    );
    let function = FunctionSignature {
        keyspace: "k".to_owned(),
        name: "f".to_owned(),
        argument_types: vec!["int".to_owned()],
    };
    check(
        &RoleChange::Grant {
            permissions: PermissionSet::of(&[Permission::Alter, Permission::SelectMasked]),
            resource: Resource::Function(function),
            grantee: "ann".to_owned(),
        },
        r#"{"Grant":{"permissions":["ALTER","SELECT_MASKED"],"resource":{"Function":{"keyspace":"k","name":"f","argument_types":["int"]}},"grantee":"ann"}}"#,
    );
    check(
        &RoleChange::SetCidrGroup {
            group: "office".to_owned(),
            networks: BTreeSet::from(["10.0.0.0/8".parse().unwrap()]),
        },
        r#"{"SetCidrGroup":{"group":"office","networks":["10.0.0.0/8"]}}"#,
    );
}

#[test]
fn a_document_has_this_text() {
    let mut roles = Roles::default();
    let mut change = |change: &RoleChange| roles = roles.changed(7, change).unwrap().unwrap();
    let made = |role: &str| RoleChange::Create {
        role: role.to_owned(),
        properties: Alteration { can_login: Some(true), ..Alteration::default() },
        if_not_exists: false,
        creator: None,
    };
    change(&made("a"));
    change(&made("b"));
    change(&RoleChange::GrantRole { role: "a".to_owned(), grantee: "b".to_owned() });
    change(&RoleChange::Grant {
        permissions: PermissionSet::of(&[Permission::Select]),
        resource: Resource::table("k", "t"),
        grantee: "b".to_owned(),
    });
    change(&RoleChange::AddIdentity {
        identity: "spiffe://b".to_owned(),
        role: "b".to_owned(),
        if_not_exists: false,
    });
    let document = RolesDocument::of(&roles);
    check(
        &document,
        r#"{"version":7,"roles":{"a":{"is_superuser":false,"can_login":true},"b":{"is_superuser":false,"can_login":true,"member_of":["a"],"grants":[[{"Table":{"keyspace":"k","table":"t"}},["SELECT"]]]}},"identities":{"spiffe://b":"b"}}"#,
    );
    assert_eq!(document.over(&Roles::default()), roles);
}
