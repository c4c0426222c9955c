"""Latency of one hop at a fixed rate: `python -m benchmarks.latency [forward|sql]`.

A writer outside of the engine stamps each record with the time, a `read_committed` reader
outside of it looks at the clock when the record arrives at the sink: so the figure has the
writer's send, the engine's transaction and the reader's fetch in it, all on one machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from admin.local_broker import LocalCluster
from common.kafka.data import PartitionReader
from tests.engine import Engine, all_run, engine

PIPELINES = {
    "forward": "- {id: Stage, type: forward, to: [sink]}\n",
    "sql": """
- {id: Stage, type: sql, query: "SELECT key, value FROM input WHERE length(value) > 0", to: [sink]}
""",
}
WARM_UP_S = 15
STALL_S = 30


def write(servers: str, topic: str, rate: int, seconds: float) -> None:
    """Write `rate` records a second, each with the time in nanoseconds as its value."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 0, "partitioner": "murmur2_random"}
    )
    started = time.perf_counter()
    for number in range(int(rate * seconds)):
        wait_s = started + number / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        producer.produce(topic, b"%d" % time.time_ns(), b"%d" % (number % 1000))
        producer.poll(0)
    producer.flush()


def measure(
    job: Engine, servers: str, rate: int, seconds: float
) -> tuple[list[float], list[float]]:
    """Return the latencies in ms of all records of the warm-up and of all after it, sorted."""
    job.start_job_manager()
    job.start_task_manager(0, threads=2)
    job.wait_until(all_run([0]))
    sink = job.config.sink_topic
    reader = PartitionReader(job.config, "latency")
    reader.assign({(sink, 0): 0, (sink, 1): 0})
    total = WARM_UP_S + seconds
    writer = threading.Thread(target=write, args=(servers, job.config.source_topic, rate, total))
    writer.start()
    cold: list[float] = []
    warm: list[float] = []
    began = time.time_ns() + WARM_UP_S * 1_000_000_000
    left = int(rate * total)
    deadline_s = time.monotonic() + total + STALL_S
    while left:
        fetched = reader.fetch(10_000, 0.5)
        now = time.time_ns()
        for batch in fetched.batches:
            left -= len(batch)
            for stamp in (int(value or b"0") for value in batch.values):
                (warm if stamp >= began else cold).append((now - stamp) / 1e6)
        if time.monotonic() > deadline_s:
            sys.exit(f"{left} records are missing")
    reader.close()
    return sorted(cold), sorted(warm)


def percentiles(found: list[float]) -> str:
    """Return what half, 99 of 100, and all of them are below."""
    p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {found[-1]:.1f} ms"


def main() -> None:
    """Measure one hop and print the percentiles."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("type", nargs="?", choices=PIPELINES, default="forward")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder, "kafka"))
        cluster.start()
        try:
            servers = cluster.bootstrap_servers
            for number in range(arguments.rounds):
                job_folder = Path(folder, str(number))
                job_folder.mkdir()
                with engine(
                    job_folder, servers, f"hop_{number}", PIPELINES[arguments.type], tm_number=1
                ) as job:
                    cold, warm = measure(job, servers, arguments.rate, arguments.seconds)
                print(
                    f"{arguments.type}, {arguments.rate:,} records/s, round {number + 1}: "
                    f"{percentiles(warm)}; the {WARM_UP_S} s before: {percentiles(cold)}",
                    flush=True,
                )
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
