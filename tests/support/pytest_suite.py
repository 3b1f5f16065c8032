"""A suite of pytest files as a program: the driver brought, the output kept, the last line `N passed, N failed`."""

import argparse
import os
import re
import subprocess

from node import NodeError, binary
from toolchain import CACHE, ROOT, Missing, python_environment

REQUIREMENTS = ROOT / "tests/drivers/python/requirements-cassandra-driver.txt"
SUMMARY = re.compile(r"(\d+) (passed|failed|errors?)\b")


# A network and mounts of its own, also for who is not root: the tests may cut links and fill disks there.
OWN_NAMESPACES = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def can_have_namespaces():
    try:
        return subprocess.run([*OWN_NAMESPACES, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(folder, description, timeout_seconds, own_namespaces=False):
    """Runs the tests of a folder against the program given on the command line; returns the exit status. `own_namespaces`: in
    namespaces of their own where that is possible; then HELENUS_OWN_NAMESPACES is set."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the helenus program (default: the newest build)")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest")
    options = parser.parse_args()
    try:
        program = binary(options.binary)
        python = python_environment("python-cassandra-driver", REQUIREMENTS) / "python"
    except (NodeError, Missing) as missing:
        print(missing)
        print("0 passed, 1 failed")
        return 1
    print(program, flush=True)
    # Directories of data of tests that passed go at once: together they are larger than many a disk.
    tidy = ["-o", "tmp_path_retention_policy=failed", "-o", "tmp_path_retention_count=1"]
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--durations=5", "-rA", "--tb=short", *tidy, *options.pytest]
    if own_namespaces and can_have_namespaces():
        command = [*OWN_NAMESPACES, *command]
        os.environ["HELENUS_OWN_NAMESPACES"] = "1"
    log = CACHE / folder.name / "pytest.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "HELENUS_PROGRAM": str(program), "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(word) for word in command], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    lines = log.read_text(errors="replace").splitlines()
    for line in lines:
        if re.match(r"(measured: |FAILED |ERROR |SKIPPED )", line):
            print(line)
    counts = {"passed": 0, "failed": 0}
    for number, word in SUMMARY.findall(lines[-1] if lines else ""):
        counts["passed" if word == "passed" else "failed"] += int(number)
    if status != 0:
        counts["failed"] = counts["failed"] or 1
        print(f"see {log}")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0
