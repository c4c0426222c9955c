"""The documented way back from an event time in the future, which one record has moved there.

It is that of docs/how-to/troubleshoot.md, "Event time is in the future".
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from tests.engine import Engine, all_run, engine
from tests.user_code.totals import WINDOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PIPELINE = """
- {id: Dsl, type: topology, builder: "tests.user_code.totals:build", on_error: skip}
"""
YEAR_MS = 365 * 86_400_000
KEYS = [b"a", b"b", b"c"]


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    settings = {
        "tm_number": 1,
        "parallelism": 1,
        "heartbeat_interval_ms": 500,
        "modules": "[tests.user_code.totals]",
        "python_path": f"[{ROOT}]",
    }
    name = f"spoilt_{os.getpid()}"
    with engine(tmp_path, bootstrap_servers, name, PIPELINE, **settings) as made:
        yield made


def take_any_time(job: Engine, topic: str) -> None:
    """Let a topic of the user have times far ahead, as topics of Kafka 3 do."""
    client = AdminClient({"bootstrap.servers": job.config.bootstrap_servers})
    entry = ConfigEntry(
        "message.timestamp.after.max.ms",
        str(2 * YEAR_MS),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    for answer in client.incremental_alter_configs([resource]).values():
        answer.result(30)


def dropped(status: ClusterStatus) -> Mapping[str, int]:
    """Return what the processor of the source has dropped."""
    found = (task.status for task in status.tasks if task.task.processor == "Dsl-Records")
    return next((each.dropped for each in found if each is not None), {})


def counts(job: Engine, start_ms: int) -> int:
    """Return the last count of updates in a window."""
    values = [(value or b"").split() for _, value in job.read(job.config.sink_topic)]
    return max((int(count) for start, count in values if int(start) == start_ms), default=0)


def test_records_count_again_after_the_wrong_one(job: Engine) -> None:
    # An earlier version had no limit.
    unlimited = job.write_config("unlimited", max_timestamp_ahead_ms=3 * YEAR_MS)
    daemons = [
        job.start_job_manager(config_file=unlimited),
        job.start_task_manager(0, config_file=unlimited),
    ]
    job.wait_until(all_run([0]))
    for topic in (job.config.source_topic, job.config.sink_topic):
        take_any_time(job, topic)
    now_ms = int(time.time() * 1000)
    start_ms = now_ms - now_ms % WINDOW_MS
    rows = [(key, b"x", start_ms) for key in KEYS]
    job.write_at([*rows, (b"a", b"wrong", now_ms + YEAR_MS), *rows])
    job.wait_until(lambda status: dropped(status).get("expired") == len(KEYS))
    assert counts(job, start_ms) == len(KEYS)
    for daemon in daemons:
        daemon.terminate()
        daemon.wait(60)

    job.start_job_manager()
    task_manager = job.start_task_manager(0)
    job.wait_until(all_run([0]))
    assert "event time is ahead of the clock" in task_manager.log_file.read_text()
    job.run_command("pause")
    before = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms / 1000 - 3600))
    again = ("--state", "clear", "--yes")
    job.run_command("reset", "Dsl-Records", "--to-datetime", before, *again)
    job.run_command("reset", "Dsl-ByAll", "--to-latest", *again)
    size = len(job.read(job.config.sink_topic))
    job.run_command("resume")
    # Those before the wrong record and those after it.
    job.wait_until_done({job.config.sink_topic: size + 2 * len(KEYS)})
    assert counts(job, start_ms) == 2 * len(KEYS)
