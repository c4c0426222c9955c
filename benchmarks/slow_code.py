"""How much of its time a slow processor gets: `python -m benchmarks.slow_code`.

A class that sleeps for each record works off a backlog of two partitions on one PipelineThread. The
figure is the rate of results, exactly once, relative to the rate that the sleep allows. The same is
measured for an `AsyncProcessor`, whose limit is `max_in_flight` divided by the time of a call.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.topics import TopicSpec
from tests.engine import Engine, all_run, engine

ROOT = Path(__file__).parents[1]
TRANSACTION_TIMEOUT_MS = 15_000
PARTITIONS = 2


@dataclass(frozen=True)
class Case:
    """A class of tests/user_code/slow.py, and its time per record."""

    name: str
    code: str
    seconds: float
    backlog: int
    results: int
    """How many results to wait for."""
    limit: float
    """The records per second that the time per record allows."""


def cases(asynchronous_records: int) -> list[Case]:
    """Return the cases to measure."""
    slow = [(0.005, 40_000, 4000), (0.1, 4000, 200), (1.0, 400, 20), (20.0, 20, 5)]
    return [
        *(Case(f"sleep {s:g} s", "Slow", s, backlog, n, 1 / s) for s, backlog, n in slow),
        Case(
            "async 0.005 s",
            "SlowAsync",
            0.005,
            asynchronous_records,
            asynchronous_records,
            PARTITIONS * 100 / 0.005,
        ),
    ]


def measure(job: Engine, case: Case) -> float:
    """Return the results per second, counted from the first one; every result is checked."""
    source, sink = job.config.source_topic, job.config.sink_topic
    Admin(job.config).ensure_topics([TopicSpec(topic, PARTITIONS, 1) for topic in (source, sink)])
    job.write((b"%d" % (n % 1000), b"%d" % n) for n in range(case.backlog))
    job.start_job_manager()
    job.start_task_manager(0, threads=1)
    job.wait_until(all_run([0]))
    reader = PartitionReader(job.config, "slow_code")
    reader.assign({(sink, number): 0 for number in range(PARTITIONS)})
    seen: dict[bytes, list[int]] = {}
    total, first_s, first = 0, 0.0, 0
    while total < case.results:
        for batch in reader.fetch(10_000, 0.1).batches:
            for key, value in zip(batch.keys, batch.values, strict=True):
                seen.setdefault(key or b"", []).append(int(value or b""))
            total += len(batch)
            if not first_s:
                first_s, first = time.monotonic(), total
    taken_s = time.monotonic() - first_s
    reader.close()
    for key, numbers in seen.items():
        begin = int(key)
        expected = list(range(begin, begin + 1000 * len(numbers), 1000))
        assert numbers == expected, f"key {key!r}: {numbers[:20]}"
    return (total - first) / taken_s


def main() -> int:
    """Measure each case in a separate job."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="part of the name of the cases to measure", default="")
    parser.add_argument("--async-records", type=int, default=200_000)
    options = parser.parse_args()
    print(f"{'case':<16}{'records/s':>12}{'limit':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder, "kafka"))
        cluster.start()
        try:
            for number, case in enumerate(cases(options.async_records)):
                if options.only in case.name:
                    home = Path(folder, f"job_{number}")
                    home.mkdir()
                    rate = run(home, cluster.bootstrap_servers, f"slow_{number}", case)
                    ratio = rate / case.limit
                    print(f"{case.name:<16}{rate:>12.2f}{case.limit:>12.2f}{ratio:>8.2f}")
                    sys.stdout.flush()
        finally:
            cluster.stop()
    return 0


def run(home: Path, servers: str, job_name: str, case: Case) -> float:
    """Measure a case in a separate job."""
    pipeline = (
        f"- {{id: Slow, type: 'tests.user_code.slow:{case.code}', to: [sink], "
        f"config: {{seconds: {case.seconds}}}}}\n"
    )
    settings = {
        "modules": "[tests.user_code.slow]",
        "python_path": f"[{ROOT}]",
        "tm_number": 1,
        "parallelism": PARTITIONS,
        "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
    }
    with engine(home, servers, job_name, pipeline, **settings) as job:
        return measure(job, case)


if __name__ == "__main__":
    sys.exit(main())
