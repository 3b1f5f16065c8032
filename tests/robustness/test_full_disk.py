"""A small disk is filled and freed: writes are refused and reads answered while it is full, and the same process goes on by itself
when there is room. No acknowledged row is missing."""

import os

import pytest
from cassandra import InvalidRequest, OperationTimedOut, WriteFailure, WriteTimeout
from cluster import until
from conftest import driver_session, new_node

VALUE_BYTES = 60_000
# Requests under way.
WINDOW = 16
# A snapshot would keep the files of a table that is emptied.
SETTINGS = {
    "memtable_bytes": 8 << 20,
    "commit_log_segment_bytes": 1 << 20,
    "commit_log_total_bytes": 8 << 20,
    "auto_snapshot": False,
}
REFUSED = "Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds failure threshold"


class Writer:
    """Writes rows with rising keys, and keeps account of those that were acknowledged."""

    def __init__(self, session, table):
        self.session, self.table = session, table
        session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v blob)")
        self.insert = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
        self.acknowledged, self.next = set(), 0

    def write(self, rows):
        """Writes so many rows; returns the text of the refusal, if one was refused."""
        refusal = None
        for begin in range(0, rows, WINDOW):
            numbers = range(self.next, self.next + min(WINDOW, rows - begin))
            self.next += len(numbers)
            # No compression makes it smaller: what is written is what fills the disk.
            value = os.urandom(VALUE_BYTES)
            futures = [(number, self.session.execute_async(self.insert, (number, value), timeout=5)) for number in numbers]
            for number, future in futures:
                try:
                    future.result()
                    self.acknowledged.add(number)
                except InvalidRequest as error:
                    refusal = str(error)
                except (OperationTimedOut, WriteTimeout, WriteFailure):
                    pass  # It may be there later: it waits for room.
            if refusal:
                return refusal
        return None

    def fill(self):
        refusal = self.write(1_000_000)
        assert REFUSED in refusal, refusal

    def check(self):
        found = {row.k for row in self.session.execute(f"SELECT k FROM {self.table}")}
        assert self.acknowledged <= found, sorted(self.acknowledged - found)[:10]


@pytest.mark.parametrize("reserve", [None, 0])
def test_a_disk_that_is_filled_and_freed_costs_nothing(small_disk, reserve):
    settings = SETTINGS if reserve is None else {**SETTINGS, "disk_reserve_bytes": reserve}
    node = new_node(settings=settings)
    small_disk(node.data_dir, 96)
    ballast = node.data_dir / "ballast"
    ballast.write_bytes(bytes(24 << 20))
    with node:
        pid = node.pid
        with driver_session(node) as session:
            kept, emptied = Writer(session, "kept"), Writer(session, "emptied")

            def goes_on(writer):
                """A few writes succeed again."""
                before = len(writer.acknowledged)
                until("writes are accepted again", lambda: writer.write(WINDOW) is None)
                assert len(writer.acknowledged) > before

            assert emptied.write(200) is None
            kept.fill()
            if reserve is None:

                def says_so():
                    """A compaction that ends may free room for some more writes."""
                    kept.write(WINDOW)
                    remark = node.report("health").get("remark", "")
                    return "the disk is full" in remark and node.metric("helenus_disk_reserve_reached") == 1

                until("the node says that the disk is full", says_so)
                assert small_disk.free_bytes(node.data_dir) > 1 << 20
            assert node.report("health")["status"] == "up"
            kept.check()
            emptied.check()
            # Somebody else's file goes.
            ballast.unlink()
            goes_on(kept)
            kept.fill()
            kept.check()
            # The disk becomes larger.
            small_disk(node.data_dir, 128)
            goes_on(kept)
            kept.fill()
            kept.check()
            # A table is emptied.
            session.execute("TRUNCATE emptied")
            goes_on(kept)
            kept.check()
            assert node.metric("helenus_writes_refused_for_room_total") > 0
            assert node.pid == pid and node.process.poll() is None
            assert "has stopped" not in node.log_tail(100_000)
            small_disk(node.data_dir, 400)
            until("the disk is not full any more", lambda: "remark" not in node.report("health"))
        # What was acknowledged is on the disk.
        node.process.kill()
        node.process.wait()
        node.start()
        with driver_session(node) as session:
            found = {row.k for row in session.execute("SELECT k FROM kept")}
            assert kept.acknowledged <= found


def test_a_node_starts_on_a_full_disk_and_answers_reads(small_disk):
    node = new_node(settings=SETTINGS)
    small_disk(node.data_dir, 64)
    with node:
        with driver_session(node) as session:
            writer = Writer(session, "rows")
            writer.fill()
        node.process.kill()
        node.process.wait()
        ballast = node.data_dir / "ballast"
        free = small_disk.free_bytes(node.data_dir)
        ballast.write_bytes(bytes(max(0, free - (256 << 10))))
        node.start()
        with driver_session(node) as session:
            writer.session = session
            writer.check()
            ballast.unlink()
            small_disk(node.data_dir, 128)
            insert = session.prepare("INSERT INTO rows (k, v) VALUES (?, ?)")

            def accepted():
                session.execute(insert, (-1, b"new"))
                return True

            until("writes are accepted", accepted)
            writer.check()
