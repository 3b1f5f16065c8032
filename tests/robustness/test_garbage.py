"""Space is given back: by rows that are overwritten, by expired data, by logged batches.

The sizes are small, so that the file takes about a minute. `GARBAGE_MIB=128 GARBAGE_BATCH_SECONDS=120` runs it at full size.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import until
from conftest import driver_session, new_node
from node import disk_bytes

CONTENTS_MIB = int(os.environ.get("GARBAGE_MIB", "4"))
BATCH_SECONDS = int(os.environ.get("GARBAGE_BATCH_SECONDS", "10"))
BATCHES_PER_SECOND = 5_000
VALUE_BYTES = 16 << 10
PASSES = 20
# What compactions that are under way may take to end.
SETTLE_SECONDS = 120

STRATEGIES = {
    "size-tiered": {"class": "SizeTieredCompactionStrategy", "min_sstable_size": "0"},
    "time windows": {"class": "TimeWindowCompactionStrategy", "min_sstable_size": "0"},
    "leveled": {"class": "LeveledCompactionStrategy", "sstable_size_in_mb": "1"},
    "unified": {"class": "UnifiedCompactionStrategy", "target_sstable_size": "1MiB"},
    "unified, levelled": {
        "class": "UnifiedCompactionStrategy",
        "target_sstable_size": "1MiB",
        "scaling_parameters": "L4",
    },
}


def options_text(options):
    return "{" + ", ".join(f"'{name}': '{value}'" for name, value in options.items()) + "}"


def report(node, table):
    tables = node.report("tablestats")["tables"]
    return next(entry for entry in tables if entry["table"] == table)


def write_all(session, statement, rows):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda row: session.execute(statement, row), rows))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda name: name.replace(", ", "-").replace(" ", "-"))
def test_overwritten_rows_take_at_most_three_times_their_space(strategy, measured):
    settings = {"memtable_bytes": max(8 << 20, CONTENTS_MIB << 19), "compaction_bytes_per_second": 0}
    # What is measured is compaction, not the disk's syncs.
    with new_node(settings=settings, commit_log="periodic") as node, driver_session(node) as session:
        session.execute(
            f"CREATE TABLE t (k int PRIMARY KEY, v blob) WITH compaction = {options_text(STRATEGIES[strategy])}"
        )
        write = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
        rows = (CONTENTS_MIB << 20) // VALUE_BYTES
        for _ in range(PASSES):
            write_all(session, write, ((row, os.urandom(VALUE_BYTES)) for row in range(rows)))
        node.administer("flush", keyspace="k", table="t")
        until("no compaction is due", lambda: report(node, "t")["pending_compactions"] == 0, SETTLE_SECONDS)
        taken = report(node, "t")["disk_bytes"] / (CONTENTS_MIB << 20)
        spent = node.metric("helenus_compaction_seconds_total")
        share = node.metric("helenus_compaction_verification_seconds_total") / max(spent, 1e-9)
        measured(
            f"{strategy}: {taken:.2f} times the contents on disk after {PASSES} passes of {CONTENTS_MIB} MiB; "
            f"{100 * share:.0f} % of {spent:.1f} s of compaction read outputs back"
        )
        assert taken <= 3
        assert node.metric("helenus_compactions_failed_total") == 0
        assert session.execute("SELECT count(*) FROM t").one().count == rows


def test_an_expired_table_is_gone_without_being_read():
    with new_node() as node, driver_session(node) as session:
        session.execute(
            "CREATE TABLE w (k int PRIMARY KEY, v text) WITH default_time_to_live = 3 AND gc_grace_seconds = 1 AND "
            "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', "
            "'compaction_window_size': '1', 'expired_sstable_check_frequency_seconds': '1'}"
        )
        write = session.prepare("INSERT INTO w (k, v) VALUES (?, ?)")
        write_all(session, write, ((number, "v" * 1_000) for number in range(2_000)))
        node.administer("flush", keyspace="k", table="w")
        assert report(node, "w")["file_count"] > 0
        until("the files are gone", lambda: report(node, "w")["file_count"] == 0, 120)
        assert node.metric("helenus_expired_files_total") >= 1
        assert node.metric("helenus_compactions_total") == 0
        assert disk_bytes(node.data_dir / "shard-0" / "tables") + disk_bytes(node.data_dir / "shard-1" / "tables") < 1 << 20


def test_logged_batches_leave_bounded_files_and_a_short_start(measured):
    with new_node(settings={"memtable_bytes": 16 << 20}, commit_log="periodic") as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE b (k int PRIMARY KEY, v text)")
            batch = session.prepare(
                "BEGIN BATCH INSERT INTO b (k, v) VALUES (?, ?); INSERT INTO b (k, v) VALUES (?, ?); APPLY BATCH"
            )
            begun, done, waiting, largest = time.monotonic(), 0, [], 0
            while time.monotonic() < begun + BATCH_SECONDS:
                waiting.append(
                    session.execute_async(batch, (done % 1_000, "v" * 100, 100_000 + done % 1_000, "v" * 100))
                )
                done += 1
                if len(waiting) >= 256:
                    for future in waiting:
                        future.result()
                    waiting = []
                    largest = max(largest, batch_log_bytes(node))
                pause = begun + done / BATCHES_PER_SECOND - time.monotonic()
                if pause > 0:
                    time.sleep(pause)
            for future in waiting:
                future.result()
            rate = done / (time.monotonic() - begun)
        node.process.kill()
        node.ended()
        started = time.monotonic()
        node.start()
        start_seconds = time.monotonic() - started
        measured(
            f"{done} logged batches at {rate:.0f} a second: at most {largest >> 10} KiB in files of the batch log, and a start "
            f"after kill -9 in {start_seconds:.1f} s"
        )
        assert largest < 8 << 20
        assert start_seconds < 30


def batch_log_bytes(node):
    name = b"helenus-batchlog".hex()
    return sum(
        disk_bytes(path) for path in node.data_dir.glob("shard-*/tables/*") if path.name == name
    )
