"""Decides whether a version that is on trial has come up, and who has to wait for that.

A core: the shell says how the tasks do, and carries the verdict out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import Wish
from kafka_pipeline.deployment.plan import reached

STEADY_BEATS = 5
"""For how many heartbeats all tasks must be RUNNING, without a break: longer than it takes to find
out that a TaskManager is gone."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The version has come up."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The version has not come up; `reason` is a clause for people."""

    reason: str


Verdict = Confirmed | Rejected


class VersionTrial:
    """A version of a pipeline that has to come up, or else the one before runs again.

    Only tasks count that the version has added or changed, and that are not paused. It is confirmed
    once all of them have been RUNNING for `STEADY_BEATS`. It is rejected once one of them is
    FAILED, or when none has come up for the time of the trial. Time passes only while one of them
    is STARTING or RESTARTING at its owner, and none is RESTORING. So none passes while a task has
    no TaskManager, or waits for those that restore their state, or while Kafka does not carry
    heartbeats.

    Processors that would send to others that have to come up are held until these have. So a
    version whose processors cannot start leaves nothing in arcs that only it can read.

    Nothing of this is remembered: another JobManager begins to measure again.
    """

    def __init__(self, before: Pipeline, after: Pipeline, wish: Wish, interval_ms: int) -> None:
        """Take the version to go back to, the one on trial, and the wish, which has a trial."""
        assert wish.trial is not None
        self.tasks = _changed(before, after, wish)
        """The tasks that have to come up, with their fingerprints."""
        self._of: dict[str, list[TaskId]] = {}
        for task in self.tasks:
            self._of.setdefault(task.processor, []).append(task)
        self._within_ms = wish.trial.within_ms
        self._interval_ms = interval_ms
        self._waits_for = _readers(after, self._of)
        self._came_up: set[str] = set()
        self._ran: set[TaskId] = set()
        """The tasks that have come up, perhaps for a moment."""
        self._looked_ms: int | None = None
        self._tried_ms = 0
        self._steady_ms = 0

    @property
    def held(self) -> frozenset[str]:
        """The processors that have to wait until those come up that they send to."""
        return frozenset(
            writer for writer, readers in self._waits_for.items() if readers - self._came_up
        )

    def note(self, reported: Mapping[TaskId, TaskStatus]) -> None:
        """Take in what owners report; processors that have come up hold nobody any more."""
        runs = {its.task for its in self._its(reported) if its.state is TaskState.RUNNING}
        if not runs <= self._ran:
            self._ran |= runs
            self._tried_ms = 0
        self._came_up.update(id_ for id_, tasks in self._of.items() if runs.issuperset(tasks))

    def _its(self, reported: Mapping[TaskId, TaskStatus]) -> list[TaskStatus]:
        """Return what is reported of the tasks that have to come up, in this version."""
        found = (reported[task] for task in self.tasks if task in reported)
        return [its for its in found if its.fingerprint == self.tasks[its.task]]

    def look(
        self, now_ms: int, reported: Mapping[TaskId, TaskStatus], *, is_isolated: bool
    ) -> Verdict | None:
        """Return the verdict, once there is one.

        `reported` is what owners report of tasks, perhaps in a former version. While the JobManager
        `is_isolated`, it may be out of date.
        """
        last_ms = now_ms if self._looked_ms is None else self._looked_ms
        # Time in which this process stood still says nothing about tasks.
        passed_ms = 0 if is_isolated else min(now_ms - last_ms, self._interval_ms)
        self._looked_ms = now_ms
        self.note(reported)
        if not self.tasks:
            return Confirmed()
        its = self._its(reported)
        for status in its:
            if status.state is TaskState.FAILED:
                return Rejected(f"{status.task} is FAILED{_why(status)}")
        if len(its) == len(self.tasks) and all(s.state is TaskState.RUNNING for s in its):
            self._steady_ms += passed_ms
            return Confirmed() if self._steady_ms >= STEADY_BEATS * self._interval_ms else None
        self._steady_ms = 0
        trying = [s for s in its if s.state in (TaskState.STARTING, TaskState.RESTARTING)]
        if not trying or any(s.state is TaskState.RESTORING for s in its):
            return None
        self._tried_ms += passed_ms
        if self._tried_ms < self._within_ms:
            return None
        first, *others = trying
        more = f", and {len(others)} more" if others else ""
        return Rejected(
            f"{first.task} is {first.state} after {self._within_ms / 1000:g} s of trying"
            f"{_why(first)}{more}"
        )


def late_writers(before: Pipeline, after: Pipeline, wish: Wish) -> frozenset[str]:
    """Return the processors that are held at the beginning of a trial."""
    changed = {task.processor: task for task in _changed(before, after, wish)}
    return frozenset(writer for writer, readers in _readers(after, changed).items() if readers)


def _changed(before: Pipeline, after: Pipeline, wish: Wish) -> dict[TaskId, str]:
    """Return the tasks that `after` adds or changes and that are to run, with fingerprints."""
    had = {each.task: each.fingerprint for each in replicas(before, 0, wish.restarts)}
    return {
        each.task: each.fingerprint
        for each in replicas(after, 0, wish.restarts)
        if had.get(each.task) != each.fingerprint
        and each.task.processor not in wish.paused
        and str(each.task) not in wish.paused_tasks
    }


def _readers(after: Pipeline, touched: Mapping[str, object]) -> dict[str, set[str]]:
    """Return whom each processor that has to come up sends to, of those that have to come up.

    Those that send to each other do not wait for each other.
    """
    targets: dict[str, set[str]] = {}
    arcs = after.arcs
    for processor in after.processors:
        found = {arcs[topic] for topic in after.out_topics(processor) if topic in arcs}
        targets[processor.id] = found
    return {
        writer: {r for r in targets[writer] if r in touched and writer not in reached(r, targets)}
        for writer in touched
    }


def _why(status: TaskStatus) -> str:
    return f" ({status.reason})" if status.reason else ""
