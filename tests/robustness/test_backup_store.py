"""Snapshots that are uploaded to a store, a directory or S3, and come back from there."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import until
from conftest import admin, driver_session, new_node
from node import NodeError, free_port

ROWS = 300
SERVER = Path(__file__).resolve().parents[1] / "support/s3_server.py"


def done(node, *words):
    """What the node answers to a command that succeeds."""
    status, said = admin(node, *words, "--json")
    assert status == 0, said
    return json.loads(said)


def refused(node, *words):
    """What a command says that fails."""
    status, said = admin(node, *words)
    assert status != 0, said
    return said


def fill(session, table="k.t", rows=ROWS, size=100):
    session.execute(
        f"CREATE TABLE IF NOT EXISTS {table} (p int, c int, v blob, PRIMARY KEY (p, c)) WITH compression = {{'enabled': 'false'}}"
    )
    write = session.prepare(f"INSERT INTO {table} (p, c, v) VALUES (?, ?, ?)")
    for number in range(rows):
        session.execute(write, (number % 50, number, os.urandom(size)))


def rows(session, table="k.t"):
    return sorted((row.p, row.c, row.v) for row in session.execute(f"SELECT p, c, v FROM {table}"))


def objects(store, kind="shard-"):
    """The objects of files in a directory, by their names. One whose name begins with a dot is being written."""
    found = (path for path in Path(store).rglob("*") if path.is_file() and not path.name.startswith("."))
    return sorted(path for path in found if kind in str(path.relative_to(store)))


@pytest.fixture
def store(tmp_path):
    directory = tmp_path / "store"
    directory.mkdir()
    return directory


@contextmanager
def uploading(**settings):
    """A node with a store of backups."""
    with new_node(settings={"backup_store": settings}) as node, driver_session(node) as session:
        yield node, session


@contextmanager
def s3_server():
    """The settings of a store in the bucket of a test server, but for the file with the secret; and the secret."""
    python = os.environ.get("HELENUS_MOTO")
    if python is None:
        pytest.skip("moto, the test server for S3, could not be brought")
    process = subprocess.Popen([python, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        told = json.loads(process.stdout.readline())
        settings = {
            "address": f"s3://{told['bucket']}/nodes",
            "endpoint": told["endpoint"],
            "region": told["region"],
            "access_key_id": told["key"],
        }
        yield settings, told["secret"]
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def secret_file(directory, secret):
    path = directory / "secret"
    path.write_text(secret + "\n")
    path.chmod(0o600)
    return str(path)


def test_a_dropped_table_comes_back_from_a_directory(store, tmp_path):
    with uploading(address=str(store)) as (node, session):
        fill(session)
        fill(session, "k.other", rows=10)
        before = rows(session)
        done(node, "snapshot", "-t", "monday", "k")
        uploaded = done(node, "upload", "-t", "monday")
        assert uploaded["table_count"] == 2 and uploaded["new_bytes"] == uploaded["bytes"] > ROWS * 100
        assert node.metric("helenus_backup_store_uploaded_bytes_total") == uploaded["bytes"]
        listed = done(node, "listuploads")
        [upload] = listed["uploads"]
        assert upload["snapshot"] == "monday" and upload["host_id"] == node.report("info")["host_id"]
        assert [table["table"] for table in upload["tables"]] == ["other", "t"]
        assert listed["under_way"] is None and listed["store"] == str(store)
        _, said = admin(node, "listuploads")
        assert "monday" in said and "There are no uploads" not in said
        node.administer("clear_snapshot", name="monday")
        session.execute("DROP TABLE k.t")
        into = tmp_path / "back"
        downloaded = done(node, "download", "-t", "monday", "--into", str(into), "k", "t")
        assert downloaded["hosts"] == [upload["host_id"]] and downloaded["new_file_count"] == downloaded["file_count"]
        assert done(node, "download", "-t", "monday", "--into", str(into), "k", "t")["new_file_count"] == 0
        done(node, "import", str(into))
        assert rows(session) == before
        # Another cluster takes what this one has uploaded.
        with new_node(settings={"cluster_name": "other", "backup_store": {"address": str(store)}}) as second:
            assert "of the cluster 'other'" in refused(second, "download", "-t", "monday", "--into", str(tmp_path / "second"))
            done(second, "download", "-t", "monday", "--into", str(tmp_path / "second"), "--cluster-name", "helenus")
            done(second, "import", str(tmp_path / "second"), "k", "t")
            with driver_session(second) as again:
                assert rows(again) == before
            host = upload["host_id"]
            assert "no upload of a snapshot 'monday'" in refused(second, "removeupload", "-t", "monday", "--host", host)


def test_a_second_upload_moves_new_files_only_and_a_removal_keeps_what_is_needed(store, tmp_path):
    with uploading(address=f"file://{store}") as (node, session):
        fill(session)
        done(node, "snapshot", "-t", "monday", "k", "t")
        first = done(node, "upload", "-t", "monday", "--cluster", "k", "t")["members"][0]["uploaded"]
        whole = {str(path): path.stat().st_ino for path in objects(store)}
        assert len(whole) == first["file_count"] and done(node, "upload", "-t", "monday")["new_bytes"] == 0
        session.execute("INSERT INTO k.t (p, c, v) VALUES (0, 1000, 0x01)")
        before = rows(session)
        done(node, "snapshot", "-t", "tuesday", "k", "t")
        second = done(node, "upload", "-t", "tuesday")
        assert 0 < second["new_bytes"] < first["bytes"] / 2 and second["bytes"] > first["bytes"]
        now = {str(path): path.stat().st_ino for path in objects(store)}
        assert whole.items() <= now.items(), "objects that were there were not written again"
        removed = done(node, "removeupload", "-t", "monday")
        assert 0 < removed["object_count"] < first["file_count"]
        done(node, "download", "-t", "tuesday", "--into", str(tmp_path / "back"))
        session.execute("TRUNCATE k.t")
        done(node, "import", str(tmp_path / "back"), "--into", "copy")
        assert rows(session, "k.copy") == before
        assert done(node, "removeupload", "-t", "tuesday", "--cluster")["members"][0]["removed"]["object_count"] > 0
        assert objects(store) == [] and done(node, "listuploads")["uploads"] == []
        assert "no upload of a snapshot 'tuesday'" in refused(node, "removeupload", "-t", "tuesday")


def test_damage_is_refused_by_name(store, tmp_path):
    with uploading(address=str(store)) as (node, session):
        fill(session)
        done(node, "snapshot", "-t", "monday", "k", "t")
        done(node, "upload", "-t", "monday")
        data = [path for path in objects(store) if "-data.sst" in path.name][0]
        contents = data.read_bytes()
        data.write_bytes(contents[:100] + bytes([contents[100] ^ 1]) + contents[101:])
        into = tmp_path / "back"
        said = refused(node, "download", "-t", "monday", "--into", str(into))
        assert str(data.relative_to(store)) in said and "is damaged: its checksum is" in said
        place = into / data.parent.relative_to(store / "helenus")
        assert not (place / f"{data.name.split('.sst')[0]}.sst").exists()
        assert node.metric("helenus_backup_store_failures_total") == 1
        data.unlink()
        assert "is not in the backup store" in refused(node, "download", "-t", "monday", "--into", str(into))
        # It is put again.
        assert done(node, "upload", "-t", "monday")["new_file_count"] == 1
        done(node, "download", "-t", "monday", "--into", str(into))
        [manifest] = objects(store, "snapshots")
        manifest.write_bytes(manifest.read_bytes()[:-10])
        said = refused(node, "listuploads")
        assert manifest.name in said and "is damaged" in said
        assert manifest.name in refused(node, "download", "-t", "monday", "--into", str(into))
        done(node, "removeupload", "-t", "monday")
        assert done(node, "listuploads")["uploads"] == []


def test_an_upload_that_is_killed_goes_on(store, tmp_path):
    settings = {"address": str(store), "throughput_mib_per_s": 1, "parallel_transfers": 1}
    with uploading(**settings) as (node, session):
        node.administer("disableautocompaction")
        for _ in range(6):
            fill(session, rows=200, size=10_000)
            node.administer("flush")
        before = rows(session)
        done(node, "snapshot", "-t", "monday", "k", "t")
        command = [str(node.program), "admin", "--url", f"http://{node.http_address}", "upload", "-t", "monday"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
            until("the first files are there", lambda: len(objects(store)) > 0)
            running = node.report("listuploads")["under_way"]
            assert running["operation"] == "upload" and running["snapshot"] == "monday"
            assert "the upload of monday is under way" in refused(node, "upload", "-t", "monday")
            assert "the upload of monday is under way" in refused(node, "removeupload", "-t", "monday")
            node.process.send_signal(signal.SIGKILL)
            node.process.wait()
            assert asking.wait(60) != 0
        there = len(objects(store))
        assert there > 0 and objects(store, "snapshots") == []
        node.process.stdout.close()
        node.settings["backup_store"] = {"address": str(store)}
        node.start()
        assert node.report("listuploads")["uploads"] == []
        uploaded = done(node, "upload", "-t", "monday")
        assert uploaded["new_file_count"] == uploaded["file_count"] - there
        done(node, "download", "-t", "monday", "--into", str(tmp_path / "back"))
        done(node, "import", str(tmp_path / "back"), "--into", "copy")
        with driver_session(node) as again:
            assert rows(again, "k.copy") == before


def test_what_cannot_be_done_says_why(store, tmp_path):
    with new_node() as node:
        for words in (["upload", "-t", "n"], ["listuploads"], ["download", "-t", "n", "--into", "/tmp"], ["removeupload", "-t", "n"]):
            assert "the `address` of [backup_store] is not set" in refused(node, *words)
    with uploading(address=str(store)) as (node, session):
        assert "there is no snapshot 'n' of such a table on this node" in refused(node, "upload", "-t", "n")
        assert "there is no upload of a snapshot 'n'" in refused(node, "download", "-t", "n", "--into", str(tmp_path / "b"))
        host = node.report("info")["host_id"]
        assert "no upload of a snapshot 'n'" in refused(node, "removeupload", "-t", "n", "--host", host)
        fill(session, rows=3)
        done(node, "snapshot", "-t", "n", "k", "t")
        store.rmdir()
        assert "the directory is not there" in refused(node, "upload", "-t", "n")
        assert not store.exists()
    for settings, message in (
        ({"address": "backups"}, "a directory must be an absolute path"),
        ({"address": "/b", "region": "x"}, "has `region`, which an `address` with s3:// needs alone"),
        ({"address": "s3://b", "access_key_id": "x"}, "together, or neither"),
    ):
        with pytest.raises(NodeError, match="ended|said") as failed, new_node(settings={"backup_store": settings}):
            pass
        assert message in str(failed.value)


def test_a_table_comes_back_from_s3(tmp_path):
    with s3_server() as (settings, secret):
        settings["secret_access_key_file"] = secret_file(tmp_path, secret)
        with uploading(**settings) as (node, session):
            # Larger than what is sent in one piece.
            fill(session, rows=1000, size=25_000)
            before = rows(session)
            done(node, "snapshot", "-t", "monday", "k", "t")
            uploaded = done(node, "upload", "-t", "monday")
            assert uploaded["new_bytes"] == uploaded["bytes"] > 25_000_000
            assert done(node, "upload", "-t", "monday")["new_file_count"] == 0
            [upload] = done(node, "listuploads")["uploads"]
            assert upload["snapshot"] == "monday" and upload["tables"][0]["file_count"] == uploaded["file_count"]
            session.execute("DROP TABLE k.t")
            done(node, "download", "-t", "monday", "--into", str(tmp_path / "back"))
            done(node, "import", str(tmp_path / "back"))
            assert rows(session) == before
            # Where the secret lies is not shown to clients.
            shown = {row.name: row.value for row in session.execute("SELECT name, value FROM system_views.settings")}
            assert settings["access_key_id"] in shown["backup_store"] and str(tmp_path) not in shown["backup_store"]
            assert done(node, "removeupload", "-t", "monday")["object_count"] == uploaded["file_count"]
            assert done(node, "listuploads")["uploads"] == []


def test_wrong_keys_and_a_store_that_does_not_answer_are_errors_that_say_so(tmp_path):
    with s3_server() as (settings, _):
        settings["secret_access_key_file"] = secret_file(tmp_path, "x" * 40)
        with uploading(**settings) as (node, session):
            fill(session, rows=3)
            done(node, "snapshot", "-t", "monday", "k", "t")
            for words in (["upload", "-t", "monday"], ["listuploads"], ["download", "-t", "monday", "--into", str(tmp_path / "b")]):
                said = refused(node, *words)
                assert "403" in said and settings["address"] in said, said
            Path(settings["secret_access_key_file"]).unlink()
            said = refused(node, "listuploads")
            assert "with the secret access key cannot be used" in said
    settings["endpoint"] = f"http://127.0.0.1:{free_port()}"
    settings["secret_access_key_file"] = secret_file(tmp_path, "x" * 40)
    with uploading(**settings) as (node, session):
        said = refused(node, "listuploads")
        assert settings["address"] in said and "refused" in said.lower(), said

