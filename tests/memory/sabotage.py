"""Breaks one promise of the engine at a time; the judge must notice each one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.streams.engine.async_calls import AsyncCalls
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.runtime import GroupRuntime
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.memory import MemoryStore
from kafka_pipeline.streams.stores.sorted_keys import SortedKeys
from kafka_pipeline.streams.timestamps import UNKNOWN_TIME
from kafka_pipeline.taskmanager.task import Task
from kafka_pipeline.taskmanager.task_start import COORDINATOR_TIMEOUT_S, ProcessorStart
from kafka_pipeline.taskmanager.task_stores import TaskStores
from kafka_pipeline.taskmanager.thread_state import PipelineThreadState
from tests.memory.partition_log import PartitionLog
from tests.memory.pipelines import ASKED_BY_KEY, FOLD_OF_TWO, Pipeline
from tests.memory.producer import MemoryProducer
from tests.memory.reader import MemoryReader

Sabotage = Callable[[pytest.MonkeyPatch], None]


def random_ids(patch: pytest.MonkeyPatch) -> None:
    """Each producer has an id of its own, so a new owner does not fence the former one."""
    original, numbers = MemoryProducer.__init__, itertools.count()

    def init(self: Any, link: Any, transactional_id: str, *rest: Any) -> None:
        original(self, link, f"{transactional_id}_{next(numbers)}", *rest)

    patch.setattr(MemoryProducer, "__init__", init)


def offsets_first(patch: pytest.MonkeyPatch) -> None:
    """Input offsets are committed before the transaction, not in it."""

    def commit(original: Any, self: Any, offsets: Any, metadata: Any) -> Any:
        self._broker.set_committed(metadata.group, offsets)
        return original(self, {}, metadata)

    _instead_of(patch, MemoryProducer, "commit", commit)


def offsets_last(patch: pytest.MonkeyPatch) -> None:
    """Input offsets are committed after the transaction, not in it."""

    def commit(original: Any, self: Any, offsets: Any, metadata: Any) -> Any:
        state_offsets = original(self, {}, metadata)
        self._broker.set_committed(metadata.group, offsets)
        return state_offsets

    _instead_of(patch, MemoryProducer, "commit", commit)


def store_first(patch: pytest.MonkeyPatch) -> None:
    """The local stores take the changes in before the brokers have committed them."""

    def send(original: Any, self: Any, producer: Any, number: int) -> None:
        original(self, producer, number)
        if self.have_changed:
            producer.send_now()
            self.commit(producer._state_offsets)

    _instead_of(patch, TaskStores, "send", send)


def short_restore(patch: pytest.MonkeyPatch) -> None:
    """Whenever changes are read from a state topic into a store, the last one is left out."""

    def restore(original: Any, self: Any, entries: dict[bytes, Any], offset: int) -> None:
        original(self, dict(list(entries.items())[:-1]), offset)

    _instead_of(patch, BytesStore, "restore", restore)


def partial_state(patch: pytest.MonkeyPatch) -> None:
    """Only the last change of each transaction reaches the state topic, which nobody proves."""
    patch.setattr(TaskStores, "are_proven", True)

    def send(original: Any, self: Any, topic: str, number: int, changes: Any) -> None:
        key = list(changes)[-1]
        original(self, topic, number, {key: changes[key]})

    _instead_of(patch, MemoryProducer, "send_state", send)


def positions_first(patch: pytest.MonkeyPatch) -> None:
    """A task looks up where to go on before it has fenced the former owner."""

    def run(original: Any, self: Any) -> Task:
        names = self._context.config.topic_names
        task = self._replica.task
        with closing(self._context.clients.reader(names.consumer_group(task.processor))) as reader:
            partitions = [(topic, task.partition) for topic in self._replica.in_topics]
            self._early_positions = reader.committed(partitions, COORDINATOR_TIMEOUT_S)
        started: Task = original(self)
        return started

    def find(original: Any, self: Any, *args: Any) -> dict[Partition, Committed]:
        positions: dict[Partition, Committed] = original(self, *args)
        early: dict[Partition, Committed] = self._early_positions
        return positions | early

    _instead_of(patch, ProcessorStart, "run", run)
    _instead_of(patch, ProcessorStart, "_find_positions", find)


def trusted_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A task goes on from what any coordinator says, even one that is cut off."""

    def committed(original: Any, self: Any, partitions: Any, timeout_s: float, _proof: Any) -> Any:
        return original(self, partitions, timeout_s)

    _instead_of(patch, MemoryReader, "committed", committed)


def trusted_leader(patch: pytest.MonkeyPatch) -> None:
    """A task takes a state topic to end where any leader says, even one that is cut off."""
    patch.setattr(TaskStores, "are_proven", True)


def read_uncommitted(patch: pytest.MonkeyPatch) -> None:
    """Tasks read what others have written before it is committed, or though it was aborted."""

    def visible(self: Any, begin: int, limit: int | None = None) -> tuple[list[int], int]:
        found = [at for at in range(begin, self.end) if not self.entries[at].is_marker][:limit]
        return found, found[-1] + 1 if len(found) == limit else self.end

    patch.setattr(PartitionLog, "visible", visible)


def swapped_sends(patch: pytest.MonkeyPatch) -> None:
    """A task sends what it has in the wrong order."""

    def send(original: Any, self: Any, topic: str, *columns: Any) -> None:
        original(self, topic, *(c[::-1] if isinstance(c, list) else c for c in columns))

    _instead_of(patch, MemoryProducer, "send_columns", send)


def skipped_record(patch: pytest.MonkeyPatch) -> None:
    """A task that starts again leaves a record out: it begins at the committed offset plus one."""

    def find(original: Any, self: Any, *args: Any) -> dict[Partition, Committed]:
        positions: dict[Partition, Committed] = original(self, *args)
        ends = self._context.clients.brokers.stable_ends(list(positions))
        for partition, at in args[1].items():
            if at.offset < ends[partition]:
                positions[partition] = at._replace(offset=at.offset + 1)
        return positions

    _instead_of(patch, ProcessorStart, "_find_positions", find)


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """Readers deliver the last record of each fetch twice."""

    def fetch(original: Any, self: Any, *args: Any) -> Any:
        fetched = original(self, *args)
        fetched.batches += [each.part(len(each) - 1, len(each)) for each in fetched.batches]
        return fetched

    _instead_of(patch, MemoryReader, "fetch", fetch)


def read_for_done(patch: pytest.MonkeyPatch) -> None:
    """What was read is committed, though some of it still waits to be processed."""

    def send(original: Any, self: Any) -> None:
        original(self)
        for partition, offset in self.read.items():
            self._positions[partition] = self._positions[partition]._replace(offset=offset)

    _instead_of(patch, Task, "_send", send)


def calls_for_done(patch: pytest.MonkeyPatch) -> None:
    """What was given to an `AsyncProcessor` is committed, though it has not answered yet."""
    patch.setattr(AsyncCalls, "position", lambda *_: None)


def forgotten_times(patch: pytest.MonkeyPatch) -> None:
    """A task that starts again does not know what time it was."""
    patch.setattr(GroupTask, "partition_time", lambda *_: UNKNOWN_TIME)


def times_of_what_waits(patch: pytest.MonkeyPatch) -> None:
    """The time that is committed is that of all records read, processed or not."""
    patch.setattr(GroupTask, "partition_time", lambda self, at: self._time.taken_in(at))


def time_of_whole_batches(patch: pytest.MonkeyPatch) -> None:
    """While a batch is processed, stream time is that of its last record."""

    def process(original: Any, self: Any, source: Any, batch: Any, start: int, *rest: Any) -> Any:
        self.task_time.stream_time = max(
            self.task_time.stream_time, *batch.timestamps[start : rest[0]]
        )
        return original(self, source, batch, start, *rest)

    _instead_of(patch, GroupRuntime, "_process_columns", process)


def results_before_calls(patch: pytest.MonkeyPatch) -> None:
    """What came of some records is committed while calls for earlier ones go on."""
    patch.setattr(AsyncCalls, "is_committable", True)


def forgotten_pause(patch: pytest.MonkeyPatch) -> None:
    """A thread does not resume partitions that it has paused, once their tasks have room."""
    patch.setattr(MemoryReader, "resume", lambda *_: None)


def forgotten_time(patch: pytest.MonkeyPatch) -> None:
    """A task whose time to wake comes after a commit is not woken."""

    def on_commit_ended(original: Any, self: Any, entry: Any, *args: Any) -> None:
        original(self, entry, *args)
        self._timed.pop(entry.task, None)

    _instead_of(patch, PipelineThreadState, "_on_commit_ended", on_commit_ended)


def locked_folders(patch: pytest.MonkeyPatch) -> None:
    """A call that was given up leaves its stores open when it ends."""
    patch.setattr(Task, "end_abandoned", lambda *_: None)


def queries_of_open_work(patch: pytest.MonkeyPatch) -> None:
    """Queries see what the open transaction has written."""

    def view(original: Any, self: Any, *limits: Any) -> Any:
        seen = original(self, *limits)
        written = {key: value for key, value in self.uncommitted.items() if value is not None}
        seen._committed = {**self._committed, **written}
        seen._keys = SortedKeys(seen._committed)
        return seen

    _instead_of(patch, MemoryStore, "_view", view)


SABOTAGES: tuple[Sabotage, ...] = (
    random_ids,
    offsets_first,
    offsets_last,
    store_first,
    short_restore,
    partial_state,
    positions_first,
    trusted_coordinator,
    trusted_leader,
    read_uncommitted,
    swapped_sends,
    skipped_record,
    taken_twice,
    read_for_done,
    calls_for_done,
    results_before_calls,
    forgotten_times,
    times_of_what_waits,
    time_of_whole_batches,
    queries_of_open_work,
)
SABOTAGES_OF_THREADS: tuple[tuple[Sabotage, Pipeline], ...] = (
    (forgotten_time, FOLD_OF_TWO),
    (forgotten_pause, FOLD_OF_TWO),
    (locked_folders, ASKED_BY_KEY),
)
"""Each sabotage with the processor that reveals it; the first one is found soonest."""


def _instead_of(
    patch: pytest.MonkeyPatch, owner: Any, name: str, function: Callable[..., Any]
) -> None:
    """Replace a method with a function that gets the original method as its first argument."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda self, *args: function(original, self, *args))
