"""Paged reads give each row exactly once, in order, whatever happens to the table meanwhile.

`STABLE` rows (even clustering values) are there throughout; while they are read, other threads overwrite their
values, write and delete rows between them, and flush and compact the table.
"""

import random
import struct
import threading
from contextlib import contextmanager

import pytest
import wire
from cassandra.query import SimpleStatement
from conftest import driver_session, new_node
from wire import ERROR, PREPARE, QUERY, RESULT, Client, frame

STABLE = 100_000
PARTITIONS = 10_000
ROWS_PER_PARTITION = 5
ROWS_PER_BATCH = 500
BATCHES_IN_FLIGHT = 8
MAX_PAGES = STABLE
ONE_PARTITION = "SELECT c FROM k.large WHERE k = 0"
REVERSED = ONE_PARTITION + " ORDER BY c DESC"
WHOLE_TABLE = "SELECT k, c FROM k.many"


def fill(node, table, rows):
    """Writes (k, c) rows through BATCH messages of prepared statements, several at a time."""
    with Client((node.host, node.port)) as client:
        text = f"INSERT INTO k.{table} (k, c, v) VALUES (?, ?, ?)"
        identifier = client.ask(PREPARE, wire.long_string(text)).prepared_id
        head = b"\1" + struct.pack(">H", len(identifier)) + identifier + struct.pack(">H", 3)
        bodies = []
        for begin in range(0, len(rows), ROWS_PER_BATCH):
            part = rows[begin : begin + ROWS_PER_BATCH]
            statements = b"".join(head + struct.pack(">iiiiii", 4, k, 4, c, 4, 0) for k, c in part)
            bodies.append(struct.pack(">BH", 1, len(part)) + statements + struct.pack(">HB", wire.ONE, 0))
        for begin in range(0, len(bodies), BATCHES_IN_FLIGHT):
            flight = bodies[begin : begin + BATCHES_IN_FLIGHT]
            client.send(b"".join(frame(wire.BATCH, body, stream=stream) for stream, body in enumerate(flight)))
            for _ in flight:
                answer = client.answer()
                assert answer is not None and answer.opcode == RESULT, answer


@pytest.fixture(scope="module")
def node():
    with new_node() as running:
        with driver_session(running) as session:
            for table in ("large", "many"):
                session.execute(f"CREATE TABLE {table} (k int, c int, v int, PRIMARY KEY (k, c))")
        fill(running, "large", [(0, 2 * number) for number in range(STABLE // 2)])
        running.administer("flush", keyspace="k", table="large")
        fill(running, "large", [(0, 2 * number) for number in range(STABLE // 2, STABLE)])
        fill(running, "many", [(k, 2 * c) for k in range(PARTITIONS) for c in range(ROWS_PER_PARTITION)])
        yield running


@contextmanager
def disturbance(node, session, table):
    """Writes, overwrites and deletes around the stable rows, flushes and compacts, until the block ends."""
    source = random.Random(len(table))
    stop, failures, rounds = threading.Event(), [], []
    keys, values = (1, STABLE) if table == "large" else (PARTITIONS, ROWS_PER_PARTITION)
    insert = session.prepare(f"INSERT INTO k.{table} (k, c, v) VALUES (?, ?, ?)")
    update = session.prepare(f"UPDATE k.{table} SET v = ? WHERE k = ? AND c = ?")
    delete = session.prepare(f"DELETE FROM k.{table} WHERE k = ? AND c = ?")

    def write():
        while not stop.is_set():
            k, c = source.randrange(keys), source.randrange(values)
            session.execute(insert, (k, 2 * c + 1, 1))
            session.execute(update, (c, k, 2 * c))
            session.execute(delete, (k, 2 * source.randrange(values) + 1))
            rounds.append("write")

    def administer():
        while not stop.is_set():
            for action in ("flush", "flush", "compact"):
                node.administer(action, keyspace="k", table=table)
                rounds.append(action)

    def noting(work):
        try:
            work()
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    threads = [threading.Thread(target=noting, args=(work,)) for work in (write, administer)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert {"write", "flush", "compact"} <= set(rounds)


def pages(session, text, page_rows, paging_state=None):
    """The pages of a statement: (rows, paging state behind them)."""
    statement = SimpleStatement(text, fetch_size=page_rows)
    for _ in range(MAX_PAGES):
        result = session.execute(statement, paging_state=paging_state)
        paging_state = result.paging_state
        assert len(result.current_rows) <= page_rows
        yield result.current_rows, paging_state
        if paging_state is None:
            return
    raise AssertionError(f"more than {MAX_PAGES} pages")


def stable(rows):
    """The clustering values of stable rows."""
    return [row.c for row in rows if row.c % 2 == 0]


EXPECTED = [2 * number for number in range(STABLE)]


@pytest.mark.parametrize("page_rows", [5000, 37])
@pytest.mark.parametrize("text, expected", [(ONE_PARTITION, EXPECTED), (REVERSED, EXPECTED[::-1])])
def test_a_partition_is_read_exactly_once_in_order_under_writes_and_compaction(node, text, expected, page_rows):
    with driver_session(node) as session, disturbance(node, session, "large"):
        if page_rows < 100:
            # The same from somewhere in the middle: the pages are many.
            bound, expected = (">=", expected[-20_000:]) if text == ONE_PARTITION else ("<=", expected[-20_000:])
            text = text.replace("k = 0", f"k = 0 AND c {bound} {expected[0]}")
        seen = [row for rows, _ in pages(session, text, page_rows) for row in rows]
    assert stable(seen) == expected
    every = [row.c for row in seen]
    assert every == sorted(every, reverse=text.endswith("DESC"))
    assert len(every) == len(set(every))


@pytest.mark.parametrize("page_rows", [5000, 137])
def test_a_table_is_read_exactly_once_under_writes_and_compaction(node, page_rows):
    with driver_session(node) as session, disturbance(node, session, "many"):
        seen = [(row.k, row.c) for rows, _ in pages(session, WHOLE_TABLE, page_rows) for row in rows]
    assert len(seen) == len(set(seen))
    order = [(k, c) for k, c in seen if c % 2 == 0]
    assert sorted(order) == [(k, 2 * c) for k in range(PARTITIONS) for c in range(ROWS_PER_PARTITION)]
    # A partition's rows are together and in order, each partition once.
    changes = [here[0] for before, here in zip([(None, 0), *order], order) if before[0] != here[0]]
    assert len(changes) == PARTITIONS
    assert all(before[1] < here[1] for before, here in zip(order, order[1:]) if before[0] == here[0])


@pytest.mark.parametrize("text", [ONE_PARTITION, REVERSED, WHOLE_TABLE])
def test_a_paging_state_is_good_after_a_restart(node, text):
    with driver_session(node) as session:
        before, state = next(pages(session, text, 30_000))
    node.restart()
    with driver_session(node) as session:
        after = [row for rows, _ in pages(session, text, 30_000, state) for row in rows]
        whole = [row for rows, _ in pages(session, text, 30_000) for row in rows]
    assert before + after == whole


def test_limits_and_distinct_hold_over_pages(node):
    with driver_session(node) as session:
        limited = [row for rows, _ in pages(session, ONE_PARTITION + " LIMIT 1003", 100) for row in rows]
        assert len(limited) == 1003
        per = [row for rows, _ in pages(session, WHOLE_TABLE + " PER PARTITION LIMIT 2 LIMIT 7777", 333) for row in rows]
        assert len(per) == len({(row.k, row.c) for row in per}) == 7777
        distinct = [row.k for rows, _ in pages(session, "SELECT DISTINCT k FROM k.many", 999) for row in rows]
        assert sorted(distinct) == list(range(PARTITIONS))
        counted = session.execute(SimpleStatement("SELECT count(*) FROM k.many WHERE c = 2 ALLOW FILTERING", fetch_size=50))
        assert counted.one().count == PARTITIONS


def paging_state_of(answer):
    """Out of a RESULT of rows: flags, number of columns, then the state."""
    kind, flags, _, length = struct.unpack(">iiii", answer.body[:16])
    assert kind == 2 and flags & 2, "there is a further page"
    return answer.body[16 : 16 + length]


def test_damaged_and_foreign_paging_states_are_a_protocol_error(node):
    source = random.Random(3)
    with Client((node.host, node.port)) as client:
        state = paging_state_of(client.ask(QUERY, wire.query(ONE_PARTITION, page_size=10)))
        foreign = paging_state_of(client.ask(QUERY, wire.query(WHOLE_TABLE, page_size=10)))
        good = client.ask(QUERY, wire.query(ONE_PARTITION, page_size=10, paging_state=state))
        assert good.opcode == RESULT
        wrong = [foreign, b"\0", b"x", state[:-1], state + b"\0", state[1:], bytes(len(state)), state * 2, b"x" * 65_536]
        for index in range(len(state)):
            wrong.append(state[:index] + bytes([state[index] ^ 1 << source.randrange(8)]) + state[index + 1 :])
        wrong += [source.randbytes(source.randrange(1, 100)) for _ in range(200)]
        for damaged in wrong:
            answer = client.ask(QUERY, wire.query(ONE_PARTITION, page_size=10, paging_state=damaged))
            assert answer.opcode == ERROR, damaged
            assert (answer.error_code, answer.message) == (wire.PROTOCOL_ERROR, "Invalid value for the paging state")
