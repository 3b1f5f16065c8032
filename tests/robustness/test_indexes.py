"""Queries by indexes on one node give what filtering gives, in the same order: after any writes, flushes and compactions, on every page,
while an index is built, and with many rows.
"""

import random
import threading
import time
from pathlib import Path

import pytest
from at_work import at_work
from cassandra import InvalidRequest
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement
from cluster import Cluster, until
from conftest import driver_session, new_node
from twins import KINDS, agree, answer, change, create_indexes, make_twins, wait_until_built, without_index, write

COLUMNS = (
    "p1 int, p2 int, c1 int, c2 text, s int STATIC, v int, w text, u set<int>, m map<text, int>, f frozen<list<int>>, "
    "PRIMARY KEY ((p1, p2), c1, c2)"
)
# What is indexed of these columns, and a query that each index answers.
TARGETS = {
    "p2": "p2 = 1",
    "c1": "c1 = 1",
    "c2": "c2 = 'a'",
    "s": "s = 1",
    "v": "v = 1",
    "w": "w = 'one'",
    "u": "u CONTAINS 1",
    "keys(m)": "m CONTAINS KEY 'x'",
    "values(m)": "m CONTAINS 1",
    "entries(m)": "m['x'] = 1",
    "full(f)": "f = [1]",
}
SMALL = "p int, c int, s int STATIC, v int, w int, PRIMARY KEY (p, c)"
MANY = 10_000


# The model: random writes and random queries.


class Model:
    """Random statements about the tables of `COLUMNS`, the same for the same seed. Their timestamps grow."""

    def __init__(self, seed):
        self.source = random.Random(seed)
        self.timestamp = time.time_ns() // 1000 - 3600 * 1_000_000

    def literal(self, column):
        choose = self.source.randrange
        if column == "w":
            return f"'{self.source.choice(['one', 'One', 'two', 'tw', 'é', ''])}'"
        if column == "u":
            return "{" + ", ".join(str(value) for value in range(5) if choose(3) == 0) + "}"
        if column == "m":
            return "{" + ", ".join(f"'{key}': {choose(4)}" for key in "xyz" if choose(2)) + "}"
        if column == "f":
            return "[" + ", ".join(str(choose(3)) for _ in range(choose(3))) + "]"
        return str(choose(5) - 1)

    def partition(self):
        return f"p1 = {self.source.randrange(3)} AND p2 = {self.source.randrange(4)}"

    def row(self):
        return f"{self.partition()} AND c1 = {self.source.randrange(6)} AND c2 = '{self.source.choice('abc')}'"

    def set_row(self, columns, ttl=""):
        """An INSERT of a whole row."""
        choose = self.source.randrange
        key = f"{choose(3)}, {choose(4)}, {choose(6)}, '{self.source.choice('abc')}'"
        values = ", ".join(self.literal(column) for column in columns)
        names = ", ".join(columns)
        return f"INSERT INTO {{table}} (p1, p2, c1, c2, {names}) VALUES ({key}, {values}) USING {ttl}TIMESTAMP {self.timestamp}"

    def statement(self):
        """One statement, with `{table}` in it."""
        self.timestamp += 10
        at, choose = f"USING TIMESTAMP {self.timestamp}", self.source.randrange
        column = self.source.choice(["v", "w", "u", "m", "f"])
        low = choose(5)

        def update(assignment, where, ttl=""):
            return f"UPDATE {{table}} USING {ttl}TIMESTAMP {self.timestamp} SET {assignment} WHERE {where}"

        def key():
            return f"'{self.source.choice('xyz')}'"

        choices = [
            (12, lambda: self.set_row(["v", "w", "u", "m", "f"])),
            (3, lambda: self.set_row(["v", "w"], "TTL 1 AND ")),
            (12, lambda: update(f"{column} = {self.literal(column)}", self.row())),
            (2, lambda: update(f"{column} = {self.literal(column)}", self.row(), "TTL 1 AND ")),
            (4, lambda: update(f"s = {self.literal('s')}", self.partition())),
            (1, lambda: update(f"s = {self.literal('s')}", self.partition(), "TTL 1 AND ")),
            (3, lambda: update(f"u = u {self.source.choice('+-')} {{{choose(5)}}}", self.row())),
            (3, lambda: update(f"m[{key()}] = {choose(4)}", self.row())),
            (2, lambda: f"DELETE m[{key()}] FROM {{table}} {at} WHERE {self.row()}"),
            (3, lambda: f"DELETE {column} FROM {{table}} {at} WHERE {self.row()}"),
            (1, lambda: f"DELETE s FROM {{table}} {at} WHERE {self.partition()}"),
            (4, lambda: f"DELETE FROM {{table}} {at} WHERE {self.row()}"),
            (1, lambda: f"DELETE FROM {{table}} {at} WHERE {self.partition()} AND c1 = {low}"),
            (1, lambda: f"DELETE FROM {{table}} {at} WHERE {self.partition()} AND c1 > {low} AND c1 <= {low + 2}"),
            (1, lambda: f"DELETE FROM {{table}} {at} WHERE {self.partition()}"),
        ]
        weights = [weight for weight, _ in choices]
        return self.source.choices([make for _, make in choices], weights)[0]()

    def conditions(self):
        """Restrictions of each indexed column, without ranges."""
        choose = self.source.randrange
        key = self.source.choice("xyz")
        return {
            "p2": f"p2 = {choose(4)}",
            "c1": f"c1 = {choose(6)}",
            "c2": f"c2 = '{self.source.choice('abc')}'",
            "s": f"s = {self.literal('s')}",
            "v": f"v = {self.literal('v')}",
            "w": f"w = {self.literal('w')}",
            "u": f"u CONTAINS {choose(5)}",
            "keys(m)": f"m CONTAINS KEY '{key}'",
            "values(m)": f"m CONTAINS {choose(4)}",
            "entries(m)": f"m['{key}'] = {choose(4)}",
            "full(f)": f"f = {self.literal('f')}",
        }

    def ranges(self):
        low = self.source.randrange(-1, 3)
        return [
            f"v > {low}",
            f"v >= {low} AND v < {low + 2}",
            f"s <= {low}",
            f"s > {low} AND s <= {low + 1}",
            f"c1 >= {low} AND c1 < {low + 3}",
            f"c1 > {low + 2}",
        ]

    def queries(self, kind):
        """(condition, whether it is said with ALLOW FILTERING): of one restriction each, of several, and within a partition."""
        single = self.conditions()
        # A legacy index decides one restriction.
        is_legacy = kind == "legacy"
        found = [(condition, False) for condition in single.values()]
        if not is_legacy:
            found += [(condition, False) for condition in self.ranges()]
            found += [(f"{condition} AND {self.conditions()['w']}", False) for condition in self.ranges()]
        for count in (2, 2, 2, 3, 3, 4):
            chosen = self.source.sample(list(single.values()), count)
            found.append((" AND ".join(chosen), is_legacy))
        found.append((f"u CONTAINS {self.source.randrange(5)} AND u CONTAINS {self.source.randrange(5)}", is_legacy))
        found.append((f"{single['w']} AND v > {self.source.randrange(3)}", is_legacy))
        found.append((f"w > 'o' AND {single['v']}", True))
        found.append((f"v IN (0, {self.source.randrange(1, 4)})", True))
        found.append((f"p2 >= 2 AND {single['v']}", True))
        for target in ("s", "v", "w", "u", "entries(m)", "full(f)", "c2"):
            found.append((f"{self.partition()} AND {single[target]}", False))
        for target in ("s", "v", "values(m)"):
            low = self.source.randrange(4)
            found.append((f"{self.partition()} AND c1 >= {low} AND c1 < {low + 3} AND {single[target]}", is_legacy))
            found.append((f"{self.partition()} AND c1 = {low} AND {single[target]}", is_legacy))
        token = self.source.randrange(-(2**63), 2**63)
        found.append((f"token(p1, p2) > {token} AND {single['v']}", False))
        found.append((f"token(p1, p2) <= {token} AND {single['s']}", False))
        return found

    def rest(self):
        """Limits, mostly none."""
        number = self.source.randrange(1, 12)
        limits = [f"LIMIT {number}", f"PER PARTITION LIMIT {number % 4 + 1}", f"PER PARTITION LIMIT {number % 3 + 1} LIMIT {number}"]
        return self.source.choice(["", "", "", *limits])


def write_at_random(session, model, table, count):
    waiting = []
    for _ in range(count):
        text = model.statement()
        # With timestamps of their own they may arrive in any order.
        for name in (table, f"{table}_plain"):
            waiting.append(session.execute_async(text.replace("{table}", name)))
    for future in waiting:
        future.result()


def wait_until_expired(session):
    """Until everything that was written with a time to live of 1 s has expired: what was written after it has."""
    session.execute("INSERT INTO expiring (k) VALUES (1) USING TTL 1")
    until("it has expired", lambda: not list(session.execute("SELECT k FROM expiring")))


def check_at_random(session, model, kind, table):
    """Random queries; returns how many rows they found."""
    found = 0
    for condition, is_filtered in model.queries(kind):
        filtering = "ALLOW FILTERING" if is_filtered else ""
        rest, page_rows = model.rest(), model.source.choice([1, 2, 3, 7, 20, 5000])
        found += len(agree(session, table, condition, "*", rest, filtering, page_rows))
        if model.source.randrange(4) == 0:
            agree(session, table, condition, "count(*), min(v), max(c1)", "", filtering, page_rows)
    for condition in (f"s = {model.literal('s')}", f"p2 = {model.source.randrange(4)}"):
        agree(session, table, condition, "DISTINCT p1, p2, s", page_rows=2)
    return found


@pytest.mark.parametrize("kind, seed", [("legacy", 1), ("sai", 2), ("sai", 3)])
def test_random_writes_and_queries_agree_with_filtering(kind, seed):
    model, table, found = Model(seed), "t", 0
    with new_node() as node:
        with driver_session(node) as session:
            # Compactions remove what is deleted and expired.
            make_twins(session, table, COLUMNS, "WITH gc_grace_seconds = 0")
            session.execute("CREATE TABLE expiring (k int PRIMARY KEY)")
            create_indexes(session, table, TARGETS, kind)
        for number in range(12):
            with driver_session(node) as session:
                wait_until_built(session, table, TARGETS.values())
                for part in range(3):
                    write_at_random(session, model, table, 60)
                    if part < 2 and model.source.randrange(2):
                        node.administer("flush", keyspace="k", table=table)
                wait_until_expired(session)
                found += check_at_random(session, model, kind, table)
                action = ["flush", "compact", "restart", "index", "flush", "kill"][number % 6]
                if action in ("flush", "compact"):
                    node.administer(action, keyspace="k", table=table)
                    # An index that was built stays so.
                    found += check_at_random(session, model, kind, table)
                elif action == "index":
                    which = model.source.randrange(len(TARGETS))
                    session.execute(f"DROP INDEX {table}_{which}")
                    session.execute(f"CREATE INDEX {table}_{which} ON {table} ({list(TARGETS)[which]}){KINDS[kind]}")
            if action == "kill":
                Cluster.kill(node)
                node.start()
            elif action == "restart":
                node.restart()
    assert found > 1000, "the queries find something"


# What is created and dropped, and with which data.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_flushed", [False, True])
def test_an_index_of_a_table_with_data_is_built_dropped_and_created_again(node, session, kind, is_flushed):
    table = f"built_{kind}_{is_flushed}".lower()
    make_twins(session, table, COLUMNS)
    model = Model(3)
    write_at_random(session, model, table, 300)
    if is_flushed:
        node.administer("flush", keyspace="k", table=table)
        write_at_random(session, model, table, 300)
        node.administer("flush", keyspace="k", table=table)
    session.execute("CREATE TABLE IF NOT EXISTS expiring (k int PRIMARY KEY)")
    wait_until_expired(session)
    for _ in range(2):
        create_indexes(session, table, TARGETS, kind)
        wait_until_built(session, table, TARGETS.values())
        assert check_at_random(session, model, kind, table)
        for number in range(len(TARGETS)):
            session.execute(f"DROP INDEX {table}_{number}")
        with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
            session.execute(f"SELECT * FROM {table} WHERE v = 1")
        directory = table_directory(session, table)
        until("the files of the indexes are gone", lambda directory=directory: not index_files(node, directory))
        # What it misses while there is no index is in the next one.
        write_at_random(session, model, table, 50)
        wait_until_expired(session)


def table_directory(session, table):
    row = session.execute("SELECT id FROM system_schema.tables WHERE keyspace_name = 'k' AND table_name = %s", (table,)).one()
    return row.id.hex


def index_files(node, directory="*"):
    """The files of the indexes of all tables, or of one."""
    return sorted(Path(node.data_dir).glob(f"shard-*/tables/{directory}/*.index"))


def test_rows_written_while_an_index_is_built_are_found(node, session):
    make_twins(session, "busy", SMALL)
    write(session, "busy", "p, c, v", [(number % 50, number, number % 3) for number in range(3000)])
    node.administer("flush", keyspace="k", table="busy")
    stop, failures, last = threading.Event(), [], [3000]

    def go_on():
        try:
            while not stop.is_set():
                number = last[0]
                change(session, "busy", f"INSERT INTO {{table}} (p, c, v) VALUES ({number % 50}, {number}, 1)")
                change(session, "busy", f"UPDATE {{table}} SET v = 2 WHERE p = {number % 50} AND c = {number - 3000}")
                last[0] += 1
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        until("some are written", lambda: last[0] > 3050)
        create_indexes(session, "busy", ["v"])
        wait_until_built(session, "busy", ["v = 1"])
        built_at = last[0]
        until("some more are written", lambda: last[0] > built_at + 50)
    finally:
        stop.set()
        writer.join()
    assert not failures
    for value in range(3):
        agree(session, "busy", f"v = {value}", page_rows=333)


def test_a_node_that_is_killed_while_it_builds_an_index_goes_on():
    with new_node() as node:
        with driver_session(node) as session:
            make_twins(session, "t", SMALL)
            for part in range(3):
                write(session, "t", "p, c, v", [(n % 100, n, n % 7) for n in range(part, MANY, 3)])
                node.administer("flush", keyspace="k", table="t")
            create_indexes(session, "t", ["v"])
        Cluster.kill(node)
        node.start()
        with driver_session(node) as session:
            wait_until_built(session, "t", ["v = 3"])
            assert len(agree(session, "t", "v = 3", page_rows=100)) == len(range(3, MANY, 7))
            directory = table_directory(session, "t")
        directories = list(Path(node.data_dir).glob(f"shard-*/tables/{directory}"))
        until("each file has its index", lambda: not without_index(directories, 1))
        until("nothing unfinished is left", lambda: not list(Path(node.data_dir).rglob("*.index.tmp*")))


def test_an_indexed_column_is_not_dropped(session):
    make_twins(session, "kept", SMALL)
    session.execute("CREATE INDEX one ON kept (v) USING 'sai'")
    session.execute("CREATE INDEX two ON kept (v)")
    wait_until_built(session, "kept", ["v = 1"])
    with pytest.raises(InvalidRequest, match=r"Cannot drop column v because it has dependent secondary indexes \(one, two\)"):
        session.execute("ALTER TABLE kept DROP v")
    write(session, "kept", "p, c, v", [(1, 1, 1)])
    assert len(agree(session, "kept", "v = 1")) == 1
    # Another column may go, and come.
    session.execute("ALTER TABLE kept DROP w")
    session.execute("ALTER TABLE kept ADD x int")
    assert answer(session, "SELECT c FROM kept WHERE v = 1") == [(1,)]
    session.execute("DROP INDEX one")
    session.execute("DROP INDEX two")
    session.execute("ALTER TABLE kept DROP v")


def test_an_old_index_refuses_long_values(session):
    session.execute("CREATE TABLE long_values (p int PRIMARY KEY, b blob, other blob)")
    session.execute("CREATE INDEX long_index ON long_values (b)")
    message = r"Cannot index value of size 66560 for index long_index on k.long_values\(b\) \(maximum allowed size=65535\)"
    insert = "INSERT INTO long_values (p, b) VALUES (1, %s)"
    for text in (insert, f"{insert} IF NOT EXISTS", f"BEGIN BATCH {insert}; APPLY BATCH", f"BEGIN BATCH {insert} IF NOT EXISTS; APPLY BATCH"):
        with pytest.raises(InvalidRequest, match=message):
            session.execute(text, (b"\1" * 66_560,))
    session.execute("INSERT INTO long_values (p, other) VALUES (1, %s)", (b"\1" * 66_560,))
    assert answer(session, "SELECT p FROM long_values") == [(1,)]


def test_options_say_which_texts_are_equal(node, session):
    texts = {1: "Straße", 2: "STRASSE", 3: "cafe\u0301", 4: "caf\u00e9", 5: "CAF\u00c9", 6: "cafe", 7: "Cafe"}
    cases = {
        "'case_sensitive': 'false'": {"cafe": {6, 7}, "CAFE": {6, 7}, "CAF\u00c9": {4, 5}},
        "'normalize': 'true'": {"caf\u00e9": {3, 4}, "cafe\u0301": {3, 4}, "cafe": {6}},
        "'ascii': 'true'": {"cafe": {4, 6}, "caf\u00e9": {4, 6}},
        "'case_sensitive': 'false', 'normalize': 'true', 'ascii': 'true'": {"CAFE": {3, 4, 5, 6, 7}, "straße": {1, 2}},
        "'case_sensitive': 'true'": {"cafe": {6}, "Cafe": {7}},
    }
    for number, (options, expected) in enumerate(cases.items()):
        table = f"texts_{number}"
        session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, w text)")
        session.execute(f"CREATE CUSTOM INDEX ON {table} (w) USING 'StorageAttachedIndex' WITH OPTIONS = {{{options}}}")
        wait_until_built(session, table, ["w = 'cafe'"])
        for k, text in texts.items():
            # A mark that is a character of its own is a matter of `normalize`.
            if k == 3 and "normalize" not in options:
                continue
            session.execute(f"INSERT INTO {table} (k, w) VALUES (%s, %s)", (k, text))
        for _ in range(2):
            for text, keys in expected.items():
                found = {row.k for row in session.execute(f"SELECT k FROM {table} WHERE w = %s", (text,))}
                assert found == keys, (options, text)
            node.administer("flush", keyspace="k", table=table)


# Pages, limits, groups.


@pytest.fixture(scope="module")
def mixed(node, session):
    """Twins with indexes on s, v, w: partitions of 0 to 50 rows, some with a static value, in files and in the memtable."""
    make_twins(session, "mixed", SMALL)
    create_indexes(session, "mixed", ["s", "v", "w"])
    wait_until_built(session, "mixed", ["s = 1", "v = 1", "w = 1"])
    for part in range(3):
        write(session, "mixed", "p, s", [(p, p % 4) for p in range(40) if p % 5 and p % 3 == part])
        rows = [(p, c, (p + c) % 3, c % 4) for p in range(40) for c in range(p % 6 * 10) if (p + c) % 3 == part]
        write(session, "mixed", "p, c, v, w", rows)
        if part < 2:
            node.administer("flush", keyspace="k", table="mixed")
    return "mixed"


PAGES = [1, 7, 9, 10, 11, 5000]


@pytest.mark.parametrize("page_rows", PAGES)
def test_a_page_may_end_within_a_partition_with_a_static_column(session, mixed, page_rows):
    found = agree(session, mixed, "s = 1", "p, c, s, v", page_rows=page_rows)
    assert {s for _, _, s, _ in found} == {1}
    assert [c for p, c, _, _ in found if p == 17] == list(range(50))
    assert [c for p, c, _, _ in found if p == 7] == [], "it has another value"
    # A partition without rows is one row.
    write(session, mixed, "p, s", [(1000, 1)])
    assert (1000, None, 1, None) in agree(session, mixed, "s = 1", "p, c, s, v", page_rows=page_rows)
    agree(session, mixed, "s = 1 AND v = 1", page_rows=page_rows)
    agree(session, mixed, "s >= 1 AND s < 3 AND w = 2", page_rows=page_rows)
    agree(session, mixed, "p = 17 AND s = 1", page_rows=page_rows)
    agree(session, mixed, "p = 17 AND s = 1 AND v = 2 AND c >= 10 AND c < 40", page_rows=page_rows)


@pytest.mark.parametrize("page_rows", PAGES[1:])
@pytest.mark.parametrize("condition", ["v = 1", "s = 2", "v = 1 AND w = 2", "v >= 1", "s = 1 AND v > 0", "p = 11 AND v = 1"])
def test_limits_hold_over_pages(session, mixed, condition, page_rows):
    whole = agree(session, mixed, condition, page_rows=page_rows)
    assert len(whole) > 3
    for limit in (1, 2, 10, len(whole), len(whole) + 1):
        assert agree(session, mixed, condition, rest=f"LIMIT {limit}", page_rows=page_rows) == whole[:limit]
    for limit in (1, 2, 9):
        per = agree(session, mixed, condition, rest=f"PER PARTITION LIMIT {limit}", page_rows=page_rows)
        both = agree(session, mixed, condition, rest=f"PER PARTITION LIMIT {limit} LIMIT 7", page_rows=page_rows)
        assert both == per[:7]


@pytest.mark.parametrize("page_rows", [1, 3, 5000])
def test_distinct_names_each_partition_once(session, mixed, page_rows):
    found = agree(session, mixed, "s = 1", "DISTINCT p, s", page_rows=page_rows)
    assert {p for p, _ in found} - {1000} == {p for p in range(40) if p % 5 and p % 4 == 1}
    assert len(found) == len(set(found))
    agree(session, mixed, "s > 0", "DISTINCT p, s", page_rows=page_rows)
    agree(session, mixed, "s = 2", "DISTINCT p", "LIMIT 3", page_rows=page_rows)


@pytest.mark.parametrize("kind", KINDS)
def test_distinct_with_an_index_on_a_component_of_the_partition_key(node, session, kind):
    table = f"components_{kind}"
    make_twins(session, table, COLUMNS)
    create_indexes(session, table, ["p1", "p2", "s"], kind)
    wait_until_built(session, table, ["p1 = 1", "p2 = 1", "s = 1"])
    write(session, table, "p1, p2, c1, c2, v", [(n % 5, n % 7, n, "a", n) for n in range(700)])
    node.administer("flush", keyspace="k", table=table)
    write(session, table, "p1, p2, s", [(p1, 3, p1 % 2) for p1 in range(8)])
    filtering = "ALLOW FILTERING" if kind == "legacy" else ""
    for page_rows in (1, 2, 5000):
        found = agree(session, table, "p2 = 3", "DISTINCT p1, p2, s", page_rows=page_rows)
        assert len(found) == len(set(found)) == 8
        agree(session, table, "p1 = 4", "DISTINCT p1, p2", page_rows=page_rows)
        agree(session, table, "p2 = 3 AND s = 1", "DISTINCT p1, p2, s", filtering=filtering, page_rows=page_rows)
        agree(session, table, "p2 = 3", "p1, p2, c1, s", page_rows=page_rows * 10)
    change(session, table, "DELETE FROM {table} WHERE p1 = 2 AND p2 = 3")
    assert len(agree(session, table, "p2 = 3", "DISTINCT p1, p2, s")) == 7


@pytest.mark.parametrize("page_rows", [1, 10, 5000])
def test_aggregates_count_every_row_once(session, mixed, page_rows):
    for condition in ("v = 1", "v = 1 AND w = 2", "s = 1", "v > 0", "p = 17 AND v = 1", "v = 99"):
        [(count, *_)] = agree(session, mixed, condition, "count(*), sum(c), min(c), max(w)", page_rows=page_rows)
        rows = agree(session, mixed, condition, "p, c", page_rows=5000)
        assert count == len(rows), condition
        agree(session, mixed, condition, "p, count(*), max(c)", "GROUP BY p", page_rows=page_rows)
        agree(session, mixed, condition, "p, count(*)", "GROUP BY p LIMIT 3", page_rows=page_rows)


def test_a_paging_state_is_good_after_a_restart():
    with new_node() as node:
        with driver_session(node) as session:
            make_twins(session, "t", SMALL)
            create_indexes(session, "t", ["v", "s"])
            write(session, "t", "p, s", [(p, 1) for p in range(30)])
            write(session, "t", "p, c, v", [(n % 30, n, n % 2) for n in range(1500)])
            wait_until_built(session, "t", ["v = 1", "s = 1"])
            begun = {}
            for condition in ("v = 1", "s = 1"):
                text = f"SELECT p, c FROM t WHERE {condition}"
                page = session.execute(SimpleStatement(text, fetch_size=333))
                begun[text] = page.current_rows, page.paging_state
        node.restart()
        with driver_session(node) as session:
            wait_until_built(session, "t", ["v = 1", "s = 1"])
            for text, (before, state) in begun.items():
                after = list(session.execute(SimpleStatement(text, fetch_size=100), paging_state=state))
                assert before + after == list(session.execute(text))


# Many rows.


def test_one_value_with_many_rows(node, session):
    make_twins(session, "huge", SMALL)
    create_indexes(session, "huge", ["v"])
    wait_until_built(session, "huge", ["v = 7"])
    write(session, "huge", "p, c, v", [(n % 1000, n, 7) for n in range(MANY)])
    for _ in range(2):
        for page_rows in (333, 5000):
            assert len(agree(session, "huge", "v = 7", page_rows=page_rows)) == MANY
        assert agree(session, "huge", "v = 7", "count(*)", page_rows=1000) == [(MANY,)]
        assert len(agree(session, "huge", "p = 7 AND v = 7", page_rows=3)) == 10
        assert len(agree(session, "huge", "v = 7", rest="LIMIT 5")) == 5
        assert agree(session, "huge", "v = 8") == []
        node.administer("flush", keyspace="k", table="huge")


def test_one_value_with_many_rows_of_one_partition(node, session):
    make_twins(session, "tall", SMALL)
    create_indexes(session, "tall", ["v", "w"])
    wait_until_built(session, "tall", ["v = 7", "w = 1"])
    write(session, "tall", "p, c, v, w", [(1, n, 7, n % 100) for n in range(MANY)])
    for _ in range(2):
        assert len(agree(session, "tall", "v = 7", page_rows=500)) == MANY
        assert [row[1] for row in agree(session, "tall", "p = 1 AND v = 7 AND w = 3")] == list(range(3, MANY, 100))
        found = agree(session, "tall", "p = 1 AND c > 5000 AND v = 7", "c", page_rows=500)
        assert found == [(n,) for n in range(5001, MANY)]
        node.administer("flush", keyspace="k", table="tall")


@pytest.mark.parametrize("is_flushed", [False, True])
def test_many_values_and_a_range_over_all(node, session, is_flushed):
    table = f"wide_{is_flushed}".lower()
    make_twins(session, table, SMALL)
    create_indexes(session, table, ["v"])
    wait_until_built(session, table, ["v = 7"])
    write(session, table, "p, c, v", [(n % 1000, n, n * 3 - MANY) for n in range(MANY)])
    if is_flushed:
        node.administer("flush", keyspace="k", table=table)
    for page_rows in (333, 5000):
        assert len(agree(session, table, f"v >= {-MANY}", page_rows=page_rows)) == MANY
    some = [n for n in range(MANY) if -100 < n * 3 - MANY < 200]
    assert len(agree(session, table, "v > -100 AND v < 200", page_rows=10)) == len(some)
    assert len(agree(session, table, "v < -9990")) == 4
    assert agree(session, table, "v > 5 AND v < 5") == []
    assert agree(session, table, f"v > {-MANY - 1}", "count(*)", page_rows=1000) == [(MANY,)]
    assert len(agree(session, table, "v >= 2000 AND p = 8", page_rows=2)) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_among_many_that_were_deleted_or_changed(node, session, kind):
    table = f"thinned_{kind}"
    make_twins(session, table, SMALL)
    create_indexes(session, table, ["v", "s"], kind)
    wait_until_built(session, table, ["v = 1", "s = 1"])
    write(session, table, "p, s", [(p, 1) for p in range(20)])
    write(session, table, "p, c, v", [(n % 20, n, 1) for n in range(4000)])
    node.administer("flush", keyspace="k", table=table)
    keep = set(range(0, 4000, 399))
    gone = [n for n in range(4000) if n not in keep]
    for name in (table, f"{table}_plain"):
        for text, numbers in (
            (f"DELETE FROM {name} WHERE p = ? AND c = ?", gone[::3]),
            (f"DELETE v FROM {name} WHERE p = ? AND c = ?", gone[1::3]),
            (f"UPDATE {name} SET v = 2 WHERE p = ? AND c = ?", gone[2::3]),
        ):
            execute_concurrent_with_args(session, session.prepare(text), [(n % 20, n) for n in numbers], concurrency=64)
        for p in range(1, 20):
            session.execute(f"UPDATE {name} SET s = 2 WHERE p = {p}")
    for action in ("flush", "compact", "flush"):
        for page_rows in (1, 4, 5000):
            assert {row[1] for row in agree(session, table, "v = 1", page_rows=page_rows)} == keep
        assert len(agree(session, table, "v = 2", page_rows=100)) == len(gone[2::3])
        assert {row[0] for row in agree(session, table, "s = 1", page_rows=10)} == {0}
        agree(session, table, "p = 0 AND v = 1", page_rows=1)
        node.administer(action, keyspace="k", table=table)


def test_stable_rows_are_found_exactly_once_under_writes_and_compaction(node, session):
    """Rows of even `c` keep their value; the others get it and lose it while the index is read."""
    session.execute(f"CREATE TABLE restless ({SMALL})")
    create_indexes(session, "restless", ["v"])
    wait_until_built(session, "restless", ["v = 1"])
    insert = session.prepare("INSERT INTO restless (p, c, v, w) VALUES (?, ?, ?, ?)")
    stable = [(p, 2 * c) for p in range(50) for c in range(40)]
    execute_concurrent_with_args(session, insert, [(p, c, 1, 0) for p, c in stable], concurrency=64)
    delete = session.prepare("DELETE FROM restless WHERE p = ? AND c = ?")
    source = random.Random(5)

    def disturb():
        p, c = source.randrange(50), source.randrange(40)
        session.execute(insert, (p, 2 * c + 1, source.randrange(3), 1))
        session.execute(insert, (p, 2 * c, 1, source.randrange(9)))
        session.execute(delete, (p, 2 * source.randrange(40) + 1))

    def administer():
        for action in ("flush", "flush", "compact"):
            node.administer(action, keyspace="k", table="restless")

    with at_work(disturb, administer):
        for page_rows in (37, 500, 5000, 61, 333):
            found = answer(session, "SELECT p, c FROM restless WHERE v = 1", page_rows)
            assert len(found) == len(set(found))
            assert sorted(row for row in found if row[1] % 2 == 0) == stable


def keys_found(session, text):
    """The rows of a statement, and how many keys its indexes have found: a trace tells that."""
    result = session.execute(text, trace=True)
    rows = [row.p for row in result]
    events = [event.description for event in result.get_query_trace(max_wait_sec=10).events]
    return rows, sum(int(event.split()[1]) for event in events if event.endswith("keys by indexes"))


def test_a_query_looks_up_an_index_and_does_not_scan(session):
    """Of two restrictions the narrower one at least is looked up."""
    session.execute(f"CREATE TABLE looked_up ({SMALL})")
    create_indexes(session, "looked_up", ["v", "w"])
    wait_until_built(session, "looked_up", ["v = 1", "w = 1"])
    insert = session.prepare("INSERT INTO looked_up (p, c, v, w) VALUES (?, ?, ?, ?)")
    execute_concurrent_with_args(session, insert, [(p, 0, p // 3, p % 2) for p in range(300)], concurrency=64)
    for condition in ("v = 7", "v = 7 AND w = 1", "w = 1 AND v = 7"):
        rows, found = keys_found(session, f"SELECT p FROM looked_up WHERE {condition}")
        assert set(rows) == ({21, 23} if "w" in condition else {21, 22, 23})
        assert len(rows) <= found <= 3


@pytest.mark.parametrize("is_flushed", [False, True])
def test_restrictions_of_which_each_has_many_rows_are_looked_up_together(node, session, is_flushed):
    """Nothing else is read than the few rows that have both values, wherever the columns of a row lie."""
    table = f"met_{is_flushed}".lower()
    make_twins(session, table, SMALL)
    create_indexes(session, table, ["v", "w", "s"])
    wait_until_built(session, table, ["v = 1", "w = 1", "s = 1"])
    write(session, table, "p, c, v", [(p, 0, p % 20) for p in range(2000)])
    if is_flushed:
        node.administer("flush", keyspace="k", table=table)
    write(session, table, "p, c, w", [(p, 0, p % 19) for p in range(2000)])
    write(session, table, "p, s", [(p, p % 3) for p in range(2000)])
    if is_flushed:
        node.administer("flush", keyspace="k", table=table)
    both = [p for p in range(2000) if p % 20 == 7 and p % 19 == 5]
    rows, found = keys_found(session, f"SELECT p FROM {table} WHERE v = 7 AND w = 5")
    assert sorted(rows) == both and found == len(both) == 5
    for condition in ("v = 7 AND w = 5", "v = 7 AND w = 5 AND s = 1", "v = 7 AND s = 1", "v > 4 AND v < 9 AND w = 5"):
        for page_rows in (1, 7, 5000):
            assert agree(session, table, condition, page_rows=page_rows)
    agree(session, table, "v IN (7, 8, 9) AND w IN (5, 6)", page_rows=3, filtering="ALLOW FILTERING")
