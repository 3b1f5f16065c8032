"""Materialized views and projections: what is read from them is what the base table says."""

import time

import pytest
from cassandra import InvalidRequest
from conftest import driver_session, new_node

READ = "WITH FRESHNESS 0 ms"


@pytest.fixture(scope="module")
def session():
    with new_node() as node, driver_session(node) as session:
        yield session


def rows(session, query, values=None):
    return sorted(tuple(row) for row in session.execute(query, values))


def test_a_materialized_view_follows_its_base_table(session):
    session.execute("CREATE TABLE users (id int PRIMARY KEY, mail text, city text)")
    session.execute("INSERT INTO users (id, mail, city) VALUES (1, 'a@x', 'Rome')")
    session.execute(
        "CREATE MATERIALIZED VIEW by_city AS SELECT id, mail, city FROM users "
        "WHERE city IS NOT NULL AND id IS NOT NULL PRIMARY KEY (city, id)"
    )
    session.execute("INSERT INTO users (id, mail, city) VALUES (2, 'b@x', 'Rome')")
    session.execute("INSERT INTO users (id, mail) VALUES (3, 'c@x')")
    query = f"SELECT city, id, mail FROM by_city {READ}"
    assert rows(session, query) == [("Rome", 1, "a@x"), ("Rome", 2, "b@x")]
    session.execute("UPDATE users SET city = 'Oslo' WHERE id = 1")
    session.execute("UPDATE users SET mail = null WHERE id = 2")
    session.execute("UPDATE users SET city = 'Bonn' WHERE id = 3")
    assert rows(session, query) == [("Bonn", 3, "c@x"), ("Oslo", 1, "a@x"), ("Rome", 2, None)]
    session.execute("DELETE city FROM users WHERE id = 3")
    session.execute("DELETE FROM users WHERE id = 2")
    assert rows(session, query) == [("Oslo", 1, "a@x")]
    session.execute("UPDATE users SET city = 'Rome' WHERE id = 1")
    session.execute("UPDATE users SET city = 'Oslo' WHERE id = 1")
    assert rows(session, query) == [("Oslo", 1, "a@x")]


def test_deletions_of_ranges_and_partitions_reach_the_view(session):
    session.execute("CREATE TABLE events (device int, at int, kind text, PRIMARY KEY (device, at))")
    session.execute(
        "CREATE MATERIALIZED VIEW by_kind AS SELECT * FROM events "
        "WHERE kind IS NOT NULL AND device IS NOT NULL AND at IS NOT NULL PRIMARY KEY (kind, device, at)"
    )
    for device in (1, 2):
        for at in range(10):
            session.execute("INSERT INTO events (device, at, kind) VALUES (%s, %s, 'k')", (device, at))
    query = f"SELECT device, at FROM by_kind WHERE kind = 'k' {READ}"
    assert len(rows(session, query)) == 20
    session.execute("DELETE FROM events WHERE device = 1 AND at >= 3 AND at < 8")
    session.execute("DELETE FROM events WHERE device = 2")
    session.execute("INSERT INTO events (device, at, kind) VALUES (2, 5, 'k')")
    assert rows(session, query) == [(1, at) for at in (0, 1, 2, 8, 9)] + [(2, 5)]


def test_an_old_timestamp_does_not_bring_a_row_back(session):
    session.execute("CREATE TABLE old (id int PRIMARY KEY, v int)")
    session.execute(
        "CREATE MATERIALIZED VIEW old_by_v AS SELECT id, v FROM old WHERE v IS NOT NULL AND id IS NOT NULL PRIMARY KEY (v, id)"
    )
    session.execute("UPDATE old USING TIMESTAMP 1000 SET v = 1 WHERE id = 1")
    session.execute("UPDATE old USING TIMESTAMP 900 SET v = 2 WHERE id = 1")
    assert rows(session, f"SELECT v, id FROM old_by_v {READ}") == [(1, 1)]
    session.execute("DELETE FROM old USING TIMESTAMP 950 WHERE id = 1")
    assert rows(session, f"SELECT v, id FROM old_by_v {READ}") == [(1, 1)]
    session.execute("DELETE FROM old USING TIMESTAMP 1100 WHERE id = 1")
    assert rows(session, f"SELECT v, id FROM old_by_v {READ}") == []


def test_a_projection_aggregates_groups(session):
    session.execute("CREATE TABLE likes (post int, user int, weight int, PRIMARY KEY (post, user))")
    for user in range(5):
        session.execute("INSERT INTO likes (post, user, weight) VALUES (1, %s, %s)", (user, user))
    session.execute(
        "CREATE PROJECTION like_count AS SELECT post, count(*) AS n, sum(weight) AS total, max(weight) AS most, avg(weight) AS mean "
        "FROM likes GROUP BY post PRIMARY KEY (post)"
    )
    query = f"SELECT post, n, total, most, mean FROM like_count {READ}"
    assert rows(session, query) == [(1, 5, 10, 4, 2)]
    session.execute("INSERT INTO likes (post, user, weight) VALUES (2, 1, 7)")
    session.execute("DELETE FROM likes WHERE post = 1 AND user = 4")
    assert rows(session, query) == [(1, 4, 6, 3, 1), (2, 1, 7, 7, 7)]
    session.execute("DELETE FROM likes WHERE post = 1")
    assert rows(session, query) == [(2, 1, 7, 7, 7)]


def test_a_projection_looks_up_another_table(session):
    session.execute("CREATE TABLE p (u int, id int, title text, PRIMARY KEY (id))")
    session.execute("CREATE TABLE people (u int PRIMARY KEY, name text)")
    session.execute("INSERT INTO people (u, name) VALUES (1, 'Ada')")
    for number in range(3):
        session.execute("INSERT INTO p (u, id, title) VALUES (1, %s, 't')", (number,))
    session.execute(
        "CREATE PROJECTION posts_by_user AS SELECT p.u, p.id, p.title, people.name FROM p JOIN people ON p.u = people.u PRIMARY KEY (u, id)"
    )
    query = f"SELECT u, id, title, name FROM posts_by_user {READ}"
    assert rows(session, query) == [(1, number, "t", "Ada") for number in range(3)]
    session.execute("UPDATE people SET name = 'Grace' WHERE u = 1")
    assert rows(session, query) == [(1, number, "t", "Grace") for number in range(3)]
    session.execute("INSERT INTO p (u, id, title) VALUES (2, 9, 't')")
    assert rows(session, query) == [(1, number, "t", "Grace") for number in range(3)]
    session.execute("INSERT INTO people (u, name) VALUES (2, 'Alan')")
    assert rows(session, query)[3:] == [(2, 9, "t", "Alan")]
    session.execute("DELETE FROM people WHERE u = 1")
    assert rows(session, query) == [(2, 9, "t", "Alan")]


def test_a_projection_filters_and_calculates(session):
    session.execute("CREATE TABLE orders (id int PRIMARY KEY, shop text, amount int, state text)")
    for number in range(6):
        session.execute(
            "INSERT INTO orders (id, shop, amount, state) VALUES (%s, 's', %s, %s)",
            (number, number * 10, "open" if number % 2 else "done"),
        )
    session.execute(
        "CREATE PROJECTION open_orders AS SELECT shop, id, amount * 100 AS cents FROM orders "
        "WHERE state = 'open' AND amount > 10 PRIMARY KEY (shop, id)"
    )
    query = f"SELECT shop, id, cents FROM open_orders {READ}"
    assert rows(session, query) == [("s", 3, 3000), ("s", 5, 5000)]
    session.execute("UPDATE orders SET state = 'done' WHERE id = 3")
    session.execute("UPDATE orders SET amount = 11 WHERE id = 1")
    assert rows(session, query) == [("s", 1, 1100), ("s", 5, 5000)]


def test_what_expires_leaves_the_view(session):
    session.execute("CREATE TABLE short (id int PRIMARY KEY, v int)")
    session.execute(
        "CREATE MATERIALIZED VIEW short_by_v AS SELECT id, v FROM short WHERE v IS NOT NULL AND id IS NOT NULL PRIMARY KEY (v, id)"
    )
    session.execute("INSERT INTO short (id, v) VALUES (1, 1)")
    session.execute("INSERT INTO short (id, v) VALUES (2, 2) USING TTL 2")
    session.execute("UPDATE short USING TTL 2 SET v = 3 WHERE id = 1")
    query = f"SELECT v, id FROM short_by_v {READ}"
    assert rows(session, query) == [(2, 2), (3, 1)]
    deadline = time.monotonic() + 30
    while rows(session, query) != [] and time.monotonic() < deadline:
        pass
    assert rows(session, query) == []


def test_a_view_is_built_over_many_rows(session):
    session.execute("CREATE TABLE many (a int, b int, v int, PRIMARY KEY (a, b))")
    insert = session.prepare("INSERT INTO many (a, b, v) VALUES (?, ?, ?)")
    futures = [session.execute_async(insert, (a, b, a * b % 7)) for a in range(20) for b in range(250)]
    for future in futures:
        future.result()
    session.execute(
        "CREATE PROJECTION many_by_v AS SELECT a, b, v FROM many WHERE v > 2 PRIMARY KEY (v, a, b)"
    )
    wanted = sorted((a * b % 7, a, b) for a in range(20) for b in range(250) if a * b % 7 > 2)
    assert rows(session, f"SELECT v, a, b FROM many_by_v {READ}") == wanted


def test_views_are_kept_after_a_restart():
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
            session.execute("CREATE PROJECTION t_by_v AS SELECT v, id FROM t PRIMARY KEY (v, id)")
            session.execute("INSERT INTO t (id, v) VALUES (1, 1)")
        node.restart()
        with driver_session(node) as session:
            query = f"SELECT v, id FROM k.t_by_v {READ}"
            assert rows(session, query) == [(1, 1)]
            session.execute("UPDATE k.t SET v = 2 WHERE id = 1")
            assert rows(session, query) == [(2, 1)]


def test_freshness_is_for_views(session):
    with pytest.raises(InvalidRequest, match="FRESHNESS is only for materialized views and projections"):
        session.execute(f"SELECT * FROM users {READ}")
    for freshness in ("5 s", "1s", str(int(time.time() * 1_000_000))):
        session.execute(f"SELECT * FROM by_city WITH FRESHNESS {freshness}")


def test_a_row_that_comes_while_others_go_stays_under_a_cap(session):
    session.execute("CREATE TABLE notes (board int, id int, at int, PRIMARY KEY (board, id))")
    session.execute("CREATE PROJECTION newest_notes AS SELECT board, at, id FROM notes PRIMARY KEY (board, at, id) "
                    "WITH CLUSTERING ORDER BY (at DESC, id ASC) AND cap = 3")  # fmt: skip
    query = f"SELECT at FROM newest_notes WHERE board = 1 {READ}"
    for number, at in [(1, 100), (3, 90), (4, 80), (5, 70), (6, 60)]:
        session.execute("INSERT INTO notes (board, id, at) VALUES (1, %s, %s)", (number, at))
    assert rows(session, query) == [(80,), (90,), (100,)]
    # All in one pass over the log, in the order of the keys: what was evicted (70, 60) does not come back, and the new row stays.
    session.execute(
        "BEGIN BATCH DELETE FROM notes WHERE board = 1 AND id = 1; INSERT INTO notes (board, id, at) VALUES (1, 2, 75); "
        "DELETE FROM notes WHERE board = 1 AND id = 3; APPLY BATCH"
    )
    assert rows(session, query) == [(75,), (80,)]
