"""`pipeline reset` on a real pipeline: offsets and state go back, or stay."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kafka_pipeline.admin.daemons import command_path
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = """
- {id: Forwarder, type: forward, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""
KEYS, ROUNDS = 5, 20


@dataclass
class Counted:
    """A pipeline with one TaskManager, which all tests here leave running."""

    job: Engine
    rounds: int
    """How many records of each key are in the source."""
    last: int
    """What each key was counted to last."""


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Counted]:
    folder, name = tmp_path_factory.mktemp("reset"), f"reset_{os.getpid()}"
    with engine(
        folder, bootstrap_servers, name, PIPELINE, tm_number=1, heartbeat_interval_ms=500
    ) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        made.wait_until(all_run([0]))
        made.write([(b"k%d" % (n % KEYS), b"x") for n in range(KEYS * ROUNDS)])
        made.wait_until_done({made.config.sink_topic: KEYS * ROUNDS})
        yield Counted(made, ROUNDS, ROUNDS)


@pytest.fixture
def job(counted: Counted) -> Engine:
    return counted.job


def refused(job: Engine, *arguments: str) -> str:
    done = subprocess.run(
        [command_path("pipeline"), "reset", str(job.config_file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    return done.stdout


def counts(job: Engine) -> Counter[bytes | None]:
    return Counter(value for _, value in job.read(job.config.sink_topic))


def each(first: int, last: int) -> Counter[bytes | None]:
    """Return the counts that each key gave once."""
    return Counter({b"%d" % n: KEYS for n in range(first, last + 1)})


def test_all_is_counted_again_or_once_more(counted: Counted) -> None:
    job, rounds, before = counted.job, counted.rounds, counts(counted.job)
    said = refused(job, "Forwarder", "--to-earliest", "--yes")
    assert "Forwarder_0 runs: pause it first" in said
    job.run_command("pause")
    total = KEYS * rounds

    # The state is deleted, so the counts begin at 1 again.
    said = refused(job, "Counter", "--to-latest", "--yes")
    assert f"keep state in {job.names.state('Counter')}: give --state clear" in said
    said = job.run_command("reset", "Counter", "--to-latest", "--state", "clear", "--dry-run")
    assert f"state that is deleted: {job.names.state('Counter')}" in said
    assert "done" not in said
    job.run_command("reset", "Counter", "--to-latest", "--state", "clear", "--yes")
    said = job.run_command("reset", "Forwarder", "--to-earliest", "--yes")
    assert f"done: {job.config.parallelism} offsets set" in said
    job.run_command("resume")
    job.wait_until_done({job.config.sink_topic: before.total() + total})
    assert counts(job) - before == each(1, rounds)

    # The state is kept, so they go on.
    job.run_command("pause", "Forwarder")
    job.run_command("reset", "Forwarder", "--shift-by", "-1000000", "--yes")
    job.run_command("resume", "Forwarder")
    job.wait_until_done({job.config.sink_topic: before.total() + 2 * total})
    counted.last = 2 * rounds
    assert counts(job) - before == each(1, counted.last)


@pytest.mark.long
def test_what_waits_is_left_out(counted: Counted) -> None:
    job, before = counted.job, counts(counted.job)
    job.run_command("pause", "Forwarder")
    job.write([(b"k%d" % n, b"left out") for n in range(KEYS)])
    job.run_command("reset", "Forwarder", "--to-latest", "--yes")
    job.write([(b"k%d" % n, b"x") for n in range(KEYS)])
    job.run_command("resume", "Forwarder")
    job.wait_until_done({job.config.sink_topic: before.total() + KEYS})
    counted.rounds, counted.last = counted.rounds + 2, counted.last + 1
    assert counts(job) - before == each(counted.last, counted.last)


@pytest.mark.long
def test_a_reset_that_was_killed_is_repeated(counted: Counted) -> None:
    job, before = counted.job, counts(counted.job)
    job.run_command("pause")
    chance = random.Random(11)
    for _ in range(5):
        killed = subprocess.Popen(
            [
                *(command_path("pipeline"), "reset", str(job.config_file), "Counter"),
                *("--to-latest", "--state", "clear", "--yes"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(1, 4))
        killed.kill()
        killed.wait()
    job.run_command("reset", "Counter", "--to-latest", "--state", "clear", "--yes")
    job.run_command("reset", "Forwarder", "--to-earliest", "--yes")
    job.run_command("resume")
    job.wait_until_done({job.config.sink_topic: before.total() + KEYS * counted.rounds})
    counted.last = counted.rounds
    assert counts(job) - before == each(1, counted.last)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["Nobody", "--to-latest"], 'the job has no processor or task "Nobody"'),
        (["Counter"], 'give one of "--to-earliest", "--to-latest", "--to-offset"'),
        (["Counter", "--to-latest", "--to-offset", "5"], "give one of"),
        (["Counter", "--to-datetime", "now"], '--to-datetime: "now" is not a time'),
        (["Counter", "--by-duration", "1 year"], '--by-duration: "1 year" is not a time such as'),
        (["Counter", "--to-latest"], "Counter_0 runs: pause it first (`pipeline pause`), or stop"),
    ],
)
def test_wrong_arguments_are_named(job: Engine, arguments: list[str], problem: str) -> None:
    assert problem in refused(job, *arguments)


@pytest.mark.long
def test_inputs_that_nobody_reads_and_half_a_clearing_are_refused(job: Engine) -> None:
    job.run_command("pause", "Counter")
    none = "none of the processors reads such a topic or partition"
    assert none in refused(job, "Counter", "--to-latest", "--topic", "nothing")
    assert none in refused(job, "Counter", "--to-latest", "--partition", "99")
    half = refused(job, "Counter", "--to-latest", "--partition", "0", "--state", "clear")
    assert "--state clear is about all inputs" in half
    job.run_command("resume", "Counter")
