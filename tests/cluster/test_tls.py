"""TLS between nodes: a cluster with certificates, nodes that do not belong, and the switch while it runs."""

import os
import socket
import ssl
import subprocess
import threading

import pytest
from certificates import Authority
from cluster import Cluster, until
from conftest import PROGRAM
from load import Writer, make_table
from node import Node, binary, clean_environment


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(binary(PROGRAM), tmp_path_factory.mktemp("authority"))
    for number in range(1, 5):
        made.node(f"node{number}", "--address", f"127.0.0.{number}")
    return made


class TlsCluster(Cluster):
    """Each node has its own certificate."""

    def __init__(self, count, authority, mode):
        super().__init__(count, PROGRAM)
        self.authority, self.mode = authority, mode

    def make(self):
        node = super().make()
        self.switch(node, self.mode)
        return node

    def switch(self, node, mode):
        name = f"node{self.nodes.index(node) + 1}"
        node.settings["internode_encryption"] = self.authority.settings(name, mode)


def write_and_read(session, number):
    session.execute("INSERT INTO k.t (k, v) VALUES (%s, 'a')", (number,))
    assert session.execute("SELECT v FROM k.t WHERE k = %s", (number,)).one().v == "a"


def prepare(session):
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}")
    session.execute("CREATE TABLE k.t (k int PRIMARY KEY, v text)")


def try_to_join(cluster, table, tmp_path, number=4):
    """What a node says that shall join with these settings, within some seconds."""
    node = Node(binary(PROGRAM), data_dir=tmp_path / "data", shards=1, settings={
        "cluster_name": "test",
        "internode": f"127.0.0.{number}:{cluster.internode_port}",
        "seeds": [f"127.0.0.1:{cluster.internode_port}"],
        "internode_encryption": table,
    })
    node.listen = f"127.0.0.{number}:{cluster.port}"
    starting = threading.Thread(target=lambda: pytest.raises(Exception, node.start))
    starting.start()
    try:
        until("the node is refused", lambda: "cannot be reached" in node.log_tail(1000), seconds=60)
        return node.log_tail(1000)
    finally:
        until("the process is there", lambda: node.process is not None)
        node.process.kill()
        starting.join()


def test_a_cluster_with_certificates_and_nodes_that_do_not_belong(authority, connect, tmp_path, tmp_path_factory):
    foreign = Authority(binary(PROGRAM), tmp_path_factory.mktemp("foreign"))
    foreign.node("node4", "--address", "127.0.0.4")
    with TlsCluster(3, authority, "required") as cluster:
        session = connect(cluster)
        prepare(session)
        for number in range(100):
            write_and_read(session, number)
        wrong = {
            "foreign": foreign.settings("node4", "required"),
            "foreign but trusting": foreign.settings("node4", "required", authorities=authority.certificate),
            "of another address": authority.settings("node3", "required"),
            "none": {"mode": "off"},
        }
        for name, table in wrong.items():
            directory = tmp_path / name.replace(" ", "-")
            directory.mkdir()
            try_to_join(cluster, table, directory)
            assert len(cluster.status(cluster.nodes[0])["members"]) == 3, name
        # Whoever speaks to the port without TLS is told so, or nothing.
        with socket.create_connection(("127.0.0.1", cluster.internode_port), timeout=10) as plain:
            plain.sendall(b"HLNSLINK" + bytes(200))
            try:
                told = plain.recv(1000)
            except ConnectionResetError:
                told = b""
            assert b"NORMAL" not in told
        # With the right certificate it joins.
        cluster.add()
        write_and_read(session, 1)
        members = cluster.status(cluster.nodes[0])["members"]
        assert len(members) == 4 and all(member["is_up"] for member in members)


def handshake_error(cluster, authority, name):
    """What a node says to who shows a certificate and its key; None: it accepts it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.certificate)
    context.check_hostname = False
    context.load_cert_chain(*authority.files(name))
    with socket.create_connection(("127.0.0.1", cluster.internode_port), timeout=10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                # With TLS 1.3 the refusal comes behind the handshake of this side. Who is accepted is waited for.
                connection.settimeout(2)
                connection.recv(1)
                return None
        except TimeoutError:
            return None
        except ssl.SSLError as error:
            return str(error)


def sees(node, host, is_up):
    """Whether a node says of a member that it is up, or down."""
    members = Cluster.status(node)["members"]
    return any(host in str(member) and member["is_up"] == is_up for member in members)


def test_expired_and_revoked_certificates_and_those_of_clients_open_no_link(connect, tmp_path, tmp_path_factory):
    authority = Authority(binary(PROGRAM), tmp_path_factory.mktemp("revoking"))
    for number in range(1, 5):
        authority.node(f"node{number}", "--address", f"127.0.0.{number}")
    revocations = authority.revoke("node4")
    authority.signed("client", "127.0.0.4", usages="clientAuth")
    authority.signed("expired", "127.0.0.4", is_expired=True)

    class Revoking(TlsCluster):
        def switch(self, node, mode):
            super().switch(node, mode)
            node.settings["internode_encryption"]["revocations"] = str(revocations)

    with Revoking(3, authority, "required") as cluster:
        session = connect(cluster)
        prepare(session)
        write_and_read(session, 1)
        assert handshake_error(cluster, authority, "node3") is None
        assert "expired" in handshake_error(cluster, authority, "expired").lower()
        assert "revoked" in handshake_error(cluster, authority, "node4").lower()
        assert handshake_error(cluster, authority, "client") is not None
        for name in ("node4", "client"):
            directory = tmp_path / name
            directory.mkdir()
            try_to_join(cluster, authority.settings(name, "required"), directory)
            assert len(cluster.status(cluster.nodes[0])["members"]) == 3, name
        # A member whose certificate is revoked while it is linked is cut off, and the others go on.
        first, second, third = cluster.nodes
        until("all see each other", lambda: all(sees(node, third.host, True) for node in (first, second)))
        authority.revoke("node3")
        until("the links end", lambda: all(sees(node, third.host, False) for node in (first, second)))
        pinned = connect(cluster, only=first)
        write_and_read(pinned, 2)
        assert handshake_error(cluster, authority, "node2") is None


def served_serial(node, authority, shown):
    """The number of the certificate that a node shows to who shows that of another node."""
    context = authority.context()
    context.load_cert_chain(*authority.files(shown))
    host, port = node.settings["internode"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname=host) as connection:
            return connection.getpeercert()["serialNumber"]


def test_certificates_of_nodes_change_under_load_without_an_error(connect, tmp_path_factory):
    authority = Authority(binary(PROGRAM), tmp_path_factory.mktemp("renewing"))
    for number in range(1, 4):
        authority.node(f"node{number}", "--address", f"127.0.0.{number}")
    with TlsCluster(3, authority, "required") as cluster:
        session = connect(cluster)
        insert = make_table(session)
        writer = Writer(session, insert, 0)
        writer.start()
        try:
            for number, node in enumerate(cluster.nodes, start=1):
                shown = f"node{number % 3 + 1}"
                first = served_serial(node, authority, shown)
                before = len(writer.acknowledged)
                authority.node(f"next{number}", "--address", f"127.0.0.{number}")
                # One after the other: for a moment key and certificate do not belong together.
                for used, following in zip(authority.files(f"node{number}"), authority.files(f"next{number}")):
                    os.replace(following, used)
                until("the new one is shown", lambda: served_serial(node, authority, shown) != first)
                until("writes go on", lambda before=before: len(writer.acknowledged) > before + 20)
        finally:
            writer.stop()
        assert not writer.failures, writer.failures[:3]
        # Links that are opened now use the new ones.
        cluster.nodes[2].restart()
        until("all see each other", lambda: all(
            member["is_up"] for node in cluster.nodes for member in cluster.status(node)["members"]
        ))
        writer.check()


def test_a_running_cluster_is_switched_on_node_by_node(authority, connect):
    with TlsCluster(3, authority, "off") as cluster:
        prepare(connect(cluster))
        number = 0
        for mode in ("optional", "required", "optional", "off"):
            for node in cluster.nodes:
                cluster.switch(node, mode)
                node.restart()
                for each in cluster.nodes:
                    until("all see each other", lambda each=each: all(
                        member["is_up"] for member in cluster.status(each)["members"]
                    ))
                # A driver that was connected before learns only after a while which members are there again.
                session = connect(cluster)
                for _ in range(20):
                    number += 1
                    write_and_read(session, number)
            for node in cluster.nodes:
                encrypted = node.metric("helenus_internode_encrypted_links")
                if mode == "required":
                    assert encrypted > 0
                if mode == "off":
                    assert encrypted == 0
