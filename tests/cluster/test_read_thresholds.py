"""Thresholds of reads in a cluster: the coordinator tells of tombstones that replicas have sent, at every level and from every node."""

import pytest
from cassandra import ConsistencyLevel, ReadFailure
from cassandra.query import SimpleStatement
from cluster import Cluster
from conftest import PROGRAM
from load import REPLICATED

ONE, QUORUM, SERIAL = ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL
SETTINGS = {"tombstone_warn_threshold": 50, "tombstone_failure_threshold": 200}


def test_tombstones_of_replicas_warn_and_then_fail(connect):
    with Cluster(3, PROGRAM, settings=SETTINGS) as cluster:
        session = connect(cluster)
        session.execute(REPLICATED)
        session.execute("CREATE TABLE shop.t (k int, c int, v int, PRIMARY KEY (k, c))")
        session.execute("INSERT INTO shop.t (k, c, v) VALUES (1, 1000, 1)")
        for c in range(51):
            session.execute(f"DELETE FROM shop.t WHERE k = 1 AND c = {c}")
        texts = ["SELECT c FROM shop.t WHERE k = 1", "SELECT c FROM shop.t"]
        pinned = [connect(cluster, only=node) for node in cluster.nodes]

        def ask(each, text, level):
            future = each.execute_async(SimpleStatement(text, consistency_level=level))
            return [row.c for row in future.result()], future.warnings or []

        cases = [(texts[0], level) for level in (ONE, QUORUM, SERIAL)] + [(texts[1], level) for level in (ONE, QUORUM)]
        for each in pinned:
            for text, level in cases:
                rows, warnings = ask(each, text, level)
                assert rows == [1000]
                assert len(warnings) == 1 and "up to 51 tombstones" in warnings[0], (text, level, warnings)
        for c in range(51, 201):
            session.execute(f"DELETE FROM shop.t WHERE k = 1 AND c = {c}")
        for each in pinned:
            for text, level in cases:
                with pytest.raises(ReadFailure) as failed:
                    ask(each, text, level)
                assert list(failed.value.error_code_map.values()) == [1], (text, level)
