use super::*;
use crate::document::RolesDocument;
use crate::role::Grants;
use cql_lite::syntax::ast::Permission;
use proptest::prelude::*;

fn create(role: &str) -> RoleChange {
    RoleChange::Create {
        role: role.to_owned(),
        properties: Alteration::default(),
        if_not_exists: false,
        creator: None,
    }
}

fn grant_role(role: &str, grantee: &str) -> RoleChange {
    RoleChange::GrantRole { role: role.to_owned(), grantee: grantee.to_owned() }
}

fn granted(permission: Permission, resource: Resource, grantee: &str) -> RoleChange {
    let permissions = PermissionSet::of(&[permission]);
    RoleChange::Grant { grants: BTreeMap::from([(resource, permissions)]), grantee: grantee.to_owned() }
}

/// The roles after these changes, each of which has an effect.
fn after(changes: &[RoleChange]) -> Roles {
    let apply = |roles: Roles, (index, change): (usize, &RoleChange)| {
        roles.changed(index as u64 + 1, change).unwrap().unwrap_or_else(|| panic!("{change} has no effect"))
    };
    changes.iter().enumerate().fold(Roles::default(), apply)
}

#[test]
fn what_is_granted_on_a_resource_holds_below_it_and_for_members() {
    let roles = after(&[
        create("reader"),
        create("staff"),
        create("ann"),
        grant_role("reader", "staff"),
        grant_role("staff", "ann"),
        granted(Permission::Select, Resource::Keyspace("shop".to_owned()), "reader"),
    ]);
    let orders = Resource::table("shop", "orders");
    assert!(roles.allows("ann", Permission::Select, &orders));
    assert!(roles.allows("ann", Permission::Select, &Resource::AllTables("shop".to_owned())));
    assert!(!roles.allows("ann", Permission::Modify, &orders));
    assert!(!roles.allows("ann", Permission::Select, &Resource::table("other", "orders")));
    assert!(!roles.allows("nobody", Permission::Select, &orders));
    let revoked = RoleChange::RevokeRole { role: "reader".to_owned(), grantee: "staff".to_owned() };
    let roles = roles.changed(9, &revoked).unwrap().unwrap();
    assert!(!roles.allows("ann", Permission::Select, &orders));
}

#[test]
fn what_is_granted_on_a_table_holds_for_its_columns_and_not_the_other_way_round() {
    let column = |name: &str| Resource::column("shop", "orders", name);
    let roles = after(&[
        create("ann"),
        create("bob"),
        granted(Permission::Select, column("price"), "ann"),
        granted(Permission::Select, Resource::table("shop", "orders"), "bob"),
    ]);
    assert!(roles.allows("ann", Permission::Select, &column("price")));
    assert!(!roles.allows("ann", Permission::Select, &column("customer")));
    assert!(!roles.allows("ann", Permission::Modify, &column("price")));
    assert!(!roles.allows("ann", Permission::Select, &Resource::table("shop", "orders")));
    assert!(roles.allows("bob", Permission::Select, &column("price")));
}

#[test]
fn a_change_of_several_grants_has_its_effect_as_a_whole_or_none() {
    let roles = after(&[create("ann")]);
    let grants: Grants = [Resource::table("k", "t"), Resource::Role("nobody".to_owned())]
        .map(|resource| (resource, PermissionSet::of(&[Permission::Alter])))
        .into();
    let change = RoleChange::Grant { grants, grantee: "ann".to_owned() };
    assert_eq!(roles.changed(9, &change), Err(RoleError::Unknown { role: "nobody".to_owned() }));
}

#[test]
fn grants_follow_their_columns_to_other_names_and_go_with_them() {
    let column = |name: &str| Resource::column("k", "t", name);
    let roles = after(&[
        create("ann"),
        granted(Permission::Select, column("a"), "ann"),
        granted(Permission::Modify, column("b"), "ann"),
        granted(Permission::Select, column("c"), "ann"),
        granted(Permission::Select, Resource::table("k", "t"), "ann"),
    ]);
    assert_eq!(roles.after_schema_change(9, |_| Fate::Stays), None);
    let changed = roles.after_schema_change(9, |resource| match resource {
        Resource::Column { column: name, .. } if name == "a" => Fate::Renamed(column("b")),
        Resource::Column { column: name, .. } if name == "b" => Fate::Renamed(column("a")),
        Resource::Column { .. } => Fate::Gone,
        _ => Fate::Stays,
    });
    let changed = changed.unwrap();
    let grants: Vec<String> = changed
        .role("ann")
        .unwrap()
        .grants
        .iter()
        .map(|(on, what)| format!("{} on {on}", what.names()))
        .collect();
    assert_eq!(grants, ["SELECT on <table k.t>", "MODIFY on <column k.t.a>", "SELECT on <column k.t.b>"]);
    assert_eq!(changed.version(), 9);
}

#[test]
fn a_member_of_a_superuser_is_one() {
    let root = RoleChange::SetSuperuser {
        role: "root".to_owned(),
        salted_hash: SaltedHash::new("hash"),
        resets: false,
    };
    let roles = after(&[root.clone(), create("ann"), grant_role("root", "ann")]);
    assert!(roles.is_superuser("ann"));
    assert!(!roles.role("ann").unwrap().can_login, "a role's login is its own");
    assert_eq!(format!("{:?}", roles.role("root").unwrap().salted_hash), "Some(SaltedHash)");
    assert!(roles.allows("ann", Permission::Drop, &Resource::AllRoles));
    assert_eq!(roles.changed(4, &root), Err(RoleError::SuperuserExists { role: "root".to_owned() }));
}

#[test]
fn who_may_log_in_works_where_nothing_else_was_said() {
    let named = |datacenter: &str| Some(Access::Only(BTreeSet::from([datacenter.to_owned()])));
    let role = |name: &str, properties: Alteration| RoleChange::Create {
        role: name.to_owned(),
        properties,
        if_not_exists: false,
        creator: None,
    };
    let login = Alteration { can_login: Some(true), ..Alteration::default() };
    let roles = after(&[
        role("everywhere", login.clone()),
        role("here", Alteration { datacenters: named("dc1"), ..login.clone() }),
        role("there", Alteration { datacenters: named("dc2"), ..login.clone() }),
        role("root", Alteration { datacenters: named("dc2"), is_superuser: Some(true), ..login }),
        create("no_login"),
    ]);
    let may_enter = |name: &&str| roles.may_enter(name, "dc1");
    let names = ["everywhere", "here", "there", "root", "no_login", "nobody"];
    assert_eq!(names.into_iter().filter(may_enter).collect::<Vec<_>>(), ["everywhere", "here", "root"]);
}

#[test]
fn no_role_is_a_member_of_itself() {
    let roles = after(&[create("a"), create("b"), create("c"), grant_role("a", "b"), grant_role("b", "c")]);
    for (role, grantee) in [("c", "a"), ("a", "a"), ("b", "a"), ("a", "c")] {
        let refused = roles.changed(9, &grant_role(role, grantee));
        assert!(matches!(refused, Err(RoleError::AlreadyMember { .. })), "{role} to {grantee}");
    }
}

#[test]
fn nothing_is_left_of_a_dropped_role() {
    let on_role = Resource::Role("b".to_owned());
    let identity = RoleChange::AddIdentity {
        identity: "spiffe://b".to_owned(),
        role: "b".to_owned(),
        if_not_exists: false,
    };
    let roles = after(&[
        create("a"),
        create("b"),
        grant_role("b", "a"),
        granted(Permission::Alter, on_role.clone(), "a"),
        identity,
    ]);
    let drop = RoleChange::Drop { role: "b".to_owned(), if_exists: false };
    let roles = roles.changed(6, &drop).unwrap().unwrap();
    assert_eq!(roles.role("a"), Some(&Role::default()));
    assert_eq!(roles.role_of_identity("spiffe://b"), None);
    let again = roles.changed(7, &create("b")).unwrap().unwrap();
    assert!(!again.allows("a", Permission::Alter, &on_role));
    assert_eq!(roles.changed(7, &drop), Err(RoleError::Unknown { role: "b".to_owned() }));
}

#[test]
fn a_creator_may_do_everything_with_the_role() {
    let created = RoleChange::Create {
        role: "b".to_owned(),
        properties: Alteration::default(),
        if_not_exists: false,
        creator: Some("a".to_owned()),
    };
    let roles = after(&[create("a"), created]);
    let resource = Resource::Role("b".to_owned());
    assert_eq!(roles.granted_on("a", &resource), resource.applicable());
}

#[test]
fn a_group_of_networks_that_a_role_names_stays() {
    let group = RoleChange::SetCidrGroup {
        group: "office".to_owned(),
        networks: BTreeSet::from(["10.0.0.0/8".parse().unwrap()]),
    };
    let from = |group: &str| RoleChange::Alter {
        role: "a".to_owned(),
        properties: Alteration {
            cidr_groups: Some(Access::Only(BTreeSet::from([group.to_owned()]))),
            ..Alteration::default()
        },
        if_exists: false,
    };
    let roles = after(&[create("a"), group, from("office")]);
    assert_eq!(roles.groups_of("10.1.2.3".parse().unwrap()).collect::<Vec<_>>(), ["office"]);
    let dropped = roles.changed(4, &RoleChange::DropCidrGroup { group: "office".to_owned() });
    assert!(matches!(dropped, Err(RoleError::CidrGroupInUse { .. })));
    assert!(matches!(roles.changed(4, &from("home")), Err(RoleError::UnknownCidrGroup { .. })));
}

fn any_change() -> impl Strategy<Value = RoleChange> {
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned);
    let resource = || {
        prop_oneof![
            Just(Resource::AllKeyspaces),
            Just(Resource::table("k", "t")),
            name().prop_map(|column| Resource::column("k", "t", &column)),
            name().prop_map(Resource::Role),
        ]
    };
    let permissions = || {
        prop_oneof![
            Just(PermissionSet::of(&[Permission::Alter])),
            Just(PermissionSet::of(&[Permission::Alter, Permission::Drop])),
        ]
    };
    let grants = || prop::collection::btree_map(resource(), permissions(), 1..3);
    prop_oneof![
        (name(), any::<bool>()).prop_map(|(role, if_not_exists)| RoleChange::Create {
            role,
            properties: Alteration { is_superuser: Some(if_not_exists), ..Alteration::default() },
            if_not_exists,
            creator: Some("a".to_owned()),
        }),
        (name(), any::<bool>()).prop_map(|(role, if_exists)| RoleChange::Drop { role, if_exists }),
        (name(), name()).prop_map(|(role, grantee)| RoleChange::GrantRole { role, grantee }),
        (name(), name()).prop_map(|(role, grantee)| RoleChange::RevokeRole { role, grantee }),
        (grants(), name()).prop_map(|(grants, grantee)| RoleChange::Grant { grants, grantee }),
        (grants(), name()).prop_map(|(grants, grantee)| RoleChange::Revoke { grants, grantee }),
        name().prop_map(|role| RoleChange::AddIdentity {
            identity: format!("spiffe://{role}"),
            role,
            if_not_exists: true,
        }),
    ]
}

proptest! {
    #[test]
    fn the_invariants_hold_after_any_changes_and_documents_lead_to_the_same(
        changes in prop::collection::vec(any_change(), 1..40),
        base_at in 0_usize..40,
    ) {
        let mut roles = Roles::default();
        let mut base = roles.clone();
        for (index, change) in changes.iter().enumerate() {
            if index == base_at {
                base = roles.clone();
            }
            if let Ok(Some(changed)) = roles.changed(index as u64 + 1, change) {
                let is_same = changed.by_name == roles.by_name && changed.identities == roles.identities;
                prop_assert!(!is_same, "{} has no effect", change);
                roles = changed;
            }
        }
        for (name, role) in roles.iter() {
            for granted in &role.member_of {
                prop_assert!(roles.role(granted).is_some());
                prop_assert!(!roles.closure(granted).contains(name));
            }
            for (resource, permissions) in &role.grants {
                prop_assert!(!permissions.is_empty());
                if let Resource::Role(on) = resource {
                    prop_assert!(roles.role(on).is_some());
                }
            }
        }
        prop_assert!(roles.identities().all(|(_, role)| roles.role(role).is_some()));
        for (document, base) in [(RolesDocument::of(&roles), Roles::default()), (RolesDocument::since(&base, &roles), base)] {
            let text = serde_json::to_string(&document).unwrap();
            let read: RolesDocument = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read.over(&base), &roles);
        }
    }
}
