"""The two daemons without Kafka, Spark and clock: the real cores in simulated processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kafka_pipeline.common.protocol.messages import (
    Heartbeat,
    JobManagerBeat,
    Message,
    ProcessorReplica,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.protocol.reported_tasks import ReportedTasks
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.jobmanager import events as jobmanager
from kafka_pipeline.jobmanager.leadership import Event as LeadershipEvent
from kafka_pipeline.jobmanager.leadership import (
    Leadership,
    LeaderState,
    LeaderStopRequested,
    SayGoodbye,
    SosRead,
    SosWritten,
    StepDown,
    TakeOver,
    WriteFailed,
    WriteFenced,
    WriteSos,
)
from kafka_pipeline.jobmanager.state import JobManagerState
from kafka_pipeline.taskmanager import events as taskmanager
from kafka_pipeline.taskmanager.leases import LIFE_BEATS
from kafka_pipeline.taskmanager.state import TaskManagerState
from tests.simulation.broker import NAMES, Broker, WriteFailedError, WriterFencedError
from tests.simulation.fences import Fences, TaskInstance
from tests.simulation.ledger import Ledger
from tests.simulation.pipeline_thread import (
    INTERVAL_MS,
    TRANSACTION_TIMEOUT_MS,
    FakePipelineThread,
    Pace,
)

FENCING_MS = 2000
ORPHAN_GRACE_MS = 10_000
RECONNECT_MS = 2000

Trace = Callable[[str], None]


class Process:
    """A process with its own clock that can be paused and killed."""

    def __init__(self, name: str, random: Random, trace: Trace) -> None:
        self.name = name
        self.alive = True
        self.paused_until_ms = 0
        self.random = random
        self.trace = trace
        self._clock_ms = random.randrange(10**9)
        """A monotonic clock starts anywhere."""

    def tick_ms(self, now_ms: int) -> int:
        """Return the time on this process's own clock."""
        return now_ms + self._clock_ms

    def is_paused(self, now_ms: int) -> bool:
        """Whether it is stopped, as by SIGSTOP."""
        return now_ms < self.paused_until_ms


class JobManagerProcess(Process):
    """`jobmanager/daemon.py`, in its order: tick, lead, read."""

    def __init__(
        self,
        name: str,
        broker: Broker,
        random: Random,
        trace: Trace,
        replicas: Sequence[ProcessorReplica],
        tm_number: int,
    ) -> None:
        super().__init__(name, random, trace)
        self.state = JobManagerState(replicas, tm_number, INTERVAL_MS)
        self.commands_sent = 0
        self.refusals = 0
        self.sequences: dict[tuple[int, str], int] = {}
        """The last sequence per TaskManager and incarnation, during the current leadership."""
        self.replicas = {replica.task: replica for replica in replicas}
        """The replicas of the pipeline.yaml that it started with."""
        self.ledger = Ledger(self.replicas)
        self.owners: dict[TaskId, int | None] = {}
        """The core's view after its last step."""
        self.started_ms = broker.now_ms
        self._ticked_ms = 0
        self._broker = broker
        self._reader = broker.reader([NAMES.threads_jm, NAMES.threads_tm, NAMES.heartbeat])
        self._writer: int | None = None
        self._leadership = Leadership(name)
        self._takes_over_at_ms: int | None = None
        self._to_write: list[Message] = []

    @property
    def leads(self) -> bool:
        """Whether it believes that Kafka accepts its commands."""
        return self._leadership.state is LeaderState.LEADING

    def step(self, now_ms: int) -> None:
        """Do one turn of the daemon's loop."""
        if not self.alive or self.is_paused(now_ms):
            return
        self._take_turn(now_ms)
        self.owners = self.state.owners
        self.ledger.compare(self.owners, self.state.live, self._ticked_ms)

    def end(self, now_ms: int, *, crash: bool) -> None:
        """End for good, by `kill -9` or by SIGTERM."""
        self.trace(f"{self.name} is {'killed' if crash else 'stopped'}")
        if not crash:
            self._lead(LeaderStopRequested(), now_ms)
        self.alive = False

    def _take_turn(self, now_ms: int) -> None:
        if self._takes_over_at_ms is None:
            tick = Tick(self.tick_ms(now_ms))
            if self._leadership.state is not LeaderState.YIELDING:
                self._ticked_ms = now_ms
                self.ledger.tick(now_ms)
                self._handle(tick, now_ms)
            self._lead(tick, now_ms)
        self._write_commands(now_ms)
        if self._takes_over_at_ms is not None:
            if now_ms < self._takes_over_at_ms:
                return
            self._takes_over_at_ms = None
            self._write_sos(now_ms, takes_over=True)
        for message in self._reader.read():
            match message:
                case Sos(epoch, author):
                    self._lead(SosRead(epoch, author), now_ms)
                    if not self.alive:
                        return
                case JobManagerBeat(epoch, number=number) if epoch == self._leadership.epoch:
                    self.ledger.echo()
                    self._handle(jobmanager.Echoed(number), now_ms)
                case Threads(report) | Heartbeat(report):
                    if self._leadership.epoch >= 0:
                        self.ledger.hear(report, self._leadership.epoch)
                    self._handle(jobmanager.Reported(report), now_ms)
        self._write_commands(now_ms)

    def _lead(self, event: LeadershipEvent, now_ms: int) -> None:
        for command in self._leadership.handle(event):
            match command:
                case TakeOver():
                    # Fencing the others takes a while, during which reports arrive.
                    self._takes_over_at_ms = now_ms + self.random.randrange(FENCING_MS)
                case WriteSos():
                    self._write_sos(now_ms, takes_over=False)
                case StepDown(rival_epoch):
                    self.trace(f"{self.name} superseded by epoch {rival_epoch}")
                    self.alive = False
                case SayGoodbye(epoch):
                    last = JobManagerBeat(epoch, 0, self.state.owners, leaving=True)
                    self._broker.report(last)

    def _write_sos(self, now_ms: int, *, takes_over: bool) -> None:
        try:
            if takes_over:
                self._writer = self._broker.fence()
            assert self._writer is not None
            epoch = self._broker.command(self._writer, [Sos(-1, self.name)])
        except WriterFencedError:
            self._writer = None
            self._lead(WriteFenced(), now_ms)
        except WriteFailedError:
            self._writer = None
            self._lead(WriteFailed(), now_ms)
        else:
            self.sequences.clear()
            self.trace(f"{self.name} leads, epoch {epoch}")
            self._lead(SosWritten(epoch), now_ms)
            self._handle(jobmanager.LeadershipBegan(epoch), now_ms)

    def _handle(self, event: jobmanager.Event, now_ms: int) -> None:
        for message in self.state.handle(event):
            if isinstance(message, Refused):
                self.trace(f"{self.name} → {message}")
                self.refusals += 1
                self.ledger.tell(message, self._ticked_ms)
                self._broker.report(message)
            elif isinstance(message, JobManagerBeat | ReportRequest):
                self._broker.report(message)
            else:
                self._check(message)
                self.ledger.tell(message, self._ticked_ms)
                self._to_write.append(message)

    def _write_commands(self, now_ms: int) -> None:
        commands, self._to_write = self._to_write, []
        if not commands or self._writer is None:
            return
        for command in commands:
            self.trace(f"{self.name} → {brief(command)}")
        try:
            self._broker.command(self._writer, commands)
            self.commands_sent += len(commands)
            # It waits for the end of the transaction, and reads late what came meanwhile.
            self.paused_until_ms = max(self.paused_until_ms, self._broker.written_ms)
        except WriterFencedError:
            self.trace(f"{self.name} is fenced")
            self._writer = None
            self._lead(WriteFenced(), now_ms)
        except WriteFailedError:
            self.trace(f"{self.name} cannot write: the above is lost, or in doubt")
            self._writer = None
            self._lead(WriteFailed(), now_ms)

    def _check(self, command: Message) -> None:
        """Check that the core's command is consistent with its view, and with itself."""
        if not isinstance(command, Processors):
            return
        is_live = self.state.live.get(command.tm_id) == command.incarnation
        assert is_live or not command.assign, f"command to the dead: {brief(command)}"
        assigned = [replica.task for replica in command.assign]
        named = [*assigned, *command.revoke]
        assert len(set(named)) == len(named), f"a task is named twice: {brief(command)}"
        owners = self.state.owners if assigned else {}
        for task in assigned:
            assert owners[task] == command.tm_id, f"{task} belongs to {owners[task]}"
        key = (command.tm_id, command.incarnation)
        assert command.sequence > self.sequences.get(key, 0), f"sequence repeats: {brief(command)}"
        self.sequences[key] = command.sequence


class TaskManagerProcess(Process):
    """`taskmanager/daemon.py`, in its order: read, events of the threads, tick.

    Pings come from a separate thread (`taskmanager/leases.py`).
    """

    def __init__(
        self,
        name: str,
        broker: Broker,
        random: Random,
        trace: Trace,
        tm_id: int,
        threads: int,
        fences: Fences,
        pace: Pace,
    ) -> None:
        super().__init__(name, random, trace)
        self.tm_id = tm_id
        self.threads_num = threads
        self.threads: dict[int, FakePipelineThread] = {}
        self.orphans: list[FakePipelineThread] = []
        self.threads_paused_too = False
        self.hangs_until_ms = 0
        """The time until which its main loop is stuck in one turn, while the process continues."""
        self.silent_until_ms = 0
        """The time until which its host is cut off from Kafka."""
        self.reads_again_ms = 0
        """When its consumer of commands has connected again; other clients may be sooner."""
        self._is_confirmed = self._catches_up = False
        self.stops = False
        self.exits = False
        self.failed_ms: dict[TaskId, int] = {}
        """The time since which it has reported each task as FAILED."""
        self.state = TaskManagerState(
            Report(tm_id, name, threads, beat=0, interval_ms=INTERVAL_MS), TRANSACTION_TIMEOUT_MS
        )
        self._broker = broker
        self._reader = broker.reader([NAMES.threads_jm, NAMES.processors(str(tm_id))])
        self._fences = fences
        self._pace = pace
        self._reported = ReportedTasks()
        """The combined content of its reports."""
        self._alive_ms = broker.now_ms
        """When the main loop last showed life."""

    def step(self, now_ms: int) -> None:
        """Do one turn of the daemon's loop, and of its threads."""
        paused = self.is_paused(now_ms)
        if self.alive and not paused and now_ms >= self.hangs_until_ms:
            self._alive_ms = now_ms
            if self._is_confirmed:
                self._is_confirmed = False
                self._handle(taskmanager.ReportConfirmed(), now_ms)
            if now_ms >= self.reads_again_ms:
                self._read(now_ms)
            for thread in list(self.threads.values()):
                events, thread.events = thread.events, []
                for event in events:
                    self._handle(event, now_ms)
            self._handle(Tick(self.tick_ms(now_ms)), now_ms)
            if self.exits:
                self.crash(now_ms)
        if self.alive and not paused and now_ms - self._alive_ms <= LIFE_BEATS * INTERVAL_MS:
            for thread in self.threads.values():
                thread.heard_ms = now_ms
                thread.is_sure = self.state.contact.is_sure
        for thread in [*self.threads.values(), *self.orphans]:
            thread.is_cut_off = now_ms < self.silent_until_ms
        if not (paused and self.threads_paused_too):
            for thread in [*self.threads.values(), *self.orphans]:
                thread.step(now_ms)

    def _read(self, now_ms: int) -> None:
        for message in self._reader.read():
            if isinstance(message, Sos | Processors | Refused | ReportRequest):
                self._handle(message, now_ms)
        if self._catches_up and self._reader.is_at_end:
            self._catches_up = False
            self._handle(taskmanager.CaughtUp(), now_ms)

    def silence(self, until_ms: int) -> None:
        """Cut its host off from Kafka."""
        self.silent_until_ms = until_ms
        self.reads_again_ms = until_ms + self.random.randrange(RECONNECT_MS)

    def stop(self, now_ms: int) -> None:
        """Request a clean shutdown."""
        self.stops = True
        self._handle(taskmanager.StopRequested(), now_ms)

    def crash(self, now_ms: int) -> None:
        """End the driver as by `kill -9`; its workers notice a little later."""
        self.alive = False
        for thread in self.threads.values():
            thread.orphaned_until_ms = now_ms + self.random.randrange(ORPHAN_GRACE_MS)
        self.orphans += self.threads.values()
        self.threads = {}

    @property
    def running(self) -> list[TaskInstance]:
        """The tasks of threads whose workers are alive."""
        return [
            task
            for thread in self.threads.values()
            if thread.alive
            for task in thread.tasks.values()
        ]

    def _handle(self, event: taskmanager.Event, now_ms: int) -> None:
        for command in self.state.handle(event):
            match command:
                case Threads(report) | Heartbeat(report):
                    self._reported.take(report)
                    tasks = self._reported.tasks.values()
                    failed = [s.task for s in tasks if s.state is TaskState.FAILED]
                    self.failed_ms = {t: self.failed_ms.get(t, now_ms) for t in failed}
                    if now_ms >= self.silent_until_ms:
                        self._is_confirmed |= self._broker.report(command)
                case taskmanager.CatchUp():
                    self._catches_up = True
                case taskmanager.LaunchThread(number):
                    self.threads[number] = FakePipelineThread(
                        number, self._fences, self.random, now_ms, self._pace
                    )
                case taskmanager.AssignTask(number, replica):
                    hosts = [t for t in self.threads.values() if t.has(replica.task)]
                    assert not hosts, f"{replica.task} is assigned to a second thread"
                    self.threads[number].send(command)
                case taskmanager.RevokeTask(number) | taskmanager.StopThread(number):
                    self.threads[number].send(command)
                case taskmanager.KillThread(number):
                    thread = self.threads[number]
                    if thread.alive:
                        self.trace(f"{self.name} kills its thread {number}")
                        thread.die()
                case taskmanager.Exit(refusal):
                    self.trace(f"{self.name} exits, refusal: {refusal}")
                    self.exits = True


def brief(message: Message) -> str:
    """Return a short form of a command."""
    match message:
        case Processors(tm_id, incarnation, epoch, sequence, assign, revoke):
            plus = " ".join(f"+{replica.task}" for replica in assign)
            minus = " ".join(f"-{task}" for task in revoke)
            return f"{incarnation} (id {tm_id}) epoch {epoch} #{sequence}: {plus} {minus}"
        case _:
            return str(message)
