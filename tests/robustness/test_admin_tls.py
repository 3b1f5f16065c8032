"""Administration over TLS: roles, certificates that change, and what a node refuses to serve on the network. The nodes here listen on loopback."""

import os
import shutil
import socket
import ssl
import time

import pytest
from cassandra.auth import PlainTextAuthProvider
from certificates import Authority
from conftest import driver_session, new_node, program
from node import free_port
from test_administration import command
from test_node import run
from test_tls import client_hello, until

HALF_HANDSHAKES = 100
IDENTITY = "spiffe://shop/root"
HANDSHAKE_TIMEOUT_SECONDS = 10


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(program(), tmp_path_factory.mktemp("authority"))
    made.node("node", "--address", "127.0.0.1", "--dns", "localhost")
    made.client("root", IDENTITY)
    return made


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    made = Authority(program(), tmp_path_factory.mktemp("foreign"))
    made.client("root", IDENTITY)
    return made


def settings(encryption, port):
    return {
        "http_port": None,
        "http_listen": f"127.0.0.1:{port}",
        "authenticator": "MutualTlsWithPasswordFallbackAuthenticator",
        "admin_encryption": encryption,
    }


class Administered:
    """A node with the superuser anna and the role ben, and its port."""

    def __init__(self, node, port, authority):
        self.node, self.port, self.authority = node, port, authority
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        with driver_session(node, auth_provider=PlainTextAuthProvider("anna", "secret")) as session:
            session.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
            session.execute(f"ADD IDENTITY '{IDENTITY}' TO ROLE 'anna'")

    def admin(self, *words, stdin="", host="127.0.0.1", authority=None):
        trusted = (authority or self.authority).certificate
        return command("admin", *words, "--url", f"https://{host}:{self.port}", "--authority", trusted, stdin=stdin)

    def metric(self, name):
        """A metric without labels, over the Unix socket."""
        lines = self.node.ask("GET", "/metrics", timeout=10).splitlines()
        (value,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
        return float(value)

    def serial(self):
        """The number of the certificate that the port shows."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as plain:
            with self.authority.context().wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                return connection.getpeercert()["serialNumber"]


@pytest.fixture(scope="module")
def administered(authority):
    port = free_port()
    encryption = authority.settings("node", "required", client_certificates="optional")
    with new_node(settings=settings(encryption, port)) as node:
        yield Administered(node, port, authority)


def test_who_does_not_log_in_gets_nothing(administered):
    failed = administered.metric("helenus_admin_logins_failed_total")
    for words in (["status"], ["flush"], ["drain"], ["describe-roles"]):
        status, output, complaint = administered.admin(*words)
        assert (status, output) == (1, "") and "a login is needed" in complaint, words
        status, output, complaint = administered.admin(*words, "--user", "anna", stdin="wrong\n")
        assert (status, output) == (1, "")
        refusals = ("Provided username anna and/or password are incorrect", "Too many attempts to log in as anna")
        assert any(refusal in complaint for refusal in refusals), complaint
    # Who shows no password has made no attempt.
    assert administered.metric("helenus_admin_logins_failed_total") == failed + 4
    # This node is the only member: it knows the newest roles.
    assert administered.metric("helenus_roles_confirmation_age_seconds") < 120


def test_a_role_reads_and_a_superuser_changes(administered):
    ben = {"stdin": "ben\n"}
    assert administered.admin("health", "--user", "ben", **ben) == (0, "up\n", "")
    assert administered.admin("status", "--user", "ben", **ben)[0] == 0
    for words, path in ((["flush"], "flush"), (["drain"], "drain"), (["listcidrgroups"], "cidrgroups"), (["getauditlog"], "auditlog")):
        done = administered.admin(*words, "--user", "ben", **ben)
        assert done == (1, "", f"helenus admin: /admin/{path} is for superusers, which ben is not\n")
    for host in ("127.0.0.1", "localhost"):
        assert administered.admin("flush", "--user", "anna", stdin="secret\n", host=host) == (0, "done\n", "")
    status, _, complaint = administered.admin("describe-roles", "--user", "anna", stdin="secret\n")
    assert status == 1 and "on the node's Unix socket only" in complaint
    assert "secret" not in administered.node.log_path.read_text()


def test_a_certificate_with_an_identity_is_a_login(administered, authority, foreign):
    def own(of):
        certificate, key = of.files("root")
        return "--certificate", certificate, "--key", key

    assert administered.admin("flush", *own(authority)) == (0, "done\n", "")
    assert administered.admin("flush", *own(foreign))[:2] == (1, "")


def test_the_node_must_be_vouched_for(administered, foreign):
    failed = administered.metric("helenus_admin_tls_handshakes_failed_total")
    status, output, complaint = administered.admin("flush", "--user", "anna", stdin="secret\n", authority=foreign)
    assert (status, output) == (1, "") and "invalid peer certificate" in complaint
    until("the handshake is counted", lambda: administered.metric("helenus_admin_tls_handshakes_failed_total") > failed)


def test_plain_http_is_not_served(administered):
    with socket.create_connection(("127.0.0.1", administered.port), timeout=10) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: node\r\n\r\n")
        try:
            assert plain.recv(1) == b""
        except ConnectionResetError:
            pass
    status, output, _ = command("admin", "health", "--url", f"http://127.0.0.1:{administered.port}")
    assert (status, output) == (1, "")


def test_a_password_is_sent_over_tls_or_to_the_own_machine_only():
    status, output, complaint = command("admin", "flush", "--url", "http://192.0.2.1:9180", "--user", "anna", stdin="secret\n")
    assert (status, output) == (1, "") and "a password is not sent to http://192.0.2.1:9180 over plain HTTP" in complaint


def has_ended(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except BlockingIOError:
        return False


def test_half_handshakes_leave_those_alone_who_log_in(administered):
    hello, silent = client_hello(), []
    try:
        for number in range(HALF_HANDSHAKES):
            connection = socket.create_connection(("127.0.0.1", administered.port), timeout=10)
            connection.sendall(hello[: number % len(hello)])
            silent.append(connection)
            if number % 20 == 0:
                done = administered.admin("flush", "--user", "anna", stdin="secret\n")
                assert done == (0, "done\n", "")
        assert administered.admin("health", "--user", "ben", stdin="ben\n") == (0, "up\n", "")
        until("all have ended", lambda: all(has_ended(connection) for connection in silent))
    finally:
        for connection in silent:
            connection.close()


def test_the_certificate_changes_without_a_restart(authority, tmp_path):
    for suffix in ("pem", "key"):
        shutil.copy(authority.directory / f"node.{suffix}", tmp_path / f"used.{suffix}")
    used = {"certificate": tmp_path / "used.pem", "key": tmp_path / "used.key"}
    port = free_port()
    with new_node(settings=settings(authority.settings("node", "required", **used), port)) as node:
        administered = Administered(node, port, authority)
        first = administered.serial()
        authority.node("next", "--address", "127.0.0.1")
        for suffix in ("pem", "key"):
            shutil.copy(authority.directory / f"next.{suffix}", tmp_path / "copy")
            os.replace(tmp_path / "copy", tmp_path / f"used.{suffix}")
        assert administered.admin("reloadssl", "--user", "anna", stdin="secret\n") == (0, "done\n", "")
        assert administered.serial() != first
        # Also by itself.
        second = administered.serial()
        authority.node("last", "--address", "127.0.0.1")
        for suffix in ("pem", "key"):
            shutil.copy(authority.directory / f"last.{suffix}", tmp_path / "copy")
            os.replace(tmp_path / "copy", tmp_path / f"used.{suffix}")
        until("the new one is served", lambda: administered.serial() != second)
        with pytest.raises(ssl.SSLError):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
                context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_on_the_network_nothing_is_served_without_tls_and_logins(authority, tmp_path):
    certificate, key = authority.files("node")
    tls = f"certificate = '{certificate}'\nkey = '{key}'\n"
    passwords = "authenticator = 'PasswordAuthenticator'\n"
    for number, text in enumerate(
        (
            "",
            passwords,
            f"[admin_encryption]\nmode = 'required'\n{tls}",
            f"{passwords}[admin_encryption]\nmode = 'optional'\n{tls}",
        )
    ):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        flags = ("--config", path, "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0")
        status, output, error = run(*flags, "--http-listen", f"0.0.0.0:{free_port()}")
        assert (status, output) == (1, "")
        assert "setting 'http_listen': 0.0.0.0 is no loopback address" in error
        assert "`admin_encryption` with mode \"required\"" in error and "`authenticator`" in error
        assert not (tmp_path / "data").exists()


def test_tls_handshakes_of_clients_take_places_before_the_login(authority):
    places, count = 8, 40
    own = {
        "authenticator": "PasswordAuthenticator",
        "max_connections_before_login": places,
        "client_encryption": authority.settings("node", "required"),
    }
    with new_node(settings=own) as node:
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        hello, begun = client_hello(), time.monotonic()
        silent = [socket.create_connection((node.host, node.port), timeout=10) for _ in range(count)]
        try:
            for connection in silent:
                try:
                    connection.sendall(hello[:-1])
                except ConnectionError:
                    pass  # It has given way.
            until("those above the places have given way", lambda: sum(map(has_ended, silent)) >= count - places)
            assert time.monotonic() - begun < HANDSHAKE_TIMEOUT_SECONDS, "not because the handshakes took too long"
            login = PlainTextAuthProvider("anna", "secret")
            with driver_session(node, auth_provider=login, ssl_context=authority.context()) as session:
                assert session.execute("SELECT key FROM system.local").one()
        finally:
            for connection in silent:
                connection.close()
