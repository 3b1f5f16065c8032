"""A node whose table files are missing or damaged: it starts, serves everything else, names the file, and can be mended while it runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ServerError
from conftest import driver_session, new_node, program
from node import NodeError

ROWS = 400
METADATA = b"helenus-metadata".hex()
# The driver tries another host after a server error, and there is none.
REFUSED = (ServerError, NoHostAvailable)


def fill(session, table):
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text)")
    write = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
    for number in range(ROWS):
        session.execute(write, (number, f"row {number} " + "x" * 200))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The data directory of a node that was stopped: two tables in files, and files of the node's own tables."""
    directory = tmp_path_factory.mktemp("template")
    with new_node(data_dir=directory / "data") as node:
        with driver_session(node) as session:
            for table in ("harmed", "whole"):
                fill(session, table)
            session.execute("BEGIN BATCH INSERT INTO harmed (k, v) VALUES (0, 'batch'); INSERT INTO whole (k, v) VALUES (1, 'batch'); APPLY BATCH")
            session.execute("UPDATE whole SET v = 'decided' WHERE k = 2 IF v != 'decided'")
            node.administer("flush")
    return directory / "data"


@pytest.fixture
def data_dir(template, tmp_path):
    shutil.copytree(template, tmp_path / "data")
    return tmp_path / "data"


def table_files(data_dir):
    return sorted(data_dir.glob("shard-*/tables/*/*-data.sst"))


def largest_file(data_dir, node_tables):
    return max((path for path in table_files(data_dir) if path.parent.name in node_tables), key=lambda path: path.stat().st_size)


def run(*words):
    done = subprocess.run([program(), *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def admin(node, *words):
    return run("admin", *words, "--url", f"http://{node.http_address}")


def table_id(session, name):
    row = session.execute("SELECT id FROM system_schema.tables WHERE keyspace_name = 'k' AND table_name = %s", (name,)).one()
    return row.id.hex


@pytest.fixture(scope="module")
def ids(template, tmp_path_factory):
    copy = tmp_path_factory.mktemp("ids") / "data"
    shutil.copytree(template, copy)
    with new_node(data_dir=copy) as node, driver_session(node) as session:
        return {name: table_id(session, name) for name in ("harmed", "whole")}


def rows(session, table):
    return {row.k for row in session.execute(f"SELECT k FROM {table}")}


def harm_file(path, harm):
    contents = path.read_bytes()
    if harm == "removed":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(contents[: len(contents) // 2])
    else:
        middle = len(contents) // 3
        path.write_bytes(contents[:middle] + bytes([contents[middle] ^ 1]) + contents[middle + 1 :])
    return contents


@pytest.mark.parametrize("harm", ["removed", "cut", "flipped"])
def test_a_damaged_file_costs_its_rows_until_it_is_put_back(data_dir, ids, harm):
    path = largest_file(data_dir, {ids["harmed"]})
    contents = harm_file(path, harm)
    status, said, _ = run("check", data_dir)
    assert status == 1 and str(path) in said and "There are problems" in said
    with new_node(data_dir=data_dir) as node:
        with driver_session(node) as session:
            assert rows(session, "whole") == set(range(ROWS))
            with pytest.raises(REFUSED) as refused:
                rows(session, "harmed")
            assert str(path) in str(refused.value)
            # The other shard's rows are served, and writes go on.
            found, refusals = 0, 0
            for key in range(ROWS):
                try:
                    found += len(list(session.execute("SELECT v FROM harmed WHERE k = %s", (key,))))
                except REFUSED:
                    refusals += 1
            assert found + refusals == ROWS and found > 0 and refusals > 0
            session.execute("INSERT INTO harmed (k, v) VALUES (100000, 'new')")
            status, said, _ = admin(node, "verify", "k")
            assert status == 1 and str(path) in said and "k.harmed" in said
            assert "cannot be read as a whole" in admin(node, "tablestats", "k")[1]
            status, said, _ = admin(node, "scrub")
            assert status == 1, "nothing is given up without being told so"
            # The file is put back from a backup while the node runs.
            path.write_bytes(contents)
            status, said, _ = admin(node, "scrub", "k", "harmed")
            assert status == 0 and "in use" in said
            assert rows(session, "harmed") == set(range(ROWS)) | {100000}
            assert admin(node, "verify")[:2] == (0, "No damage was found\n")
            assert "idle" in admin(node, "checks")[1]
            # A node that runs is not checked from outside.
            assert run("check", data_dir)[0] == 1
    status, said, _ = run("check", data_dir)
    assert status == 0 and said.endswith("All is there and whole\n")


@pytest.mark.parametrize("harm", ["removed", "flipped"])
def test_rows_are_given_up_on_demand_and_the_file_is_kept(data_dir, ids, harm):
    path = largest_file(data_dir, {ids["harmed"]})
    harm_file(path, harm)
    with new_node(data_dir=data_dir) as node:
        with driver_session(node) as session:
            status, said, _ = admin(node, "scrub", "--skip-corrupted", "k", "harmed")
            assert status == 0, said
            left = rows(session, "harmed")
            assert 0 < len(left) < ROWS and left < set(range(ROWS))
            assert rows(session, "whole") == set(range(ROWS))
        node.restart()
        with driver_session(node) as session:
            assert rows(session, "harmed") == left
            assert admin(node, "verify")[:2] == (0, "No damage was found\n")
    kept = [entry.name for entry in (data_dir / "quarantine").rglob("*.sst")]
    assert kept == ([] if harm == "removed" else [path.name])
    assert not path.exists()


def test_any_one_table_file_may_be_missing(template, tmp_path, ids):
    """Whichever file it is, of the node's own tables too: the node starts and serves what has no part in it. Without the metadata log
    it does not know what it has agreed to, and says so."""
    files = [path.relative_to(template) for path in table_files(template)]
    assert len(files) > 4
    for number, name in enumerate(files):
        copy = tmp_path / str(number)
        shutil.copytree(template, copy)
        (copy / name).unlink()
        if Path(name).parts[2] == METADATA:
            node = new_node(data_dir=copy)
            with pytest.raises(NodeError) as ended:
                node.start()
            assert str(name) in str(ended.value) and "metadata log" in str(ended.value)
            assert node.process.wait() == 1
            node.process.stdout.close()
            node.process = None
            continue
        with new_node(data_dir=copy) as node, driver_session(node) as session:
            for table in ("harmed", "whole"):
                if Path(name).parts[2] == ids[table]:
                    with pytest.raises(REFUSED) as refused:
                        rows(session, table)
                    assert str(name) in str(refused.value)
                else:
                    assert rows(session, table) == set(range(ROWS)), name
            assert str(name) in node.log_path.read_text()


def test_a_file_that_is_cut_under_a_running_node_ends_no_process(data_dir, ids):
    path = largest_file(data_dir, {ids["harmed"]})
    with new_node(data_dir=data_dir) as node, driver_session(node) as session:
        pid = node.pid
        # Nothing of it has been read yet.
        os.truncate(path, 1000)
        with pytest.raises(REFUSED) as refused:
            rows(session, "harmed")
        assert str(path) in str(refused.value)
        assert rows(session, "whole") == set(range(ROWS))
        session.execute("INSERT INTO harmed (k, v) VALUES (100000, 'new')")
        assert admin(node, "verify", "k", "harmed")[0] == 1
        assert node.pid == pid and node.process.poll() is None


def test_a_policy_may_end_the_node(data_dir, ids):
    largest_file(data_dir, {ids["harmed"]}).unlink()
    node = new_node(data_dir=data_dir, settings={"disk_failure_policy": "die"})
    try:
        node.start()
    except NodeError:
        # It has ended before it served.
        assert node.process.wait() == 1
        node.process.stdout.close()
        node.process = None
    else:
        assert node.ended() == 1
    assert "data.sst" in node.log_path.read_text()
