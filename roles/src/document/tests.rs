//! The texts in which roles and their changes are stored and sent: later programs read these.

use super::*;
use crate::change::{Access, Alteration, RoleChange};
use crate::options::RoleOptions;
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
        options: Some(RoleOptions { shares: Some(50), requests_per_second_max: None, max_charge: None }),
        ..Alteration::default()
    };
    check(
        &RoleChange::Create {
            role: "ann".to_owned(),
            properties,
            if_not_exists: true,
            creator: Some("root".to_owned()),
        },
        r#"{"Create":{"role":"ann","properties":{"is_superuser":true,"can_login":null,"salted_hash":"$2a$10$x","datacenters":{"Only":["dc1"]},"cidr_groups":"All","options":{"shares":50,"requests_per_second_max":null}},"if_not_exists":true,"creator":"root"}}"#,
    );
    let function = FunctionSignature {
        keyspace: "k".to_owned(),
        name: "f".to_owned(),
        argument_types: vec!["int".to_owned()],
    };
    check(
        &RoleChange::Grant {
            grants: BTreeMap::from([(
                Resource::Function(function),
                PermissionSet::of(&[Permission::Alter, Permission::SelectMasked]),
            )]),
            grantee: "ann".to_owned(),
        },
        r#"{"Grant":{"grants":[[{"Function":{"keyspace":"k","name":"f","argument_types":["int"]}},["ALTER","SELECT_MASKED"]]],"grantee":"ann"}}"#,
    );
    check(
        &RoleChange::Revoke {
            grants: BTreeMap::from([
                (Resource::table("k", "t"), PermissionSet::of(&[Permission::Drop])),
                (Resource::column("k", "t", "c"), PermissionSet::of(&[Permission::Select])),
            ]),
            grantee: "ann".to_owned(),
        },
        r#"{"Revoke":{"grants":[[{"Table":{"keyspace":"k","table":"t"}},["DROP"]],[{"Column":{"keyspace":"k","table":"t","column":"c"}},["SELECT"]]],"grantee":"ann"}}"#,
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
        grants: BTreeMap::from([
            (Resource::table("k", "t"), PermissionSet::of(&[Permission::Select])),
            (Resource::column("k", "u", "c"), PermissionSet::of(&[Permission::Modify])),
        ]),
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
        r#"{"version":7,"roles":{"a":{"is_superuser":false,"can_login":true},"b":{"is_superuser":false,"can_login":true,"member_of":["a"],"grants":[[{"Table":{"keyspace":"k","table":"t"}},["SELECT"]],[{"Column":{"keyspace":"k","table":"u","column":"c"}},["MODIFY"]]]}},"identities":{"spiffe://b":"b"}}"#,
    );
    assert_eq!(document.over(&Roles::default()), roles);
}
