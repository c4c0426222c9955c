"""The quickstart's job, and what is right: each airport's flights counted exactly once, in order.

The expected output is derived from the input alone:

- The n-th flight to an airport with a known delay must give the record (airport, n), once, and in
  this order.
- A flight without a known delay must be a dead letter that says why.
- A cancelled flight must give nothing at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Column, Table
from rich.text import Text

from kafka_pipeline.admin.broker.ports import find_free
from kafka_pipeline.admin.quickstart import local_job
from kafka_pipeline.admin.quickstart.display import Display
from kafka_pipeline.admin.quickstart.flights import Flights, Outcome, fetch_flights, read_flights
from kafka_pipeline.admin.quickstart.local_job import LocalJob
from kafka_pipeline.admin.quickstart.local_run import CheckedRun, RunOptions, run_checked
from kafka_pipeline.admin.quickstart.verdict import Checked, compare
from kafka_pipeline.admin.samples import quickstart_pipeline
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.bulk import BulkWriter, read_committed

REASON_HEADER = "__streams.errors.message"
_TASK_MANAGERS = 2
_THREADS = 2
_BUSIEST = 8
_FLUSH_TIMEOUT_S = 30.0
_LOAD_S = 12.0
"""At full speed, the run would end in a second or two: too soon to watch it or kill anything."""

_CONFIG = """\
server_ip: "127.0.0.1"
server_port: {port}
job_name: "quickstart"
tm_number: {task_managers}
parallelism: 2
replication_factor: 1
source_topic: "flights"
sink_topic: "flights_by_airport"
heartbeat_interval_ms: 1000
console_port: {console_port}
"""
_RIGHT = (
    "RIGHT: exactly once and in order. Each airport's counts run from 1 to the number of its "
    "flights without a gap, a repetition or a swap, every flight without a known delay is a dead "
    "letter with its reason, and no cancelled one came through."
)


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record that was read back from a topic."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected output: each airport's highest count, and its number of dead letters."""

    counts: Counter[bytes]
    dead_letters: Counter[bytes]


def run(options: RunOptions, display: Display, signals: Signals) -> bool:
    """Run everything; return whether the results are right. See `run_checked`."""
    archive = fetch_flights()

    def prepare(folder: Path, port: int, _: Display) -> CheckedRun:
        return _prepare(folder, port, read_flights(archive))

    return run_checked("quickstart", prepare, options, display, signals)


def _prepare(folder: Path, port: int, flights: Flights) -> CheckedRun:
    config_file, pipeline_file = folder / "config.yaml", folder / "pipeline.yaml"
    (console_port,) = find_free(1)
    config_file.write_text(
        _CONFIG.format(port=port, task_managers=_TASK_MANAGERS, console_port=console_port)
    )
    airports_file = folder / "airports.csv"
    airports_file.write_bytes(flights.airports)
    pipeline_file.write_text(quickstart_pipeline().format(airports=airports_file))
    job = local_job.prepare(folder, config_file, pipeline_file, _THREADS)
    records = len(flights.records)
    return CheckedRun(
        job,
        {job.config.sink_topic: job.config.parallelism},
        to_load=records,
        to_arrive=expect(flights.outcomes).counts.total(),
        load=_PacedLoader(job.config, flights.records).load,
        check=lambda: _check(job, flights),
        begins=f"all tasks run; loading {records:,} flights over {_LOAD_S:.0f} s",
    )


class _PacedLoader:
    """Loads the source topic over `_LOAD_S` seconds."""

    def __init__(self, config: Config, records: Sequence[tuple[bytes, bytes]]) -> None:
        self._records = records
        self._writer = BulkWriter(config, config.source_topic)
        self._loaded = 0

    def load(self, elapsed_s: float) -> int:
        """Write the records that are due by now; return how many there are so far."""
        total = len(self._records)
        if self._loaded < total:
            due = min(int(total * elapsed_s / _LOAD_S), total)
            self._writer.write(self._records[self._loaded : due])
            self._loaded = due
            if due == total:
                self._writer.flush(_FLUSH_TIMEOUT_S)
        return self._loaded


def _check(job: LocalJob, flights: Flights) -> Checked:
    pipeline = job.pipeline
    dead = [topic for each in pipeline.processors if (topic := pipeline.dead_letter_topic(each))]
    outputs = list(_read(job.config, pipeline.names.sink))
    letters = [record for topic in dead for record in _read(job.config, topic)]
    cancelled = sum(delay is None for _, delay in flights.outcomes)
    busiest = Table(
        "airport",
        Column("flights counted", justify="right"),
        title="Busiest airports",
        title_justify="left",
    )
    for airport, count in expect(flights.outcomes).counts.most_common(_BUSIEST):
        busiest.add_row(Text(airport.decode()), f"{count:,}")
    return Checked(
        [
            ("flights in", f"{len(flights.records):,}", ""),
            ("results", f"{len(outputs):,}", "one for each flight with a known delay"),
            ("dead letters", f"{len(letters):,}", "one for each without"),
            ("left out", f"{cancelled:,}", "cancelled, as the query says"),
        ],
        busiest,
        judge(flights.outcomes, outputs, letters),
        _RIGHT,
    )


def _read(config: Config, topic: str) -> Iterator[OutRecord]:
    for batch in read_committed(config, topic, config.parallelism):
        for i, (key, value) in enumerate(zip(batch.keys, batch.values, strict=True)):
            headers = (batch.headers[i] or ()) if batch.headers else ()
            yield OutRecord(batch.partition, key, value, headers)


def expect(flights: Iterable[Outcome]) -> Expected:
    """Return the expected output for the flights."""
    counts: Counter[bytes] = Counter()
    dead_letters: Counter[bytes] = Counter()
    for airport, delay in flights:
        if delay is not None:
            (counts if delay else dead_letters)[airport] += 1
    return Expected(counts, dead_letters)


def judge(
    flights: Iterable[Outcome], outputs: Sequence[OutRecord], dead_letters: Iterable[OutRecord]
) -> list[str]:
    """Return what is wrong with the records of the sink and the dead-letter topic.

    `outputs` has the records of each partition in the partition's order.
    """
    expected = expect(flights)
    counts = compare(
        "outputs",
        ((record.key, record.value) for record in outputs),
        ((key, b"%d" % n) for key, size in expected.counts.items() for n in range(1, size + 1)),
    )
    letters = compare(
        "dead letters",
        ((record.key, record.value, _explained(record.headers)) for record in dead_letters),
        Counter({(key, b"", True): size for key, size in expected.dead_letters.items()}),
    )
    return [*counts.problems, *letters.problems, *_disorder(outputs)]


def _explained(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    return bool(dict(headers).get(REASON_HEADER))


def _disorder(outputs: Sequence[OutRecord]) -> list[str]:
    """Return which keys are in two partitions, and which have a count after a larger one."""
    homes: dict[bytes | None, int] = {}
    last: dict[bytes | None, bytes] = {}
    split, swapped = set[bytes | None](), set[bytes | None]()
    for record in outputs:
        key, value = record.key, record.value or b""
        before = last.get(key, b"")
        if homes.setdefault(key, record.partition) != record.partition:
            split.add(key)
        # Of decimal numbers, the longer one is the larger one.
        elif (len(value), value) < (len(before), before):
            swapped.add(key)
        last[key] = value
    kinds = {"in two partitions": split, "out of order": swapped}
    return [f"outputs {kind}: {sorted(map(str, keys))}" for kind, keys in kinds.items() if keys]
