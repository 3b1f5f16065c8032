"""Encryption at rest: nothing that clients have written is readable in the files of a node, and nothing is lost by it."""

import base64
import os
import subprocess

import pytest
from conftest import driver_session, new_node, program
from node import NodeError
from twins import wait_until_built

ROWS = 400
MARK = b"confidential"


def key(name):
    return f"{name} {base64.b64encode(os.urandom(32)).decode()}\n"


def write_keys(path, *lines):
    path.write_text("".join(lines))
    path.chmod(0o600)


def fill(session, table, first=0):
    session.execute(f"CREATE TABLE IF NOT EXISTS {table} (k int PRIMARY KEY, v text, w text)")
    write = session.prepare(f"INSERT INTO {table} (k, v, w) VALUES (?, ?, ?)")
    for number in range(first, first + ROWS):
        session.execute(write, (number, f"confidential row {number}", f"confidential {number % 7}"))


def expect(session, table, rows):
    found = {row.k: row.v for row in session.execute(f"SELECT k, v FROM {table}")}
    assert found == {number: f"confidential row {number}" for number in range(rows)}


def readable(*directories):
    """The files that have what clients have written."""
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    assert len(files) > 10
    return [path for path in files if MARK in contents(path)]


def contents(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        # The node has removed it meanwhile.
        return b""


def refusal(node):
    with pytest.raises(NodeError) as refused:
        node.start()
    return str(refused.value)


def check(node):
    words = [program(), "check", str(node.data_dir), "--config", str(node.home / "helenus.toml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def encrypt(node):
    words = [program(), "encrypt", str(node.data_dir), "--config", str(node.home / "helenus.toml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def at_rest(keys, mode="all", **more):
    return {"mode": mode, "key_file": str(keys), **more}


def protections(node):
    """The kinds of files by how they are encrypted: the name of a key, or "plain"."""
    found = {}
    for of in node.report("encryption_keys")["files"]:
        protection = of["protection"]
        found.setdefault(protection["key"] if isinstance(protection, dict) else protection, set()).add(of["kind"])
    return found


def test_no_file_has_what_clients_have_written(tmp_path):
    keys, archive = tmp_path / "keys", tmp_path / "archive"
    archive.mkdir()
    write_keys(keys, key("one"))
    settings = {"encryption_at_rest": at_rest(keys), "commit_log_archive_dir": str(archive)}
    # Uncompressed, so that a readable file would be found.
    node = new_node(data_dir=tmp_path / "data", settings=settings)
    with node:
        with driver_session(node) as session:
            session.execute(
                "CREATE TABLE secrets (k int PRIMARY KEY, v text, w text) WITH compression = {'enabled': 'false'}"
            )
            session.execute("CREATE INDEX ON secrets (w)")
            fill(session, "secrets")
            node.administer("flush")
            node.administer("snapshot", name="kept")
            fill(session, "secrets", ROWS)
        node.administer("archivelog")
        assert not readable(tmp_path)
        node.process.kill()
        node.process.wait()
        status, said = check(node)
        assert status == 0 and "need the master key one" in said, said
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", 2 * ROWS)
            wait_until_built(session, "secrets", ["w = 'confidential 3'"])
            found = session.execute("SELECT k FROM secrets WHERE w = 'confidential 3'")
            assert {row.k for row in found} == {number for number in range(2 * ROWS) if number % 7 == 3}
            session.execute("TRUNCATE secrets")
        node.administer("restore", name="kept", keyspace="k", table="secrets", into="again")
        with driver_session(node) as session:
            expect(session, "again", ROWS)
        node.administer("compact")
        assert not readable(tmp_path)


def test_a_wrong_or_missing_key_is_refused_by_name_and_changes_nothing(tmp_path):
    keys = tmp_path / "keys"
    one = key("one")
    write_keys(keys, one)
    node = new_node(data_dir=tmp_path / "data", settings={"encryption_at_rest": at_rest(keys)})
    with node:
        with driver_session(node) as session:
            fill(session, "secrets")
        node.administer("flush")
        node.stop()
        before = {path: path.stat().st_mtime_ns for path in node.data_dir.rglob("*-data.sst*")}
        for wrong in (key("one"), key("other")):
            write_keys(keys, wrong)
            said = refusal(node)
            assert "master key" in said and "one" in said and str(node.data_dir) in said, said
        keys.unlink()
        assert str(keys) in refusal(node)
        write_keys(keys, one)
        assert before == {path: path.stat().st_mtime_ns for path in node.data_dir.rglob("*-data.sst*")}
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", ROWS)


def test_encryption_is_turned_on_and_off_and_keys_are_rotated(tmp_path):
    keys = tmp_path / "keys"
    one, two = key("one"), key("two")
    write_keys(keys, one)
    node = new_node(data_dir=tmp_path / "data")
    with node:
        with driver_session(node) as session:
            session.execute(
                "CREATE TABLE secrets (k int PRIMARY KEY, v text, w text) WITH compression = {'enabled': 'false'}"
            )
            fill(session, "secrets")
        node.administer("flush")
        assert readable(node.data_dir)
        node.stop()
        # On: old files are read, and written anew on request.
        node.settings["encryption_at_rest"] = at_rest(keys)
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", ROWS)
            fill(session, "secrets", ROWS)
        node.administer("flush")
        node.administer("upgradesstables", all="true")
        node.stop()
        node.start()
        assert not [path for path in readable(node.data_dir) if path.name.endswith(".sst")]
        # Another key for new files, while the node runs.
        write_keys(keys, one, two)
        node.administer("reloadssl")
        with driver_session(node) as session:
            fill(session, "secrets", 2 * ROWS)
        node.administer("flush")
        node.administer("upgradesstables", all="true")
        node.stop()
        _, said = check(node)
        assert "need the master key two" in said, said
        # Off: what is encrypted is read.
        node.settings["encryption_at_rest"] = at_rest(keys, "off")
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", 3 * ROWS)


def test_plain_files_are_refused_by_name_and_encrypted_on_request(tmp_path):
    keys = tmp_path / "keys"
    write_keys(keys, key("one"))
    node = new_node(data_dir=tmp_path / "data")
    with node:
        with driver_session(node) as session:
            fill(session, "secrets")
        node.administer("flush")
        node.administer("snapshot", name="kept")
        assert set(protections(node)) == {"plain"}
        assert encrypt(node)[0] == 1, "a node runs on the files"
        node.stop()
        status, said = encrypt(node)
        assert status == 1 and 'mode = "all"' in said, said
        node.settings["encryption_at_rest"] = at_rest(keys, plain_files="refuse")
        said = refusal(node)
        assert "are not encrypted" in said and str(node.data_dir) in said and "helenus encrypt" in said, said
        assert readable(node.data_dir), "a refused start changes nothing"
        status, said = encrypt(node)
        assert status == 0 and "were not encrypted and are now" in said, said
        assert not readable(node.data_dir)
        node.start()
        assert set(protections(node)) == {"one"}
        with driver_session(node) as session:
            expect(session, "secrets", ROWS)
        node.stop()
        # Somebody puts a file of his own in the place of one of the node's.
        path = next(path for path in node.data_dir.rglob("*-data.sst") if path.stat().st_size > 0)
        kept = path.read_bytes()
        path.write_bytes(b"not encrypted" * 1000)
        assert str(path) in refusal(node)
        path.write_bytes(kept)
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", ROWS)


def test_the_report_tells_when_a_former_key_may_go(tmp_path):
    keys = tmp_path / "keys"
    one, two = key("one"), key("two")
    write_keys(keys, one)
    node = new_node(data_dir=tmp_path / "data", settings={"encryption_at_rest": at_rest(keys)})
    with node:
        with driver_session(node) as session:
            fill(session, "secrets")
        node.administer("flush")
        node.administer("snapshot", name="kept")
        assert {"tables", "commit_log", "snapshots", "node"} <= protections(node)["one"]
        write_keys(keys, one, two)
        node.administer("reloadssl")
        with driver_session(node) as session:
            fill(session, "secrets", ROWS)
        node.administer("flush")
        found = protections(node)
        assert "tables" in found["two"] and "snapshots" in found["one"]
        status, said = node.admin("encryption-keys")
        assert status == 0 and "encrypted by the master key two" in said and "snapshots" in said, said
        node.stop()
        status, said = encrypt(node)
        assert status == 0, said
        write_keys(keys, two)
        node.start()
        assert set(protections(node)) == {"two"}
        with driver_session(node) as session:
            expect(session, "secrets", 2 * ROWS)


def test_a_command_for_keys_that_hangs_or_fails_is_an_error(tmp_path):
    command = {"mode": "all", "key_command": "echo no vault >&2; sleep 600", "key_command_timeout_ms": 500}
    node = new_node(data_dir=tmp_path / "data", settings={"encryption_at_rest": command})
    said = refusal(node)
    assert "longer than 500 ms" in said and "no vault" in said, said
    command["key_command"] = "echo sealed >&2; exit 4"
    said = refusal(node)
    assert "exit status: 4" in said and "sealed" in said, said
