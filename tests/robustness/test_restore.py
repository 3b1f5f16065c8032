"""Snapshots that come back, with their tables, types and keyspaces, while the node serves."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import admin, driver_session, new_node, program
from node import Node, NodeError

from cassandra import InvalidRequest

ROWS = 500


def restore(node, *words):
    """What the tables got, by name."""
    status, said = admin(node, "restore", "--json", *words)
    assert status == 0, said
    return {table["table"]: table for table in json.loads(said)["tables"]}


def fill(session, table="k.t"):
    session.execute(
        f"CREATE TABLE {table} (p int, c int, s text static, m map<text, int>, a frozen<address>, gone int, "
        "PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) AND comment = 'kept'"
    )
    session.execute(f"ALTER TABLE {table} DROP gone")
    session.execute(f"ALTER TABLE {table} ADD late int")
    write = session.prepare(
        f"INSERT INTO {table} (p, c, s, m, a, late) VALUES (?, ?, ?, ?, {{street: 'road', number: 7}}, ?)"
    )
    for number in range(ROWS):
        session.execute(write, (number % 50, number, f"static {number % 50}", {"n": number}, number))


def rows(session, table="k.t"):
    found = session.execute(f"SELECT p, c, s, m, a, late FROM {table}")
    return sorted((row.p, row.c, row.s, dict(row.m), tuple(row.a), row.late) for row in found)


def snapshot_name(node, start):
    [name] = {entry["name"] for entry in node.report("listsnapshots")["snapshots"] if entry["name"].startswith(start)}
    return name


@pytest.fixture
def filled():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TYPE address (street text, number int)")
        fill(session)
        yield node, session


def test_a_dropped_table_and_a_dropped_keyspace_come_back(filled):
    node, session = filled
    before = rows(session)
    described = session.execute("DESCRIBE TABLE k.t").one().create_statement
    session.execute("DROP TABLE k.t")
    name = snapshot_name(node, "dropped-")
    assert restore(node, "-t", name)["t"]["file_count"] >= 2, "each shard has a part"
    assert rows(session) == before
    assert session.execute("DESCRIBE TABLE k.t").one().create_statement == described
    node.administer("clear_snapshot", name=name)
    # Written, flushed and merged like any other table.
    session.execute("INSERT INTO k.t (p, c, late) VALUES (0, 0, -1)")
    node.administer("flush")
    node.administer("compact", keyspace="k", table="t")
    assert session.execute("SELECT late FROM k.t WHERE p = 0 AND c = 0").one().late == -1
    session.execute("INSERT INTO k.t (p, c, late) VALUES (0, 0, 0)")
    session.execute("DROP KEYSPACE k")
    name = snapshot_name(node, "dropped-")
    restore(node, "-t", name)
    assert rows(session) == before
    node.restart()
    with driver_session(node) as again:
        assert rows(again) == before
        assert {type_name for type_name in again.cluster.metadata.keyspaces["k"].user_types} == {"address"}
    assert node.report("unknowntables")["tables"] == []
    assert not list(Path(node.data_dir).glob("quarantine/*"))


def test_a_truncated_table_comes_back_and_what_was_written_since_stays(filled):
    node, session = filled
    before = rows(session)
    session.execute("TRUNCATE k.t")
    session.execute("INSERT INTO k.t (p, c, late) VALUES (3, 3, 99)")
    session.execute("DELETE FROM k.t WHERE p = 4")
    name = snapshot_name(node, "truncated-")
    restore(node, "-t", name, "k", "t")
    expected = [row for row in before if row[0] != 4]
    found = rows(session)
    assert [row[:5] for row in found] == [row[:5] for row in expected]
    assert [row[5] for row in found if row[:2] == (3, 3)] == [99]
    # Again: rows that are there twice are one.
    restore(node, "-t", name)
    assert rows(session) == found
    # Into another table, which has no deletions.
    assert set(restore(node, "-t", name, "k", "t", "--into", "copy")) == {"copy"}
    assert rows(session, "k.copy") == before


def test_an_operator_s_snapshot_of_several_tables_comes_back(filled):
    node, session = filled
    session.execute("CREATE TABLE k.counts (p int PRIMARY KEY, n counter)")
    session.execute("CREATE TABLE k.empty (p int PRIMARY KEY)")
    for number in range(20):
        session.execute(f"UPDATE k.counts SET n = n + {number} WHERE p = {number % 7}")
    before = rows(session), sorted(session.execute("SELECT p, n FROM k.counts"))
    status, said = admin(node, "snapshot", "-t", "monday", "k")
    assert status == 0, said
    listed = {entry["table"]: entry for entry in node.report("listsnapshots")["snapshots"]}
    assert set(listed) == {"t", "counts", "empty"} and all(entry["created_at"] for entry in listed.values())
    # The table has all files of the snapshot: there is nothing to restore.
    assert restore(node, "-t", "monday", "k", "t")["t"]["file_count"] == 0
    for table in listed:
        session.execute(f"ALTER TABLE k.{table} WITH allow_auto_snapshot = false")
    for table in ("t", "counts"):
        session.execute(f"TRUNCATE k.{table}")
    session.execute("DROP TABLE k.empty")
    assert set(restore(node, "-t", "monday", "k")) == {"t", "counts", "empty"}
    assert (rows(session), sorted(session.execute("SELECT p, n FROM k.counts"))) == before
    assert list(session.execute("SELECT * FROM k.empty")) == []


def test_what_cannot_be_restored_is_named_and_changes_nothing(filled):
    node, session = filled
    session.execute("DROP TABLE k.t")
    name = snapshot_name(node, "dropped-")
    for words, expected in [
        (["-t", "nothing"], "there is no snapshot 'nothing'"),
        (["-t", name, "k", "other"], f"there is no snapshot '{name}' of such a table"),
        (["-t", "../x"], "must be at most 128 letters"),
        (["-t", name, "--into", "no name"], "'no name' is no name of a table"),
    ]:
        status, said = admin(node, "restore", *words)
        assert status == 1 and expected in said, said
    # A table of the same name that is another one.
    session.execute("CREATE TABLE k.t (p int, c int, s text static, late text, PRIMARY KEY (p, c))")
    status, said = admin(node, "restore", "-t", name)
    assert status == 1 and "its primary key is another. Restore it as another table" in said, said
    session.execute("DROP TABLE k.t")
    with pytest.raises(InvalidRequest):
        session.execute("SELECT * FROM k.t")
    # A damaged file: no shard takes anything of its part.
    directory = next(iter(Path(node.data_dir).glob(f"shard-0/snapshots/{name}/*")))
    file = sorted(directory.glob("*-data.sst"))[0]
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    status, said = admin(node, "restore", "-t", name)
    assert status == 1 and str(file) in said, said
    file.write_bytes(whole)
    restore(node, "-t", name)
    assert len(rows(session)) == ROWS
    with pytest.raises(NodeError):
        node.administer("restore", name=name, unknown="x")


def test_copies_of_snapshots_are_imported_into_an_empty_node_with_other_shards(filled, tmp_path):
    node, session = filled
    session.execute("CREATE TABLE k.counts (p int PRIMARY KEY, n counter)")
    for number in range(40):
        session.execute(f"UPDATE k.counts SET n = n + {number} WHERE p = {number % 7}")
    session.execute("INSERT INTO k.t (p, c, late) VALUES (1000, 1, 1) USING TTL 100000")
    node.administer("snapshot", name="monday", keyspace="k")
    session.execute("DELETE FROM k.t WHERE p = 7 AND c < 100")
    session.execute("DELETE late FROM k.t WHERE p = 8 AND c = 8")
    node.administer("snapshot", name="tuesday", keyspace="k")
    later = sorted((row.p, row.c, row.s, row.late) for row in session.execute("SELECT p, c, s, late FROM k.t"))
    counts = sorted(session.execute("SELECT p, n FROM k.counts"))
    for number, part in enumerate(sorted(Path(node.data_dir).glob("shard-*/snapshots"))):
        shutil.copytree(part, tmp_path / f"copy-{number}")
    with Node(program(), shards=3) as empty, driver_session(empty) as other:
        other.execute("DROP KEYSPACE k")
        # The older copy alone, and then all of it: what is in both is one.
        monday = tmp_path / "monday"
        for part in tmp_path.glob("copy-*/monday"):
            shutil.copytree(part, monday / part.parent.name)
        status, said = admin(empty, "import", str(monday), "--json")
        assert status == 0, said
        assert {table["table"] for table in json.loads(said)["tables"]} == {"t", "counts"}
        assert len(list(other.execute("SELECT p FROM k.t"))) == ROWS + 1
        remaining = other.execute("SELECT ttl(late) AS seconds FROM k.t WHERE p = 1000").one().seconds
        assert 90_000 < remaining <= 100_000
        status, said = admin(empty, "import", str(tmp_path), "k")
        assert status == 0, said
        found = other.execute("SELECT p, c, s, late FROM k.t")
        assert sorted((row.p, row.c, row.s, row.late) for row in found) == later
        assert sorted(other.execute("SELECT p, n FROM k.counts")) == counts
        empty.restart()
        with driver_session(empty) as again:
            assert len(list(again.execute("SELECT p FROM k.t"))) == len(later)
        status, said = admin(empty, "import", str(tmp_path), "k", "counts", "--into", "more")
        assert status == 0, said
        for words, message in [
            ([str(tmp_path / "nothing")], "there are no table files"),
            ([str(tmp_path), "k", "other"], "there are no table files of such a table"),
            ([str(tmp_path), "--into", "one"], "name the one that goes into another table"),
            ([str(tmp_path), "--consistency", "any"], "no consistency level of writes: any"),
        ]:
            status, said = admin(empty, "import", *words)
            assert status == 1 and message in said, said
        # A damaged file is named.
        file = sorted(monday.glob("**/*-data.sst"))[0]
        file.write_bytes(file.read_bytes()[:-1])
        status, said = admin(empty, "import", str(monday))
        assert status == 1 and str(file) in said, said


def test_incremental_backups_come_back_in_an_empty_node(tmp_path):
    with new_node(settings={"incremental_backups": True}) as node:
        with driver_session(node) as session:
            session.execute("CREATE TYPE address (street text, number int)")
            fill(session)
            node.administer("flush")
            session.execute("ALTER TABLE k.t ADD later text")
            write = session.prepare("INSERT INTO k.t (p, c, m, a, later) VALUES (?, ?, {}, {street: 'new'}, 'yes')")
            for number in range(100):
                session.execute(write, (number, 5000 + number))
            session.execute("DELETE FROM k.t WHERE p = 3 AND c = 3")
            node.administer("flush")
            node.administer("compact", keyspace="k", table="t")
            expected = sorted((row.p, row.c, row.s, row.late, row.later) for row in session.execute("SELECT * FROM k.t"))
        # What is only in the log when the process dies is in the backups when the next one has written it to files.
        with driver_session(node) as session:
            session.execute("INSERT INTO k.t (p, c, later) VALUES (1, 9999, 'logged')")
        node.process.kill()
        node.process.wait()
        node.start()
        node.administer("flush")
        expected = sorted([*expected, (1, 9999, "static 1", None, "logged")])
        backups = sorted(Path(node.data_dir).glob("shard-*/backups"))
        assert len(backups) == 2
        for number, directory in enumerate(backups):
            assert [path.name for path in directory.iterdir()] == [path.parent.name for path in directory.glob("*/schema.json")]
            shutil.copytree(directory, tmp_path / str(number))
            # The node does not need them.
            shutil.rmtree(directory)
        node.restart()
        with driver_session(node) as session:
            session.execute("INSERT INTO k.t (p, c) VALUES (7777, 1)")
        node.administer("flush")
        assert list(Path(node.data_dir).glob("shard-*/backups/*/schema.cql"))
    with new_node() as empty, driver_session(empty) as session:
        session.execute("DROP KEYSPACE k")
        status, said = admin(empty, "import", str(tmp_path))
        assert status == 0, said
        found = session.execute("SELECT * FROM k.t")
        assert sorted((row.p, row.c, row.s, row.late, row.later) for row in found) == expected


def test_a_snapshot_of_everything_brings_the_users_tables_back(filled, tmp_path):
    node, session = filled
    before = rows(session)
    status, said = admin(node, "snapshot", "-t", "all")
    assert status == 0, said
    session.execute("ALTER TABLE k.t WITH allow_auto_snapshot = false")
    session.execute("TRUNCATE k.t")
    assert set(restore(node, "-t", "all")) == {"t"}
    assert rows(session) == before
    # The same through copies, those of the system's tables among them.
    for number, part in enumerate(sorted(Path(node.data_dir).glob("shard-*/snapshots/all"))):
        shutil.copytree(part, tmp_path / str(number))
    session.execute("DROP TABLE k.t")
    status, said = admin(node, "import", str(tmp_path))
    assert status == 0, said
    assert rows(session) == before
    # Files that nobody knows, and a table whose schema is lost.
    schemas = list(tmp_path.glob("*/*/schema.json"))
    for schema in schemas:
        schema.unlink()
    status, said = admin(node, "import", str(tmp_path))
    assert status == 1 and "is not with its files" in said, said


def test_keys_that_mean_something_else_are_refused(filled):
    node, session = filled
    session.execute("CREATE TABLE k.pairs (a int, b int, v int, PRIMARY KEY (a, b))")
    session.execute("INSERT INTO k.pairs (a, b, v) VALUES (1, 2, 3)")
    session.execute("DROP TABLE k.pairs")
    name = snapshot_name(node, "dropped-")
    session.execute("CREATE TABLE k.pairs (a int, b int, v int, PRIMARY KEY (b, a))")
    status, said = admin(node, "restore", "-t", name)
    assert status == 1 and "its primary key is another" in said, said
    assert list(session.execute("SELECT * FROM k.pairs")) == []
    assert set(restore(node, "-t", name, "--into", "before")) == {"before"}
    assert [(row.a, row.b, row.v) for row in session.execute("SELECT * FROM k.before")] == [(1, 2, 3)]
