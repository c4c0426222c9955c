"""A real cluster under load, with everything that is needed to break it."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TypeVar

from kafka_pipeline.admin.broker.local_cluster import LocalCluster, delete_data
from kafka_pipeline.admin.broker.ports import LOOPBACK, find_free
from kafka_pipeline.admin.daemons import Daemon, session_members
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, Presence
from kafka_pipeline.common.process.fault_points import DIRECTORY_VARIABLE
from kafka_pipeline.common.protocol.status import TaskState
from tests.chaos import sabotage
from tests.chaos.event_times import EventTimes
from tests.chaos.lanes import passed_of
from tests.chaos.ledger import Ledger
from tests.chaos.load import KEYS, Load, SinkReader, keys_in
from tests.chaos.numbered_results import Tally
from tests.chaos.pipelines import RESULTS, START, Kind, pipeline
from tests.chaos.proxy import Link
from tests.chaos.small_disk import NoSmallDiskError, small_disk
from tests.chaos.tables import LOGIN, Tables, settings
from tests.engine import Engine, engine, signal_session
from tests.hosts.brokers import HostBrokers
from tests.postgres import installed, running

T = TypeVar("T")

TASK_MANAGERS = 3
PARTITIONS = 3
RECORDS_PER_S = 1000
RATES: Mapping[Kind, int] = {Kind.DSL: 200, Kind.QUERIES: 100, Kind.TABLES: 300}
"""How many there are in pipelines whose records pass ten to twenty topics more. Most of them are in
one partition, whose tasks may all be in one TaskManager. Tables are read as a whole after each
round."""
HEARTBEAT_S = 1.0
TRANSACTION_TIMEOUT_S = 10.0
SMALL_DISK_KB = 512 * 1024
START_TIMEOUT_S = 300.0
"""Also until all runs again, and all results are there."""
DUMP_WAIT_S = 2.0
CLOCK_VARIABLE = "CHAOS_CLOCK_FILE"
_CLOCK_CODE = Path(__file__).parent / "clock"
_ROOT = Path(__file__).parents[2]
_POLL_S = 0.01
_SHOWN = 8


FIRST = 0
"""The TaskManager with `Rig.link` and `Rig.small_disk`."""


def require_unaffected(before: ClusterStatus, after: ClusterStatus, processor: str = "") -> None:
    """Raise AssertionError if a task, of one processor or of all, moved or started again.

    Its figures must not be smaller than before either: they begin again at zero when a task is
    closed and assigned to the same TaskManager again.
    """
    then, now = _placement(before, processor), _placement(after, processor)
    assert then.keys() == now.keys(), f"the tasks are others: {then} and {now}"
    moved = [task for task in then if then[task][:2] != now[task][:2]]
    assert not moved, f"moved or started again: {[(t, then[t], now[t]) for t in moved]}"
    anew = [task for task in then if now[task][2] < then[task][2]]
    assert not anew, f"given up and begun again: {[(t, then[t], now[t]) for t in anew]}"


def _placement(status: ClusterStatus, processor: str) -> dict[str, tuple[int | None, int, int]]:
    """Return the owner, the number of restarts and the number of transactions of each task."""
    return {
        str(task.task): (
            task.owner,
            task.status.count("restarts") if task.status else -1,
            task.status.count("transactions") if task.status else -1,
        )
        for task in status.tasks
        if task.task.processor == processor or not processor
    }


def eventually(find: Callable[[], T], timeout_s: float, what: str, poll_s: float = 0.01) -> T:
    """Return the first true result of `find`. Raises AssertionError with `what` if none comes."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := find()):
        assert time.monotonic() < deadline_s, f"{what}, in {timeout_s:.0f} s"
        time.sleep(poll_s)
    return found


class Outage:
    """Measures how long it takes until records of all keys come out again."""

    def __init__(self, ledger: Ledger, marks: dict[bytes, int]) -> None:
        self._started = time.monotonic()
        self._ledger = ledger
        self._marks = marks
        self._seconds: float | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> float:
        """Return the seconds. Raises AssertionError if they are more than `timeout_s`."""
        self._thread.join(timeout_s)
        seconds, self._started = self._seconds, float("-inf")
        if seconds is None:
            behind = self._ledger.behind(self._marks)
            raise AssertionError(
                f"records do not flow again within {timeout_s:.0f} s: {len(behind)} results "
                f"are behind, {', '.join(behind[:_SHOWN])}"
            )
        return seconds

    def _watch(self) -> None:
        while not self._ledger.has_passed(self._marks):
            time.sleep(_POLL_S)
            if self._started == float("-inf"):
                return
        self._seconds = time.monotonic() - self._started


REMEMBERS_WRITERS: Mapping[str, str | int] = {"producer.id.expiration.ms": 20 * 86_400_000}
"""A broker that was killed forgets the last batches of idempotent producers whose records have
timestamps older than this, and then takes a batch twice. The records of the load are days old."""

FAST_BROKERS: Mapping[str, str | int] = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}
"""What docs/how-to/tune.md says of brokers that are to be missed soon."""


class Rig:
    """One or three brokers, a JobManager, three TaskManagers, a writer and a reader.

    TaskManager 0 reaches the broker through `link`. It keeps its state on a small disk if this
    machine allows mounting one.
    """

    cluster: LocalCluster | HostBrokers

    def __init__(
        self,
        folder: Path,
        random: Random,
        say: Callable[[str], None],
        brokers: int = 1,
        broken: str = "",
        kind: Kind = Kind.PLAIN,
        records_per_s: int | None = None,
        broker_settings: Mapping[str, str | int] = {},
    ) -> None:
        """Choose names and ports; `open` starts everything. `broken` names a sabotage."""
        self.folder = folder
        self.random = random
        self.say = say
        self.brokers = brokers
        self._broken = broken
        self.kind = kind
        self._records_per_s = records_per_s or RATES.get(kind, RECORDS_PER_S)
        self.broker_settings = {**REMEMBERS_WRITERS, **broker_settings}
        self.link: Link | None = None
        self.small_disk: Path | None = None
        self.task_managers: dict[int, Daemon] = {}
        self.preloads: dict[int, Mapping[str, str]] = {}
        """What TaskManagers get in their environment from their next start on."""
        self.times: EventTimes | None = None
        """The event times of the records, if the pipeline has windows."""
        if kind in RESULTS:
            self.times = EventTimes(KEYS, keys_in(random.randrange(PARTITIONS), PARTITIONS))
        self.tables: Tables | None = None
        """The tables, if the pipeline has some."""
        self.ledger = self.new_ledger()
        self.seconds: list[float] = []
        """The measurements of the current round."""
        self._outage: Outage | None = None
        self._stack = ExitStack()

    def new_ledger(self) -> Ledger:
        """Return an empty ledger for the results of the pipeline."""
        return Ledger(KEYS, self.times, RESULTS.get(self.kind, ()))

    @contextmanager
    def open(self) -> Iterator[Rig]:
        """Start everything; end everything afterwards."""
        with self._stack:
            self._start()
            yield self

    def _start(self) -> None:
        self.folder.mkdir(parents=True)
        self.cluster = self._make_cluster()
        self.cluster.start()
        self._stack.callback(delete_data, self.cluster.directory)
        self._stack.callback(self._end_cluster)
        servers = self.cluster.bootstrap_servers
        if self.kind is Kind.TABLES:
            self.tables = self._make_tables()
        self.engine = Engine(
            self.folder, servers, "chaos", self.pipeline(START), **self._settings(TASK_MANAGERS)
        )
        self._stack.callback(self._end_engine)
        self._config_files = self._write_config_files()
        for tm_id in range(TASK_MANAGERS):
            self.fault_folder(tm_id).mkdir()
        self.job_manager = self.start_job_manager()
        for tm_id in range(TASK_MANAGERS):
            self.start_task_manager(tm_id)
        self.wait_until_whole()
        # A separate generator: otherwise, draws of the load's thread would mix with those of
        # faults.
        draws = Random(self.random.random())
        self.load = Load(self.engine.config, draws, self._records_per_s, self.times)
        self._stack.callback(self.load.close)
        self.reader = SinkReader(self.engine.config, self.ledger)
        self._stack.callback(self.reader.close)

    def pipeline(self, start: str) -> str:
        """Return a whole pipeline that begins with `start`."""
        url = "" if self.tables is None else self.tables.url
        return pipeline(start, self.kind, self.gate, self.brake, self.may_hang, database_url=url)

    def _make_tables(self) -> Tables:
        binaries = installed()
        if binaries is None:
            self.say("no PostgreSQL, so no Iceberg either: there is no initdb on this machine")
            return Tables(self.folder, None)
        server = self._stack.enter_context(running(binaries))
        return Tables(self.folder, server.new_database())

    def _settings(self, task_managers: int) -> dict[str, object]:
        return {
            "tm_number": task_managers,
            "parallelism": PARTITIONS,
            "num_standby_replicas": min(task_managers - 1, 1),
            "replication_factor": min(self.brokers, 3),
            "heartbeat_interval_ms": int(HEARTBEAT_S * 1000),
            "transaction_timeout_ms": int(TRANSACTION_TIMEOUT_S * 1000),
            "kafka": servers_setting(self.cluster.bootstrap_servers),
            "metrics_port": 0,
            "modules": "[tests.user_code, tests.chaos.lanes]",
            "python_path": f"[{_ROOT}]",
            **({} if self.tables is None else settings(self.tables.url)),
        }

    @contextmanager
    def another_job(self, folder: Path) -> Iterator[Engine]:
        """Make a job with one TaskManager that reads the same source; nothing starts yet."""
        source = self.engine.config.source_topic
        settings = self._settings(1) | {"source_topic": source}
        servers, start = self.cluster.bootstrap_servers, self.pipeline(START)
        with engine(folder, servers, folder.name, start, **settings) as job:
            yield job

    @property
    def gate(self) -> Path:
        """The file without which the pairer rejects keys that begin with "gated"."""
        return self.folder / "gate"

    @property
    def may_hang(self) -> Path:
        """The file without which no record makes user code hang; see `tests/user_code/wild.py`."""
        return self.folder / "may_hang"

    @property
    def brake(self) -> Path:
        """The file that slows a task in front of windows down; see `tests/chaos/lanes.py`."""
        return self.folder / "brake"

    def set_brake(self, partition: int, records_per_s: float) -> Path:
        """Slow the task of a partition down; return the file that grows by a byte per record."""
        passed = passed_of(self.brake)
        passed.write_bytes(b"")
        prepared = self.folder / "prepared_brake"
        prepared.write_text(f"{partition} {records_per_s}")
        prepared.rename(self.brake)
        return passed

    def _make_cluster(self) -> LocalCluster | HostBrokers:
        directory = self.folder / "kafka"
        if self.brokers > 1:
            settings = self.broker_settings
            return LocalCluster(directory, num_brokers=self.brokers, settings=settings)
        port, controller_port, link_port = find_free(3)
        self.link = self._stack.enter_context(Link(link_port))
        names = {"PLAINTEXT": port, "LINK": link_port}
        listeners = [f"{name}://{LOOPBACK}:{number}" for name, number in names.items()]
        settings = {
            "listeners": ",".join([*listeners, f"CONTROLLER://{LOOPBACK}:{controller_port}"]),
            "advertised.listeners": ",".join([listeners[0], f"LINK://{LOOPBACK}:{self.link.port}"]),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LINK:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
            # Without rules, everybody has all rights; `denied-access` adds some rules.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            **self.broker_settings,
        }
        return LocalCluster(directory, port=port, settings=settings)

    def _write_config_files(self) -> dict[int, Path]:
        """Write what TaskManagers have instead of config.yaml, each by its id."""
        state = self.folder / "state_of_0"
        settings: dict[str, object] = {"state_dir": state}
        try:
            self._stack.enter_context(small_disk(state, SMALL_DISK_KB))
            self.small_disk = state
        except NoSmallDiskError as error:
            self.say(f"no small disk: {error}")
        if self.link is not None:
            settings["kafka"] = servers_setting(f"{LOOPBACK}:{self.link.port}")
        return {FIRST: self.engine.write_config("config_0", **settings)}

    def within(self, tm_id: int) -> Sequence[str]:
        """Return the command in which a TaskManager is started; by default, there is none."""
        return ()

    def _end_cluster(self) -> None:
        for broker in range(1, self.brokers + 1):
            process = self.cluster.process(broker)
            if process is not None:
                process.send(signal.SIGCONT)
        self.cluster.stop()

    def _end_engine(self) -> None:
        for daemon in (self.job_manager, *self.task_managers.values()):
            with suppress(ProcessLookupError):
                signal_session(daemon, signal.SIGCONT)
        self.engine.close()

    def start_job_manager(self, *, with_pipeline: bool = True) -> Daemon:
        """Start an additional JobManager."""
        return self.engine.start_job_manager(self._environment("jm"), with_pipeline=with_pipeline)

    def start_task_manager(self, tm_id: int) -> Daemon:
        """Start a TaskManager with one thread; it replaces the one with this id."""
        daemon = self.make_task_manager(tm_id)
        self.task_managers[tm_id] = daemon
        return daemon

    def make_task_manager(self, tm_id: int, config_file: Path | None = None) -> Daemon:
        """Start a TaskManager next to the one with this id."""
        environment = self._environment(f"tm{tm_id}") | {
            DIRECTORY_VARIABLE: str(self.fault_folder(tm_id)),
            **self.preloads.get(tm_id, {}),
        }
        if self._broken:
            path = os.pathsep.join((environment["PYTHONPATH"], str(_ROOT)))
            environment |= {sabotage.VARIABLE: self._broken, "PYTHONPATH": path}
        return self.engine.start_task_manager(
            tm_id,
            1,
            environment,
            config_file or self._config_files.get(tm_id),
            self.within(tm_id),
        )

    def _environment(self, name: str) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(_CLOCK_CODE), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, CLOCK_VARIABLE: str(self.clock_file(name)), **LOGIN}

    def sabotage_signs(self) -> int:
        """Return how often the logs report that a sabotage has acted."""
        logs = self.folder.glob("*_taskmanager.log")
        return sum(log.read_text(errors="replace").count(sabotage.SIGN) for log in logs)

    def clock_file(self, name: str) -> Path:
        """Return the file that holds the clock error, in seconds, of `jm` or `tm<id>`."""
        return self.folder / f"clock_{name}"

    def fault_folder(self, tm_id: int) -> Path:
        """Return the folder where the fault points of a TaskManager look for faults."""
        return self.folder / f"faults_{tm_id}"

    def state_folder(self, tm_id: int) -> Path:
        """Return the folder with the stores of a TaskManager."""
        base = self.folder / ("state_of_0" if tm_id == FIRST else "state")
        return base / "job_chaos" / f"taskmanager_{tm_id}"

    def set_fault(self, tm_id: int, point: str, what: str) -> Path:
        """Make the next task that reaches a fault point suffer; return the sign that it has."""
        folder = self.fault_folder(tm_id)
        taken = folder / f"{point}.taken"
        taken.unlink(missing_ok=True)
        prepared = folder / "prepared"
        prepared.write_text(what)
        prepared.rename(folder / point)
        return taken

    def clear_faults(self, tm_id: int) -> None:
        """Remove the faults that no task has reached."""
        for point in self.fault_folder(tm_id).iterdir():
            if point.suffix != ".taken":
                point.unlink(missing_ok=True)

    def some_task_manager(self) -> int:
        """Return the id of a random TaskManager."""
        return self.random.choice(sorted(self.task_managers))

    def worker_pid(self, tm_id: int) -> int:
        """Return the process id of the worker that a TaskManager started last and that lives.

        A spare, which runs what has ended its worker, ends once that has been calm for a while.
        """
        log = self.task_managers[tm_id].log_file.read_text(errors="replace")
        pids = map(int, re.findall(r"PipelineThread runs .*pid=([0-9]+)", log))
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()][-1]

    def jvm_pid(self, tm_id: int) -> int:
        """Return the process id of a TaskManager's Spark JVM."""
        for member in self._processes(tm_id, b"org.apache.spark"):
            return member
        raise AssertionError(f"TaskManager {tm_id} has no JVM")

    def python_of_spark(self, *tm_ids: int) -> set[int]:
        """Return the ids of processes that Spark runs Python in, of all TaskManagers by default."""
        return {
            pid
            for tm_id in tm_ids or self.task_managers
            for pid in self._processes(tm_id, b"pyspark.daemon")
        }

    def sessions(self) -> dict[str, int]:
        """Return the sessions of the daemons that were started last, by name."""
        daemons = {"JobManager": self.job_manager}
        daemons |= {f"TaskManager {tm_id}": each for tm_id, each in self.task_managers.items()}
        return {name: daemon.pid for name, daemon in daemons.items() if daemon.pid is not None}

    def _processes(self, tm_id: int, command: bytes) -> Iterator[int]:
        """Yield the processes of a TaskManager with this in their command lines."""
        pid = self.task_managers[tm_id].pid
        assert pid is not None
        for member in session_members(pid):
            with suppress(OSError):
                if command in Path(f"/proc/{member}/cmdline").read_bytes():
                    yield member

    def mark(self) -> None:
        """Start measuring an outage, which ends when later records of all keys come out."""
        self._outage = Outage(self.ledger, dict(self.load.numbers))

    def wait_for_flow(self, timeout_s: float = 60.0) -> float:
        """Wait for the end of the marked outage; return its length in seconds.

        Queries have five times as long: they alone keep two cores busy.
        """
        assert self._outage is not None, "mark comes first"
        seconds = self._outage.wait(timeout_s * (5 if self.kind is Kind.QUERIES else 1))
        self.seconds.append(seconds)
        return seconds

    def kill(self, tm_id: int) -> None:
        """`kill -9` of all processes of a TaskManager."""
        signal_session(self.task_managers[tm_id], signal.SIGKILL)
        self.task_managers[tm_id].end()

    def wait_until_whole(self, timeout_s: float = START_TIMEOUT_S) -> ClusterStatus:
        """Wait until all TaskManagers are there, and all tasks run, spread over all of them.

        There must also be a copy of each state on disk.
        """
        nodes = self.engine.pipeline.processors
        copies = sum(node.has_standbys for node in nodes) * PARTITIONS
        pids = {tm_id: daemon.pid for tm_id, daemon in self.task_managers.items()}

        def is_whole(status: ClusterStatus) -> bool:
            infos = [info for info in status.task_managers if info.id in pids]
            return (
                status.all_run
                and len(status.standbys) == copies
                and all(
                    copy.status and copy.status.state is TaskState.STANDBY
                    for copy in status.standbys
                )
                and {task.owner for task in status.tasks} == set(pids)
                and {info.id: info.pid for info in infos if info.presence is Presence.UP} == pids
            )

        return self.engine.wait_until(is_whole, timeout_s)

    def dump_stacks(self) -> None:
        """Have all TaskManagers and their workers write their stacks to the logs."""
        for daemon in self.task_managers.values():
            if daemon.pid is not None and daemon.exit_code is None:
                os.kill(daemon.pid, signal.SIGUSR1)
        time.sleep(DUMP_WAIT_S)

    def require_alive(self) -> None:
        """Raise AssertionError if a daemon has ended unasked."""
        for daemon in (self.job_manager, *self.task_managers.values()):
            assert daemon.exit_code is None, f"{daemon} ended with {daemon.exit_code}"

    def now(self) -> ClusterStatus:
        """Return the status of the cluster according to the latest heartbeats."""
        return self.engine.wait_until(lambda status: True, 10)

    def drain(self) -> None:
        """Stop writing, and wait until no task has any work left."""
        self.settle()
        self._wait_until_idle()

    def _wait_until_idle(self) -> None:
        # An earlier report may be older than the last records: the brokers are asked once per
        # heartbeat, then the thread reports the answer, then the TaskManager does.
        time.sleep(4 * HEARTBEAT_S)
        self.engine.wait_until(
            lambda status: all(
                task.status and task.status.gauge("lag") == 0 for task in status.tasks
            ),
            60,
        )

    def settle(self) -> Tally:
        """Stop writing, and compare when all results are there, or no more come.

        Results of windows that are still open come once later records have closed them. No record
        must be on its way to such a window then, or it would be late.
        """
        self.load.pause()
        if self._has_all_results() and self.times is not None:
            self._wait_until_idle()
            self.load.close_windows()
            self._has_all_results()
        if self.tables is not None:
            # Rows are in their tables once tasks have committed.
            self._wait_until_idle()
        return self.tally(self.ledger)

    def tally(self, ledger: Ledger) -> Tally:
        """Compare the results that a ledger has, and the tables, with what was written."""
        numbers = self.load.numbers
        found = ledger.tally(numbers)
        if self.tables is None:
            return found
        return found.plus(self.tables.tally(self.engine, sum(numbers.values())))

    def _has_all_results(self) -> bool:
        """Wait until all results are there; return False if that takes too long."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self.ledger.is_complete(self.load.numbers):
            self.reader.require_sound()
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True


def servers_setting(servers: str) -> str:
    return f"{{bootstrap.servers: '{servers}'}}"
