"""Cut links, a full disk, a cluster that is doubled and halved: each consistency level is available exactly as promised, and
nothing that was acknowledged is lost."""

import os
import shutil
import subprocess

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, Unavailable
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import PROGRAM
from load import REMOVED, Writer, check, make_table, write

# Set by `run` where the tests have a network and mounts of their own.
OWN_NAMESPACES = os.environ.get("HELENUS_OWN_NAMESPACES")


@pytest.fixture
def links():
    """Cuts links between nodes of a cluster and mends them."""
    if not OWN_NAMESPACES or not shutil.which("iptables"):
        pytest.skip("links cannot be cut here: no network namespace of our own (unshare --net), or no iptables")

    class Links:
        def __init__(self):
            self.rules = []

        def cut(self, cluster, source, target):
            """What `source` sends to `target` between nodes is lost, in silence."""
            for side in ("--sport", "--dport"):
                rule = ["-s", source.host, "-d", target.host, "-p", "tcp", side, str(cluster.internode_port), "-j", "DROP"]
                subprocess.run(["iptables", "-w", "-A", "INPUT", *rule], check=True)
                self.rules.append(rule)

        def mend(self):
            for rule in self.rules:
                subprocess.run(["iptables", "-w", "-D", "INPUT", *rule], check=True)
            self.rules = []

    links = Links()
    yield links
    links.mend()


def at(level):
    return SimpleStatement("SELECT id FROM shop.items WHERE id = 1", consistency_level=level)


def refused(session, level, required, alive):
    """Whether a level is refused at once, with these counts."""
    try:
        session.execute(at(level))
    except Unavailable as refusal:
        return (refusal.required_replicas, refusal.alive_replicas) == (required, alive)
    return False


def test_a_node_that_is_cut_off_and_those_that_are_not(three_nodes, connect, links):
    nodes = three_nodes.nodes
    majority = connect(three_nodes, only=nodes[0])
    minority = connect(three_nodes, only=nodes[2])
    insert = make_table(majority)
    write(majority, insert, range(100))
    until("the third node has the table", lambda: minority.execute(at(ConsistencyLevel.ONE)) is not None)
    for other in nodes[:2]:
        links.cut(three_nodes, nodes[2], other)
        links.cut(three_nodes, other, nodes[2])
    # QUORUM goes on where there is one, from the first moment.
    write(majority, insert, range(100, 200))
    until("ALL is refused", lambda: refused(majority, ConsistencyLevel.ALL, 3, 2))
    until("QUORUM is refused in the minority", lambda: refused(minority, ConsistencyLevel.QUORUM, 2, 1))
    # One replica is there: the node itself.
    minority.execute(at(ConsistencyLevel.ONE))
    majority.execute(at(ConsistencyLevel.ONE))
    write(majority, insert, range(200, 300))
    links.mend()
    until("ALL works again", lambda: majority.execute(at(ConsistencyLevel.ALL)) is not None)
    until("QUORUM works again", lambda: minority.execute(at(ConsistencyLevel.QUORUM)) is not None)
    check(minority, 300)
    alone = connect(three_nodes, only=nodes[2], consistency=ConsistencyLevel.ONE)
    until("hints are replayed", lambda: check(alone, 300) is None)


@pytest.mark.parametrize("directions", [1, 2])
def test_one_cut_link_leaves_every_coordinator_its_quorum(three_nodes, connect, links, directions):
    nodes = three_nodes.nodes
    sessions = [connect(three_nodes, only=node) for node in nodes]
    insert = make_table(sessions[0])
    write(sessions[0], insert, range(10))
    links.cut(three_nodes, nodes[0], nodes[1])
    if directions == 2:
        links.cut(three_nodes, nodes[1], nodes[0])
    for number, session in enumerate(sessions):
        write(session, insert, range(10 + 50 * number, 60 + 50 * number))
    for session in sessions:
        check(session, 160)
    links.mend()
    alone = [connect(three_nodes, only=node, consistency=ConsistencyLevel.ONE) for node in nodes]
    for session in alone:
        until("every node has everything", lambda session=session: check(session, 160) is None)


def test_a_full_disk_costs_one_replica_and_nothing_else(connect, small_disk):
    settings = {"memtable_bytes": 8 << 20, "commit_log_segment_bytes": 1 << 20, "commit_log_total_bytes": 8 << 20}
    with Cluster(2, PROGRAM, settings=settings) as cluster:
        third = cluster.make()
        small_disk(third.data_dir, 48)
        third.start()
        pid = third.pid
        session = connect(cluster, only=cluster.nodes[0])
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value blob)")
        insert = session.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)")
        value = os.urandom(100_000)
        for number in range(800):
            session.execute(insert, (number, number.to_bytes(4, "big") + value))
        assert "the disk is full: writes are refused" in third.log_tail(10_000)
        assert third.report("health")["status"] == "up"
        # A write that needs the third is refused before it begins, and says why.
        all_of_them = connect(cluster, only=cluster.nodes[0], consistency=ConsistencyLevel.ALL)
        with pytest.raises(InvalidRequest, match="disk usage exceeds failure threshold.*Disks are full: 127.0.0.3"):
            all_of_them.execute(all_of_them.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)"), (800, value))
        read = session.prepare("SELECT value FROM shop.items WHERE id = ?")
        for number in range(800):
            assert session.execute(read, (number,)).one().value[:4] == number.to_bytes(4, "big")
        # Room again: it gets what it has missed, and is the same process.
        small_disk(third.data_dir, 400)
        alone = connect(cluster, only=third, consistency=ConsistencyLevel.ONE)
        get = alone.prepare("SELECT value FROM shop.items WHERE id = ?")
        until("it has everything", lambda: all(alone.execute(get, (number,)).one() for number in range(800)))
        until("writes at ALL are accepted", lambda: all_of_them.execute("INSERT INTO shop.items (id) VALUES (801)") or True)
        assert third.pid == pid and third.process.poll() is None


def test_a_cluster_is_doubled_and_halved_under_load(three_nodes, connect):
    session = connect(three_nodes)
    insert = make_table(session)
    write(session, insert, range(1000))
    writers = [Writer(connect(three_nodes, only=node), insert, 10_000 * (1 + number)) for number, node in enumerate(three_nodes.nodes)]
    for writer in writers:
        writer.start()
    added = [three_nodes.add() for _ in range(3)]
    until("the driver sees six", lambda: len(session.cluster.metadata.all_hosts()) == 6)
    for node in three_nodes.nodes:
        check(connect(three_nodes, only=node), 1000)
    for node in added:
        node.administer("decommission")
        assert node.ended() == REMOVED
    until("the driver sees three again", lambda: len(session.cluster.metadata.all_hosts()) == 3)
    for writer in writers:
        writer.stop()
    check(session, 1000)
    for writer in writers:
        writer.check()
        assert writer.acknowledged
        # Every node was there all the time: QUORUM was to be had.
        unavailable = [failure for failure in writer.failures if isinstance(failure, Unavailable)]
        assert not unavailable, f"{len(unavailable)} of {len(writer.failures)} failures, e.g. {unavailable[:2]}"
