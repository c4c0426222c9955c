"""Both real cores, joined by the real codec, with all that they say written down."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec, SumSpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    JobManagerBeat,
    Message,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
    replicas,
)
from kafka_pipeline.common.protocol.reported_tasks import ReportedTasks
from kafka_pipeline.common.protocol.reports import decode_report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.jobmanager import events as jobmanager
from kafka_pipeline.jobmanager.leadership import (
    Leadership,
    LeaderStopRequested,
    SayGoodbye,
    SosRead,
    SosWritten,
    WriteFenced,
)
from kafka_pipeline.jobmanager.state import JobManagerState
from kafka_pipeline.taskmanager import events as taskmanager
from kafka_pipeline.taskmanager.state import TaskManagerState

COUNTS = (LoggedStore("counts"),)
INTERVAL_MS = 1000
STEP_MS = 500
NAMES = TopicNames("job_1", "source_topic_job_1", "sink_topic_job_1")
PARALLELISM = 2
PIPELINE = Pipeline(
    (
        PipelineProcessor("Forwarder", ForwardSpec(), ("Adder",), (SOURCE,)),
        PipelineProcessor("Adder", SumSpec(), ("Counter",), ("Forwarder",)),
        PipelineProcessor("Counter", CountSpec(), (SINK,), ("Adder",), stores=COUNTS),
    ),
    NAMES,
    PARALLELISM,
)


class Wire:
    """The control topics, and the transcript of what is written to them."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.lines: list[str] = []
        self._logs: defaultdict[str, list[ControlRecord]] = defaultdict(list)
        self._reported: defaultdict[str, ReportedTasks] = defaultdict(ReportedTasks)
        self._known: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Add a remark to the transcript."""
        self.lines += ["", f"# {text}"]

    def write(self, message: Message) -> int:
        """Encode a message and append its records; return the offset of the last one."""
        offset = -1
        for record in Codec(NAMES).encode(message, self.now_ms):
            log = self._logs[record.topic]
            offset = len(log)
            log.append(replace(record, offset=offset))
            self._write_down(record)
        return offset

    def end(self, topic: str) -> int:
        """Return the offset that the next record will have."""
        return len(self._logs[topic])

    def read(self, topic: str, position: int) -> list[ControlRecord]:
        """Return the records from `position` on."""
        return self._logs[topic][position:]

    def _write_down(self, record: ControlRecord) -> None:
        """Add a record, unless it is a heartbeat after which the same is known as before."""
        headers = dict(record.headers)
        if record.topic == NAMES.heartbeat and not self._is_news(headers):
            return
        told = _headers(headers)
        key, value = record.key.decode(), record.value.decode()
        time = f"{int(headers['sent_at']) / 1000:6.1f}"
        self.lines.append(f"{time}  {record.topic:<28} {key or '-':<10} {value}")
        if told:
            self.lines.append(f"{'':8}{told}")

    def _is_news(self, headers: dict[str, bytes]) -> bool:
        who, known = "jobmanager", str(_beat(headers))
        if "figures" in headers:
            report = decode_report(headers["report"], headers["figures"])
            who = report.incarnation
            reported = self._reported[who]
            assert reported.take(report), "nothing gets lost here"
            known = f"{_facts(report)} {_list(reported.tasks.values())}"
        is_news = self._known.get(who) != known
        self._known[who] = known
        return is_news


def _headers(headers: dict[str, bytes]) -> str:
    shown = [
        f"{name}={headers[name].decode()}"
        for name in ("epoch", "sequence", "incarnation", "action", "parameters")
        if name in headers
    ]
    if "figures" in headers:
        shown.append(_report(decode_report(headers["report"], headers["figures"])))
    elif "report" in headers:
        shown.append(f"report: {json.dumps(_beat(headers))}")
    return " ".join(shown)


def _beat(headers: dict[str, bytes]) -> Any:
    """Return the JobManager's heartbeat without its number."""
    beat = json.loads(headers["report"])
    beat.pop("number", None)
    return beat


def _report(report: Report) -> str:
    if report.base is None:
        return f"report: {_facts(report)}; tasks: {_list(report.tasks)}"
    closed = ", ".join(map(str, report.closed)) or "none"
    return f"difference: {_facts(report)}; tasks: {_list(report.tasks)}; closed: {closed}"


def _facts(report: Report) -> str:
    return (
        f"{report.incarnation} epoch={report.epoch} sequence={report.sequence} "
        f"{'leaving ' if report.leaving else ''}threads: {' '.join(report.thread_states)}"
    )


def _list(tasks: Iterable[TaskStatus]) -> str:
    return ", ".join(f"{status.task} {status.state}" for status in tasks) or "none"


class Member:
    """One who reads topics from where they end when it starts."""

    def __init__(self, wire: Wire, topics: tuple[str, ...]) -> None:
        self.wire = wire
        self.alive = True
        self._codec = Codec(NAMES)
        self._positions = {topic: wire.end(topic) for topic in topics}

    def read(self) -> list[Message]:
        """Return the messages that have come, topic by topic."""
        messages = []
        for topic in self._positions:
            for record in self.wire.read(topic, self._positions[topic]):
                self._positions[topic] += 1
                message = self._codec.decode(record)
                if message is not None:
                    messages.append(message)
        return messages


class JobManager(Member):
    """A JobManager; the newest one fences the others, as Kafka would see to."""

    def __init__(self, name: str, wire: Wire, tm_number: int) -> None:
        super().__init__(wire, (NAMES.threads_jm, NAMES.threads_tm, NAMES.heartbeat))
        self.name = name
        self.state = JobManagerState(replicas(PIPELINE), tm_number, INTERVAL_MS)
        self._handle(Tick(wire.now_ms))
        epoch = wire.write(Sos(-1, name))
        self._leadership = Leadership(name)
        self._leadership.handle(SosWritten(epoch))
        self._handle(jobmanager.LeadershipBegan(epoch))

    def step(self) -> None:
        """Do one turn of the daemon's loop."""
        self._handle(Tick(self.wire.now_ms))
        for message in self.read():
            match message:
                case Sos(epoch, author):
                    if self._leadership.handle(SosRead(epoch, author)):
                        # It would find out by writing that it is fenced.
                        self._leadership.handle(WriteFenced())
                        self.wire.lines.append(f"{'':8}{self.name} ends: superseded")
                        self.alive = False
                        return
                case JobManagerBeat(epoch, number=number) if epoch == self._leadership.epoch:
                    self._handle(jobmanager.Echoed(number))
                case Threads(report) | Heartbeat(report):
                    self._handle(jobmanager.Reported(report))

    def stop(self) -> None:
        """Ask for a graceful end, as SIGTERM does."""
        for command in self._leadership.handle(LeaderStopRequested()):
            assert isinstance(command, SayGoodbye)
            last = JobManagerBeat(command.epoch, self.wire.now_ms, self.state.owners, leaving=True)
            self.wire.write(last)
        self.wire.lines.append(f"{'':8}{self.name} exits")
        self.alive = False

    def _handle(self, event: jobmanager.Event) -> None:
        for message in self.state.handle(event):
            if isinstance(message, JobManagerBeat):
                message = replace(message, sent_at_ms=self.wire.now_ms)
            self.wire.write(message)


class TaskManager(Member):
    """A TaskManager whose threads carry commands out within one step."""

    def __init__(self, name: str, wire: Wire, tm_id: int, threads: int) -> None:
        super().__init__(wire, (NAMES.threads_jm, NAMES.processors(str(tm_id))))
        self.name = name
        self.paused = False
        self.state = TaskManagerState(
            Report(tm_id, name, threads, beat=0, interval_ms=INTERVAL_MS), 15_000
        )
        self._events: list[taskmanager.Event] = []
        self._running: dict[int, list[TaskStatus]] = {}

    def step(self) -> None:
        """Do one turn of the daemon's loop."""
        if self.paused:
            return
        for message in self.read():
            if isinstance(message, Sos | Processors | Refused | ReportRequest):
                self._handle(message)
        events, self._events = self._events, []
        for event in events:
            self._handle(event)
        for thread, statuses in self._running.items():
            self._handle(taskmanager.ThreadReported(thread, tuple(statuses)))
        self._handle(Tick(self.wire.now_ms))

    def stop(self) -> None:
        """Ask for a graceful end, as SIGTERM does."""
        self._handle(taskmanager.StopRequested())

    def _handle(self, event: taskmanager.Event) -> None:
        for command in self.state.handle(event):
            match command:
                case Threads() | Heartbeat():
                    self.wire.write(command)
                case taskmanager.LaunchThread(thread):
                    self._events.append(taskmanager.ThreadConnected(thread))
                    self._running[thread] = []
                case taskmanager.AssignTask(thread, replica):
                    self._running[thread].append(
                        TaskStatus(replica.task, TaskState.RUNNING, fingerprint=replica.fingerprint)
                    )
                case taskmanager.RevokeTask(thread, task):
                    self._running[thread] = [s for s in self._running[thread] if s.task != task]
                    self._events.append(taskmanager.TaskClosed(thread, task))
                case taskmanager.StopThread(thread):
                    del self._running[thread]
                    self._events.append(taskmanager.ThreadStopped(thread))
                case taskmanager.Exit(refusal):
                    self.wire.lines.append(f"{'':8}{self.name} exits, refusal: {refusal}")
                    self.alive = False


class Conversation:
    """JobManagers and TaskManagers on one wire, step by step."""

    def __init__(self, tm_number: int) -> None:
        self.wire = Wire()
        self.members: list[JobManager | TaskManager] = []
        self._tm_number = tm_number

    def say(self, text: str) -> None:
        """Add a remark to the transcript."""
        self.wire.say(text)

    def start_jobmanager(self, name: str = "jm") -> JobManager:
        """Start a JobManager; it takes part first in each step."""
        member = JobManager(name, self.wire, self._tm_number)
        self.members.insert(0, member)
        return member

    def start_taskmanager(self, name: str, tm_id: int, threads: int) -> TaskManager:
        """Start a TaskManager."""
        member = TaskManager(name, self.wire, tm_id, threads)
        self.members.append(member)
        return member

    def run(self, intervals: float) -> None:
        """Let heartbeat intervals pass."""
        for _ in range(int(intervals * INTERVAL_MS / STEP_MS)):
            self.wire.now_ms += STEP_MS
            for member in list(self.members):
                if member.alive:
                    member.step()
            self.members = [member for member in self.members if member.alive]

    def kill(self, member: JobManager | TaskManager) -> None:
        """End a member without a word."""
        self.members.remove(member)

    @property
    def text(self) -> str:
        """The transcript."""
        return "\n".join(self.wire.lines).strip() + "\n"
