"""Encryption of chosen tables: nothing of them is readable in the files of a node, of other tables only their own files are."""

import pytest
from cassandra import InvalidRequest
from cassandra.protocol import ConfigurationException, SyntaxException
from cluster import until
from conftest import driver_session, new_node
from test_at_rest import ROWS, at_rest, encrypt, expect, fill, key, readable, refusal, write_keys
from twins import wait_until_built

PLAIN = "compression = {'enabled': 'false'}"
ENCRYPTED = PLAIN + " AND encryption = {'enabled': 'true'}"
ENCRYPTED_START = b"helenus-at-rest\0"
REFUSED = (InvalidRequest, ConfigurationException, SyntaxException)


def create(session, table, options):
    session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text, w text) WITH {options}")


def directory(session, table):
    """The name of the directories of a table's files."""
    found = session.execute(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = 'k' AND table_name = %s", (table,)
    )
    return found.one().id.hex


def left(node):
    """How many files are plain that should be encrypted."""
    return node.report("encryption_keys")["plain_files_left"]


def described(session, table):
    return session.execute(f"DESCRIBE TABLE {table}").one().create_statement


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    write_keys(path, key("one"))
    return path


def test_only_the_files_of_tables_that_do_not_ask_for_it_are_plain(tmp_path, keys):
    archive = tmp_path / "archive"
    archive.mkdir()
    settings = {"encryption_at_rest": at_rest(keys, "tables"), "commit_log_archive_dir": str(archive)}
    node = new_node(data_dir=tmp_path / "data", settings=settings)
    with node:
        with driver_session(node) as session:
            create(session, "secrets", ENCRYPTED)
            create(session, "notes", PLAIN)
            for table in ("secrets", "notes"):
                session.execute(f"CREATE INDEX ON {table} (w) USING 'sai'")
                fill(session, table)
            notes, secrets = directory(session, "notes"), directory(session, "secrets")
            # Rows of both are in the commit log.
            assert not readable(tmp_path)
            session.execute(
                "BEGIN BATCH INSERT INTO notes (k, v) VALUES (9001, 'confidential'); "
                "INSERT INTO secrets (k, v) VALUES (9001, 'confidential'); APPLY BATCH"
            )
            for table in ("secrets", "notes"):
                session.execute(f"INSERT INTO {table} (k, v) VALUES (9002, 'confidential') IF NOT EXISTS")
                session.execute(f"DELETE FROM {table} WHERE k IN (9001, 9002)")
        node.administer("flush")
        node.administer("snapshot", name="kept")
        node.administer("archivelog")
        with driver_session(node) as session:
            for table in ("secrets", "notes"):
                wait_until_built(session, table, ["w = 'confidential 3'"])
                fill(session, table, ROWS)
        found = readable(tmp_path)
        assert {path.parent.name for path in found} == {notes}, found
        assert any(path.name.endswith(".sst") for path in found)
        indexes = list(node.data_dir.rglob("*.index"))
        assert {path.parent.name for path in indexes} == {notes, secrets}
        # What may be compressed is told by its first bytes.
        assert all(path.read_bytes().startswith(ENCRYPTED_START) == (path.parent.name == secrets) for path in indexes)
        assert any("snapshots" in path.parts for path in found)
        assert left(node) == 0
        status, said = node.admin("encryption-keys")
        assert status == 0 and "but those of tables without encryption" in said, said
        node.process.kill()
        node.process.wait()
        node.start()
        with driver_session(node) as session:
            for table in ("secrets", "notes"):
                expect(session, table, 2 * ROWS)
        node.administer("compact")
        found = readable(tmp_path)
        assert {path.parent.name for path in found} == {notes}, found


def test_a_table_is_encrypted_and_made_plain_again(tmp_path, keys):
    node = new_node(data_dir=tmp_path / "data", settings={"encryption_at_rest": at_rest(keys, "tables")})
    with node:
        with driver_session(node) as session:
            create(session, "notes", PLAIN)
            assert "encryption" not in described(session, "notes")
            fill(session, "notes")
        node.administer("flush")
        before = set(readable(node.data_dir))
        assert before and left(node) == 0
        with driver_session(node) as session:
            session.execute("ALTER TABLE notes WITH encryption = {'enabled': 'true'}")
            assert "encryption = {'enabled': 'true'}" in described(session, "notes")
            session.execute("CREATE TABLE copied LIKE notes")
            assert "encryption = {'enabled': 'true'}" in described(session, "copied")
            fill(session, "notes", ROWS)
        node.administer("flush")
        assert set(readable(node.data_dir)) <= before
        node.administer("snapshot", name="kept", keyspace="k", table="notes")
        node.administer("upgradesstables", all="true")
        node.restart()
        assert not [path for path in readable(node.data_dir) if "tables" in path.parts]
        assert left(node) > 0, "the snapshot of plain files"
        # What was plain comes back encrypted.
        with driver_session(node) as session:
            session.execute("TRUNCATE notes")
        node.administer("restore", name="kept", keyspace="k", table="notes")
        with driver_session(node) as session:
            expect(session, "notes", 2 * ROWS)
            assert not [path for path in readable(node.data_dir) if "tables" in path.parts]
            session.execute("ALTER TABLE notes WITH encryption = {'enabled': 'false'}")
            assert "encryption" not in described(session, "notes")
        node.administer("upgradesstables", all="true")
        with driver_session(node) as session:
            expect(session, "notes", 2 * ROWS)
        assert [path for path in readable(node.data_dir) if "tables" in path.parts]


def test_a_node_that_does_not_encrypt_has_no_table_that_asks_for_it(tmp_path, keys):
    node = new_node(data_dir=tmp_path / "data")
    with node:
        with driver_session(node) as session:
            with pytest.raises(REFUSED, match="table k.secrets has the option 'encryption'"):
                create(session, "secrets", ENCRYPTED)
            create(session, "secrets", PLAIN)
            with pytest.raises(REFUSED, match="does not encrypt files"):
                session.execute("ALTER TABLE secrets WITH encryption = {'enabled': 'true'}")
            with pytest.raises(REFUSED, match="use encryption = {'enabled': 'true'}"):
                session.execute("ALTER TABLE secrets WITH scylla_encryption_options = {'key_provider': 'none'}")
            with pytest.raises(REFUSED, match="only 'enabled' is allowed"):
                session.execute("ALTER TABLE secrets WITH encryption = {'class': 'AES'}")
        node.stop()
        node.settings["encryption_at_rest"] = at_rest(keys, "tables")
        node.start()
        with driver_session(node) as session:

            def encrypt_table():
                session.execute("ALTER TABLE secrets WITH encryption = {'enabled': 'true'}")
                return True

            until("the cluster knows that its member encrypts", encrypt_table)
            fill(session, "secrets")
        node.stop()
        node.settings["encryption_at_rest"] = at_rest(keys, "off")
        said = refusal(node)
        assert "k.secrets" in said and "encryption_at_rest" in said, said
        assert not readable(node.data_dir)
        node.settings["encryption_at_rest"] = at_rest(keys)
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", ROWS)
            session.execute("ALTER TABLE secrets WITH encryption = {}")
        node.stop()
        node.settings["encryption_at_rest"] = at_rest(keys, "off")
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", ROWS)


def test_plain_files_of_encrypted_tables_are_refused_and_those_of_others_are_not(tmp_path, keys):
    settings = {"encryption_at_rest": at_rest(keys, "tables", plain_files="refuse")}
    node = new_node(data_dir=tmp_path / "data", settings=settings)
    with node:
        with driver_session(node) as session:
            create(session, "secrets", ENCRYPTED)
            create(session, "notes", PLAIN)
            create(session, "later", PLAIN)
            for table in ("secrets", "notes", "later"):
                fill(session, table)
            secrets, notes, later = (directory(session, table) for table in ("secrets", "notes", "later"))
        node.administer("flush")
        node.restart()
        with driver_session(node) as session:
            for table in ("secrets", "notes", "later"):
                expect(session, table, ROWS)
            # Its plain files are read until the node stops.
            session.execute("ALTER TABLE later WITH encryption = {'enabled': 'true'}")
            expect(session, "later", ROWS)
        assert left(node) > 0
        node.stop()
        said = refusal(node)
        assert later in said and notes not in said and "helenus encrypt" in said, said
        status, said = encrypt(node)
        assert status == 0 and "were not encrypted and are now" in said, said
        assert {path.parent.name for path in readable(node.data_dir)} == {notes}
        node.start()
        with driver_session(node) as session:
            expect(session, "later", ROWS)
        node.stop()
        path = next(path for path in node.data_dir.rglob("*-data.sst") if path.parent.name == secrets)
        kept = path.read_bytes()
        path.write_bytes(b"not encrypted" * 1000)
        assert str(path) in refusal(node)
        path.write_bytes(kept)
        one = keys.read_text()
        write_keys(keys, key("one"))
        said = refusal(node)
        assert "master key" in said and str(node.data_dir) in said, said
        keys.write_text(one)
        node.start()
        with driver_session(node) as session:
            expect(session, "secrets", ROWS)
