"""What processors do that do not disturb each other: all in one job, on one thread of one Spark.

Each of these tests has processors and topics of its own. To start a job takes longer than any test.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.admin.daemons import Daemon
from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.kafka.bulk import BulkWriter, Row, read_committed
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.jobmanager import metrics as of_job_manager
from kafka_pipeline.taskmanager import metrics as of_task_manager
from kafka_pipeline.testing import TopologyTestDriver
from tests.engine import Engine, engine
from tests.pages import Pages
from tests.user_code import shop
from tests.user_code.word_count import word_count
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
START_MS = (wall_clock_ms() // HOUR_MS - 1) * HOUR_MS
CARD = b"4111111111111111"
LINES = [("k", "a b a", 1), ("k", "b", 1_000), ("k", "late", 500), ("k", "c a", 3_500)]
PIPELINE = """
sources: {prices: prices_JOB, numbers: numbers_JOB, same: same_JOB, slow: slow_JOB,
  amounts: amounts_JOB}
sinks: {copies: copies_JOB, words: words_JOB, sums: sums_JOB, thrice: thrice_JOB,
  slowed: slowed_JOB, totals: totals_JOB}
processors:
- {id: Words, type: topology, builder: "tests.user_code.word_count:word_count",
   config: {lines: source, words: words}}
- {id: Enrich, type: "tests.user_code.shop:Enrich", from: [prices], to: [sink],
   on_error: dead_letter}
- {id: Pass, type: "tests.user_code.shop:Pass", from: [prices], to: [copies]}
- {id: Poisoned, type: sum, from: [numbers], to: [sums]}
- {id: Adder, type: sum, from: [same], to: [thrice]}
- {id: Counter, type: count, from: [same], to: [thrice]}
- {id: Other, type: count, from: [same], to: [thrice]}
- {id: Slow, type: "tests.user_code.slow:Slow", from: [slow], config: {seconds: 0.005},
   to: [slowed]}
- {id: Never, type: "tests.user_code.slow:NeverReady", from: [slow], to: [slowed]}
- {id: Storeless, type: "tests.user_code.word_count:RunningSum", from: [same], to: [sink]}
- {id: Sorted, type: sql, from: [same], query: SELECT value FROM input ORDER BY value, to: [sink]}
- {id: Amounts, type: sum, from: [amounts], to: [Totals], on_error: dead_letter}
- {id: Totals, type: count, to: [totals]}
"""
SHOWN = ("Amounts", "Totals")
GOOD, BAD = 500, 3
"""How many amounts are numbers, and how many are not."""
NEVER_RUN = {"Storeless": TaskState.FAILED, "Sorted": TaskState.FAILED}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one_job")


@dataclass
class Running:
    """The job that runs, and its daemons."""

    job: Engine
    task_manager: Daemon
    was_ready: bool
    """Whether the TaskManager was ready before there was a JobManager."""
    job_manager: Daemon


@pytest.fixture(scope="module")
def running(folder: Path, bootstrap_servers: str) -> Iterator[Running]:
    """The job, with its tasks where they come to: RUNNING, or FAILED."""
    name = f"one_{os.getpid()}"
    settings = {
        "tm_number": 1,
        "heartbeat_interval_ms": 2_000,  # the task of a lost lease begins again with its figures
        "max_batch_records": 50,
        "modules": "[tests.user_code.word_count, tests.user_code.shop, tests.user_code.slow]",
        "python_path": f"[{ROOT}]",
        "log_level": "debug",
        "log_format": "json",
        "metrics_port": 0,
    }
    with engine(folder, bootstrap_servers, name, PIPELINE.replace("JOB", name), **settings) as made:
        task_manager = made.start_task_manager(0, threads=1)
        was_ready = Pages(task_manager).is_ready()
        job_manager = made.start_job_manager()
        made.wait_until(have_started)
        yield Running(made, task_manager, was_ready, job_manager)


@pytest.fixture(scope="module")
def job(running: Running) -> Engine:
    return running.job


def have_started(status: ClusterStatus) -> bool:
    """Return whether all tasks have come as far as they can."""
    return bool(status.tasks) and all(
        info.task.processor == "Never"
        or (
            info.status is not None
            and info.status.state is NEVER_RUN.get(info.task.processor, TaskState.RUNNING)
        )
        for info in status.tasks
    )


def of(status: ClusterStatus, processor: str, state: TaskState) -> list[TaskStatus]:
    """Return the reports about a processor's tasks that are in a state."""
    tasks = [task.status for task in status.tasks if task.task.processor == processor]
    return [task for task in tasks if task is not None and task.state is state]


def total(status: ClusterStatus, processor: str, name: str) -> int:
    """Return the sum of a figure over the tasks of a processor."""
    tasks = [task.status for task in status.tasks if task.task.processor == processor]
    return sum(task.count(name) for task in tasks if task is not None)


def logged(folder: Path) -> str:
    """Return what both daemons have logged."""
    return "".join(file.read_text() for file in sorted(folder.glob("*.log")))


def topic(job: Engine, name: str) -> str:
    return f"{name}_{job.config.job_name}"


def write(job: Engine, name: str, rows: list[Row]) -> None:
    writer = BulkWriter(job.config, topic(job, name))
    writer.write(rows)
    writer.flush(30)


def test_word_count_says_the_same_on_the_driver_and_on_the_cluster(job: Engine) -> None:
    """Of one key, so that all is in one task, and in this order."""
    with TopologyTestDriver(word_count("lines", "words").build()) as driver:
        lines = driver.create_input_topic("lines", serdes.string, serdes.string)
        words = driver.create_output_topic("words")
        for key, value, at_ms in LINES:
            lines.pipe_input(key, value, START_MS + at_ms)
        expected = [(r.key, r.value, r.timestamp) for r in words.read_records()]
    job.write_at((k.encode(), value.encode(), START_MS + at_ms) for k, value, at_ms in LINES)
    job.wait_until_done({topic(job, "words"): len(expected)})
    found = job.read_with_times(topic(job, "words"))
    assert sorted(found) == sorted(expected)
    by_word = {word: [row for row in found if row[0] == word] for word, _, _ in found}
    assert all(
        rows == [row for row in expected if row[0] == word] for word, rows in by_word.items()
    )


def test_code_that_fails_is_said_with_its_place_in_dead_letters_and_once_in_the_log(
    job: Engine, folder: Path
) -> None:
    """The user's modules log by `log_level`, with the id of the task."""
    dead_letters = job.names.dead_letter("Enrich")
    write(job, "prices", [(b"k", CARD + b"%d" % each) for each in range(50)])
    job.wait_until_done({dead_letters: 50, topic(job, "copies"): 50})
    batches = read_committed(job.config, dead_letters, job.config.parallelism)
    log = logged(folder)
    assert CARD.decode() not in log + job.run_command("status", "--json")
    place = f"tests/user_code/shop.py:{shop.line_of('price')} in price"
    for found in (found for each in batches for found in each.headers or [None]):
        headers = dict(found or [])
        said = f'KeyError ({place}, processor "Enrich"); log_record_values: true shows its message'
        assert headers["__streams.errors.message"] == said.encode()
        assert CARD not in b"".join(value or b"" for value in headers.values())
        assert headers["__streams.errors.processor"] == b"Enrich"
        assert b"shop.py" in (headers["__streams.errors.stacktrace"] or b"")
    entries = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    (failed,) = (
        entry
        for entry in entries
        if entry["event"] == "user code failed" and entry.get("node") == "Enrich"
    )
    assert (failed["place"], failed["node"], failed["error"]) == (place, "Enrich", "KeyError")
    passed = [entry for entry in entries if entry.get("logger") == "tests.user_code.shop"]
    assert len(passed) == 50
    assert {entry["processor"] for entry in passed} == {"Pass"}
    assert {entry["task"] for entry in passed} <= {"Pass_0", "Pass_1"}


def test_a_poison_record_stops_its_task_with_the_reason_and_nothing_else(
    job: Engine, folder: Path
) -> None:
    """`on_error: fail` commits what came before, names the record, and does not crash-loop."""
    write(job, "numbers", [(b"a", b"1"), (b"a", b" +41 "), (b"a", b"poison"), (b"a", b"3")])
    status = job.wait_until(lambda status: bool(of(status, "Poisoned", TaskState.FAILED)))
    (failed,) = of(status, "Poisoned", TaskState.FAILED)
    said = rf"record {topic(job, 'numbers')}\[[01]\]@2: the value is not an integer"
    assert re.fullmatch(said, failed.reason)
    assert job.read(topic(job, "sums")) == [(b"a", b"2"), (b"a", b"42")]
    assert "poison" not in logged(folder)
    assert len(of(status, "Poisoned", TaskState.RUNNING)) == 1


def test_processors_that_read_the_same_input_each_read_all_of_it_on_one_thread(job: Engine) -> None:
    """A consumer reads a partition once only, so each of them needs its own."""
    write(job, "same", [(b"k", b"100")] * 50)
    job.wait_until_done({topic(job, "thrice"): 150})
    values = Counter(value for _, value in job.read(topic(job, "thrice")))
    assert values == Counter([b"101"] * 50 + [b"%d" % n for n in range(1, 51)] * 2)
    readers = ("Adder", "Counter", "Other")
    status = job.wait_until(
        lambda status: all(
            total(status, each, "records_in") == 50 and total(status, each, "lag") == 0
            for each in readers
        )
    )
    for each in readers:
        assert len(of(status, each, TaskState.RUNNING)) == 2
        assert total(status, each, "restarts") == 0


def test_lag_is_told_while_records_wait_behind_slow_code_and_is_0_after(job: Engine) -> None:
    """The reports show it, and so does `pipeline status`, even for a class that never starts."""
    records = 1_000
    write(job, "slow", [(b"k%d" % number, b"v") for number in range(records)])
    waiting = job.wait_until(
        lambda status: total(status, "Slow", "records_in") > 0 and total(status, "Slow", "lag") > 0
    )
    assert total(waiting, "Slow", "lag") <= records
    never = job.wait_until(
        lambda status: (
            total(status, "Never", "lag") == records
            and len(of(status, "Never", TaskState.RESTARTING)) == 2
        )
    )
    for status in of(never, "Never", TaskState.RESTARTING):
        assert "KeyError: 'model'" in status.reason
        assert status.count("restarts") >= 1
    done = job.wait_until(
        lambda status: (
            total(status, "Slow", "lag") == 0 and total(status, "Slow", "records_in") == records
        )
    )
    assert [status.gauge("lag") for status in of(done, "Slow", TaskState.RUNNING)] == [0, 0]


def test_class_that_fails_in_init_is_said_in_the_status(job: Engine) -> None:
    """It lacks its store, which is written nowhere in pipeline.yaml."""
    status = job.wait_until(lambda status: len(of(status, "Storeless", TaskState.FAILED)) == 2)
    for failed in of(status, "Storeless", TaskState.FAILED):
        assert 'has no store "Sums"' in failed.reason


def test_query_that_cannot_be_run_is_said_in_the_status(job: Engine) -> None:
    status = job.wait_until(lambda status: len(of(status, "Sorted", TaskState.FAILED)) == 2)
    for failed in of(status, "Sorted", TaskState.FAILED):
        assert "ORDER BY needs all rows" in failed.reason


def test_top_shows_the_tasks(job: Engine) -> None:
    shown = job.run_command("top", "--once")
    assert "Processors" in shown
    for task in ("Adder_0", "Adder_1", "Counter_0", "Counter_1"):
        assert task in shown


# The last test of this job, whose TaskManager it kills.
def test_the_pages_of_both_daemons_show_what_they_run(running: Running) -> None:
    job, tasks, leader = running.job, Pages(running.task_manager), Pages(running.job_manager)
    assert tasks.get("/healthz")[0] == 200
    assert not running.was_ready  # Spark started, and there was no JobManager
    wait_until(tasks.is_ready)
    wait_until(leader.is_ready)

    def of_tasks(name: str, **labels: str) -> dict[str, float]:
        values = tasks.values(f"task_{name}", **labels)
        return {processor: values[processor] for processor in SHOWN if processor in values}

    amounts: list[Row] = [(b"k%d" % (n % 7), b"1") for n in range(GOOD)]
    write(job, "amounts", amounts + [(b"k", b"bad")] * BAD)
    wait_until(lambda: of_tasks("records_in_total") == {"Amounts": GOOD + BAD, "Totals": GOOD})
    wait_until(lambda: of_tasks("lag_records") == {"Amounts": 0, "Totals": 0})
    assert of_tasks("records_out_total") == {"Amounts": GOOD, "Totals": GOOD}
    assert of_tasks("dead_letters_total") == {"Amounts": BAD, "Totals": 0}
    assert of_tasks("oldest_record_age_seconds") == {"Amounts": 0, "Totals": 0}
    assert of_tasks("state", state="RUNNING") == {"Amounts": 2, "Totals": 2}
    assert of_tasks("fetched_bytes_total")["Amounts"] == GOOD + 3 * BAD
    results = of_tasks("fetched_bytes_total")["Totals"]
    assert of_tasks("sent_bytes_total")["Amounts"] == results + 3 * BAD
    assert of_tasks("rejected_records_total", error="RecordRejected") == {"Amounts": BAD}
    assert of_tasks("state_bytes").keys() == {"Totals"}
    assert tasks.values("taskmanager_threads", state="RUNNING") == {"": 1}
    assert tasks.values("taskmanager_worker_resident_memory_bytes")[""] > 1_000_000
    # The times of a commit come with the next report of its worker.
    transactions = of_tasks("transactions_total")
    wait_until(
        lambda: all(
            of_tasks("commit_seconds_count").get(processor, 0) >= count
            for processor, count in transactions.items()
        )
    )
    assert all(of_tasks("turn_seconds_count")[processor] > 0 for processor in SHOWN)
    number = len(job.wait_until(lambda status: bool(status.tasks)).tasks)
    check_pages_of_the_leader(leader, tasks, number)

    running.task_manager.kill()
    wait_until(lambda: leader.values("jobmanager_taskmanager_up") == {"": 0})
    assert leader.values("jobmanager_tasks_without_owner") == {"": number}
    assert leader.values("jobmanager_heartbeat_age_seconds")[""] > 0
    assert leader.is_ready()


def check_pages_of_the_leader(leader: Pages, tasks: Pages, number: int) -> None:
    assert leader.values("jobmanager_state", state="LEADING") == {"": 1}
    assert leader.values("jobmanager_taskmanager_up", taskmanager="0") == {"": 1}
    assert leader.values("jobmanager_tasks", taskmanager="0") == {"": number}
    assert leader.values("jobmanager_heartbeats_received_total")[""] > 0
    assert leader.values("jobmanager_epoch") == tasks.values("taskmanager_epoch")
    listed = (
        *(*of_job_manager.METRICS, *of_task_manager.OF_THE_DAEMON),
        *(*of_task_manager.OF_TASKS, *of_task_manager.OF_STANDBYS),
    )
    shown = leader.names() | tasks.names()
    assert shown <= {name for metric in listed for name in metric.series}
