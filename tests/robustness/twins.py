"""Queries by indexes are compared with filtering on a twin: an equal table without indexes (`<name>_plain`) that gets the same
statements with the same timestamps. The rows must be the same, in the same order.
"""

from collections.abc import Mapping

from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import SimpleStatement
from cassandra.util import SortedSet
from cluster import until

KINDS = {"legacy": "", "sai": " USING 'sai'"}


def plain(value):
    """A value that compares like what it stands for."""
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, (list, SortedSet)) else value


def answer(session, text, page_rows=5000):
    """The rows of a statement, over all its pages."""
    found = session.execute(SimpleStatement(text, fetch_size=page_rows))
    return [tuple(plain(value) for value in row) for row in found]


def make_twins(session, table, columns, options=""):
    for name in (table, f"{table}_plain"):
        session.execute(f"CREATE TABLE {name} ({columns}) {options}")


def write(session, table, columns, rows):
    """Writes rows into both twins."""
    for name in (table, f"{table}_plain"):
        marks = ", ".join("?" for _ in columns.split(","))
        insert = session.prepare(f"INSERT INTO {name} ({columns}) VALUES ({marks})")
        execute_concurrent_with_args(session, insert, rows, concurrency=64)


def change(session, table, text):
    """Executes a statement, which has `{table}` in it, on both twins."""
    for name in (table, f"{table}_plain"):
        session.execute(text.replace("{table}", name))


def create_indexes(session, table, targets, kind="sai"):
    for number, target in enumerate(targets):
        session.execute(f"CREATE INDEX {table}_{number} ON {table} ({target}){KINDS[kind]}")


def wait_until_built(session, table, conditions):
    """Until then the queries fail: whether an index is built is not to be seen otherwise."""
    for condition in conditions:
        text = f"SELECT * FROM {table} WHERE {condition}"
        until(f"the index for {condition} is built", lambda text=text: answer(session, text) is not None)


def agree(session, table, condition, what="*", rest="", filtering="", page_rows=7):
    """Asserts that a query by index gives what filtering gives on the twin; returns its rows."""
    expected = answer(session, f"SELECT {what} FROM {table}_plain WHERE {condition} {rest} ALLOW FILTERING")
    text = f"SELECT {what} FROM {table} WHERE {condition} {rest} {filtering}"
    found = answer(session, text, page_rows)
    if found != expected:
        lost, surplus = set(expected) - set(found), set(found) - set(expected)
        counts = f"{len(found)} rows of {len(expected)}, lost {len(lost)}, surplus {len(surplus)}"
        examples = f"e.g. lost {sorted(lost, key=repr)[:3]}, surplus {sorted(surplus, key=repr)[:3]}"
        raise AssertionError(f"{text} by pages of {page_rows}: {counts}; {examples}")
    return found


def without_index(directories, count):
    """The table files of these directories that do not have so many indexes."""
    files = [path for directory in directories for path in directory.glob("*-data.sst")]
    return [path for path in files if len(list(path.parent.glob(path.name.replace("-data.sst", "-*.index")))) != count]
