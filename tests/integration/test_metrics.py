"""The pages of real daemons: what they show of a pipeline that runs, and when it is cut."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.jobmanager import metrics as of_job_manager
from kafka_pipeline.taskmanager import metrics as of_task_manager
from tests.engine import Engine, all_run, engine

pytestmark = pytest.mark.integration

PIPELINE = """
- {id: Adder, type: sum, to: [Counter], on_error: dead_letter}
- {id: Counter, type: count, to: [sink]}
"""
GOOD, BAD = 500, 3
TIMEOUT_S = 60
LOGGED = "metrics are shown"


class Pages:
    """The pages of a daemon, at the port that it has logged."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        wait_until(lambda: LOGGED in daemon.log_file.read_text())
        lines = [line for line in daemon.log_file.read_text().splitlines() if LOGGED in line]
        self.port = int(json.loads(lines[0])["port"])

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def values(self, name: str, **labels: str) -> dict[str, float]:
        """Return the values of a metric, by its label `processor`, summed over the others."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == f"kafka_pipeline_{name}" and labels.items() <= (
                    sample.labels.items()
                ):
                    key = sample.labels.get("processor", "")
                    found[key] = found.get(key, 0) + sample.value
        return found

    def names(self) -> set[str]:
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {s.name for f in families for s in f.samples if s.name.startswith("kafka_")}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come so far in time"
        time.sleep(0.1)


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    with engine(
        tmp_path,
        bootstrap_servers,
        f"metrics_{os.getpid()}",
        PIPELINE,
        tm_number=1,
        heartbeat_interval_ms=500,
        log_format="json",
        metrics_port=0,
    ) as made:
        yield made


def test_both_daemons_show_the_pipeline_that_they_run(job: Engine) -> None:
    task_manager = job.start_task_manager(0, threads=1)
    tasks = Pages(task_manager)
    assert tasks.get("/healthz")[0] == 200
    assert not tasks.is_ready()  # Spark starts, and there is no JobManager
    leader = Pages(job.start_job_manager())
    job.wait_until(all_run([0]))
    wait_until(tasks.is_ready)
    wait_until(leader.is_ready)

    job.write([(b"k%d" % (n % 7), b"1") for n in range(GOOD)])
    job.write([(b"k", b"bad")] * BAD)
    read = {"Adder": GOOD + BAD, "Counter": GOOD}
    wait_until(lambda: tasks.values("task_records_in_total") == read)
    wait_until(lambda: tasks.values("task_lag_records") == {"Adder": 0, "Counter": 0})
    assert tasks.values("task_records_out_total") == {"Adder": GOOD, "Counter": GOOD}
    assert tasks.values("task_dead_letters_total") == {"Adder": BAD, "Counter": 0}
    assert tasks.values("task_oldest_record_age_seconds") == {"Adder": 0, "Counter": 0}
    assert tasks.values("task_state", state="RUNNING") == {"Adder": 2, "Counter": 2}
    assert tasks.values("task_fetched_bytes_total")["Adder"] == GOOD + 3 * BAD
    results = tasks.values("task_fetched_bytes_total")["Counter"]
    assert tasks.values("task_sent_bytes_total")["Adder"] == results + 3 * BAD
    errors = tasks.values("task_rejected_records_total", error="RecordRejected")
    assert errors == {"Adder": BAD}
    assert tasks.values("task_state_bytes").keys() == {"Counter"}
    assert tasks.values("taskmanager_threads", state="RUNNING") == {"": 1}
    assert tasks.values("taskmanager_worker_resident_memory_bytes")[""] > 1_000_000
    # The times of a commit come with the next report of its worker.
    transactions = tasks.values("task_transactions_total")
    wait_until(
        lambda: all(
            tasks.values("task_commit_seconds_count").get(processor, 0) >= count
            for processor, count in transactions.items()
        )
    )
    assert all(tasks.values("task_turn_seconds_count")[processor] > 0 for processor in read)

    assert leader.values("jobmanager_state", state="LEADING") == {"": 1}
    assert leader.values("jobmanager_taskmanager_up", taskmanager="0") == {"": 1}
    assert leader.values("jobmanager_tasks", taskmanager="0") == {"": 4}
    assert leader.values("jobmanager_heartbeats_received_total")[""] > 0
    assert leader.values("jobmanager_epoch") == tasks.values("taskmanager_epoch")

    shown = leader.names() | tasks.names()
    listed = (
        *(*of_job_manager.METRICS, *of_task_manager.OF_THE_DAEMON),
        *(*of_task_manager.OF_TASKS, *of_task_manager.OF_STANDBYS),
    )
    assert shown <= {name for metric in listed for name in metric.series}

    task_manager.kill()
    wait_until(lambda: leader.values("jobmanager_taskmanager_up") == {"": 0})
    assert leader.values("jobmanager_tasks_without_owner") == {"": 4}
    assert leader.values("jobmanager_heartbeat_age_seconds")[""] > 0
    assert leader.is_ready()


@pytest.mark.long
def test_a_daemon_whose_port_is_taken_says_so_and_ends(job: Engine) -> None:
    port = Pages(job.start_task_manager(0)).port
    second = job.start_task_manager(0, config_file=job.write_config("same", metrics_port=port))
    wait_until(lambda: second.exit_code is not None)
    assert second.exit_code == UnavailableError.exit_code
    assert f"metrics_port {port} of 127.0.0.1 is taken" in second.log_file.read_text()
