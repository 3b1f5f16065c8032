"""The limits that are settings: at them a request is served, over them it is refused and the node goes on."""

import struct
from contextlib import ExitStack

import pytest
import wire
from cassandra import InvalidRequest
from cassandra.query import BatchStatement, BatchType, SimpleStatement
from cluster import until
from conftest import driver_session, new_node
from wire import BATCH, ERROR, INVALID, OPTIONS, OVERLOADED, PREPARE, QUERY, RESULT, SUPPORTED, SYNTAX_ERROR, Client, frame

MAX_STATEMENT_BYTES = 1024
MAX_BATCH_STATEMENTS = 10
MAX_FRAME_BYTES = 65_536
MAX_CONNECTIONS = 20
MAX_PAGE_BYTES = 65_536
MAX_ANSWER_BYTES = 131_072


@pytest.fixture(scope="module")
def node():
    settings = {
        "max_statement_bytes": MAX_STATEMENT_BYTES,
        "max_batch_statements": MAX_BATCH_STATEMENTS,
        "max_frame_bytes": MAX_FRAME_BYTES,
        "max_connections": MAX_CONNECTIONS,
        "max_requests_per_connection": 2,
        "max_page_bytes": MAX_PAGE_BYTES,
        "default_page_rows": 7,
    }
    with new_node(settings=settings) as running:
        with driver_session(running) as session:
            session.execute("CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))")
        yield running


@pytest.fixture
def client(node):
    with Client((node.host, node.port)) as connected:
        yield connected


def statement_of(length):
    text = "SELECT v FROM k.t WHERE k = 1 AND c = 1"
    return text + " " * (length - len(text))


def test_a_statement_longer_than_max_statement_bytes_is_invalid(client):
    for opcode in (QUERY, PREPARE):
        assert client.ask(opcode, wire.query(statement_of(MAX_STATEMENT_BYTES))).opcode == RESULT
        refused = client.ask(opcode, wire.query(statement_of(MAX_STATEMENT_BYTES + 1)))
        assert refused.error_code == INVALID
        assert str(MAX_STATEMENT_BYTES) in refused.message
    long_insert = "INSERT INTO k.t (k, c, v) VALUES (1, 1, '" + "x" * MAX_STATEMENT_BYTES + "')"
    assert client.ask(BATCH, wire.batch([long_insert])).error_code == INVALID
    assert client.ask(OPTIONS).opcode == SUPPORTED


def test_more_statements_than_max_batch_statements_are_invalid(client):
    insert = "INSERT INTO k.t (k, c) VALUES (2, 2)"
    assert client.ask(BATCH, wire.batch([insert] * MAX_BATCH_STATEMENTS)).opcode == RESULT
    refused = client.ask(BATCH, wire.batch([insert] * (MAX_BATCH_STATEMENTS + 1)))
    assert refused.error_code == INVALID
    assert str(MAX_BATCH_STATEMENTS) in refused.message


def test_large_batches_of_several_partitions_are_warned_of_and_refused(node):
    with driver_session(node) as session:
        insert = session.prepare("INSERT INTO t (k, c, v) VALUES (?, 1, ?)")

        def send(keys, length, kind=BatchType.LOGGED):
            batch = BatchStatement(batch_type=kind)
            for key in keys:
                batch.add(insert, (key, "x" * length))
            return session.execute_async(batch)

        def warnings(future):
            future.result()
            return future.warnings or []

        assert warnings(send([10, 11], 2_000)) == []
        (warning,) = warnings(send([10, 11], 3_000))
        assert warning.startswith("Batch for [k.t] is of size 6")
        assert "exceeding specified threshold of 5120 by" in warning
        with pytest.raises(InvalidRequest, match="Batch too large"):
            send([12, 13], 30_000).result()
        assert list(session.execute("SELECT k FROM t WHERE k IN (12, 13)")) == []
        assert warnings(send([12, 12], 30_000)) == [], "one partition may be of any size"
        text = "".join(f"INSERT INTO t (k, c) VALUES ({key}, 2);" for key in range(20, 36))
        future = session.execute_async(f"BEGIN UNLOGGED BATCH {text} APPLY BATCH")
        (warning,) = warnings(future)
        assert warning.startswith("Unlogged batch covering 16 partitions detected against table [k.t].")


@pytest.mark.parametrize("version", [3, 4])
def test_a_frame_longer_than_max_frame_bytes_is_refused(node, version):
    with Client((node.host, node.port), version) as client:
        over_statement = client.ask(QUERY, wire.query("x" * (MAX_FRAME_BYTES - 7)))
        assert over_statement.error_code == INVALID
        refused = client.ask(QUERY, wire.query("x" * (MAX_FRAME_BYTES - 6)))
        assert refused is not None and refused.opcode == ERROR
        assert str(MAX_FRAME_BYTES) in refused.message
    with Client((node.host, node.port), version) as client:
        assert client.ask(OPTIONS).opcode == SUPPORTED


def test_a_large_frame_in_segments_is_refused_too(node):
    with driver_session(node, protocol_version=5) as session:
        write = session.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?)")
        session.execute(write, (3, 1, "x" * (MAX_FRAME_BYTES // 2)))
        with pytest.raises(InvalidRequest, match=str(MAX_FRAME_BYTES)):
            session.execute(write, (3, 2, "x" * (4 * MAX_FRAME_BYTES)))
        assert [row.c for row in session.execute("SELECT c FROM t WHERE k = 3")] == [1]


def test_a_connection_over_max_connections_learns_why_and_a_free_place_is_taken(node):
    kept = []
    try:
        while True:
            client = Client((node.host, node.port), started=False)
            kept.append(client)
            answer = client.ask(OPTIONS)
            if answer.opcode == ERROR:
                break
            assert answer.opcode == SUPPORTED and len(kept) <= MAX_CONNECTIONS
        assert (answer.error_code, len(kept) > 1) == (OVERLOADED, True)
        assert f"{MAX_CONNECTIONS} connections" in answer.message
        assert client.ask(OPTIONS) is None, "it has ended"
        kept.pop().finish()
        kept.pop().finish()
        again = Client((node.host, node.port), started=False)
        kept.append(again)
        assert again.ask(OPTIONS).opcode == SUPPORTED
    finally:
        for client in kept:
            client.finish()


def test_an_answer_without_pages_is_bounded():
    with new_node(settings={"max_answer_bytes": MAX_ANSWER_BYTES}) as node, driver_session(node) as session:
        session.execute("CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))")
        session.default_fetch_size = None
        write = session.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?)")
        for c in range(40):
            session.execute(write, (7, c, "x" * 4096))
        read = "SELECT v FROM t WHERE k = 7"
        assert len(list(session.execute(f"{read} LIMIT 10"))) == 10
        with pytest.raises(InvalidRequest, match=f"more than {MAX_ANSWER_BYTES} bytes"):
            session.execute(read)
        assert session.execute("SELECT count(v) AS n FROM t WHERE k = 7").one().n == 40
        assert len(list(session.execute(SimpleStatement(read, fetch_size=5)))) == 40


def test_connections_of_one_address_are_bounded_and_those_of_others_are_not():
    with new_node(settings={"max_connections_per_address": 3}) as node:
        with ExitStack() as stack:
            clients = [stack.enter_context(Client((node.host, node.port))) for _ in range(3)]
            refused = stack.enter_context(Client((node.host, node.port), started=False))
            answer = refused.ask(OPTIONS)
            assert answer.error_code == OVERLOADED
            assert "3 connections from 127.0.0.1" in answer.message
            other = stack.enter_context(Client((node.host, node.port), source="127.0.0.2"))
            assert all(client.ask(OPTIONS).opcode == SUPPORTED for client in [other, *clients])


def test_frames_that_clients_leave_unfinished_take_bounded_memory():
    """Clients that send most of a large frame and stop. Further large frames are refused, small ones are not."""
    frame_bytes, room, clients = 4 << 20, 16 << 20, 40
    with new_node(settings={"max_frame_bytes": frame_bytes, "max_partial_frames_bytes": room}) as node:
        before = node.resident_mib()
        with ExitStack() as stack:
            stalled = [stack.enter_context(Client((node.host, node.port))) for _ in range(clients)]
            unfinished = frame(QUERY, b"x" * (frame_bytes - 2000), length=frame_bytes - 1000)
            for client in stalled:
                client.send(unfinished)
            client = stack.enter_context(Client((node.host, node.port)))
            large = wire.query("SELECT " + "x" * (1 << 20))
            until("the room is used up", lambda: client.ask(QUERY, large).error_code == OVERLOADED)
            assert client.ask(QUERY, wire.query("SELECT release_version FROM system.local")).opcode == RESULT
            assert node.resident_mib() - before < clients * (frame_bytes >> 20) / 2
            for other in stalled:
                other.socket.close()
            until("the room is free again", lambda: client.ask(QUERY, large).error_code == SYNTAX_ERROR)


def test_requests_over_max_requests_per_connection_wait_and_are_answered(client):
    writes = [wire.query(f"INSERT INTO k.t (k, c) VALUES ({number}, 0)") for number in range(1000)]
    client.send(b"".join(frame(QUERY, body, stream=stream) for stream, body in enumerate(writes)))
    answers = [client.answer() for _ in writes]
    assert all(answer.opcode == RESULT for answer in answers)
    assert {answer.stream for answer in answers} == set(range(len(writes)))


def test_pages_end_at_max_page_bytes_and_default_page_rows(node, client):
    with driver_session(node) as session:
        write = session.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?)")
        for number in range(50):
            session.execute(write, (9, number, "x" * 10_000))
        first = session.execute(SimpleStatement("SELECT c, v FROM t WHERE k = 9", fetch_size=5000))
        assert first.has_more_pages and len(first.current_rows) < 20
        assert [row.c for row in first] == list(range(50))
    answer = client.ask(QUERY, wire.query("SELECT c FROM k.t WHERE k = 9"))
    kind, flags, columns, length = struct.unpack(">iiii", answer.body[:16])
    assert (kind, flags & 2, columns) == (2, 2, 1), "an answer of 50 rows without a page size ends early"
    rest = answer.body[16 + length :]
    # Names of the keyspace, table and column, the column's type, then the number of rows.
    names = len(wire.string("k") + wire.string("t") + wire.string("c")) + 2
    assert struct.unpack(">i", rest[names : names + 4]) == (7,)
