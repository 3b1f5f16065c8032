"""Tables that every member encrypts: who may make them, who may join, and what hints and streams leave on the disks."""

import base64
import os

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.protocol import ConfigurationException
from cluster import Cluster, until
from conftest import PROGRAM
from node import NodeError

MARK = b"confidential"
TABLE = "CREATE TABLE shop.{} (id int PRIMARY KEY, v text) WITH compression = {{'enabled': 'false'}}"
ENCRYPTED = " AND encryption = {'enabled': 'true'}"


def readable(node):
    """The names of the directories of files that have what clients have written."""
    found = set()
    for path in node.data_dir.rglob("*"):
        try:
            if path.is_file() and MARK in path.read_bytes():
                found.add(path.parent.name)
        except FileNotFoundError:
            # The node has removed it meanwhile.
            pass
    return found


def test_members_encrypt_together_and_what_they_send_each_other_is_encrypted(tmp_path, connect):
    keys = tmp_path / "keys"
    keys.write_text(f"one {base64.b64encode(os.urandom(32)).decode()}\n")
    keys.chmod(0o600)
    by_table = {"mode": "tables", "key_file": str(keys)}
    with Cluster(2, PROGRAM, settings={"encryption_at_rest": by_table, "automatic_repair": False}) as cluster:
        first, second = cluster.nodes
        third = cluster.make()
        third.settings["encryption_at_rest"] = None
        third.start()
        session = connect(cluster)
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}")
        with pytest.raises((InvalidRequest, ConfigurationException), match="does not encrypt files"):
            session.execute(TABLE.format("secrets") + ENCRYPTED)
        # It counts as it was, also while it is down.
        third.stop()
        until("its end is known", lambda: sum(m["is_up"] for m in Cluster.status(first)["members"]) == 2)
        with pytest.raises((InvalidRequest, ConfigurationException), match="does not encrypt files"):
            session.execute(TABLE.format("secrets") + ENCRYPTED)
        third.settings["encryption_at_rest"] = by_table
        third.start()

        def create():
            session.execute(TABLE.format("secrets") + ENCRYPTED)
            return True

        until("all members are known to encrypt", create)
        session.execute(TABLE.format("notes"))
        ids = "SELECT id FROM system_schema.tables WHERE keyspace_name = 'shop' AND table_name = 'notes'"
        notes = session.execute(ids).one().id.hex

        def fill(connected, numbers):
            for table in ("secrets", "notes"):
                insert = connected.prepare(f"INSERT INTO shop.{table} (id, v) VALUES (?, ?)")
                for number in numbers:
                    connected.execute(insert, (number, f"confidential {number}"))

        fill(session, range(100))
        # Hints of both tables are encrypted.
        Cluster.kill(second)
        until("its death is known", lambda: sum(m["is_up"] for m in Cluster.status(first)["members"]) == 2)
        fill(connect(cluster, only=first, consistency=ConsistencyLevel.ONE), range(100, 200))
        for node in (first, third):
            node.administer("flush")
            assert readable(node) <= {notes}
        second.start()
        until("the hints are delivered", lambda: first.metric("helenus_hints_pending_bytes") == 0)
        # A member without keys does not come; one with keys gets streams.
        stranger = cluster.make()
        stranger.settings["encryption_at_rest"] = None
        with pytest.raises(NodeError) as refused:
            stranger.start()
        assert "shop.secrets" in str(refused.value) and "does not encrypt files" in str(refused.value)
        assert not readable(stranger)
        stranger.settings["encryption_at_rest"] = by_table
        stranger.start()
        stranger.administer("flush")
        until("it has plain rows", lambda: readable(stranger) == {notes})
        for node in cluster.nodes:
            node.administer("flush")
            assert readable(node) <= {notes}
        rows = connect(cluster).execute("SELECT id FROM shop.secrets")
        assert {row.id for row in rows} == set(range(200))
        # Without keys it does not start any more.
        stranger.stop()
        stranger.settings["encryption_at_rest"] = {**by_table, "mode": "off"}
        with pytest.raises(NodeError) as refused:
            stranger.start()
        assert "shop.secrets" in str(refused.value)
        stranger.settings["encryption_at_rest"] = by_table
        stranger.start()
