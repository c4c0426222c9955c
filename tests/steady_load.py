"""Records that flow while a test changes a job, and the counts that must come of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafka_pipeline.common.kafka.bulk import Row
from tests.engine import Engine

KEYS = 20
TIMEOUT_S = 60.0


class Writer:
    """Writes numbered records of each key, until it is told to stop."""

    def __init__(self, job: Engine, time_of: Callable[[int], int] | None = None) -> None:
        """`time_of` gives the timestamp of a round; by default, Kafka does."""
        self._job = job
        self._time_of = time_of
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def go_on(self, rounds: int) -> None:
        """Wait until it has written so many rounds more."""
        wanted, deadline_s = self.rounds + rounds, time.monotonic() + TIMEOUT_S
        while self.rounds < wanted:
            assert self._thread.is_alive(), "it has failed"
            assert time.monotonic() < deadline_s, f"{self.rounds} rounds instead of {wanted}"
            time.sleep(0.01)

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            if self._time_of is None:
                rows: list[Row] = [(b"k%d" % key, b"%d" % self.rounds) for key in range(KEYS)]
                self._job.write(rows)
                self.rounds += 1
            else:
                self.write_round(self._time_of(self.rounds))

    def write_round(self, time_ms: int) -> None:
        """Write the next number of each key with a timestamp."""
        self._job.write_at((b"k%d" % key, b"%d" % self.rounds, time_ms) for key in range(KEYS))
        self.rounds += 1


def check_counts(job: Engine, rounds: int) -> None:
    """Assert that the sink has the counts 1..n of every key, in order."""
    sink = job.config.sink_topic
    job.wait_until_done({sink: rounds * KEYS})
    counts: dict[bytes | None, list[int]] = {}
    for key, value in job.read(sink):
        counts.setdefault(key, []).append(int(value or b"0"))
    expected = list(range(1, rounds + 1))
    assert counts == {b"k%d" % key: expected for key in range(KEYS)}
