"""Materialized views and projections in a cluster of real processes: true at every node, without the node that kept them, and with it again."""

from cluster import Cluster
from conftest import PROGRAM
from load import REPLICATED

FRESH = "USING TIMEOUT 25s WITH FRESHNESS 0 ms"
TABLES = (
    "CREATE TABLE shop.orders (id int PRIMARY KEY, customer int, state text)",
    "CREATE TABLE shop.customers (id int PRIMARY KEY, name text)",
    "CREATE TABLE shop.likes (post int, user int, PRIMARY KEY (post, user))",
    "CREATE MATERIALIZED VIEW shop.by_state AS SELECT * FROM shop.orders WHERE state IS NOT NULL AND id IS NOT NULL PRIMARY KEY (state, id)",
    "CREATE PROJECTION shop.named AS SELECT o.id, o.state, c.name FROM shop.orders AS o JOIN shop.customers AS c ON o.customer = c.id "
    "PRIMARY KEY (name, id)",
    "CREATE PROJECTION shop.like_count AS SELECT post, count(*) AS n FROM shop.likes GROUP BY post PRIMARY KEY (post)",
)


def rows(session, query):
    return sorted(tuple(row) for row in session.execute(f"{query} {FRESH}"))


def check(session):
    """The views are what the base tables say."""
    orders = {row.id: row for row in session.execute("SELECT * FROM shop.orders")}
    names = {row.id: row.name for row in session.execute("SELECT * FROM shop.customers")}
    likes = {}
    for row in session.execute("SELECT post FROM shop.likes"):
        likes[row.post] = likes.get(row.post, 0) + 1
    named = sorted((names[row.customer], row.id, row.state) for row in orders.values() if row.customer in names)
    assert rows(session, "SELECT state, id FROM shop.by_state") == sorted((row.state, row.id) for row in orders.values())
    assert rows(session, "SELECT name, id, state FROM shop.named") == named
    assert rows(session, "SELECT post, n FROM shop.like_count") == sorted(likes.items())


def write(sessions, first):
    """Writes by all the nodes in turn; each order changes its state."""
    for number in range(first, first + 60):
        session = sessions[number % len(sessions)]
        session.execute("INSERT INTO shop.orders (id, customer, state) VALUES (%s, %s, 'new')", (number % 100, number % 7))
        session.execute("UPDATE shop.orders SET state = %s WHERE id = %s", (f"s{number % 5}", (number * 3) % 100))
        session.execute("INSERT INTO shop.likes (post, user) VALUES (%s, %s)", (number % 9, number))
        if number % 10 == 0:
            session.execute("DELETE FROM shop.orders WHERE id = %s", (number % 100,))
            session.execute("DELETE FROM shop.likes WHERE post = %s", (number % 9,))
            session.execute("INSERT INTO shop.customers (id, name) VALUES (%s, %s)", (number // 10 % 7, f"n{number}"))


def test_views_are_true_at_every_node_and_without_one(connect):
    with Cluster(3, PROGRAM) as cluster:
        sessions = [connect(cluster, only=node) for node in cluster.nodes]
        sessions[0].execute(REPLICATED)
        for table in TABLES[:3]:
            sessions[0].execute(table)
        write(sessions[:1], 0)
        for table in TABLES[3:]:
            sessions[0].execute(table)
        write(sessions, 60)
        for session in sessions:
            check(session)
        Cluster.kill(cluster.nodes[2])
        write(sessions[:2], 120)
        for session in sessions[:2]:
            check(session)
        cluster.nodes[2].start()
        third = connect(cluster, only=cluster.nodes[2])
        write([*sessions[:2], third], 180)
        for session in [*sessions[:2], third]:
            check(session)
        for view in ("by_state", "named", "like_count"):
            row = sessions[0].execute(f"CHECK PROJECTION shop.{view}").one()
            assert (row.missing, row.different, row.orphaned) == (0, 0, 0), row
