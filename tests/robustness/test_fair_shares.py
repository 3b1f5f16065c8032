"""Roles share a shard's thread: one that asks without end does not keep another from its answers."""

import threading

import pytest
import wire
from cassandra.auth import PlainTextAuthProvider
from cassandra.concurrent import execute_concurrent_with_args
from conftest import driver_session, new_node
from test_administration import command
from wire import AUTH_RESPONSE, AUTH_SUCCESS, AUTHENTICATE, ERROR, QUERY, RESULT, STARTUP, Client, frame

SETTINGS = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
CONNECTIONS = 24
PIPELINED = 40
ROWS = 2_000
# Much work for the node, and little for the client.
SELECT = "SELECT count(*) FROM k.t"


@pytest.fixture(scope="module", params=[1, 2], ids=["one shard", "two shards"])
def node(request):
    with new_node(settings=SETTINGS, shards=request.param) as running:
        made = command("admin", "create-superuser", "root", "--data-dir", running.data_dir, stdin="root\n")
        assert made[0] == 0, made
        with driver_session(running, auth_provider=PlainTextAuthProvider("root", "root")) as root:
            root.execute("CREATE TABLE k.t (k int PRIMARY KEY, v int)")
            insert = root.prepare("INSERT INTO k.t (k, v) VALUES (?, ?)")
            execute_concurrent_with_args(root, insert, [(key, key) for key in range(ROWS)])
            for role in ("noisy", "quiet"):
                root.execute(f"CREATE ROLE {role} WITH PASSWORD = '{role}' AND LOGIN = true")
                root.execute(f"GRANT SELECT ON k.t TO {role}")
        yield running


def logged_in(node, role):
    client = Client((node.host, node.port), started=False)
    assert client.ask(STARTUP, wire.startup()).opcode == AUTHENTICATE
    answer = client.ask(AUTH_RESPONSE, wire.value(f"\0{role}\0{role}".encode()))
    assert answer.opcode == AUTH_SUCCESS, answer
    return client


class Noise:
    """Connections of a role that always have requests under way: scans of a table."""

    def __init__(self, node, role):
        self.clients = [logged_in(node, role) for _ in range(CONNECTIONS)]
        self.answers, self.errors, self.stops = 0, [], threading.Event()
        self.changed = threading.Condition()
        self.threads = [threading.Thread(target=self.ask, args=(client,)) for client in self.clients]

    def ask(self, client):
        request = frame(QUERY, wire.query(SELECT))
        for _ in range(PIPELINED):
            client.send(request)
        while not self.stops.is_set():
            answer = client.answer()
            with self.changed:
                self.answers += 1
                if answer.opcode == ERROR:
                    self.errors.append(answer.message)
                self.changed.notify_all()
            client.send(request)
        # What is under way is answered before the end.
        for _ in range(PIPELINED):
            client.answer()

    def wait_for(self, answers):
        with self.changed:
            assert self.changed.wait_for(lambda: self.errors or self.answers >= answers, wire.TIMEOUT_SECONDS)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.wait_for(CONNECTIONS)
        return self

    def __exit__(self, *_):
        self.stops.set()
        for thread in self.threads:
            thread.join()
        for client in self.clients:
            client.socket.close()


def test_a_quiet_role_is_answered_after_few_requests_of_a_noisy_one(node):
    with logged_in(node, "quiet") as quiet, Noise(node, "noisy") as noise:
        between = []
        for _ in range(50):
            before = noise.answers
            assert quiet.ask(QUERY, wire.query("SELECT v FROM k.t WHERE k = 7")).opcode == RESULT
            between.append(noise.answers - before)
        assert noise.errors == []
        # In turn with all others it would wait for a round of them: about as many as are under way.
        assert sorted(between)[25] < CONNECTIONS * PIPELINED / 4, between
        assert node.metric("helenus_turns_waited_total") > 0


def test_two_noisy_roles_both_get_on_and_one_that_is_left_goes_on_alone(node):
    with Noise(node, "noisy") as noisy:
        with Noise(node, "quiet") as other:
            noisy.wait_for(noisy.answers + 500)
            other.wait_for(300)
            assert noisy.errors == [] and other.errors == []
        noisy.wait_for(noisy.answers + 300)
        assert noisy.errors == []


def test_connections_that_end_while_they_wait_leave_the_others_alone(node):
    with logged_in(node, "quiet") as quiet, Noise(node, "noisy"):
        for _ in range(20):
            doomed = logged_in(node, "noisy")
            for _ in range(PIPELINED):
                doomed.send(frame(QUERY, wire.query(SELECT)))
            doomed.socket.close()
            assert quiet.ask(QUERY, wire.query("SELECT v FROM k.t WHERE k = 7")).opcode == RESULT
