"""Guardrails of what lies in files: partitions that flushes and compactions write, and files of indexes that searches ask."""

import re

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, ReadFailure
from cassandra.query import SimpleStatement
from cluster import until
from conftest import driver_session, new_node
from test_audit import nodetool

TOO_MANY_INDEXES = 7


def logged(node, pattern):
    """The lines of the log that have this, when there are any."""
    return until(
        pattern, lambda: [line for line in node.log_path.read_text(errors="replace").splitlines() if re.search(pattern, line)]
    )


def done(node, *words):
    status, shown = node.admin(*words)
    assert status == 0, shown
    return shown


def test_large_partitions_and_those_of_tombstones_are_logged_when_files_are_written():
    settings = {
        "partition_size_warn_threshold": "10KiB",
        "partition_size_fail_threshold": "100KiB",
        "partition_tombstones_warn_threshold": 5,
    }
    with new_node(settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE t (a text, b int, c int, v blob, PRIMARY KEY ((a, b), c))")
        insert = session.prepare("INSERT INTO t (a, b, c, v) VALUES (?, ?, ?, ?)")
        for a, count, size in [("small", 1, 10), ("large", 20, 1_000), ("larger", 20, 10_000)]:
            for c in range(count):
                session.execute(insert, (a, 1, c, bytes(size)))
        for c in range(6):
            session.execute("DELETE FROM t WHERE a = 'emptied' AND b = 1 AND c = %s", (c,))
        done(node, "flush", "k", "t")
        (warning,) = logged(node, "partition_size violated.* warning threshold of 10240")
        assert re.search(r"Partition k\.t:large:1 on sstable \S+-data\.sst has size \d+,", warning), warning
        (failure,) = logged(node, "partition_size violated.* failure threshold of 102400")
        assert "Partition k.t:larger:1 on sstable" in failure and "Too large partitions can cause performance problems." in failure
        (tombstones,) = logged(node, "partition_tombstones violated")
        assert "Partition k.t:emptied:1 on sstable" in tombstones and "has 6 tombstones" in tombstones
        assert node.metric("helenus_guardrail_warnings_total") == 2
        assert node.metric("helenus_guardrail_failures_total") == 1
        # Nothing is refused: the rows are there.
        assert len(list(session.execute("SELECT c FROM t WHERE a = 'larger' AND b = 1"))) == 20
        session.execute(insert, ("larger", 1, 20, bytes(1_000)))
        done(node, "flush", "k", "t")
        done(node, "compact", "k", "t")
        assert node.metric("helenus_guardrail_failures_total") == 2, "the compaction has written it again"


def test_a_search_that_would_ask_too_many_index_files_is_refused():
    settings = {"sai_sstable_indexes_per_query_warn_threshold": 1, "sai_sstable_indexes_per_query_fail_threshold": 2}
    with new_node(settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE t (k int, c int, v text, PRIMARY KEY (k, c))")
        session.execute("CREATE INDEX by_v ON t (v) USING 'sai'")
        done(node, "disableautocompaction", "k", "t")
        insert = session.prepare("INSERT INTO t (k, c, v) VALUES (1, ?, ?)")

        def search():
            return [row.c for row in session.execute("SELECT c FROM t WHERE v = '7'")]

        for file in range(3):
            for c in range(200):
                session.execute(insert, (1_000 * file + c, str(1_000 * file + c)))
            done(node, "flush", "k", "t")
            if file < 2:
                assert search() == [7]
        (warning, *_) = logged(node, "sai_sstable_indexes_per_query violated")
        assert "index by_v of table k.t violated warning threshold value 1 with value 2" in warning
        with pytest.raises(ReadFailure) as refused:
            search()
        assert set(refused.value.error_code_map.values()) == {TOO_MANY_INDEXES}
        done(node, "compact", "k", "t")
        assert search() == [7]


def test_filters_of_several_columns_can_be_refused_where_replicas_are_compared():
    with new_node(settings={"intersect_filtering_query_enabled": False}) as node, driver_session(node) as session:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 3}"
        session.execute(f"CREATE KEYSPACE several WITH replication = {replication}")
        for keyspace in ["k", "several"]:
            session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, a int, b int)")

        def read(keyspace, where, level):
            text = f"SELECT k FROM {keyspace}.t WHERE {where} ALLOW FILTERING"
            return session.execute(SimpleStatement(text, consistency_level=level))

        with pytest.raises(InvalidRequest, match="intersect_filtering_query violated: .* is not allowed"):
            read("several", "a = 1 AND b = 1", ConsistencyLevel.QUORUM)
        read("several", "a = 1 AND b = 1", ConsistencyLevel.ONE)
        read("k", "a = 1 AND b = 1", ConsistencyLevel.QUORUM)


def test_guardrails_are_shown_as_in_cassandra():
    settings = {"tables_warn_threshold": 5, "group_by_enabled": False, "table_properties_warned": ["comment"]}
    with new_node(settings=settings) as node:
        shown = done(node, "getguardrailsconfig")
        for line in [r"group_by_enabled +false", r"tables_threshold +\[-1, 5\]", r"collection_size_threshold +\[null, null\]"]:
            assert re.search(f"^{line}$", shown, re.MULTILINE), shown
        assert re.search(r"^table_properties_warned +\[comment\]$", shown, re.MULTILINE), shown
        assert nodetool(node, "getguardrailsconfig", "group_by_enabled") == (0, "false\n")
        assert nodetool(node, "getguardrailsconfig", "tables_warn_threshold") == (0, "5\n")
        flags = nodetool(node, "getguardrailsconfig", "-c", "flags")[1]
        assert "zero_ttl_on_twcs_warned" in flags and "threshold" not in flags
        expanded = nodetool(node, "getguardrailsconfig", "-c", "thresholds", "--expand")[1]
        assert re.search(r"^tables_warn_threshold +5$", expanded, re.MULTILINE), expanded
        status, error = nodetool(node, "getguardrailsconfig", "non_sense")
        assert status != 0 and "Guardrail non_sense not found." in error


def test_guardrails_are_changed_while_the_node_runs():
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE k.t (k int, c int, v text, PRIMARY KEY (k, c))")
            grouped = "SELECT k, count(*) FROM k.t GROUP BY k"
            session.execute(grouped)
            assert nodetool(node, "setguardrailsconfig", "group_by_enabled", "false") == (0, "")
            with pytest.raises(InvalidRequest, match="group_by is not allowed|GROUP BY functionality is not allowed"):
                session.execute(grouped)
            assert nodetool(node, "getguardrailsconfig", "group_by_enabled") == (0, "false\n")
            assert nodetool(node, "setguardrailsconfig", "column_value_size_threshold", "1KiB", "null") == (0, "")
            with pytest.raises(InvalidRequest, match="column_value_size violated"):
                session.execute("INSERT INTO k.t (k, c, v) VALUES (1, 1, %s)", ("x" * 2000,))
            assert node.admin("setguardrailsconfig", "tables_threshold", "1", "-1") == (0, "[1, -1]\n")
            with pytest.raises(InvalidRequest, match="Cannot have more than 1 tables"):
                session.execute("CREATE TABLE k.u (k int PRIMARY KEY)")
            shown = session.execute("SELECT value FROM system_views.settings WHERE name = 'tables_fail_threshold'")
            assert shown.one().value == "1"
            for words, complaint in [
                (("non_sense", "1"), "Guardrail non_sense not found."),
                (("tables_threshold", "1"), "tables_threshold is expecting 2 argument values. Getting 1 instead."),
                (("tables_threshold", "1", "2"), "The warn threshold 2 should be lower than the fail threshold 1"),
                (("partition_size_threshold", "1GiB", "null"), "is read at the start of a node"),
                ((), "No arguments."),
            ]:
                status, error = nodetool(node, "setguardrailsconfig", *words)
                assert status != 0 and complaint in error, error
            assert nodetool(node, "setguardrailsconfig", "group_by_enabled", "true") == (0, "")
            session.execute(grouped)
        # The next start has those of the configuration again.
        node.restart()
        assert nodetool(node, "getguardrailsconfig", "tables_threshold") == (0, "[-1, -1]\n")
