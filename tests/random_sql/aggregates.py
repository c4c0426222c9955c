"""Random aggregates: those that the documentation lists, over random expressions.

Not drawn, since Spark itself has no certain result: `any_value`, and `min_by` with ties.
Values of `DOUBLE` are small multiples of powers of two, so their sums are exact in any order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tests.random_sql.expressions import Drawing, Expression

_ANY = ("STRING", "INT", "BIGINT", "DOUBLE", "DECIMAL", "BOOLEAN", "TIMESTAMP", "DATE")
_FOR_SUMS = ("INT", "DOUBLE_COLUMN", "DECIMAL_COLUMN", "BIGINT_COLUMN")


_SUM = {"INT": "BIGINT"}
_MEAN = {"INT": "DOUBLE", "BIGINT": "DOUBLE"}
ROUNDED = "ROUNDED"
"""The kind of doubles whose last digits depend on the order of the records."""


@dataclass(frozen=True)
class _Function:
    """An aggregate: the kinds of its argument, the kind of its result, and what goes with it.

    The result has the kind of the argument, unless `result` or `results` says another one.
    """

    template: str
    kinds: tuple[str, ...]
    result: str = ""
    results: Mapping[str, str] = field(default_factory=dict)
    is_distinct: bool = False
    filters: bool = True

    def kind_for(self, argument: str) -> str:
        """Return the kind of the result for an argument of a kind."""
        return self.result or self.results.get(argument, argument)


_OF_MOMENTS_AND_COLLECTIONS = (
    _Function("stddev({0})", _FOR_SUMS, ROUNDED),
    _Function("var_pop({0})", _FOR_SUMS, ROUNDED),
    _Function("nullif(skewness({0}), double('NaN'))", ("DOUBLE_COLUMN",), ROUNDED, filters=False),
    _Function("nullif(kurtosis({0}), double('NaN'))", ("INT_COLUMN",), ROUNDED, filters=False),
    _Function("covar_pop({0}, length({key}))", ("DOUBLE_COLUMN",), ROUNDED),
    _Function("covar_samp({0}, {0} * 2)", ("DOUBLE_COLUMN",), ROUNDED),
    _Function("sort_array(collect_list({0}))", _ANY, "LIST", filters=False),
    _Function("sort_array(collect_set({0}))", _ANY, "LIST", filters=False),
)
_FUNCTIONS = (
    _Function("count(*)", ("",), "BIGINT"),
    _Function("count({0})", _ANY, "BIGINT", is_distinct=True),
    _Function("count_if({0})", ("BOOLEAN",), "BIGINT"),
    _Function("sum({0})", _FOR_SUMS, results=_SUM, is_distinct=True),
    _Function("try_sum({0})", _FOR_SUMS, results=_SUM, is_distinct=True),
    _Function("avg({0})", _FOR_SUMS, results=_MEAN, is_distinct=True),
    _Function("try_avg({0})", _FOR_SUMS, results=_MEAN),
    _Function("min({0})", (*_ANY, "ARRAY<INT>", "STRUCT"), is_distinct=True),
    _Function("max({0})", (*_ANY, "ARRAY<STRING>", "STRUCT"), is_distinct=True),
    _Function("max_by({0}, struct({time}, {offset}))", _ANY),
    _Function("min_by({0}, struct({time}, {offset}))", _ANY),
    _Function("bool_and({0})", ("BOOLEAN",), "BOOLEAN"),
    _Function("bool_or({0})", ("BOOLEAN",), "BOOLEAN"),
    _Function("bit_and({0})", ("INT",), "INT"),
    _Function("bit_or({0})", ("BIGINT",), "BIGINT"),
    _Function("bit_xor({0})", ("INT",), "INT"),
    *_OF_MOMENTS_AND_COLLECTIONS,
    _Function("array_size(collect_list({0}))", _ANY, "INT", filters=False),
    _Function("percentile({0}, 0.25)", ("INT", "DOUBLE_COLUMN"), "DOUBLE"),
    _Function("median({0})", ("INT", "DECIMAL_COLUMN"), "DOUBLE"),
    _Function("approx_count_distinct({0})", _ANY, "BIGINT"),
    _Function("approx_percentile({0}, 0.5)", ("INT", "DOUBLE", "DECIMAL")),
)
_ORDERED = (
    _Function("first({0})", _ANY),
    _Function("last({0})", _ANY),
    _Function("first({0}, true)", _ANY),
    _Function("last({0}, true)", _ANY),
    _Function("collect_list({0})", _ANY, "LIST", filters=False),
)
"""Their results depend on the order of the records of a group, which only partitions keep."""

_NUMBERS = ("INT", "BIGINT", "DECIMAL")


def around(kind: str) -> list[tuple[str, tuple[str, ...], str]]:
    """Return expressions of an aggregate of a kind: the kinds of their other parts, and theirs.

    Without a kind of its own, one has that of the aggregate.
    """
    if kind not in _ANY:
        return []
    found = [
        ("coalesce({0}, {1})", (kind,), ""),
        ("ifnull({0}, {1})", (kind,), ""),
        ("nullif({0}, {1})", (kind,), ""),
        ("nullif({0}, {1}) IS NULL", (kind,), "BOOLEAN"),
        ("CASE WHEN {2} THEN {0} ELSE {1} END", (kind, "BOOLEAN"), ""),
        ("{0} BETWEEN {1} AND {2}", (kind, kind), "BOOLEAN"),
        ("{0} NOT BETWEEN {1} AND {2}", (kind, kind), "BOOLEAN"),
        ("{0} IN ({1}, {2})", (kind, kind), "BOOLEAN"),
        ("greatest({0}, {1})", (kind,), ""),
        ("CAST({0} AS STRING)", (), "STRING"),
    ]
    if kind in _NUMBERS:
        divided = kind if kind == "DECIMAL" else ROUNDED
        found += [
            ("try_add({0}, {1})", (kind,), "BIGINT" if kind == "INT" else kind),
            ("try_subtract({0}, {1} * 2)", ("DECIMAL",), "DECIMAL"),
            ("try_divide({0}, nullif({1}, 0))", ("DECIMAL",), "DECIMAL"),
            ("try_divide({0}, nullif({1}, 0))", ("BIGINT",), divided),
        ]
    return found


_FOR_CHANGES = ("INT", "DECIMAL_COLUMN")
_INVERTIBLE = (
    _Function("count(*)", ("",), "BIGINT"),
    _Function("count({0})", _ANY, "BIGINT", is_distinct=True),
    _Function("count_if({0})", ("BOOLEAN",), "BIGINT"),
    _Function("sum({0})", _FOR_CHANGES, results=_SUM, is_distinct=True),
    _Function("sum({0} % 1000)", ("BIGINT",)),
    _Function("avg({0})", _FOR_CHANGES, results=_MEAN, is_distinct=True),
    _Function("min({0})", _ANY, is_distinct=True),
    _Function("max({0})", _ANY, is_distinct=True),
    _Function("min_by({0}, {key})", _ANY),
    _Function("max_by({0}, {key})", _ANY),
    _Function("bool_and({0})", ("BOOLEAN",), "BOOLEAN"),
    _Function("bool_or({0})", ("BOOLEAN",), "BOOLEAN"),
    *_OF_MOMENTS_AND_COLLECTIONS,
    _Function("size(collect_set(struct({0}, {key})))", _ANY, "INT", filters=False),
)
"""Functions of rows that change. Not drawn: sums of `DOUBLE`, which keep digits of rows that are
gone, and of all values of `BIGINT`, which may overflow for a while."""


class Records(Enum):
    """What is aggregated, on which depends what may be drawn."""

    UNORDERED = "unordered"
    """Records of an input."""
    ORDERED = "ordered"
    """Those whose order in a group is that of their partition."""
    RESULTS = "results"
    """Results of a query, which have no time or offset."""
    CHANGES = "changes"
    """Rows that are replaced and deleted."""
    JOINED_CHANGES = "joined changes"
    """Results of a join of these, which have no key of their own."""


def _functions_for(records: Records) -> tuple[_Function, ...]:
    of_changes = records in (Records.CHANGES, Records.JOINED_CHANGES)
    functions = _INVERTIBLE if of_changes else _FUNCTIONS
    if records in (Records.RESULTS, Records.JOINED_CHANGES):
        return tuple(
            each for each in functions if not re.search("{(time|offset|key)}", each.template)
        )
    return functions


class Aggregates:
    """Draws aggregates over the columns in sight."""

    def __init__(
        self,
        chance: random.Random,
        drawing: Drawing,
        prefix: str = "",
        records: Records = Records.UNORDERED,
    ) -> None:
        """Take what the columns of the record begin with, and what is aggregated."""
        self._chance, self._drawing = chance, drawing
        self._names = {name: f"{prefix}{name}" for name in ("key", "offset")}
        self._names["time"] = f"{prefix}timestamp"
        self._records = records
        self._functions = _functions_for(records)
        self.is_ordered = False
        """Whether one was drawn that depends on the order."""

    def one(self) -> Expression:
        """Return an aggregate, or an expression of some."""
        first = self.plain()
        return self._around(first) if self._chance.random() < 0.35 else first

    def having(self) -> tuple[str, ...]:
        """Return a condition for HAVING, which often has an aggregate of its own, or none."""
        chance = self._chance
        if chance.random() < 0.4:
            return ()
        if chance.random() < 0.6:
            return (chance.choice(("count(*) > 1", "count(*) % 2 = 1")),)
        for _ in range(20):
            first = self.plain()
            if conditions := [each for each in around(first.kind) if each[2] == "BOOLEAN"]:
                return (self._made(chance.choice(conditions), first).sql,)
        return ()

    def _around(self, first: Expression) -> Expression:
        found = around(first.kind)
        return self._made(self._chance.choice(found), first) if found else first

    def _made(self, what: tuple[str, tuple[str, ...], str], first: Expression) -> Expression:
        """Return an expression of an aggregate, and of others or constants."""
        template, kinds, kind = what
        others = tuple(self._of(each, first) for each in kinds)
        return Expression(template, kind or first.kind, (first, *others))

    def _of(self, kind: str, first: Expression) -> Expression:
        """Return an aggregate of a kind, the `first` one of an expression, or a constant."""
        chance = self._chance
        if kind == "BOOLEAN":
            return Expression("count(*) > 2", kind)
        if chance.random() < 0.2:
            return first
        for _ in range(8 if chance.random() < 0.6 else 0):
            if (found := self.plain()).kind == kind:
                return found
        return self._drawing.constant(kind)

    def plain(self) -> Expression:
        """Return an aggregate."""
        chance, drawing = self._chance, self._drawing
        is_ordered = self._records is Records.ORDERED and chance.random() < 0.3
        function = chance.choice(_ORDERED if is_ordered else self._functions)
        kind = chance.choice(function.kinds)
        argument = self._argument(kind)
        template = function.template
        for name, column in self._names.items():
            template = template.replace(f"{{{name}}}", column)
        if function.is_distinct and chance.random() < 0.25 and not self.is_ordered:
            template = template.replace("({0}", "(DISTINCT {0}")
        self.is_ordered |= is_ordered
        parts = () if argument is None else (argument,)
        if function.filters and chance.random() < 0.25:
            template = f"{template} FILTER (WHERE {{{len(parts)}}})"
            parts = (*parts, drawing.condition())
        return Expression(template, function.kind_for(argument.kind if argument else ""), parts)

    def _argument(self, kind: str) -> Expression | None:
        if not kind:
            return None
        if kind.endswith("_COLUMN"):
            return self._drawing.leaf(kind.removesuffix("_COLUMN"))
        return self._drawing.expression(kind, self._chance.choice((0, 0, 1, 2)))
