"""The members of a cluster of an earlier release (tests/golden): this program goes on with what they have."""

import golden
import pytest
from cassandra import ConsistencyLevel
from cassandra.query import SimpleStatement
from cluster import until
from conftest import PROGRAM


@pytest.fixture(params=golden.RELEASES)
def stored(request, tmp_path):
    """Copies of the members' directories: the contents, the facts, the members (not started)."""
    release = request.param
    with golden.Members(PROGRAM, golden.unpack(release, "three-nodes", tmp_path)) as members:
        yield golden.contents(release), golden.facts(release, "three-nodes"), members


def check(session, expected):
    for query, rows in expected.items():
        assert {row[0]: row[1] for row in session.execute(query)} == rows, query
    return True


def columns(session):
    found = session.execute("SELECT table_name, column_name, type FROM system_schema.columns WHERE keyspace_name = 'c'")
    return {f"{row.table_name}.{row.column_name}": row.type for row in found}


def test_members_of_a_release_come_up_and_deliver_their_hints(stored, connect):
    contents, facts, members = stored
    for node in members.nodes:
        node.start()
    # Those are of what the third missed before the batches; the first has kept them.
    replayed = "helenus_hints_replayed_total"
    until("hints are delivered", lambda: members.nodes[0].metric(replayed) >= facts["hints_at_least"])
    for node in members.nodes:
        alone = connect(members, only=node, consistency=ConsistencyLevel.ONE)
        assert columns(alone) == contents.THREE_NODES_COLUMNS
        until("every row is there", lambda alone=alone: check(alone, contents.MEMBER_EXPECTED))
        serial = contents.SERIAL_EXPECTED.items()
        serial = {SimpleStatement(query, consistency_level=ConsistencyLevel.SERIAL): rows for query, rows in serial}
        until("the transactions are there", lambda alone=alone, serial=serial: check(alone, serial))

        def are_whole(alone=alone):
            golden.check_pairs(alone.execute(contents.PAIRS.format(keyspace="c")), facts["acknowledged"])
            return True

        until("the batches are whole", are_whole)
    # The log of the members goes on: they agree on a change.
    session = connect(members)
    session.execute("CREATE TABLE c.later (k int PRIMARY KEY)")
    session.execute("INSERT INTO c.later (k) VALUES (1)")
    assert [row.k for row in session.execute("SELECT k FROM c.later")] == [1]
    session.execute("UPDATE c.accounts SET balance = 80 WHERE id = 1 IF balance = 90")
    assert session.execute("SELECT balance FROM c.accounts WHERE id = 1").one().balance == 80


@pytest.mark.parametrize("number", range(golden.MEMBERS))
def test_a_member_of_a_release_alone_serves_what_it_has(stored, connect, number):
    contents, _, members = stored
    node = members.nodes[number]
    node.start()
    alone = connect(members, only=node, consistency=ConsistencyLevel.LOCAL_ONE)
    assert columns(alone) == contents.THREE_NODES_COLUMNS
    has_missed = number == golden.MEMBERS - 1
    check(alone, contents.THIRD_EXPECTED if has_missed else contents.MEMBER_EXPECTED)
