"""What an operator sees and turns on running nodes: traces, slow requests, latencies, the settings that can be changed."""

import socket
import subprocess

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import PROGRAM
from load import make_table, write


def settings(node, **changes):
    """Changes settings of a running node, one after the other."""
    for name, value in changes.items():
        node.administer("settings", **{name: value})
    return node.report("settings")


def traced(session, text, level):
    """The trace of a request."""
    statement = SimpleStatement(text, consistency_level=level)
    trace = session.execute(statement, trace=True).get_query_trace(max_wait_sec=10)
    assert trace.coordinator
    return trace


@pytest.fixture
def nodes_of_two_shards():
    with Cluster(3, PROGRAM, shards=2) as cluster:
        yield cluster


def test_a_trace_has_the_steps_of_the_coordinator_and_of_the_replicas(nodes_of_two_shards, connect):
    three_nodes = nodes_of_two_shards
    session = connect(three_nodes, only=three_nodes.nodes[0])
    make_table(session)
    others = {node.host for node in three_nodes.nodes[1:]}
    for text, sent, done in [
        ("INSERT INTO shop.items (id, value) VALUES (1, 'a')", "Sending MUTATION message", "Applied to the memtable"),
        ("SELECT * FROM shop.items WHERE id = 1", "Sending READ message", "Reading a partition on shard"),
        ("SELECT * FROM shop.items WHERE id = 2", "Sending READ message", "Reading a partition on shard"),
        ("SELECT * FROM shop.items", "Sending READ message", "Reading a range on all shards"),
        # Whichever shard has their partitions.
        *(
            (f"UPDATE shop.items SET value = 'b' WHERE id = {key} IF EXISTS", "Sending PAXOS_PREPARE message", "Message received")
            for key in range(1, 5)
        ),
    ]:
        trace = traced(session, text, ConsistencyLevel.ALL)
        events = trace.events
        here = [event.description for event in events if event.source == three_nodes.nodes[0].host]
        assert here[0] == "Request received" and here[-1] == "Answer is ready", here
        assert sum(step.startswith(sent) for step in here) >= 2, here

        def have_all(trace=trace, done=done):
            rows = session.execute("SELECT source, activity FROM system_traces.events WHERE session_id = %s", [trace.trace_id])
            return others <= {row.source for row in rows if row.activity.startswith(done)}

        # A transaction is answered when a majority has promised: the steps of the last replica come later.
        until(f"each replica has its steps of {text}", have_all)
        assert all(event.thread_name.startswith("shard-") for event in events)


def test_some_of_all_requests_are_traced_if_an_operator_says_so(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    make_table(session)

    def sessions():
        return [row.parameters["query"] for row in session.execute("SELECT parameters FROM system_traces.sessions")]

    read = session.prepare("SELECT * FROM shop.items WHERE id = ?")
    session.execute(read, (1,))
    assert not sessions()
    assert settings(three_nodes.nodes[0], trace_probability=1)["trace_probability"] == 1
    session.execute(read, (1,))
    settings(three_nodes.nodes[0], trace_probability=0)
    until("the request has its trace", lambda: read.query_string in sessions())
    count = len(sessions())
    session.execute(read, (1,))
    assert len(sessions()) == count


def test_slow_requests_are_logged_with_their_statement_and_counted(connect):
    with Cluster(1, PROGRAM, settings={"slow_query_log_timeout_ms": 1}) as cluster:
        node = cluster.nodes[0]
        session = connect(cluster, consistency=ConsistencyLevel.ONE)
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value text)")
        write(session, session.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)"), range(3_000))
        text = "SELECT count(*) FROM shop.items WHERE value = 'secret' ALLOW FILTERING"
        prepared = session.prepare(text.replace("'secret'", "?"))

        def is_logged():
            session.execute(prepared, ("secret",))
            return prepared.query_string in node.log_tail(10_000)

        until("a slow request is logged", is_logged)
        assert "a request was slow" in node.log_tail(10_000)
        assert "secret" not in node.log_tail(10_000)
        assert node.metric("helenus_slow_requests_total") > 0


def test_latencies_are_shown_by_operation_and_by_table(three_nodes, connect):
    node = three_nodes.nodes[0]
    session = connect(three_nodes, only=node)
    insert = make_table(session)
    before = node.report("proxyhistograms")
    write(session, insert, range(50))
    for number in range(20):
        session.execute(f"SELECT * FROM shop.items WHERE id = {number}")
    session.execute("SELECT * FROM shop.items")
    session.execute("INSERT INTO shop.items (id) VALUES (7) IF NOT EXISTS")
    after = node.report("proxyhistograms")
    assert after["write"]["count"] - before["write"]["count"] == 50
    (table,) = node.report("tablehistograms?keyspace=shop&table=items")["tables"]
    latencies = table["latencies"]
    counts = {name: of_operation["count"] for name, of_operation in latencies.items()}
    assert counts == {"read": 20, "scan": 1, "write": 50, "conditional": 1}
    assert 0 < latencies["read"]["p50_us"] <= latencies["read"]["p99_us"] <= latencies["read"]["max_us"]
    stages = {stage["name"]: stage for stage in node.report("tpstats")["stages"]}
    assert stages["MutationStage"]["completed"] >= 50
    assert stages["Native-Transport-Requests"]["completed"] >= 72


def test_clients_can_be_turned_away_and_taken_again(three_nodes, connect):
    node, other = three_nodes.nodes[:2]
    session = connect(three_nodes, only=node)
    session.execute("SELECT * FROM system.local")
    assert settings(node, native_transport="false")["native_transport"] is False

    def is_refused():
        try:
            socket.create_connection((node.host, node.port), timeout=1).close()
        except OSError:
            return True
        return False

    until("connections are refused", is_refused)
    with pytest.raises((NoHostAvailable, ConnectionShutdown)):
        session.execute("SELECT * FROM system.local")
    with pytest.raises(Exception, match="clients are not accepted"):
        node.report("health")
    # It is a replica as before.
    make_table(connect(three_nodes, only=other, consistency=ConsistencyLevel.ALL))
    settings(node, native_transport="true")
    until("connections are accepted", lambda: not is_refused())
    assert node.report("health")["status"] == "up"
    connect(three_nodes, only=node).execute("SELECT * FROM shop.items")


def test_hints_can_be_turned_off_paused_and_given_up(three_nodes, connect):
    first, _, last = three_nodes.nodes
    session = connect(three_nodes, only=first)
    insert = make_table(session)
    Cluster.kill(last)
    until("its death is known", lambda: sum(m["is_up"] for m in Cluster.status(first)["members"]) == 2)
    settings(first, hinted_handoff="false")
    write(session, insert, range(10))
    assert first.metric("helenus_hints_pending_bytes") == 0
    settings(first, hinted_handoff="true", hint_delivery="false")
    write(session, insert, range(10, 20))
    assert first.metric("helenus_hints_pending_bytes") > 0
    first.administer("truncatehints", member=last.host)
    assert first.metric("helenus_hints_pending_bytes") == 0
    write(session, insert, range(20, 30))
    last.start()
    until("it is up", lambda: sum(m["is_up"] for m in Cluster.status(first)["members"]) == 3)
    assert first.metric("helenus_hints_pending_bytes") > 0
    settings(first, hint_delivery="true")
    until("the hints are delivered", lambda: first.metric("helenus_hints_pending_bytes") == 0)
    rows = connect(three_nodes, only=last, consistency=ConsistencyLevel.ONE).execute("SELECT id FROM shop.items")
    assert set(range(20, 30)) <= {row.id for row in rows}


def test_the_replicas_of_a_key_are_those_that_drivers_know(three_nodes, connect):
    node = three_nodes.nodes[0]
    session = connect(three_nodes)
    # The node that the driver asks may hear a little later of the last one that has joined.
    until("the driver knows the tokens of all members", lambda: len(set(session.cluster.metadata.token_map.token_to_host_owner.values())) == 3)
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
    session.execute("CREATE TABLE shop.parts (a int, b text, c int, PRIMARY KEY ((a, b), c))")
    insert = session.prepare("INSERT INTO shop.parts (a, b, c) VALUES (?, ?, 1)")
    for a in range(5):
        bound = insert.bind((a, f"it's {a}"))
        known = {host.address for host in session.cluster.metadata.get_replicas("shop", bound.routing_key)}
        shown = node.report(f"getendpoints?keyspace=shop&table=parts&key={a}:it's%20{a}")
        assert {endpoint["address"].split(":")[0] for endpoint in shown["endpoints"]} == known
    with pytest.raises(Exception, match="has 2 columns"):
        node.report("getendpoints?keyspace=shop&table=parts&key=1")
    with pytest.raises(Exception, match="is no value of the column a"):
        node.report("getendpoints?keyspace=shop&table=parts&key=1%20OR%201:x")


def test_the_level_of_log_lines_is_changed_while_the_node_runs(three_nodes, connect):
    node = three_nodes.nodes[0]
    configured = node.report("settings")["log_filter"]
    node.administer("settings", log_level="trace", log_target="helenus")
    assert "helenus=trace" in node.report("settings")["log_filter"]
    with pytest.raises(Exception, match="is no level of log lines"):
        node.administer("settings", log_level="loud")
    node.administer("settings", log_level="reset")
    assert node.report("settings")["log_filter"] == configured


def test_the_last_repair_of_each_range_can_be_read(three_nodes, connect):
    session = connect(three_nodes, only=three_nodes.nodes[0])
    make_table(session)
    assert three_nodes.nodes[0].admin("repair", "shop")[0] == 0
    rows = list(session.execute("SELECT * FROM system_distributed.repair_history WHERE keyspace_name = 'shop' AND columnfamily_name = 'items'"))
    assert rows and all(row.status == "SUCCESS" and len(row.participants) == 3 for row in rows)
    assert three_nodes.nodes[0].metric("helenus_tables_with_late_repair") == 0


def nodetool(node, *words):
    """The exit status and the output of `helenus nodetool`."""
    host, port = node.http_address.rsplit(":", 1)
    command = [node.program, "nodetool", "-h", host, "-p", port, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_scripts_that_call_nodetool_find_what_they_look_for(three_nodes, connect):
    node = three_nodes.nodes[0]
    session = connect(three_nodes, only=node)
    write(session, make_table(session), range(30))
    status, shown = nodetool(node, "status", "shop")
    lines = [line.split() for line in shown.splitlines() if line.startswith("UN ")]
    assert status == 0 and [line[1] for line in lines] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"], shown
    assert "Datacenter: datacenter1" in shown and "100.0%" in shown
    assert sorted(nodetool(node, "getendpoints", "shop", "items", "7")[1].split()) == three_nodes.hosts()
    assert nodetool(node, "flush", "shop") == (0, "")
    assert "SSTable count: 1" in nodetool(node, "tablestats", "shop.items")[1]
    status, shown = nodetool(node, "tablehistograms", "shop", "items")
    assert status == 0 and "99%" in shown
    assert nodetool(node, "repair", "-pr", "shop")[0] == 0
    assert nodetool(node, "settraceprobability", "0.5") == (0, "")
    assert nodetool(node, "gettraceprobability")[1] == "Current trace probability: 0.5\n"
    assert nodetool(node, "disablehandoff")[0] == 0
    assert nodetool(node, "statushandoff")[1].startswith("Hinted handoff is not running")
    for words, expected, reason in [
        (("frobnicate",), 1, "there is no verb frobnicate"),
        (("-u", "admin", "status"), 1, ""),
        (("status", "nowhere"), 1, "nowhere"),
        (("move", "17"), 1, "tokens never move"),
        (("repair", "-seq"), 1, ""),
    ]:
        status, shown = nodetool(node, *words)
        assert status == expected and reason in shown, (words, status, shown)


def test_a_cluster_that_has_lost_its_majority_goes_on_with_one_command(three_nodes, connect):
    first, *dead = three_nodes.nodes
    session = connect(three_nodes, only=first, consistency=ConsistencyLevel.ONE)
    write(session, make_table(session), range(100))
    status, shown = first.admin("recover-metadata")
    assert status == 1 and "a majority of the voters answers" in shown
    ids = [member["host_id"] for member in Cluster.status(first)["members"] if first.host not in member["address"]]
    for node in dead:
        Cluster.kill(node)
    until("their death is known", lambda: sum(m["is_up"] for m in Cluster.status(first)["members"]) == 1)
    with pytest.raises(Exception, match="no leader|timed out|Timeout"):
        session.execute("CREATE TABLE shop.more (id int PRIMARY KEY)", timeout=40)
    status, shown = first.admin("recover-metadata")
    assert status == 0 and all(host_id in shown for host_id in ids), shown
    session.execute("CREATE TABLE IF NOT EXISTS shop.more (id int PRIMARY KEY)", timeout=60)
    assert first.admin("removenode", "--accept-loss", *ids) == (0, "done\n")
    assert len(Cluster.status(first)["members"]) == 1
    # Rows of before are there, and others can join.
    three_nodes.add()
    rows = {row.id for row in session.execute("SELECT id FROM shop.items")}
    assert rows == set(range(100))
    session.execute("INSERT INTO shop.more (id) VALUES (1)")
