"""Guardrails of a node whose clients log in: they hold for ordinary roles, and not for superusers."""

import pytest
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.query import BatchStatement, SimpleStatement
from conftest import driver_session, new_node
from test_administration import command

SETTINGS = {
    "authenticator": "PasswordAuthenticator",
    "authorizer": "CassandraAuthorizer",
    "tables_fail_threshold": 2,
    "drop_truncate_table_enabled": False,
    "allow_filtering_enabled": False,
    "maximum_timestamp_fail_threshold": "1d",
    "column_text_value_size_fail_threshold": "10B",
    "non_partition_restricted_index_query_enabled": False,
    "table_properties_disallowed": ["comment"],
}
FAR = 9_000_000_000_000_000_000
STATEMENTS = [
    "INSERT INTO t (k, v) VALUES (1, 'longer than that')",
    f"INSERT INTO t (k, v) VALUES (1, 'a') USING TIMESTAMP {FAR}",
    f"BEGIN BATCH INSERT INTO t (k, v) VALUES (1, 'a') USING TIMESTAMP {FAR}; APPLY BATCH",
    "SELECT k FROM t WHERE w = 1 ALLOW FILTERING",
    "SELECT k FROM t WHERE v = 'a'",
    "ALTER TABLE t WITH comment = 'x'",
    "CREATE TABLE {new} (k int PRIMARY KEY)",
    "TRUNCATE t",
]


@pytest.fixture(scope="module")
def sessions():
    """Of a superuser and of an ordinary role that may do everything with the keyspace."""
    with new_node(settings=SETTINGS) as running:
        made = command("admin", "create-superuser", "anna", "--data-dir", running.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        with driver_session(running, auth_provider=PlainTextAuthProvider("anna", "secret")) as superuser:
            superuser.execute("CREATE TABLE t (k int PRIMARY KEY, v text, w int)")
            superuser.execute("CREATE INDEX ON t (v) USING 'sai'")
            superuser.execute("CREATE TABLE second (k int PRIMARY KEY)")
            superuser.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
            superuser.execute("GRANT ALL ON ALL KEYSPACES TO ben")
            with driver_session(running, auth_provider=PlainTextAuthProvider("ben", "ben")) as ordinary:
                yield superuser, ordinary


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_guardrail_holds_for_who_is_no_superuser(sessions, statement):
    superuser, ordinary = sessions
    with pytest.raises(InvalidRequest, match="Guardrail .* violated"):
        ordinary.execute(statement.replace("{new}", "of_ben"))
    superuser.execute(statement.replace("{new}", "of_anna"))


def test_prepared_statements_and_batches_are_held_to_them(sessions):
    superuser, ordinary = sessions
    for session, is_held in [(ordinary, True), (superuser, False)]:
        prepared = session.prepare("INSERT INTO t (k, v) VALUES (?, ?)")
        batch = BatchStatement()
        batch.add(prepared, (1, "longer than that"))
        batch.add(SimpleStatement("INSERT INTO t (k, v) VALUES (2, 'a')"))
        for run in [lambda: session.execute(prepared, (1, "longer than that")), lambda: session.execute(batch)]:
            if is_held:
                with pytest.raises(InvalidRequest, match="column_text_value_size violated"):
                    run()
            else:
                run()


def test_who_becomes_a_superuser_is_free_of_them_at_once(sessions):
    superuser, ordinary = sessions
    statement = "INSERT INTO t (k, v) VALUES (1, 'longer than that')"
    superuser.execute("CREATE ROLE chiefs WITH SUPERUSER = true")
    superuser.execute("GRANT chiefs TO ben")
    ordinary.execute(statement)
    superuser.execute("REVOKE chiefs FROM ben")
    with pytest.raises(InvalidRequest, match="Guardrail"):
        ordinary.execute(statement)
