"""Compactions under an operator's hand, through `helenus admin`: seen, stopped, slowed down, forbidden, files upgraded."""

import json
import subprocess
import time

import pytest
from conftest import driver_session, new_node, program
from node import NodeError

DEADLINE_SECONDS = 60


def admin(node, *words):
    """The output of a command that succeeds."""
    command = [program(), "admin", "--url", f"http://{node.http_address}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(node, table="t"):
    reports = node.report("tablestats")["tables"]
    return next(report["file_count"] for report in reports if report["table"] == table)


def until(what, condition):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


def write_files(node, session, count):
    write = session.prepare("INSERT INTO k.t (p, v) VALUES (?, ?)")
    for file in range(count):
        for number in range(100):
            session.execute(write, (number, bytes([number, file]) * 2_000))
        node.administer("flush", keyspace="k")


@pytest.fixture
def node_with_table():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (p int PRIMARY KEY, v blob) WITH compression = {'enabled': false}")
        yield node, session


def test_compactions_are_seen_stopped_slowed_and_forbidden(node_with_table):
    node, session = node_with_table
    assert "throughput: at most 64.00 MiB a second" in admin(node, "compactionstats")
    admin(node, "disableautocompaction", "k", "t")
    assert "not compacted by themselves: k.t" in admin(node, "compactionstats")
    write_files(node, session, 8)
    assert files(node) == 16, "eight on each shard"
    # A major compaction that an operator asks for goes on all the same. At this rate it takes a while.
    node.administer("setcompactionthroughput", mebibytes_per_second=1)
    assert json.loads(admin(node, "compactionstats", "--json"))["bytes_per_second"] == 1 << 20
    command = [program(), "admin", "--url", f"http://{node.http_address}", "compact", "k", "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as compacting:
        [*running] = until("it is under way", lambda: node.report("compactionstats")["compactions"])
        assert {entry["table"] for entry in running} == {"k.t"} and running[0]["kind"] == "Compaction"
        assert 0 <= running[0]["read_bytes"] <= running[0]["total_bytes"] > 100_000
        assert "Compaction" in admin(node, "compactionstats")
        admin(node, "stop", "k", "t")
        _, complaint = compacting.communicate(timeout=DEADLINE_SECONDS)
        assert compacting.returncode == 1 and "the compaction was stopped" in complaint, complaint
    until("all have ended", lambda: not node.report("compactionstats")["compactions"])
    assert files(node) >= 9, "the inputs of what was stopped are there"
    admin(node, "setcompactionthroughput", "0")
    assert "throughput: not limited" in admin(node, "compactionstats")
    admin(node, "compact", "k", "t")
    assert files(node) == 2
    write_files(node, session, 4)
    admin(node, "enableautocompaction")
    until("the strategy has merged them", lambda: files(node) < 10)
    assert len(list(session.execute("SELECT p FROM k.t"))) == 100


def test_files_are_rewritten_when_an_operator_wants_it(node_with_table):
    node, session = node_with_table
    write_files(node, session, 1)
    names = lambda: {path.name for path in node.data_dir.glob("shard-*/tables/*/*-data.sst")}  # noqa: E731
    before = names()
    admin(node, "upgradesstables", "k", "t")
    assert names() == before, "they are of the present format"
    admin(node, "upgradesstables", "-a", "k", "t")
    assert len(names() & before) < len(before)
    assert len(list(session.execute("SELECT p FROM k.t"))) == 100
    for action, parameters in [
        ("setcompactionthroughput", {"mebibytes_per_second": "fast"}),
        ("stop", {"keyspace": "nowhere"}),
        ("disableautocompaction", {"table": "t"}),
    ]:
        with pytest.raises(NodeError):
            node.administer(action, **parameters)
