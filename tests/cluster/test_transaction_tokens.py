"""Transactions with tokens on three nodes: clients that send again until they have an answer count exactly, while nodes are killed and paused."""

import threading
import uuid

from cassandra import OperationTimedOut, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage
from cluster import until
from load import REPLICATED

CLIENTS = 4
# `ErrorMessage`: also "CAS_WRITE_UNKNOWN", and what a node answers that is about to stop.
FAILURES = (Unavailable, WriteTimeout, OperationTimedOut, NoHostAvailable, ConnectionException, ErrorMessage)
INCREMENT = (
    "BEGIN TRANSACTION USING TOKEN ?"
    " LET row = (SELECT n FROM shop.tokens WHERE k = ?);"
    " SELECT row.n;"
    " UPDATE shop.tokens SET n += 1 WHERE k = ?;"
    " COMMIT TRANSACTION"
)


class Client(threading.Thread):
    """Adds one after the other to a number, each with a token, and sends each again until it is answered."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session, self.increment = session, session.prepare(INCREMENT)
        self.seen, self.repeats, self.stopping = [], 0, threading.Event()

    def run(self):
        while not self.stopping.is_set():
            token = uuid.uuid4()
            while True:
                try:
                    self.seen.append(self.session.execute(self.increment, (token, 1, 1)).one()[0])
                    break
                except FAILURES:
                    self.repeats += 1
                    self.stopping.wait(0.1)


def test_nothing_is_lost_or_doubled_while_nodes_fail(three_nodes, connect):
    nodes = three_nodes.nodes
    session = connect(three_nodes)
    session.execute(REPLICATED)
    session.execute("CREATE TABLE shop.tokens (k int PRIMARY KEY, n int)")
    session.execute("INSERT INTO shop.tokens (k, n) VALUES (1, 0)")
    clients = [Client(connect(three_nodes)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()

    def answered():
        return sum(len(client.seen) for client in clients)

    def go_on(what):
        before = answered()
        until(what, lambda: answered() >= before + 50)

    go_on("increments are answered")
    for node in nodes[1:]:
        three_nodes.kill(node)
        go_on("increments go on with two nodes")
        node.start()
        go_on("increments go on with all nodes")
    three_nodes.pause(nodes[1])
    go_on("increments go on while a node is paused")
    three_nodes.resume(nodes[1])
    go_on("increments go on when it is resumed")
    for client in clients:
        client.stopping.set()
    for client in clients:
        client.join()
    seen = sorted(n for client in clients for n in client.seen)
    assert seen == list(range(len(seen)))
    assert session.execute("SELECT n FROM shop.tokens WHERE k = 1").one().n == len(seen)
