"""Latency next to other processors: `python -m benchmarks.neighbours`.

A writer sends records at a fixed rate, with the time in their values, and a `read_committed` reader
takes the time when they arrive at the sink. In most cases, a class that does nothing runs on one
PipelineThread with classes that sleep for each record and fall behind. Each is one task, and the
p99 of the first should stay below two time budgets of a turn plus one slow record. An
`AsyncProcessor` whose calls take 5 ms should wait for none of them, nor should the class for a
query: `--warm-up-seconds 0` includes the query's first batch. In the last case, 20 processors read
the same source, and every result of each of them counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.steady_writer import stamped, steady_writer
from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.taskmanager.pipeline_thread import MOST_TURN_MS
from tests.engine import Engine, all_run, engine

ROOT = Path(__file__).parents[1]
SIDE_BY_SIDE = 20
_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline whose results in the sink are all measured."""

    name: str
    pipeline: str
    rate: int
    results_per_record: int
    threads: int
    partitions: int
    limit_ms: float


_FAST = "- {id: Fast, type: 'tests.user_code.slow:Slow', to: [sink], config: {seconds: 0.0}}\n"
_CALLS = "- {id: C, type: 'tests.user_code.slow:SlowAsync', to: [sink], config: {seconds: 0.005}}\n"
_QUERY = (
    "- {id: Query, type: sql, to: [sink], "
    "query: 'SELECT key, value FROM input WHERE key = value'}\n"
)


def _sleepers(count: int, seconds: float) -> str:
    return "".join(
        f"- {{id: S{number}, type: 'benchmarks.counting:Sleeping', to: [sink], "
        f"config: {{seconds: {seconds}}}}}\n"
        for number in range(count)
    )


def _next_to(count: int, seconds: float) -> Case:
    limit_ms = 2 * MOST_TURN_MS + 1000 * seconds
    name = f"next to {count} x {1000 * seconds:g} ms"
    return Case(name, _FAST + _sleepers(count, seconds), 250, 1, 1, 1, limit_ms)


def cases() -> list[Case]:
    """Return the cases to measure."""
    twenty = "".join(f"- {{id: F{n}, type: forward, to: [sink]}}\n" for n in range(SIDE_BY_SIDE))
    return [
        _next_to(1, 0.005),
        _next_to(1, 0.1),
        _next_to(1, 1.0),
        _next_to(4, 0.1),
        Case("calls next to 4 x 100 ms", _CALLS + _sleepers(4, 0.1), 250, 1, 1, 1, 150),
        Case("next to a query", _FAST + _QUERY, 250, 1, 1, 1, 250),
        Case(f"{SIDE_BY_SIDE} on one source", twenty, 100, SIDE_BY_SIDE, 2, 2, 150),
    ]


def measure(job: Engine, case: Case, warm_up_s: float, seconds: float) -> tuple[float, float]:
    """Return p50 and p99 in ms."""
    source, sink = job.config.source_topic, job.config.sink_topic
    Admin(job.config).ensure_topics(
        [TopicSpec(topic, case.partitions, 1) for topic in (source, sink)]
    )
    job.start_job_manager()
    job.start_task_manager(0, threads=case.threads)
    job.wait_until(all_run([0]))
    reader = PartitionReader(job.config, "neighbours")
    reader.assign({(sink, number): 0 for number in range(case.partitions)})
    latencies_ms: list[float] = []
    with steady_writer(job.config.bootstrap_servers, source, 0, case.rate, stamped) as writer:
        warm_s = time.monotonic() + warm_up_s
        while time.monotonic() < warm_s + seconds:
            batches = reader.fetch(10_000, _WAIT_S).batches
            now_ms = time.time() * 1000
            if time.monotonic() >= warm_s:
                values = [int(value or 0) for batch in batches for value in batch.values]
                latencies_ms += [now_ms - value / 1000 for value in values]
        writer.stop()
    reader.close()
    expected = case.rate * seconds * case.results_per_record
    assert len(latencies_ms) > 0.9 * expected, f"{len(latencies_ms)} results, not {expected}"
    p50, p99 = np.percentile(latencies_ms, (50, 99))
    return float(p50), float(p99)


def main(words: Sequence[str] | None = None) -> None:
    """Measure each case in a separate job and print its figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbours", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", help="part of the name of the cases to measure", default="")
    parser.add_argument("--warm-up-seconds", type=float, default=15)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args(words)
    print(f"{'case':<26}{'p50 ms':>10}{'p99 ms':>10}{'limit ms':>10}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder, "kafka"))
        cluster.start()
        try:
            for number, case in enumerate(cases()):
                if arguments.only not in case.name:
                    continue
                home = Path(folder, f"job_{number}")
                home.mkdir()
                settings = {
                    "modules": "[tests.user_code.slow, benchmarks.counting]",
                    "python_path": f"[{ROOT}]",
                    "tm_number": 1,
                    "parallelism": case.partitions,
                }
                name, servers = f"neighbours_{number}", cluster.bootstrap_servers
                with engine(home, servers, name, case.pipeline, **settings) as job:
                    p50, p99 = measure(job, case, arguments.warm_up_seconds, arguments.seconds)
                print(f"{case.name:<26}{p50:>10.1f}{p99:>10.1f}{case.limit_ms:>10.0f}", flush=True)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
