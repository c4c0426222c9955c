"""What users write: processors, and what they get to know about where they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from streams.errors import StreamsError
from streams.punctuation import Cancellable, PunctuationType, Punctuator
from streams.record import Batch, Headers, Record


class ProcessorContext(Protocol):
    """A processor's view of its task. Each processor has one of its own, for `init` on.

    `topic`, `partition`, `offset` and `headers` are those of the record that is being processed,
    `None` within a punctuation and for a batch; `headers` then are empty. Calling anything after
    `close`, or from another thread, is an error.
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

        It includes that of the record that is being processed. While a `BatchProcessor` and its
        children process a batch, it includes that of the first record only. So that results do not
        depend on how records are grouped into batches, take the largest timestamp from here on,
        record by record.
        """

    @property
    def current_system_time(self) -> int:
        """The wall clock's time in milliseconds; under a `TopologyTestDriver`, the driver's."""

    def forward(self, record: Record | Batch, child: str | None = None) -> None:
        """Pass a record, or a batch, on to the children, or to the one with the name `child`.

        They have processed it when this returns. Raises `StreamsError` for an unknown `child`, and
        whatever the children raise; leave that to the engine, which undoes all that the record
        did.
        """

    def schedule(self, interval: int, type: PunctuationType, callback: Punctuator) -> Cancellable:
        """Call `callback(time)` every `interval` milliseconds, 1 or more, until it is cancelled.

        By stream time, it is first called as soon as there is data, and right after the record
        that makes it due; what `init` schedules keeps its rhythm when the task starts again. By
        wall-clock time, it is called at the latest some 100 ms after it is due. Intervals
        that were missed are not caught up. If `callback` raises, the task fails. Raises
        `InvalidArgumentError` for arguments that cannot be.
        """

    def commit(self) -> None:
        """Ask for a commit soon, ahead of `commit_interval_ms`."""

    def get_state_store(self, name: str) -> Any:
        """Return the store of that name.

        A global store is there for every processor, to be read. Raises `StreamsError` if another
        one is not connected to this processor (`add_state_store`).
        """


class Processor:
    """Processes records one by one. Subclass it, and override `process` at least.

    One instance belongs to one task and is called by one thread: it needs no locks. All it does
    for a record, in stores and in forwarding, is in one transaction, and is undone if `process`
    raises; `on_error` then decides about the record. So keep what must survive in stores, not in
    attributes (KIP-28).
    """

    def init(self, context: ProcessorContext) -> None:
        """Get ready; called once, before anything else, with all stores restored."""
        self.context = context

    def process(self, record: Record) -> None:
        """Process a record: read and write stores, `self.context.forward`."""
        raise StreamsError(
            f"the class {type(self).__name__} has no method process: write process(self, record)"
        )

    def close(self) -> None:
        """Let go of what `init` took; called once, however the task ends, unless it is killed."""


class BatchProcessor:
    """Processes records as columns, for speed. Subclass it, and override `process` at least.

    As `Processor`, but what is undone if `process` raises is the whole batch; then its halves are
    processed, and so on, until it is clear which record is at fault. Splitting a batch must not
    change the results: `process(a + b)` does the same as `process(a)` and `process(b)`.
    """

    def init(self, context: ProcessorContext) -> None:
        """Get ready; called once, before anything else, with all stores restored."""
        self.context = context

    def process(self, batch: Batch) -> None:
        """Process a batch of one or more records.

        May raise `RecordRejectedError` with the index of a record, after doing everything for
        those before it and nothing for the rest: so no search for that record is needed.
        """
        raise StreamsError(
            f"the class {type(self).__name__} has no method process: write process(self, batch)"
        )

    def close(self) -> None:
        """Let go of what `init` took; called once, however the task ends, unless it is killed."""


class AsyncProcessorContext(Protocol):
    """What an `AsyncProcessor` gets to know about where it runs."""

    @property
    def application_id(self) -> str:
        """The job's name; empty without one."""

    @property
    def task_id(self) -> str:
        """The task, such as `Enrich_0`: the node group and the partition."""


class AsyncProcessor:
    """Processes many records at a time, each by a coroutine, where most of the time is waiting.

        class Enrich(AsyncProcessor):
            async def process(self, record):
                price = await self.client.get_price(record.value["id"])
                return record.with_value({**record.value, "price": price})

    Up to `max_in_flight` calls go on at a time, on an event loop of the worker that all such
    processors share. What they return is forwarded in the order of the input, and is in Kafka
    exactly once; a call may be made again for a record whose result was not committed, so what it
    does elsewhere should bear that. A call that raises, or takes longer than `timeout_ms`, rejects
    its record; `on_error` then decides. (FLIP-498, KAFKA-6989.)

    It reads from sources that feed nothing else, has no stores, and does not schedule. Never block
    in it (`time.sleep`, a client that is not made for asyncio): all calls of the worker wait then.
    """

    max_in_flight: int = 100
    """How many calls of a task go on at a time, 1 or more."""
    timeout_ms: int = 60_000
    """How long one call may take, 1 or more."""
    ordered: bool | Literal["key"] = True
    """True: results come in the order of the input. "key": in that order for each key only, and
    there is one call at a time for a key, so that a slow one holds up no others."""

    def init(self, context: AsyncProcessorContext) -> Any:
        """Get ready; called once, before anything else. May be a coroutine (`async def`)."""
        self.context = context

    async def process(self, record: Record) -> Record | Sequence[Record] | None:
        """Return what to forward: a record, several, or `None` for nothing."""
        raise StreamsError(
            f"the class {type(self).__name__} has no method process: write "
            "async def process(self, record)"
        )

    def close(self) -> Any:
        """Let go of what `init` took. May be a coroutine (`async def`)."""


class RecordRejectedError(StreamsError):
    """A record cannot be processed; `reason` is a sentence without any payload.

    Any exception rejects a record, but this one goes into dead letters and statuses without the
    name of a class. It saves a `BatchProcessor` behind a source the search, if it gives the very
    `batch` that it got and the `index` of the record in it.
    """

    def __init__(self, reason: str, batch: Batch | None = None, index: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.batch = batch
        self.index = index
