"""The virtual tables: their columns are Apache Cassandra's, and their rows say what has happened on the node."""

import re

import pytest
from cassandra import InvalidRequest
from cluster import until
from conftest import driver_session, new_node

# As Apache Cassandra 5.0.6 describes them, and `slow_queries` as Cassandra 6 does. `charges`, `large_partitions`, `top_partitions` and
# `top_statements` are Helenus' own.
COLUMNS = """
batch_metrics: name text PARTITION KEY, max bigint, p50th double, p999th double, p99th double
caches: name text PARTITION KEY, capacity_bytes bigint, entry_count int, hit_count bigint, hit_ratio double, recent_hit_rate_per_second
    bigint, recent_request_rate_per_second bigint, request_count bigint, size_bytes bigint
charges: hour timestamp PARTITION KEY, keyspace_name text CLUSTERING, table_name text CLUSTERING, role text CLUSTERING, statement text
    CLUSTERING, bytes_between_nodes bigint, bytes_read bigint, bytes_sent bigint, bytes_written bigint, charge bigint,
    failed bigint, missed bigint, partitions_written bigint, ranges_read bigint, requests bigint, rows_read bigint, rows_sent bigint,
    rows_written bigint, tombstones_read bigint, transactions bigint, waited_us bigint, worked_us bigint
cidr_filtering_metrics_counts: name text PARTITION KEY, value bigint
cidr_filtering_metrics_latencies: name text PARTITION KEY, max double, p50th double, p95th double, p999th double, p99th double
clients: address inet PARTITION KEY, port int CLUSTERING, client_options frozen<map<text, text>>, connection_stage text, driver_name text,
    driver_version text, hostname text, keyspace_name text, protocol_version int, request_count bigint, ssl_cipher_suite text, ssl_enabled
    boolean, ssl_protocol text, username text
coordinator_read_latency: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max_ms double, p50th_ms double,
    p99th_ms double, per_second double
coordinator_scan_latency: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max_ms double, p50th_ms double,
    p99th_ms double, per_second double
coordinator_write_latency: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max_ms double, p50th_ms double,
    p99th_ms double, per_second double
cql_metrics: name text PARTITION KEY, value double
credentials_cache_keys: role text PARTITION KEY
disk_usage: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, mebibytes bigint
gossip_info: address inet PARTITION KEY, port int CLUSTERING, dc text, dc_version int, disk_usage text, disk_usage_version int, generation
    int, heartbeat int, host_id text, host_id_version int, hostname text, index_status text, index_status_version int,
    internal_address_and_port text, internal_address_and_port_version int, internal_ip text, internal_ip_version int, load text,
    load_version int, native_address_and_port text, native_address_and_port_version int, net_version text, net_version_version int, rack
    text, rack_version int, release_version text, release_version_version int, removal_coordinator text, removal_coordinator_version int,
    rpc_address text, rpc_address_version int, rpc_ready text, rpc_ready_version int, schema text, schema_version int, severity text,
    severity_version int, sstable_versions text, sstable_versions_version int, status text, status_version int, status_with_port text,
    status_with_port_version int, tokens_version int, x1 text, x10 text, x10_version int, x1_version int, x2 text, x2_version int, x3
    text, x3_version int, x4 text, x4_version int, x5 text, x5_version int, x6 text, x6_version int, x7 text, x7_version int, x8 text,
    x8_version int, x9 text, x9_version int, x_11_padding text, x_11_padding_version int
internode_inbound: address inet PARTITION KEY, port int PARTITION KEY, dc text CLUSTERING, rack text CLUSTERING, corrupt_frames_recovered
    bigint, corrupt_frames_unrecovered bigint, error_bytes bigint, error_count bigint, expired_bytes bigint, expired_count bigint,
    processed_bytes bigint, processed_count bigint, received_bytes bigint, received_count bigint, scheduled_bytes bigint, scheduled_count
    bigint, throttled_count bigint, throttled_nanos bigint, using_bytes bigint, using_reserve_bytes bigint
internode_outbound: address inet PARTITION KEY, port int PARTITION KEY, dc text CLUSTERING, rack text CLUSTERING, active_connections
    bigint, connection_attempts bigint, error_bytes bigint, error_count bigint, expired_bytes bigint, expired_count bigint, overload_bytes
    bigint, overload_count bigint, pending_bytes bigint, pending_count bigint, sent_bytes bigint, sent_count bigint,
    successful_connection_attempts bigint, using_bytes bigint, using_reserve_bytes bigint
jmx_permissions_cache_keys: role text PARTITION KEY
large_partitions: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, sampler text CLUSTERING, rank int CLUSTERING,
    partition_key text, value bigint
local_read_latency: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max_ms double, p50th_ms double,
    p99th_ms double, per_second double
local_scan_latency: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max_ms double, p50th_ms double,
    p99th_ms double, per_second double
local_write_latency: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max_ms double, p50th_ms double,
    p99th_ms double, per_second double
max_partition_size: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, mebibytes bigint
max_sstable_duration: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, max_sstable_duration bigint
max_sstable_size: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, mebibytes bigint
network_permissions_cache_keys: role text PARTITION KEY
pending_hints: host_id uuid PARTITION KEY, address inet, dc text, files int, newest timestamp, oldest timestamp, port int, rack text,
    status text
permissions_cache_keys: role text PARTITION KEY, resource text PARTITION KEY
queries: thread_id text PARTITION KEY, queued_micros bigint, running_micros bigint, task text
repair_jobs: id uuid PARTITION KEY, completed boolean, duration_millis bigint, failure_cause text, keyspace_name text, last_updated_at
    timestamp, participants frozen<list<text>>, ranges frozen<list<text>>, repair_id timeuuid, session_id timeuuid,
    state_failure_timestamp timestamp, state_init_timestamp timestamp, state_skipped_timestamp timestamp,
    state_snapshot_complete_timestamp timestamp, state_snapshot_start_timestamp timestamp, state_start_timestamp timestamp,
    state_stream_start_timestamp timestamp, state_success_timestamp timestamp, state_validation_complete_timestamp timestamp,
    state_validation_start_timestamp timestamp, status text, success_message text, table_name text
repair_participates: id timeuuid PARTITION KEY, completed boolean, duration_millis bigint, failure_cause text, global boolean, incremental
    boolean, initiator text, last_updated_at timestamp, preview_kind text, ranges frozen<list<text>>, repaired_at timestamp,
    state_failure_timestamp timestamp, state_init_timestamp timestamp, state_skipped_timestamp timestamp, state_success_timestamp
    timestamp, success_message text, tables frozen<set<text>>, validations frozen<set<uuid>>
repair_sessions: id timeuuid PARTITION KEY, completed boolean, duration_millis bigint, failure_cause text, jobs frozen<set<uuid>>,
    keyspace_name text, last_updated_at timestamp, participants frozen<list<text>>, ranges frozen<list<text>>, repair_id timeuuid,
    state_failure_timestamp timestamp, state_init_timestamp timestamp, state_jobs_start_timestamp timestamp, state_skipped_timestamp
    timestamp, state_start_timestamp timestamp, state_success_timestamp timestamp, status text, success_message text, table_names
    frozen<list<text>>
repair_validations: id uuid PARTITION KEY, bytes_read bigint, completed boolean, duration_millis bigint, estimated_partitions bigint,
    estimated_total_bytes bigint, failure_cause text, initiator text, keyspace_name text, last_updated_at timestamp, partitions_processed
    bigint, progress_percentage float, ranges frozen<list<text>>, repair_id timeuuid, session_id timeuuid, state_accept_timestamp
    timestamp, state_failure_timestamp timestamp, state_init_timestamp timestamp, state_sending_trees_timestamp timestamp,
    state_skipped_timestamp timestamp, state_start_timestamp timestamp, state_success_timestamp timestamp, status text, success_message
    text, table_name text
repairs: id timeuuid PARTITION KEY, command_id int, completed boolean, duration_millis bigint, failure_cause text, keyspace_name text,
    last_updated_at timestamp, options_column_families frozen<set<text>>, options_data_centers frozen<set<text>>, options_force_repair
    boolean, options_hosts frozen<set<text>>, options_ignore_unreplicated_keyspaces boolean, options_incremental boolean,
    options_job_threads int, options_optimise_streams boolean, options_parallelism text, options_preview_kind text, options_primary_range
    boolean, options_pull_repair boolean, options_ranges frozen<set<text>>, options_subrange_repair boolean, options_trace boolean,
    participants frozen<list<text>>, ranges frozen<list<frozen<list<text>>>>, sessions frozen<set<timeuuid>>, state_failure_timestamp
    timestamp, state_init_timestamp timestamp, state_prepare_complete_timestamp timestamp, state_prepare_start_timestamp timestamp,
    state_repair_complete_timestamp timestamp, state_repair_start_timestamp timestamp, state_setup_timestamp timestamp,
    state_skipped_timestamp timestamp, state_start_timestamp timestamp, state_success_timestamp timestamp, status text, success_message
    text, table_names frozen<list<text>>, type text, unfiltered_ranges frozen<list<frozen<list<text>>>>
roles_cache_keys: role text PARTITION KEY
rows_per_read: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max double, p50th double, p99th double
sai_column_indexes: keyspace_name text PARTITION KEY, index_name text CLUSTERING, analyzer text, column_name text, is_building boolean,
    is_queryable boolean, is_string boolean, table_name text
sai_sstable_index_segments: keyspace_name text PARTITION KEY, index_name text CLUSTERING, sstable_name text CLUSTERING,
    segment_row_id_offset bigint CLUSTERING, cell_count bigint, column_name text, component_metadata frozen<map<text, frozen<map<text,
    text>>>>, end_token text, max_sstable_row_id bigint, max_term text, min_sstable_row_id bigint, min_term text, start_token text,
    table_name text
sai_sstable_indexes: keyspace_name text PARTITION KEY, index_name text CLUSTERING, sstable_name text CLUSTERING, cell_count bigint,
    column_name text, end_token text, format_version text, max_row_id bigint, min_row_id bigint, per_column_disk_size bigint,
    per_table_disk_size bigint, start_token text, table_name text
settings: name text PARTITION KEY, value text
slow_queries: keyspace_name text PARTITION KEY, table_name text CLUSTERING, timestamp timestamp CLUSTERING, query text CLUSTERING, avg_ms
    bigint, cross_node boolean, max_ms bigint, min_ms bigint, times_reported int
snapshots: name text PARTITION KEY, keyspace_name text CLUSTERING, table_name text CLUSTERING, created_at timestamp, ephemeral boolean,
    expires_at timestamp, size_on_disk bigint, true_size bigint
sstable_tasks: keyspace_name text PARTITION KEY, table_name text CLUSTERING, task_id timeuuid CLUSTERING, completion_ratio double, kind
    text, progress bigint, sstables int, target_directory text, total bigint, unit text
streaming: id timeuuid PARTITION KEY, bytes_received bigint, bytes_sent bigint, bytes_to_receive bigint, bytes_to_send bigint,
    duration_millis bigint, failure_cause text, files_received bigint, files_sent bigint, files_to_receive bigint, files_to_send bigint,
    follower boolean, last_updated_at timestamp, operation text, peers frozen<list<text>>, progress_percentage float, status text,
    status_failure_timestamp timestamp, status_init_timestamp timestamp, status_start_timestamp timestamp, status_success_timestamp
    timestamp, success_message text
system_logs: timestamp timestamp PARTITION KEY, order_in_millisecond int CLUSTERING, level text, logger text, message text
system_properties: name text PARTITION KEY, value text
thread_pools: name text PARTITION KEY, active_tasks int, active_tasks_limit int, blocked_tasks bigint, blocked_tasks_all_time bigint,
    completed_tasks bigint, pending_tasks int
tombstones_per_read: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, count bigint, max double, p50th double, p99th double
top_partitions: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, period text CLUSTERING, sampler text CLUSTERING, rank int
    CLUSTERING, error bigint, partition_key text, value bigint
top_statements: keyspace_name text PARTITION KEY, table_name text PARTITION KEY, period text CLUSTERING, sampler text CLUSTERING, rank int
    CLUSTERING, missed bigint, requests bigint, role text, statement text, value bigint
"""

# What they would show does not exist here.
EMPTY = {
    "cidr_filtering_metrics_counts",
    "cidr_filtering_metrics_latencies",
    "credentials_cache_keys",
    "jmx_permissions_cache_keys",
    "network_permissions_cache_keys",
    "permissions_cache_keys",
    "repair_jobs",
    "repair_participates",
    "repair_sessions",
    "repair_validations",
    "roles_cache_keys",
}


def split_columns(text):
    """Splits at commas that are not within a type."""
    parts, depth = [""], 0
    for part in re.split(r"(<|>|, )", text):
        depth += {"<": 1, ">": -1}.get(part, 0)
        if part == ", " and depth == 0:
            parts.append("")
        else:
            parts[-1] += part
    return parts


def expected_columns():
    """The columns of each table: name to (type, kind)."""
    tables = {}
    for definition in re.sub(r"\n +", " ", COLUMNS.strip()).splitlines():
        name, columns = definition.split(": ", 1)
        described = {}
        for column in split_columns(columns):
            words, kind = column, "regular"
            for suffix, meaning in ((" PARTITION KEY", "partition_key"), (" CLUSTERING", "clustering")):
                if column.endswith(suffix):
                    words, kind = column.removesuffix(suffix), meaning
            column_name, column_type = words.split(" ", 1)
            described[column_name.strip('"')] = (column_type, kind)
        tables[name] = described
    return tables


@pytest.fixture(scope="module")
def node():
    with new_node(settings={"slow_query_log_timeout_ms": 1}) as running:
        yield running


@pytest.fixture(scope="module")
def session(node):
    with driver_session(node) as opened:
        yield opened


def rows(session, table, where=""):
    return list(session.execute(f"SELECT * FROM system_views.{table} {where}"))


def of_table(session, view, table):
    """The row of a table of the keyspace `k`."""
    return session.execute(
        f"SELECT * FROM system_views.{view} WHERE keyspace_name = 'k' AND table_name = '{table}'"
    ).one()


def test_the_tables_have_cassandras_columns(session):
    expected = expected_columns()
    shown = {}
    for row in session.execute(
        "SELECT * FROM system_virtual_schema.columns WHERE keyspace_name = 'system_views'"
    ):
        shown.setdefault(row.table_name, {})[row.column_name] = (row.type, row.kind)
        assert row.clustering_order == ("asc" if row.kind == "clustering" else "none")
    assert sorted(shown) == sorted(expected)
    for table, columns in expected.items():
        assert shown[table] == columns, table


@pytest.mark.parametrize("table", sorted(expected_columns()))
def test_each_table_can_be_read(session, table):
    columns = session.execute(f"SELECT * FROM system_views.{table}").column_names
    assert len(columns) == len(expected_columns()[table])
    found = rows(session, table)
    assert not (found and table in EMPTY)


def test_writes_and_reads_are_counted_and_timed(node, session):
    session.execute("CREATE TABLE counted (k int, c int, v text, PRIMARY KEY (k, c))")
    for number in range(40):
        session.execute(f"INSERT INTO counted (k, c, v) VALUES ({number % 4}, {number}, 'x')")
    session.execute("DELETE FROM counted WHERE k = 1 AND c = 1")
    for key in range(4):
        list(session.execute(f"SELECT * FROM counted WHERE k = {key}"))
    list(session.execute("SELECT * FROM counted"))
    for view, count in (("write", 41), ("read", 4), ("scan", 1)):
        row = of_table(session, f"coordinator_{view}_latency", "counted")
        assert row.count == count and 0 < row.p50th_ms <= row.p99th_ms <= row.max_ms, row
        assert row.per_second > 0
    assert of_table(session, "local_write_latency", "counted").count == 41
    assert of_table(session, "local_read_latency", "counted").count >= 4
    assert of_table(session, "local_scan_latency", "counted").count >= 1
    met = of_table(session, "rows_per_read", "counted")
    assert met.count >= 5 and 10 <= met.max <= 48
    assert of_table(session, "tombstones_per_read", "counted").max == 1.0
    assert of_table(session, "local_read_latency", "nothing") is None


def test_files_have_sizes_and_compactions_a_history(node, session):
    session.execute(
        "CREATE TABLE files (k int PRIMARY KEY, v text) WITH compaction = {'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}"
    )
    assert of_table(session, "disk_usage", "files").mebibytes == 0
    for part in range(2):
        for number in range(20):
            session.execute(f"INSERT INTO files (k, v) VALUES ({number}, '{part}') USING TIMESTAMP {1 + number * 3_600_000_000}")
        node.administer("flush", keyspace="k", table="files")
    assert of_table(session, "disk_usage", "files").mebibytes == 1
    assert of_table(session, "max_sstable_size", "files").mebibytes == 1
    assert of_table(session, "max_partition_size", "files").mebibytes == 1
    duration = of_table(session, "max_sstable_duration", "files").max_sstable_duration
    assert 0 < duration <= 19 * 3_600_000 and duration % 3_600_000 == 0
    node.administer("compact", keyspace="k", table="files")
    history = [row for row in session.execute("SELECT * FROM system.compaction_history") if row.columnfamily_name == "files"]
    assert history and all(row.keyspace_name == "k" for row in history)
    assert all(row.bytes_in > row.bytes_out > 0 for row in history), history
    assert history[0].compaction_properties["compaction_type"] == "Compaction"
    # The same row by its id, also when it is asked for again.
    again = session.execute(f"SELECT * FROM system.compaction_history WHERE id = {history[0].id}").one()
    assert again == history[0]
    assert rows(session, "sstable_tasks") == []


def test_snapshots_are_listed(node, session):
    session.execute("CREATE TABLE kept (k int PRIMARY KEY)")
    session.execute("INSERT INTO kept (k) VALUES (1)")
    node.administer("flush", keyspace="k", table="kept")
    node.administer("snapshot", name="before", keyspace="k", table="kept")
    row = session.execute(
        "SELECT * FROM system_views.snapshots WHERE name = 'before' AND keyspace_name = 'k' AND table_name = 'kept'"
    ).one()
    assert row.size_on_disk > 0 and row.created_at is not None and row.expires_at is None and not row.ephemeral


def test_statements_and_batches_are_counted(session):
    def metrics():
        return {row.name: row.value for row in rows(session, "cql_metrics")}

    session.execute("CREATE TABLE batched (k int PRIMARY KEY)")
    before = metrics()
    prepared = session.prepare("INSERT INTO k.batched (k) VALUES (?)")
    for number in range(7):
        session.execute(prepared, [number])
    after = metrics()
    assert after["prepared_statements_executed"] - before["prepared_statements_executed"] == 7
    assert after["prepared_statements_count"] == before["prepared_statements_count"] + 1
    assert after["regular_statements_executed"] > before["regular_statements_executed"]
    assert 0 < after["prepared_statements_ratio"] < 1
    known = session.execute("SELECT * FROM system.prepared_statements").all()
    assert "INSERT INTO k.batched (k) VALUES (?)" in [row.query_string for row in known]
    session.execute("BEGIN UNLOGGED BATCH INSERT INTO batched (k) VALUES (1); INSERT INTO batched (k) VALUES (2); APPLY BATCH")
    shown = {row.name: row for row in rows(session, "batch_metrics")}
    assert shown["partitions_per_unlogged_batch"].max == 2 and shown["partitions_per_counter_batch"].max == 0


def test_the_node_tells_of_itself(node, session):
    pools = {row.name: row for row in rows(session, "thread_pools")}
    assert pools["MutationStage"].completed_tasks > 0 and pools["ReadStage"].active_tasks_limit == 2
    clients = rows(session, "clients")
    assert clients and all("Python Driver" in row.driver_name and row.request_count > 0 for row in clients)
    [gossip] = rows(session, "gossip_info")
    assert gossip.status_with_port.startswith("NORMAL,") and gossip.rpc_ready == "true" and gossip.generation > 0
    properties = {row.name: row.value for row in rows(session, "system_properties")}
    assert properties["helenus.shards"] == "2" and properties["os.name"] == "linux"
    [cache] = rows(session, "caches")
    assert cache.name == "chunks" and cache.capacity_bytes > 0
    # The request that asks is under way.
    assert any("system_views.queries" in row.task for row in rows(session, "queries"))


def test_the_log_can_be_read_and_forgotten(session):
    lines = rows(session, "system_logs")
    assert any("ready" in row.message and row.level == "INFO" and row.logger.startswith("helenus") for row in lines)
    with pytest.raises(InvalidRequest, match="ALLOW FILTERING"):
        rows(session, "system_logs", "WHERE level = 'INFO'")
    assert rows(session, "system_logs", "WHERE level = 'INFO' ALLOW FILTERING")
    session.execute("TRUNCATE system_views.system_logs")
    assert not any("ready" in row.message for row in rows(session, "system_logs"))


def test_the_busiest_and_heaviest_partitions_are_known(node, session):
    session.execute("CREATE TABLE busy (a int, b text, c int, v text, PRIMARY KEY ((a, b), c))")
    for number in range(30):
        session.execute(f"INSERT INTO busy (a, b, c, v) VALUES ({number % 2}, 'it''s', {number}, 'x')")
    session.execute(f"INSERT INTO busy (a, b, c, v) VALUES (7, 'large', 1, '{'x' * 5_000}')")
    session.execute("DELETE FROM busy WHERE a = 1 AND b = 'it''s' AND c = 1")
    for _ in range(5):
        list(session.execute("SELECT * FROM busy WHERE a = 1 AND b = 'it''s'"))
    list(session.execute("SELECT * FROM busy WHERE a = 0 AND b = 'it''s'"))
    known = rows(session, "top_partitions", "WHERE keyspace_name = 'k' AND table_name = 'busy'")
    for period in ("minutes", "hours"):
        top = {(row.sampler, row.rank): (row.partition_key, row.value, row.error) for row in known if row.period == period}
        assert top["READS", 1] == ("1:it's", 5, 0) and top["READS", 2] == ("0:it's", 1, 0)
        assert top["WRITES", 1] == ("1:it's", 16, 0) and top["WRITES", 2] == ("0:it's", 15, 0)
        assert top["READ_ROW_COUNT", 1][:2] == ("0:it's", 15)
        assert top["READ_TOMBSTONE_COUNT", 1][:2] == ("1:it's", 1) and ("READ_TOMBSTONE_COUNT", 2) not in top
        assert top["WRITE_SIZE", 1][0] == "7:large" and top["WRITE_SIZE", 1][1] > 5_000
        assert top["LOCAL_READ_TIME", 1][0] in ("1:it's", "0:it's")
    status, text = node.admin("toppartitions", "k", "busy")
    assert status == 0 and "k.busy READS" in text and "1:it's" in text and "k.busy WRITE_SIZE" in text, text
    status, text = node.admin("toppartitions", "--hours", "k", "nothing")
    assert status != 0 and "nothing" in text, text


def test_the_largest_partitions_of_files_are_known(node, session):
    session.execute("CREATE TABLE sizes (k text, c int, v text, PRIMARY KEY (k, c))")
    for c in range(50):
        session.execute("INSERT INTO sizes (k, c, v) VALUES ('large', %s, %s)", (c, "x" * 500))
        session.execute("INSERT INTO sizes (k, c, v) VALUES (%s, 1, 'x')", (f"small {c}",))
        session.execute("DELETE FROM sizes WHERE k = 'deleted' AND c = %s", (c,))
    assert not rows(session, "large_partitions", "WHERE keyspace_name = 'k' AND table_name = 'sizes'")
    assert node.admin("flush", "k", "sizes")[0] == 0
    top = {(row.sampler, row.rank): row for row in rows(session, "large_partitions", "WHERE keyspace_name = 'k' AND table_name = 'sizes'")}
    assert top["PARTITION_SIZE", 1].partition_key == "large" and top["PARTITION_SIZE", 1].value > 25_000
    assert top["PARTITION_TOMBSTONES", 1].partition_key == "deleted" and top["PARTITION_TOMBSTONES", 1].value == 50
    assert max(rank for _, rank in top) <= 10


def test_reads_of_many_tombstones_are_logged_with_their_partition():
    with new_node(settings={"tombstone_warn_threshold": 20}) as node, driver_session(node) as session:
        session.execute("CREATE TABLE heavy (k text, c int, PRIMARY KEY (k, c))")
        for c in range(30):
            session.execute("DELETE FROM heavy WHERE k = 'full of them' AND c = %s", (c,))
        for _ in range(3):
            list(session.execute("SELECT * FROM heavy WHERE k = 'full of them'"))
        assert node.log_tail(1000).count("has passed 30 tombstones, more than 20") == 1
        assert "full of them" in node.log_tail(1000)


def test_slow_requests_are_kept_without_their_values(session):
    session.execute("CREATE TABLE slow (k int, c int, v text, PRIMARY KEY (k, c))")

    def one():
        for number in range(100):
            session.execute(f"INSERT INTO slow (k, c, v) VALUES (1, {number}, '{'x' * 50_000}')")
        list(session.execute("SELECT * FROM slow WHERE k = 1"))
        return [row for row in rows(session, "slow_queries", "WHERE keyspace_name = 'k'") if row.table_name == "slow"]

    kept = until("a request takes a millisecond", one)
    assert all(row.min_ms <= row.avg_ms <= row.max_ms and row.times_reported >= 1 for row in kept)
    assert not any("xxx" in row.query for row in kept)
    session.execute("TRUNCATE system_views.slow_queries")


def setting(session, name):
    return session.execute("SELECT value FROM system_views.settings WHERE name = %s", [name]).one().value


def test_settings_that_can_change_are_changed(node, session):
    changes = {
        "compaction_bytes_per_second": "1048576",
        "stream_throughput_bytes_per_second": "2048",
        "hinted_handoff_throttle_bytes_per_second": "4096",
        "hinted_handoff_enabled": "false",
        "hint_delivery": "false",
        "trace_probability": "0.25",
    }
    before = {name: setting(session, name) for name in changes}
    update = session.prepare("UPDATE system_views.settings SET value = ? WHERE name = ?")
    for name, value in changes.items():
        session.execute(update, [value, name])
        assert setting(session, name) == value
    assert node.report("settings")["stream_throughput_bytes_per_second"] == 2048
    for name, value in before.items():
        session.execute(f"INSERT INTO system_views.settings (name, value) VALUES ('{name}', '{value}')")
        assert setting(session, name) == value
    for statement, reason in {
        "UPDATE system_views.settings SET value = 'x' WHERE name = 'trace_probability'": "no number from 0 to 1",
        "UPDATE system_views.settings SET value = '2' WHERE name = 'shards'": "only by a restart",
        "UPDATE system_views.settings SET value = '2' WHERE name = 'nothing'": "There is no setting",
        "DELETE value FROM system_views.settings WHERE name = 'trace_probability'": "Unable to clear",
        "DELETE FROM system_views.settings WHERE name = 'trace_probability'": "Partition deletion is not supported",
        "TRUNCATE system_views.settings": "Truncation is not supported by table system_views.settings",
    }.items():
        with pytest.raises(InvalidRequest, match=reason):
            session.execute(statement)
    assert setting(session, "trace_probability") == before["trace_probability"]


def test_a_view_of_many_tables_is_paged(session):
    for number in range(60):
        session.execute(f"CREATE TABLE many_{number} (k int PRIMARY KEY)")
    session.default_fetch_size, before = 7, session.default_fetch_size
    names = [row.table_name for row in session.execute("SELECT * FROM system_views.disk_usage")]
    session.default_fetch_size = before
    assert len(names) == len(set(names)) and {f"many_{number}" for number in range(60)} <= set(names)
