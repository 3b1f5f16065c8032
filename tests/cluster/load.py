"""What the tests write, and how they check that nothing acknowledged is lost."""

import threading

from cassandra import OperationTimedOut, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable

REPLICATED = "CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 3}"
# The exit status of a node that is no member any more.
REMOVED = 3
FAILURES = (Unavailable, WriteTimeout, OperationTimedOut, NoHostAvailable)


def make_table(session):
    session.execute(REPLICATED)
    session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value text)")
    return session.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)")


def write(session, insert, numbers):
    for number in numbers:
        session.execute(insert, (number, f"value {number}"))


def check(session, count):
    rows = {row.id: row.value for row in session.execute("SELECT id, value FROM shop.items")}
    wrong = [number for number in range(count) if rows.get(number) != f"value {number}"]
    assert not wrong, f"{len(wrong)} of {count} are missing or wrong, e.g. {wrong[:5]}"


class Writer(threading.Thread):
    """Writes one row after the other until it is stopped; remembers what was acknowledged."""

    def __init__(self, session, insert, first):
        super().__init__(daemon=True)
        self.session, self.insert, self.next = session, insert, first
        self.acknowledged, self.failures, self.stopping = [], [], threading.Event()

    def run(self):
        while not self.stopping.is_set():
            try:
                self.session.execute(self.insert, (self.next, f"value {self.next}"))
                self.acknowledged.append(self.next)
            except FAILURES as failure:
                self.failures.append(failure)
            self.next += 1

    def stop(self):
        self.stopping.set()
        self.join()

    def check(self):
        rows = {row.id for row in self.session.execute("SELECT id FROM shop.items")}
        missing = [number for number in self.acknowledged if number not in rows]
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged are lost, e.g. {missing[:5]}"
