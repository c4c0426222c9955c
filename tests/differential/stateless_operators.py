"""Operators without windows and joins that add a step to a stream or a table."""

from __future__ import annotations

from tests.differential.drawing import Drawing, Node, may_meet
from tests.differential.parameters import (
    PREDICATES,
    RESULT_OF,
    add_filter,
    draw_key_mapper,
    is_plain,
    stored,
)


def filter(draw: Drawing) -> Node:
    on_table = draw.happens(0.3)
    parent = draw.table() if on_table else draw.stream()
    op, f = draw.one_of("filter", "filter_not"), draw.one_of(*PREDICATES)
    return add_filter(draw, op, parent, f)


def map_values(draw: Drawing) -> Node:
    parent = draw.table() if draw.happens(0.3) else draw.stream()
    f = draw.one_of("increment", "number", "text", "decorate", "null_if_odd")
    chosen = stored(draw, parent)
    return draw.add(
        "map_values",
        [parent],
        {"f": f, **chosen},
        parent.step.shape,
        value=RESULT_OF.get(f, ""),
        versioned=parent.is_versioned,
        close_known=parent.is_close_known,
        sends_wrong_olds=parent.sends_wrong_olds and not chosen.get("stored", False),
    )


def map(draw: Drawing) -> Node:
    f = draw.one_of("letter_and_text", "letter_and_number")
    return draw.add(
        "map",
        [draw.stream()],
        {"f": f},
        "stream",
        key="string",
        value=RESULT_OF[f],
        keeps_window=False,
        hop=True,
    )


def flat_map(draw: Drawing) -> Node:
    f = draw.one_of("both_letters", "numbers")
    return draw.add(
        "flat_map",
        [draw.stream()],
        {"f": f},
        "stream",
        key="string",
        value=RESULT_OF[f],
        keeps_window=False,
        hop=True,
        multiple=True,
    )


def flat_map_values(draw: Drawing) -> Node:
    f = draw.one_of("twice", "letters", "countdown")
    value = RESULT_OF.get(f, "")
    return draw.add(
        "flat_map_values", [draw.stream()], {"f": f}, "stream", value=value, multiple=True
    )


def select_key(draw: Drawing) -> Node:
    parent = draw.stream()
    f, key = draw_key_mapper(draw, parent)
    return draw.add(
        "select_key", [parent], {"f": f}, "stream", key=key, keeps_window=False, hop=True
    )


def peek(draw: Drawing) -> Node:
    return draw.add("peek", [draw.stream()], {}, "stream")


def merge(draw: Drawing) -> Node:
    left = draw.stream()
    right = draw.pick(
        "stream",
        lambda node: node.step.type == left.step.type and node != left and may_meet(left, node),
    )
    if right is None:
        left = draw.stream(is_plain)
        right = draw.source("stream", "stream", left.step.key)
        if right.step.value != left.step.value:
            # Any value has a text and a number.
            f = "text" if left.step.value == "string" else "number"
            right = draw.add("map_values", [right], {"f": f}, "stream", value=left.step.value)
    return draw.add("merge", [left, right], {}, "stream")


def split(draw: Drawing) -> Node:
    count = draw.one_of(1, 2, 3)
    fs = draw.random.sample(PREDICATES, count)
    branches = [{"name": f"b{number}", "f": f} for number, f in enumerate(fs)]
    default = "rest" if draw.happens(0.6) else None
    split = draw.add("split", [draw.stream()], {"branches": branches, "default": default}, "split")
    names = [branch["name"] for branch in branches] + ([default] if default else [])
    return [draw.add("branch", [split], {"branch": name}, "stream") for name in names][-1]


def repartition(draw: Drawing) -> Node:
    return draw.add("repartition", [draw.stream(is_plain)], {}, "stream", hop=True)


def to_table(draw: Drawing) -> Node:
    return draw.add("to_table", [draw.stream(is_plain)], {}, "table", hop=True)


def to_stream(draw: Drawing) -> Node:
    return draw.add("to_stream", [draw.table()], {}, "stream")
