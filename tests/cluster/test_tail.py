"""TAIL of `helenus shell` while nodes join a cluster of real processes: the changes of every generation of streams, once and in order."""

import json
import subprocess
import threading

from cluster import Cluster, until
from conftest import PROGRAM
from load import REPLICATED, Writer


class Tail(threading.Thread):
    """A TAIL that goes on until it is stopped; keeps the changes that it has shown."""

    def __init__(self, node, text):
        super().__init__(daemon=True)
        words = [PROGRAM, "shell", node.host, str(node.port), "--json", "-e", f"TAIL {text}"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.changes, self.complaints = [], []

    def run(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.changes.append(json.loads(line))
            else:
                self.complaints.append(line)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.join()


def test_a_tail_follows_the_streams_of_nodes_that_join(connect):
    with Cluster(2, PROGRAM) as cluster:
        session = connect(cluster)
        session.execute(REPLICATED)
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value text) WITH cdc = {'enabled': 'true'}")
        insert = session.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)")
        tail = Tail(cluster.nodes[0], "shop.items FROM 'beginning' WINDOW 4s")
        tail.start()
        writer = Writer(session, insert, 0)
        writer.start()
        query = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
        before = len(list(session.execute(query)))
        cluster.add()
        until("there is a new generation", lambda: len(list(session.execute(query))) > before)
        written = len(writer.acknowledged)
        until("it is written to", lambda: len(writer.acknowledged) > written + 500)
        writer.stop()
        acknowledged = set(writer.acknowledged)

        def all_shown():
            assert not tail.complaints, tail.complaints
            return acknowledged <= {change["key"]["id"] for change in list(tail.changes)}

        until("every acknowledged change is shown", all_shown)
        tail.stop()
        shown = [change["key"]["id"] for change in tail.changes]
        # Those that failed may be in it, but nothing is in it twice.
        assert len(shown) == len(set(shown)), [number for number in set(shown) if shown.count(number) > 1][:5]
        times = [change["time"] for change in tail.changes]
        assert times == sorted(times)
