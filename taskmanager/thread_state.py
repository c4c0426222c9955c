"""A PipelineThread's decisions: events in, commands out. No clock, thread, Kafka or Spark here.

They cover which task has its turn and for how long, when it commits, how its errors are handled,
when it starts again, and when it is closed or given up.
"""

from __future__ import annotations

from collections import deque

from common.messages import MISSED_BEATS
from common.tasks import TaskId
from taskmanager.slot import Phase, Release, Slot
from taskmanager.thread_events import (
    AbandonCall,
    Assigned,
    Call,
    CancelStart,
    Closed,
    CloseTask,
    Command,
    CommitEnded,
    CommitTask,
    Disturbed,
    EndProcess,
    EndThread,
    Event,
    Failure,
    Fed,
    ForgetTask,
    Kind,
    RefreshDue,
    RefreshTask,
    ReportFailed,
    RestartTask,
    Revoked,
    RunTurn,
    Started,
    StartFailed,
    StartTask,
    StopRequested,
    Tick,
    TurnEnded,
)

FENCED_FOR_GOOD = 2
LEAST_COMMIT_INTERVAL_MS = 30
"""A task whose input is worked off commits no more often, because each transaction costs the broker
about 5 ms of CPU time and holds up the next one. docs/performance.md has the figures."""
HANG_TIMEOUTS = 2
"""A transaction is lost when it is open for longer than its timeout, and a commit that began just
before may take as long again."""
HANG_MARGIN_MS = 10_000
MOST_PASSED_MS = 1000
FENCED_WAIT_HEARTBEATS = 1.5


class PipelineThreadState:
    """The tasks of a PipelineThread. Only `handle` changes this state.

    User code runs on one thread, one turn at a time. The tasks take turns, and no turn begins
    before the previous one has ended. A task with user code has no transaction open while its code
    runs: its outputs are sent when it commits.
    """

    def __init__(
        self,
        heartbeat_interval_ms: int,
        commit_interval_ms: int,
        turn_budget_ms: int,
        transaction_timeout_ms: int,
    ) -> None:
        self._lease_ms = MISSED_BEATS * heartbeat_interval_ms
        self._fenced_wait_ms = int(FENCED_WAIT_HEARTBEATS * heartbeat_interval_ms)
        self._commit_interval_ms = commit_interval_ms
        self._budget_ms = turn_budget_ms
        self._commit_limit_ms = HANG_TIMEOUTS * transaction_timeout_ms + HANG_MARGIN_MS
        self._slots: dict[TaskId, Slot] = {}
        self._timed: dict[TaskId, None] = {}
        """An ordered set: tasks that have something to do at a later time."""
        self._to_turn: deque[TaskId] = deque()
        """Tasks that wait for a turn on the thread of user code."""
        self._to_close: deque[TaskId] = deque()
        """Tasks that wait to be closed on the thread of user code."""
        self._on_user_thread: TaskId | None = None
        self._now_ms = 0
        self._passed_ms = 0
        """For how much of the time since the last check of calls and commits this process ran."""
        self.is_stopping = False
        """Whether the driver wants the thread to end; it takes no tasks from then on."""
        self._has_ended = False
        self._commands: list[Command] = []

    @property
    def tasks(self) -> list[TaskId]:
        """All tasks, in the order in which they came."""
        return list(self._slots)

    def phase(self, task: TaskId) -> Phase:
        """Return the phase of a task. Raises KeyError for a task that is not here."""
        return self._slots[task].phase

    def restarts(self, task: TaskId) -> int:
        """Return how often a task has started again."""
        return self._slots[task].restarts

    def reason(self, task: TaskId) -> str:
        """Return why a task FAILED, or why it starts again; empty while it runs."""
        return self._slots[task].reason

    @property
    def next_due_ms(self) -> int | None:
        """When the next `Tick` has something to do, as far as is known now."""
        due = [ms for task in self._timed if (ms := self._due(self._slots[task])) is not None]
        return min(due, default=None)

    def handle(self, event: Event) -> list[Command]:
        """Process an event; return the commands, in order. There are none after `EndThread`."""
        if self._has_ended:
            return []
        match event:
            case Tick():
                self._on_tick(event)
            case Fed():
                self._on_fed(self._slots[event.task], event)
            case TurnEnded():
                self._on_turn_ended(self._slots[event.task], event)
            case CommitEnded():
                self._on_commit_ended(self._slots[event.task], event)
            case Assigned():
                self._on_assigned(event)
            case Revoked(tasks):
                for task in tasks:
                    if task in self._slots:
                        self._release(self._slots[task], Release())
            case StopRequested():
                self.is_stopping = True
                for slot in list(self._slots.values()):
                    self._release(slot, Release())
            case Started(task, wake_in_ms):
                self._on_started(self._slots[task], wake_in_ms)
            case StartFailed(task, failure):
                self._on_start_failed(self._slots[task], failure)
            case Disturbed(task, failure):
                self._on_disturbed(self._slots[task], failure)
            case RefreshDue(task):
                self._on_refresh_due(self._slots[task])
            case Closed(task):
                self._on_closed(self._slots[task])
        self._fill_user_thread()
        if self.is_stopping and not self._slots:
            self._has_ended = True
            self._commands.append(EndThread())
        commands, self._commands = self._commands, []
        return commands

    # Time

    def _on_tick(self, tick: Tick) -> None:
        # This process may not have run for a while, which must not count against a call or commit.
        passed_ms = min(tick.now_ms - self._now_ms, MOST_PASSED_MS)
        self._now_ms = tick.now_ms
        silent_ms = tick.now_ms - tick.heard_ms
        if silent_ms > self._lease_ms:
            # By now, the JobManager has given the tasks to other owners, who have fenced these.
            lost = Release(f"the lease ran out: no sign of the driver for {silent_ms} ms", False)
            for slot in list(self._slots.values()):
                self._release(slot, lost)
        self._passed_ms += passed_ms
        if tick.calls is not None:
            for call in tick.calls:
                if call.task in self._slots:
                    self._watch_call(self._slots[call.task], call, self._passed_ms)
            self._watch_commits(self._passed_ms)
            self._passed_ms = 0
        for task in list(self._timed):
            slot = self._slots[task]
            due_ms = self._due(slot)
            if due_ms is None:
                del self._timed[task]
            elif due_ms <= tick.now_ms:
                self._on_due(slot)

    def _due(self, slot: Slot) -> int | None:
        """Return when a slot needs attention again."""
        if slot.phase is Phase.WAITING:
            return slot.due_ms
        if slot.phase is not Phase.IDLE:
            return None
        waits = [] if slot.wake_ms is None or slot.is_ready else [slot.wake_ms]
        if (commit_ms := self._commit_due_ms(slot)) is not None:
            waits.append(commit_ms)
        return min(waits, default=None)

    def _on_due(self, slot: Slot) -> None:
        if slot.phase is Phase.WAITING:
            slot.phase = Phase.STARTING
            slot.begin()
            self._commands.append(StartTask(slot.task))
            return
        if slot.wake_ms is not None and slot.wake_ms <= self._now_ms:
            slot.wake_ms, slot.is_ready = None, True
        self._consider(slot)

    def _watch_call(self, slot: Slot, call: Call, passed_ms: int) -> None:
        """Give up a call that takes too long, and FAIL its task."""
        if slot.call_since_ms != call.since_ms:
            slot.call_since_ms, slot.call_age_ms = call.since_ms, 0
        slot.call_age_ms += min(passed_ms, self._now_ms - call.since_ms)
        if slot.call_age_ms <= slot.max_process_time_ms:
            return
        if self._on_user_thread == slot.task:
            self._on_user_thread = None
        self._commands.append(AbandonCall(slot.task))
        if isinstance(slot.end, Release):
            self._forget(slot, slot.end.reason)
            return
        limit = f"max_process_time_ms ({slot.max_process_time_ms})"
        taken_s = slot.call_age_ms / 1000
        self._fail(slot, f"{call.place} takes longer than {limit}: {taken_s:.0f} s so far")

    def _watch_commits(self, passed_ms: int) -> None:
        """End the process if a commit exceeds all time limits, because librdkafka hangs then."""
        for slot in self._slots.values():
            if slot.phase is not Phase.COMMITTING:
                continue
            slot.commit_age_ms += passed_ms
            if slot.commit_age_ms > self._commit_limit_ms:
                self._commands.append(EndProcess(slot.task))

    # Assignments, starts and releases

    def _on_assigned(self, event: Assigned) -> None:
        if event.task in self._slots or self.is_stopping:
            return
        slot = Slot(event.task, event.is_inline, event.max_process_time_ms, due_ms=self._now_ms)
        self._slots[event.task] = slot
        self._on_due(slot)

    def _on_started(self, slot: Slot, wake_in_ms: int | None) -> None:
        self._move(slot, Phase.STARTING, Phase.IDLE)
        slot.reason = ""
        self._wake_in(slot, wake_in_ms)
        self._consider(slot)

    def _on_start_failed(self, slot: Slot, failure: Failure | None) -> None:
        if isinstance(slot.end, Release):
            self._forget(slot, slot.end.reason)
            return
        assert failure is not None, "only what is released is cancelled"
        self._move(slot, Phase.STARTING, Phase.CLOSING)
        slot.end = failure
        self._on_closed(slot)

    def _release(self, slot: Slot, end: Release) -> None:
        """Close a task once no thread works on it."""
        if slot.phase in (Phase.WAITING, Phase.FAILED):
            self._forget(slot, end.reason)
            return
        if slot.phase is Phase.STARTING and not isinstance(slot.end, Release):
            self._commands.append(CancelStart(slot.task))
        is_sooner = isinstance(slot.end, Release) and not end.commits
        if is_sooner or not isinstance(slot.end, Release):
            slot.end = end
        self._consider(slot)

    def _on_closed(self, slot: Slot) -> None:
        if self._on_user_thread == slot.task:
            self._on_user_thread = None
        match slot.end:
            case Release(reason):
                self._forget(slot, reason)
            case Failure(Kind.FATAL, reason):
                self._fail(slot, reason)
            case Failure():
                self._start_again(slot, slot.end)

    def _fail(self, slot: Slot, reason: str) -> None:
        slot.phase, slot.reason, slot.end = Phase.FAILED, reason, None
        self._commands.append(ReportFailed(slot.task, reason))

    def _start_again(self, slot: Slot, failure: Failure) -> None:
        """Begin again from what Kafka has, after a pause if the task keeps failing."""
        is_fenced = failure.kind is Kind.FENCED
        slot.backoff.count(self._now_ms, is_fenced, slot.has_committed)
        if slot.backoff.fenced >= FENCED_FOR_GOOD:
            self._forget(slot, failure.reason)
            return
        delay_ms = slot.backoff.delay_ms
        if is_fenced or failure.kind is Kind.EXPIRED:
            # If another TaskManager owns the task, the JobManager revokes it here in the meantime.
            delay_ms = max(delay_ms, self._fenced_wait_ms)
        slot.phase, slot.reason, slot.end = Phase.WAITING, failure.reason, None
        slot.restarts += 1
        slot.due_ms = self._now_ms + delay_ms
        self._timed[slot.task] = None
        self._commands.append(RestartTask(slot.task, failure.reason, delay_ms))

    def _forget(self, slot: Slot, reason: str) -> None:
        del self._slots[slot.task]
        self._timed.pop(slot.task, None)
        self._commands.append(ForgetTask(slot.task, reason))

    # Turns and commits

    def _on_fed(self, slot: Slot, event: Fed) -> None:
        slot.is_at_its_end = event.is_at_its_end
        slot.is_ready |= event.has_records
        self._consider(slot)

    def _on_turn_ended(self, slot: Slot, event: TurnEnded) -> None:
        self._move(slot, Phase.TURNING, Phase.IDLE)
        if self._on_user_thread == slot.task:
            self._on_user_thread = None
        # Events during the turn may be what the records waited for, such as another input's end.
        slot.is_ready |= event.has_more
        slot.is_at_its_end = event.is_at_its_end
        slot.wants_commit |= event.wants_commit
        self._wake_in(slot, event.wake_in_ms)
        if not event.has_uncommitted:
            slot.uncommitted_since_ms = None
        elif slot.uncommitted_since_ms is None:
            slot.uncommitted_since_ms = slot.turn_began_ms
        if event.failure is not None:
            self._end_by(slot, event.failure)
        self._consider(slot)

    def _on_commit_ended(self, slot: Slot, event: CommitEnded) -> None:
        if slot.phase is Phase.FAILED:
            return  # these were the offsets of a task that stays FAILED
        self._move(slot, Phase.COMMITTING, Phase.IDLE)
        slot.wants_commit = slot.needs_refresh = False
        slot.uncommitted_since_ms = None
        if event.failure is None:
            slot.has_committed = True
        elif isinstance(slot.end, Release):
            slot.end = Release(slot.end.reason, commits=False)
        else:
            # The commit's failure takes precedence; the failure that led to the commit will recur.
            slot.end = event.failure
        self._consider(slot)

    def _on_refresh_due(self, slot: Slot) -> None:
        if slot.phase is Phase.FAILED:
            self._commands.append(RefreshTask(slot.task))
            return
        slot.needs_refresh = True
        self._consider(slot)

    def _on_disturbed(self, slot: Slot, failure: Failure) -> None:
        if slot.phase in (Phase.IDLE, Phase.TURNING, Phase.COMMITTING):
            self._end_by(slot, failure)
            self._consider(slot)

    @staticmethod
    def _end_by(slot: Slot, failure: Failure) -> None:
        if slot.end is None:
            slot.end = failure
        elif isinstance(slot.end, Release) and not failure.commits:
            slot.end = Release(slot.end.reason, commits=False)

    def _consider(self, slot: Slot) -> None:
        """Do the next thing that an idle task needs."""
        if slot.phase is not Phase.IDLE:
            return
        if slot.end is not None:
            if slot.end.commits and slot.uncommitted_since_ms is not None:
                self._commit(slot, CommitTask(slot.task))
            else:
                self._close(slot)
        elif (due_ms := self._commit_due_ms(slot)) is not None and due_ms <= self._now_ms:
            self._commit(slot, CommitTask(slot.task))
        elif slot.needs_refresh and slot.uncommitted_since_ms is None:
            self._commit(slot, RefreshTask(slot.task))
        elif slot.is_ready and slot.is_inline:
            self._begin_turn(slot)
        elif slot.is_ready and not slot.is_queued:
            slot.is_queued = True
            self._to_turn.append(slot.task)

    def _commit_due_ms(self, slot: Slot) -> int | None:
        """Return when to commit: by the interval, or sooner if asked for or at the input's end."""
        if slot.uncommitted_since_ms is None:
            return None
        if slot.wants_commit:
            return self._now_ms
        due_ms = slot.uncommitted_since_ms + self._commit_interval_ms
        if slot.is_at_its_end and not slot.is_ready:
            due_ms = min(due_ms, slot.early_commit_ms)
        return due_ms

    def _commit(self, slot: Slot, command: CommitTask | RefreshTask) -> None:
        slot.phase, slot.commit_age_ms = Phase.COMMITTING, 0
        slot.early_commit_ms = self._now_ms + LEAST_COMMIT_INTERVAL_MS
        self._commands.append(command)

    def _close(self, slot: Slot) -> None:
        slot.phase = Phase.CLOSING
        if slot.is_inline:
            self._commands.append(CloseTask(slot.task))
        else:
            self._to_close.append(slot.task)

    def _begin_turn(self, slot: Slot) -> None:
        slot.phase, slot.is_ready = Phase.TURNING, False
        slot.turn_began_ms = self._now_ms
        self._commands.append(RunTurn(slot.task, self._budget_ms))

    def _fill_user_thread(self) -> None:
        """Give the thread of user code something to do, if it has nothing."""
        while self._on_user_thread is None and self._to_close:
            task = self._to_close.popleft()
            if task in self._slots and self._slots[task].phase is Phase.CLOSING:
                self._on_user_thread = task
                self._commands.append(CloseTask(task))
        while self._on_user_thread is None and self._to_turn:
            waiting = self._slots.get(self._to_turn.popleft())
            if waiting is None:
                continue
            waiting.is_queued = False
            if waiting.phase is Phase.IDLE and waiting.is_ready and waiting.end is None:
                self._on_user_thread = waiting.task
                self._begin_turn(waiting)

    def _wake_in(self, slot: Slot, wake_in_ms: int | None) -> None:
        slot.wake_ms = None if wake_in_ms is None else self._now_ms + wake_in_ms

    def _move(self, slot: Slot, before: Phase, after: Phase) -> None:
        assert slot.phase is before, f"{slot.task} is {slot.phase.name}, not {before.name}"
        slot.phase = after
        if after is Phase.IDLE:
            # Ticks during another phase may have removed the task from the set.
            self._timed[slot.task] = None
