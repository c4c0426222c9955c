"""The concurrent calls of an `AsyncProcessor`, and the order of their results."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice

from kafka_pipeline.common.errors import escaped
from kafka_pipeline.common.protocol.suspects import CallKind
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.durations import whole_ms
from kafka_pipeline.streams.engine.call_mark import CallMark
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.engine.outputs import Note
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.processor import AsyncProcessor
from kafka_pipeline.streams.record import Record

MOST_OPEN_S = 0.1
"""How long records are taken in between two commits if results come in key order."""


CURRENT: ContextVar[PendingCall] = ContextVar("CURRENT")
"""The call in whose coroutine, or in one that it began, code runs."""


@dataclass(eq=False, slots=True)
class PendingCall:
    """One call: its record, and its results or its error."""

    batch: RecordBatch
    index: int
    record: Record | None
    """`None` if the record could not be read; then there is an `error`."""
    error: Exception | None = None
    results: Sequence[Record] = ()
    notes: list[Note] = field(default_factory=list)
    """What the call has counted and measured."""
    is_done: bool = False
    began_s: float = 0.0

    @property
    def partition(self) -> Partition:
        """The partition that the record comes from."""
        return self.batch.topic, self.batch.partition

    @property
    def offset(self) -> int:
        """The record's offset in its partition."""
        return self.batch.offsets[self.index]

    @property
    def key(self) -> bytes | None:
        """The record's key as bytes."""
        return self.batch.keys[self.index]


class AsyncCalls:
    """The calls of one processor of one task.

    One thread at a time submits records and takes results; the calls run on the event loop.
    In input order (`ordered` is true), each result waits for the results before it, and the
    offset to commit is always the offset of the first record without a result. In key order
    (`ordered` is "key"), each key has one call at a time, and a result can be taken as soon as
    its call returns. So a commit must cover every record that was submitted.
    """

    def __init__(
        self,
        name: str,
        processor: AsyncProcessor,
        loop: EventLoop,
        wake: Callable[[], None],
        mark: CallMark,
    ) -> None:
        """The event loop calls `wake` when there are results: once until the next `expect`.

        `mark` says which records have calls in flight.
        """
        self.name = name
        self._process = processor.process
        self._most = processor.max_in_flight
        timeout_ms = whole_ms(f'processor "{name}"', "timeout_ms", processor.timeout_ms, 1)
        self.timeout_s = timeout_ms / 1000
        self._by_key = processor.ordered == "key"
        self._loop = loop
        self._wake = wake
        self._mark = mark
        self._entries: deque[PendingCall] = deque()
        """The calls in flight, oldest first."""
        self._waiting: dict[bytes, deque[PendingCall]] = {}
        """By key: the current call, followed by the calls that wait for it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_results = threading.Event()
        self._open_until_s: float | None = None

    def __len__(self) -> int:
        """Return the number of calls whose result has not been taken yet."""
        return len(self._entries)

    @property
    def room(self) -> int:
        """How many more records can be submitted now."""
        if self._entries and self._is_over:
            return 0
        return self._most - len(self._entries)

    @property
    def _is_over(self) -> bool:
        """Whether records have been taken in for so long that a commit must come first."""
        return self._open_until_s is not None and time.monotonic() >= self._open_until_s

    @property
    def is_committable(self) -> bool:
        """Whether the results taken so far can be committed now."""
        return not (self._by_key and self._entries)

    @property
    def oldest(self) -> PendingCall | None:
        """The entry that was submitted first; any thread may read it."""
        try:
            return self._entries[0]
        except IndexError:
            return None

    @property
    def next_result(self) -> PendingCall | None:
        """The finished entry whose turn it is; `remove` it to get the next one."""
        entries = self._entries if self._by_key else islice(self._entries, 1)
        return next((entry for entry in entries if entry.is_done), None)

    def position(self, partition: Partition) -> int | None:
        """Return the offset of the partition's first record in flight; `None` if there is none."""
        return next((e.offset for e in self._entries if e.partition == partition), None)

    def submit(self, entries: Sequence[PendingCall]) -> None:
        """Begin calls in input order, at most `room` of them."""
        now_s = time.monotonic()
        if self._by_key and (self._open_until_s is None or self._is_over):
            self._open_until_s = now_s + MOST_OPEN_S
        ready = []
        for entry in entries:
            entry.began_s = now_s
            self._entries.append(entry)
            if entry.record is None:
                entry.is_done = True
                self._has_results.set()
            elif not self._by_key or entry.key is None:
                ready.append(entry)
            elif entry.key in self._waiting:
                self._waiting[entry.key].append(entry)
            else:
                self._waiting[entry.key] = deque([entry])
                ready.append(entry)
        self._mark_calls()
        if ready:
            self._loop.call_soon(self._start, ready)

    def remove(self, entry: PendingCall) -> bool:
        """Forget an entry whose result was taken; return whether a commit must come next.

        While records keep coming, there would be no other moment to commit.
        """
        self._entries.remove(entry)
        self._mark_calls()
        self._go_on_after(entry)
        return not self._entries and self._is_over

    def _mark_calls(self) -> None:
        if not self._entries:
            self._mark.clear()
            return
        first, last, thread = self._entries[0], self._entries[-1], self._loop.ident
        if first.partition == last.partition and first.offset <= last.offset:
            topic, partition = first.partition
            self._mark.set(
                CallKind.PROCESS, topic, partition, first.offset, last.offset, thread=thread
            )
        else:
            self._mark.set(CallKind.PROCESS, thread=thread)

    def _go_on_after(self, entry: PendingCall) -> None:
        if entry.key is None or entry.record is None or not self._by_key:
            return
        waiting = self._waiting[entry.key]
        waiting.popleft()
        if waiting:
            waiting[0].began_s = time.monotonic()
            self._loop.call_soon(self._start, [waiting[0]])
        else:
            del self._waiting[entry.key]

    def expect(self) -> None:
        """Arm `wake` and `wait` for the next result; call this before taking results."""
        self._has_results.clear()

    def wait(self) -> None:
        """Block until a result has arrived after `expect`."""
        self._has_results.wait()

    def close(self) -> None:
        """Cancel all calls."""
        self._entries.clear()
        self._mark_calls()
        self._loop.call_soon(self._cancel)

    # On the event loop

    def _start(self, entries: Sequence[PendingCall]) -> None:
        loop = asyncio.get_running_loop()
        for entry in entries:
            task = loop.create_task(self._call(entry))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call(self, entry: PendingCall) -> None:
        assert entry.record is not None
        CURRENT.set(entry)
        try:
            async with asyncio.timeout(self.timeout_s) as limit:
                entry.results = self._checked(await self._process(entry.record))
        except TimeoutError as error:
            entry.error = error
            if limit.expired():
                entry.error = StreamsError(
                    f'processor "{self.name}" took longer than its timeout_ms '
                    f"({round(self.timeout_s * 1000)})"
                )
        except BaseException as error:
            # A CancelledError too: of those that the engine causes, nobody takes the result.
            entry.error = escaped(error)
        entry.is_done = True
        if (self._by_key or self.oldest is entry) and not self._has_results.is_set():
            self._has_results.set()
            self._wake()

    def _checked(self, returned: object) -> Sequence[Record]:
        if returned is None:
            return ()
        if isinstance(returned, Record):
            return (returned,)
        if isinstance(returned, list | tuple) and all(isinstance(r, Record) for r in returned):
            return tuple(returned)  # a call may go on to use its list
        raise StreamsError(
            f'processor "{self.name}" returned a {type(returned).__name__}: return a Record, a '
            "list of them, or None"
        )

    def _cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()
