"""Nodes and driver sessions for the tests; what they measure is printed at the end."""

import os
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile  # noqa: E402
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy  # noqa: E402
from node import Node  # noqa: E402
from small_disk import small_disk  # noqa: E402, F401

MEASURED = []


def program():
    return os.environ["HELENUS_PROGRAM"]


def admin(node, *words):
    """The exit status and the output of `helenus admin`."""
    return node.admin(*words)


def new_node(**options):
    """A node that does not run yet: `with new_node() as node`."""
    return Node(program(), **{"shards": 2, **options})


@contextmanager
def driver_session(node, **options):
    """A session of the Python driver."""
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
    cluster = Cluster(
        [node.host],
        port=node.port,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.1, max_attempts=None),
        schema_event_refresh_window=0,
        # The driver sends a large request in several small writes. Without this each waits 40 ms for the acknowledgement of the one before.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        **options,
    )
    try:
        session = cluster.connect()
        session.execute(
            "CREATE KEYSPACE IF NOT EXISTS k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.set_keyspace("k")
        yield session
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def node():
    with new_node() as running:
        yield running


@pytest.fixture(scope="module")
def session(node):
    with driver_session(node) as connected:
        yield connected


@pytest.fixture
def measured():
    """Notes a line for the end of the run."""
    return MEASURED.append


def pytest_terminal_summary(terminalreporter):
    for line in MEASURED:
        terminalreporter.write_line(f"measured: {line}")
