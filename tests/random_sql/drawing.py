"""Draws queries from seeds: one shape after the other, all other choices at random.

A new shape of query is one more function in `SHAPES`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.random_sql.aggregates import Aggregates
from tests.random_sql.expressions import ARRAYS, Drawing, Expression, column, kind_of
from tests.random_sql.queries import Item, Query, Shape, Window
from tests.random_sql.values import COLUMNS

GRACE_MIN = 60
TABLE = {"city": "STRING", "level": "INT"}
_GROUPABLE = ("STRING", "INT", "BIGINT", "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP")
_WINDOWS = (
    Window("window(timestamp, '1 hour')"),
    Window("window(timestamp, '10 minutes')"),
    Window("window(timestamp, '1 day')"),
    Window("window(timestamp, '1 hour', '20 minutes')"),
    Window("window(timestamp, '1 hour', '20 minutes', '5 minutes')"),
    Window("window(timestamp, '1 hour', '1 hour', '15 minutes')"),
)
_SESSION = Window("session_window(timestamp, '9 minutes')", "session_window", is_session=True)


class _Source:
    """What a query reads: the text after FROM, and the columns in sight."""

    def __init__(self, chance: random.Random, *, joins: bool) -> None:
        names = chance.sample([*COLUMNS], chance.randint(3, 7))
        self.schema = {name: COLUMNS[name] for name in COLUMNS if name in names}
        self.topic_tables: dict[str, Mapping[str, str]] = {}
        self.files: dict[str, tuple[str, ...]] = {}
        self.prefix = ""
        self.sql = "input"
        self.columns = {name: kind_of(type_) for name, type_ in self.schema.items()}
        self.nesting = chance.choice(("", "", "", "cte", "subquery"))
        arrays = [name for name, kind in self.columns.items() if kind in ARRAYS]
        if joins and chance.random() < 0.3:
            self._join(chance)
        elif arrays and chance.random() < 0.4:
            self._explode(chance, chance.choice(arrays))
        self.columns[f"{self.prefix}key"] = "STRING"

    def _explode(self, chance: random.Random, name: str) -> None:
        outer = chance.choice(("", "_outer"))
        if chance.random() < 0.5:
            self.sql = f"input LATERAL VIEW explode{outer}({name}) e AS one"
        else:
            self.sql = f"(SELECT *, explode{outer}({name}) AS one FROM input)"
        self.columns["one"] = ARRAYS[self.columns[name]]

    def _join(self, chance: random.Random) -> None:
        self.prefix, self.nesting = "i.", ""
        self.columns = {f"i.{name}": kind for name, kind in self.columns.items()}
        how = chance.choice(("", "LEFT ", "LEFT ", "INNER ", "LEFT SEMI ", "LEFT ANTI "))
        if chance.random() < 0.5:
            self.topic_tables = {"customers": TABLE}
            on = "i.key = c.key«asof c»" + chance.choice(("", " AND c.level > 1"))
            found, alias = TABLE, "c"
        else:
            self.files = {"products": _lines(chance)}
            on = "i.key = c.code" + chance.choice(("", " AND c.price >= 1"))
            found, alias = {"name": "STRING", "level": "INT", "price": "DECIMAL"}, "c"
        name = "customers" if self.topic_tables else "products"
        if how in ("", "INNER ", "LEFT ") and chance.random() < 0.3:
            turned = "RIGHT " if how == "LEFT " else how
            self.sql = f"{name} {alias} {turned}JOIN input i ON {on}"
        else:
            self.sql = f"input i {how}JOIN {name} {alias} ON {on}"
        if how not in ("LEFT SEMI ", "LEFT ANTI "):
            self.columns |= {f"{alias}.{each}": kind_of(kind) for each, kind in found.items()}

    def settings(self) -> dict[str, Any]:
        """Return what a query takes from its source."""
        return {
            "source": self.sql,
            "inputs": {"in": self.schema},
            "topic_tables": self.topic_tables,
            "files": self.files,
            "nesting": self.nesting,
        }


def _lines(chance: random.Random) -> tuple[str, ...]:
    """Return a lookup table as CSV; some codes are there twice, or are null."""
    codes = [chance.choice(("a", "b", "c", "d", "é", "")) for _ in range(chance.randint(0, 6))]
    return tuple(
        f"{code},{chance.choice(('pear', 'fig', ''))},{chance.choice((1, 2, ''))},"
        f"{chance.choice(('1.25', '0.5', ''))}"
        for code in codes
    )


def _where(chance: random.Random, drawing: Drawing) -> tuple[Expression, ...]:
    return tuple(drawing.condition() for _ in range(chance.choice((0, 0, 1, 1, 2))))


def _items(chance: random.Random, drawing: Drawing, most: int = 4) -> tuple[Item, ...]:
    return tuple(
        Item(f"v{place}", drawing.any(chance.choice((0, 1, 2, 3))))
        for place in range(chance.randint(1, most))
    )


def _rows(chance: random.Random) -> Query:
    source = _Source(chance, joins=True)
    drawing = Drawing(chance, source.columns)
    if source.sql == "input" and chance.random() < 0.1:
        settings = source.settings()
        return Query(Shape.ROWS, items=(), where=_where(chance, drawing), **settings)
    key = chance.choice(
        (None, column(f"{source.prefix}key", "STRING"), drawing.expression("STRING"))
    )
    return Query(
        Shape.ROWS,
        items=_items(chance, drawing),
        key=key,
        where=_where(chance, drawing),
        **source.settings(),
    )


def _grouping(chance: random.Random, source: _Source, drawing: Drawing) -> tuple[Expression, ...]:
    """Return grouping columns: often the key, in a third of the cases expressions."""
    key = column(f"{source.prefix}key", "STRING")
    names = [name for name, kind in source.columns.items() if kind in _GROUPABLE]
    found = [key] if chance.random() < 0.5 else []
    for _ in range(chance.choice((0, 1, 1, 2) if found else (1, 1, 2))):
        if chance.random() < 0.3:
            found.append(drawing.varying(chance.choice(_GROUPABLE), 1))
        else:
            name = chance.choice(names)
            found.append(column(name, source.columns[name]))
    return tuple({each.sql: each for each in found}.values())


def _group_key(groups: tuple[Expression, ...], window: Window | None) -> Expression:
    """Return a key that is made of the grouping columns."""
    if len(groups) == 1 and window is None and groups[0].kind == "STRING":
        return groups[0]
    parts = [f"coalesce(CAST({each.sql} AS STRING), '~')" for each in groups]
    parts += [] if window is None else [f"CAST({window.column}.start AS STRING)"]
    return Expression(f"concat_ws('|', {', '.join(parts)})".replace("{", "{{"), "STRING")


def _groups(chance: random.Random) -> Query:
    return _grouped(chance, None)


def _windows(chance: random.Random) -> Query:
    return _grouped(chance, chance.choice((*_WINDOWS, _SESSION, _SESSION)))


def _grouped(chance: random.Random, window: Window | None) -> Query:
    source = _Source(chance, joins=True)
    drawing = Drawing(chance, source.columns)
    groups = _grouping(chance, source, drawing)
    if window is not None and source.prefix:
        window = Window(
            window.sql.replace("(timestamp", f"({source.prefix}timestamp"),
            window.column,
            window.is_session,
        )
    ordered = any(each.sql == f"{source.prefix}key" for each in groups)
    ordered = ordered and not (window is not None and window.is_session)
    aggregates = Aggregates(chance, drawing, source.prefix, ordered=ordered)
    items = [Item(f"v{place}", aggregates.one()) for place in range(chance.randint(1, 4))]
    if window is not None and chance.random() < 0.5:
        side = chance.choice(("start", "end"))
        items.append(Item("border", Expression(f"{window.column}.{side}", "TIMESTAMP")))
    if chance.random() < 0.5:
        items.append(Item("g", groups[0]))
    having: tuple[str, ...] = chance.choice(
        ((), (), ("count(*) > 1",), ("count(*) % 2 = 1",), ("max(length(key)) > 0",))
    )
    having = tuple(each.replace("key", f"{source.prefix}key") for each in having)
    outer: tuple[str, ...] = ("v0 IS NOT NULL",) if chance.random() < 0.15 else ()
    return Query(
        Shape.GROUPS,
        items=tuple(items),
        key=_group_key(groups, window),
        where=_where(chance, drawing),
        groups=groups,
        window=window,
        having=having,
        outer=outer,
        on_close=window is not None and chance.random() < 0.5,
        grace_min=GRACE_MIN if window is not None else None,
        is_ordered=aggregates.is_ordered,
        **source.settings(),
    )


def _distinct(chance: random.Random) -> Query:
    source = _Source(chance, joins=True)
    drawing = Drawing(chance, source.columns)
    window = chance.choice((None, None, *_WINDOWS)) if not source.prefix else None
    key = chance.choice((None, column(f"{source.prefix}key", "STRING")))
    return Query(
        Shape.DISTINCT,
        items=_items(chance, drawing, 2),
        key=key,
        where=_where(chance, drawing),
        groups=() if key is None else (key,),
        window=window,
        on_close=window is not None and chance.random() < 0.5,
        grace_min=GRACE_MIN if window is not None else None,
        **source.settings(),
    )


def _best(chance: random.Random) -> Query:
    source = _Source(chance, joins=False)
    source.sql, source.columns = "input", {k: v for k, v in source.columns.items() if k != "one"}
    drawing = Drawing(chance, source.columns)
    window = chance.choice((None, None, *_WINDOWS))
    down = ("INT", "DOUBLE", "DECIMAL", "STRING", "TIMESTAMP", "BOOLEAN", "BIGINT", "DATE")
    orders = []
    for _ in range(chance.choice((1, 1, 2))):
        sql = drawing.any(1, down).sql
        orders.append(
            f"({sql}) {chance.choice(('', 'DESC'))}"
            f"{chance.choice(('', '', ' NULLS FIRST', ' NULLS LAST'))}"
        )
    return Query(
        Shape.BEST,
        items=_items(chance, drawing, 3),
        where=_where(chance, drawing),
        groups=_grouping(chance, source, drawing),
        window=window,
        order=tuple(orders),
        places=chance.choice((1, 2, 3)),
        on_close=window is not None,
        grace_min=GRACE_MIN if window is not None else None,
        **source.settings(),
    )


_BOUNDS = (
    "p.timestamp BETWEEN o.timestamp - INTERVAL 5 MINUTES AND o.timestamp + INTERVAL 10 MINUTES",
    "p.timestamp > o.timestamp AND o.timestamp + INTERVAL '1 hour' > p.timestamp",
    "p.timestamp - INTERVAL 2 MINUTES >= o.timestamp AND p.timestamp <= o.timestamp + INTERVAL 9 "
    "MINUTES",
    "o.timestamp = p.timestamp",
)


def _joins(chance: random.Random) -> Query:
    schemas = {}
    columns: dict[str, str] = {}
    sides = {}
    for topic, alias in (("orders", "o"), ("payments", "p")):
        names = chance.sample([*COLUMNS], chance.randint(2, 4))
        schemas[topic] = {name: COLUMNS[name] for name in COLUMNS if name in names}
        columns |= {f"{alias}.{name}": kind_of(each) for name, each in schemas[topic].items()}
        sides[alias] = topic
        arrays = [name for name in names if COLUMNS[name] in ARRAYS]
        if chance.random() < 0.3:
            inner = Drawing(chance, {n: kind_of(t) for n, t in schemas[topic].items()})
            sides[alias] = f"(SELECT * FROM {topic} WHERE {inner.condition().sql})"
        elif arrays and chance.random() < 0.5:
            sides[alias] = f"(SELECT *, explode_outer({arrays[0]}) AS one FROM {topic})"
            columns[f"{alias}.one"] = ARRAYS[COLUMNS[arrays[0]]]
    drawing = Drawing(chance, columns)
    how = chance.choice(("", "LEFT ", "RIGHT ", "FULL "))
    extra = f" AND ({drawing.condition().sql})" if chance.random() < 0.4 else ""
    source = (
        f"{sides['o']} o {how}JOIN {sides['p']} p ON o.key = p.key AND {chance.choice(_BOUNDS)}"
    )
    return Query(
        Shape.JOIN,
        source=f"{source}{extra}",
        inputs=schemas,
        items=_items(chance, drawing),
        key=chance.choice((None, Expression("coalesce(o.key, p.key)", "STRING"))),
        where=_where(chance, drawing) if chance.random() < 0.5 else (),
        grace_min=GRACE_MIN,
    )


SHAPES: Mapping[str, Callable[[random.Random], Query]] = {
    "rows": _rows,
    "groups": _groups,
    "windows": _windows,
    "distinct": _distinct,
    "best": _best,
    "join": _joins,
}


def draw_query(seed: int, shapes: tuple[str, ...] = tuple(SHAPES)) -> Query:
    """Return the query of a seed; that of seed n has the shape n, one after the other."""
    name = shapes[seed % len(shapes)]
    return SHAPES[name](random.Random(f"query {name} {seed}"))
