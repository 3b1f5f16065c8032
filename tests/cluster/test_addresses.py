"""Clusters whose members tell others other addresses than they have bound, on IPv6, and at the default port of administration."""

import json
import os
import socket
import subprocess
from contextlib import ExitStack

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.cluster import Cluster as Driver
from cassandra.policies import RoundRobinPolicy
from cluster import until
from conftest import PROGRAM
from node import Node, binary, clean_environment, free_port


def is_ipv6_there():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def start(stack, count, addresses_of):
    """Members that are started one after the other; `addresses_of`: the settings of a member, by its number."""
    nodes = []
    for number in range(1, count + 1):
        listen, settings = addresses_of(number)
        node = Node(PROGRAM, shards=1, settings={"cluster_name": "addresses", "rack": f"rack{number}", **settings})
        node.listen = listen
        nodes.append(stack.enter_context(node))
    return nodes


def open_session(stack, address, port):
    profile = ExecutionProfile(
        load_balancing_policy=RoundRobinPolicy(), consistency_level=ConsistencyLevel.ALL, request_timeout=30
    )
    driver = Driver([address], port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, protocol_version=5)
    stack.callback(driver.shutdown)
    return driver, driver.connect()


def write_and_read(session):
    session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
    session.execute("CREATE TABLE shop.items (id int PRIMARY KEY)")
    for number in range(30):
        session.execute("INSERT INTO shop.items (id) VALUES (%s)", [number])
    for _ in range(3):
        assert session.execute("SELECT count(*) FROM shop.items").one()[0] == 30


def test_members_at_wildcard_addresses_are_found_by_their_broadcast_addresses():
    native, internode = [[free_port(["0.0.0.0"]) for _ in range(3)] for _ in range(2)]

    def addresses_of(number):
        return f"0.0.0.0:{native[number - 1]}", {
            "internode": f"0.0.0.0:{internode[number - 1]}",
            "seeds": [f"127.0.1.1:{internode[0]}"],
            "broadcast_address": f"127.0.1.{number}",
            "broadcast_rpc_address": f"127.0.2.{number}",
        }

    with ExitStack() as stack:
        nodes = start(stack, 3, addresses_of)
        # The driver keeps the address that it is given of the first member.
        driver, session = open_session(stack, "127.0.2.1", native[0])
        expected = {(f"127.0.2.{number}", native[number - 1]) for number in (1, 2, 3)}

        def found():
            hosts = driver.metadata.all_hosts()
            return {(host.address, host.endpoint.port) for host in hosts if host.is_up} == expected

        until("the driver finds all members", found)
        write_and_read(session)
        peers = {
            (row.peer, row.peer_port, row.native_address, row.native_port) for row in session.execute("SELECT * FROM system.peers_v2")
        }
        everyone = {
            (f"127.0.1.{number}", internode[number - 1], f"127.0.2.{number}", native[number - 1]) for number in (1, 2, 3)
        }
        assert peers < everyone and len(peers) == 2
        # A member that comes back is told to clients by the same address.
        nodes[2].restart()
        until("the driver finds all members again", found)
        write = "INSERT INTO shop.items (id) VALUES (31)"
        until("all replicas answer", lambda: session.execute(write) is not None)
        members = json.loads(nodes[0].admin("status", "--json")[1])["members"]
        assert {member["address"] for member in members} == {f"127.0.1.{n}:{internode[n - 1]}" for n in (1, 2, 3)}


@pytest.mark.skipif(not is_ipv6_there(), reason="this machine has no IPv6")
def test_a_cluster_lives_on_ipv6():
    native, internode = [[free_port() for _ in range(3)] for _ in range(2)]

    def addresses_of(number):
        return f"[::1]:{native[number - 1]}", {
            "internode": f"[::1]:{internode[number - 1]}",
            "seeds": [f"[::1]:{internode[0]}"],
        }

    with ExitStack() as stack:
        nodes = start(stack, 3, addresses_of)
        driver, session = open_session(stack, "::1", native[0])
        expected = {("::1", port) for port in native}
        until(
            "the driver finds all members",
            lambda: {(host.address, host.endpoint.port) for host in driver.metadata.all_hosts()} == expected,
        )
        write_and_read(session)
        status, told = nodes[1].admin("ring")
        assert status == 0 and all(f"[::1]:{port}" in told for port in internode)


@pytest.mark.skipif("HELENUS_OWN_NAMESPACES" not in os.environ, reason="the default port may be taken without a network of its own")
def test_members_at_loopback_addresses_have_the_default_port_each():
    port, internode = free_port(), free_port()

    def addresses_of(number):
        return f"127.0.0.{number}:{port}", {
            "http_port": None,
            "internode": f"127.0.0.{number}:{internode}",
            "seeds": [f"127.0.0.1:{internode}"],
        }

    def health(*words):
        command = [binary(PROGRAM), "admin", "health", *words]
        return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False).stdout

    with ExitStack() as stack:
        nodes = start(stack, 3, addresses_of)
        for number, node in enumerate(nodes, 1):
            assert health("--url", f"http://127.0.0.{number}:9180") == "up\n"
            assert health("--data-dir", str(node.data_dir)) == "up\n"
        # Without a place: no socket in the present directory, so the port.
        assert health() == "up\n"
        second = Node(PROGRAM, shards=1, settings={"http_port": None})
        with second:
            assert "another program has this port" in second.log_tail(1000)
            assert health("--data-dir", str(second.data_dir)) == "up\n"
