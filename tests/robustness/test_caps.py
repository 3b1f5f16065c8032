"""Tables WITH cap, through a driver: exact beside a list that drops rows at once, over flushes, compactions and restarts."""

import random

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.protocol import ConfigurationException
from cassandra.query import SimpleStatement

from conftest import driver_session, new_node

CAP = 20
TABLE = f"CREATE TABLE t (p int, c int, v int, s int static, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC) AND cap = {CAP}"


class Kept:
    """The rows of each partition, newest first; what is behind the cap is dropped at once."""

    def __init__(self, cap):
        self.cap = cap
        self.partitions = {}

    def insert(self, p, c):
        rows = self.partitions.setdefault(p, set())
        rows.add(c)
        self.partitions[p] = set(sorted(rows, reverse=True)[: self.cap])

    def delete(self, p, first, last):
        self.partitions[p] = {c for c in self.partitions.get(p, ()) if not first <= c <= last}

    def of(self, p):
        return sorted(self.partitions.get(p, ()), reverse=True)


def check(session, kept, p):
    expected = kept.of(p)
    for page in (3, 5000):
        rows = session.execute(SimpleStatement(f"SELECT c FROM t WHERE p = {p}", fetch_size=page))
        assert [row.c for row in rows] == expected, (p, page)
    ascending = session.execute(f"SELECT c FROM t WHERE p = {p} ORDER BY c ASC")
    assert [row.c for row in ascending] == expected[::-1]
    if expected:
        middle = expected[len(expected) // 2]
        rows = session.execute(f"SELECT c FROM t WHERE p = {p} AND c <= {middle}")
        assert [row.c for row in rows] == [c for c in expected if c <= middle]
        assert session.execute(f"SELECT count(*) FROM t WHERE p = {p}").one()[0] == len(expected)
        missing = next(c for c in range(expected[-1] - 1, -2, -1) if c not in expected)
        assert session.execute(f"SELECT c FROM t WHERE p = {p} AND c = {missing}").one() is None


def test_a_partition_keeps_exactly_its_first_rows():
    chance = random.Random(7)
    with new_node() as node:
        kept = Kept(CAP)
        for round_number in range(4):
            with driver_session(node) as session:
                if round_number == 0:
                    session.execute(TABLE)
                    session.execute("INSERT INTO t (p, s) VALUES (0, 77)")
                insert = session.prepare("INSERT INTO t (p, c, v) VALUES (?, ?, ?)")
                delete = session.prepare("DELETE FROM t WHERE p = ? AND c = ?")
                cut = session.prepare("DELETE FROM t WHERE p = ? AND c >= ? AND c <= ?")
                for step in range(600):
                    p, c = chance.randrange(3), chance.randrange(200)
                    kind = chance.random()
                    if kind < 0.8:
                        session.execute(insert, (p, c, step))
                        kept.insert(p, c)
                    elif kind < 0.97:
                        c = chance.choice(kept.of(p) or [c])
                        session.execute(delete, (p, c))
                        kept.delete(p, c, c)
                    else:
                        session.execute(cut, (p, c, c + 15))
                        kept.delete(p, c, c + 15)
                    if step % 25 == 0:
                        check(session, kept, p)
                for p in range(3):
                    check(session, kept, p)
                assert session.execute("SELECT s FROM t WHERE p = 0").one().s == 77
                everything = {(row.p, row.c) for row in session.execute("SELECT p, c FROM t")}
                assert everything == {(p, c) for p in range(3) for c in kept.of(p)} | (set() if kept.of(0) else {(0, None)})
            if round_number % 2 == 0:
                node.administer("flush")
                node.administer("compact")
            else:
                node.restart()


def row_versions(node):
    return next(table for table in node.report("tablestats")["tables"] if table["table"] == "t")["row_versions"]


def test_compactions_drop_what_is_behind_the_cap():
    with new_node() as node, driver_session(node) as session:
        session.execute(TABLE)
        insert = session.prepare("INSERT INTO t (p, c, v) VALUES (1, ?, 0)")
        for c in range(5000):
            session.execute(insert, (c,))
        # Some of the inserts have had the partition trimmed. What has come since the last of them stays on disk.
        node.administer("flush")
        node.administer("compact")
        assert CAP <= row_versions(node) < 2500
        # A deletion carries the mark of its partition.
        session.execute("DELETE FROM t WHERE p = 1 AND c = 4999")
        node.administer("flush")
        node.administer("compact")
        # The tombstone of the row is a version, too.
        assert row_versions(node) <= CAP
        assert [row.c for row in session.execute("SELECT c FROM t WHERE p = 1")] == list(range(4998, 4998 - CAP + 1, -1))
        described = session.execute("DESCRIBE TABLE t").one().create_statement
        assert f"AND cap = {CAP}" in described, described


def test_a_raised_cap_brings_back_none_and_a_lowered_one_holds_at_once():
    with new_node() as node, driver_session(node) as session:
        session.execute(TABLE)
        for c in range(CAP + 10):
            session.execute(f"INSERT INTO t (p, c) VALUES (1, {c})")

        def rows():
            return [row.c for row in session.execute("SELECT c FROM t WHERE p = 1")]

        newest = list(range(CAP + 9, 9, -1))
        assert rows() == newest
        session.execute(f"ALTER TABLE t WITH cap = {2 * CAP}")
        assert rows() == newest
        session.execute("ALTER TABLE t WITH cap = 5")
        assert rows() == newest[:5]
        session.execute("ALTER TABLE t WITH cap = 10")
        assert rows() == newest[:5]
        for c in range(100, 120):
            session.execute(f"INSERT INTO t (p, c) VALUES (1, {c})")
        assert rows() == list(range(119, 109, -1))
        session.execute("DELETE FROM t WHERE p = 1 AND c = 119")
        assert rows() == list(range(118, 109, -1))


def test_batches_and_levels():
    with new_node() as node, driver_session(node) as session:
        session.execute(TABLE)
        session.execute("CREATE TABLE other (p int, c int, PRIMARY KEY (p, c))")
        inserts = "".join(f"INSERT INTO t (p, c) VALUES (1, {c});" for c in range(CAP + 5))
        session.execute(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
        newest = list(range(CAP + 4, 4, -1))
        batch = "BEGIN BATCH DELETE FROM t WHERE p = 1 AND c = 10; INSERT INTO other (p, c) VALUES (2, 2); APPLY BATCH"
        session.execute(batch)
        for level in (ConsistencyLevel.ONE, ConsistencyLevel.QUORUM, ConsistencyLevel.ALL, ConsistencyLevel.SERIAL):
            rows = session.execute(SimpleStatement("SELECT c FROM t WHERE p = 1", consistency_level=level))
            assert [row.c for row in rows] == [c for c in newest if c != 10], level
        assert session.execute("SELECT c FROM other WHERE p = 2").one().c == 2


def test_what_is_not_there_yet_is_refused():
    with new_node() as node, driver_session(node) as session:
        session.execute(TABLE)
        session.execute("CREATE TABLE plain (p int, c int, v int, PRIMARY KEY (p, c))")
        for text in (
            "INSERT INTO t (p, c) VALUES (1, 1) USING TTL 60",
            "INSERT INTO t (p, c) VALUES (1, 1) IF NOT EXISTS",
            "CREATE INDEX ON t (v)",
            "ALTER TABLE t DROP v",
            "BEGIN TRANSACTION SELECT v FROM t WHERE p = 1 AND c = 1; COMMIT TRANSACTION",
        ):
            with pytest.raises(InvalidRequest, match="with a cap"):
                session.execute(text)
        for text in ("ALTER TABLE t WITH cap = 0", "ALTER TABLE plain WITH cap = 5", "ALTER TABLE t WITH default_time_to_live = 9"):
            with pytest.raises(ConfigurationException, match="cap"):
                session.execute(text)
