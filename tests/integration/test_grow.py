"""A job that runs is grown, and shrinks again, without a restart of its JobManager."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.common.cluster.cluster_status import Presence
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

_job_numbers = itertools.count()

PIPELINE = "- {id: Forwarder, type: forward, to: [sink]}\n"


def refused(*command: str) -> str:
    done = subprocess.run(
        [command_path(command[0]), *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    return done.stdout


def grown(job: Engine, number: int) -> str:
    return job.run_command("grow", "--tm-number", str(number))


def test_a_job_grows_and_shrinks_while_it_runs(tmp_path: Path, bootstrap_servers: str) -> None:
    name = f"grow_{os.getpid()}_{next(_job_numbers)}"
    with engine(tmp_path, bootstrap_servers, name, PIPELINE, tm_number=1) as job:
        job.start_job_manager()
        job.wait_until(lambda status: status.job_manager.presence is Presence.UP)
        said = refused("taskmanager", "1", "1", str(job.config_file))
        assert "TaskManager id 1 is outside 0..0" in said
        assert "TaskManagers: 1 before, 2 now" in grown(job, 2)
        manager = job.start_task_manager(1, threads=1)
        job.wait_until(all_run([1]))
        said = refused("pipeline", "grow", str(job.config_file), "--tm-number", "1")
        assert "TaskManager 1 is up, and ids would end at 0: stop it first" in said
        manager.terminate()
        assert manager.wait(20)
        assert "TaskManagers: 2 before, 1 now" in grown(job, 1)
        assert "is outside 0..0" in refused("taskmanager", "1", "1", str(job.config_file))
