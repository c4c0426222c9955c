"""Follows a JobManager from outside, and checks that it never lets two own a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.messages import HeartbeatEvent, Message, Processors, Report
from common.nodes import TaskId
from jobmanager.state import REVOKE_PATIENCE_BEATS
from tests.simulation.pipeline_thread import INTERVAL_MS

PATIENCE_MS = REVOKE_PATIENCE_BEATS * INTERVAL_MS


@dataclass(slots=True)
class _Holding:
    """That a TaskManager may run a task: until it gave it back, is down, or was too slow."""

    tm_id: int
    incarnation: str
    told: int = 0
    """Sequence of the last command about the task to this TaskManager."""
    revoked_at_ms: int | None = None


class Ledger:
    """Knows what one JobManager said and heard; a report costs what its TaskManager holds."""

    def __init__(self) -> None:
        self.moved: set[TaskId] = set()
        """Tasks that left an owner which was not down; whoever reads it may clear it."""
        self._holdings: dict[TaskId, _Holding] = {}
        self._held: dict[int, set[TaskId]] = {}
        self._confirmed: dict[str, int] = {}
        self._beats: dict[str, int] = {}
        self._compared: Mapping[TaskId, int | None] = {}

    @property
    def asked_back_ms(self) -> int | None:
        """When that task was asked back which is longest on its way; None if there is none."""
        times = [holding.revoked_at_ms for holding in self._holdings.values()]
        return min((time for time in times if time is not None), default=None)

    def hear(self, report: Report, epoch: int) -> None:
        """Take a report in: it gives back what it does not list though it knows better."""
        incarnation = report.incarnation
        if report.beat <= self._beats.get(incarnation, 0):
            return
        self._beats[incarnation] = report.beat
        confirmed = self._confirmed.get(incarnation, 0)
        if report.epoch == epoch and report.sequence > confirmed:
            confirmed = self._confirmed[incarnation] = report.sequence
        held = self._held.get(report.tm_id)
        if not held:
            return
        for task in held.difference([status.task for status in report.tasks]):
            holding = self._holdings[task]
            if holding.incarnation == incarnation and holding.told <= confirmed:
                self._drop(task)

    def tell(self, message: Message, now_ms: int) -> None:
        """Take in what the JobManager says; the time is that of its last tick."""
        match message:
            case HeartbeatEvent(tm_id, is_up=False):
                for task in self._held.pop(tm_id, ()):
                    del self._holdings[task]
                self._compared = {}
            case Processors(tm_id, incarnation, _, sequence, assign, revoke):
                for task in revoke:
                    holding = self._holdings.get(task)
                    if holding is not None and holding.tm_id == tm_id:
                        holding.told = sequence
                        holding.revoked_at_ms = holding.revoked_at_ms or now_ms
                for replica in assign:
                    holding = self._hold(replica.task, tm_id, incarnation, now_ms)
                    holding.told, holding.revoked_at_ms = sequence, None

    def compare(
        self, owners: Mapping[TaskId, int | None], live: Mapping[int, str], now_ms: int
    ) -> None:
        """Check that the JobManager's view is what it says, but for tasks that it adopts."""
        absent = set(owners.values()) - live.keys() - {None}
        assert not absent, f"tasks belong to {absent}, which are not there"
        if owners == self._compared:
            return
        self._compared = owners
        for task, owner in owners.items():
            if owner is not None:
                self._hold(task, owner, live[owner], now_ms)

    def _hold(self, task: TaskId, tm_id: int, incarnation: str, now_ms: int) -> _Holding:
        holding = self._holdings.get(task)
        if holding is not None and holding.tm_id != tm_id:
            revoked_at_ms = holding.revoked_at_ms
            is_over = revoked_at_ms is not None and now_ms - revoked_at_ms > PATIENCE_MS
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
