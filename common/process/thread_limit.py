"""Notices that this process may start no more threads, before a library ends it for that."""

from __future__ import annotations

import threading

_FEW = 10
"""A client of Kafka starts three, and one for each broker."""
_WANT = (
    "the limit of processes and threads is reached: raise it (TasksMax of systemd, pids-limit of "
    "the container, podPidsLimit of the kubelet, or `ulimit -u`)"
)
_trying = threading.Lock()
"""Else 16 tasks that start at a time would take the room for 160 threads."""


def want_of_threads() -> str:
    """Return what to do if this process cannot start a few more threads, or "".

    At the limit, librdkafka ends the process (its issue 4712) or waits for a minute (4588). The
    limit may be that of a control group that cannot be seen from here, such as that of a pod. So
    some threads are started, which takes 2 ms.
    """
    with _trying:
        return "" if _can_start_a_few() else _WANT


def _can_start_a_few() -> bool:
    end = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(_FEW):
            thread = threading.Thread(target=end.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        end.set()
        for thread in started:
            thread.join()
    return True
