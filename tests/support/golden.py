"""Data directories of earlier releases (`tests/golden`): packed, unpacked, and run as the nodes that they were.

Invariant: nodes are started with the settings and addresses that the directories were made with, whoever starts them. Members
know each other by internode address, so these are fixed, on loopback addresses that nothing else uses.
"""

import gzip
import io
import json
import re
import runpy
import tarfile
from pathlib import Path
from types import SimpleNamespace

from cluster import Cluster
from node import ROOT, Node, free_port

FOLDER = ROOT / "tests/golden"
RELEASES = sorted(path.parent.name for path in FOLDER.glob("*/contents.py"))
MEMBERS = 3
ADDRESSES = [f"127.83.71.{number}" for number in range(1, MEMBERS + 1)]
INTERNODE_PORT = 7000
SETTINGS = {
    "cluster_name": "golden",
    "commit_log_segment_bytes": 1 << 20,
    "commit_log_total_bytes": 16 << 20,
    "memtable_bytes": 16 << 20,
    "num_tokens": 4,
}
# A dead member is known as dead sooner.
LIVENESS = {"liveness_probe_period_ms": 300, "liveness_probe_timeout_ms": 100, "liveness_suspicion_ms": 600}


def contents(release):
    """The statements and the answers of a release."""
    return SimpleNamespace(**runpy.run_path(str(FOLDER / release / "contents.py")))


def facts(release, name):
    """What was found out when the archive was made."""
    return json.loads((FOLDER / release / f"{name}.json").read_text())


def pack(directory, archive):
    """Everything below a directory, without what depends on who packs it."""

    def plain(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    tar_bytes = io.BytesIO()
    with tarfile.open(fileobj=tar_bytes, mode="w") as tar:
        for path in sorted(Path(directory).rglob("*")):
            tar.add(path, path.relative_to(directory), recursive=False, filter=plain)
    archive.write_bytes(gzip.compress(tar_bytes.getvalue(), compresslevel=9, mtime=0))


def unpack(release, name, directory):
    """A copy of what was packed, and the path to it."""
    with tarfile.open(FOLDER / release / f"{name}.tar.gz") as tar:
        tar.extractall(directory, filter="data")
    return Path(directory)


def one_node(program, data_dir):
    """A node of two shards that does not run yet."""
    return Node(program, data_dir=data_dir, shards=2, settings=SETTINGS)


class Members(Cluster):
    """The three members, each with its directory; none runs until it is started."""

    def __init__(self, program, directory):
        super().__init__(MEMBERS, program, settings=LIVENESS)
        self.port = free_port(ADDRESSES)
        for number, address in enumerate(ADDRESSES, 1):
            settings = {
                **SETTINGS,
                **LIVENESS,
                "internode": f"{address}:{INTERNODE_PORT}",
                "seeds": [f"{ADDRESSES[0]}:{INTERNODE_PORT}"],
                "rack": f"rack{number}",
            }
            node = Node(self.program, data_dir=Path(directory) / f"member{number}", shards=1, settings=settings)
            node.listen = f"{address}:{self.port}"
            self.nodes.append(node)

    def __enter__(self):
        return self


def batches_replayed(node):
    """How many batches a lone node found in its batch log at its start, by its log."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", node.log_path.read_text())
    return sum(int(count) for count in re.findall(r"batches replayed.*\bcount=(\d+)", text))


def check_pairs(rows, acknowledged):
    """Of each batch everything is there or nothing, and everything that was acknowledged."""
    rows = list(rows)
    sides = {side: {row.number for row in rows if row.side == side and row.v == row.number} for side in ("left", "right")}
    half_there = sides["left"] ^ sides["right"]
    assert not half_there, f"half there: {sorted(half_there)}"
    missing = set(acknowledged) - sides["left"]
    assert not missing, f"lost: {sorted(missing)}"
