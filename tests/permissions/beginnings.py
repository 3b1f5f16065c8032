"""Names and statements that several scripts begin with."""

REPLICATION = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
KEYSPACE = f"CREATE KEYSPACE ks WITH {REPLICATION}"
TABLE = "CREATE TABLE ks.t (k int PRIMARY KEY, v int)"
FUNCTION = "CREATE FUNCTION ks.f (a int) CALLED ON NULL INPUT RETURNS int {returns a}"


def login_role(name, more=""):
    """A role that may log in, whose password is its name."""
    return f"CREATE ROLE {name} WITH PASSWORD = '{name}' AND LOGIN = true{more}"
