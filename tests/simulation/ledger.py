"""Follows a JobManager from outside, and checks that it never lets two owners have a task.

It knows the messages that the JobManager received, and trusts none of its conclusions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_pipeline.common.protocol.messages import (
    MISSED_BEATS,
    HeartbeatEvent,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.heartbeat_controller import ECHO_TIMEOUT_BEATS
from kafka_pipeline.jobmanager.state import REVOKE_TIMEOUT_BEATS
from tests.simulation.pipeline_thread import INTERVAL_MS

REVOKE_TIMEOUT_MS = REVOKE_TIMEOUT_BEATS * INTERVAL_MS
DOWN_AFTER_MS = MISSED_BEATS * INTERVAL_MS
ISOLATED_AFTER_MS = ECHO_TIMEOUT_BEATS * INTERVAL_MS


@dataclass(slots=True)
class _Holding:
    """A TaskManager's right to run a task, until it gives it back, is down, or is too slow."""

    tm_id: int
    incarnation: str
    told: int = 0
    """The sequence of the last command about the task to this TaskManager."""
    revoked_at_ms: int | None = None


class Ledger:
    """Knows what one JobManager sent and received; a report costs O(tasks held)."""

    def __init__(self, replicas: Mapping[TaskId, ProcessorReplica]) -> None:
        self.moved: set[TaskId] = set()
        """Tasks that left an owner which was not down; the reader may clear this."""
        self._replicas = replicas
        self._holdings: dict[TaskId, _Holding] = {}
        self._held: dict[int, set[TaskId]] = {}
        self._confirmed: dict[str, int] = {}
        self._beats: dict[str, int] = {}
        self._reported: dict[str, tuple[int, int, dict[TaskId, TaskStatus]]] = {}
        """By incarnation: the last beat and base that were read, and the tasks at that time."""
        self._compared: Mapping[TaskId, int | None] = {}
        self._unexpected: dict[str, frozenset[TaskId]] = {}
        """The tasks that each incarnation still ran while another one held them."""
        self._asked_back: dict[TaskId, tuple[int, int]] = {}
        """Tasks asked back from a TaskManager not known to hold them: its id, and the sequence."""
        self._live: dict[int, str] = {}
        self._down: dict[int, str] = {}
        """The TaskManagers that are down, and have not come back; they may be told so."""
        self._left: set[str] = set()
        self._heard_ms: dict[str, int] = {}
        self._echoed_ms: int | None = None
        self._ran_ms = 0
        self._ticked_ms = 0

    @property
    def asked_back_ms(self) -> int | None:
        """When the longest outstanding request to give back a task was made; None without any."""
        times = [holding.revoked_at_ms for holding in self._holdings.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def most_asked_back(self) -> int:
        """The largest number of tasks that are asked back from one TaskManager."""
        asked = Counter(h.tm_id for h in self._holdings.values() if h.revoked_at_ms is not None)
        return max(asked.values(), default=0)

    def tick(self, now_ms: int) -> None:
        """Let time pass; a gap in which the JobManager did not run counts as one interval."""
        passed_ms = now_ms - self._ticked_ms if self._ticked_ms else 0
        self._ran_ms += min(passed_ms, INTERVAL_MS)
        self._ticked_ms = now_ms

    def echo(self) -> None:
        """Record that the JobManager received its own heartbeat."""
        self._echoed_ms = self._ran_ms

    def hear(self, report: Report, epoch: int) -> None:
        """Process a report; unlisted tasks are given back if it confirms their last command."""
        incarnation = report.incarnation
        if report.beat > self._beats.get(incarnation, 0):
            self._beats[incarnation] = report.beat
            self._heard_ms[incarnation] = self._ran_ms
        if report.leaving:
            self._left.add(incarnation)
        tasks = self._read(report)
        if tasks is None:
            return
        confirmed = self._confirmed.get(incarnation, 0)
        if report.epoch == epoch and report.sequence > confirmed:
            confirmed = self._confirmed[incarnation] = report.sequence
        held = self._held.setdefault(report.tm_id, set())
        listed = frozenset(tasks)
        for task in held - listed:
            holding = self._holdings[task]
            if holding.incarnation == incarnation and holding.told <= confirmed:
                self._drop(task)
        self._look_at_others(report, tasks, listed - held)

    def _read(self, report: Report) -> Mapping[TaskId, TaskStatus] | None:
        """Return the tasks that a TaskManager runs; None if this report does not show them."""
        incarnation = report.incarnation
        last, base, tasks = self._reported.get(incarnation, (0, 0, {}))
        if report.beat <= last or (report.base is not None and report.base != base):
            return None
        if report.base is None:
            base, tasks = report.beat, {}
        tasks = {task: status for task, status in tasks.items() if task not in report.closed}
        tasks |= {status.task: status for status in report.tasks}
        self._reported[incarnation] = (report.beat, base, tasks)
        return tasks

    def _look_at_others(
        self, report: Report, tasks: Mapping[TaskId, TaskStatus], others: frozenset[TaskId]
    ) -> None:
        """Record its unexpected tasks; it becomes the owner of tasks without an owner."""
        incarnation = report.incarnation
        former = self._unexpected.get(incarnation, frozenset())
        unexpected = {task for task in others if task in former or task in self._holdings}
        self._unexpected[incarnation] = frozenset(unexpected)
        if len(unexpected) == len(others):
            return
        for status in tasks.values():
            replica = self._replicas.get(status.task)
            is_open = status.task in others and status.task not in unexpected
            if not is_open or replica is None or status.task.standby:
                continue
            is_same = status.fingerprint == replica.fingerprint
            if is_same and status.state is not TaskState.FAILED:
                self._hold(status.task, report.tm_id, incarnation, self._ticked_ms)

    def tell(self, message: Message, now_ms: int) -> None:
        """Process a message of the JobManager; the time is that of its last tick."""
        match message:
            case HeartbeatEvent(tm_id, is_up=False):
                self._check_down(tm_id)
                for task in self._held.pop(tm_id, ()):
                    del self._holdings[task]
                self._compared = {}
                # For the JobManager, a TaskManager that comes back is a new one in every way.
                gone = self._down[tm_id] = self._live.pop(tm_id)
                self._unexpected.pop(gone, None)
                self._reported[gone] = (self._beats.get(gone, 0), 0, {})
            case HeartbeatEvent(tm_id):
                self._down.pop(tm_id, None)
            case Refused(tm_id, incarnation):
                for task in list(self._held.get(tm_id, ())):
                    if self._holdings[task].incarnation == incarnation:
                        self._drop(task)
                # It takes no part. If it does so later, it counts as a new one.
                self._unexpected.pop(incarnation, None)
            case Processors(tm_id, incarnation, _, _) if self._down.get(tm_id) == incarnation:
                pass
            case Processors(tm_id, incarnation, _, sequence, assign, revoke):
                self._live[tm_id] = incarnation
                for task in revoke:
                    holding = self._holdings.get(task)
                    if holding is not None and holding.tm_id == tm_id:
                        holding.told = sequence
                        holding.revoked_at_ms = holding.revoked_at_ms or now_ms
                    elif holding is None:
                        self._asked_back[task] = (tm_id, sequence)
                for replica in assign:
                    holding = self._hold(replica.task, tm_id, incarnation, now_ms)
                    holding.told, holding.revoked_at_ms = sequence, None

    def _check_down(self, tm_id: int) -> None:
        """Check that a TaskManager that is down left, or was silent while Kafka was in reach."""
        incarnation = self._live[tm_id]
        if incarnation in self._left:
            return
        silent_ms = self._ran_ms - self._heard_ms[incarnation]
        assert silent_ms >= DOWN_AFTER_MS, f"{incarnation} is down, silent for {silent_ms} ms only"
        if self._echoed_ms is not None:
            silent_ms = self._ran_ms - self._echoed_ms
            assert silent_ms <= ISOLATED_AFTER_MS, f"{incarnation} is down, while Kafka was away"

    def compare(
        self, owners: Mapping[TaskId, int | None], live: Mapping[int, str], now_ms: int
    ) -> None:
        """Check that the JobManager's view matches its commands, except for adopted standbys."""
        absent = set(owners.values()) - live.keys() - {None}
        assert not absent, f"tasks belong to {absent}, which are not there"
        asked_back, self._asked_back = self._asked_back, {}
        if owners == self._compared:
            return
        self._compared = owners
        for task, owner in owners.items():
            if owner is not None:
                holding = self._hold(task, owner, live[owner], now_ms)
                tm_id, sequence = asked_back.get(task, (None, 0))
                if tm_id == owner:
                    # This standby was adopted in order to be moved at once.
                    holding.told, holding.revoked_at_ms = sequence, now_ms

    def _hold(self, task: TaskId, tm_id: int, incarnation: str, now_ms: int) -> _Holding:
        holding = self._holdings.get(task)
        if holding is not None and holding.tm_id != tm_id:
            revoked_at_ms = holding.revoked_at_ms
            is_over = revoked_at_ms is not None and now_ms - revoked_at_ms > REVOKE_TIMEOUT_MS
            assert is_over, f"{task} goes to {tm_id}, but {holding.tm_id} did not give it back"
            self._drop(task)
            holding = None
        if holding is None:
            holding = self._holdings[task] = _Holding(tm_id, incarnation)
            self._held.setdefault(tm_id, set()).add(task)
        return holding

    def _drop(self, task: TaskId) -> None:
        holding = self._holdings.pop(task)
        self._held[holding.tm_id].remove(task)
        if holding.revoked_at_ms is not None:
            self.moved.add(task)
