"""A Helenus node for the cases: one that asks for a login, with the same superuser as a new Cassandra, and one that does not."""

import subprocess
from contextlib import closing, contextmanager

from node import Node, clean_environment
from servers import SUPERUSER, CaseError, Server

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


def create_superuser(node, name, password):
    """Makes the first superuser, as an operator does: over the node's local socket."""
    command = [node.program, "admin", "create-superuser", name, "--socket", node.data_dir / "admin.sock"]
    subprocess.run([str(word) for word in command], input=f"{password}\n", text=True, check=True, env=clean_environment())


def server_of(node):
    def administer(*words):
        status, output = node.admin(*words)
        if status:
            raise CaseError(f"helenus admin {' '.join(words)}: {output}")

    return Server((node.host, node.port), "lua", administer)


@contextmanager
def secured_node(binary=None):
    with Node(binary, settings={**FEATURES, **SECURED}) as node:
        create_superuser(node, SUPERUSER, SUPERUSER)
        with closing(server_of(node)) as server:
            yield server


@contextmanager
def open_node(binary=None):
    with Node(binary, settings=FEATURES) as node, closing(server_of(node)) as server:
        yield server
