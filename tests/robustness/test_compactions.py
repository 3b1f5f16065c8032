"""Compactions under an operator's hand, through `helenus admin`: seen, stopped, slowed, forbidden; files rewritten."""

import json
import subprocess

import pytest
from cluster import until
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


def write_files(node, session, count, value_bytes=4_000):
    write = session.prepare("INSERT INTO k.t (p, v) VALUES (?, ?)")
    for file in range(count):
        for number in range(100):
            session.execute(write, (number, bytes([number, file]) * (value_bytes // 2)))
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
    write_files(node, session, 8, value_bytes=10_000)
    assert files(node) == 16, "eight on each shard"
    # A major compaction that an operator asks for goes on all the same. At this rate it takes some seconds.
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


def test_what_deletions_shadow_is_freed_when_an_operator_wants_it(node_with_table):
    node, session = node_with_table
    session.execute("CREATE TABLE k.u (p int PRIMARY KEY, v blob)")
    admin(node, "disableautocompaction", "k")
    write_files(node, session, 2)
    for number in range(50):
        session.execute(f"DELETE FROM k.t WHERE p = {number}")
    rows = lambda: sorted((row.p, row.v) for row in session.execute("SELECT p, v FROM k.t"))  # noqa: E731
    report = lambda: next(table for table in node.report("tablestats")["tables"] if table["table"] == "t")  # noqa: E731
    before, bytes_before = rows(), report()["disk_bytes"]
    # The deletions are still in memory, and the second file has written over the first.
    admin(node, "garbagecollect", "k", "t", "u")
    after_rows = report()
    assert after_rows["disk_bytes"] < bytes_before * 0.7, (after_rows, bytes_before)
    assert after_rows["tombstones"] >= 50, "the deletions stay"
    admin(node, "garbagecollect", "-g", "cell", "k")
    assert report()["disk_bytes"] < after_rows["disk_bytes"] * 0.7, (report(), after_rows)
    assert rows() == before and len(before) == 50
    # It is seen, and can be stopped. The files are large enough to be under way for some seconds at this rate.
    write_files(node, session, 2, value_bytes=40_000)
    session.execute("DELETE FROM k.t WHERE p = 1")
    node.administer("setcompactionthroughput", mebibytes_per_second=1)
    command = [program(), "admin", "--url", f"http://{node.http_address}", "garbagecollect", "-g", "CELL", "k", "t"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as collecting:
        # That of a large file: one of a small file may end while it is being stopped, and the others are not stopped with it.
        large = lambda: [one for one in node.report("compactionstats")["compactions"] if one["total_bytes"] > 1_000_000]  # noqa: E731
        running = until("it is under way", large)
        assert running[0]["kind"] == "Remove deleted data", running
        admin(node, "stop", "k", "t")
        _, complaint = collecting.communicate(timeout=DEADLINE_SECONDS)
    assert collecting.returncode == 1 and "the compaction was stopped" in complaint, complaint
    assert len(rows()) == 99
    for parameters in [{"tables": "t"}, {"keyspace": "k", "tables": "t,nowhere"}, {"granularity": "file"}]:
        with pytest.raises(NodeError):
            node.administer("garbagecollect", **parameters)
