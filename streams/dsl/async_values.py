"""The step that maps values with an `async` function, many at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.topics import ReadTopics
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.processor import AsyncProcessor
from kafka_pipeline.streams.record import Record

AsyncFunction = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class AsyncSettings:
    """How calls run at the same time; the defaults are those of `AsyncProcessor`."""

    max_in_flight: int = AsyncProcessor.max_in_flight
    timeout_ms: Milliseconds = AsyncProcessor.timeout_ms
    ordered: bool | Literal["key"] = AsyncProcessor.ordered


class ValueMapper(AsyncProcessor):
    """Replaces the value by what an `async` function returns for it."""

    def __init__(self, function: AsyncFunction, settings: AsyncSettings) -> None:
        self._function = function
        self.max_in_flight = settings.max_in_flight
        self.timeout_ms = settings.timeout_ms
        self.ordered = settings.ordered

    async def process(self, record: Record) -> Record:
        return record.with_value(await self._function(record.value))


@dataclass(frozen=True, slots=True)
class MapValuesAsync(Operation):
    """Maps the values of one source."""

    verb = "map_values"
    runs_user_processor = True

    function: AsyncFunction
    settings: AsyncSettings

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor. Raises `TopologyError` if its source feeds other steps as well."""
        others = [each for each in compiler.children(step.parents[0]) if each is not step]
        if others:
            raise TopologyError(
                f"{step!r} has an async function, so its source feeds nothing else, but "
                f"{step.parents[0]!r} feeds {others[0]!r} too: let that follow {step!r}, or put a "
                "repartition between"
            )
        compiler.runs(step, partial(ValueMapper, self.function, self.settings))


def map_values_async(
    function: Any, settings: AsyncSettings, parent: Step, name: str | None
) -> MapValuesAsync:
    """Return the step. Raises `TopologyError` if `parent` is not a source, or for settings."""
    step = f'map_values "{name}"' if name else "map_values"
    if not (isinstance(parent.operation, ReadTopics) or parent.operation.begins_group):
        raise TopologyError(
            f"{step} has an async function, so it comes directly after a stream of topics or a "
            f"repartition, not after {parent!r}: put it first, or a repartition between"
        )
    most = settings.max_in_flight
    if type(most) is not int or most < 1:
        raise TopologyError(f"{step} has max_in_flight={most!r}: give a whole number, 1 or more")
    whole_ms(step, "timeout_ms", settings.timeout_ms, 1)
    if settings.ordered is not True and settings.ordered != "key":
        raise TopologyError(f'{step} has ordered={settings.ordered!r}: give True or "key"')
    return MapValuesAsync(function, settings)
