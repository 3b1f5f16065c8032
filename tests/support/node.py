"""A Helenus node as a process of a test or a benchmark: start, stop, kill, restart, administer, measure.

Invariants: a node that this module started is stopped when its `with` block ends; a restart keeps address and
data; nothing here knows CQL.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_SECONDS = 60
STOP_TIMEOUT_SECONDS = 60
CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class NodeError(Exception):
    """The node did not do what it was asked to; the message holds the end of its log."""


def binary(given=None):
    """The program to test: the one given, else the newest of the release and the debug build."""
    if given:
        return Path(given).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for path in (target / "release/helenus", target / "debug/helenus") if path.exists()]
    if not built:
        raise NodeError(f"no helenus program in {target}: run `cargo build --release -p helenus`")
    return max(built, key=lambda path: path.stat().st_mtime)


def free_port(addresses=("127.0.0.1",)):
    """A port that nothing listens on now at any of the addresses, and that the system gives to nobody who does not ask for it: what it
    chooses for others (who connect, or listen on any port) lies above."""
    import random

    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10_000, max(ephemeral, 20_000))
        sockets = []
        try:
            for address in addresses:
                sockets.append(socket.socket())
                sockets[-1].bind((address, port))
            return port
        except OSError:
            continue
        finally:
            for probe in sockets:
                probe.close()


def cpu_seconds(pid):
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_SECOND


def clean_environment(**variables):
    """The environment for a program of Helenus: without what sets its options here, with `variables`."""
    return {**{key: text for key, text in os.environ.items() if not key.startswith("HELENUS_")}, **variables}


def memory_mib(pid):
    """A process's resident set in MiB: all of it, and without mapped files (which the kernel takes back when it likes)."""
    lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    kib = {words[0]: int(words[1]) for words in lines if words and words[0] in ("VmRSS:", "RssFile:")}
    return kib["VmRSS:"] / 1024, (kib["VmRSS:"] - kib["RssFile:"]) / 1024


def disk_bytes(directory):
    """Bytes that the files under a directory take, each hard-linked file once. A node may remove some meanwhile."""
    return allocated_bytes(Path(directory).rglob("*"))


def allocated_bytes(paths):
    """Bytes on disk of those paths that are files, each hard-linked file once. What is gone counts nothing."""
    seen, total = set(), 0
    for path in paths:
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * 512
    return total


def toml(settings):
    """Settings as a TOML file: tables behind all others."""
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in settings.items() if isinstance(value, dict)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "".join(f"{line}\n" for line in lines)


class SocketConnection(http.client.HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Node:
    """One node on the loopback address, in a directory of its own."""

    def __init__(self, program=None, data_dir=None, commit_log=None, shards=None, settings=None):
        """`data_dir` None: a temporary directory, removed at the end. `settings`: further keys of the TOML file; None: left out."""
        self.program = binary(program)
        self.temporary = data_dir is None
        self.data_dir = Path(data_dir or tempfile.mkdtemp(prefix="helenus-node-"))
        self.home = Path(tempfile.mkdtemp(prefix="helenus-node-home-"))
        self.log_path = self.home / "node.log"
        self.settings = {"http_port": free_port(), "shard_aware_port": 0, **(settings or {})}
        self.http_address = f"127.0.0.1:{self.settings['http_port'] or 9180}"
        self.arguments = []
        if commit_log:
            self.arguments += ["--commit-log", commit_log]
        if shards:
            self.arguments += ["--shards", str(shards)]
        self.listen = "127.0.0.1:0"
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        try:
            self.stop()
        finally:
            if kind is None:
                shutil.rmtree(self.home, ignore_errors=True)
            if self.temporary:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def host(self):
        """The address; one of IPv6 without its brackets."""
        return self.listen.rsplit(":", 1)[0].strip("[]")

    @property
    def port(self):
        return int(self.listen.rsplit(":", 1)[1])

    @property
    def pid(self):
        return self.process.pid

    def start(self):
        """Starts the process and returns when it serves CQL."""
        configuration = self.home / "helenus.toml"
        configuration.write_text(toml({key: value for key, value in self.settings.items() if value is not None}))
        command = [self.program, "node", "--config", configuration, "--data-dir", self.data_dir, "--listen", self.listen]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command + self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=clean_environment(),
            )
        killer = threading.Timer(START_TIMEOUT_SECONDS, self.process.kill)
        killer.start()
        line = self.process.stdout.readline()
        told = re.fullmatch(r"listening on (\S+)\n", line)
        if not told:
            # Nothing at all: it is ending, and its exit status says how. One that does not end is killed with the same time limit.
            if line:
                self.process.kill()
            self.process.wait()
        killer.cancel()
        if not told:
            raise NodeError(f"the node said {line!r} instead of its address\n{self.log_tail()}")
        self.listen = told.group(1)

    def stop(self):
        """SIGTERM, and the exit status 0 that a drained node answers it with."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        process, self.process = self.process, None
        try:
            status = process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise NodeError(f"the node did not stop within {STOP_TIMEOUT_SECONDS} s\n{self.log_tail()}") from None
        finally:
            process.stdout.close()
        if status != 0:
            raise NodeError(f"the node ended with status {status}\n{self.log_tail()}")

    def ended(self):
        """Waits until the process has ended by itself, and returns its exit status."""
        process, self.process = self.process, None
        try:
            return process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process = process
            raise NodeError(f"the node did not end within {STOP_TIMEOUT_SECONDS} s\n{self.log_tail()}") from None
        finally:
            if self.process is None:
                process.stdout.close()

    def restart(self):
        """Stops the node and starts it on the same address and data."""
        before = self.listen
        self.stop()
        self.start()
        if self.listen != before:
            raise NodeError(f"the node was told to listen on {before} again and listens on {self.listen}")

    def log_tail(self, lines=40):
        """The end of what the node wrote to standard error."""
        text = self.log_path.read_text(errors="replace").splitlines() if self.log_path.is_file() else []
        return "\n".join([f"--- {self.log_path}", *text[-lines:]])

    @property
    def asks_for_login(self):
        """Whether the administration port does: then the node is asked over its Unix socket here."""
        return self.settings.get("authenticator", "AllowAllAuthenticator") != "AllowAllAuthenticator"

    def ask(self, method, path, timeout):
        """The answer of the node's administration; raises `NodeError` with its text if it is an error."""
        connection = (
            SocketConnection(self.data_dir / "helenus.sock", timeout)
            if self.asks_for_login
            else http.client.HTTPConnection(self.http_address, timeout=timeout)
        )
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise NodeError(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise NodeError(f"{method} {path}: {answer.status} {text}")
        return text

    def admin(self, *words):
        """The exit status and the output of `helenus admin`."""
        place = ["--data-dir", self.data_dir] if self.asks_for_login else ["--url", f"http://{self.http_address}"]
        command = [self.program, "admin", *place, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    def administer(self, action, **parameters):
        """POST to the administration port: `flush`, `compact`, `snapshot`; raises `NodeError` with its answer."""
        return self.ask("POST", f"/admin/{action}?{urllib.parse.urlencode(parameters)}", timeout=600)

    def report(self, path):
        """What the node says at a path of its administration port: `health`, or a report such as `netstats`."""
        return json.loads(self.ask("GET", f"/{path if path in ('health', 'version') else f'admin/{path}'}", timeout=10))

    def metric(self, name):
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://{self.http_address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{name}[{{ ]", line))

    def cpu_seconds(self):
        return cpu_seconds(self.pid)

    def memory_mib(self):
        return memory_mib(self.pid)

    def resident_mib(self):
        return self.memory_mib()[0]
