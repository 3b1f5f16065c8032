"""The partition denylist: which requests are refused, by which way it is changed, and what becomes of it."""

import re

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.query import BatchStatement, SimpleStatement
from conftest import driver_session, new_node
from test_administration import command

ENABLED = {"partition_denylist_enabled": True}
LIST = "system_distributed.partition_denylist"
DENIED = "[0x00000007]"
READ = f"Unable to read denylisted partition {DENIED} in k/t"
WRITE = f"Unable to write to denylisted partition {DENIED} in k/t"
CONDITIONAL = f"Unable to CAS write to denylisted partition {DENIED} in k/t"
RANGE = "Attempted to read a range containing 1 denylisted keys in k/t. Range read: token range: "

READS = [
    "SELECT * FROM t WHERE p = 7",
    "SELECT v FROM t WHERE p = 7 AND c = 1",
    "SELECT v FROM t WHERE p = 7 AND c > 1 ORDER BY c DESC LIMIT 1",
    "SELECT p, c FROM t WHERE p IN (1, 7, 8)",
    "SELECT count(*) FROM t WHERE p = 7",
    "SELECT c FROM t WHERE p = 7 AND w = 1",
    "SELECT DISTINCT s FROM t WHERE p = 7",
    "BEGIN TRANSACTION SELECT v FROM t WHERE p = 7 AND c = 1; COMMIT TRANSACTION",
]
RANGES = [
    "SELECT * FROM t",
    "SELECT count(*) FROM t",
    "SELECT DISTINCT p FROM t",
    "SELECT c FROM t WHERE w = 1",
    "SELECT c FROM t WHERE v = 1 ALLOW FILTERING",
    "SELECT p FROM t WHERE token(p) >= {token} AND token(p) <= {token}",
]
WRITES = [
    "INSERT INTO t (p, c, v) VALUES (7, 1, 1)",
    'INSERT INTO t JSON \'{"p": 7, "c": 1, "v": 1}\'',
    "UPDATE t SET v = 1 WHERE p = 7 AND c = 1",
    "UPDATE t SET l[0] = 1 WHERE p = 7 AND c = 1",
    "UPDATE t SET v = 1 WHERE p IN (1, 7) AND c = 1",
    "DELETE FROM t WHERE p = 7",
    "DELETE FROM t WHERE p = 7 AND c > 1",
    "BEGIN BATCH INSERT INTO t (p, c) VALUES (1, 1); INSERT INTO t (p, c) VALUES (7, 1); APPLY BATCH",
    "BEGIN UNLOGGED BATCH INSERT INTO t (p, c) VALUES (7, 1); DELETE FROM t WHERE p = 7 AND c = 2; APPLY BATCH",
]
CONDITIONALS = [
    "INSERT INTO t (p, c) VALUES (7, 1) IF NOT EXISTS",
    "UPDATE t SET v = 1 WHERE p = 7 AND c = 1 IF v = 1",
    "DELETE FROM t WHERE p = 7 AND c = 1 IF EXISTS",
    "BEGIN TRANSACTION UPDATE t SET v = 1 WHERE p = 7 AND c = 1; COMMIT TRANSACTION",
    "BEGIN BATCH UPDATE t SET v = 1 WHERE p = 7 AND c = 1 IF v = 1; INSERT INTO t (p, c) VALUES (7, 2); APPLY BATCH",
]
ALLOWED = [
    "SELECT * FROM t WHERE p = 8",
    "SELECT * FROM t WHERE p IN (1, 8)",
    "SELECT p FROM t WHERE token(p) > {token}",
    "SELECT p FROM t WHERE token(p) < {token}",
    "INSERT INTO t (p, c, v) VALUES (8, 1, 1)",
    "INSERT INTO t (p, c, v) VALUES (8, 1, 1) IF NOT EXISTS",
    "SELECT * FROM u",
    "INSERT INTO u (p, c) VALUES (7, 1)",
]


def prepare(session):
    """Tables with some rows. Returns the token of the partition 7."""
    session.execute("CREATE TABLE t (p int, c int, v int, w int, s int STATIC, l list<int>, PRIMARY KEY (p, c))")
    session.execute("CREATE INDEX ON t (w) USING 'sai'")
    session.execute("CREATE TABLE u (p int, c int, PRIMARY KEY (p, c))")
    session.execute("CREATE TABLE counts (p int PRIMARY KEY, n counter)")
    for p in (1, 7, 8):
        session.execute(f"INSERT INTO t (p, c, v, w, s, l) VALUES ({p}, 1, 1, 1, 1, [0])")
    return session.execute("SELECT token(p) FROM t WHERE p = 7 LIMIT 1").one()[0]


def deny(session, key="0x00000007", table="t"):
    session.execute(f"INSERT INTO {LIST} (ks_name, table_name, key) VALUES ('k', '{table}', {key})")


def allow(session, key="0x00000007", table="t"):
    session.execute(f"DELETE FROM {LIST} WHERE ks_name = 'k' AND table_name = '{table}' AND key = {key}")


def refused(session, statement, text):
    with pytest.raises(InvalidRequest) as error:
        session.execute(statement)
    assert text in str(error.value), f"{statement}: {error.value}"


def entries(session):
    return sorted((row.ks_name, row.table_name, bytes(row.key)) for row in session.execute(f"SELECT * FROM {LIST}"))


def test_each_kind_of_request_is_refused_until_the_partition_is_allowed_again():
    with new_node(settings=ENABLED) as node, driver_session(node) as session:
        token = prepare(session)
        deny(session)
        kinds = [(READS, READ), (RANGES, RANGE), (WRITES, WRITE), (CONDITIONALS, CONDITIONAL)]
        for statements, text in kinds:
            for statement in statements:
                refused(session, statement.format(token=token) if "{token}" in statement else statement, text)
        for statement in ALLOWED:
            session.execute(statement.format(token=token))
        for statement in ("SELECT * FROM t WHERE p = ?", "INSERT INTO t (p, c) VALUES (?, 1)"):
            prepared = session.prepare(statement)
            refused(session, prepared.bind((7,)), "denylisted")
            session.execute(prepared, (8,))
        batch = BatchStatement()
        batch.add(SimpleStatement("INSERT INTO t (p, c) VALUES (8, 2)"))
        batch.add(SimpleStatement("INSERT INTO t (p, c) VALUES (7, 2)"))
        refused(session, batch, WRITE)
        refused(session, SimpleStatement(READS[0], consistency_level=ConsistencyLevel.SERIAL), READ)
        deny(session, table="counts")
        refused(session, "UPDATE counts SET n = n + 1 WHERE p = 7", "Unable to write to denylisted partition")
        session.execute("UPDATE counts SET n = n + 1 WHERE p = 8")
        rejected = {
            kind: node.metric(f"helenus_partition_denylist_{kind}_rejected_total") for kind in ("read", "range_read", "write")
        }
        assert rejected == {
            "read": len(READS) + 2,
            "range_read": len(RANGES),
            "write": len(WRITES) + len(CONDITIONALS) + 3,
        }
        allow(session)
        for statement in READS + RANGES + WRITES + CONDITIONALS:
            # A list that is set by an index has to be there.
            session.execute("UPDATE t SET l = [0] WHERE p = 7 AND c = 1")
            session.execute(statement.format(token=token) if "{token}" in statement else statement)
        session.execute("TRUNCATE t")


def test_pages_are_refused_from_where_they_have_a_denied_partition():
    with new_node(settings=ENABLED) as node, driver_session(node) as session:
        session.execute("CREATE TABLE paged (p int PRIMARY KEY)")
        for p in range(10):
            session.execute(f"INSERT INTO paged (p) VALUES ({p})")
        order = [row.p for row in session.execute("SELECT p FROM paged")]
        key = lambda p: f"0x{p:08x}"  # noqa: E731
        scan = SimpleStatement("SELECT p FROM paged", fetch_size=3)
        first = session.execute(scan)
        state, rows = first.paging_state, [row.p for row in first.current_rows]
        assert rows == order[:3]
        deny(session, key(order[-1]), "paged")
        with pytest.raises(InvalidRequest, match="range containing 1 denylisted keys in k/paged"):
            session.execute(scan, paging_state=state)
        allow(session, key(order[-1]), "paged")
        # What has been read already is no part of the rest.
        deny(session, key(order[0]), "paged")
        assert [row.p for row in session.execute(scan, paging_state=state)] == order[3:]
        with pytest.raises(InvalidRequest):
            session.execute(scan)


@pytest.mark.parametrize("kind", ["reads", "range_reads", "writes"])
def test_each_kind_can_be_left_out(kind):
    with new_node(settings={**ENABLED, f"denylist_{kind}_enabled": False}) as node, driver_session(node) as session:
        prepare(session)
        deny(session)
        for other, statement in [
            ("reads", READS[0]),
            ("range_reads", RANGES[0]),
            ("writes", WRITES[0]),
            ("writes", CONDITIONALS[0]),
        ]:
            if other == kind:
                session.execute(statement)
            else:
                refused(session, statement, "denylisted")


def test_the_commands_of_operators():
    with new_node(settings=ENABLED) as node, driver_session(node) as session:
        prepare(session)
        session.execute("CREATE TABLE composite (a text, b int, PRIMARY KEY ((a, b)))")
        assert node.admin("denylist", "list") == (0, "no partition is denied\n")
        assert node.admin("denylist", "add", "k", "t", "7") == (0, "k.t 0x00000007: denied\n")
        refused(session, READS[0], READ)
        assert node.admin("denylist", "add", "k", "t", "7")[0] == 0, "it is there already"
        assert node.admin("denylist", "add", "k", "t", "-1") == (0, "k.t 0xffffffff: denied\n")
        assert node.admin("denylist", "add", "k", "composite", "x:7")[0] == 0
        refused(session, "SELECT * FROM composite WHERE a = 'x' AND b = 7", "[0x0001780000040000000700]")
        assert node.admin("denylist", "check", "k", "t", "7") == (0, "k.t 0x00000007: denied\n")
        assert node.admin("denylist", "check", "k", "t", "8") == (0, "k.t 0x00000008: not denied\n")
        status, listed = node.admin("denylist", "list", "k", "t")
        assert status == 0 and "0x00000007" in listed and "0xffffffff" in listed and "composite" not in listed
        report = node.report("denylist")
        assert report["is_obeyed"] and {one["table"] for one in report["partitions"]} == {"t", "composite"}
        assert len(entries(session)) == 3
        assert node.admin("denylist", "remove", "k", "t", "7") == (0, "k.t 0x00000007: not denied\n")
        assert node.admin("denylist", "remove", "k", "t", "7")[0] == 0, "it is gone already"
        session.execute(READS[0])
        for words, text in [
            (("add", "k", "nothing", "7"), "table 'k.nothing' does not exist"),
            (("remove", "k", "nothing", "7"), "table 'k.nothing' does not exist"),
            (("check", "k", "nothing", "7"), "table 'k.nothing' does not exist"),
            (("list", "nothing"), "nothing"),
            (("add", "k", "t", "x y"), "is no value of the column p"),
            (("add", "k", "composite", "x"), "has 2 columns"),
            (("add", "system_traces", "events", "7aa6b9a0-0000-1000-8000-000000000000"), "cannot be denied"),
        ]:
            status, output = node.admin("denylist", *words)
            assert status != 0 and text in output, (words, output)


def test_the_rows_of_the_table_are_the_list():
    with new_node(settings=ENABLED) as node, driver_session(node) as session:
        prepare(session)
        for key in ("0x00000007", "0x00000008"):
            deny(session, key)
        deny(session, table="u")
        assert entries(session) == [("k", "t", b"\0\0\0\7"), ("k", "t", b"\0\0\0\x08"), ("k", "u", b"\0\0\0\7")]
        of_table = f"SELECT key FROM {LIST} WHERE ks_name = 'k' AND table_name = 't'"
        assert [row.key for row in session.execute(of_table)] == [b"\0\0\0\7", b"\0\0\0\x08"]
        prepared = session.prepare(f"DELETE FROM {LIST} WHERE ks_name = ? AND table_name = ? AND key = ?")
        session.execute(prepared, ("k", "t", b"\0\0\0\x08"))
        assert len(entries(session)) == 2
        session.execute(f"DELETE FROM {LIST} WHERE ks_name = 'k' AND table_name = 't'")
        assert entries(session) == [("k", "u", b"\0\0\0\7")]
        row = "(ks_name, table_name, key) VALUES ('k', 't', 0x00000007)"
        for statement, text in [
            (f"INSERT INTO {LIST} (ks_name, table_name, key) VALUES ('k', 'nothing', 0x07)", "table 'k.nothing' does not exist"),
            (f"INSERT INTO {LIST} (ks_name, table_name, key) VALUES ('k', 't', 0x07)", "no partition key of table k.t"),
            (f"INSERT INTO {LIST} (ks_name, table_name, key) VALUES ('system', 'local', 0x07)", "cannot be denied"),
            (f"INSERT INTO {LIST} {row} USING TTL 9", "Expiring columns are not supported"),
            (f"INSERT INTO {LIST} {row} USING TIMESTAMP 9", "USING is not supported"),
            (f"INSERT INTO {LIST} {row} IF NOT EXISTS", "Conditional updates are not supported"),
            (f"DELETE FROM {LIST} WHERE ks_name = 'k' AND table_name = 't' AND key > 0x00", "Range deletion is not supported"),
            (f"BEGIN BATCH INSERT INTO {LIST} {row}; APPLY BATCH", "virtual table"),
        ]:
            refused(session, statement, text)
        assert entries(session) == [("k", "u", b"\0\0\0\7")]


def test_a_list_has_its_bounds():
    settings = {**ENABLED, "denylist_max_keys_per_table": 2, "denylist_max_keys_total": 3}
    with new_node(settings=settings) as node, driver_session(node) as session:
        prepare(session)
        for key in ("0x00000001", "0x00000002"):
            deny(session, key)
        with pytest.raises(InvalidRequest, match=r"k\.t would exceed the per-table allowance of \(2\)"):
            deny(session, "0x00000003")
        deny(session, "0x00000002")
        deny(session, "0x00000001", "u")
        status, output = node.admin("denylist", "add", "k", "u", "2")
        assert status != 0 and "would exceed the global allowance of (3)" in output, output
        assert len(entries(session)) == 3
        allow(session, "0x00000001")
        deny(session, "0x00000003")
        assert len(entries(session)) == 3


def test_the_list_outlives_a_restart_and_goes_with_its_table():
    with new_node(settings=ENABLED) as node:
        with driver_session(node) as session:
            prepare(session)
            deny(session)
            session.execute("ALTER TABLE t ADD x int")
        node.restart()
        with driver_session(node) as session:
            refused(session, READS[0], READ)
            assert entries(session) == [("k", "t", b"\0\0\0\7")]
            session.execute("DROP TABLE t")
            assert entries(session) == []
            session.execute("CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))")
            session.execute(READS[0])
            deny(session)
            session.execute("CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
            session.execute("DROP KEYSPACE k")
            assert entries(session) == []


def test_the_settings_are_changed_while_the_node_runs():
    with new_node() as node:
        with driver_session(node) as session:
            prepare(session)
            assert node.admin("denylist", "add", "k", "t", "7")[0] == 0
            session.execute(READS[0])
            status, shown = node.admin("denylist", "set", "partition_denylist_enabled", "true")
            assert status == 0 and re.search(r"^partition_denylist_enabled +true$", shown, re.M), shown
            refused(session, READS[0], READ)
            assert node.report("denylist")["is_obeyed"]
            session.execute("UPDATE system_views.settings SET value = 'false' WHERE name = 'denylist_reads_enabled'")
            session.execute(READS[0])
            with pytest.raises(InvalidRequest):
                session.execute(RANGES[0])
            assert node.admin("denylist", "set", "denylist_range_reads_enabled", "false")[0] == 0
            assert node.admin("denylist", "set", "denylist_writes_enabled", "false")[0] == 0
            for statement in (READS[0], RANGES[0], WRITES[0]):
                session.execute(statement)
            assert node.admin("denylist", "set", "denylist_max_keys_total", "1")[0] == 0
            status, complaint = node.admin("denylist", "add", "k", "t", "8")
            assert status == 1 and "would exceed the global allowance of (1)" in complaint
            rows = session.execute("SELECT name, value FROM system_views.settings WHERE name = 'denylist_max_keys_total'")
            assert rows.one().value == "1"
            status, complaint = node.admin("denylist", "set", "denylist_max_keys_total", "0")
            assert status == 1 and "'0' is no number from 1 on" in complaint
        # The next start has those of the configuration again.
        node.restart()
        status, shown = node.admin("denylist", "settings")
        assert status == 0 and re.search(r"^partition_denylist_enabled +false$", shown, re.M)
        assert re.search(r"^denylist_max_keys_total +10000$", shown, re.M)


def test_without_the_setting_the_list_is_kept_and_denies_nothing():
    with new_node() as node:
        with driver_session(node) as session:
            prepare(session)
            status, output = node.admin("denylist", "add", "k", "t", "7")
            assert status == 0 and output.startswith("k.t 0x00000007: denied\npartition_denylist_enabled is false"), output
            assert "partition_denylist_enabled is false" in node.admin("denylist", "list")[1]
            assert not node.report("denylist")["is_obeyed"]
            for statement in (READS[0], RANGES[0], WRITES[0], CONDITIONALS[0]):
                session.execute(statement)
        node.settings.update(ENABLED)
        node.restart()
        with driver_session(node) as session:
            refused(session, READS[0], READ)


def test_superusers_are_refused_as_well_and_they_alone_change_the_list():
    settings = {**ENABLED, "authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    with new_node(settings=settings) as node:
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        with driver_session(node, auth_provider=PlainTextAuthProvider("anna", "secret")) as superuser:
            prepare(superuser)
            deny(superuser)
            for statement, text in [(READS[0], READ), (RANGES[0], RANGE), (WRITES[0], WRITE), (CONDITIONALS[0], CONDITIONAL)]:
                refused(superuser, statement, text)
            superuser.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
            superuser.execute("GRANT ALL ON ALL KEYSPACES TO ben")
            with driver_session(node, auth_provider=PlainTextAuthProvider("ben", "ben")) as ordinary:
                refused(ordinary, READS[0], READ)
                with pytest.raises(Unauthorized):
                    allow(ordinary)
                # As in Cassandra nobody can be given that.
                with pytest.raises(Unauthorized, match="Granting permissions on system keyspaces is strictly limited"):
                    superuser.execute(f"GRANT MODIFY ON {LIST} TO ben")
                allow(superuser)
                ordinary.execute(READS[0])


def test_where_clients_log_in_superusers_alone_change_the_list_and_the_settings_also_without_an_authorizer():
    with new_node(settings={**ENABLED, "authenticator": "PasswordAuthenticator"}) as node:
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        with driver_session(node, auth_provider=PlainTextAuthProvider("anna", "secret")) as superuser:
            prepare(superuser)
            deny(superuser)
            superuser.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
            with driver_session(node, auth_provider=PlainTextAuthProvider("ben", "ben")) as ordinary:
                for change in (allow, lambda session: deny(session, key="0x00000009")):
                    with pytest.raises(Unauthorized, match=f"Only superusers are allowed to change {LIST}"):
                        change(ordinary)
                for statement in (
                    "UPDATE system_views.settings SET value = 'false' WHERE name = 'denylist_reads_enabled'",
                    "EXPLAIN ANALYZE UPDATE system_views.settings SET value = 'false' WHERE name = 'denylist_reads_enabled'",
                ):
                    with pytest.raises(Unauthorized, match="Only superusers are allowed to change system_views.settings"):
                        ordinary.execute(statement)
                refused(ordinary, READS[0], READ)
                assert len(entries(ordinary)) == 1
                # What belongs to clients is open to all where nothing is enforced.
                ordinary.execute("ALTER TABLE k.t WITH comment = 'x'")
            superuser.execute("UPDATE system_views.settings SET value = 'false' WHERE name = 'denylist_reads_enabled'")
            superuser.execute(READS[0])
            allow(superuser)
