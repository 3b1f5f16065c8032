"""What a node does as a process: its settings, its lock, its signals, its first line, what a restart finds."""

import re
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import wire
from conftest import driver_session, new_node, program
from node import Node, NodeError, clean_environment, free_port
from wire import QUERY, Client, frame

# Generous: these bound a hang, not a speed.
RUN_SECONDS = 30
READY_SECONDS = 30
ROWS = 5_000


def run(*arguments, **variables):
    """`helenus node` with arguments to its end: (status, standard output, standard error)."""
    done = subprocess.run(
        [program(), "node", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=clean_environment(**variables),
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def fill(session):
    session.execute("CREATE TABLE IF NOT EXISTS rows (k int PRIMARY KEY, v text)")
    write = session.prepare("INSERT INTO rows (k, v) VALUES (?, ?)")
    for future in [session.execute_async(write, (number, "v" * 2_000)) for number in range(ROWS)]:
        future.result()


def count(session):
    return session.execute("SELECT count(*) FROM rows").one().count


@pytest.mark.parametrize(
    "text, message",
    [
        ("memtable_byte = 3", "unknown setting 'memtable_byte'; did you mean 'memtable_bytes'?"),
        ("zzz = 3", "unknown setting 'zzz'"),
        ("memtable_bytes = 3", "setting 'memtable_bytes': must be at least 8 MiB"),
        ("memtable_bytes = 'much'", "memtable_bytes"),
        ("authenticator = 'MyAuthenticator'", "unknown variant `MyAuthenticator`"),
        ("authorizer = 'CassandraAuthorizer'", "AllowAllAuthenticator can't be used with CassandraAuthorizer"),
        ("log_filter = 'loud=very'", "setting 'log_filter': is not a valid log filter"),
        ("= 3", "helenus.toml"),
    ],
)
def test_a_wrong_setting_keeps_the_node_from_starting(tmp_path, text, message):
    path = tmp_path / "helenus.toml"
    path.write_text(text + "\n")
    status, output, error = run("--config", path, "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0")
    assert (status, output) == (1, "")
    assert message in error
    assert not (tmp_path / "data").exists()


def test_the_settings_shown_are_settings_again(tmp_path):
    path = tmp_path / "helenus.toml"
    path.write_text("memtable_bytes = 10000000\nrack = \"r'1\"\ndefault_page_rows = 77\nshards = 2\n")
    flags = ("--data-dir", "a b", "--listen", "127.0.0.1:0", "--commit-log", "periodic", "--http-port", "0")
    status, shown, _ = run("--config", path, *flags, "--show-config", HELENUS_CLUSTER_NAME="of the environment")
    assert status == 0
    for line in ("memtable_bytes = 10000000", 'commit_log = "periodic"', 'cluster_name = "of the environment"'):
        assert line in shown.splitlines()
    path.write_text(shown)
    assert run("--config", path, "--show-config") == (0, shown, "")
    for said, is_served in (("1", "false"), ("yes", "false"), ("0", "true")):
        assert f"http_enabled = {is_served}\n" in run("--show-config", HELENUS_NO_HTTP=said)[1]


def test_flags_stand_over_the_environment_and_it_over_the_file(tmp_path):
    path = tmp_path / "helenus.toml"
    path.write_text('cluster_name = "file"\n')

    def name(*flags, **variables):
        return re.search(r'^cluster_name = "(.*)"$', run("--config", path, "--show-config", *flags, **variables)[1], re.M)[1]

    assert name() == "file"
    assert name(HELENUS_CLUSTER_NAME="environment") == "environment"
    assert name("--cluster-name", "flag", HELENUS_CLUSTER_NAME="environment") == "flag"


def test_a_variable_that_nothing_reads_is_named_in_the_log(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ("--data-dir", tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--no-http")
        variables = {"HELENUS_SHARD": "1", "HELENUS_ZZZ": "1", "HELENUS_HISTORY": "of the shell", "HELENUS_RACK": "r"}
        status, _, error = run(*flags, **variables)
    assert status == 1
    named = re.findall(r"unknown environment variable (.*)", error)
    assert sorted(named) == ["HELENUS_SHARD; did you mean HELENUS_SHARDS?", "HELENUS_ZZZ"]


def test_a_second_process_on_the_data_and_a_taken_port_are_refused(tmp_path):
    with new_node() as node, driver_session(node) as session:
        status, output, error = run("--data-dir", node.data_dir, "--listen", "127.0.0.1:0", "--http-port", "0")
        assert (status, output) == (1, "")
        assert str(node.data_dir) in error and len(error.strip().splitlines()) == 1, error
        status, output, error = run("--data-dir", tmp_path, "--listen", node.listen, "--http-port", "0", "--no-http")
        assert (status, output) == (1, "")
        # Warnings about the machine come before it.
        [line] = [line for line in error.splitlines() if line.startswith("helenus: ")]
        assert node.listen in line and error.strip().endswith(line), error
        fill(session)
        assert count(session) == ROWS


def start_measured(node):
    begin = time.monotonic()
    node.start()
    return time.monotonic() - begin


def test_sigterm_ends_with_status_0_and_a_restart_has_everything(measured):
    node = new_node()
    try:
        seconds = start_measured(node)
        measured(f"ready after {seconds:.2f} s (no data)")
        assert seconds < READY_SECONDS
        with driver_session(node) as session:
            fill(session)
        # Clients that are there do not keep the node from stopping: an idle one and one that does not read.
        idle = Client((node.host, node.port))
        deaf = Client((node.host, node.port))
        deaf.send(frame(QUERY, wire.query("SELECT * FROM k.rows")) * 10)
        begin = time.monotonic()
        node.stop()
        measured(f"stopped after {time.monotonic() - begin:.2f} s ({ROWS * 2 // 1000} MB to flush)")
        assert idle.answer() is None
        deaf.socket.close()
        seconds = start_measured(node)
        measured(f"ready after {seconds:.2f} s (after a stop)")
        assert seconds < READY_SECONDS
        with driver_session(node) as session:
            assert count(session) == ROWS
    finally:
        node.__exit__(None)


def test_a_kill_loses_nothing_and_the_log_is_read_back(measured):
    with new_node() as node:
        with driver_session(node) as session:
            fill(session)
        node.process.kill()
        node.process.wait()
        seconds = start_measured(node)
        measured(f"ready after {seconds:.2f} s ({ROWS * 2 // 1000} MB of commit log)")
        assert seconds < READY_SECONDS
        with driver_session(node) as session:
            assert count(session) == ROWS


def test_a_second_sigterm_ends_the_node_at_once_and_loses_nothing():
    with new_node() as node:
        with driver_session(node) as session:
            fill(session)
        node.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + RUN_SECONDS
        while "stopping" not in node.log_tail(1000) and time.monotonic() < deadline:
            threading.Event().wait(0.001)
        node.process.send_signal(signal.SIGTERM)
        # 0 if the first signal's work was done already.
        assert node.process.wait(RUN_SECONDS) in (0, 1)
        node.start()
        with driver_session(node) as session:
            assert count(session) == ROWS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_right_behind_the_address_stops_the_node_in_order(number):
    for _ in range(4):
        with new_node() as node:
            node.process.send_signal(number)
            assert node.process.wait(RUN_SECONDS) == 0


def test_sigterm_stops_a_node_that_waits_for_its_cluster():
    own, nobody = free_port(), free_port()
    waiting = Node(program(), settings={"internode": f"127.0.0.1:{own}", "seeds": [f"127.0.0.1:{nobody}"]})
    try:
        with ThreadPoolExecutor() as pool:
            starting = pool.submit(waiting.start)
            deadline = time.monotonic() + RUN_SECONDS
            while "a seed did not answer" not in waiting.log_tail(1000) and time.monotonic() < deadline:
                threading.Event().wait(0.01)
            waiting.process.send_signal(signal.SIGTERM)
            with pytest.raises(NodeError):
                starting.result()
        assert waiting.ended() == 0
    finally:
        waiting.__exit__(None)


def test_the_address_is_the_only_line_on_standard_output():
    with new_node() as node:
        # `Node.start` has read `listening on ADDRESS:PORT` and the client is served there.
        Client((node.host, node.port)).socket.close()
        process = node.process
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""
        assert process.wait(RUN_SECONDS) == 0
