"""A PipelineThread's decisions: events in, commands out. No clock, thread, Kafka or Spark here.

They cover which task has its turn and for how long, when it commits, how its errors are handled,
when it starts again, and when it is closed or given up.
"""

from __future__ import annotations

from collections import deque

from kafka_pipeline.common.protocol.messages import MISSED_BEATS
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.commit_queue import (
    LEAST_COMMIT_DURATIONS,
    CommitQueue,
    longest_commit_ms,
)
from kafka_pipeline.taskmanager.task_entry import Phase, Release, TaskEntry
from kafka_pipeline.taskmanager.thread_events import (
    AbandonCall,
    Assigned,
    CancelStart,
    CloseEnded,
    CloseTask,
    Command,
    CommitEnded,
    CommitTask,
    DependencyFailed,
    EndProcess,
    EndThread,
    Event,
    Failure,
    FailureKind,
    Fed,
    ForgetTask,
    RefreshDue,
    RefreshTask,
    ReportFailed,
    RestartTask,
    Revoked,
    RunTurn,
    Started,
    StartFailed,
    StartTask,
    TaskCall,
    ThreadStopRequested,
    ThreadTick,
    TurnEnded,
)

FENCED_FOR_GOOD = 2
MOST_EQUAL_STARTS = 10
"""The most starts in a row that user code may end for the same reason; with the pauses, they take
90 s."""
LEAST_COMMIT_INTERVAL_MS = 30
"""The shortest time between commits of a task at the end of its input, because each transaction
costs the broker about 5 ms of CPU time and delays the next one.
docs/explanation/where_time_goes.md has the figures."""
NO_FILES_MS = 60_000
"""How long a task waits for files before a process that has none left is ended."""
LEAST_LIFE_MS = 600_000
"""The least age of such a process. A younger one has not left files open for long: its limit is too
low, and the next one would do no better."""
MOST_PASSED_MS = 1000
FENCED_WAIT_HEARTBEATS = 1.5


class PipelineThreadState:
    """The tasks of a PipelineThread. Only `handle` changes this state.

    Tasks with user code share one thread, which runs one turn at a time. The next turn goes to the
    task that has used the least of the thread's time. A task that mostly waits has its own thread.
    The loop itself begins at most one turn a round, so that the results of other threads are
    handled in between. A task with user code has no transaction open while its code runs: its
    outputs are sent when it commits.
    """

    def __init__(
        self, heartbeat_interval_ms: int, commit_interval_ms: int, transaction_timeout_ms: int
    ) -> None:
        self._lease_ms = MISSED_BEATS * heartbeat_interval_ms
        self._fenced_wait_ms = int(FENCED_WAIT_HEARTBEATS * heartbeat_interval_ms)
        self._commit_interval_ms = commit_interval_ms
        self._commit_limit_ms = longest_commit_ms(transaction_timeout_ms)
        self._entries: dict[TaskId, TaskEntry] = {}
        self._timed: dict[TaskId, None] = {}
        """An ordered set: tasks that need attention at a later time."""
        self._to_turn: dict[TaskId, None] = {}
        """An ordered set: tasks waiting for a turn on the shared thread of user code."""
        self._commits = CommitQueue()
        self._to_close: deque[TaskId] = deque()
        """Tasks waiting to be closed on the shared thread of user code."""
        self._on_user_thread: TaskId | None = None
        self._least_share_ms = 0.0
        """The share of the task that had the last turn on the shared thread. A task that did not
        want a turn meanwhile cannot claim the time that it has not used."""
        self._may_turn_inline = True
        """Whether this tick may begin another turn on the loop's thread."""
        self._now_ms = 0
        self._began_ms: int | None = None
        """When the process began, by its first tick."""
        self._passed_ms = 0
        """The time for which this process ran since the last check of calls and commits."""
        self.is_stopping = False
        """Whether the driver wants the thread to end; it accepts no more tasks then."""
        self._has_ended = False
        self._commands: list[Command] = []

    @property
    def tasks(self) -> list[TaskId]:
        """All tasks, in the order in which they were assigned."""
        return list(self._entries)

    def phase(self, task: TaskId) -> Phase:
        """Return the phase of a task. Raises KeyError for a task that is not here."""
        return self._entries[task].phase

    def restarts(self, task: TaskId) -> int:
        """Return how often a task has started again."""
        return self._entries[task].restarts

    def reason(self, task: TaskId) -> str:
        """Return why a task FAILED, or why it starts again; empty while it runs."""
        return self._entries[task].reason

    @property
    def awaits_records(self) -> bool:
        """Whether any task would begin a turn if it had records."""
        idle = [each for each in self._entries.values() if each.phase is Phase.IDLE]
        return any(each.task not in self._to_turn and not self._is_held_up(each) for each in idle)

    @property
    def next_due_ms(self) -> int | None:
        """When the next `ThreadTick` is needed, by current knowledge."""
        due = [ms for task in self._timed if (ms := self._due(self._entries[task])) is not None]
        if (queue_ms := self._commits.next_due_ms) is not None:
            due.append(queue_ms)
        return min(due, default=None)

    def handle(self, event: Event) -> list[Command]:
        """Process an event; return the commands, in order. There are none after `EndThread`."""
        if self._has_ended:
            return []
        match event:
            case ThreadTick():
                self._on_tick(event)
            case Fed():
                self._on_fed(self._entries[event.task], event)
            case TurnEnded():
                self._on_turn_ended(self._entries[event.task], event)
            case CommitEnded():
                self._on_commit_ended(self._entries[event.task], event)
            case Assigned():
                self._on_assigned(event)
            case Revoked(tasks, hanging):
                for task in tasks:
                    if task in self._entries:
                        self._on_revoked(self._entries[task], hangs=task in hanging)
            case ThreadStopRequested():
                self.is_stopping = True
                for entry in list(self._entries.values()):
                    self._release(entry, Release())
            case Started():
                self._on_started(self._entries[event.task], event)
            case StartFailed(task, failure):
                self._on_start_failed(self._entries[task], failure)
            case DependencyFailed(task, failure):
                self._on_dependency_failed(self._entries[task], failure)
            case RefreshDue(task):
                self._on_refresh_due(self._entries[task])
            case CloseEnded(task):
                self._on_closed(self._entries[task])
        self._begin_commits()
        self._fill_user_thread()
        if self.is_stopping and not self._entries:
            self._has_ended = True
            self._commands.append(EndThread())
        commands, self._commands = self._commands, []
        return commands

    # Time

    def _on_tick(self, tick: ThreadTick) -> None:
        # This process may have been paused, which must not count against a call or commit.
        passed_ms = min(tick.now_ms - self._now_ms, MOST_PASSED_MS)
        self._now_ms = tick.now_ms
        if self._began_ms is None:
            self._began_ms = tick.now_ms
        silent_ms = tick.now_ms - tick.heard_ms
        if silent_ms > self._lease_ms:
            # By now, the JobManager has given the tasks to other owners, which have fenced these.
            lost = Release(f"the lease expired: no sign of the driver for {silent_ms} ms", False)
            for entry in list(self._entries.values()):
                self._release(entry, lost)
        self._passed_ms += passed_ms
        if tick.calls is not None:
            for call in tick.calls:
                if call.task in self._entries:
                    self._watch_call(self._entries[call.task], call, self._passed_ms)
            self._watch_commits(self._passed_ms)
            self._passed_ms = 0
        self._may_turn_inline = True
        for task in list(self._timed):
            entry = self._entries[task]
            due_ms = self._due(entry)
            if due_ms is None:
                del self._timed[task]
            elif due_ms <= tick.now_ms:
                self._on_due(entry)

    def _due(self, entry: TaskEntry) -> int | None:
        """Return when an entry next needs attention."""
        if entry.phase is Phase.WAITING:
            return entry.due_ms
        if entry.phase is not Phase.IDLE:
            return None
        if entry.is_inline and entry.is_ready and not self._is_held_up(entry):
            return self._now_ms
        waits = [] if entry.wake_ms is None or entry.is_ready else [entry.wake_ms]
        is_waiting = self._commits.is_waiting(entry.task)
        if not is_waiting and (commit_ms := self._commit_due_ms(entry)) is not None:
            waits.append(commit_ms)
        return min(waits, default=None)

    def _on_due(self, entry: TaskEntry) -> None:
        if entry.phase is Phase.WAITING:
            entry.phase = Phase.STARTING
            entry.begin()
            self._commands.append(StartTask(entry.task))
            return
        if entry.wake_ms is not None and entry.wake_ms <= self._now_ms:
            entry.wake_ms, entry.is_ready = None, True
        begins = entry.is_inline and entry.is_ready
        self._consider(entry, may_turn=self._may_turn_inline)
        self._may_turn_inline &= not begins or entry.phase is not Phase.TURNING

    @property
    def on_user_thread(self) -> TaskId | None:
        """The task whose user code runs now on the shared thread, or will run next."""
        return self._on_user_thread

    def _watch_call(self, entry: TaskEntry, call: TaskCall, passed_ms: int) -> None:
        """Give up a call that takes too long, and make its task FAILED."""
        if entry.call_since_ms != call.since_ms:
            entry.call_since_ms, entry.call_age_ms = call.since_ms, 0
        entry.call_age_ms += min(passed_ms, self._now_ms - call.since_ms)
        if entry.call_age_ms <= entry.max_process_time_ms:
            return
        if self._on_user_thread == entry.task:
            self._on_user_thread = None
        self._commands.append(AbandonCall(entry.task))
        if isinstance(entry.end, Release):
            self._end_hanging(entry, entry.end.reason)
            return
        limit = f"max_process_time_ms ({entry.max_process_time_ms})"
        taken_s = entry.call_age_ms / 1000
        at = f", at {call.line}" if call.line else ""
        self._fail(entry, f"{call.place} takes longer than {limit}: {taken_s:.0f} s so far{at}")

    def _watch_commits(self, passed_ms: int) -> None:
        """End the process if a commit exceeds all time limits, because librdkafka hangs then."""
        for entry in self._entries.values():
            if entry.phase is not Phase.COMMITTING:
                continue
            entry.commit_age_ms += passed_ms
            if entry.commit_age_ms > self._commit_limit_ms:
                reason = f"a commit of {entry.task} does not end"
                self._commands.append(EndProcess(entry.task, reason))

    # Assignments, starts and releases

    def _on_assigned(self, event: Assigned) -> None:
        if event.task in self._entries or self.is_stopping:
            return
        if not event.task.standby:
            # Its copy has the stores that it needs. The JobManager revokes the copy as well, but
            # not before it knows that it is here: it may have counted this TaskManager out.
            for copy in [entry for entry in self._entries.values() if entry.task.standby]:
                if copy.task.active == event.task:
                    self._release(copy, Release("the task itself is assigned here"))
            self._fill_user_thread()
        entry = TaskEntry(
            event.task,
            event.is_inline,
            event.max_process_time_ms,
            event.commit_interval_ms,
            due_ms=self._now_ms,
        )
        self._entries[event.task] = entry
        self._on_due(entry)

    def _on_started(self, entry: TaskEntry, event: Started) -> None:
        self._move(entry, Phase.STARTING, Phase.IDLE)
        entry.reason, entry.equal_starts, entry.no_files_since_ms = "", 0, None
        entry.has_own_thread = event.has_own_thread
        self._wake_in(entry, event.wake_in_ms)
        self._consider(entry)

    def _on_start_failed(self, entry: TaskEntry, failure: Failure | None) -> None:
        if isinstance(entry.end, Release):
            self._forget(entry, entry.end.reason)
            return
        assert failure is not None, "only what is released is cancelled"
        self._move(entry, Phase.STARTING, Phase.CLOSING)
        entry.end = failure
        self._on_closed(entry)

    def _on_revoked(self, entry: TaskEntry, *, hangs: bool) -> None:
        if hangs and entry.phase in (Phase.WAITING, Phase.FAILED):
            self._end_hanging(entry)
        else:
            self._release(entry, Release())

    def _end_hanging(self, entry: TaskEntry, reason: str = "") -> None:
        """End the process for an abandoned call: it keeps a core busy, and the stores open.

        Until the task is taken away, its siblings run next to the call.
        """
        if self.is_stopping:
            self._forget(entry, reason)
            return
        why = f"a call of {entry.task} does not return"
        self._commands.append(EndProcess(entry.task, why))

    def _release(self, entry: TaskEntry, end: Release) -> None:
        """Close a task that is no longer owned, once no thread works on it."""
        if entry.phase in (Phase.WAITING, Phase.FAILED):
            self._forget(entry, end.reason)
            return
        if entry.phase is Phase.STARTING and not isinstance(entry.end, Release):
            self._commands.append(CancelStart(entry.task))
        is_sooner = isinstance(entry.end, Release) and not end.commits
        if is_sooner or not isinstance(entry.end, Release):
            entry.end = end
        self._consider(entry)

    def _on_closed(self, entry: TaskEntry) -> None:
        if self._on_user_thread == entry.task:
            self._on_user_thread = None
        match entry.end:
            case Release(reason):
                self._forget(entry, reason)
            case Failure(FailureKind.FATAL, reason):
                self._fail(entry, reason)
            case Failure():
                self._start_again(entry, entry.end)

    def _fail(self, entry: TaskEntry, reason: str) -> None:
        entry.phase, entry.reason, entry.end = Phase.FAILED, reason, None
        self._commits.end(entry.task)
        self._commands.append(ReportFailed(entry.task, reason))

    def _start_again(self, entry: TaskEntry, failure: Failure) -> None:
        """Start again from the state in Kafka, after a pause if the task keeps failing."""
        if failure.kind is FailureKind.NOT_MADE:
            entry.equal_starts = entry.equal_starts * (failure.reason == entry.reason) + 1
            if entry.equal_starts == MOST_EQUAL_STARTS:
                self._fail(entry, f"{failure.reason}; {MOST_EQUAL_STARTS} starts ended like this")
                return
        if failure.kind is FailureKind.NO_FILES and self._is_out_of_files(entry):
            self._commands.append(EndProcess(entry.task, failure.reason))
            return
        is_fenced = failure.kind is FailureKind.FENCED
        entry.backoff.count(self._now_ms, is_fenced, entry.has_committed)
        if entry.backoff.fenced >= FENCED_FOR_GOOD:
            self._forget(entry, failure.reason)
            return
        delay_ms = entry.backoff.delay_ms
        if is_fenced or failure.kind is FailureKind.EXPIRED:
            # If another TaskManager owns the task, the JobManager revokes it here in the meantime.
            delay_ms = max(delay_ms, self._fenced_wait_ms)
        entry.phase, entry.reason, entry.end = Phase.WAITING, failure.reason, None
        entry.restarts += 1
        entry.due_ms = self._now_ms + delay_ms
        self._timed[entry.task] = None
        self._commands.append(RestartTask(entry.task, failure.reason, delay_ms))

    def _is_out_of_files(self, entry: TaskEntry) -> bool:
        """Whether the process is to be ended, as it has had no files for a task for too long."""
        if entry.no_files_since_ms is None:
            entry.no_files_since_ms = self._now_ms
        age_ms = 0 if self._began_ms is None else self._now_ms - self._began_ms
        return self._now_ms - entry.no_files_since_ms >= NO_FILES_MS and age_ms >= LEAST_LIFE_MS

    def _forget(self, entry: TaskEntry, reason: str) -> None:
        del self._entries[entry.task]
        self._commits.end(entry.task)
        self._timed.pop(entry.task, None)
        self._commands.append(ForgetTask(entry.task, reason))

    # Turns and commits

    def _on_fed(self, entry: TaskEntry, event: Fed) -> None:
        entry.is_at_its_end = event.is_at_its_end
        entry.is_ready |= event.has_records
        self._consider(entry)

    def _on_turn_ended(self, entry: TaskEntry, event: TurnEnded) -> None:
        self._move(entry, Phase.TURNING, Phase.IDLE)
        if self._on_user_thread == entry.task:
            self._on_user_thread = None
        # The records may have been waiting for an event during the turn, such as another input's
        # end.
        entry.is_ready |= event.has_more
        entry.is_at_its_end, entry.took_all = event.is_at_its_end, event.took_all
        entry.wants_commit |= event.wants_commit
        entry.share_ms += event.took_ms
        entry.turn_ms = event.took_ms
        self._wake_in(entry, event.wake_in_ms)
        if not event.has_uncommitted:
            entry.uncommitted_since_ms = None
        elif entry.uncommitted_since_ms is None:
            entry.uncommitted_since_ms = entry.turn_began_ms
        if event.failure is not None:
            self._end_by(entry, event.failure)
        self._consider(entry, may_turn=not entry.is_inline)

    def _on_commit_ended(self, entry: TaskEntry, event: CommitEnded) -> None:
        self._commits.end(entry.task)
        if entry.phase is Phase.FAILED:
            return  # these were the offsets of a task that stays FAILED
        self._move(entry, Phase.COMMITTING, Phase.IDLE)
        took_ms = self._now_ms - entry.commit_began_ms
        rest_ms = LEAST_COMMIT_DURATIONS * min(took_ms, entry.commit_took_ms)
        entry.early_commit_ms = entry.commit_began_ms + max(LEAST_COMMIT_INTERVAL_MS, rest_ms)
        entry.commit_took_ms = took_ms
        entry.wants_commit = entry.needs_refresh = False
        entry.uncommitted_since_ms = None
        if event.failure is None:
            entry.has_committed = True
        elif isinstance(entry.end, Release):
            entry.end = Release(entry.end.reason, commits=False)
        else:
            # The commit's failure takes precedence; the failure that led to the commit will recur.
            entry.end = event.failure
        self._consider(entry)

    def _on_refresh_due(self, entry: TaskEntry) -> None:
        if entry.phase is Phase.FAILED:
            self._commands.append(RefreshTask(entry.task))
            return
        entry.needs_refresh = True
        self._consider(entry)

    def _on_dependency_failed(self, entry: TaskEntry, failure: Failure) -> None:
        if entry.phase in (Phase.IDLE, Phase.TURNING, Phase.COMMITTING):
            self._end_by(entry, failure)
            self._consider(entry)

    @staticmethod
    def _end_by(entry: TaskEntry, failure: Failure) -> None:
        if entry.end is None:
            entry.end = failure
        elif isinstance(entry.end, Release) and not failure.commits:
            entry.end = Release(entry.end.reason, commits=False)

    def _consider(self, entry: TaskEntry, *, may_turn: bool = True) -> None:
        """Take an idle task's next step; a turn on the loop's thread only if it `may_turn`."""
        if entry.phase is not Phase.IDLE:
            return
        if entry.end is not None:
            if entry.end.commits and entry.uncommitted_since_ms is not None:
                self._commit(entry, CommitTask(entry.task))
            else:
                self._close(entry)
            return
        due_ms = self._commit_due_ms(entry)
        if self._may_commit(entry, due_ms):
            self._commit(entry, CommitTask(entry.task))
        elif entry.needs_refresh and entry.uncommitted_since_ms is None:
            self._commit(entry, RefreshTask(entry.task))
        elif (
            not entry.is_ready
            or self._is_held_up(entry)
            or self._commits_before_a_turn(entry, due_ms)
        ):
            return
        elif entry.shares_thread:
            if entry.task not in self._to_turn:
                entry.share_ms = max(entry.share_ms, self._least_share_ms)
                self._to_turn[entry.task] = None
        elif entry.has_own_thread or may_turn:
            self._begin_turn(entry)

    def _commit_due_ms(self, entry: TaskEntry) -> int | None:
        """Return when to commit: by the interval, or sooner if asked for or at the input's end.

        A batch of a query takes a while, whatever it has. If each had to wait for the next one that
        finds no further records, the interval alone would decide. A task with an interval of its
        own has commits that are worth waiting for.
        """
        if entry.uncommitted_since_ms is None:
            return None
        if entry.wants_commit:
            return self._now_ms
        if entry.own_commit_interval_ms is not None:
            return entry.uncommitted_since_ms + entry.own_commit_interval_ms
        due_ms = entry.uncommitted_since_ms + self._commit_interval_ms
        if entry.took_all or (entry.is_at_its_end and not entry.is_ready):
            due_ms = min(due_ms, entry.early_commit_ms)
        return due_ms

    def _commits_before_a_turn(self, entry: TaskEntry, due_ms: int | None) -> bool:
        """Whether another batch of a query would delay the commit of the one before it.

        It takes about as long as the last one. Records that come meanwhile join it.
        """
        return entry.took_all and due_ms is not None and self._now_ms + entry.turn_ms > due_ms

    def _may_commit(self, entry: TaskEntry, due_ms: int | None) -> bool:
        """Return whether a commit may begin now; if it is due and may not, it waits for others."""
        task = entry.task
        if due_ms is None:
            self._commits.end(task)
        if due_ms is None or (due_ms > self._now_ms and not self._commits.is_waiting(task)):
            return False
        is_free = entry.own_commit_interval_ms is not None or self._commits.has_begun(task)
        if is_free or self._has_room_to_commit:
            return True
        self._commits.wait(task, self._now_ms)
        return False

    @property
    def _has_room_to_commit(self) -> bool:
        return self._commits.has_room(len(self._entries), self._now_ms)

    def _is_held_up(self, entry: TaskEntry) -> bool:
        return self._commits.holds_up(entry.task, self._now_ms, at_once=entry.commits_first)

    def _begin_commits(self) -> None:
        """Begin commits that have waited for others. Built-in types first take what has come."""
        for task in self._commits.waiting:
            if not self._has_room_to_commit:
                return
            if (entry := self._entries[task]).phase is not Phase.IDLE:
                continue
            if entry.is_inline and entry.is_ready:
                self._commits.begin(task, self._now_ms)
                entry.wants_commit = True
                self._begin_turn(entry)
                return  # the end of the turn begins the next one
            self._consider(entry, may_turn=False)

    def _commit(self, entry: TaskEntry, command: CommitTask | RefreshTask) -> None:
        entry.phase, entry.commit_age_ms = Phase.COMMITTING, 0
        entry.commit_began_ms = self._now_ms
        if entry.own_commit_interval_ms is None:
            self._commits.begin(entry.task, self._now_ms)
        self._commands.append(command)

    def _close(self, entry: TaskEntry) -> None:
        entry.phase = Phase.CLOSING
        self._commits.end(entry.task)
        if entry.shares_thread:
            self._to_close.append(entry.task)
        else:
            self._commands.append(CloseTask(entry.task))

    def _begin_turn(self, entry: TaskEntry) -> None:
        entry.phase, entry.is_ready = Phase.TURNING, False
        entry.turn_began_ms = self._now_ms
        self._timed.pop(entry.task, None)  # so that it comes last among those of the loop
        self._commands.append(RunTurn(entry.task))

    def _fill_user_thread(self) -> None:
        """Give the shared thread of user code its next job if it is free."""
        while self._on_user_thread is None and self._to_close:
            task = self._to_close.popleft()
            if task in self._entries and self._entries[task].phase is Phase.CLOSING:
                self._on_user_thread = task
                self._commands.append(CloseTask(task))
        while self._on_user_thread is None and self._to_turn:
            task = min(self._to_turn, key=self._share_ms)
            del self._to_turn[task]
            waiting = self._entries.get(task)
            if waiting is None:
                continue
            if waiting.phase is Phase.IDLE and waiting.is_ready and waiting.end is None:
                self._on_user_thread, self._least_share_ms = task, waiting.share_ms
                self._begin_turn(waiting)

    def _share_ms(self, task: TaskId) -> float:
        entry = self._entries.get(task)
        return 0.0 if entry is None else entry.share_ms

    def _wake_in(self, entry: TaskEntry, wake_in_ms: int | None) -> None:
        entry.wake_ms = None if wake_in_ms is None else self._now_ms + wake_in_ms

    def _move(self, entry: TaskEntry, before: Phase, after: Phase) -> None:
        assert entry.phase is before, f"{entry.task} is {entry.phase.name}, not {before.name}"
        entry.phase = after
        if after is Phase.IDLE:
            # Ticks during another phase may have removed the task from the set.
            self._timed[entry.task] = None
