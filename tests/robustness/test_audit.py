"""The audit log: what it has of each request, what filters leave out, and what happens when its disk fails or is full."""

import json
import re
import shutil
import subprocess
import threading

import pytest
import wire
from cassandra import InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement
from cluster import until
from conftest import driver_session, new_node
from node import clean_environment
from stopped_thread import stopped_thread
from test_administration import command


def nodetool(node, *words):
    """The exit status and the output of `helenus nodetool`."""
    port = node.http_address.rsplit(":", 1)[1]
    command = [node.program, "nodetool", "-p", port, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=clean_environment())
    return done.returncode, done.stdout + done.stderr


def lines(directory):
    return [line for path in sorted(directory.glob("audit-*.log")) for line in path.read_text().splitlines()]


def fields(line):
    """The fields of a line of Cassandra's text; the operation is the last one."""
    head, _, operation = line.partition("|operation:")
    return {**dict(part.split(":", 1) for part in head.split("|")), "operation": operation}


def entries(node):
    return [fields(line) for line in lines(node.data_dir / "audit")]


def having(node, text):
    """The entries with a text in their operation, once there are some."""
    return until(text, lambda: [entry for entry in entries(node) if text in entry["operation"]])


def test_every_request_is_recorded_with_who_what_and_how_it_ended():
    with new_node(settings={"audit_logging_enabled": True}) as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (k int PRIMARY KEY, v text)")
        insert = session.prepare("INSERT INTO k.t (k, v) VALUES (?, ?)")
        session.execute(insert, (1, "a bound value"))
        session.execute("SELECT v FROM t\nWHERE k = 1")
        session.execute("DELETE FROM k.t WHERE k = 1")
        batch = BatchStatement()
        batch.add(insert, (2, "x"))
        batch.add("UPDATE k.t SET v = 'y' WHERE k = 3")
        session.execute(batch)
        with pytest.raises(InvalidRequest):
            session.execute("SELECT nothing FROM k.t")
        with pytest.raises(SyntaxException):
            session.execute("CREATE ROLE r WITH PASSWORD : 'hidden one'")
        session.execute("TRUNCATE k.t")
        having(node, "TRUNCATE k.t")
        found = entries(node)

        def one(text, **expected):
            """The first entry of a type with a text in its operation."""
            entry = next(entry for entry in found if text in entry["operation"] and entry["type"] == expected["type"])
            assert {key: entry.get(key) for key in expected} == expected
            return entry

        created = one("CREATE TABLE k.t", type="CREATE_TABLE", category="DDL", ks="k", scope="t")
        assert created["user"] == "anonymous" and created["source"] == "/127.0.0.1" and int(created["port"]) > 0
        assert re.fullmatch(r"/127\.0\.0\.1:\d+", created["host"]) and int(created["timestamp"]) > 1_600_000_000_000
        one("INSERT INTO k.t", type="PREPARE_STATEMENT", category="PREPARE", ks="k", scope="t")
        one("SELECT v FROM t\\nWHERE k = 1", type="SELECT", category="QUERY", ks="k", scope="t")
        one("DELETE FROM k.t", type="DELETE", category="DML")
        one("TRUNCATE k.t", type="TRUNCATE", category="DDL")
        one("USE ", type="USE_KEYSPACE", category="OTHER", ks="k")
        failed = one("SELECT nothing FROM k.t", type="REQUEST_FAILURE", category="ERROR")
        assert "Undefined column name nothing" in failed["operation"]
        whole = one("BATCH of [2] statements", type="BATCH", category="DML")
        parts = [entry for entry in found if entry.get("batch") == whole["batch"]]
        assert [entry["type"] for entry in parts] == ["BATCH", "UPDATE", "UPDATE"]
        assert [entry["category"] for entry in found if entry["operation"].startswith("INSERT")].count("DML") == 2
        text = "\n".join(lines(node.data_dir / "audit"))
        assert "a bound value" not in text and "hidden one" not in text
        assert "CREATE ROLE r WITH PASSWORD *******; Syntax Exception. Obscured for security reasons." in text
        # The driver asks the system tables all the time.
        assert not [entry for entry in found if entry.get("ks") == "system"]
        assert node.metric("helenus_request_log_dropped_total") == 0
        assert node.metric("helenus_request_log_written_total") >= len(found)


def test_filters_and_form_are_chosen_while_the_node_runs():
    with new_node() as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (k int PRIMARY KEY)")
        assert not (node.data_dir / "audit").exists()
        assert nodetool(node, "enableauditlog", "--included-categories", "QUERY,ERROR", "--excluded-keyspaces", "other") == (0, "")
        session.execute("INSERT INTO k.t (k) VALUES (1)")
        session.execute("SELECT k FROM k.t")
        having(node, "SELECT k FROM k.t")
        assert not [entry for entry in entries(node) if entry["category"] not in ("QUERY", "ERROR")]
        status, shown = nodetool(node, "getauditlog")
        assert status == 0 and re.search(r"included_categories +ERROR,QUERY\n", shown) and re.search(r"enabled +true", shown)
        assert nodetool(node, "disableauditlog") == (0, "")
        session.execute("SELECT k FROM k.t WHERE k = 7")
        assert nodetool(node, "enableauditlog", "--logger", "JsonFileAuditLogger", "--excluded-users", "anonymous") == (0, "")
        session.execute("SELECT k FROM k.t WHERE k = 8")
        assert nodetool(node, "enableauditlog", "--logger", "JsonFileAuditLogger") == (0, "")
        session.execute("SELECT k FROM k.t WHERE k = 9")
        last = until("the last", lambda: [line for line in lines(node.data_dir / "audit") if "k = 9" in line])
        entry = json.loads(last[0])
        assert (entry["type"], entry["result"], entry["ks"], entry["scope"]) == ("SELECT", "success", "k", "t")
        text = "\n".join(lines(node.data_dir / "audit"))
        assert "k = 7" not in text and "k = 8" not in text
        status, refused = nodetool(node, "enableauditlog", "--logger", "BinAuditLogger")
        assert status != 0 and "there is no audit logger 'BinAuditLogger'" in refused
        status, refused = nodetool(node, "enableauditlog", "--archive-command", "x")
        assert status == 1 and "are not archived" in refused


# What a client may do from a keyspace whose requests are left out by default.
FROM_SYSTEM = [
    "CREATE ROLE ann WITH SUPERUSER = true AND PASSWORD = 'x' AND LOGIN = true",
    "GRANT anna TO ann",
    "ADD IDENTITY 'spiffe://shop/ann' TO ROLE 'ann'",
    "BEGIN BATCH DELETE FROM k.t WHERE k = 1; APPLY BATCH",
    "BEGIN TRANSACTION UPDATE k.u SET v = 'hidden' WHERE k = 1; COMMIT TRANSACTION",
    "EXPLAIN SELECT * FROM k.t WHERE k = 2",
    "LIST ROLES",
]


def test_the_keyspace_that_a_client_uses_hides_nothing():
    settings = {"audit_logging_enabled": True, "authenticator": "PasswordAuthenticator"}
    with new_node(settings=settings) as node:
        made = command("admin", "create-superuser", "anna", "--data-dir", node.data_dir, stdin="secret\n")
        assert made[0] == 0, made
        with driver_session(node, auth_provider=PlainTextAuthProvider("anna", "secret")) as session:
            session.execute("CREATE TABLE k.t (k int PRIMARY KEY, v text)")
            session.execute("CREATE TABLE k.u (k int PRIMARY KEY, v text)")
            prepared = session.prepare("DELETE FROM t WHERE k = ?")
            session.execute("USE system")
            for statement in FROM_SYSTEM:
                session.execute(statement)
            batch = BatchStatement()
            batch.add(prepared, (3,))
            session.execute(batch)
            with pytest.raises(InvalidRequest):
                session.execute("BEGIN BATCH DELETE FROM k.nothing WHERE k = 1; APPLY BATCH")
            session.execute("SELECT key FROM local")
            session.execute("SELECT k FROM k.t WHERE k = 9")
            having(node, "WHERE k = 9")
        found = entries(node)

        def one(text):
            (entry,) = [entry for entry in found if entry["operation"].startswith(text)]
            return entry

        for statement in FROM_SYSTEM:
            one(statement.split(" WITH ")[0])
        parts = [entry for entry in found if entry.get("batch")]
        assert [entry["type"] for entry in parts] == ["BATCH", "DELETE"]
        assert (parts[1]["ks"], parts[1]["scope"]) == ("k", "t")
        assert one("BEGIN BATCH DELETE FROM k.nothing")["type"] == "REQUEST_FAILURE"
        assert not [entry for entry in found if entry["operation"].startswith("SELECT key FROM local")]


def test_a_keyspace_that_is_asked_for_has_all_that_touches_it():
    settings = {"audit_logging_enabled": True, "audit_logging_included_keyspaces": ["k"]}
    with new_node(settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (k int PRIMARY KEY, v text)")
        session.execute("CREATE KEYSPACE other WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        session.execute("CREATE TABLE other.t (k int PRIMARY KEY, v text)")
        with wire.Client((node.host, node.port)) as client:
            for text in (
                "BEGIN BATCH INSERT INTO other.t (k) VALUES (1); INSERT INTO k.t (k) VALUES (1); APPLY BATCH",
                "BEGIN BATCH INSERT INTO other.t (k) VALUES (2); INSERT INTO other.t (k) VALUES (3); APPLY BATCH",
            ):
                assert client.ask(wire.QUERY, wire.query(text)).opcode == wire.RESULT
            assert client.ask(wire.BATCH, wire.batch(["DELETE FROM other.t WHERE k = 1", "DELETE FROM k.t WHERE k = 1"])).opcode == wire.RESULT
            assert client.ask(wire.BATCH, wire.batch(["DELETE FROM other.t WHERE k = 2"])).opcode == wire.RESULT
        session.execute("SELECT k FROM k.t WHERE k = 9")
        having(node, "WHERE k = 9")
        operations = [entry["operation"] for entry in entries(node)]
        assert sum(text.startswith("BEGIN BATCH") for text in operations) == 1
        assert sum("BATCH of [" in text for text in operations) == 1
        assert "DELETE FROM k.t WHERE k = 1" in operations and not [text for text in operations if "DELETE FROM other.t" in text]


def test_a_log_whose_directory_is_gone_holds_nobody_up_and_is_counted():
    settings = {"audit_logging_enabled": True, "audit_logging_max_file_size": "64KiB"}
    with new_node(settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (k int PRIMARY KEY)")
        having(node, "CREATE TABLE k.t")
        directory = node.data_dir / "audit"
        shutil.rmtree(directory)
        directory.write_text("no directory")
        written = 0

        def dropped():
            nonlocal written
            for _ in range(200):
                session.execute(f"INSERT INTO k.t (k) VALUES ({written}) -- {'x' * 200}")
                written += 1
            return node.metric("helenus_request_log_dropped_total") > 0

        until("entries are dropped", dropped)
        assert node.metric("helenus_request_log_write_errors_total") > 0
        assert session.execute("SELECT count(*) FROM k.t").one()[0] == written
        assert "the audit log cannot be written; entries are lost" in node.log_path.read_text()
        directory.unlink()
        directory.mkdir()
        session.execute("SELECT k FROM k.t WHERE k = 1")
        gap = until("the gap is told", lambda: [entry for entry in entries(node) if entry["type"] == "ENTRIES_DROPPED"])
        assert re.fullmatch(r"\d+ entries are missing", gap[0]["operation"])


@pytest.mark.parametrize("block", [False, True])
def test_a_full_disk_holds_nobody_up_and_is_counted(small_disk, tmp_path, block):
    small_disk(tmp_path, 1)
    settings = {
        "audit_logging_enabled": True,
        "audit_logging_logs_dir": str(tmp_path),
        "audit_logging_max_file_size": "64KiB",
        "audit_logging_block": block,
    }
    with new_node(settings=settings) as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (k int PRIMARY KEY)")

        def dropped():
            for number in range(200):
                session.execute(f"INSERT INTO k.t (k) VALUES ({number}) -- {'x' * 2000}")
            return node.metric("helenus_request_log_dropped_total") > 0

        until("entries are dropped", dropped)
        oldest = sorted(tmp_path.glob("audit-*.log"))[:4]
        for path in oldest:
            path.unlink()
        session.execute("SELECT k FROM k.t WHERE k = 1")
        until("it is written again", lambda: any("SELECT k FROM k.t" in line for line in lines(tmp_path)))
        assert any("ENTRIES_DROPPED" in line for line in lines(tmp_path))


def test_a_disk_that_hangs_holds_the_requests_that_are_to_be_recorded_and_nothing_else():
    settings = {"audit_logging_enabled": True, "audit_logging_block": True, "audit_logging_max_queue_weight": "64KiB"}
    # So many entries of this length fill the queue, and one less does not.
    filling, length = 8, 8400

    def insert(number):
        return wire.frame(wire.QUERY, wire.query(f"INSERT INTO k.t (k) VALUES ({number}) -- {'x' * length}"), stream=number)

    def is_next(client, expected, opcode, body=b""):
        """Whether a request behind others is the next one that is answered, and as expected."""
        client.send(wire.frame(opcode, body, stream=30_000))
        answer = client.answer()
        return (answer.stream, answer.opcode) == (30_000, expected)

    with new_node(settings=settings) as node, wire.Client((node.host, node.port)) as client:
        with driver_session(node) as session:
            session.execute("CREATE TABLE k.t (k int PRIMARY KEY)")
        having(node, "CREATE TABLE k.t")
        with stopped_thread(node.pid, "audit-log"):
            for number in range(filling):
                client.send(insert(number))
                assert client.answer().opcode == wire.RESULT
            for number in range(filling, 3 * filling):
                client.send(insert(number))
            # Signs of life, and what is not recorded, are answered on the same connection and on others.
            with wire.Client((node.host, node.port)) as other:
                for each in (client, other):
                    assert is_next(each, wire.SUPPORTED, wire.OPTIONS)
                    assert is_next(each, wire.RESULT, wire.QUERY, wire.query("SELECT key FROM system.local"))
            assert node.admin("health") == (0, "up\n")
            # What waits is bounded: at some time the node reads no more.
            before = node.resident_mib()
            with wire.Client((node.host, node.port)) as greedy:
                greedy.socket.settimeout(5)
                with pytest.raises(TimeoutError):
                    greedy.socket.sendall(insert(1) * 12_000)
            assert node.resident_mib() - before < 40
        # The disk answers again, and so does the node.
        assert {client.answer().stream for _ in range(2 * filling)} == set(range(filling, 3 * filling))
        until("all are recorded", lambda: sum(" -- x" in entry["operation"] for entry in entries(node)) >= 3 * filling)
        assert node.metric("helenus_request_log_dropped_total") == 0


def test_requests_of_many_clients_are_all_recorded():
    with new_node(settings={"audit_logging_enabled": True, "audit_logging_block": True}) as node, driver_session(node) as session:
        session.execute("CREATE TABLE k.t (k int PRIMARY KEY)")

        def write(first):
            for number in range(first, first + 250):
                session.execute(f"INSERT INTO k.t (k) VALUES ({number})")

        threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 1000, 250)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        node.stop()
        found = [entry["operation"] for entry in entries(node) if entry["operation"].startswith("INSERT")]
        assert len(found) == len(set(found)) == 1000
