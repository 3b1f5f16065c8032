"""Mutations and rows that no layer may be given: refused where they come in, and the node goes on and starts again.

Each of the first two stopped a shard, or the node for good, before there was one limit for the size of a mutation.
"""

import pytest
from cassandra import InvalidRequest, ReadFailure
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ServerError
from cassandra.query import BatchStatement, BatchType
from conftest import driver_session, new_node
from node import NodeError

MIB = 1 << 20
OVERSIZED = "Rejected an oversized mutation"


def test_a_blob_that_no_file_can_hold_is_refused_without_a_commit_log():
    with new_node() as node:
        with driver_session(node) as session:
            session.execute(
                "CREATE KEYSPACE volatile WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
                " AND durable_writes = false"
            )
            session.execute("CREATE TABLE volatile.t (k int PRIMARY KEY, v blob)")
            write = session.prepare("INSERT INTO volatile.t (k, v) VALUES (?, ?)")
            with pytest.raises(InvalidRequest, match=OVERSIZED):
                session.execute(write, (1, bytes(130 * MIB)))
            session.execute(write, (2, bytes(15 * MIB)))
            session.execute(write, (3, b"small"))
        node.restart()
        with driver_session(node) as session:
            rows = session.execute("SELECT k, v FROM volatile.t")
            assert {row.k: len(row.v) for row in rows} == {2: 15 * MIB, 3: 5}


def test_long_segments_need_a_limit_and_with_it_the_node_starts_again():
    long_segments = {"commit_log_segment_bytes": 512 * MIB, "commit_log_total_bytes": 4096 * MIB}
    with pytest.raises(NodeError, match="half of it is the largest mutation"), new_node(settings=long_segments):
        pass
    with new_node(settings={**long_segments, "max_mutation_size": "16MiB"}) as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE t (k int PRIMARY KEY, v blob)")
            write = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
            with pytest.raises(InvalidRequest, match=OVERSIZED):
                session.execute(write, (1, bytes(130 * MIB)))
            batch = BatchStatement(batch_type=BatchType.LOGGED)
            for _ in range(20):
                batch.add(write, (1, bytes(MIB)))
            with pytest.raises(InvalidRequest, match=OVERSIZED):
                session.execute(batch)
            session.execute(write, (2, bytes(15 * MIB)))
        node.process.kill()
        node.ended()
        node.start()
        with driver_session(node) as session:
            assert [(row.k, len(row.v)) for row in session.execute("SELECT k, v FROM t")] == [(2, 15 * MIB)]


def test_a_row_grows_past_every_limit_element_by_element():
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE t (k int, c int, v int, s set<blob>, PRIMARY KEY (k, c))")
            session.execute("INSERT INTO t (k, c, v) VALUES (1, 1, 1)")
            session.execute("INSERT INTO t (k, c, v) VALUES (1, 2, 2)")
            add = session.prepare("UPDATE t SET s = s + ? WHERE k = 1 AND c = 1")
            # 150 MiB, of which a part is overwritten.
            for number in [*range(150), *range(20)]:
                session.execute(add, ({number.to_bytes(2, "big") + bytes([piece]) * 32_768 for piece in range(32)},))
        for is_restarted in (False, True):
            with driver_session(node) as session:
                with pytest.raises((ServerError, ReadFailure, NoHostAvailable)):
                    session.execute("SELECT s FROM t WHERE k = 1 AND c = 1")
                with pytest.raises((ServerError, ReadFailure, NoHostAvailable)):
                    session.execute("SELECT * FROM t WHERE k = 1")
                assert session.execute("SELECT v FROM t WHERE k = 1 AND c = 2").one().v == 2
            if not is_restarted:
                node.restart()
        with driver_session(node) as session:
            session.execute("DELETE s FROM t WHERE k = 1 AND c = 1")
            rows = session.execute("SELECT c, v, s FROM t WHERE k = 1")
            assert [(row.c, row.v, row.s) for row in rows] == [(1, 1, None), (2, 2, None)]
        node.restart()
        with driver_session(node) as session:
            assert [row.c for row in session.execute("SELECT c FROM t WHERE k = 1")] == [1, 2]
