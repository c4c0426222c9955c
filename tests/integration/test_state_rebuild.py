"""`pipeline apply --rebuild` while records flow, and a command that is killed and repeated."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.common.clock import wall_clock_ms
from tests.engine import Engine, all_run, engine
from tests.steady_load import KEYS, Writer

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
STEP_MS = 50
TOPOLOGY = """
sinks: {results: results_JOB}
processors:
- {id: Best, type: "tests.user_code.rebuilt:Largest", to: [sink],
   stores: [{name: Best, key: bytes, value: int64}]}
- id: Shop
  type: topology
  builder: "tests.user_code.rebuilt:windowed"
  config: {factor: FACTOR}
"""
NAMES = """
- id: Names
  type: topology
  builder: "tests.user_code.rebuilt:count_names"
  config: {suffix: SUFFIX}
"""

_job_numbers = itertools.count()


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A job for two TaskManagers, whose pipeline is written later."""
    name = f"rebuild_{os.getpid()}_{next(_job_numbers)}"
    code = {"modules": "[tests.user_code.rebuilt]", "python_path": f"[{ROOT}]"}
    settings = {"heartbeat_interval_ms": 500, **code}
    with engine(tmp_path, bootstrap_servers, name, NAMES, **settings) as made:
        yield made


def run(job: Engine) -> None:
    job.start_job_manager()
    for tm_id in (0, 1):
        job.start_task_manager(tm_id)
    job.wait_until(all_run([0, 1]))


def rebuild(job: Engine, folder: Path, entry: str, *kills_s: float) -> str:
    """Apply the pipeline with a rebuild, after commands that were killed; return what it says."""
    files = [str(job.config_file), str(folder / "pipeline.yaml")]
    words = [str(command_path("pipeline")), "apply", *files, "--rebuild", entry, "--yes"]
    for moment_s in kills_s:
        started = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        time.sleep(moment_s)
        started.kill()
        started.wait()
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    # A killed command may have got as far as the switch.
    is_done = f"rebuild-{job.config.job_name}-{entry} exists already" in done.stderr
    assert done.returncode == 0 or (kills_s and is_done), done.stdout + done.stderr
    return done.stdout


def values(job: Engine, topic: str) -> dict[bytes | None, list[bytes]]:
    found: dict[bytes | None, list[bytes]] = {}
    for key, value in job.read(topic):
        found.setdefault(key, []).append(value or b"")
    return found


@pytest.mark.parametrize("kills_s", [(), (8.0, 14.0, 20.0)])
def test_windows_and_a_class_go_on_as_if_the_new_code_had_run_from_the_start(
    job: Engine, tmp_path: Path, kills_s: tuple[float, ...]
) -> None:
    results = f"results_{job.config.job_name}"
    text = TOPOLOGY.replace("results_JOB", results)
    job.write_pipeline(text.replace("FACTOR", "1"))
    run(job)
    start_ms = wall_clock_ms() // 1000 * 1000 - 3_600_000
    with Writer(job, lambda number: start_ms + number * STEP_MS) as writer:
        writer.go_on(30)
        job.write_pipeline(text.replace("FACTOR", "10"))
        said = rebuild(job, tmp_path, "Shop", *kills_s)
        if not kills_s:
            assert "Shop-source" in said
        job.wait_until(all_run([0, 1]))
        writer.go_on(30)
    rounds = writer.rounds
    job.wait_until_done({results: KEYS * (rounds + (rounds * STEP_MS - 500) // 1000)})
    found = values(job, results)
    for key in range(KEYS):
        check_sums(found[b"k%d" % key], start_ms, rounds)
    # The class was not rebuilt: its numbers go on.
    best = values(job, job.config.sink_topic)
    assert {tuple(each) for each in best.values()} == {tuple(b"%d" % n for n in range(rounds))}


def check_sums(found: list[bytes], start_ms: int, rounds: int) -> None:
    """Assert that all sums of a key are there once, those after one moment by the new code."""
    sums = [each for each in found if each.startswith(b"sum")]
    old, new = all_sums(start_ms, rounds, 1), all_sums(start_ms, rounds, 10)
    assert len(sums) == rounds
    # A sum of the new code is ten times that of the old one, which may be 0.
    switches = [at for at in range(rounds + 1) if sums == old[:at] + new[at:]]
    assert switches, sums
    assert 0 < switches[0] < rounds
    closed = [each.split() for each in found if each.startswith(b"closed")]
    windows = [int(start) for _, start, _ in closed]
    assert windows == [start_ms + n * 1000 for n in range(len(windows))]


def all_sums(start_ms: int, rounds: int, factor: int) -> list[bytes]:
    found, total = [], 0
    per_window = 1000 // STEP_MS
    for number in range(rounds):
        total = number * factor + (total if number % per_window else 0)
        window = start_ms + number // per_window * 1000
        found.append(b"sum %d %d" % (window, total))
    return found


def test_state_after_a_repartition_goes_on_with_other_code(job: Engine, tmp_path: Path) -> None:
    job.write_pipeline(NAMES.replace("SUFFIX", '""'))
    run(job)
    with Writer(job) as writer:
        writer.go_on(30)
        job.write_pipeline(NAMES.replace("SUFFIX", '"!"'))
        rebuild(job, tmp_path, "Names", 15.0)
        job.wait_until(all_run([0, 1]))
        writer.go_on(30)
    rounds = writer.rounds
    job.wait_until_done({job.config.sink_topic: KEYS * rounds})
    found = values(job, job.config.sink_topic)
    for name, counts in found.items():
        numbers = [int(each.rstrip(b"!")) for each in counts]
        assert numbers == list(range(1, len(counts) + 1)), name
        assert [each.endswith(b"!") for each in counts] == sorted(
            each.endswith(b"!") for each in counts
        )
        assert counts[-1].endswith(b"!")
