"""A stranger at every port of a job: none is undocumented, and none gives anything away."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import Daemon, session_members
from tests.engine import all_run, engine
from tests.listening import Listener, listeners

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="it reads /proc, of Linux"),
]

PIPELINE = """
- {id: Query, type: sql, query: "SELECT key, upper(CAST(value AS STRING)) AS value FROM input",
   to: [Loud]}
- {id: Loud, type: dataframe, function: "tests.user_code.frames:loud", to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
ROOT = Path(__file__).parents[2]
DOCUMENTED = {
    "jobmanager": ("`metrics_port`", "`console_port`"),
    "taskmanager": (
        "`metrics_port`",
        "`state_port`",
        "driver channel",
        "queries",
        "Spark's accumulators",
    ),
    "java": ("`spark.driver.port`", "`spark.driver.blockManager.port`", "Py4J"),
    "pyspark.daemon": ("Python workers",),
}
"""The ports of each kind of process, by names in docs/security.md."""
SECRET = "a-secret-of-the-test"
RECORD = b"a-record-of-the-test"
MESSAGES = {
    "nothing": b"",
    "garbage": bytes(range(256)),
    "a request of HTTP": b"GET / HTTP/1.1\r\nHost: stranger.example\r\n\r\n",
    "an object of Python": pickle.dumps({"do": "run"}),
    "an object of Java": b"\xac\xed\x00\x05t\x00\x04text",
    "a command of Py4J": b"r\nu\njava.lang.System\nrj\ne\n",
    "a length of 2 GiB": b"\x7f\xff\xff\xff",
}
NO_DATA = (
    # What metrics and the console may show, or that it is no request.
    b"HTTP/1.",
    b"<!DOCTYPE HTML>",
    # The driver channel and that of queries: a challenge.
    b"\0\0\0\x1f#CHALLENGE#",
    # Py4J: errors, of a command that is unknown, and of one before the secret. Success is "!y".
    b"!x",
    b"!z",
)


def kind_of(command: str) -> str:
    return next(kind for kind in ("pyspark.daemon", "java", *DOCUMENTED) if kind in command)


def ports_of(daemon: Daemon) -> Iterator[tuple[str, Listener]]:
    assert daemon.pid is not None
    for pid in session_members(daemon.pid):
        for found in listeners(pid):
            yield kind_of(Path(f"/proc/{pid}/cmdline").read_text()), found


def is_no_data(kind: str, said: bytes) -> bool:
    if SECRET.encode() in said or RECORD in said.lower():
        return False
    if kind == "pyspark.daemon":
        # The id of the process that was made for the connection, and an error with its length.
        return said[4:] in (b"", b"\0\0\0\x03err")
    return not said or said.startswith(NO_DATA)


def answer(connection: socket.socket) -> bytes:
    """Return what comes until the other end hangs up, or says nothing for a moment."""
    connection.settimeout(0.05)
    found = b""
    try:
        while some := connection.recv(65536):
            found += some
    except (TimeoutError, ConnectionError):
        pass
    return found


def test_stranger_at_any_port_gets_nothing_and_stops_nothing(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    section = (ROOT / "docs" / "security.md").read_text().partition("## Ports")[2]
    with ExitStack() as stack:
        job = stack.enter_context(
            engine(
                tmp_path,
                bootstrap_servers,
                f"ports_{os.getpid()}",
                PIPELINE,
                tm_number=1,
                parallelism=1,
                modules="[tests.user_code.frames]",
                python_path=f"[{ROOT}]",
                metrics_port=0,
                state_port=0,
                console_port=0,
                secrets="{variables: [SECRET]}",
            )
        )
        daemons = [
            job.start_job_manager(),
            job.start_task_manager(0, environment={"SECRET": SECRET}),
        ]
        job.wait_until(all_run([0]))
        job.write([(b"k", RECORD)])
        job.wait_until_done({job.config.sink_topic: 1})
        found = {place for daemon in daemons for place in ports_of(daemon)}
        counts = {kind: sum(each == kind for each, _ in found) for kind in DOCUMENTED}
        # Spark starts a daemon for the workers of each environment.
        assert counts.pop("pyspark.daemon") >= 1
        assert counts == {kind: len(DOCUMENTED[kind]) for kind in counts}, found
        assert all(name in section for names in DOCUMENTED.values() for name in names)
        assert all(listener.is_loopback for _, listener in found), found
        strangers = []
        for kind, listener in found:
            for what, message in MESSAGES.items():
                # Spark's accumulators serve one connection at a time.
                with suppress(TimeoutError):
                    stranger = socket.create_connection(("127.0.0.1", listener.port), 1)
                    strangers.append((kind, what, stack.enter_context(stranger)))
                    stranger.sendall(message)
        assert len(strangers) > len(found) * (len(MESSAGES) - 1)
        answers = [(kind, what, answer(stranger)) for kind, what, stranger in strangers]
        assert [each for each in answers if not is_no_data(each[0], each[2])] == []
        # All of these connections are still open.
        job.write([(b"k", RECORD)])
        job.wait_until_done({job.config.sink_topic: 2})
        assert all(daemon.exit_code is None for daemon in daemons)
