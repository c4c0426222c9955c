"""The TaskManager's decisions: events in, commands out. No clock, thread, Kafka or Spark here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka_pipeline.common.protocol.messages import (
    Heartbeat,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.protocol.suspects import after_death, as_suspects
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.taskmanager.commit_queue import longest_commit_ms
from kafka_pipeline.taskmanager.contact import Contact
from kafka_pipeline.taskmanager.events import (
    AssignTask,
    CatchUp,
    CaughtUp,
    CodeChanged,
    Command,
    DumpThread,
    Event,
    Exit,
    KillThread,
    LaunchThread,
    ReportConfirmed,
    ReportWaiting,
    RevokeTask,
    StopRequested,
    StopThread,
    TaskClosed,
    ThreadConnected,
    ThreadDied,
    ThreadEnding,
    ThreadEvent,
    ThreadLost,
    ThreadReported,
    ThreadStopped,
)
from kafka_pipeline.taskmanager.reporter import Reporter
from kafka_pipeline.taskmanager.thread_entry import ThreadEntry

REFUSAL_TIMEOUT_BEATS = 6
SILENCE_BEATS = 5
STOP_TIMEOUT_BEATS = 10
START_TIMEOUT_BEATS = 20
MAX_RELAUNCH_BEATS = 32
CALM_BEATS = 60
CALM_MS = 600_000
"""How long a suspect keeps a worker of its own after the last death."""

_ALIVE = (ThreadState.RUNNING, ThreadState.SILENT)

_WAITS = (
    "its PipelineThread does not come up: Spark still starts it, has no free slot for it, or its "
    "worker hangs"
)
_NEW_CODE = "the code has changed: its PipelineThread starts again with it"
_ALONE = "it has a worker of its own for now"
_HUNG = "it held the interpreter's lock, or hung otherwise, and was ended"


@dataclass(slots=True)
class _Task:
    replica: ProcessorReplica
    thread: int
    status: TaskStatus
    former_restarts: int = 0
    """Restarts before the current start; each worker that ended or lost the task adds one."""
    closing: bool = False
    successor: ProcessorReplica | None = None
    """The next assignment of the task, received while the task was still closing."""
    calm_at_ms: int = 0
    """When a suspect is cleared, if its worker lives that long."""


class TaskManagerState:
    """The tasks that this TaskManager runs, and their threads. Only `handle` changes this.

    Its reports never claim more than is true: they list a task from the command that assigned it
    until its PipelineThread has closed it, and a thread is RUNNING only while it says so itself.
    Events only make a report due. Each tick sends at most one report, which covers everything that
    happened before it. A report contains the changes. A full report is sent at intervals, when the
    JobManager asks for it, and after each introduction.
    """

    def __init__(self, identity: Report, transaction_timeout_ms: int, spares: int = 0) -> None:
        """`identity` is an empty report with all that says who sends it, and how often.

        `spares` is the number of additional threads, for suspects (`Suspect`).
        """
        threads, heartbeat_interval_ms = identity.threads, identity.interval_ms
        self._own = range(threads)
        self._spares = range(threads, threads + spares)
        self._interval_ms = heartbeat_interval_ms
        # PipelineThreads report after each batch and each commit.
        self._hang_ms = longest_commit_ms(transaction_timeout_ms)
        self._identity = identity
        self._reporter = Reporter(heartbeat_interval_ms)
        self._threads = {number: ThreadEntry() for number in range(threads)}
        self._tasks: dict[TaskId, _Task] = {}
        self._given_up: dict[TaskId, int] = {}
        """Restart counts of tasks that their threads have lost, in case they come back."""
        self._unreadable: dict[TaskId, TaskStatus] = {}
        """Assigned tasks that this version of the engine does not understand, until revoked."""
        self._epoch = -1
        self._sequence = 0
        self._now_ms = 0
        self._next_thread = 0
        self._is_launched = False
        self.contact = Contact(heartbeat_interval_ms)
        self._introduce_at_ms: int | None = None
        """When to introduce itself; `None` if it need not."""
        self._heartbeat_at_ms: int | None = None
        """When to send the next heartbeat; `None` until it has introduced itself."""
        self._refused_since_ms: int | None = None
        self._stop_by_ms: int | None = None
        self._exited = False
        self._commands: list[Command] = []

    @property
    def tasks(self) -> dict[TaskId, int]:
        """The tasks listed in reports, each with its thread."""
        return {task_id: task.thread for task_id, task in self._tasks.items()}

    @property
    def is_registered(self) -> bool:
        """Whether the JobManager of the current epoch has answered this TaskManager."""
        return self._sequence > 0

    @property
    def has_threads(self) -> bool:
        """Whether a thread for tasks runs, as far as is known."""
        return any(self._threads[number].state in _ALIVE for number in self._own)

    @property
    def reports_sent(self) -> int:
        """The number of introductions and heartbeats so far."""
        return self._reporter.beats

    def everything(self) -> Report:
        """Return a full report of the current state."""
        return replace(
            self._identity,
            epoch=self._epoch,
            sequence=self._sequence,
            thread_states=tuple(thread.state for thread in self._threads.values()),
            tasks=(*map(self._status, self._tasks.values()), *self._unreadable.values()),
        )

    def handle(self, event: Event) -> list[Command]:
        """Process an event; return the commands, in order. There are none after `Exit`."""
        if self._exited:
            return []
        if isinstance(event, ThreadEvent) and event.thread not in self._threads:
            return []  # of a spare that is gone; two threads of the daemon bring such events
        match event:
            case Tick(now_ms):
                self._on_tick(now_ms)
            case Sos(epoch):
                self._on_sos(epoch)
            case Processors():
                self._on_processors(event)
            case Refused(_, incarnation, epoch, reason):
                if incarnation == self._identity.incarnation and epoch >= self._epoch:
                    self._on_refused(reason)
            case ReportRequest(_, incarnation, epoch):
                if incarnation == self._identity.incarnation and epoch >= self._epoch:
                    self._reporter.require_full()
                    self._report_soon()
            case ThreadConnected(thread):
                self._on_connected(thread)
            case ThreadReported(thread, statuses):
                self._on_thread_report(thread, statuses)
            case TaskClosed(thread, task_id):
                self._on_closed(thread, task_id)
            case ThreadStopped(thread):
                self._threads[thread].state = ThreadState.DEAD
                self._leave_if_done()
            case ThreadEnding(thread, reason):
                self._threads[thread].ends_since = reason
            case ThreadDied(thread, death, goes_on):
                self._threads[thread].death = death
                if goes_on:
                    self._on_lost(thread, goes_on=True)
            case ThreadLost(thread):
                self._on_lost(thread)
            case ReportConfirmed():
                if self.contact.confirmed(self._now_ms):
                    self._commands.append(CatchUp())
            case CaughtUp():
                self.contact.caught_up()
            case StopRequested():
                self._on_stop()
            case CodeChanged(code):
                self._on_code_changed(code)
        commands, self._commands = self._commands, []
        return commands

    def _on_tick(self, now_ms: int) -> None:
        # This process was paused that long. Its threads may have run meanwhile, or paused too.
        paused_ms = max(now_ms - self._now_ms - self._interval_ms, 0)
        self._now_ms = now_ms
        self.contact.tick(now_ms)
        if not self._is_launched:
            self._is_launched = True
            paused_ms = 0
            self._introduce_at_ms = now_ms + START_TIMEOUT_BEATS * self._interval_ms
            for number in self._threads:
                self._launch(number)
        for number, thread in self._threads.items():
            thread.heard_at_ms += paused_ms
            thread.start_by_ms += paused_ms
            if thread.state in _ALIVE:
                self._watch(number, thread)
            elif thread.state is ThreadState.STARTING and not thread.waits:
                self._watch_start(number, thread)
            if thread.launch_at_ms is not None and now_ms >= thread.launch_at_ms:
                self._launch(number)
        self._watch_suspects()
        if self._stop_by_ms is not None and now_ms >= self._stop_by_ms:
            self._leave()
        elif self._introduce_at_ms is not None and now_ms >= self._introduce_at_ms:
            self._introduce_at_ms = None
            self._heartbeat_at_ms = now_ms + self._interval_ms
            self._commands.append(Threads(self._reporter.full(self.everything())))
        elif self._heartbeat_at_ms is not None and now_ms >= self._heartbeat_at_ms:
            self._heartbeat_at_ms = now_ms + self._interval_ms
            report = self._reporter.heartbeat(self.everything(), now_ms)
            self._commands.append(Heartbeat(report))

    def _watch(self, number: int, thread: ThreadEntry) -> None:
        """Check whether a thread is silent; end it if the silence exceeds all time limits."""
        silent_ms = self._now_ms - thread.heard_at_ms
        if silent_ms > SILENCE_BEATS * self._interval_ms:
            thread.state = ThreadState.SILENT
        if self._stop_by_ms is not None:
            return
        if silent_ms > self._hang_ms + thread.hang_steps * self._interval_ms:
            steps = (DumpThread(number), KillThread(number))
            self._commands += steps[thread.hang_steps : thread.hang_steps + 1]
            thread.hang_steps += 1

    def _watch_start(self, number: int, thread: ThreadEntry) -> None:
        """Report a thread that takes long to come up as waiting, together with its tasks."""
        if self._now_ms < thread.start_by_ms:
            return
        thread.waits = True
        self._commands.append(ReportWaiting(number))
        for task in self._tasks.values():
            if task.thread == number:
                task.status = replace(task.status, reason=_WAITS)
        self._report_soon()

    def _on_sos(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch, self._sequence = epoch, 0
            if self._heartbeat_at_ms is not None:
                self._introduce_at_ms = self._now_ms

    def _on_processors(self, message: Processors) -> None:
        if message.incarnation != self._identity.incarnation or message.epoch < self._epoch:
            return
        if message.epoch > self._epoch:
            self._epoch, self._sequence = message.epoch, 0
            self._reporter.require_full()
        if message.sequence <= self._sequence or self._stop_by_ms is not None:
            return
        self._sequence = message.sequence
        self._refused_since_ms = None
        for task_id in message.revoke:
            self._revoke(task_id)
        for replica in message.assign:
            self._assign(replica)
        for status in message.unreadable:
            if status.task not in self._tasks:  # as another version of it, which is closing
                self._unreadable[status.task] = status
        self._report_soon()

    def _on_refused(self, reason: str) -> None:
        """Retry for a while: the id may belong to a predecessor whose death is not yet known."""
        self._reporter.require_full()
        if self._refused_since_ms is None:
            self._refused_since_ms = self._now_ms
        timeout_ms = REFUSAL_TIMEOUT_BEATS * self._interval_ms
        if self._now_ms - self._refused_since_ms >= timeout_ms:
            self._exit(reason)

    def _assign(self, replica: ProcessorReplica) -> None:
        self._unreadable.pop(replica.task, None)
        task = self._tasks.get(replica.task)
        if task is not None:
            task.successor = replica if task.closing else None
            return
        # Verdicts hold only in the process that reached them.
        replica = replace(replica, suspects=as_suspects(replica.suspects))
        number = self._spare() if replica.suspects else None
        number = self._thread_for(replica.task) if number is None else number
        restarts = self._given_up.pop(replica.task, 0)
        status = TaskStatus(
            replica.task,
            TaskState.STARTING,
            _WAITS if self._threads[number].waits else "",
            number,
            replica.fingerprint,
            figures={"restarts": restarts},
        )
        calm_at_ms = self._now_ms + CALM_MS
        self._tasks[replica.task] = _Task(replica, number, status, restarts, calm_at_ms=calm_at_ms)
        thread = self._threads[number]
        if thread.state in _ALIVE and not thread.is_leaving:
            self._commands.append(AssignTask(number, replica, self._epoch))

    def _thread_for(self, task_id: TaskId) -> int:
        """Return the thread that has the same state open, or the next one with the fewest tasks.

        A store can be open only once, and a thread closes revoked tasks before it starts assigned
        ones.
        """
        for other_id, task in self._tasks.items():
            if other_id.active == task_id.active:
                return task.thread
        counts = self._counts()
        size = len(self._own)
        number = min(self._own, key=lambda n: (counts[n], (n - self._next_thread) % size))
        self._next_thread = (number + 1) % size
        return number

    def _counts(self) -> Counter[int]:
        """Return the number of tasks of each thread."""
        return Counter(task.thread for task in self._tasks.values())

    def _revoke(self, task_id: TaskId) -> None:
        self._unreadable.pop(task_id, None)
        task = self._tasks.get(task_id)
        if task is None:
            return
        task.successor = None
        if self._threads[task.thread].state not in _ALIVE:
            del self._tasks[task_id]
        elif not task.closing:
            task.closing = True
            self._commands.append(RevokeTask(task.thread, task_id))

    def _on_connected(self, number: int) -> None:
        thread = self._threads[number]
        thread.state, thread.waits = ThreadState.RUNNING, False
        thread.heard_at_ms = thread.connected_at_ms = self._now_ms
        if self._stop_by_ms is not None or thread.is_leaving:
            self._commands.append(StopThread(number))
            return
        for task in self._tasks.values():
            if task.thread == number:
                self._commands.append(AssignTask(number, task.replica, self._epoch))
        # Not earlier, or tasks would leave their owners and then wait for these threads to come up.
        is_up = all(self._threads[n].state is ThreadState.RUNNING for n in self._own)
        if is_up and self._heartbeat_at_ms is None:
            self._introduce_at_ms = self._now_ms

    def _on_thread_report(self, number: int, statuses: tuple[TaskStatus, ...]) -> None:
        thread = self._threads[number]
        if thread.state not in _ALIVE:
            return
        thread.state, thread.heard_at_ms = ThreadState.RUNNING, self._now_ms
        if thread.hang_steps == 1:  # it recovered in time
            thread.hang_steps = 0
        for status in () if thread.is_leaving else statuses:
            task = self._tasks.get(status.task)
            if task is not None and task.thread == number:
                if task.former_restarts:
                    restarts = status.count("restarts") + task.former_restarts
                    status = status.with_figures(restarts=restarts)
                task.status = status

    def _on_closed(self, number: int, task_id: TaskId) -> None:
        task = self._tasks.get(task_id)
        if task is None or task.thread != number:
            return
        if self._threads[number].is_leaving and not task.closing:
            return  # It goes on when the thread has started again.
        del self._tasks[task_id]
        if not task.closing:
            self._given_up[task_id] = task.status.count("restarts") + 1
        if task.successor is not None:
            self._assign(task.successor)
        if self._stop_by_ms is None:
            self._report_soon()

    def _on_lost(self, number: int, *, goes_on: bool = False) -> None:
        """Report the loss soon, and start the thread again; its tasks wait for it.

        Tasks that were in a call of user code move to a worker of their own. If that removes the
        cause, the others need not wait.
        """
        thread = self._threads[number]
        was_up = thread.state in _ALIVE
        lived_ms = self._now_ms - thread.connected_at_ms if was_up else 0
        thread.state = ThreadState.DEAD
        if self._stop_by_ms is not None:
            self._leave_if_done()
            return
        tasks = {task_id: task for task_id, task in self._tasks.items() if task.thread == number}
        if number in self._spares and not tasks and not goes_on:
            del self._threads[number]
            return
        reason = f"its PipelineThread {thread.end}, and is started again"
        if self._accuse(number, thread, tasks) or lived_ms > CALM_BEATS * self._interval_ms:
            thread.failures = 0
        if thread.is_leaving:
            reason, thread.failures = _NEW_CODE, 0
        thread.failures += 1
        delay_beats = min(2**thread.failures // 4, MAX_RELAUNCH_BEATS)
        if goes_on:
            self._begin_start(thread)
        else:
            thread.launch_at_ms = self._now_ms + delay_beats * self._interval_ms
        for task_id, task in tasks.items():
            if task.closing:
                self._on_closed(number, task_id)
            else:
                task.former_restarts = task.status.count("restarts") + was_up
                status = task.status.without_lag.with_figures(restarts=task.former_restarts)
                why = reason if task.thread == number else f"{reason}; {_ALONE}"
                task.status = replace(
                    status, state=TaskState.RESTARTING, reason=why, thread=task.thread
                )
        self._report_soon()

    def _accuse(self, number: int, thread: ThreadEntry, tasks: Mapping[TaskId, _Task]) -> bool:
        """Suspect the tasks that were in a call; return whether the thread is rid of the cause.

        It is rid of it if the calls that ended it will not be repeated, or not on this thread.
        """
        death = thread.death
        if death is None or thread.ends_since:
            return False
        how = _HUNG if thread.hang_steps else death.how
        calls = [(tasks[t], call) for t, call in death.calls if t in tasks and not tasks[t].closing]
        is_alone, is_rid = len(death.calls) == 1, bool(calls)
        for task, call in calls:
            known = task.replica.suspects
            suspects = after_death(known, call, how, is_alone=is_alone)
            task.replica = replace(task.replica, suspects=suspects)
            task.calm_at_ms = self._now_ms + CALM_MS
            spare = self._spare() if number in self._own else None
            if spare is not None:
                task.thread = spare
                if self._threads[spare].state in _ALIVE:
                    self._commands.append(AssignTask(spare, task.replica, self._epoch))
            elif not any(each.verdict and each not in known for each in suspects):
                is_rid = False
        return is_rid

    def _spare(self) -> int | None:
        """Return the spare thread with the fewest tasks, launched if needed; `None` without any.

        Unless there are very many suspects, each one then has a worker of its own.
        """
        if not self._spares:
            return None
        counts = self._counts()
        number = min(self._spares, key=lambda n: counts[n])
        if number not in self._threads:
            self._threads[number] = ThreadEntry()
            self._launch(number)
        return number

    def _watch_suspects(self) -> None:
        """Clear suspects whose workers have lived for long, and end spares without tasks."""
        if self._stop_by_ms is not None:
            return
        for task_id, task in self._tasks.items():
            is_due = task.replica.suspects and self._now_ms >= task.calm_at_ms
            if not is_due or task.closing or task.status.state is not TaskState.RUNNING:
                continue
            task.replica = replace(task.replica, suspects=())
            if task.thread in self._spares:
                task.closing, task.successor = True, task.replica
                self._given_up[task_id] = task.status.count("restarts")
                self._commands.append(RevokeTask(task.thread, task_id))
        used = {task.thread for task in self._tasks.values()}
        for number in self._spares:
            thread = self._threads.get(number)
            if thread and number not in used and thread.state in _ALIVE and not thread.is_leaving:
                thread.is_leaving = True
                self._commands.append(StopThread(number))

    def _launch(self, number: int) -> None:
        self._begin_start(self._threads[number])
        self._commands.append(LaunchThread(number))

    def _begin_start(self, thread: ThreadEntry) -> None:
        thread.launch_at_ms = None
        thread.hang_steps, thread.ends_since, thread.death = 0, "", None
        thread.is_leaving = False
        thread.state, thread.waits = ThreadState.STARTING, False
        thread.start_by_ms = self._now_ms + START_TIMEOUT_BEATS * self._interval_ms

    def _on_stop(self) -> None:
        if self._stop_by_ms is not None:
            return
        self._stop_by_ms = self._now_ms + STOP_TIMEOUT_BEATS * self._interval_ms
        for number, thread in self._threads.items():
            if thread.state in _ALIVE:
                self._commands.append(StopThread(number))
        self._leave_if_done()

    def _on_code_changed(self, code: Mapping[str, str]) -> None:
        """Have all threads commit and end, and start again at once, with the tasks they have."""
        if self._stop_by_ms is not None:
            return
        self._identity = replace(self._identity, code=code)
        self._reporter.require_full()
        for number, thread in self._threads.items():
            if thread.state in _ALIVE and not thread.is_leaving:
                self._commands.append(StopThread(number))
            # One that starts may have imported the former code: it ends as soon as it is up.
            thread.is_leaving = True
        for task in self._tasks.values():
            status = task.status.without_lag
            task.status = replace(status, state=TaskState.RESTARTING, reason=_NEW_CODE)
        self._report_soon()

    def _leave_if_done(self) -> None:
        if self._stop_by_ms is not None and not any(
            thread.state in _ALIVE for thread in self._threads.values()
        ):
            self._leave()

    def _leave(self) -> None:
        report = self._reporter.full(self.everything())
        self._commands.append(Heartbeat(replace(report, leaving=True, tasks=())))
        self._exit(None)

    def _exit(self, refusal: str | None) -> None:
        self._exited = True
        self._commands.append(Exit(refusal))

    def _report_soon(self) -> None:
        """Make a heartbeat due at the next tick; it also covers events until then."""
        if self._heartbeat_at_ms is not None:
            self._heartbeat_at_ms = self._now_ms

    def _status(self, task: _Task) -> TaskStatus:
        silent_ms = self._now_ms - self._threads[task.thread].heard_at_ms
        says_nothing = silent_ms > SILENCE_BEATS * self._interval_ms
        status = task.status.after_silence(silent_ms) if says_nothing else task.status
        suspects = as_suspects(task.replica.suspects)
        return replace(status, suspects=suspects) if suspects else status
