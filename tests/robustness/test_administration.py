"""Where a node is administered: its Unix socket, its port, and the address for metrics and health."""

import base64
import http.client
import json
import os
import re
import socket
import stat
import subprocess

import pytest
from cassandra.auth import PlainTextAuthProvider
from conftest import driver_session, new_node, program
from node import clean_environment, free_port
from test_node import run

RUN_SECONDS = 60


def command(*words, stdin="", cwd=None, **variables):
    """A command to its end: (status, standard output, standard error)."""
    done = subprocess.run(
        [program(), *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=clean_environment(**variables),
        cwd=cwd,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def socket_of(node):
    return node.data_dir / "helenus.sock"


def is_up(node, *words, **options):
    return command("admin", "health", *words, **options) == (0, "up\n", "")


def ask(port, method, path, body=None, login=None):
    """Status and text. `login`: a name and a password with a colon between."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=RUN_SECONDS)
    headers = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()} if login else {}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_socket_is_for_the_node_s_user_and_found_by_its_directory(tmp_path):
    with new_node(data_dir=tmp_path / "helenus-data", settings={"http_enabled": False}) as node:
        status = socket_of(node).stat()
        assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600
        assert is_up(node, "--data-dir", node.data_dir)
        assert is_up(node, "--socket", socket_of(node))
        assert is_up(node, HELENUS_DATA_DIR=str(node.data_dir))
        assert is_up(node, HELENUS_ADMIN_SOCKET=str(socket_of(node)))
        # The default directory.
        assert is_up(node, cwd=tmp_path)
        assert command("admin", "--data-dir", node.data_dir, "flush") == (0, "done\n", "")
        status, told, _ = command("nodetool", "status", HELENUS_DATA_DIR=str(node.data_dir))
        assert status == 0 and "UN  127.0.0.1" in told
        assert command("nodetool", "--data-dir", node.data_dir, "flush") == (0, "", "")
        node.stop()
        assert not socket_of(node).exists()
        status, _, complaint = command("admin", "health", "--data-dir", node.data_dir)
        assert status == 1 and f"cannot reach the node at {socket_of(node)}: No such file" in complaint


def test_a_data_directory_with_a_long_path_has_a_socket_too(tmp_path):
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    with new_node(data_dir=deep / "helenus-data", settings={"http_enabled": False}) as node:
        assert len(str(socket_of(node))) > 180
        assert is_up(node, "--data-dir", node.data_dir)
        assert is_up(node, cwd=deep)


def test_a_socket_of_a_killed_process_is_replaced():
    with new_node(settings={"http_enabled": False}) as node:
        node.process.kill()
        node.process.wait()
        assert socket_of(node).exists()
        status, _, complaint = command("admin", "health", "--data-dir", node.data_dir)
        assert status == 1 and "Connection refused" in complaint
        node.start()
        assert is_up(node, "--data-dir", node.data_dir)


def test_a_socket_on_which_another_node_listens_is_not_replaced(tmp_path):
    path = tmp_path / "shared.sock"
    with new_node(settings={"admin_socket": str(path)}) as node:
        assert not socket_of(node).exists()
        assert is_up(node, "--socket", path)
        flags = ("--data-dir", tmp_path / "other", "--listen", "127.0.0.1:0", "--no-http")
        status, output, error = run(*flags, "--admin-socket", path)
        assert (status, output) == (1, "")
        assert f"cannot listen on the Unix socket {path}: another process listens on it" in error
        assert is_up(node, "--socket", path)
        # Another file in the place of the default socket keeps a node from nothing, and is kept.
        other = new_node(settings={"http_enabled": False})
        socket_of(other).write_text("kept")
        with other:
            assert "the Unix socket for administration cannot be made" in other.log_tail(1000)
            other.stop()
            assert socket_of(other).read_text() == "kept"


def test_without_a_socket_the_port_is_asked():
    with new_node(settings={"admin_socket": ""}) as node:
        assert not socket_of(node).exists()
        port = node.http_address.rsplit(":", 1)[1]
        assert is_up(node, "--http-port", port)
        assert is_up(node, "--url", f"http://{node.http_address}")
        assert is_up(node, HELENUS_ADMIN_URL=f"http://{node.http_address}")
        assert command("nodetool", "-p", port, "flush") == (0, "", "")
        # A directory that is named stands for its node alone.
        status, _, complaint = command("admin", "health", "--data-dir", node.data_dir)
        assert status == 1 and str(socket_of(node)) in complaint
        status, _, complaint = command("admin", "health", "--data-dir", node.data_dir, "--http-port", port)
        assert status != 0 and "cannot be used with" in complaint


def test_a_port_that_is_configured_and_taken_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--http-port", port)
        status, output, error = run(*flags)
    assert (status, output) == (1, "") and f"cannot listen on 127.0.0.1:{port}" in error


# Every path of the administration port, as the program has them.
def paths():
    from node import ROOT

    routes = (ROOT / "observe/src/routes.rs").read_text()
    return sorted(set(re.findall(r'"(/[a-z_]+(?:/[a-z_]+)?)" => Self::', routes)))


def test_an_address_for_prometheus_serves_metrics_and_health_alone():
    port = free_port()
    with new_node(settings={"metrics_listen": f"127.0.0.1:{port}"}) as node:
        status, text = ask(port, "GET", "/metrics")
        assert status == 200 and "helenus_requests_total" in text
        assert ask(port, "GET", "/health") == (200, '{"status":"up"}\n')
        others = [path for path in paths() if path not in ("/metrics", "/health")]
        assert len(others) > 40 and "/admin/decommission" in others and "/version" in others
        for path in others:
            for method in ("GET", "POST"):
                status, text = ask(port, method, path)
                assert status == 403 and "is not served at this address" in json.loads(text)["error"], (method, path)
        assert ask(port, "GET", "/admin/unknown")[0] == 404
        assert ask(port, "POST", "/metrics")[0] == 405
        node.administer("drain")
        assert ask(port, "GET", "/health")[0] == 503


def test_a_superuser_is_made_over_the_socket_only():
    with new_node() as node:
        url = f"http://{node.http_address}"
        status, _, complaint = command("admin", "create-superuser", "anna", "--url", url, stdin="secret\n")
        assert status == 1 and "over the node's Unix socket only" in complaint
        port = int(node.http_address.rsplit(":", 1)[1])
        status, told = ask(port, "POST", "/admin/create_superuser?name=anna", body="secret")
        assert status == 403 and "on the node's Unix socket only" in told
        for stdin, reason in (("", "no password"), ("\n", "no password"), ("a\nb\n", "more than one line")):
            status, _, complaint = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin=stdin)
            assert status == 1 and reason in complaint
        place = ("--data-dir", node.data_dir)
        done = command("admin", "create-superuser", "anna", *place, stdin="secret\n")
        assert done == (0, "anna is a superuser\n", "")
        status, _, complaint = command("admin", "create-superuser", "boris", *place, stdin="secret\n")
        assert status == 1 and "there is a superuser that can log in already: anna" in complaint
        for name in ("anna", "boris"):
            done = command("admin", "create-superuser", name, "--reset", *place, stdin="another secret\n")
            assert done == (0, f"{name} is a superuser\n", "")
        # They outlive a restart.
        node.restart()
        status, _, complaint = command("admin", "create-superuser", "clara", *place, stdin="secret\n")
        assert status == 1 and "there is a superuser that can log in already" in complaint
        assert "secret" not in node.log_path.read_text()


def test_where_clients_log_in_so_do_those_who_administer(tmp_path):
    with new_node(settings={"authenticator": "PasswordAuthenticator"}) as node:
        port = int(node.http_address.rsplit(":", 1)[1])
        place = ("--http-port", port)
        for path in ("/metrics", "/health", "/version"):
            assert ask(port, "GET", path)[0] == 200, path
        others = [path for path in paths() if path not in ("/metrics", "/health", "/version")]
        for path in others:
            for method in ("GET", "POST"):
                status, text = ask(port, method, path)
                assert status == 401 and "a login is needed" in json.loads(text)["error"], (method, path)
        for words in (("admin", "flush", *place), ("nodetool", "-p", port, "disablebinary")):
            status, _, complaint = command(*words)
            assert status != 0 and "a login is needed" in complaint
        assert command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")[0] == 0
        with driver_session(node, auth_provider=PlainTextAuthProvider("anna", "secret")) as session:
            session.execute("CREATE ROLE ben WITH LOGIN = true AND PASSWORD = 'ben'")
            for login, method, path, expected in (
                ("anna:wrong", "POST", "/admin/flush", 401),
                ("stranger:secret", "GET", "/admin/status", 401),
                ("ben:ben", "GET", "/admin/status", 200),
                ("ben:ben", "POST", "/admin/flush", 403),
                ("ben:ben", "GET", "/admin/cidrgroups", 403),
                ("anna:secret", "GET", "/admin/cidrgroups", 200),
                ("anna:secret", "POST", "/admin/flush", 200),
                ("anna:secret", "POST", "/admin/create_superuser?name=clara", 403),
            ):
                assert ask(port, method, path, login=login)[0] == expected, (login, method, path)
            assert command("admin", "flush", *place, "--user", "anna", stdin="secret\n") == (0, "done\n", "")
            done = command("admin", "flush", *place, "--user", "ben", stdin="ben\n")
            assert done == (1, "", "helenus admin: /admin/flush is for superusers, which ben is not\n")
            (tmp_path / "password").write_text("secret\n")
            from_file = (*place, "--user", "anna", "--password-file", tmp_path / "password")
            assert command("admin", "flush", *from_file) == (0, "done\n", "")
            variables = {"HELENUS_ADMIN_PASSWORD_FILE": str(tmp_path / "password")}
            assert command("admin", "flush", *place, "--user", "anna", **variables) == (0, "done\n", "")
            # What is revoked is revoked with the next request.
            session.execute("ALTER ROLE ben WITH LOGIN = false")
            status, text = ask(port, "GET", "/admin/status", login="ben:ben")
            assert status == 401 and "ben is not permitted to log in" in text
        assert command("admin", "flush", "--data-dir", node.data_dir) == (0, "done\n", "")
        status, _, complaint = command("admin", "flush", "--data-dir", node.data_dir, "--user", "anna", stdin="secret\n")
        assert status == 1 and "over the Unix socket nobody logs in" in complaint
        assert "secret" not in node.log_path.read_text()


def become_another_user():
    os.setgroups([])
    os.setuid(1)


def can_become_another_user():
    try:
        return subprocess.run(["true"], preexec_fn=become_another_user, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


@pytest.mark.skipif(not can_become_another_user(), reason="only root can be another user, and not in every namespace")
def test_another_user_cannot_use_the_socket():
    with new_node(settings={"http_enabled": False}) as node:
        node.data_dir.chmod(0o755)
        code = "import socket, sys\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        words = ["python3", "-c", code, str(socket_of(node))]
        assert subprocess.run(words, check=False).returncode == 0
        done = subprocess.run(words, preexec_fn=become_another_user, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "PermissionError" in done.stderr


def test_tablestats_tells_how_often_and_how_long_rows_were_read_and_written():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE t (k int, c int, PRIMARY KEY (k, c))")
        for number in range(20):
            session.execute(f"INSERT INTO t (k, c) VALUES ({number % 4}, {number})")
        session.execute("DELETE FROM t WHERE k = 1 AND c = 1")
        for k in range(4):
            assert session.execute(f"SELECT * FROM t WHERE k = {k}").all()
        local = next(report for report in node.report("tablestats")["tables"] if report["table"] == "t")["local"]
        assert (local["read"]["count"], local["scan"]["count"], local["write"]["count"]) == (4, 0, 21)
        # Quantiles are upper bounds.
        assert local["rows_per_read"]["count"] == 4 and 5 <= local["rows_per_read"]["max"] <= 8
        assert 1 <= local["tombstones_per_read"]["max"] <= 2 and local["write"]["max_us"] > 0
        status, said, _ = command("nodetool", "-p", node.settings["http_port"], "tablestats", "k.t")
        assert status == 0 and "\t\tLocal read count: 4\n" in said and "\tWrite Count: 21\n" in said, said
