"""What the cases need of a server: its address, its superuser, sessions of roles, and the texts that differ between the two.

A case is written once. `{returns a}` stands for a function's language and body that return the expression: Java on Cassandra, Lua here.
Every role's password is its name.
"""

import re
import time
from contextlib import contextmanager

from client import Client, NotLoggedIn, Refused

SUPERUSER = "cassandra"
# Whoever may log in by default, and so stays when a case is over.
KEPT_ROLES = {SUPERUSER}
START_TIMEOUT_SECONDS = 60
LANGUAGES = {"java": "LANGUAGE java AS 'return {};'", "lua": "LANGUAGE lua AS 'return {}'"}
RETURNS = re.compile(r"\{returns ([^}]*)\}")


class CaseError(Exception):
    """A statement that has to succeed for the case did not."""


class Server:
    """Sessions of one server, opened when they are needed."""

    def __init__(self, address, language, administer):
        """`language`: that of its functions. `administer`: executes a command of nodetool, which `helenus admin` has by the same name."""
        self.address, self.language, self.administer = address, language, administer
        self.sessions = {}

    def text(self, cql):
        """A statement in the words of this server."""
        return RETURNS.sub(lambda match: LANGUAGES[self.language].format(match[1]), cql)

    def session(self, role):
        """The connection of a role; if it may not log in, one that answers everything with the refusal."""
        if role not in self.sessions:
            try:
                self.sessions[role] = Client(self.address, role, role)
            except NotLoggedIn as refused:
                return Refused(refused.answer)
        return self.sessions[role]

    def wait_for_superuser(self):
        """Waits until a new server has made its superuser."""
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                Client(self.address, SUPERUSER, SUPERUSER).close()
                return
            except NotLoggedIn:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def leave(self, role):
        """Closes the connection of a role."""
        if role in self.sessions:
            self.sessions.pop(role).close()

    def close(self):
        for role in list(self.sessions):
            self.leave(role)

    def query(self, role, cql):
        """The answer to a statement of a role."""
        return self.session(role).query(self.text(cql))

    def setup(self, *statements):
        """Statements of the superuser that have to succeed."""
        for cql in statements:
            answer = self.query(SUPERUSER, cql)
            if "error" in answer or "login" in answer:
                raise CaseError(f"{cql}: {answer}")

    def clear(self, keyspaces):
        """Drops all roles but the superuser, and keyspaces."""
        for role in list(self.sessions):
            if role != SUPERUSER:
                self.leave(role)
        for keyspace in keyspaces:
            self.setup(f"DROP KEYSPACE IF EXISTS {keyspace}")
        roles = [row[0] for row in self.query(SUPERUSER, "LIST ROLES")["rows"]]
        self.setup(*(f"DROP ROLE '{role.replace(chr(39), chr(39) * 2)}'" for role in roles if role not in KEPT_ROLES))


@contextmanager
def cleared(server, keyspaces):
    """A server without roles and without some keyspaces, before and after."""
    server.clear(keyspaces)
    try:
        yield server
    finally:
        server.clear(keyspaces)
