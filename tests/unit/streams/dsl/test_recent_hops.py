"""`RecentHops` has the results of windows that are read and written for each record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline import agg, serdes, stores, value
from kafka_pipeline.streams.dsl.aggregate_functions import (
    AggregateFunctions,
    counting,
    reducing,
)
from kafka_pipeline.streams.dsl.aggregations import STATES, FieldAggregates
from kafka_pipeline.streams.dsl.recent_hops import Hops, RecentHops
from kafka_pipeline.streams.dsl.windows import TimeWindows
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import ValueAndTimestamp, Window, WindowStore
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.key_value import timestamped
from kafka_pipeline.streams.stores.layout import window_key

WINDOWS = TimeWindows(size_ms=50, advance_ms=20, grace_ms=200)
"""A record is in two or three of them."""
KEYS = [b"a", b"ab", b"b"]


def append(key: str, value: str, found: list[str]) -> list[str] | None:
    """Change the aggregate, and forget it once it is long."""
    found.append(value)
    return None if len(found) > 4 else found


TEXT = value()
NUMBER = TEXT.cast(float)
FIELDS = FieldAggregates(
    {
        "n": agg.count(),
        "total": agg.sum(NUMBER),
        "mean": agg.avg(NUMBER),
        "least": agg.min(NUMBER),
        "most": agg.max(TEXT),
        "last": agg.last(TEXT),
        "kinds": agg.approx_distinct(TEXT),
    },
    "Fields",
)
FUNCTIONS: dict[str, tuple[AggregateFunctions, Serde[Any]]] = {
    "count": (counting(), serdes.int64),
    "text": (reducing(lambda a, b: f"{a},{b}"), serdes.string),
    "newest": (reducing(lambda a, b: b), serdes.string),
    "list": (AggregateFunctions(list, append), serdes.json),
    "fields": (FIELDS.functions, STATES),
}
Windows = WindowStore[bytes, Any]
Model = dict[tuple[bytes, int], tuple[int, Any]]


def opened(serde: Serde[Any]) -> tuple[Windows, BytesStore]:
    """Return an empty store, and the bytes below it."""
    definition = stores.window(
        "windows",
        serdes.bytes,
        timestamped(serde),
        retention_ms=1_000,
        window_size_ms=50,
        persistent=False,
    )
    below = definition.open(Path(), {})
    store = definition.build(below)
    assert isinstance(store, WindowStore)
    return store, below


def hops_of(time: int) -> Hops:
    starts = WINDOWS.starts(time)
    spans = [Window(start, WINDOWS.end(start)) for start in starts]
    return Hops(starts[0], starts[-1], spans, [window_key(b"", start) for start in starts])


def expected(
    model: Model, functions: AggregateFunctions, serde: Serde[Any], key: bytes, value: str, at: int
) -> list[tuple[Any, Any, int]]:
    """Return what a record makes of its windows, which change in the model."""
    results = []
    for start in WINDOWS.starts(at):
        former = model.pop((key, start), None)
        old, time = None, at
        if former is None:
            new = functions.first(key.decode(), value)
        else:
            old, time = serde.deserialize(former[1]), max(at, former[0])
            new = functions.adder(key.decode(), value, serde.deserialize(former[1]))
        if new is not None:
            model[key, start] = time, serde.serialize(new)
        results.append((new, old, time))
    return results


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(8))
def test_results_are_those_of_one_window_after_the_other(seed: int, name: str) -> None:
    """Late records, commits, undone writes, writes of others, and memory that is short."""
    functions, serde = FUNCTIONS[name]
    store, below = opened(serde)
    recent = RecentHops(store, functions, serde, advance_ms=20, sends_old=True)
    chance, model, now = random.Random(seed), Model(), 0
    for offset in range(40):
        below.mark()
        before = dict(model)
        rows = []
        for number in range(chance.randrange(8)):
            now += chance.choice([0, 5, 30])
            at = max(0, now - chance.choice([0, 0, 0, 10, 90]))
            rows.append((chance.choice(KEYS), f"{offset}.{number}", at))
        found = recent.add(
            [key for key, _, _ in rows],
            [(key.decode(), value, at) for key, value, at in rows],
            [hops_of(at) for _, _, at in rows],
        )
        wanted = [each for row in rows for each in expected(model, functions, serde, *row)]
        assert list(zip(found.new, found.old, found.times, strict=True)) == wanted
        match chance.randrange(8):
            case 0:
                below.undo()
                model = before
            case 1:
                below.commit(offset)
            case 2:
                key, start = chance.choice(KEYS), now // 20 * 20
                value = functions.first("", "0.5")
                store.put(key, ValueAndTimestamp(value, now), start)
                model[key, start] = now, serde.serialize(value)
            case 3:
                recent.clear()
        kept = {(each.key, each.window.start): tuple(value) for each, value in store.all()}
        assert kept == {
            place: (serde.deserialize(data), time)
            for place, (time, data) in model.items()
            if place[1] >= store.live_from
        }


def test_a_function_that_raises_leaves_nothing_behind() -> None:
    def picky(a: str, b: str) -> str:
        if b == "bad":
            raise ValueError("no good")
        return a + b

    serde = serdes.string
    store, _ = opened(serde)
    recent = RecentHops(store, reducing(picky), serde, advance_ms=20, sends_old=False)
    recent.add([b"a"], [("a", "x", 100)], [hops_of(100)])
    with pytest.raises(ValueError, match="no good"):
        recent.add([b"a"] * 2, [("a", "y", 100), ("a", "bad", 100)], [hops_of(100)] * 2)

    found = recent.add([b"a"], [("a", "z", 100)], [hops_of(100)])

    assert found.new == ["xz"] * len(hops_of(100).windows)
