"""The TaskManager's process: passes events to the core and carries its commands out."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
import time
import uuid
from dataclasses import replace
from queue import SimpleQueue

import structlog

from kafka_pipeline.common.clock import monotonic_ms, wall_clock_ms
from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.control_inbox import ControlInbox
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.engine_version import RUNNING_VERSION
from kafka_pipeline.common.errors import PipelineError, SupersededError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.control import ControlReader, ReportWriter
from kafka_pipeline.common.monitoring.long_wait import LongWait
from kafka_pipeline.common.monitoring.metric import Sample
from kafka_pipeline.common.monitoring.monitoring import Monitoring
from kafka_pipeline.common.pipelines.specs import DataFrameSpec
from kafka_pipeline.common.process.open_files import raise_limit
from kafka_pipeline.common.process.stop_signals import StopSignals
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    Heartbeat,
    Processors,
    Refused,
    Report,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.streams.engine.code_snapshot import snapshot
from kafka_pipeline.streams.engine.user_files import code_fingerprints
from kafka_pipeline.streams.spark.start import prepare_spark
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.taskmanager import channel_messages
from kafka_pipeline.taskmanager.channel import DriverChannel
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
    ThreadLost,
    ThreadReported,
    ThreadStopped,
)
from kafka_pipeline.taskmanager.leases import LeaseKeeper
from kafka_pipeline.taskmanager.measurements import Measurements
from kafka_pipeline.taskmanager.metrics import TaskManagerView, samples
from kafka_pipeline.taskmanager.open_files import OpenFiles
from kafka_pipeline.taskmanager.query_server import QueryServer
from kafka_pipeline.taskmanager.spark import SparkRunner
from kafka_pipeline.taskmanager.spark_settings import spark_settings
from kafka_pipeline.taskmanager.state import TaskManagerState
from kafka_pipeline.taskmanager.state_server import StateServer
from kafka_pipeline.taskmanager.task_stores import code_directory
from kafka_pipeline.taskmanager.worker import ThreadSettings, spark_body

_NO_ANSWER = "no JobManager has answered: start it, or check whether it runs this job"
POLL_S = 0.05
LAST_REPORT_TIMEOUT_S = 2


class TaskManagerDaemon:
    """Runs one TaskManager until it is asked to stop or the JobManager refuses it."""

    _reload_is_due = False
    """Whether a signal asks for the user's code to be read again."""
    _kept_code_of = ""
    """The last processor whose function of DataFrames was in Spark's own workers, if there was one.
    """
    _catches_up = False
    """Whether commands are to be read up to where they ended when that was asked."""
    _was_sure = True
    _exit: Exit | None = None

    def __init__(
        self,
        config: Config,
        tm_id: int,
        threads: int,
        signals: StopSignals,
        monitoring: Monitoring,
    ) -> None:
        """Copy and import the user's code, look for Java, connect to Kafka and start Spark.

        Raises `ConfigError` for code that cannot be imported or settings that do not suit each
        other, and `UnavailableError` if Java, Kafka, Spark or the state directory is not available.
        """
        self._code_from = config.python_path
        if config.spark.is_local:
            # Workers that start later must run the same code, even if the folders change.
            code_path = snapshot(config.python_path, code_directory(config, tm_id))
            config = replace(config, python_path=code_path)
        self._code = UserCode.of(config)
        self._code.import_all()
        self._config = config
        self._monitoring = monitoring
        self._state_server = StateServer.of(config)
        self._tm_id = tm_id
        self._threads = threads
        self._signals = signals
        self._open_files = OpenFiles(threads, raise_limit())
        spark = spark_settings(config.spark, threads)
        with self._open_files.for_spark():
            prepare_spark(config, spark.values)
        # Bound to the logger, since threads without this context log too.
        self._log = structlog.get_logger().bind(task_manager=tm_id)
        admin = Admin(config)
        admin.check_broker()
        admin.ensure_topics(control_topics(config))
        names = config.topic_names
        self._codec = Codec(names, key=config.control_key)
        self._inbox = ControlInbox(self._codec, self._log)
        topics = [names.threads_jm, names.processors(str(tm_id))]
        self._reader = ControlReader(config, topics)
        self._writer = ReportWriter(config)
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._measured = Measurements()
        self._changing = threading.Lock()
        """Held while the core changes, since the threads of `Monitoring` read it."""
        self._wait = LongWait(self._log, _NO_ANSWER)
        identity = Report(
            tm_id,
            uuid.uuid4().hex[:12],
            threads,
            beat=0,
            host=socket.gethostname(),
            pid=os.getpid(),
            code=code_fingerprints(config.modules, config.python_path),
            state_address=self._state_server.address if self._state_server else "",
            engine=RUNNING_VERSION,
            interval_ms=config.heartbeat_interval_ms,
        )
        self._state = TaskManagerState(identity, config.transaction_timeout_ms, spark.spares)
        # From here on, there is a JVM to shut down.
        signals.hold()
        with self._open_files.for_spark():
            self._spark = SparkRunner(config, tm_id, spark)
        self._channel = DriverChannel(self._spark.bind_host, self._on_message)
        self._leases = LeaseKeeper(config.heartbeat_interval_ms, self._ping)
        self._queries = self._query_server()

    def _query_server(self) -> QueryServer:
        place = f"TaskManager {self._tm_id} at {socket.gethostname()}"
        readable = Readable.of(self._config, place=place)
        return QueryServer(
            self._spark.bind_host,
            self._channel.authkey,
            self._spark.queries(self._code, readable),
            readable.references,
        )

    def run(self) -> None:
        """Work until a signal or a refusal; a second SIGTERM or SIGINT ends the process at once.

        Raises `SupersededError` when refused.
        """
        signal.signal(signal.SIGUSR1, self._on_dump)
        signal.signal(signal.SIGUSR2, self._on_reload)
        try:
            if not self._signals.forward(self._request_stop):
                # No JobManager knows this TaskManager yet, so there is nothing to give back.
                self._exit = Exit(None)
            else:
                self._log.info("TaskManager runs")
                self._leases.start()
                self._monitoring.begin(self._samples, self._not_ready)
                self._serve_state()
            while self._exit is None:
                self._turn()
        finally:
            self._leases.stop()
            self._writer.close(LAST_REPORT_TIMEOUT_S)
            self._channel.close()
            self._queries.close()
            self._spark.stop()
            self._reader.close()
            self._monitoring.close()
            if self._state_server is not None:
                self._state_server.close()
        if self._exit.refusal:
            raise SupersededError(f"the JobManager refuses this TaskManager: {self._exit.refusal}")
        self._log.info("TaskManager stopped")

    def _ping(self) -> None:
        self._channel.ping(self._state.contact.is_sure)

    def _turn(self) -> None:
        try:
            self._tick()
        finally:
            # In place of an error of the turn, which may have asked a JVM that is gone.
            if not self._spark.is_alive:
                raise PipelineError(
                    "Spark is gone: its JVM ended, or the cluster ended the application. "
                    "Start this TaskManager again."
                )

    def _tick(self) -> None:
        self._monitoring.turned()
        if self._reload_is_due:
            self._reload_is_due = False
            self._reload()
        if self._writer.poll():
            self._handle(ReportConfirmed())
        for record in self._reader.read(POLL_S):
            message = self._inbox.take(record)
            if isinstance(message, Sos | Processors | Refused | ReportRequest):
                self._handle(message)
            for each in message.unreadable if isinstance(message, Processors) else ():
                self._log.error("task cannot run", task=str(each.task), reason=each.reason)
        if self._catches_up and self._reader.is_at_end:
            self._catches_up = False
            self._handle(CaughtUp())
        # Only events that are already queued, so that ticks and reports are not delayed, however
        # many events arrive meanwhile.
        for _ in range(self._events.qsize()):
            self._handle(self._events.get_nowait())
        self._handle(Tick(monotonic_ms()))
        self._pass_on_doubt()
        self._wait.look(time.monotonic(), waits=not self._state.is_registered)

    def _pass_on_doubt(self) -> None:
        """Log that this TaskManager begins to doubt that its tasks are its own, or is sure again.

        The workers learn of it at once: half a heartbeat later, all starts would have waited.
        """
        if self._state.contact.is_sure is self._was_sure:
            return
        self._was_sure = self._state.contact.is_sure
        self._ping()
        if self._was_sure:
            self._log.info("all commands are read: tasks may start again")
        else:
            self._log.warning(
                "Kafka does not confirm reports, so others may own the tasks: none starts again "
                "before all commands are read"
            )

    def _reload(self) -> None:
        """Have the workers start again with the user's code as it is in the folders now.

        Spark and this process go on. Functions of DataFrames are kept in Spark's own workers.
        """
        refusal = ""
        if not self._config.spark.is_local:
            refusal = "its workers are on a Spark cluster"
        elif self._kept_code_of:
            refusal = f"Spark keeps the function of {self._kept_code_of} in processes of its own"
        if refusal:
            self._log.error(
                "the code is not read again: start this TaskManager again", reason=refusal
            )
            return
        config = self._config
        try:
            snapshot(self._code_from, code_directory(config, self._tm_id))
            self._code.forget_modules()
            self._code.import_all()
        except PipelineError as error:
            # As at the start, the tasks that need it fail, with the reason.
            self._log.error("the code cannot be read again", reason=str(error))
        self._log.info("the code is read again: PipelineThreads start with it")
        self._handle(CodeChanged(code_fingerprints(config.modules, config.python_path)))

    def _handle(self, event: Event) -> None:
        self._leases.show_life()
        if isinstance(event, StopRequested):
            self._log.info("stopping: PipelineThreads commit and close")
        with self._changing:
            commands = self._state.handle(event)
        for command in commands:
            self._execute(command)

    def _execute(self, command: Command) -> None:
        match command:
            case Threads() | Heartbeat():
                self._writer.write(self._codec.encode(command, wall_clock_ms()))
            case LaunchThread(thread):
                self._launch(thread)
            case CatchUp():
                self._reader.look_for_end()
                self._catches_up = True
            case ReportWaiting(thread):
                self._log.warning(
                    "PipelineThread does not come up: Spark still starts it, has no free slot for "
                    "it, or its worker hangs",
                    thread=thread,
                    executors=self._spark.executors,
                    master=self._config.spark.master,
                )
            case AssignTask(thread, replica, epoch):
                self._log.info("task assigned", task=str(replica.task), thread=thread, epoch=epoch)
                if isinstance(replica.spec, DataFrameSpec):
                    self._kept_code_of = replica.name
                if self._config.spark.is_local:
                    # Workers on other hosts have limits of their own.
                    self._open_files.check(len(self._state.tasks))
                self._channel.send(thread, channel_messages.Assign(replica, epoch))
            case RevokeTask(thread, task):
                self._log.info("task revoked", task=str(task), thread=thread)
                self._channel.send(thread, channel_messages.Revoke(task))
            case StopThread(thread):
                self._channel.send(thread, channel_messages.Stop())
            case DumpThread(thread):
                self._log.error("PipelineThread hangs: its stacks follow", thread=thread)
                self._channel.dump(thread)
            case KillThread(thread):
                self._log.error("PipelineThread hangs: killed", thread=thread)
                self._channel.kill(thread)
                # The worker may be out of reach, or its host may be gone.
                self._spark.cancel(thread)
            case Exit():
                self._exit = command

    def _launch(self, thread: int) -> None:
        # Workers run user code, and must not use control topics.
        config = replace(self._config.for_executors, control_key=None)
        host = self._spark.driver_host
        settings = ThreadSettings(
            config,
            self._tm_id,
            thread,
            (host, self._channel.port),
            self._channel.authkey,
            (host, self._queries.port),
            RUNNING_VERSION if config.spark.is_local else "",
        )
        tasks = [task for task, owner in self._state.tasks.items() if owner == thread]

        def on_end(reason: str | None) -> None:
            if reason is not None:
                self._log.warning("PipelineThread ended", thread=thread, reason=reason)
            self._measured.forget_thread(thread)
            self._events.put(ThreadLost(thread))

        self._spark.launch(thread, tasks, spark_body(settings), on_end)

    def _on_message(self, thread: int, message: channel_messages.ToDriver) -> None:
        match message:
            case channel_messages.Hello(pid=pid):
                self._log.info("PipelineThread runs", thread=thread, pid=pid)
                self._events.put(ThreadConnected(thread))
            case channel_messages.Status(tasks):
                self._events.put(ThreadReported(thread, tasks))
            case channel_messages.Measured():
                self._measured.add(thread, message)
            case channel_messages.Answer():
                if self._state_server is not None:
                    self._state_server.take(message)
            case channel_messages.Closed(task):
                self._measured.forget_task(thread, task)
                self._events.put(TaskClosed(thread, task))
            case channel_messages.Ending(reason):
                self._events.put(ThreadEnding(thread, reason))
            case channel_messages.Died(pid=pid, death=death, goes_on=goes_on):
                self._measured.forget_thread(thread)
                self._log.error(
                    "worker process ended", thread=thread, pid=pid, how=death.how, calls=death.place
                )
                self._events.put(ThreadDied(thread, death, goes_on))
            case channel_messages.Stopped():
                self._events.put(ThreadStopped(thread))

    def _serve_state(self) -> None:
        if self._state_server is None:
            return
        self._log.info("state is served", address=self._state_server.address)
        self._state_server.show(self._places, self._channel.ask)

    def _places(self) -> dict[TaskId, int]:
        """Return the tasks of this TaskManager, each with its thread."""
        with self._changing:
            return self._state.tasks

    def _samples(self) -> list[Sample]:
        with self._changing:
            view = TaskManagerView(
                self._state.everything(),
                self._state.is_registered,
                self._state.reports_sent,
                self._inbox.rejected,
            )
        return list(samples(view, self._measured))

    def _not_ready(self) -> list[str]:
        """Return the reasons why this TaskManager cannot run tasks."""
        problems = []
        if not self._state.is_registered:
            problems.append("no JobManager has answered this TaskManager yet")
        if not self._spark.is_alive:
            problems.append("Spark is gone")
        if not self._state.has_threads:
            problems.append("none of its PipelineThreads runs")
        return problems

    def _request_stop(self) -> None:
        self._events.put(StopRequested())

    def _on_reload(self, _number: int, _frame: object) -> None:
        self._reload_is_due = True

    def _on_dump(self, _number: int, _frame: object) -> None:
        faulthandler.dump_traceback(all_threads=True)
        for thread in self._channel.threads:
            self._channel.dump(thread)
