"""Runs a job on a Kafka of its own, kills a TaskManager half-way, and checks the results."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.admin.dev.guard import Guard
from kafka_pipeline.admin.quickstart.display import Display, RunProgress
from kafka_pipeline.admin.quickstart.local_job import LocalJob
from kafka_pipeline.admin.quickstart.outage import Outage, measure
from kafka_pipeline.admin.quickstart.verdict import Checked, report
from kafka_pipeline.admin.signals import Signals
from kafka_pipeline.common.cluster.rates import RateLog
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher

_FETCH_RECORDS = 20_000
_POLL_S = 0.05
_PAUSE_S = 0.01
_RATE_WINDOW_S = 2.0
_STALL_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The user's options: whether to kill a TaskManager, and to leave Kafka running at the end."""

    kill: bool = True
    keep: bool = False


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """A job to run, and how to check it.

    `load` is called with the seconds since all tasks run, and returns how many of the `to_load`
    records are written. `outputs` are the topics of the results with their numbers of partitions,
    and `to_arrive` is how many results there must be, 1 or more. `check` reads them back once all
    daemons have stopped. `begins` is what to say when all tasks run.
    """

    job: LocalJob
    outputs: Mapping[str, int]
    to_load: int
    to_arrive: int
    load: Callable[[float], int]
    check: Callable[[], Checked]
    begins: str = "all tasks run"


Prepare = Callable[[Path, int, Display], CheckedRun]
"""Prepares the work in a folder, for the Kafka at a port. No daemon runs yet."""


def run_checked(
    name: str, prepare: Prepare, options: RunOptions, display: Display, signals: Signals
) -> bool:
    """Start Kafka, run the work, stop Kafka; return whether all results are right.

    Must be called in the main thread. Raises `PipelineError` if there is no verdict. In any case,
    also after `kill -9` of this process, no process of the run is left, except for Kafka with
    `keep`. The folder stays then, and if anything is wrong.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"kafka-pipeline-{name}-"))
    try:
        with exclusive(folder / ".lock") as lock, ExitStack() as last, ExitStack() as stack:
            broker = LocalCluster(folder / "broker", is_short_lived=not options.keep)
            with signals.held():
                guard = Guard(lock, None if options.keep else broker.directory)
            last.callback(guard.end)
            stack.callback(broker.stop)
            stack.callback(signals.ignore)
            display.event("starting Kafka")
            broker.start()
            display.event(f"Kafka runs at {broker.bootstrap_servers}")
            work = prepare(folder, broker.nodes[0].port, display)
            is_right = _run(work, options, display, signals, guard)
            if options.keep:
                stack.pop_all()
    except Exception:
        display.text(f"The files and logs of the run are in {folder}")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if options.keep:
        display.text(
            f"\nKafka still runs at {broker.bootstrap_servers}; the files and logs are in "
            f"{folder}.\nStop it:  {command_path('pipeline')} broker stop --dir {broker.directory} "
            "--delete-data"
        )
    elif is_right:
        shutil.rmtree(folder)
    else:
        display.text(f"The files and logs of the run are in {folder}")
    return is_right


def _run(
    work: CheckedRun, options: RunOptions, display: Display, signals: Signals, guard: Guard
) -> bool:
    lost, problems = work.job.run(display, signals, guard, lambda: follow(work, options, display))
    display.event("reading all results back, read_committed")
    checked = work.check()
    problems = (*checked.problems, *problems)
    display.text(report(checked, lost, problems))
    return not problems


def follow(work: CheckedRun, options: RunOptions, display: Display) -> Outage | None:
    """Have records loaded, and wait for the results, or until none has come for a minute.

    Returns how long results stayed away after a TaskManager was killed, if one was: that happens
    when half of the results have come.
    """
    config = work.job.config
    with ExitStack() as stack:
        watcher = ClusterWatcher(config)
        stack.callback(watcher.close)
        work.job.wait_until_all_run(watcher)
        if config.console_port:
            display.event(f"the console: http://{config.console_host}:{config.console_port}/")
        display.event(work.begins)
        arrivals = _Arrivals(config, work.outputs)
        stack.callback(arrivals.close)
        rate_log = RateLog(config.heartbeat_interval_ms)
        killed_at_s: float | None = None
        started_s = moved_s = time.monotonic()
        while True:
            work.job.require_alive()
            loaded = work.load(time.monotonic() - started_s)
            if arrivals.read(_POLL_S):
                moved_s = time.monotonic()
            watcher.read(0)
            now_s, arrived, status = time.monotonic(), arrivals.records, watcher.status()
            rates = rate_log.take(int(now_s * 1000), status)
            rate = arrivals.rate(now_s)
            display.update(
                RunProgress(loaded, work.to_load, arrived, work.to_arrive, rate, status, rates)
            )
            if options.kill and killed_at_s is None and 2 * arrived >= work.to_arrive:
                killed_at_s = work.job.kill_owner_of_state(status, display)
            if loaded == work.to_load and arrived >= work.to_arrive:
                display.event("all results came")
                break
            if now_s - moved_s > _STALL_TIMEOUT_S:
                display.event("for a minute no result came: giving up")
                break
            # Results trickle in; without a pause, this loop would use a whole core.
            time.sleep(_PAUSE_S)
    if killed_at_s is None:
        return None
    return measure(arrivals.times_s.values(), killed_at_s, config.heartbeat_interval_ms / 1000)


class _Arrivals:
    """Counts the committed records of topics, and when they arrived, without keeping them."""

    def __init__(self, config: Config, topics: Mapping[str, int]) -> None:
        partitions = [(topic, number) for topic, size in topics.items() for number in range(size)]
        self.records = 0
        self.times_s: dict[Partition, list[float]] = {place: [] for place in partitions}
        """Times by `time.monotonic`, for each partition, ascending; one for each batch."""
        self._counts: deque[tuple[float, int]] = deque()
        self._reader = PartitionReader(config, "quickstart")
        self._reader.assign(dict.fromkeys(partitions, 0))

    def read(self, wait_s: float) -> bool:
        """Count what has arrived, waiting up to `wait_s` for it; return whether something has."""
        fetched = self._reader.fetch(_FETCH_RECORDS, wait_s)
        for (topic, number), reason, _ in fetched.errors:
            raise UnavailableError(f"{topic}[{number}] cannot be read: {reason}")
        for batch in fetched.batches:
            self.records += len(batch)
            self.times_s[batch.topic, batch.partition].append(time.monotonic())
        return any(len(batch) for batch in fetched.batches)

    def rate(self, now_s: float) -> float:
        """Return how many records per second arrived over the last two seconds."""
        counts = self._counts
        counts.append((now_s, self.records))
        while len(counts) > 2 and now_s - counts[1][0] >= _RATE_WINDOW_S:
            counts.popleft()
        then_s, before = counts[0]
        return (self.records - before) / (now_s - then_s) if now_s > then_s else 0.0

    def close(self) -> None:
        self._reader.close()
