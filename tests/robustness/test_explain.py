"""EXPLAIN with a real driver: rows that it can show, prepared, by permissions."""

import json

import pytest
from cassandra import InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.protocol import SyntaxException
from cassandra.query import SimpleStatement
from conftest import driver_session, new_node
from test_administration import command
from test_receipts import NAMES, receipt_of

COLUMNS = ("step", "operation", "target", "detail", "rows", "charge")


@pytest.fixture(scope="module")
def filled(session):
    session.execute("CREATE TABLE explained (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO explained (k, c, v) VALUES (?, ?, ?)")
    for k in range(10):
        for c in range(10):
            session.execute(insert, (k, c, "x"))
    return session


def explain(session, text, values=None):
    """The rows by their operation."""
    answer = session.execute(text, values)
    assert tuple(answer.column_names) == COLUMNS
    rows = list(answer)
    assert [row.step for row in rows] == list(range(1, len(rows) + 1))
    found = {}
    for row in rows:
        found.setdefault(row.operation, []).append(row)
    return found


def test_a_read_is_explained_with_its_expected_charge(filled):
    found = explain(filled, "EXPLAIN SELECT * FROM explained WHERE k = 1 AND c = 1")
    assert found["SELECT"][0].target == "k.explained"
    assert (found["SELECT"][0].rows, found["SELECT"][0].charge) == (1, 12)
    assert found["KEYS"][0].detail == "1 partition, 1 row"
    assert "WARNING" not in found and "RECEIPT" not in found
    found = explain(filled, "EXPLAIN SELECT * FROM explained WHERE k = 1")
    assert found["SELECT"][0].rows == 10
    assert found["WARNING"][0].detail.startswith("unbounded partition")
    found = explain(filled, "EXPLAIN SELECT * FROM explained WHERE v = 'x' ALLOW FILTERING")
    assert found["SELECT"][0].rows == 100
    assert {row.detail.split(":")[0] for row in found["WARNING"]} == {"fan-out", "filter"}
    assert "SCAN" in found and found["FILTER"][0].target == "v"


def test_what_was_expected_is_what_is_charged(filled):
    for text in ("SELECT * FROM explained WHERE k = 1 AND c = 1", "SELECT * FROM explained WHERE k = 2"):
        expected = explain(filled, f"EXPLAIN {text}")["SELECT"][0]
        _, receipt = receipt_of(filled, text)
        assert expected.rows == receipt["rows_read"]
        # Bytes are expected by what memtables and files take, which is more in memory.
        assert receipt["charge"] <= expected.charge <= receipt["charge"] + 10
        found = explain(filled, f"EXPLAIN ANALYZE {text}")
        assert found["ANALYZED"][0].charge == receipt["charge"]
        shown = {row.target: int(row.detail) for row in found["RECEIPT"]}
        assert set(shown) == NAMES - {"version", "charge"}
        assert shown["rows_read"] == receipt["rows_read"] and shown["bytes_read"] == receipt["bytes_read"]


def test_explain_does_nothing_and_analyze_applies(filled):
    insert = "INSERT INTO explained (k, c, v) VALUES (77, 1, 'new')"
    assert explain(filled, f"EXPLAIN {insert}")["INSERT"][0].charge > 0
    assert not list(filled.execute("SELECT * FROM explained WHERE k = 77"))
    found = explain(filled, f"EXPLAIN ANALYZE {insert}")
    assert found["ANALYZED"][0].charge == found["INSERT"][0].charge
    assert len(list(filled.execute("SELECT * FROM explained WHERE k = 77"))) == 1
    batch = f"BEGIN BATCH {insert}; DELETE FROM explained WHERE k = 78; APPLY BATCH"
    found = explain(filled, f"EXPLAIN {batch}")
    assert found["BATCH"][0].rows == 2 and "BATCH LOG" in found


def test_it_is_prepared_with_the_markers_of_the_statement(filled):
    for text in ("EXPLAIN SELECT v FROM explained WHERE k = ? AND c = ?", "EXPLAIN ANALYZE SELECT v FROM explained WHERE k = ? AND c = ?"):
        prepared = filled.prepare(text)
        assert [column.name for column in prepared.column_metadata] == ["k", "c"]
        for _ in range(3):
            assert explain(filled, prepared, (1, 2))["SELECT"][0].charge == 12
    update = filled.prepare("EXPLAIN ANALYZE FORMAT JSON UPDATE explained SET v = ? WHERE k = ? AND c = ?")
    document = json.loads(filled.execute(update, ("changed", 1, 1)).one()[0])
    assert document["steps"][0]["operation"] == "UPDATE" and document["receipt"]["rows_written"] == 1
    assert filled.execute("SELECT v FROM explained WHERE k = 1 AND c = 1").one().v == "changed"


def test_a_receipt_of_explain_analyze_is_that_of_the_statement(filled):
    rows, receipt = receipt_of(filled, "EXPLAIN ANALYZE SELECT * FROM explained WHERE k = 3")
    analyzed = next(row for row in rows if row.operation == "ANALYZED")
    assert receipt["charge"] == analyzed.charge and receipt["rows_read"] == 10


def test_pages_and_the_json_format(filled):
    page = SimpleStatement("EXPLAIN SELECT * FROM explained WHERE k = 1", fetch_size=3)
    found = explain(filled, page)
    assert found["PAGES"][0].detail == "up to 3 rows a page: 4 pages expected"
    document = json.loads(filled.execute("EXPLAIN FORMAT JSON SELECT * FROM explained").one()[0])
    assert document["receipt"] is None
    assert {step["operation"] for step in document["steps"]} >= {"SELECT", "SCAN", "REPLICAS", "SOURCES", "WARNING"}


def test_errors_are_those_of_the_statement(filled):
    with pytest.raises(InvalidRequest, match="missing"):
        filled.execute("EXPLAIN SELECT * FROM missing")
    with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
        filled.execute("EXPLAIN SELECT * FROM explained WHERE v = 'x'")
    with pytest.raises(SyntaxException):
        filled.execute("EXPLAIN TRUNCATE explained")
    with pytest.raises(SyntaxException):
        filled.execute("EXPLAIN FORMAT JSON ANALYZE SELECT * FROM explained")


def test_it_needs_the_permission_of_the_statement():
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    with new_node(settings=settings) as node:
        made = command("admin", "create-superuser", "root", "--data-dir", node.data_dir, stdin="root\n")
        assert made[0] == 0, made
        with driver_session(node, auth_provider=PlainTextAuthProvider("root", "root")) as root:
            root.execute("CREATE TABLE t (k int PRIMARY KEY, v int)")
            root.execute("CREATE ROLE clerk WITH PASSWORD = 'clerk' AND LOGIN = true")
            root.execute("GRANT CREATE ON ALL KEYSPACES TO clerk")
            root.execute("GRANT SELECT ON k.t TO clerk")
            with driver_session(node, auth_provider=PlainTextAuthProvider("clerk", "clerk")) as clerk:
                assert list(clerk.execute("EXPLAIN SELECT * FROM k.t WHERE k = 1"))
                for text in ("EXPLAIN INSERT INTO k.t (k) VALUES (1)", "EXPLAIN ANALYZE DELETE FROM k.t WHERE k = 1"):
                    with pytest.raises(Unauthorized):
                        clerk.execute(text)
