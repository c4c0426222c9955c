"""Draws what queries read, and the parts that queries of several shapes have."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.random_sql.expressions import ARRAYS, Drawing, Expression, column, kind_of
from tests.random_sql.queries import SEPARATOR, Item, Window
from tests.random_sql.values import COLUMNS

TABLE = {"city": "STRING", "level": "INT"}
GROUPABLE = ("STRING", "INT", "BIGINT", "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP")
AS_NORMALIZED = (*GROUPABLE, "DOUBLE")
"""Kinds of grouping columns whose own values no result has: 0.0 and -0.0 are in one group."""


class Source:
    """What a query reads: the text after FROM, and the columns in sight."""

    def __init__(self, chance: random.Random, *, joins: bool, explodes: bool = True) -> None:
        """Draw columns, and perhaps a join with a table or rows of an array."""
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
        elif explodes and arrays and chance.random() < 0.4:
            self._explode(chance, chance.choice(arrays))
        self.columns[f"{self.prefix}key"] = "STRING"

    @property
    def key(self) -> Expression:
        """The key of the record."""
        return column(f"{self.prefix}key", "STRING")

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


def conditions(chance: random.Random, drawing: Drawing) -> tuple[Expression, ...]:
    """Return what WHERE has."""
    return tuple(drawing.condition() for _ in range(chance.choice((0, 0, 1, 1, 2))))


def columns(chance: random.Random, drawing: Drawing, most: int = 4) -> tuple[Item, ...]:
    """Return what SELECT has."""
    return tuple(
        Item(f"v{place}", drawing.any(chance.choice((0, 1, 2, 3))))
        for place in range(chance.randint(1, most))
    )


def grouping(
    chance: random.Random,
    drawing: Drawing,
    key: Expression | None,
    kinds: tuple[str, ...] = GROUPABLE,
) -> tuple[Expression, ...]:
    """Return grouping columns: often the key, in a third of the cases expressions."""
    names = [name for name, kind in drawing.columns.items() if kind in kinds]
    found = [key] if key is not None and chance.random() < 0.5 else []
    for _ in range(chance.choice((0, 1, 1, 2) if found else (1, 1, 2))):
        if chance.random() < 0.3 or not names:
            found.append(drawing.varying(chance.choice(kinds), 1))
        else:
            name = chance.choice(names)
            found.append(column(name, drawing.columns[name]))
    return tuple({each.sql: each for each in found}.values())


def key_of_groups(groups: tuple[Expression, ...], window: Window | None = None) -> Expression:
    """Return a key that is made of the grouping columns, and that is never null."""
    parts = [f"coalesce(CAST({each.sql} AS STRING), '~')" for each in groups]
    parts += [] if window is None else [f"CAST({window.start} AS STRING)"]
    text = f"concat_ws('{SEPARATOR}', {', '.join(parts)})"
    return Expression(text.replace("{", "{{").replace("}", "}}"), "STRING")
