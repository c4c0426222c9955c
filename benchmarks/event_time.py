"""How many records windows lose behind a repartition: `python -m benchmarks.event_time`.

A backlog has four partitions of the same hour. One is large and three are small, so the tasks that
read them go through the hour at unequal pace. All records are grouped by a field that is not their
key, and counted per minute, with a result when the minute is over and no grace period. The results
are compared with exact counts.

An engine whose windows follow the largest timestamp that has arrived drops what is in the large
partition, as soon as the small ones are finished. One that knows how far each partition is drops
nothing. The peers are Kafka Streams and Flink SQL, which are fetched on first use. All run exactly
once, on two processes with two threads each; Flink in one process with four.

The time is that from the start of the processes to the last result. It is not that of the same
work: dropping a record is less work than counting it, and Kafka Streams logs each one.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.bench import Bench, bench
from benchmarks.command import exit_after, say
from benchmarks.contender import Contender
from benchmarks.peers.bare_loop import producer_of
from benchmarks.peers.flink_sql import FlinkSql
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.this_engine import ThisEngine
from benchmarks.readings import PARTITIONS, MinuteCounts, Window, closing_readings, readings
from benchmarks.report import NO_FIGURE, aligned
from kafka_pipeline.admin.signals import Interrupted
from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.kafka.bulk import read_committed

SOURCE = "readings"
INSTANCES, THREADS = 2, 2
WRITE_TIMEOUT_S = 120
TITLES = ("", "records missing", "of", "windows wrong", "of", "repeated", "seconds")


@dataclass(frozen=True, slots=True)
class Variant:
    """A contender and its job."""

    contender: Contender
    kind: str


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for results."""

    quiet_s: float
    """A run is over when its input is consumed and no result has come for this long."""
    limit_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run."""

    counts: MinuteCounts
    seconds: float
    """From the start of the processes to the last result."""
    is_cut_short: bool
    """Whether results still came, or the input was not consumed, when time was up."""

    def cells(self) -> list[str]:
        """Return the cells of a table after the title."""
        counts = self.counts
        seconds = f"{self.seconds:.1f}" if counts.found else NO_FIGURE
        return [
            *(f"{counts.records_missing:,}", f"{counts.expected.total():,}"),
            *(f"{counts.wrong:,}", f"{len(counts.expected):,}"),
            *(f"{counts.repeated:,}", f"{seconds}, not over" if self.is_cut_short else seconds),
        ]


def variants() -> dict[str, Variant]:
    """Return all variants, by their names on the command line."""
    ours = {
        "topology": ("topology with group_by", "minute-counts"),
        "sql": ("sql with GROUP BY", "sql-minute-counts"),
        "sql-arc": ("two sql processors", "sql-arc-minute-counts"),
    }
    return {
        **{
            name: Variant(ThisEngine(f"this engine, {title}", parallelism=PARTITIONS), kind)
            for name, (title, kind) in ours.items()
        },
        "kafka-streams": Variant(KafkaStreams(), "minute-counts"),
        "flink": Variant(FlinkSql(), "minute-counts"),
    }


def write(stage: Bench, large: int, small: int) -> Counter[Window]:
    """Write the backlog, and return the exact counts of its windows."""
    stage.make_topic(SOURCE)
    # Without idempotence, a batch that is sent again would come after later ones.
    producer = producer_of(stage.servers, enable_idempotence=True)
    expected, written = Counter[Window](), 0
    for rows in (readings(large, small), closing_readings()):
        is_counted = not written
        for row in rows:
            while True:
                try:
                    producer.produce(
                        *(SOURCE, row.value, row.user, row.partition), timestamp=row.timestamp
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
            written += 1
            if is_counted:
                expected[row.window] += 1
    producer.flush(WRITE_TIMEOUT_S)
    if stage.written(SOURCE) != written:
        raise PipelineError("the broker has not taken each record once")
    require_order(stage)
    return expected


def require_order(stage: Bench) -> None:
    """Raise `PipelineError` if a record is older than one before it: all engines may drop those."""
    last = [0] * PARTITIONS
    for batch in read_committed(stage.config, SOURCE, PARTITIONS):
        times = [last[batch.partition], *batch.timestamps]
        if times != sorted(times):
            raise PipelineError(f"partition {batch.partition} is not in the order of time")
        last[batch.partition] = times[-1]


def measure(
    stage: Bench, variant: Variant, expected: Counter[Window], patience: Patience
) -> Outcome:
    """Run a variant over the backlog until no more results come."""
    counts = MinuteCounts(expected)
    backlog = stage.written(SOURCE)
    with (
        stage.run(
            variant.contender, variant.kind, SOURCE, instances=INSTANCES, threads=THREADS
        ) as run,
        run.sink(counts) as sink,
    ):
        began_s = last_s = moved_s = time.monotonic()
        consumed = stage.committed(run.start().group, SOURCE)
        is_consumed = is_cut_short = False
        while not (is_consumed and time.monotonic() - moved_s > patience.quiet_s):
            if time.monotonic() - began_s > patience.limit_s:
                is_cut_short = True
                break
            if sink.read():
                last_s = moved_s = time.monotonic()
            if not is_consumed and consumed() >= backlog:
                is_consumed, moved_s = True, time.monotonic()
            run.require_alive()
    return Outcome(counts, last_s - began_s, is_cut_short)


def compare(chosen: Mapping[str, Variant], arguments: argparse.Namespace) -> int:
    """Run the variants, print the table; return the exit code: 1 if a run failed."""
    patience = Patience(arguments.quiet_seconds, arguments.limit_seconds)
    rows: list[list[str]] = [list(TITLES)]
    exit_code = 0
    with bench(partitions=PARTITIONS) as stage:
        expected = write(stage, arguments.large, arguments.small)
        for variant in chosen.values():
            title = variant.contender.title
            try:
                variant.contender.prepare(stage.folder)
                cells = measure(stage, variant, expected, patience).cells()
            except PipelineError as error:
                exit_code = 1
                cells = [NO_FIGURE] * (len(TITLES) - 1)
                say(f"{title}: FAILED: {error}")
            except Interrupted as interrupt:
                exit_code = 128 + interrupt.number
                break
            rows.append([title, *cells])
            say(f"{title}: {', '.join(map(' '.join, zip(TITLES[1:], cells, strict=True)))}")
    print(
        f"{arguments.large:,} readings in a partition and {arguments.small:,} in each of "
        f"{PARTITIONS - 1} others, of the same hour\n\n{aligned(rows)}"
    )
    return exit_code


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    names = tuple(variants())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.event_time", description=__doc__.partition("\n")[0]
    )
    several = "may be given several times"
    parser.add_argument("--only", action="append", choices=names, help=several)
    parser.add_argument("--skip", action="append", choices=names, default=[], help=several)
    parser.add_argument(
        "--large", type=int, default=200_000, help="readings in the first partition"
    )
    parser.add_argument(
        "--small", type=int, default=8_000, help="readings in each of the other partitions"
    )
    parser.add_argument(
        "--quiet-seconds",
        type=float,
        default=20,
        help="how long no result may come, once the input is consumed, until a run is over",
    )
    parser.add_argument("--limit-seconds", type=float, default=600, help="of each run")
    return parser.parse_args(words)


def main() -> None:
    """Compare, and exit with 1 if a run failed."""
    arguments = parse()
    chosen = {
        name: variant
        for name, variant in variants().items()
        if name in (arguments.only or variants()) and name not in arguments.skip
    }
    exit_after(lambda: compare(chosen, arguments))


if __name__ == "__main__":
    main()
