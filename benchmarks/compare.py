"""This engine against its peers, in one run: `python -m benchmarks.compare [--workload W]…`.

Each round runs every contender once, one after the other on the same broker, and compares every
output with a model. The tables show medians and ranges over the rounds, and the ratio of our median
to that of each contender: machines differ and are noisy, but ratios within one run carry over. The
software of a peer is fetched on first use. docs/performance.md explains the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import plan
from benchmarks.bench import Bench, bench
from benchmarks.command import exit_after, positive, say
from benchmarks.contender import Contender
from benchmarks.dsl_jobs import RIGHT, TABLE
from benchmarks.peers.bare import BareLoop
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.quix import QuixStreams
from benchmarks.peers.this_engine import ThisEngine
from benchmarks.plan import Entry, Group
from benchmarks.records import rows, table_rows
from benchmarks.report import COLUMNS, Row, Table, as_json, as_text
from benchmarks.runs import failover, latency, rebuild, throughput
from kafka_pipeline.admin.broker.jars import KAFKA_VERSION
from kafka_pipeline.admin.signals import Interrupted
from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.process.java import find_java

NONE = "none"
BACKLOG = "backlog"
LABELS = {"cached-count": "cached", "filter-map-columns": "by column expressions"}
"""The suffix that distinguishes a second row of the same contender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes and durations of the measurements."""

    records: int
    warm_up_records: int
    state_records: int
    seconds: float
    warm_up_s: float


@dataclass(slots=True)
class Comparison:
    """The contenders, and their measurements so far."""

    bench: Bench
    contenders: Mapping[str, Contender]
    sizes: Sizes
    figures: defaultdict[Entry, list[dict[str, float]]]
    failures: list[str]

    def run(self, planned: Sequence[Group], rounds: int) -> None:
        """Write the input that the throughput runs share; run every contender once per round."""
        entries = plan.distinct(planned)
        if any(entry.measurement == "throughput" for entry in entries):
            self.bench.make_topic(BACKLOG)
            total = self.sizes.warm_up_records + self.sizes.records
            # Tasks process the oldest records first: the table is older than the backlog.
            self._write_others({entry.kind for entry in entries}, total)
            self.bench.write(BACKLOG, rows(0, total))
        for number in range(rounds):
            self._run_round(number, entries)

    def _write_others(self, kinds: Set[str], total: int) -> None:
        """Write the topics that joins read in addition to the backlog."""
        if not kinds.isdisjoint(("stream-table", "sql-stream-table", "foreign-key", "table-table")):
            self.bench.make_topic(TABLE)
            self.bench.write(TABLE, table_rows())
        if not kinds.isdisjoint(("stream-stream", "cogroup")):
            self.bench.make_topic(RIGHT)
            self.bench.write(RIGHT, rows(0, total))

    def _run_round(self, number: int, entries: Sequence[Entry]) -> None:
        """Run every contender once, and report each on stderr as it ends."""
        for entry in plan.order_of(entries, number):
            load = os.getloadavg()[0]
            said = f"round {number + 1}, {self.title(entry)}, {entry.measurement} {entry.kind}"
            try:
                figures = self._measure(entry)
            except PipelineError as error:
                self.failures.append(f"{said}: {error}")
                say(f"{said}: FAILED: {error}")
                continue
            self.figures[entry].append(
                {**figures, "load_before": load, "load_after": os.getloadavg()[0]}
            )
            first = COLUMNS[entry.measurement][0]
            value = f"{figures[first.figure]:,.{first.decimals}f} {first.title}"
            say(f"{said}: {value}, load {load:.1f} before")

    def table(self, group: Group) -> Table:
        """Return the figures of a workload."""
        found = [Row(self.title(entry), self.figures[entry]) for entry in group.entries]
        return Table(f"{group.title}: {self._describe(group)}", group.measurement, found)

    def title(self, entry: Entry) -> str:
        """Return a contender's name in tables."""
        title = self.contenders[entry.contender].title
        return f"{title}, {LABELS[entry.kind]}" if entry.kind in LABELS else title

    def _measure(self, entry: Entry) -> dict[str, float]:
        contender, sizes = self.contenders[entry.contender], self.sizes
        match entry.measurement:
            case "throughput":
                return throughput.measure(
                    self.bench,
                    contender,
                    entry.kind,
                    BACKLOG,
                    sizes.warm_up_records,
                    sizes.records,
                )
            case "latency":
                return latency.measure(
                    self.bench, contender, entry.kind, entry.rate, sizes.warm_up_s, sizes.seconds
                )
            case "restore":
                return rebuild.measure(self.bench, contender, sizes.state_records)
            case "failover":
                return failover.measure(self.bench, contender)
        raise AssertionError(entry.measurement)

    def _describe(self, group: Group) -> str:
        sizes = self.sizes
        return {
            "throughput": (
                f"{sizes.records:,} records after {sizes.warm_up_records:,} of warm-up, "
                "2 partitions, 2 threads"
            ),
            "latency": f"{sizes.seconds:.0f} s after {sizes.warm_up_s:.0f} s of warm-up, 2 threads",
            "restore": f"{sizes.state_records:,} counts in 2 partitions, 2 threads",
            "failover": (
                f"one of 2 instances killed at {failover.RATE:,} records/s, a partition each"
            ),
        }[group.measurement]


def contenders_of(entries: Sequence[Entry]) -> dict[str, Contender]:
    """Return the contenders that take part, by their names in the plan."""
    known: dict[str, Contender] = {
        plan.OURS: ThisEngine(),
        plan.KAFKA_STREAMS: KafkaStreams(),
        plan.QUIX: QuixStreams(),
        plan.AT_LEAST_ONCE: BareLoop(plan.AT_LEAST_ONCE),
        plan.TRANSACTIONAL: BareLoop(plan.TRANSACTIONAL),
    }
    return {entry.contender: known[entry.contender] for entry in entries}


def machine() -> dict[str, Any]:
    """Return the properties of the machine on which the figures depend."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "processor": model,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "java": find_java().version,
        "broker": f"Kafka {KAFKA_VERSION}",
        "load": os.getloadavg(),
    }


def compare(arguments: argparse.Namespace) -> int:
    """Measure and report; return the exit code: 1 if a run failed.

    If interrupted, report the runs that are complete, since a comparison takes hours.
    """
    peers = [] if NONE in arguments.peer else arguments.peer
    planned = list(plan.groups(arguments.workload, peers))
    contenders = contenders_of(plan.distinct(planned))
    sizes = Sizes(
        records=arguments.records,
        warm_up_records=arguments.warm_up_records,
        state_records=arguments.state_records,
        seconds=arguments.seconds,
        warm_up_s=arguments.warm_up_seconds,
    )
    before, started_s = machine(), time.monotonic()
    exit_code = 0
    with bench() as stage:
        for contender in contenders.values():
            contender.prepare(stage.folder)
        comparison = Comparison(stage, contenders, sizes, defaultdict(list), [])
        try:
            comparison.run(planned, arguments.rounds)
        except Interrupted as interrupt:
            exit_code = 128 + interrupt.number
    tables = [comparison.table(group) for group in planned]
    everything = {
        "machine": before,
        "arguments": {key: value for key, value in vars(arguments).items() if key != "json"},
        "seconds": round(time.monotonic() - started_s),
        "tables": [as_json(table) for table in tables],
        "failures": comparison.failures,
    }
    if arguments.json == "-":
        print(json.dumps(everything, indent=1))
    else:
        print("\n\n".join(as_text(table) for table in tables))
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(everything, indent=1) + "\n")
    return exit_code or (1 if comparison.failures else 0)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--peer",
        action="append",
        choices=(*plan.PEERS, NONE),
        help="may be given several times; all by default, `none` for this engine alone",
    )
    parser.add_argument(
        "--workload",
        action="append",
        choices=plan.WORKLOADS,
        help=f"may be given several times; by default {', '.join(plan.COMPARED)}",
    )
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--records", type=positive, default=6_000_000, help="of throughput")
    parser.add_argument(
        "--warm-up-records", type=positive, default=2_000_000, help="before those measured"
    )
    parser.add_argument(
        "--seconds", type=positive, default=20, help="of latency, at each of its rates"
    )
    parser.add_argument("--warm-up-seconds", type=positive, default=30, help="before those")
    parser.add_argument("--state-records", type=positive, default=2_000_000, help="of restore")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write all figures as JSON to a file; without one, to stdout instead of the tables",
    )
    arguments = parser.parse_args(words)
    arguments.peer = arguments.peer or list(plan.PEERS)
    arguments.workload = arguments.workload or list(plan.COMPARED)
    return arguments


def main() -> None:
    """Compare, and exit with 1 if a run failed."""
    arguments = parse()
    exit_after(lambda: compare(arguments))


if __name__ == "__main__":
    main()
