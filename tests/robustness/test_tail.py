"""TAIL of `helenus shell`: the changes of a table as they come."""

import json
from datetime import datetime

import pytest
from cluster import until
from conftest import program
from test_administration import command
from test_commands import Terminal

IMAGES = "WITH cdc = {'enabled': 'true', 'preimage': 'full', 'postimage': 'true'}"


def tail(node, text, *words):
    """A TAIL to its end: (status, its changes, standard error)."""
    status, told, complaint = command("shell", node.host, node.port, "--json", "-e", f"TAIL {text}", *words)
    return status, [json.loads(line) for line in told.splitlines()], complaint


def test_changes_of_every_kind_are_shown_in_order(node, session):
    session.execute(
        "CREATE TABLE kinds (p int, c int, v text, s int static, tags set<text>, items list<int>, PRIMARY KEY (p, c)) " + IMAGES
    )
    for statement in (
        "INSERT INTO kinds (p, c, v) VALUES (1, 1, 'a')",
        "UPDATE kinds SET tags = tags + {'x'} WHERE p = 1 AND c = 1",
        "UPDATE kinds SET tags = tags - {'x'}, v = null WHERE p = 1 AND c = 1",
        "UPDATE kinds USING TTL 1000 SET items = items + [7, 8] WHERE p = 1 AND c = 1",
        "UPDATE kinds SET s = 5 WHERE p = 1",
        "DELETE FROM kinds WHERE p = 1 AND c = 1",
        "DELETE FROM kinds WHERE p = 1 AND c >= 2 AND c < 9",
        "DELETE FROM kinds WHERE p = 1",
    ):
        session.execute(statement)
    status, changes, complaint = tail(node, "k.kinds FROM 'beginning' LIMIT 8 WINDOW 1s")
    assert status == 0, complaint
    times = [datetime.strptime(change["time"], "%Y-%m-%d %H:%M:%S.%f%z") for change in changes]
    assert times == sorted(times)
    row, partition = {"p": 1, "c": 1}, {"p": 1}
    wanted = [
        {"operation": "INSERT", "key": row, "set": {"v": "a"}},
        {"operation": "UPDATE", "key": row, "added": {"tags": ["x"]}},
        {"operation": "UPDATE", "key": row, "removed": {"tags": ["x"]}, "deleted": ["v"]},
        {"operation": "UPDATE", "key": row, "added": {"items": [7, 8]}, "ttl": 1000},
        {"operation": "UPDATE", "key": partition, "set": {"s": 5}},
        {"operation": "DELETE ROW", "key": row},
        {
            "operation": "DELETE RANGE",
            "key": partition,
            "from": {"c": 2},
            "from_inclusive": True,
            "to": {"c": 9},
            "to_inclusive": False,
        },
        {"operation": "DELETE PARTITION", "key": partition},
    ]
    plain = [{name: value for name, value in change.items() if name not in ("time", "id", "before", "after")} for change in changes]
    assert plain == wanted
    assert "before" not in changes[0] and changes[0]["after"] == {"v": "a"}
    assert changes[1]["before"] == {"v": "a"} and changes[1]["after"] == {"v": "a", "tags": ["x"]}
    assert changes[2]["before"] == {"v": "a", "tags": ["x"]}


def test_many_partitions_are_shown_in_the_order_of_time(node, session):
    session.execute("CREATE TABLE many (id int PRIMARY KEY, n int) WITH cdc = {'enabled': 'true'}")
    insert = session.prepare("INSERT INTO many (id, n) VALUES (?, ?)")
    for number in range(500):
        session.execute(insert, (number % 50, number))
    status, changes, complaint = tail(node, "k.many FROM 10m LIMIT 500 WINDOW 1s")
    assert status == 0, complaint
    assert [change["set"]["n"] for change in changes] == list(range(500))
    # From the middle: the times of changes are where they can be begun.
    middle = changes[250]["time"][:-8] + "+0000"
    status, rest, complaint = tail(node, f"k.many FROM '{middle}' LIMIT 1 WINDOW 1s")
    assert status == 0, complaint
    assert rest[0] in changes[:251] and rest[0]["time"][:-8] == changes[250]["time"][:-8]


def test_a_person_sees_changes_as_they_come_until_ctrl_c(node, session, tmp_path):
    session.execute("CREATE TABLE live (id int PRIMARY KEY, note text) WITH cdc = {'enabled': 'true'}")
    words = [program(), "shell", node.host, str(node.port), "-k", "k"]
    with Terminal(words, HELENUS_HISTORY=str(tmp_path / "history")) as shell:
        shell.wait_for("helenus:k> ")
        shell.press("TAIL live WINDOW 500ms\r")
        shell.wait_for("Changes of k.live")
        session.execute("INSERT INTO live (id, note) VALUES (1, 'first')")
        shell.wait_for("note = 'first'")
        session.execute("UPDATE live SET note = null WHERE id = 1")
        shell.wait_for("note deleted")
        shell.press("\x03")
        shell.wait_for("(2 changes)")
        shell.wait_for("helenus:k> ")
        shell.press("SELECT count(*) FROM system.local;\r")
        shell.wait_for("(1 rows)")


def test_columns_may_be_added_on_the_way(node, session):
    session.execute("CREATE TABLE altered (id int PRIMARY KEY, a int) WITH cdc = {'enabled': 'true'}")
    session.execute("INSERT INTO altered (id, a) VALUES (1, 1)")
    session.execute("ALTER TABLE altered ADD b int")
    session.execute("INSERT INTO altered (id, a, b) VALUES (1, 2, 2)")
    status, changes, complaint = tail(node, "k.altered FROM 'beginning' LIMIT 2 WINDOW 1s")
    assert status == 0, complaint
    assert [change["set"] for change in changes] == [{"a": 1}, {"a": 2, "b": 2}]


def test_what_cannot_be_shown_is_said_in_a_sentence(node, session):
    session.execute("CREATE TABLE plain (id int PRIMARY KEY)")
    status, changes, complaint = tail(node, "k.plain")
    assert (status, changes) == (1, [])
    assert "Table 'k.plain' has no change feed. ALTER TABLE k.plain WITH cdc = {'enabled': 'true'} begins one" in complaint
    status, _, complaint = tail(node, "k.nothing")
    assert status == 1 and "Table 'k.nothing' not found" in complaint
    status, _, complaint = tail(node, "plain")
    assert status == 1 and "No keyspace" in complaint
    status, _, complaint = tail(node, "plain FROM yesterday", "-k", "k")
    assert status == 1 and "'yesterday' is neither" in complaint


def test_a_feed_that_is_off_is_shown_to_its_end(node, session):
    session.execute("CREATE TABLE off (id int PRIMARY KEY) WITH cdc = {'enabled': 'true'}")
    session.execute("INSERT INTO off (id) VALUES (1)")
    session.execute("ALTER TABLE off WITH cdc = {'enabled': 'false'}")
    session.execute("INSERT INTO off (id) VALUES (2)")
    status, _, complaint = tail(node, "k.off")
    assert status == 1 and "The change feed of k.off is off" in complaint
    status, changes, complaint = tail(node, "k.off FROM 'beginning'")
    assert status == 0, complaint
    assert [change["key"] for change in changes] == [{"id": 1}]


@pytest.mark.parametrize("start", ["1h", "'2020-01-01 00:00:00Z'"])
def test_one_who_is_behind_what_is_kept_is_told(node, session, start):
    session.execute("CREATE TABLE IF NOT EXISTS short (id int PRIMARY KEY) WITH cdc = {'enabled': 'true', 'ttl': '1'}")
    session.execute("INSERT INTO short (id) VALUES (1)")

    def is_refused():
        status, _, complaint = tail(node, f"k.short FROM {start} LIMIT 1 WINDOW 500ms")
        return status == 1 and "The change feed k.short" in complaint and "has what was written since" in complaint

    until("what is gone is refused", is_refused)
    # The beginning is that of what is kept.
    session.execute("INSERT INTO short (id) VALUES (2)")
    status, changes, complaint = tail(node, "k.short FROM 'beginning' LIMIT 1 WINDOW 500ms")
    assert status == 0, complaint
    assert changes[0]["key"] in ({"id": 1}, {"id": 2})
