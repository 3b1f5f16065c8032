"""The nearest vectors by an index are those that a scan of the table gives: nearly all of them, each with the vector that it has now, after
overwrites, deletions, flushes, compactions and restarts, with and without other restrictions.
"""

import math
import random

import pytest
from cassandra import InvalidRequest
from cassandra.concurrent import execute_concurrent_with_args
from cluster import until
from conftest import driver_session, new_node

DIMENSION = 16
ROWS = 6_000
PARTITIONS = 60
RECALL_MIN = 0.95


class Vectors:
    """Vectors around a few places, as those of texts are."""

    def __init__(self, seed):
        self.source = random.Random(seed)
        self.places = [self.around([0.0] * DIMENSION, 1.0) for _ in range(40)]

    def around(self, place, width):
        return [at + self.source.gauss(0, width) for at in place]

    def next(self):
        return self.around(self.source.choice(self.places), 0.3)


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def write(session, rows):
    insert = session.prepare("INSERT INTO k.t (p, c, v, tag) VALUES (?, ?, ?, ?)")
    execute_concurrent_with_args(session, insert, rows, concurrency=64)


def recall(session, vectors, model, condition, passes, limit):
    """The share of the nearest rows that searches find. Whatever they find is right and in order."""
    select = session.prepare(f"SELECT p, c, v, tag FROM k.t {condition} ORDER BY v ANN OF ? LIMIT {limit}")
    found, expected = 0, 0
    for _ in range(10):
        target = vectors.next()
        rows = [(row.p, row.c, list(row.v), row.tag) for row in session.execute(select, [target])]
        for p, c, vector, tag in rows:
            now, tag_now = model[p, c]
            assert tag == tag_now and passes(p, tag)
            assert all(abs(a - b) < 1e-6 for a, b in zip(vector, now)), "a vector that the row has no longer"
        near = [cosine(target, vector) for _, _, vector, _ in rows]
        assert all(a >= b - 1e-6 for a, b in zip(near, near[1:])), "the nearest come first"
        passing = [key for key, (_, tag) in model.items() if passes(key[0], tag)]
        best = sorted(passing, key=lambda key: -cosine(target, model[key][0]))[:limit]
        assert len(rows) == len(best), "as many as are wanted"
        found += len({(p, c) for p, c, _, _ in rows} & set(best))
        expected += len(best)
    return found / expected if expected else 1.0


def check(session, vectors, model):
    for condition, passes, limit in [
        ("", lambda p, tag: True, 10),
        ("", lambda p, tag: True, 200),
        ("WHERE tag = 1", lambda p, tag: tag == 1, 10),
        ("WHERE tag = 77", lambda p, tag: tag == 77, 10),
        ("WHERE p = 3", lambda p, tag: p == 3, 10),
        ("WHERE p = 3 AND tag = 2", lambda p, tag: p == 3 and tag == 2, 10),
    ]:
        share = recall(session, vectors, model, condition, passes, limit)
        assert share >= RECALL_MIN, f"{condition} LIMIT {limit}: {share}"


def test_the_nearest_are_those_of_a_scan():
    with new_node() as node:
        vectors, model = Vectors(7), {}
        with driver_session(node) as session:
            session.execute(f"CREATE TABLE k.t (p int, c int, v vector<float, {DIMENSION}>, tag int, PRIMARY KEY (p, c))")
            session.execute("CREATE CUSTOM INDEX of_v ON k.t (v) USING 'StorageAttachedIndex'")
            session.execute("CREATE INDEX of_tag ON k.t (tag) USING 'sai'")
            wait_until_built(session, vectors)

            def rows_of(numbers):
                rows = []
                for number in numbers:
                    tag = 77 if number % 1_000 == 0 else number % 4
                    vector = vectors.next()
                    model[number % PARTITIONS, number] = (vector, tag)
                    rows.append((number % PARTITIONS, number, vector, tag))
                return rows

            write(session, rows_of(range(ROWS)))
            check(session, vectors, model)
            node.administer("flush", keyspace="k", table="t")
            check(session, vectors, model)
            # A third is overwritten, and another part deleted.
            write(session, rows_of(range(0, ROWS, 3)))
            for p in range(0, PARTITIONS, 10):
                session.execute(f"DELETE FROM k.t WHERE p = {p}")
                for key in [key for key in model if key[0] == p]:
                    del model[key]
            delete = session.prepare("DELETE v FROM k.t WHERE p = ? AND c = ?")
            without = [key for key in model if key[1] % 7 == 0]
            execute_concurrent_with_args(session, delete, without, concurrency=64)
            for key in without:
                del model[key]
            check(session, vectors, model)
            node.administer("flush", keyspace="k", table="t")
            check(session, vectors, model)
        node.restart()
        with driver_session(node) as session:
            wait_until_built(session, vectors)
            check(session, vectors, model)
            node.administer("compact", keyspace="k", table="t")
            check(session, vectors, model)


def wait_until_built(session, vectors):
    select = session.prepare("SELECT p FROM k.t ORDER BY v ANN OF ? LIMIT 1")

    def is_built():
        session.execute(select, [vectors.next()])
        return True

    until("the index is built", is_built)


def test_vectors_that_no_search_could_find_are_refused():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (p int PRIMARY KEY, v vector<float, 2>)")
        session.execute("CREATE INDEX ON k.t (v) USING 'sai'")
        insert = session.prepare("INSERT INTO k.t (p, v) VALUES (1, ?)")
        for vector in [[0.0, 0.0], [math.nan, 1.0], [1.0, math.inf], [-math.inf, 1.0]]:
            with pytest.raises(InvalidRequest):
                session.execute(insert, [vector])
        session.execute(insert, [[1.0, 0.0]])
