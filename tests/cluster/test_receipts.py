"""Receipts in a cluster: replicas send their part, and the charge follows from the level, not from who answers."""

import json

from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement
from load import REPLICATED

KEY = "helenus-receipt"
ALL, ONE, QUORUM, SERIAL = ConsistencyLevel.ALL, ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL


def receipt_of(session, text, level):
    future = session.execute_async(SimpleStatement(text, consistency_level=level), custom_payload={KEY: b""})
    rows = future.result()
    return rows, json.loads(future.custom_payload[KEY])


def test_the_charge_follows_from_the_level_whichever_node_is_asked(three_nodes, connect):
    session = connect(three_nodes)
    session.execute(REPLICATED)
    session.execute("CREATE TABLE shop.costs (k int, c int, v text, PRIMARY KEY (k, c))")
    for k in range(5):
        for c in range(10):
            session.execute(f"INSERT INTO shop.costs (k, c, v) VALUES ({k}, {c}, 'value')")
    pinned = [connect(three_nodes, only=node) for node in three_nodes.nodes]
    for level, needed in ((ONE, 1), (QUORUM, 2), (ALL, 3)):
        for each in pinned:
            rows, receipt = receipt_of(each, "SELECT * FROM shop.costs WHERE k = 1", level)
            assert len(list(rows)) == 10
            assert (receipt["replicas_read"], receipt["ranges_read"], receipt["rows_read"]) == (needed, 1, 10)
            assert receipt["charge"] == 21 * needed
            if needed > 1:
                assert receipt["messages"] >= needed - 1 and receipt["bytes_between_nodes"] > 0
    charges = {receipt_of(each, "SELECT * FROM shop.costs", QUORUM)[1]["charge"] for each in pinned}
    assert len(charges) == 1
    for each in pinned:
        _, receipt = receipt_of(each, "INSERT INTO shop.costs (k, c, v) VALUES (6, 1, 'value')", ALL)
        assert (receipt["partitions_written"], receipt["replicas_written"], receipt["charge"]) == (1, 3, 78)
        # Each of three logs has it.
        assert receipt["bytes_logged"] >= 3 * receipt["bytes_written"]


def test_transactions_counters_and_explain(three_nodes, connect):
    session = connect(three_nodes)
    session.execute(REPLICATED)
    session.execute("CREATE TABLE shop.costs (k int PRIMARY KEY, v int)")
    session.execute("CREATE TABLE shop.counts (k int PRIMARY KEY, n counter)")
    rows, receipt = receipt_of(session, "INSERT INTO shop.costs (k, v) VALUES (1, 1) IF NOT EXISTS", QUORUM)
    assert rows.one().applied
    assert (receipt["transactions"], receipt["partitions_written"], receipt["replicas_written"]) == (1, 1, 3)
    rows, receipt = receipt_of(session, "INSERT INTO shop.costs (k, v) VALUES (1, 2) IF NOT EXISTS", QUORUM)
    assert not rows.one().applied
    assert (receipt["transactions"], receipt["partitions_written"], receipt["rows_read"]) == (1, 0, 1)
    rows, receipt = receipt_of(session, "SELECT * FROM shop.costs WHERE k = 1", SERIAL)
    assert rows.one().v == 1 and receipt["rows_read"] == 1
    for node in three_nodes.nodes:
        pinned = connect(three_nodes, only=node)
        _, receipt = receipt_of(pinned, "UPDATE shop.counts SET n = n + 1 WHERE k = 1", QUORUM)
        assert (receipt["partitions_written"], receipt["replicas_written"]) == (1, 3)
        found = list(pinned.execute(SimpleStatement("EXPLAIN SELECT * FROM shop.costs WHERE k = 1", consistency_level=QUORUM)))
        select = next(row for row in found if row.operation == "SELECT")
        assert select.detail == "consistency QUORUM: 2 of 3 replicas"
        replicas = [row.detail for row in found if row.operation == "REPLICAS"]
        assert len(replicas) == 1 and replicas[0].count(",") == 2
