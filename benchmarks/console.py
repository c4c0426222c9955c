"""What the console costs the JobManager: 500 tasks, a heartbeat per second, one open browser.

The heartbeats are made up; codec, console and browser are real. The target is less than 5 % of a
core, and less than 200 ms for a view.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import time
from collections import deque
from contextlib import closing
from urllib.parse import urlsplit

from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.console.server import ConsoleServer
from kafka_pipeline.console.views.snapshot import Snapshot
from kafka_pipeline.console.views.views import VIEWS
from tests.browser import browser, open_page
from tests.console_job import FakeJob
from tests.console_sample import SampleJob, config, many_processors

PAGES = ("graph", "tasks", "lag", "transactions", "moves", "letters", "history", "graph/Step01")
PROCESSORS, PARALLELISM, TASK_MANAGERS = 20, 25, 5
LOOKS = 10
_HISTORY = 120
_LEAST_BEATS = 200


class Meter:
    """A job whose heartbeats are made before, and the CPU time of the thread that reads them."""

    def __init__(self, beats: int) -> None:
        self.config = config(TASK_MANAGERS, PARALLELISM)
        self.job = SampleJob(self.config, many_processors(PROCESSORS))
        self._beats: deque[tuple[int, list[tuple[ControlRecord, int]]]] = deque()
        for _ in range(beats):
            self.job.beat()
            self._beats.append((self.job.now_ms, self.job.tap.take()))
        self.cpu_s = 0.0

    def next_snapshot(self) -> Snapshot:
        """Return the next snapshot; the console's thread calls this once per second."""
        now_ms, records = self._beats.popleft()
        for record, received_ms in records:
            self.job.tap.put(record, received_ms)
        found = self.job.board.next_snapshot(now_ms)
        self.cpu_s = time.thread_time()
        return found


def share(meter: Meter, seconds: float) -> float:
    """Return the share of a core that the console's thread takes, in percent."""
    first_s, started_s = meter.cpu_s, time.monotonic()
    time.sleep(seconds)
    return 100 * (meter.cpu_s - first_s) / (time.monotonic() - started_s)


def view_ms(address: str, view: str) -> tuple[float, float, int]:
    """Return the median and the largest time of a view in ms, and its size in bytes.

    Each look is at another snapshot, so that nothing is encoded yet.
    """
    times, size = [], 0
    for _ in range(LOOKS):
        time.sleep(1)
        with closing(http.client.HTTPConnection(urlsplit(address).netloc)) as connection:
            started_s = time.monotonic()
            connection.request("GET", f"/api/{view}")
            size = len(connection.getresponse().read())
            times.append(1000 * (time.monotonic() - started_s))
    return statistics.median(times), max(times), size


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="how long each page is open")
    seconds = parser.parse_args().seconds
    meter = Meter(_HISTORY + int(_LEAST_BEATS + 2 * seconds * (len(PAGES) + 1)))
    for _ in range(_HISTORY):
        meter.next_snapshot()
    server = ConsoleServer(meter.config, meter.next_snapshot, FakeJob())
    server.start()
    time.sleep(2.5)
    try:
        tasks = len(meter.job.tasks)
        print(f"{tasks} tasks of {PROCESSORS} processors on {TASK_MANAGERS} TaskManagers")
        print(f"nobody looks         {share(meter, seconds):5.1f} % of a core")
        with browser() as chromium:
            for page in PAGES:
                with open_page(chromium, f"{server.address}#/{page}"):
                    time.sleep(2)
                    print(f"page {page:15} {share(meter, seconds):5.1f} % of a core")
        for view in (*VIEWS, "processors/Step01"):
            median, most, size = view_ms(server.address, view)
            print(f"{view:20} {median:6.1f} ms, {most:6.1f} ms at most, {size:9,} bytes")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
