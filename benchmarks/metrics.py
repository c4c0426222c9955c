"""What metrics cost: `python -m benchmarks.metrics`.

The same backlog is worked off without metrics, and with both daemons being scraped once a second,
in turns on one broker. Each round begins with the other one, since the first run of a round may be
slower. Compare the medians.
"""

from __future__ import annotations

import argparse
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median

from benchmarks.bench import Bench, bench
from benchmarks.contender import Job, Running
from benchmarks.peers.this_engine import ThisEngine
from benchmarks.records import rows
from benchmarks.runs import throughput

BACKLOG = "backlog"
SCRAPE_S = 1.0
"""Prometheus usually waits for 15 s."""
OFF, ON = "without", "with"
_PORT = re.compile(r"metrics are shown.*port=(\d+)")


class Scraped(ThisEngine):
    """The engine with metrics, which somebody reads all the time."""

    def __init__(self) -> None:
        super().__init__(ON, metrics_port=0)
        self.bytes_read = 0
        self.scrapes = 0
        self._logs: Sequence[Path] = ()

    def start(self, job: Job) -> Running:
        """Start the daemons, whose logs say where their metrics are."""
        running = super().start(job)
        self._logs = [daemon.log_file for daemon in running.daemons]
        return running

    @contextmanager
    def scraping(self) -> Iterator[None]:
        """Read the metrics of all daemons once a second."""
        done = threading.Event()

        def scrape() -> None:
            while not done.wait(SCRAPE_S):
                for log in self._logs:
                    with suppress(OSError, HTTPException):  # it starts, or has ended
                        self._read(log)

        thread = threading.Thread(target=scrape, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _read(self, log: Path) -> None:
        found = _PORT.search(re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace")))
        if found is None:
            return
        connection = HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
        connection.request("GET", "/metrics")
        self.bytes_read += len(connection.getresponse().read())
        self.scrapes += 1
        connection.close()


def measure(
    made: Bench, kind: str, rounds: int, warm_up: int, records: int
) -> dict[str, list[dict[str, float]]]:
    """Print the figures of each run, and return them."""
    scraped, plain = Scraped(), ThisEngine(OFF)
    made.make_topic(BACKLOG)
    made.write(BACKLOG, rows(0, warm_up + records))
    runs: dict[str, list[dict[str, float]]] = {OFF: [], ON: []}
    print(f"{'metrics':<10}{'records/s':>12}{'CPU s per million':>20}", flush=True)
    for number in range(rounds):
        for contender in (plain, scraped) if number % 2 == 0 else (scraped, plain):
            with scraped.scraping():
                found = throughput.measure(made, contender, kind, BACKLOG, warm_up, records)
            runs[contender.title].append(found)
            rate, cpu_s = found["records_per_s"], found["cpu_s_per_million"]
            print(f"{contender.title:<10}{rate:>12,.0f}{cpu_s:>20.3f}", flush=True)
    assert scraped.scrapes, "the metrics were never read"
    size = scraped.bytes_read / scraped.scrapes
    print(f"{scraped.scrapes} pages were read, of {size:,.0f} bytes each")
    return runs


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print the medians and their ratios."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.metrics", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workload", choices=("forward", "count"), default="forward")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--warm-up-records", type=int, default=2_000_000)
    arguments = parser.parse_args(words)
    with bench() as made:
        runs = measure(
            made,
            arguments.workload,
            arguments.rounds,
            arguments.warm_up_records,
            arguments.records,
        )
    for figure in ("records_per_s", "cpu_s_per_million"):
        off, on = (median(run[figure] for run in runs[which]) for which in (OFF, ON))
        print(f"median {figure}: {off:,.3f} {OFF}, {on:,.3f} {ON}; {on / off:.3f}")


if __name__ == "__main__":
    main()
