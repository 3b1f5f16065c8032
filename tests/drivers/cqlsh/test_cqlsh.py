"""cqlsh, as a person at a terminal or a script uses it: statements, DESCRIBE, COPY, TRACING, paging, exit codes.

The server is named by CQL_HOST and CQL_PORT; CQLSH is the program (default: the one on the PATH).
SERVER_RESTART, if set, is a command that restarts the server in place and returns when it serves again.
"""

import atexit
import csv
import functools
import os
import re
import shlex
import subprocess
import tempfile

import pytest

HOST = os.environ.get("CQL_HOST", "127.0.0.1")
PORT = os.environ.get("CQL_PORT", "9042")
CQLSH = os.environ.get("CQLSH", "cqlsh")
RESTART = os.environ.get("SERVER_RESTART")
# Set where the server requires TLS and logins.
AUTHORITY = os.environ.get("CQL_AUTHORITY")
ENVIRONMENT = {**os.environ, **({"SSL_CERTFILE": AUTHORITY, "SSL_VALIDATE": "true"} if AUTHORITY else {})}
KEYSPACE = "suite_cqlsh"


@functools.cache
def secure():
    """Arguments for TLS and the login. With a password among them cqlsh would print a warning before each answer."""
    if not AUTHORITY:
        return []
    with tempfile.NamedTemporaryFile("w", prefix="cqlsh-credentials-", delete=False) as credentials:
        lines = [f"username = {os.environ['CQL_USER']}", f"password = {os.environ['CQL_PASSWORD']}"]
        credentials.write("\n".join(["[PlainTextAuthProvider]", *lines, ""]))
    atexit.register(os.unlink, credentials.name)
    return ["--ssl", "--credentials", credentials.name]


def cqlsh(script, *arguments, status=0):
    """Runs a script as standard input and returns what cqlsh printed (errors included)."""
    done = subprocess.run(
        [CQLSH, HOST, PORT, "--no-color", "--disable-history", "--request-timeout", "30", *secure(), *arguments],
        env=ENVIRONMENT,
        input=script,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout
    # The warning that the server's version is not the one cqlsh was built for is no part of an answer.
    return re.sub(r"\AWARNING: cqlsh was built against .*\n\n?", "", done.stdout)


def in_keyspace(script, *arguments, status=0):
    return cqlsh(script, "-k", KEYSPACE, *arguments, status=status)


@pytest.fixture(scope="module", autouse=True)
def keyspace():
    cqlsh(
        f"DROP KEYSPACE IF EXISTS {KEYSPACE};"
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};"
    )
    yield
    cqlsh(f"DROP KEYSPACE {KEYSPACE};")


def test_session_commands():
    shown = cqlsh("SHOW VERSION\nSHOW HOST\nCONSISTENCY QUORUM\nCONSISTENCY\nSERIAL CONSISTENCY\n")
    assert re.search(r"\[cqlsh 6\.2\.2 \| Cassandra \d+\.\d+\.\S+ \| CQL spec 3\.\d+\.\d+ \| Native protocol v\d\]", shown)
    assert f"at {HOST}:{PORT}" in shown
    assert "Consistency level set to QUORUM." in shown
    assert "Current consistency level is QUORUM." in shown


def test_rows_are_shown_as_a_table():
    shown = in_keyspace(
        "CREATE TABLE people (id int PRIMARY KEY, name text, tags set<text>, born date);"
        "INSERT INTO people (id, name, tags, born) VALUES (1, 'Ann', {'b', 'a'}, '1980-02-29');"
        "INSERT INTO people (id) VALUES (2);"
        "SELECT id, name, tags, born FROM people;"
        "EXPAND ON\nSELECT name FROM people WHERE id = 1;"
    )
    assert re.search(r"^ id \| name \| tags +\| born$", shown, re.MULTILINE), shown
    assert re.search(r"^ +1 \| +Ann \| \{'a', 'b'\} \| 1980-02-29$", shown, re.MULTILINE), shown
    assert re.search(r"^ +2 \| +null \| +null \| +null$", shown, re.MULTILINE), shown
    assert "(2 rows)" in shown and "@ Row 1" in shown


def test_every_native_type_is_written_and_shown():
    shown = in_keyspace(
        "CREATE TABLE native (id int PRIMARY KEY, a ascii, b bigint, c blob, d boolean, e date, f decimal, g double, "
        "h duration, i float, j inet, k smallint, l time, m timestamp, n tinyint, o uuid, p varint, q timeuuid, "
        "r tuple<int, text>, s map<text, int>, t frozen<list<int>>);"
        "INSERT INTO native (id, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t) VALUES (1, 'x', "
        "9223372036854775807, 0x00ff, true, '2024-02-29', 1.50, 2.5, 1mo2d3s, 0.5, '127.0.0.1', 7, '13:30:54.234', "
        "'2024-02-29 12:00:00+0000', -3, 8a3f9f6e-6d8a-4f43-a5a0-1f9b3b7f6f11, 12345678901234567890, "
        "30821634-13ad-11eb-adc1-0242ac120002, (1, 'y'), {'k': 2}, [1, 2]);"
        "EXPAND ON\nSELECT * FROM native;"
    )
    values = dict(re.findall(r"^ (\w+) +\| (.*?) *$", shown, re.MULTILINE))
    assert values == {
        "id": "1", "a": "x", "b": "9223372036854775807", "c": "0x00ff", "d": "True", "e": "2024-02-29", "f": "1.50",
        "g": "2.5", "h": "1mo2d3s", "i": "0.5", "j": "127.0.0.1", "k": "7", "l": "13:30:54.234000000",
        "m": "2024-02-29 12:00:00.000000+0000", "n": "-3", "o": "8a3f9f6e-6d8a-4f43-a5a0-1f9b3b7f6f11",
        "p": "12345678901234567890", "q": "30821634-13ad-11eb-adc1-0242ac120002", "r": "(1, 'y')", "s": "{'k': 2}",
        "t": "[1, 2]",
    }  # fmt: skip


def test_describe_prints_what_recreates_the_schema():
    in_keyspace(
        "CREATE TYPE address (street text, number int);"
        "CREATE TABLE orders (shop int, id timeuuid, total decimal, home frozen<address>, owner text static, "
        "PRIMARY KEY (shop, id)) WITH CLUSTERING ORDER BY (id DESC) AND comment = 'what people bought';"
    )
    described = cqlsh(f"DESCRIBE KEYSPACE {KEYSPACE};")
    assert f"CREATE KEYSPACE {KEYSPACE} WITH replication = " in described
    assert f"CREATE TYPE {KEYSPACE}.address (" in described
    assert "WITH CLUSTERING ORDER BY (id DESC)" in described and "comment = 'what people bought'" in described
    table = cqlsh(f"DESCRIBE TABLE {KEYSPACE}.orders;")
    assert "owner text static" in table
    in_keyspace("DROP TABLE orders;")
    cqlsh(table)
    assert cqlsh(f"DESCRIBE TABLE {KEYSPACE}.orders;") == table
    assert KEYSPACE in cqlsh("DESCRIBE KEYSPACES;")
    assert "orders" in in_keyspace("DESCRIBE TABLES;")
    assert "address" in in_keyspace("DESCRIBE TYPES;")
    assert "Murmur3Partitioner" in cqlsh("DESCRIBE CLUSTER;")
    assert "CREATE TABLE" in cqlsh("DESCRIBE SCHEMA;")
    assert "'absent' not found in keyspace" in in_keyspace("DESCRIBE TABLE absent;", status=2)


def test_copy_out_and_in(tmp_path):
    rows = 250
    source = tmp_path / "in.csv"
    source.write_text("".join(f'{n},"name, {n}",{n / 4}\n' for n in range(rows)))
    in_keyspace("CREATE TABLE copied (id int PRIMARY KEY, name text, score double);")
    assert f"{rows} rows imported" in in_keyspace(f"COPY copied (id, name, score) FROM '{source}';")
    target = tmp_path / "out.csv"
    assert f"{rows} rows exported" in in_keyspace(f"COPY copied (id, name, score) TO '{target}' WITH HEADER = TRUE;")
    with target.open() as lines:
        header, *read = list(csv.reader(lines))
    assert header == ["id", "name", "score"]
    assert sorted((int(i), name, float(score)) for i, name, score in read) == [(n, f"name, {n}", n / 4) for n in range(rows)]


def test_pages_are_followed():
    inserts = "".join(f"INSERT INTO pages (p, c) VALUES (1, {c});" for c in range(95))
    shown = in_keyspace(
        f"CREATE TABLE pages (p int, c int, PRIMARY KEY (p, c)); {inserts}\nPAGING 10\nSELECT c FROM pages WHERE p = 1;"
    )
    assert [int(c) for c in re.findall(r"^ +(\d+)$", shown, re.MULTILINE)] == list(range(95))
    assert "(95 rows)" in shown


def test_tracing_is_printed():
    shown = in_keyspace("CREATE TABLE traced (id int PRIMARY KEY);\nTRACING ON\nSELECT * FROM traced;")
    assert "Tracing session:" in shown and "Request complete" in shown


def test_lightweight_transactions_batches_and_json():
    shown = in_keyspace(
        "CREATE TABLE lwt (id int PRIMARY KEY, v int);"
        "INSERT INTO lwt (id, v) VALUES (1, 2) IF NOT EXISTS;"
        "UPDATE lwt SET v = 3 WHERE id = 1 IF v = 9;"
        "BEGIN BATCH INSERT INTO lwt (id, v) VALUES (5, 6); INSERT INTO lwt (id, v) VALUES (7, 8); APPLY BATCH;"
        "SELECT JSON * FROM lwt WHERE id = 5;"
    )
    assert re.search(r"\[applied\]\n-+\n +True", shown), shown
    assert re.search(r"\[applied\] \| v\n-+\+-+\n +False \| 2", shown), shown
    assert '{"id": 5, "v": 6}' in shown


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELEC 1;", "SyntaxException: line 1:0 no viable alternative at input 'SELEC'"),
        ("SELECT * FROM absent;", "InvalidRequest: Error from server: code=2200 [Invalid query]"),
        (f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};", "already exists"),
        ("CREATE KEYSPACE bad WITH replication = {'class': 'Nonsense'};", "ConfigurationException"),
        ("INSERT INTO missing.t (id) VALUES (1);", "keyspace missing does not exist"),
    ],
)
def test_errors_are_told_and_end_with_status_2(statement, expected):
    assert expected in in_keyspace(statement, status=2)


@pytest.mark.parametrize("version", ["3", "4", "5"])
def test_protocol_versions(version):
    shown = cqlsh("SELECT key FROM system.local;\nSHOW VERSION\n", "--protocol-version", version)
    assert "local" in shown and f"Native protocol v{version}" in shown


@pytest.mark.skipif(not RESTART, reason="no SERVER_RESTART command")
def test_data_and_schema_survive_a_restart():
    in_keyspace("CREATE TABLE survivors (id int PRIMARY KEY, v text); INSERT INTO survivors (id, v) VALUES (1, 'before');")
    subprocess.run(shlex.split(RESTART), check=True)
    assert "before" in in_keyspace("SELECT v FROM survivors;")
