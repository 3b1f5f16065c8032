"""Two data centers of real processes: one is lost and comes back, one is added and given up under load."""

import pytest
from cassandra import ConsistencyLevel, Unavailable
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import PROGRAM
from load import REMOVED, Writer, check, write

INSERT = "INSERT INTO shop.items (id, value) VALUES (?, ?)"


class TwoCenters(Cluster):
    """The nodes are in the data centers `east` and `west` by turns; with `east` alone, all of the first ones are there."""

    def __init__(self, *arguments, centers=("east", "west"), **options):
        super().__init__(*arguments, **options)
        self.centers = centers

    def make(self):
        number = len(self.nodes)
        node = super().make()
        node.settings["data_center"] = self.centers[number % len(self.centers)]
        return node

    def of(self, center):
        return [node for node in self.nodes if node.settings["data_center"] == center]


def replicated(**replicas):
    of_centers = "".join(f", '{center}': {count}" for center, count in replicas.items())
    return f"KEYSPACE shop WITH replication = {{'class': 'NetworkTopologyStrategy'{of_centers}}}"


def make_table(session):
    session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value text)")
    return session.prepare(INSERT)


def members_up(node):
    return sum(member["is_up"] for member in Cluster.status(node)["members"])


def pending_hints(nodes):
    return sum(node.metric("helenus_hints_pending_bytes") for node in nodes)


def test_a_data_center_goes_on_when_the_other_is_lost(connect):
    with TwoCenters(6, PROGRAM) as cluster:
        east, west = cluster.of("east"), cluster.of("west")
        session = connect(cluster, only=east[0], consistency=ConsistencyLevel.EACH_QUORUM)
        session.execute("CREATE " + replicated(east=3, west=3))
        insert = make_table(session)
        write(session, insert, range(100))
        for node in west:
            Cluster.kill(node)
        until("the loss is known", lambda: all(members_up(node) == 3 for node in east))
        with pytest.raises(Unavailable):
            session.execute(insert, (100, "value 100"))
        local = connect(cluster, only=east[1], consistency=ConsistencyLevel.LOCAL_QUORUM)
        insert = local.prepare(INSERT)
        write(local, insert, range(100, 200))
        check(local, 200)
        transaction = SimpleStatement("INSERT INTO shop.items (id, value) VALUES (200, 'value 200') IF NOT EXISTS",
                                      serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL)
        assert local.execute(transaction).one().applied
        for node in west:
            node.start()
        until("all are up", lambda: all(members_up(node) == 6 for node in cluster.nodes))
        until("what was missed is delivered", lambda: pending_hints(east) == 0)
        # Its own replicas have everything.
        check(connect(cluster, only=west[2], consistency=ConsistencyLevel.LOCAL_QUORUM), 201)


def test_a_data_center_is_added_and_given_up_under_load(connect):
    with TwoCenters(3, PROGRAM, centers=("east",)) as cluster:
        east = cluster.nodes[:]
        session = connect(cluster, only=east[0], consistency=ConsistencyLevel.LOCAL_QUORUM)
        session.execute("CREATE " + replicated(east=3))
        insert = make_table(session)
        write(session, insert, range(300))
        writer = Writer(session, insert, 300)
        writer.start()
        cluster.centers = ("west",)
        west = [cluster.add(), cluster.add()]
        other = connect(cluster, only=east[1], consistency=ConsistencyLevel.LOCAL_QUORUM)
        other.execute("ALTER " + replicated(east=3, west=2))
        until("the new replicas have their rows", lambda: not east[0].report("netstats")["replication_changes"])
        near = connect(cluster, only=west[1], consistency=ConsistencyLevel.LOCAL_QUORUM)
        check(near, 300)
        written = Writer(near, near.prepare(INSERT), 1_000_000)
        written.start()
        until("the new data center is written to", lambda: len(written.acknowledged) > 50)
        written.stop()
        other.execute("ALTER " + replicated(east=3))
        until("the replicas are given up", lambda: not east[0].report("netstats")["replication_changes"])
        for node in west:
            assert node.admin("decommission", "--force")[0] == 0
            assert node.ended() == REMOVED
        writer.stop()
        assert not writer.failures and not written.failures
        writer.check()
        check(session, 300)
        # Writes of LOCAL_QUORUM there are here when the keyspace does not name that data center any more.
        rows = {row.id for row in session.execute("SELECT id FROM shop.items")}
        assert set(written.acknowledged) <= rows
