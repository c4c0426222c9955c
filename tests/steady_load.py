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

    def __init__(
        self, job: Engine, time_of: Callable[[int], int] | None = None, rounds: int = 0
    ) -> None:
        """`time_of` gives the timestamp of a round; by default, Kafka does.

        Another writer has written `rounds` before.
        """
        self._job = job
        self._time_of = time_of
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rounds = rounds

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
    expected = list(range(1, rounds + 1))
    assert counts_by_key(job) == {b"k%d" % key: expected for key in range(KEYS)}


def counts_by_key(job: Engine) -> dict[bytes | None, list[int]]:
    """Return what the sink has of each key, in order."""
    found: dict[bytes | None, list[int]] = {}
    for key, value in job.read(job.config.sink_topic):
        found.setdefault(key, []).append(int(value or b"0"))
    return found


def wait_for_counts(job: Engine, before: int, last: int) -> None:
    """Wait until each key has counts that go on from a savepoint, after so many from `before`."""
    deadline_s = time.monotonic() + 60
    while True:
        new = [counts[before:] for counts in counts_by_key(job).values()]
        if len(new) == KEYS and all(counts and counts[-1] == last for counts in new):
            break
        assert time.monotonic() < deadline_s, f"{new}\n{job.logs()}"
        time.sleep(0.2)
    for counts in new:
        assert counts == list(range(counts[0], last + 1))
        assert counts[0] > 1
