"""The answers that Apache Cassandra gave to random schemas and statements: a node gives the same (`tests/differential` records them)."""

import json
import sys
from pathlib import Path

import pytest
from conftest import new_node

DIFFERENTIAL = Path(__file__).resolve().parents[1] / "differential"
sys.path.append(str(DIFFERENTIAL))
from differences import differences  # noqa: E402
from generator import Statement  # noqa: E402
from servers import Server, scratch_keyspace  # noqa: E402

SCENARIOS = sorted((DIFFERENTIAL / "corpus").glob("*.json"))


@pytest.fixture(scope="module")
def server():
    with new_node() as node:
        server = Server("helenus", node.host, node.port, lambda keyspace: node.administer("flush", keyspace=keyspace))
        yield server
        server.close()


def test_there_are_recorded_answers():
    assert SCENARIOS, "tests/differential/corpus is empty: tests/differential/run --record NUMBER writes it"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_answers_are_those_of_cassandra(server, path):
    steps = json.loads(path.read_text())
    recorded = [step.pop("answer") for step in steps]
    statements = [Statement(**step) for step in steps]
    with scratch_keyspace(server, f"recorded_{path.stem}") as keyspace:
        answers = server.play_all(statements, keyspace)
        for statement, theirs, ours in zip(statements, recorded, answers, strict=True):
            kinds = differences(theirs, ours)
            assert not kinds, (kinds, statement, theirs, ours)
