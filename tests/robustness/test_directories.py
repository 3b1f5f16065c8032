"""A node whose table files and commit log lie in directories of their own: they are found again, checked, and missed by name."""

import os
import shutil
import subprocess

import pytest
from conftest import driver_session, new_node, program
from node import NodeError

ROWS = 300


def fill(session, table):
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text)")
    write = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
    for number in range(ROWS):
        session.execute(write, (number, f"row {number} " + "x" * 200))


def table_files(directory):
    return sorted(directory.glob("shard-*/tables/*/*-data.sst"))


def expect_all(session, *tables):
    for table in tables:
        assert {row.k for row in session.execute(f"SELECT k FROM {table}")} == set(range(ROWS)), table


def check(node):
    """The exit status and the report of the offline check."""
    words = [program(), "check", str(node.data_dir), "--config", str(node.home / "helenus.toml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def refusal(node):
    """What the node says instead of starting."""
    with pytest.raises(NodeError) as refused:
        node.start()
    return str(refused.value)


def test_files_in_several_directories_are_found_again_and_missed_by_name(tmp_path):
    first, second, log = tmp_path / "first", tmp_path / "second", tmp_path / "log"
    node = new_node(data_dir=tmp_path / "data", settings={"data_dirs": [str(first)], "commit_log_dir": str(log)})
    with node:
        with driver_session(node) as session:
            fill(session, "older")
        node.administer("flush")
        assert table_files(first) and not table_files(tmp_path / "data") and list(log.glob("shard-*/*"))
        node.stop()
        # The next files go elsewhere. Those of before are found where they are.
        node.settings["data_dirs"] = [str(second)]
        node.start()
        with driver_session(node) as session:
            fill(session, "newer")
            expect_all(session, "older", "newer")
        node.administer("flush")
        assert table_files(second)
        with driver_session(node) as session:
            fill(session, "logged")
        node.process.kill()
        node.process.wait()
        # Each of the directories is missed by name, and nothing is changed while it is away.
        status, said = check(node)
        assert status == 0 and "All is there and whole" in said, said
        for directory in (first, second, log):
            away = directory.rename(tmp_path / "away")
            status, said = check(node)
            assert status != 0 and str(directory) in said, said
            assert str(directory) in refusal(node)
            shutil.rmtree(directory, ignore_errors=True)
            away.rename(directory)
        node.settings["commit_log_dir"] = str(tmp_path / "elsewhere")
        assert str(log) in refusal(node)
        node.settings["commit_log_dir"] = str(log)
        node.start()
        with driver_session(node) as session:
            expect_all(session, "older", "newer", "logged")
        # A damaged file in one of them is found by its name.
        node.stop()
        harmed = max(table_files(first), key=lambda path: path.stat().st_size)
        harmed.write_bytes(harmed.read_bytes()[:100])
        status, said = check(node)
        assert status == 1 and str(harmed) in said, said
        node.start()


def test_a_full_directory_is_left_out_while_another_has_room(tmp_path, small_disk):
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, mib in ((first, 64), (second, 32)):
        directory.mkdir()
        small_disk(directory, mib)
    settings = {"data_dirs": [str(first), str(second)], "memtable_bytes": 8 << 20}
    with new_node(data_dir=tmp_path / "data", settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.blobs (k int PRIMARY KEY, v blob) WITH compaction = {'class': 'UnifiedCompactionStrategy', 'enabled': false}")
        write = session.prepare("INSERT INTO blobs (k, v) VALUES (?, ?)")
        for number in range(60):
            session.execute(write, (number, os.urandom(1 << 20)))
        node.administer("flush")
        assert table_files(first) and table_files(second)
        # One of them is filled by somebody else. The next files go to the other one.
        ballast = first / "ballast"
        ballast.write_bytes(bytes(max(0, small_disk.free_bytes(first) - (1 << 20))))
        before = len(table_files(first))
        for number in range(60, 66):
            session.execute(write, (number, b"x" * (1 << 20)))
        node.administer("flush")
        assert len(table_files(first)) == before
        assert {row.k for row in session.execute("SELECT k FROM blobs")} == set(range(66))
