"""What clients of Cassandra rely on beyond single statements: statements that are prepared again, paging states, versions of the
protocol and timeouts of single statements."""

import struct
import time

import pytest
import wire
from cassandra import ProtocolVersion, ReadTimeout, Unauthorized, WriteTimeout
from cassandra.cluster import Cluster as DriverCluster
from cassandra.cluster import ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement
from cassandra.util import Duration
from cluster import Cluster, until
from conftest import driver_session, new_node, program
from wire import ERROR, EXECUTE, OPTIONS, PREPARE, RESULT, Client, frame

UNPREPARED = 0x2500
USE_BETA = 0x10


@pytest.mark.parametrize("version", [ProtocolVersion.V4, ProtocolVersion.V5, ProtocolVersion.V6])
def test_a_prepared_statement_follows_its_table(node, version):
    """The driver prepares again by itself, and takes the new columns from the answer."""
    options = {"protocol_version": version, "allow_beta_protocol_version": version == ProtocolVersion.V6}
    with driver_session(node, **options) as session:
        assert session.cluster.protocol_version == version
        session.execute("DROP TABLE IF EXISTS altered")
        session.execute("CREATE TABLE altered (k int PRIMARY KEY, a int)")
        session.execute("INSERT INTO altered (k, a) VALUES (1, 2)")
        select = session.prepare("SELECT * FROM altered WHERE k = ?")
        assert session.execute(select, [1]).one() == (1, 2)
        session.execute("ALTER TABLE altered ADD b int")
        session.execute("UPDATE altered SET b = 3 WHERE k = 1")
        for _ in range(4):
            assert session.execute(select, [1]).one() == (1, 2, 3)


def test_after_a_change_of_its_table_a_statement_is_not_prepared(node, session):
    session.execute("CREATE TABLE prepared (k int PRIMARY KEY, a int)")
    insert = "INSERT INTO k.prepared (k, a) VALUES (1, 2)"
    with Client((node.host, node.port)) as client:
        identifier = client.ask(PREPARE, wire.long_string(insert)).prepared_id
        assert client.ask(EXECUTE, wire.execute(identifier)).opcode == RESULT
        session.execute("ALTER TABLE prepared WITH comment = 'no matter'")
        assert client.ask(EXECUTE, wire.execute(identifier)).opcode == RESULT
        session.execute("ALTER TABLE prepared ADD b int")
        for _ in range(2):
            assert client.ask(EXECUTE, wire.execute(identifier)).error_code == UNPREPARED
        assert client.ask(PREPARE, wire.long_string(insert)).prepared_id == identifier
        assert client.ask(EXECUTE, wire.execute(identifier)).opcode == RESULT


def pages(session, text, rows):
    """The number of rows on each page."""
    found, state = [], None
    while True:
        result = session.execute(SimpleStatement(text, fetch_size=rows), paging_state=state)
        found.append(len(result.current_rows))
        state = result.paging_state
        if state is None:
            return found


def test_a_page_that_is_exactly_full_has_a_paging_state(session):
    session.execute("CREATE TABLE paged (p int, c int, PRIMARY KEY (p, c))")
    session.execute("CREATE TABLE single (p int PRIMARY KEY)")
    for p in (0, 1):
        session.execute("INSERT INTO single (p) VALUES (%s)", [p])
        for c in range(4):
            session.execute("INSERT INTO paged (p, c) VALUES (%s, %s)", [p, c])
    assert pages(session, "SELECT * FROM paged WHERE p = 0", 2) == [2, 2, 0]
    assert pages(session, "SELECT * FROM paged WHERE p = 0 LIMIT 4", 2) == [2, 2]
    assert pages(session, "SELECT * FROM paged WHERE p = 0 PER PARTITION LIMIT 2", 2) == [2]
    assert pages(session, "SELECT * FROM paged", 4) == [4, 4, 0]
    assert pages(session, "SELECT * FROM paged WHERE p IN (0, 1)", 4) == [4, 4, 0]
    assert pages(session, "SELECT * FROM single", 2) == [2, 0]
    assert pages(session, "SELECT * FROM single WHERE p IN (0, 1)", 2) == [2]
    assert pages(session, "SELECT * FROM single WHERE p = 0", 1) == [1]
    assert pages(session, "SELECT count(*) FROM paged", 1) == [1]


def test_a_paging_state_is_good_for_another_statement_on_the_table(session):
    session.execute("CREATE TABLE shared (p int, c int, PRIMARY KEY (p, c))")
    for c in range(10):
        session.execute("INSERT INTO shared (p, c) VALUES (0, %s)", [c])
    first = session.execute(SimpleStatement("SELECT c FROM shared WHERE p = 0 ORDER BY c ASC", fetch_size=5))
    state = first.paging_state

    def later(text):
        return [row.c for row in session.execute(SimpleStatement(text, fetch_size=100), paging_state=state)]

    assert later("SELECT c FROM shared WHERE p = 0 AND c = 7") == [7]
    assert later("SELECT c FROM shared WHERE p = 0 AND c = 3") == []
    assert later("SELECT p, c FROM shared WHERE p = 0 LIMIT 2") == [5, 6]
    assert later("SELECT c FROM shared") == [5, 6, 7, 8, 9]
    session.execute("CREATE TABLE unshared (p int PRIMARY KEY)")
    with pytest.raises(Exception, match="Invalid value for the paging state"):
        session.execute(SimpleStatement("SELECT p FROM unshared"), paging_state=state)


def test_the_beta_version_must_be_asked_for(node):
    with Client((node.host, node.port), version=6, started=False) as client:
        client.send(frame(OPTIONS, version=6))
        answer = client.answer()
        assert answer.error_code == wire.PROTOCOL_ERROR and answer.flags & USE_BETA
        assert answer.message == "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset"
    with Client((node.host, node.port), version=6, started=False) as client:
        client.send(frame(OPTIONS, version=6, flags=USE_BETA))
        answer = client.answer()
        assert answer.opcode == wire.SUPPORTED and b"6/v6-beta" in answer.body


def test_unknown_flags_of_a_query_mean_nothing(node):
    with Client((node.host, node.port)) as client:
        body = wire.long_string("SELECT key FROM system.local") + struct.pack(">HB", wire.ONE, 0x40)
        assert client.ask(wire.QUERY, body).opcode == RESULT
        assert client.ask(wire.QUERY, body, flags=0xE0).opcode == RESULT
        assert client.ask(wire.QUERY, wire.query("SELECT nothing FROM system.local")).opcode == ERROR


def test_extensions_of_tables_are_written_into_the_schema_tables():
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE extended (k int PRIMARY KEY)")
            update = session.prepare(
                "UPDATE system_schema.tables SET extensions = ? WHERE keyspace_name = ? AND table_name = ?"
            )
            session.execute(update, [{"a": b"\x01\x02", "b": b""}, "k", "extended"])
            with pytest.raises(Unauthorized):
                session.execute("DELETE FROM system_schema.tables WHERE keyspace_name = 'k'")
        node.restart()
        with driver_session(node) as session:
            select = "SELECT extensions FROM system_schema.tables WHERE keyspace_name = 'k' AND table_name = 'extended'"
            assert session.execute(select).one().extensions == {"a": b"\x01\x02", "b": b""}


def test_using_timeout_at_once(session):
    session.execute("CREATE TABLE timed (k int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO timed (k, v) VALUES (1, 1) USING TIMEOUT ? AND TTL 100")
    session.execute(insert, [Duration(nanoseconds=10**15)])
    for text in (
        "INSERT INTO timed (k, v) VALUES (1, 2) USING TIMEOUT 0ms",
        "UPDATE timed USING TIMEOUT 0ms SET v = 2 WHERE k = 1",
        "DELETE FROM timed USING TIMEOUT 0ms AND TIMESTAMP 42 WHERE k = 1",
        "BEGIN BATCH USING TIMEOUT 0ms INSERT INTO timed (k, v) VALUES (1, 2); APPLY BATCH",
    ):
        with pytest.raises(WriteTimeout):
            session.execute(text)
    with pytest.raises(WriteTimeout):
        session.execute(insert, [Duration()])
    with pytest.raises(ReadTimeout):
        session.execute("SELECT * FROM timed USING TIMEOUT 0ms")
    assert session.execute("SELECT v FROM timed USING TIMEOUT 24h").one() == (1,)


def test_using_timeout_bounds_the_wait_for_replicas():
    """A replica that says nothing: the settings would have the client wait for seconds."""
    settings = {"write_request_timeout_ms": 20_000, "read_request_timeout_ms": 20_000}
    with Cluster(2, program(), settings=settings) as servers:
        first, second = servers.nodes
        profile = ExecutionProfile(
            load_balancing_policy=WhiteListRoundRobinPolicy([first.host]), request_timeout=60, retry_policy=None
        )
        driver = DriverCluster([first.host], port=servers.port, execution_profiles={"once": profile})
        try:
            session = driver.connect()
            until("both serve", lambda: len(session.cluster.metadata.all_hosts()) == 2)
            session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
            session.execute("CREATE TABLE k.t (k int PRIMARY KEY, v int)")
            insert = SimpleStatement("INSERT INTO k.t (k, v) VALUES (1, 1) USING TIMEOUT 100ms", consistency_level=5)
            select = SimpleStatement("SELECT * FROM k.t WHERE k = 1 USING TIMEOUT 100ms", consistency_level=5)
            session.execute(insert, execution_profile="once")
            assert session.execute(select, execution_profile="once").one() == (1, 1)
            servers.pause(second)
            begun = time.monotonic()
            with pytest.raises(WriteTimeout):
                session.execute(insert, execution_profile="once")
            with pytest.raises(ReadTimeout):
                session.execute(select, execution_profile="once")
            assert time.monotonic() - begun < 10
        finally:
            servers.resume(second)
            driver.shutdown()
