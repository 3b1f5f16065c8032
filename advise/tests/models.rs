//! The advice on the three models of the demo (docs/models.md) is what they do.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use helenus_advise::advice::{Advice, Advised, Kind, Report, advise};
use helenus_advise::workload::Workload;

fn report(text: &str) -> Report {
    advise(&Workload::read(text, 1).unwrap()).unwrap()
}

/// The request that contains this text.
fn request<'r>(report: &'r Report, text: &str) -> &'r Advised {
    report.requests.iter().find(|request| request.text.contains(text)).unwrap_or_else(|| panic!("{text}"))
}

fn recommended(advised: &Advised) -> &Advice {
    let first = advised.advice.first().unwrap_or_else(|| panic!("no advice: {}", advised.text));
    assert!(first.is_recommended);
    first
}

fn key_of(statement: &str) -> &str {
    &statement[statement.find("PRIMARY KEY").unwrap()..]
}

const V1_REQUESTS: &str = "
INSERT INTO blog_v1.users (user_id, username, about) VALUES (?, ?, ?);
INSERT INTO blog_v1.posts (post_id, author_id, title, body) VALUES (?, ?, ?, ?);
INSERT INTO blog_v1.posts (post_id, kind, id, maker_id, comment) VALUES (?, ?, ?, ?, ?);
SELECT username FROM blog_v1.users WHERE user_id = ?;
SELECT author_id, title, body FROM blog_v1.posts WHERE post_id = ? LIMIT 1;
SELECT count(*) FROM blog_v1.posts WHERE post_id = ? AND kind = ?;
SELECT id, maker_id, comment FROM blog_v1.posts WHERE post_id = ? AND kind = 'comment';
SELECT maker_id FROM blog_v1.posts WHERE post_id = ? AND kind = 'like';
-- rows: 27
SELECT DISTINCT post_id, author_id, title, body FROM blog_v1.posts WHERE author_id = ? ALLOW FILTERING;
SELECT DISTINCT post_id FROM blog_v1.posts;
";

fn v1() -> String {
    let schema = include_str!("../../models/src/blog/schema_v1.cql");
    // Which index the model has is to be found.
    let (schema, _) = schema.split_once("-- Q3").unwrap();
    let schema = schema.replace(
        "CREATE TABLE blog_v1.posts",
        "-- rows: 5000000, partitions: 80000\nCREATE TABLE blog_v1.posts",
    );
    let schema = schema.replace("CREATE TABLE blog_v1.users", "-- rows: 3000\nCREATE TABLE blog_v1.users");
    schema + V1_REQUESTS
}

#[test]
fn the_normalised_blog_needs_an_index_for_the_posts_of_an_author() {
    let report = report(&v1());
    let lookup = request(&report, "WHERE author_id = ?");
    assert_eq!(lookup.access, "SCAN");
    let index = recommended(lookup);
    assert_eq!(index.kind, Kind::Index);
    assert_eq!(index.statements, ["CREATE INDEX ON blog_v1.posts (author_id) USING 'sai'"]);
    assert!(index.charge.unwrap() < lookup.charge.unwrap() / 100, "{index:?} of {:?}", lookup.charge);
    // The other way is the table that V3 has.
    let table = &lookup.advice[1];
    assert_eq!((table.kind, table.is_recommended), (Kind::Table, false));
    assert_eq!(key_of(&table.statements[0]), "PRIMARY KEY ((author_id), post_id))");
    assert!(table.charge < index.charge);
    // All ids: no key helps.
    assert_eq!(recommended(request(&report, "SELECT DISTINCT post_id FROM")).kind, Kind::Scan);
    // The rest names its partitions.
    for served in ["WHERE user_id", "LIMIT 1", "count(*)", "'comment'", "'like'", "INSERT"] {
        let request = request(&report, served);
        assert!(request.advice.is_empty(), "{served}: {:?}", request.advice);
    }
    assert_eq!(request(&report, "WHERE user_id").charge, Some(12));
    assert!(report.tables.is_empty());
}

#[test]
fn where_reads_are_many_the_blog_gets_the_tables_of_its_third_design() {
    let text = v1()
        .replace(
            "INSERT INTO blog_v1.posts (post_id, author_id",
            "-- requests: 10\nINSERT INTO blog_v1.posts (post_id, author_id",
        )
        .replace("-- rows: 27", "-- rows: 27, requests: 1000")
        + "
-- requests: 1000
SELECT post_id, author_id, title FROM blog_v1.posts WHERE author_id = ? ORDER BY post_id DESC;
-- requests: 5000
SELECT post_id, author_id, title FROM blog_v1.posts ORDER BY post_id DESC LIMIT 100;
";
    let report = report(&text);
    let lookup = recommended(request(&report, "SELECT DISTINCT post_id, author_id"));
    assert_eq!((lookup.kind, lookup.writes_more), (Kind::Table, Some(26)));
    let ordered = recommended(request(&report, "author_id = ? ORDER BY"));
    assert_eq!(ordered.kind, Kind::Table);
    assert_eq!(
        ordered.statements[0],
        "CREATE TABLE blog_v1.posts_by_author_id (post_id timeuuid, author_id uuid, title text, \
         PRIMARY KEY ((author_id), post_id)) WITH CLUSTERING ORDER BY (post_id DESC)"
    );
    // The feed.
    let newest = recommended(request(&report, "LIMIT 100"));
    assert_eq!(newest.kind, Kind::Table);
    assert_eq!(
        key_of(&newest.statements[0]),
        "PRIMARY KEY ((bucket), post_id)) WITH CLUSTERING ORDER BY (post_id DESC)"
    );
    assert_eq!(newest.charge, Some(10 + 100 + 10));
}

#[test]
fn the_denormalised_blog_has_the_index_and_the_projection_that_its_requests_need() {
    let schema = include_str!("../../models/src/blog/schema_v2.cql");
    let report = report(&format!(
        "{}\n
        SELECT username, title, body FROM blog_v2.items WHERE post_id = ? AND kind = 'post' LIMIT 1;
        -- rows: 27
        SELECT post_id, title FROM blog_v2.posts WHERE author_id = ?;
        -- rows: 60
        SELECT post_id, kind, id FROM blog_v2.posts WHERE maker_id = ? ALLOW FILTERING;
        UPDATE blog_v2.posts SET comment_count = ? WHERE post_id = ? AND kind = 'post' AND id = ? IF comment_count = ?;
        BEGIN BATCH
          INSERT INTO blog_v2.posts (post_id, kind, id, maker_id, comment) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS;
          UPDATE blog_v2.posts SET like_count = ? WHERE post_id = ? AND kind = 'post' AND id = ? IF like_count = ?;
        APPLY BATCH;",
        schema.replace("CREATE TABLE blog_v2.posts", "-- rows: 5000000, partitions: 80000\nCREATE TABLE blog_v2.posts")
    ));
    let post = request(&report, "FROM blog_v2.items");
    assert!(post.advice.is_empty(), "{:?}", post.advice);
    assert_eq!(request(&report, "WHERE author_id").access, "INDEX");
    let index = recommended(request(&report, "WHERE maker_id"));
    assert_eq!(index.kind, Kind::Index);
    assert_eq!(index.statements, ["CREATE INDEX ON blog_v2.posts (maker_id) USING 'sai'"]);
    for conditional in ["UPDATE", "BEGIN BATCH"] {
        let advised = request(&report, conditional);
        assert_eq!(recommended(advised).kind, Kind::Transaction);
        assert!(advised.charge.unwrap() > 50, "{:?}", advised.charge);
    }
}

#[test]
fn the_third_design_of_the_blog_is_served_by_the_keys_of_its_projections() {
    let schema = include_str!("../../models/src/blog/schema_v3.cql");
    let report = report(&format!(
        "{}
        SELECT username, title, body, comment_count FROM blog_v3.items WHERE post_id = ? AND kind = 'post' LIMIT 1;
        SELECT post_id, title, excerpt FROM blog_v3.posts_by_user WHERE author_id = ?;
        SELECT post_id, title, excerpt FROM blog_v3.feed WHERE feed = 'newest' LIMIT ?;
        SELECT id, maker_id, comment FROM blog_v3.items WHERE post_id = ? AND kind = 'comment';
        -- A request of the second design: a projection that is there has the answer.
        SELECT post_id, author_id, title FROM blog_v3.posts WHERE author_id = ? ALLOW FILTERING;",
        schema.replace(
            "CREATE PROJECTION blog_v3.posts_by_user",
            "-- rows: 80000, partitions: 3000\nCREATE PROJECTION blog_v3.posts_by_user"
        )
    ));
    let (old, served) = report.requests.split_last().unwrap();
    for request in served {
        assert!(request.advice.is_empty(), "{}: {:?}", request.text, request.advice);
    }
    let existing = recommended(old);
    assert_eq!(existing.kind, Kind::ExistingTable);
    assert_eq!(
        existing.request.as_deref(),
        Some("SELECT post_id, author_id, title FROM blog_v3.posts_by_user WHERE author_id = ?")
    );
}

#[test]
fn logistics_are_tall() {
    let schema = include_str!("../../models/src/logistics/schema.cql");
    let schema = schema
        .replace(
            "CREATE TABLE logistics.events",
            "-- rows: 20000, partitions: 4\nCREATE TABLE logistics.events",
        )
        .replace(
            "CREATE TABLE logistics.orders",
            "-- rows: 4, row_bytes: 500000, elements: 5000\nCREATE TABLE logistics.orders",
        );
    let report = report(&format!(
        "{schema}
        INSERT INTO logistics.events (order_id, created, detail) VALUES (?, ?, ?);
        SELECT created, detail FROM logistics.events WHERE order_id = ? LIMIT 10;
        SELECT created, detail FROM logistics.events WHERE order_id = ?;
        UPDATE logistics.orders SET events[?] = ? WHERE order_id = ?;
        UPDATE logistics.orders SET events = events + ? WHERE order_id = ?;
        SELECT events FROM logistics.orders WHERE order_id = ?;"
    ));
    for request in &report.requests {
        assert!(request.advice.is_empty(), "{}: {:?}", request.text, request.advice);
    }
    let [orders] = &report.tables[..] else { panic!("{:?}", report.tables) };
    assert_eq!(orders.table, "logistics.orders");
    let [rows] = &orders.advice[..] else { panic!("{:?}", orders.advice) };
    assert_eq!(rows.kind, Kind::Rows);
    assert_eq!(
        rows.statements,
        ["CREATE TABLE logistics.orders_by_events (order_id uuid, element timestamp, value text, \
          PRIMARY KEY ((order_id), element)) WITH CLUSTERING ORDER BY (element DESC)"]
    );
    assert!(rows.charge.unwrap() < request(&report, "SELECT events").charge.unwrap() / 10);
}

/// The requests of a tall table of the monitoring model.
fn tall(table: &str, series: &str) -> String {
    format!(
        "SELECT at, value FROM monitoring.{table} WHERE {series} AND at >= ? AND at < ?;
         SELECT at, value FROM monitoring.{table} WHERE {series} LIMIT 1;\n"
    )
}

#[test]
fn monitoring_gets_a_partition_for_each_series() {
    let schema = include_str!("../../models/src/monitoring/schema.cql");
    let facts = |schema: String, table: &str, facts: &str| {
        let create = format!("CREATE TABLE monitoring.{table} ");
        assert!(schema.contains(&create));
        schema.replace(&create, &format!("-- {facts}\n{create}"))
    };
    let series = "metric = ? AND host = ? AND type = ?";
    let schema = facts(schema.to_owned(), "tall_by_metric", "rows: 300000000, partitions: 1, row_bytes: 30");
    let schema = facts(schema, "tall_by_type", "rows: 30000000, partitions: 3000, row_bytes: 30");
    let schema =
        facts(schema, "hybrid_by_type", "rows: 100000, partitions: 3000, row_bytes: 5000, elements: 360");
    let report = report(&format!(
        "{schema}{}{}
        UPDATE monitoring.hybrid_by_type SET points[?] = ? WHERE {series} AND start = ?;
        SELECT start, points FROM monitoring.hybrid_by_type WHERE {series} AND start >= ? AND start < ?;",
        tall("tall_by_metric", series),
        tall("tall_by_type", series)
    ));
    for request in &report.requests {
        assert!(request.advice.is_empty(), "{}: {:?}", request.text, request.advice);
    }
    // The partition of a metric has no bound: the key of `by_type` is advised. The others are as they should be.
    let [by_metric] = &report.tables[..] else { panic!("{:?}", report.tables) };
    assert_eq!(by_metric.table, "monitoring.tall_by_metric");
    let [key] = &by_metric.advice[..] else { panic!("{:?}", by_metric.advice) };
    assert_eq!(key.kind, Kind::Key);
    assert_eq!(
        key_of(&key.statements[0]),
        "PRIMARY KEY ((metric, host, type), at)) WITH CLUSTERING ORDER BY (at DESC)"
    );
}

#[test]
fn a_series_without_end_is_divided_by_days() {
    let report = report(
        "-- rows: 500_000_000, partitions: 100
        CREATE TABLE m.points (series text, at timestamp, value double, PRIMARY KEY (series, at));
        SELECT value FROM m.points WHERE series = ? AND at > ?;",
    );
    let [points] = &report.tables[..] else { panic!("{:?}", report.tables) };
    assert_eq!(points.advice[0].kind, Kind::Key);
    assert_eq!(
        points.advice[0].statements,
        [
            "CREATE TABLE m.points_by_day (series text, at timestamp, value double, day date, PRIMARY KEY ((series, day), at))"
        ]
    );
}

#[test]
fn the_output_has_every_request_as_text_and_as_json() {
    let report = report(&v1());
    let text = report.text();
    assert!(text.contains("CREATE INDEX ON blog_v1.posts (author_id) USING 'sai';"), "{text}");
    assert!(text.contains("    or table: keep a second table"), "{text}");
    let json = report.json();
    let requests = json["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 10);
    let lookup = &requests[8]["advice"][0];
    assert_eq!((lookup["kind"].as_str(), lookup["recommended"].as_bool()), (Some("index"), Some(true)));
    assert!(lookup["charge"].is_u64() && lookup["writes_more"].is_null());
}

#[test]
fn a_table_that_is_there_can_have_the_same_rows_only_with_the_same_key() {
    let advised = |other: &str| {
        let report = report(&format!(
            "CREATE TABLE s.orders (id uuid PRIMARY KEY, email text, status text);
            {other}
            SELECT status FROM s.orders WHERE email = ? ALLOW FILTERING;"
        ));
        let advice = &request(&report, "SELECT").advice;
        advice.iter().find(|advice| advice.kind == Kind::ExistingTable).map(|advice| advice.reason.clone())
    };
    assert_eq!(advised("CREATE TABLE s.users (email text PRIMARY KEY, status text);"), None);
    assert_eq!(advised("CREATE TABLE s.users (email text PRIMARY KEY, status text, id uuid);"), None);
    assert_eq!(
        advised("CREATE TABLE s.users (email text, id int, status text, PRIMARY KEY (email, id));"),
        None
    );
    let reason =
        advised("CREATE TABLE s.by_email (email text, id uuid, status text, PRIMARY KEY (email, id));")
            .unwrap();
    assert!(reason.contains("if it holds the same rows"), "{reason}");
}

#[test]
fn a_second_table_is_charged_for_the_rows_that_move_in_it() {
    let writes_more = |facts: &str, write: &str| {
        let report = report(&format!(
            "{facts}CREATE TABLE s.t (p int, c int, owner int, v int, st int static, PRIMARY KEY (p, c));
            {write};
            SELECT c, v, st FROM s.t WHERE owner = ? ALLOW FILTERING;"
        ));
        let advice = &request(&report, "SELECT").advice;
        let table = advice.iter().find(|advice| advice.kind == Kind::Table).unwrap();
        (table.writes_more, table.reason.clone())
    };
    let (plain, reason) = writes_more("", "INSERT INTO s.t (p, c, owner, v) VALUES (?, ?, ?, ?)");
    assert!(!reason.contains("delete it there"), "{reason}");
    assert_eq!(writes_more("", "UPDATE s.t SET v = ? WHERE p = ? AND c = ?").0, plain);
    let (moved, reason) = writes_more("", "UPDATE s.t SET owner = ? WHERE p = ? AND c = ?");
    assert!(moved.unwrap() > plain.unwrap() + 12, "{moved:?} {plain:?}");
    assert!(reason.contains("a write that changes owner has to read the row"), "{reason}");
    let of_statics = "UPDATE s.t SET st = ? WHERE p = ?";
    let (unknown, reason) = writes_more("", of_statics);
    assert_eq!(unknown, None);
    assert!(reason.contains("static columns"), "{reason}");
    let (all, _) = writes_more("-- rows: 70, partitions: 10\n", of_statics);
    assert_eq!(all.unwrap(), plain.unwrap() * 7);
}
