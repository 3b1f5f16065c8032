"""A node whose data directory has lost a file, or got an older one back: it starts with every row, or says which file is missing and
changes nothing. And what DROP and TRUNCATE leave behind."""

import hashlib
import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import driver_session, new_node, program
from cluster import until
from node import NodeError

ROWS = 200
# More than the metadata log keeps.
CHANGES = 150


def kill(node):
    node.process.send_signal(signal.SIGKILL)
    node.process.wait()
    node.process.stdout.close()
    node.process = None


def fill(session, table, flush=None):
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text)")
    write = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
    for number in range(ROWS):
        session.execute(write, (number, f"row {number}"))
        if flush and number == ROWS // 2:
            flush()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The data directory of a node that was killed, and its catalog as it was before most changes of the schema."""
    directory = tmp_path_factory.mktemp("template")
    with new_node(data_dir=directory / "data") as node:
        with driver_session(node) as session:
            old = {name: (node.data_dir / name).read_bytes() for name in ("catalog", "catalog.copy")}
            fill(session, "kept", lambda: node.administer("flush"))
            for number in range(CHANGES):
                session.execute(f"ALTER TABLE kept WITH comment = '{number}'")
        kill(node)
    for name, contents in old.items():
        (directory / name).write_bytes(contents)
    return directory


@pytest.fixture
def data_dir(template, tmp_path):
    # A node that was killed leaves the file of its Unix socket.
    shutil.copytree(template / "data", tmp_path / "data", ignore=shutil.ignore_patterns("*.sock"))
    return tmp_path / "data"


def contents(directory):
    """The files below a directory with their checksums. Locks are made by looking."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def check_rows(node):
    with driver_session(node) as session:
        rows = {row.k: row.v for row in session.execute("SELECT k, v FROM kept")}
    assert rows == {number: f"row {number}" for number in range(ROWS)}


def refusal(data_dir):
    """Starts a node on the directory, which must be refused; returns what it says, and asserts that nothing was changed."""
    before = contents(data_dir)
    node = new_node(data_dir=data_dir)
    with pytest.raises(NodeError):
        node.start()
    assert node.process.wait() == 1
    node.process.stdout.close()
    node.process = None
    assert contents(data_dir) == before
    said = node.log_path.read_text().strip().splitlines()[-1]
    assert said.startswith("helenus: "), said
    return said


def named(data_dir, name):
    """The path of a file. `manifest.changes` stands for the changes of a shard's manifest, whose name ends with the number of the manifest."""
    if not name.endswith("manifest.changes"):
        return data_dir / name
    found = [path for path in (data_dir / name).parent.glob("manifest.changes-*") if path.suffix != ".copy"]
    assert len(found) == 1, found
    return found[0]


MANIFESTS = ["shard-0/manifest", "shard-1/manifest", "shard-0/manifest.changes", "shard-1/manifest.changes"]


@pytest.mark.parametrize("name", ["node.json", "catalog", "catalog.changes", *MANIFESTS])
@pytest.mark.parametrize("copy", ["", ".copy"])
@pytest.mark.parametrize("harm", ["removed", "cut", "emptied"])
def test_either_copy_of_a_file_may_be_lost(data_dir, name, copy, harm):
    file = named(data_dir, name)
    path = file.with_name(file.name + copy)
    whole = path.read_bytes()
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes(b"" if harm == "emptied" else whole[: len(whole) // 2])
    # The offline check says so, and leaves it to a start to mend it.
    before = contents(data_dir)
    done = subprocess.run([program(), "check", str(data_dir)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "remark: " in done.stdout and str(file) in done.stdout, done.stdout + done.stderr
    assert contents(data_dir) == before
    with new_node(data_dir=data_dir) as node:
        check_rows(node)
        assert str(path) in node.log_path.read_text()
        # The changes of a manifest that is written again begin anew, under its number.
        mended = named(data_dir, name)
        mended = mended.with_name(mended.name + copy)
        assert mended.exists() and mended.stat().st_size >= len(whole) // 2
    assert not (data_dir / "quarantine").exists()


@pytest.mark.parametrize("name", ["node.json", "catalog", *MANIFESTS])
def test_without_both_copies_the_start_names_the_file_and_changes_nothing(data_dir, name):
    file = named(data_dir, name)
    for copy in ("", ".copy"):
        file.with_name(file.name + copy).unlink()
    assert str(file) in refusal(data_dir)


def test_with_both_copies_of_the_changes_of_a_manifest_damaged_the_start_names_them_and_changes_nothing(data_dir):
    file = named(data_dir, "shard-0/manifest.changes")
    for copy in ("", ".copy"):
        path = file.with_name(file.name + copy)
        path.write_bytes(path.read_bytes()[:100])
    assert str(file) in refusal(data_dir)


def test_without_a_shard_the_start_names_it_and_changes_nothing(data_dir):
    shutil.rmtree(data_dir / "shard-1")
    assert str(data_dir / "shard-1") in refusal(data_dir)


def test_an_older_copy_of_the_catalog_is_passed_over(data_dir, template):
    shutil.copy(template / "catalog", data_dir / "catalog")
    with new_node(data_dir=data_dir) as node:
        check_rows(node)


def test_an_older_catalog_is_refused_when_the_log_does_not_go_back_so_far(data_dir, template):
    for name in ("catalog", "catalog.copy"):
        shutil.copy(template / name, data_dir / name)
    # The changes that are left say so.
    said = refusal(data_dir)
    assert f"{data_dir / 'catalog'} is older than catalog.changes" in said, said
    changes = {name: (data_dir / name).read_bytes() for name in ("catalog.changes", "catalog.changes.copy")}
    for name in changes:
        (data_dir / name).unlink()
    node = new_node(data_dir=data_dir)
    with pytest.raises(NodeError):
        node.start()
    said = node.log_path.read_text()
    assert str(data_dir / "catalog") in said and "applied state" in said
    # Nothing was dropped: with the right files it is all there again.
    for name in ("catalog", "catalog.copy"):
        shutil.copy(template / "data" / name, data_dir / name)
    for name, whole in changes.items():
        (data_dir / name).write_bytes(whole)
    with new_node(data_dir=data_dir) as again:
        check_rows(again)


@pytest.mark.parametrize("shards_have_dropped", [False, True])
def test_without_the_changes_of_the_catalog_the_metadata_log_has_them(tmp_path, shards_have_dropped):
    with new_node(data_dir=tmp_path / "data") as node:
        with driver_session(node) as session:
            fill(session, "kept")
            fill(session, "dropped")
            for number in range(10):
                session.execute(f"CREATE TABLE t{number} (k int PRIMARY KEY)")
                session.execute(f"INSERT INTO t{number} (k) VALUES ({number})")
            session.execute("ALTER TABLE kept ADD w int")
            session.execute("UPDATE kept SET w = 7 WHERE k = 1")
            if shards_have_dropped:
                session.execute("DROP TABLE dropped")
        kill(node)
        for copy in ("", ".copy"):
            (node.data_dir / f"catalog.changes{copy}").unlink()
        node.start()
        with driver_session(node) as session:
            # The log is applied in the first moments after the start.
            tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'k'"
            count = 11 if shards_have_dropped else 12
            until("the log is applied", lambda: len(list(session.execute(tables))) == count)
            until("the log is applied", lambda: has_column(session, "w"))
            check_rows(node)
            assert session.execute("SELECT w FROM kept WHERE k = 1").one().w == 7
            for number in range(10):
                assert [row.k for row in session.execute(f"SELECT k FROM t{number}")] == [number]
            assert ("dropped" in {row.table_name for row in session.execute(tables)}) != shards_have_dropped
            session.execute("CREATE TABLE after (k int PRIMARY KEY)")
        assert node.report("unknowntables")["tables"] == []
        node.restart()
        check_rows(node)


def has_column(session, name):
    found = session.execute("SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'k' AND table_name = 'kept'")
    return name in {row.column_name for row in found}


def test_damaged_changes_of_the_catalog_are_named_and_nothing_is_changed(data_dir):
    for copy in ("", ".copy"):
        path = data_dir / f"catalog.changes{copy}"
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)
    assert str(data_dir / "catalog.changes") in refusal(data_dir)


def test_what_the_manifest_does_not_know_is_moved_and_kept(data_dir):
    table = next(path for path in (data_dir / "shard-0/tables").iterdir() if list(path.glob("*.sst")))
    stray, directory = table / "0000009999-data.sst", data_dir / "shard-1/tables" / ("ab" * 16)
    stray.write_bytes(b"nobody knows it")
    directory.mkdir()
    (directory / "file").write_bytes(b"nor this")
    (table / "0000009998-data.sst.tmp").write_bytes(b"never finished")
    for _ in range(2):
        with new_node(data_dir=data_dir) as node:
            check_rows(node)
            said = node.log_path.read_text()
        moved = {path.name: path.read_bytes() for path in (data_dir / "quarantine").rglob("*") if path.is_file()}
        assert moved == {"0000009999-data.sst": b"nobody knows it", "file": b"nor this"}
    assert "quarantined" not in said, "the second start finds nothing"
    assert not list(data_dir.rglob("*.tmp"))


def snapshots(node):
    return {entry["name"]: entry for entry in node.report("listsnapshots")["snapshots"]}


def test_a_dropped_and_a_truncated_table_leave_snapshots():
    with new_node(settings={"auto_snapshot_ttl": "30d"}) as node:
        with driver_session(node) as session:
            for table in ("dropped", "truncated", "unwanted"):
                fill(session, table)
            session.execute("CREATE TABLE empty (k int PRIMARY KEY)")
            session.execute("ALTER TABLE unwanted WITH allow_auto_snapshot = false")
            for statement in ("DROP TABLE dropped", "TRUNCATE truncated", "DROP TABLE unwanted", "DROP TABLE empty"):
                session.execute(statement)
            assert not list(session.execute("SELECT * FROM truncated"))
        before = snapshots(node)
        assert sorted(entry["table"] for entry in before.values()) == ["dropped", "truncated"]
        node.restart()
        assert snapshots(node) == before
        assert node.report("unknowntables")["tables"] == []
        for name, entry in before.items():
            assert name.split("-")[0] == entry["table"] == name.split("-")[2]
            assert entry["keyspace"] == "k" and entry["disk_bytes"] > 0 and entry["expires_at"] > entry["created_at"]
            directories = [path for path in Path(node.data_dir).glob(f"shard-*/snapshots/{name}/*")]
            assert len(directories) == 2, "each shard has a part"
            for directory in directories:
                assert f"CREATE TABLE k.{entry['table']} (" in (directory / "schema.cql").read_text()
                assert json.loads((directory / "manifest.json").read_text())["table"] == entry["table"]
                assert list(directory.glob("*-data.sst"))
            node.administer("clear_snapshot", name=name)
        assert snapshots(node) == {}
    assert not list(Path(node.data_dir).glob("quarantine/*"))
