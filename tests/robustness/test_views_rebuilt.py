"""Views where rows of their tables come or go without being written: TRUNCATE, restored snapshots, imported files, replayed logs."""

import shutil

import pytest
from conftest import admin, driver_session, new_node

READ = "WITH FRESHNESS 0 ms"
ROWS = 300


def rows(session, query):
    return sorted(tuple(row) for row in session.execute(query))


def done(node, *words):
    status, said = admin(node, *words)
    assert status == 0, said
    return said


def checked(session, view):
    """How a view differs from what it is computed of."""
    counts = session.execute(f"CHECK PROJECTION {view}", timeout=120).one()
    return counts.missing, counts.different, counts.orphaned


def write_orders(session, numbers):
    insert = session.prepare("INSERT INTO orders (shop, id, customer, amount) VALUES (?, ?, ?, ?)")
    for number in numbers:
        session.execute(insert, (number % 7, number, number % 11, number))


VIEWS = {
    "by_customer": "MATERIALIZED VIEW by_customer AS SELECT * FROM orders WHERE customer IS NOT NULL AND shop IS NOT NULL "
    "AND id IS NOT NULL PRIMARY KEY (customer, shop, id)",
    "sums": "PROJECTION sums AS SELECT shop, count(*) AS n, sum(amount) AS total FROM orders GROUP BY shop PRIMARY KEY (shop)",
    "named": "PROJECTION named AS SELECT o.shop, o.id, c.name FROM orders AS o JOIN customers AS c ON o.customer = c.id "
    "PRIMARY KEY (shop, id)",
}


def create_tables(session):
    session.execute("CREATE TABLE orders (shop int, id int, customer int, amount int, PRIMARY KEY (shop, id))")
    session.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    for customer in range(11):
        session.execute("INSERT INTO customers (id, name) VALUES (%s, %s)", (customer, f"customer {customer}"))
    for create in VIEWS.values():
        session.execute(f"CREATE {create}")


def counts(session):
    """The rows of each view, once all is in it that was written."""
    return {view: len(rows(session, f"SELECT * FROM {view} {READ}")) for view in VIEWS}


@pytest.fixture
def filled():
    with new_node() as node, driver_session(node) as session:
        create_tables(session)
        write_orders(session, range(ROWS))
        assert counts(session) == {"by_customer": ROWS, "sums": 7, "named": ROWS}
        yield node, session


def test_truncate_empties_the_views_of_a_table(filled):
    _, session = filled
    session.execute("TRUNCATE orders")
    assert counts(session) == dict.fromkeys(VIEWS, 0)
    write_orders(session, range(10))
    assert counts(session) == {"by_customer": 10, "sums": 7, "named": 10}
    session.execute("TRUNCATE customers")
    assert counts(session) == {"by_customer": 10, "sums": 7, "named": 0}
    session.execute("INSERT INTO customers (id, name) VALUES (3, 'again')")
    assert rows(session, f"SELECT shop, id, name FROM named {READ}") == [(3, 3, "again")]
    assert {view: checked(session, view) for view in VIEWS} == dict.fromkeys(VIEWS, (0, 0, 0))


def test_a_build_again_goes_on_behind_a_restart(filled):
    node, session = filled
    session.execute("TRUNCATE orders")
    write_orders(session, range(5))
    node.restart()
    with driver_session(node) as session:
        assert counts(session) == {"by_customer": 5, "sums": 5, "named": 5}
        assert rows(session, "SELECT view_name FROM system.built_views") == [("by_customer",), ("named",), ("sums",)]


def test_a_restore_into_a_table_with_views_reaches_them(filled):
    node, session = filled
    done(node, "snapshot", "-t", "monday", "k")
    session.execute("TRUNCATE orders")
    write_orders(session, range(ROWS, ROWS + 10))
    assert counts(session) == {"by_customer": 10, "sums": 7, "named": 10}
    done(node, "restore", "-t", "monday", "k", "orders")
    assert counts(session) == {"by_customer": ROWS + 10, "sums": 7, "named": ROWS + 10}
    total = sum(row.total for row in session.execute("SELECT total FROM sums"))
    assert total == sum(range(ROWS + 10))
    status, said = admin(node, "restore", "-t", "monday", "k", "sums")
    assert status == 1 and "k.sums is computed by the node: it comes back with the table" in said, said


def test_views_come_back_with_their_tables(filled):
    node, session = filled
    described = session.execute("DESCRIBE MATERIALIZED VIEW by_customer").one().create_statement
    done(node, "snapshot", "-t", "monday", "k")
    session.execute("DROP KEYSPACE k")
    done(node, "restore", "-t", "monday", "k")
    session.execute("USE k")
    assert counts(session) == {"by_customer": ROWS, "sums": 7, "named": ROWS}
    assert session.execute("DESCRIBE MATERIALIZED VIEW by_customer").one().create_statement == described
    write_orders(session, range(ROWS, ROWS + 3))
    assert counts(session) == {"by_customer": ROWS + 3, "sums": 7, "named": ROWS + 3}
    # One that was dropped on purpose comes with its table, another table's does not.
    session.execute("DROP PROJECTION sums")
    session.execute("DROP PROJECTION named")
    done(node, "restore", "-t", "monday", "k", "customers")
    assert rows(session, "SELECT view_name FROM system_schema.views WHERE keyspace_name = 'k'") == [("by_customer",)]
    done(node, "restore", "-t", "monday", "k", "orders")
    assert counts(session) == {"by_customer": ROWS + 3, "sums": 7, "named": ROWS + 3}


def test_imported_files_reach_views(filled, tmp_path):
    node, session = filled
    done(node, "snapshot", "-t", "monday", "k", "orders")
    for shard in node.data_dir.glob("shard-*"):
        shutil.copytree(shard / "snapshots/monday", tmp_path / shard.name)
    session.execute("TRUNCATE orders")
    done(node, "import", str(tmp_path))
    assert counts(session) == {"by_customer": ROWS, "sums": 7, "named": ROWS}


def test_replayed_logs_reach_views(tmp_path):
    settings = {"commit_log_archive_dir": str(tmp_path)}
    with new_node(settings=settings) as node, driver_session(node) as session:
        create_tables(session)
        write_orders(session, range(ROWS))
        done(node, "archivelog")
        session.execute("TRUNCATE orders")
        done(node, "replay", str(tmp_path), "k", "orders")
        assert counts(session) == {"by_customer": ROWS, "sums": 7, "named": ROWS}
