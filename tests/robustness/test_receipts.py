"""Receipts: what a request cost, for the client that asks for it."""

import json

import pytest
import wire
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.query import BatchStatement, SimpleStatement
from cluster import until
from conftest import driver_session, new_node
from test_administration import command
from test_query_log import helenus
from wire import AUTH_RESPONSE, AUTH_SUCCESS, AUTHENTICATE, ERROR, QUERY, RESULT, STARTUP, Client

KEY = "helenus-receipt"
NAMES = {
    "version",
    "charge",
    "ranges_read",
    "partitions_read",
    "rows_read",
    "cells_read",
    "bytes_read",
    "tombstones_read",
    "replicas_read",
    "partitions_written",
    "rows_written",
    "cells_written",
    "bytes_written",
    "replicas_written",
    "transactions",
    "rows_sent",
    "bytes_sent",
    "bytes_logged",
    "messages",
    "bytes_between_nodes",
    "files_asked",
    "filters_asked",
    "blocks_from_cache",
    "blocks_from_disk",
    "worked_us",
    "waited_us",
    "cpu_us",
}


def charged(receipt):
    """The formula of docs/costs.md."""
    up = lambda number, step: -(-number // step)
    read = 10 * receipt["ranges_read"] + receipt["rows_read"]
    read += up(receipt["bytes_read"], 1024) + up(receipt["tombstones_read"], 10)
    written = 20 * receipt["partitions_written"] + 30 * receipt["transactions"]
    written += 2 * receipt["rows_written"] + 4 * up(receipt["bytes_written"], 1024)
    return max(1, receipt["replicas_read"]) * read + max(1, receipt["replicas_written"]) * written


def receipt_of(session, statement, values=None, payload=None):
    """The rows of a request and its receipt."""
    future = session.execute_async(statement, values, custom_payload={KEY: b""} if payload is None else payload)
    rows = future.result()
    receipt = json.loads(future.custom_payload[KEY])
    assert set(receipt) == NAMES and receipt["version"] == 1
    assert all(isinstance(number, int) and number >= 0 for number in receipt.values())
    assert receipt["charge"] == charged(receipt), receipt
    return rows, receipt


def counts(receipt):
    """Those that do not depend on time, caches and files."""
    return {name: number for name, number in receipt.items() if not name.startswith(("worked", "waited", "cpu", "blocks", "files", "filters"))}


@pytest.fixture(scope="module")
def filled(session):
    session.execute("CREATE TABLE receipts (k int, c int, v text, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO receipts (k, c, v) VALUES (?, ?, ?)")
    for k in range(10):
        for c in range(20):
            session.execute(insert, (k, c, "x" * 100))
    return session


def test_only_who_asks_gets_a_receipt(filled):
    future = filled.execute_async("SELECT * FROM receipts WHERE k = 1")
    future.result()
    assert not future.custom_payload
    future = filled.execute_async("SELECT * FROM receipts WHERE k = 1", custom_payload={"other": b"1"})
    future.result()
    assert not future.custom_payload
    _, receipt = receipt_of(filled, "SELECT * FROM receipts WHERE k = 1 AND c = 1", payload={KEY: b"1", "other": b""})
    assert receipt["rows_read"] == 1


def test_reads_are_counted(filled):
    rows, receipt = receipt_of(filled, "SELECT * FROM receipts WHERE k = 1 AND c = 7")
    assert len(list(rows)) == 1
    wanted = {"ranges_read": 1, "partitions_read": 1, "rows_read": 1, "cells_read": 1, "replicas_read": 1, "rows_sent": 1, "charge": 12}
    assert {name: receipt[name] for name in wanted} == wanted
    assert 104 <= receipt["bytes_read"] <= 130 and receipt["messages"] == 0 and receipt["bytes_logged"] == 0
    _, missing = receipt_of(filled, "SELECT * FROM receipts WHERE k = 99 AND c = 7")
    assert (missing["charge"], missing["rows_read"], missing["rows_sent"]) == (10, 0, 0)
    rows, several = receipt_of(filled, "SELECT * FROM receipts WHERE k IN (1, 2, 3)")
    assert (several["ranges_read"], several["partitions_read"], several["rows_read"]) == (3, 3, 60)
    assert several["bytes_sent"] > 6000
    _, all_rows = receipt_of(filled, "SELECT count(*) FROM receipts")
    assert (all_rows["rows_read"], all_rows["rows_sent"], all_rows["partitions_read"]) == (200, 1, 10)
    _, filtered = receipt_of(filled, "SELECT * FROM receipts WHERE v = 'none' ALLOW FILTERING")
    assert (filtered["rows_read"], filtered["rows_sent"]) == (200, 0)


def test_a_page_is_charged_for_what_it_has_read(filled):
    first = SimpleStatement("SELECT * FROM receipts WHERE k = 1", fetch_size=5)
    future = filled.execute_async(first, custom_payload={KEY: b""})
    page = future.result()
    receipt = json.loads(future.custom_payload[KEY])
    assert page.has_more_pages and receipt["rows_sent"] == 5 and 5 <= receipt["rows_read"] <= 7


def test_the_charge_is_the_same_each_time_in_memory_and_in_files(node, filled):
    statements = ["SELECT * FROM receipts WHERE k = 3", "SELECT v FROM receipts WHERE k = 3 AND c = 3", "SELECT * FROM receipts"]
    before = [counts(receipt_of(filled, text)[1]) for text in statements]
    assert before == [counts(receipt_of(filled, text)[1]) for text in statements]
    node.administer("flush")
    after = [receipt_of(filled, text)[1] for text in statements]
    assert [counts(receipt) for receipt in after] == before
    assert all(receipt["files_asked"] > 0 for receipt in after)
    assert all(receipt["blocks_from_cache"] + receipt["blocks_from_disk"] > 0 for receipt in after)


def test_writes_are_counted(filled):
    insert = filled.prepare("INSERT INTO receipts (k, c, v) VALUES (?, ?, ?)")
    _, receipt = receipt_of(filled, insert, (50, 1, "y" * 2000))
    wanted = {"partitions_written": 1, "rows_written": 1, "cells_written": 1, "replicas_written": 1, "ranges_read": 0, "charge": 30}
    assert {name: receipt[name] for name in wanted} == wanted
    assert receipt["bytes_logged"] > 2000 and 2000 < receipt["bytes_written"] < 2100
    batch = BatchStatement()
    for k in (51, 52, 53):
        batch.add(insert, (k, 1, "z"))
    _, receipt = receipt_of(filled, batch)
    assert (receipt["partitions_written"], receipt["rows_written"]) == (3, 3)
    rows, receipt = receipt_of(filled, "INSERT INTO receipts (k, c, v) VALUES (50, 1, 'n') IF NOT EXISTS")
    assert not rows.one().applied
    assert (receipt["transactions"], receipt["partitions_written"]) == (1, 0) and receipt["rows_read"] >= 1
    rows, receipt = receipt_of(filled, "INSERT INTO receipts (k, c, v) VALUES (54, 1, 'n') IF NOT EXISTS")
    assert rows.one().applied
    assert (receipt["transactions"], receipt["partitions_written"]) == (1, 1)
    filled.execute("CREATE TABLE receipt_counters (k int PRIMARY KEY, n counter)")
    _, receipt = receipt_of(filled, "UPDATE receipt_counters SET n = n + 1 WHERE k = 1")
    assert receipt["partitions_written"] == 1


def test_tombstones_are_charged(filled):
    for c in range(20):
        filled.execute(f"DELETE FROM receipts WHERE k = 9 AND c = {c}")
    rows, receipt = receipt_of(filled, "SELECT * FROM receipts WHERE k = 9")
    assert not list(rows)
    assert (receipt["rows_read"], receipt["tombstones_read"], receipt["charge"]) == (0, 20, 12)


def test_an_error_has_a_receipt_too(filled):
    future = filled.execute_async("SELECT nothing FROM receipts", custom_payload={KEY: b""})
    with pytest.raises(InvalidRequest):
        future.result()
    if future.custom_payload:
        assert json.loads(future.custom_payload[KEY])["charge"] == 0


def test_clients_of_version_3_are_served_as_ever(node, filled):
    with driver_session(node, protocol_version=3) as old:
        assert len(list(old.execute("SELECT * FROM receipts WHERE k = 1"))) == 20
    with Client((node.host, node.port)) as plain:
        assert plain.ask(QUERY, wire.query("SELECT * FROM k.receipts WHERE k = 1")).opcode == RESULT


def test_a_trace_and_the_shell_show_the_receipt(node, filled):
    future = filled.execute_async("SELECT * FROM receipts WHERE k = 2", trace=True)
    future.result()
    trace = future.get_query_trace(max_wait=30)
    receipt = json.loads(trace.parameters["receipt"])
    assert receipt["rows_read"] == 20
    assert any(event.description == f"The charge is {receipt['charge']}" for event in trace.events)
    statement = "RECEIPT ON; SELECT v FROM k.receipts WHERE k = 2 AND c = 2; RECEIPT OFF; RECEIPT"
    status, text = helenus(node, "shell", node.host, node.port, "-e", statement)
    assert status == 0, text
    shown = [line for line in text.splitlines() if line.startswith("Receipt: {")]
    assert len(shown) == 1 and json.loads(shown[0].removeprefix("Receipt: "))["charge"] == 12
    assert "Receipt is currently disabled" in text


def refused(session, statement, limit, values=None):
    """The receipt of a request that is above its limit."""
    future = session.execute_async(statement, values, custom_payload={"helenus-max-charge": str(limit).encode()})
    with pytest.raises(InvalidRequest, match=f"The request is charged .*, more than its limit of {limit}"):
        future.result()
    receipt = json.loads(future.custom_payload[KEY])
    assert receipt["charge"] == charged(receipt)
    return receipt


def test_a_request_above_its_budget_ends_with_its_receipt(filled):
    within = filled.execute_async("SELECT * FROM receipts WHERE k = 4", custom_payload={"helenus-max-charge": b"33"})
    assert len(list(within.result())) == 20 and not within.custom_payload
    receipt = refused(filled, "SELECT * FROM receipts WHERE k = 4", 32)
    assert receipt["charge"] == 33 and receipt["rows_read"] == 20
    receipt = refused(filled, "SELECT * FROM receipts WHERE k IN (1, 2, 3, 4, 5)", 40)
    assert 40 < receipt["charge"] and receipt["ranges_read"] < 5
    insert = "INSERT INTO receipts (k, c, v) VALUES (60, 1, 'z')"
    refused(filled, insert, 25)
    refused(filled, f"{insert} IF NOT EXISTS", 40)
    batch = BatchStatement()
    for k in (61, 62, 63):
        batch.add(SimpleStatement(f"INSERT INTO receipts (k, c, v) VALUES ({k}, 1, 'z')"))
    refused(filled, batch, 69)
    assert not list(filled.execute("SELECT * FROM receipts WHERE k IN (60, 61, 62, 63)"))
    filled.execute_async(insert, custom_payload={"helenus-max-charge": b"26"}).result()
    assert len(list(filled.execute("SELECT * FROM receipts WHERE k = 60"))) == 1
    with pytest.raises(Exception, match="helenus-max-charge is not a whole number"):
        filled.execute_async(insert, custom_payload={"helenus-max-charge": b"many"}).result()


def test_the_budget_of_a_role_holds_for_each_of_its_requests():
    with new_node(settings={"authenticator": "PasswordAuthenticator"}) as node:
        made = command("admin", "create-superuser", "root", "--data-dir", node.data_dir, stdin="root\n")
        assert made[0] == 0, made
        with driver_session(node, auth_provider=PlainTextAuthProvider("root", "root")) as root:
            root.execute("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))")
            for c in range(50):
                root.execute(f"INSERT INTO t (k, c) VALUES (1, {c})")
            with pytest.raises(InvalidRequest, match="of a role takes a whole number from 1"):
                root.execute("CREATE ROLE clerk WITH OPTIONS = {'max_charge': '0'}")
            root.execute("CREATE ROLE clerk WITH PASSWORD = 'clerk' AND LOGIN = true AND OPTIONS = {'max_charge': 40}")
            assert dict(root.execute("LIST ROLES OF clerk").one().options) == {"max_charge": "40"}
            with Client((node.host, node.port), started=False) as clerk:
                assert clerk.ask(STARTUP, wire.startup()).opcode == AUTHENTICATE
                assert clerk.ask(AUTH_RESPONSE, wire.value(b"\0clerk\0clerk")).opcode == AUTH_SUCCESS
                few = wire.query("SELECT * FROM k.t WHERE k = 1 LIMIT 5")
                many = wire.query("SELECT * FROM k.t WHERE k = 1")
                assert clerk.ask(QUERY, few).opcode == RESULT
                assert clerk.ask(QUERY, many).opcode == ERROR
                root.execute("ALTER ROLE clerk WITH OPTIONS = {}")
                until("the role may ask again", lambda: clerk.ask(QUERY, many).opcode == RESULT)


def test_a_slow_request_with_a_receipt_is_logged_with_it():
    with new_node(settings={"slow_query_log_timeout_ms": 1}) as slow, driver_session(slow) as session:
        session.execute("CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))")
        insert = session.prepare("INSERT INTO t (k, c, v) VALUES (1, ?, ?)")
        for c in range(2000):
            session.execute(insert, (c, "x" * 200))
        _, receipt = receipt_of(session, "SELECT count(*) FROM t WHERE v = 'none' ALLOW FILTERING")
        assert receipt["rows_read"] == 2000
        if receipt["worked_us"] > 1000:
            assert "a request was slow" in slow.log_tail(1000)
            assert 'charge\\":' in slow.log_tail(1000) or '"charge":' in slow.log_tail(1000)
