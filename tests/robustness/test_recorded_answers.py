"""The answers that Apache Cassandra gave to random schemas and statements: a node gives the same (`tests/differential` records them)."""

import json
import sys
from pathlib import Path

import pytest
from conftest import new_node

DIFFERENTIAL = Path(__file__).resolve().parents[1] / "differential"
sys.path.append(str(DIFFERENTIAL))
from differences import accepted, difference  # noqa: E402
from generator import Statement  # noqa: E402
from servers import Server, scratch_keyspace  # noqa: E402

SCENARIOS = sorted((DIFFERENTIAL / "corpus").glob("*.json"))
assert SCENARIOS, "tests/differential/corpus has answers"


@pytest.fixture(scope="module")
def server():
    with new_node() as node:
        server = Server("helenus", node.host, node.port)
        yield server
        server.close()


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_answers_are_those_of_cassandra(server, path):
    steps = json.loads(path.read_text())
    with scratch_keyspace(server, f"recorded_{path.stem}") as keyspace:
        for step in steps:
            recorded = step.pop("answer")
            statement = Statement(**step)
            answer = server.play(statement, keyspace)
            kind = difference(recorded, answer)
            assert kind is None or accepted(kind, statement, recorded, answer), (kind, statement, recorded, answer)
