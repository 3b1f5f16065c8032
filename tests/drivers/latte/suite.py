"""The load generator latte against a server named by CQL_HOST and CQL_PORT; LATTE is the program.

Prints `ok - NAME` or `not ok - NAME` for each step of an ordinary session: schema, load, run.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WORKLOAD = Path(__file__).with_name("workload.rn")
ADDRESS = f"{os.environ.get('CQL_HOST', '127.0.0.1')}:{os.environ.get('CQL_PORT', '9042')}"
# Set where the server requires TLS and logins.
AUTHORITY = os.environ.get("CQL_AUTHORITY")
SECURE = ["--ssl", "--ssl-ca", AUTHORITY, "--user", os.environ["CQL_USER"]] if AUTHORITY else []
ENVIRONMENT = {**os.environ, "CASSANDRA_PASSWORD": os.environ.get("CQL_PASSWORD", "")}
ROWS = 2000


def latte(home, verb, *words):
    command = [os.environ.get("LATTE", "latte"), "--log-dir", home, verb, *SECURE, *words]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}"


def run(home, function, rows_per_request, label):
    report = Path(home) / f"{function}-{label}.json"
    latte(
        home, "run", "-q", "-f", function, "-w", "0s", "-d", str(ROWS), "--threads", "1", "--concurrency", "16",
        "-P", f"rows={ROWS}", "-o", str(report), str(WORKLOAD), ADDRESS,
    )  # fmt: skip
    result = json.loads(report.read_text())["result"]
    # latte leaves its count of errors at 0 for requests that it does not repeat: its list tells.
    assert not result["errors"] and not result["error_count"], result["errors"]
    assert result["request_count"] == ROWS, result["request_count"]
    assert result["row_count_per_req"] == rows_per_request, result["row_count_per_req"]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as home:
        load = ["load", "-q", "--threads", "1", "--concurrency", "16", "-P", f"rows={ROWS}", str(WORKLOAD), ADDRESS]
        checks = {
            "schema": lambda: latte(home, "schema", str(WORKLOAD), ADDRESS),
            "load": lambda: latte(home, *load),
            "point reads find every row": lambda: run(home, "read", 1, "first"),
            "newest rows of a partition": lambda: run(home, "newest", 10, "first"),
            "load again, which truncates first": lambda: latte(home, *load),
            "rows are there once": lambda: run(home, "newest", 10, "again"),
        }
        for name, check in checks.items():
            try:
                check()
                print(f"ok - {name}", flush=True)
            except (AssertionError, KeyError, OSError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"not ok - {name}\n{error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
