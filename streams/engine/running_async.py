"""An `AsyncProcessor` as it runs in a task."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.code.user_frames import place_of_definition
from kafka_pipeline.streams.engine.async_calls import CURRENT, AsyncCalls
from kafka_pipeline.streams.engine.call_mark import CallMark
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.engine.left_undone import refuse_lost
from kafka_pipeline.streams.engine.outputs import Note
from kafka_pipeline.streams.engine.running_node import RunningNode, check_methods, init
from kafka_pipeline.streams.engine.time_limit import TimeLimit
from kafka_pipeline.streams.engine.user_metrics import counted, gauged
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.processor import AsyncProcessor, AsyncProcessorContext
from kafka_pipeline.streams.record import Record


@dataclass(frozen=True, slots=True)
class AsyncContext:
    """An `AsyncProcessor`'s view of its task; see `AsyncProcessorContext`."""

    application_id: str
    task_id: str
    node: str

    def count(self, name: str, amount: float = 1, /, **labels: str) -> None:
        self._note(counted(self.node, name, amount, labels))

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self._note(gauged(self.node, name, value, labels))

    def _note(self, found: Note) -> None:
        if (call := CURRENT.get(None)) is None:
            raise StreamsError(
                f'"{self.node}" counts or measures outside of process: do so before that returns'
            )
        call.notes.append(found)


class RunningAsync(RunningNode):
    """An `AsyncProcessor`, whose calls run while the task does other things."""

    is_columnar = False

    def __init__(
        self,
        name: str,
        processor: AsyncProcessor,
        loop: EventLoop,
        wake: Callable[[], None],
        children: Sequence[RunningNode],
        limit: TimeLimit,
        mark: CallMark,
    ) -> None:
        _check_async(name, processor)
        self.name = name
        self.processor = processor
        self.calls = AsyncCalls(name, processor, loop, wake, mark)
        self._loop = loop
        self._limit = limit
        self._receivers = tuple(child.receive for child in children)

    def init(self, context: AsyncProcessorContext) -> None:
        """Call the processor's `init`. Raises what that raises."""
        self._wait_for(init(self.processor, context))

    def emit(self, records: Sequence[Record]) -> None:
        """Forward the records that a call has returned."""
        for record in records:
            self._limit.require_column("the result", [record.timestamp])
            for receive in self._receivers:
                if (returned := receive(record)) is not None:
                    refuse_lost(receive, returned)

    def close(self) -> None:
        self.calls.close()
        self._wait_for(self.processor.close())

    def _wait_for(self, returned: Any) -> None:
        if inspect.iscoroutine(returned):
            self._loop.run(returned, self.calls.timeout_s)


def _check_async(name: str, processor: AsyncProcessor) -> None:
    """Raise StreamsError for a processor whose process or settings are invalid."""
    check_methods(name, processor)
    kind = type(processor).__name__
    if not inspect.iscoroutinefunction(processor.process):
        raise StreamsError(
            f'processor "{name}": process of {kind} is not a coroutine: write '
            f"async def process(self, record){place_of_definition(processor.process)}"
        )
    most = processor.max_in_flight
    if type(most) is not int or most < 1:
        raise StreamsError(
            f'processor "{name}": max_in_flight of {kind} is {most!r}: make it a whole number, '
            "1 or more"
        )
    if processor.ordered is not True and processor.ordered != "key":
        raise StreamsError(
            f'processor "{name}": ordered of {kind} is {processor.ordered!r}: make it True or "key"'
        )
