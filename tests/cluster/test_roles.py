"""Roles in a cluster: every node has them, whatever nodes are down, and what is revoked is revoked on all of them."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster as Driver
from cassandra.cluster import NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from cluster import Cluster, until
from conftest import PROGRAM
from node import NodeError, clean_environment
from test_data_centers import TwoCenters

sys.path.append(str(Path(__file__).resolve().parents[1] / "robustness"))
import wire  # noqa: E402
from wire import Client  # noqa: E402

SETTINGS = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}


@contextmanager
def session_of(node, port, name):
    """A session of a role whose password is its name."""
    driver = Driver(
        [node.host],
        port=port,
        auth_provider=PlainTextAuthProvider(name, name),
        load_balancing_policy=WhiteListRoundRobinPolicy([node.host]),
        protocol_version=5,
    )
    try:
        yield driver.connect()
    finally:
        driver.shutdown()


def create_root(node):
    """The superuser `root`, whose password is its name."""
    command = [str(node.program), "admin", "--data-dir", str(node.data_dir), "create-superuser", "root"]
    subprocess.run(command, input="root\n", text=True, check=True, env=clean_environment(), timeout=60)


def is_refused(session, statement):
    try:
        session.execute(statement)
    except Unauthorized:
        return True
    return False


def test_roles_are_on_every_node_and_what_is_revoked_is_revoked_everywhere():
    with Cluster(3, PROGRAM, settings=SETTINGS) as cluster:
        first, second, third = cluster.nodes
        create_root(first)
        with session_of(second, cluster.port, "root") as root:
            root.execute("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}")
            root.execute("CREATE TABLE k.t (k int PRIMARY KEY, v int)")
            root.execute("CREATE ROLE reader")
            root.execute("GRANT SELECT ON KEYSPACE k TO reader")
            root.execute("CREATE ROLE ann WITH LOGIN = true AND PASSWORD = 'ann'")
            root.execute("GRANT reader TO ann")
            with session_of(third, cluster.port, "ann") as ann, session_of(first, cluster.port, "ann") as elsewhere:
                prepared = ann.prepare("SELECT v FROM k.t WHERE k = ?")
                assert not ann.execute(prepared, (1,)).all() and not elsewhere.execute("SELECT * FROM k.t").all()
                assert is_refused(ann, "INSERT INTO k.t (k, v) VALUES (1, 1)")
                # One of the three is down: roles are as they were.
                cluster.kill(first)
                root.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
                with session_of(third, cluster.port, "ben") as ben:
                    assert is_refused(ben, "SELECT * FROM k.t")
                root.execute("REVOKE reader FROM ann")
                # The acknowledgement says that the live nodes know.
                assert is_refused(ann, prepared.bind((1,)))
                first.start()
                until("the node knows what was revoked", lambda: refused_on(first, cluster.port))


def test_a_role_that_is_noisy_at_one_node_takes_turns_at_the_others():
    """It has no connection to the other node: what that reads for it as a replica counts for it all the same."""
    with Cluster(2, PROGRAM, settings=SETTINGS) as cluster:
        first, second = cluster.nodes
        create_root(first)
        with session_of(first, cluster.port, "root") as root:
            root.execute("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}")
            root.execute("CREATE TABLE k.t (k int, c int, v text, PRIMARY KEY (k, c))")
            for name in ("quiet", "noisy"):
                root.execute(f"CREATE ROLE {name} WITH LOGIN = true AND PASSWORD = '{name}'")
                root.execute(f"GRANT SELECT ON KEYSPACE k TO {name}")
            for k in range(16):
                for c in range(100):
                    root.execute("INSERT INTO k.t (k, c, v) VALUES (%s, %s, %s)", (k, c, "x" * 100))
        with session_of(first, cluster.port, "noisy") as noisy, session_of(second, cluster.port, "quiet") as quiet:
            before = second.metric("helenus_turns_waited_total")

            def has_waited():
                scans = [noisy.execute_async("SELECT * FROM k.t") for _ in range(32)]
                for number in range(50):
                    assert len(quiet.execute("SELECT c FROM k.t WHERE k = %s", (number % 16,)).all()) == 100
                assert all(len(scan.result().all()) == 1600 for scan in scans)
                return second.metric("helenus_turns_waited_total") > before

            until("somebody has waited for a turn", has_waited)


def test_a_role_works_in_its_own_data_centers_only():
    settings = SETTINGS | {"network_authorizer": "CassandraNetworkAuthorizer"}
    with TwoCenters(2, PROGRAM, settings=settings) as cluster:
        east, west = cluster.nodes
        create_root(east)
        with session_of(east, cluster.port, "root") as root:
            root.execute("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'east': 1, 'west': 1}")
            root.execute("CREATE TABLE k.t (k int PRIMARY KEY, v int)")
            root.execute("CREATE ROLE ann WITH LOGIN = true AND PASSWORD = 'ann' AND ACCESS TO DATACENTERS {'east'}")
            root.execute("GRANT SELECT ON KEYSPACE k TO ann")
            with session_of(east, cluster.port, "ann") as ann:
                prepared = ann.prepare("SELECT v FROM k.t WHERE k = ?")
                assert not ann.execute(prepared, (1,)).all()
                # As in Cassandra it may log in elsewhere, and do nothing there.
                with Client((west.host, cluster.port), started=False) as client:
                    assert client.ask(wire.STARTUP, wire.startup()).opcode == wire.AUTHENTICATE
                    assert client.ask(wire.AUTH_RESPONSE, wire.value(b"\0ann\0ann")).opcode == wire.AUTH_SUCCESS
                    answer = client.ask(wire.QUERY, wire.query("SELECT v FROM k.t WHERE k = 1"))
                    refused = (wire.UNAUTHORIZED, "You do not have access to this datacenter (west)")
                    assert (answer.error_code, answer.message) == refused
                    # A session goes by what holds now, in both directions.
                    root.execute("ALTER ROLE ann WITH ACCESS TO DATACENTERS {'west'}")
                    assert client.ask(wire.QUERY, wire.query("SELECT v FROM k.t WHERE k = 1")).opcode == wire.RESULT
                    assert is_refused(ann, prepared.bind((1,)))
                    root.execute("ALTER ROLE ann WITH ACCESS TO ALL DATACENTERS")
                    assert not ann.execute(prepared, (1,)).all()


def refused_on(node, port):
    try:
        with session_of(node, port, "ann") as ann:
            return is_refused(ann, "SELECT * FROM k.t")
    except NoHostAvailable:
        return False



def is_cut_off(session):
    """Whether the node refuses because it does not know whether its roles are the newest."""
    try:
        session.execute("SELECT key FROM system.local")
    except NoHostAvailable as error:
        return "newest roles" in str(error.errors)
    return False


def has_remark(node, text):
    try:
        node.report("health")
    except NodeError as error:
        return text in str(error)
    return False


def cannot_log_in(node, port, name):
    try:
        with session_of(node, port, name):
            return False
    except NoHostAvailable as error:
        assert "newest roles" in str(error.errors), error
        return True


def test_a_node_that_is_cut_off_refuses_clients_until_it_knows_the_newest_roles():
    settings = SETTINGS | {"unconfirmed_roles_limit_ms": 10_000}
    with Cluster(3, PROGRAM, settings=settings) as cluster:
        first, second, third = cluster.nodes
        create_root(first)
        with session_of(third, cluster.port, "root") as root:
            cluster.kill(first)
            assert root.execute("SELECT key FROM system.local").one(), "two of three are a majority"
            cluster.kill(second)
            until("the node refuses a client that is logged in", lambda: is_cut_off(root))
            assert cannot_log_in(third, cluster.port, "root")
            until("its health says so", lambda: has_remark(third, "newest roles"))
            first.start()
            until("the node serves its client again", lambda: not is_cut_off(root))
            assert root.execute("LIST ROLES").all()
        with session_of(third, cluster.port, "root") as root:
            assert root.execute("SELECT key FROM system.local").one()
