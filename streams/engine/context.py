"""The context through which a processor sees its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import get_ident
from typing import Any, NoReturn, Protocol, TypeVar, get_origin

from kafka_pipeline.common.printable import encodable
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.clocks import clocks_by_time
from kafka_pipeline.streams.durations import Milliseconds
from kafka_pipeline.streams.engine.left_undone import refuse_lost
from kafka_pipeline.streams.engine.outputs import Dropped, Note, Output
from kafka_pipeline.streams.engine.running_node import RunningNode
from kafka_pipeline.streams.engine.task_time import TaskTime
from kafka_pipeline.streams.engine.time_limit import TimeLimit
from kafka_pipeline.streams.engine.user_metrics import counted, gauged
from kafka_pipeline.streams.errors import InvalidArgumentError, StreamsError
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.punctuation import Cancellable, PunctuationType, Punctuator
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.stores.builder import Store

S = TypeVar("S", bound=Store)


class TaskView(Protocol):
    """What a processor's context needs of the task that runs it."""

    is_global: bool
    """Whether a global store is filled, which is not a task."""
    application_id: str
    task_id: str
    task_time: TaskTime
    time_limit: TimeLimit
    clock_ms: Callable[[], int]
    batch: RecordBatch | None
    """The batch of the record being processed; `None` in a punctuation or for a batch."""
    index: int
    """The index of that record in `batch`."""
    time: int
    """The time of the punctuation, or of the first record of the batch."""
    outputs: list[Output]
    """The outputs of the nodes so far."""
    thread: int
    """Python's id of the thread that called the nodes last."""

    def refuse_thread(self, node: str) -> NoReturn: ...
    def schedule(
        self,
        interval_ms: Milliseconds,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start: int | None,
    ) -> Cancellable: ...
    def request_commit(self) -> None: ...


class _NoReceiver(RunningNode):
    """Replaces the children of a closed processor."""

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self.receive = self.receive_batch = self._refuse

    def _refuse(self, _: object) -> None:
        raise StreamsError(
            f'"{self._parent}" forwards when it is closed, and nobody takes records any more: '
            "forward from process or from a punctuation"
        )


class RunningContext:
    """A processor's view of its task; see `ProcessorContext`."""

    def __init__(
        self,
        runtime: TaskView,
        name: str,
        children: dict[str, RunningNode],
        stores: dict[str, Any],
        hold_ms: int = 0,
        store_hold_ms: int = 0,
    ) -> None:
        """`hold_ms` is how long the nodes ahead of this one hold records back, in event time.

        `store_hold_ms` is the longest of those of the nodes that share a store with this one.
        """
        self._runtime = runtime
        self._name = name
        self._children = children
        self._receivers = tuple(child.receive for child in children.values())
        self._batch_receivers = tuple(child.receive_batch for child in children.values())
        self._stores = stores
        self.task_time = runtime.task_time
        self._limit = runtime.time_limit
        self.hold_ms = hold_ms
        self.store_hold_ms = store_hold_ms
        self.given: Batch | None = None
        """The batch in hand, if it has clocks that its processor does not know of."""
        self.application_id = runtime.application_id
        self.task_id = runtime.task_id

    def end(self) -> None:
        """Refuse everything that is forwarded from now on."""
        nowhere = _NoReceiver(self._name)
        self._receivers, self._batch_receivers = (nowhere.receive,), (nowhere.receive_batch,)
        self._children = dict.fromkeys(self._children, nowhere)

    @property
    def topic(self) -> str | None:
        batch = self._runtime.batch
        return None if batch is None else batch.topic

    @property
    def partition(self) -> int | None:
        batch = self._runtime.batch
        return None if batch is None else batch.partition

    @property
    def offset(self) -> int | None:
        runtime = self._runtime
        return None if runtime.batch is None else runtime.batch.offsets[runtime.index]

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        runtime = self._runtime
        if runtime.batch is None or runtime.batch.headers is None:
            return ()
        return tuple(runtime.batch.headers[runtime.index] or ())

    @property
    def timestamp(self) -> int:
        runtime = self._runtime
        if runtime.batch is None:
            return runtime.time
        return runtime.batch.timestamps[runtime.index]

    @property
    def stream_time(self) -> int:
        return self._runtime.task_time.stream_time

    @property
    def current_system_time(self) -> int:
        return self._runtime.clock_ms()

    def forward(self, record: Record | Batch, child: str | None = None) -> None:
        if get_ident() != self._runtime.thread:
            self._runtime.refuse_thread(self._name)
        node = None if child is None else self._child(child)
        try:
            if node is None and record.__class__ is Record:
                # A sink says what is wrong with a timestamp that is not an int.
                try:
                    if record.timestamp > self._limit.until_ms:
                        self._limit.require("the result", record.timestamp)
                except TypeError:
                    pass
                for receive in self._receivers:
                    if (returned := receive(record)) is not None:
                        refuse_lost(receive, returned)
            elif isinstance(record, Record):
                self._limit.require_column("the result", [record.timestamp])
                for receive in self._receivers if node is None else (node.receive,):
                    if (returned := receive(record)) is not None:
                        refuse_lost(receive, returned)
            elif isinstance(record, Batch):
                self._limit.require_column("a result", record.timestamps)
                # Children need not be ready for a batch without records.
                batch_receivers = self._batch_receivers if node is None else (node.receive_batch,)
                if self.given is not None and record.clocks is None:
                    clocks = clocks_by_time(self.given, items_of(record.timestamps))
                    record = replace(record, clocks=clocks)
                for receive_batch in batch_receivers if len(record) else ():
                    receive_batch(record)
            else:
                raise StreamsError(
                    f'"{self._name}" forwards a {type(record).__name__}: make it a Record or a '
                    "Batch"
                )
        except RecordRejectedError as error:
            # The work of this processor and other children on the records after it must be undone.
            error.batch = None
            raise

    def _child(self, name: str) -> RunningNode:
        try:
            return self._children[name]
        except KeyError:
            others = ", ".join(f'"{each}"' for each in self._children) or "none at all"
            raise StreamsError(
                f'"{self._name}" has no child "{name}" to forward to, only {others}',
                shown=f'"{self._name}" has no child of that name to forward to, only {others}',
            ) from None

    def schedule(
        self,
        interval_ms: Milliseconds,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start: int | None = None,
    ) -> Cancellable:
        return self._runtime.schedule(interval_ms, punctuation_type, callback, start)

    def commit(self) -> None:
        self._runtime.request_commit()

    def drop(self, reason: str) -> None:
        if not isinstance(reason, str):
            raise InvalidArgumentError(
                f'"{self._name}" drops a record for a {type(reason).__name__}: give the reason as '
                "a string"
            )
        self._runtime.outputs.append(Dropped(encodable(reason), self._name))

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        self._note(counted(self._name, name, amount, labels))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self._note(gauged(self._name, name, value, labels))

    def _note(self, found: Note) -> None:
        if self._runtime.is_global:
            raise StreamsError(
                "the processor of a global store has no metrics: it belongs to no task"
            )
        self._runtime.outputs.append(found)

    def get_state_store(self, name: str, kind: type[S] | None = None) -> Any:
        store = self._stores.get(name)
        if store is None:
            near = did_you_mean(name, self._stores)
            advice = near or ": connect it (add_state_store, or stores: in pipeline.yaml)"
            # In `init`, the name comes from the code; later, it may come from a record.
            is_known = self._runtime.batch is None
            raise StreamsError(
                f'processor "{self._name}" has no store "{name}"{advice}',
                shown=None
                if is_known
                else f'processor "{self._name}" has no store of that name{advice}',
            )
        # A kind with types of keys and values is an alias, of which no store is an instance.
        wanted = None if kind is None else get_origin(kind) or kind
        if wanted is not None and not isinstance(store, wanted):
            raise StreamsError(
                f'the store "{name}" of processor "{self._name}" is a {type(store).__name__}, not '
                f"a {wanted.__name__}: ask for the kind that it was defined with"
            )
        return store
