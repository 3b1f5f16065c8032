"""`helenus admin` and `helenus shell` as processes: what they say of a node that does not serve, or does not answer at all."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import termios
import time

import pytest
from conftest import new_node, program
from node import clean_environment

# Generous: it bounds a hang, not a speed.
RUN_SECONDS = 30


def command(*arguments):
    """A command to its end: (status, standard output, standard error)."""
    words = [program(), *map(str, arguments)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_SECONDS, env=clean_environment(), check=False
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


def test_an_error_that_cannot_be_told_leaves_the_exit_status(tmp_path):
    configuration = tmp_path / "helenus.toml"
    configuration.write_text("shards = 'two'\n")
    with open("/dev/full", "w") as full:
        words = [program(), "node", "--config", str(configuration), "--data-dir", str(tmp_path / "data")]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stderr=full, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 1


# Colours and movements of the cursor.
CONTROL_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[78])")


class Terminal:
    """A program on a terminal of its own, which tells where the cursor is when it is asked."""

    def __init__(self, words, **variables):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=clean_environment(TERM="xterm", NO_COLOR="1", **variables),
            start_new_session=True,
            # Ctrl-C reaches who has the terminal for its own.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.shown = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def press(self, keys):
        os.write(self.master, keys.encode())

    def wait_for(self, text):
        """Waits until the program has shown a text after what was waited for last; returns what it showed before it."""
        end = time.monotonic() + RUN_SECONDS
        while text not in self.shown:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{text!r} is not shown, but {self.shown[-2000:]!r}"
            self.shown += os.read(self.master, 1 << 16).decode(errors="replace")
            for _ in range(self.shown.count("\x1b[6n")):
                self.press("\x1b[1;1R")
            self.shown = CONTROL_SEQUENCE.sub("", self.shown)
        before, self.shown = self.shown.split(text, 1)
        return before


def test_ctrl_c_ends_what_the_shell_is_at_and_not_the_shell(tmp_path):
    history, data = tmp_path / "history", tmp_path / "data.csv"
    data.write_text("".join(f"{number},{number}\n" for number in range(2_000_000)))
    with new_node() as node:
        words = [program(), "shell", node.host, str(node.port)]
        with Terminal(words, HELENUS_HISTORY=str(history)) as shell:
            shell.wait_for("helenus> ")
            shell.press(
                "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}; "
                "USE k; CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t (a, b) VALUES (1, 1); "
                "INSERT INTO t (a, b) VALUES (2, 2); INSERT INTO t (a, b) VALUES (3, 3); PAGING 1;\r"
            )
            shell.wait_for("Page size: 1")
            shell.press("SELECT * FROM t;\r")
            shell.wait_for("---MORE---")
            shell.press("\r")
            shell.wait_for("---MORE---")
            shell.press("\x03")
            shell.wait_for("Interrupted")
            shell.wait_for("helenus:k> ")
            shell.press(f"COPY t FROM '{data}'; SELECT key AS unreached FROM system.local;\r")
            shell.wait_for("Processed: ")
            shell.press("\x03")
            # How far it came is said, and the statement behind it is not run.
            assert re.search(r"\d+ rows imported", shell.wait_for("Interrupted"))
            assert "unreached" not in shell.wait_for("helenus:k> ")
            shell.press("SELECT count(*) FROM system.local;\r")
            shell.wait_for("(1 rows)")
            shell.process.send_signal(signal.SIGKILL)
            shell.process.wait()
    assert "COPY t FROM" in history.read_text()
