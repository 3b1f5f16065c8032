"""A cluster of real processes under a real driver: what is promised while nodes die, stall, come back, join and leave."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from cassandra import AlreadyExists, ConsistencyLevel, Unavailable
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import PROGRAM
from load import REMOVED, REPLICATED, Writer, check, make_table, write
from node import NodeError


def test_a_driver_sees_every_node_and_one_schema(three_nodes, connect):
    session = connect(three_nodes)
    make_table(session)
    metadata = session.cluster.metadata
    assert sorted(host.address for host in metadata.all_hosts()) == three_nodes.hosts()
    assert {host.rack for host in metadata.all_hosts()} == {"rack1", "rack2", "rack3"}
    versions = set()
    for node in three_nodes.nodes:
        pinned = connect(three_nodes, only=node)
        versions.add(pinned.execute("SELECT schema_version FROM system.local").one()[0])
        assert len(list(pinned.execute("SELECT peer FROM system.peers"))) == 2
        assert len(list(pinned.execute("SELECT peer FROM system.peers_v2"))) == 2
    assert len(versions) == 1
    assert len(metadata.token_map.ring) == 3 * 16
    assert all(len(metadata.get_replicas("shop", bytes([key]))) == 3 for key in range(10))


def run_shell(node, statement):
    """A statement of `helenus shell` at a node: (status, standard output, standard error)."""
    words = [PROGRAM, "shell", node.host, str(node.port), "--json", "-e", statement]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_shell_talks_to_the_node_that_it_was_given(three_nodes):
    for node in three_nodes.nodes:
        for _ in range(3):
            status, told, complaint = run_shell(node, "SELECT rpc_address FROM system.local; " * 3)
            assert (status, complaint) == (0, "")
            assert [json.loads(line) for line in told.splitlines()] == [{"rpc_address": node.host}] * 3


def test_concurrent_creations_of_one_name_never_diverge(three_nodes, connect):
    session = connect(three_nodes)
    session.execute(REPLICATED)
    sessions = [connect(three_nodes, only=node) for node in three_nodes.nodes]
    for number in range(5):
        outcomes = []

        def create(pinned, number=number, outcomes=outcomes):
            try:
                pinned.execute(f"CREATE TABLE shop.t{number} (id int PRIMARY KEY)")
                outcomes.append("created")
            except AlreadyExists:
                outcomes.append("there")

        threads = [threading.Thread(target=create, args=(pinned,)) for pinned in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["created", "there", "there"]
        query = f"SELECT id FROM system_schema.tables WHERE keyspace_name = 'shop' AND table_name = 't{number}'"
        assert len({pinned.execute(query).one().id for pinned in sessions}) == 1


def test_with_one_node_killed_quorum_goes_on_and_nothing_is_lost(three_nodes, connect):
    # Not through the victim: of a write that it coordinates, and that the two others have, it may lose its own copy, and nobody has a hint.
    survivor = connect(three_nodes, only=three_nodes.nodes[0])
    insert = make_table(survivor)
    write(survivor, insert, range(500))
    victim = three_nodes.nodes[2]
    Cluster.kill(victim)
    until("QUORUM works", lambda: survivor.execute(insert, (500, "value 500")) is not None)
    write(survivor, insert, range(501, 1000))
    check(survivor, 1000)
    every = SimpleStatement("SELECT id FROM shop.items WHERE id = 1", consistency_level=ConsistencyLevel.ALL)

    def is_refused():
        with pytest.raises(Unavailable) as refused:
            survivor.execute(every)
        assert (refused.value.required_replicas, refused.value.alive_replicas) == (3, 2)
        return True

    until("ALL is refused with true counts", is_refused)
    status, _, complaint = run_shell(three_nodes.nodes[0], "CONSISTENCY ALL; SELECT id FROM shop.items WHERE id = 1")
    assert status == 1 and "info={'consistency': 'ALL', 'required_replicas': 3, 'alive_replicas': 2}" in complaint
    victim.start()
    until("ALL works again", lambda: survivor.execute(every) is not None)
    # What it missed comes by hints: the node alone has every row.
    alone = connect(three_nodes, only=victim, consistency=ConsistencyLevel.ONE)

    def has_everything():
        check(alone, 1000)
        return True

    until("hints are replayed", has_everything)


# How many of three replicas each level waits for; of ANY a hint would do.
REPLICAS_OF_LEVELS = {"ANY": 1, "ONE": 1, "TWO": 2, "THREE": 3, "QUORUM": 2, "ALL": 3}
REPLICAS_OF_LEVELS |= {"LOCAL_ONE": 1, "LOCAL_QUORUM": 2, "EACH_QUORUM": 2}


def availability(session, alive):
    """Tries a write and a read at every level, a transaction and a read at the serial ones: who is refused, is refused with true
    counts, and only where fewer are alive than it takes."""

    def attempt(statement, level, required, serial=None):
        ordinary = level if serial is None else ConsistencyLevel.QUORUM
        request = SimpleStatement(statement, consistency_level=ordinary, serial_consistency_level=serial)
        try:
            session.execute(request)
        except Unavailable as refused:
            assert (refused.required_replicas, refused.alive_replicas) == (required, alive), (statement, level)
            assert refused.required_replicas > alive, (statement, level)
        else:
            assert required <= alive, (statement, level)

    for name, required in REPLICAS_OF_LEVELS.items():
        level = ConsistencyLevel.name_to_value[name]
        attempt("INSERT INTO shop.items (id, value) VALUES (1, 'a')", level, required)
        if name != "ANY":
            attempt("SELECT value FROM shop.items WHERE id = 1", level, required)
    for serial in (ConsistencyLevel.SERIAL, ConsistencyLevel.LOCAL_SERIAL):
        attempt("UPDATE shop.items SET value = 'a' WHERE id = 1 IF EXISTS", None, 2, serial)
        attempt("SELECT value FROM shop.items WHERE id = 1", serial, 2)
    return True


def test_each_level_is_available_exactly_as_promised(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    make_table(session)
    until("all are alive", lambda: availability(session, alive=3))
    for number, alive in ((2, 2), (1, 1)):
        Cluster.kill(three_nodes.nodes[number])
        until(f"{alive} are alive, and every level knows it", lambda alive=alive: availability(session, alive))
    for number in (1, 2):
        three_nodes.nodes[number].start()
    until("all are alive again", lambda: availability(session, alive=3))


def test_a_node_whose_log_cannot_be_written_sees_who_dies(three_nodes):
    silent, victim = three_nodes.nodes[1:]
    silent.stop()
    log_path, silent.log_path = silent.log_path, Path("/dev/full")
    silent.start()
    silent.log_path = log_path

    def all_are_up():
        return all(member["is_up"] for member in Cluster.status(silent)["members"])

    until("all are up", all_are_up)
    Cluster.kill(victim)
    until("the victim is down", lambda: not all_are_up())
    victim.start()
    until("all are up again", all_are_up)


def test_a_stalled_node_does_not_stall_quorum(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    insert = make_table(session)
    write(session, insert, range(100))
    Cluster.pause(three_nodes.nodes[1])
    try:
        write(session, insert, range(100, 300))
        check(session, 300)
    finally:
        Cluster.resume(three_nodes.nodes[1])
    check(session, 300)


def test_transactions_of_three_coordinators_lose_no_increment(three_nodes, connect):
    session = connect(three_nodes)
    session.execute(REPLICATED)
    session.execute("CREATE TABLE shop.counts (id int PRIMARY KEY, value int)")
    session.execute("INSERT INTO shop.counts (id, value) VALUES (1, 0) IF NOT EXISTS")
    known, unknown = [], []

    def increment(pinned):
        for _ in range(15):
            while True:
                serial = SimpleStatement("SELECT value FROM shop.counts WHERE id = 1", consistency_level=ConsistencyLevel.SERIAL)
                try:
                    value = pinned.execute(serial).one().value
                    update = "UPDATE shop.counts SET value = %s WHERE id = 1 IF value = %s"
                    if pinned.execute(update, (value + 1, value)).was_applied:
                        known.append(1)
                        break
                except Exception as failure:  # noqa: BLE001 - any error leaves the outcome open
                    unknown.append(failure)

    threads = [
        threading.Thread(target=increment, args=(connect(three_nodes, only=node),)) for node in three_nodes.nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    value = session.execute("SELECT value FROM shop.counts WHERE id = 1").one().value
    assert len(known) <= value <= len(known) + len(unknown)


def test_counters_and_batches_over_partitions(three_nodes, connect):
    session = connect(three_nodes)
    session.execute(REPLICATED)
    session.execute("CREATE TABLE shop.views (id int PRIMARY KEY, seen counter)")
    session.execute("CREATE TABLE shop.a (id int PRIMARY KEY, v int)")
    pinned = [connect(three_nodes, only=node) for node in three_nodes.nodes]
    for number in range(60):
        pinned[number % 3].execute("UPDATE shop.views SET seen = seen + 1 WHERE id = %s", (number % 4,))
    assert [session.execute("SELECT seen FROM shop.views WHERE id = %s", (n,)).one().seen for n in range(4)] == [15] * 4
    rows = "".join(f"INSERT INTO shop.a (id, v) VALUES ({number}, {number});" for number in range(50))
    session.execute(f"BEGIN BATCH {rows} APPLY BATCH")
    assert len(list(session.execute("SELECT id FROM shop.a"))) == 50


def test_pages_have_every_row_once_while_a_node_restarts(three_nodes, connect):
    session = connect(three_nodes)
    insert = make_table(session)
    write(session, insert, range(1000))
    pinned = connect(three_nodes, only=three_nodes.nodes[0])
    pinned.default_fetch_size = 37
    ids = []
    rows = pinned.execute("SELECT id FROM shop.items")
    for number, row in enumerate(rows):
        ids.append(row.id)
        if number == 200:
            three_nodes.nodes[2].restart()
    assert sorted(ids) == list(range(1000))


def test_a_cluster_grows_and_shrinks_under_load(three_nodes, connect):
    session = connect(three_nodes)
    insert = make_table(session)
    write(session, insert, range(1000))
    writer = Writer(connect(three_nodes, only=three_nodes.nodes[0]), insert, 10_000)
    writer.start()
    fourth = three_nodes.add()
    joined = connect(three_nodes, only=fourth)
    check(joined, 1000)
    until("the driver sees four", lambda: len(session.cluster.metadata.all_hosts()) == 4)
    fourth.administer("decommission")
    until("the driver sees three again", lambda: len(session.cluster.metadata.all_hosts()) == 3)
    assert fourth.ended() == REMOVED
    with pytest.raises(NodeError, match="was removed from the cluster; erase its data directory to join anew"):
        fourth.start()
    assert fourth.ended() == REMOVED
    writer.stop()
    check(session, 1000)
    writer.check()
    assert writer.acknowledged, f"nothing could be written meanwhile: {writer.failures[:3]}"


def deletions_left(cluster):
    """The tombstones of shop.items on all members, after each has merged its files."""
    tombstones = 0
    for node in cluster.nodes:
        node.administer("compact", keyspace="shop", table="items")
        tables = node.report("tablestats")["tables"]
        tombstones += sum(table["tombstones"] for table in tables if table["table"] == "items")
    return tombstones


@pytest.mark.parametrize("cleans_up", [True, False])
def test_rows_that_were_deleted_do_not_come_back_with_a_range_that_comes_back(connect, cleans_up):
    with Cluster(3, PROGRAM, settings={"cleanup_after_transition": cleans_up}) as cluster:
        session = connect(cluster, consistency=ConsistencyLevel.ALL)
        insert = make_table(session)
        session.execute("ALTER TABLE shop.items WITH gc_grace_seconds = 1 AND tombstone_gc = {'mode': 'timeout'}")
        write(session, insert, range(400))
        fourth = cluster.add()

        def rows():
            tables = [node.report("tablestats")["tables"] for node in cluster.nodes]
            return sum(table["row_versions"] for table in sum(tables, []) if table["table"] == "items")

        def uncleaned():
            return cluster.nodes[0].report("netstats")["uncleaned"]

        if cleans_up:
            until("what the others have given up is removed", lambda: rows() == 3 * 400)
            until("all have said so", lambda: not uncleaned())
        else:
            assert rows() > 3 * 400
            assert len(uncleaned()) == 3
        for number in range(400):
            session.execute("DELETE FROM shop.items WHERE id = %s", (number,))
        until("the deletions are purged", lambda: deletions_left(cluster) == 0)
        leaving = threading.Thread(target=fourth.administer, args=("decommission",))
        leaving.start()
        if not cleans_up:
            until("the leaving waits", lambda: "a member waits for its turn to leave" in fourth.log_path.read_text())
            for node in cluster.nodes[:3]:
                node.administer("cleanup")
        leaving.join()
        assert fourth.ended() == REMOVED
        for level in (ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.ALL):
            for node in cluster.nodes[:3]:
                left = list(connect(cluster, only=node, consistency=level).execute("SELECT id FROM shop.items"))
                assert not left, f"{len(left)} deleted rows are back, at {level}"


def test_transactions_that_a_member_missed_do_not_come_back_after_a_truncation(connect):
    # Only settling brings a member what it has missed.
    settings = {"transaction_state_idle_seconds": 60, "hinted_handoff_enabled": False, "automatic_repair": False}
    with Cluster(3, PROGRAM, settings=settings) as cluster:
        session = connect(cluster, only=cluster.nodes[0])
        make_table(session)
        session.execute("CREATE TABLE shop.kept (id int PRIMARY KEY) WITH read_repair = 'NONE'")
        third = cluster.nodes[2]
        cluster.kill(third)
        until("QUORUM works", lambda: session.execute("INSERT INTO shop.items (id) VALUES (-1)") is not None)
        numbers = range(20)
        for table in ("items", "kept"):
            for number in numbers:
                insert = SimpleStatement(
                    f"INSERT INTO shop.{table} (id) VALUES ({number}) IF NOT EXISTS",
                    serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
                )
                assert session.execute(insert).was_applied
        third.start()
        every = SimpleStatement("SELECT id FROM shop.kept WHERE id = -1", consistency_level=ConsistencyLevel.ALL)
        until("ALL works again", lambda: session.execute(every) is not None)
        session.execute("TRUNCATE shop.items")
        own = connect(cluster, only=third, consistency=ConsistencyLevel.ONE)
        until(
            "the rest is settled",
            lambda: len(list(own.execute("SELECT id FROM shop.kept"))) == len(numbers),
            seconds=300,
        )
        for node in cluster.nodes:
            for level in (ConsistencyLevel.ONE, ConsistencyLevel.ALL):
                rows = connect(cluster, only=node, consistency=level).execute("SELECT id FROM shop.items")
                assert not list(rows), f"rows are back, at {level}"


def test_a_snapshot_of_all_members_comes_back_into_a_cluster_that_has_grown(three_nodes, connect):
    session = connect(three_nodes)
    write(session, make_table(session), range(1000))
    for node in three_nodes.nodes:
        node.administer("snapshot", name="monday", keyspace="shop")
    three_nodes.add()
    session.execute("DROP TABLE shop.items")
    for node in three_nodes.nodes[:3]:
        node.administer("restore", name="monday")
    rows = [
        sum(table["row_versions"] for table in node.report("tablestats")["tables"] if table["table"] == "items")
        for node in three_nodes.nodes
    ]
    # The fourth has no part of the snapshot, and what it owns now is not kept by the others.
    assert rows[3] == 0 and 2000 < sum(rows) < 3000, rows
    check(session, 1000)


def test_copies_of_a_cluster_s_snapshots_come_back_in_another_cluster(connect, tmp_path):
    with Cluster(3, PROGRAM) as three:
        session = connect(three)
        write(session, make_table(session), range(500))
        for number, node in enumerate(three.nodes):
            node.administer("snapshot", name="monday", keyspace="shop")
            shutil.copytree(node.data_dir, tmp_path / f"node-{number}", ignore=shutil.ignore_patterns("tables", "commit-log", "*.sock"))
    with Cluster(4, PROGRAM, shards=2) as four:
        four.nodes[1].administer("import", directory=tmp_path, keyspace="shop")
        check(connect(four, consistency=ConsistencyLevel.ALL), 500)


def test_a_member_that_loses_the_changes_of_its_catalog_keeps_its_rows(connect):
    with Cluster(2, PROGRAM) as cluster:
        session = connect(cluster)
        insert = make_table(session)
        write(session, insert, range(500))
        cluster.add()
        joined = cluster.nodes[2]
        # Changes of the schema alone are in that file, of all members.
        for number in range(5):
            session.execute(f"CREATE TABLE shop.t{number} (k int PRIMARY KEY)")
        rows = {node.host: local_row_versions(node) for node in cluster.nodes}
        assert all(rows.values()), rows
        for node in (joined, cluster.nodes[0]):
            cluster.kill(node)
            for copy in ("", ".copy"):
                (node.data_dir / f"catalog.changes{copy}").unlink()
            node.start()
            until("the members agree", lambda: len(cluster.status(cluster.nodes[1])) == 3)
            assert local_row_versions(node) == rows[node.host]
            pinned = connect(cluster, only=node)
            until("the log is applied", lambda pinned=pinned: pinned.execute("SELECT k FROM shop.t4") is not None)
        check(session, 500)


def local_row_versions(node):
    """Versions of rows that a node has of the keyspace's tables."""
    node.administer("flush")
    return sum(entry["row_versions"] for entry in node.report("tablestats")["tables"] if entry["keyspace"] == "shop")


def test_a_dead_member_is_removed_and_ends_when_it_comes_back(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    insert = make_table(session)
    write(session, insert, range(100))
    victim = three_nodes.nodes[2]
    Cluster.pause(victim)
    known = next(member for member in Cluster.status(three_nodes.nodes[0])["members"] if victim.host in member["address"])
    until("it is removed", lambda: three_nodes.nodes[0].administer("removenode", host_id=known["host_id"]))
    Cluster.resume(victim)
    assert victim.ended() == REMOVED
    with pytest.raises(NodeError, match="was removed from the cluster; erase its data directory to join anew"):
        victim.start()
    assert victim.ended() == REMOVED
    # An empty data directory is another node.
    shutil.rmtree(victim.data_dir)
    victim.start()
    until("it is a member", lambda: len(Cluster.status(victim)["members"]) == 3)
    check(connect(three_nodes, only=victim, consistency=ConsistencyLevel.ONE), 100)


def test_a_node_that_was_removed_while_it_was_down_ends_when_it_is_started(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    write(session, make_table(session), range(10))
    victim = three_nodes.nodes[2]
    status = Cluster.status(three_nodes.nodes[0])
    known = next(member for member in status["members"] if victim.host in member["address"])
    Cluster.kill(victim)
    until("it is removed", lambda: three_nodes.nodes[0].administer("removenode", host_id=known["host_id"]))
    victim.start()
    assert victim.ended() == REMOVED


def test_the_last_but_one_can_leave(connect):
    with Cluster(2, PROGRAM) as two:
        two.nodes[1].administer("decommission", force="true")
        assert two.nodes[1].ended() == REMOVED
        # The one that is left decides alone.
        session = connect(two, only=two.nodes[0])
        session.execute("CREATE KEYSPACE alone WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")


def test_a_join_is_seen_while_it_goes_on_and_a_truncation_is_one_for_it_too(connect):
    # So slow that it takes a while.
    with Cluster(1, PROGRAM, settings={"stream_throughput_bytes_per_second": 1 << 20}) as cluster:
        session = connect(cluster)
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value blob)")
        insert = session.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)")
        for number in range(100):
            session.execute(insert, (number, os.urandom(100_000)))
        joiner = cluster.make()
        joiner.settings["seeds"] = ["no-such-host.invalid:7000", f"localhost:{cluster.internode_port}"]
        starting = threading.Thread(target=joiner.start)
        starting.start()

        def under_way():
            report = joiner.report("netstats")
            receiving = report["receiving"]
            return report["mode"] == "JOINING" and receiving and 0 < receiving["percent"] < 100 and receiving

        receiving = until("the join is seen", under_way)
        assert 0 < receiving["bytes"] < receiving["estimated_bytes"] and receiving["seconds_left"] is not None
        states = {member["address"]: member["state"] for member in Cluster.status(joiner)["members"]}
        assert sorted(states.values()) == ["joining", "normal"]
        # Clients are not served yet: they are refused, and need not wait.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((joiner.host, joiner.port), timeout=5)
        with pytest.raises(NodeError, match="503"):
            joiner.report("health")
        # It is recorded, and waits for its turn.
        session.execute("ALTER KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
        assert cluster.nodes[0].report("netstats")["replication_changes"] == {"shop": "waits for its turn"}
        # What is on its way does not come back either.
        session.execute("TRUNCATE shop.items")
        for number in range(1000, 1010):
            session.execute(insert, (number, b"after"))
        starting.join()
        assert joiner.report("netstats")["mode"] == "NORMAL"
        for node in cluster.nodes:
            rows = connect(cluster, only=node, consistency=ConsistencyLevel.ALL).execute("SELECT id FROM shop.items")
            assert sorted(row.id for row in rows) == list(range(1000, 1010))
        until("it has its turn", lambda: not joiner.report("netstats")["replication_changes"])
        assert "seed 'no-such-host.invalid:7000' cannot be resolved" in joiner.log_tail(1000)


def refused(node, message):
    """Checks that a node says this and ends instead of serving."""
    with pytest.raises(NodeError, match=message):
        node.start()
    assert node.ended() not in (0, -signal.SIGKILL)


def test_a_node_of_another_cluster_is_refused(three_nodes):
    stranger = three_nodes.make()
    stranger.settings["cluster_name"] = "another"
    refused(stranger, "no seed accepts this node: .* a node of the cluster 'another' is refused by one of the cluster 'test'")
    # The name was a mistake: it was no cluster's yet.
    stranger.settings["cluster_name"] = "test"
    stranger.start()


def test_a_cluster_of_one_is_not_taken_for_a_member(three_nodes):
    alone = three_nodes.make()
    seeds = alone.settings.pop("seeds")
    alone.start()
    alone.stop()
    alone.settings["seeds"] = seeds
    refused(alone, "only member of its cluster, and its seed .* is in another one of that name")
    # A seed that nobody answers at keeps it from nothing.
    alone.settings["seeds"] = [f"127.0.0.{three_nodes.most_nodes}:{three_nodes.internode_port}"]
    alone.start()


def test_a_copy_of_a_running_node_does_not_start(three_nodes, connect):
    original, copy = three_nodes.nodes[1], three_nodes.make()
    original.stop()
    shutil.copytree(original.data_dir, copy.data_dir, dirs_exist_ok=True)
    original.start()
    copy.settings["rack"] = original.settings["rack"]
    refused(copy, "this data directory is a copy")
    members = Cluster.status(three_nodes.nodes[0])["members"]
    assert sorted(member["address"] for member in members) == [
        f"{node.host}:{three_nodes.internode_port}" for node in three_nodes.nodes[:3]
    ]
    until("all are up", lambda: all(member["is_up"] for member in Cluster.status(three_nodes.nodes[0])["members"]))


def test_a_member_keeps_its_place_and_its_cluster(three_nodes):
    member = three_nodes.nodes[2]
    settings = dict(member.settings)
    member.stop()
    for changed, message in (
        ({"cluster_name": "another"}, "belongs to the cluster 'test'"),
        ({"rack": "rack1"}, "knows this node in datacenter1/rack3"),
        ({"data_center": "elsewhere"}, "knows this node in datacenter1/rack3"),
        ({"internode": None, "seeds": []}, "one of 3 members .* needs the setting 'internode'"),
    ):
        member.settings = {key: value for key, value in {**settings, **changed}.items() if value is not None}
        refused(member, message)
    member.settings = settings
    member.start()
    until("all are up", lambda: all(known["is_up"] for known in Cluster.status(member)["members"]))
