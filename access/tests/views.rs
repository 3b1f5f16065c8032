//! Permissions on views, which are those on what they are computed of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up fails")]

use std::collections::BTreeSet;

use cql_lite::syntax::parse;
use helenus_access::{RolesContext, Subject, created_resources, demands, plan_change};
use helenus_query::schema::catalog::CatalogView;
use helenus_query::schema::ddl::{ChangeTarget, ChangeType, SchemaChangeEvent};
use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, catalog_of, changed, with_view};
use helenus_query::statement::Statement;
use helenus_roles::{Alteration, Resource, RoleChange, Roles};

/// Table `orders` with view `by_buyer`, projection `sums` of that view, projection `named` with a join to `people.users`.
fn schema() -> CatalogView {
    let tables = [
        CREATE_KEYSPACE,
        "CREATE KEYSPACE people WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE orders (id int PRIMARY KEY, buyer int, price int)",
        "CREATE TABLE people.users (id int PRIMARY KEY, name text)",
        "CREATE TABLE by_buyer (buyer int, id int, price int, PRIMARY KEY (buyer, id))",
        "CREATE TABLE sums (buyer int PRIMARY KEY, total int)",
        "CREATE TABLE named (name text, id int, PRIMARY KEY (name, id))",
        "CREATE FUNCTION twice (x int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return x'",
    ];
    [
        "CREATE MATERIALIZED VIEW by_buyer AS SELECT * FROM orders WHERE buyer IS NOT NULL PRIMARY KEY (buyer, id)",
        "CREATE PROJECTION sums AS SELECT buyer, sum(price) AS total FROM by_buyer GROUP BY buyer PRIMARY KEY (buyer)",
        "CREATE PROJECTION named AS SELECT name, o.id FROM orders o JOIN people.users u ON u.id = buyer PRIMARY KEY (name, id)",
    ]
    .iter()
    .fold(catalog_of(&tables), |schema, view| with_view(&schema, view))
}

/// Role `ann` after these statements of a superuser.
fn granted(schema: &CatalogView, grants: &[&str]) -> Roles {
    let created = |role: &str, is_superuser: bool| RoleChange::Create {
        role: role.to_owned(),
        properties: Alteration { is_superuser: Some(is_superuser), ..Alteration::default() },
        if_not_exists: false,
        creator: None,
    };
    let changes = [created("root", true), created("ann", false)];
    let roles =
        changes.iter().fold(Roles::default(), |roles, change| roles.changed(1, change).unwrap().unwrap());
    grants.iter().fold(roles, |roles, grant| {
        let planned = plan_change(
            &parse(grant).unwrap(),
            &RolesContext {
                subject: Subject { roles: &roles, user: Some("root"), is_enforced: true },
                catalog: &schema.catalog,
                keyspace: Some("ks"),
                data_centers: &BTreeSet::new(),
                has_logins: true,
                data_center: None,
                restricts_networks: false,
            },
        );
        let change = planned.unwrap_or_else(|error| panic!("{grant}: {error}")).unwrap().change;
        roles.changed(roles.version() + 1, &change).unwrap().unwrap()
    })
}

/// The answer to a statement of the role `ann`.
fn asked(schema: &CatalogView, grants: &[&str], user: &str, text: &str) -> Result<(), String> {
    let statement =
        Statement::new(text, Some("ks"), schema).unwrap_or_else(|error| panic!("{text}: {error}"));
    let roles = granted(schema, grants);
    let subject = Subject { roles: &roles, user: Some(user), is_enforced: true };
    subject.ensure_all(&demands(&statement, &schema.catalog)).map_err(|error| error.to_string())
}

/// Fails unless a statement needs exactly these grants, and names what each of them is for in the order in which they are checked.
fn needs(schema: &CatalogView, text: &str, grants: &[(&str, &str)]) {
    let all: Vec<&str> = grants.iter().map(|(grant, _)| *grant).collect();
    assert_eq!(asked(schema, &all, "ann", text), Ok(()), "{text}");
    for (at, (grant, missing)) in grants.iter().enumerate() {
        let mut others = all.clone();
        others.remove(at);
        let refusal = format!("User ann has no {missing} or any of its parents");
        assert_eq!(asked(schema, &others, "ann", text), Err(refusal), "{text} without {grant}");
    }
}

const SELECT_ORDERS: (&str, &str) =
    ("GRANT SELECT ON orders TO ann", "SELECT permission on <table ks.orders>");
const SELECT_USERS: (&str, &str) =
    ("GRANT SELECT ON people.users TO ann", "SELECT permission on <table people.users>");
const ALTER_ORDERS: (&str, &str) = ("GRANT ALTER ON orders TO ann", "ALTER permission on <table ks.orders>");

#[test]
fn a_view_is_read_by_who_may_read_what_it_is_computed_of() {
    let schema = schema();
    needs(&schema, "SELECT * FROM by_buyer", &[SELECT_ORDERS]);
    needs(&schema, "SELECT * FROM by_buyer WHERE buyer = 1 WITH FRESHNESS 1s", &[SELECT_ORDERS]);
    needs(&schema, "SELECT total FROM sums", &[SELECT_ORDERS]);
    needs(&schema, "SELECT name FROM named", &[SELECT_ORDERS, SELECT_USERS]);
    needs(&schema, "EXPLAIN SELECT name FROM named", &[SELECT_ORDERS, SELECT_USERS]);
    let on_view = ["GRANT SELECT ON by_buyer TO ann"];
    assert!(asked(&schema, &on_view, "ann", "SELECT * FROM by_buyer").is_err());
}

#[test]
fn what_masks_hide_in_the_base_table_is_not_shown_by_views() {
    let schema = changed(&schema(), 90, "ALTER TABLE orders ALTER price MASKED WITH DEFAULT");
    let schema = changed(&schema, 91, "ALTER TABLE people.users ALTER name MASKED WITH DEFAULT");
    let unmask_orders = ("GRANT UNMASK ON orders TO ann", "UNMASK permission on <table ks.orders>");
    let unmask_users = ("GRANT UNMASK ON people.users TO ann", "UNMASK permission on <table people.users>");
    needs(&schema, "SELECT total FROM sums", &[SELECT_ORDERS, unmask_orders]);
    let grants = [SELECT_ORDERS, unmask_orders, SELECT_USERS, unmask_users];
    needs(&schema, "SELECT name FROM named", &grants);
}

#[test]
fn a_view_is_made_and_changed_by_who_may_alter_its_tables() {
    let schema = schema();
    let alter_users = ("GRANT ALTER ON people.users TO ann", "ALTER permission on <table people.users>");
    let create = "CREATE MATERIALIZED VIEW m AS SELECT * FROM orders PRIMARY KEY (id)";
    needs(&schema, create, &[ALTER_ORDERS]);
    let create = "CREATE PROJECTION p AS SELECT * FROM orders o JOIN people.users u ON u.id = o.buyer PRIMARY KEY (id)";
    needs(&schema, create, &[ALTER_ORDERS, alter_users]);
    let execute =
        ("GRANT EXECUTE ON FUNCTION ks.twice(int) TO ann", "EXECUTE permission on <function ks.twice(int)>");
    for create in [
        "CREATE PROJECTION p AS SELECT id, abs(-twice(o.price)) AS price FROM orders o PRIMARY KEY (id)",
        "CREATE PROJECTION p AS SELECT * FROM orders o WHERE o.price IN (1, ks.twice(2)) PRIMARY KEY (id)",
    ] {
        needs(&schema, create, &[ALTER_ORDERS, execute]);
    }
    needs(&schema, "ALTER MATERIALIZED VIEW by_buyer WITH comment = 'x'", &[ALTER_ORDERS]);
    needs(&schema, "ALTER PROJECTION named WITH comment = 'x'", &[ALTER_ORDERS]);
    needs(&schema, "DROP MATERIALIZED VIEW ks.by_buyer", &[ALTER_ORDERS]);
    needs(&schema, "DROP PROJECTION sums", &[ALTER_ORDERS]);
    let create =
        "CREATE PROJECTION p AS SELECT count(*) AS n FROM by_buyer GROUP BY buyer PRIMARY KEY (buyer)";
    needs(&schema, create, &[ALTER_ORDERS]);
    // Its execution says that it does not exist.
    needs(&schema, "DROP PROJECTION nothing", &[]);
    needs(&schema, "DROP PROJECTION IF EXISTS orders", &[]);
}

#[test]
fn a_check_reads_and_a_repair_writes() {
    let schema = schema();
    let modify = ("GRANT MODIFY ON orders TO ann", "MODIFY permission on <table ks.orders>");
    needs(&schema, "CHECK PROJECTION by_buyer", &[SELECT_ORDERS]);
    needs(&schema, "CHECK PROJECTION named REPAIR", &[SELECT_ORDERS, SELECT_USERS, modify]);
    let error = Statement::new("CHECK PROJECTION orders", Some("ks"), &schema).unwrap_err().to_string();
    assert_eq!(error, "ks.orders is no materialized view or projection");
}

#[test]
fn hidden_tables_are_for_superusers() {
    let mut schema = schema();
    let mut catalog = schema.catalog.as_ref().clone();
    let keyspace = std::sync::Arc::make_mut(catalog.keyspaces.get_mut("ks").unwrap());
    let mut hidden = keyspace.tables["by_buyer"].as_ref().clone();
    "by_buyer$rows".clone_into(&mut hidden.name);
    hidden.view = None;
    keyspace.tables.insert(hidden.name.clone(), std::sync::Arc::new(hidden));
    schema.catalog = std::sync::Arc::new(catalog);
    let select = "SELECT * FROM \"by_buyer$rows\"";
    let refusal = "Only superusers are allowed to read the tables from which views are kept".to_owned();
    assert_eq!(asked(&schema, &["GRANT SELECT ON ALL KEYSPACES TO ann"], "ann", select), Err(refusal));
    assert_eq!(asked(&schema, &[], "root", select), Ok(()));
}

#[test]
fn who_creates_a_view_gets_no_permissions_on_it() {
    let schema = schema();
    let created = |table: &str| {
        let event = SchemaChangeEvent {
            change_type: ChangeType::Created,
            target: ChangeTarget::Table,
            keyspace: "ks".to_owned(),
            name: table.to_owned(),
            arguments: Vec::new(),
        };
        created_resources(&event, &schema.catalog)
    };
    assert_eq!(created("named"), []);
    assert_eq!(created("orders"), [Resource::table("ks", "orders")]);
}
