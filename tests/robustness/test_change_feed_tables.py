"""The tables of change feeds: logs that follow their base tables, and what consumers ask for before they read."""

import datetime

import pytest
from cassandra import InvalidRequest, Unauthorized
from cluster import Cluster, until
from conftest import driver_session, new_node, program

LOG = "t_scylla_cdc_log"
SHARDS = 2
IGNORED_BITS = 12


def table(session, name):
    """What the driver knows of a table; the driver hears of changes by events."""
    keyspace = session.cluster.metadata.keyspaces["k"]
    return keyspace.tables.get(name)


def generations(session):
    rows = session.execute("SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'")
    return [row.time for row in rows]


def streams(session, time):
    """The ids of the streams of a generation by the end of their range."""
    select = session.prepare("SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?")
    return {row.range_end: sorted(row.streams) for row in session.execute(select, [time])}


def token(stream):
    return int.from_bytes(stream[:8], "big", signed=True)


def shard(token, shards):
    """ScyllaDB's algorithm."""
    biased = (token + (1 << 63)) & ((1 << 64) - 1)
    return (((biased << IGNORED_BITS) & ((1 << 64) - 1)) * shards) >> 64


@pytest.fixture
def fed(session):
    session.execute(
        "CREATE TABLE t (p int, c int, s text static, l list<int>, m map<text, int>, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true, 'ttl': 600}"
    )
    yield session
    session.execute("DROP TABLE IF EXISTS t")


def test_drivers_hear_of_a_log_with_its_base_table(session):
    session.execute("CREATE TABLE t (p int PRIMARY KEY, v int)")
    until("the table is known", lambda: table(session, "t"))
    assert table(session, LOG) is None
    session.execute("ALTER TABLE t WITH cdc = true")
    until("the log is known", lambda: table(session, LOG))
    columns = {name: column.cql_type for name, column in table(session, LOG).columns.items()}
    assert columns["cdc$stream_id"] == "blob" and columns["cdc$time"] == "timeuuid" and columns["v"] == "int"
    session.execute("ALTER TABLE t ADD w list<int>")
    until("its columns are known", lambda: "cdc$deleted_elements_w" in table(session, LOG).columns)
    assert table(session, LOG).columns["w"].cql_type == "frozen<map<timeuuid, int>>"
    session.execute("DROP TABLE t")
    until("it is gone", lambda: table(session, LOG) is None)


def test_a_log_is_changed_by_its_base_table_only(fed):
    for statement in [
        f'INSERT INTO {LOG} ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no") VALUES (0x00, now(), 0)',
        f'DELETE FROM {LOG} WHERE "cdc$stream_id" = 0x00',
        f"TRUNCATE {LOG}",
        f"DROP TABLE {LOG}",
        f"ALTER TABLE {LOG} ADD x int",
        f"CREATE INDEX ON {LOG} (p)",
    ]:
        with pytest.raises((InvalidRequest, Unauthorized)):
            fed.execute(statement)
    fed.execute(f"ALTER TABLE {LOG} WITH comment = 'mine'")
    fed.execute("ALTER TABLE t WITH cdc = {'enabled': false}")
    fed.execute(f"TRUNCATE {LOG}")
    fed.execute(f"DROP TABLE {LOG}")


def test_the_schema_tells_drivers_of_partitioner_and_options(fed):
    rows = {
        row.table_name: row
        for row in fed.execute("SELECT table_name, cdc, partitioner FROM system_schema.scylla_tables WHERE keyspace_name IN ('k')")
    }
    assert rows["t"].cdc["enabled"] == "true" and rows["t"].cdc["ttl"] == "600" and rows["t"].partitioner is None
    assert rows[LOG].partitioner == "com.scylladb.dht.CDCPartitioner"
    assert not list(fed.execute("SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = 'k'"))
    described = fed.execute(f"DESCRIBE TABLE {LOG}").one().create_statement
    assert described.startswith("/*") and described.endswith("*/")
    assert "'ttl': '600'" in fed.execute("DESCRIBE TABLE t").one().create_statement
    fed.execute("DESCRIBE KEYSPACE k WITH INTERNALS")


def test_a_stream_is_in_the_range_and_on_the_shard_of_its_partitions(fed):
    [time] = generations(fed)
    by_end = streams(fed, time)
    ends = sorted(by_end)
    tokens = sorted(int(text) for text in fed.execute("SELECT tokens FROM system.local").one().tokens)
    assert ends == tokens
    for start, end in zip([ends[-1], *ends], ends):
        ids = by_end[end]
        assert ids and all(len(stream) == 16 and stream[15] & 15 == 1 for stream in ids)
        for stream in ids:
            inside = start < token(stream) <= end if start < end else token(stream) > start or token(stream) <= end
            assert inside
        shards = [shard(token(stream), SHARDS) for stream in ids]
        assert len(set(shards)) == len(shards) <= SHARDS


def test_the_statements_of_consumers_are_answered(fed):
    [time] = generations(fed)
    ids = [stream for of_range in streams(fed, time).values() for stream in of_range]
    assert fed.execute("SELECT COUNT(*) FROM system.peers").one().count == 0
    newest = fed.prepare(
        "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps' AND time <= ? ORDER BY time DESC LIMIT 1"
    )
    later = fed.prepare(
        "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps' AND time > ? ORDER BY time ASC LIMIT 1"
    )
    now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=1)
    assert fed.execute(newest, [now]).one().time == time
    assert fed.execute(later, [time]).one() is None
    before = time - datetime.timedelta(seconds=1)
    assert fed.execute(later, [before]).one().time == time
    window = fed.prepare(
        f'SELECT * FROM {LOG} WHERE "cdc$stream_id" in ? AND "cdc$time" >= minTimeuuid(?) AND "cdc$time" < minTimeuuid(?) BYPASS CACHE'
    )
    assert list(fed.execute(window, [ids, now, now + datetime.timedelta(minutes=1)])) == []
    one = fed.prepare(f'SELECT * FROM {LOG} WHERE "cdc$stream_id" = ? BYPASS CACHE')
    assert all(list(fed.execute(one, [stream])) == [] for stream in ids[:20])
    for row in fed.execute(f'SELECT DISTINCT "cdc$stream_id", token("cdc$stream_id") AS t FROM {LOG}'):
        assert row.t == token(row[0])


def test_a_restart_keeps_feeds_and_streams():
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE t (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'preimage': 'full'}")
            before = generations(session)
            ids = streams(session, before[0])
        node.stop()
        node.start()
        with driver_session(node) as session:
            assert generations(session) == before and streams(session, before[0]) == ids
            cdc = session.execute("SELECT cdc FROM system_schema.scylla_tables WHERE keyspace_name = 'k' AND table_name = 't'").one().cdc
            assert cdc["preimage"] == "full"
            session.execute("DROP TABLE t")
            assert generations(session) == []


def test_a_node_joins_when_the_streams_are_right_for_it():
    with Cluster(1, program(), settings={"cdc_generation_delay_ms": 1000}) as cluster:
        with driver_session(cluster.nodes[0]) as session:
            session.execute("CREATE TABLE t (p int PRIMARY KEY, v int) WITH cdc = true")
            [first] = generations(session)
            # The new node has another number of shards.
            cluster.shards = 3
            cluster.add()
            newest, oldest = generations(session)
            assert oldest == first < newest
            tokens = {end for time in [newest] for end in streams(session, time)}
            owned = set()
            for node in cluster.nodes:
                with driver_session(node) as other:
                    for host in other.cluster.metadata.all_hosts():
                        local = other.execute("SELECT tokens FROM system.local", host=host).one()
                        owned |= {int(text) for text in local.tokens}
                    assert generations(other) == [newest, oldest]
                    assert streams(other, newest) == streams(session, newest)
            assert tokens == owned
            for ids in streams(session, newest).values():
                places = {(shard(token(stream), 1), shard(token(stream), 3)) for stream in ids}
                assert len(places) == len(ids) <= 3
