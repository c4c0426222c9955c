"""The JobManager's process: moves messages to the core and sends its commands."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from kafka_pipeline.common.clock import monotonic_ms, wall_clock_ms
from kafka_pipeline.common.cluster.code_versions import CodeVersions, differing, versions_line
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.control_inbox import ControlInbox
from kafka_pipeline.common.engine_version import RUNNING_VERSION
from kafka_pipeline.common.errors import SupersededError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.kafka.control import CommandWriter, ControlReader, ReportWriter
from kafka_pipeline.common.monitoring.long_wait import LongWait
from kafka_pipeline.common.monitoring.metric import Sample
from kafka_pipeline.common.monitoring.monitoring import Monitoring
from kafka_pipeline.common.process.stop_signals import StopSignals
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.deployment.desired_state import Deployed
from kafka_pipeline.jobmanager import findings, leadership
from kafka_pipeline.jobmanager.command_topics import CommandTopics
from kafka_pipeline.jobmanager.events import Echoed, Event, LeadershipBegan, Reported
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
from kafka_pipeline.jobmanager.metrics import JobManagerView, ReceivedBeats, samples
from kafka_pipeline.jobmanager.rollout import Rollout
from kafka_pipeline.jobmanager.start import RefusedFile
from kafka_pipeline.jobmanager.state import JobManagerState

POLL_S = 0.05

logger = structlog.get_logger()


class Observer(Protocol):
    """Sees what the JobManager reads and runs; it must neither block nor raise."""

    deployed: Deployed | None
    """What the job runs."""

    def put(self, record: ControlRecord, now_ms: int) -> None:
        """Take a record of a control topic that was read at `now_ms`, by this host's clock."""


class JobManagerDaemon:
    """Runs one JobManager until it is asked to stop or another one takes over."""

    def __init__(
        self,
        config: Config,
        admin: Admin,
        signals: StopSignals,
        monitoring: Monitoring,
        observer: Observer | None = None,
        refused: RefusedFile | None = None,
    ) -> None:
        """Connect. The `observer`, if there is one, gets what the daemon reads.

        A file that was `refused` is a finding until another version runs.

        Raises `UnavailableError` if no broker answers, `ConfigError` if no pipeline was deployed.
        """
        self._config = config
        self._monitoring = monitoring
        self._signals = signals
        self._observer = observer
        self._refused = refused
        self._names = config.topic_names
        self._rollout = Rollout(config, admin)
        self._codec = Codec(self._names, reads_figures=False, key=config.control_key)
        self._inbox = ControlInbox(self._codec, logger)
        names = self._names
        topics = [names.threads_jm, names.threads_tm, names.heartbeat]
        self._reader = ControlReader(config, topics)
        self._reports = ReportWriter(config)
        self._writer: CommandWriter | None = None
        self._to_write: list[Message] = []
        """Commands for the next transaction."""
        self._topics = CommandTopics(config.topic_names)
        self._unwritten: tuple[str, ...] = ()
        """Why commands cannot be written, as a finding, since the last ones were."""
        self._incarnation = uuid.uuid4().hex[:12]
        self._leadership = Leadership(self._incarnation)
        self._beats_sent = 0
        self._received: dict[int, ReceivedBeats] = {}
        self._intervals: dict[int, int] = {}
        """The heartbeat intervals of TaskManagers that have another one, in ms."""
        self._changing = threading.Lock()
        """Held while the core changes, since the threads of `Monitoring` read it."""
        self._was_isolated = False
        self._wait = LongWait(
            logger, "no TaskManager has reported: start them, or check whether they run this job"
        )
        self._obsolete = LongWait(
            logger,
            f"TaskManagers follow a later epoch, so {names.threads_jm} was made again: stop all "
            "daemons, and start them again",
        )
        self._code: CodeVersions = {}
        self._state = JobManagerState((), config.tm_number, config.heartbeat_interval_ms)

    def run(self) -> None:
        """Run until SIGTERM, SIGINT or SIGHUP.

        Raises `SupersededError` when another JobManager of this job has taken over.
        """
        self._signals.hold()
        self._monitoring.begin(self._samples, self._not_ready)
        try:
            while not self._signals.is_requested:
                self._monitoring.turned()
                tick = Tick(monotonic_ms())
                if self._leadership.state is not LeaderState.YIELDING:
                    self._decide(tick)
                    self._log_isolation()
                    self._wait.look(time.monotonic(), waits=not self._state.live)
                    is_obsolete = self._state.later_epoch is not None
                    self._obsolete.look(time.monotonic(), waits=is_obsolete)
                self._roll_out()
                self._lead(tick)
                self._write_commands()
                for record in self._reader.read(POLL_S):
                    self._receive(record)
                    if self._observer is not None:
                        self._observer.put(record, wall_clock_ms())
                # In one transaction, as each may take seconds if Kafka is slow.
                self._write_commands()
                self._look_at_topics()
            self._lead(LeaderStopRequested())
        finally:
            self._rollout.close()
            self._reports.close(1)
            self._reader.close()
            self._monitoring.close()
        logger.info("JobManager stopped; the pipeline keeps running")

    def _roll_out(self) -> None:
        """Follow what the job is to run."""
        for event in self._rollout.advance(self._state):
            self._decide(event)
        if self._observer is not None:
            self._observer.deployed = self._rollout.deployed

    def _decide(self, event: Event) -> None:
        """Pass an event to the core; its commands are sent, or written soon."""
        with self._changing:
            commands = self._state.handle(event)
        self._send(commands)

    def _log_isolation(self) -> None:
        if self._state.is_isolated is self._was_isolated:
            return
        self._was_isolated = self._state.is_isolated
        if self._was_isolated:
            logger.warning(
                "own heartbeats are not read back from Kafka: no TaskManager is counted as down"
            )
        else:
            logger.info("own heartbeats are read back from Kafka again")

    def _lead(self, event: leadership.Event) -> None:
        """Carry out the commands of `Leadership`. Raises `SupersededError` if another one leads."""
        for command in self._leadership.handle(event):
            match command:
                case TakeOver():
                    self._write_sos(takes_over=True)
                case WriteSos():
                    self._write_sos(takes_over=False)
                case StepDown(rival_epoch):
                    raise SupersededError(
                        f"another JobManager of this job took over: its epoch is {rival_epoch}, "
                        f"the epoch of this one was {self._leadership.epoch}. This process ends; "
                        "the pipeline keeps running."
                    )
                case SayGoodbye(epoch):
                    last = JobManagerBeat(epoch, 0, self._state.owners, leaving=True)
                    self._reports.write(self._codec.encode(last, wall_clock_ms()))

    def _write_sos(self, takes_over: bool) -> None:
        """Write `sos`, with a new writer if `takes_over`; its offset is the new epoch."""
        try:
            if takes_over:
                self._writer = CommandWriter(self._config, self._names.jobmanager_transactional_id)
            assert self._writer is not None
            sos = Sos(-1, self._incarnation)
            epoch = self._writer.write(self._codec.encode(sos, wall_clock_ms()))
        except (FencedError, TransactionFailedError, NonRetriableError) as error:
            self._lose_writer(error)
            return
        structlog.contextvars.bind_contextvars(epoch=epoch)
        logger.info("JobManager leads")
        self._lead(SosWritten(epoch))
        self._decide(LeadershipBegan(epoch))

    def _lose_writer(self, error: Exception) -> None:
        """Drop the writer; its lost commands are repeated once this JobManager leads again."""
        self._writer = None
        if isinstance(error, FencedError):
            logger.warning("fenced: another JobManager took over, or Kafka timed this one out")
            self._lead(WriteFenced())
        else:
            logger.warning("Kafka does not accept commands", reason=str(error))
            self._unwritten = (findings.unwritten(error),)
            self._lead(WriteFailed())

    def _receive(self, record: ControlRecord) -> None:
        match self._inbox.take(record):
            case Sos(epoch, author):
                self._lead(SosRead(epoch, author))
            case JobManagerBeat(epoch, number=number) if epoch == self._leadership.epoch:
                self._decide(Echoed(number))
            case Threads(report) | Heartbeat(report):
                if report.leaving and report.incarnation == self._state.live.get(report.tm_id):
                    logger.info("TaskManager is leaving", task_manager=report.tm_id)
                self._count(report)
                self._decide(Reported(report))
                if report.base is None:
                    self._log_code()

    def _log_code(self) -> None:
        """Log which TaskManagers run different code, once for each difference."""
        found = differing(self._state.code)
        for module, versions in found.items():
            if self._code.get(module) != versions:
                logger.warning(versions_line(module, versions))
        for module in self._code.keys() - found.keys():
            logger.info("all TaskManagers run the same code of the module again", module=module)
        self._code = found

    def _count(self, report: Report) -> None:
        # Anybody can write a report, so ids that no TaskManager may have are left out.
        if 0 <= report.tm_id < self._state.tm_number:
            with self._changing:
                beats = self._received.setdefault(report.tm_id, ReceivedBeats())
                beats.count, beats.last_s = beats.count + 1, time.monotonic()
            self._compare_interval(report)

    def _compare_interval(self, report: Report) -> None:
        its_ms, own_ms = report.interval_ms, self._config.heartbeat_interval_ms
        is_other, known_ms = its_ms not in (0, own_ms), self._intervals.get(report.tm_id)
        if is_other and known_ms != its_ms:
            logger.warning(findings.other_interval(report.tm_id, its_ms, own_ms))
            with self._changing:
                self._intervals[report.tm_id] = its_ms
        elif not is_other and known_ms is not None:
            with self._changing:
                del self._intervals[report.tm_id]

    def _send(self, commands: list[Message]) -> None:
        for command in commands:
            _log(command)
            if isinstance(command, JobManagerBeat):
                self._beats_sent += 1
                command = replace(
                    command,
                    findings=self._findings,
                    unread=self._rollout.unread,
                    engine=RUNNING_VERSION,
                )
            if isinstance(command, JobManagerBeat | Refused | ReportRequest):
                # Repeated anyway, and harmless from a JobManager that no longer leads.
                self._reports.write(self._codec.encode(command, wall_clock_ms()))
            else:
                self._to_write.append(command)

    def _write_commands(self) -> None:
        commands, self._to_write = self._to_write, []
        if self._writer is None:
            return
        for transaction in self._topics.transactions(commands):
            try:
                self._writer.write(self._encoded(transaction))
            except (FencedError, TransactionFailedError, NonRetriableError) as error:
                if not isinstance(error, FencedError):
                    self._topics.failed(transaction, error)
                self._lose_writer(error)
                return
            self._topics.written(transaction)
        self._unwritten = ()

    def _look_at_topics(self) -> None:
        """Find out whether Kafka takes commands again where it took none."""
        self._topics.confirmed(self._reports.poll())
        if self._writer is not None:
            live, epoch = self._state.live, self._leadership.epoch
            requests = self._topics.requests(live, epoch, time.monotonic())
            self._reports.write(self._encoded(requests))

    def _encoded(self, messages: Sequence[Message]) -> list[ControlRecord]:
        return [r for each in messages for r in self._codec.encode(each, wall_clock_ms())]

    def _samples(self) -> list[Sample]:
        deployed = self._rollout.deployed
        with self._changing:
            view = JobManagerView(
                self._leadership.state,
                self._leadership.epoch,
                deployed.version.number if deployed else -1,
                self._state.is_isolated,
                self._beats_sent,
                self._inbox.rejected + self._rollout.rejected,
                len(self._findings),
                self._state.tm_number,
                self._state.owners,
                frozenset(filter(self._state.is_held, self._state.owners)),
                self._state.live,
                self._state.code,
                self._received,
                time.monotonic(),
            )
            return list(samples(view))

    @property
    def _findings(self) -> tuple[str, ...]:
        deployed, refused = self._rollout.deployed, self._refused
        found = [*self._unwritten, *self._topics.findings]
        if refused is not None and deployed and deployed.version.number == refused.version:
            found.append(refused.text)
        if (later := self._state.later_epoch) is not None:
            found.append(findings.ignored(self._leadership.epoch, later, self._names.threads_jm))
        own_ms = self._config.heartbeat_interval_ms
        for tm_id, its_ms in sorted(self._intervals.items()):
            found.append(findings.other_interval(tm_id, its_ms, own_ms))
        found += map(findings.often_lost, self._state.often_lost)
        return (*found, *self._rollout.findings)

    def _not_ready(self) -> list[str]:
        """Return why this JobManager does not lead its TaskManagers."""
        if self._leadership.state is not LeaderState.LEADING:
            return [f"it does not lead: it is {self._leadership.state}"]
        if self._state.is_isolated:
            return ["its own heartbeats do not come back from Kafka"]
        return []


def _log(command: Message) -> None:
    match command:
        case Processors(tm_id, _, _, sequence, assign, revoke):
            logger.info(
                "command sent",
                task_manager=tm_id,
                sequence=sequence,
                assign=[str(replica.task) for replica in assign],
                revoke=[str(task) for task in revoke],
            )
        case HeartbeatEvent(tm_id, is_up):
            logger.warning(
                "TaskManager is up again" if is_up else "TaskManager is down", task_manager=tm_id
            )
        case ReportRequest(tm_id, incarnation):
            logger.info(
                "a full report was missed: requested another one",
                task_manager=tm_id,
                incarnation=incarnation,
            )
        case Refused(tm_id, incarnation, _, reason):
            logger.warning(
                "TaskManager refused", task_manager=tm_id, incarnation=incarnation, reason=reason
            )
