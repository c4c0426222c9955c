"""A query of the `sql` type as a value: its parts can be left out one by one.

Its text has marks such as `«time»` where the judge's query has more than ours; `text` removes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tests.random_sql.expressions import Expression

_MARK = re.compile("«[^»]*»")


class Shape(StrEnum):
    """What a query is, from which follows how its results are folded."""

    ROWS = "rows"
    GROUPS = "groups"
    DISTINCT = "distinct"
    BEST = "best"
    JOIN = "join"


@dataclass(frozen=True)
class Item:
    """A column of SELECT."""

    name: str
    expression: Expression

    @property
    def sql(self) -> str:
        """The text in SELECT."""
        return f"{self.expression.sql} AS {self.name}"


@dataclass(frozen=True)
class Window:
    """A window of event time among the columns of GROUP BY, SELECT DISTINCT or PARTITION BY."""

    sql: str
    column: str = "window"
    is_session: bool = False


@dataclass(frozen=True)
class Query:
    """A processor, and the parts of its query.

    `source` is what follows FROM, with marks. `inputs` has the schemas of the inputs by topic, and
    `topic_tables` those of the tables that follow a topic; `files` has the rows of lookup tables.
    """

    shape: Shape
    source: str
    inputs: Mapping[str, Mapping[str, str]]
    items: tuple[Item, ...]
    key: Expression | None = None
    where: tuple[Expression, ...] = ()
    groups: tuple[Expression, ...] = ()
    window: Window | None = None
    having: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    """`ORDER BY` of the best rows."""
    places: int = 0
    """How many best rows there are."""
    outer: tuple[str, ...] = ()
    """Conditions in a query around the groups."""
    nesting: str = ""
    """`cte` or `subquery`: where WHERE and the source are."""
    on_close: bool = False
    grace_min: int | None = None
    topic_tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Lines of CSV by the name of the table."""
    is_ordered: bool = False
    """Whether results depend on the order of the records in their partition."""

    @property
    def groups_by_key(self) -> bool:
        """Whether `key` is one of the grouping columns: records of a group are in one partition."""
        columns = self.groups
        if self.shape is Shape.DISTINCT:
            columns += tuple(each.expression for each in self.items)
        return any(each.sql in ("key", "i.key") for each in columns)

    @property
    def is_table(self) -> bool:
        """Whether the results are upserts by key; otherwise, each one counts."""
        return self.shape in (Shape.GROUPS, Shape.BEST) and not self.on_close

    @property
    def uses_a_field(self) -> bool:
        """Whether the result certainly needs the value: a field is a column of it, as it is."""
        fields = {name for schema in self.inputs.values() for name in schema}
        plain = (*(each.expression for each in self.items), *self.groups)
        if self.shape is Shape.JOIN:
            return False
        return any(each.sql.removeprefix("i.") in fields for each in plain)

    @property
    def text(self) -> str:
        """The query as it is in pipeline.yaml."""
        return _MARK.sub("", self.marked())

    def marked(self) -> str:
        """Return the query with marks for the judge."""
        where = f" WHERE {' AND '.join(each.enclosed for each in self.where)}" if self.where else ""
        start, source = "", f"{self.source}{where}"
        if self.nesting == "cte":
            start, source = f"WITH src AS (SELECT * FROM {source}) ", "src"
        elif self.nesting == "subquery":
            source = f"(SELECT * FROM {source}) src"
        match self.shape:
            case Shape.ROWS | Shape.JOIN:
                return f"{start}SELECT {self._columns() or '*'}«time» FROM {source}"
            case Shape.DISTINCT:
                return f"{start}{self._distinct(source)}"
            case Shape.BEST:
                return f"{start}{self._best(source)}"
        return f"{start}{self._grouped(source)}"

    def _columns(self) -> str:
        key = [] if self.key is None else [f"{self.key.sql} AS key"]
        return ", ".join(key + [each.sql for each in self.items])

    def _grouped(self, source: str) -> str:
        window = [] if self.window is None else [self.window.sql]
        by = ", ".join([each.sql for each in self.groups] + window)
        having = f" HAVING {' AND '.join(self.having)}" if self.having else ""
        inner = f"SELECT {self._columns()}«last» FROM {source} GROUP BY {by}{having}"
        if not self.outer:
            return inner
        names = ", ".join(["key"] * (self.key is not None) + [each.name for each in self.items])
        return f"SELECT {names}«last again» FROM ({inner}) WHERE {' AND '.join(self.outer)}"

    def _distinct(self, source: str) -> str:
        if self.window is None:
            return f"SELECT DISTINCT {self._columns()} FROM {source}"
        names = ", ".join(["key"] * (self.key is not None) + [each.name for each in self.items])
        inner = f"SELECT DISTINCT {self._columns()}, {self.window.sql} AS w FROM {source}"
        return f"SELECT {names}, w.start AS begin«window end» FROM ({inner})"

    def _best(self, source: str) -> str:
        window = [] if self.window is None else [self.window.sql]
        by = ", ".join([each.sql for each in self.groups] + window)
        groups = [f"{each.sql} AS g{place}" for place, each in enumerate(self.groups)]
        columns = ", ".join(groups + [each.sql for each in self.items])
        key = ", ".join(f"coalesce(CAST(g{place} AS STRING), '~')" for place in range(len(groups)))
        names = ", ".join(["place"] + [each.name for each in self.items])
        number = f"row_number() OVER (PARTITION BY {by} ORDER BY {', '.join(self.order)}«ties»)"
        return (
            f"SELECT concat_ws('|', {key}, CAST(place AS STRING)) AS key, {names} FROM "
            f"(SELECT {columns}, {number} AS place FROM {source}) WHERE place <= {self.places}"
        )

    def pipeline(self, folder: str) -> str:
        """Return pipeline.yaml; the files of lookup tables are in a folder."""
        schemas = {topic: _ddl(schema) for topic, schema in self.inputs.items()}
        topics = [*self.inputs, *self.topic_tables]
        processor: dict[str, Any] = {
            "id": "P",
            "type": "sql",
            "from": [*self.inputs],
            "format": "json",
            "schema": schemas if len(schemas) > 1 else next(iter(schemas.values())),
            "query": self.text,
            "on_error": "skip",
            "to": ["sink"],
        }
        tables: dict[str, Any] = {
            name: {"topic": name, "schema": _ddl(schema)}
            for name, schema in self.topic_tables.items()
        }
        tables |= {
            name: {"format": "csv", "path": f"{folder}/{name}.csv", "schema": FILE_SCHEMA}
            for name in self.files
        }
        processor |= {"tables": tables} if tables else {}
        processor |= {"emit": "on_close"} if self.on_close else {}
        processor |= {} if self.grace_min is None else {"grace": f"{self.grace_min} min"}
        return json.dumps(
            {"sources": {name: name for name in topics}, "processors": [processor]},
            ensure_ascii=False,
        )

    def smaller(self) -> Iterator[Query]:
        """Yield queries with one part less."""
        if self.nesting:
            yield replace(self, nesting="")
        for place in range(len(self.where)):
            yield replace(self, where=(*self.where[:place], *self.where[place + 1 :]))
        if self.having:
            yield replace(self, having=())
        if self.outer:
            yield replace(self, outer=())
        for place in range(len(self.items) if len(self.items) > 1 else 0):
            yield replace(self, items=(*self.items[:place], *self.items[place + 1 :]))
        for place in range(len(self.groups) if self.shape is Shape.BEST else 0):
            if len(self.groups) > 1:
                yield replace(self, groups=(*self.groups[:place], *self.groups[place + 1 :]))
        for place, item in enumerate(self.items):
            for less in item.expression.smaller():
                items = (*self.items[:place], Item(item.name, less), *self.items[place + 1 :])
                yield replace(self, items=items)
        for place, condition in enumerate(self.where):
            for less in condition.smaller():
                yield replace(self, where=(*self.where[:place], less, *self.where[place + 1 :]))


FILE_SCHEMA = "code STRING, name STRING, level INT, price DECIMAL(10,2)"


def _ddl(schema: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in schema.items())
