"""The full query log: what is recorded can be shown, and asked again of another node."""

import json
import subprocess

import pytest
from cassandra import InvalidRequest
from cassandra.query import BatchStatement, ConsistencyLevel, SimpleStatement
from conftest import driver_session, new_node
from node import clean_environment
from test_audit import nodetool

TABLE = "CREATE TABLE k.t (k int, c int, v text, PRIMARY KEY (k, c))"


def helenus(node, *words):
    done = subprocess.run(
        [str(node.program), *map(str, words)], capture_output=True, text=True, timeout=120, check=False, env=clean_environment()
    )
    return done.returncode, done.stdout + done.stderr


def dump(node, path):
    status, text = helenus(node, "fql", "dump", path)
    assert status == 0, text
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A node, and the log of some requests to it."""
    log = tmp_path_factory.mktemp("queries")
    with new_node() as node:
        with driver_session(node) as session:
            session.execute(TABLE)
            status, text = nodetool(node, "enablefullquerylog", "--path", str(log), "--roll-cycle", "HOURLY")
            assert (status, text) == (0, "")
            insert = session.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?)")
            for number in range(50):
                session.execute(insert, (number % 5, number, f"text {number}"))
            batch = BatchStatement()
            batch.add(insert, (7, 1, "in a batch"))
            batch.add(SimpleStatement("UPDATE k.t SET v = %s WHERE k = 7 AND c = 2"), ("as well",))
            session.execute(batch)
            paged = SimpleStatement("SELECT * FROM t", fetch_size=20, consistency_level=ConsistencyLevel.QUORUM)
            assert len(list(session.execute(paged))) == 52
            session.execute("INSERT INTO k.t (k, c) VALUES (7, 3) IF NOT EXISTS")
            with pytest.raises(InvalidRequest):
                session.execute("SELECT nothing FROM k.t")
            assert nodetool(node, "disablefullquerylog") == (0, "")
            session.execute("SELECT * FROM k.t WHERE k = 99")
            assert node.metric("helenus_request_log_dropped_total") == 0
        yield node, log


def test_a_dump_has_every_request_with_its_values(recorded):
    node, log = recorded
    found = [entry for entry in dump(node, log) if " system" not in entry.get("statement", "")]
    inserts = [entry for entry in found if entry.get("statement", "").startswith("INSERT INTO t (k, c, v)")]
    assert len(inserts) == 50
    assert inserts[7]["values"] == ["0x00000002", "0x00000007", "0x" + b"text 7".hex()]
    assert (inserts[7]["keyspace"], inserts[7]["outcome"], inserts[7]["protocol_version"] >= 3) == ("k", "done", True)
    (batch,) = [entry for entry in found if entry["kind"] == "BATCH"]
    assert [len(part["values"]) for part in batch["statements"]] == [3, 0]
    pages = [entry for entry in found if entry.get("statement") == "SELECT * FROM t"]
    assert [entry["outcome"] for entry in pages] == ["20 rows", "20 rows", "12 rows"]
    assert [entry["is_later_page"] for entry in pages] == [False, True, True]
    assert {entry["consistency"] for entry in pages} == {"QUORUM"}
    assert [entry["outcome"] for entry in found if "nothing" in entry.get("statement", "")] == ["error 0x2200"]
    assert not [entry for entry in found if "k = 99" in entry.get("statement", "")]
    status, text = helenus(node, "fql", "dump", "--without-values", log)
    assert status == 0 and b"text 7".hex() not in text


def test_a_replay_asks_another_node_the_same_and_compares(recorded, tmp_path):
    node, log = recorded
    with new_node() as other, driver_session(other) as session:
        session.execute(TABLE)
        status, text = helenus(other, "replay", log, "--target", other.listen)
        assert status == 0 and " as recorded, 0 different\n" in text, text
        assert "2 pages behind the first were left out" in text
        rows = {(row.k, row.c): row.v for row in session.execute("SELECT * FROM k.t")}
        assert len(rows) == 53 and rows[2, 7] == "text 7" and rows[7, 2] == "as well"
        session.execute("DROP TABLE k.t")
        status, text = helenus(other, "replay", log, "--target", other.listen, "--connections", "2")
        assert status == 1 and "recorded done, replayed error 0x2200" in text and " 0 different" not in text
        # The end of the last file is missing.
        (file,) = sorted(log.glob("queries-*.fql"))
        whole = file.read_bytes()
        (tmp_path / file.name).write_bytes(whole[:-3])
        session.execute(TABLE)
        status, text = helenus(other, "replay", tmp_path, "--target", other.listen)
        assert "ends within a record at offset" in text and "1 files are cut off at their end" in text
        # A byte within is damaged.
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 1
        (tmp_path / file.name).write_bytes(damaged)
        status, text = helenus(other, "replay", tmp_path, "--target", other.listen)
        assert status == 1 and f"{file.name}: the record at offset" in text and "is damaged" in text
    status, text = helenus(node, "replay", log, "--target", "127.0.0.1:1")
    assert status == 1 and "the target 127.0.0.1:1" in text


def test_a_reset_removes_the_files_and_passwords_are_not_in_them(tmp_path):
    with new_node(settings={"full_query_logging_enabled": True}) as node, driver_session(node) as session:
        for statement in ("CREATE ROLE r WITH PASSWORD = 'hidden one' AND LOGIN = true", "CREAT ROLE r WITH PASSWORD = 'hidden one'"):
            try:
                session.execute(statement)
            except Exception:  # noqa: BLE001 - whether there are roles is not what this is about
                pass
        assert nodetool(node, "disablefullquerylog") == (0, "")
        directory = node.data_dir / "full_query_log"
        written = b"".join(path.read_bytes() for path in directory.iterdir())
        assert b"CREATE ROLE r" in written and b"hidden one" not in written
        status, shown = nodetool(node, "getfullquerylog")
        assert status == 0 and str(directory) in shown and "enabled" in shown
        assert nodetool(node, "resetfullquerylog") == (0, "")
        assert not list(directory.iterdir())
