"""Stops one thread of a process, as a disk that does not answer does to the thread that writes to it."""

import ctypes
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

# linux/ptrace.h, linux/wait.h
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WAIT_FOR_THREADS = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def thread_named(pid, name):
    """The id of the thread of a process with this name."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    (found,) = [int(task.name) for task in tasks if (task / "comm").read_text().strip() == name]
    return found


@contextmanager
def stopped_thread(pid, name):
    """Within, the thread does not run. The test is not run where threads of a child cannot be traced."""
    thread = thread_named(pid, name)
    if libc.ptrace(SEIZE, thread, None, None) != 0:
        pytest.skip(f"not run: a thread cannot be stopped here: {os.strerror(ctypes.get_errno())}")
    try:
        if libc.ptrace(INTERRUPT, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "the thread is not stopped")
        os.waitpid(thread, WAIT_FOR_THREADS)
        yield
    finally:
        libc.ptrace(DETACH, thread, None, None)
