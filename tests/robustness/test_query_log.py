"""The full query log: what is recorded can be shown, and asked again of another node."""

import json
import re
import subprocess

import pytest
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.query import BatchStatement, ConsistencyLevel, SimpleStatement
from certificates import Authority
from conftest import driver_session, new_node, program
from node import clean_environment
from test_administration import command
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


def test_a_replay_logs_in_and_tells_what_its_role_may_not_do(recorded, tmp_path):
    _, log = recorded
    authority = Authority(program(), tmp_path)
    authority.node("node", "--address", "127.0.0.1")
    settings = {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "client_encryption": authority.settings("node", "optional"),
    }
    passwords = {role: tmp_path / f"{role}.password" for role in ("anna", "ben", "wrong")}
    for role, path in passwords.items():
        path.write_text(f"{role}\n")
    with new_node(settings=settings) as other:
        made = command("admin", "create-superuser", "anna", "--data-dir", other.data_dir, stdin="anna\n")
        assert made[0] == 0, made
        with driver_session(other, auth_provider=PlainTextAuthProvider("anna", "anna")) as session:
            session.execute(TABLE)
            session.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
            session.execute("GRANT SELECT ON k.t TO ben")

            def replay(*words, **options):
                return command("replay", log, "--target", other.listen, *words, **options)

            # The superuser may do all that was recorded. Nobody, and who has the wrong password, may do nothing.
            status, text, _ = replay("--user", "anna", "--password-file", passwords["anna"])
            assert status == 0 and " as recorded, 0 different\n" in text and "refused" not in text, text
            assert len(list(session.execute("SELECT * FROM k.t"))) == 53
            session.execute("TRUNCATE k.t")
            status, _, complaint = replay()
            assert status == 1 and "asks for a name and a password: see --user" in complaint
            status, _, complaint = replay("--user", "anna", "--password-file", passwords["wrong"])
            assert status == 1 and "Provided username anna and/or password are incorrect" in complaint
            status, _, complaint = replay("--user", "anna", "--password-file", tmp_path / "nothing")
            assert status == 1 and "cannot read the password from" in complaint
            # A role that only reads: what it may not write is counted and told. Over TLS, with the password on standard input.
            tls = ("--ssl", "--authorities", authority.certificate)
            status, text, _ = replay("--user", "ben", *tls, stdin="ben\n")
            assert status == 1 and "recorded done, replayed error 0x2100" in text, text
            assert "User ben has no MODIFY permission on <table k.t> or any of its parents" in text
            different = int(re.search(r" as recorded, (\d+) different\n", text)[1])
            refused = int(re.search(r"^(\d+) of these were refused: the role has no permission for them$", text, re.M)[1])
            # 50 rows, a batch and a transaction.
            assert refused == 52 and different >= refused
            assert not list(session.execute("SELECT * FROM k.t"))
            # An authority that does not vouch for the node is no way in.
            stranger = Authority(program(), tmp_path / "stranger")
            status, _, complaint = replay("--user", "ben", "--ssl", "--authorities", stranger.certificate, stdin="ben\n")
            assert status == 1 and f"the target {other.listen}" in complaint


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
