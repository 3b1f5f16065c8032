"""Disks of a few MiB for tests that fill them: tmpfs volumes, in a mount namespace of the tests' own."""

import os
import subprocess

import pytest


class SmallDisks:
    """Gives directories a disk of their own, and makes such a disk larger."""

    def __init__(self):
        self.mounted = []

    def __call__(self, directory, mib):
        """Gives a directory a disk of so many MiB, or makes the one it has as large."""
        path = str(directory)
        remount = ["-o", f"remount,size={mib}m"] if path in self.mounted else ["-t", "tmpfs", "-o", f"size={mib}m"]
        subprocess.run(["mount", *remount, "tmpfs", path], check=True)
        if path not in self.mounted:
            self.mounted.append(path)

    def free_bytes(self, directory):
        status = os.statvfs(directory)
        return status.f_bavail * status.f_frsize

    def unmount(self):
        for path in self.mounted:
            subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture
def small_disk():
    """A function that gives a directory a small disk; the test is not run where that is impossible."""
    if not os.environ.get("HELENUS_OWN_NAMESPACES"):
        pytest.skip("not run: no disk can be filled here without a mount namespace of our own (unshare --mount)")
    disks = SmallDisks()
    yield disks
    disks.unmount()
