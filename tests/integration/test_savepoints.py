"""Savepoints and a changed parallelism while records flow, and commands that are killed."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.cluster.cluster_status import Presence
from tests.engine import Engine, all_run, engine, run_on_two
from tests.steady_load import KEYS, Writer, check_counts, counts_by_key, wait_for_counts
from tests.user_code.rescaled import STEP_MS, expected

pytestmark = pytest.mark.integration

CHAIN = """
- {id: Forwarder, type: forward, to: [Adder], on_error: dead_letter}
- {id: Adder, type: sum, to: [Counter]}
- {id: Counter, type: count, to: [sink]}
"""

ONE_EACH = [(b"k%d" % number, b"1") for number in range(KEYS)]
WITH_WINDOWS = f"""
sinks: {{results: results_JOB}}
processors:
{CHAIN}
- {{id: Dsl, type: topology, builder: "tests.user_code.rescaled:build"}}
"""
ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000

_job_numbers = itertools.count()


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A chain of three processors, for two TaskManagers."""
    name = f"savepoint_{os.getpid()}_{next(_job_numbers)}"
    code = {"modules": "[tests.user_code.rescaled]", "python_path": f"[{ROOT}]"}
    settings = {"heartbeat_interval_ms": 500, **code}
    with engine(tmp_path, bootstrap_servers, name, CHAIN, **settings) as made:
        yield made


def command(job: Engine, name: str, *arguments: str) -> list[str]:
    return [str(command_path("pipeline")), *name.split(), str(job.config_file), *arguments]


def kill_at_some_time(words: list[str], most_s: float, chance: random.Random) -> None:
    """Start a command, and kill it while it works."""
    started = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(chance.uniform(0.5, most_s))
    started.kill()
    started.wait()


@pytest.mark.long
def test_job_whose_arc_got_more_partitions_goes_on_from_a_savepoint(
    job: Engine, tmp_path: Path
) -> None:
    """Tasks FAIL rather than write to partitions that nobody reads; a restore makes the arc new."""
    daemons = [job.start_job_manager(), job.start_task_manager(0), job.start_task_manager(1)]
    job.wait_until(all_run([0, 1]))
    job.write(ONE_EACH)
    job.wait_until_done({job.config.sink_topic: KEYS})
    arc = job.names.arc("Forwarder", "Adder")
    client = AdminClient({"bootstrap.servers": job.config.bootstrap_servers})
    client.create_partitions([NewPartitions(arc, 4)])[arc].result(10)
    reason = f"has failed: topic {arc} has other partitions than the 2 that the job made and reads"
    with pytest.raises(AssertionError, match=reason):
        job.run_command("restart", "Forwarder")
    job.write(ONE_EACH)
    job.run_command("savepoint create", str(tmp_path / "saved"))
    for daemon in daemons:
        daemon.terminate()
        assert daemon.wait(60)
    job.run_command("savepoint restore", str(tmp_path / "saved"), "--yes")
    run_on_two(job)
    job.wait_until_done({job.config.sink_topic: 2 * KEYS})
    assert counts_by_key(job) == {key: [1, 2] for key, _ in ONE_EACH}


@pytest.mark.long
def test_savepoint_becomes_another_job(job: Engine, tmp_path: Path, bootstrap_servers: str) -> None:
    run_on_two(job)
    folder = tmp_path / "saved"
    with Writer(job) as writer:
        writer.go_on(40)
        # Killed in the middle, a savepoint stops the job until it is resumed, or made again.
        chance = random.Random(7)
        for _ in range(2):
            kill_at_some_time(command(job, "savepoint create", str(folder)), 4, chance)
        if not folder.exists():
            job.run_command("savepoint create", str(folder))
        job.run_command("resume")
        writer.go_on(40)
    check_counts(job, writer.rounds)

    fork_folder = tmp_path / "fork"
    fork_folder.mkdir()
    name = f"fork_{job.config.job_name}"
    with engine(
        fork_folder,
        bootstrap_servers,
        name,
        CHAIN,
        heartbeat_interval_ms=500,
        tm_number=1,
        source_topic=job.config.source_topic,
    ) as fork:
        # A TaskManager that is there already has no tasks, and is not waited for.
        fork.start_task_manager(0)
        fork.wait_until(lambda status: status.task_managers[0].presence is Presence.UP)
        said = fork.run_command("savepoint fork", str(folder), "--yes")
        assert "start the JobManager of the new job" in said
        fork.start_job_manager(with_pipeline=False)
        wait_for_counts(fork, 0, writer.rounds)


@pytest.mark.long
def test_job_gets_more_tasks_and_fewer_while_all_is_killed(job: Engine, tmp_path: Path) -> None:
    chance = random.Random(3)

    def rescale(parallelism: int, tasks: int) -> None:
        folder = str(tmp_path / f"to-{parallelism}")
        options = ["--parallelism", str(parallelism), "--savepoint", folder, "--yes"]
        words = command(job, "rescale", *options)
        for _ in range(2):
            kill_at_some_time(words, 6, chance)
        ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        is_done = f"the parallelism of this job is {parallelism} already" in ended.stderr
        assert ended.returncode == 0 or is_done, ended.stderr
        job.wait_until(lambda status: all_run([0, 1])(status) and len(status.tasks) == tasks)
        writer.go_on(40)

    results = f"results_{job.config.job_name}"
    job.write_pipeline(WITH_WINDOWS.replace("results_JOB", results))
    job_manager = run_on_two(job)
    start_ms = (wall_clock_ms() // HOUR_MS - 2) * HOUR_MS
    with Writer(job, lambda number: start_ms + number * STEP_MS) as writer:
        writer.go_on(40)
        rescale(5, 2 + 5 + 5 + 2 + 5)
        job_manager.kill()
        job.start_job_manager(with_pipeline=False)
        rescale(1, 2 + 1 + 1 + 2 + 1)
    rounds, last_ms = writer.rounds, start_ms + HOUR_MS
    # The last numbers make all before them late, and may overtake those of another partition.
    job.wait_until_done({results: KEYS * (rounds + rounds // 2)})
    writer.write_round(last_ms)
    check_counts(job, writer.rounds)
    wanted = expected(start_ms, rounds, last_ms)
    job.wait_until_done({results: KEYS * len(wanted)})
    found: dict[bytes | None, list[bytes]] = {}
    for key, value in job.read(results):
        found.setdefault(key, []).append(value or b"")
    assert {key: sorted(of_key) for key, of_key in found.items()} == {
        b"k%d" % key: wanted for key in range(KEYS)
    }


FRAMES = """
- id: Framed
  type: sql
  query: >
    SELECT key, concat_ws(' ', value,
      lag(value, 1, '-') OVER (PARTITION BY reverse(key) ORDER BY timestamp),
      count(*) OVER (PARTITION BY reverse(key) ORDER BY timestamp
                     RANGE BETWEEN INTERVAL '40 seconds' PRECEDING AND CURRENT ROW)) AS value
    FROM input
  grace: 1 min
  to: [sink]
"""
FRAME_STEP_MS = 10_000


@pytest.mark.long
def test_frames_get_more_tasks_and_fewer_while_a_task_manager_is_killed(
    job: Engine, tmp_path: Path
) -> None:
    """Each record has one result, of the records before it, whichever task has its group."""

    def rescale(parallelism: int) -> None:
        folder, tasks = str(tmp_path / f"to-{parallelism}"), 2 + parallelism
        options = ["--parallelism", str(parallelism), "--savepoint", folder]
        job.run_command("rescale", *options, "--yes")
        job.wait_until(lambda status: all_run([0, 1])(status) and len(status.tasks) == tasks)
        writer.go_on(40)

    job.write_pipeline(FRAMES)
    job.start_job_manager()
    victim = job.start_task_manager(0)
    job.start_task_manager(1)
    job.wait_until(all_run([0, 1]))
    start_ms = wall_clock_ms() - 24 * HOUR_MS
    with Writer(job, lambda number: start_ms + number * FRAME_STEP_MS) as writer:
        writer.go_on(40)
        rescale(5)
        victim.kill()
        job.start_task_manager(0)
        job.wait_until(all_run([0, 1]))
        rescale(1)
    rounds = writer.rounds
    writer.write_round(start_ms + 12 * HOUR_MS)
    sink = job.config.sink_topic
    job.wait_until_done({sink: KEYS * rounds})
    found: dict[bytes | None, list[bytes]] = {}
    for key, value in job.read(sink):
        found.setdefault(key, []).append(value or b"")
    wanted = [
        b"%d %s %d" % (number, b"%d" % (number - 1) if number else b"-", min(number + 1, 5))
        for number in range(rounds)
    ]
    assert found == {b"k%d" % key: wanted for key in range(KEYS)}


RENAMED = """
- {id: First, was: Forwarder, type: forward, to: [Adder]}
- {id: Adder, type: sum, to: [Total]}
- {id: Total, was: Counter, type: count, to: [sink]}
"""


@pytest.mark.long
def test_processors_get_other_ids_and_keep_their_state(job: Engine, tmp_path: Path) -> None:
    run_on_two(job)
    with Writer(job) as writer:
        writer.go_on(40)
        job.write_pipeline(RENAMED)
        shown = job.run_command("plan", with_pipeline=True)
        assert "Counter becomes Total" in shown
        assert "Taken away" not in shown
        words = [*command(job, "apply"), str(tmp_path / "pipeline.yaml"), "--yes"]
        for moment_s in (3.0, 4.5):
            killed = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
            time.sleep(moment_s)
            killed.kill()
            killed.wait()
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "done: version 2, 6 of 6 tasks run" in done.stdout
        writer.go_on(40)
    check_counts(job, writer.rounds)
