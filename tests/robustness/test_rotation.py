"""Passwords and the keys of encrypted files change under load: no request fails, and nothing is lost.

Certificates of clients' connections are in test_tls.py, those between nodes in tests/cluster/test_tls.py.
"""

import threading

from cassandra.auth import PlainTextAuthProvider
from conftest import driver_session, new_node
from test_administration import command
from test_at_rest import at_rest, key, protections, write_keys
from test_authentication import authenticating, token
from wire import AUTH_RESPONSE, AUTH_SUCCESS, ERROR

ROUNDS = 5


class Load(threading.Thread):
    """Does something again and again until it is stopped, and keeps what failed."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.done, self.failures, self.stopping = work, 0, [], threading.Event()
        self.start()

    def run(self):
        while not self.stopping.is_set():
            try:
                self.work(self.done)
                self.done += 1
            except Exception as error:  # noqa: BLE001 - any is a failure
                self.failures.append(error)

    def stop(self):
        self.stopping.set()
        self.join()


def answer_of_login(node, name, password):
    with authenticating(node) as client:
        return client.ask(AUTH_RESPONSE, token(name, password)).opcode


def test_passwords_and_keys_of_files_change_under_load(tmp_path):
    keys = tmp_path / "keys"
    lines = [key("key0")]
    write_keys(keys, *lines)
    settings = {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "encryption_at_rest": at_rest(keys),
    }
    node = new_node(data_dir=tmp_path / "data", settings=settings)
    with node:
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        anna = PlainTextAuthProvider("anna", "secret")
        with driver_session(node, auth_provider=anna) as superuser:
            superuser.execute("CREATE TABLE k.rows (id int PRIMARY KEY, v text)")
            superuser.execute("CREATE ROLE shop WITH LOGIN = true AND PASSWORD = 'password 0'")
            superuser.execute("GRANT ALL ON ALL KEYSPACES TO shop")
            password, changing = "password 0", threading.Lock()
            with driver_session(node, auth_provider=PlainTextAuthProvider("shop", password)) as session:

                def write_and_read(number):
                    session.execute("INSERT INTO rows (id, v) VALUES (%s, %s)", (number, f"row {number}"))
                    assert session.execute("SELECT v FROM rows WHERE id = %s", (number,)).one().v == f"row {number}"

                def log_in(_):
                    with changing:
                        assert answer_of_login(node, "shop", password) == AUTH_SUCCESS

                writer, logins = Load(write_and_read), Load(log_in)
                try:
                    for number in range(1, ROUNDS + 1):
                        with changing:
                            superuser.execute(f"ALTER ROLE shop WITH PASSWORD = 'password {number}'")
                            former, password = password, f"password {number}"
                            # Who logs in behind the answer is judged by the new one, also where the former was just used.
                            assert answer_of_login(node, "shop", former) == ERROR
                        lines.append(key(f"key{number}"))
                        write_keys(keys, *lines)
                        node.administer("reloadssl")
                        node.administer("flush")
                        node.administer("upgradesstables", all="true")
                        assert f"key{number}" in protections(node)
                finally:
                    writer.stop()
                    logins.stop()
                assert not writer.failures, writer.failures[:3]
                assert not logins.failures, logins.failures[:3]
                assert writer.done > ROUNDS and logins.done > ROUNDS
        node.restart()
        with driver_session(node, auth_provider=anna) as superuser:
            rows = {row.id: row.v for row in superuser.execute("SELECT id, v FROM rows")}
            assert all(rows[number] == f"row {number}" for number in range(writer.done))
