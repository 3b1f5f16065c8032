"""Cassandra's recorded answers: a file of JSON lines an area, the first line naming the version that answered."""

import json
from pathlib import Path

DIRECTORY = Path(__file__).parent / "corpus"
AREAS = ("matrix", "scripts", "logins", "anonymous")


def path(area):
    return DIRECTORY / f"{area}.jsonl"


def write(area, version, documents):
    """Replaces the answers of an area."""
    DIRECTORY.mkdir(exist_ok=True)
    lines = [{"recorded from": f"Apache Cassandra {version}"}, *documents]
    path(area).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def read(area):
    """The documents of an area."""
    return [json.loads(line) for line in path(area).read_text().splitlines()[1:]]
