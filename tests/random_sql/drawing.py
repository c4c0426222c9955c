"""Draws queries from seeds: one shape after the other, all other choices at random.

A new shape of query is one more function in `SHAPES`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.random_sql.aggregates import ROUNDED, Aggregates, Records, around
from tests.random_sql.drawn_changes import grouped_changes, joined_changes
from tests.random_sql.drawn_joins import join, joined_groups, regular_join
from tests.random_sql.drawn_windows import GRACE_MIN, table_function, window, window_of_changes
from tests.random_sql.expressions import Drawing, Expression, column
from tests.random_sql.nesting import again
from tests.random_sql.queries import Item, Query, Shape, Window
from tests.random_sql.sources import (
    AS_NORMALIZED,
    Source,
    columns,
    conditions,
    grouping,
    key_of_groups,
)

_DESCENDING = ("INT", "DOUBLE", "DECIMAL", "STRING", "TIMESTAMP", "BOOLEAN", "BIGINT", "DATE")


def _rows(chance: random.Random) -> Query:
    source = Source(chance, joins=True)
    drawing = Drawing(chance, source.columns)
    if source.sql == "input" and chance.random() < 0.1:
        settings = source.settings()
        return Query(Shape.ROWS, items=(), where=conditions(chance, drawing), **settings)
    key = chance.choice((None, source.key, drawing.expression("STRING")))
    return Query(
        Shape.ROWS,
        items=columns(chance, drawing),
        key=key,
        where=conditions(chance, drawing),
        **source.settings(),
    )


def _groups(chance: random.Random) -> Query:
    return _grouped(chance, Source(chance, joins=True), None)


def _windows(chance: random.Random) -> Query:
    source = Source(chance, joins=True)
    return _grouped(chance, source, window(chance, source, sessions=True))


def _table_functions(chance: random.Random) -> Query:
    source = Source(chance, joins=False, explodes=False)
    key, others = source.key, tuple(source.columns)
    groups = tuple(
        {each: column(each, source.columns[each]) for each in (key.sql, *others)}.values()
    )
    groups = tuple(each for each in groups if each.kind in ("STRING", "INT", "BOOLEAN"))
    groups = tuple(chance.sample(groups, chance.randint(1, min(2, len(groups)))))
    found = table_function(chance, source, groups)
    return _grouped(chance, source, found, groups)


def _grouped(
    chance: random.Random,
    source: Source,
    window: Window | None,
    groups: tuple[Expression, ...] = (),
) -> Query:
    drawing = Drawing(chance, source.columns)
    groups = groups or grouping(chance, drawing, source.key, AS_NORMALIZED)
    ordered = any(each.sql == source.key.sql for each in groups)
    ordered = ordered and not (window is not None and window.is_session)
    records = Records.ORDERED if ordered else Records.UNORDERED
    aggregates = Aggregates(chance, drawing, source.prefix, records)
    items = [Item(f"v{place}", aggregates.one()) for place in range(chance.randint(1, 4))]
    if window is not None and chance.random() < 0.5:
        border = chance.choice((window.start, window.end))
        items.append(Item("border", Expression(border, "TIMESTAMP")))
    if chance.random() < 0.5:
        items.append(Item("g", groups[0]))
    having = aggregates.having()
    outer = ("v0 IS NOT NULL",) if chance.random() < 0.15 else ()
    key = key_of_groups(groups, window)
    deletes = having or outer  # and nothing deletes the result of a key that is null
    if len(groups) == 1 and window is None and groups[0].kind == "STRING" and not deletes:
        key = chance.choice((key, groups[0]))
    return Query(
        Shape.GROUPS,
        items=tuple(items),
        key=key,
        where=conditions(chance, drawing),
        groups=groups,
        window=window,
        having=having,
        outer=outer,
        on_close=window is not None and chance.random() < 0.5,
        grace_min=GRACE_MIN if window is not None else None,
        is_ordered=aggregates.is_ordered,
        **source.settings(),
    )


def _changes(chance: random.Random) -> Query:
    """Draw groups of upserts."""
    source = Source(chance, joins=False)
    drawing = Drawing(chance, source.columns)
    groups = grouping(chance, drawing, source.key, AS_NORMALIZED)
    aggregates = Aggregates(chance, drawing, records=Records.CHANGES)
    found = window_of_changes(chance, source)
    return Query(
        Shape.GROUPS,
        items=tuple(Item(f"v{place}", aggregates.one()) for place in range(chance.randint(1, 4))),
        key=key_of_groups(groups, found),
        where=conditions(chance, drawing),
        groups=groups,
        window=found,
        having=aggregates.having(),
        changelog=True,
        **source.settings(),
    )


def _distinct(chance: random.Random) -> Query:
    source = Source(chance, joins=True)
    drawing = Drawing(chance, source.columns)
    found = window(chance, source) if not source.prefix and chance.random() < 0.5 else None
    key = chance.choice((None, source.key))
    return Query(
        Shape.DISTINCT,
        items=columns(chance, drawing, 2),
        key=key,
        where=conditions(chance, drawing),
        groups=() if key is None else (key,),
        window=found,
        on_close=found is not None and chance.random() < 0.5,
        grace_min=GRACE_MIN if found is not None else None,
        **source.settings(),
    )


def _distinct_changes(chance: random.Random) -> Query:
    """Draw the different rows of upserts; the key has all columns."""
    source = Source(chance, joins=False)
    drawing = Drawing(chance, source.columns)
    found = grouping(chance, drawing, source.key)
    return Query(
        Shape.DISTINCT,
        items=tuple(Item(f"v{place}", each) for place, each in enumerate(found)),
        key=key_of_groups(found),
        where=conditions(chance, drawing),
        changelog=True,
        **source.settings(),
    )


def _best(chance: random.Random) -> Query:
    return _placed(chance, "row_number")


def _ranks(chance: random.Random) -> Query:
    return _placed(chance, chance.choice(("rank", "dense_rank")))


def _best_changes(chance: random.Random) -> Query:
    """Draw the best rows of upserts."""
    function = chance.choice(("row_number", "row_number", "rank", "dense_rank"))
    return _placed(chance, function, changelog=True)


def _placed(chance: random.Random, function: str, *, changelog: bool = False) -> Query:
    source = Source(chance, joins=False, explodes=False)
    drawing = Drawing(chance, source.columns)
    groups = grouping(chance, drawing, source.key)
    if changelog and function != "row_number":
        # The key is the name of a row in its group.
        others = (each for each in groups if each.sql != source.key.sql)
        groups = tuple(others) or (drawing.varying("INT", 1),)
    found = window(chance, source) if not changelog and chance.random() < 0.6 else None
    order = tuple(
        f"({drawing.any(1, _DESCENDING).sql}) {chance.choice(('', 'DESC'))}"
        f"{chance.choice(('', '', ' NULLS FIRST', ' NULLS LAST'))}"
        for _ in range(chance.choice((1, 1, 2)))
    )
    limits = (
        *("place = 1", "place <= 2", "place < 4", "place BETWEEN 1 AND 2", "place IN (1, 3)"),
        *("", "place >= 2"),
    )
    # Without a window in the key, a row is known by its place and PARTITION BY.
    on_close = found is not None
    return Query(
        Shape.BEST,
        items=columns(chance, drawing, 3),
        where=conditions(chance, drawing),
        groups=groups,
        window=found,
        order=order,
        function=function,
        naming="key" if changelog else "offset",
        limit=chance.choice(limits),
        changelog=changelog,
        outer=("v0 IS NOT NULL",) if chance.random() < 0.2 else (),
        on_close=on_close,
        grace_min=GRACE_MIN if found is not None else None,
        **source.settings(),
    )


_AGGREGATES_OVER = (
    *("sum", "count", "avg", "min", "max", "stddev"),
    *("first_value", "last_value", "sort_array(collect_list"),
)
_ROWS = (
    *("1 PRECEDING AND CURRENT ROW", "3 PRECEDING AND 1 PRECEDING", "2 PRECEDING AND CURRENT ROW"),
    *("CURRENT ROW AND CURRENT ROW", "4 PRECEDING AND 4 PRECEDING"),
)
_TIMES = ("INTERVAL '1 hour'", "INTERVAL 20 MINUTES", "INTERVAL '3' DAY")
_KINDS_OVER = ("INT", "DOUBLE", "DECIMAL", "STRING", "BIGINT", "BOOLEAN", "DATE")
_SUMMED = ("sum", "avg", "stddev")
_RESULTS_OVER = {
    "count": "BIGINT",
    "avg": "DOUBLE",
    "stddev": ROUNDED,
    "sort_array(collect_list": "LIST",
}


def _frames(chance: random.Random) -> Query:
    """Draw `OVER (…)`."""
    source = Source(chance, joins=False, explodes=False)
    drawing = Drawing(chance, source.columns)
    found = grouping(chance, drawing, source.key, AS_NORMALIZED)
    groups = {each.sql: each for each in (source.key, *found)}
    by = ", ".join(groups)
    items = list(columns(chance, drawing, 2))
    for place in range(len(items), len(items) + chance.randint(1, 3)):
        framed = _framed(chance, drawing, by)
        if chance.random() < 0.35 and (parts := around(framed.kind)):
            template, kinds, kind = chance.choice(parts)
            others = tuple(drawing.varying(each, 1) for each in kinds)
            framed = Expression(template, kind or framed.kind, (framed, *others))
        items.append(Item(f"v{place}", framed))
    above = f"v{len(items) - 1} IS NOT NULL"
    return Query(
        Shape.OVER,
        items=tuple(items),
        key=source.key,
        where=conditions(chance, drawing),
        groups=tuple(groups.values()),
        outer=(above,) if chance.random() < 0.2 else (),
        grace_min=GRACE_MIN,
        **source.settings(),
    )


def _framed(chance: random.Random, drawing: Drawing, by: str) -> Expression:
    by = by.replace("{", "{{").replace("}", "}}")
    if chance.random() < 0.25:
        argument = drawing.any(1, _KINDS_OVER)
        lag = chance.choice(("lag({0})", "lag({0}, 2)", "lag({0}, 1, {0})"))
        over = f"{lag} OVER (PARTITION BY {by} ORDER BY timestamp«ties»)"
        return Expression(over, argument.kind, (argument,))
    function = chance.choice(_AGGREGATES_OVER)
    kinds = ("INT",) if function in _SUMMED else _KINDS_OVER
    argument = drawing.expression(chance.choice(kinds), 1)
    if function in _SUMMED and chance.random() < 0.5:
        argument = drawing.leaf(chance.choice(("DOUBLE", "DECIMAL", "BIGINT")))
    frame = f"«ties» ROWS BETWEEN {chance.choice(_ROWS)}"
    # Rows of one time have no order in a frame by time.
    if not function.endswith("_value") and chance.random() < 0.5:
        reach = chance.choice(_TIMES)
        end = chance.choice(("CURRENT ROW", "CURRENT ROW", "INTERVAL '2' MINUTE PRECEDING"))
        frame = f" RANGE BETWEEN {reach} PRECEDING AND {end}"
    over = f"OVER (PARTITION BY {by} ORDER BY timestamp{frame})"
    call = f"{function}({{0}}) {over}"
    if "(" in function:
        call = f"{function}({{0}}) {over})"
    kind = _RESULTS_OVER.get(function, argument.kind)
    return Expression(call, kind, (argument,))


def _nested(chance: random.Random) -> Query:
    """Draw groups of results: in one query, or in the next processor."""
    draw = chance.choice((_groups, _groups, _windows, _best, _distinct, join, regular_join))
    return again(chance, lambda: draw(chance))


def _chains(chance: random.Random) -> Query:
    """Draw groups of upserts that another processor gives."""
    of_changes = (_changes, _distinct_changes, joined_changes)
    draw = chance.choice((_groups, _groups, _windows, _best, regular_join, *of_changes))
    return again(chance, lambda: draw(chance), processors=chance.choice((2, 2, 3)))


SHAPES: Mapping[str, Callable[[random.Random], Query]] = {
    "rows": _rows,
    "groups": _groups,
    "windows": _windows,
    "functions": _table_functions,
    "distinct": _distinct,
    "best": _best,
    "ranks": _ranks,
    "join": join,
    "regular": regular_join,
    "joined": joined_groups,
    "over": _frames,
    "changes": _changes,
    "best_changes": _best_changes,
    "distinct_changes": _distinct_changes,
    "joined_changes": joined_changes,
    "grouped_changes": grouped_changes,
    "nested": _nested,
    "chains": _chains,
}


def draw_query(seed: int, shapes: tuple[str, ...] = tuple(SHAPES)) -> Query:
    """Return the query of a seed; that of seed n has the shape n, one after the other."""
    name = shapes[seed % len(shapes)]
    return SHAPES[name](random.Random(f"query {name} {seed}"))
