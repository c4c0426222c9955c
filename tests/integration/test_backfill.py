"""Backfills on a real Spark, and from a real Kafka into it."""

from __future__ import annotations

import io
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kafka_pipeline.common import record_batch
from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.bulk import read_committed
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.streams.backfill import kafka
from kafka_pipeline.streams.backfill.plan import BackfillPlan, make_plan
from kafka_pipeline.streams.backfill.run import default_work, run_backfill
from kafka_pipeline.streams.partitioning import default_partition
from tests.history import Here, History, Interrupted, Row, backfill_command
from tests.tasks import Job, Record
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

TIMEOUT_S = 240
ON_SPARK = """
- id: Query
  type: sql
  query: SELECT key, concat(value, '!') AS value FROM input WHERE value NOT LIKE '%7'
  to: [Gate]
- {{id: Gate, type: "tests.user_code.history:Gate", to: [Counter], config: {{file: "{gate}"}}}}
- {{id: Counter, type: count, to: [sink]}}
"""


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, "the backfill has ended"
        assert time.monotonic() < deadline_s, "nothing happens"
        time.sleep(0.01)


@pytest.mark.long
def test_a_backfill_that_is_killed_goes_on_with_what_is_not_done(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    history = History(tmp_path / "job", ON_SPARK.format(gate=gate), 2)
    rows: list[Row] = [(b"k%d" % (n % 50), b"%d" % n, 1_000 + n, []) for n in range(20_000)]
    history.write(rows, per_group=5_000)
    work = tmp_path / "job" / "results.backfill"
    process = subprocess.Popen(backfill_command(history))
    try:
        wait_for(lambda: any(work.glob("stage-Gate/*.unfinished-*")), process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = sorted(work.glob("stage-Query/*/figures.json"))
    assert len(done) == 2
    # If the query ran again, it would find this.
    for path in done:
        path.write_text(path.read_text().replace('"skipped": 0', '"skipped": 1'))
    gate.touch()
    again = subprocess.run(
        backfill_command(history), check=True, timeout=TIMEOUT_S, stdout=subprocess.PIPE, text=True
    )
    assert "2 skipped" in again.stdout
    assert sorted(row for found in history.results("out") for row in found) == counted(rows)
    for number, found in enumerate(history.results("out")):
        assert {default_partition(key or b"", 2) for key, *_ in found} == {number}
        assert [time for _, _, time, _ in found] == sorted(time for _, _, time, _ in found)


def counted(rows: list[Row]) -> list[Row]:
    """Return what `ON_SPARK` makes of rows, sorted."""
    counts: Counter[bytes | None] = Counter()
    expected: list[Row] = []
    for key, value, timestamp, _ in rows:
        if not (value or b"").endswith(b"7"):
            counts[key] += 1
            expected.append((key, b"%d" % counts[key], timestamp, []))
    return sorted(expected)


COUNT_JOB = """
server_ip: {config.server_ip}
server_port: {config.server_port}
job_name: {config.job_name}
tm_number: 1
parallelism: 2
replication_factor: 1
source_topic: in
sink_topic: out
state_dir: "{config.state_dir}"
"""


@pytest.fixture
def plan(job: Job, tmp_path: Path) -> Callable[[str], BackfillPlan]:
    """Make plans that count the records of the job's source, or a part of it, into its sink."""
    config, pipeline = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(COUNT_JOB.format(config=job.config))
    pipeline.write_text("- {id: P, type: count, to: [sink], on_error: dead_letter}\n")

    def make(limits: str) -> BackfillPlan:
        source = f"topic:{job.config.source_topic}{limits}"
        return make_plan(config, pipeline, [source], f"topic:{job.config.sink_topic}")

    return make


def run(plan: BackfillPlan) -> None:
    run_backfill(plan, default_work(plan), Console(file=io.StringIO()), Here().start)


def sink(job: Job) -> list[list[tuple[bytes | None, bytes | None, int]]]:
    """Return keys, values and timestamps of both partitions of the sink."""
    found: list[list[tuple[bytes | None, bytes | None, int]]] = [[], []]
    for batch in read_committed(job.config, job.config.sink_topic, 2):
        found[batch.partition] += zip(batch.keys, batch.values, batch.timestamps, strict=True)
    return found


@pytest.mark.parametrize("commits", long_but_the_first([0, 1, 3, 4], 2))
def test_records_are_written_once_though_a_writer_is_lost_around_a_commit(
    job: Job, plan: Callable[[str], BackfillPlan], monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    job.write(*(Record(b"k%d" % (n % 5), b"", 1_000 - n, partition=n % 2) for n in range(100)))
    # Six to eight records: values are one or two bytes, keys two.
    monkeypatch.setattr(kafka, "_RECORDS_PER_TRANSACTION", 8)
    monkeypatch.setattr(record_batch, "_MOST_BYTES", 20)
    commit = TaskProducer.commit
    calls: list[int] = []

    committed = PartitionReader.committed

    def cut_off(
        self: PartitionReader, wanted: list[Partition], timeout_s: float, *proof: Partition
    ) -> dict[Partition, Committed]:
        return committed(self, wanted, timeout_s, *proof) if proof else {}

    def lost(self: TaskProducer, *arguments: object) -> object:
        calls.append(1)
        if len(calls) == commits + 1:
            if commits % 2:
                commit(self, *arguments)  # type: ignore[arg-type]
                raise TransactionFailedError("it is not known whether it was committed")
            raise Interrupted
        return commit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TaskProducer, "commit", lost)
    # A coordinator that is cut off knows of no commit.
    monkeypatch.setattr(PartitionReader, "committed", cut_off)
    made = plan("")
    if commits % 2 == 0:
        with pytest.raises(Interrupted):
            run(made)
    run(made)
    run(plan(""))  # is done: writes nothing
    found = sink(job)
    # A key is in one partition of the sink, and was counted in each of the source on its own.
    expected = sorted((b"k%d" % k, b"%d" % n) for k in range(5) for n in range(1, 11) for _ in "ab")
    assert sorted(row[:2] for rows in found for row in rows) == expected
    for number, rows in enumerate(found):
        assert {default_partition(key or b"", 2) for key, *_ in rows} <= {number}


@pytest.mark.parametrize(
    ("limits", "offsets"),
    long_but_the_first(
        [
            ("@..", range(10)),
            ("@3..7", range(3, 7)),
            ("@..1970-01-01T00:00:05+00:00", range(5)),
            ("@1970-01-01T00:00:08..99", range(8, 10)),
            ("@2020-01-01..", range(0)),
        ],
        2,
    ),
)
def test_a_part_of_a_topic_is_read(
    job: Job, plan: Callable[[str], BackfillPlan], limits: str, offsets: range
) -> None:
    times = [1_000 * n or 1 for n in range(10)]
    job.write(*(Record(b"k", b"", time, partition=0) for time in times))
    run(plan(limits))
    rows = sorted(sink(job))[-1]
    assert [time for *_, time in rows] == [times[offset] for offset in offsets]
