"""Restores to a point in time: a snapshot of before, and the archived commit logs up to a write."""

import json
import shutil
import time
from pathlib import Path

import pytest
from conftest import admin, driver_session, new_node

SEGMENT_BYTES = 1 << 20
UNARCHIVED = "helenus_commit_log_unarchived_segments"


@pytest.fixture
def archive(tmp_path):
    directory = tmp_path / "archive"
    directory.mkdir()
    return directory


@pytest.fixture
def archiving(archive):
    """A node that archives its log."""
    settings = {"commit_log_archive_dir": str(archive), "commit_log_segment_bytes": SEGMENT_BYTES}
    with new_node(settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (p int, c int, v text, PRIMARY KEY (p, c))")
        yield node, session


def done(node, *words):
    status, said = admin(node, *words)
    assert status == 0, said
    return said


def replay(node, *words):
    """The mutations that the tables got, by name."""
    report = json.loads(done(node, "replay", "--json", *words))
    return {table["table"]: table["mutation_count"] for table in report["tables"]}


def rows(session, table="k.t"):
    return sorted((row.p, row.c, row.v) for row in session.execute(f"SELECT p, c, v FROM {table}"))


def write(session, numbers, size=10):
    insert = session.prepare("INSERT INTO k.t (p, c, v) VALUES (?, ?, ?)")
    for number in numbers:
        session.execute(insert, (number % 20, number, f"{number} " + "x" * size))


def now_micros():
    return time.time_ns() // 1000


def test_a_table_is_as_it_was_before_the_mistake(archiving, archive):
    node, session = archiving
    write(session, range(500))
    done(node, "snapshot", "-t", "monday", "k", "t")
    # More than a segment, so that the log goes on to the next by itself.
    write(session, range(500, 1500), size=2000)
    session.execute("DELETE FROM k.t WHERE p = 3")
    expected = rows(session)
    moment = now_micros()
    # The mistake.
    session.execute("DELETE FROM k.t WHERE p = 4")
    write(session, range(5, 1500, 20), size=0)
    after = rows(session)
    node.administer("flush")
    done(node, "archivelog")
    assert sorted(path.name for path in archive.glob("*/*")) == ["shard-0", "shard-1"]
    done(node, "restore", "-t", "monday", "k", "t", "--into", "before")
    assert len(rows(session, "k.before")) == 500
    counts = replay(node, str(archive), "k", "t", "--into", "before", "--until", str(moment))
    assert counts == {"before": 1501}
    assert rows(session, "k.before") == expected
    # The same with a text, which has microseconds too.
    whole, fraction = divmod(moment, 1_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{fraction:06}Z"
    session.execute("TRUNCATE k.before")
    assert replay(node, str(archive), "k", "t", "--into", "before", "--until", text) == counts
    assert rows(session, "k.before") == expected
    # The rest of the log.
    rest = replay(node, str(archive), "k", "t", "--into", "before", "--since", str(moment))
    assert rest == {"before": 1 + 75}
    assert rows(session, "k.before") == after
    assert rows(session) == after


def test_a_dropped_table_comes_back_as_it_was_at_a_write(archiving, archive):
    node, session = archiving
    write(session, range(100))
    done(node, "snapshot", "-t", "monday", "k")
    write(session, range(100, 200))
    expected, moment = rows(session), now_micros()
    session.execute("DELETE FROM k.t WHERE p = 1")
    session.execute("DROP TABLE k.t")
    # A crash: what was written before is archived by the next process.
    node.process.kill()
    node.process.wait()
    node.start()
    with driver_session(node) as session:
        done(node, "archivelog")
        # The table is gone, and with it its name.
        status, said = admin(node, "replay", str(archive), "k", "t")
        assert status == 1 and "name a snapshot" in said, said
        done(node, "restore", "-t", "monday", "k", "t")
        assert len(rows(session)) == 100
        # Of the new table the log has nothing, and it says so.
        status, said = admin(node, "replay", str(archive), "k", "t", "--until", str(moment))
        assert status == 1 and "no such writes of that table" in said, said
        replay(node, str(archive), "k", "t", "--snapshot", "monday", "--until", str(moment))
        assert rows(session) == expected
        # The log of the new table, and of tables that are not named.
        report = json.loads(done(node, "replay", "--json", str(archive)))
        assert len(report["unknown_tables"]) == 1, report
        assert rows(session) == expected


def test_an_archive_comes_back_in_an_empty_node(archiving, archive, tmp_path):
    node, session = archiving
    session.execute("CREATE TABLE k.counts (p int PRIMARY KEY, n counter)")
    write(session, range(100))
    done(node, "snapshot", "-t", "monday", "k")
    copies = tmp_path / "copies"
    for number, part in enumerate(sorted(Path(node.data_dir).glob("shard-*/snapshots/monday"))):
        shutil.copytree(part, copies / str(number))
    write(session, range(50, 300))
    for number in range(60):
        session.execute(f"UPDATE k.counts SET n = n + {number} WHERE p = {number % 7}")
    session.execute("INSERT INTO k.t (p, c, v) VALUES (0, 7000, 'gone') USING TTL 1")
    session.execute("DELETE FROM k.t WHERE p = 2 AND c > 100")
    done(node, "archivelog")
    expected = [row for row in rows(session) if row[2] != "gone"]
    counts = sorted(session.execute("SELECT p, n FROM k.counts"))
    shutil.copytree(archive, copies / "archive")
    with new_node(settings={"commit_log_segment_bytes": SEGMENT_BYTES}) as empty, driver_session(empty) as other:
        other.execute("DROP KEYSPACE k")
        done(empty, "import", str(copies))
        assert len(rows(other)) == 100
        assert set(replay(empty, str(copies))) == {"t", "counts"}
        assert [row for row in rows(other) if row[2] != "gone"] == expected
        assert sorted(other.execute("SELECT p, n FROM k.counts")) == counts
        # Again: a write that is repeated changes nothing.
        replay(empty, str(copies), "k", "counts")
        assert sorted(other.execute("SELECT p, n FROM k.counts")) == counts


def test_bad_requests_and_bad_archives_are_refused_by_name(archiving, archive, tmp_path):
    node, session = archiving
    write(session, range(10))
    done(node, "archivelog")
    write(session, range(10, 20))
    done(node, "archivelog")
    write(session, range(20, 30))
    done(node, "archivelog")
    for words, message in [
        ([str(tmp_path / "nowhere")], "no archived segments"),
        ([str(archive), "k", "unknown"], "there is no such table"),
        ([str(archive), "--snapshot", "unknown"], "no snapshot 'unknown'"),
        ([str(archive), "--until", "yesterday"], "neither a number of microseconds nor a time: yesterday"),
        ([str(archive), "--since", "8", "--until", "7"], "must be before"),
        ([str(archive), "--consistency", "serial"], "no consistency level of writes"),
    ]:
        status, said = admin(node, "replay", *words)
        assert status == 1 and message in said, said
    session.execute("CREATE TABLE k.other (p int PRIMARY KEY)")
    status, said = admin(node, "replay", str(archive), "--into", "x")
    assert status == 1 and "name the one" in said, said
    # A missing segment, before anything is written.
    session.execute("TRUNCATE k.t")
    second = sorted(archive.glob("*/shard-0/*.log"))[1]
    contents = second.read_bytes()
    second.unlink()
    status, said = admin(node, "replay", str(archive))
    assert status == 1 and "is missing" in said and second.name[:24] in said, said
    assert rows(session) == []
    # A damaged one.
    second.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    status, said = admin(node, "replay", str(archive))
    assert status == 1 and str(second) in said, said
    second.write_bytes(contents)
    replay(node, str(archive))
    assert len(rows(session)) == 30
    # A node without an archive.
    with new_node() as plain:
        status, said = admin(plain, "archivelog")
        assert status == 1 and "commit_log_archive_dir is not set" in said, said


def test_an_archive_that_cannot_be_written_is_seen_and_keeps_the_log(tmp_path):
    blocked = tmp_path / "archive"
    blocked.write_text("no directory")
    with (
        new_node(settings={"commit_log_archive_dir": str(blocked), "commit_log_segment_bytes": SEGMENT_BYTES}) as node,
        driver_session(node) as session,
    ):
        session.execute("CREATE TABLE k.t (p int, c int, v text, PRIMARY KEY (p, c))")
        write(session, range(3000), size=2000)
        node.administer("flush")
        status, said = admin(node, "archivelog")
        assert status == 1 and str(blocked) in said, said
        assert node.metric(UNARCHIVED) >= 4
        blocked.unlink()
        status, said = admin(node, "archivelog")
        assert status == 1 and str(blocked) in said, "a disk that is not mounted is not written to"
        blocked.mkdir()
        done(node, "archivelog")
        assert node.metric(UNARCHIVED) == 0
        session.execute("TRUNCATE k.t")
        replay(node, str(blocked))
        assert len(rows(session)) == 3000
