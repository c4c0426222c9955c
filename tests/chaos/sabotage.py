"""Breaks one promise of the engine at a time; the checks must notice each one.

A TaskManager that is started with `CHAOS_BROKEN` set to a name has that sabotage in all its
Python processes (`clock/sitecustomize.py` installs it). The engine itself knows nothing of this.
"""

from __future__ import annotations

import functools
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka import data, guarded_producer
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition, client_config
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.guarded_producer import GuardedProducer
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.tables.processor import TableProcessor
from kafka_pipeline.taskmanager.task import Task
from kafka_pipeline.taskmanager.task_start import COORDINATOR_TIMEOUT_S, ProcessorStart
from kafka_pipeline.taskmanager.task_stores import TaskStores
from tests.chaos.pipelines import Kind

VARIABLE = "CHAOS_BROKEN"
SIGN = "a sabotage acts"
"""The line in a TaskManager's log each time that a sabotage did harm, or could have."""

_MAX_SIGNS = 10
_TIMEOUT_S = 10
_connections = 0


@dataclass(frozen=True, slots=True)
class Sabotage:
    """A way to break the engine, and the faults that should reveal it."""

    name: str
    install: Callable[[], None]
    summary: str
    faults: tuple[str, ...]
    kind: Kind = Kind.PLAIN
    """The kind of pipeline that shows the harm."""


_sabotages: dict[str, Sabotage] = {}


def sabotages() -> dict[str, Sabotage]:
    """Return all sabotages by name."""
    return dict(_sabotages)


def _sabotage(
    name: str, *faults: str, kind: Kind = Kind.PLAIN
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(install: Callable[[], None]) -> Callable[[], None]:
        summary = (install.__doc__ or "").strip().splitlines()[0]
        _sabotages[name] = Sabotage(name, install, summary, faults, kind)
        return install

    return add


def _instead_of(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a function with another one, which gets the original as its first argument."""

    def replace(function: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, call)

    return replace


def _acts(detail: str = "") -> None:
    """Leave a sign in the log, at most a few times per process."""
    global _connections
    if _connections < _MAX_SIGNS:
        _connections += 1
        print(SIGN, detail, file=sys.stderr, flush=True)


@_sabotage("random-ids", "pause-past-detection")
def random_ids() -> None:
    """Transactional ids are random, so a new owner does not fence the former one."""

    @_instead_of(TaskProducer, "__init__")
    def init(original: Any, self: Any, config: Any, transactional_id: str, *rest: Any) -> None:
        _acts()
        original(self, config, f"{transactional_id}_{uuid.uuid4().hex}", *rest)


@_sabotage("offsets-first", "kill-before-commit")
def offsets_first() -> None:
    """Input offsets are committed before the transaction, not in it."""
    _leave_offsets_out()

    @_instead_of(Task, "_commit")
    def commit(original: Any, self: Any) -> None:
        _commit_alone(self)
        original(self)


@_sabotage("offsets-last", "kill-after-commit", "kill-during-commit")
def offsets_last() -> None:
    """Input offsets are committed after the transaction, not in it."""
    _leave_offsets_out()
    _commit_offsets_last()


@_sabotage("no-transaction", "kill-before-offsets")
def no_transaction() -> None:
    """Outputs are written by an idempotent producer without transactions, then the offsets."""
    setattr(guarded_producer, "Producer", _IdempotentProducer)  # noqa: B010
    _leave_offsets_out()
    _commit_offsets_last()


@_sabotage("store-first", "kill-worker")
def store_first() -> None:
    """The local stores take the changes in before Kafka has committed them."""

    @_instead_of(TaskStores, "send")
    def send(original: Any, self: Any, producer: Any, number: int) -> None:
        original(self, producer, number)
        if self.have_changed:
            _acts()
            producer._producer.client.flush(_TIMEOUT_S)
            self.commit(producer._state_offsets)


@_sabotage("restore-to-stable", "kill-before-commit", "kill-during-commit")
def restore_to_stable() -> None:
    """Stores are restored to the last stable offset, not to the high watermark, without proof."""
    setattr(TaskStores, "are_proven", True)  # noqa: B010

    @_instead_of(Admin, "high_watermarks")
    def stable(original: Any, self: Any, partitions: list[Partition]) -> dict[Partition, int]:
        found: dict[Partition, int] = self.stable_ends(partitions)
        ends = original(self, partitions)
        if found != ends:
            _acts(f"stable up to {found} of {ends}")
        return found


@_sabotage("short-restore", "kill-before-commit")
def short_restore() -> None:
    """Whenever changes are read from a state topic into a store, the last one is left out."""

    @_instead_of(BytesStore, "restore")
    def restore(original: Any, self: Any, entries: dict[bytes, Any], offset: int) -> None:
        if entries:
            _acts()
        original(self, dict(list(entries.items())[:-1]), offset)


@_sabotage("partial-state", "kill-before-commit")
def partial_state() -> None:
    """Only the last change of each transaction reaches the state topic, which nobody proves."""
    setattr(TaskStores, "are_proven", True)  # noqa: B010

    @_instead_of(TaskProducer, "send_state")
    def send_last(
        original: Any, self: Any, topic: str, number: int, changes: dict[bytes, Any]
    ) -> None:
        key = list(changes)[-1]
        if len(changes) > 1:
            _acts()
        original(self, topic, number, {key: changes[key]})


@_sabotage("lost-windows", "kill-worker", kind=Kind.DSL)
def lost_windows() -> None:
    """Window stores are empty whenever a task starts."""

    @_instead_of(TaskStores, "restore")
    def restore(original: Any, self: Any, *args: Any) -> int:
        count: int = original(self, *args)
        for builder in self._builders:
            if builder.family == "window":
                if self.stores[builder.name].approximate_num_entries():
                    _acts()
                self.stores[builder.name].wipe()
        return count


@_sabotage("rows-again", "kill-after-write", kind=Kind.TABLES)
def rows_again() -> None:
    """A task writes rows that its table has already."""

    @_instead_of(TableProcessor, "_count_written")
    def count(original: Any, self: Any, *args: Any) -> int:
        if original(self, *args):
            _acts()
        return 0


@_sabotage("positions-first", "wake-before-fence")
def positions_first() -> None:
    """A task looks up where to go on before it has fenced the former owner."""

    @_instead_of(ProcessorStart, "run")
    def run(original: Any, self: Any) -> Any:
        with closing(PartitionReader(self._context.config, _group_of(self))) as reader:
            self._early_positions = reader.committed(_inputs_of(self), COORDINATOR_TIMEOUT_S)
        return original(self)

    @_instead_of(ProcessorStart, "_find_positions")
    def find(original: Any, self: Any, *args: Any) -> dict[Partition, Committed]:
        positions: dict[Partition, Committed] = original(self, *args)
        early: dict[Partition, Committed] = positions | self._early_positions
        if early != positions:
            _acts()
        return early


@_sabotage("read-uncommitted", "kill-before-commit")
def read_uncommitted() -> None:
    """Tasks read what others have written before it is committed."""

    @_instead_of(data, "client_config")
    def settings(original: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        _acts()
        found: dict[str, Any] = original(*args, **kwargs | {"isolation_level": "read_uncommitted"})
        return found


@_sabotage("swapped-sends", "kill-before-produce")
def swapped_sends() -> None:
    """Once per start, a task sends two results of one key in the wrong order."""

    @_instead_of(TaskProducer, "send_columns")
    def send(
        original: Any, self: Any, topic: str, keys: list[bytes], values: list[bytes], *rest: Any
    ) -> None:
        seen: dict[bytes, int] = {}
        for index, key in enumerate(keys):
            if key in seen and not getattr(self, "has_swapped", False):
                _acts()
                values = list(values)
                values[seen[key]], values[index] = values[index], values[seen[key]]
                self.has_swapped = True
            seen[key] = index
        original(self, topic, keys, values, *rest)


@_sabotage("skipped-record", "kill-before-produce")
def skipped_record() -> None:
    """A task that starts again leaves a record out: it begins at the committed offset plus one."""

    @_instead_of(ProcessorStart, "_find_positions")
    def find(
        original: Any, self: Any, group: Any, committed: dict[Partition, Committed]
    ) -> dict[Partition, Committed]:
        positions: dict[Partition, Committed] = original(self, group, committed)
        ends = self._context.clients.brokers.stable_ends(list(positions))
        for partition, at in committed.items():
            if at.offset < ends[partition]:
                _acts()
                positions[partition] = at._replace(offset=at.offset + 1)
        return positions


class _IdempotentProducer(Producer):
    """Writes at once what should be written in a transaction."""

    def __init__(self, settings: dict[str, Any]) -> None:
        of_transactions = ("transactional.id", "transaction.timeout.ms")
        super().__init__({k: v for k, v in settings.items() if k not in of_transactions})

    def init_transactions(self, *_: Any) -> None:
        pass

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, *_: Any) -> None:
        self.flush()


def _leave_offsets_out() -> None:
    @_instead_of(GuardedProducer, "send_offsets")
    def nothing(original: Any, self: Any, positions: Any, group_metadata: Any) -> None:
        self.client.flush()


def _commit_offsets_last() -> None:
    @_instead_of(Task, "_commit")
    def commit(original: Any, self: Any) -> None:
        original(self)
        _commit_alone(self)


def _group_of(task: Any) -> str:
    names: TopicNames = task._context.config.topic_names
    return names.consumer_group(task._replica.task.processor)


def _inputs_of(start: Any) -> list[Partition]:
    return [(topic, start._replica.task.partition) for topic in start._replica.in_topics]


_consumers: dict[str, Any] = {}
_lock = threading.Lock()


def _commit_alone(task: Any) -> None:
    """Commit the positions of a task as any consumer of its group could."""
    _acts()
    group = _group_of(task)
    with _lock:
        if group not in _consumers:
            settings = client_config(
                task._context.config, "consumer", group_id=group, enable_auto_commit=False
            )
            _consumers[group] = Consumer(settings)
    places = [
        TopicPartition(topic, number, at.offset, at.metadata)
        for (topic, number), at in task._positions.items()
    ]
    _consumers[group].commit(offsets=places, asynchronous=False)
