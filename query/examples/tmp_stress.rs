use helenus_query::schema::catalog::{Catalog, CatalogView};
use helenus_query::schema::ddl::{self, DdlContext};
use helenus_query::statement::Statement;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

fn run_ddl(catalog: &Arc<Catalog>, text: &str) -> (Result<Arc<Catalog>, String>, f64) {
    let started = Instant::now();
    let view = CatalogView::new(1, catalog.clone());
    let result = (|| {
        let Statement::Schema(s) = Statement::new(text, Some("k"), &view).map_err(|e| e.to_string())? else {
            panic!()
        };
        let context = DdlContext {
            now_micros: 1,
            new_table_id: Uuid::from_u128(
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos(),
            ),
            new_version: Uuid::from_u128(2),
            data_centers: [("datacenter1".to_owned(), 1)].into_iter().collect(),
        };
        ddl::execute(catalog, &s.plan, Some("k"), &context).map(|c| c.catalog).map_err(|e| e.to_string())
    })();
    (result, started.elapsed().as_secs_f64())
}

fn repeat(count: usize, between: &str, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect::<Vec<_>>().join(between)
}

fn main() {
    let base: usize = std::env::args().nth(1).map_or(100_000, |a| a.parse().unwrap());
    let mut catalog = Arc::new(helenus_query::schema::system_tables::initial_catalog(Uuid::from_u128(1)));
    let ddl = |catalog: &mut Arc<Catalog>, text: &str| {
        let (result, seconds) = run_ddl(catalog, text);
        let short: String = text.chars().take(60).collect();
        match result {
            Ok(next) => {
                *catalog = next;
                println!("{seconds:8.3} ddl ok    {short}");
            }
            Err(e) => {
                println!("{seconds:8.3} ddl error {short} -> {}", e.chars().take(100).collect::<String>())
            }
        }
    };
    ddl(
        &mut catalog,
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    );
    ddl(
        &mut catalog,
        "CREATE TABLE t (p int, c int, d int, v int, w text, l list<int>, s set<int>, m map<int,int>, PRIMARY KEY (p, c, d))",
    );
    ddl(
        &mut catalog,
        &format!("CREATE TABLE wide (p int PRIMARY KEY, {})", repeat(16_000, ", ", |i| format!("c{i} int"))),
    );
    ddl(
        &mut catalog,
        &format!("CREATE TABLE toowide (p int PRIMARY KEY, {})", repeat(base, ", ", |i| format!("c{i} int"))),
    );
    ddl(
        &mut catalog,
        &format!(
            "CREATE TABLE keys ({}, PRIMARY KEY (p0, {}))",
            repeat(16_000, ", ", |i| format!("p{i} int")),
            repeat(15_999, ", ", |i| format!("p{}", i + 1))
        ),
    );
    ddl(
        &mut catalog,
        &format!(
            "CREATE TABLE pkeys ({}, PRIMARY KEY (({})))",
            repeat(16_000, ", ", |i| format!("p{i} int")),
            repeat(16_000, ", ", |i| format!("p{}", i))
        ),
    );
    ddl(
        &mut catalog,
        &format!(
            "CREATE TABLE ords (p int, c int, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY ({})",
            repeat(base, ", ", |i| format!("x{i} ASC"))
        ),
    );
    ddl(&mut catalog, &format!("CREATE TYPE u ({})", repeat(16_000, ", ", |i| format!("f{i} int"))));
    ddl(
        &mut catalog,
        &format!("ALTER TYPE u RENAME {}", repeat(16_000, " AND ", |i| format!("f{i} TO g{i}"))),
    );
    ddl(
        &mut catalog,
        &format!(
            "CREATE TABLE tu (p int PRIMARY KEY, u u, fu frozen<tuple<{}>>)",
            repeat(16_000, ", ", |_| "int".into())
        ),
    );
    ddl(&mut catalog, &format!("ALTER TABLE t ADD ({})", repeat(16_000, ", ", |i| format!("x{i} int"))));
    ddl(&mut catalog, &format!("ALTER TABLE t DROP ({})", repeat(16_000, ", ", |i| format!("x{i}"))));
    ddl(&mut catalog, &format!("ALTER TABLE t ADD ({})", repeat(16_000, ", ", |i| format!("x{i} int"))));
    ddl(
        &mut catalog,
        &format!("ALTER TABLE keys RENAME {}", repeat(16_000, " AND ", |i| format!("p{i} TO q{i}"))),
    );
    ddl(
        &mut catalog,
        &format!(
            "CREATE TABLE props (p int PRIMARY KEY) WITH {}",
            repeat(base, " AND ", |i| format!("x{i} = 1"))
        ),
    );
    ddl(
        &mut catalog,
        &format!(
            "CREATE TABLE props (p int PRIMARY KEY) WITH compaction = {{{}}}",
            repeat(base, ", ", |i| format!("'x{i}': '1'"))
        ),
    );
    ddl(
        &mut catalog,
        &format!(
            "CREATE KEYSPACE k2 WITH replication = {{'class': 'NetworkTopologyStrategy', {}}}",
            repeat(base, ", ", |i| format!("'x{i}': '1'"))
        ),
    );
    let view = CatalogView::new(1, catalog.clone());
    let cases: Vec<(&str, String)> = vec![
        ("same selectors", format!("SELECT {} FROM t", repeat(base, ", ", |_| "v".into()))),
        ("same selectors of wide", format!("SELECT {} FROM wide", repeat(base, ", ", |_| "c15999".into()))),
        ("distinct selectors", format!("SELECT {} FROM wide", repeat(16_000, ", ", |i| format!("c{i}")))),
        (
            "distinct 2 selectors",
            format!("SELECT {} FROM wide", repeat(base, ", ", |i| format!("c{}", i % 16_000))),
        ),
        (
            "function selectors",
            format!("SELECT {} FROM wide", repeat(base, ", ", |i| format!("token(c{})", i % 16_000))),
        ),
        ("aliases", format!("SELECT {} FROM t", repeat(base, ", ", |i| format!("v AS a{i}")))),
        ("star", "SELECT * FROM wide".into()),
        ("star u", "SELECT * FROM tu".into()),
        ("select json", "SELECT JSON * FROM wide".into()),
        (
            "relations",
            format!(
                "SELECT v FROM t WHERE {} ALLOW FILTERING",
                repeat(base, " AND ", |i| format!("v > {i}"))
            ),
        ),
        (
            "relations wide",
            format!(
                "SELECT p FROM wide WHERE {} ALLOW FILTERING",
                repeat(16_000, " AND ", |i| format!("c{i} = 1"))
            ),
        ),
        (
            "relations contains",
            format!(
                "SELECT p FROM t WHERE {} ALLOW FILTERING",
                repeat(base, " AND ", |i| format!("l CONTAINS {i}"))
            ),
        ),
        ("relations key", format!("SELECT v FROM t WHERE {}", repeat(base, " AND ", |_| "p = 1".into()))),
        (
            "relations clustering",
            format!("SELECT v FROM t WHERE p = 1 AND {}", repeat(base, " AND ", |_| "c > 1".into())),
        ),
        (
            "relations clustering ne",
            format!(
                "SELECT v FROM t WHERE p = 1 AND {} ALLOW FILTERING",
                repeat(base, " AND ", |_| "c != 1".into())
            ),
        ),
        (
            "relations token",
            format!("SELECT v FROM t WHERE {}", repeat(base, " AND ", |_| "token(p) > 1".into())),
        ),
        ("keys", format!("SELECT p0 FROM keys WHERE {}", repeat(16_000, " AND ", |i| format!("p{i} = 1")))),
        ("pkeys", format!("SELECT p0 FROM pkeys WHERE {}", repeat(16_000, " AND ", |i| format!("p{i} = 1")))),
        (
            "pkeys insert",
            format!(
                "INSERT INTO pkeys ({}) VALUES ({})",
                repeat(16_000, ", ", |i| format!("p{i}")),
                repeat(16_000, ", ", |_| "1".into())
            ),
        ),
        (
            "keys insert",
            format!(
                "INSERT INTO keys ({}) VALUES ({})",
                repeat(16_000, ", ", |i| format!("p{i}")),
                repeat(16_000, ", ", |_| "1".into())
            ),
        ),
        (
            "multi column",
            format!(
                "SELECT p0 FROM keys WHERE p0 = 1 AND ({}) > ({})",
                repeat(15_999, ", ", |i| format!("p{}", i + 1)),
                repeat(15_999, ", ", |_| "1".into())
            ),
        ),
        (
            "multi column dup",
            format!(
                "SELECT v FROM t WHERE p = 1 AND ({}) > ({})",
                repeat(base, ", ", |_| "c".into()),
                repeat(base, ", ", |_| "1".into())
            ),
        ),
        ("in", format!("SELECT v FROM t WHERE p IN ({})", repeat(base, ", ", |i| i.to_string()))),
        (
            "order by",
            format!("SELECT v FROM t WHERE p = 1 ORDER BY {}", repeat(base, ", ", |_| "c ASC".into())),
        ),
        (
            "order by keys",
            format!(
                "SELECT p0 FROM keys WHERE p0 = 1 ORDER BY {}",
                repeat(15_999, ", ", |i| format!("p{} ASC", i + 1))
            ),
        ),
        ("group by", format!("SELECT v FROM t GROUP BY {}", repeat(base, ", ", |_| "p".into()))),
        (
            "group by keys",
            format!("SELECT p0 FROM keys GROUP BY {}", repeat(16_000, ", ", |i| format!("p{i}"))),
        ),
        (
            "insert wide",
            format!(
                "INSERT INTO wide (p, {}) VALUES (1, {})",
                repeat(16_000, ", ", |i| format!("c{i}")),
                repeat(16_000, ", ", |_| "1".into())
            ),
        ),
        (
            "insert dup",
            format!(
                "INSERT INTO wide (p, {}) VALUES (1, {})",
                repeat(base, ", ", |i| format!("c{}", i % 16_000)),
                repeat(base, ", ", |_| "1".into())
            ),
        ),
        (
            "insert markers",
            format!(
                "INSERT INTO wide (p, {}) VALUES (?, {})",
                repeat(16_000, ", ", |i| format!("c{i}")),
                repeat(16_000, ", ", |_| "?".into())
            ),
        ),
        ("update", format!("UPDATE wide SET {} WHERE p = 1", repeat(16_000, ", ", |i| format!("c{i} = 1")))),
        (
            "update dup",
            format!(
                "UPDATE t SET {} WHERE p = 1 AND c = 1 AND d = 1",
                repeat(base, ", ", |_| "v = 1".into())
            ),
        ),
        (
            "update elements",
            format!(
                "UPDATE t SET {} WHERE p = 1 AND c = 1 AND d = 1",
                repeat(base, ", ", |i| format!("m[{i}] = 1"))
            ),
        ),
        (
            "update list add",
            format!(
                "UPDATE t SET {} WHERE p = 1 AND c = 1 AND d = 1",
                repeat(base, ", ", |i| format!("l = l + [{i}]"))
            ),
        ),
        ("delete", format!("DELETE {} FROM wide WHERE p = 1", repeat(16_000, ", ", |i| format!("c{i}")))),
        (
            "delete dup",
            format!("DELETE {} FROM t WHERE p = 1 AND c = 1 AND d = 1", repeat(base, ", ", |_| "v".into())),
        ),
        (
            "conditions",
            format!(
                "UPDATE t SET v = 1 WHERE p = 1 AND c = 1 AND d = 1 IF {}",
                repeat(base, " AND ", |i| format!("v > {i}"))
            ),
        ),
        (
            "conditions elements",
            format!(
                "UPDATE t SET v = 1 WHERE p = 1 AND c = 1 AND d = 1 IF {}",
                repeat(base, " AND ", |i| format!("m[{i}] = 1"))
            ),
        ),
        (
            "list literal",
            format!(
                "INSERT INTO t (p, c, d, l) VALUES (1, 1, 1, [{}])",
                repeat(base * 5, ", ", |i| i.to_string())
            ),
        ),
        (
            "set literal",
            format!(
                "INSERT INTO t (p, c, d, s) VALUES (1, 1, 1, {{{}}})",
                repeat(base * 5, ", ", |i| (i * 7919 % (base * 5)).to_string())
            ),
        ),
        (
            "map literal",
            format!(
                "INSERT INTO t (p, c, d, m) VALUES (1, 1, 1, {{{}}})",
                repeat(base * 5, ", ", |i| format!("{}: 1", i * 7919 % (base * 5)))
            ),
        ),
        (
            "udt literal",
            format!("INSERT INTO tu (p, u) VALUES (1, {{{}}})", repeat(16_000, ", ", |i| format!("g{i}: 1"))),
        ),
        (
            "udt literal unknown",
            format!("INSERT INTO tu (p, u) VALUES (1, {{{}}})", repeat(base, ", ", |i| format!("g{i}: 1"))),
        ),
        (
            "tuple literal",
            format!("INSERT INTO tu (p, fu) VALUES (1, ({}))", repeat(16_000, ", ", |_| "1".into())),
        ),
        (
            "tuple literal long",
            format!("INSERT INTO tu (p, fu) VALUES (1, ({}))", repeat(base, ", ", |_| "1".into())),
        ),
        (
            "list markers",
            format!(
                "INSERT INTO t (p, c, d, l) VALUES (1, 1, 1, [{}])",
                repeat(60_000, ", ", |_| "?".into())
            ),
        ),
        (
            "too many markers",
            format!(
                "INSERT INTO t (p, c, d, l) VALUES (1, 1, 1, [{}])",
                repeat(base * 2, ", ", |_| "?".into())
            ),
        ),
        (
            "named markers",
            format!(
                "INSERT INTO t (p, c, d, l) VALUES (1, 1, 1, [{}])",
                repeat(60_000, ", ", |i| format!(":n{i}"))
            ),
        ),
        (
            "batch",
            format!(
                "BEGIN BATCH {} APPLY BATCH",
                repeat(base / 3, " ", |i| format!("INSERT INTO t (p, c, d) VALUES ({i}, 1, 1)"))
            ),
        ),
        (
            "batch wide",
            format!(
                "BEGIN BATCH {} APPLY BATCH",
                repeat(base / 3, " ", |i| format!("INSERT INTO wide (p, c15999) VALUES ({i}, 1)"))
            ),
        ),
        ("function arguments", format!("SELECT token({}) FROM t", repeat(base, ", ", |_| "p".into()))),
        ("long plus", format!("SELECT {} FROM t", repeat(base, " + ", |_| "v".into()))),
        ("long text", format!("INSERT INTO t (p, c, d, w) VALUES (1, 1, 1, '{}')", "''".repeat(base * 10))),
        ("long number", format!("INSERT INTO t (p, c, d, v) VALUES (1, 1, 1, {})", "1".repeat(base * 10))),
        ("long identifier", format!("SELECT {} FROM t", "x".repeat(base * 10))),
        ("comments", format!("SELECT v /* {} */ FROM t", "/*".repeat(base * 10))),
        ("open comments", format!("SELECT v {} FROM t", "/* ".repeat(base * 10))),
        ("semicolons", format!("SELECT v FROM t {}", ";".repeat(base * 10))),
        ("parentheses", format!("SELECT v FROM t WHERE {}", "(".repeat(base * 10))),
        ("types", format!("SELECT {}v FROM t", "(frozen<list<int>>) ".repeat(base))),
        ("unknown column near", format!("SELECT {} FROM wide", repeat(base, ", ", |i| format!("nope{i}")))),
    ];
    for (name, text) in cases {
        let started = Instant::now();
        let result = Statement::new(&text, Some("k"), &view);
        let seconds = started.elapsed().as_secs_f64();
        let outcome = match &result {
            Ok(s) => {
                let _ = s.metadata(cql_lite::frame::ProtocolVersion::V4);
                "ok".to_owned()
            }
            Err(e) => e.to_string().chars().take(90).collect(),
        };
        let all = started.elapsed().as_secs_f64();
        println!("{seconds:8.3} {all:8.3} {:9} {name}: {outcome}", text.len());
    }
}
