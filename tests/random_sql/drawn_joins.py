"""Draws joins of two inputs, with bounds of time and without."""

from __future__ import annotations

import random
from typing import Any

from tests.random_sql.aggregates import Aggregates, Records
from tests.random_sql.drawn_windows import GRACE_MIN
from tests.random_sql.expressions import ARRAYS, Drawing, Expression, column, kind_of
from tests.random_sql.queries import SEPARATOR, Item, Query, Shape, Window
from tests.random_sql.sources import columns, conditions, grouping, key_of_groups
from tests.random_sql.values import COLUMNS

BOUNDS = (
    "p.timestamp BETWEEN o.timestamp - INTERVAL 5 MINUTES AND o.timestamp + INTERVAL 10 MINUTES",
    "p.timestamp > o.timestamp AND o.timestamp + INTERVAL '1 hour' > p.timestamp",
    "p.timestamp - INTERVAL 2 MINUTES >= o.timestamp AND p.timestamp <= o.timestamp + INTERVAL 9 "
    "MINUTES",
    "o.timestamp = p.timestamp",
    "p.timestamp - o.timestamp BETWEEN -INTERVAL 3 MINUTES AND INTERVAL '0:07' HOUR TO MINUTE",
)
_SIZES = ("'1 hour'", "'10 minutes'", "'1 hour', '20 minutes'")
_NEVER_LATE_MIN = 400 * 24 * 60
_COMPARED = ("STRING", "INT", "BIGINT", "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP")


class _Sides:
    """What is joined, and the columns in sight."""

    def __init__(
        self, chance: random.Random, *, explodes: bool, alone: bool = False, third: str = ""
    ) -> None:
        """Draw both sides; `alone` joins an input with itself, and a `third` one is called q."""
        self.schemas: dict[str, dict[str, str]] = {}
        self.columns: dict[str, str] = {}
        self.sql: dict[str, str] = {}
        topics = {"o": "orders", "p": "orders" if alone else "payments"}
        topics |= {"q": third} if third else {}
        for alias, topic in topics.items():
            if topic not in self.schemas:
                known = [name for name in COLUMNS if not third or name not in topics]
                names = chance.sample(known, chance.randint(2, 4))
                self.schemas[topic] = {name: COLUMNS[name] for name in COLUMNS if name in names}
            schema = {name: kind_of(each) for name, each in self.schemas[topic].items()}
            self.columns |= {f"{alias}.{name}": each for name, each in schema.items()}
            self.sql[alias] = topic
            arrays = [name for name, kind in schema.items() if kind in ARRAYS]
            if chance.random() < 0.3:
                inner = Drawing(chance, schema)
                self.sql[alias] = f"(SELECT * FROM {topic} WHERE {inner.condition().sql})"
            elif explodes and arrays and chance.random() < 0.5:
                self.sql[alias] = f"(SELECT *, explode_outer({arrays[0]}) AS one FROM {topic})"
                self.columns[f"{alias}.one"] = ARRAYS[schema[arrays[0]]]

    def joined(self, how: str, on: str) -> str:
        """Return what is after FROM."""
        return f"{self.sql['o']} o {how}JOIN {self.sql['p']} p ON {on}"


def join(chance: random.Random) -> Query:
    """Draw a join with bounds of time."""
    sides = _Sides(chance, explodes=True)
    drawing = Drawing(chance, sides.columns)
    how = chance.choice(("", "LEFT ", "RIGHT ", "FULL "))
    extra = f" AND ({drawing.condition().sql})" if chance.random() < 0.4 else ""
    on = f"o.key = p.key AND {chance.choice(BOUNDS)}{extra}"
    return Query(
        Shape.JOIN,
        source=sides.joined(how, on),
        inputs=sides.schemas,
        items=columns(chance, drawing),
        key=chance.choice((None, Expression("coalesce(o.key, p.key)", "STRING"))),
        where=conditions(chance, drawing) if chance.random() < 0.5 else (),
        how=how,
        grace_min=GRACE_MIN,
    )


def regular_join(chance: random.Random) -> Query:
    """Draw a join without bounds of time; each row of its result has a key of its own."""
    how = chance.choice(
        ("", "INNER ", "LEFT ", "RIGHT ", "FULL ", "LEFT SEMI ", "LEFT ANTI ", "LEFT ")
    )
    adds = how in ("", "INNER ", "LEFT SEMI ")
    sides = _Sides(chance, explodes=adds, alone=chance.random() < 0.2)
    drawing = Drawing(chance, sides.columns)
    on = [_equality(chance, sides, "o", "p") for _ in range(chance.choice((1, 1, 2)))]
    if chance.random() < 0.3:
        on.append(f"({drawing.condition().sql})")
    if chance.random() < 0.2:
        on.append("p.timestamp <= o.timestamp + INTERVAL 2 HOURS")
    aliases = ("o",) if "LEFT " in how and how != "LEFT " else ("o", "p")
    seen = {name: kind for name, kind in sides.columns.items() if name.startswith(tuple(aliases))}
    above = Drawing(chance, seen)
    parts = (f"coalesce(CAST({a}.{each} AS STRING), '-')" for a in aliases for each in _ADDRESS)
    key = Expression(f"concat_ws('{SEPARATOR}', {', '.join(parts)})", "STRING")
    return Query(
        Shape.JOIN,
        source=sides.joined(how, " AND ".join(on)),
        inputs=sides.schemas,
        items=columns(chance, above),
        key=chance.choice((None, key)) if adds else key,
        where=conditions(chance, above) if chance.random() < 0.3 else (),
        how=how,
        ttl=chance.choice(("none", "20000 d")),
    )


_ADDRESS = ("partition", "offset")
"""What identifies a record of an input."""


def joined_groups(chance: random.Random) -> Query:
    """Draw a SELECT that groups what it joins, joins three inputs, or explodes what it joins."""
    third = chance.choice(("", "", "orders", "payments"))
    sides = _Sides(chance, explodes=True, alone=chance.random() < 0.2, third=third)
    aliases = (*sides.sql,)
    conditions_on = {"p": [_equality(chance, sides, "o", "p")]}
    if third:
        conditions_on["q"] = [_equality(chance, sides, chance.choice("op"), "q")]
    for on in conditions_on.values():
        if chance.random() < 0.3:
            on.append("p.timestamp <= o.timestamp + INTERVAL 2 HOURS")
    lateral, many = "", tuple[str, ...]()
    arrays = {name: kind for name, kind in sides.columns.items() if kind in ARRAYS}
    if arrays and chance.random() < 0.5:
        name, kind = chance.choice([*arrays.items()])
        outer = chance.choice(("", "OUTER "))
        lateral = f" LATERAL VIEW {outer}explode({name}) e AS many"
        sides.columns["e.many"] = ARRAYS[kind]
        many = ("e.many",)
    drawing = Drawing(chance, sides.columns)
    where = conditions(chance, drawing) if chance.random() < 0.5 else ()
    if chance.random() < 0.5:
        source = ", ".join(f"{sides.sql[alias]} {alias}" for alias in aliases)
        given = [each for on in conditions_on.values() for each in on]
        chance.shuffle(given)
        where = (*(_plain(each) for each in given), *where)
    else:
        conditions_of = {alias: " AND ".join(on) for alias, on in conditions_on.items()}
        source = sides.joined("", conditions_of["p"])
        if third:
            form = chance.choice(("{} JOIN {}", "({}) JOIN {}", "{1} JOIN ({0})"))
            source = f"{form.format(source, sides.sql['q'] + ' q')} ON {conditions_of['q']}"
    settings: dict[str, Any] = {
        "source": f"{source}{lateral}",
        "inputs": sides.schemas,
        "where": where,
        "joined": aliases,
        "ttl": chance.choice(("none", "20000 d")),
    }
    shapes = (Shape.GROUPS, Shape.GROUPS, Shape.BEST, Shape.DISTINCT)
    shape = chance.choice((*shapes, Shape.ROWS, Shape.ROWS) if third or lateral else shapes)
    if shape in (Shape.DISTINCT, Shape.ROWS):
        return Query(shape, items=columns(chance, drawing, 3), **settings)
    groups = grouping(chance, drawing, chance.choice((None, column("o.key", "STRING"))))
    if shape is Shape.BEST:
        address = tuple(f"{alias}.{each}" for alias in aliases for each in _ADDRESS)
        order = f"({drawing.any(1, _COMPARED).sql}) {chance.choice(('', 'DESC', ' NULLS LAST'))}"
        return Query(
            shape,
            items=columns(chance, drawing, 3),
            groups=groups,
            order=(order, *address, *many),
            limit=chance.choice(("place = 1", "place <= 2", "place BETWEEN 2 AND 3", "")),
            **settings,
        )
    aggregates = Aggregates(chance, drawing, records=Records.RESULTS)
    window = None
    if chance.random() < 0.4:
        time = f"greatest({', '.join(f'{alias}.timestamp' for alias in aliases)})"
        window = Window(f"window({time}, {chance.choice(_SIZES)})")
    return Query(
        shape,
        items=tuple(Item(f"v{place}", aggregates.one()) for place in range(chance.randint(1, 3))),
        key=key_of_groups(groups, window),
        groups=groups,
        window=window,
        grace_min=None if window is None else _NEVER_LATE_MIN,
        having=aggregates.having(),
        **settings,
    )


def _plain(condition: str) -> Expression:
    return Expression(condition.replace("{", "{{").replace("}", "}}"), "BOOLEAN")


def _equality(chance: random.Random, sides: _Sides, first: str, second: str) -> str:
    """Return a condition that is true for some pairs of two inputs."""
    keys = f"{first}.key = {second}.key"
    if chance.random() < 0.3:
        return keys
    kinds = {
        alias: {kind for name, kind in sides.columns.items() if name.startswith(f"{alias}.")}
        for alias in (first, second)
    }
    both = [each for each in _COMPARED if each in kinds[first] & kinds[second]]
    if not both:
        return chance.choice((keys, f"upper({first}.key) = {second}.key"))
    kind = chance.choice(both)
    left, right = (
        Drawing(chance, {n: k for n, k in sides.columns.items() if n.startswith(f"{alias}.")})
        for alias in (first, second)
    )
    depth = chance.choice((0, 0, 1))
    made = column(*_one_of(chance, left, kind)) if not depth else left.varying(kind, depth)
    if made.kind != kind:
        made = column(*_one_of(chance, left, kind))
    return f"{made.enclosed} = {_one_of(chance, right, kind)[0]}"


def _one_of(chance: random.Random, drawing: Drawing, kind: str) -> tuple[str, str]:
    return chance.choice([each for each in drawing.columns.items() if each[1] == kind])
