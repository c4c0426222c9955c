"""A TaskManager and a backfill on a standalone Spark cluster: a Master and two Workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_pipeline.admin.broker.ports import find_free
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.process.java import find_java
from kafka_pipeline.common.protocol.status import ThreadState
from tests.engine import Engine, all_run, engine
from tests.history import History, backfill_command
from tests.shipped_code import (
    COUNTED,
    PLACE,
    ancestor,
    check_counts,
    settings_with_own_code,
    worker_pids,
)
from tests.spark_cluster import SparkCluster, get_json, spark_cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

SECRET = "a secret of the test"
WITH_SECRET: dict[str, object] = {"spark.authenticate.secret": "${CLUSTER_SECRET}"}
KEYS = 20
RECORDS = 20_000
PARTS = 40

QUERIES = """
- {id: Named, type: sql, query: "SELECT key, concat(value, '!') AS value FROM input", to: [Loud]}
- {id: Loud, type: dataframe, function: "own_code:loud", to: [sink]}
"""
BACKFILL = """
- {id: Named, type: sql, query: "SELECT key, concat(value, '!') AS value FROM input", to: [Loud]}
- {id: Loud, type: dataframe, function: "own_code:loud", to: [Place]}
- {id: Place, type: "own_code:Place", to: [Counter, sink]}
- {id: Counter, type: count, to: [sink]}
"""
BACKFILL_CONFIG = """
server_ip: 127.0.0.1
server_port: 9092
tm_number: 1
replication_factor: 1
source_topic: in
sink_topic: out
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two Workers with two cores each, which only talk, encrypted, to those who know the secret."""
    try:
        find_java()
    except UnavailableError as error:
        pytest.skip(f"a Spark cluster needs Java: {error}")
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SECRET,
        "spark.network.crypto.enabled": "true",
    }
    with spark_cluster(tmp_path_factory.mktemp("cluster"), 2, 2, settings) as made:
        yield made


@contextmanager
def running(
    cluster: SparkCluster, folder: Path, servers: str, name: str, pipeline: str, **conf: object
) -> Iterator[Engine]:
    """Prepare a job of one TaskManager with own code, on the cluster."""
    settings = settings_with_own_code(folder, cluster.master, WITH_SECRET | conf)
    job = f"cluster_{name}_{os.getpid()}"
    with engine(folder, servers, job, pipeline, tm_number=1, **settings) as made:
        yield made


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER_SECRET", SECRET)


def test_killed_executor_loses_nothing_and_its_thread_comes_back(
    cluster: SparkCluster, tmp_path: Path, bootstrap_servers: str
) -> None:
    """The threads lie on both Workers, run the code that was shipped, and count exactly."""
    (ui,) = find_free(1)
    conf = {"spark.ui.enabled": "true", "spark.ui.port": ui}
    with running(cluster, tmp_path, bootstrap_servers, "cluster", COUNTED, **conf) as made:
        made.start_job_manager()
        task_manager = made.start_task_manager(0)
        made.wait_until(all_run([0]))
        threads = worker_pids(task_manager.log_file)
        assert {ancestor(pid, 4) for pid in threads.values()} == {
            process.pid for process in cluster.processes[1:]
        }
        assert SECRET not in command_lines()
        rows = [(b"k%d" % (i % KEYS), b"%d" % i) for i in range(RECORDS)]
        for part in range(PARTS):
            made.write(rows[part * RECORDS // PARTS : (part + 1) * RECORDS // PARTS])
            time.sleep(0.1)
            if part == PARTS // 4:
                os.kill(ancestor(threads[1], 3), signal.SIGKILL)
        check_counts(made, rows)
        made.wait_until(all_run([0]))
        later = worker_pids(task_manager.log_file)
        assert later[0] == threads[0]
        assert later[1] != threads[1]
        (app,) = cluster.status()["activeapps"]
        jobs = get_json(f"http://127.0.0.1:{ui}/api/v1/applications/{app['id']}/jobs")
        names = {job["description"] for job in jobs if job["status"] == "RUNNING"}
        assert "TaskManager 0 · thread 0" in names
        (name,) = names - {"TaskManager 0 · thread 0"}
        assert re.fullmatch(r"TaskManager 0 · thread 1 · \w+#[01], \w+#[01]", name)


def test_queries_run_on_executors_with_code_that_was_shipped(
    cluster: SparkCluster, tmp_path: Path, bootstrap_servers: str
) -> None:
    conf = {"spark.cores.max": 2}
    with running(cluster, tmp_path, bootstrap_servers, "queries", QUERIES, **conf) as made:
        made.start_job_manager()
        made.start_task_manager(0, threads=1)
        made.wait_until(all_run([0]))
        rows = [(b"k%d" % (i % KEYS), b"v%d" % i) for i in range(1_000)]
        made.write(rows)
        made.wait_until_done({made.config.sink_topic: len(rows)})
        wanted = Counter((key, value.upper() + b"!") for key, value in rows)
        assert Counter(made.read(made.config.sink_topic)) == wanted


def test_a_backfill_runs_on_executors_with_code_that_was_shipped_and_shows_no_secret(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    history = History(tmp_path / "job", BACKFILL, 2)
    settings = settings_with_own_code(tmp_path, cluster.master, WITH_SECRET) | {"parallelism": 2}
    config = history.folder / "config.yaml"
    config.write_text(
        BACKFILL_CONFIG + "".join(f"{name}: {value}\n" for name, value in settings.items())
    )
    rows = [(b"k%d" % (n % KEYS), b"v%d" % n, n) for n in range(1_000)]
    history.write([(*row, []) for row in rows], per_group=250)
    seen: set[str] = set()
    with subprocess.Popen(
        backfill_command(history), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        while process.poll() is None:
            seen.update(command_lines().splitlines())
            time.sleep(0.2)
        assert process.stdout is not None
        assert process.returncode == 0, process.stdout.read() + cluster.logs()
    assert any("SparkSubmit" in line and cluster.master in line for line in seen)
    assert not any(SECRET in line for line in seen)
    results = [row for found in history.results("out") for row in found]
    loud = [(key, value, time) for key, value, time, _ in results if (value or b"")[-1:] == b"!"]
    assert sorted(loud) == sorted((k + PLACE, v.upper() + b"!", t) for k, v, t in rows)
    counts: dict[bytes | None, list[int]] = {}
    for key, value, *_ in results:
        if (value or b"")[-1:] != b"!":
            counts.setdefault(key, []).append(int(value or b"0"))
    wanted = list(range(1, len(rows) // KEYS + 1))
    assert counts == {b"k%d" % key + PLACE: wanted for key in range(KEYS)}


def test_thread_that_gets_no_slot_is_told_in_status_and_log(
    cluster: SparkCluster, tmp_path: Path, bootstrap_servers: str
) -> None:
    """No Worker has that much memory, so no executor ever starts."""

    def waits(status: ClusterStatus) -> bool:
        reasons = [task.reason for task in status.tasks]
        return bool(reasons) and all("no free slot" in reason for reason in reasons)

    conf = {"spark.executor.memory": "100g"}
    with running(cluster, tmp_path, bootstrap_servers, "full", COUNTED, **conf) as made:
        made.start_job_manager()
        task_manager = made.start_task_manager(0)
        status = made.wait_until(waits)
        assert set(status.task_managers[0].threads) == {ThreadState.STARTING}
        log = task_manager.log_file.read_text()
        assert len(re.findall(r"PipelineThread does not come up.* executors=0", log)) == 2


def test_lost_host_loses_nothing_and_its_thread_moves_to_another_one(
    cluster: SparkCluster, tmp_path: Path, bootstrap_servers: str
) -> None:
    """The last test here, as it ends a Worker. Spark would start the thread again by itself."""
    with running(cluster, tmp_path, bootstrap_servers, "host", COUNTED) as made:
        made.start_job_manager()
        task_manager = made.start_task_manager(0)
        made.wait_until(all_run([0]))
        threads = worker_pids(task_manager.log_file)
        rows = [(b"k%d" % (i % KEYS), b"%d" % i) for i in range(RECORDS)]
        made.write(rows[: RECORDS // 2])
        lost = [ancestor(threads[1], generations) for generations in (4, 3)]
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        made.write(rows[RECORDS // 2 :])
        check_counts(made, rows)
        later = worker_pids(task_manager.log_file)
        assert later[0] == threads[0]
        assert ancestor(later[1], 4) == ancestor(later[0], 4)
        assert "the executor was lost" in task_manager.log_file.read_text()


def command_lines() -> str:
    """Return what all users of this host can see of its processes."""
    # Without -ww, only their first 80 characters.
    answer = subprocess.run(["ps", "-ewwo", "args="], capture_output=True, text=True, check=True)
    return answer.stdout
