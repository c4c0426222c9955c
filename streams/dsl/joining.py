"""What all joins have in common: kinds, joiners, sides, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.graph import Compiling, Graph, Step
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.engine.nodes import NamedPart
from kafka_pipeline.streams.errors import TopologyError
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.serdes import is_built_in

JoinFunction = Callable[[Any, Any], Any]
"""Makes the result of a value of the left side and one of the right side."""

LEFT, RIGHT = 0, 1
"""The sides, as numbers of a step's parents."""


class JoinKind(Enum):
    """Which records have results without a partner; the values are the methods of the DSL."""

    INNER = "join"
    LEFT = "left_join"
    OUTER = "outer_join"

    def keeps(self, side: int) -> bool:
        """Return whether records of a side have results without a partner."""
        return self is JoinKind.OUTER or (self is JoinKind.LEFT and side == LEFT)


class Joiner(NamedPart):
    """Calls the function of a join for another step, so that errors name the join."""

    def __init__(self, name: str, function: JoinFunction) -> None:
        self.name = name
        self._function = function

    def join(self, left: Any, right: Any) -> Any:
        """Return the result of a pair of values."""
        return self._function(left, right)


class FromSide(EitherWay):
    """Marks records with the side that they come from: the value becomes a pair (side, value)."""

    def __init__(self, side: int) -> None:
        self._side = side

    def process(self, batch: Batch) -> None:
        side = self._side
        self.context.forward(batch.with_values([(side, v) for v in items_of(batch.values)]))

    def process_record(self, record: Record) -> None:
        value = (self._side, record.value)
        self.context.forward(Record(record.key, value, record.timestamp, record.headers))


def add_sides(step: Step, compiler: Compiling) -> list[str]:
    """Add a node for each of the two parents that marks its records; return their names."""
    names = [f"{step.name}-left-side", f"{step.name}-right-side"]
    for side, (name, parent) in enumerate(zip(names, compiler.parents(step), strict=True)):
        compiler.builder.add_processor(name, partial(FromSide, side), parent)
    return names


def called(kind: JoinKind, name: str | None) -> str:
    """Return how messages call a join: `left_join "Enriched"`."""
    return f'{kind.value} "{name}"' if name else kind.value


_WINDOWED = ("time_windowed ", "calendar_windowed ", "session_windowed ")
"""How the names of serdes for keys in windows begin."""


def check_windows(left: Step, right: Step, where: str) -> None:
    """Raise `TopologyError` if only one side has keys in windows, as far as the serdes say."""
    for plain, windowed in ((left.key_serde, right.key_serde), (right.key_serde, left.key_serde)):
        if is_built_in(plain) and windowed.name.startswith(_WINDOWED):
            raise TopologyError(
                f"{where} has keys by the serde {plain.name} on one side, and keys in windows on "
                "the other: give one side the keys of the other one, such as by map"
            )


def check_builder(graph: Graph, other: Graph, where: str) -> None:
    """Raise `TopologyError` if the two sides of a join come from two builders."""
    if other is not graph:
        raise TopologyError(
            f"{where}: its two sides belong to two StreamsBuilders; make both with one builder"
        )
