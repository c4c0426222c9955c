"""What idle tasks cost: `python -m benchmarks.idle [--tasks N]… [--sql]`. Linux only.

One TaskManager with two PipelineThreads runs N tasks that have nothing to do. Its CPU time is the
sum over all its processes: its own, Spark's JVM and the workers. The broker's CPU time is listed
next to it. Both are shares of one core. Threads and open files are those of the two workers. Some
records go through all tasks first, so that everything that is loaded lazily is loaded.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import this_engine
from benchmarks.resources import cpu_s, memory_mb
from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.daemons import session_members
from tests.engine import Engine, all_run, engine

TASKS = (10, 50, 100, 200, 400, 500)
RECORDS_PER_TASK = 100
REST_S = 15
START_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of a number of idle tasks."""

    tasks: int
    start_s: float
    """The time from the start of the TaskManager until all tasks run."""
    cpu: float
    broker_cpu: float
    memory_mb: float
    threads: int
    files: int

    def __str__(self) -> str:
        return (
            f"{self.tasks:>6}{self.start_s:>9.1f}{self.cpu:>9.1%}{self.broker_cpu:>9.1%}"
            f"{self.memory_mb:>9,.0f}{self.threads:>9}{self.files:>7}"
        )


HEADER = f"{'tasks':>6}{'start s':>9}{'core':>9}{'broker':>9}{'MB':>9}{'threads':>9}{'files':>7}"


def measure(job: Engine, broker: int, seconds: float) -> Costs:
    """Start a TaskManager, let it process something, and then measure it at rest."""
    job.start_job_manager()
    began_s = time.monotonic()
    daemon = job.start_task_manager(0, threads=2)
    status = job.wait_until(all_run([0]), START_TIMEOUT_S)
    start_s = time.monotonic() - began_s
    count = RECORDS_PER_TASK * len(status.tasks)
    job.write((b"%d" % number, b"%d" % number) for number in range(count))
    job.wait_until(
        lambda status: sum(t.status.count("records_in") for t in status.tasks if t.status) == count,
        START_TIMEOUT_S,
    )
    time.sleep(REST_S)
    assert daemon.pid is not None
    session = [daemon.pid]
    before, broker_before, began_s = cpu_s(session), cpu_s([broker]), time.monotonic()
    time.sleep(seconds)
    used, broker_used = cpu_s(session) - before, cpu_s([broker]) - broker_before
    passed_s = time.monotonic() - began_s
    workers = [pid for pid in session_members(daemon.pid) if _is_worker(pid)]
    return Costs(
        len(status.tasks),
        start_s,
        used / passed_s,
        broker_used / passed_s,
        memory_mb(session),
        sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in workers),
        sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in workers),
    )


def _is_worker(pid: int) -> bool:
    """Whether a process is a Python worker of Spark that runs a PipelineThread, by its size."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"pyspark.daemon" in command and len(list(Path(f"/proc/{pid}/task").iterdir())) > 1


def main(words: Sequence[str] | None = None) -> None:
    """Measure each number of tasks in a separate job and print its figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idle", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--tasks", type=int, action="append", help=f"by default {', '.join(map(str, TASKS))}"
    )
    parser.add_argument("--sql", action="store_true", help="queries instead of `forward`")
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args(words)
    pipeline = this_engine.PIPELINES["sql-all" if arguments.sql else "forward"]
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder, "kafka"))
        cluster.start()
        process = cluster.process(1)
        assert process is not None
        try:
            for number, tasks in enumerate(arguments.tasks or TASKS):
                name = f"idle_{number}"
                home = Path(folder, name)
                home.mkdir()
                servers = cluster.bootstrap_servers
                settings = {"tm_number": 1, "parallelism": tasks}
                with engine(home, servers, name, pipeline, **settings) as job:
                    print(measure(job, process.pid, arguments.seconds), flush=True)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
