"""Paged reads give each row exactly once, in order, whatever happens to the table meanwhile.

`STABLE` rows (even clustering values) are there throughout; while they are read, other threads overwrite their
values, write and delete rows between them, and flush and compact the table.
"""

import random
import struct
from contextlib import contextmanager

import pytest
import wire
from at_work import at_work
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
    keys, values = (1, STABLE) if table == "large" else (PARTITIONS, ROWS_PER_PARTITION)
    insert = session.prepare(f"INSERT INTO k.{table} (k, c, v) VALUES (?, ?, ?)")
    update = session.prepare(f"UPDATE k.{table} SET v = ? WHERE k = ? AND c = ?")
    delete = session.prepare(f"DELETE FROM k.{table} WHERE k = ? AND c = ?")

    def write():
        k, c = source.randrange(keys), source.randrange(values)
        session.execute(insert, (k, 2 * c + 1, 1))
        session.execute(update, (c, k, 2 * c))
        session.execute(delete, (k, 2 * source.randrange(values) + 1))

    def administer():
        for action in ("flush", "flush", "compact"):
            node.administer(action, keyspace="k", table=table)

    with at_work(write, administer):
        yield


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


MIXED = 2000
"""Partitions of k.mixed. Each has a static value unless 5 divides its key, and up to six rows; none if 7 divides it."""


def mixed():
    """The rows of k.mixed as {k: (s, [(c, v)])}."""
    return {
        k: (None if k % 5 == 0 else k % 11, [] if k % 7 == 0 else [(c, (k * 31 + c) % 97) for c in range(k % 6 + 1)])
        for k in range(MIXED)
    }


@pytest.fixture(scope="module")
def mixed_rows(node):
    """Fills k.mixed in parts that lie in files and in the memtable, with deleted rows; returns what is there."""
    expected = mixed()
    with driver_session(node) as session:
        session.execute("CREATE TABLE mixed (k int, c int, s int STATIC, v int, PRIMARY KEY (k, c))")
        static = session.prepare("INSERT INTO k.mixed (k, s) VALUES (?, ?)")
        row = session.prepare("INSERT INTO k.mixed (k, c, v) VALUES (?, ?, ?)")
        delete = session.prepare("DELETE FROM k.mixed WHERE k = ? AND c = ?")
        for part in range(3):
            waiting = []
            for k, (s, rows) in expected.items():
                if s is not None and k % 3 == part:
                    waiting.append(session.execute_async(static, (k, s)))
                waiting += [session.execute_async(row, (k, c, v)) for c, v in rows if (k + c) % 3 == part]
            for future in waiting:
                future.result()
            if part < 2:
                node.administer("flush", keyspace="k", table="mixed")
        for k in range(0, MIXED, 4):
            session.execute(delete, (k, 0))
            s, rows = expected[k]
            expected[k] = (s, rows[1:])
    return {k: (s, rows) for k, (s, rows) in expected.items() if s is not None or rows}


@pytest.mark.parametrize("page_rows", [13, 500, 5000])
def test_filters_leave_out_the_same_rows_on_every_shard(node, mixed_rows, page_rows):
    everything = [(k, c, s, v) for k, (s, rows) in mixed_rows.items() for c, v in rows]
    statics = [(k, None, s, None) for k, (s, rows) in mixed_rows.items() if not rows]
    first = {}
    for k, c, s, v in everything:
        first.setdefault(k, (k, c, s, v))
    some = range(0, MIXED, 400)
    cases = {
        "": everything + statics,
        "WHERE v = 5": [row for row in everything if row[3] == 5],
        "WHERE v = 1000": [],
        "WHERE s = 3": [row for row in everything + statics if row[2] == 3],
        "WHERE s = 3 AND v > 50": [row for row in everything if row[2] == 3 and row[3] > 50],
        "WHERE c = 2": [row for row in everything if row[1] == 2],
        "WHERE c IN (1, 4) AND v <= 40": [row for row in everything if row[1] in (1, 4) and row[3] <= 40],
        f"WHERE k IN ({', '.join(map(str, some))}) AND v > 3": [
            row for row in everything if row[0] in some and row[3] > 3
        ],
        "PER PARTITION LIMIT 1": list(first.values()) + statics,
    }
    with driver_session(node) as session:

        def answer(text):
            return [tuple(row) for rows, _ in pages(session, text, page_rows) for row in rows]

        def in_any_order(rows):
            return sorted(rows, key=repr)

        for condition, expected in cases.items():
            rows = answer(f"SELECT k, c, s, v FROM k.mixed {condition} ALLOW FILTERING")
            assert in_any_order(rows) == in_any_order(expected), condition
        limited = answer("SELECT k, c FROM k.mixed WHERE v > 20 PER PARTITION LIMIT 2 ALLOW FILTERING")
        passing = {}
        for k, c, _, v in everything:
            if v > 20:
                passing.setdefault(k, []).append((k, c))
        assert in_any_order(limited) == in_any_order([row for rows in passing.values() for row in rows[:2]])
        counted = answer("SELECT k, count(*) FROM k.mixed WHERE v > 20 GROUP BY k ALLOW FILTERING")
        assert in_any_order(counted) == in_any_order([(k, len(rows)) for k, rows in passing.items()])
        distinct = answer("SELECT DISTINCT k, s FROM k.mixed")
        assert in_any_order(distinct) == in_any_order([(k, s) for k, (s, _) in mixed_rows.items()])
        distinct = answer("SELECT DISTINCT k FROM k.mixed WHERE s = 3 ALLOW FILTERING")
        assert in_any_order(distinct) == in_any_order([(k,) for k, (s, _) in mixed_rows.items() if s == 3])


def test_a_filter_gets_past_many_rows_that_one_shard_leaves_out(node):
    """A match on one shard stays unread while the other one reads much more than a page's work without a match."""
    with driver_session(node) as session:
        session.execute("CREATE TABLE sparse (k int, c int, v int, b blob, PRIMARY KEY (k, c))")
        insert = session.prepare("INSERT INTO k.sparse (k, c, v, b) VALUES (?, ?, ?, ?)")
        for k in range(40):
            futures = [session.execute_async(insert, (k, c, int(c == 0 and k % 13 == 0), bytes(20_000))) for c in range(50)]
            for future in futures:
                future.result()
        matching = "FROM k.sparse WHERE v = 1 ALLOW FILTERING"
        for page_rows in (2, 5000):
            rows = [(row.k, row.c) for rows, _ in pages(session, "SELECT k, c " + matching, page_rows) for row in rows]
            assert sorted(rows) == [(0, 0), (13, 0), (26, 0), (39, 0)]
        assert session.execute("SELECT count(*) " + matching).one().count == 4


def test_distinct_names_each_partition_once_though_a_column_was_dropped(node):
    with driver_session(node) as session:
        session.execute("CREATE TABLE narrowed (k int, c int, v int, x int, PRIMARY KEY (k, c))")
        fill(node, "narrowed", [(k, c) for k in range(30) for c in range(1200)])
        session.execute("ALTER TABLE narrowed DROP x")
        distinct = [row.k for rows, _ in pages(session, "SELECT DISTINCT k FROM k.narrowed", 10) for row in rows]
        assert sorted(distinct) == list(range(30))


def test_partitions_of_statics_only_are_not_lost_where_a_page_ends_early(node):
    """Between them lie large partitions without a match: pages end by the work on those."""
    with driver_session(node) as session:
        session.execute("CREATE TABLE annotated (k int, c int, s int STATIC, b blob, PRIMARY KEY (k, c))")
        static = session.prepare("INSERT INTO k.annotated (k, s) VALUES (?, ?)")
        row = session.prepare("INSERT INTO k.annotated (k, c, b) VALUES (?, ?, ?)")
        for k in range(120):
            session.execute(static, (k, k % 3))
            if k % 3 != 1:
                futures = [session.execute_async(row, (k, c, bytes(20_000))) for c in range(25)]
                for future in futures:
                    future.result()
        node.administer("flush", keyspace="k", table="annotated")
        text = "SELECT k, c, s FROM k.annotated WHERE s = 1 ALLOW FILTERING"
        expected = [(k, None, 1) for k in range(1, 120, 3)]
        for page_rows in (7, 5000):
            all_pages = [rows for rows, _ in pages(session, text, page_rows)]
            found = [tuple(row) for rows in all_pages for row in rows]
            assert sorted(found) == expected
            assert len(all_pages) > 1, "a page has ended early"


def test_a_filter_may_have_a_value_that_is_made_when_it_is_asked(node):
    with driver_session(node) as session:
        session.execute("CREATE TABLE dated (k int, c int, t timeuuid, u uuid, PRIMARY KEY (k, c))")
        insert = session.prepare("INSERT INTO k.dated (k, c, t, u) VALUES (?, ?, now(), uuid())")
        futures = [session.execute_async(insert, (k, c)) for k in range(50) for c in range(8)]
        for future in futures:
            future.result()

        def count(condition):
            text = f"SELECT k, c FROM k.dated WHERE {condition} ALLOW FILTERING"
            return len({tuple(row) for rows, _ in pages(session, text, 30) for row in rows})

        assert count("t < now()") == 400
        assert count("t > now()") == 0
        assert count("u = uuid()") == 0


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
