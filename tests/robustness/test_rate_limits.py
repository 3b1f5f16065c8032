"""How many requests a second a role may make, and a partition and a table take."""

import struct
import time

import pytest
import wire
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ConfigurationException
from cluster import until
from conftest import driver_session, new_node
from test_administration import command
from wire import (
    AUTH_RESPONSE,
    AUTH_SUCCESS,
    AUTHENTICATE,
    BATCH,
    ERROR,
    EXECUTE,
    OPTIONS,
    PREPARE,
    QUERY,
    RESULT,
    STARTUP,
    SUPPORTED,
    Client,
    frame,
)

PER_SECOND = 50
OVERLOADED = 0x1001
RATE_LIMIT_ERROR = 0x4321
EXTENSION = "SCYLLA_RATE_LIMIT_ERROR"


def answers(client, text, count):
    return [client.ask(QUERY, wire.query(text)) for _ in range(count)]


def test_a_role_that_asks_too_often_is_refused_and_served_again():
    with new_node(settings={"role_requests_per_second_max": PER_SECOND}) as node:
        address = (node.host, node.port)
        select = "SELECT release_version FROM system.local"
        with Client(address) as plain, Client(address, **{EXTENSION: ""}) as aware:
            supported = plain.ask(OPTIONS)
            assert supported.opcode == SUPPORTED and b"ERROR_CODE=17185" in supported.body
            begun = time.monotonic()
            first = answers(plain, select, 4 * PER_SECOND)
            took = time.monotonic() - begun
            served = sum(answer.opcode == RESULT for answer in first)
            assert PER_SECOND <= served <= PER_SECOND * (1 + took) + 1
            refused = {answer.error_code for answer in first if answer.opcode == ERROR}
            assert refused == {OVERLOADED}
            assert "makes more than 50 requests a second" in next(a.message for a in first if a.opcode == ERROR)
            # Another connection of the same role, which knows an error of its own for it.
            codes = [answer for answer in answers(aware, select, PER_SECOND) if answer.opcode == ERROR]
            assert {answer.error_code for answer in codes} == {RATE_LIMIT_ERROR}
            assert codes[0].body.endswith(struct.pack(">BB", 0, 1))
            writes = answers(aware, "INSERT INTO system.t (k) VALUES (1)", PER_SECOND)
            limited = [answer for answer in writes if answer.error_code == RATE_LIMIT_ERROR]
            assert limited and limited[0].body.endswith(struct.pack(">BB", 1, 1))
            deadline = time.monotonic() + 30
            while answers(plain, select, 1)[0].opcode != RESULT:
                assert time.monotonic() < deadline
        assert node.metric("helenus_rate_limited_requests_total") > 0


def test_the_options_of_a_role_bound_it_in_place_of_the_setting():
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    with new_node(settings={**settings, "role_requests_per_second_max": 100_000}) as node:
        made = command("admin", "create-superuser", "root", "--data-dir", node.data_dir, stdin="root\n")
        assert made[0] == 0, made
        login = PlainTextAuthProvider("root", "root")
        with driver_session(node, auth_provider=login) as root:
            for options in ("'shares': '0'", "'shares': 'many'", "'shares': '5', 'weight': '1'"):
                with pytest.raises(InvalidRequest, match="of a role takes|has no option 'weight'"):
                    root.execute(f"CREATE ROLE clerk WITH OPTIONS = {{{options}}}")
            options = f"{{'requests_per_second_max': {PER_SECOND}, 'shares': 50}}"
            root.execute(f"CREATE ROLE clerk WITH PASSWORD = 'clerk' AND LOGIN = true AND OPTIONS = {options}")
            listed = root.execute("LIST ROLES OF clerk").one()
            assert dict(listed.options) == {"requests_per_second_max": str(PER_SECOND), "shares": "50"}
            script = command("admin", "describe-roles", "--data-dir", node.data_dir)
            assert f"'requests_per_second_max': '{PER_SECOND}'" in script[1], script
            root.execute("CREATE ROLE other WITH OPTIONS = {'shares': 7}")
            root.execute("GRANT ALTER, CREATE ON ALL ROLES TO clerk")
            with Client((node.host, node.port), started=False) as clerk:
                assert clerk.ask(STARTUP, wire.startup()).opcode == AUTHENTICATE
                assert clerk.ask(AUTH_RESPONSE, wire.value(b"\0clerk\0clerk")).opcode == AUTH_SUCCESS
                select = "SELECT release_version FROM system.local"
                assert any(answer.opcode == ERROR for answer in answers(clerk, select, 4 * PER_SECOND))
                root.execute("ALTER ROLE clerk WITH OPTIONS = {}")
                assert dict(root.execute("LIST ROLES OF clerk").one().options) == {}
                until("the role may ask again", lambda: clerk.ask(QUERY, wire.query(select)).opcode == RESULT)
                assert all(answer.opcode == RESULT for answer in answers(clerk, select, 4 * PER_SECOND))
                for text, refusal in (
                    ("ALTER ROLE clerk WITH OPTIONS = {'shares': 9}", "Only superusers"),
                    ("ALTER ROLE other WITH OPTIONS = {'shares': 9}", "Only superusers"),
                    ("CREATE ROLE third WITH OPTIONS = {'shares': 9}", "Only superusers"),
                    ("ALTER ROLE other WITH OPTIONS = {}", "Only superusers"),
                ):
                    answer = clerk.ask(QUERY, wire.query(text))
                    assert answer.opcode == ERROR and refusal in answer.message, (text, answer.message)
            assert dict(root.execute("LIST ROLES OF other").one().options) == {"shares": "7"}


def test_without_a_limit_nobody_is_refused():
    with new_node() as node, Client((node.host, node.port), started=False) as client:
        client.send(frame(STARTUP, wire.startup()))
        client.answer()
        assert all(answer.opcode == RESULT for answer in answers(client, "SELECT key FROM system.local", 300))


def writes(table, partitions):
    return [f"INSERT INTO {table} (p, c) VALUES ({p}, 1)" for p in partitions]


def ask_all(client, texts):
    """The answers to QUERY with each text, and the seconds that they took."""
    begun = time.monotonic()
    return [client.ask(QUERY, wire.query(text)) for text in texts], time.monotonic() - begun


def assert_limited(asked, per_second):
    """Some were served, no more than an allowance brings in that time, and the others were refused."""
    found, took = asked
    served = sum(answer.opcode == RESULT for answer in found)
    assert per_second <= served <= per_second * (1 + took) + 1, (served, took)
    refused = [answer for answer in found if answer.opcode == ERROR]
    assert refused, took
    return refused


def is_served(client, text):
    return client.ask(QUERY, wire.query(text)).opcode == RESULT


def test_a_hot_partition_is_refused_and_the_others_are_not():
    limit = f"{{'max_reads_per_second': {PER_SECOND}, 'max_writes_per_second': {PER_SECOND}}}"
    with new_node() as node, driver_session(node) as session:
        session.execute(f"CREATE TABLE t (p int, c int, PRIMARY KEY (p, c)) WITH per_partition_rate_limit = {limit}")
        address = (node.host, node.port)
        with Client(address) as plain, Client(address, **{EXTENSION: ""}) as aware:
            refused = assert_limited(ask_all(aware, writes("k.t", [1] * 4 * PER_SECOND)), PER_SECOND)
            assert {answer.error_code for answer in refused} == {RATE_LIMIT_ERROR}
            assert refused[0].body.endswith(struct.pack(">BB", 1, 1))
            assert refused[0].message == "Per-partition rate limit reached for writes in table k.t, rejected by coordinator"
            # The other partitions are served, and so are the reads of this one.
            assert all(answer.opcode == RESULT for answer in ask_all(aware, writes("k.t", range(2, 2 + 2 * PER_SECOND)))[0])
            select = "SELECT c FROM k.t WHERE p = 1"
            refused = assert_limited(ask_all(aware, [select] * 4 * PER_SECOND), PER_SECOND)
            assert refused[0].body.endswith(struct.pack(">BB", 0, 1))
            # Connections share the allowance; IN asks each of its partitions, scans none.
            found, _ = ask_all(plain, [select] * 2 * PER_SECOND)
            assert {answer.error_code for answer in found if answer.opcode == ERROR} == {OVERLOADED}
            found, _ = ask_all(plain, ["SELECT c FROM k.t WHERE p IN (2, 1)"] * 2 * PER_SECOND)
            assert any(answer.error_code == OVERLOADED for answer in found)
            assert all(answer.opcode == RESULT for answer in ask_all(plain, ["SELECT c FROM k.t"] * 2 * PER_SECOND)[0])
            until("the partition is served again", lambda: is_served(plain, select))
        assert node.metric("helenus_table_rate_limited_requests_total") > 0
        assert node.metric("helenus_rate_limited_requests_total") == 0


def test_a_table_takes_as_many_requests_as_it_says():
    with new_node() as node, driver_session(node) as session:
        limit = f"WITH rate_limit = {{'max_writes_per_second': {PER_SECOND}}}"
        session.execute(f"CREATE TABLE t (p int, c int, PRIMARY KEY (p, c)) {limit}")
        session.execute("CREATE TABLE other (p int, c int, PRIMARY KEY (p, c))")
        many = range(4 * PER_SECOND)
        with Client((node.host, node.port), **{EXTENSION: ""}) as client:
            refused = assert_limited(ask_all(client, writes("k.t", many)), PER_SECOND)
            assert {answer.error_code for answer in refused} == {RATE_LIMIT_ERROR}
            assert refused[0].body.endswith(struct.pack(">BB", 1, 1))
            assert refused[0].message == "Rate limit of the table reached for writes in table k.t, rejected by coordinator"
            for texts in (writes("k.other", many), [f"SELECT c FROM k.t WHERE p = {p}" for p in many]):
                assert all(answer.opcode == RESULT for answer in ask_all(client, texts)[0])
            until("the table is served again", lambda: is_served(client, writes("k.t", [1])[0]))


def test_a_hot_partition_does_not_use_up_what_its_table_takes():
    with new_node() as node, driver_session(node) as session:
        options = "per_partition_rate_limit = {'max_writes_per_second': 2} AND rate_limit = {'max_writes_per_second': 200}"
        session.execute(f"CREATE TABLE t (p int, c int, PRIMARY KEY (p, c)) WITH {options}")
        with Client((node.host, node.port), **{EXTENSION: ""}) as client:
            assert_limited(ask_all(client, writes("k.t", [1] * 400)), 2)
            assert all(answer.opcode == RESULT for answer in ask_all(client, writes("k.t", range(2, 102)))[0])


def test_what_counts_and_what_a_refused_batch_leaves():
    """A limit of 0 takes nothing, so this needs no clock."""
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE t (p int, c int, v int, PRIMARY KEY (p, c))")
        session.execute("CREATE TABLE free (p int, c int, PRIMARY KEY (p, c))")
        session.execute("INSERT INTO t (p, c, v) VALUES (1, 1, 1)")
        conditional = "UPDATE k.t SET v = 1 WHERE p = 1 AND c = 1 IF v = 1"
        with Client((node.host, node.port), **{EXTENSION: ""}) as client:

            def refuses(text):
                return client.ask(QUERY, wire.query(text)).error_code == RATE_LIMIT_ERROR

            session.execute("ALTER TABLE t WITH per_partition_rate_limit = {'max_writes_per_second': 0}")
            refused = client.ask(BATCH, wire.batch(writes("k.free", [1]) + writes("k.t", [1])))
            assert refused.error_code == RATE_LIMIT_ERROR and refused.body.endswith(struct.pack(">BB", 1, 1))
            assert not session.execute("SELECT p FROM free").all()
            assert refuses("DELETE FROM k.t WHERE p = 1") and refuses("UPDATE k.t SET v = 2 WHERE p IN (5, 6) AND c = 1")
            assert is_served(client, conditional) and is_served(client, "SELECT v FROM k.t WHERE p = 1")
            unlimited = "per_partition_rate_limit = {}"
            session.execute(f"ALTER TABLE t WITH {unlimited} AND rate_limit = {{'max_writes_per_second': 0}}")
            assert refuses(conditional) and refuses("DELETE FROM k.t WHERE p = 1")
            assert client.ask(BATCH, wire.batch(writes("k.free", [1]) + writes("k.t", [1]))).error_code == RATE_LIMIT_ERROR
            assert not session.execute("SELECT p FROM free").all()
            session.execute("ALTER TABLE t WITH rate_limit = {'max_reads_per_second': 0}")
            assert refuses("SELECT v FROM k.t") and refuses("SELECT v FROM k.t WHERE p = 1")
            assert refuses("BEGIN TRANSACTION SELECT v FROM k.t WHERE p = 1 AND c = 1; COMMIT TRANSACTION")
            assert is_served(client, "BEGIN TRANSACTION UPDATE k.t SET v += 1 WHERE p = 1 AND c = 1; COMMIT TRANSACTION")
            assert is_served(client, "DELETE FROM k.t WHERE p = 1")


def test_a_change_of_the_option_holds_at_once_and_over_a_restart():
    number = struct.pack(">i", 1)
    with new_node() as node:
        with driver_session(node) as session:
            session.execute("CREATE TABLE t (p int, c int, PRIMARY KEY (p, c))")
            with Client((node.host, node.port), **{EXTENSION: ""}) as client:
                prepared = client.ask(PREPARE, wire.long_string("INSERT INTO k.t (p, c) VALUES (?, ?)")).prepared_id

                def insert():
                    return client.ask(EXECUTE, wire.execute(prepared, values=[number, number]))

                def limit(per_second):
                    session.execute(f"ALTER TABLE t WITH per_partition_rate_limit = {{'max_writes_per_second': {per_second}}}")

                assert insert().opcode == RESULT
                limit(0)
                assert insert().error_code == RATE_LIMIT_ERROR
                limit(1_000_000)
                assert all(insert().opcode == RESULT for _ in range(200))
                limit(0)
                assert insert().error_code == RATE_LIMIT_ERROR
            # A driver that does not know the error tries the next node, and there is none.
            with pytest.raises(NoHostAvailable):
                session.execute("INSERT INTO t (p, c) VALUES (1, 1)")
            with pytest.raises(ConfigurationException, match="expected a non-negative number"):
                limit("'some'")
        node.restart()
        with driver_session(node) as session, Client((node.host, node.port), **{EXTENSION: ""}) as client:
            described = session.execute("DESCRIBE TABLE k.t").one().create_statement
            assert "AND per_partition_rate_limit = {'max_writes_per_second': '0'}" in described, described
            insert = writes("k.t", [1])[0]
            assert client.ask(QUERY, wire.query(insert)).error_code == RATE_LIMIT_ERROR
            session.execute("CREATE TABLE copied LIKE t")
            assert client.ask(QUERY, wire.query(writes("k.copied", [1])[0])).error_code == RATE_LIMIT_ERROR
            session.execute("ALTER TABLE t WITH per_partition_rate_limit = {}")
            assert is_served(client, insert)
            assert "rate_limit" not in session.execute("DESCRIBE TABLE k.t").one().create_statement


def test_superusers_are_limited_too():
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    with new_node(settings=settings) as node:
        made = command("admin", "create-superuser", "root", "--data-dir", node.data_dir, stdin="root\n")
        assert made[0] == 0, made
        with driver_session(node, auth_provider=PlainTextAuthProvider("root", "root")) as session:
            session.execute("CREATE TABLE t (p int, c int, PRIMARY KEY (p, c)) WITH rate_limit = {'max_writes_per_second': 0}")
        with Client((node.host, node.port), started=False) as root:
            assert root.ask(STARTUP, wire.startup()).opcode == AUTHENTICATE
            assert root.ask(AUTH_RESPONSE, wire.value(b"\0root\0root")).opcode == AUTH_SUCCESS
            assert root.ask(QUERY, wire.query(writes("k.t", [1])[0])).error_code == OVERLOADED
