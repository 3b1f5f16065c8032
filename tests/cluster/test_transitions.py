"""Ranges that change hands in a cluster of real processes: other numbers of replicas, several dead members, a first seed without its disk."""

import shutil
import threading

import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import PROGRAM
from load import Writer, check, make_table, write
from node import NodeError


def alter(session, factor):
    session.execute(
        f"ALTER KEYSPACE shop WITH replication = {{'class': 'NetworkTopologyStrategy', 'datacenter1': {factor}}}"
    )


def settled(cluster):
    """Whether no node knows of a change of replication that has not ended."""
    reports = [node.report("netstats") for node in cluster.nodes if node.process is not None]
    return not any(report["replication_changes"] for report in reports)


def host_id(node, of):
    return next(member["host_id"] for member in Cluster.status(node)["members"] if of.host in member["address"])


def test_replication_changes_under_load_and_nothing_acknowledged_is_missed(connect):
    # So slow that reads and writes meet every step.
    with Cluster(3, PROGRAM, settings={"stream_throughput_bytes_per_second": 1 << 20}) as cluster:
        session = connect(cluster)
        insert = make_table(session)
        alter(session, 1)
        until("the change has ended", lambda: settled(cluster))
        write(session, insert, range(1000))
        session.execute("CREATE TABLE shop.taken (id int PRIMARY KEY, by_whom text)")
        once = session.prepare("INSERT INTO shop.taken (id, by_whom) VALUES (?, ?) IF NOT EXISTS")
        assert all(session.execute(once, (number, "first")).was_applied for number in range(40))
        writer = Writer(session, insert, 1000)
        writer.start()
        alter(session, 3)
        assert session.cluster.metadata.keyspaces["shop"].replication_strategy.export_for_schema().count("'3'") == 1
        taken_again = [number for number in range(20) if session.execute(once, (number, "second")).was_applied]
        check(session, 1000)
        until("the change has ended", lambda: settled(cluster))
        taken_again += [number for number in range(20, 40) if session.execute(once, (number, "second")).was_applied]
        assert not taken_again
        writer.stop()
        assert not writer.failures
        # Any two of the three replicas have everything.
        Cluster.kill(cluster.nodes[2])
        survivor = connect(cluster, only=cluster.nodes[0])
        until("its death is known", lambda: not all(member["is_up"] for member in Cluster.status(cluster.nodes[0])["members"]))
        check(survivor, 1000)
        rows = {row.id for row in survivor.execute("SELECT id FROM shop.items")}
        assert not [number for number in writer.acknowledged if number not in rows]


def test_fewer_replicas_keep_every_row_and_the_others_give_theirs_up(three_nodes, connect):
    session = connect(three_nodes)
    write(session, make_table(session), range(500))
    alter(session, 1)
    until("the change has ended", lambda: settled(three_nodes))
    single = connect(three_nodes, consistency=ConsistencyLevel.ONE)
    check(single, 500)

    def versions():
        for node in three_nodes.nodes:
            node.administer("compact")
        tables = [entry for node in three_nodes.nodes for entry in node.report("tablestats")["tables"]]
        return sum(entry["row_versions"] for entry in tables if entry["table"] == "items")

    until("the others have removed their rows", lambda: versions() == 500)
    check(single, 500)


@pytest.fixture
def five_nodes():
    with Cluster(5, PROGRAM) as cluster:
        yield cluster


def with_two_dead(cluster, connect):
    """A session to a survivor; everything was written at ALL before two members died."""
    session = connect(cluster, consistency=ConsistencyLevel.ALL)
    write(session, make_table(session), range(300))
    first = cluster.nodes[0]
    dead = [host_id(first, node) for node in cluster.nodes[3:]]
    for node in cluster.nodes[3:]:
        Cluster.kill(node)
    until(
        "their death is known",
        # By each: one that takes a member for alive takes its removal back.
        lambda: all(sum(member["is_up"] for member in Cluster.status(node)["members"]) == 3 for node in cluster.nodes[:3]),
    )
    return connect(cluster, only=first), dead


def three_are_left_and_another_joins(cluster, session, connect):
    for node in cluster.nodes[:3]:
        until("three are left", lambda node=node: len(Cluster.status(node)["members"]) == 3)
    check(session, 300)
    joined = cluster.add()
    check(connect(cluster, only=joined), 300)


def test_two_dead_members_are_removed_with_one_command(five_nodes, connect):
    session, dead = with_two_dead(five_nodes, connect)
    assert five_nodes.nodes[0].admin("removenode", *dead) == (0, "done\n")
    three_are_left_and_another_joins(five_nodes, session, connect)


def test_two_dead_members_are_removed_by_two_commands_side_by_side(five_nodes, connect):
    session, dead = with_two_dead(five_nodes, connect)
    outcomes = []

    def remove(node, member):
        outcomes.append(node.admin("removenode", member))

    threads = [
        threading.Thread(target=remove, args=(node, member))
        for node, member in zip(five_nodes.nodes[:2], dead, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [(0, "done\n")] * 2
    three_are_left_and_another_joins(five_nodes, session, connect)


def test_the_only_copy_is_given_up_only_when_that_is_accepted(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    session.execute("CREATE KEYSPACE single WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE single.t (k int PRIMARY KEY)")
    first, dead = three_nodes.nodes[0], host_id(three_nodes.nodes[0], three_nodes.nodes[2])
    Cluster.kill(three_nodes.nodes[2])
    until("its death is known", lambda: sum(member["is_up"] for member in Cluster.status(first)["members"]) == 2)
    with pytest.raises(NodeError, match="ranges of keyspace single have no other replica.*--accept-loss"):
        first.administer("removenode", host_id=dead)
    assert first.admin("removenode", "--accept-loss", dead) == (0, "done\n")
    statement = SimpleStatement("SELECT k FROM single.t", consistency_level=ConsistencyLevel.ONE)
    assert not list(session.execute(statement))


def test_a_first_seed_that_lost_its_disk_joins_its_cluster_again(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[1])
    write(session, make_table(session), range(200))
    first, second = three_nodes.nodes[:2]
    known = host_id(second, first)
    Cluster.kill(first)
    shutil.rmtree(first.data_dir)
    first.settings["seeds"] = [f"{node.host}:{three_nodes.internode_port}" for node in three_nodes.nodes]
    with pytest.raises(NodeError, match=f"belongs to member {known}.*helenus admin removenode {known}"):
        first.start()
    first.ended()
    until("it is removed", lambda: second.administer("removenode", host_id=known))
    first.start()
    until("it is a member", lambda: len(Cluster.status(first)["members"]) == 3)
    check(connect(three_nodes, only=first), 200)
    check(session, 200)
