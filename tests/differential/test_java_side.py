"""Kafka Streams' side gives what Kafka Streams' documentation says, for a few small topologies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.differential.java_side import JavaSide
from tests.differential.outcome import Written
from tests.differential.topologies import Step, Topology

pytestmark = pytest.mark.long

Given = tuple[str, str | None, Any, int]
"""Topic, key, value and timestamp."""

STREAM = Step("S", "stream", (), {"topics": ["in"]}, "stream", "string", "long")
GROUP = Step("G", "group_by_key", ("S",), {}, "group", "string", "long")
TABLE = Step("T", "table", (), {"topics": ["in"]}, "table", "string", "long")
OTHER = Step("U", "table", (), {"topics": ["other"]}, "table", "string", "string")


def outputs(java: JavaSide, steps: Sequence[Step], given: Sequence[Given]) -> Sequence[Written]:
    """Return what comes of the last step."""
    last = steps[-1]
    if last.shape == "table":
        last = Step("W", "to_stream", (last.name,), {}, "stream", last.key, last.value, last.window)
        steps = [*steps, last]
    sink = Step("K", "to", (last.name,), {"topic": "out"}, "sink", last.key, last.value)
    names = ("topic", "key", "value", "ts")
    inputs = [dict(zip(names, each, strict=True)) for each in given]
    (outcome,) = java.run(Topology((*steps, sink)), [inputs])
    assert outcome.error is None
    return outcome.outputs["out"]


def windowed(how: str, window: Mapping[str, Any], emit: str = "update") -> Step:
    """Return an aggregate of the group in windows."""
    kind = {"kind": "session"}
    if window["kind"] != "session":
        kind = {"kind": "time", "size_ms": window.get("size_ms", window.get("difference_ms"))}
    args = {"how": how, "f": "sum", "window": window, "emit": emit}
    return Step("A", "aggregate", ("G",), args, "table", "string", "long", kind)


def test_tumbling_windows_close_after_their_grace(java: JavaSide) -> None:
    window = {"kind": "time", "size_ms": 10, "advance_ms": 10, "grace_ms": 5}
    given = [("in", "a", 1, 0), ("in", "a", 2, 9), ("in", "a", 3, 12), ("in", "a", 4, 3)]
    late = [("in", "a", 5, 15), ("in", "a", 6, 4)]

    steps = [STREAM, GROUP, windowed("reduce", window)]
    assert outputs(java, steps, [*given, *late]) == [
        (("a", 0, 10), 1, 0),
        (("a", 0, 10), 3, 9),
        (("a", 10, 20), 3, 12),
        (("a", 0, 10), 7, 9),
        (("a", 10, 20), 8, 15),
    ]


def test_windows_that_are_emitted_when_they_close_come_once(java: JavaSide) -> None:
    window = {"kind": "time", "size_ms": 10, "advance_ms": 10, "grace_ms": 0}
    given: list[Given] = [("in", "a", 1, 0), ("in", "a", 2, 9), ("in", "b", 3, 5)]

    steps = [STREAM, GROUP, windowed("reduce", window, "close")]
    assert outputs(java, steps, [*given, ("in", "c", 0, 1_000_000)]) == [
        (("a", 0, 10), 3, 9),
        (("b", 0, 10), 3, 5),
    ]


def test_a_record_between_two_sessions_merges_them(java: JavaSide) -> None:
    window = {"kind": "session", "gap_ms": 5, "grace_ms": 100}

    steps = [STREAM, GROUP, windowed("count", window)]
    assert outputs(java, steps, [("in", "a", 1, t) for t in (0, 10, 5)]) == [
        (("a", 0, 0), 1, 0),
        (("a", 10, 10), 1, 10),
        (("a", 0, 0), None, 0),
        (("a", 10, 10), None, 10),
        (("a", 0, 10), 3, 10),
    ]


def test_sliding_windows_end_with_a_record_or_begin_after_one(java: JavaSide) -> None:
    window = {"kind": "sliding", "difference_ms": 5, "grace_ms": 100}

    steps = [STREAM, GROUP, windowed("reduce", window)]
    assert outputs(java, steps, [("in", "a", 1, 10), ("in", "a", 2, 13)]) == [
        (("a", 5, 10), 1, 10),
        (("a", 11, 16), 2, 13),
        (("a", 8, 13), 3, 13),
    ]


def test_a_left_join_of_streams_waits_for_its_window(java: JavaSide) -> None:
    right = Step("R", "stream", (), {"topics": ["other"]}, "stream", "string", "string")
    args = {"kind": "left", "f": "pair", "before_ms": 5, "after_ms": 5, "grace_ms": 0}
    join = Step("J", "stream_join", ("S", "R"), args, "stream", "string", "string")
    given: list[Given] = [("in", "a", 1, 0), ("other", "a", "x", 4), ("in", "b", 2, 5)]

    steps = [STREAM, right, join]
    assert outputs(java, steps, [*given, ("in", "c", 3, 11)]) == [
        ("a", "(1,x)", 4),
        ("b", "(2,-)", 5),
    ]


def test_a_foreign_key_join_follows_both_sides(java: JavaSide) -> None:
    args = {"kind": "left", "f": "pair", "foreign_key": "letter"}
    join = Step("J", "foreign_key_join", ("T", "U"), args, "table", "string", "string")
    given: list[Given] = [
        ("in", "k", 1, 0),  # the letter of 1 is b
        ("other", "b", "x", 5),
        ("in", "k", 2, 7),
        ("other", "c", "y", 6),
    ]

    assert outputs(java, [TABLE, OTHER, join], given) == [
        ("k", "(1,-)", 0),
        ("k", "(1,x)", 5),
        ("k", "(2,-)", 7),
        ("k", "(2,y)", 6),  # an answer to the right side has that side's time
    ]


def test_an_error_ends_the_run_and_is_named(java: JavaSide) -> None:
    step = Step("F", "filter", ("S",), {"f": "unheard_of"}, "stream", "string", "long")
    sink = Step("K", "to", ("F",), {"topic": "out"}, "sink", "string", "long")
    inputs = [{"topic": "in", "key": "a", "value": 1, "ts": 0}]

    (outcome,) = java.run(Topology((STREAM, step, sink)), [inputs])

    assert outcome.error is not None
    assert "no such function: unheard_of" in outcome.error
    assert outcome.outputs == {"out": []}
    assert outcome.inputs == 0
