"""Queries by indexes in a cluster of real processes: at every level, with a replica that has missed changes, while ranges change hands, and
after a repair. They give what filtering gives on a twin without indexes (`shop.items_plain`) that gets the same statements."""

import threading

import pytest
from cassandra import ConsistencyLevel, ReadFailure, ReadTimeout
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import PROGRAM
from load import FAILURES, REMOVED, REPLICATED, Writer
from test_repair import NO_HINTS, down, up

ALL, ONE, QUORUM = ConsistencyLevel.ALL, ConsistencyLevel.ONE, ConsistencyLevel.QUORUM
TWINS = ("shop.items", "shop.items_plain")
CONDITIONS = ["v = 1", "w = 2", "s = 1", "v = 1 AND w = 2", "v > 0", "v >= 1 AND w < 2 AND s = 1", "tags CONTAINS 3", "p = 7 AND v = 1"]
FEW = [condition for condition in CONDITIONS if " AND " not in condition and ">" not in condition]
KINDS = {"legacy": "", "sai": " USING 'sai'"}


def make_twins(session, options=""):
    session.execute(REPLICATED)
    for table in TWINS:
        session.execute(f"CREATE TABLE {table} (p int, c int, s int STATIC, v int, w int, tags set<int>, PRIMARY KEY (p, c)) {options}")


def create_indexes(session, kind="sai"):
    for column in ("v", "w", "s", "tags"):
        session.execute(f"CREATE INDEX items_{column} ON shop.items ({column}){KINDS[kind]}")


def fill(session, count=600):
    """Writes rows into both twins, at the level of the session."""
    for table in TWINS:
        insert = session.prepare(f"INSERT INTO {table} (p, c, s, v, w, tags) VALUES (?, ?, ?, ?, ?, ?)")
        rows = [(n % 50, n, n % 50 % 3, n // 50 % 3, n % 4, {n % 5, n % 3}) for n in range(count)]
        execute_concurrent_with_args(session, insert, rows, concurrency=32)


def change(session, text):
    for table in TWINS:
        session.execute(text.replace("{table}", table))


def answer(session, text, level, page_rows=5000):
    """The rows of a statement, over all its pages."""
    found = session.execute(SimpleStatement(text, fetch_size=page_rows, consistency_level=level))
    return [(*row[:-1], tuple(row[-1] or ())) for row in found]


def wait_until_built(session, level=ALL, conditions=CONDITIONS):
    """Until then the queries fail: whether an index is built is not to be seen otherwise."""
    for condition in conditions:
        text = f"SELECT p, c, s, v, w, tags FROM shop.items WHERE {condition}"
        until(f"the index for {condition} is built", lambda text=text: answer(session, text, level) is not None)


def agree(session, condition, level, page_rows=50, rest="", filtering=""):
    """Asserts that a query by index gives what filtering gives on the twin; returns its rows."""
    columns = "p, c, s, v, w, tags"
    expected = answer(session, f"SELECT {columns} FROM shop.items_plain WHERE {condition} {rest} ALLOW FILTERING", level)
    text = f"SELECT {columns} FROM shop.items WHERE {condition} {rest} {filtering}"
    found = answer(session, text, level, page_rows)
    if found != expected:
        lost, surplus = sorted(set(expected) - set(found), key=repr), sorted(set(found) - set(expected), key=repr)
        raise AssertionError(
            f"{text} by pages of {page_rows}: {len(found)} rows of {len(expected)}, "
            f"lost {len(lost)}, e.g. {lost[:3]}, surplus {len(surplus)}, e.g. {surplus[:3]}"
        )
    return found


def rows_found(session, condition, level=QUORUM):
    """(p, c) of the rows that an index finds."""
    return {row[:2] for row in answer(session, f"SELECT p, c, tags FROM shop.items WHERE {condition}", level)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_level_at_every_node_finds_what_filtering_finds(three_nodes, connect, kind):
    first = connect(three_nodes, only=three_nodes.nodes[0], consistency=ALL)
    make_twins(first)
    fill(first, 300)
    create_indexes(first, kind)
    fill(first)
    change(first, "DELETE FROM {table} WHERE p = 3 AND c > 100")
    change(first, "UPDATE {table} SET v = 2 WHERE p = 4 AND c = 54")
    conditions, filtering = (FEW, "") if kind == "legacy" else (CONDITIONS, "")
    wait_until_built(first, conditions=conditions)
    if kind == "legacy":
        conditions, filtering = CONDITIONS, "ALLOW FILTERING"
    for number, node in enumerate(three_nodes.nodes):
        session = connect(three_nodes, only=node)
        for level in (ONE, QUORUM, ALL):
            for condition in conditions:
                assert agree(session, condition, level, 50, filtering=filtering)
                agree(session, condition, level, 7, "PER PARTITION LIMIT 2 LIMIT 30", filtering)
            text = "SELECT count(*) FROM {} WHERE v = 1 ALLOW FILTERING"
            counts = [session.execute(SimpleStatement(text.format(table), consistency_level=level)).one().count for table in TWINS]
            assert counts[0] == counts[1] > 0
        if number == 1:
            # The rest reads from files.
            for other in three_nodes.nodes:
                other.administer("flush")


# Hints that are delivered at once would hide what is tested, and so would the repairs of reads.
@pytest.mark.parametrize("has_hints", [False, True])
def test_a_node_that_missed_changes_neither_brings_back_nor_hides_a_row(connect, has_hints):
    settings = {"automatic_repair": False} if has_hints else NO_HINTS
    with Cluster(3, PROGRAM, settings=settings) as cluster:
        first, second, third = cluster.nodes
        session = connect(cluster, only=first, consistency=ALL)
        make_twins(session, "WITH read_repair = 'NONE'")
        create_indexes(session)
        fill(session)
        wait_until_built(session)
        down(cluster, third)
        behind = connect(cluster, only=first)
        wait_until_built(behind, QUORUM, ["v = 1"])
        for p in range(0, 50, 2):
            # To a value, from a value, and away in several ways.
            change(behind, f"UPDATE {{table}} SET v = 1 WHERE p = {p} AND c = {p}")
            change(behind, f"UPDATE {{table}} SET v = 5 WHERE p = {p} AND c = {p + 50}")
            change(behind, f"UPDATE {{table}} SET w = 2, tags = tags + {{3}} WHERE p = {p} AND c = {p + 100}")
            change(behind, f"UPDATE {{table}} SET tags = tags - {{3}} WHERE p = {p} AND c = {p + 150}")
            change(behind, f"DELETE v FROM {{table}} WHERE p = {p} AND c = {p + 200}")
            change(behind, f"DELETE FROM {{table}} WHERE p = {p} AND c = {p + 350}")
            change(behind, f"INSERT INTO {{table}} (p, c, v, w, tags) VALUES ({p}, {p + 1000}, 1, 2, {{3}})")
            change(behind, f"UPDATE {{table}} SET s = {(p + 1) % 3} WHERE p = {p}")
        for p in (1, 7, 13):
            change(behind, f"DELETE FROM {{table}} WHERE p = {p} AND c < {p + 200}")
        change(behind, "DELETE FROM {table} WHERE p = 19")
        for condition in CONDITIONS:
            assert agree(behind, condition, QUORUM)
        third.start()
        # With hints: before, while and after they are delivered.
        stale = connect(cluster, only=third)
        until("its indexes are built", lambda: rows_found(stale, "v = 1"))
        for session in (stale, connect(cluster, only=second), behind):
            for condition in CONDITIONS:
                for page_rows in (7, 5000):
                    assert agree(session, condition, QUORUM, page_rows)
                agree(session, condition, QUORUM, 3, "LIMIT 20")
                agree(session, condition, QUORUM, 3, "PER PARTITION LIMIT 1")
            assert agree(session, "v = 5", QUORUM)
        up_again = connect(cluster, only=third, consistency=ONE)
        if has_hints:
            expected = rows_found(behind, "v = 1")
            until("the hints are delivered", lambda: rows_found(up_again, "v = 1", ONE) == expected)
        else:
            assert not rows_found(up_again, "v = 5", ONE), "the node has missed the changes, or this tests nothing"
        # Every quorum has the stale node in it now.
        down(cluster, first)
        for session in (stale, connect(cluster, only=second)):
            for condition in [*CONDITIONS, "v = 5"]:
                for page_rows in (7, 5000):
                    assert agree(session, condition, QUORUM, page_rows)
                agree(session, condition, QUORUM, 3, "LIMIT 20")


def test_columns_that_were_written_to_different_replicas_are_found_together(connect):
    """No replica that is asked has a row that matches, and together they do; or one has, and together they do not."""
    with Cluster(3, PROGRAM, settings=NO_HINTS) as cluster:
        first, second, third = cluster.nodes
        session = connect(cluster, only=first, consistency=ALL)
        make_twins(session, "WITH read_repair = 'NONE'")
        create_indexes(session)
        # A replica that has a cell of a row has the key of the row, too.
        session.execute("CREATE INDEX items_c ON shop.items (c) USING 'sai'")
        wait_until_built(session, conditions=[*CONDITIONS, "c = 1"])
        for p in range(20):
            # Those with an odd p match until they are changed.
            change(session, f"INSERT INTO {{table}} (p, c, s, v, w, tags) VALUES ({p}, 1, 0, {p % 2 * 8}, {p % 2 * 9}, {{}})")
        session = connect(cluster, only=first)
        down(cluster, third)
        for p in range(20):
            change(session, f"UPDATE {{table}} SET v = {8 - p % 2 * 8} WHERE p = {p} AND c = 1")
            change(session, f"UPDATE {{table}} SET s = 6 WHERE p = {p}")
        up(cluster, third)
        down(cluster, second)
        for p in range(0, 20, 2):
            change(session, f"UPDATE {{table}} SET w = 9, tags = {{4}} WHERE p = {p} AND c = 1")
        up(cluster, second)
        down(cluster, first)
        expected = {(p, 1) for p in range(0, 20, 2)}
        for node in (second, third):
            session = connect(cluster, only=node)
            conditions = ["v = 8 AND w = 9", "v = 8 AND tags CONTAINS 4", "s = 6 AND w = 9 AND v = 8", "v > 7 AND w > 8"]
            for condition in [*conditions, "c = 1 AND v = 8", "c = 1 AND s = 6 AND v = 8 AND w = 9"]:
                until("the indexes are built", lambda session=session, condition=condition: rows_found(session, condition) is not None)
                assert rows_found(session, condition) == expected, condition
                for page_rows in (1, 5000):
                    agree(session, condition, QUORUM, page_rows)
                agree(session, condition, QUORUM, 1, "LIMIT 3")
            agree(session, "p = 4 AND v = 8 AND w = 9", QUORUM)


class Reader(threading.Thread):
    """Reads by an index until it is stopped; remembers what was acknowledged before a read, and was not in it."""

    def __init__(self, session, writer):
        super().__init__(daemon=True)
        self.session, self.writer, self.stopping = session, writer, threading.Event()
        self.reads, self.wrong, self.failures = 0, [], []

    def run(self):
        while not self.stopping.is_set():
            before = list(self.writer.acknowledged)
            try:
                found = [row.id for row in self.session.execute("SELECT id FROM shop.busy WHERE kind = 7")]
            except (*FAILURES, ReadFailure, ReadTimeout) as failure:
                self.failures.append(failure)
                continue
            missing = set(before) - set(found)
            if missing or len(found) != len(set(found)):
                self.wrong.append((sorted(missing)[:5], len(missing), len(found) - len(set(found))))
            self.reads += 1

    def stop(self):
        self.stopping.set()
        self.join()

    def check(self):
        assert not self.wrong, f"(some of the missing, how many, how many twice) of {len(self.wrong)} reads of {self.reads}: {self.wrong[:3]}"

    def wait_for_reads(self, count=3):
        wanted = self.reads + count
        until(f"there are more reads (failures: {self.failures[-2:]})", lambda: self.reads >= wanted)


def test_a_join_and_a_decommission_hide_no_acknowledged_row(connect):
    # So slow that reads and writes meet every step.
    with Cluster(3, PROGRAM, settings={"stream_throughput_bytes_per_second": 1 << 20}) as cluster:
        session = connect(cluster, only=cluster.nodes[0])
        session.execute(REPLICATED)
        session.execute("CREATE TABLE shop.busy (id int PRIMARY KEY, value text, kind int)")
        session.execute("CREATE INDEX busy_kind ON shop.busy (kind) USING 'sai'")
        insert = session.prepare("INSERT INTO shop.busy (id, value, kind) VALUES (?, ?, 7)")
        execute_concurrent_with_args(session, insert, [(n, f"value {n}") for n in range(1000)], concurrency=32)
        other = session.prepare("INSERT INTO shop.busy (id, value, kind) VALUES (?, ?, 8)")
        execute_concurrent_with_args(session, other, [(-n, "x" * 2000) for n in range(1, 1000)], concurrency=32)
        cluster.nodes[1].administer("flush")
        query = "SELECT id FROM shop.busy WHERE kind = 7"
        until("the index is built", lambda: len(list(session.execute(query))) == 1000)
        writer = Writer(connect(cluster, only=cluster.nodes[1]), insert, 10_000)
        writer.acknowledged += range(1000)
        readers = [Reader(connect(cluster, only=node), writer) for node in (cluster.nodes[0], cluster.nodes[2])]
        for thread in (writer, *readers):
            thread.start()
        readers[0].wait_for_reads()
        fourth = cluster.add()
        readers.append(Reader(connect(cluster, only=fourth), writer))
        readers[-1].start()
        for reader in readers:
            reader.wait_for_reads()
        written = len(writer.acknowledged)
        until("there are more writes", lambda: len(writer.acknowledged) > written + 20)
        # One of the first members goes: its ranges are those of all others now.
        leaving = readers.pop(1)
        leaving.stop()
        leaving.check()
        cluster.nodes[2].administer("decommission")
        assert cluster.nodes[2].ended() == REMOVED
        for reader in readers:
            reader.wait_for_reads()
        for thread in (writer, *readers):
            thread.stop()
        for reader in readers:
            reader.check()
        for node in (cluster.nodes[0], cluster.nodes[1], fourth):
            own = connect(cluster, only=node, consistency=QUORUM)
            found = [row.id for row in own.execute(SimpleStatement(query, fetch_size=500))]
            assert len(found) == len(set(found)) and not set(writer.acknowledged) - set(found)
            everything = {row.id for row in own.execute("SELECT id, kind FROM shop.busy") if row.kind == 7}
            assert set(found) == everything
        assert len(list(session.execute("SELECT id FROM shop.busy WHERE kind = 8"))) == 999


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_that_was_created_while_a_node_was_down_is_built_there_too(three_nodes, connect, kind):
    nodes = three_nodes.nodes
    session = connect(three_nodes, only=nodes[0], consistency=ALL)
    make_twins(session)
    fill(session)
    for node in nodes:
        node.administer("flush")
    down(three_nodes, nodes[2])
    session = connect(three_nodes, only=nodes[0])
    # The driver would wait until the node that is down has the schema too, after each change of it.
    session.cluster.max_schema_agreement_wait = 0
    create_indexes(session, kind)
    wait_until_built(session, QUORUM, FEW)
    for condition in FEW:
        assert agree(session, condition, QUORUM)
    up(three_nodes, nodes[2])
    alone = connect(three_nodes, only=nodes[2], consistency=ONE)
    # At ONE another replica may answer: only at ALL does this node have to.
    wait_until_built(alone, ALL, FEW)
    for condition in FEW:
        assert agree(alone, condition, ONE)
        assert agree(alone, condition, ALL)
    fill(alone, 700)
    until("it has the new rows", lambda: all(agree(alone, condition, ONE) for condition in FEW))
    # The other way round: what was dropped meanwhile is gone there.
    down(three_nodes, nodes[2])
    session.execute("DROP INDEX shop.items_v")
    up(three_nodes, nodes[2])
    again = connect(three_nodes, only=nodes[2], consistency=ONE)

    def names():
        return {row.index_name for row in again.execute("SELECT index_name FROM system_schema.indexes WHERE keyspace_name = 'shop'")}

    until("it knows", lambda: names() == {"items_w", "items_s", "items_tags"})
    wait_until_built(again, ONE, ["w = 2"])
    agree(again, "w = 2", QUORUM)


def test_rows_that_a_repair_brings_are_found_by_the_index(connect):
    with Cluster(3, PROGRAM, settings=NO_HINTS) as cluster:
        first, _, third = cluster.nodes
        session = connect(cluster, only=first, consistency=ALL)
        make_twins(session)
        create_indexes(session)
        fill(session, 100)
        wait_until_built(session)
        down(cluster, third)
        session = connect(cluster, only=first)
        fill(session)
        change(session, "DELETE FROM {table} WHERE p = 3")
        for p in range(10, 20):
            change(session, f"UPDATE {{table}} SET v = 9 WHERE p = {p} AND c = {p}")
        up(cluster, third)
        alone = connect(cluster, only=third, consistency=ONE)
        wait_until_built(alone, ONE)
        assert rows_found(alone, "v = 9", ONE) == set(), "it has missed them, or this tests nothing"
        code, text = third.admin("repair", "shop")
        assert code == 0 and text.startswith("repaired: "), text
        # What is streamed as files may have to be indexed first.
        wait_until_built(alone, ONE)
        assert rows_found(alone, "v = 9", ONE) == {(p, p) for p in range(10, 20)}
        for condition in CONDITIONS:
            assert agree(alone, condition, ONE) == agree(session, condition, QUORUM)
        third.administer("compact")
        for condition in CONDITIONS:
            assert agree(alone, condition, ONE)
