"""`helenus node --secure`: nobody is in before the first superuser is made, and nobody without TLS."""

import re
import ssl

import pytest
import wire
from cassandra import Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import NoHostAvailable
from conftest import driver_session, new_node
from test_administration import command


def context_for(node):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(node.data_dir.parent / "certificates" / "authority.pem")
    return context


def logged_in(node, name, password):
    return driver_session(node, auth_provider=PlainTextAuthProvider(name, password), ssl_context=context_for(node))


def test_a_secured_node_is_open_to_its_superuser_alone(tmp_path):
    node = new_node(data_dir=tmp_path / "node" / "data")
    node.data_dir.parent.mkdir()
    node.arguments.append("--secure")
    with node:
        said = node.log_path.read_text()
        assert "create-superuser NAME" in said and "--ssl" in said
        key = node.data_dir.parent / "certificates" / "authority.key"
        assert key.stat().st_mode & 0o777 == 0o600
        # The certificate names the host id, so that other nodes take it from this node alone.
        _, information, _ = command("admin", "info", "--data-dir", node.data_dir)
        host_id = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", information)[0]
        assert (key.parent / f"node-{node.host}-{host_id}.pem").exists()
        with pytest.raises((OSError, wire.BadAnswer)), wire.Client((node.host, node.port)) as plain:
            plain.ask(wire.OPTIONS)
        with pytest.raises(NoHostAvailable), logged_in(node, "cassandra", "cassandra"):
            pass
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")
        assert made == (0, "anna is a superuser\n", "")
        with logged_in(node, "anna", "secret") as session:
            session.execute("CREATE TABLE k.t (k int PRIMARY KEY)")
            session.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
            session.execute("GRANT CREATE ON ALL KEYSPACES TO ben")
            with logged_in(node, "ben", "ben") as other, pytest.raises(Unauthorized):
                other.execute("SELECT * FROM k.t")
        # The administration port has the certificate too. Nobody else vouches for it.
        url = ("--url", f"https://{node.http_address}", "--user", "anna")
        trusted = ("--authority", node.data_dir.parent / "certificates" / "authority.pem")
        assert command("admin", "flush", *url, *trusted, stdin="secret\n") == (0, "done\n", "")
        status, _, complaint = command("admin", "flush", *url, stdin="secret\n")
        assert status == 1 and "https needs --authority" in complaint
        # Certificates and roles outlive a restart.
        node.restart()
        with logged_in(node, "anna", "secret") as session:
            assert not session.execute("SELECT * FROM k.t").all()
