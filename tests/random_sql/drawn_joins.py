"""Draws joins of two inputs, with bounds of time and without."""

from __future__ import annotations

import random

from tests.random_sql.drawn_windows import GRACE_MIN
from tests.random_sql.expressions import ARRAYS, Drawing, Expression, column, kind_of
from tests.random_sql.queries import SEPARATOR, Query, Shape
from tests.random_sql.sources import columns, conditions
from tests.random_sql.values import COLUMNS

_BOUNDS = (
    "p.timestamp BETWEEN o.timestamp - INTERVAL 5 MINUTES AND o.timestamp + INTERVAL 10 MINUTES",
    "p.timestamp > o.timestamp AND o.timestamp + INTERVAL '1 hour' > p.timestamp",
    "p.timestamp - INTERVAL 2 MINUTES >= o.timestamp AND p.timestamp <= o.timestamp + INTERVAL 9 "
    "MINUTES",
    "o.timestamp = p.timestamp",
)
_COMPARED = ("STRING", "INT", "BIGINT", "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP")


class _Sides:
    """What is joined, and the columns in sight."""

    def __init__(self, chance: random.Random, *, explodes: bool, alone: bool = False) -> None:
        """Draw both sides; `alone` joins an input with itself."""
        self.schemas: dict[str, dict[str, str]] = {}
        self.columns: dict[str, str] = {}
        self.sql: dict[str, str] = {}
        for topic, alias in (("orders", "o"), ("orders" if alone else "payments", "p")):
            if topic not in self.schemas:
                names = chance.sample([*COLUMNS], chance.randint(2, 4))
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
    on = f"o.key = p.key AND {chance.choice(_BOUNDS)}{extra}"
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
    on = [_equality(chance, sides) for _ in range(chance.choice((1, 1, 2)))]
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


def _equality(chance: random.Random, sides: _Sides) -> str:
    """Return a condition that is true for some pairs."""
    if chance.random() < 0.3:
        return "o.key = p.key"
    kinds = {
        alias: {kind for name, kind in sides.columns.items() if name.startswith(f"{alias}.")}
        for alias in ("o", "p")
    }
    both = [each for each in _COMPARED if each in kinds["o"] & kinds["p"]]
    if not both:
        return chance.choice(("o.key = p.key", "upper(o.key) = p.key"))
    kind = chance.choice(both)
    left, right = (
        Drawing(chance, {n: k for n, k in sides.columns.items() if n.startswith(f"{alias}.")})
        for alias in ("o", "p")
    )
    depth = chance.choice((0, 0, 1))
    made = column(*_one_of(chance, left, kind)) if not depth else left.varying(kind, depth)
    if made.kind != kind:
        made = column(*_one_of(chance, left, kind))
    return f"{made.enclosed} = {_one_of(chance, right, kind)[0]}"


def _one_of(chance: random.Random, drawing: Drawing, kind: str) -> tuple[str, str]:
    return chance.choice([each for each in drawing.columns.items() if each[1] == kind])
