"""The Python drivers (cassandra-driver and scylla-driver, one source) against a server.

The server is named by CQL_HOST and CQL_PORT; SERVER_RESTART, if set, is a command that restarts it in place
and returns when it serves again. Everything happens in keyspaces of this suite's own.
"""

import datetime
import decimal
import ipaddress
import os
import shlex
import ssl
import subprocess
import threading
import uuid

import pytest
from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest, util
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, BatchType, SimpleStatement

HOST = os.environ.get("CQL_HOST", "127.0.0.1")
PORT = int(os.environ.get("CQL_PORT", "9042"))
RESTART = os.environ.get("SERVER_RESTART")
# Set where the server requires TLS and logins.
AUTHORITY = os.environ.get("CQL_AUTHORITY")
KEYSPACE = "suite_python"
REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"


def secure_options():
    if not AUTHORITY:
        return {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(AUTHORITY)
    login = PlainTextAuthProvider(os.environ["CQL_USER"], os.environ["CQL_PASSWORD"])
    return {"ssl_context": context, "ssl_options": {"server_hostname": HOST}, "auth_provider": login}


def connect(**options):
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()),
        consistency_level=ConsistencyLevel.LOCAL_ONE,
        request_timeout=30,
    )
    return Cluster(
        [HOST],
        port=PORT,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        schema_event_refresh_window=0,
        reconnection_policy=ConstantReconnectionPolicy(0.1, max_attempts=None),
        **secure_options(),
        **options,
    )


@pytest.fixture(scope="module")
def session():
    cluster = connect()
    session = cluster.connect()
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {REPLICATION}")
    session.set_keyspace(KEYSPACE)
    yield session
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    cluster.shutdown()


def wait_until(condition, what, seconds=15):
    """Waits for a change that another connection brings about."""
    tick, waited = threading.Event(), 0.0
    while not condition():
        assert waited < seconds, f"{what}: not within {seconds} s"
        tick.wait(0.05)
        waited += 0.05


NATIVE = {
    "ascii": "plain",
    "bigint": -(2**63),
    "blob": b"\x00\xff\x10",
    "boolean": True,
    "date": util.Date(datetime.date(1969, 12, 31)),
    "decimal": decimal.Decimal("-1234567.125"),
    "double": -2.5e300,
    "duration": util.Duration(14, 3, 1_000_000_007),
    "float": 0.5,
    "inet": "2001:db8::7f",
    "int": -(2**31),
    "smallint": -32768,
    "text": "krem\u00f3wki \u2603 'quoted'",
    "time": util.Time(86_399_999_999_999),
    "timestamp": datetime.datetime(2024, 2, 29, 23, 59, 59, 123000),
    "timeuuid": uuid.UUID("30821634-13ad-11eb-adc1-0242ac120002"),
    "tinyint": -128,
    "uuid": uuid.UUID("8a3f9f6e-6d8a-4f43-a5a0-1f9b3b7f6f11"),
    "varint": -(10**40),
}


def test_topology(session):
    hosts = list(session.cluster.metadata.all_hosts())
    assert len(hosts) == 1
    host = hosts[0]
    assert host.is_up and host.host_id and host.datacenter and host.rack
    assert host.release_version[0].isdigit()
    assert session.cluster.metadata.token_map.ring, "the driver could not build the ring"
    replicas = session.cluster.metadata.get_replicas(KEYSPACE, b"\x00\x00\x00\x01")
    assert [replica.host_id for replica in replicas] == [host.host_id]


@pytest.mark.parametrize("how", ["prepared", "interpolated"])
def test_native_types(session, how):
    session.execute(f"DROP TABLE IF EXISTS native_{how}")
    columns = ", ".join(f"v_{name} {name}" for name in NATIVE)
    session.execute(f"CREATE TABLE native_{how} (id int PRIMARY KEY, {columns})")
    names = ", ".join(f"v_{name}" for name in NATIVE)
    table = f"native_{how} (id, {names})"
    if how == "prepared":
        insert = session.prepare(f"INSERT INTO {table} VALUES (?{', ?' * len(NATIVE)})")
        session.execute(insert, [1, *NATIVE.values()])
        session.execute(insert, [2] + [None] * len(NATIVE))
        session.execute(insert, [3])
    else:
        session.execute(f"INSERT INTO {table} VALUES (%s{', %s' * len(NATIVE)})", [1, *NATIVE.values()])
        session.execute(f"INSERT INTO {table} VALUES (%s{', %s' * len(NATIVE)})", [2] + [None] * len(NATIVE))
        session.execute(f"INSERT INTO native_{how} (id) VALUES (3)")
    row = session.execute(f"SELECT {names} FROM native_{how} WHERE id = 1").one()
    for (name, expected), actual in zip(NATIVE.items(), row):
        if name == "inet":
            actual, expected = ipaddress.ip_address(actual), ipaddress.ip_address(expected)
        assert actual == expected, name
    for identity in (2, 3):
        row = session.execute(f"SELECT {names} FROM native_{how} WHERE id = {identity}").one()
        assert all(value is None for value in row)


def test_numbers_beyond_machine_words(session):
    session.execute("CREATE TABLE numbers (id int PRIMARY KEY, d decimal, v varint)")
    insert = session.prepare("INSERT INTO numbers (id, d, v) VALUES (?, ?, ?)")
    wide = (decimal.Decimal("-12345678901234567890.000123"), 2**200 - 1)
    session.execute(insert, [1, *wide])
    assert tuple(session.execute("SELECT d, v FROM numbers").one()) == wide


def test_vector(session):
    session.execute("CREATE TABLE vectors (id int PRIMARY KEY, v vector<float, 3>)")
    session.execute(session.prepare("INSERT INTO vectors (id, v) VALUES (?, ?)"), [1, [0.5, -1.0, 2.25]])
    assert list(session.execute("SELECT v FROM vectors").one().v) == [0.5, -1.0, 2.25]


def test_collections_tuples_and_user_types(session):
    session.execute("CREATE TYPE address (street text, number int, tags frozen<set<text>>)")
    session.execute(
        "CREATE TABLE nested (id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, "
        "fl frozen<list<frozen<map<int, text>>>>, t tuple<int, text, boolean>, home frozen<address>, "
        "others map<text, frozen<address>>)"
    )
    class Address:
        def __init__(self, street, number, tags):
            self.street, self.number, self.tags = street, number, tags

        def __eq__(self, other):
            return (self.street, self.number, set(self.tags)) == (other.street, other.number, set(other.tags))

    session.cluster.register_user_type(KEYSPACE, "address", Address)
    home, work = Address("Main", 1, {"a", "b"}), Address("Side", -2, set())
    insert = session.prepare("INSERT INTO nested (id, l, s, m, fl, t, home, others) VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
    nested = [{1: "one"}, {2: "two", 3: "three"}]
    session.execute(insert, [1, [3, 1, 3], {"x", "y"}, {"k": 2**40}, nested, (7, None, True), home, {"work": work}])
    row = session.execute("SELECT * FROM nested WHERE id = 1").one()
    assert row.l == [3, 1, 3] and set(row.s) == {"x", "y"} and dict(row.m) == {"k": 2**40}
    assert [dict(m) for m in row.fl] == nested
    assert tuple(row.t) == (7, None, True)
    assert row.home == home and row.others["work"] == work

    session.execute("UPDATE nested SET l = l + [9], l[0] = 4, s = s - {'x'}, m['n'] = 5 WHERE id = 1")
    session.execute("DELETE m['k'] FROM nested WHERE id = 1")
    row = session.execute("SELECT l, s, m FROM nested WHERE id = 1").one()
    assert row.l == [4, 1, 3, 9] and set(row.s) == {"y"} and dict(row.m) == {"n": 5}
    session.execute("UPDATE nested SET l = [], s = {}, m = {} WHERE id = 1")
    row = session.execute("SELECT l, s, m FROM nested WHERE id = 1").one()
    assert not row.l and not row.s and not row.m


def test_counters(session):
    session.execute("CREATE TABLE counters (id int PRIMARY KEY, hits counter)")
    update = session.prepare("UPDATE counters SET hits = hits + ? WHERE id = ?")
    for amount in (5, 7, -2):
        session.execute(update, [amount, 1])
    batch = BatchStatement(batch_type=BatchType.COUNTER)
    batch.add(update, [10, 1])
    session.execute(batch)
    assert session.execute("SELECT hits FROM counters WHERE id = 1").one().hits == 20


def test_paging_returns_each_row_once(session):
    session.execute("CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c))")
    insert = session.prepare("INSERT INTO pages (p, c) VALUES (?, ?)")
    for c in range(95):
        session.execute(insert, [c % 7, c])
        session.execute(insert, [1000, c])
    one_partition = session.execute(SimpleStatement("SELECT c FROM pages WHERE p = 1000", fetch_size=10))
    assert len(one_partition.current_rows) == 10 and one_partition.has_more_pages
    assert [row.c for row in one_partition] == list(range(95))
    backwards = SimpleStatement("SELECT c FROM pages WHERE p = 1000 ORDER BY c DESC", fetch_size=10)
    assert [row.c for row in session.execute(backwards)] == list(range(94, -1, -1))
    whole = [(row.p, row.c) for row in session.execute(SimpleStatement("SELECT p, c FROM pages", fetch_size=10))]
    assert sorted(whole) == sorted([(c % 7, c) for c in range(95)] + [(1000, c) for c in range(95)])
    # A page's state is taken up again by another session.
    first = session.execute(SimpleStatement("SELECT c FROM pages WHERE p = 1000", fetch_size=50))
    other = connect()
    try:
        rest = other.connect(KEYSPACE).execute(
            SimpleStatement("SELECT c FROM pages WHERE p = 1000", fetch_size=50), paging_state=first.paging_state
        )
        assert [row.c for row in rest] == list(range(50, 95))
    finally:
        other.shutdown()


def test_prepared_statements(session):
    session.execute("CREATE TABLE prepared (a int, b text, c int, v text, PRIMARY KEY ((a, b), c))")
    insert = session.prepare("INSERT INTO prepared (a, b, c, v) VALUES (:a, :b, :c, :v)")
    assert [column.name for column in insert.column_metadata] == ["a", "b", "c", "v"]
    assert insert.routing_key_indexes == [0, 1]
    session.execute(insert, {"a": 1, "b": "x", "c": 2, "v": "named"})
    select = session.prepare("SELECT v FROM prepared WHERE a = ? AND b = ? AND c IN ?")
    assert session.execute(select, [1, "x", [2, 3]]).one().v == "named"
    with pytest.raises(InvalidRequest):
        session.prepare("SELECT nothing FROM prepared")


def test_batches(session):
    session.execute("CREATE TABLE batches (p int, c int, v text, PRIMARY KEY (p, c))")
    insert = session.prepare("INSERT INTO batches (p, c, v) VALUES (?, ?, ?)")
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(batch_type=kind)
        batch.add(insert, [1, 1, kind.name])
        batch.add(SimpleStatement("INSERT INTO batches (p, c, v) VALUES (2, 1, %s)"), [kind.name])
        batch.add(SimpleStatement("DELETE FROM batches WHERE p = 3"))
        session.execute(batch)
        assert {row.v for row in session.execute("SELECT v FROM batches")} == {kind.name}
    session.execute("BEGIN BATCH INSERT INTO batches (p, c, v) VALUES (9, 1, 'a') UPDATE batches SET v = 'b' WHERE p = 9 AND c = 2 APPLY BATCH")
    assert [row.v for row in session.execute("SELECT v FROM batches WHERE p = 9")] == ["a", "b"]
    session.execute("CREATE TABLE lists (p int PRIMARY KEY, l list<int>)")
    for partition in range(8):
        session.execute("INSERT INTO lists (p, l) VALUES (%s, [1, 2, 3])", [partition])
    changes = "".join(f"UPDATE lists SET l[1] = {n} WHERE p = {n}; UPDATE lists SET l = l - [1] WHERE p = {n};" for n in range(8))
    session.execute(f"BEGIN BATCH {changes} APPLY BATCH")
    assert {row.p: row.l for row in session.execute("SELECT p, l FROM lists")} == {n: [n, 3] for n in range(8)}


def test_lightweight_transactions(session):
    session.execute("CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance int)")
    first = session.execute("INSERT INTO accounts (id, owner, balance) VALUES (1, 'ann', 10) IF NOT EXISTS")
    assert first.was_applied
    second = session.execute("INSERT INTO accounts (id, owner, balance) VALUES (1, 'bob', 0) IF NOT EXISTS")
    assert not second.was_applied and second.one().owner == "ann"
    update = session.prepare("UPDATE accounts SET balance = ? WHERE id = ? IF balance = ?")
    assert session.execute(update, [20, 1, 10]).was_applied
    refused = session.execute(update, [30, 1, 10])
    assert not refused.was_applied and refused.one().balance == 20
    assert session.execute("DELETE FROM accounts WHERE id = 1 IF EXISTS").was_applied
    assert not session.execute("DELETE FROM accounts WHERE id = 1 IF EXISTS").was_applied


def test_errors(session):
    with pytest.raises(SyntaxException, match=r"line 1:"):
        session.execute("SELEC 1")
    with pytest.raises(InvalidRequest):
        session.execute("SELECT * FROM missing_table")
    with pytest.raises(InvalidRequest, match="missing_keyspace"):
        session.execute("SELECT * FROM missing_keyspace.t")
    session.execute("CREATE TABLE twice (id int PRIMARY KEY)")
    with pytest.raises(AlreadyExists) as caught:
        session.execute("CREATE TABLE twice (id int PRIMARY KEY)")
    assert (caught.value.keyspace, caught.value.table) == (KEYSPACE, "twice")
    session.execute("CREATE TABLE IF NOT EXISTS twice (id int PRIMARY KEY)")
    with pytest.raises(InvalidRequest):
        session.execute("INSERT INTO twice (id) VALUES ('text')")
    assert session.execute("SELECT * FROM twice").one() is None, "the connection works after errors"


def test_unprepared_is_healed(session):
    session.execute("CREATE TABLE healed (id int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO healed (id, v) VALUES (?, ?)")
    session.execute(insert, [1, 1])
    session.execute("DROP TABLE healed")
    session.execute("CREATE TABLE healed (id int PRIMARY KEY, v int)")
    session.execute(insert, [2, 2])
    assert [row.id for row in session.execute("SELECT id FROM healed")] == [2]


def test_altered_table_is_seen_by_prepared_statements(session):
    session.execute("CREATE TABLE altered (id int PRIMARY KEY, a int)")
    select = session.prepare("SELECT * FROM altered WHERE id = ?")
    session.execute("INSERT INTO altered (id, a) VALUES (1, 2)")
    assert tuple(session.execute(select, [1]).one()) == (1, 2)
    session.execute("ALTER TABLE altered ADD b text")
    session.execute("INSERT INTO altered (id, b) VALUES (1, 'new')")
    row = session.execute(select, [1]).one()
    assert (row.id, row.a, row.b) == (1, 2, "new")


def test_altered_type_is_seen_by_prepared_statements(session):
    session.execute("CREATE TYPE growing (a int)")
    session.execute("CREATE TABLE grown (id int PRIMARY KEY, u frozen<growing>)")
    select = session.prepare("SELECT u FROM grown WHERE id = ?")
    session.execute("INSERT INTO grown (id, u) VALUES (1, {a: 1})")
    assert session.execute(select, [1]).one().u.a == 1
    session.execute("ALTER TYPE growing ADD b text")
    session.execute("INSERT INTO grown (id, u) VALUES (1, {a: 1, b: 'new'})")
    found = session.execute(select, [1]).one().u
    assert (found.a, found.b) == (1, "new")


def test_sets_and_maps_are_equal_in_whatever_order_they_were_sent(session):
    session.execute("CREATE TABLE ordered (k frozen<set<text>>, c frozen<map<text, int>>, s set<int>, PRIMARY KEY (k, c))")
    insert = session.prepare("INSERT INTO ordered (k, c, s) VALUES (?, ?, ?)")
    for key, clustering in [("ba", "yx"), ("ab", "xy"), ("aba", "yx")]:
        session.execute(insert, [list(key), {name: 1 for name in clustering}, [3, 1, 2]])
    assert len(list(session.execute("SELECT * FROM ordered"))) == 1
    found = session.execute("SELECT toJson(k) FROM ordered WHERE k = {'a', 'b'} AND c = {'x': 1, 'y': 1}").one()
    assert found[0] == '["a", "b"]'
    update = session.prepare("UPDATE ordered SET s = ? WHERE k = ? AND c = ? IF s = ?")
    applied = session.execute(update, [[9], ["b", "a"], {"y": 1, "x": 1}, [2, 3, 1]])
    assert applied.was_applied


def test_a_column_that_comes_back_shows_what_is_newer_than_its_drop(session):
    session.execute("DROP TABLE IF EXISTS dropped")
    session.execute("CREATE TABLE dropped (k int, c int, v int, s int STATIC, m map<int, int>, PRIMARY KEY (k, c))")
    for c in range(4):
        write = "INSERT INTO dropped (k, c, v, s) VALUES (1, %s, %s, %s) USING TIMESTAMP %s"
        session.execute(write, (c, c, c, 10 * c))
        session.execute("UPDATE dropped USING TIMESTAMP %s SET m[%s] = 1 WHERE k = 1 AND c = 9", (10 * c, c))
    session.execute("UPDATE dropped USING TIMESTAMP 5 SET v = 5 WHERE k = 1 AND c = 5")
    session.execute("ALTER TABLE dropped DROP (v, s, m) USING TIMESTAMP 10")
    dropped = "SELECT column_name, dropped_time, kind, type FROM system_schema.dropped_columns WHERE keyspace_name = %s AND table_name = 'dropped'"
    rows = [(row.column_name, row.kind, row.type) for row in session.execute(dropped, (KEYSPACE,))]
    assert rows == [("m", "regular", "map<int, int>"), ("s", "static", "int"), ("v", "regular", "int")]
    with pytest.raises(InvalidRequest, match="incompatible with previous type int"):
        session.execute("ALTER TABLE dropped ADD v text")
    session.execute("ALTER TABLE dropped ADD (v int, s int STATIC, m map<int, int>)")
    rows = [(row.c, row.v, row.s, row.m) for row in session.execute("SELECT c, v, s, m FROM dropped WHERE k = 1")]
    # Row 5 had nothing but the column as it was before.
    assert rows == [(0, None, 3, None), (1, None, 3, None), (2, 2, 3, None), (3, 3, 3, None), (9, None, 3, {2: 1, 3: 1})]
    result = session.execute("UPDATE dropped SET v = 6 WHERE k = 1 AND c = 5 IF EXISTS")
    assert not result.was_applied
    assert len(list(session.execute(dropped, (KEYSPACE,)))) == 3


def test_schema_metadata(session):
    session.execute(
        "CREATE TABLE described (a int, b text, c timeuuid, d int, s text static, v list<int>, "
        "PRIMARY KEY ((a, b), c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'a table' AND gc_grace_seconds = 7"
    )
    session.execute("CREATE TYPE pair (left int, right frozen<list<text>>)")
    session.execute("""CREATE TABLE "Quoted" ("Key" int PRIMARY KEY, "select" frozen<pair>)""")
    keyspace = session.cluster.metadata.keyspaces[KEYSPACE]
    assert keyspace.durable_writes and keyspace.replication_strategy.replication_factor == 1
    table = keyspace.tables["described"]
    assert [column.name for column in table.partition_key] == ["a", "b"]
    assert [(column.name, column.is_reversed) for column in table.clustering_key] == [("c", True), ("d", False)]
    assert table.columns["s"].is_static and table.columns["v"].cql_type == "list<int>"
    assert not table.is_compact_storage
    assert table.options["comment"] == "a table" and table.options["gc_grace_seconds"] == 7
    assert "CREATE TABLE " + KEYSPACE + ".described" in table.as_cql_query()
    assert keyspace.user_types["pair"].field_names == ["left", "right"]
    assert keyspace.tables["Quoted"].columns["select"].cql_type == "frozen<pair>"
    session.execute('DROP TABLE "Quoted"')
    session.execute("DROP TYPE pair")
    assert "Quoted" not in keyspace.tables and "pair" not in keyspace.user_types
    assert "local" in session.cluster.metadata.keyspaces["system"].tables


@pytest.mark.parametrize(
    ("version", "compression"),
    [(3, False), (3, "lz4"), (3, "snappy"), (4, False), (4, "lz4"), (4, "snappy"), (5, False), (5, "lz4")],
)
def test_protocol_versions_and_compression(session, version, compression):
    session.execute(f"CREATE TABLE IF NOT EXISTS {KEYSPACE}.versions (id text PRIMARY KEY, v text)")
    cluster = connect(protocol_version=version, compression=compression)
    try:
        own = cluster.connect(KEYSPACE)
        large = "0123456789abcdef" * 40_000
        insert = own.prepare("INSERT INTO versions (id, v) VALUES (?, ?)")
        own.execute(insert, ["small", "s"])
        own.execute(insert, ["large", large])
        select = own.prepare("SELECT v FROM versions WHERE id = ?")
        assert own.execute(select, ["small"]).one().v == "s"
        assert own.execute(select, ["large"]).one().v == large
        futures = [own.execute_async(select, ["small"]) for _ in range(200)]
        assert {future.result().one().v for future in futures} == {"s"}
        with pytest.raises(InvalidRequest):
            own.execute("SELECT * FROM missing_table")
    finally:
        cluster.shutdown()


def test_large_and_many_rows(session):
    session.execute("CREATE TABLE large (p int, c int, v blob, PRIMARY KEY (p, c))")
    insert = session.prepare("INSERT INTO large (p, c, v) VALUES (1, ?, ?)")
    value = bytes(range(256)) * 400
    futures = [session.execute_async(insert, [c, value]) for c in range(40)]
    for future in futures:
        future.result()
    rows = session.execute(SimpleStatement("SELECT c, v FROM large WHERE p = 1", fetch_size=None)).all()
    assert [row.c for row in rows] == list(range(40)) and all(row.v == value for row in rows)


def test_timestamps_ttl_and_functions(session):
    session.execute("CREATE TABLE times (id int PRIMARY KEY, v int)")
    session.execute("INSERT INTO times (id, v) VALUES (1, 1) USING TIMESTAMP 1000 AND TTL 600")
    row = session.execute("SELECT writetime(v) AS w, ttl(v) AS t, token(id) AS k FROM times").one()
    assert row.w == 1000 and 0 < row.t <= 600 and row.k == -4069959284402364209
    session.execute("INSERT INTO times (id, v) VALUES (1, 0) USING TIMESTAMP 999")
    assert session.execute("SELECT v FROM times WHERE id = 1").one().v == 1
    session.execute("INSERT INTO times (id, v) VALUES (2, 5)")
    totals = session.execute("SELECT count(*) AS n, sum(v) AS s, max(v) AS m FROM times").one()
    assert (totals.n, totals.s, totals.m) == (2, 6, 5)
    as_json = session.execute("SELECT JSON id, v FROM times WHERE id = 2").one()
    assert as_json[0] == '{"id": 2, "v": 5}'


def test_tracing(session):
    session.execute("CREATE TABLE traced (id int PRIMARY KEY)")
    result = session.execute("SELECT * FROM traced", trace=True)
    trace = result.get_query_trace(max_wait_sec=10)
    assert trace.duration is not None and trace.started_at is not None and trace.coordinator
    assert trace.events, "a trace has at least one event"


def test_schema_events_reach_other_clients(session):
    other = connect()
    try:
        other.connect()
        name = f"{KEYSPACE}_events"
        session.execute(f"DROP KEYSPACE IF EXISTS {name}")
        session.execute(f"CREATE KEYSPACE {name} WITH replication = {REPLICATION}")
        seen = other.metadata.keyspaces
        wait_until(lambda: name in seen, "the event of a new keyspace")
        session.execute(f"CREATE TABLE {name}.t (id int PRIMARY KEY)")
        wait_until(lambda: "t" in seen[name].tables, "the event of a new table")
        session.execute(f"ALTER TABLE {name}.t ADD v int")
        wait_until(lambda: "v" in seen[name].tables["t"].columns, "the event of a changed table")
        session.execute(f"DROP KEYSPACE {name}")
        wait_until(lambda: name not in seen, "the event of a dropped keyspace")
    finally:
        other.shutdown()


def test_use_keyspace(session):
    cluster = connect()
    try:
        own = cluster.connect()
        own.execute(f"USE {KEYSPACE}")
        assert own.keyspace == KEYSPACE
        row = own.execute("SELECT key, cluster_name FROM system.local").one()
        assert row.key == "local" and row.cluster_name
        own.execute("CREATE TABLE used (id int PRIMARY KEY)")
        assert "used" in cluster.metadata.keyspaces[KEYSPACE].tables
    finally:
        cluster.shutdown()


@pytest.mark.skipif(not RESTART, reason="no SERVER_RESTART command")
def test_reconnects_after_a_restart(session):
    session.execute("CREATE TABLE survivors (id int PRIMARY KEY, v text)")
    insert = session.prepare("INSERT INTO survivors (id, v) VALUES (?, ?)")
    session.execute(insert, [1, "before"])
    subprocess.run(shlex.split(RESTART), check=True)

    def works():
        try:
            session.execute(insert, [2, "after"])
            return True
        except Exception:
            return False

    wait_until(works, "a request after the restart", seconds=30)
    assert {row.v for row in session.execute("SELECT v FROM survivors")} == {"before", "after"}
