"""A new node takes the place of a dead member in a cluster of real processes: with its address or another one, also when it is killed meanwhile."""

import contextlib
import shutil
import threading

import pytest
from cassandra import ConsistencyLevel
from cluster import Cluster, until
from conftest import PROGRAM
from load import REMOVED, Writer, check, make_table, write
from node import NodeError


def host_id(node, of):
    return next(member["host_id"] for member in Cluster.status(node)["members"] if of.host in member["address"])


def tokens(node, member):
    return sorted(entry["token"] for entry in node.report("ring")["tokens"] if entry["host_id"] == member)


def kill(cluster, dead):
    """Kills a member and waits until all others know it. Returns its host id and tokens."""
    others = [node for node in cluster.nodes if node is not dead and node.process is not None]
    known = host_id(others[0], dead)
    owned = tokens(others[0], known)
    Cluster.kill(dead)

    def is_known(node):
        return not any(member["is_up"] for member in Cluster.status(node)["members"] if member["host_id"] == known)

    until("its death is known", lambda: all(is_known(node) for node in others))
    return known, owned


def replacing(node, known):
    """The node starts with an empty data directory and takes the place of a dead member."""
    node.arguments += ["--replace", known]


def refused(node, match):
    with pytest.raises(NodeError, match=match):
        node.start()
    node.ended()


def check_replaced(cluster, connect, new, known, owned, count):
    """The new node is a member like any other, with the tokens of the one that is gone; any two of the three have everything."""
    for node in cluster.nodes:
        if node.process is not None:
            until("three are members", lambda node=node: len(Cluster.status(node)["members"]) == 3)
            members = {member["host_id"]: member for member in Cluster.status(node)["members"]}
            assert known not in members
            assert all(member["state"] == "normal" for member in members.values())
            assert tokens(node, host_id(node, new)) == owned
    check(connect(cluster, only=new), count)
    survivor = next(node for node in cluster.nodes if node is not new and node.process is not None)
    kill(cluster, survivor)
    check(connect(cluster, only=new), count)


def test_a_new_disk_in_the_machine_of_a_dead_member(three_nodes, connect):
    session = connect(three_nodes)
    insert = make_table(session)
    write(session, insert, range(500))
    dead = three_nodes.nodes[2]
    own = connect(three_nodes, only=three_nodes.nodes[0])
    refused_early = host_id(three_nodes.nodes[0], dead)
    known, owned = kill(three_nodes, dead)
    assert known == refused_early
    shutil.rmtree(dead.data_dir)
    # Without the setting it is told what to do.
    refused(dead, f"belongs to member {known}.*--replace {known}")
    writer = Writer(own, insert, 500)
    writer.start()
    replacing(dead, known)
    dead.start()
    writer.stop()
    assert not writer.failures
    writer.check()
    # A driver that knew the dead member finds the new one at its address.
    until("the driver is connected to three nodes", lambda: len([h for h in session.cluster.metadata.all_hosts() if h.is_up]) == 3)
    # Started again in the same way, it goes on as the member that it is.
    dead.restart()
    assert "is ignored" in dead.log_tail(400)
    check_replaced(three_nodes, connect, dead, known, owned, 500)


def test_another_machine_takes_the_place_of_a_dead_one(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    insert = make_table(session)
    write(session, insert, range(500))
    dead = three_nodes.nodes[2]
    fourth = three_nodes.make()
    replacing(fourth, host_id(three_nodes.nodes[0], dead))
    fourth.settings["rack"] = "rack3"
    refused(fourth, "is alive, and only a dead one can be replaced")
    known, owned = kill(three_nodes, dead)
    fourth.settings["rack"] = "rack1"
    refused(fourth, 'set data_center = "datacenter1" and rack = "rack3"')
    fourth.settings["rack"] = "rack3"
    write(session, insert, range(500, 700))
    fourth.start()
    # The dead one is back, and learns what it is.
    with contextlib.suppress(NodeError):
        dead.start()
    assert dead.ended() == REMOVED
    check_replaced(three_nodes, connect, fourth, known, owned, 700)


def test_a_new_node_that_is_killed_while_it_streams_goes_on(connect):
    with Cluster(3, PROGRAM, settings={"stream_throughput_bytes_per_second": 1 << 20}) as cluster:
        session = connect(cluster, only=cluster.nodes[0])
        insert = make_table(session)
        session.execute("CREATE TABLE shop.large (id int PRIMARY KEY, value text)")
        large = session.prepare("INSERT INTO shop.large (id, value) VALUES (?, ?)")
        write(session, insert, range(300))
        for number in range(600):
            session.execute(large, (number, f"{number:08}" * 1250))
        known, owned = kill(cluster, cluster.nodes[2])
        new = cluster.make()
        new.settings["rack"] = "rack3"
        replacing(new, known)
        writer = Writer(session, insert, 300)
        writer.start()
        for percent in (10, 50, 90):
            starting = threading.Thread(target=lambda: pytest.raises(NodeError, new.start))
            starting.start()

            def is_so_far(percent=percent):
                receiving = new.report("netstats")["receiving"]
                return receiving is not None and percent <= receiving["percent"] < 100

            until(f"{percent} % are there", is_so_far)
            new.process.kill()
            starting.join()
            new.ended()
            # It is known by now: the flag is not needed any more.
            new.arguments = [word for word in new.arguments if word not in ("--replace", known)]
        new.start()
        writer.stop()
        # One of three is dead, and the new one was down for a while.
        assert not writer.failures
        writer.check()
        rows = connect(cluster, only=new).execute("SELECT id, value FROM shop.large")
        assert {row.id: row.value for row in rows} == {number: f"{number:08}" * 1250 for number in range(600)}
        check_replaced(cluster, connect, new, known, owned, 300)


def test_the_only_copy_is_given_up_only_when_that_is_accepted(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    insert = make_table(session)
    write(session, insert, range(100))
    session.execute("CREATE KEYSPACE single WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE single.t (k int PRIMARY KEY)")
    dead = three_nodes.nodes[2]
    known, owned = kill(three_nodes, dead)
    shutil.rmtree(dead.data_dir)
    replacing(dead, known)
    refused(dead, "ranges of keyspace single have no other replica.*--accept-loss")
    dead.arguments.append("--accept-loss")
    dead.start()
    one = connect(three_nodes, only=dead, consistency=ConsistencyLevel.ONE)
    assert not list(one.execute("SELECT k FROM single.t"))
    check_replaced(three_nodes, connect, dead, known, owned, 100)


def test_an_operator_takes_a_replacement_back(connect):
    # So slow that it is under way.
    with Cluster(3, PROGRAM, settings={"stream_throughput_bytes_per_second": 4096}) as cluster:
        session = connect(cluster, only=cluster.nodes[0])
        write(session, make_table(session), range(300))
        first, dead = cluster.nodes[0], cluster.nodes[2]
        known, _ = kill(cluster, dead)
        new = cluster.make()
        new.settings["rack"] = "rack3"
        replacing(new, known)
        starting = threading.Thread(target=lambda: pytest.raises(NodeError, new.start))
        starting.start()
        joining = until("it is joining", lambda: [m for m in Cluster.status(first)["members"] if m["state"] == "joining"])
        assert first.admin("abortjoin", joining[0]["host_id"]) == (0, "done\n")
        starting.join()
        assert new.ended() == 1
        assert "was aborted" in new.log_tail()
        # The dead member is one as before, and comes back with its data.
        assert [m["state"] for m in Cluster.status(first)["members"]] == ["normal"] * 3
        dead.start()
        for node in (first, dead):
            until("all are up", lambda node=node: all(member["is_up"] for member in Cluster.status(node)["members"]))
        check(connect(cluster, only=dead, consistency=ConsistencyLevel.ALL), 300)
