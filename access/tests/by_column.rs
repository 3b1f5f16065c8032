//! Permissions on single columns: which columns statements need, who may grant them, and where they are shown.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up fails")]

use std::collections::BTreeSet;

use cql_lite::syntax::parse;
use helenus_access::{Listed, RolesContext, Subject, authorize, demands, list, plan_change, script};
use helenus_query::schema::catalog::CatalogView;
use helenus_query::schema::test_catalog::{CREATE_KEYSPACE, catalog_of, changed};
use helenus_query::statement::Statement;
use helenus_roles::{Alteration, Permission, Resource, RoleChange, Roles};

const TABLE: &str = "CREATE TABLE t (k int, c int, s int STATIC, v int, m map<int, int>, l list<int>, e vector<float, 2>, \
     PRIMARY KEY (k, c))";

/// Every column of that table, in its order.
const ALL: &[&str] = &["k", "c", "s", "e", "l", "m", "v"];
const NONE: &[&str] = &[];

fn schema() -> CatalogView {
    catalog_of(&[
        CREATE_KEYSPACE,
        TABLE,
        "CREATE CUSTOM INDEX ON t (v) USING 'sai'",
        "CREATE CUSTOM INDEX ON t (e) USING 'sai'",
        "CREATE TABLE counts (k int PRIMARY KEY, a counter, b counter)",
        "CREATE FUNCTION twice (x int) CALLED ON NULL INPUT RETURNS int LANGUAGE lua AS 'return x'",
    ])
}

/// A superuser, and roles that can do nothing.
fn roles() -> Roles {
    let created = |role: &str, is_superuser: bool| RoleChange::Create {
        role: role.to_owned(),
        properties: Alteration { is_superuser: Some(is_superuser), ..Alteration::default() },
        if_not_exists: false,
        creator: None,
    };
    let changes = [created("root", true), created("ann", false), created("bob", false)];
    changes.iter().fold(Roles::default(), |roles, change| roles.changed(1, change).unwrap().unwrap())
}

fn with_context<T>(
    roles: &Roles,
    user: &str,
    schema: &CatalogView,
    run: impl FnOnce(&RolesContext<'_>) -> T,
) -> T {
    run(&RolesContext {
        subject: Subject { roles, user: Some(user), is_enforced: true },
        catalog: &schema.catalog,
        keyspace: Some("ks"),
        data_centers: &BTreeSet::new(),
        has_logins: true,
        data_center: None,
        restricts_networks: false,
    })
}

/// The roles after a statement of a role, with the warnings for it.
fn executed(
    roles: &Roles,
    user: &str,
    schema: &CatalogView,
    statement: &str,
) -> Result<(Roles, Vec<String>), String> {
    let parsed = parse(statement).map_err(|error| error.to_string())?;
    with_context(roles, user, schema, |context| {
        authorize(&parsed, context).map_err(|error| error.to_string())?;
        let planned = plan_change(&parsed, context).map_err(|error| error.to_string())?.unwrap();
        let after = roles.changed(roles.version() + 1, &planned.change).map_err(|error| error.to_string())?;
        Ok((after.unwrap_or_else(|| roles.clone()), planned.warnings))
    })
}

/// The roles after these statements of the superuser.
fn granted<S: AsRef<str>>(schema: &CatalogView, statements: &[S]) -> Roles {
    statements.iter().fold(roles(), |roles, statement| {
        executed(&roles, "root", schema, statement.as_ref())
            .unwrap_or_else(|error| panic!("{}: {error}", statement.as_ref()))
            .0
    })
}

/// The error that role `ann` gets for a statement.
fn asked(roles: &Roles, schema: &CatalogView, text: &str) -> Result<(), String> {
    let statement =
        Statement::new(text, Some("ks"), schema).unwrap_or_else(|error| panic!("{text}: {error}"));
    let subject = Subject { roles, user: Some("ann"), is_enforced: true };
    subject.ensure_all(&demands(&statement, &schema.catalog)).map_err(|error| error.to_string())
}

#[test]
fn every_role_finds_the_streams_of_change_feeds() {
    let schema = schema();
    let reads = [
        "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'",
        "SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = 1",
        "SELECT * FROM system_schema.scylla_tables",
        "SELECT * FROM system_schema.scylla_keyspaces",
    ];
    for read in reads {
        assert_eq!(asked(&roles(), &schema, read), Ok(()), "{read}");
    }
    assert!(asked(&roles(), &schema, "SELECT * FROM system_distributed.repair_history").is_err());
}

fn grants(table: &str, permission: &str, columns: &[&str]) -> Option<String> {
    (!columns.is_empty()).then(|| format!("GRANT {permission} ({}) ON {table} TO ann", columns.join(", ")))
}

/// Fails unless a statement needs exactly these columns: it is allowed with them, and refused without any one of them.
fn needs_on(table: &str, statement: &str, select: &[&str], modify: &[&str]) {
    let schema = schema();
    let execute = Some("GRANT EXECUTE ON ALL FUNCTIONS TO ann".to_owned());
    let with = |select: &[&str], modify: &[&str]| {
        let statements = [execute.clone(), grants(table, "SELECT", select), grants(table, "MODIFY", modify)];
        let statements: Vec<String> = statements.into_iter().flatten().collect();
        asked(&granted(&schema, &statements), &schema, statement)
    };
    assert_eq!(with(select, modify), Ok(()), "{statement}");
    let without = |columns: &[&str], at: usize| -> Vec<String> {
        columns
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != at)
            .map(|(_, name)| (*name).to_owned())
            .collect()
    };
    for at in 0..select.len() {
        let fewer = without(select, at);
        let fewer: Vec<&str> = fewer.iter().map(String::as_str).collect();
        assert!(with(&fewer, modify).is_err(), "{statement} without SELECT ({})", select[at]);
    }
    for at in 0..modify.len() {
        let fewer = without(modify, at);
        let fewer: Vec<&str> = fewer.iter().map(String::as_str).collect();
        assert!(with(select, &fewer).is_err(), "{statement} without MODIFY ({})", modify[at]);
    }
}

fn needs(statement: &str, select: &[&str], modify: &[&str]) {
    needs_on("t", statement, select, modify);
}

#[test]
fn a_select_needs_every_column_that_its_result_depends_on() {
    for (statement, columns) in [
        ("SELECT v FROM t", &["v"][..]),
        ("SELECT * FROM t", ALL),
        ("SELECT JSON * FROM t", ALL),
        ("SELECT JSON v FROM t", &["v"]),
        ("SELECT v AS s FROM t", &["v"]),
        ("SELECT twice(v) FROM t", &["v"]),
        ("SELECT CAST(v AS text), (int) c FROM t", &["v", "c"]),
        ("SELECT m[1] FROM t", &["m"]),
        ("SELECT v + s FROM t", &["v", "s"]),
        ("SELECT ttl(v), writetime(s), maxwritetime(m) FROM t", &["v", "s", "m"]),
        ("SELECT token(k) FROM t", &["k"]),
        ("SELECT sum(v) FROM t", &["v"]),
        ("SELECT count(v) FROM t", &["v"]),
        ("SELECT DISTINCT k, s FROM t", &["k", "s"]),
        ("SELECT v FROM t WHERE k = 1", &["v", "k"]),
        ("SELECT v FROM t WHERE k IN (1, 2) ORDER BY c", &["v", "k", "c"]),
        ("SELECT v FROM t WHERE k = 1 ORDER BY c DESC", &["v", "k", "c"]),
        ("SELECT v FROM t WHERE token(k) > 1", &["v", "k"]),
        ("SELECT s FROM t WHERE v = 1", &["s", "v"]),
        ("SELECT s FROM t WHERE m CONTAINS KEY 1 ALLOW FILTERING", &["s", "m"]),
        ("SELECT s FROM t WHERE m[1] = 2 ALLOW FILTERING", &["s", "m"]),
        ("SELECT v FROM t WHERE k = 1 AND (c) > (1)", &["v", "k", "c"]),
        (
            "SELECT v FROM t WHERE k = 1 AND c IN (1, 2) AND l CONTAINS 3 ALLOW FILTERING",
            &["v", "k", "c", "l"],
        ),
        ("SELECT max(v) FROM t GROUP BY k, c", &["v", "k", "c"]),
        ("SELECT count(*) FROM t WHERE v = 1", &["v"]),
        ("SELECT v FROM t ORDER BY e ANN OF [1, 2] LIMIT 3", &["v", "e"]),
        ("SELECT similarity_cosine(e, [1, 2]) FROM t", &["e"]),
    ] {
        needs(statement, columns, NONE);
    }
}

#[test]
fn a_select_of_no_column_needs_any_one() {
    let schema = schema();
    for statement in ["SELECT count(*) FROM t", "SELECT count(1) FROM t", "SELECT now() FROM t"] {
        let asked = |grants: &[&str]| asked(&granted(&schema, grants), &schema, statement);
        assert_eq!(asked(&["GRANT SELECT (l) ON t TO ann"]), Ok(()), "{statement}");
        assert!(asked(&["GRANT MODIFY (l) ON t TO ann"]).is_err(), "{statement}");
        assert!(asked(&["GRANT SELECT (a) ON counts TO ann"]).is_err(), "{statement}");
        assert!(asked(&[]).is_err(), "{statement}");
    }
}

#[test]
fn a_modification_needs_every_column_that_it_writes_and_its_key() {
    for (statement, columns) in [
        ("INSERT INTO t (k, c, v) VALUES (1, 2, 3)", &["k", "c", "v"][..]),
        ("INSERT INTO t (k, c) VALUES (1, 2)", &["k", "c"]),
        ("INSERT INTO t (k, s) VALUES (1, 2)", &["k", "s"]),
        ("INSERT INTO t JSON '{\"k\": 1, \"c\": 2, \"v\": 3}'", ALL),
        ("INSERT INTO t JSON '{\"k\": 1, \"c\": 2, \"v\": 3}' DEFAULT UNSET", ALL),
        ("INSERT INTO t JSON ?", ALL),
        ("UPDATE t SET v = 1 WHERE k = 1 AND c = 2", &["k", "c", "v"]),
        ("UPDATE t SET v = 1, l[0] = 3 WHERE k = 1 AND (c) IN ((2), (3))", &["k", "c", "v", "l"]),
        ("UPDATE t SET s = 1 WHERE k = 1", &["k", "s"]),
        ("UPDATE t SET m = m + {1: 2} WHERE k IN (1, 2) AND c = 2", &["k", "c", "m"]),
        ("DELETE v, m[1] FROM t WHERE k = 1 AND c = 2", &["k", "c", "v", "m"]),
        ("DELETE s FROM t WHERE k = 1", &["k", "s"]),
        (
            "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (1, 2, 3); UPDATE t SET s = 1 WHERE k = 2; APPLY BATCH",
            &["k", "c", "v", "s"],
        ),
    ] {
        needs(statement, NONE, columns);
    }
    needs_on("counts", "UPDATE counts SET a = a + 1 WHERE k = 1", NONE, &["k", "a"]);
}

#[test]
fn a_transaction_needs_what_each_of_its_parts_needs() {
    let row = "LET r = (SELECT v FROM t WHERE k = 1 AND c = 2);";
    for (body, select, modify) in [
        (format!("{row} SELECT r.v;"), &["k", "c", "v"][..], NONE),
        ("SELECT v, s FROM t WHERE k = 1 AND c = 2;".to_owned(), &["k", "c", "v", "s"], NONE),
        ("UPDATE t SET v += 1 WHERE k = 1 AND c = 2;".to_owned(), NONE, &["k", "c", "v"][..]),
        (
            format!("{row} IF r.v = 1 THEN UPDATE t SET s = 1 WHERE k = 1; END IF"),
            &["k", "c", "v"],
            &["k", "s"],
        ),
        (format!("{row} INSERT INTO t (k, c, l) VALUES (1, 2, [r.v]);"), &["k", "c", "v"], &["k", "c", "l"]),
        ("LET r = (SELECT * FROM t WHERE k = 1 AND c = 2); SELECT r.v;".to_owned(), ALL, NONE),
    ] {
        needs(&format!("BEGIN TRANSACTION {body} COMMIT TRANSACTION"), select, modify);
    }
}

#[test]
fn whole_rows_are_deleted_with_the_permission_on_the_table_only() {
    let schema = schema();
    for statement in [
        "DELETE FROM t WHERE k = 1",
        "DELETE FROM t WHERE k = 1 AND c = 2",
        "DELETE FROM t WHERE k = 1 AND c > 2",
        "TRUNCATE t",
        "BEGIN BATCH DELETE FROM t WHERE k = 1; APPLY BATCH",
    ] {
        let all = format!("GRANT MODIFY ({}) ON t TO ann", ALL.join(", "));
        let refused = "User ann has no MODIFY permission on <table ks.t> or any of its parents";
        assert_eq!(
            asked(&granted(&schema, &[all]), &schema, statement),
            Err(refused.to_owned()),
            "{statement}"
        );
        assert_eq!(
            asked(&granted(&schema, &["GRANT MODIFY ON t TO ann"]), &schema, statement),
            Ok(()),
            "{statement}"
        );
    }
}

#[test]
fn conditions_need_the_columns_that_their_answer_may_show() {
    for (statement, select, modify) in [
        ("UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF l = [1]", &["k", "c", "l"][..], &["k", "c", "v"][..]),
        (
            "UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF m[1] = 1 AND s > 1",
            &["k", "c", "m", "s"],
            &["k", "c", "v"],
        ),
        ("DELETE v FROM t WHERE k = 1 AND c = 2 IF v IN (1, 2)", &["k", "c", "v"], &["k", "c", "v"]),
        ("UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF EXISTS", ALL, &["k", "c", "v"]),
        ("INSERT INTO t (k, c, v) VALUES (1, 2, 3) IF NOT EXISTS", ALL, &["k", "c", "v"]),
        (
            "BEGIN BATCH UPDATE t SET v = 1 WHERE k = 1 AND c = 2 IF v = 1; UPDATE t SET v = 1 WHERE k = 1 AND c = 3; APPLY BATCH",
            &["k", "c", "v"],
            &["k", "c", "v"],
        ),
    ] {
        needs(statement, select, modify);
    }
}

#[test]
fn the_permission_on_the_table_is_enough_and_other_permissions_are_not() {
    let schema = schema();
    let statement = "SELECT v FROM t WHERE k = 1";
    let asked = |grant: &str| asked(&granted(&schema, &[grant]), &schema, statement);
    let refused = |resource: &str| {
        Err(format!("User ann has no SELECT permission on <{resource}> or any of its parents"))
    };
    assert_eq!(asked("GRANT SELECT ON t TO ann"), Ok(()));
    assert_eq!(asked("GRANT SELECT ON ALL KEYSPACES TO ann"), Ok(()));
    assert_eq!(asked("GRANT SELECT (k, v) ON t TO ann"), Ok(()));
    assert_eq!(asked("GRANT SELECT (k) ON t TO ann"), refused("column ks.t.v"));
    assert_eq!(asked("GRANT SELECT (v) ON t TO ann"), refused("column ks.t.k"));
    // The text that Cassandra has for who may see nothing.
    assert_eq!(asked("GRANT SELECT (s) ON t TO ann"), refused("table ks.t"));
    assert_eq!(asked("GRANT MODIFY (k, v) ON t TO ann"), refused("table ks.t"));
}

#[test]
fn a_column_that_is_added_is_not_among_those_that_were_granted() {
    let schema = schema();
    let roles = granted(&schema, &[format!("GRANT SELECT ({}) ON t TO ann", ALL.join(", "))]);
    assert_eq!(asked(&roles, &schema, "SELECT * FROM t"), Ok(()));
    let schema = changed(&schema, 100, "ALTER TABLE t ADD added int");
    let refused = "User ann has no SELECT permission on <column ks.t.added> or any of its parents";
    assert_eq!(asked(&roles, &schema, "SELECT * FROM t"), Err(refused.to_owned()));
    assert!(asked(&roles, &schema, "INSERT INTO t (k, c, v) VALUES (1, 2, 3) IF NOT EXISTS").is_err());
}

#[test]
fn columns_are_granted_and_revoked_together_with_warnings_for_each() {
    let schema = schema();
    let (roles, warnings) =
        executed(&roles(), "root", &schema, "GRANT SELECT (k, v), MODIFY (v), ALTER ON t TO ann").unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    let granted = |roles: &Roles, column: &str| {
        roles.role("ann").unwrap().granted(&Resource::column("ks", "t", column)).names()
    };
    assert_eq!(
        (granted(&roles, "k"), granted(&roles, "v")),
        ("SELECT".to_owned(), "SELECT, MODIFY".to_owned())
    );
    assert!(roles.allows("ann", Permission::Alter, &Resource::table("ks", "t")));
    let (roles, warnings) = executed(&roles, "root", &schema, "GRANT SELECT (k, c) ON t TO ann").unwrap();
    assert_eq!(warnings, ["Role 'ann' was already granted SELECT on <column ks.t.k>"]);
    let (roles, warnings) = executed(&roles, "root", &schema, "REVOKE SELECT (v, s) ON t FROM ann").unwrap();
    assert_eq!(warnings, ["Role 'ann' was not granted SELECT on <column ks.t.s>"]);
    assert_eq!((granted(&roles, "c"), granted(&roles, "v")), ("SELECT".to_owned(), "MODIFY".to_owned()));
    // As with a keyspace and its tables, what is granted below a resource is revoked there.
    let (roles, warnings) = executed(&roles, "root", &schema, "REVOKE SELECT ON t FROM ann").unwrap();
    assert_eq!(warnings, ["Role 'ann' was not granted SELECT on <table ks.t>"]);
    assert_eq!(granted(&roles, "c"), "SELECT");
}

#[test]
fn what_cannot_be_granted_is_refused() {
    let schema = schema();
    for (statement, refusal) in [
        ("GRANT SELECT (v, w) ON t TO ann", "Undefined column name w in table ks.t"),
        ("REVOKE SELECT (\"V\") ON t FROM ann", "Undefined column name \"V\" in table ks.t"),
        ("GRANT SELECT (v) ON missing TO ann", "Resource <table ks.missing> doesn't exist"),
        ("GRANT SELECT (v) ON t TO nobody", "Role nobody doesn't exist"),
        (
            "GRANT MODIFY (can_login) ON system_auth.roles TO ann",
            "Granting permissions on system keyspaces is strictly limited, this operation is not permitted",
        ),
    ] {
        assert_eq!(
            executed(&roles(), "root", &schema, statement).err().as_deref(),
            Some(refusal),
            "{statement}"
        );
    }
}

#[test]
fn who_grants_a_column_may_grant_on_the_table_and_has_what_it_grants() {
    let schema = schema();
    let by_ann = |grants: &[&str], statement: &str| {
        executed(&granted(&schema, grants), "ann", &schema, statement).err()
    };
    let refused = |permission: &str, resource: &str| {
        Some(format!("User ann has no {permission} permission on <{resource}> or any of its parents"))
    };
    let grant = "GRANT SELECT (v) ON t TO bob";
    assert_eq!(by_ann(&["GRANT SELECT (v) ON t TO ann"], grant), refused("AUTHORIZE", "table ks.t"));
    assert_eq!(by_ann(&["GRANT AUTHORIZE ON t TO ann"], grant), refused("SELECT", "column ks.t.v"));
    assert_eq!(by_ann(&["GRANT AUTHORIZE ON t TO ann", "GRANT SELECT (v) ON t TO ann"], grant), None);
    assert_eq!(by_ann(&["GRANT AUTHORIZE, SELECT ON ALL KEYSPACES TO ann"], grant), None);
    let both = "GRANT SELECT (v, k) ON t TO bob";
    let has_one = &["GRANT AUTHORIZE ON t TO ann", "GRANT SELECT (v) ON t TO ann"];
    assert_eq!(by_ann(has_one, both), refused("SELECT", "column ks.t.k"));
    assert_eq!(by_ann(has_one, "REVOKE SELECT (k) ON t FROM bob"), refused("SELECT", "column ks.t.k"));
}

/// The resources and permissions that a LIST shows.
fn listed(roles: &Roles, schema: &CatalogView, statement: &str) -> Vec<String> {
    let parsed = parse(statement).unwrap();
    let rows = with_context(roles, "root", schema, |context| list(&parsed, context)).unwrap();
    let text = |value: &Option<Vec<u8>>| String::from_utf8(value.clone().unwrap()).unwrap();
    let row = |row: &Vec<Option<Vec<u8>>>| format!("{} {}", text(&row[3]), text(&row[2]));
    rows.map(|Listed { rows, .. }| rows.iter().map(row).collect()).unwrap_or_default()
}

#[test]
fn grants_on_columns_are_listed_with_their_table() {
    let schema = schema();
    let roles = granted(
        &schema,
        &[
            "GRANT SELECT (v, k), MODIFY (v) ON t TO ann",
            "GRANT SELECT (a) ON counts TO ann",
            "GRANT DROP ON t TO ann",
            "GRANT ALTER ON KEYSPACE ks TO ann",
        ],
    );
    let on_t = ["SELECT <column ks.t.k>", "SELECT <column ks.t.v>", "MODIFY <column ks.t.v>"];
    let expected = [&["ALTER <keyspace ks>", "DROP <table ks.t>"], &on_t[..]].concat();
    assert_eq!(listed(&roles, &schema, "LIST ALL PERMISSIONS ON t OF ann"), expected);
    assert_eq!(listed(&roles, &schema, "LIST SELECT ON t"), on_t[..2]);
    assert_eq!(
        listed(&roles, &schema, "LIST ALL PERMISSIONS ON t OF ann NORECURSIVE"),
        ["DROP <table ks.t>"]
    );
    assert_eq!(listed(&roles, &schema, "LIST ALL PERMISSIONS ON KEYSPACE ks"), ["ALTER <keyspace ks>"]);
    assert_eq!(listed(&roles, &schema, "LIST MODIFY OF ann"), ["MODIFY <column ks.t.v>"]);
    assert_eq!(listed(&roles, &schema, "LIST ALL PERMISSIONS OF ann").len(), 6);
    // The name of the role is also a word of CQL.
    let grants: Vec<String> =
        script(&roles).unwrap().into_iter().filter(|statement| statement.contains("ks.t ")).collect();
    assert_eq!(
        grants,
        [
            "GRANT DROP ON TABLE ks.t TO 'ann'",
            "GRANT SELECT (k) ON TABLE ks.t TO 'ann'",
            "GRANT SELECT (v), MODIFY (v) ON TABLE ks.t TO 'ann'",
        ]
    );
}
