"""Carries out what docs/runbook.md says, command by command, on clusters to which just that has happened."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from cassandra import ConsistencyLevel
from cluster import Cluster, until
from conftest import PROGRAM
from load import REMOVED, check, make_table, write
from test_data_centers import TwoCenters, members_up, replicated
from test_replace import kill

RUNBOOK = Path(__file__).resolve().parents[2] / "docs/runbook.md"
ROWS = 200


def commands(heading):
    """The commands of a section, each as its words."""
    text = RUNBOOK.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


class Section:
    """The commands of a section, to be carried out in their order and to the last one."""

    def __init__(self, heading):
        self.left = commands(heading)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        assert kind is not None or not self.left, f"not carried out: {self.left}"

    def words(self, program, **filled_in):
        """The next command, which must be one of this kind, without its program. A value that is a list stands for several words."""
        assert self.left, "the section has no more commands"
        found = self.left.pop(0)
        assert found[: len(program)] == program, f"{found} is no {program}"
        words = []
        for word in found[len(program) :]:
            value = filled_in.get(word)
            if isinstance(value, list):
                words += value
                continue
            for name, text in filled_in.items():
                word = word.replace(name, text) if isinstance(text, str) else word
            words.append(word)
        return words

    def admin(self, node, verb, status=0, **filled_in):
        """The next command is `helenus admin VERB`; returns what it shows on this node."""
        words = self.words(["helenus", "admin", verb], **filled_in)
        found, shown = node.admin(verb, *words)
        assert found == status, (verb, words, found, shown)
        return shown

    def start(self, node, **filled_in):
        """The next command starts a node."""
        flags = self.words(["helenus", "node", "--config", "helenus.toml"], **filled_in)
        before, node.arguments = node.arguments, node.arguments + flags
        node.start()
        node.arguments = before


def all_normal(node, count):
    members = Cluster.status(node)["members"]
    return len(members) == count and all(member["state"] == "normal" and member["is_up"] for member in members)


def host_ids(node, of):
    hosts = {one.host for one in of}
    return [member["host_id"] for member in Cluster.status(node)["members"] if member["address"].rsplit(":", 1)[0] in hosts]


def test_every_section_of_the_runbook_is_carried_out_here():
    headings = re.findall(r"^## (.*)$", RUNBOOK.read_text(), re.MULTILINE)
    source = Path(__file__).read_text()
    assert [heading for heading in headings if f'Section("{heading}")' not in source] == []


def test_a_node_is_lost(three_nodes, connect):
    first, second, dead = three_nodes.nodes
    session = connect(three_nodes, only=first)
    insert = make_table(session)
    write(session, insert, range(ROWS))
    known, _ = kill(three_nodes, dead)
    shutil.rmtree(dead.data_dir)
    with Section("A node is lost") as section:
        assert known in section.admin(first, "status")
        section.start(dead, HOST_ID=known)
        section.admin(dead, "netstats")
        until("three are members", lambda: all_normal(first, 3))
        check(connect(three_nodes, only=dead), ROWS)
        # Four, of which one goes: three are left, as the replicas need.
        gone, _ = kill(three_nodes, three_nodes.add())
        section.admin(first, "removenode", HOST_ID=gone)
        assert all_normal(first, 3)
        section.admin(second, "repair")
    check(session, ROWS)


def test_a_file_is_damaged(three_nodes, connect):
    first, second, _ = three_nodes.nodes
    session = connect(three_nodes, only=second)
    insert = make_table(session)
    write(session, insert, range(ROWS))
    first.administer("flush", keyspace="shop")
    file = max(first.data_dir.glob("shard-*/tables/*/*"), key=lambda path: path.stat().st_size)
    first.stop()
    data = bytearray(file.read_bytes())
    data[100:200] = bytes(100)
    file.write_bytes(data)
    first.start()
    with Section("A file or a disk is damaged") as section:
        names = {"KEYSPACE": "shop", "TABLE": "items"}
        assert file.name in section.admin(first, "verify", status=1, **names)
        section.admin(first, "scrub", **names)
        until("all are up", lambda: all_normal(first, 3))
        section.admin(first, "repair", **names)
    check(connect(three_nodes, only=first, consistency=ConsistencyLevel.ONE), ROWS)


def test_a_data_center_is_lost(connect):
    with TwoCenters(4, PROGRAM) as cluster:
        east, west = cluster.of("east"), cluster.of("west")
        session = connect(cluster, only=east[0], consistency=ConsistencyLevel.LOCAL_QUORUM)
        session.execute("CREATE " + replicated(east=2, west=2))
        session.execute("CREATE TABLE shop.items (id int PRIMARY KEY, value text)")
        insert = session.prepare("INSERT INTO shop.items (id, value) VALUES (?, ?)")
        write(session, insert, range(ROWS))
        lost = host_ids(east[0], west)
        for node in west:
            Cluster.kill(node)
        until("the loss is known", lambda: all(members_up(node) == 2 for node in east))
        write(session, insert, range(ROWS, ROWS + 50))
        with Section("A data center is lost") as section:
            words = section.words(["helenus", "admin", "recover-metadata"])
            # Which data center has most of the voters is not said. The member that knows most is to do it.
            answers = [node.admin("recover-metadata", *words) for node in east]
            assert any(status == 0 or "a majority of the voters answers" in shown for status, shown in answers), answers
            session.execute("CREATE TABLE shop.more (id int PRIMARY KEY)", timeout=60)
            section.admin(east[0], "removenode", HOST_IDS=lost)
            names = {"KEYSPACE_NAME": "shop", "DATA_CENTER": "east", "REPLICAS": "2"}
            words = section.words(["helenus", "shell", "HOST", "PORT"], **names)
            subprocess.run([east[0].program, "shell", east[0].host, str(east[0].port), *words], check=True)
            section.admin(east[0], "repair")
        assert all(all_normal(node, 2) for node in east)
        check(session, ROWS + 50)


def test_the_majority_is_lost(three_nodes, connect):
    first, *dead = three_nodes.nodes
    session = connect(three_nodes, only=first, consistency=ConsistencyLevel.ONE)
    write(session, make_table(session), range(ROWS))
    lost = host_ids(first, dead)
    for node in dead:
        Cluster.kill(node)
    until("their death is known", lambda: members_up(first) == 1)
    with Section("The majority is lost") as section:
        section.admin(first, "recover-metadata")
        section.admin(first, "removenode", HOST_IDS=lost)
        section.admin(first, "repair")
    session.execute("CREATE TABLE shop.more (id int PRIMARY KEY)", timeout=60)
    check(session, ROWS)


def test_an_upgrade(three_nodes, connect):
    first, *_ = three_nodes.nodes
    session = connect(three_nodes)
    insert = make_table(session)
    write(session, insert, range(ROWS))
    with Section("Upgrade") as section:
        section.admin(first, "status")
        section.admin(first, "snapshot")
        of_each = list(section.left)
        for node in three_nodes.nodes:
            section.left = list(of_each)
            section.admin(node, "drain")
            node.stop()
            section.start(node)
            section.admin(node, "status")
            until("all are up", lambda: all(all_normal(other, 3) for other in three_nodes.nodes))
            # The driver may use the connection that the node has closed once more before it notices.
            until("rows are written", lambda: write(session, insert, range(ROWS, ROWS + 10)) is None)
        section.admin(first, "upgradesstables")
        section.admin(first, "clearsnapshot")
    check(session, ROWS + 10)


def test_a_node_is_added_and_another_one_goes(three_nodes, connect):
    first, second, _ = three_nodes.nodes
    session = connect(three_nodes, only=first)
    insert = make_table(session)
    write(session, insert, range(ROWS))
    fourth = three_nodes.make()
    with Section("Add a node") as section:
        section.start(fourth)
        assert fourth.host in section.admin(first, "status")
    until("four are members", lambda: all_normal(first, 4))
    with Section("Shrink") as section:
        section.admin(second, "decommission")
        assert second.ended() == REMOVED
        assert second.host not in section.admin(first, "status")
    check(connect(three_nodes, only=fourth), ROWS)
