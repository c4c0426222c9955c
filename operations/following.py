"""Follows how a job changes, until it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, Presence
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.change import VersionChange
from kafka_pipeline.deployment.desired_state import Deployment
from kafka_pipeline.deployment.pipeline_topic import (
    ChangedMeanwhileError,
    DeploymentReader,
)
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher

_LOOK_S = 0.5


def follow(
    config: Config,
    admin: Admin,
    number: int,
    timeout_s: float | None,
    say: Callable[[str], None],
) -> None:
    """Say how a version comes to run, until all of its tasks do.

    Raises `UnavailableError` if that takes longer than `timeout_s`, and `PipelineError` if a task
    fails. The change goes on in any case.
    """
    deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    reader, watcher = DeploymentReader(config, admin), ClusterWatcher(config)
    said = ""
    try:
        while True:
            reader.read(0)
            watcher.read(_LOOK_S)
            is_done, line = _progress(reader.deployment, watcher.status(), number)
            if line != said:
                say(line)
                said = line
            if is_done:
                return
            if time.monotonic() >= deadline_s:
                raise UnavailableError(
                    "the change is not complete in time; the JobManager goes on with it: see "
                    "`pipeline status` and `pipeline versions`"
                )
    finally:
        reader.close()
        watcher.close()


def _progress(deployment: Deployment, status: ClusterStatus, number: int) -> tuple[bool, str]:
    """Return whether a version runs with all of its tasks, and a line about it."""
    wish = deployment.wish
    assert wish is not None
    if number not in (wish.version, wish.next):
        raise ChangedMeanwhileError(
            f"another change has come after version {number}: see `pipeline versions`"
        )
    if status.job_manager.presence is not Presence.UP:
        return False, "no JobManager runs: the change waits for one"
    if wish.stop is not None:
        return False, f"nothing runs for now: {wish.stop.by} works on the job ({wish.stop.purpose})"
    before, coming = deployment.current, deployment.coming
    if before is not None and coming is not None:
        arcs = [arc.topic for arc in VersionChange(before.pipeline, coming.pipeline).left]
        return False, f"version {number} comes once {', '.join(arcs)} {_are(arcs)} drained"
    pipeline = deployment.version(number).pipeline
    held = sum(info.is_held for info in status.tasks)
    # What is reported may still be about the former version.
    is_reported = {info.task for info in status.tasks} == {*pipeline.tasks}
    if wish.drains:
        is_done = is_reported and held == len(pipeline.tasks)
        line = f"{held} of {counted(len(pipeline.tasks), 'task')} rest"
        return is_done, f"{'done: ' if is_done else ''}version {number}, {line}"
    wanted = {
        replica.task: replica.fingerprint
        for replica in replicas(pipeline, 0, wish.restarts)
        if replica.name not in wish.paused and str(replica.task) not in wish.paused_tasks
    }
    run = 0
    for info in status.tasks:
        its = info.status
        if its is None or its.fingerprint != wanted.get(info.task):
            continue
        if its.state is TaskState.FAILED:
            raise PipelineError(f"version {number} runs, but {info.task} has failed: {info.reason}")
        run += its.state is TaskState.RUNNING
    is_done = is_reported and run == len(wanted) and run + held == len(pipeline.tasks)
    line = f"{run} of {counted(len(wanted), 'task')} run{f', {held} held' if held else ''}"
    return is_done, f"{'done: ' if is_done else ''}version {number}, {line}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
