"""TLS for clients: who is served, who is not, what garbage costs, and certificates that change under load."""

import os
import random
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from cassandra.cluster import NoHostAvailable
from certificates import Authority
from conftest import driver_session, new_node, program
from node import clean_environment
from wire import OPTIONS, SUPPORTED, frame

SEED = 2626
DEADLINE_SECONDS = 60


def until(what, condition):
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(program(), tmp_path_factory.mktemp("authority"))
    made.node("node", "--address", "127.0.0.1", "--dns", "localhost")
    made.client("alice", "spiffe://shop/alice")
    return made


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    made = Authority(program(), tmp_path_factory.mktemp("foreign"))
    made.client("mallory")
    return made


def tls_node(authority, mode, **further):
    return new_node(settings={"client_encryption": authority.settings("node", mode, **further)})


def supported(node, context=None):
    """The options of SUPPORTED."""
    with socket.create_connection((node.host, node.port), timeout=10) as plain:
        connection = context.wrap_socket(plain, server_hostname=node.host) if context else plain
        connection.sendall(frame(OPTIONS))
        head = exactly(connection, 9)
        assert head[4] == SUPPORTED
        body = exactly(connection, int.from_bytes(head[5:9], "big"))
        return body.decode("latin-1")


def exactly(connection, length):
    found = b""
    while len(found) < length:
        part = connection.recv(length - len(found))
        if not part:
            raise ConnectionResetError
        found += part
    return found


def write_and_read(session, number):
    session.execute("CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY, v text)")
    text = "x" * 200_000
    session.execute("INSERT INTO t (k, v) VALUES (%s, %s)", (number, text))
    assert session.execute("SELECT v FROM t WHERE k = %s", (number,)).one().v == text


def test_one_port_serves_both_where_tls_is_optional(authority):
    with tls_node(authority, "optional") as node:
        for number, options in enumerate([{}, {"ssl_context": authority.context()}]):
            with driver_session(node, **options) as session:
                write_and_read(session, number)
        for options in (supported(node), supported(node, authority.context())):
            assert "SCYLLA_SHARD_AWARE_PORT" in options.replace("SCYLLA_SHARD_AWARE_PORT_SSL", "")
            assert "SCYLLA_SHARD_AWARE_PORT_SSL" in options
        assert node.metric("helenus_certificate_expiry_seconds") > 20 * 24 * 3600


def test_who_does_not_use_tls_is_refused_where_it_is_required(authority, foreign):
    with tls_node(authority, "required") as node:
        with driver_session(node, ssl_context=authority.context()) as session:
            write_and_read(session, 1)
        with pytest.raises(NoHostAvailable), driver_session(node):
            pass
        with pytest.raises(ssl.SSLCertVerificationError):
            supported(node, foreign.context())
        options = supported(node, authority.context())
        assert "SCYLLA_SHARD_AWARE_PORT_SSL" in options
        assert "SCYLLA_SHARD_AWARE_PORT" not in options.replace("SCYLLA_SHARD_AWARE_PORT_SSL", "")
        assert node.metric("helenus_tls_handshakes_failed_total") > 0


def test_clients_show_certificates_of_the_authority_where_they_are_required(authority, foreign):
    with tls_node(authority, "required", client_certificates="required") as node:
        with driver_session(node, ssl_context=authority.context("alice")) as session:
            write_and_read(session, 1)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            supported(node, authority.context())
        stranger = authority.context()
        stranger.load_cert_chain(*foreign.files("mallory"))
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            supported(node, stranger)


def test_garbage_and_half_handshakes_leave_other_clients_alone(authority, measured):
    """A thousand connections that never become any, beside a client whose requests go on."""
    chance = random.Random(SEED)
    hello = client_hello()
    with tls_node(authority, "optional") as node, driver_session(node, ssl_context=authority.context()) as session:
        write_and_read(session, 0)
        before, open_sockets = node.resident_mib(), []
        slowest = 0.0
        try:
            for number in range(1000):
                bad = socket.create_connection((node.host, node.port), timeout=10)
                kind = number % 4
                if kind == 0:
                    bad.sendall(b"\x16" + chance.randbytes(chance.randrange(1, 4000)))
                elif kind == 1:
                    bad.sendall(hello[: chance.randrange(1, len(hello))])
                elif kind == 2:
                    bad.sendall(chance.randbytes(300))
                open_sockets.append(bad)
                if number % 10 == 0:
                    begin = time.monotonic()
                    write_and_read(session, number)
                    slowest = max(slowest, time.monotonic() - begin)
            measured(f"TLS: slowest of 200 requests beside 1,000 bad connections {slowest * 1000:.0f} ms")
            assert slowest < 5
            assert node.resident_mib() - before < 200
            # Those that stall are ended by the node.
            stalled = open_sockets[1]
            stalled.settimeout(30)
            assert stalled.recv(1) == b""
        finally:
            for bad in open_sockets:
                bad.close()
        write_and_read(session, 1)


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def serial(node, context):
    with socket.create_connection((node.host, node.port), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname=node.host) as connection:
            return connection.getpeercert()["serialNumber"]


def test_certificates_change_under_load_without_an_error(authority, tmp_path):
    for suffix in ("pem", "key"):
        shutil.copy(authority.directory / f"node.{suffix}", tmp_path / f"used.{suffix}")
    settings = authority.settings("node", "required", certificate=tmp_path / "used.pem", key=tmp_path / "used.key")
    with new_node(settings={"client_encryption": settings}) as node:
        with driver_session(node, ssl_context=authority.context()) as session:
            write_and_read(session, 0)
            failures, stopped = [], threading.Event()

            def load():
                number = 0
                while not stopped.is_set():
                    number += 1
                    try:
                        session.execute("INSERT INTO t (k, v) VALUES (%s, 'a')", (number,))
                        serial(node, authority.context())
                    except Exception as error:  # noqa: BLE001 - any is a failure
                        failures.append(error)

            loading = threading.Thread(target=load)
            loading.start()
            try:
                first = serial(node, authority.context())
                authority.node("next", "--address", "127.0.0.1")
                # The key follows later: until then the two do not belong together, and the former ones serve.
                for suffix in ("pem", "key"):
                    shutil.copy(authority.directory / f"next.{suffix}", tmp_path / "copy")
                    os.replace(tmp_path / "copy", tmp_path / f"used.{suffix}")
                    if suffix == "pem":
                        until("the node tells of it", lambda: "does not belong to the certificate" in node.log_tail(1000))
                until("the new one is served", lambda: serial(node, authority.context()) != first)
                (tmp_path / "used.pem").write_text("nothing")
                until("the node tells of it", lambda: "there is no certificate" in node.log_tail(1000))
                assert serial(node, authority.context()) != first
            finally:
                stopped.set()
                loading.join()
            assert not failures, failures[:3]


def shell(node, *words):
    command = [program(), "shell", node.host, node.port, "--execute", "SELECT cluster_name FROM system.local", *words]
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60, check=False, env=clean_environment()
    )


def test_the_shell_connects_with_tls(authority, foreign):
    certificate, key = authority.files("alice")
    with tls_node(authority, "required", client_certificates="required") as node:
        own = ["--certificate", certificate, "--key", key]
        done = shell(node, "--ssl", "--authorities", authority.certificate, *own)
        assert done.returncode == 0 and "helenus" in done.stdout, done.stdout + done.stderr
        done = shell(node, "--ssl", "--authorities", foreign.certificate, *own)
        assert done.returncode == 2 and "no TLS connection with" in done.stderr, done.stderr
        done = shell(node, "--ssl", "--authorities", authority.certificate)
        assert done.returncode == 2 and "no TLS connection with" in done.stderr, done.stderr
        assert shell(node, "--connect-timeout", 0).returncode == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"certificate": "absent.pem"}, "absent.pem: the certificate cannot be read"),
        ({"key": "node.pem"}, "there is no private key in PEM in it"),
        ({"certificate": "alice.pem"}, "the key does not belong to the certificate in"),
        ({"authorities": "node.key"}, "there is no certificate of an authority in PEM in it"),
    ],
)
def test_a_node_does_not_start_with_wrong_files(authority, tmp_path, change, said):
    change = {key: authority.directory / name for key, name in change.items()}
    table = authority.settings("node", "required", client_certificates="required", **change)
    lines = "".join(f'{key} = "{value}"\n' for key, value in table.items())
    configuration = tmp_path / "helenus.toml"
    configuration.write_text(f"http_enabled = false\n[client_encryption]\n{lines}")
    command = [program(), "node", "--config", configuration, "--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0"]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60, check=False, env=clean_environment()
    )
    assert done.returncode != 0 and said in done.stderr, done.stderr
