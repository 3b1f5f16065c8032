"""`helenus admin` and `helenus shell` as processes: what they say of a node that does not serve, or does not answer at all."""

import json
import os
import socket
import subprocess
import time

import pytest
from conftest import new_node, program

# Generous: it bounds a hang, not a speed.
RUN_SECONDS = 30


def command(*arguments):
    """A command to its end: (status, standard output, standard error)."""
    clean = {key: text for key, text in os.environ.items() if not key.startswith("HELENUS_")}
    words = [program(), *map(str, arguments)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_SECONDS, env=clean, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def silent_port():
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_health_is_up_until_the_node_is_drained():
    with new_node() as node:
        health = ("admin", "health", "--url", f"http://{node.http_address}")
        assert command(*health) == (0, "up\n", "")
        status, told, _ = command(*health, "--json")
        assert (status, json.loads(told)) == (0, {"status": "up"})
        node.administer("drain")
        assert command(*health) == (1, "", "helenus admin: the node is drained\n")
        status, told, complaint = command(*health, "--json")
        assert (status, json.loads(told), complaint) == (1, {"status": "down", "reason": "the node is drained"}, "")


def test_commands_give_up_who_never_answers(silent_port):
    begin = time.monotonic()
    status, _, complaint = command("shell", "127.0.0.1", silent_port, "--connect-timeout", "1", "-e", "SELECT 1")
    assert (status, complaint) == (2, f"Connection error: no answer from 127.0.0.1:{silent_port} within 1 seconds\n")
    url = f"http://127.0.0.1:{silent_port}"
    for words in (("status",), ("flush",)):
        status, _, complaint = command("admin", *words, "--url", url, "--timeout", "1")
        reason = f"the node at 127.0.0.1:{silent_port} has not answered within 1 seconds"
        assert (status, complaint) == (1, f"helenus admin: {reason}\n")
    assert time.monotonic() - begin < RUN_SECONDS / 2


def test_logs_that_are_no_terminal_have_no_colours_and_little_of_raft():
    with new_node() as node:
        node.stop()
        log = node.log_path.read_text()
    assert " INFO " in log and "ready" in log
    assert "\x1b" not in log
    assert not [line for line in log.splitlines() if " INFO openraft" in line]
