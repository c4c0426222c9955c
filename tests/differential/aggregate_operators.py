"""Operators that aggregate groups of streams and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.differential.drawing import Drawing, Node
from tests.differential.parameters import RESULT_OF, draw_grace_ms, draw_key_mapper


def _group(draw: Drawing, parent: Node | None = None) -> Node:
    """Add a group; whether it has an internal topic hangs on the steps ahead, so it may."""
    parent = parent or draw.stream()
    if parent.has_plain_keys and draw.happens(0.5):
        return draw.add("group_by_key", [parent], {}, "group", hop=True)
    f, key = draw_key_mapper(draw, parent)
    return draw.add("group_by", [parent], {"f": f}, "group", key=key, keeps_window=False, hop=True)


def _how(draw: Drawing, value: str, *, sessions: bool = False) -> tuple[dict[str, Any], str]:
    """Return how to aggregate values of a type, and the type of the results."""
    how = draw.one_of("count", "reduce", "aggregate")
    if how == "count":
        return {"how": how}, "long"
    if how == "reduce":
        same_type = ("sum", "sum_or_null") if value == "long" else ("concat", "pair")
        return {"how": how, "f": draw.one_of("latest", *same_type)}, value
    initial, fs = draw.one_of(("zero", ("sum", "sum_or_null")), ("empty", ("concat", "pair")))
    args = {"how": how, "f": draw.one_of(*fs), "initial": initial}
    return ({**args, "merger": fs[0]} if sessions else args), RESULT_OF[initial]


def count(draw: Drawing) -> Node:
    group = _group(draw)
    args, value = _how(draw, group.step.value)
    sends_wrong_olds = args["how"] != "reduce"
    return draw.add(
        "aggregate", [group], args, "table", value=value, sends_wrong_olds=sends_wrong_olds
    )


def tumbling(draw: Drawing) -> Node:
    size_ms = draw.ms(5, 10, 20)
    return _windowed(draw, _times(draw, size_ms, size_ms))


def hopping(draw: Drawing) -> Node:
    size, advance = draw.one_of((10, 5), (20, 5), (12, 5), (10, 3))
    return _windowed(draw, _times(draw, size * draw.scale, advance * draw.scale))


def _times(draw: Drawing, size_ms: int, advance_ms: int) -> dict[str, Any]:
    grace_ms = draw_grace_ms(draw)
    return {"kind": "time", "size_ms": size_ms, "advance_ms": advance_ms, "grace_ms": grace_ms}


def sliding(draw: Drawing) -> Node:
    difference_ms = draw.ms(3, 5, 10)
    window = {"kind": "sliding", "difference_ms": difference_ms, "grace_ms": draw_grace_ms(draw)}
    return _windowed(draw, window)


def session(draw: Drawing) -> Node:
    window = {"kind": "session", "gap_ms": draw.ms(1, 3, 8), "grace_ms": draw_grace_ms(draw)}
    return _windowed(draw, window)


def _windowed(draw: Drawing, window: dict[str, Any]) -> Node:
    group = _group(draw)
    args, value = _how(draw, group.step.value, sessions=window["kind"] == "session")
    # Whole segments of a store of sessions expire before Kafka Streams emits what is in them.
    may_close = window["kind"] != "session" or draw.scale == 1
    emit = "close" if may_close and draw.happens(0.35) else "update"
    return draw.add(
        "aggregate",
        [group],
        {**args, "window": window, "emit": emit},
        "table",
        value=value,
        window=_windowed_key(window),
        multiple=True,
        close_known=window["kind"] == "time",
        sends_wrong_olds=args["how"] != "reduce" or window["kind"] == "session",
    )


def _windowed_key(window: Mapping[str, Any]) -> dict[str, Any]:
    if window["kind"] == "session":
        return {"kind": "session"}
    size_ms = window["difference_ms"] if window["kind"] == "sliding" else window["size_ms"]
    return {"kind": "time", "size_ms": size_ms}


def cogroup(draw: Drawing) -> Node:
    groups = [_group(draw)]
    key = groups[0].step.key
    for _ in range(draw.one_of(0, 1, 1, 2)):
        stream = draw.stream(
            lambda node: (
                node.has_plain_keys
                and node.step.key == key
                and not node.origins & frozenset[str]().union(*(g.origins for g in groups))
            ),
            key=key,
        )
        groups.append(draw.add("group_by_key", [stream], {}, "group", hop=True))
    initial, fs = draw.one_of(("zero", ("sum", "sum_or_null")), ("empty", ("concat", "pair")))
    adders = [draw.one_of(*fs) for _ in groups]
    args = {"adders": adders, "initial": initial, "merger": fs[0]}
    value = RESULT_OF[initial]
    if draw.happens(0.4):
        return draw.add("cogroup", groups, args, "table", value=value, sends_wrong_olds=True)
    kind = draw.one_of("time", "sliding", "session")
    size_ms = draw.ms(5, 10)
    # In Kafka Streams, each stream has its own time, and a record that is late for the others
    # replaces what has expired. So none is late for all.
    grace_ms = draw_grace_ms(draw) if len(groups) == 1 else draw.ms(10_000)
    window = {
        "time": {"kind": kind, "size_ms": size_ms, "advance_ms": size_ms, "grace_ms": grace_ms},
        "sliding": {"kind": kind, "difference_ms": size_ms, "grace_ms": grace_ms},
        "session": {"kind": kind, "gap_ms": size_ms, "grace_ms": grace_ms},
    }[kind]
    return draw.add(
        "cogroup",
        groups,
        {**args, "window": window},
        "table",
        value=value,
        window=_windowed_key(window),
        multiple=True,
        close_known=window["kind"] == "time",
        sends_wrong_olds=True,
    )


def table_aggregate(draw: Drawing) -> Node:
    f = draw.one_of("letter_and_text", "letter_and_number", "letter_or_nothing")
    group = draw.add(
        "table_group_by",
        [draw.with_old_values(draw.table())],
        {"f": f},
        "table_group",
        key="string",
        value=RESULT_OF[f],
        keeps_window=False,
        hop=True,
        multiple=True,
    )
    how = draw.one_of("count", "reduce", "aggregate")
    if how == "count":
        return draw.add("table_aggregate", [group], {"how": how}, "table", value="long")
    value = group.step.value if how == "reduce" else draw.one_of("string", "long")
    f, subtractor = ("sum", "difference") if value == "long" else ("concat", "remove")
    args = {"how": how, "f": f, "subtractor": subtractor}
    if how == "aggregate":
        args["initial"] = "zero" if value == "long" else "empty"
    return draw.add("table_aggregate", [group], args, "table", value=value)
