"""What the options and constraints of tables do on a node, as a driver sees it: periodic flushes, compressors, constraints after a restart."""

import pytest
from cassandra import InvalidRequest
from cluster import until
from conftest import driver_session, new_node

CLASSES = ("SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "LZ4Compressor", "NoopCompressor")
ROWS = 2_000


def report(node, table):
    return next(report for report in node.report("tablestats")["tables"] if report["table"] == table)


def test_a_memtable_is_flushed_as_often_as_its_table_says():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.often (p int PRIMARY KEY) WITH memtable_flush_period_in_ms = 100")
        session.execute("CREATE TABLE k.never (p int PRIMARY KEY)")
        for table in ("often", "never"):
            session.execute(f"INSERT INTO k.{table} (p) VALUES (1)")
        until("a flush", lambda: report(node, "often")["file_count"] == 1)
        assert report(node, "never")["file_count"] == 0
        session.execute("INSERT INTO k.often (p) VALUES (1)")
        until("another flush", lambda: report(node, "often")["file_count"] >= 2)
        # An option that is set later is obeyed, too.
        session.execute("ALTER TABLE k.never WITH memtable_flush_period_in_ms = 100")
        until("a flush after the change", lambda: report(node, "never")["file_count"] == 1)


def test_blocks_of_every_compressor_are_read_after_a_restart():
    value = "much the same text, again and again, " * 20
    sizes = {}
    with new_node() as node:
        with driver_session(node) as session:
            for name in CLASSES:
                session.execute(
                    f"CREATE TABLE k.{name} (p int, c int, v text, PRIMARY KEY (p, c)) WITH compression = {{'class': '{name}'}}"
                )
                insert = session.prepare(f"INSERT INTO k.{name} (p, c, v) VALUES (?, ?, ?)")
                futures = [session.execute_async(insert, (row % 7, row, f"{row} {value}")) for row in range(ROWS)]
                for future in futures:
                    future.result()
            node.administer("flush", keyspace="k")
            for name in CLASSES:
                sizes[name] = report(node, name.lower())["disk_bytes"]
        assert all(sizes[name] * 3 < sizes["NoopCompressor"] for name in CLASSES if name != "NoopCompressor"), sizes
        node.restart()
        with driver_session(node) as session:
            for name in CLASSES:
                rows = list(session.execute(f"SELECT c, v FROM k.{name}"))
                assert len(rows) == ROWS and all(row.v == f"{row.c} {value}" for row in rows)


def test_constraints_hold_for_prepared_statements_and_after_a_restart():
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE k.t (p int PRIMARY KEY, v int CHECK v > 5 AND v < 10, w text NOT NULL)")
        for _ in range(2):
            with driver_session(node) as session:
                insert = session.prepare("INSERT INTO k.t (p, v, w) VALUES (?, ?, ?)")
                session.execute(insert, (1, 6, "a"))
                with pytest.raises(InvalidRequest, match="It should be v > 5"):
                    session.execute(insert, (2, 5, "a"))
                with pytest.raises(InvalidRequest, match="'w' as it is null"):
                    session.execute(insert, (2, 6, None))
                with pytest.raises(InvalidRequest, match="'w' has to be specified"):
                    session.execute("INSERT INTO k.t (p, v) VALUES (2, 6)")
                assert [row.p for row in session.execute("SELECT p FROM k.t")] == [1]
            node.restart()
