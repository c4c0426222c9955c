"""The lag of each task of a PipelineThread, queried on a separate thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.offsets import FirstRecord
from kafka_pipeline.common.protocol.messages import MISSED_BEATS, ProcessorReplica
from kafka_pipeline.common.tasks import TaskId

logger = structlog.get_logger()

LEAST_INTERVAL_S = 1.0
CLOSE_LOOK_S = 10.0
_MOST_GROUPS = 5
_MOST_RECORDS = 20


class OffsetAsker(Protocol):
    """The brokers' answers about offsets, without those that are missing; `Offsets` asks them."""

    def stable_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the last stable offset of partitions."""

    def committed(self, group: str, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the committed offsets of a group."""

    def first_records(self, positions: Mapping[Partition, int]) -> Mapping[Partition, FirstRecord]:
        """Return the first record at or after an offset of each partition."""


@dataclass(slots=True)
class _Input:
    """A partition that a task reads."""

    done: int | None = None
    """The offset before which no record is unprocessed; `None` while unknown."""
    empty_from: int = -1
    empty_to: int = -1
    """`empty_from` and this enclose offsets without records: only markers and aborted records."""
    looked_at: int | None = None
    """The task's position when its next record was last looked up."""
    first: FirstRecord | None = None
    """The first record at or after the position, when it was last looked up."""

    @property
    def position(self) -> int | None:
        """The offset at or after which unprocessed records may be."""
        if self.done is not None and self.empty_from <= self.done < self.empty_to:
            return self.empty_to
        return self.done

    @property
    def first_ms(self) -> int | None:
        """The timestamp of the record at the position; `None` while unknown."""
        is_it = self.first is not None and self.first.offset == self.position
        return self.first.timestamp_ms if is_it and self.first is not None else None

    def skip(self, start: int, stop: int) -> None:
        """Record that there are no records from `start` up to, but not including, `stop`."""
        if start >= stop:
            return
        if self.empty_from <= start <= self.empty_to:
            self.empty_to = max(self.empty_to, stop)
        else:
            self.empty_from, self.empty_to = start, stop


@dataclass(slots=True)
class _Watched:
    """A task. Its offsets are committed in `group`, which is `None` for a standby."""

    group: str | None
    since_s: float
    inputs: dict[Partition, _Input] = field(default_factory=dict)
    oldest_ms: int | None = None
    """The timestamp of the oldest record that the task has read but not processed."""


class LagWatch:
    """Knows the lag of the tasks of a PipelineThread, whatever they are doing.

    Lag is the last stable offset of each input partition minus the committed offset. Records of an
    open transaction do not count, because they must not be read yet. Lag counts offsets, so it
    includes markers and aborted records until a reader has found nothing else there.

    A separate thread asks the brokers once per heartbeat, at most once a second, for all tasks in
    one request. Tasks report their commits. If a task has reported nothing for ten seconds, its
    group's offsets are read: the task may have failed before reading them.

    A task also reports the timestamp of the oldest record in its queue. If the queue is empty and
    the task makes no progress for ten seconds, the first unprocessed record is read from the topic.

    Any thread may call any method. Only `look` blocks.
    """

    def __init__(
        self,
        config: Config,
        brokers: OffsetAsker,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._names = config.topic_names
        self._brokers = brokers
        self._clock = clock
        self._now_ms = now_ms
        self._interval_s = max(config.heartbeat_interval_ms / 1000, LEAST_INTERVAL_S)
        self._changing = threading.Lock()
        self._tasks: dict[TaskId, _Watched] = {}
        self._ends: dict[Partition, tuple[int, float]] = {}
        """The end of each partition, and when it was requested."""
        self._close_look_at_s = 0.0
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start asking the brokers, in a separate thread."""
        threading.Thread(target=self._run, name="lag", daemon=True).start()

    def close(self) -> None:
        """End after the check that is in progress; does not wait."""
        self._stopped.set()

    def watch(self, replica: ProcessorReplica) -> None:
        """Watch an assigned task; a standby is watched once it reports its positions."""
        task = replica.task
        if task.standby:
            return
        inputs = {(topic, task.partition): _Input() for topic in replica.in_topics}
        group = self._names.consumer_group(task.processor)
        with self._changing:
            self._tasks[task] = _Watched(group, self._clock(), inputs)

    def forget(self, task: TaskId) -> None:
        """Stop watching a task."""
        with self._changing:
            self._tasks.pop(task, None)

    def done_up_to(self, task: TaskId, positions: Mapping[Partition, int]) -> None:
        """Record offsets that a task has committed or starts at, or that a standby has applied."""
        with self._changing:
            watched = self._tasks.get(task)
            if watched is None:
                if not task.standby:
                    return
                watched = self._tasks[task] = _Watched(None, self._clock())
            for partition, offset in positions.items():
                watched.inputs.setdefault(partition, _Input()).done = offset

    def nothing_between(self, task: TaskId, partition: Partition, start: int, stop: int) -> None:
        """Record that a consumer read from `start` to `stop` and found no record."""
        with self._changing:
            watched = self._tasks.get(task)
            if watched is not None and partition in watched.inputs:
                watched.inputs[partition].skip(start, stop)

    def oldest_waits_since(self, task: TaskId, timestamp_ms: int | None) -> None:
        """Record the timestamp of the oldest record in a task's queue, `None` if it is empty."""
        with self._changing:
            watched = self._tasks.get(task)
            if watched is not None:
                watched.oldest_ms = timestamp_ms

    def figures(self, task: TaskId) -> dict[str, int]:
        """Return `lag`, `lag_age_ms` and `oldest_waiting_ms`, without those that are unknown."""
        with self._changing:
            watched = self._tasks.get(task)
            if watched is None or not watched.inputs:
                return {}
            lag, asked_s = 0, self._clock()
            timestamps = []
            for partition, entry in watched.inputs.items():
                position, known = entry.position, self._ends.get(partition)
                if position is None or known is None:
                    return {}
                waiting = max(known[0] - position, 0)
                lag += waiting
                asked_s = min(asked_s, known[1])
                if waiting and entry.first_ms is not None:
                    timestamps.append(entry.first_ms)
            # The records in the queue come before the rest of the topic. Not every record has a
            # timestamp.
            oldest_ms = min(timestamps, default=-1)
            if watched.oldest_ms is not None:
                oldest_ms = watched.oldest_ms
        age_s = self._clock() - asked_s
        figures = {"lag": lag}
        if age_s > MISSED_BEATS * self._interval_s:
            figures["lag_age_ms"] = int(age_s * 1000)
        if lag and oldest_ms >= 0:
            figures["oldest_waiting_ms"] = max(self._now_ms() - oldest_ms, 0)
        return figures

    def look(self) -> None:
        """Ask the brokers. Blocks for some milliseconds, for seconds if they are slow."""
        now_s = self._clock()
        with self._changing:
            wanted = {p for watched in self._tasks.values() for p in watched.inputs}
        found = self._brokers.stable_ends(wanted) if wanted else {}
        with self._changing:
            self._ends |= {partition: (end, now_s) for partition, end in found.items()}
            for partition in self._ends.keys() - wanted:
                del self._ends[partition]
        self._ask_groups(now_s)
        if now_s >= self._close_look_at_s:
            self._close_look_at_s = now_s + CLOSE_LOOK_S
            self._look_closely()

    def _ask_groups(self, now_s: float) -> None:
        wanted: dict[str, set[Partition]] = {}
        with self._changing:
            for watched in self._tasks.values():
                unknown = {p for p, entry in watched.inputs.items() if entry.done is None}
                is_due = bool(unknown) and now_s - watched.since_s >= CLOSE_LOOK_S
                if watched.group and is_due and len({*wanted, watched.group}) <= _MOST_GROUPS:
                    watched.since_s = now_s
                    wanted.setdefault(watched.group, set()).update(unknown)
        for group, partitions in wanted.items():
            committed = self._brokers.committed(group, partitions)
            with self._changing:
                for watched in self._tasks.values():
                    for partition, entry in watched.inputs.items():
                        # The task's own report, if it has come meanwhile, is newer.
                        if watched.group == group and entry.done is None:
                            entry.done = committed.get(partition)

    def _look_closely(self) -> None:
        """Read the first unprocessed record of each partition whose task has stopped moving."""
        with self._changing:
            standing = [place for task in self._tasks.values() for place in self._standing(task)]
        positions = dict(standing[:_MOST_RECORDS])
        found = self._brokers.first_records(positions) if positions else {}
        with self._changing:
            for watched in self._tasks.values():
                for partition, first in found.items():
                    entry = watched.inputs.get(partition)
                    if entry is None or entry.position != positions[partition]:
                        continue
                    entry.skip(positions[partition], first.offset)
                    entry.first = first

    def _standing(self, watched: _Watched) -> list[tuple[Partition, int]]:
        """Return a stopped task's positions before which records of unknown age are waiting."""
        standing = []
        for partition, entry in watched.inputs.items():
            position, (end, _) = entry.position, self._ends.get(partition, (-1, 0.0))
            moves, entry.looked_at = entry.looked_at != position, position
            is_known = entry.first_ms is not None
            if position is not None and position < end and not moves and not is_known:
                standing.append((partition, position))
        return standing if watched.group and watched.oldest_ms is None else []

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                self.look()
            except Exception:
                logger.exception("lag is not known")
