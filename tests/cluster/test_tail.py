"""Readers of a change feed while nodes join a cluster of real processes: the changes of every generation of streams, once and in order."""

import json
import os
import subprocess
import threading

import pytest
from cluster import Cluster, until
from conftest import PROGRAM
from load import REPLICATED, Writer
from toolchain import ROOT, Missing, bring, need

# So that a node that joins need not wait long.
SETTINGS = {"cdc_generation_delay_ms": 6000}
GENERATIONS = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"


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
    with Cluster(2, PROGRAM, settings=SETTINGS) as cluster:
        session = connect(cluster)
        session.execute(REPLICATED)
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value text) WITH cdc = {'enabled': 'true'}")
        insert = session.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)")
        tail = Tail(cluster.nodes[0], "shop.items FROM 'beginning' WINDOW 5s")
        tail.start()
        writer = Writer(session, insert, 0)
        writer.start()
        before = len(list(session.execute(GENERATIONS)))
        cluster.add()
        until("there is a new generation", lambda: len(list(session.execute(GENERATIONS))) > before)
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


def test_an_unmodified_consumer_follows_the_streams_of_nodes_that_join(connect, tmp_path):
    consumer = tmp_path / "consumer.test"
    directory = ROOT / "tests/drivers/go-cdc"
    try:
        bring([need("go"), "test", "-c", "-o", consumer, "."], "go test -c", cwd=directory)
    except Missing as missing:
        pytest.skip(str(missing))
    with Cluster(2, PROGRAM, settings=SETTINGS) as cluster:
        session = connect(cluster)
        host, port = cluster.nodes[0].host, str(cluster.port)
        environment = {**os.environ, "CQL_HOST": host, "CQL_PORT": port, "CDC_WRITE_SECONDS": "40", "CDC_REPLICAS": "2"}
        process = subprocess.Popen(
            [consumer, "-test.v", "-test.run", "TestGenerationsAreFollowed"],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            name = "keyspace_name = 'suite_go_cdc' AND table_name = 'generations'"
            query = f"SELECT table_name FROM system_schema.tables WHERE {name}"
            until("it writes", lambda: session.execute(query).one() is not None)
            cluster.add()
            told, _ = process.communicate(timeout=180)
        finally:
            process.kill()
        assert process.returncode == 0, told[-5000:]
        assert "--- PASS: TestGenerationsAreFollowed" in told, told[-5000:]
