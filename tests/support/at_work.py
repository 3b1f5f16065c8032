"""Threads that disturb a node while a test reads."""

import threading
from contextlib import contextmanager

from cluster import until


@contextmanager
def at_work(*works):
    """Calls each function again and again, in a thread of its own, until the block ends; the block begins when each was called once. A call that
    fails ends its thread and fails the test."""
    stop, failures = threading.Event(), []
    begun = [threading.Event() for _ in works]

    def repeat(work, once):
        try:
            while not stop.is_set():
                work()
                once.set()
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)
            once.set()

    threads = [threading.Thread(target=repeat, args=pair) for pair in zip(works, begun, strict=True)]
    for thread in threads:
        thread.start()
    try:
        until("all are at work", lambda: all(once.is_set() for once in begun))
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
