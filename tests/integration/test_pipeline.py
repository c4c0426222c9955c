"""The whole engine on a real Kafka and a real Spark, with processes that are killed."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, Presence
from kafka_pipeline.common.kafka.bulk import Row
from tests.engine import START_TIMEOUT_S, Engine, all_run, engine, signal_session, workers

pytestmark = pytest.mark.integration

SAMPLE = """
- {id: Forwarder, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [Counter], on_error: dead_letter}
- {id: Counter, type: count, to: [sink]}
"""
HEARTBEAT_MS = 500
KEYS = 50
PARALLELISM = 2

_job_numbers = itertools.count()


@pytest.fixture
def sample(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """The sample pipeline for up to three TaskManagers; no process runs yet."""
    name = f"sample_{os.getpid()}_{next(_job_numbers)}"
    with engine(
        tmp_path, bootstrap_servers, name, SAMPLE, tm_number=3, heartbeat_interval_ms=HEARTBEAT_MS
    ) as made:
        yield made


@dataclass
class Running:
    """The sample pipeline on TaskManager 0, the JobManager that leads, and what was written."""

    job: Engine
    job_manager: Daemon
    rows: list[Row] = field(default_factory=list)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Running]:
    """A job that several tests use; each leaves it with a JobManager and all tasks running."""
    folder = tmp_path_factory.mktemp("running")
    with engine(
        folder,
        bootstrap_servers,
        f"running_{os.getpid()}",
        SAMPLE,
        heartbeat_interval_ms=HEARTBEAT_MS,
    ) as made:
        job_manager = made.start_job_manager()
        made.start_task_manager(0)
        made.wait_until(all_run([0]))
        yield Running(made, job_manager)


class Load:
    """Records at a steady rate in the background; every 40th has a value that is not a number."""

    def __init__(self, engine: Engine, records: int, seconds: float) -> None:
        self.rows: list[Row] = [
            (b"k%d" % (i % KEYS), b"bad" if i % 40 == 0 else b"%d" % i) for i in range(records)
        ]
        self._engine = engine
        self._seconds = seconds
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        parts = max(int(self._seconds * 10), 1)
        size = -(-len(self.rows) // parts)
        for start in range(0, len(self.rows), size):
            self._engine.write(self.rows[start : start + size])
            time.sleep(self._seconds / parts)


def check(engine: Engine, rows: list[Row]) -> None:
    """Assert that the sink has the counts 1..n of every key in order, and nothing else."""
    valid = [(key, value) for key, value in rows if value != b"bad"]
    dead_letters = engine.names.dead_letter("Adder")
    engine.wait_until_done(
        {engine.config.sink_topic: len(valid), dead_letters: len(rows) - len(valid)}
    )
    counts: dict[bytes | None, list[int]] = {}
    for key, value in engine.read(engine.config.sink_topic):
        counts.setdefault(key, []).append(int(value or b"0"))
    expected = Counter(key for key, _ in valid)
    assert counts == {key: list(range(1, n + 1)) for key, n in expected.items()}
    bad = Counter(row for row in rows if row[1] == b"bad")
    assert Counter(engine.read(dead_letters)) == bad


@pytest.mark.long
def test_a_stopped_and_continued_task_manager_does_no_harm(sample: Engine) -> None:
    """A zombie is fenced: it writes nothing, comes back clean, and gets work again."""
    zombie = sample.start_task_manager(1)
    sample.start_task_manager(0)
    sample.start_job_manager()
    sample.wait_until(all_run([0, 1]))
    with Load(sample, 60_000, seconds=12) as load:
        time.sleep(1)
        signal_session(zombie, signal.SIGSTOP)
        sample.wait_until(all_run([0]))
        signal_session(zombie, signal.SIGCONT)
        sample.wait_until(all_run([0, 1]))
    check(sample, load.rows)


@pytest.mark.long
def test_a_third_task_manager_joins_under_load_and_gets_work(sample: Engine) -> None:
    """Moving live tasks costs nothing but the moment of the move."""
    sample.start_job_manager()
    sample.start_task_manager(0)
    sample.start_task_manager(1)
    sample.wait_until(all_run([0, 1]))
    with Load(sample, 60_000, seconds=12) as load:
        sample.start_task_manager(2)
        status = sample.wait_until(all_run([0, 1, 2]))
    assert Counter(task.owner for task in status.tasks) == {0: 2, 1: 2, 2: 2}
    check(sample, load.rows)


@pytest.mark.long
def test_killed_workers_are_started_again(sample: Engine) -> None:
    """A PipelineThread whose process dies goes on in a new one, on the same TaskManager."""
    sample.start_job_manager()
    task_manager = sample.start_task_manager(0)
    sample.wait_until(all_run([0]))
    pids = workers(task_manager.log_file)
    with Load(sample, 40_000, seconds=6) as load:
        time.sleep(1)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    check(sample, load.rows)
    assert len(workers(task_manager.log_file)) == 2 * len(pids)


def test_tasks_go_on_without_a_job_manager_and_the_next_one_adopts_them(running: Running) -> None:
    """Neither the death nor the return of the JobManager starts a task again."""
    job = running.job
    first_epoch = job.wait_until(all_run([0])).job_manager.epoch
    running.job_manager.kill()
    with Load(job, 8_000, seconds=1) as load:
        pass
    running.rows += load.rows
    check(job, running.rows)
    running.job_manager = job.start_job_manager()
    job.wait_until(lambda s: all_run([0])(s) and s.job_manager.epoch != first_epoch)
    time.sleep(3 * HEARTBEAT_MS / 1000)  # what it might do wrong, it would do by then
    status = job.wait_until(all_run([0]))
    assert _records_in(status) == 8_000 + 8_000 + 7_800


def test_the_second_job_manager_leads_and_the_first_one_ends(running: Running) -> None:
    """Two never both lead: the older one is fenced, and reports that."""
    first, running.job_manager = running.job_manager, running.job.start_job_manager()
    _wait_for_end(first)
    assert first.exit_code == 4
    assert "another JobManager" in first.log_file.read_text()
    running.job.wait_until(all_run([0]))


def test_a_task_manager_killed_under_load_loses_and_repeats_nothing(running: Running) -> None:
    """Its tasks run elsewhere after three heartbeats, and the results are exact."""
    job = running.job
    victim = job.start_task_manager(1, threads=1)
    job.wait_until(all_run([0, 1]))
    with Load(job, 24_000, seconds=6) as load:
        time.sleep(2)
        victim.kill()
        killed_at = time.monotonic()
        job.wait_until(all_run([0]))
        assert time.monotonic() - killed_at < 3 * HEARTBEAT_MS / 1000 + 10
    running.rows += load.rows
    check(job, running.rows)


@pytest.mark.long
def test_a_task_manager_with_a_taken_id_is_refused(running: Running) -> None:
    """The one that is alive keeps its tasks; the other one gets the reason and ends."""
    job = running.job
    elsewhere = job.write_config("elsewhere", state_dir=job.config.state_dir / "elsewhere")
    for config_file, who in ((elsewhere, "by a TaskManager that is alive"), (None, "on this host")):
        second = job.start_task_manager(0, config_file=config_file)
        _wait_for_end(second)
        assert second.exit_code == 4
        assert re.search(f"id 0 is taken .*{who}", second.log_file.read_text())
    running.job.wait_until(all_run([0]))


@pytest.mark.long
def test_sigterm_hands_tasks_over_at_once_and_state_is_kept(sample: Engine) -> None:
    """A graceful stop commits and leaves; a restart reads only what it does not have."""
    sample.start_job_manager()
    first = sample.start_task_manager(0)
    sample.wait_until(all_run([0]))
    with Load(sample, 20_000, seconds=0.1) as load:
        pass
    check(sample, load.rows)
    first.terminate()
    _wait_for_end(first)
    assert first.exit_code == 0
    sample.wait_until(lambda s: s.task_managers[0].presence is Presence.LEFT, timeout_s=5)
    again = sample.start_task_manager(0)
    sample.wait_until(all_run([0]))
    assert "state_records_read=0" in again.log_file.read_text()
    elsewhere = sample.start_task_manager(1)
    sample.wait_until(all_run([0, 1]))
    again.terminate()
    sample.wait_until(all_run([1]))
    # The same records again: each key's count goes on where it was.
    sample.write(load.rows)
    check(sample, load.rows + load.rows)
    assert "state wiped" not in elsewhere.log_file.read_text()


@pytest.mark.long
def test_a_broker_that_restarts_under_load_costs_time_only(tmp_path: Path) -> None:
    """Whatever its clients were doing then: commits are decided, hung calls are given up."""
    (tmp_path / "kafka").mkdir()
    cluster = LocalCluster(tmp_path / "kafka", is_short_lived=True)
    cluster.start()
    try:
        settings = {"heartbeat_interval_ms": HEARTBEAT_MS}
        with engine(tmp_path, cluster.bootstrap_servers, "restart", SAMPLE, **settings) as sample:
            sample.start_job_manager()
            sample.start_task_manager(0)
            sample.wait_until(all_run([0]))
            rows: list[Row] = [(b"k%d" % (i % KEYS), b"%d" % i) for i in range(20_000)]
            sample.write(rows[:10_000])
            cluster.stop()
            cluster.start()
            sample.write(rows[10_000:])
            sample.wait_until(all_run([0]))
            check(sample, rows)
    finally:
        cluster.stop()


def _records_in(status: ClusterStatus) -> int:
    return sum(task.status.count("records_in") for task in status.tasks if task.status)


def _wait_for_end(daemon: Daemon) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while daemon.exit_code is None:
        assert time.monotonic() < deadline_s, "the process does not end"
        time.sleep(0.05)


@pytest.mark.long
def test_a_processor_that_is_added_leaves_the_others_as_they_were(sample: Engine) -> None:
    """Ids, owners and state of the other tasks stay, as `pipeline status` shows."""
    rows = [(b"k%d" % (i % KEYS), b"%d" % i) for i in range(10_000)]
    job_manager = sample.start_job_manager()
    sample.start_task_manager(0)
    sample.start_task_manager(1)
    sample.wait_until(all_run([0, 1]))
    sample.write(rows)
    sample.wait_until_done({sample.config.sink_topic: len(rows)})
    before = sample.wait_until(lambda status: _records_in(status) == 3 * len(rows))
    job_manager.terminate()
    assert job_manager.wait(30)
    sample.write_pipeline(SAMPLE + "- {id: Auditor, type: sum, to: [sink]}\n")
    sample.start_job_manager()
    after = sample.wait_until(
        lambda status: (
            all_run([0, 1])(status) and len(status.tasks) == len(before.tasks) + PARALLELISM
        )
    )
    then = _by_id(after)
    assert {task: then[task] for task in _by_id(before)} == _by_id(before)
    assert then.keys() - _by_id(before).keys() == {"Auditor_0", "Auditor_1"}
    sample.write(rows[:KEYS])
    # The new one has its own offsets, and begins with the first record of the source.
    sample.wait_until_done({sample.config.sink_topic: 2 * len(rows) + 2 * KEYS})
    counted = [int(value or b"0") for _, value in sample.read(sample.config.sink_topic)]
    assert Counter(counted)[len(rows) // KEYS + 1] >= KEYS


def _by_id(status: ClusterStatus) -> dict[str, tuple[int | None, int, int, int]]:
    """Return owner, thread, restarts and records taken in of each task."""
    return {
        str(info.task): (
            info.owner,
            info.status.thread,
            info.status.count("restarts"),
            info.status.count("records_in"),
        )
        for info in status.tasks
        if info.status is not None
    }
