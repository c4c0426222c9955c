"""What the topologies have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka_pipeline import StreamsBuilder
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table


@dataclass(frozen=True)
class Operator:
    """The builder of one topology, with the names of its topics."""

    builder: StreamsBuilder
    prefix: str
    out: str

    @property
    def a(self) -> Stream:
        return self.builder.stream(f"{self.prefix}a", name="A")

    @property
    def b(self) -> Stream:
        return self.builder.stream(f"{self.prefix}b", name="B")

    @property
    def table(self) -> Table:
        return self.builder.table(f"{self.prefix}b", name="B")

    @property
    def versioned(self) -> Table:
        return self.builder.table(f"{self.prefix}b", name="B", history_retention_ms=1000)


Fill = Callable[[Operator], Stream | Table | None]
"""Adds the steps of an operator, and returns what goes to `out` unless it goes there already."""


def pair(left: Any, right: Any) -> str:
    """Return the result of a join."""
    return f"{left}+{right}"


def shown(table: Table) -> Stream:
    """Return the results of a windowed table with strings as keys and values."""
    return table.to_stream().map(
        lambda windowed, value: (
            f"{windowed.key}@{windowed.window.start}-{windowed.window.end}",
            str(value),
        )
    )


def add(key: str, value: str, total: str) -> str:
    """Add a value to an aggregate."""
    return f"{total},{value}"
