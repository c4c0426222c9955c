"""Follows how a job changes, until it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.suggest import counted, is_or_are, listed
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.arc_contents import ArcContents, held_up, ways_on
from kafka_pipeline.deployment.change import VersionChange
from kafka_pipeline.deployment.desired_state import Deployment, Wish
from kafka_pipeline.deployment.pipeline_topic import (
    ChangedMeanwhileError,
    DeploymentReader,
)
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher

_LOOK_S = 0.5
_GOES_ON = "the JobManager continues with it: see `pipeline status` and `pipeline versions`"


def follow(
    config: Config,
    admin: Admin,
    number: int,
    timeout_s: float | None,
    say: Callable[[str], None],
) -> None:
    """Say how a version comes to run, until all of its tasks do.

    A version on trial has to be confirmed, too. Raises `UnavailableError` if that takes longer than
    `timeout_s`, and `PipelineError` if a task fails, if the version is rolled back, or if a task
    that has failed or is paused holds the change up. The change goes on in any case, also after
    Ctrl-C.
    """
    deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    said = ""
    with (
        closing(DeploymentReader(config, admin)) as reader,
        closing(ClusterWatcher(config)) as watcher,
    ):
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
                if text := _held_up(config, admin, reader.deployment, watcher.status()):
                    raise PipelineError(text)
                if time.monotonic() >= deadline_s:
                    raise UnavailableError(f"the change is not complete in time; {_GOES_ON}")
        except KeyboardInterrupt:
            say(_GOES_ON)
            raise


def _progress(deployment: Deployment, status: ClusterStatus, number: int) -> tuple[bool, str]:
    """Return whether a version runs with all of its tasks, and a line about it."""
    wish = deployment.wish
    assert wish is not None
    if (back := deployment.taken_back(number)) is not None:
        raise PipelineError(back.text)
    if number not in (wish.version, wish.next):
        raise ChangedMeanwhileError(
            f"another change has come after version {number}: see `pipeline versions`"
        )
    if not status.job_manager.is_up:
        return False, "no JobManager runs: the change waits for one"
    if wish.stop is not None:
        return False, f"nothing runs for now: {wish.stop.by} works on the job ({wish.stop.purpose})"
    before, coming = deployment.current, deployment.coming
    if before is not None and coming is not None:
        arcs = [arc.topic for arc in VersionChange(before.pipeline, coming.pipeline).left]
        return False, f"version {number} follows once {', '.join(arcs)} {is_or_are(arcs)} drained"
    pipeline = deployment.version(number).pipeline
    held = sum(info.is_held for info in status.tasks)
    late = [f"{info.task} (TaskManager {info.owner})" for info in status.tasks if info.is_overdue]
    not_stopped = f"; not stopped yet: {listed(late)}" if late else ""
    # What is reported may still be about the former version.
    is_reported = {info.task for info in status.tasks} == {*pipeline.tasks}
    if wish.drains:
        is_done = is_reported and held == len(pipeline.tasks)
        line = f"{held} of {counted(len(pipeline.tasks), 'task')} rest{not_stopped}"
        return is_done, f"{'done: ' if is_done else ''}version {number}, {line}"
    wanted, failed = _wanted(pipeline, wish), ""
    run = 0
    for info in status.tasks:
        its = info.status
        if its is None or not _is_of(its, wanted):
            continue
        if its.state is TaskState.FAILED:
            failed = failed or f"{info.task} has failed: {info.reason}"
        run += its.state is TaskState.RUNNING
    if failed and wish.trial is None:
        raise PipelineError(f"version {number} runs, but {failed}")
    is_done = is_reported and run == len(wanted) and run + held == len(pipeline.tasks)
    rest = f", {held} held" if held else ""
    line = f"{run} of {counted(len(wanted), 'task')} run{rest}{not_stopped}"
    if wish.trial is not None:
        # The JobManager decides what becomes of it.
        return False, f"version {number} is on trial, {failed or line}"
    return is_done, f"{'done: ' if is_done else ''}version {number}, {line}"


def _held_up(config: Config, admin: Admin, deployment: Deployment, status: ClusterStatus) -> str:
    """Return why an arc is not drained, and what can be done; "" if nothing holds the change up."""
    wish, before, coming = deployment.wish, deployment.current, deployment.coming
    if before is None or wish is None or wish.stop is not None:
        return ""
    if wish.drains:
        change, coming = VersionChange.to_rest(before.pipeline), None
    elif coming is not None:
        change = VersionChange(before.pipeline, coming.pipeline)
    else:
        return ""
    wanted = _wanted(before.pipeline, wish)
    failed: dict[str, list[TaskStatus]] = {}
    for info in status.tasks:
        its = info.status
        if its is not None and its.state is TaskState.FAILED and _is_of(its, wanted):
            failed.setdefault(info.task.processor, []).append(its)
    active = {info.task.processor for info in status.tasks if not info.is_held}
    resting = {*wish.paused} - active
    contents = ArcContents(config, admin, before.pipeline)
    for arc in change.left:
        if arc.reader not in {*failed, *resting}:
            continue
        left = contents.left(arc, contents.ends(arc))
        if text := held_up(arc, left, failed.get(arc.reader, ()), coming):
            return text
        if left and arc.reader in resting:
            return f"{arc.topic} is to be drained, and {arc.reader} is paused: {ways_on(arc, left)}"
    return ""


def _wanted(pipeline: Pipeline, wish: Wish) -> dict[TaskId, str]:
    """Return the fingerprints of the tasks that are to run."""
    return {
        replica.task: replica.fingerprint
        for replica in replicas(pipeline, 0, wish.restarts)
        if replica.name not in wish.paused and str(replica.task) not in wish.paused_tasks
    }


def _is_of(status: TaskStatus, wanted: Mapping[TaskId, str]) -> bool:
    """Whether a status is about what is to run: what was reported before may not be."""
    return status.fingerprint == wanted.get(status.task)
