"""Kafka Streams' side: a JVM that runs topologies through Kafka Streams' TopologyTestDriver."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.peers.streams_java import JavaProgram, build_program
from tests.differential.outcome import Outcome
from tests.differential.topologies import Input, Topology

_SOURCES = Path(__file__).parent / "java"
_MAIN = "KafkaStreamsRunner.java"
_END_TIMEOUT_S = 30
_MEMORY = Path("/dev/shm")
"""Where RocksDB opens its stores three times as fast as on a disk, on Linux."""


def compile_runner(folder: Path) -> JavaProgram:
    """Fetch the jars, if they are not there, and compile the runner into a folder.

    Raises `UnavailableError`, with the reason, if there is no JDK, or no network for the jars.
    """
    others = sorted(path for path in _SOURCES.glob("*.java") if path.name != _MAIN)
    return build_program([_SOURCES / _MAIN, *others], folder)


class JavaSide:
    """One JVM for many topologies; it starts in about a second."""

    def __init__(self, runner: JavaProgram, folder: Path, *, on_disk: bool = False) -> None:
        """Start; `folder` gets the log.

        Stores are in memory, unless `Topology.needs_disk` or `on_disk`: then they are in RocksDB,
        which takes several times as long.
        """
        self._on_disk = on_disk
        state_in = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self._state = tempfile.TemporaryDirectory(prefix="differential_", dir=state_in)
        # A small heap and the first compiler are faster for runs of a minute, and leave more to
        # others.
        options = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        self._log_file = folder / "kafka-streams.log"
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [*runner.command(*options), self._state.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def run(self, topology: Topology, runs: Sequence[Sequence[Input]]) -> list[Outcome]:
        """Return what comes of each run; each begins with empty state.

        Raises `RuntimeError` if the JVM ends.
        """
        request = {
            "steps": [step.to_json() for step in topology.steps],
            "optimized": topology.optimized,
            "on_disk": self._on_disk or topology.needs_disk,
            "runs": runs,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            log = self._log_file.read_text(errors="replace")
            raise RuntimeError(f"the JVM has ended:\n{log[-4000:]}")
        return [_outcome(found) for found in json.loads(answer)]

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._state.cleanup()

    def __enter__(self) -> JavaSide:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _outcome(answer: dict[str, Any]) -> Outcome:
    outputs = {
        topic: [(_key(key), value, timestamp) for key, value, timestamp in records]
        for topic, records in answer["outputs"].items()
    }
    return Outcome(outputs, answer["error"], answer["inputs"])


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
