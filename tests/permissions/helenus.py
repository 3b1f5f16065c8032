"""A Helenus node for the cases: one that asks for a login, with the same superuser as a new Cassandra, and one that does not."""

import subprocess
from contextlib import closing, contextmanager

from node import Node, clean_environment
from role_servers import SUPERUSER, CaseError, Server

FEATURES = {"user_defined_functions_enabled": True, "dynamic_data_masking_enabled": True}
SECURED = {
    "authenticator": "PasswordAuthenticator",
    "authorizer": "CassandraAuthorizer",
    "role_manager": "CassandraRoleManager",
    "network_authorizer": "CassandraNetworkAuthorizer",
    "cidr_authorizer": "CassandraCIDRAuthorizer",
    "cidr_authorizer_mode": "ENFORCE",
    "cidr_checks_for_superusers": False,
}


def admin(node, *words, typed=""):
    """A command of an operator on the node's Unix socket; `typed` is its standard input."""
    command = [str(word) for word in (node.program, "admin", "--data-dir", node.data_dir, *words)]
    done = subprocess.run(command, input=typed, text=True, capture_output=True, check=False, env=clean_environment())
    if done.returncode:
        raise CaseError(f"helenus admin {' '.join(words)}: {done.stdout}{done.stderr}")


def server_of(node):
    return Server((node.host, node.port), "lua", lambda *words: admin(node, *words))


@contextmanager
def secured_node(binary=None):
    with Node(binary, settings={**FEATURES, **SECURED}) as node:
        admin(node, "create-superuser", SUPERUSER, typed=f"{SUPERUSER}\n")
        with closing(server_of(node)) as server:
            yield server


@contextmanager
def open_node(binary=None):
    with Node(binary, settings=FEATURES) as node, closing(server_of(node)) as server:
        yield server
