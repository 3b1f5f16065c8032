"""The files of indexes are derived: one that is lost or damaged costs nothing but time. And indexes after restarts, TRUNCATE and restores."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cluster import Cluster, until
from conftest import admin, driver_session, new_node, program
from node import Node
from twins import agree, answer, change, create_indexes, make_twins, plain, wait_until_built, without_index, write

CONDITIONS = ["v = 1", "v >= 1", "w = 2", "u CONTAINS 1", "s = 1", "v = 1 AND s = 1", "p = 3 AND v = 1"]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The data directory of a node that was stopped: twins with indexes, in two files on each shard."""
    directory = tmp_path_factory.mktemp("template")
    with new_node(data_dir=directory / "data") as node, driver_session(node) as session:
        make_twins(session, "t", "p int, c int, s int STATIC, v int, w int, u set<int>, PRIMARY KEY (p, c)")
        create_indexes(session, "t", ["v", "u", "s"])
        session.execute("CREATE INDEX old ON t (w)")
        wait_until_built(session, "t", CONDITIONS)
        for part in range(2):
            write(session, "t", "p, s", [(p, p % 3) for p in range(40)])
            write(session, "t", "p, c, v, w, u", [(n % 40, n, n // 40 % 4, n // 160, {n % 3, n % 7}) for n in range(part, 800, 2)])
            node.administer("flush", keyspace="k", table="t")
        check_conditions(session)
    assert len(list((directory / "data").glob("shard-*/tables/*/*.index"))) >= 8
    return directory / "data"


@pytest.fixture
def data_dir(template, tmp_path):
    shutil.copytree(template, tmp_path / "data")
    return tmp_path / "data"


def check_conditions(session):
    for condition in CONDITIONS:
        assert agree(session, "t", condition, page_rows=50)


def files_of_indexes(data_dir):
    return sorted(data_dir.glob("shard-*/tables/*/*.index"))


def harm_file(path, harm):
    contents = path.read_bytes()
    if harm == "removed":
        path.unlink()
    elif harm == "emptied":
        path.write_bytes(b"")
    elif harm == "cut":
        path.write_bytes(contents[: len(contents) // 2])
    elif harm == "cut by one byte":
        path.write_bytes(contents[:-1])
    else:
        place = {"start": 0, "first quarter": len(contents) // 4, "middle": len(contents) // 2, "end": len(contents) - 1}[harm]
        path.write_bytes(contents[:place] + bytes([contents[place] ^ 1]) + contents[place + 1 :])


def test_a_check_from_outside_is_content_with_the_files_of_indexes(data_dir):
    done = subprocess.run([program(), "check", str(data_dir)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.endswith("All is there and whole\n"), done.stdout + done.stderr


@pytest.mark.parametrize("harm", ["removed", "emptied", "cut", "cut by one byte", "start", "first quarter", "middle", "end"])
@pytest.mark.parametrize("which", ["one", "all of a shard"])
def test_a_file_of_an_index_that_is_lost_or_damaged_is_made_again(data_dir, harm, which):
    """The words for places in a file: a bit is flipped there."""
    before = files_of_indexes(data_dir)
    harmed = [path for path in before if "shard-0" in path.parts]
    if which == "one":
        harmed = [max(harmed, key=lambda path: path.stat().st_size)]
    for path in harmed:
        harm_file(path, harm)
    with new_node(data_dir=data_dir) as node:
        for _ in range(2):
            with driver_session(node) as session:
                for condition in CONDITIONS:
                    text = f"SELECT * FROM t WHERE {condition}"
                    until(f"{condition} is answered", lambda text=text: answer(session, text) is not None)
                    assert agree(session, "t", condition, page_rows=50)
                until("each file has its indexes", lambda: not without_index({path.parent for path in before}, 4))
                write(session, "t", "p, c, v, w, u", [(3, 10_000, 1, 2, {1})])
                check_conditions(session)
            # No other file has suffered, and nobody has put one aside.
            assert admin(node, "verify", "k")[0] == 0
            assert not list(data_dir.glob("quarantine/*"))
            Cluster.kill(node)
            node.start()


def test_a_file_of_an_index_that_nobody_knows_is_removed(data_dir):
    file = files_of_indexes(data_dir)[0]
    generation, _ = file.name.split("-")
    strays = [
        file.with_name(f"{generation}-{'ab' * 16}.index"),
        file.with_name(f"0000009999-{file.name.split('-')[1]}"),
        file.with_name(f"{file.name}.tmp"),
    ]
    for stray in strays:
        stray.write_bytes(file.read_bytes())
    with new_node(data_dir=data_dir) as node, driver_session(node) as session:
        wait_until_built(session, "t", CONDITIONS)
        check_conditions(session)
        until("they are removed", lambda: not any(stray.exists() for stray in strays))
        assert file.exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_indexes_find_after_a_restart_what_they_found_before(data_dir, is_killed):
    with new_node(data_dir=data_dir) as node:
        for number in range(3):
            with driver_session(node) as session:
                wait_until_built(session, "t", CONDITIONS)
                check_conditions(session)
                # In the log only, when it is killed.
                write(session, "t", "p, c, v, w, u", [(p, 2000 + number, 1, 2, {1}) for p in range(0, 40, 2)])
                change(session, "t", f"UPDATE {{table}} SET v = 3 WHERE p = 5 AND c = {5 + 40 * number}")
                change(session, "t", f"DELETE FROM {{table}} WHERE p = {6 + number}")
                check_conditions(session)
            if is_killed:
                Cluster.kill(node)
                node.start()
            else:
                node.restart()
        with driver_session(node) as session:
            wait_until_built(session, "t", CONDITIONS)
            check_conditions(session)
            names = {row.index_name for row in session.execute("SELECT * FROM system_schema.indexes WHERE keyspace_name = 'k'")}
            assert names == {"t_0", "t_1", "t_2", "old"}


# TRUNCATE, snapshots, restores.


def restore(node, *words):
    status, said = admin(node, "restore", "--json", *words)
    assert status == 0, said
    return json.loads(said)["tables"]


def snapshot_name(node, start):
    [name] = {entry["name"] for entry in node.report("listsnapshots")["snapshots"] if entry["name"].startswith(start)}
    return name


@pytest.fixture
def running(data_dir):
    """A node with the tables of the template. The twin's own snapshots are not wanted."""
    with new_node(data_dir=data_dir) as node, driver_session(node) as session:
        wait_until_built(session, "t", CONDITIONS)
        session.execute("ALTER TABLE t_plain WITH allow_auto_snapshot = false")
        yield node, session


def indexes_of(session, table):
    rows = session.execute("SELECT * FROM system_schema.indexes WHERE keyspace_name = 'k' AND table_name = %s", (table,))
    return [(row.index_name, row.kind, plain(row.options)) for row in rows]


def test_a_truncated_table_is_empty_for_its_indexes_until_it_is_restored(running):
    node, session = running
    before = {condition: agree(session, "t", condition) for condition in CONDITIONS}
    session.execute("TRUNCATE t")
    for condition in CONDITIONS:
        assert answer(session, f"SELECT * FROM t WHERE {condition}") == []
    session.execute("INSERT INTO t (p, c, v) VALUES (500, 1, 1)")
    assert answer(session, "SELECT p, c FROM t WHERE v = 1") == [(500, 1)]
    node.administer("flush", keyspace="k", table="t")
    assert answer(session, "SELECT p, c FROM t WHERE v = 1") == [(500, 1)]
    session.execute("DELETE FROM t WHERE p = 500")
    restore(node, "-t", snapshot_name(node, "truncated-"), "k", "t")
    wait_until_built(session, "t", CONDITIONS)
    assert {condition: agree(session, "t", condition) for condition in CONDITIONS} == before


def test_a_dropped_table_comes_back_with_its_indexes(running):
    node, session = running
    indexes = indexes_of(session, "t")
    assert len(indexes) == 4
    session.execute("DROP TABLE t")
    assert indexes_of(session, "t") == []
    name = snapshot_name(node, "dropped-")
    restore(node, "-t", name)
    wait_until_built(session, "t", CONDITIONS)
    assert indexes_of(session, "t") == indexes
    check_conditions(session)
    # As another table: with indexes of its own, under names that are free.
    restore(node, "-t", name, "k", "t", "--into", "copy")
    wait_until_built(session, "copy", CONDITIONS)
    assert len(indexes_of(session, "copy")) == 4
    for condition in CONDITIONS:
        text = f"SELECT * FROM {{}} WHERE {condition}"
        assert answer(session, text.format("copy"), 50) == answer(session, text.format("t"), 50)
    write(session, "t", "p, c, v, w, u", [(3, 10_000, 1, 2, {1})])
    node.administer("flush")
    check_conditions(session)
    node.restart()
    with driver_session(node) as again:
        wait_until_built(again, "t", CONDITIONS)
        check_conditions(again)
        wait_until_built(again, "copy", CONDITIONS)
    assert not list(Path(node.data_dir).glob("quarantine/*"))


def test_rows_of_a_snapshot_are_found_by_indexes_that_came_later(running):
    node, session = running
    for index in ("t_0", "t_1", "t_2", "old"):
        session.execute(f"DROP INDEX {index}")
    status, said = admin(node, "snapshot", "-t", "monday", "k")
    assert status == 0, said
    session.execute("ALTER TABLE t WITH allow_auto_snapshot = false")
    session.execute("TRUNCATE t")
    create_indexes(session, "t", ["v", "u", "s", "w"])
    wait_until_built(session, "t", CONDITIONS)
    assert answer(session, "SELECT * FROM t WHERE v = 1") == []
    restore(node, "-t", "monday", "k", "t")
    wait_until_built(session, "t", CONDITIONS)
    check_conditions(session)


def test_copies_of_a_snapshot_bring_rows_and_indexes_to_another_node(running, tmp_path):
    node, session = running
    indexes = indexes_of(session, "t")
    node.administer("snapshot", name="monday", keyspace="k")
    for number, part in enumerate(sorted(Path(node.data_dir).glob("shard-*/snapshots"))):
        shutil.copytree(part, tmp_path / f"copies/{number}")
    with Node(program(), shards=3) as empty, driver_session(empty) as other:
        other.execute("DROP KEYSPACE k")
        status, said = admin(empty, "import", str(tmp_path / "copies"), "--json")
        assert status == 0, said
        wait_until_built(other, "k.t", CONDITIONS)
        assert indexes_of(other, "t") == indexes
        for condition in CONDITIONS:
            assert agree(other, "k.t", condition, page_rows=50)
