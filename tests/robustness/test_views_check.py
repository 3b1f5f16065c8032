"""CHECK PROJECTION, and what shows how far views are."""

import pytest
from cassandra import InvalidRequest
from conftest import admin, driver_session, new_node

COUNTS = ("rows", "units", "missing", "different", "orphaned", "repaired")


@pytest.fixture(scope="module")
def running():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE users (id int PRIMARY KEY, city text, tags set<text>)")
        session.execute(
            "CREATE MATERIALIZED VIEW by_city AS SELECT * FROM users "
            "WHERE city IS NOT NULL AND id IS NOT NULL PRIMARY KEY (city, id)"
        )
        session.execute("CREATE TABLE sales (shop int, n int, buyer int, amount int, PRIMARY KEY (shop, n))")
        session.execute(
            "CREATE PROJECTION sums AS SELECT shop, count(*) AS sales, sum(amount) AS total FROM sales "
            "GROUP BY shop PRIMARY KEY (shop)"
        )
        session.execute(
            "CREATE PROJECTION named AS SELECT s.shop, s.n, u.city AS city, s.amount * 2 AS twice FROM sales AS s "
            "JOIN users AS u ON s.buyer = u.id PRIMARY KEY (city, shop, n)"
        )
        for id in range(10):
            city = "Rome" if id % 2 else "Oslo"
            session.execute("INSERT INTO users (id, city, tags) VALUES (%s, %s, {'a', 'b'})", (id, city))
        session.execute("UPDATE users SET tags = {} WHERE id = 3")
        session.execute("DELETE city FROM users WHERE id = 9")
        for n in range(30):
            session.execute("INSERT INTO sales (shop, n, buyer, amount) VALUES (%s, %s, %s, 5)", (n % 3, n, n % 10))
        yield node, session


def check(session, view, words=""):
    row = session.execute(f"CHECK PROJECTION {view} {words}").one()
    assert row.view.endswith(f".{view}") and row.checked_at is not None
    return tuple(getattr(row, name) for name in COUNTS)


def test_views_that_are_right_have_no_faults(running):
    _, session = running
    for words in ("", "REPAIR"):
        assert check(session, "by_city", words) == (9, 10, 0, 0, 0, 0)
        assert check(session, "sums", words) == (3, 3, 0, 0, 0, 0)
        assert check(session, "named", words) == (27, 30, 0, 0, 0, 0)


def test_other_tables_cannot_be_checked(running):
    _, session = running
    with pytest.raises(InvalidRequest, match="is no materialized view or projection"):
        session.execute("CHECK PROJECTION users")


def test_tables_of_the_system_show_how_far_views_are(running):
    node, session = running
    session.execute("SELECT * FROM named WITH FRESHNESS 0 ms")
    slices = list(session.execute("SELECT * FROM system_views.projections"))
    assert {row.view_name for row in slices} == {"by_city", "sums", "named"}
    for view in ("by_city", "sums", "named"):
        assert sorted(row.slice for row in slices if row.view_name == view) == list(range(16))
    assert all(row.lag_ms >= 0 and row.failed_units == 0 for row in slices)
    for view in ("by_city", "sums", "named"):
        check(session, view)
    assert all(row.built for row in session.execute("SELECT built FROM system_views.projections"))
    built = session.execute("SELECT view_name, status_replicated FROM system.built_views")
    assert sorted(tuple(row) for row in built) == [("by_city", True), ("named", True), ("sums", True)]
    states = session.execute("SELECT view_name, status FROM system_distributed.view_build_status")
    assert sorted(tuple(row) for row in states) == [(view, "SUCCESS") for view in ("by_city", "named", "sums")]
    keyspace = slices[0].keyspace_name
    assert admin(node, "viewbuildstatus", keyspace, "sums") == (0, f"{keyspace}.sums has finished building\n")
    status, text = admin(node, "viewbuildstatus", keyspace, "users")
    assert status != 0 and "is no materialized view or projection" in text


def test_metrics_count_what_is_recomputed(running):
    node, session = running
    session.execute("SELECT * FROM sums WITH FRESHNESS 0 ms")
    assert node.metric("helenus_view_rows_recomputed_total") > 0
    assert node.metric("helenus_view_entries_read_total") > 0
    assert 0 < node.metric("helenus_view_lag_seconds") < 60


def test_rows_that_a_cap_evicts_are_not_missing(running):
    _, session = running
    session.execute("CREATE TABLE posts (id int PRIMARY KEY, author int, likes int)")
    session.execute(
        "CREATE PROJECTION newest AS SELECT author, id, likes FROM posts PRIMARY KEY (author, id) "
        "WITH CLUSTERING ORDER BY (id DESC) AND cap = 3"
    )
    for id in range(20):
        session.execute("INSERT INTO posts (id, author, likes) VALUES (%s, %s, 1)", (id, id % 2))
    # Of a row that is evicted, and of one that is not.
    session.execute("UPDATE posts SET likes = 2 WHERE id = 0")
    session.execute("UPDATE posts SET likes = 2 WHERE id = 18")
    for words in ("", "REPAIR"):
        assert check(session, "newest", words) == (6, 20, 0, 0, 0, 0)
    rows = session.execute("SELECT author, id, likes FROM newest WITH FRESHNESS 0 ms")
    assert sorted(tuple(row) for row in rows) == [(0, 14, 1), (0, 16, 1), (0, 18, 2), (1, 15, 1), (1, 17, 1), (1, 19, 1)]
    # What an evicted row could take the place of.
    session.execute("DELETE FROM posts WHERE id = 18")
    assert check(session, "newest") == (5, 19, 0, 0, 0, 0)
    session.execute("DROP PROJECTION newest")
    session.execute("DROP TABLE posts")


def test_rows_that_a_cap_may_have_evicted_are_not_missing(running):
    _, session = running
    session.execute(
        "CREATE PROJECTION newest AS SELECT 'all' AS feed, shop, n FROM sales PRIMARY KEY (feed, n, shop) "
        "WITH CLUSTERING ORDER BY (n DESC, shop ASC) AND cap = 5"
    )
    assert check(session, "newest") == (5, 30, 0, 0, 0, 0)
    rows = session.execute("SELECT n FROM newest WITH FRESHNESS 0 ms")
    assert [row.n for row in rows] == [29, 28, 27, 26, 25]
    session.execute("DROP PROJECTION newest")
