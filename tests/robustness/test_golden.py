"""Data directories of earlier releases (tests/golden): this program opens them and has every row of them."""

import json

import golden
import pytest
from conftest import driver_session, program

PLACES = "type, kind, position, clustering_order"
COLUMNS = f"SELECT table_name, column_name, {PLACES} FROM system_schema.columns WHERE keyspace_name = 'g'"
DROPPED = "SELECT table_name, column_name, type, kind FROM system_schema.dropped_columns WHERE keyspace_name = 'g'"
TYPES = "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = 'g'"


@pytest.fixture(scope="module", params=golden.RELEASES)
def opened(request, tmp_path_factory):
    """A copy of a release's directory, served: the contents it is to have, the facts, the node and a session."""
    release = request.param
    directory = golden.unpack(release, "one-node", tmp_path_factory.mktemp(release))
    with golden.one_node(program(), directory) as node, driver_session(node) as session:
        yield golden.contents(release), golden.facts(release, "one-node"), node, session


def check_rows(contents, session):
    for query, expected in contents.EXPECTED.items():
        assert [json.loads(row[0]) for row in session.execute(query)] == expected, query


def test_the_rows_are_there(opened):
    contents, _, _, session = opened
    check_rows(contents, session)


def test_the_schema_is_there(opened):
    contents, _, _, session = opened
    columns = {}
    for table, column, kind_of_value, kind, position, order in session.execute(COLUMNS):
        place = kind if kind in ("static", "regular") else f"{kind} {position}"
        described = f"{kind_of_value} {place}" + ("" if order == "none" else f" {order}")
        columns.setdefault(table, {})[column] = described
    assert columns == contents.COLUMNS
    dropped = {f"{table}.{column}": f"{kind_of_value} {kind}" for table, column, kind_of_value, kind in session.execute(DROPPED)}
    assert dropped == contents.DROPPED
    types = {name: dict(zip(names, kinds, strict=True)) for name, names, kinds in session.execute(TYPES)}
    assert types == contents.TYPES
    for table, options in contents.OPTIONS.items():
        query = f"SELECT {', '.join(options)} FROM system_schema.tables WHERE keyspace_name = 'g' AND table_name = '{table}'"
        row = session.execute(query).one()
        found = {name: getattr(row, name) for name in options}
        assert {name: dict(value) if hasattr(value, "items") else value for name, value in found.items()} == options


def test_batches_that_were_left_behind_are_finished(opened):
    contents, facts, node, session = opened
    assert golden.batches_replayed(node) == facts["batches_left_behind"] > 0
    golden.check_pairs(session.execute(contents.PAIRS.format(keyspace="g")), facts["acknowledged"])


def test_it_is_all_there_after_a_rewrite_and_a_restart(opened):
    contents, facts, node, session = opened
    session.execute("UPDATE g.accounts SET balance = 70 WHERE owner = 'ann' AND id = 1 IF balance = 80")
    session.execute("UPDATE g.accounts SET balance = 80 WHERE owner = 'ann' AND id = 1 IF balance = 70")
    node.administer("flush")
    node.administer("compact")
    node.restart()
    with driver_session(node) as again:
        check_rows(contents, again)
        golden.check_pairs(again.execute(contents.PAIRS.format(keyspace="g")), facts["acknowledged"])
