"""Records that end the process of their worker: set aside, while all others flow."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.protocol.status import TaskState
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = """
sinks: {copies: copies_JOB}
processors:
- {id: Deadly, TYPE, from: [source], to: [sink], on_error: ON_ERROR}
- {id: Sibling, type: "tests.user_code.deadly:Harmless", from: [source], to: [copies]}
"""
QUERY = 'type: dataframe, function: "tests.user_code.frames:deadly"'
BAD = b"segfault"
RECORDS = 30
_ROOT = Path(__file__).parents[2]
_job_numbers = itertools.count()

Start = Callable[..., Engine]


@pytest.fixture
def start(tmp_path: Path, bootstrap_servers: str) -> Iterator[Start]:
    """Return what starts a job whose tasks have two threads: those of a partition share one."""
    with ExitStack() as jobs:

        def begin(what: str, on_error: str = "dead_letter") -> Engine:
            """`what` is a class of `tests.user_code.deadly`, or the keys of a processor."""
            name = f"deadly_{os.getpid()}_{next(_job_numbers)}"
            keys = what if " " in what else f'type: "tests.user_code.deadly:{what}"'
            text = PIPELINE.replace("JOB", name).replace("TYPE", keys)
            settings = {
                "tm_number": 1,
                "modules": "[tests.user_code.deadly, tests.user_code.frames]",
                "python_path": f"[{_ROOT}]",
            }
            made = jobs.enter_context(
                engine(
                    tmp_path,
                    bootstrap_servers,
                    name,
                    text.replace("ON_ERROR", on_error),
                    **settings,
                )
            )
            made.start_job_manager()
            made.start_task_manager(0)
            return made

        yield begin


def write(job: Engine, bad: bytes) -> None:
    job.write([(b"%d" % n, bad if n == 7 else b"value %d" % n) for n in range(RECORDS)])


def copies_of(job: Engine) -> int:
    return len(job.read(f"copies_{job.config.job_name}"))


def wait_for_letters(job: Engine, values: list[str]) -> None:
    """Wait until the dead letters that were not sent back have these values."""
    deadline_s = time.monotonic() + 120
    while True:
        found = json.loads(job.run_command("dlq list", "--json"))
        if [letter["value"] for letter in found] == values:
            return
        assert time.monotonic() < deadline_s, found


def restarts_of(status: ClusterStatus, processor: str) -> list[int]:
    return [
        info.status.count("restarts")
        for info in status.tasks
        if info.status is not None and info.task.processor == processor
    ]


def reasons_of_failed(status: ClusterStatus) -> list[str]:
    return [
        info.status.reason
        for info in status.tasks
        if info.status is not None and info.status.state is TaskState.FAILED
    ]


@pytest.mark.parametrize(
    ("class_", "bad", "why"),
    [
        ("Deadly", BAD, "SIGSEGV in native code of Python (ctypes"),
        ("Deadly", b"exit", "exit code 3"),
        ("DeadlyCalls", BAD, "SIGSEGV in native code of Python (ctypes"),
    ],
)
def test_record_that_ends_its_process_is_set_aside_and_all_others_flow(
    start: Start, class_: str, bad: bytes, why: str
) -> None:
    job = start(class_)
    job.wait_until(all_run([0]))
    began_s = time.monotonic()
    write(job, bad)
    letters = job.names.dead_letter("Deadly")
    job.wait_until_done({job.config.sink_topic: RECORDS - 1, letters: 1})
    seconds = time.monotonic() - began_s
    print(f"set aside after {seconds:.1f} s")
    assert seconds < 20
    assert copies_of(job) == RECORDS
    (letter,) = json.loads(job.run_command("dlq list", "--json"))
    assert letter["value"] == bad.decode()
    assert "ended the process: " in str(letter), letter
    assert why in str(letter), letter
    status = job.wait_until(lambda status: status.all_run)
    assert sum(restarts_of(status, "Deadly")) >= 2
    assert sum(restarts_of(status, "Sibling")) <= 1
    # A second one is set aside too, and no sibling notices.
    job.write([(b"7", bad), (b"7", b"after")])
    job.wait_until_done({job.config.sink_topic: RECORDS, letters: 2})
    # Those that are sent back, though the code is not mended, come back; again no sibling notices.
    job.run_command("dlq redrive", "--yes")
    wait_for_letters(job, [bad.decode()] * 2)
    status = job.wait_until(lambda status: status.all_run)
    assert sum(restarts_of(status, "Sibling")) <= 1


def test_task_whose_record_ends_its_process_fails_if_on_error_says_so(start: Start) -> None:
    job = start("Deadly", "fail")
    job.wait_until(all_run([0]))
    write(job, BAD)
    status = job.wait_until(lambda status: len(reasons_of_failed(status)) == 1)
    (reason,) = reasons_of_failed(status)
    assert reason.startswith(f"record {job.config.source_topic}[")
    assert "ended the process: SIGSEGV in native code" in reason
    assert "deadly.py" in reason
    job.wait_until_done({f"copies_{job.config.job_name}": RECORDS})


def test_function_of_a_query_that_ends_its_process_loses_its_record_only(start: Start) -> None:
    job = start(QUERY)
    job.wait_until(all_run([0]))
    write(job, BAD)
    letters = job.names.dead_letter("Deadly")
    job.wait_until_done({job.config.sink_topic: RECORDS - 1, letters: 1})
    (letter,) = json.loads(job.run_command("dlq list", "--json"))
    assert letter["value"] == BAD.decode()
    assert "ended the process: SIGSEGV in native code" in str(letter), letter
    status = job.wait_until(lambda status: status.all_run)
    assert sum(restarts_of(status, "Deadly")) == 0
    assert sum(restarts_of(status, "Sibling")) == 0
    assert copies_of(job) == RECORDS


def test_task_whose_punctuation_ends_its_process_fails(start: Start) -> None:
    job = start("DeadlyTimer")
    status = job.wait_until(lambda status: len(reasons_of_failed(status)) == 2)
    for why in reasons_of_failed(status):
        assert "a punctuation ended the process: SIGABRT" in why
