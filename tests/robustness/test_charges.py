"""What requests are charged: the limit of a table, and sums by table, statement, role and hour."""

import json

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import BatchStatement, SimpleStatement
from cluster import until
from conftest import driver_session, new_node
from test_administration import command
from test_audit import nodetool

KEY = "helenus-receipt"


def refused(session, statement, values=None, payload=None):
    """The error of a request above its limit, and its receipt."""
    future = session.execute_async(statement, values, custom_payload=payload)
    with pytest.raises(InvalidRequest, match="The request is charged [0-9]+, more than its limit of [0-9]+") as error:
        future.result()
    return str(error.value), json.loads(future.custom_payload[KEY])


def rows_of(session, view, where=""):
    return list(session.execute(f"SELECT * FROM system_views.{view} {where} ALLOW FILTERING"))


@pytest.fixture(scope="module")
def limited(session):
    session.execute("CREATE TABLE limited (k int, c int, v text, PRIMARY KEY (k, c)) WITH max_charge = 60")
    session.execute("CREATE TABLE unlimited (k int, c int, v text, PRIMARY KEY (k, c))")
    for c in range(100):
        session.execute("INSERT INTO limited (k, c, v) VALUES (1, %s, 'x')", (c,))
        session.execute("INSERT INTO unlimited (k, c, v) VALUES (1, %s, 'x')", (c,))
    return session


def test_a_request_above_the_limit_of_its_table_ends_with_its_receipt(limited):
    select = limited.prepare("SELECT * FROM limited WHERE k = 1")
    for statement in ("SELECT * FROM limited WHERE k = 1", select):
        text, receipt = refused(limited, statement)
        assert "its limit of 60" in text and receipt["charge"] > 60 and receipt["rows_read"] > 50
    # Below the limit there is neither an error nor a receipt.
    future = limited.execute_async("SELECT * FROM limited WHERE k = 1 AND c < 5")
    assert len(list(future.result())) == 5 and not future.custom_payload
    assert len(list(limited.execute("SELECT * FROM unlimited WHERE k = 1"))) == 100


def test_writes_above_the_limit_are_refused_before_they_are_applied(limited):
    insert = limited.prepare("INSERT INTO limited (k, c, v) VALUES (?, 1000, 'new')")
    batch = BatchStatement()
    for k in range(100, 110):
        batch.add(insert, (k,))
    _, receipt = refused(limited, batch)
    assert receipt["partitions_written"] == 0
    for k in range(100, 110):
        assert not list(limited.execute("SELECT * FROM limited WHERE k = %s", (k,)))
    values = "; ".join(f"INSERT INTO limited (k, c, v) VALUES ({k}, 1, 'x')" for k in range(100, 110))
    refused(limited, f"BEGIN UNLOGGED BATCH {values}; APPLY BATCH")
    refused(limited, "INSERT INTO limited (k, c, v) VALUES (200, 1, %s)", ("x" * 20_000,))
    limited.execute("INSERT INTO limited (k, c, v) VALUES (200, 1, 'small')")


def test_the_smallest_limit_counts(limited):
    payload = {"helenus-max-charge": b"11"}
    text, _ = refused(limited, "SELECT * FROM limited WHERE k = 1 AND c < 5", payload=payload)
    assert "its limit of 11" in text
    text, _ = refused(limited, "SELECT * FROM limited WHERE k = 1", payload={"helenus-max-charge": b"1000000"})
    assert "its limit of 60" in text
    refused(limited, "EXPLAIN ANALYZE SELECT * FROM limited WHERE k = 1")
    limited.execute("EXPLAIN SELECT * FROM limited WHERE k = 1")
    batch = BatchStatement()
    batch.add(SimpleStatement("INSERT INTO unlimited (k, c, v) VALUES (5, 1, 'x')"))
    for k in range(300, 303):
        batch.add(SimpleStatement(f"INSERT INTO limited (k, c, v) VALUES ({k}, 1, 'x')"))
    refused(limited, batch)


def test_the_limit_is_changed_and_taken_away(limited):
    limited.execute("ALTER TABLE limited WITH max_charge = 1000")
    select = limited.prepare("SELECT * FROM limited WHERE k = 1")
    assert len(list(limited.execute(select))) == 100
    limited.execute("ALTER TABLE limited WITH max_charge = 0")
    assert "max_charge" not in limited.execute("DESCRIBE TABLE limited").one().create_statement
    limited.execute("ALTER TABLE limited WITH max_charge = 60")
    assert "max_charge = 60" in limited.execute("DESCRIBE TABLE limited").one().create_statement
    until("prepared statements follow the option", lambda: refused(limited, select))


def test_requests_are_summed_by_hour_table_statement_and_role():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE summed (k int, c int, v text, PRIMARY KEY (k, c))")
        insert = session.prepare("INSERT INTO summed (k, c, v) VALUES (?, ?, ?)")
        for c in range(20):
            session.execute(insert, (1, c, "secret"))
        for _ in range(5):
            list(session.execute("SELECT v FROM summed WHERE k = 1"))
        list(session.execute("SELECT v FROM summed WHERE k = 1 AND c = 7"))
        list(session.execute("SELECT v FROM summed WHERE k = 1 AND c = 8"))
        with pytest.raises(InvalidRequest):
            session.execute("SELECT v FROM summed WHERE k = 1", custom_payload={"helenus-max-charge": b"1"})
        sums = {}
        # It may be another hour meanwhile.
        for row in rows_of(session, "charges", "WHERE table_name = 'summed'"):
            known = sums.setdefault(row.statement, [0, 0, 0, 0])
            for index, number in enumerate((row.requests, row.failed, row.charge, row.rows_read)):
                known[index] += number
            assert row.keyspace_name == "k" and row.role == "anonymous" and row.missed == 0
            assert "secret" not in row.statement and "7" not in row.statement
        assert sums["INSERT INTO summed (k, c, v) VALUES (?)"] == [20, 0, 20 * 26, 0]
        whole = sums["SELECT v FROM summed WHERE k = ?"]
        assert whole[0] == 6 and whole[1] == 1 and whole[3] >= 100
        one = sums["SELECT v FROM summed WHERE k = ? AND c = ?"]
        assert one == [2, 0, 24, 2]
        top = [row for row in rows_of(session, "top_statements", "WHERE table_name = 'summed'") if row.period == "minutes"]
        by_sampler = {(row.sampler, row.rank): row for row in top}
        assert by_sampler["REQUESTS", 1].value == 20 and by_sampler["REQUESTS", 1].statement.startswith("INSERT")
        assert by_sampler["ROWS_READ", 1].statement == "SELECT v FROM summed WHERE k = ?"
        assert by_sampler["CHARGE", 1].requests == 20 and by_sampler["CHARGE", 1].missed == 0
        assert node.metric("helenus_request_charge_total") >= 20 * 26 + whole[2] + 24


def test_batches_are_summed_under_the_table_that_they_are_of():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE one (k int PRIMARY KEY, v int)")
        session.execute("CREATE TABLE two (k int PRIMARY KEY, v int)")
        into = [session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)") for table in ("one", "two")]
        for tables in ([0, 0], [0, 1]):
            batch = BatchStatement(consistency_level=ConsistencyLevel.ONE)
            for number, table in enumerate(tables):
                batch.add(into[table], (number, number))
            session.execute(batch)
        found = {(row.table_name, row.statement): row for row in rows_of(session, "charges") if row.statement.startswith("BEGIN BATCH")}
        of_one = found["one", "BEGIN BATCH INSERT INTO one (k, v) VALUES (?) APPLY BATCH"]
        assert of_one.requests == 1 and of_one.partitions_written == 2
        text = "BEGIN BATCH INSERT INTO one (k, v) VALUES (?); INSERT INTO two (k, v) VALUES (?) APPLY BATCH"
        assert found["", text].keyspace_name == "" and found["", text].partitions_written == 2


def test_the_sums_are_bounded_and_nothing_is_lost():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE many (k int PRIMARY KEY, v int)")
        for number in range(300):
            list(session.execute(f"SELECT k AS a{number} FROM many WHERE k = 1"))
        found = rows_of(session, "charges")
        selects = [row for row in found if row.table_name == "many"]
        assert 50 <= len(selects) <= 100, len(selects)
        others = [row for row in found if row.statement == "(others)"]
        assert others, "statements without a place of their own"
        assert sum(row.requests for row in selects + others) >= 300


def test_nodetool_shows_the_partitions_of_the_last_minutes():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE busy (k text PRIMARY KEY, v int)")
        for number in range(5):
            session.execute("INSERT INTO busy (k, v) VALUES ('often', %s)", (number,))
        for verb in ("toppartitions", "profileload"):
            status, text = nodetool(node, verb, "-k", "1", "-a", "WRITES,reads", "k", "busy")
            assert status == 0 and "Frequency of writes by partition:" in text and "Frequency of reads by partition:" in text, text
            assert ["k.busy", "often", "5", "0"] in [line.split() for line in text.splitlines()], text
            assert "Nothing recorded during sampling period" in text and "Max mutation size" not in text
        for words in (["k", "busy", "1000"], ["-s", "256", "k", "busy"], ["-i", "5000", "k", "busy"], ["-a", "CAS_CONTENTIONS", "k", "busy"]):
            status, text = nodetool(node, "toppartitions", *words)
            assert status != 0 and text, words


WORKLOAD = """
-- rows: 5000000, partitions: 80000
CREATE TABLE blog.posts (post_id timeuuid, kind text, id uuid, author_id uuid STATIC, title text STATIC, PRIMARY KEY (post_id, kind, id));
SELECT title FROM blog.posts WHERE post_id = ? LIMIT 1;
-- rows: 27
SELECT DISTINCT post_id, title FROM blog.posts WHERE author_id = ?;
"""


def test_the_program_advises_on_a_file(session, tmp_path):
    path = tmp_path / "blog.cql"
    path.write_text(WORKLOAD)
    status, text, _ = command("advise", path)
    assert status == 0 and "CREATE INDEX ON blog.posts (author_id) USING 'sai';" in text, text
    _, text, _ = command("advise", "--json", "--replicas", "1", path)
    document = json.loads(text)
    first, second = document["requests"]
    assert first["access"] == "KEYS" and first["advice"] == [] and second["access"] == "SCAN"
    assert [advice["kind"] for advice in second["advice"]] == ["index", "table"]
    # What is advised is taken by a node.
    session.execute("CREATE KEYSPACE blog WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute(WORKLOAD.split(";", 1)[0].split("\n", 2)[2])
    for advice in second["advice"]:
        for statement in advice["statements"]:
            session.execute(statement)
        until("the advised request is taken", lambda request=advice["request"]: session.prepare(request))
    path.write_text(WORKLOAD + "-- rows: 5\n")
    status, _, text = command("advise", path)
    assert status == 1 and "a fact stands in a line of its own above its statement" in text
    assert command("advise", tmp_path / "missing.cql")[0] == 1
