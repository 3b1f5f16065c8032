"""A run of a script of latte against servers that take turns: load, measure, summarise, print.

A server is anything with `name`, `listen`, `cpu_seconds()`, `memory_mib()`, `settle(keyspace)` and
`table_bytes(keyspace, table, id)`; with `client_options`, what latte needs to connect, if it needs anything; with `parameters` of
the script that are its own; and with `catch_up()`, if it goes on working when a request is answered: it returns when that is done.
"""

import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/support"))
from node import CLOCK_TICKS_PER_SECOND, NodeError, disk_bytes  # noqa: E402
from toolchain import CACHE, ROOT, latte, python_environment  # noqa: E402

IN_FLIGHT = {"periodic": [64], "group": [8, 64]}
# Positions in latte's list: min, 1, 2, 5, 10, 25, 50, 75, 90, 95, 98, 99, 99.9, 99.99, max.
PERCENTILES = {"p50_ms": 6, "p99_ms": 11, "p999_ms": 12}
SMALLER_IS_BETTER = {"cpu_us_per_op", "p50_ms", "p99_ms", "resident_mib", "resident_mib_without_files"}


def table_bytes(data_dir, table, identity):
    """Bytes on disk of one table in all shards of a Helenus node."""
    found = [path for path in data_dir.glob("shard-*/tables/*") if path.name.replace("-", "") == identity]
    if not found:
        raise NodeError(f"no directory of table {table} ({identity}) below {data_dir}")
    return sum(disk_bytes(path) for path in found)


@dataclass(frozen=True)
class Workload:
    """A script of latte over tables of the keyspace `bench`."""

    script: Path
    # Options that the script takes as parameters.
    parameters: tuple[str, ...]
    # Tables and the rows that the load writes to each, of the options.
    tables: dict
    # Rows that a request answers with, when the data is loaded; a function that is not named has none to check.
    rows_per_request: dict

    def rows(self, options):
        return {table: count(options) for table, count in self.tables.items()}


SERVE = Workload(
    HERE / "serve.rn",
    ("rows", "orders", "events"),
    {"items": lambda options: options.rows, "events": lambda options: options.orders * options.events},
    {"get": 1, "newest": 10, "history": 1000, "put+get": 0.5},
)


class Bench:
    """One run: a workload, options, the load generator, and the records measured so far."""

    def __init__(self, options, replicas=1, consistency="LOCAL_ONE", workload=SERVE):
        self.options, self.replicas, self.consistency, self.workload = options, replicas, consistency, workload
        self.latte_program = latte()
        requirements = ROOT / "tests/drivers/python/requirements-cassandra-driver.txt"
        self.python = python_environment("python-cassandra-driver", requirements) / "python"
        self.work = Path(tempfile.mkdtemp(prefix="helenus-bench-"))
        self.records = []
        self.sizes = []

    def latte(self, *words):
        command = [str(self.latte_program), "--log-dir", str(self.work), *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}\n{done.stdout[-2000:]}")

    def parameters(self, server):
        pairs = {name: getattr(self.options, name) for name in self.workload.parameters}
        pairs.update(replicas=self.replicas, **getattr(server, "parameters", {}))
        return [word for key, value in pairs.items() for word in ("-P", f"{key}={value}")]

    def load(self, mode, server):
        """Fills a server, then measures its memory and, flushed and compacted, its bytes on disk."""
        script, rows = self.workload.script, self.workload.rows(self.options)
        connection = connection_of(server)
        self.latte("schema", *connection, *self.parameters(server), script, server.listen)
        cpu, start = server.cpu_seconds(), time.monotonic()
        self.latte("load", "-q", *connection, "--threads", 1, "--concurrency", 128, *self.parameters(server), script, server.listen)
        seconds, count = time.monotonic() - start, sum(rows.values())
        size = {
            "mode": mode,
            "server": server.name,
            "rows": count,
            "load_ops_per_s": round(count / seconds),
            "load_cpu_us_per_op": round((server.cpu_seconds() - cpu) * 1e6 / count, 2),
            "resident_mib_after_load": round(server.memory_mib()[0]),
        }
        server.settle("bench")
        for table, number in rows.items():
            taken = server.table_bytes("bench", table, self.table_id(server, table))
            size[f"{table}_bytes"], size[f"{table}_bytes_per_row"] = taken, round(taken / number, 1)
        self.sizes.append(size)
        print(size_line(size), flush=True)

    def table_id(self, server, table):
        """Id of a table as 32 hex digits, which names its directories."""
        command = [self.python, HERE / "table_id.py", server.listen, table, *connection_of(server)]
        return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def run(self, server, function, in_flight, seconds, rate=None):
        """Runs one function for a time; returns its measurements. Work that the server does behind its answers counts, and so does the time until
        it is done. `rate`: requests a second, if not as many as there can be."""
        catch_up = getattr(server, "catch_up", lambda: None)
        catch_up()
        rate = ("--rate", rate) if rate else ()
        report = self.work / "report.json"
        report.unlink(missing_ok=True)
        weights = ",".join(f"{part}:1" for part in function.split("+"))
        server_before, children_before, busy_before = server.cpu_seconds(), children_seconds(), busy_seconds()
        self.latte(
            "run", "-q", *connection_of(server), "-f", weights, "-w", "0s", "-d", f"{seconds}s", "--threads", 1, "--concurrency", in_flight,
            "--connections", 1, "--consistency", self.consistency, *self.parameters(server), *rate, "-o", report,
            self.workload.script, server.listen,
        )  # fmt: skip
        answered = time.monotonic()
        catch_up()
        behind_seconds = time.monotonic() - answered
        server_seconds = server.cpu_seconds() - server_before
        client_seconds = children_seconds() - children_before
        others = busy_seconds() - busy_before - server_seconds - client_seconds
        result = json.loads(report.read_text())["result"]
        # latte counts no error for a failed request that it does not repeat: its list and the rows tell.
        if result["errors"] or result["error_count"]:
            sys.exit(f"{server.name} {function}: requests failed, the figures mean nothing: {result['errors'][:3]}")
        rows, wanted = result["row_count_per_req"], self.workload.rows_per_request.get(function)
        if wanted and abs(rows - wanted) > 0.02 * wanted:
            sys.exit(f"{server.name} {function}: {rows:.2f} rows a request instead of {wanted}")
        count, elapsed = result["request_count"], result["elapsed_time_s"] + behind_seconds
        latency = (result.get("request_latency") or result["cycle_latency"])["percentiles"]
        latency = [one["value"] if isinstance(one, dict) else one for one in latency]
        resident_mib, unmapped_mib = map(round, server.memory_mib())
        return {
            "ops_per_s": round(count / elapsed, 1),
            "cpu_us_per_op": round(server_seconds * 1e6 / max(1, count), 3),
            **{name: round(latency[position], 3) for name, position in PERCENTILES.items()},
            "resident_mib": resident_mib,
            "resident_mib_without_files": unmapped_mib,
            # One thread: near 1, the load generator is what limits the throughput.
            "cpu_cores_of_client": round(client_seconds / elapsed, 2),
            "cpu_cores_of_others": round(max(0.0, others) / elapsed, 2),
        }

    def measure(self, mode, servers, functions):
        """All repetitions of all functions in one mode."""
        for function in functions:
            for in_flight in IN_FLIGHT[mode]:
                for server in servers:
                    self.run(server, function, in_flight, self.warm_up(server))
                for repetition in range(1, self.options.repetitions + 1):
                    for server in servers:
                        figures = self.run(server, function, in_flight, self.options.seconds)
                        head = {"mode": mode, "server": server.name, "function": function, "in_flight": in_flight}
                        self.records.append({**head, "repetition": repetition, **figures})
                        print("{mode:9} {server:10} {function:8} {in_flight:3} in flight {ops_per_s:>10,.0f} op/s "
                              "{cpu_us_per_op:>8.2f} us CPU p50 {p50_ms:.2f} p99 {p99_ms:.2f} ms, {resident_mib} MiB ({resident_mib_without_files} without files), "
                              "client {cpu_cores_of_client:.2f}, others {cpu_cores_of_others:.2f} cores".format(**self.records[-1]), flush=True)  # fmt: skip

    def warm_up(self, server):
        return self.options.warm_up if server.name == "cassandra" else min(2, self.options.seconds)


def connection_of(server):
    return getattr(server, "client_options", ())


def size_line(size):
    """What a load cost and left behind, readable."""
    suffix = "_bytes_per_row"
    tables = [f"{size[name]} bytes a row of {name.removesuffix(suffix)}" for name in size if name.endswith(suffix)]
    head = "{mode:9} {server:10} load of {rows:,} rows {load_ops_per_s:,} op/s at {load_cpu_us_per_op} us CPU, {resident_mib_after_load} MiB resident"
    return ", ".join([head.format(**size), *tables])


def children_seconds():
    times = os.times()
    return times.children_user + times.children_system


def busy_seconds():
    """CPU time that the machine has spent on anything (user, nice, system, interrupts)."""
    with open("/proc/stat") as stat:
        fields = [int(field) for field in stat.readline().split()[1:]]
    return sum(fields[index] for index in (0, 1, 2, 5, 6)) / CLOCK_TICKS_PER_SECOND


def summarise(records):
    """One line a (mode, function, in flight, server): median, smallest, largest of each figure; ratios to Cassandra."""
    names = ["ops_per_s", "cpu_us_per_op", "p50_ms", "p99_ms", "resident_mib", "resident_mib_without_files"]
    groups = {}
    for record in records:
        key = (record["mode"], record["function"], record["in_flight"])
        groups.setdefault(key, {}).setdefault(record["server"], []).append(record)
    lines = []
    for (mode, function, in_flight), servers in groups.items():
        line = {"mode": mode, "function": function, "in_flight": in_flight, "servers": {}}
        for server, runs in servers.items():
            values = {name: [run[name] for run in runs] for name in names}
            line["servers"][server] = {
                name: {"median": statistics.median(v), "min": min(v), "max": max(v)} for name, v in values.items()
            }
        if {"helenus", "cassandra"} == set(servers):
            ours, theirs = line["servers"]["helenus"], line["servers"]["cassandra"]
            line["ratio"] = {}
            for name in names:
                over, under = (theirs, ours) if name in SMALLER_IS_BETTER else (ours, theirs)
                line["ratio"][name] = round(over[name]["median"] / max(1e-9, under[name]["median"]), 2)
        lines.append(line)
    return lines


def table(document):
    """The readable form."""
    lines = [
        f"commit {document['commit']}, {document['date']}, {document['cores']} cores, {document['command']}",
        "median (smallest to largest) of the repetitions; x: how many times better Helenus is by the medians",
        "",
        f"{'mode':9} {'function':8} {'fl.':>3} {'server':10} {'op/s':>28} {'server CPU us/op':>26} "
        f"{'p50 ms':>20} {'p99 ms':>20} {'MiB':>6}",
    ]
    def cell(figure, digits):
        return f"{figure['median']:,.{digits}f} ({figure['min']:,.{digits}f} to {figure['max']:,.{digits}f})"

    for line in document["summary"]:
        for server, figures in line["servers"].items():
            lines.append(
                f"{line['mode']:9} {line['function']:8} {line['in_flight']:3} {server:10} "
                f"{cell(figures['ops_per_s'], 0):>28} {cell(figures['cpu_us_per_op'], 2):>26} "
                f"{cell(figures['p50_ms'], 2):>20} {cell(figures['p99_ms'], 2):>20} {figures['resident_mib']['median']:6,.0f}"
            )
        if "ratio" in line:
            times = {name: f"x {value}" for name, value in line["ratio"].items()}
            lines.append(
                f"{'':22} {'':10} {times['ops_per_s']:>28} {times['cpu_us_per_op']:>26} {times['p50_ms']:>20} "
                f"{times['p99_ms']:>20} {times['resident_mib']:>6}"
            )
    lines += ["", "after the load, flushed and compacted"]
    lines += map(size_line, document["sizes"])
    if document["bars"]:
        lines += ["", "bars"]
        lines += [f"  {'reached' if reached else 'MISSED ':8} {text}: {figure}" for text, figure, reached in document["bars"]]
    return "\n".join(lines) + "\n"


def commit():
    """Commit of the work tree, marked when files differ from it."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True, check=False)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode != 0
    return name.stdout.strip() + (" (with changes)" if changed else "")


def save(bench, command, found_bars, out):
    """Writes the run as JSON and as text, and prints the text."""
    now = datetime.datetime.now(datetime.timezone.utc)
    document = {
        "commit": commit(),
        "date": now.isoformat(timespec="seconds"),
        "command": command,
        "cores": os.cpu_count(),
        "replicas": bench.replicas,
        "consistency": bench.consistency,
        "durability": {"periodic": "acknowledged before fsync", "group": "acknowledged after a shared fsync"},
        "sizes": bench.sizes,
        "summary": summarise(bench.records),
        "bars": found_bars,
        "records": bench.records,
    }
    path = out or CACHE / f"bench/{now:%Y-%m-%dT%H-%M-%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    path.with_suffix(".txt").write_text(table(document))
    print("\n" + table(document) + f"\nwritten to {path}")


def add_options(parser, seconds, warm_up, rows, heap):
    """The options that every comparison has."""
    parser.add_argument("--only", choices=["helenus", "cassandra"], help="one server alone")
    parser.add_argument("--functions", help="functions, separated by commas (default: all of the mode)")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=seconds, help="of each repetition")
    parser.add_argument("--warm-up", type=int, default=warm_up, help="seconds that Cassandra runs each function before")
    parser.add_argument("--rows", type=int, default=rows, help="rows of the table of single rows")
    parser.add_argument("--binary", help="the helenus program (default: the newest build)")
    parser.add_argument("--heap", default=heap, help="heap of a Cassandra node")
    parser.add_argument("--shards", type=int, help="shards of a Helenus node")
    parser.add_argument("--out", type=Path, help="JSON file (default: .cache/bench/<time>.json)")


def add_serve_options(parser, rows):
    """The options of the workload `SERVE` beside those of every comparison."""
    parser.add_argument("--orders", type=int, default=rows // 1_000, help="event partitions")
    parser.add_argument("--events", type=int, default=1_000, help="events a partition at the load")
