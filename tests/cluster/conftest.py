"""Clusters of real processes for the tests, and sessions of the Python driver to them."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster  # noqa: E402
from small_disk import small_disk  # noqa: E402, F401

from cassandra import ConsistencyLevel  # noqa: E402
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile  # noqa: E402
from cassandra.cluster import Cluster as Driver  # noqa: E402
from cassandra.policies import (  # noqa: E402
    ConstantReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
    WhiteListRoundRobinPolicy,
)

PROGRAM = os.environ.get("HELENUS_PROGRAM")


@pytest.fixture
def three_nodes():
    with Cluster(3, PROGRAM) as cluster:
        yield cluster


@pytest.fixture
def connect(request):
    """A function that opens a session: to all nodes, or pinned to one."""
    drivers = []

    def open_session(cluster, only=None, consistency=ConsistencyLevel.QUORUM):
        balancing = WhiteListRoundRobinPolicy([only.host]) if only else TokenAwarePolicy(RoundRobinPolicy())
        profile = ExecutionProfile(
            load_balancing_policy=balancing,
            consistency_level=consistency,
            retry_policy=FallthroughRetryPolicy(),
            request_timeout=30,
        )
        driver = Driver(
            [only.host] if only else cluster.hosts(),
            port=cluster.port,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ConstantReconnectionPolicy(0.5, None),
            protocol_version=5,
        )
        drivers.append(driver)
        return driver.connect()

    yield open_session
    for driver in drivers:
        driver.shutdown()
