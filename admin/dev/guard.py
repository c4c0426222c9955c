"""Ends the daemons of a command, and its broker if it has one, however the command has ended.

A process in a session of its own, which waits until the pipe from the command is closed. The system
closes it, even after `kill -9`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.daemons import kill_session, python_command, session_members

_STOP_TIMEOUT_S = 20.0
_POLL_S = 0.05


class Guard:
    """The guard, as the command has it."""

    def __init__(self, lock: int, broker_dir: Path | None = None) -> None:
        """Start it. It holds the `lock` too, a descriptor, until everything has ended."""
        broker = [str(broker_dir)] if broker_dir else []
        self._process = subprocess.Popen(
            python_command("kafka_pipeline.admin.dev.guard", *broker),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock,),
            text=True,
        )

    def add(self, session: int) -> None:
        """Have it end a session; nothing changes if it is to do that already."""
        self._say(f"+{session}")

    def remove(self, session: int) -> None:
        """Have it forget a session that is gone, as its number may be used again."""
        self._say(f"-{session}")

    def end(self) -> None:
        """End the sessions, then the broker. Returns when all are gone, within a minute."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


def end_sessions(sessions: Collection[int], timeout_s: float = _STOP_TIMEOUT_S) -> None:
    """Ask the leaders of sessions to stop; kill what is left of the sessions after a time."""
    left = {session for session in sessions if any(session_members(session))}
    for session in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(session, signal.SIGTERM)
    deadline_s = time.monotonic() + timeout_s
    while left := {session for session in left if any(session_members(session))}:
        if time.monotonic() >= deadline_s:
            for session in left:
                kill_session(session)
            return
        time.sleep(_POLL_S)


def _guard(broker_dir: Path | None) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sessions: set[int] = set()
    for line in sys.stdin:
        session = int(line[1:])
        if line[0] == "+":
            sessions.add(session)
        else:
            sessions.discard(session)
    end_sessions(sessions)
    cluster = LocalCluster.find(broker_dir) if broker_dir else None
    if cluster is not None:
        cluster.stop()


if __name__ == "__main__":
    _guard(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
