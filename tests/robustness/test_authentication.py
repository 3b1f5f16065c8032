"""Clients that have to log in: right and wrong names and passwords, every message before the login, and many who never log in."""

import random
import socket
import struct
import threading
import time

import pytest
import wire
from cassandra import AuthenticationFailed, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.protocol import SyntaxException
from conftest import driver_session, new_node
from test_administration import command
from wire import (
    AUTH_RESPONSE,
    AUTH_SUCCESS,
    AUTHENTICATE,
    BAD_CREDENTIALS,
    ERROR,
    OPCODES,
    OPTIONS,
    OVERLOADED,
    PROTOCOL_ERROR,
    QUERY,
    READY,
    REGISTER,
    RESULT,
    STARTUP,
    SUPPORTED,
    UNAUTHORIZED,
    Client,
    SegmentedClient,
    frame,
)

NAMES = {0: "ERROR", 1: "STARTUP", 2: "READY", 3: "AUTHENTICATE", 5: "OPTIONS", 6: "SUPPORTED", 7: "QUERY", 8: "RESULT"}
NAMES |= {9: "PREPARE", 10: "EXECUTE", 11: "REGISTER", 12: "EVENT", 13: "BATCH", 14: "AUTH_CHALLENGE", 15: "AUTH_RESPONSE"}
NAMES |= {16: "AUTH_SUCCESS"}
LOGIN_TIMEOUT_MS = 3_000
SETTINGS = {
    "authenticator": "PasswordAuthenticator",
    "login_timeout_ms": LOGIN_TIMEOUT_MS,
    "max_connections": 400,
    "max_connections_before_login": 100,
}
GROWTH_MIB = 100
FREE_ATTEMPTS = 5


@pytest.fixture(scope="module")
def node():
    with new_node(settings=SETTINGS) as running:
        made = command("admin", "create-superuser", "anna", "--data-dir", running.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        yield running


@pytest.fixture(scope="module")
def session(node):
    with driver_session(node, auth_provider=PlainTextAuthProvider("anna", "secret")) as connected:
        yield connected


def token(name, password):
    return wire.value(f"\0{name}\0{password}".encode())


def connected(node, version=4):
    address = (node.host, node.port)
    return SegmentedClient(address) if version == 5 else Client(address, version=version, started=False)


def authenticating(node, version=4):
    """A connection that was asked to log in."""
    client = connected(node, version)
    asked = client.ask(STARTUP, wire.startup())
    assert asked.opcode == AUTHENTICATE and b"org.apache.cassandra.auth.PasswordAuthenticator" in asked.body
    return client


def hashes(node):
    return node.metric("helenus_password_hashes_total")


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_driver_logs_in(node, version):
    cluster = Cluster(
        [node.host], port=node.port, protocol_version=version, auth_provider=PlainTextAuthProvider("anna", "secret")
    )
    try:
        own = cluster.connect().execute("SELECT username FROM system_views.clients")
        assert {row.username for row in own} >= {"anna"}
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("name, password", [("anna", "Secret"), ("nobody", "secret")])
def test_wrong_names_and_passwords_are_refused_alike(node, name, password):
    cluster = Cluster([node.host], port=node.port, auth_provider=PlainTextAuthProvider(name, password))
    try:
        with pytest.raises(NoHostAvailable) as refused:
            cluster.connect()
        (error,) = refused.value.errors.values()
        assert isinstance(error, AuthenticationFailed)
        assert f"Provided username {name} and/or password are incorrect" in str(error)
    finally:
        cluster.shutdown()


def test_known_and_unknown_names_cost_the_same_hashes(node):
    for name in ("anna", "stranger"):
        before = hashes(node)
        with authenticating(node) as client:
            for number in range(3):
                answer = client.ask(AUTH_RESPONSE, token(name, f"wrong-{number}"))
                assert answer.error_code == BAD_CREDENTIALS
                assert answer.message == f"Provided username {name} and/or password are incorrect"
        assert hashes(node) == before + 3


def test_malformed_tokens_cost_no_hash(node):
    before = hashes(node)
    with authenticating(node) as client:
        for sent, text in [
            (b"", "Password must not be null"),
            (b"\0secret", "Authentication ID must not be null"),
            (b"\0\0anna\0secret", "Credential format error: username or password is empty or contains NUL(\\0) character"),
        ]:
            answer = client.ask(AUTH_RESPONSE, wire.value(sent))
            assert (answer.error_code, answer.message) == (BAD_CREDENTIALS, text)
        assert client.ask(AUTH_RESPONSE, token("anna", "secret")).opcode == AUTH_SUCCESS
    assert hashes(node) <= before + 1


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_right_password_is_taken_and_a_wrong_one_is_not_in_each_version(node, version):
    with authenticating(node, version) as client:
        for sent, text in ((token("anna", "no"), "Provided username anna and/or password are incorrect"), (b"", "Password must not be null")):
            answer = client.ask(AUTH_RESPONSE, sent or wire.value(b""))
            assert answer.error_code == OVERLOADED or (answer.error_code, answer.message) == (BAD_CREDENTIALS, text)
        assert client.ask(AUTH_RESPONSE, token("anna", "secret")).opcode == AUTH_SUCCESS
        assert client.ask(REGISTER, struct.pack(">H", 0)).opcode == READY


@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("version", [3, 4, 5])
def test_before_the_login_no_message_has_an_effect(node, opcode, is_asked, version):
    with authenticating(node, version) if is_asked else connected(node, version) as client:
        expected = "SASL_RESPONSE" if is_asked else "STARTUP or OPTIONS"
        body = {STARTUP: wire.startup(), QUERY: wire.query("CREATE KEYSPACE x"), AUTH_RESPONSE: token(f"stranger{version}", "no")}
        answer = client.ask(opcode, body.get(opcode, b""))
        if opcode == OPTIONS:
            assert answer.opcode == SUPPORTED
        elif opcode == STARTUP and not is_asked:
            assert answer.opcode == AUTHENTICATE
        elif opcode == AUTH_RESPONSE and is_asked:
            assert answer.error_code in (BAD_CREDENTIALS, OVERLOADED)
        elif opcode in wire.RESPONSES:
            assert answer.error_code == PROTOCOL_ERROR
            named = f"opcode {opcode} ({NAMES[opcode]})"
            assert answer.message == f"Wrong protocol direction (expected RESPONSE, got REQUEST) for {named}"
        else:
            assert answer.error_code == PROTOCOL_ERROR
            assert answer.message == f"Unexpected message {NAMES[opcode]}, expecting {expected}"


def test_after_the_login_there_is_no_other(node):
    with authenticating(node) as client:
        assert client.ask(AUTH_RESPONSE, token("anna", "secret")).opcode == AUTH_SUCCESS
        for opcode, body in ((STARTUP, wire.startup()), (AUTH_RESPONSE, token("anna", "secret"))):
            answer = client.ask(opcode, body)
            assert answer.message == f"Unexpected message {NAMES[opcode]}, the connection is already initialized"
        assert client.ask(QUERY, wire.query("SELECT key FROM system.local")).opcode != ERROR


def test_a_role_that_is_made_again_is_not_the_one_of_open_connections(node, session):
    session.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'stolen'")
    with authenticating(node) as idle, authenticating(node) as other:
        for client in (idle, other):
            assert client.ask(AUTH_RESPONSE, token("ben", "stolen")).opcode == AUTH_SUCCESS
            assert client.ask(REGISTER, struct.pack(">H", 1) + wire.string("SCHEMA_CHANGE")).opcode == READY
        session.execute("DROP ROLE ben")
        session.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'new' AND SUPERUSER = true")
        session.execute("CREATE TABLE k.later (k int PRIMARY KEY)")
        # It has said nothing while there was no role of the name, and hears of nothing that happened since.
        for client, request in ((idle, (QUERY, wire.query("LIST ROLES"))), (other, (REGISTER, struct.pack(">H", 0)))):
            answer = client.ask(*request)
            assert (answer.error_code, answer.message) == (UNAUTHORIZED, "You have not logged in")
            assert client.answer() is None
    with authenticating(node) as client:
        assert client.ask(AUTH_RESPONSE, token("ben", "new")).opcode == AUTH_SUCCESS
        assert client.ask(QUERY, wire.query("LIST ROLES")).opcode == RESULT


def test_frames_are_small_before_the_login(node):
    with authenticating(node) as client:
        answer = client.ask(AUTH_RESPONSE, bytes((64 << 10) + 1))
        assert "exceeds maximum allowed length 65536" in answer.message


def test_who_does_not_log_in_is_disconnected(node):
    with Client((node.host, node.port), started=False) as silent, authenticating(node) as asked:
        began = time.monotonic()
        assert silent.answer() is None and asked.answer() is None
        assert time.monotonic() - began < 3 * LOGIN_TIMEOUT_MS / 1000


class Reader:
    """A client that is logged in and goes on reading; its latencies in seconds."""

    def __init__(self, session):
        self.session, self.latencies, self.ends = session, [], threading.Event()
        self.thread = threading.Thread(target=self.read)

    def read(self):
        while not self.ends.is_set():
            began = time.monotonic()
            self.session.execute("SELECT key FROM system.local")
            self.latencies.append(time.monotonic() - began)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()

    def p99(self):
        return sorted(self.latencies)[len(self.latencies) * 99 // 100]


def test_a_thousand_wrong_logins_beside_a_healthy_client(node, session, measured):
    idle = node.resident_mib()
    results = []

    def guess(first):
        for number in range(first, 1_000, 8):
            with authenticating(node) as client:
                answer = client.ask(AUTH_RESPONSE, token(f"role-{number % 40}", f"guess-{number}"))
                results.append(answer.error_code if answer else None)

    with Reader(session) as reader:
        threads = [threading.Thread(target=guess, args=(first,)) for first in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with authenticating(node) as client:
            assert client.ask(AUTH_RESPONSE, token("anna", "secret")).opcode == AUTH_SUCCESS
    assert len(results) == 1_000 and set(results) <= {BAD_CREDENTIALS, OVERLOADED, None}
    assert node.resident_mib() - idle < GROWTH_MIB
    measured(f"1,000 wrong logins: p99 of a healthy client {reader.p99() * 1000:.1f} ms, {results.count(OVERLOADED)} overloaded")


def test_a_thousand_connections_that_never_log_in_beside_a_healthy_client(node, session, measured):
    chance = random.Random(7)
    idle = node.resident_mib()
    openings = [
        b"",
        chance.randbytes(300),
        frame(STARTUP, wire.startup())[:-5],
        frame(STARTUP, wire.startup()),
        frame(OPTIONS),
        frame(STARTUP, wire.startup(), version=5) + chance.randbytes(100),
        frame(QUERY, wire.query("SELECT key FROM system.local")),
    ]
    held = []
    try:
        with Reader(session) as reader:
            for number in range(1_000):
                held.append(socket.create_connection((node.host, node.port), timeout=30))
                held[-1].sendall(openings[number % len(openings)])
                if number % 100 == 99:
                    with authenticating(node) as client:
                        assert client.ask(AUTH_RESPONSE, token("anna", "secret")).opcode == AUTH_SUCCESS
        assert node.resident_mib() - idle < GROWTH_MIB
        measured(f"1,000 connections before their login: p99 of a healthy client {reader.p99() * 1000:.1f} ms")
    finally:
        for connection in held:
            connection.close()


def test_attempts_as_one_role_are_delayed(node):
    with authenticating(node) as client:
        began = time.monotonic()
        for number in range(FREE_ATTEMPTS + 1):
            client.ask(AUTH_RESPONSE, token("delayed", f"wrong-{number}"))
        assert time.monotonic() - began >= 0.25
    with authenticating(node) as client:
        assert client.ask(AUTH_RESPONSE, token("anna", "secret")).opcode == AUTH_SUCCESS


def test_a_trace_shows_no_password(session):
    for text in ("CREATE ROLE traced WITH PASSWORD = 'geheim'", "ALTER ROLE traced WITH PASSWORD = 'geheim'"):
        session.execute(text, trace=True)
    session.execute(session.prepare("ALTER ROLE traced WITH PASSWORD = 'geheim'"), trace=True)
    with pytest.raises(SyntaxException):
        session.execute("ALTER ROLLE traced WITH PASSWORD = 'geheim'", trace=True)
    traced = [row.parameters["query"] for row in session.execute("SELECT parameters FROM system_traces.sessions")]
    assert len([text for text in traced if text.startswith("ALTER ROLE traced WITH PASSWORD")]) == 2, traced
    assert not [text for text in traced if "geheim" in text]


def test_roles_are_made_again_from_their_statements(node, tmp_path):
    """A backup of the roles: with them a client logs in to another cluster with its old password, and may do what it might."""
    settings = {**SETTINGS, "authorizer": "CassandraAuthorizer"}
    tables = ["CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}", "CREATE TABLE s.t (k int PRIMARY KEY)"]
    changes = [
        "CREATE ROLE readers",
        "GRANT SELECT ON TABLE s.t TO readers",
        "GRANT CREATE ON ALL KEYSPACES TO readers",
        """CREATE ROLE "it's Ben" WITH LOGIN = true AND PASSWORD = 'old''s'""",
        "GRANT readers TO 'it''s Ben'",
        "ADD IDENTITY 'spiffe://k/ben' TO ROLE 'readers'",
    ]
    keeper = PlainTextAuthProvider("keeper", "secret")
    statements = tmp_path / "roles.cql"
    shown = []
    for is_restored in (False, True):
        with new_node(settings=settings) as running:
            administer = ("--data-dir", running.data_dir)
            assert command("admin", "create-superuser", "keeper", *administer, stdin="secret\n")[0] == 0
            with driver_session(running, auth_provider=keeper) as session:
                for statement in tables + ([] if is_restored else changes):
                    session.execute(statement)
            if is_restored:
                run = command("shell", running.host, running.port, "-u", "keeper", "-p", "secret", "-f", statements)
                assert run[0] == 0, run
            status, text, _ = command("admin", "describe-roles", *administer)
            assert status == 0
            statements.write_text(text)
            # Each keeper has a hash of its own.
            shown.append([line for line in text.splitlines() if "keeper" not in line])
            with driver_session(running, auth_provider=PlainTextAuthProvider("it's Ben", "old's")) as session:
                assert not session.execute("SELECT * FROM s.t").all()
                with pytest.raises(Unauthorized):
                    session.execute("INSERT INTO s.t (k) VALUES (1)")
    assert shown[0] == shown[1] and len(shown[0]) == 6
    assert command("admin", "describe-roles", "--url", f"http://{node.http_address}")[0] == 1
