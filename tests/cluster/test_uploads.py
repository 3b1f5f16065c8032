"""Uploads of all members to one store, from which one of them brings the rows of all back."""

import json
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel
from cluster import Cluster, until
from conftest import PROGRAM
from load import check, make_table, write

ROWS = 500


@pytest.fixture
def store(tmp_path):
    directory = tmp_path / "store"
    directory.mkdir()
    return directory


def on_all(node, *words):
    """The exit status of a command on all members, and what each member did, by host."""
    status, said = node.admin(words[0], "--cluster", "--json", *words[1:])
    return status, {member["address"].split(":")[0]: member for member in json.loads(said)["members"]}


def test_what_three_members_have_uploaded_comes_back_by_one_of_them(store, tmp_path, connect):
    with Cluster(3, PROGRAM, settings={"backup_store": {"address": str(store)}}) as cluster:
        first, second, third = cluster.nodes
        session = connect(cluster)
        insert = make_table(session)
        write(session, insert, range(ROWS))
        assert on_all(first, "snapshot", "-t", "monday", "shop")[0] == 0
        status, members = on_all(second, "upload", "-t", "monday")
        assert status == 0 and sorted(members) == cluster.hosts()
        assert all(member["uploaded"]["file_count"] > 0 for member in members.values()), members
        ids = sorted(member["host_id"] for member in members.values())
        assert sorted(path.name for path in store.glob("*/*")) == ids
        assert sorted(upload["host_id"] for upload in first.report("listuploads")["uploads"]) == ids

        session.execute("DROP TABLE shop.items")
        status, said = third.admin("download", "-t", "monday", "--into", str(tmp_path / "back"), "--json")
        assert status == 0 and sorted(json.loads(said)["hosts"]) == ids, said
        status, said = third.admin("import", str(tmp_path / "back"))
        assert status == 0, said
        for node in cluster.nodes:
            check(connect(cluster, only=node, consistency=ConsistencyLevel.ONE), ROWS)

        # A member removes its own uploads; a member that is down is named.
        status, said = first.admin("removeupload", "-t", "monday", "--host", members[second.host]["host_id"])
        assert status != 0 and "is a member of the cluster" in said, said
        Cluster.kill(third)
        until("the member is down", lambda: "the member is down" in first.admin("listsnapshots", "--cluster")[1])
        status, members = on_all(first, "removeupload", "-t", "monday")
        assert status == 1 and [host for host, member in members.items() if member["error"]] == [third.host]
        left = [path for path in Path(store).rglob("*") if path.is_file()]
        assert left and all(members[third.host]["host_id"] in str(path) for path in left)
        third.start()
        assert third.admin("removeupload", "-t", "monday")[0] == 0
        assert not [path for path in Path(store).rglob("*") if path.is_file()]
