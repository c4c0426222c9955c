"""Operators that join streams and tables."""

from __future__ import annotations

from tests.differential.drawing import Drawing, Node, may_meet
from tests.differential.parameters import RESULT_OF, add_filter, draw_grace_ms, is_plain, plain_with


def _joiner(draw: Drawing) -> tuple[str, str]:
    f = str(draw.one_of("pair", "pair", "pair", "sum", "sum_or_null"))
    return f, RESULT_OF[f]


def stream_join(draw: Drawing) -> Node:
    """Add a join of streams.

    Where a bound is 0, Kafka Streams forgets records too early. In left and outer joins, it does
    not count the grace period for records that come after their window.
    """
    left = draw.stream(is_plain)
    right = draw.stream(
        lambda node: (
            plain_with(left.step.key)(node)
            and may_meet(left, node)
            and (not left.origins & node.origins or draw.happens(0.3))
        ),
        key=left.step.key,
    )
    f, value = _joiner(draw)
    before_ms, after_ms = draw.one_of((3, 3), (10, 10), (1, 10), (10, 1), (1, 1), (3, 8))
    kind = draw.one_of("inner", "left", "outer")
    args = {
        "kind": kind,
        "f": f,
        "before_ms": before_ms * draw.scale,
        "after_ms": after_ms * draw.scale,
        "grace_ms": draw_grace_ms(draw) if kind == "inner" else 0,
    }
    return draw.add(
        "stream_join", [left, right], args, "stream", value=value, hop=True, multiple=True
    )


def table_lookup(draw: Drawing) -> Node:
    stream = draw.stream(is_plain)
    table = draw.table(
        lambda node: plain_with(stream.step.key)(node) and may_meet(stream, node),
        key=stream.step.key,
    )
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "grace_ms": None}
    return draw.add("table_lookup", [stream, table], args, "stream", value=value, hop=True)


def table_lookup_with_grace(draw: Drawing) -> Node:
    """Add a join that waits for the table.

    Only a source may be the table: a step after it has no store with versions. A left join that is
    to wait with a record without a key ends Kafka Streams 4.3 with a NullPointerException.
    """
    stream = add_filter(draw, "filter", draw.stream(is_plain), "has_key")
    history_ms = draw.ms(10, 50)
    table = draw.source("table", "table", stream.step.key, history_ms)
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "grace_ms": draw.ms(0, 2, 5, 10)}
    return draw.add(
        "table_lookup", [stream, table], args, "stream", value=value, hop=True, multiple=True
    )


def global_lookup(draw: Drawing) -> Node:
    stream = draw.stream()
    key = "key_text" if stream.step.key == "string" and stream.has_plain_keys else "letter"
    mapper = str(draw.one_of(key, key, "letter_or_null", "key_number"))
    table = draw.pick("global", lambda node: node.step.key == RESULT_OF[mapper])
    table = table or draw.source("global_table", "global", RESULT_OF[mapper])
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "key": mapper}
    return draw.add("global_lookup", [stream, table], args, "stream", value=value)


def table_join(draw: Drawing) -> Node:
    """Add a join of tables that do not come from one table.

    Otherwise, Kafka Streams has a result for each side, and none for a deletion (KAFKA-6687).
    """
    left = draw.table(is_plain)
    right = draw.table(
        lambda node: (
            not left.tables & node.tables
            and plain_with(left.step.key)(node)
            and (may_meet(left, node) and (not left.origins & node.origins or draw.happens(0.2)))
        ),
        key=left.step.key,
    )
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left", "outer"), "f": f, "stored": draw.happens(0.25)}
    left, right = draw.with_old_values(left), draw.with_old_values(right)
    return draw.add("table_join", [left, right], args, "table", value=value)


def foreign_key_join(draw: Drawing) -> Node:
    """Add a join whose sides send one change per input, or stale answers hang on the order.

    The answers of the right side are never empty strings: Kafka Streams takes those for null.
    """
    left = draw.table(lambda node: node.has_plain_keys and not node.is_multiple)
    foreign_key = str(draw.one_of("letter", "letter", "letter_or_null", "key_number"))
    key = RESULT_OF[foreign_key]
    right = draw.table(
        lambda node: (
            plain_with(key)(node) and not node.is_multiple and not left.origins & node.origins
        ),
        key=key,
    )
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "foreign_key": foreign_key}
    left, right = draw.with_old_values(left), draw.with_old_values(right)
    if right.step.value == "string":
        right = draw.add("map_values", [right], {"f": "decorate"}, "table")
    return draw.add(
        "foreign_key_join",
        [left, right],
        args,
        "table",
        value=value,
        hop=True,
        multiple=True,
    )
