"""Every statement under every permission on every resource: `STATEMENTS` × `GRANTS`, one role, one server.

The role `tester` gets the permissions of one grant, executes every statement, and loses them again. What a statement has done is undone by the
superuser, so that each answer stands alone. `record` returns a document a statement: its answers, each with the grants that lead to it;
the most frequent one without them.
"""

from role_servers import cleared

KEYSPACES = ["pk", "pq", "pn"]
TESTER = "tester"
REPLICATION = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
TABLE = [
    "CREATE TABLE pk.t (k int PRIMARY KEY, v int, n int, m text MASKED WITH DEFAULT)",
    "CREATE INDEX t_v ON pk.t (v)",
    "INSERT INTO pk.t (k, v, n, m) VALUES (1, 10, 100, 'secret')",
]
FUNCTION = "CREATE FUNCTION pk.f (a int) RETURNS NULL ON NULL INPUT RETURNS int {returns a}"
AGGREGATE = "CREATE AGGREGATE pk.ag (int) SFUNC fs STYPE int FINALFUNC ff INITCOND 0"
KEYSPACE = [
    f"CREATE KEYSPACE pk WITH {REPLICATION}",
    *TABLE,
    "CREATE TABLE pk.other (k int PRIMARY KEY, v int)",
    "INSERT INTO pk.other (k, v) VALUES (1, 10)",
    "CREATE TYPE pk.ty (a int)",
    FUNCTION,
    "CREATE FUNCTION pk.fs (s int, a int) CALLED ON NULL INPUT RETURNS int {returns s}",
    "CREATE FUNCTION pk.ff (s int) RETURNS NULL ON NULL INPUT RETURNS int {returns s}",
    AGGREGATE,
]
TARGET = ["CREATE ROLE target", "GRANT target TO holder", "ADD IDENTITY 'id1' TO ROLE 'target'"]
FIXTURE = [
    *KEYSPACE,
    f"CREATE KEYSPACE pq WITH {REPLICATION}",
    "CREATE TABLE pq.t (k int PRIMARY KEY, v int)",
    "CREATE ROLE holder",
    "CREATE ROLE other",
    "CREATE ROLE boss WITH SUPERUSER = true",
    *TARGET,
    f"CREATE ROLE {TESTER} WITH PASSWORD = '{TESTER}' AND LOGIN = true",
]

DATA = ["CREATE", "ALTER", "DROP", "SELECT", "MODIFY", "AUTHORIZE", "UNMASK", "SELECT_MASKED"]
FUNCTIONS = ["CREATE", "ALTER", "DROP", "AUTHORIZE", "EXECUTE"]
ROLES = ["CREATE", "ALTER", "DROP", "AUTHORIZE", "DESCRIBE"]
TABLES = ["ALL KEYSPACES", "KEYSPACE pk", "ALL TABLES IN KEYSPACE pk", "TABLE pk.t"]
FUNCTION_LEVELS = ["ALL FUNCTIONS", "ALL FUNCTIONS IN KEYSPACE pk", "FUNCTION pk.f(int)"]
AGGREGATE_LEVELS = ["ALL FUNCTIONS", "ALL FUNCTIONS IN KEYSPACE pk"]
ROLE_LEVELS = ["ALL ROLES", "ROLE target"]
# The permissions that each resource takes.
APPLICABLE = {
    **dict.fromkeys(TABLES[:3], DATA),
    **dict.fromkeys([TABLES[3], "TABLE pk.other"], DATA[1:]),
    **dict.fromkeys(FUNCTION_LEVELS[:2], FUNCTIONS),
    **dict.fromkeys([FUNCTION_LEVELS[2], "FUNCTION pk.ag(int)"], FUNCTIONS[1:]),
    "ALL ROLES": ROLES,
    **dict.fromkeys(["ROLE target", "ROLE tester"], ROLES[1:]),
    "KEYSPACE pq": ["SELECT", "MODIFY", "CREATE"],
    "ALL MBEANS": ["SELECT", "EXECUTE"],
    **dict.fromkeys(["KEYSPACE system", "KEYSPACE system_auth", "TABLE system_auth.roles", "KEYSPACE system_views"], ["SELECT"]),
    **dict.fromkeys(["ALL TABLES IN KEYSPACE system_auth", "TABLE system_views.settings", "KEYSPACE system_traces"], ["SELECT"]),
}


def grants():
    """Sets of permissions: each a list of (permission, resource)."""
    yield []
    for resource, permissions in APPLICABLE.items():
        yield from ([(permission, resource)] for permission in permissions)
    yield from ([("ALL", resource)] for resource in [*TABLES, *FUNCTION_LEVELS, "FUNCTION pk.ag(int)", *ROLE_LEVELS])
    for resource in TABLES:
        for permission in ("MODIFY", "UNMASK", "SELECT_MASKED", "AUTHORIZE"):
            yield [("SELECT", resource), (permission, resource)]
        yield [("SELECT", "TABLE pk.t"), ("AUTHORIZE", resource)]
        yield [("MODIFY", "TABLE pk.t"), ("MODIFY", resource), ("SELECT", "KEYSPACE pk")]
        yield [("SELECT", resource), ("MODIFY", resource), ("EXECUTE", "ALL FUNCTIONS")]
    yield [("MODIFY", "TABLE pk.t"), ("MODIFY", "TABLE pk.other")]
    for resource in [*FUNCTION_LEVELS, "FUNCTION pk.fs(int, int)", "FUNCTION pk.ff(int)", "FUNCTION pk.ag(int)"]:
        yield [("SELECT", "TABLE pk.t"), ("EXECUTE", resource)]
        yield [("AUTHORIZE", resource), ("EXECUTE", resource)]
        yield [("CREATE", "ALL FUNCTIONS IN KEYSPACE pk"), ("EXECUTE", resource)]
        yield [("ALTER", "FUNCTION pk.ag(int)"), ("EXECUTE", resource)]
    parts = ["FUNCTION pk.ag(int)", "FUNCTION pk.fs(int, int)", "FUNCTION pk.ff(int)"]
    for left_out in [*parts, None]:
        yield [("SELECT", "TABLE pk.t"), *(("EXECUTE", part) for part in parts if part != left_out)]
    for resource in ROLE_LEVELS:
        yield [("AUTHORIZE", resource), ("ALTER", resource)]
    yield [("AUTHORIZE", "ALL KEYSPACES"), ("CREATE", "ALL KEYSPACES")]


def grant_name(grant):
    """A set of permissions as text."""
    return "; ".join(f"{permission} ON {resource}" for permission, resource in grant) or "nothing"


GRANTS = {grant_name(grant): grant for grant in grants()}


class Statement:
    """One statement of the tester: its text, and what undoes it."""

    def __init__(self, cql, undo=(), is_prepared=False, frame=None):
        """`frame`: the statements of a BATCH frame, instead of a text."""
        self.cql, self.undo, self.is_prepared, self.frame = cql, list(undo), is_prepared, frame

    @property
    def name(self):
        return f"{self.cql} (prepared)" if self.is_prepared else self.cql

    def play(self, server):
        """The tester's answer."""
        session = server.session(TESTER)
        if self.frame:
            return session.batch(self.frame)
        cql = server.text(self.cql)
        if not self.is_prepared:
            return session.query(cql)
        prepared, identifier = session.prepare(cql)
        return prepared if identifier is None else session.execute(identifier)


def reads():
    """SELECT, of tables of users and of the system."""
    yield from [
        "SELECT k, v FROM pk.t WHERE k = 1",
        "SELECT k, m FROM pk.t WHERE k = 1",
        "SELECT JSON k, m FROM pk.t WHERE k = 1",
        "SELECT count(*) FROM pk.t",
        "SELECT max(m) FROM pk.t",
        "SELECT abs(v) FROM pk.t WHERE k = 1",
        "SELECT pk.f(v) FROM pk.t WHERE k = 1",
        "SELECT v FROM pk.t WHERE k = pk.f(1)",
        "SELECT pk.ag(v) FROM pk.t",
        "SELECT pk.f(pk.ag(v)) FROM pk.t",
        "SELECT k FROM pk.t WHERE m = 'secret' ALLOW FILTERING",
        "SELECT k, m FROM pk.t WHERE v = 10",
        "SELECT v FROM pk.other WHERE k = 1",
        "SELECT v FROM pq.t WHERE k = 1",
        "SELECT v FROM pk.nope WHERE k = 1",
        "SELECT nope FROM pk.t",
        "SELECT key FROM system.local",
        "SELECT peer FROM system.peers",
        "SELECT peer FROM system.peers_v2",
        "SELECT keyspace_name FROM system.built_views WHERE keyspace_name = 'nope'",
        "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'pk'",
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'pk' AND table_name = 't'",
        "SELECT keyspace_name FROM system_virtual_schema.keyspaces WHERE keyspace_name = 'system_views'",
        "SELECT name FROM system_views.settings WHERE name = 'nope'",
        "SELECT session_id FROM system_traces.sessions WHERE session_id = 00000000-0000-0000-0000-000000000000",
        "SELECT role FROM system_auth.roles WHERE role = 'nope'",
        "SELECT member FROM system_auth.role_members WHERE role = 'nope'",
        "SELECT resource FROM system_auth.role_permissions WHERE role = 'nope'",
        "SELECT role FROM system_auth.resource_role_permissons_index WHERE resource = 'nope'",
        "SELECT dcs FROM system_auth.network_permissions WHERE role = 'nope'",
        "SELECT cidr_groups FROM system_auth.cidr_permissions WHERE role = 'nope'",
        "SELECT cidrs FROM system_auth.cidr_groups WHERE cidr_group = 'nope'",
        "SELECT role FROM system_auth.identity_to_role WHERE identity = 'nope'",
    ]


def writes():
    """Statements that change rows: (text, whether it is also executed prepared, what undoes it)."""
    row = "INSERT INTO pk.t (k, v, n, m) VALUES (1, 10, 100, 'secret')"
    same = ["INSERT INTO pk.t (k, v) VALUES (1, 10)", "UPDATE pk.t SET v = 10 WHERE k = 1"]
    yield from ((cql, []) for cql in same)
    yield "INSERT INTO pk.t JSON '{\"k\": 1, \"v\": 10}' DEFAULT UNSET", []
    yield "INSERT INTO pk.t (k, v) VALUES (1, 10) IF NOT EXISTS", []
    yield "UPDATE pk.t SET v = 10 WHERE k = 1 IF v = 11", []
    yield "UPDATE pk.t SET v = 10 WHERE k = 7 IF EXISTS", []
    yield "UPDATE pk.t SET v = pk.f(10) WHERE k = 1", []
    yield "INSERT INTO pk.t (k, v) VALUES (1, pk.f(10))", []
    yield "DELETE FROM pk.t WHERE k = 7", []
    yield "DELETE FROM pk.t WHERE k = 7 IF EXISTS", []
    yield "DELETE n FROM pk.t WHERE k = 1 IF v = 11", []
    yield "BEGIN BATCH INSERT INTO pk.t (k, v) VALUES (1, 10); INSERT INTO pk.other (k, v) VALUES (1, 10) APPLY BATCH", []
    yield "BEGIN BATCH UPDATE pk.t SET v = 10 WHERE k = 1 IF v = 11; DELETE n FROM pk.t WHERE k = 1 APPLY BATCH", []
    yield "TRUNCATE pk.t", [row]
    yield "TRUNCATE pk.nope", []
    yield "INSERT INTO pq.t (k, v) VALUES (1, 1)", ["TRUNCATE pq.t"]
    yield "INSERT INTO system_auth.roles (role) VALUES ('nope')", []
    yield "TRUNCATE system_auth.roles", []
    yield "DELETE FROM system_schema.keyspaces WHERE keyspace_name = 'nope'", []


def schema_changes():
    """Statements that change the schema: (text, what undoes it)."""
    type_ = ["DROP TYPE IF EXISTS pk.ty", "CREATE TYPE pk.ty (a int)"]
    yield f"CREATE KEYSPACE pn WITH {REPLICATION}", ["DROP KEYSPACE pn"]
    yield f"CREATE KEYSPACE IF NOT EXISTS pk WITH {REPLICATION}", []
    yield "ALTER KEYSPACE pk WITH durable_writes = true", []
    yield "ALTER KEYSPACE nope WITH durable_writes = true", []
    yield "DROP KEYSPACE pk", KEYSPACE
    yield "DROP KEYSPACE IF EXISTS nope", []
    yield "CREATE TABLE pk.n (k int PRIMARY KEY)", ["DROP TABLE pk.n"]
    yield "CREATE TABLE IF NOT EXISTS pk.t (k int PRIMARY KEY)", []
    yield "CREATE TABLE nope.n (k int PRIMARY KEY)", []
    yield "ALTER TABLE pk.t ADD x int", ["ALTER TABLE pk.t DROP x"]
    yield "ALTER TABLE pk.t WITH comment = ''", []
    yield "ALTER TABLE pk.t ALTER n MASKED WITH DEFAULT", ["ALTER TABLE pk.t ALTER n DROP MASKED"]
    yield "ALTER TABLE pk.nope ADD x int", []
    yield "DROP TABLE pk.t", TABLE
    yield "DROP TABLE IF EXISTS pk.nope", []
    yield "CREATE INDEX t_n ON pk.t (n)", ["DROP INDEX pk.t_n"]
    yield "CREATE INDEX IF NOT EXISTS t_v ON pk.t (v)", []
    yield "DROP INDEX pk.t_v", [TABLE[1]]
    yield "DROP INDEX IF EXISTS pk.nope", []
    yield "CREATE TYPE pk.tn (a int)", ["DROP TYPE pk.tn"]
    yield "ALTER TYPE pk.ty ADD b int", type_
    yield "ALTER TYPE pk.ty RENAME a TO b", type_
    yield "DROP TYPE pk.ty", type_
    yield "CREATE FUNCTION pk.g (a int) CALLED ON NULL INPUT RETURNS int {returns a}", ["DROP FUNCTION pk.g"]
    yield "CREATE OR REPLACE FUNCTION pk.g (a int) CALLED ON NULL INPUT RETURNS int {returns a}", ["DROP FUNCTION pk.g"]
    yield FUNCTION.replace("CREATE", "CREATE OR REPLACE", 1), []
    yield FUNCTION.replace("FUNCTION", "FUNCTION IF NOT EXISTS", 1), []
    yield "DROP FUNCTION pk.f", [FUNCTION]
    yield "DROP FUNCTION pk.f(int)", [FUNCTION]
    yield "DROP FUNCTION IF EXISTS pk.nope", []
    yield "CREATE AGGREGATE pk.an (int) SFUNC fs STYPE int INITCOND 0", ["DROP AGGREGATE pk.an"]
    yield "CREATE AGGREGATE pk.an (int) SFUNC fs STYPE int FINALFUNC ff INITCOND 0", ["DROP AGGREGATE pk.an"]
    yield AGGREGATE.replace("CREATE", "CREATE OR REPLACE", 1), []
    yield "DROP AGGREGATE pk.ag", [AGGREGATE]
    yield "DROP AGGREGATE IF EXISTS pk.nope", []
    yield "CREATE TABLE system_auth.n (k int PRIMARY KEY)", []
    yield "CREATE TABLE system.n (k int PRIMARY KEY)", []
    yield "ALTER TABLE system_auth.roles ADD x int", []
    yield "DROP TABLE system_auth.roles", []
    yield "DROP KEYSPACE system_auth", []
    yield "DROP KEYSPACE system", []
    yield "DROP TABLE system_views.settings", []


def role_statements():
    """Statements about roles and permissions: (text, what undoes it)."""
    drop_new = ["DROP ROLE newrole"]
    target = ["DROP ROLE IF EXISTS target", *TARGET]
    yield "CREATE ROLE newrole", drop_new
    yield "CREATE ROLE newrole WITH LOGIN = true AND PASSWORD = 'x'", drop_new
    yield "CREATE ROLE newrole WITH SUPERUSER = true", drop_new
    yield "CREATE USER newrole WITH PASSWORD 'x' NOSUPERUSER", drop_new
    yield "CREATE ROLE target", []
    yield "CREATE ROLE IF NOT EXISTS target", []
    yield "ALTER ROLE target WITH PASSWORD = 'x'", []
    yield "ALTER ROLE target WITH LOGIN = false", []
    yield "ALTER ROLE target WITH SUPERUSER = false", []
    yield "ALTER ROLE target WITH ACCESS TO ALL DATACENTERS", []
    yield "ALTER ROLE target WITH ACCESS FROM ALL CIDRS", []
    yield f"ALTER ROLE {TESTER} WITH PASSWORD = '{TESTER}'", []
    yield f"ALTER ROLE {TESTER} WITH LOGIN = true", []
    yield f"ALTER ROLE {TESTER} WITH SUPERUSER = true", []
    yield "ALTER USER target WITH PASSWORD 'x'", []
    yield "ALTER ROLE nope WITH LOGIN = true", []
    yield "ALTER ROLE IF EXISTS nope WITH LOGIN = true", []
    yield "DROP ROLE target", target
    yield "DROP USER target", target
    yield "DROP ROLE boss", []
    yield f"DROP ROLE {TESTER}", []
    yield "DROP ROLE nope", []
    yield "DROP ROLE IF EXISTS nope", []
    yield "GRANT target TO other", ["REVOKE target FROM other"]
    yield "GRANT target TO nope", []
    yield "GRANT nope TO target", []
    yield "REVOKE target FROM holder", ["GRANT target TO holder"]
    yield "REVOKE target FROM other", []
    yield "GRANT SELECT ON pk.t TO target", ["REVOKE SELECT ON pk.t FROM target"]
    yield "REVOKE SELECT ON pk.t FROM target", []
    yield "GRANT AUTHORIZE ON pk.t TO target", ["REVOKE AUTHORIZE ON pk.t FROM target"]
    yield "GRANT SELECT ON ALL TABLES IN KEYSPACE pk TO target", ["REVOKE SELECT ON ALL TABLES IN KEYSPACE pk FROM target"]
    yield "GRANT SELECT ON KEYSPACE pk TO target", ["REVOKE SELECT ON KEYSPACE pk FROM target"]
    yield "GRANT CREATE ON ALL KEYSPACES TO target", ["REVOKE CREATE ON ALL KEYSPACES FROM target"]
    yield "GRANT EXECUTE ON FUNCTION pk.f(int) TO target", ["REVOKE EXECUTE ON FUNCTION pk.f(int) FROM target"]
    yield "GRANT EXECUTE ON ALL FUNCTIONS TO target", ["REVOKE EXECUTE ON ALL FUNCTIONS FROM target"]
    yield "GRANT ALTER ON ROLE target TO other", ["REVOKE ALTER ON ROLE target FROM other"]
    yield "GRANT ALTER ON ALL ROLES TO target", ["REVOKE ALTER ON ALL ROLES FROM target"]
    yield "GRANT SELECT ON pk.nope TO target", []
    yield "GRANT SELECT ON pk.t TO nope", []
    yield "GRANT SELECT ON ALL ROLES TO target", []
    yield "GRANT SELECT ON system_auth.roles TO target", ["REVOKE SELECT ON system_auth.roles FROM target"]
    yield "GRANT MODIFY ON system_auth.roles TO target", []
    yield "LIST ROLES OF target", []
    yield "LIST ROLES OF holder NORECURSIVE", []
    yield "LIST ROLES", []
    yield "LIST USERS", []
    yield "LIST ALL PERMISSIONS OF target", []
    yield "LIST ALL PERMISSIONS OF holder", []
    yield "LIST EXECUTE ON pk.other", []
    yield "LIST EXECUTE ON pk.other OF boss", []
    yield f"LIST EXECUTE ON pk.other OF {TESTER}", []
    yield "ADD IDENTITY 'id2' TO ROLE 'target'", ["DROP IDENTITY 'id2'"]
    yield "ADD IDENTITY IF NOT EXISTS 'id1' TO ROLE 'target'", []
    yield "ADD IDENTITY 'id3' TO ROLE 'nope'", []
    yield "DROP IDENTITY 'id1'", ["ADD IDENTITY 'id1' TO ROLE 'target'"]
    yield "DROP IDENTITY IF EXISTS 'nope'", []


def statements():
    """All of them, each name once."""
    for cql in reads():
        yield Statement(cql)
        if " FROM pk.t" in cql and "nope" not in cql:
            yield Statement(cql, is_prepared=True)
    for cql, undo in writes():
        yield Statement(cql, undo)
        if "pk.t" in cql:
            yield Statement(cql, undo, is_prepared=True)
    frame = ["INSERT INTO pk.t (k, v) VALUES (1, 10)", "INSERT INTO pk.other (k, v) VALUES (1, 10)"]
    yield Statement("BATCH frame: " + "; ".join(frame), frame=frame)
    for cql, undo in schema_changes():
        yield Statement(cql, undo)
    yield Statement("DROP TABLE pk.t", TABLE, is_prepared=True)
    for cql, undo in role_statements():
        yield Statement(cql, undo)
    yield Statement("CREATE ROLE newrole", ["DROP ROLE newrole"], is_prepared=True)
    yield Statement("GRANT SELECT ON pk.t TO target", ["REVOKE SELECT ON pk.t FROM target"], is_prepared=True)
    yield Statement("LIST ROLES OF target", is_prepared=True)
    yield Statement("USE pk")
    yield Statement("USE nope")
    yield Statement("DESCRIBE TYPE pk.ty")


STATEMENTS = {statement.name: statement for statement in statements()}


def granting(grant, verb, preposition):
    return [f"{verb} {permission} ON {resource} {preposition} {TESTER}" for permission, resource in grant]


def answers(server):
    """Plays everything: (name of the grant, name of the statement, answer), in the order of `GRANTS` and `STATEMENTS`."""
    with cleared(server, KEYSPACES):
        server.setup(*FIXTURE)
        for grant_text, grant in GRANTS.items():
            server.setup(*granting(grant, "GRANT", "TO"))
            for name, statement in STATEMENTS.items():
                answer = statement.play(server)
                yield grant_text, name, answer
                if statement.cql.startswith("USE"):
                    server.leave(TESTER)
                if "error" not in answer and statement.undo:
                    server.setup(*statement.undo, *granting(grant, "GRANT", "TO"))
            server.setup(*granting(grant, "REVOKE", "FROM"))


def grouped(played):
    """A document a statement of (grant, statement, answer)s."""
    found = {}
    for grant, name, answer in played:
        groups = found.setdefault(name, [])
        group = next((group for group in groups if group["answer"] == answer), None)
        if group is None:
            group = {"answer": answer, "grants": []}
            groups.append(group)
        group["grants"].append(grant)
    documents = []
    for name, groups in found.items():
        groups.sort(key=lambda group: -len(group["grants"]))
        groups[0].pop("grants")
        documents.append({"statement": name, "otherwise": groups[0]["answer"], "answers": groups[1:]})
    return documents


def recorded(documents):
    """The answer recorded for each (grant, statement)."""
    return {
        (grant, document["statement"]): next(
            (group["answer"] for group in document["answers"] if grant in group["grants"]), document["otherwise"]
        )
        for document in documents
        for grant in GRANTS
    }
