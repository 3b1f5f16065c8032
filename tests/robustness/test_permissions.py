"""Who may do what, and what else a client hears: the answers of Apache Cassandra (`tests/permissions` records them) are also a node's."""

import sys
from pathlib import Path

import pytest
from conftest import program

PERMISSIONS = Path(__file__).resolve().parents[1] / "permissions"
sys.path.append(str(PERMISSIONS))
import corpus  # noqa: E402
import matrix  # noqa: E402
import player  # noqa: E402
import scripts  # noqa: E402
from helenus import open_node, secured_node  # noqa: E402

SCRIPTS = {script["script"]: script for script in corpus.read("scripts")}
# So many of the differences are worth reading.
SHOWN = 20


@pytest.fixture(scope="module")
def server():
    with secured_node(program()) as secured:
        yield secured


def assert_none(differences):
    found = [f"{case}\n  Cassandra: {theirs}\n  Helenus:   {ours}" for case, theirs, ours in differences]
    assert not found, f"{len(found)} answers differ:\n" + "\n".join(found[:SHOWN])


def test_the_recorded_cases_are_those_of_today():
    assert [document["statement"] for document in corpus.read("matrix")] == list(matrix.STATEMENTS)
    assert {name: len(script["steps"]) for name, script in SCRIPTS.items()} == {
        name: len(steps) for name, steps in scripts.SCRIPTS.items()
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_statements_about_roles(server, name):
    assert_none(player.play_script(server, SCRIPTS[name]))


def test_each_statement_under_each_permission(server):
    assert_none(player.play_matrix(server))


def test_before_the_login(server):
    assert_none(player.play_logins(server))


def test_a_server_that_asks_nobody():
    with open_node(program()) as server:
        assert_none(player.play_anonymous(server))
