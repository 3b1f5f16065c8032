"""Tables WITH cap in a cluster of real processes: exact at every level at every node, with a replica that has missed changes, and after a repair."""

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement
from cluster import Cluster
from conftest import PROGRAM
from load import REPLICATED
from test_repair import NO_HINTS, down, up

ALL, ONE, QUORUM = ConsistencyLevel.ALL, ConsistencyLevel.ONE, ConsistencyLevel.QUORUM
CAP = 10
TABLE = f"CREATE TABLE shop.feed (p int, c int, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) AND cap = {CAP}"


def rows(session, level, rest=""):
    statement = SimpleStatement(f"SELECT c FROM shop.feed WHERE p = 1 {rest}", consistency_level=level, fetch_size=4)
    return [row.c for row in session.execute(statement)]


def insert(session, numbers):
    prepared = session.prepare("INSERT INTO shop.feed (p, c, v) VALUES (1, ?, 'x')")
    for number in numbers:
        session.execute(prepared, (number,))


def test_every_level_at_every_node_sees_the_first_rows(three_nodes, connect):
    first = connect(three_nodes, only=three_nodes.nodes[0], consistency=ALL)
    first.execute(REPLICATED)
    first.execute(TABLE)
    insert(first, range(50))
    first.execute("DELETE FROM shop.feed WHERE p = 1 AND c = 45")
    expected = [49, 48, 47, 46, 44, 43, 42, 41, 40]
    for node in three_nodes.nodes:
        session = connect(three_nodes, only=node)
        for level in (ONE, QUORUM, ALL):
            assert rows(session, level) == expected
            assert rows(session, level, "ORDER BY c ASC") == expected[::-1]
            assert rows(session, level, "AND c < 43") == [42, 41, 40]
            assert rows(session, level, "AND c = 39") == []


def test_evicted_rows_do_not_come_back_from_a_replica_that_has_missed_changes(connect):
    with Cluster(3, PROGRAM, settings=NO_HINTS) as cluster:
        first = connect(cluster, only=cluster.nodes[0])
        first.execute(REPLICATED)
        first.execute(TABLE)
        insert(first, range(15))
        down(cluster, cluster.nodes[2])
        insert(first, range(15, 30))
        first.execute("DELETE FROM shop.feed WHERE p = 1 AND c = 25")
        first.execute("DELETE FROM shop.feed WHERE p = 1 AND c >= 21 AND c <= 23")
        expected = [29, 28, 27, 26, 24, 20]
        assert rows(first, QUORUM) == expected
        up(cluster, cluster.nodes[2])
        # Every quorum has a replica that knows the marks.
        for node in cluster.nodes:
            assert rows(connect(cluster, only=node), QUORUM) == expected
        insert(first, [5])
        assert rows(first, QUORUM) == [*expected, 5]
        status, output = cluster.nodes[0].admin("repair", "shop")
        assert status == 0, output
        for node in cluster.nodes:
            assert rows(connect(cluster, only=node), ONE) == [*expected, 5]


def test_a_deletion_needs_a_quorum_and_an_insert_does_not(three_nodes, connect):
    first = connect(three_nodes, only=three_nodes.nodes[0], consistency=ONE)
    first.execute(REPLICATED)
    first.execute(TABLE)
    insert(first, range(15))
    for node in three_nodes.nodes[1:]:
        Cluster.kill(node)
    insert(first, [15])
    try:
        first.execute("DELETE FROM shop.feed WHERE p = 1 AND c = 15")
    except Exception as refusal:  # Unavailable, or a timeout while the deaths are not known yet.
        assert "QUORUM" in str(refusal) or "timeout" in str(refusal).lower(), refusal
    else:
        raise AssertionError("the rows could not be read")
    assert rows(first, ONE)[0] == 15
