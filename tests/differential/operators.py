"""The operators that random topologies consist of: each adds one step, and parents if it must."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.differential.drawing import Drawing, Node, may_meet

Operator = Callable[[Drawing], Node]

_RESULT_OF: Mapping[str, str] = {
    "increment": "long",
    "number": "long",
    "text": "string",
    "decorate": "string",
    "letters": "string",
    "countdown": "long",
    "letter": "string",
    "letter_or_null": "string",
    "key_text": "string",
    "key_number": "long",
    "letter_and_text": "string",
    "letter_or_nothing": "string",
    "letter_and_number": "long",
    "both_letters": "string",
    "numbers": "long",
    "sum": "long",
    "sum_or_null": "long",
    "difference": "long",
    "concat": "string",
    "remove": "string",
    "pair": "string",
    "zero": "long",
    "empty": "string",
}
"""The type that a function returns; all others return the type that they take."""
PREDICATES = ("even_value", "has_value", "has_key", "early_key", "large_value")


def _is_plain(node: Node) -> bool:
    return node.has_plain_keys


def _plain_with(key: str) -> Callable[[Node], bool]:
    return lambda node: node.has_plain_keys and node.step.key == key


# Without state


def _filter(draw: Drawing) -> Node:
    on_table = draw.happens(0.3)
    parent = draw.table() if on_table else draw.stream()
    op, f = draw.one_of("filter", "filter_not"), draw.one_of(*PREDICATES)
    return _kept(draw, op, parent, f)


def _kept(draw: Drawing, op: str, parent: Node, f: str) -> Node:
    return draw.add(
        op,
        [parent],
        {"f": f, **_stored(draw, parent, must=parent.sends_wrong_olds)},
        parent.step.shape,
        versioned=parent.is_versioned,
        close_known=parent.is_close_known,
    )


def _stored(draw: Drawing, parent: Node, *, must: bool = False) -> dict[str, bool]:
    """Return whether a table has a store, as an argument."""
    if parent.step.shape != "table" or parent.is_versioned:
        return {}
    return {"stored": must or draw.happens(0.25)}


def _map_values(draw: Drawing) -> Node:
    parent = draw.table() if draw.happens(0.3) else draw.stream()
    f = draw.one_of("increment", "number", "text", "decorate", "null_if_odd")
    stored = _stored(draw, parent)
    return draw.add(
        "map_values",
        [parent],
        {"f": f, **stored},
        parent.step.shape,
        value=_RESULT_OF.get(f, ""),
        versioned=parent.is_versioned,
        close_known=parent.is_close_known,
        sends_wrong_olds=parent.sends_wrong_olds and not stored.get("stored", False),
    )


def _map(draw: Drawing) -> Node:
    f = draw.one_of("letter_and_text", "letter_and_number")
    return draw.add(
        "map",
        [draw.stream()],
        {"f": f},
        "stream",
        key="string",
        value=_RESULT_OF[f],
        keeps_window=False,
        hop=True,
    )


def _flat_map(draw: Drawing) -> Node:
    f = draw.one_of("both_letters", "numbers")
    return draw.add(
        "flat_map",
        [draw.stream()],
        {"f": f},
        "stream",
        key="string",
        value=_RESULT_OF[f],
        keeps_window=False,
        hop=True,
        multiple=True,
    )


def _flat_map_values(draw: Drawing) -> Node:
    f = draw.one_of("twice", "letters", "countdown")
    value = _RESULT_OF.get(f, "")
    return draw.add(
        "flat_map_values", [draw.stream()], {"f": f}, "stream", value=value, multiple=True
    )


def _select_key(draw: Drawing) -> Node:
    parent = draw.stream()
    f, key = _key_mapper(draw, parent)
    return draw.add(
        "select_key", [parent], {"f": f}, "stream", key=key, keeps_window=False, hop=True
    )


def _key_mapper(draw: Drawing, parent: Node) -> tuple[str, str]:
    if not parent.has_plain_keys and draw.happens(0.4):
        return "inner_key", parent.step.key
    f = str(draw.one_of("letter", "letter", "letter_or_null", "key_text", "key_number"))
    return f, _RESULT_OF[f]


def _peek(draw: Drawing) -> Node:
    return draw.add("peek", [draw.stream()], {}, "stream")


def _merge(draw: Drawing) -> Node:
    left = draw.stream()
    right = draw.pick(
        "stream",
        lambda node: node.step.type == left.step.type and node != left and may_meet(left, node),
    )
    if right is None:
        left = draw.stream(_is_plain)
        right = draw.source("stream", "stream", left.step.key)
        if right.step.value != left.step.value:
            # Any value has a text and a number.
            f = "text" if left.step.value == "string" else "number"
            right = draw.add("map_values", [right], {"f": f}, "stream", value=left.step.value)
    return draw.add("merge", [left, right], {}, "stream")


def _split(draw: Drawing) -> Node:
    count = draw.one_of(1, 2, 3)
    fs = draw.random.sample(PREDICATES, count)
    branches = [{"name": f"b{number}", "f": f} for number, f in enumerate(fs)]
    default = "rest" if draw.happens(0.6) else None
    split = draw.add("split", [draw.stream()], {"branches": branches, "default": default}, "split")
    names = [branch["name"] for branch in branches] + ([default] if default else [])
    return [draw.add("branch", [split], {"branch": name}, "stream") for name in names][-1]


def _repartition(draw: Drawing) -> Node:
    return draw.add("repartition", [draw.stream(_is_plain)], {}, "stream", hop=True)


def _to_table(draw: Drawing) -> Node:
    return draw.add("to_table", [draw.stream(_is_plain)], {}, "table", hop=True)


def _to_stream(draw: Drawing) -> Node:
    return draw.add("to_stream", [draw.table()], {}, "stream")


# Aggregates


def _group(draw: Drawing, parent: Node | None = None) -> Node:
    """Add a group; whether it has an internal topic hangs on the steps ahead, so it may."""
    parent = parent or draw.stream()
    if parent.has_plain_keys and draw.happens(0.5):
        return draw.add("group_by_key", [parent], {}, "group", hop=True)
    f, key = _key_mapper(draw, parent)
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
    return ({**args, "merger": fs[0]} if sessions else args), _RESULT_OF[initial]


def _count(draw: Drawing) -> Node:
    group = _group(draw)
    args, value = _how(draw, group.step.value)
    sends_wrong_olds = args["how"] != "reduce"
    return draw.add(
        "aggregate", [group], args, "table", value=value, sends_wrong_olds=sends_wrong_olds
    )


def _tumbling(draw: Drawing) -> Node:
    size_ms = draw.ms(5, 10, 20)
    return _windowed(draw, _times(draw, size_ms, size_ms))


def _hopping(draw: Drawing) -> Node:
    size, advance = draw.one_of((10, 5), (20, 5), (12, 5), (10, 3))
    return _windowed(draw, _times(draw, size * draw.scale, advance * draw.scale))


def _times(draw: Drawing, size_ms: int, advance_ms: int) -> dict[str, Any]:
    grace_ms = _grace_ms(draw)
    return {"kind": "time", "size_ms": size_ms, "advance_ms": advance_ms, "grace_ms": grace_ms}


def _grace_ms(draw: Drawing) -> int:
    return draw.ms(0, 2, 5, 30)


def _sliding(draw: Drawing) -> Node:
    difference_ms = draw.ms(3, 5, 10)
    window = {"kind": "sliding", "difference_ms": difference_ms, "grace_ms": _grace_ms(draw)}
    return _windowed(draw, window)


def _session(draw: Drawing) -> Node:
    window = {"kind": "session", "gap_ms": draw.ms(1, 3, 8), "grace_ms": _grace_ms(draw)}
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
        close_known=True,
        sends_wrong_olds=args["how"] != "reduce" or window["kind"] == "session",
    )


def _windowed_key(window: Mapping[str, Any]) -> dict[str, Any]:
    if window["kind"] == "session":
        return {"kind": "session"}
    size_ms = window["difference_ms"] if window["kind"] == "sliding" else window["size_ms"]
    return {"kind": "time", "size_ms": size_ms}


def _cogroup(draw: Drawing) -> Node:
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
    value = _RESULT_OF[initial]
    if draw.happens(0.4):
        return draw.add("cogroup", groups, args, "table", value=value, sends_wrong_olds=True)
    kind = draw.one_of("time", "sliding", "session")
    size_ms, grace_ms = draw.ms(5, 10), _grace_ms(draw)
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
        close_known=True,
        sends_wrong_olds=True,
    )


def _table_aggregate(draw: Drawing) -> Node:
    f = draw.one_of("letter_and_text", "letter_and_number", "letter_or_nothing")
    group = draw.add(
        "table_group_by",
        [draw.with_old_values(draw.table())],
        {"f": f},
        "table_group",
        key="string",
        value=_RESULT_OF[f],
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


# Joins


def _joiner(draw: Drawing) -> tuple[str, str]:
    f = str(draw.one_of("pair", "pair", "pair", "sum", "sum_or_null"))
    return f, _RESULT_OF[f]


def _stream_join(draw: Drawing) -> Node:
    left = draw.stream(_is_plain)
    right = draw.stream(
        lambda node: (
            _plain_with(left.step.key)(node)
            and may_meet(left, node)
            and (not left.origins & node.origins or draw.happens(0.3))
        ),
        key=left.step.key,
    )
    f, value = _joiner(draw)
    before_ms, after_ms = draw.one_of((3, 3), (10, 10), (0, 10), (10, 0), (0, 0), (3, 8))
    args = {
        "kind": draw.one_of("inner", "left", "outer"),
        "f": f,
        "before_ms": before_ms * draw.scale,
        "after_ms": after_ms * draw.scale,
        # Kafka Streams keeps records for the window and its grace: if both are 0, not at all.
        "grace_ms": _grace_ms(draw) if before_ms + after_ms else draw.ms(2, 5, 30),
    }
    return draw.add(
        "stream_join", [left, right], args, "stream", value=value, hop=True, multiple=True
    )


def _table_lookup(draw: Drawing) -> Node:
    stream = draw.stream(_is_plain)
    table = draw.table(
        lambda node: _plain_with(stream.step.key)(node) and may_meet(stream, node),
        key=stream.step.key,
    )
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "grace_ms": None}
    return draw.add("table_lookup", [stream, table], args, "stream", value=value, hop=True)


def _table_lookup_with_grace(draw: Drawing) -> Node:
    """Add a join that waits for the table.

    Only a source may be the table: a step after it has no store with versions. A left join that is
    to wait with a record without a key ends Kafka Streams 4.3 with a NullPointerException.
    """
    stream = _kept(draw, "filter", draw.stream(_is_plain), "has_key")
    history_ms = draw.ms(10, 50)
    table = draw.source("table", "table", stream.step.key, history_ms)
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "grace_ms": draw.ms(0, 2, 5, 10)}
    return draw.add(
        "table_lookup", [stream, table], args, "stream", value=value, hop=True, multiple=True
    )


def _global_lookup(draw: Drawing) -> Node:
    stream = draw.stream()
    key = "key_text" if stream.step.key == "string" and stream.has_plain_keys else "letter"
    mapper = str(draw.one_of(key, key, "letter_or_null", "key_number"))
    table = draw.pick("global", lambda node: node.step.key == _RESULT_OF[mapper])
    table = table or draw.source("global_table", "global", _RESULT_OF[mapper])
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "key": mapper}
    return draw.add("global_lookup", [stream, table], args, "stream", value=value)


def _table_join(draw: Drawing) -> Node:
    left = draw.table(_is_plain)
    right = draw.table(
        lambda node: (
            node is not left
            and _plain_with(left.step.key)(node)
            and (may_meet(left, node) and (not left.origins & node.origins or draw.happens(0.2)))
        ),
        key=left.step.key,
    )
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left", "outer"), "f": f, "stored": draw.happens(0.25)}
    left, right = draw.with_old_values(left), draw.with_old_values(right)
    return draw.add("table_join", [left, right], args, "table", value=value)


def _foreign_key_join(draw: Drawing) -> Node:
    """One input leads to one change on either side, or stale answers hang on the order."""
    left = draw.table(lambda node: node.has_plain_keys and not node.is_multiple)
    foreign_key = str(draw.one_of("letter", "letter", "letter_or_null", "key_number"))
    key = _RESULT_OF[foreign_key]
    right = draw.table(
        lambda node: (
            _plain_with(key)(node) and not node.is_multiple and not left.origins & node.origins
        ),
        key=key,
    )
    f, value = _joiner(draw)
    args = {"kind": draw.one_of("inner", "left"), "f": f, "foreign_key": foreign_key}
    left, right = draw.with_old_values(left), draw.with_old_values(right)
    return draw.add(
        "foreign_key_join",
        [left, right],
        args,
        "table",
        value=value,
        hop=True,
        multiple=True,
    )


# Suppress. Limits in bytes are left out: they count the bytes of Java's buffer entries.


def _suppress_until_close(draw: Drawing) -> Node:
    table = draw.pick("table", lambda node: node.is_close_known)
    table = table or draw.one_of(_tumbling, _hopping, _sliding, _session)(draw)
    args = {"wait_ms": None, "max_records": draw.one_of(None, None, 4), "when_full": "fail"}
    return draw.add(
        "suppress",
        [table],
        args,
        "table",
        multiple=True,
        close_known=True,
        sends_wrong_olds=table.sends_wrong_olds,
    )


def _suppress_for_a_time(draw: Drawing) -> Node:
    table = draw.table(lambda node: not node.is_versioned)
    if table.is_versioned:
        table = draw.source("table", "table")
    args = {
        "wait_ms": draw.ms(0, 5, 20),
        "max_records": draw.one_of(None, 1, 2),
        "when_full": draw.one_of("emit", "emit", "fail"),
    }
    return draw.add(
        "suppress",
        [table],
        args,
        "table",
        multiple=True,
        close_known=table.is_close_known,
        sends_wrong_olds=table.sends_wrong_olds,
    )


OPERATORS: Mapping[str, tuple[int, Operator]] = {
    "filter": (3, _filter),
    "map_values": (3, _map_values),
    "map": (1, _map),
    "flat_map": (1, _flat_map),
    "flat_map_values": (1, _flat_map_values),
    "select_key": (3, _select_key),
    "peek": (1, _peek),
    "merge": (2, _merge),
    "split": (2, _split),
    "repartition": (1, _repartition),
    "to_table": (2, _to_table),
    "to_stream": (3, _to_stream),
    "count": (3, _count),
    "tumbling": (3, _tumbling),
    "hopping": (3, _hopping),
    "sliding": (3, _sliding),
    "session": (3, _session),
    "cogroup": (3, _cogroup),
    "table_aggregate": (3, _table_aggregate),
    "stream_join": (5, _stream_join),
    "table_lookup": (3, _table_lookup),
    "table_lookup_with_grace": (2, _table_lookup_with_grace),
    "global_lookup": (2, _global_lookup),
    "table_join": (4, _table_join),
    "foreign_key_join": (3, _foreign_key_join),
    "suppress_until_close": (2, _suppress_until_close),
    "suppress_for_a_time": (2, _suppress_for_a_time),
}
"""Each with the weight of its being drawn."""
