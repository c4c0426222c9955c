"""CPU time of a TaskManager that has nothing to do: `python -m benchmarks.idle`. Linux only.

The figure is the time that all processes of one TaskManager (its own, Spark's JVM and the workers)
took within some seconds, over those seconds: 100 % is one core. Before, records went through all
tasks, so everything is loaded that is loaded late.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from admin.local_broker import LocalCluster
from benchmarks.peers import this_engine
from benchmarks.resources import cpu_s, memory_mb
from common.kafka.bulk import BulkWriter
from tests.engine import Engine, all_run, engine

PARTITIONS = 4
RECORDS = 10_000
REST_S = 10
PIPELINES = {"forward": this_engine.PIPELINES["forward"], "sql": this_engine.PIPELINES["sql-all"]}


def measure(job: Engine, seconds: float) -> tuple[float, float]:
    """Return how much of a core an idle TaskManager takes, and its memory in MB."""
    job.start_job_manager()
    daemon = job.start_task_manager(0, threads=2)
    job.wait_until(all_run([0]))
    writer = BulkWriter(job.config, job.config.source_topic)
    writer.write((b"%d" % number, b"%d" % number) for number in range(RECORDS))
    writer.flush(60)
    job.wait_until(
        lambda status: (
            sum(t.status.count("records_in") for t in status.tasks if t.status) == RECORDS
        )
    )
    time.sleep(REST_S)
    assert daemon.pid is not None
    session = [daemon.pid]
    before, began = cpu_s(session), time.monotonic()
    time.sleep(seconds)
    used = cpu_s(session) - before
    return used / (time.monotonic() - began), memory_mb(session)


def main() -> None:
    """Measure each pipeline and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder, "kafka"))
        cluster.start()
        try:
            for number in range(arguments.rounds):
                for name, pipeline in PIPELINES.items():
                    job_name = f"idle_{name}_{number}"
                    job_folder = Path(folder, job_name)
                    job_folder.mkdir()
                    with engine(
                        job_folder,
                        cluster.bootstrap_servers,
                        job_name,
                        pipeline,
                        tm_number=1,
                        parallelism=PARTITIONS,
                    ) as job:
                        share, memory = measure(job, arguments.seconds)
                    print(
                        f"{name}, {PARTITIONS} idle tasks, round {number + 1}: "
                        f"{share:.1%} of a core, {memory:,.0f} MB",
                        flush=True,
                    )
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
