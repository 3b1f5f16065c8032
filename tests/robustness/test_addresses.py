"""The addresses that a node binds, and those that it tells its clients: wildcard addresses, IPv6."""

import json
import socket
import subprocess

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy
from cluster import until
from conftest import new_node, program
from node import clean_environment, free_port
from test_node import run

RUN_SECONDS = 60


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def command(*words):
    """Standard output of a command that succeeds."""
    done = subprocess.run(
        [program(), *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def free_port_of_ipv6():
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return probe.getsockname()[1]


def session_at(address, port):
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
    driver = Cluster([address], port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    return driver, driver.connect()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_a_wildcard_address_without_one_for_clients_is_refused(tmp_path, listen):
    status, output, error = run("--data-dir", tmp_path / "data", "--listen", listen, "--no-http")
    assert (status, output) == (1, "")
    assert "setting 'listen': is a wildcard address" in error and "`broadcast_rpc_address`" in error
    status, _, error = run("--data-dir", tmp_path / "data", "--listen", listen, "--broadcast-rpc-address", "0.0.0.0")
    assert status == 1 and "setting 'broadcast_rpc_address': must be an address" in error
    status, _, error = run("--data-dir", tmp_path / "data", "--internode", "0.0.0.0:7000")
    assert status == 1 and "setting 'internode': must be an address" in error and "`broadcast_address`" in error
    assert not (tmp_path / "data").exists()


def test_a_name_without_an_address_is_refused_by_its_setting(tmp_path):
    flags = ("--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0", "--no-http")
    status, _, error = run(*flags, "--broadcast-rpc-address", "no-such-host.invalid")
    assert status == 1 and "'no-such-host.invalid' (setting 'broadcast_rpc_address') cannot be used" in error


@pytest.mark.parametrize("listen", ["0.0.0.0:0", pytest.param("[::]:0", marks=needs_ipv6)])
def test_clients_of_a_wildcard_address_are_told_the_broadcast_address(listen):
    with new_node(settings={"broadcast_rpc_address": "localhost" if listen.startswith("0") else "127.0.0.1"}) as node:
        # Its address as it was found: the node printed the one that it has bound.
        assert node.listen.startswith("127.0.0.1:")
        node.stop()
        node.listen = listen
        node.start()
        assert node.host in ("0.0.0.0", "::")
        driver, session = session_at("127.0.0.1", node.port)
        try:
            local = session.execute("SELECT rpc_address, rpc_port, broadcast_address, listen_address FROM system.local").one()
            assert (local.rpc_address, local.rpc_port) == ("127.0.0.1", node.port)
            assert local.broadcast_address == local.listen_address == "127.0.0.1"
            assert [host.address for host in driver.metadata.all_hosts()] == ["127.0.0.1"]
            # The client too has its own address, not one of IPv6 that stands for it.
            addresses = {row.address for row in session.execute("SELECT address FROM system_views.clients")}
            assert addresses == {"127.0.0.1"}
        finally:
            driver.shutdown()


@needs_ipv6
def test_a_node_lives_on_ipv6_alone():
    internode = free_port_of_ipv6()
    settings = {"internode": f"[::1]:{internode}", "seeds": [f"[::1]:{internode}"], "metrics_listen": f"[::1]:{free_port_of_ipv6()}"}
    node = new_node(settings=settings)
    node.listen = "[::1]:0"
    with node:
        assert node.host == "::1"
        driver, session = session_at("::1", node.port)
        try:
            local = session.execute("SELECT rpc_address, broadcast_address, listen_address FROM system.local").one()
            assert tuple(local) == ("::1", "::1", "::1")
            assert [host.address for host in driver.metadata.all_hosts()] == ["::1"]
            assert {row.address for row in session.execute("SELECT address FROM system_views.clients")} == {"::1"}
        finally:
            driver.shutdown()
        assert "::1" in command("shell", "::1", node.port, "-e", "SELECT rpc_address FROM system.local")
        place = ("--data-dir", node.data_dir)
        members = json.loads(command("admin", "status", "--json", *place))["members"]
        assert [(member["address"], member["native_address"]) for member in members] == [
            (f"[::1]:{internode}", f"[::1]:{node.port}")
        ]
        assert "UN  ::1 " in command("nodetool", *place, "status")
        assert f"UN  [::1]:{internode} " in command("nodetool", *place, "-pp", "status")
        port = int(settings["metrics_listen"].rsplit(":", 1)[1])
        with socket.create_connection(("::1", port), timeout=RUN_SECONDS) as monitoring:
            monitoring.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert monitoring.recv(12) == b"HTTP/1.0 200"
        node.restart()


def test_a_node_may_change_what_it_tells_others():
    internode = free_port()
    settings = {"internode": f"127.0.0.1:{internode}", "seeds": [f"127.0.0.1:{internode}"]}
    with new_node(settings=settings) as node:
        # It is still reached at the address that it had, and that is no copy of it.
        node.settings |= {"broadcast_address": "127.0.0.2", "broadcast_rpc_address": "127.0.0.1"}
        node.restart()
        driver, session = session_at("127.0.0.1", node.port)
        try:
            local = session.execute("SELECT rpc_address, broadcast_address, listen_address FROM system.local").one()
            assert tuple(local) == ("127.0.0.1", "127.0.0.2", "127.0.0.1")
        finally:
            driver.shutdown()
        # Once the metadata log has it.
        told = [f"127.0.0.2:{internode}"]
        until("it is known at the new address", lambda: [member["address"] for member in node.report("status")["members"]] == told)
