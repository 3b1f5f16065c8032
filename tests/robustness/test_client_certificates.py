"""Clients that log in with certificates: which role they get, who gets none, and passwords as the fallback."""

from contextlib import contextmanager

import pytest
import wire
from cassandra.auth import PlainTextAuthProvider
from certificates import Authority
from conftest import driver_session, new_node, program
from test_administration import command
from wire import AUTH_RESPONSE, AUTH_SUCCESS, AUTHENTICATE, BAD_CREDENTIALS, QUERY, RESULT, STARTUP, Client

ALONE, WITH_FALLBACK = "MutualTlsAuthenticator", "MutualTlsWithPasswordFallbackAuthenticator"
IDENTITIES = {"alice": "spiffe://shop/alice", "locked": "spiffe://shop/locked", "stranger": "spiffe://shop/stranger"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(program(), tmp_path_factory.mktemp("authority"))
    made.node("node", "--address", "127.0.0.1")
    for name, identity in IDENTITIES.items():
        made.client(name, identity)
    made.client("nameless")
    return made


@pytest.fixture(scope="module")
def node(authority):
    """One that has the superuser anna, the roles alice and locked, and identities for them."""
    encryption = authority.settings("node", "required", client_certificates="optional")
    with new_node(settings={"authenticator": WITH_FALLBACK, "client_encryption": encryption}) as running:
        made = command("admin", "create-superuser", "anna", "--data-dir", running.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        with superuser(running, authority) as session:
            session.execute("CREATE ROLE alice WITH LOGIN = true")
            session.execute("CREATE ROLE locked WITH LOGIN = false")
            for role in ("alice", "locked"):
                session.execute(f"ADD IDENTITY '{IDENTITIES[role]}' TO ROLE '{role}'")
        yield running


def superuser(node, authority):
    return driver_session(node, auth_provider=PlainTextAuthProvider("anna", "secret"), ssl_context=authority.context())


@contextmanager
def authenticating(node, authority, certificate, authenticator):
    """A connection that shows a certificate, or none, and was asked to log in."""
    with Client((node.host, node.port), started=False) as client:
        client.socket = authority.context(certificate).wrap_socket(client.socket, server_hostname=node.host)
        asked = client.ask(STARTUP, wire.startup())
        assert asked.opcode == AUTHENTICATE and authenticator.encode() in asked.body
        yield client


def token(name="", password=""):
    return wire.value(f"\0{name}\0{password}".encode())


def refusal(node, authority, certificate, authenticator, sent=None):
    with authenticating(node, authority, certificate, authenticator) as client:
        answer = client.ask(AUTH_RESPONSE, sent or token())
        assert answer.error_code == BAD_CREDENTIALS, answer
        # Who was refused may not do anything.
        assert client.ask(QUERY, wire.query("SELECT key FROM system.local")).opcode != RESULT
        return answer.message


def is_in(node, authority, certificate, authenticator, sent=None):
    """Whether a login succeeds; the role shows in what it may do."""
    with authenticating(node, authority, certificate, authenticator) as client:
        return client.ask(AUTH_RESPONSE, sent or token()).opcode == AUTH_SUCCESS


def with_authenticator(node, authenticator):
    if node.settings["authenticator"] != authenticator:
        node.settings["authenticator"] = authenticator
        node.restart()


def test_a_certificate_is_the_login_of_the_role_of_its_identity(node, authority):
    with_authenticator(node, ALONE)
    provider = PlainTextAuthProvider("anna", "whatever")
    with driver_session(node, auth_provider=provider, ssl_context=authority.context("alice")) as session:
        names = {row.username for row in session.execute("SELECT username FROM system_views.clients")}
        # The name beside the certificate counts nothing.
        assert names == {"alice"}
    before = node.ask("GET", "/metrics", timeout=10)
    unknown = refusal(node, authority, "stranger", ALONE)
    assert unknown == "Certificate identity 'spiffe://shop/stranger' not authorized"
    for certificate in (None, "nameless"):
        # There is no fallback: a right password counts nothing either.
        for sent in (token(), token("anna", "secret")):
            assert refusal(node, authority, certificate, ALONE, sent) == "Invalid or not supported certificate"
    assert refusal(node, authority, "locked", ALONE) == "locked is not permitted to log in"
    assert hashes(node.ask("GET", "/metrics", timeout=10)) == hashes(before)


def hashes(metrics):
    return [line for line in metrics.splitlines() if line.startswith("helenus_password_hashes_total")]


def test_an_identity_that_is_dropped_logs_nobody_in(node, authority):
    with_authenticator(node, WITH_FALLBACK)
    with authenticating(node, authority, "alice", WITH_FALLBACK) as client, superuser(node, authority) as session:
        assert client.ask(AUTH_RESPONSE, token()).opcode == AUTH_SUCCESS
        session.execute(f"DROP IDENTITY '{IDENTITIES['alice']}'")
        unknown = "Certificate identity 'spiffe://shop/alice' not authorized"
        assert refusal(node, authority, "alice", WITH_FALLBACK) == unknown
        # As with a changed password, who is in stays in until the role is locked or dropped.
        assert client.ask(QUERY, wire.query("SELECT key FROM system.local")).opcode == RESULT
        session.execute(f"ADD IDENTITY '{IDENTITIES['alice']}' TO ROLE 'alice'")
        assert is_in(node, authority, "alice", WITH_FALLBACK)
        session.execute("ALTER ROLE alice WITH LOGIN = false")
        answer = client.ask(QUERY, wire.query("SELECT key FROM system.local"))
        assert answer.error_code == wire.UNAUTHORIZED and answer.message == "alice is not permitted to log in"
        session.execute("ALTER ROLE alice WITH LOGIN = true")


def test_a_password_is_the_fallback_of_who_shows_no_identity(node, authority):
    with_authenticator(node, WITH_FALLBACK)
    for certificate in (None, "nameless"):
        assert is_in(node, authority, certificate, WITH_FALLBACK, token("anna", "secret"))
        wrong = refusal(node, authority, certificate, WITH_FALLBACK, token("anna", "wrong"))
        assert wrong == "Provided username anna and/or password are incorrect"
    # An identity that belongs to no role is not mended by a password.
    unknown = refusal(node, authority, "stranger", WITH_FALLBACK, token("anna", "secret"))
    assert unknown == "Certificate identity 'spiffe://shop/stranger' not authorized"


def test_a_certificate_of_another_authority_is_no_login(node, authority, tmp_path):
    foreign = Authority(program(), tmp_path)
    foreign.client("alice", IDENTITIES["alice"])
    context = authority.context()
    context.load_cert_chain(*foreign.files("alice"))
    with Client((node.host, node.port), started=False) as client:
        try:
            client.socket = context.wrap_socket(client.socket, server_hostname=node.host)
            # With TLS 1.3 the refusal comes behind the handshake of the client.
            answer = client.ask(STARTUP, wire.startup())
        except OSError:
            answer = None
        assert answer is None
