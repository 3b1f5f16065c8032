"""Several Helenus nodes as processes of one cluster, each on a loopback address of its own (127.0.0.1, 127.0.0.2, …).

Invariants: all nodes serve CQL on the same port of their addresses (clients that read `system.peers` assume it); nodes that
were started are stopped, killed ones reaped and stopped ones continued, when the `with` block ends.
"""

import signal
import threading
import time

from node import Node, NodeError, binary, free_port

DEADLINE_SECONDS = 90


def until(what, condition, seconds=DEADLINE_SECONDS):
    """Waits for a condition and returns what it gave; what it last raised is told when it never holds."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            found = condition()
            if found:
                return found
        except Exception as error:  # noqa: BLE001 - whatever a node or a driver says meanwhile is "not yet"
            last = error
        time.sleep(0.1)
    raise NodeError(f"{what}: not within {seconds} s (last: {last!r})")


class Cluster:
    """Nodes with the addresses 127.0.0.1 … ; the first is everybody's seed."""

    most_nodes = 8

    def __init__(self, count, program=None, commit_log="group", shards=1, settings=None):
        self.program, self.commit_log, self.shards = binary(program), commit_log, shards
        self.settings = settings or {}
        addresses = [f"127.0.0.{number}" for number in range(1, self.most_nodes + 1)]
        self.port, self.internode_port = free_port(addresses), free_port(addresses)
        self.count, self.nodes = count, []

    def __enter__(self):
        try:
            first = self.make()
            first.start()
            others = [self.make() for _ in range(1, self.count)]
            failures = []

            def start(node):
                try:
                    node.start()
                except NodeError as error:
                    failures.append(error)

            threads = [threading.Thread(target=start, args=(node,)) for node in others]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if failures:
                raise failures[0]
        except BaseException:
            self.__exit__(NodeError)
            raise
        return self

    def __exit__(self, kind, *_):
        outcome = None
        for node in reversed(self.nodes):
            try:
                if node.process is not None and node.process.poll() is None:
                    node.process.send_signal(signal.SIGCONT)
                node.__exit__(kind)
            except NodeError as error:
                outcome = outcome or error
        if outcome is not None and kind is None:
            raise outcome

    def make(self):
        """The next node, not started."""
        number = len(self.nodes) + 1
        address = f"127.0.0.{number}"
        settings = {
            "cluster_name": "test",
            "internode": f"{address}:{self.internode_port}",
            "seeds": [f"127.0.0.1:{self.internode_port}"],
            "rack": f"rack{(number - 1) % 3 + 1}",
            **self.settings,
        }
        node = Node(self.program, commit_log=self.commit_log, shards=self.shards, settings=settings)
        node.listen = f"{address}:{self.port}"
        self.nodes.append(node)
        return node

    def add(self):
        """One node more, which has joined when this returns."""
        node = self.make()
        node.start()
        return node

    @staticmethod
    def kill(node):
        """SIGKILL; the node may be started again."""
        node.process.kill()
        node.process.wait()
        node.process.stdout.close()
        node.process = None

    @staticmethod
    def pause(node):
        node.process.send_signal(signal.SIGSTOP)

    @staticmethod
    def resume(node):
        node.process.send_signal(signal.SIGCONT)

    @staticmethod
    def status(node):
        """What a node says about the members, from its administration port."""
        return node.report("status")

    def hosts(self):
        return [node.host for node in self.nodes if node.process is not None]
