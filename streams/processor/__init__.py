"""The processors that users write, and the contexts in which processors run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from kafka_pipeline.streams.clocks import TaskClock
from kafka_pipeline.streams.durations import Milliseconds
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.punctuation import Cancellable, PunctuationType, Punctuator
from kafka_pipeline.streams.record import Batch, Headers, Record
from kafka_pipeline.streams.stores.builder import Store
from kafka_pipeline.streams.type_variables import KForward, KIn, KOut, VForward, VIn, VOut

S = TypeVar("S", bound=Store)


class ProcessorContext(Protocol[KForward, VForward]):
    """A processor's view of its task. Each processor has its own, from `init` on.

    `ProcessorContext[str, int]` forwards records with these keys and values.

    `topic`, `partition`, `offset` and `headers` belong to the record that is being processed.
    Within a punctuation and for a batch, they are `None`, and `headers` is empty. Calling anything
    after `close`, or from another thread, is an error.
    """

    @property
    def application_id(self) -> str:
        """The job's name; empty without one."""

    @property
    def task_id(self) -> str:
        """The task, such as `Counter_0`: the node group and the partition."""

    @property
    def topic(self) -> str | None:
        """The topic that the record was read from."""

    @property
    def partition(self) -> int | None:
        """The partition that the record was read from."""

    @property
    def offset(self) -> int | None:
        """The offset that the record was read from."""

    @property
    def timestamp(self) -> int:
        """The time of the record, of the first one of a batch, or of the punctuation; in ms."""

    @property
    def headers(self) -> Headers:
        """The headers of the record as it was read."""

    @property
    def stream_time(self) -> int:
        """The largest timestamp that the task has processed, -1 before the first record.

        This includes the record that is being processed. While a `BatchProcessor` and its children
        process a batch, it includes only the first record of the batch. If results must not depend
        on how records are grouped into batches, start from this time and take the largest
        timestamp record by record.
        """

    @property
    def current_system_time(self) -> int:
        """The wall clock's time in milliseconds; under a `TopologyTestDriver`, the driver's."""

    @property
    def task_time(self) -> TaskClock:
        """For the engine: the `TaskTime` of the task."""

    @property
    def hold_ms(self) -> int:
        """For the engine: how long the nodes ahead of this one may hold records back."""

    @property
    def store_hold_ms(self) -> int:
        """For the engine: the same for all nodes that share a store with this one."""

    def forward(self, record: Record[KForward, VForward] | Batch, child: str | None = None) -> None:
        """Pass a record or a batch on to all children, or only to the one named `child`.

        When this returns, the children have processed it. Raises `StreamsError` for an unknown
        `child`, and whatever the children raise; leave their errors to the engine, which undoes
        everything that the record did. Another thread than the one that calls the processor gets a
        `StreamsError`, and its task FAILS.
        """

    def schedule(
        self,
        interval_ms: Milliseconds,
        punctuation_type: PunctuationType,
        callback: Punctuator,
        start: int | None = None,
    ) -> Cancellable:
        """Call `callback(time)` every `interval_ms`, 1 or more, until it is cancelled.

        A callback is a plain function, neither `async def` nor one with `yield`. By stream time,
        the first call comes as soon as there is data, and each call comes right
        after the record that makes it due; a callback that `init` schedules keeps its rhythm when
        the task starts again. By wall-clock time, a call comes at most about 100 ms late. Missed
        intervals are not caught up. If `callback` raises, the task fails. Raises
        `InvalidArgumentError` for invalid arguments.

        `start`, in ms since the epoch, is the time that the intervals count from (KIP-1146). The
        first call comes then or, if that has passed, at the next whole interval after it: with 0
        and an interval of an hour, always on the hour.
        """

    def commit(self) -> None:
        """Ask for a commit soon, ahead of `commit_interval_ms`."""

    def drop(self, reason: str) -> None:
        """Count a record that is left out of the results, for a reason such as "late".

        Metrics and statuses show the counts, and the log warns of them. Raises
        `InvalidArgumentError` for a reason that is not a string.
        """

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter of your own, which `/metrics` shows with these labels.

            self.context.count("orders_refused", reason="no stock")
            self.context.count("refunded_cents", record.value["cents"])

        It counts what is committed, once: what a record adds is taken back if the record is
        rejected. `amount` is 0 or more. The metric is `kafka_pipeline_user_<name>_total`. A `name`
        has lower-case letters, digits and underscores. Raises `InvalidArgumentError` for another
        name or amount, for labels that are not strings, and for those that each metric of a task
        has, such as `partition`. A task has 1,000 series at most; the labels of others are
        "other".
        """

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge of your own, a value that goes up and down.

            self.context.gauge("open_orders", len(self.open))

        The metric is `kafka_pipeline_gauge_<name>`. It has the last value that was committed, and
        none before the first one, such as after the task has moved. Names, labels and errors are as
        in `count`.
        """

    @overload
    def get_state_store(self, name: str) -> Any: ...
    @overload
    def get_state_store(self, name: str, kind: type[S]) -> S: ...
    def get_state_store(self, name: str, kind: type[S] | None = None) -> Any:
        """Return the store of that name.

        `kind` tells type checkers what is returned, and is checked when this is called:

            self.counts = context.get_state_store("Counts", stores.KeyValueStore[str, int])

        The types of keys and values are not checked: the store's serdes decide them. Every
        processor can read global stores. Raises `StreamsError` for any other store that is not
        connected to this processor (`add_state_store`), and for a store of another kind.
        """


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """Processes records one by one. Subclass it, and override at least `process`.

    For type checkers, `Processor[str, int]` gets records with these keys and values, and forwards
    anything; `Processor[str, int, str, float]` says what it forwards as well. `Processor` alone is
    a processor of anything.

    An instance belongs to one task and is called by one thread at a time, so it needs no locks.
    Forward results: a record is rejected if `process` returns them. Everything that it writes to
    stores and forwards for a record is in one transaction, and is undone if `process` raises;
    `on_error` then decides about the record. So keep what must survive in stores, not in attributes
    (KIP-28).

        class Balance(Processor):
            def init(self, context):
                self.balances = context.get_state_store("Balances", stores.KeyValueStore[str, int])

            def process(self, record):
                balance = (self.balances.get(record.key) or 0) + record.value
                self.balances.put(record.key, balance)
                self.context.forward(record.with_value(balance))

    The engine sets `self.context` before it calls `init`, unless the class has set it. `init` of
    this class does the same for tests that call it, and nothing else.
    """

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Set `self.context`; called once, before anything else, with all stores restored."""
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Process a record: read and write stores, `self.context.forward`."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what `init` acquired; called once if that returned, unless the task is killed."""


class BatchProcessor:
    """Processes records as columns, for speed. Subclass it, and override at least `process`.

    Works like `Processor`, but if `process` raises, the whole batch is undone. Then its halves are
    processed, and so on, until it is clear which record is at fault. Splitting a batch must not
    change the results: `process(a + b)` does the same as `process(a)` and then `process(b)`. Lists
    that were forwarded may be used again for the next batch.
    """

    def init(self, context: ProcessorContext) -> None:
        """Set `self.context`; called once, before anything else, with all stores restored."""
        self.context = context

    def process(self, batch: Batch) -> None:
        """Process a batch of one or more records.

        May raise `RecordRejectedError` with the index of a record, after doing everything for the
        records before it and nothing for the rest. Then the engine need not search for the record.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release what `init` acquired; called once if that returned, unless the task is killed."""


class AsyncProcessorContext(Protocol):
    """An `AsyncProcessor`'s view of its task."""

    @property
    def application_id(self) -> str:
        """The job's name; empty without one."""

    @property
    def task_id(self) -> str:
        """The task, such as `Enrich_0`: the node group and the partition."""

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter of your own; see `ProcessorContext.count`.

        It counts with the results of the call of `process` that it is called from. Raises
        `StreamsError` outside of such a call.
        """

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge of your own, as `count` counts; see `ProcessorContext.gauge`."""


class AsyncProcessor(Generic[KIn, VIn, KOut, VOut]):
    """Processes many records at a time, each in a coroutine, for work that is mostly waiting.

        class Enrich(AsyncProcessor):
            async def process(self, record):
                price = await self.client.get_price(record.value["id"])
                return record.with_value({**record.value, "price": price})

    Up to `max_in_flight` calls run at a time, on an event loop that all such processors of the
    worker share. Results are forwarded in input order, and reach Kafka exactly once. A call may be
    repeated for a record whose result was not committed, so its other effects should be
    idempotent. A call that raises, or takes longer than `timeout_ms`, rejects its record;
    `on_error` then decides. (FLIP-498, KAFKA-6989.)

    An `AsyncProcessor` reads from sources that feed nothing else, has no stores, and does not
    schedule. Never block in it (`time.sleep`, a client that is not made for asyncio), or all calls
    of the worker wait.
    """

    max_in_flight: int = 100
    """How many calls of a task run at a time, 1 or more."""
    timeout_ms: Milliseconds = 60_000
    """How long one call may take, 1 or more."""
    ordered: bool | Literal["key"] = True
    """True: results come in input order. "key": results come in input order per key only, with one
    call at a time for each key, so a slow call does not hold up other keys."""

    def init(self, context: AsyncProcessorContext) -> Any:
        """Set `self.context`; called once, before anything else. May be `async def`."""
        self.context = context

    async def process(
        self, record: Record[KIn, VIn]
    ) -> Record[KOut, VOut] | Sequence[Record[KOut, VOut]] | None:
        """Return what to forward: one record, several records, or `None` for nothing."""
        raise NotImplementedError

    def close(self) -> Any:
        """Release what `init` acquired. May be a coroutine (`async def`)."""


class RecordRejectedError(StreamsError):
    """A record cannot be processed; `reason` is a sentence, which logs and statuses show.

    Any exception rejects a record, but this one goes into dead letters and statuses without a
    class name. If a `BatchProcessor` that is the child of a source passes the same `batch` object
    that it got and the `index` of the record in it, the engine need not search for the record.
    """

    is_on_purpose = True

    def __init__(self, reason: str, batch: Batch | None = None, index: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.batch = batch
        self.index = index
