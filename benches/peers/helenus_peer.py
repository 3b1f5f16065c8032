"""A Helenus node as a server of a comparison: with the names that all of them have, plain or with what makes it secure."""

import base64
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/support")]
from bench import table_bytes  # noqa: E402
from certificates import Authority  # noqa: E402
from node import Node, NodeError, clean_environment  # noqa: E402

SUPERUSER, ROLE = "keeper", "bench"


class Helenus(Node):
    """One node with fresh data."""

    name = "helenus"
    # What latte needs to connect.
    client_options = ()

    def run(self, *words, text=""):
        """A command of the program, to its end."""
        command = [str(word) for word in (self.program, *words)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=clean_environment())
        if done.returncode != 0:
            raise NodeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def settle(self, keyspace):
        # Over the Unix socket: where clients log in, the port changes nothing.
        for verb in ("flush", "compact"):
            self.run("admin", verb, keyspace, "--data-dir", self.data_dir)

    def table_bytes(self, _keyspace, table, identity):
        return table_bytes(self.data_dir, table, identity)


class HelenusWithRoles(Helenus):
    """Clients log in as a role that has been granted what the requests need, and no more."""

    name = "roles"
    client_options = ("--user", ROLE, "--password", ROLE)

    def __init__(self, *words, settings=None, **named):
        roles = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
        super().__init__(*words, settings={**roles, **(settings or {})}, **named)

    def start(self):
        super().start()
        self.run("admin", "create-superuser", SUPERUSER, "--data-dir", self.data_dir, text=f"{SUPERUSER}\n")
        permissions = ("CREATE", "ALTER", "DROP", "SELECT", "MODIFY")
        statements = [f"CREATE ROLE {ROLE} WITH LOGIN = true AND PASSWORD = '{ROLE}'"]
        statements += [f"GRANT {permission} ON ALL KEYSPACES TO {ROLE}" for permission in permissions]
        login = ("-u", SUPERUSER, "-p", SUPERUSER)
        self.run("shell", self.host, self.port, *login, "-e", "; ".join(statements) + ";")


class HelenusEncrypted(Helenus):
    """All files are encrypted."""

    name = "at-rest"

    def __init__(self, *words, settings=None, **named):
        super().__init__(*words, **named)
        keys = self.home / "keys"
        keys.touch(mode=0o600)
        keys.write_text(f"bench {base64.b64encode(os.urandom(32)).decode()}\n")
        self.settings.update({"encryption_at_rest": {"mode": "all", "key_file": str(keys)}, **(settings or {})})


class HelenusWithTls(Helenus):
    """Clients encrypt."""

    name = "tls"

    def __init__(self, *words, settings=None, **named):
        super().__init__(*words, **named)
        authority = Authority(self.program, tempfile.mkdtemp(dir=self.home))
        authority.node("node", "--address", "127.0.0.1")
        self.settings.update({"client_encryption": authority.settings("node", "required"), **(settings or {})})
        self.client_options = ("--ssl", "--ssl-ca", authority.certificate)
