"""`GRANT SELECT (a, b)`: a role with permissions on single columns sees and writes these columns, whatever it tries."""

import itertools

import pytest
import wire
from cassandra import InvalidRequest, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, BatchType, SimpleStatement
from conftest import driver_session, new_node
from test_administration import command
from wire import AUTH_RESPONSE, AUTH_SUCCESS, AUTHENTICATE, BATCH, ERROR, STARTUP, Client

SETTINGS = {
    "authenticator": "PasswordAuthenticator",
    "authorizer": "CassandraAuthorizer",
    "user_defined_functions_enabled": True,
    "dynamic_data_masking_enabled": True,
}
UNAUTHORIZED = 0x2100
SECRET = 4711
TABLE = """CREATE TABLE k.{name} (
    id int, line int, shared int STATIC, open int, secret int, tags set<int>, place vector<float, 2>, near vector<float, 2>,
    PRIMARY KEY (id, line))"""
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def node():
    with new_node(settings=SETTINGS) as running:
        made = command("admin", "create-superuser", "root", "--data-dir", running.data_dir, stdin="root\n")
        assert made[0] == 0, made
        yield running


@pytest.fixture(scope="module")
def root(node):
    with driver_session(node, auth_provider=PlainTextAuthProvider("root", "root")) as connected:
        connected.execute(
            "CREATE FUNCTION k.twice (x int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'return x * 2'"
        )
        yield connected


class Clerk:
    """A role of its own, with a table of its own: what is granted to the one is on the other."""

    def __init__(self, node, root):
        number = next(NUMBERS)
        self.node, self.root, self.name, self.table = node, root, f"clerk{number}", f"k.t{number}"
        root.execute(f"CREATE ROLE {self.name} WITH PASSWORD = '{self.name}' AND LOGIN = true")
        root.execute(TABLE.format(name=f"t{number}"))
        for column in ("open", "secret", "place", "near"):
            root.execute(f"CREATE CUSTOM INDEX ON {self.table} ({column}) USING 'sai'")
        root.execute(
            f"INSERT INTO {self.table} (id, line, shared, open, secret, tags, place, near) VALUES"
            f" (1, 2, 3, 4, {SECRET}, {{5}}, [1, 2], [2, 1])"
        )
        profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
        self.cluster = Cluster(
            [node.host],
            port=node.port,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            auth_provider=PlainTextAuthProvider(self.name, self.name),
        )
        self.session = self.cluster.connect()

    def grant(self, permissions, operation="GRANT", on=None):
        preposition = "TO" if operation == "GRANT" else "FROM"
        self.root.execute(f"{operation} {permissions} ON {on or self.table} {preposition} {self.name}")

    def revoke(self, permissions):
        self.grant(permissions, "REVOKE")

    def run(self, statement):
        return list(self.session.execute(statement.replace("TABLE", self.table)))

    def refused(self, statement, *words):
        with pytest.raises(Unauthorized) as refusal:
            self.run(statement)
        for word in words:
            assert word in str(refusal.value), statement
        assert str(SECRET) not in str(refusal.value)

    def seen_by_root(self, column):
        return [row[0] for row in self.root.execute(f"SELECT {column} FROM {self.table} WHERE id = 1 AND line = 2")]


@pytest.fixture
def clerk(node, root):
    made = Clerk(node, root)
    yield made
    made.cluster.shutdown()


def test_what_was_granted_is_seen(clerk):
    clerk.grant("SELECT (id, line, open, shared, place), MODIFY (id, line, open)")
    assert clerk.run("SELECT id, line, open, shared FROM TABLE") == [(1, 2, 4, 3)]
    assert clerk.run("SELECT open FROM TABLE WHERE id = 1 AND line > 1 ORDER BY line DESC") == [(4,)]
    assert clerk.run("SELECT open FROM TABLE WHERE open = 4") == [(4,)]
    assert clerk.run("SELECT DISTINCT id, shared FROM TABLE") == [(1, 3)]
    assert clerk.run("SELECT count(*) FROM TABLE") == [(1,)]
    assert clerk.run("SELECT JSON open FROM TABLE") == [('{"open": 4}',)]
    assert clerk.run("SELECT id FROM TABLE ORDER BY place ANN OF [1, 2] LIMIT 1") == [(1,)]
    clerk.run("UPDATE TABLE SET open = 7 WHERE id = 1 AND line = 2")
    clerk.run("INSERT INTO TABLE (id, line, open) VALUES (1, 3, 8)")
    assert clerk.run("SELECT line, open FROM TABLE WHERE id = 1") == [(2, 7), (3, 8)]
    clerk.run("DELETE open FROM TABLE WHERE id = 1 AND line = 3")
    assert clerk.run("SELECT line, open FROM TABLE WHERE id = 1") == [(2, 7), (3, None)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT secret FROM TABLE",
        "SELECT * FROM TABLE",
        "SELECT JSON * FROM TABLE",
        "SELECT JSON open, secret FROM TABLE",
        "SELECT secret AS open FROM TABLE",
        "SELECT open, secret FROM TABLE WHERE id = 1 AND line = 2",
        "SELECT CAST(secret AS text) FROM TABLE",
        "SELECT open + secret FROM TABLE",
        "SELECT k.twice(secret) FROM TABLE",
        "SELECT max(secret) FROM TABLE",
        "SELECT count(secret) FROM TABLE",
        "SELECT mask_default(secret) FROM TABLE",
        "SELECT ttl(secret) FROM TABLE",
        "SELECT writetime(secret) FROM TABLE",
        "SELECT open FROM TABLE WHERE secret = 4711",
        "SELECT open FROM TABLE WHERE secret > 4000 ALLOW FILTERING",
        "SELECT open FROM TABLE WHERE open = 4 AND secret IN (4711)",
        "SELECT open FROM TABLE WHERE tags CONTAINS 5 ALLOW FILTERING",
        "SELECT count(*) FROM TABLE WHERE secret = 4711",
        "SELECT DISTINCT id FROM TABLE WHERE shared = 3 ALLOW FILTERING",
        "SELECT open FROM TABLE ORDER BY near ANN OF [2, 1] LIMIT 1",
        "SELECT similarity_cosine(near, [1, 2]) FROM TABLE",
    ],
)
def test_a_column_that_was_not_granted_is_read_in_no_way(clerk, statement):
    clerk.grant("EXECUTE", on="FUNCTION k.twice(int)")
    clerk.grant("SELECT (id, line, open, place)")
    clerk.grant("MODIFY (secret)")
    clerk.refused(statement, "has no SELECT permission on <")
    with pytest.raises(Unauthorized):
        clerk.session.execute(clerk.session.prepare(statement.replace("TABLE", clerk.table)))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM TABLE",
        "SELECT token(id) FROM TABLE",
        "SELECT open FROM TABLE WHERE id = 1",
        "SELECT open FROM TABLE WHERE token(id) > 0",
        "SELECT open FROM TABLE WHERE line = 2 ALLOW FILTERING",
        "SELECT max(open) FROM TABLE GROUP BY id",
        "SELECT DISTINCT id FROM TABLE",
    ],
)
def test_columns_of_the_key_count_like_others(clerk, statement):
    clerk.grant("SELECT (open)")
    assert clerk.run("SELECT open FROM TABLE") == [(4,)]
    clerk.refused(statement)


def test_an_order_is_by_a_column_that_is_read(clerk):
    clerk.grant("SELECT (id, open)")
    assert clerk.run("SELECT open FROM TABLE WHERE id = 1") == [(4,)]
    clerk.refused("SELECT open FROM TABLE WHERE id = 1 ORDER BY line DESC", f"<column {clerk.table}.line>")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO TABLE (id, line, secret) VALUES (1, 2, 1)",
        "INSERT INTO TABLE (id, line, open, secret) VALUES (1, 2, 1, null)",
        "INSERT INTO TABLE JSON '{\"id\": 1, \"line\": 2, \"open\": 1}'",
        "INSERT INTO TABLE JSON '{\"id\": 1, \"line\": 2, \"secret\": 1}' DEFAULT UNSET",
        "UPDATE TABLE SET open = 1, secret = 1 WHERE id = 1 AND line = 2",
        "UPDATE TABLE SET tags = tags + {6} WHERE id = 1 AND line = 2",
        "UPDATE TABLE SET shared = 1 WHERE id = 1",
        "DELETE secret FROM TABLE WHERE id = 1 AND line = 2",
        "DELETE FROM TABLE WHERE id = 1 AND line = 2",
        "DELETE FROM TABLE WHERE id = 1",
        "TRUNCATE TABLE",
        "BEGIN BATCH UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 2;"
        " UPDATE TABLE SET secret = 1 WHERE id = 1 AND line = 2; APPLY BATCH",
    ],
)
def test_a_column_that_was_not_granted_is_written_in_no_way(clerk, statement):
    clerk.grant("MODIFY (id, line, open), SELECT (secret)")
    clerk.refused(statement, "has no MODIFY permission on <")
    assert (clerk.seen_by_root("secret"), clerk.seen_by_root("open")) == ([SECRET], [4])


def test_rows_are_made_with_the_permission_on_their_key(clerk):
    clerk.grant("MODIFY (id, open)")
    for statement in (
        "UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 9",
        "INSERT INTO TABLE (id, line, open) VALUES (1, 9, 1)",
        "DELETE open FROM TABLE WHERE id = 1 AND line = 2",
    ):
        clerk.refused(statement, f"<column {clerk.table}.line>")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 2 IF secret = 0",
        "UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 2 IF open = 0 AND secret > 1",
        "UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 2 IF shared = 0",
        "UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 2 IF EXISTS",
        "INSERT INTO TABLE (id, line, open) VALUES (1, 2, 3) IF NOT EXISTS",
        "BEGIN BATCH UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 2 IF open = 0;"
        " UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 7 IF EXISTS; APPLY BATCH",
    ],
)
def test_a_condition_shows_no_column_that_was_not_granted(clerk, statement):
    clerk.grant("MODIFY (id, line, open), SELECT (id, line, open)")
    clerk.refused(statement, "has no SELECT permission on <")
    assert clerk.seen_by_root("open") == [4]


def test_a_condition_on_granted_columns_shows_these(clerk):
    clerk.grant("MODIFY (id, line, open), SELECT (id, line, open)")
    shown = clerk.run("UPDATE TABLE SET open = 1 WHERE id = 1 AND line = 2 IF open = 0")
    assert [row._asdict() for row in shown] == [{"applied": False, "open": 4}]
    batch = BatchStatement()
    for line in (2, 3):
        text = f"UPDATE {clerk.table} SET open = 1 WHERE id = 1 AND line = {line} IF open = 0"
        batch.add(SimpleStatement(text))
    shown = list(clerk.session.execute(batch))
    assert [row._asdict() for row in shown] == [{"applied": False, "id": 1, "line": 2, "open": 4}]


def test_a_batch_message_is_refused_for_each_of_its_statements(clerk):
    clerk.grant("MODIFY (id, line, open)")
    allowed = clerk.session.prepare(f"UPDATE {clerk.table} SET open = ? WHERE id = 1 AND line = 2")
    forbidden = clerk.session.prepare(f"UPDATE {clerk.table} SET secret = ? WHERE id = 1 AND line = 2")
    for order in ((allowed, forbidden), (forbidden, allowed)):
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        for statement in order:
            batch.add(statement, (0,))
        with pytest.raises(Unauthorized):
            clerk.session.execute(batch)
    assert (clerk.seen_by_root("secret"), clerk.seen_by_root("open")) == ([SECRET], [4])
    with Client((clerk.node.host, clerk.node.port), started=False) as client:
        assert client.ask(STARTUP, wire.startup()).opcode == AUTHENTICATE
        token = wire.value(f"\0{clerk.name}\0{clerk.name}".encode())
        assert client.ask(AUTH_RESPONSE, token).opcode == AUTH_SUCCESS
        answer = client.ask(BATCH, wire.batch([f"UPDATE {clerk.table} SET secret = 0 WHERE id = 1 AND line = 2"]))
        assert (answer.opcode, answer.error_code) == (ERROR, UNAUTHORIZED)


def test_a_prepared_statement_is_refused_as_soon_as_a_column_is_revoked(clerk):
    clerk.grant("SELECT (id, open)")
    select = clerk.session.prepare(f"SELECT open FROM {clerk.table} WHERE id = ?")
    assert list(clerk.session.execute(select, (1,))) == [(4,)]
    clerk.revoke("SELECT (open)")
    with pytest.raises(Unauthorized):
        clerk.session.execute(select, (1,))
    clerk.grant("SELECT (open)")
    assert list(clerk.session.execute(select, (1,))) == [(4,)]


def test_a_column_that_is_added_is_not_seen_through_a_prepared_statement(clerk):
    clerk.grant("SELECT (id, line, shared, open, secret, tags, place, near)")
    select = clerk.session.prepare(f"SELECT * FROM {clerk.table}")
    assert len(list(clerk.session.execute(select))) == 1
    clerk.root.execute(f"ALTER TABLE {clerk.table} ADD added int")
    with pytest.raises(Unauthorized) as refusal:
        clerk.session.execute(select)
    assert f"<column {clerk.table}.added>" in str(refusal.value)
    clerk.grant("SELECT (added)")
    assert list(clerk.run("SELECT added FROM TABLE")) == [(None,)]


def permissions(clerk, statement):
    rows = clerk.root.execute(statement)
    return sorted((row.permission, row.resource.replace(f"{clerk.table}", "T")) for row in rows if row.role == clerk.name)


def test_grants_are_listed_and_described(clerk):
    clerk.grant("SELECT (open, line), MODIFY (open), DROP")
    everything = [
        ("DROP", "<table T>"),
        ("MODIFY", "<column T.open>"),
        ("SELECT", "<column T.line>"),
        ("SELECT", "<column T.open>"),
    ]
    assert permissions(clerk, f"LIST ALL PERMISSIONS ON {clerk.table}") == everything
    assert permissions(clerk, f"LIST ALL PERMISSIONS OF {clerk.name}") == everything
    assert permissions(clerk, f"LIST ALL PERMISSIONS ON {clerk.table} NORECURSIVE") == everything[:1]
    assert permissions(clerk, f"LIST SELECT ON {clerk.table} OF {clerk.name}") == everything[2:]
    stored = clerk.root.execute(f"SELECT resource, permissions FROM system_auth.role_permissions WHERE role = '{clerk.name}'")
    path = "data/" + clerk.table.replace(".", "/")
    assert {row.resource: set(row.permissions) for row in stored} == {
        path: {"DROP"},
        f"{path}/line": {"SELECT"},
        f"{path}/open": {"SELECT", "MODIFY"},
    }
    status, script, error = command("admin", "describe-roles", "--data-dir", clerk.node.data_dir)
    assert status == 0, error
    assert f"GRANT SELECT (open), MODIFY (open) ON TABLE {clerk.table} TO {clerk.name}" in script


def test_a_grant_follows_its_column_and_goes_with_it(clerk):
    clerk.grant("SELECT (id, open)")
    clerk.root.execute(f"ALTER TABLE {clerk.table} RENAME id TO number")
    assert clerk.run("SELECT number FROM TABLE") == [(1,)]
    clerk.root.execute(f"ALTER TABLE {clerk.table} ADD id int")
    clerk.refused("SELECT id FROM TABLE")
    clerk.root.execute(f"DROP INDEX k.{clerk.table[2:]}_open_idx")
    clerk.root.execute(f"ALTER TABLE {clerk.table} DROP open")
    clerk.root.execute(f"ALTER TABLE {clerk.table} ADD open int")
    clerk.refused("SELECT open FROM TABLE")
    assert permissions(clerk, f"LIST ALL PERMISSIONS OF {clerk.name}") == [("SELECT", "<column T.number>")]
    clerk.root.execute(f"DROP TABLE {clerk.table}")
    assert permissions(clerk, f"LIST ALL PERMISSIONS OF {clerk.name}") == []
    clerk.root.execute(TABLE.format(name=clerk.table[2:]).replace("id", "number"))
    clerk.refused("SELECT number FROM TABLE")


def test_who_may_grant(clerk):
    clerk.root.execute(f"CREATE ROLE IF NOT EXISTS other_{clerk.name}")
    grant = f"GRANT SELECT (open) ON TABLE TO other_{clerk.name}"
    clerk.grant("SELECT (open)")
    clerk.refused(grant, f"has no AUTHORIZE permission on <table {clerk.table}>")
    clerk.grant("AUTHORIZE")
    clerk.run(grant)
    clerk.refused(grant.replace("(open)", "(secret)"), f"has no SELECT permission on <column {clerk.table}.secret>")
    clerk.refused(grant.replace("(open)", ""), f"has no SELECT permission on <table {clerk.table}>")


def test_permissions_come_through_other_roles_too(clerk):
    clerk.root.execute(f"CREATE ROLE readers_{clerk.name}")
    clerk.root.execute(f"GRANT SELECT (open) ON {clerk.table} TO readers_{clerk.name}")
    clerk.refused("SELECT open FROM TABLE")
    clerk.root.execute(f"GRANT readers_{clerk.name} TO {clerk.name}")
    assert clerk.run("SELECT open FROM TABLE") == [(4,)]
    clerk.refused("SELECT open, line FROM TABLE", f"<column {clerk.table}.line>")


def test_a_masked_column_is_seen_through_its_mask(clerk):
    clerk.root.execute(f"ALTER TABLE {clerk.table} ALTER secret MASKED WITH DEFAULT")
    clerk.grant("SELECT (secret)")
    assert clerk.run("SELECT secret FROM TABLE") == [(0,)]
    clerk.refused("SELECT secret FROM TABLE WHERE secret = 4711", "UNMASK")


@pytest.mark.parametrize(
    "statement, error, text",
    [
        ("GRANT SELECT (missing) ON TABLE TO root", InvalidRequest, "Undefined column name missing in table TABLE"),
        ("GRANT UNMASK (open) ON TABLE TO root", SyntaxException, "Only SELECT and MODIFY can be for columns, not UNMASK"),
        ("GRANT ALL (open) ON TABLE TO root", SyntaxException, "Only SELECT and MODIFY can be for columns"),
        ("GRANT SELECT (open) ON KEYSPACE k TO root", SyntaxException, "Only a table has columns, not KEYSPACE k"),
        ("GRANT SELECT () ON TABLE TO root", SyntaxException, "no viable alternative"),
        ("LIST SELECT (open) ON TABLE", SyntaxException, "mismatched input"),
    ],
)
def test_what_cannot_be_granted(clerk, statement, error, text):
    with pytest.raises(error) as refusal:
        clerk.root.execute(statement.replace("TABLE", clerk.table))
    assert text.replace("TABLE", clerk.table) in str(refusal.value)
