"""Each operator of the DSL is in a topology that the integration tests run on a real Kafka."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from kafka_pipeline import StreamsBuilder, Suppress, agg, windows
from kafka_pipeline.streams.dsl.grouped_stream import (
    CogroupedStream,
    GroupedStream,
    WindowedCogroupedStream,
)
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import GroupedTable, Table
from kafka_pipeline.streams.dsl.windowed_stream import WindowedStream
from tests.user_code import operators
from tests.user_code.operators import OPERATORS, build

PLACES: tuple[type | ModuleType, ...] = (
    Stream,
    Table,
    GroupedStream,
    GroupedTable,
    WindowedStream,
    CogroupedStream,
    WindowedCogroupedStream,
    StreamsBuilder,
    Suppress,
    agg,
    windows,
)
NO_OPERATORS = {
    # For the modules of the DSL.
    "Stream.keyed",
    "Stream.link",
    "Stream.next",
    "GroupedStream.keyed",
    # Called when the joins are imported, before this test looks.
    "windows.join",
    # About the topology.
    "StreamsBuilder.build",
    "StreamsBuilder.describe",
    "StreamsBuilder.mermaid",
}


def name_of(place: type | ModuleType) -> str:
    return place.__name__.rpartition(".")[2]


def public_functions(place: type | ModuleType) -> Iterator[str]:
    """Yield the names of the functions that users may call."""
    for name, function in inspect.getmembers(place, callable):
        is_foreign = isinstance(place, ModuleType) and function.__module__ != place.__name__
        if not (name.startswith("_") or is_foreign or inspect.isclass(function)):
            yield name


def test_each_operator_is_in_a_topology_for_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # The DSL calls some of its own methods; those are not in the topology.
            if sys._getframe(1).f_globals["__name__"].startswith(operators.__name__):
                called.add(name)
            return function(*args, **kwargs)

        return call

    wanted = set()
    for place in PLACES:
        for name in public_functions(place):
            full = f"{name_of(place)}.{name}"
            wanted.add(full)
            wrapper = recorded(full, getattr(place, name))
            is_bound = isinstance(place, type) and inspect.ismethod(getattr(place, name))
            monkeypatch.setattr(place, name, staticmethod(wrapper) if is_bound else wrapper)
    for operator in OPERATORS:
        build(operator, "")
    assert wanted >= NO_OPERATORS
    assert sorted(wanted - called - NO_OPERATORS) == []
