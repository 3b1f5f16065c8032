//! Changes of roles, and what changes of the schema mean for them.

use helenus_roles::{Alteration, Grants, Permission, PermissionSet, Resource, RoleChange, RoleError};

use super::*;

/// A founded cluster whose members know roles.
fn founded() -> Log {
    let mut log = Log::empty();
    let catalog = CatalogDocument::of(&initial_catalog(id(1000)));
    log.done(&Command::Found { member: Member { feature_version: SECURITY, ..member(1) }, catalog });
    log
}

fn create(number: u128, role: &str) -> Command {
    Command::ChangeRoles {
        id: id(number),
        change: RoleChange::Create {
            role: role.to_owned(),
            properties: Alteration::default(),
            if_not_exists: false,
            creator: None,
        },
    }
}

fn grant(number: u128, resource: Resource) -> Command {
    let grants = Grants::from([(resource, PermissionSet::of(&[Permission::Select]))]);
    Command::ChangeRoles { id: id(number), change: RoleChange::Grant { grants, grantee: "ann".to_owned() } }
}

#[test]
fn a_change_of_roles_that_is_proposed_again_has_no_effect() {
    let mut log = founded();
    log.done(&create(1, "ann"));
    log.again(&create(1, "ann"));
    let exists = RoleError::AlreadyExists { role: "ann".to_owned() };
    log.refused(&create(2, "ann"), Refusal::Roles(exists));
    assert_eq!(log.state.roles.iter().count(), 1);
}

#[test]
fn roles_wait_for_members_that_do_not_know_them() {
    let mut log = Log::founded();
    log.refused(&create(1, "ann"), Refusal::RolesTooEarly { needed: SECURITY, level: 1 });
}

#[test]
fn grants_go_with_their_table_and_do_not_come_back_with_another_one_of_the_name() {
    let mut log = founded();
    let table = Resource::table("ks", "t");
    log.done(&create(1, "ann"));
    log.refused(&grant(2, table.clone()), {
        Refusal::Roles(RoleError::UnknownResource { resource: table.clone() })
    });
    log.done(&schema_change(&log.state, 2000, &["CREATE TABLE t (k int PRIMARY KEY)"]));
    log.done(&grant(3, table.clone()));
    log.done(&grant(4, Resource::Keyspace("ks".to_owned())));
    assert!(log.state.roles.allows("ann", Permission::Select, &table));
    log.done(&schema_change(&log.state, 3000, &[]));
    let granted = |log: &Log| log.state.roles.role("ann").map(|role| role.grants.len());
    assert_eq!(granted(&log), Some(1), "that of the keyspace");
    log.done(&schema_change(&log.state, 4000, &["CREATE TABLE t (k int PRIMARY KEY)"]));
    assert_eq!(granted(&log), Some(1));
}

#[test]
fn grants_on_a_column_follow_it_to_another_name_and_go_with_it() {
    let mut log = founded();
    log.done(&create(1, "ann"));
    log.done(&schema_change(&log.state, 2000, &["CREATE TABLE t (k int PRIMARY KEY, v int)"]));
    let column = |name: &str| Resource::column("ks", "t", name);
    log.refused(&grant(2, column("w")), {
        Refusal::Roles(RoleError::UnknownResource { resource: column("w") })
    });
    log.done(&grant(3, column("k")));
    log.done(&grant(4, column("v")));
    let granted = |log: &Log| -> Vec<Resource> {
        log.state.roles.role("ann").unwrap().grants.keys().cloned().collect()
    };
    let mut statements = vec!["CREATE TABLE t (k int PRIMARY KEY, v int)"];
    let steps = [
        ("ALTER TABLE t RENAME k TO id", vec![column("id"), column("v")]),
        ("ALTER TABLE t DROP v", vec![column("id")]),
        ("ALTER TABLE t ADD v int", vec![column("id")]),
        ("ALTER TABLE t ADD k int", vec![column("id")]),
    ];
    for (number, (statement, wanted)) in (3000..).zip(steps) {
        statements.push(statement);
        log.done(&schema_change(&log.state, number, &statements));
        assert_eq!(granted(&log), wanted, "{statement}");
    }
}

#[test]
fn who_makes_a_table_gets_all_permissions_on_it() {
    let mut log = founded();
    log.done(&create(1, "ann"));
    let table = Resource::table("ks", "t");
    let Command::ChangeSchema(mut change) =
        schema_change(&log.state, 2000, &["CREATE TABLE t (k int PRIMARY KEY)"])
    else {
        unreachable!("it is a change of the schema")
    };
    change.creator = Some(Creator { role: "ann".to_owned(), created: vec![table.clone()] });
    log.done(&Command::ChangeTables(change));
    assert_eq!(log.state.roles.granted_on("ann", &table), table.applicable());
}

#[test]
fn the_changes_of_a_state_have_its_changed_roles() {
    let mut log = founded();
    log.done(&create(1, "ann"));
    let base = log.state.clone();
    log.done(&create(2, "bob"));
    let drop = RoleChange::Drop { role: "ann".to_owned(), if_exists: false };
    log.done(&Command::ChangeRoles { id: id(3), change: drop });
    let document = serde_json::to_vec(&log.state.document_since(&base)).unwrap();
    let document: StateDocument = serde_json::from_slice(&document).unwrap();
    let state = document.state_over(&base).unwrap();
    assert_eq!(state.roles, log.state.roles);
    assert_eq!(state.roles.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["bob"]);
}
