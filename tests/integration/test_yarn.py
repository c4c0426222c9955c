"""A TaskManager on YARN: executors, ApplicationMasters, itself and its JVM are killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import Daemon, session_members
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.errors import UnavailableError
from tests.engine import Engine, all_run, engine
from tests.shipped_code import (
    COUNTED,
    ancestor,
    check_counts,
    settings_with_own_code,
    worker_pids,
)
from tests.yarn.cluster import QUEUE, YarnCluster, yarn_cluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1_200)]

KEYS = 20
RECORDS, PIECES = 4_000, 10
TIMEOUT_S = 300.0

PIPELINE = f"""
sinks: {{totals: totals_JOB}}
processors:{COUNTED}
- {{id: Totals, type: sql, to: [totals],
   query: "SELECT key, cast(count(*) AS STRING) AS value FROM input GROUP BY key"}}
"""


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnCluster]:
    folder = tmp_path / "yarn"
    folder.mkdir()
    try:
        with yarn_cluster(folder, nodes=2, memory_mb=6144) as made:
            yield made
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A job of one TaskManager with two threads, whose queries have an executor of their own."""
    name = f"yarn_{os.getpid()}"
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    conf = {
        "spark.yarn.queue": QUEUE,
        # As on a cluster whose hosts have Spark: nothing is uploaded.
        "spark.yarn.jars": f"local:{Path(spec.origin).parent}/jars/*",
        "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
        "spark.io.encryption.enabled": "true",
        "spark.executor.instances": 3,
        "spark.executor.memoryOverhead": "1g",
    }
    settings = settings_with_own_code(tmp_path, "yarn", conf)
    pipeline = PIPELINE.replace("JOB", name)
    with engine(tmp_path, bootstrap_servers, name, pipeline, tm_number=1, **settings) as made:
        made.start_job_manager()
        yield made


def test_killed_executors_masters_and_drivers_lose_and_repeat_nothing(
    yarn: YarnCluster, job: Engine
) -> None:
    """After each kill, all results of two processors with state are compared: DSL and SQL."""
    rows: list[tuple[bytes, bytes]] = []

    task_manager = start(job, yarn)
    threads = worker_pids(task_manager.log_file)
    executors = {thread: ancestor(pid, 3) for thread, pid in threads.items()}
    assert len({*executors.values()} & {*yarn.executors()}) == 2
    load(job, rows, lambda: os.kill(executors[1], signal.SIGKILL))
    check(job, rows)
    job.wait_until(all_run([0]))
    later = worker_pids(task_manager.log_file)
    assert later[0] == threads[0]
    assert later[1] != threads[1]

    (master,) = yarn.application_masters()
    load(job, rows, lambda: os.kill(master, signal.SIGKILL))
    check(job, rows)
    job.wait_until(all_run([0]))
    assert not {*executors.values()} & {*yarn.executors()}

    # YARN starts another one once, and then gives the application up.
    (master,) = yarn.application_masters()
    load(job, rows, lambda: os.kill(master, signal.SIGKILL))
    assert_ends_without_spark(task_manager)
    assert [*yarn.applications().values()] == ["FAILED"]

    task_manager = start(job, yarn)
    check(job, rows)
    load(job, rows, task_manager.kill)
    task_manager = start(job, yarn)
    check(job, rows)

    jvm = spark_jvm(task_manager)
    load(job, rows, lambda: os.kill(jvm, signal.SIGKILL))
    assert_ends_without_spark(task_manager)
    task_manager = start(job, yarn)
    check(job, rows)
    # Nobody has to clean up after those that were killed.
    states = yarn.applications()
    assert sorted(states.values()).count("RUNNING") == 1, states
    assert len(yarn.application_masters()) == 1
    assert len(yarn.executors()) == 3


def start(job: Engine, yarn: YarnCluster) -> Daemon:
    """Start the TaskManager, as a supervisor does, and wait until its tasks run on it."""
    task_manager = job.start_task_manager(0, environment=yarn.environment)

    def runs(status: ClusterStatus) -> bool:
        task_manager.require_alive()
        return len(worker_pids(task_manager.log_file)) == 2 and all_run([0])(status)

    try:
        job.wait_until(runs, TIMEOUT_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{yarn.logs()}") from None
    return task_manager


def load(job: Engine, rows: list[tuple[bytes, bytes]], fault: Callable[[], None]) -> None:
    """Write more records, which `rows` then has too, with a fault in their midst."""
    for piece in range(PIECES):
        more = [(b"k%d" % (n % KEYS), b"%d" % n) for n in range(RECORDS // PIECES)]
        job.write(more)
        rows += more
        time.sleep(0.1)
        if piece == PIECES // 3:
            fault()


def check(job: Engine, rows: Sequence[tuple[bytes, bytes]]) -> None:
    """Wait until all records are read, and compare all results of both processors."""
    job.wait_until_all_is_read()
    check_counts(job, rows)
    totals: dict[bytes | None, list[int]] = {}
    for key, value in job.read(f"totals_{job.config.job_name}"):
        totals.setdefault(key, []).append(int(value or b"0"))
    # A query gives each key once a batch.
    assert all(found == sorted({*found}) for found in totals.values())
    assert {key: found[-1] for key, found in totals.items()} == Counter(key for key, _ in rows)


def assert_ends_without_spark(task_manager: Daemon) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while task_manager.exit_code is None and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert task_manager.exit_code == 1, task_manager.last_lines()
    assert "Spark is gone: " in task_manager.last_lines()
    assert "Start this TaskManager again." in task_manager.last_lines()


def spark_jvm(task_manager: Daemon) -> int:
    assert task_manager.pid is not None
    (found,) = [
        pid
        for pid in session_members(task_manager.pid)
        if Path(f"/proc/{pid}/comm").read_text() == "java\n"
    ]
    return found
