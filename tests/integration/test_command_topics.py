"""A topic of commands to one TaskManager that is gone, on a real Kafka."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kafka_pipeline.admin.daemons import Daemon, command_path
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.kafka.admin import Admin
from tests.engine import all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = "- {id: P, type: forward, to: [sink]}\n"


def has_closed_its_task(manager: Daemon) -> bool:
    return "task closed" in manager.log_file.read_text()


def findings(status: ClusterStatus) -> str:
    return "\n".join(status.job_manager.findings)


def test_others_get_their_commands_if_the_topic_of_one_is_deleted(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    name = f"commands_{os.getpid()}"
    with engine(tmp_path, bootstrap_servers, name, PIPELINE) as job:
        job.start_job_manager()
        one, other = map(job.start_task_manager, (0, 1))
        job.wait_until(all_run([0, 1]))
        admin = Admin(job.config)
        admin.delete_topics([job.names.processors("1")])
        pause = subprocess.Popen([command_path("pipeline"), "pause", str(job.config_file), "P"])
        job.wait_until(
            lambda status: has_closed_its_task(one) and "of TaskManager 1 can" in findings(status)
        )
        assert not has_closed_its_task(other)
        # As each daemon does when it starts.
        admin.ensure_topics(control_topics(job.config))
        job.wait_until(lambda status: has_closed_its_task(other) and not findings(status))
        assert pause.wait(30) == 0
        job.run_command("resume", "P")
        job.wait_until(all_run([0, 1]))
