"""Hints of encrypted nodes: nothing of them can be read on the disk, and they outlive a restart with another key."""

import base64
import os

import pytest
from cassandra import ConsistencyLevel
from cluster import Cluster, until
from conftest import PROGRAM
from node import NodeError

MARK = b"confidential"


def key(name):
    return f"{name} {base64.b64encode(os.urandom(32)).decode()}\n"


def kinds(node, name):
    """The kinds of files that need a master key."""
    files = node.report("encryption_keys")["files"]
    return {of["kind"] for of in files if of["protection"] == {"key": name}}


def contents(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        # The node has removed it meanwhile.
        return b""


def test_hints_are_encrypted_and_delivered_after_a_rotation(tmp_path, connect):
    keys = tmp_path / "keys"
    one, two = key("one"), key("two")
    keys.write_text(one)
    keys.chmod(0o600)
    settings = {"encryption_at_rest": {"mode": "all", "key_file": str(keys)}, "automatic_repair": False}
    with Cluster(3, PROGRAM, settings=settings) as cluster:
        first, _, last = cluster.nodes
        session = connect(cluster, only=first)
        session.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, v text)")
        Cluster.kill(last)
        until("its death is known", lambda: sum(m["is_up"] for m in Cluster.status(first)["members"]) == 2)
        insert = session.prepare("INSERT INTO shop.items (id, v) VALUES (?, ?)")
        for number in range(100):
            session.execute(insert, (number, f"confidential {number}"))
        assert first.metric("helenus_hints_pending_bytes") > 0
        # A drain flushes the hints, too.
        first.stop()
        files = [path for path in first.data_dir.rglob("*") if path.is_file()]
        assert any("/tables/" + b"helenus-hints---".hex() in str(path) for path in files)
        assert not [path for path in files if MARK in contents(path)]
        keys.write_text(key("one"))
        with pytest.raises(NodeError) as refused:
            first.start()
        assert "master key" in str(refused.value) and str(first.data_dir) in str(refused.value)
        keys.write_text(one + two)
        first.start()
        assert "hints" in kinds(first, "one")
        assert first.metric("helenus_hints_pending_bytes") > 0
        last.start()
        until("the hints are delivered", lambda: first.metric("helenus_hints_pending_bytes") == 0)
        last.administer("flush")
        assert not [path for path in last.data_dir.rglob("*") if path.is_file() and MARK in contents(path)]
        # The node alone has every row.
        rows = connect(cluster, only=last, consistency=ConsistencyLevel.ONE).execute("SELECT id FROM shop.items")
        assert {row.id for row in rows} == set(range(100))
