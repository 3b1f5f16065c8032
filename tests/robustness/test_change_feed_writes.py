"""What writes put into the log of a change feed: every kind of statement, times and groups, images, after a kill, and what is too old."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.query import BatchStatement, BatchType, SimpleStatement, dict_factory
from cassandra.util import max_uuid_from_time, min_uuid_from_time
from cluster import until
from conftest import driver_session, new_node

BEFORE, UPDATE, INSERT, DELETE_ROW, DELETE_PARTITION = range(5)
FROM_INCLUSIVE, FROM_EXCLUSIVE, TO_INCLUSIVE, TO_EXCLUSIVE, AFTER = range(5, 10)
META = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "cdc$end_of_batch")
WRITERS = 8
WRITES = 200
GREGORIAN = 0x01B21DD213814000


def micros(timeuuid):
    return (timeuuid.time - GREGORIAN) // 10


def entries(session, table="t", where=""):
    """The rows of the log as dictionaries, in the order of time over all streams."""
    profile = session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=dict_factory)
    rows = session.execute(f"SELECT * FROM {table}_scylla_cdc_log {where}", execution_profile=profile)
    return sorted(rows, key=lambda row: (row["cdc$time"].time, row["cdc$stream_id"], row["cdc$batch_seq_no"]))


def told(rows):
    """What entries say: the operation, and the columns that are there."""
    return [
        (row["cdc$operation"], {name: value for name, value in row.items() if name not in META and value is not None})
        for row in rows
    ]


def groups(rows):
    """Entries by stream and time; each group is numbered without gaps, and only its last entry ends it."""
    found = {}
    for row in rows:
        found.setdefault((row["cdc$stream_id"], row["cdc$time"]), []).append(row)
    for group in found.values():
        assert [row["cdc$batch_seq_no"] for row in group] == list(range(len(group)))
        assert [bool(row["cdc$end_of_batch"]) for row in group] == [False] * (len(group) - 1) + [True]
    return list(found.values())


@pytest.fixture
def fed(session):
    """A table with a feed of what `options` adds, made anew."""

    def make(options="", columns="p int, c int, v int, w int, m map<text, int>, s int static, PRIMARY KEY (p, c)"):
        session.execute("DROP TABLE IF EXISTS t")
        session.execute(f"CREATE TABLE t ({columns}) WITH cdc = {{'enabled': true{options}}}")
        return session

    yield make
    session.execute("DROP TABLE IF EXISTS t")


@pytest.mark.parametrize(
    "statement, expected",
    [
        ("INSERT INTO t (p, c, v) VALUES (1, 2, 3)", [(INSERT, {"p": 1, "c": 2, "v": 3})]),
        ("INSERT INTO t JSON '{\"p\": 1, \"c\": 2, \"v\": 3}' DEFAULT UNSET", [(INSERT, {"p": 1, "c": 2, "v": 3})]),
        ("UPDATE t SET v = 3 WHERE p = 1 AND c = 2", [(UPDATE, {"p": 1, "c": 2, "v": 3})]),
        ("UPDATE t SET v = null WHERE p = 1 AND c = 2", [(UPDATE, {"p": 1, "c": 2, "cdc$deleted_v": True})]),
        ("UPDATE t USING TTL 500 SET v = 3 WHERE p = 1 AND c = 2", [(UPDATE, {"p": 1, "c": 2, "v": 3, "cdc$ttl": 500})]),
        ("UPDATE t SET s = 3 WHERE p = 1", [(UPDATE, {"p": 1, "s": 3})]),
        ("UPDATE t SET m['a'] = 1 WHERE p = 1 AND c = 2", [(UPDATE, {"p": 1, "c": 2, "m": {"a": 1}})]),
        (
            "UPDATE t SET m = m - {'a', 'b'} WHERE p = 1 AND c = 2",
            [(UPDATE, {"p": 1, "c": 2, "cdc$deleted_elements_m": {"a", "b"}})],
        ),
        (
            "UPDATE t SET m = {'a': 1} WHERE p = 1 AND c = 2",
            [(UPDATE, {"p": 1, "c": 2, "m": {"a": 1}, "cdc$deleted_m": True})],
        ),
        ("DELETE v FROM t WHERE p = 1 AND c = 2", [(UPDATE, {"p": 1, "c": 2, "cdc$deleted_v": True})]),
        ("DELETE FROM t WHERE p = 1 AND c = 2", [(DELETE_ROW, {"p": 1, "c": 2})]),
        ("DELETE FROM t WHERE p = 1", [(DELETE_PARTITION, {"p": 1})]),
        (
            "DELETE FROM t WHERE p = 1 AND c > 2 AND c <= 5",
            [(FROM_EXCLUSIVE, {"p": 1, "c": 2}), (TO_INCLUSIVE, {"p": 1, "c": 5})],
        ),
        ("DELETE FROM t WHERE p = 1 AND c < 2", [(FROM_INCLUSIVE, {"p": 1}), (TO_EXCLUSIVE, {"p": 1, "c": 2})]),
        ("INSERT INTO t (p, c, v) VALUES (1, 2, 3) IF NOT EXISTS", [(INSERT, {"p": 1, "c": 2, "v": 3})]),
        ("UPDATE t SET v = 3 WHERE p = 1 AND c = 2 IF v = 9", []),
        ("BEGIN TRANSACTION UPDATE t SET v = 3 WHERE p = 1 AND c = 2; COMMIT TRANSACTION", [(UPDATE, {"p": 1, "c": 2, "v": 3})]),
        (
            "BEGIN BATCH UPDATE t SET v = 3 WHERE p = 1 AND c = 2; UPDATE t SET w = 4 WHERE p = 1 AND c = 2;"
            " DELETE FROM t WHERE p = 1 AND c = 1; APPLY BATCH",
            [(UPDATE, {"p": 1, "c": 2, "v": 3, "w": 4}), (DELETE_ROW, {"p": 1, "c": 1})],
        ),
    ],
)
def test_a_statement_makes_its_entries(fed, statement, expected):
    session = fed()
    session.execute(statement)
    rows = entries(session)
    # The driver has its own map and set types, which compare as Python's.
    assert told(rows) == expected
    assert len(groups(rows)) == (1 if expected else 0)


def test_lists_are_told_by_their_timeuuids(fed):
    session = fed(columns="p int PRIMARY KEY, l list<text>")
    session.execute("UPDATE t SET l = ['a', 'b', 'c'] WHERE p = 1")
    session.execute("UPDATE t SET l[1] = 'x' WHERE p = 1")
    session.execute("UPDATE t SET l = l - ['a'] WHERE p = 1")
    made, changed, removed = entries(session)
    keys = list(made["l"])
    assert list(made["l"].values()) == ["a", "b", "c"] and made["cdc$deleted_l"]
    assert dict(changed["l"]) == {keys[1]: "x"} and not changed["cdc$deleted_l"]
    assert set(removed["cdc$deleted_elements_l"]) == {keys[0]} and removed["l"] is None


def test_times_are_about_now_whatever_clients_say(fed):
    session = fed()
    hour = 3_600_000_000
    for number, away in enumerate([-hour, hour, 0]):
        stamp = time.time_ns() // 1_000 + away
        begun = time.time_ns() // 1_000
        session.execute(f"UPDATE t USING TIMESTAMP {stamp} SET v = {number} WHERE p = {number} AND c = 0")
        ended = time.time_ns() // 1_000
        (row,) = [row for row in entries(session) if row["p"] == number]
        assert begun - 500_000 <= micros(row["cdc$time"]) <= ended
        if away == 0:
            assert micros(row["cdc$time"]) == stamp
        written = session.execute(
            'SELECT WRITETIME(v) AS at FROM t_scylla_cdc_log WHERE "cdc$stream_id" = %s AND "cdc$time" = %s',
            (row["cdc$stream_id"], row["cdc$time"]),
        ).one()
        assert written.at == stamp


def test_what_is_written_whole_is_a_group_in_each_stream(fed):
    session = fed()
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(kind)
        for partition in range(50):
            batch.add(SimpleStatement(f"UPDATE t SET v = {partition} WHERE p = {partition} AND c = {kind.value}"))
        session.execute(batch)
    session.execute(f"UPDATE t SET s = 1 WHERE p IN ({', '.join(map(str, range(50)))})")
    rows = entries(session)
    assert sorted((row["p"], row["c"]) for row in rows if row["c"] is not None) == [(p, c) for p in range(50) for c in (0, 1)]
    # The logged batch; each partition of the others.
    assert len({row["cdc$time"] for row in rows}) == 1 + 50 + 50
    assert sum(map(len, groups(rows))) == 150


def test_entries_lie_with_their_partitions(fed):
    """A stream has the entries of the partitions of one range and one shard: the same partition, the same stream."""
    session = fed()
    for _ in range(3):
        for partition in range(100):
            session.execute(f"UPDATE t SET v = 1 WHERE p = {partition} AND c = 0")
    streams = {}
    for row in entries(session):
        streams.setdefault(row["p"], set()).add(row["cdc$stream_id"])
    assert len(streams) == 100 and all(len(of) == 1 for of in streams.values())


def test_images_show_rows_before_and_after(fed):
    session = fed(", 'preimage': true, 'postimage': true")
    session.execute("INSERT INTO t (p, c, v, m) VALUES (1, 2, 3, {'a': 1})")
    session.execute("UPDATE t SET v = 4, m['b'] = 2 WHERE p = 1 AND c = 2")
    session.execute("UPDATE t SET w = 5 WHERE p = 1 AND c = 2 IF v = 4")
    batch = "UPDATE t SET v = 6 WHERE p = 1 AND c = 2; UPDATE t SET v = 7 WHERE p = 2 AND c = 2;"
    session.execute(f"BEGIN BATCH {batch} APPLY BATCH")
    session.execute("BEGIN TRANSACTION UPDATE t SET v += 1 WHERE p = 1 AND c = 2; COMMIT TRANSACTION")
    session.execute("DELETE FROM t WHERE p = 1 AND c = 2")
    rows = [row for row in entries(session) if row["p"] == 1]
    images = [(operation, columns) for operation, columns in told(rows) if operation in (BEFORE, AFTER)]
    key = {"p": 1, "c": 2}
    maps = {"m": {"a": 1, "b": 2}}
    assert images == [
        (AFTER, {**key, "v": 3, "m": {"a": 1}}),
        (BEFORE, {**key, "v": 3, "m": {"a": 1}}),
        (AFTER, {**key, "v": 4, **maps}),
        (BEFORE, {**key, "cdc$deleted_w": True}),
        (AFTER, {**key, "v": 4, "w": 5, **maps}),
        (BEFORE, {**key, "v": 4}),
        (AFTER, {**key, "v": 6, "w": 5, **maps}),
        (BEFORE, {**key, "v": 6}),
        (AFTER, {**key, "v": 7, "w": 5, **maps}),
        (BEFORE, {**key, "v": 7, "w": 5, **maps}),
    ]


def test_nothing_is_told_of_truncate_and_while_the_feed_is_off(fed):
    session = fed()
    session.execute("INSERT INTO t (p, c) VALUES (1, 2)")
    session.execute("TRUNCATE t")
    session.execute("ALTER TABLE t WITH cdc = {'enabled': false}")
    session.execute("INSERT INTO t (p, c) VALUES (1, 3)")
    session.execute("ALTER TABLE t WITH cdc = {'enabled': true}")
    session.execute("INSERT INTO t (p, c) VALUES (1, 4)")
    assert [row["c"] for row in entries(session)] == [2, 4]


def test_columns_come_and_go_between_writes(fed):
    session = fed(columns="p int PRIMARY KEY, v int")
    write = session.prepare("UPDATE t SET v = ? WHERE p = 1")
    session.execute(write, [1])
    session.execute("ALTER TABLE t ADD x set<int>")
    session.execute(write, [2])
    session.execute("UPDATE t SET x = {7} WHERE p = 1")
    session.execute("ALTER TABLE t DROP v")
    session.execute("UPDATE t SET x = x + {8} WHERE p = 1")
    assert [(row.get("v"), row["x"] and set(row["x"])) for row in entries(session)] == [
        (None, None),
        (None, None),
        (None, {7}),
        (None, {8}),
    ]


def test_a_read_from_before_what_is_kept_is_an_error(fed):
    session = fed(", 'ttl': 1")
    begun = time.time()
    session.execute("INSERT INTO t (p, c) VALUES (1, 2)")
    (row,) = entries(session)
    select = session.prepare('SELECT p FROM t_scylla_cdc_log WHERE "cdc$stream_id" = ? AND "cdc$time" >= ?')
    stream = row["cdc$stream_id"]
    # Before the feed began there is nothing to miss.
    assert [it.p for it in session.execute(select, (stream, min_uuid_from_time(begun - 3_600)))] == [1]

    def is_refused():
        try:
            session.execute(select, (stream, min_uuid_from_time(begun)))
        except InvalidRequest as error:
            assert "was written since" in str(error)
            return True
        return False

    until("the first entry is too old", is_refused)
    with pytest.raises(InvalidRequest):
        session.execute(select, (stream, min_uuid_from_time(begun - 3_600)))
    assert not list(session.execute(select, (stream, max_uuid_from_time(time.time()))))
    until("it has expired", lambda: not entries(session))
    # What has expired does not come back with a longer time to live.
    session.execute("ALTER TABLE t WITH cdc = {'enabled': true, 'ttl': 600}")
    assert is_refused()


def test_every_acknowledged_write_is_in_the_feed_once_after_a_kill(measured):
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE t (p int, c int, v text, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true}")
            write = session.prepare("INSERT INTO t (p, c, v) VALUES (?, ?, ?)")
            write.consistency_level = ConsistencyLevel.ONE
            acknowledged = []

            def work(writer):
                for number in range(WRITES):
                    name = uuid.uuid4().hex
                    try:
                        session.execute(write, (writer, number, name))
                    except Exception:  # noqa: BLE001 - the node is gone
                        return
                    acknowledged.append((writer, number, name))

            with ThreadPoolExecutor(WRITERS) as pool:
                running = [pool.submit(work, writer) for writer in range(WRITERS)]
                until("writes are acknowledged", lambda: len(acknowledged) > WRITERS * WRITES // 4)
                node.process.kill()
                node.ended()
                for future in running:
                    future.result()
        kept = list(acknowledged)
        node.start()
        with driver_session(node) as session:
            rows = entries(session)
            groups(rows)
            fed = [(row["p"], row["c"], row["v"]) for row in rows]
            stored = {(row.p, row.c, row.v) for row in session.execute("SELECT p, c, v FROM t")}
            assert len(fed) == len(set(fed)), "an entry is there twice"
            assert set(kept) <= set(fed), "an acknowledged write is missing"
            # A write and its entry are one record of the log.
            assert set(fed) == stored
            measured(f"change feed after a kill: {len(kept)} acknowledged writes, {len(fed)} entries")
