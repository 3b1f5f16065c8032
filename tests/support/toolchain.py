"""What a driver suite needs on the machine, brought into `.cache` once and kept while its pins do not change.

Everything comes through the ordinary client of its registry: pip, npm, go, Maven, cargo.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"


class Missing(Exception):
    """A toolchain that is not on this machine, or a package that could not be brought."""


def need(program):
    """Path of a program that has to be on the PATH."""
    path = shutil.which(program)
    if path is None and program == "go" and Path("/usr/local/go/bin/go").exists():
        path = "/usr/local/go/bin/go"
    if path is None:
        raise Missing(f"{program} is not installed")
    return path


def bring(command, what, **options):
    """Runs a command that fetches or builds something; its output is shown only when it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    if done.returncode != 0:
        raise Missing(f"{what} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def once(directory, pins, make):
    """Calls `make(directory)` unless it was done before with the same contents of the files `pins`."""
    stamp = directory / ".pins"
    digest = hashlib.sha256(b"".join(Path(pin).read_bytes() for pin in pins)).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        make(directory)
        stamp.write_text(digest)
    return directory


def python_environment(name, requirements, interpreter=sys.executable):
    """`bin` directory of a virtual environment with the pinned requirements."""

    def make(directory):
        bring([interpreter, "-m", "venv", directory], f"python -m venv for {name} (Debian: apt install python3-venv)")
        pip = directory / "bin/pip"
        bring([pip, "install", "--quiet", "--no-input", "-r", requirements], f"pip install -r {requirements}")

    return once(CACHE / "venv" / name, [requirements], make) / "bin"


def in_python_environment(name, requirements):
    """Goes on in the virtual environment with the pinned requirements: starts this program again there unless it runs there already."""
    python = python_environment(name, requirements) / "python"
    if Path(sys.prefix) != python.parent.parent:
        os.execv(python, [python, *sys.argv])


def newest_python(minimum):
    """An interpreter of at least that (major, minor): this one, one on the PATH, or one of pyenv's."""
    candidates = [sys.executable]
    candidates += [shutil.which(f"python3.{minor}") for minor in range(minimum[1], minimum[1] + 6)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(map(str, pyenv.glob("3.*/bin/python3"))) if pyenv.exists() else []
    for candidate in filter(None, candidates):
        code = "import sys; print(sys.version_info.major, sys.version_info.minor)"
        done = subprocess.run(
            [candidate, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        )
        if done.returncode == 0 and tuple(map(int, done.stdout.split())) >= minimum:
            return candidate
    raise Missing(f"no Python of at least {minimum[0]}.{minimum[1]} (pyenv install {minimum[0]}.{minimum[1]})")


def latte(build=True):
    """The load generator: on the PATH, in the cache, or built into it (some minutes, once)."""
    path = shutil.which("latte") or CACHE / "latte/bin/latte"
    if not Path(path).exists():
        if not build:
            raise Missing("latte is not installed (scripts/install-latte builds it)")
        bring([ROOT / "scripts/install-latte"], "cargo install latte-cli")
    return Path(path)
