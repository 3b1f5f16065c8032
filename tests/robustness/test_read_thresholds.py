"""Thresholds of reads: a client is warned of tombstones and bytes, and a read above a limit fails with Cassandra's reason."""

import pytest
import wire
from cassandra import ReadFailure
from cassandra.query import SimpleStatement
from conftest import driver_session, new_node
from wire import ERROR, QUERY, RESULT, Client

TOO_MANY_TOMBSTONES, READ_SIZE = 1, 4
SETTINGS = {
    "tombstone_warn_threshold": 20,
    "tombstone_failure_threshold": 100,
    "read_thresholds_enabled": True,
    "coordinator_read_size_warn_threshold": "10KiB",
    "coordinator_read_size_fail_threshold": "40KiB",
    "local_read_size_warn_threshold": "60KiB",
    "local_read_size_fail_threshold": "120KiB",
}


@pytest.fixture(scope="module")
def node():
    with new_node(settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def session(node):
    with driver_session(node) as session:
        session.execute("CREATE TABLE t (k int, c int, v blob, PRIMARY KEY (k, c))")
        session.execute("CREATE TABLE m (k int PRIMARY KEY, m map<int, text>)")
        yield session


def warnings_of(session, text, values=None, page=5000):
    future = session.execute_async(SimpleStatement(text, fetch_size=page) if isinstance(text, str) else text, values)
    rows = list(future.result().current_rows)
    return rows, future.warnings or []


def reason_of(session, text):
    future = session.execute_async(SimpleStatement(text))
    with pytest.raises(ReadFailure) as raised:
        future.result()
    # Protocol 5 says which replica failed why.
    assert list(raised.value.error_code_map.values()) == [raised.value.error_code_map["127.0.0.1"]]
    return raised.value.error_code_map["127.0.0.1"], future.warnings


@pytest.mark.parametrize("k", range(4), ids=lambda k: f"shard_of_{k}")
def test_a_read_that_passes_tombstones_warns_and_then_fails(session, k):
    """Of a partition of the shard that is asked, and of another one."""
    text = f"SELECT c FROM t WHERE k = {k}"
    session.execute(f"INSERT INTO t (k, c, v) VALUES ({k}, 1000, 0x00)")
    for c in range(20):
        session.execute(f"DELETE FROM t WHERE k = {k} AND c = {c}")
    assert warnings_of(session, text)[1] == []
    session.execute(f"DELETE FROM t WHERE k = {k} AND c = 20")
    rows, warnings = warnings_of(session, text)
    assert [row.c for row in rows] == [1000]
    assert warnings == [
        f"1 nodes scanned up to 21 tombstones and issued tombstone warnings for query {text} (see tombstone_warn_threshold)"
    ]
    prepared = session.prepare("SELECT c FROM t WHERE k = ?")
    assert "21 tombstones" in warnings_of(session, prepared, (k,))[1][0]
    for c in range(21, 101):
        session.execute(f"DELETE FROM t WHERE k = {k} AND c = {c}")
    reason, warnings = reason_of(session, text)
    assert reason == TOO_MANY_TOMBSTONES
    assert warnings == [
        f"1 nodes scanned over 101 tombstones and aborted the query {text} (see tombstone_failure_threshold)"
    ]
    # What is asked for lies before them.
    assert warnings_of(session, f"SELECT c FROM t WHERE k = {k} ORDER BY c DESC LIMIT 1")[1] == []


def test_a_scan_of_all_partitions_counts_them_together(session):
    assert reason_of(session, "SELECT count(*) FROM t")[0] == TOO_MANY_TOMBSTONES
    assert reason_of(session, "SELECT c FROM t WHERE c = 1000 ALLOW FILTERING")[0] == TOO_MANY_TOMBSTONES


def test_tombstones_within_one_row_count(session):
    session.execute("INSERT INTO m (k, m) VALUES (1, {1: 'a'})")
    text = "SELECT m FROM m WHERE k = 1"
    for element in range(2, 40):
        session.execute(f"DELETE m[{element}] FROM m WHERE k = 1")
    rows, warnings = warnings_of(session, text)
    assert dict(rows[0].m) == {1: "a"}
    assert len(warnings) == 1 and "tombstone_warn_threshold" in warnings[0]


def test_bytes_of_the_answer_and_of_what_is_read_for_it(session):
    for c in range(2000, 2008):
        session.execute(f"INSERT INTO t (k, c, v) VALUES (9, {c}, 0x{'ab' * 1500})")
    text = "SELECT v FROM t WHERE k = 9"
    rows, warnings = warnings_of(session, text)
    assert len(rows) == 8 and len(warnings) == 1
    assert "exceeded the size warning threshold of 10240 bytes" in warnings[0]
    assert warnings_of(session, text, page=4)[1] == []
    for c in range(2008, 2030):
        session.execute(f"INSERT INTO t (k, c, v) VALUES (9, {c}, 0x{'ab' * 1500})")
    assert reason_of(session, text)[0] == READ_SIZE
    # What is read counts, although little is answered.
    for c in range(2030, 2060):
        session.execute(f"INSERT INTO t (k, c, v) VALUES (9, {c}, 0x{'ab' * 1500})")
    count = "SELECT count(v) FROM t WHERE k = 9"
    rows, warnings = warnings_of(session, count)
    assert rows[0][0] == 60 and len(warnings) == 1 and "(see local_read_size_warn_threshold)" in warnings[0]
    for c in range(2060, 2100):
        session.execute(f"INSERT INTO t (k, c, v) VALUES (9, {c}, 0x{'ab' * 1500})")
    assert reason_of(session, count)[0] == READ_SIZE


def test_the_node_itself_and_its_tables_are_held_to_nothing(session):
    assert len(warnings_of(session, "SELECT * FROM system_schema.columns")[1]) <= 1
    session.execute("CREATE TABLE after (k int PRIMARY KEY)")
    session.execute("DROP TABLE after")


def test_use_can_be_prohibited():
    with new_node(settings={"use_statements_enabled": False}) as node, Client((node.host, node.port)) as client:
        refused = client.ask(QUERY, wire.query("USE system"))
        assert refused.opcode == ERROR and "USE statements prohibited" in refused.message
        assert client.ask(QUERY, wire.query("SELECT key FROM system.local")).opcode == RESULT


def test_pages_that_end_by_their_tombstones_count_them_on_every_shard():
    """Such a page has no row behind the tombstones by which the shard could see how far it has come."""
    settings = {"max_page_tombstones": 1000, "tombstone_warn_threshold": 900}
    with new_node(settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))")
        for k in range(4):
            for first in range(0, 1200, 100):
                deletions = "".join(f"DELETE FROM t WHERE k = {k} AND c = {c};" for c in range(first, first + 100))
                session.execute(f"BEGIN UNLOGGED BATCH {deletions} APPLY BATCH")
            session.execute(f"INSERT INTO t (k, c) VALUES ({k}, 5000)")
        for k in range(4):
            text = f"SELECT c FROM t WHERE k = {k}"
            future = session.execute_async(SimpleStatement(text, fetch_size=100))
            result = future.result()
            assert future.warnings and "tombstone_warn_threshold" in future.warnings[0], k
            assert [row.c for row in result] == [5000]
