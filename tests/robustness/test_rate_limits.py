"""How many requests a second a role may make."""

import struct
import time

import pytest
import wire
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cluster import until
from conftest import driver_session, new_node
from test_administration import command
from wire import AUTH_RESPONSE, AUTH_SUCCESS, AUTHENTICATE, ERROR, OPTIONS, QUERY, RESULT, STARTUP, SUPPORTED, Client, frame

PER_SECOND = 50
OVERLOADED = 0x1001
RATE_LIMIT_ERROR = 0x4321
EXTENSION = "SCYLLA_RATE_LIMIT_ERROR"


def answers(client, text, count):
    return [client.ask(QUERY, wire.query(text)) for _ in range(count)]


def test_a_role_that_asks_too_often_is_refused_and_served_again():
    with new_node(settings={"role_requests_per_second_max": PER_SECOND}) as node:
        address = (node.host, node.port)
        select = "SELECT release_version FROM system.local"
        with Client(address) as plain, Client(address, **{EXTENSION: ""}) as aware:
            supported = plain.ask(OPTIONS)
            assert supported.opcode == SUPPORTED and b"ERROR_CODE=17185" in supported.body
            begun = time.monotonic()
            first = answers(plain, select, 4 * PER_SECOND)
            took = time.monotonic() - begun
            served = sum(answer.opcode == RESULT for answer in first)
            assert PER_SECOND <= served <= PER_SECOND * (1 + took) + 1
            refused = {answer.error_code for answer in first if answer.opcode == ERROR}
            assert refused == {OVERLOADED}
            assert "makes more than 50 requests a second" in next(a.message for a in first if a.opcode == ERROR)
            # Another connection of the same role, which knows an error of its own for it.
            codes = [answer for answer in answers(aware, select, PER_SECOND) if answer.opcode == ERROR]
            assert {answer.error_code for answer in codes} == {RATE_LIMIT_ERROR}
            assert codes[0].body.endswith(struct.pack(">BB", 0, 1))
            writes = answers(aware, "INSERT INTO system.t (k) VALUES (1)", PER_SECOND)
            limited = [answer for answer in writes if answer.error_code == RATE_LIMIT_ERROR]
            assert limited and limited[0].body.endswith(struct.pack(">BB", 1, 1))
            deadline = time.monotonic() + 30
            while answers(plain, select, 1)[0].opcode != RESULT:
                assert time.monotonic() < deadline
        assert node.metric("helenus_rate_limited_requests_total") > 0


def test_the_options_of_a_role_bound_it_in_place_of_the_setting():
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    with new_node(settings={**settings, "role_requests_per_second_max": 100_000}) as node:
        made = command("admin", "create-superuser", "root", "--data-dir", node.data_dir, stdin="root\n")
        assert made[0] == 0, made
        login = PlainTextAuthProvider("root", "root")
        with driver_session(node, auth_provider=login) as root:
            for options in ("'shares': '0'", "'shares': 'many'", "'shares': '5', 'weight': '1'"):
                with pytest.raises(InvalidRequest, match="of a role takes|has no option 'weight'"):
                    root.execute(f"CREATE ROLE clerk WITH OPTIONS = {{{options}}}")
            options = f"{{'requests_per_second_max': {PER_SECOND}, 'shares': 50}}"
            root.execute(f"CREATE ROLE clerk WITH PASSWORD = 'clerk' AND LOGIN = true AND OPTIONS = {options}")
            listed = root.execute("LIST ROLES OF clerk").one()
            assert dict(listed.options) == {"requests_per_second_max": str(PER_SECOND), "shares": "50"}
            script = command("admin", "describe-roles", "--data-dir", node.data_dir)
            assert f"'requests_per_second_max': '{PER_SECOND}'" in script[1], script
            root.execute("CREATE ROLE other WITH OPTIONS = {'shares': 7}")
            root.execute("GRANT ALTER, CREATE ON ALL ROLES TO clerk")
            with Client((node.host, node.port), started=False) as clerk:
                assert clerk.ask(STARTUP, wire.startup()).opcode == AUTHENTICATE
                assert clerk.ask(AUTH_RESPONSE, wire.value(b"\0clerk\0clerk")).opcode == AUTH_SUCCESS
                select = "SELECT release_version FROM system.local"
                assert any(answer.opcode == ERROR for answer in answers(clerk, select, 4 * PER_SECOND))
                root.execute("ALTER ROLE clerk WITH OPTIONS = {}")
                assert dict(root.execute("LIST ROLES OF clerk").one().options) == {}
                until("the role may ask again", lambda: clerk.ask(QUERY, wire.query(select)).opcode == RESULT)
                assert all(answer.opcode == RESULT for answer in answers(clerk, select, 4 * PER_SECOND))
                for text, refusal in (
                    ("ALTER ROLE clerk WITH OPTIONS = {'shares': 9}", "Only superusers"),
                    ("ALTER ROLE other WITH OPTIONS = {'shares': 9}", "Only superusers"),
                    ("CREATE ROLE third WITH OPTIONS = {'shares': 9}", "Only superusers"),
                    ("ALTER ROLE other WITH OPTIONS = {}", "Only superusers"),
                ):
                    answer = clerk.ask(QUERY, wire.query(text))
                    assert answer.opcode == ERROR and refusal in answer.message, (text, answer.message)
            assert dict(root.execute("LIST ROLES OF other").one().options) == {"shares": "7"}


def test_without_a_limit_nobody_is_refused():
    with new_node() as node, Client((node.host, node.port), started=False) as client:
        client.send(frame(STARTUP, wire.startup()))
        client.answer()
        assert all(answer.opcode == RESULT for answer in answers(client, "SELECT key FROM system.local", 300))
