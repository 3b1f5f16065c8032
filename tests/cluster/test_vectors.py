"""The nearest vectors in a cluster: at the level of the statement, whichever node is asked, also when one of the replicas has missed changes."""

import math
import random

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import PROGRAM
from load import REPLICATED
from test_repair import NO_HINTS, down, up

ALL, ONE, QUORUM = ConsistencyLevel.ALL, ConsistencyLevel.ONE, ConsistencyLevel.QUORUM
# So few are compared exactly.
ROWS = 400


def vector(source):
    return [source.uniform(-1, 1) for _ in range(4)]


def make(session, options=""):
    session.execute(REPLICATED)
    session.execute(f"CREATE TABLE shop.items (p int, c int, v vector<float, 4>, tag int, PRIMARY KEY (p, c)) {options}")
    session.execute(
        "CREATE CUSTOM INDEX ON shop.items (v) USING 'sai' WITH OPTIONS = {'similarity_function': 'euclidean'}"
    )
    session.execute("CREATE INDEX ON shop.items (tag) USING 'sai'")


def fill(session, source, model, numbers):
    insert = session.prepare("INSERT INTO shop.items (p, c, v, tag) VALUES (?, ?, ?, ?)")
    rows = [(n % 40, n, vector(source), n % 3) for n in numbers]
    execute_concurrent_with_args(session, insert, rows, concurrency=8)
    model.update({(p, c): (v, tag) for p, c, v, tag in rows})


def found(session, target, level, where="", limit=10):
    text = f"SELECT p, c FROM shop.items {where} ORDER BY v ANN OF {target} LIMIT {limit}"
    return [tuple(row) for row in session.execute(SimpleStatement(text, consistency_level=level))]


def nearest(model, target, limit=10, passes=lambda p, tag: True):
    keys = [key for key, (_, tag) in model.items() if passes(key[0], tag)]
    return sorted(keys, key=lambda key: math.dist(model[key][0], target))[:limit]


def wait_until_built(session, level):
    until("the index is built", lambda: found(session, [0, 0, 0, 0], level) is not None)


def agree(session, source, model, level):
    for _ in range(5):
        target = vector(source)
        assert found(session, target, level) == nearest(model, target)
        assert found(session, target, level, "WHERE tag = 1", 5) == nearest(model, target, 5, lambda p, tag: tag == 1)
        assert found(session, target, level, "WHERE p = 4", 3) == nearest(model, target, 3, lambda p, tag: p == 4)


def test_every_level_at_every_node_finds_the_nearest(three_nodes, connect):
    source, model = random.Random(3), {}
    session = connect(three_nodes, consistency=ALL)
    make(session)
    fill(session, source, model, range(ROWS))
    for node in three_nodes.nodes:
        session = connect(three_nodes, only=node)
        wait_until_built(session, ALL)
        for level in (ONE, QUORUM, ALL):
            agree(session, source, model, level)
        with pytest.raises(InvalidRequest, match="Top-K queries can only be run with consistency level"):
            found(session, [0, 0, 0, 0], ConsistencyLevel.SERIAL)


def test_a_replica_that_missed_changes_neither_brings_back_nor_hides_a_row(connect):
    source, model = random.Random(5), {}
    with Cluster(3, PROGRAM, settings=NO_HINTS) as cluster:
        first, second, third = cluster.nodes
        session = connect(cluster, only=first, consistency=ALL)
        make(session, "WITH read_repair = 'NONE'")
        fill(session, source, model, range(ROWS))
        wait_until_built(session, ALL)
        down(cluster, third)
        behind = connect(cluster, only=first)
        wait_until_built(behind, QUORUM)
        fill(behind, source, model, range(0, ROWS, 3))
        for p in range(0, 40, 5):
            behind.execute(f"DELETE FROM shop.items WHERE p = {p}")
            for key in [key for key in model if key[0] == p]:
                del model[key]
        agree(behind, source, model, QUORUM)
        up(cluster, third)
        down(cluster, second)
        for node in (third, first):
            session = connect(cluster, only=node)
            wait_until_built(session, QUORUM)
            agree(session, source, model, QUORUM)


def test_a_row_is_found_whose_vector_and_tag_are_at_different_replicas(connect):
    with Cluster(3, PROGRAM, settings=NO_HINTS) as cluster:
        first, second, third = cluster.nodes
        session = connect(cluster, only=first, consistency=ALL)
        make(session, "WITH read_repair = 'NONE'")
        fill(session, random.Random(7), {}, range(ROWS))
        wait_until_built(session, ALL)
        for missing, change in (
            (third, "UPDATE shop.items SET v = [5, 5, 5, 5] WHERE p = 1 AND c = 1"),
            (second, "UPDATE shop.items SET tag = 9 WHERE p = 1 AND c = 1"),
        ):
            down(cluster, missing)
            connect(cluster, only=first, consistency=QUORUM).execute(change)
            up(cluster, missing)
        # Of the two that are left one has the vector, and the other the tag.
        down(cluster, first)
        for node in (second, third):
            session = connect(cluster, only=node)
            wait_until_built(session, QUORUM)
            assert found(session, [5, 5, 5, 5], QUORUM, "WHERE tag = 9", 3) == [(1, 1)]
            assert found(session, [5, 5, 5, 5], QUORUM, limit=1) == [(1, 1)]
