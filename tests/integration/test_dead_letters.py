"""Dead letters of a real pipeline: listed, sent back exactly once, and purged."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.admin.daemons import command_path
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = """
- {id: Forwarder, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [sink], on_error: dead_letter}
"""
BAD = 1200
_job_numbers = itertools.count()


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A pipeline with one TaskManager, whose Adder has rejected records."""
    name = f"letters_{os.getpid()}_{next(_job_numbers)}"
    with engine(
        tmp_path, bootstrap_servers, name, PIPELINE, tm_number=1, heartbeat_interval_ms=500
    ) as made:
        made.start_job_manager()
        made.start_task_manager(0)
        made.wait_until(all_run([0]))
        made.write([(b"k%d" % (n % 7), b"bad %d" % n) for n in range(BAD)])
        made.write([(b"k", b"1")])
        made.wait_until_done({made.config.sink_topic: 1, made.names.dead_letter("Adder"): BAD})
        yield made


def listed(job: Engine, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(job, "list", "--json", *options))
    return found


def run(job: Engine, command: str, *options: str) -> str:
    done = start(job, command, *options)
    output, _ = done.communicate(timeout=120)
    assert done.returncode == 0, output
    return output


def start(job: Engine, command: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [command_path("pipeline"), "dlq", command, str(job.config_file), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_letters_are_sent_back_once_though_the_command_is_killed(job: Engine) -> None:
    job.run_command("pause", "Adder")
    letters = listed(job)
    assert {letter["value"] for letter in letters} == {f"bad {n}" for n in range(BAD)}
    chance = random.Random(7)
    for _ in range(4):
        interrupted = start(job, "redrive", "--yes")
        time.sleep(chance.uniform(0.5, 3))
        interrupted.kill()
        interrupted.communicate()
    run(job, "redrive", "--yes")
    assert listed(job) == []
    job.run_command("resume", "Adder")
    # Each is rejected once more, as a record of its own.
    job.wait_until_done({job.names.dead_letter("Adder"): 2 * BAD})
    again = listed(job)
    assert Counter(each["value"] for each in again) == {f"bad {n}": 1 for n in range(BAD)}
    assert all(each["topic"] == job.names.arc("Forwarder", "Adder") for each in again)
    every = Counter(each["handled"] for each in listed(job, "--all"))
    assert every == {"redriven": BAD, None: BAD}


def test_letters_that_are_purged_are_gone_and_others_stay(job: Engine) -> None:
    letters = listed(job)
    some = [letters[10]["id"], letters[20]["id"]]
    assert "2 dead letters: 2 of Adder" in run(job, "purge", "--yes", *some)
    left = listed(job)
    assert len(left) == BAD - 2
    assert not {each["id"] for each in left} & {*some}
    assert json.loads(run(job, "show", some[0]))["handled"] == "purged"
    run(job, "purge", "--yes", "--reason", "not an integer")
    assert listed(job, "--all") == []
    assert job.read(job.names.dead_letter("Adder")) == []
