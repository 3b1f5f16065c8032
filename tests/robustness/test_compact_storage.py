"""Tables WITH COMPACT STORAGE: what is written stays through flushes, restarts, snapshots and new nodes, and drivers know the tables for what they are."""

import json

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import SimpleStatement
from cluster import Cluster
from conftest import admin, driver_session, new_node, program

TABLES = {
    "fixed": "(k int PRIMARY KEY, a int, b text)",
    "one": "(k int, c text, v int, PRIMARY KEY (k, c))",
    "several": "(k int, c int, d int, v int, PRIMARY KEY (k, c, d))",
    "bare": "(k int, c int, PRIMARY KEY (k, c))",
}
PARTITIONS = 40


def create(session):
    for name, columns in TABLES.items():
        session.execute(f"CREATE TABLE {name} {columns} WITH COMPACT STORAGE")
    session.execute("CREATE INDEX ON fixed (a)")


def fill(session):
    for k in range(PARTITIONS):
        session.execute("INSERT INTO fixed (k, a, b) VALUES (%s, %s, %s)", (k, k % 7, f"b{k}"))
        session.execute("INSERT INTO one (k, c, v) VALUES (%s, 'x', %s)", (k, k))
        session.execute("INSERT INTO several (k, c, d, v) VALUES (%s, 1, 5, 15)", (k,))
        session.execute("INSERT INTO several (k, c, v) VALUES (%s, 1, 10)", (k,))
        session.execute("UPDATE several SET v = 20 WHERE k = %s AND c = 2", (k,))
        session.execute("INSERT INTO bare (k, c) VALUES (%s, %s)", (k, k + 1))
    # Rows end with their last value.
    session.execute("UPDATE fixed SET a = null, b = null WHERE k = 0")
    session.execute("DELETE v FROM one WHERE k = 0 AND c = 'x'")
    session.execute("DELETE FROM several WHERE k = 0 AND c = 1")
    session.execute("DELETE FROM bare WHERE k = 0 AND c = 1")


def expected():
    partitions = range(1, PARTITIONS)
    return {
        "fixed": [(k, k % 7, f"b{k}") for k in partitions],
        "one": [(k, "x", k) for k in partitions],
        "several": [(0, 2, None, 20)]
        + [row for k in partitions for row in [(k, 1, None, 10), (k, 1, 5, 15), (k, 2, None, 20)]],
        "bare": [(k, k + 1) for k in partitions],
    }


def found(session, level=ConsistencyLevel.ONE):
    def rows(table):
        answer = session.execute(SimpleStatement(f"SELECT * FROM {table}", consistency_level=level, fetch_size=7))
        # The sort is stable: the order within a partition is the node's.
        return sorted((tuple(row) for row in answer), key=lambda row: row[0])

    return {table: rows(table) for table in TABLES}


def by_index(session):
    return sorted(row.k for row in session.execute("SELECT k FROM fixed WHERE a = 3"))


INDEXED = [k for k in range(1, PARTITIONS) if k % 7 == 3]


def test_rows_stay_through_flushes_restarts_and_snapshots():
    with new_node() as node:
        with driver_session(node) as session:
            create(session)
            fill(session)
            assert found(session) == expected()
            assert by_index(session) == INDEXED
            node.administer("flush")
            assert found(session) == expected()
        node.restart()
        with driver_session(node) as session:
            assert found(session) == expected()
            assert by_index(session) == INDEXED
            for table in TABLES:
                session.execute(f"DROP TABLE {table}")
            names = {entry["name"] for entry in node.report("listsnapshots")["snapshots"]}
            for name in names:
                status, said = admin(node, "restore", "--json", "-t", name)
                assert status == 0, said
                assert json.loads(said)["tables"]
            assert found(session) == expected()
            assert by_index(session) == INDEXED
            # They are compact as before.
            session.execute("UPDATE several SET v = null WHERE k = 1 AND c = 2")
            assert [tuple(row) for row in session.execute("SELECT c, d FROM several WHERE k = 1")] == [(1, None), (1, 5)]
            with pytest.raises(InvalidRequest, match="Column v is mandatory for this COMPACT STORAGE table"):
                session.execute("INSERT INTO one (k, c) VALUES (1, 'y')")


def test_rows_are_streamed_to_a_new_node():
    with Cluster(1, program()) as cluster:
        with driver_session(cluster.nodes[0]) as session:
            create(session)
            fill(session)
        cluster.add()
        for node in cluster.nodes:
            with driver_session(node) as session:
                assert found(session) == expected()
                assert by_index(session) == INDEXED


def test_drivers_see_compact_tables():
    with new_node() as node, driver_session(node) as session:
        create(session)
        session.execute("CREATE TABLE plain (k int PRIMARY KEY, v int)")
        session.cluster.refresh_schema_metadata()
        tables = session.cluster.metadata.keyspaces["k"].tables
        assert {name for name, table in tables.items() if table.is_compact_storage} == set(TABLES)
        columns = {name: list(tables[name].columns) for name in TABLES}
        assert columns == {
            "fixed": ["k", "a", "b"],
            "one": ["k", "c", "v"],
            "several": ["k", "c", "d", "v"],
            "bare": ["k", "c"],
        }
        assert "COMPACT STORAGE" in tables["fixed"].as_cql_query()
        with pytest.raises(InvalidRequest, match="DROP COMPACT STORAGE is disabled"):
            session.execute("ALTER TABLE fixed DROP COMPACT STORAGE")


def test_compact_storage_is_dropped_where_a_setting_allows_it():
    with new_node(settings={"drop_compact_storage_enabled": True}) as node:
        with driver_session(node) as session:
            create(session)
            fill(session)
            node.administer("flush")
            for table in TABLES:
                session.execute(f"ALTER TABLE {table} DROP COMPACT STORAGE")
            shown = expected()
            shown["fixed"] = [(k, None, a, b, None) for k, a, b in shown["fixed"]]
            shown["bare"] = [(k, c, None) for k, c in shown["bare"]]
            assert found(session) == shown
            assert by_index(session) == INDEXED
        node.restart()
        with driver_session(node) as session:
            assert found(session) == shown
            session.execute("INSERT INTO fixed (k, a, column1) VALUES (1, 3, 'new')")
            assert 1 in by_index(session)
            assert tuple(session.execute("SELECT * FROM fixed WHERE k = 1").one()) == (1, "new", 3, "b1", None)
