"""A query of the `sql` type as a value: its parts can be left out one by one.

Its text has marks such as `«time»` where the judge's query has more than ours; `text` removes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from tests.random_sql.expressions import Expression

_MARK = re.compile("«[^»]*»")
_OF_RESULTS = re.compile("«(time|last|again|window end)»")
"""The marks for columns with the time of a result."""


class Shape(StrEnum):
    """What a query is, from which follows how its results are folded."""

    ROWS = "rows"
    GROUPS = "groups"
    DISTINCT = "distinct"
    BEST = "best"
    JOIN = "join"
    OVER = "over"


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
    """A window of event time among the columns of GROUP BY, SELECT DISTINCT or PARTITION BY.

    `start` and `end` are the columns with its bounds. `judged` has pairs of texts: what only this
    engine knows, and what the judge reads in its place.
    """

    sql: str
    start: str = "window.start"
    end: str = "window.end"
    is_session: bool = False
    judged: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Again:
    """Groups of the results of a query: in the same query, or in processors of their own.

    `schema` has the columns that it reads. With two processors, the second one groups; with three,
    one in between has the conditions.
    """

    items: tuple[Item, ...]
    key: Expression
    groups: tuple[Expression, ...]
    schema: Mapping[str, str]
    where: tuple[Expression, ...] = ()
    having: tuple[str, ...] = ()
    processors: int = 1
    is_cte: bool = False

    def around(self, inner: str) -> str:
        """Return the query that has both."""
        if self.is_cte:
            return f"WITH t AS ({inner}) {self.over('t')}"
        return self.over(f"({inner}) t")

    def over(self, source: str, *, has_where: bool = True) -> str:
        """Return the query that groups what it reads."""
        columns = ", ".join([f"{self.key.sql} AS key", *(each.sql for each in self.items)])
        where = _where(self.where) if has_where else ""
        by = ", ".join(each.sql for each in self.groups)
        return f"SELECT {columns} FROM {source}{where} GROUP BY {by}{_having(self.having)}"

    def of_processors(self) -> Iterator[tuple[str, str]]:
        """Yield the names and queries of the processors after the first one."""
        if self.processors > 2:
            yield "Between", f"SELECT * FROM input{_where(self.where)}"
        yield "P", self.over("input", has_where=self.processors < 3)

    def smaller(self) -> Iterator[Again]:
        """Yield groups with one part less."""
        if self.is_cte:
            yield replace(self, is_cte=False)
        if self.having:
            yield replace(self, having=())
        for less in _with_less(self.where):
            yield replace(self, where=less)
        for items in _fewer_items(self.items):
            yield replace(self, items=items)


@dataclass(frozen=True)
class Query:
    """A processor, and the parts of its query.

    `source` is what follows FROM, with marks. `inputs` has the schemas of the inputs by topic, and
    `topic_tables` those of the tables that follow a topic; `files` has the rows of lookup tables.
    With `changelog`, records are upserts. A join without bounds of time has a `ttl`. If it
    `changes`, a side has rows that are replaced; records of the topics in `upserts` are upserts.
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
    function: str = "row_number"
    naming: str = "offset"
    """What names the row in the key of a rank."""
    limit: str = ""
    """Which places the best rows have; all of them without a condition."""
    outer: tuple[str, ...] = ()
    """Conditions in a query around the groups, the frames or the best rows."""
    how: str = ""
    """The kind of a join, such as `LEFT `."""
    ttl: str = ""
    joined: tuple[str, ...] = ()
    """The inputs of a SELECT that groups what it joins, or joins more than two of them."""
    changelog: bool = False
    upserts: tuple[str, ...] = ()
    changes: bool = False
    again: Again | None = None
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
        if self.again is not None:
            return True
        if self.shape is Shape.JOIN:
            return self.takes_back or self.changes
        if self.shape is Shape.DISTINCT:
            return self.changelog
        return self.shape in (Shape.GROUPS, Shape.BEST) and not self.on_close

    @property
    def takes_back(self) -> bool:
        """Whether it joins, and deletes what a row without a partner gave when one comes."""
        return bool(self.ttl) and self.how not in ("", "INNER ", "LEFT SEMI ")

    @property
    def shows_one_side(self) -> bool:
        """Whether it joins, and gives rows of the left side only."""
        return self.how in ("LEFT SEMI ", "LEFT ANTI ")

    @property
    def has_time(self) -> bool:
        """Whether the documentation says which time each result has."""
        is_open = self.shape in (Shape.DISTINCT, Shape.BEST) or self.shows_one_side
        is_open |= self.changelog or self.changes
        return not is_open and self.again is None

    def has_upserts(self, topic: str) -> bool:
        """Whether a record of a topic replaces the former one of its key."""
        return self.changelog or topic in self.upserts

    @property
    def uses_a_field(self) -> bool:
        """Whether the result certainly needs the value: a field is a column of it, as it is."""
        fields = {name for schema in self.inputs.values() for name in schema}
        plain = [*self.groups]
        if self.again is None or self.shape is Shape.DISTINCT:
            plain += [each.expression for each in self.items]
        if self.shape is Shape.JOIN or self.joined:
            return False
        return any(each.sql.removeprefix("i.") in fields for each in plain)

    @property
    def text(self) -> str:
        """The query as it is in pipeline.yaml."""
        return _MARK.sub("", self.marked())

    def marked(self) -> str:
        """Return the query with marks for the judge."""
        if self.again is None:
            return self._own()
        return self.again.around(_OF_RESULTS.sub("", self._own()))

    def _own(self) -> str:
        """Return the query without the groups around it."""
        start, source = "", f"{self.source}{_where(self.where)}"
        if self.nesting == "cte":
            start, source = f"WITH src AS (SELECT * FROM {source}) ", "src"
        elif self.nesting == "subquery":
            source = f"(SELECT * FROM {source}) src"
        match self.shape:
            case Shape.ROWS | Shape.JOIN | Shape.OVER:
                found = self._around(f"SELECT {self._columns() or '*'}«time» FROM {source}")
            case Shape.DISTINCT:
                found = self._distinct(source)
            case Shape.BEST:
                found = self._best(source)
            case Shape.GROUPS:
                found = self._grouped(source)
        return f"{start}{found}"

    def _columns(self) -> str:
        key = [] if self.key is None else [f"{self.key.sql} AS key"]
        return ", ".join(key + [each.sql for each in self.items])

    def _names(self) -> str:
        return ", ".join(["key"] * (self.key is not None) + [each.name for each in self.items])

    def _grouped(self, source: str) -> str:
        window = [] if self.window is None else [self.window.sql]
        by = ", ".join([each.sql for each in self.groups] + window)
        columns = f"{self._columns()}«last»"
        return self._around(f"SELECT {columns} FROM {source} GROUP BY {by}{_having(self.having)}")

    def _around(self, inner: str) -> str:
        """Return a query with the conditions around it."""
        if not self.outer:
            return inner
        return f"SELECT {self._names()}«again» FROM ({inner}) WHERE {' AND '.join(self.outer)}"

    def _distinct(self, source: str) -> str:
        if self.window is None:
            return f"SELECT DISTINCT {self._columns()} FROM {source}"
        inner = f"SELECT DISTINCT {self._columns()}, {self.window.sql} AS w FROM {source}"
        return f"SELECT {self._names()}, w.start AS begin«window end» FROM ({inner})"

    def _best(self, source: str) -> str:
        window = [] if self.window is None else [self.window.sql]
        by = ", ".join([each.sql for each in self.groups] + window)
        groups = [f"{each.sql} AS g{place}" for place, each in enumerate(self.groups)]
        is_numbered = self.function == "row_number"
        columns = ", ".join(
            [
                *groups,
                *([] if is_numbered else [f"{self.naming} AS nr"]),
                *(each.sql for each in self.items),
            ]
        )
        parts = [f"coalesce(CAST(g{place} AS STRING), '~')" for place in range(len(groups))]
        parts.append(f"CAST({'place' if is_numbered else 'nr'} AS STRING)")
        names = ", ".join(["place"] + [each.name for each in self.items])
        ties = "«ties»" if is_numbered else ""
        number = (
            f"{self.function}() OVER (PARTITION BY {by} ORDER BY {', '.join(self.order)}{ties})"
        )
        conditions = " AND ".join(filter(None, (self.limit, *self.outer)))
        where = f" WHERE {conditions}" if conditions else ""
        return (
            f"SELECT concat_ws('{SEPARATOR}', {', '.join(parts)}) AS key, {names} FROM "
            f"(SELECT {columns}, {number} AS place FROM {source}){where}"
        )

    def pipeline(self, folder: str) -> str:
        """Return pipeline.yaml; the files of lookup tables are in a folder."""
        schemas = {topic: _ddl(schema) for topic, schema in self.inputs.items()}
        first: dict[str, Any] = {
            "from": [*self.inputs],
            "schema": schemas if len(schemas) > 1 else next(iter(schemas.values())),
            "query": self.text,
        }
        tables: dict[str, Any] = {
            name: {"topic": name, "schema": _ddl(schema)}
            for name, schema in self.topic_tables.items()
        }
        tables |= {
            name: {"format": "csv", "path": f"{folder}/{name}.csv", "schema": FILE_SCHEMA}
            for name in self.files
        }
        first |= {"tables": tables} if tables else {}
        first |= {"emit": "on_close"} if self.on_close else {}
        first |= {} if self.grace_min is None else {"grace": f"{self.grace_min} min"}
        first |= {"ttl": self.ttl} if self.ttl else {}
        processors = [("P", first)]
        again = self.again
        if again is not None and again.processors > 1:
            first["query"] = _MARK.sub("", self._own())
            others = [
                (name, {"schema": _ddl(again.schema), "query": query})
                for name, query in again.of_processors()
            ]
            processors = [("First", first), *others]
        targets = [name for name, _ in processors[1:]] + ["sink"]
        shared = {"type": "sql", "format": "json", "on_error": "skip"}
        found = [
            {"id": name, "to": [target], **shared, **own}
            for (name, own), target in zip(processors, targets, strict=True)
        ]
        sources: dict[str, Any] = {name: name for name in (*self.inputs, *self.topic_tables)}
        sources = {
            name: {"topic": name, "changelog": True} if self.has_upserts(name) else topic
            for name, topic in sources.items()
        }
        return json.dumps({"sources": sources, "processors": found}, ensure_ascii=False)

    def smaller(self) -> Iterator[Query]:
        """Yield queries with one part less."""
        if self.nesting:
            yield replace(self, nesting="")
        if self.again is not None:
            for less in self.again.smaller():
                yield replace(self, again=less)
        for where in _with_less(self.where):
            yield replace(self, where=where)
        if self.having:
            yield replace(self, having=())
        if self.outer:
            yield replace(self, outer=())
        for items in _fewer_items(self.items):
            yield replace(self, items=items)
        for place in range(len(self.groups) if self.shape is Shape.BEST else 0):
            if len(self.groups) > 1:
                yield replace(self, groups=(*self.groups[:place], *self.groups[place + 1 :]))


FILE_SCHEMA = "code STRING, name STRING, level INT, price DECIMAL(10,2)"
SEPARATOR = "¦"
"""Between the parts of a key; no value has it."""


def _where(conditions: Sequence[Expression]) -> str:
    return f" WHERE {' AND '.join(each.enclosed for each in conditions)}" if conditions else ""


def _having(conditions: Sequence[str]) -> str:
    return f" HAVING {' AND '.join(conditions)}" if conditions else ""


def _with_less(conditions: tuple[Expression, ...]) -> Iterator[tuple[Expression, ...]]:
    """Yield conditions without one of them, then with a part less in one."""
    for place in range(len(conditions)):
        yield (*conditions[:place], *conditions[place + 1 :])
    for place, condition in enumerate(conditions):
        for less in condition.smaller():
            yield (*conditions[:place], less, *conditions[place + 1 :])


def _fewer_items(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    """Yield columns without one of them, then with a part less in one."""
    for place in range(len(items) if len(items) > 1 else 0):
        yield (*items[:place], *items[place + 1 :])
    for place, item in enumerate(items):
        for less in item.expression.smaller():
            yield (*items[:place], Item(item.name, less), *items[place + 1 :])


def _ddl(schema: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in schema.items())
