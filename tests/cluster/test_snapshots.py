"""Snapshots of all members: taken, listed, restored and cleared by one command, with every member that did not do its part named."""

import json

import pytest
from cassandra import ConsistencyLevel
from cluster import Cluster, until
from load import check, make_table, write

ROWS = 500


def on_all(node, *words):
    """The exit status of a command on all members, its report, and what each member did, by host."""
    status, said = node.admin(words[0], "--cluster", "--json", *words[1:])
    report = json.loads(said)
    return status, report, {member["address"].split(":")[0]: member for member in report["members"]}


def tables_of(node, name):
    """The tables that each member has in a snapshot, by host."""
    status, _, members = on_all(node, "listsnapshots")
    assert status == 0
    return {
        host: sorted(entry["table"] for entry in member.get("snapshots", []) if entry["name"] == name)
        for host, member in members.items()
    }


def rows_of(node):
    """The versions of rows of the table that this node has."""
    tables = node.report("tablestats")["tables"]
    return sum(table["row_versions"] for table in tables if table["table"] == "items")


def test_a_snapshot_of_three_members_brings_a_dropped_table_back_on_all(three_nodes, connect):
    session, (first, second, third) = connect(three_nodes), three_nodes.nodes
    insert = make_table(session)
    write(session, insert, range(ROWS))
    session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY)")
    session.execute("CREATE TABLE shop.left_out (id int PRIMARY KEY)")
    hosts = three_nodes.hosts()

    status, report, members = on_all(first, "snapshot", "-t", "monday", "-kt", "shop.items,shop.orders")
    assert (status, report["name"], sorted(members)) == (0, "monday", hosts)
    for member in members.values():
        assert member["error"] is None
        assert [entry["table"] for entry in member["snapshots"]] == ["items", "orders"], member
    assert tables_of(second, "monday") == {host: ["items", "orders"] for host in hosts}

    # What has the name already stays, and the table beside it is not taken.
    second.administer("snapshot", name="tuesday", keyspace="shop", table="items")
    status, said = first.admin("snapshot", "--cluster", "-t", "tuesday", "shop")
    assert status == 1 and said.count(": taken, 3 tables") == 2, said
    assert f"{second.host}:" in said and "tuesday" in said.split(second.host, 1)[1], said
    assert tables_of(third, "tuesday")[second.host] == ["items"]

    session.execute("DROP TABLE shop.items")
    status, _, members = on_all(third, "restore", "-t", "monday", "shop", "items")
    assert status == 0
    assert all(member["tables"][0]["file_count"] > 0 for member in members.values()), members
    assert {node.host: rows_of(node) for node in three_nodes.nodes} == dict.fromkeys(hosts, ROWS)
    for node in three_nodes.nodes:
        for level in (ConsistencyLevel.ONE, ConsistencyLevel.ALL):
            check(connect(three_nodes, only=node, consistency=level), ROWS)
    until("one schema", lambda: len(first.report("describecluster")["schema_versions"]) == 1)
    # Again, into another table: the table of the rows is the same on all.
    status, _, members = on_all(second, "restore", "-t", "monday", "shop", "items", "--into", "copy")
    assert status == 0 and [member["tables"][0]["table"] for member in members.values()] == ["copy"] * 3
    assert len(list(session.execute("SELECT id FROM shop.copy"))) == ROWS

    status, said = second.admin("clearsnapshot", "--cluster", "monday")
    assert status == 0 and said.count(": removed\n") == 3, said
    assert tables_of(first, "monday") == {host: [] for host in hosts}
    status, said = first.admin("snapshot", "--cluster", "nowhere")
    assert status == 1 and "keyspace 'nowhere' does not exist" in said, said


def test_a_member_that_is_down_and_one_without_the_snapshot_are_named(three_nodes, connect):
    first, second, third = three_nodes.nodes
    session = connect(three_nodes, only=first)
    insert = make_table(session)
    write(session, insert, range(ROWS))

    Cluster.kill(third)
    status, report, members = on_all(first, "snapshot", "shop")
    assert status == 1 and members[third.host]["error"] and "snapshots" not in members[third.host], report
    until("the member is down", lambda: "the member is down" in first.admin("listsnapshots", "--cluster")[1])
    taken = {host: member["error"] for host, member in members.items() if host != third.host}
    assert taken == {first.host: None, second.host: None}
    name = report["name"]
    assert name.isdigit()
    # A restore tells who is down as well, and the others have their rows.
    session.execute("DROP TABLE shop.items")
    status, said = second.admin("restore", "--cluster", "-t", name)
    assert status == 1 and f"{third.host}:{three_nodes.internode_port}: failed: the member is down" in said, said
    check(session, ROWS)

    third.start()
    until("the member is up", lambda: all(member["is_up"] for member in Cluster.status(first)["members"]))
    lists = until("the member answers", lambda: tables_of(first, name))
    until("one schema", lambda: len(first.report("describecluster")["schema_versions"]) == 1)
    assert lists == {first.host: ["items"], second.host: ["items"], third.host: []}
    # What the member has of the restored table comes by no snapshot: all rows are here only once one is asked at ALL.
    status, said = first.admin("restore", "--cluster", "-t", name)
    assert status == 1 and f"{third.host}:{three_nodes.internode_port}: failed: there is no snapshot '{name}'" in said, said
    assert said.count("failed") == 1, said
    check(connect(three_nodes, consistency=ConsistencyLevel.ALL), ROWS)
    check(connect(three_nodes, only=third, consistency=ConsistencyLevel.ONE), ROWS)
    status, said = first.admin("restore", "--cluster", "-t", "unknown")
    assert status == 1 and said.count("failed: there is no snapshot 'unknown'") == 3, said


@pytest.mark.parametrize("words", [("-t", "n", "shop", "items"), ("-t", "n", "-cf", "items", "shop")])
def test_one_member_alone_does_as_all_do(connect, words):
    with Cluster(1) as alone:
        node, session = alone.nodes[0], connect(alone, consistency=ConsistencyLevel.ONE)
        write(session, make_table(session), range(10))
        status, said = node.admin("snapshot", *words)
        assert (status, said) == (0, "snapshot: n\n")
        assert tables_of(node, "n") == {node.host: ["items"]}
