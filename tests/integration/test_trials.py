"""Versions that do not come up are rolled back by the JobManager, and no record is lost."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import Daemon, command_path
from tests.engine import START_TIMEOUT_S, Engine, all_run, engine
from tests.steady_load import Writer, check_counts

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
CHAIN = """
- {id: Forwarder, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
# Its arcs are other ones, and the processor between them cannot start.
WRONG = """
- {id: Forwarder, type: forward, to: [Prices]}
- {id: Prices, type: "tests.user_code.trials:NeverStarts", to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
HEARTBEAT_MS = 500
REASON = "no table of prices"

_job_numbers = itertools.count()


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A chain of three processors."""
    name = f"trial_{os.getpid()}_{next(_job_numbers)}"
    settings = {"modules": "[tests.user_code.trials]", "python_path": f"[{ROOT}]"}
    with engine(
        tmp_path,
        bootstrap_servers,
        name,
        CHAIN,
        heartbeat_interval_ms=HEARTBEAT_MS,
        tm_number=1,
        **settings,
    ) as made:
        yield made


def run(job: Engine) -> Daemon:
    job_manager = job.start_job_manager()
    job.start_task_manager(0)
    job.wait_until(all_run([0]))
    return job_manager


def begin(job: Engine, *options: str) -> subprocess.Popen[str]:
    """Begin to apply pipeline.yaml."""
    files = [str(job.config_file), str(job.config_file.with_name("pipeline.yaml"))]
    words = [str(command_path("pipeline")), "apply", *files, "--yes", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(daemon: Daemon, event: str) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while event not in daemon.log_file.read_text():
        assert time.monotonic() < deadline_s, f"{event!r} is not logged"
        time.sleep(0.01)


def versions(job: Engine) -> dict[int, tuple[str, str]]:
    listed = json.loads(job.run_command("versions", "--json"))
    return {each["version"]: (each["state"], each["reason"]) for each in listed}


def check_that_it_was_rolled_back(job: Engine) -> None:
    """Assert that version 2 was rolled back, and that the job says so."""
    status = job.wait_until(
        lambda status: all_run([0])(status) and bool(status.job_manager.findings)
    )
    assert {info.task.processor for info in status.tasks} == {"Forwarder", "Adder", "Counter"}
    (finding,) = status.job_manager.findings
    assert "version 2 was rolled back to version 1: Prices_" in finding
    assert REASON in finding
    found = versions(job)
    assert [state for state, _ in found.values()] == ["FORMER", "ROLLED BACK", "CURRENT"]
    assert REASON in found[2][1]
    assert found[3][1] == "instead of version 2"


def test_version_whose_class_cannot_start_is_rolled_back_and_one_that_starts_is_not(
    job: Engine,
) -> None:
    run(job)
    with Writer(job) as writer:
        writer.go_on(40)
        job.write_pipeline(WRONG)
        command = begin(job, "--confirm-within", "10")
        said = command.communicate(timeout=START_TIMEOUT_S)[0]
        assert command.returncode == 1, said
        assert "version 2 was rolled back to version 1: Prices_" in said
        assert REASON in said
        check_that_it_was_rolled_back(job)
        writer.go_on(40)
        job.write_pipeline(CHAIN.replace("type: sum", "type: forward"))
        said = job.run_command("apply", "--yes", with_pipeline=True)
        assert "version 4 is on trial, 6 of 6 tasks run" in said
        assert "done: version 4, 6 of 6 tasks run" in said
        writer.go_on(20)
    check_counts(job, writer.rounds)
    assert [state for state, _ in versions(job).values()][-1] == "CURRENT"


@pytest.mark.long
def test_it_is_rolled_back_although_the_command_was_killed(job: Engine) -> None:
    job_manager = run(job)
    with Writer(job) as writer:
        writer.go_on(40)
        job.write_pipeline(WRONG)
        with begin(job, "--confirm-within", "10") as command:
            wait_for(job_manager, "arcs are to be drained")
            command.kill()
        check_that_it_was_rolled_back(job)
        writer.go_on(20)
    check_counts(job, writer.rounds)


@pytest.mark.long
def test_it_is_rolled_back_although_the_job_manager_was_killed(job: Engine) -> None:
    job_manager = run(job)
    with Writer(job) as writer:
        writer.go_on(40)
        job.write_pipeline(WRONG)
        with begin(job, "--no-wait", "--confirm-within", "10"):
            wait_for(job_manager, "the version is on trial")
            job_manager.kill()
        job.start_job_manager(with_pipeline=False)
        check_that_it_was_rolled_back(job)
        writer.go_on(20)
    check_counts(job, writer.rounds)
