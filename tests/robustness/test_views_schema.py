"""Materialized views and projections in the schema: what drivers know of them, DESCRIBE, and what is refused, with Apache Cassandra's texts."""

import re

import pytest
from cassandra import AlreadyExists, InvalidRequest
from conftest import driver_session, new_node

BASE = "CREATE TABLE k.t (p int, c int, v int, w text, PRIMARY KEY (p, c))"
VIEW = (
    "CREATE MATERIALIZED VIEW k.mv AS SELECT * FROM k.t WHERE p IS NOT NULL AND c IS NOT NULL AND v IS NOT NULL "
    "PRIMARY KEY (v, p, c) WITH CLUSTERING ORDER BY (p DESC, c ASC)"
)
PROJECTION = (
    "CREATE PROJECTION k.named AS SELECT b.p, b.c, u.name AS user, v + 1 AS next FROM k.t AS b JOIN k.users AS u ON b.v = u.id "
    "WHERE c > 0 PRIMARY KEY (user, p, c)"
)
GROUPED = "CREATE PROJECTION k.sums AS SELECT p, count(*) AS n, sum(v) AS total FROM k.t GROUP BY p PRIMARY KEY (p)"


@pytest.fixture(scope="module")
def session():
    with new_node() as node, driver_session(node) as connected:
        yield connected


@pytest.fixture(autouse=True)
def views(session):
    session.execute("DROP KEYSPACE IF EXISTS k")
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    for create in [BASE, "CREATE TABLE k.users (id int PRIMARY KEY, name text)", VIEW, PROJECTION, GROUPED]:
        session.execute(create)


def described(session, text):
    return [row.create_statement for row in session.execute(text)]


def test_drivers_know_views_by_their_base_table(session):
    session.cluster.refresh_schema_metadata()
    keyspace = session.cluster.metadata.keyspaces["k"]
    assert sorted(keyspace.tables) == ["t", "users"]
    assert sorted(keyspace.views) == ["mv", "named", "sums"]
    assert sorted(keyspace.tables["t"].views) == ["mv", "named", "sums"]
    view = keyspace.views["mv"]
    assert (view.base_table_name, view.include_all_columns) == ("t", True)
    assert view.where_clause == "p IS NOT NULL AND c IS NOT NULL AND v IS NOT NULL"
    assert [column.name for column in [*view.partition_key, *view.clustering_key]] == ["v", "p", "c"]
    assert [column.is_reversed for column in view.clustering_key] == [True, False]
    assert {name: column.cql_type for name, column in keyspace.views["sums"].columns.items()} == {
        "p": "int",
        "n": "bigint",
        "total": "int",
    }
    assert not keyspace.views["named"].include_all_columns


def test_what_is_kept_beside_views_is_in_no_schema_table(session):
    for table, column in [("tables", "table_name"), ("views", "view_name"), ("columns", "table_name"), ("scylla_tables", "table_name")]:
        names = {getattr(row, column) for row in session.execute(f"SELECT * FROM system_schema.{table} WHERE keyspace_name = 'k'")}
        assert not [name for name in names if "$" in name], table
    shown = " ".join(described(session, "DESCRIBE KEYSPACE k"))
    assert "$" not in shown


def test_described_views_are_created_again(session):
    before = described(session, "DESCRIBE KEYSPACE k")
    assert re.match(r"CREATE MATERIALIZED VIEW k\.mv AS\n    SELECT \*\n    FROM k\.t\n    WHERE ", before[2])
    session.execute("DROP KEYSPACE k")
    for create in before:
        session.execute(create)
    assert described(session, "DESCRIBE KEYSPACE k") == before
    assert described(session, "DESCRIBE MATERIALIZED VIEW k.mv") == [before[2]]
    assert len(described(session, "DESCRIBE PROJECTION k.sums")) == 1
    assert len(described(session, "DESCRIBE TABLE k.t")) == 4


def test_views_follow_their_base_table(session):
    session.execute("ALTER TABLE k.t ADD x int")
    session.execute("ALTER TABLE k.t RENAME c TO d")
    session.cluster.refresh_schema_metadata()
    views = session.cluster.metadata.keyspaces["k"].views
    assert set(views["mv"].columns) == {"p", "d", "v", "w", "x"}
    assert set(views["named"].columns) == {"p", "d", "user", "next"}
    assert views["named"].where_clause == "d > 0"
    assert list(session.execute("SELECT * FROM k.mv")) == []


@pytest.mark.parametrize(
    "statement, text",
    [
        ("DROP TABLE k.mv", "Cannot use DROP TABLE on a materialized view. Please use DROP MATERIALIZED VIEW instead."),
        ("ALTER TABLE k.mv ADD x int", "Cannot use ALTER TABLE on a materialized view; use ALTER MATERIALIZED VIEW instead"),
        ("DROP TABLE k.users", "Cannot drop a table when materialized views still depend on it (named)"),
        ("ALTER TABLE k.t DROP w", "Cannot drop column w on base table t with materialized views"),
        ("CREATE INDEX ON k.mv (w)", "Secondary indexes on materialized views aren't supported"),
        ("TRUNCATE k.mv", "Cannot TRUNCATE materialized view directly; must truncate base table instead"),
        ("INSERT INTO k.mv (v, p, c) VALUES (1, 1, 1)", "Cannot directly modify a materialized view"),
        ("DELETE FROM k.named WHERE user = 'a'", "Cannot directly modify a materialized view"),
        ('INSERT INTO k."mv$rows" (u0, u1, v0) VALUES (1, 1, 1)', "Cannot directly modify a materialized view"),
        ("ALTER MATERIALIZED VIEW k.mv WITH gc_grace_seconds = 0", "Cannot alter gc_grace_seconds of a materialized view to 0"),
        ("DROP MATERIALIZED VIEW k.t", "Materialized view 'k.t' doesn't exist"),
        ("DROP MATERIALIZED VIEW k.sums", "Materialized view 'k.sums' doesn't exist"),
        (VIEW.replace("k.mv", "k.t"), "Cannot create materialized view 't' - a table with the same name already exists"),
        (
            "CREATE MATERIALIZED VIEW k.x AS SELECT * FROM k.t WHERE p IS NOT NULL PRIMARY KEY (p)",
            "Cannot create materialized view 'x' without primary key columns c from base table 't'",
        ),
        (
            "CREATE MATERIALIZED VIEW k.x AS SELECT * FROM k.mv WHERE v IS NOT NULL PRIMARY KEY (v)",
            "Materialized views cannot be created against other materialized views",
        ),
    ],
)
def test_refusals_have_the_texts_of_cassandra(session, statement, text):
    with pytest.raises(InvalidRequest, match=re.escape(text)):
        session.execute(statement)


def test_a_view_is_there_already(session):
    with pytest.raises(AlreadyExists):
        session.execute(VIEW)
    session.execute(VIEW.replace("VIEW k.mv", "VIEW IF NOT EXISTS k.mv"))


def test_dropped_views_leave_nothing(session):
    for kind, name in [("MATERIALIZED VIEW", "mv"), ("PROJECTION", "named"), ("PROJECTION", "sums")]:
        session.execute(f"DROP {kind} k.{name}")
    for name in ["t$changes", "users$changes", "mv$rows", "named$lookups"]:
        with pytest.raises(InvalidRequest, match="does not exist"):
            session.execute(f'SELECT * FROM k."{name}"')
    session.execute("DROP TABLE k.users")
