"""Results of windows depend neither on restarts, nor on batches, nor on records that fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import get_args

import pytest

from kafka_pipeline import serdes, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.dsl.window_aggregates import Windows
from kafka_pipeline.streams.dsl.windows import CalendarWindows, SessionWindows
from kafka_pipeline.streams.engine.node_group import NodeGroup
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.nodes import Nodes, Sent, batch

WINDOWS = {
    "tumbling": windows.tumbling(20, grace_ms=15),
    "hopping": windows.hopping(20, advance_ms=5, grace_ms=10),
    "sliding": windows.sliding(15, grace_ms=10),
    "sliding without grace": windows.sliding(8, grace_ms=0),
    "session": windows.session(6, grace_ms=10),
}
HOUR_MS = 3_600_000
CALENDARS = {
    period: windows.calendar(f"1 {period}", tz="Europe/Berlin", grace_ms=10 * HOUR_MS)
    for period in ("day", "week")
}
SEEDS = long_but_the_first(range(4), 2)
OCTOBER_MS = 1_729_375_200_000
"""2024-10-20 in Berlin, a week before summer time ends."""


def add(key: str, value: str, found: list[str]) -> list[str]:
    found.append(value)
    return found


def refuse(key: str, value: str) -> None:
    if value == "bad":
        raise ValueError("no good")


def merge(key: str, a: list[str], b: list[str]) -> list[str]:
    a.extend(b)
    return a


def group(kind: Windows, emit: EmitTime) -> NodeGroup:
    built = builder(value_serde=serdes.json)
    kept = built.stream("in", value_serde=serdes.string).filter(
        lambda key, value: value != "dropped"
    )
    windowed = kept.group_by_key().windowed_by(kind, emit=emit)
    merger = merge if isinstance(kind, SessionWindows) else None
    table = windowed.aggregate(list, add, merger=merger, name="Windows")
    shown = table.to_stream().map(lambda key, value: (f"{key.key} {key.window.end}", value))
    shown.to("out")
    # It gets its records after the windows, which must then undo what they did.
    kept.for_each(refuse)
    (found,) = built.build().groups
    return found


def records(seed: int, *, bad: bool) -> list[tuple[bytes, bytes, int]]:
    """Return records whose time goes on by fits and starts, and at times goes back."""
    chance = random.Random(seed)
    now, found = 0, []
    for number in range(60):
        now += chance.choice([0, 0, 1, 2, 3, 7, 30])
        time = max(0, now - chance.choice([0, 0, 0, 3, 8, 25]))
        value = b"%d" % number
        if chance.random() < 0.1:
            value = b"dropped"
        elif chance.random() < 0.15:
            value = b"bad" if bad else b"dropped"
        found.append((chance.choice([b"a", b"b"]), value, time))
    return found


def hourly(found: Sequence[tuple[bytes, bytes, int]]) -> list[tuple[bytes, bytes, int]]:
    """Return records of a fortnight: a unit of time is an hour."""
    return [(key, value, OCTOBER_MS + HOUR_MS * time) for key, value, time in found]


def run(nodes: Nodes, parts: Sequence[RecordBatch], node_group: NodeGroup | None) -> list[Sent]:
    """Return what is sent; with a group, the task starts again after each part."""
    found: list[Sent] = []
    for part in parts:
        nodes.process(part)
        found += nodes.sent
        nodes.runtime.outputs.clear()
        if node_group is not None:
            for store in nodes.stores.values():
                store.commit(0)
            nodes.runtime.close()
            nodes = Nodes(node_group, stores=nodes.stores)
    return found


def cut(found: Sequence[tuple[bytes, bytes, int]], sizes: Sequence[int]) -> list[RecordBatch]:
    """Return the records as batches of the sizes, again and again."""
    parts: list[RecordBatch] = []
    start = 0
    while start < len(found):
        stop = start + sizes[len(parts) % len(sizes)]
        part = found[start:stop]
        parts.append(
            batch(
                [value for _, value, _ in part],
                keys=[key for key, _, _ in part],
                timestamps=[time for _, _, time in part],
                offset=start,
            )
        )
        start = stop
    return parts


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("emit", get_args(EmitTime))
@pytest.mark.parametrize("kind", [*WINDOWS.values(), *CALENDARS.values()], ids=str)
def test_results_are_the_same(kind: Windows, emit: EmitTime, seed: int) -> None:
    node_group = group(kind, emit)
    timed = hourly if isinstance(kind, CalendarWindows) else list
    # A record that fails must leave no trace: it is as if it had never reached the step.
    expected = run(Nodes(node_group), cut(timed(records(seed, bad=False)), [1]), None)
    assert expected
    for sizes, is_restarted in (([1], False), ([5, 2, 9], True), ([60], False)):
        parts = cut(timed(records(seed, bad=True)), sizes)
        found = run(Nodes(node_group), parts, node_group if is_restarted else None)
        assert found == expected, sizes


@pytest.mark.parametrize("kind", WINDOWS.values(), ids=WINDOWS)
def test_each_window_is_emitted_once(
    kind: Windows,
) -> None:
    """What is emitted on close is the last of what is emitted on update."""
    found = records(4711, bad=False)
    found += [(b"a", b"end", 10_000), (b"a", b"end", 20_000)]
    updates = run(Nodes(group(kind, "on_update")), cut(found, [7]), None)
    closed = run(Nodes(group(kind, "on_close")), cut(found, [7]), None)
    last = {key: value for _, key, value, _ in updates if key is not None}
    expected = {k: v for k, v in last.items() if v is not None and int(k.split()[1]) < 15_000}
    keys = [key for _, key, _, _ in closed]
    assert len(keys) == len(set(keys))
    assert {key: value for _, key, value, _ in closed} == expected
