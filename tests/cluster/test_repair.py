"""Repair of real processes: what replicas have missed while no hints were kept for them, by command and by the schedule."""

import threading

import pytest
from cassandra import ConsistencyLevel
from cluster import Cluster, until
from conftest import PROGRAM
from load import make_table, write

# Without hints a replica has only what it got itself, and what repairs bring. The schedule would get there before the tests do.
NO_HINTS = {"hinted_handoff_enabled": False, "automatic_repair": False}


@pytest.fixture
def nodes_without_hints():
    with Cluster(3, PROGRAM, settings=NO_HINTS) as cluster:
        yield cluster


def down(cluster, node):
    """Kills a node and waits until the others know."""
    Cluster.kill(node)
    others = [other for other in cluster.nodes if other is not node]
    for other in others:
        until("its death is known", lambda other=other: members_up(other) == len(others))


def up(cluster, node):
    node.start()
    for other in cluster.nodes:
        until("all are up", lambda other=other: members_up(other) == len(cluster.nodes))


def members_up(node):
    return sum(member["is_up"] for member in Cluster.status(node)["members"])


def rows_of(cluster, connect, node):
    """The rows that a node has itself."""
    session = connect(cluster, only=node, consistency=ConsistencyLevel.ONE)
    return {row.id: row.value for row in session.execute("SELECT id, value FROM shop.items")}


def with_one_behind(cluster, connect):
    """Rows, of which the last node has missed some, and some deletions."""
    session = connect(cluster, only=cluster.nodes[0])
    insert = make_table(session)
    write(session, insert, range(200))
    down(cluster, cluster.nodes[2])
    write(session, insert, range(200, 500))
    for number in range(50):
        session.execute(f"DELETE FROM shop.items WHERE id = {number}")
    up(cluster, cluster.nodes[2])
    return {number: f"value {number}" for number in range(50, 500)}


def test_a_repair_brings_what_a_replica_has_missed(nodes_without_hints, connect):
    expected = with_one_behind(nodes_without_hints, connect)
    nodes = nodes_without_hints.nodes
    assert rows_of(nodes_without_hints, connect, nodes[2]) == {number: f"value {number}" for number in range(200)}
    code, text = nodes[1].admin("repair", "shop", "items")
    assert code == 0 and text.startswith("repaired: "), text
    for node in nodes:
        assert rows_of(nodes_without_hints, connect, node) == expected
    # Nothing is left to do, and the report says since when.
    code, text = nodes[0].admin("repair", "shop")
    assert code == 0 and " 0 parts differed, 0 mutations written, 0 bytes received, 0 bytes sent" in text, text
    code, text = nodes[2].admin("repair", "--status")
    assert code == 0 and "No repairs since the node was started" in text and "The schedule is off" in text
    tables = {entry["table"]: entry for entry in nodes[2].report("repairs")["tables"] if entry["keyspace"] == "shop"}
    assert tables["items"]["repaired_at"] and tables["items"]["age_seconds"] < 600


def test_repair_of_everything_and_its_options(nodes_without_hints, connect):
    expected = with_one_behind(nodes_without_hints, connect)
    nodes = nodes_without_hints.nodes
    # The primary ranges of all nodes are everything; the middle one also names its data center.
    for node, options in zip(nodes, [["-pr"], ["-pr", "-full"], ["-pr", "-dc", "datacenter1"]], strict=True):
        assert node.admin("repair", *options)[0] == 0
    assert rows_of(nodes_without_hints, connect, nodes[2]) == expected
    assert nodes[0].admin("repair")[0] == 0
    refused = [
        (["repair", "none"], "keyspace 'none' does not exist"),
        (["repair", "shop", "none"], "table 'shop.none' does not exist"),
        (["repair", "-dc", "mars"], "no member of the cluster is in data center 'mars'"),
        (["repair", "--cancel", "99"], "no repair 99 is under way on this node"),
    ]
    for words, reason in refused:
        code, text = nodes[0].admin(*words)
        assert code == 1 and reason in text, text


def test_a_replica_that_is_down_is_named(nodes_without_hints, connect):
    session = connect(nodes_without_hints, only=nodes_without_hints.nodes[0])
    write(session, make_table(session), range(50))
    down(nodes_without_hints, nodes_without_hints.nodes[2])
    code, text = nodes_without_hints.nodes[0].admin("repair", "shop")
    assert code == 1 and "replicas are down" in text, text
    assert nodes_without_hints.nodes[0].admin("repair", "--force", "shop")[0] == 0


def test_a_replica_gives_up_a_damaged_file_when_a_repair_has_brought_its_rows_back(nodes_without_hints, connect):
    nodes = nodes_without_hints.nodes
    session = connect(nodes_without_hints, only=nodes[0])
    write(session, make_table(session), range(200))
    table = session.execute("SELECT id FROM system_schema.tables WHERE keyspace_name = 'shop' AND table_name = 'items'").one().id
    nodes[2].administer("flush", keyspace="shop")
    down(nodes_without_hints, nodes[2])
    lost = list(nodes[2].data_dir.glob(f"shard-*/tables/{table.hex}/*-data.sst"))
    for path in lost:
        path.unlink()
    up(nodes_without_hints, nodes[2])
    assert lost and nodes[2].admin("verify", "shop")[0] == 1
    down(nodes_without_hints, nodes[1])
    assert nodes[0].admin("repair", "shop", "items")[0] == 1
    up(nodes_without_hints, nodes[1])
    assert nodes[2].admin("verify", "shop")[0] == 1
    code, text = nodes[0].admin("repair", "shop", "items")
    assert code == 0, text
    assert nodes[2].admin("verify", "shop")[0] == 0
    assert rows_of(nodes_without_hints, connect, nodes[2]) == {number: f"value {number}" for number in range(200)}


def test_a_repair_that_was_killed_goes_on_and_can_be_cancelled(connect):
    slow = {**NO_HINTS, "repair_throughput_bytes_per_second": 8 << 10}
    with Cluster(3, PROGRAM, settings=slow) as cluster:
        expected = with_one_behind(cluster, connect)
        first, second = cluster.nodes[0], cluster.nodes[1]
        outcomes = []
        command = threading.Thread(target=lambda: outcomes.append(first.admin("repair", "shop")))
        command.start()
        until("it is under way", lambda: [run["state"] for run in first.report("repairs")["repairs"]] == ["running"])
        Cluster.kill(first)
        command.join()
        assert outcomes[0][0] == 1
        first.start()
        until("it goes on by itself", lambda: first.report("repairs")["repairs"])
        until(
            "it is done",
            lambda: [run["state"] for run in first.report("repairs")["repairs"]] == ["done"],
            seconds=240,
        )
        assert rows_of(cluster, connect, cluster.nodes[2]) == expected
        # Another one is cancelled.
        command = threading.Thread(target=lambda: outcomes.append(second.admin("repair", "shop")))
        command.start()
        until("it is under way", lambda: second.report("repairs")["repairs"])
        assert second.admin("repair", "--cancel") == (0, "done\n")
        command.join()
        assert outcomes[1][0] == 1 and "cancelled" in outcomes[1][1], outcomes


def test_the_schedule_mends_what_a_replica_has_missed(connect):
    with Cluster(3, PROGRAM, settings={"hinted_handoff_enabled": False}) as cluster:
        expected = with_one_behind(cluster, connect)
        until(
            "the schedule has repaired it",
            lambda: rows_of(cluster, connect, cluster.nodes[2]) == expected,
        )
        runs = [run for node in cluster.nodes for run in node.report("repairs")["repairs"]]
        assert any(run["is_automatic"] and run["tables"] == ["items"] for run in runs)
