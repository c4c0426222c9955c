"""Random aggregates: those that the documentation lists, over random expressions.

Not drawn, since Spark itself has no certain result: `any_value`, and `min_by` with ties.
Values of `DOUBLE` are small multiples of powers of two, so their sums are exact in any order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.random_sql.expressions import Drawing, Expression

_ANY = ("STRING", "INT", "BIGINT", "DOUBLE", "DECIMAL", "BOOLEAN", "TIMESTAMP", "DATE")
_FOR_SUMS = ("INT", "DOUBLE_COLUMN", "DECIMAL_COLUMN", "BIGINT_COLUMN")


@dataclass(frozen=True)
class _Function:
    """An aggregate: the kinds of its argument, the kind of its result, and what goes with it."""

    template: str
    kinds: tuple[str, ...]
    result: str
    is_distinct: bool = False
    filters: bool = True


_FUNCTIONS = (
    _Function("count(*)", ("",), "BIGINT"),
    _Function("count({0})", _ANY, "BIGINT", is_distinct=True),
    _Function("count_if({0})", ("BOOLEAN",), "BIGINT"),
    _Function("sum({0})", _FOR_SUMS, "", is_distinct=True),
    _Function("try_sum({0})", _FOR_SUMS, "", is_distinct=True),
    _Function("avg({0})", _FOR_SUMS, "", is_distinct=True),
    _Function("try_avg({0})", _FOR_SUMS, ""),
    _Function("min({0})", (*_ANY, "ARRAY<INT>", "STRUCT"), "", is_distinct=True),
    _Function("max({0})", (*_ANY, "ARRAY<STRING>", "STRUCT"), "", is_distinct=True),
    _Function("max_by({0}, struct({time}, {offset}))", _ANY, ""),
    _Function("min_by({0}, struct({time}, {offset}))", _ANY, ""),
    _Function("bool_and({0})", ("BOOLEAN",), "BOOLEAN"),
    _Function("bool_or({0})", ("BOOLEAN",), "BOOLEAN"),
    _Function("bit_and({0})", ("INT",), "INT"),
    _Function("bit_or({0})", ("BIGINT",), "BIGINT"),
    _Function("bit_xor({0})", ("INT",), "INT"),
    _Function("stddev({0})", _FOR_SUMS, "DOUBLE"),
    _Function("var_pop({0})", _FOR_SUMS, "DOUBLE"),
    _Function("nullif(skewness({0}), double('NaN'))", ("DOUBLE_COLUMN",), "DOUBLE", filters=False),
    _Function("nullif(kurtosis({0}), double('NaN'))", ("INT_COLUMN",), "DOUBLE", filters=False),
    _Function("covar_pop({0}, length({key}))", ("DOUBLE_COLUMN",), "DOUBLE"),
    _Function("covar_samp({0}, {0} * 2)", ("DOUBLE_COLUMN",), "DOUBLE"),
    _Function("sort_array(collect_list({0}))", _ANY, "", filters=False),
    _Function("sort_array(collect_set({0}))", _ANY, "", filters=False),
    _Function("array_size(collect_list({0}))", _ANY, "INT", filters=False),
    _Function("percentile({0}, 0.25)", ("INT", "DOUBLE_COLUMN"), "DOUBLE"),
    _Function("median({0})", ("INT", "DECIMAL_COLUMN"), "DOUBLE"),
    _Function("approx_count_distinct({0})", _ANY, "BIGINT"),
    _Function("approx_percentile({0}, 0.5)", ("INT", "DOUBLE", "DECIMAL"), ""),
)
_ORDERED = (
    _Function("first({0})", _ANY, ""),
    _Function("last({0})", _ANY, ""),
    _Function("first({0}, true)", _ANY, ""),
    _Function("last({0}, true)", _ANY, ""),
    _Function("collect_list({0})", _ANY, "", filters=False),
)
"""Their results depend on the order of the records of a group, which only partitions keep."""


class Aggregates:
    """Draws aggregates over the columns in sight."""

    def __init__(
        self, chance: random.Random, drawing: Drawing, prefix: str, *, ordered: bool
    ) -> None:
        """Take what the columns of the record begin with, and whether its order may count."""
        self._chance, self._drawing = chance, drawing
        self._names = {name: f"{prefix}{name}" for name in ("key", "offset")}
        self._names["time"] = f"{prefix}timestamp"
        self._ordered = ordered
        self.is_ordered = False
        """Whether one was drawn that depends on the order."""

    def one(self) -> Expression:
        """Return an aggregate, or an expression of some."""
        chance = self._chance
        first = self._plain()
        if chance.random() < 0.2 and first.kind in ("AGGREGATE BIGINT", "AGGREGATE INT"):
            templates = ("coalesce({0}, 0)", "{0} % 7 + count(*)", "CAST({0} AS STRING)")
            return Expression(chance.choice(templates), first.kind, (first,))
        return first

    def _plain(self) -> Expression:
        chance, drawing = self._chance, self._drawing
        is_ordered = self._ordered and chance.random() < 0.3
        function = chance.choice(_ORDERED if is_ordered else _FUNCTIONS)
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
        result = function.result or (argument.kind if argument is not None else "BIGINT")
        return Expression(template, f"AGGREGATE {result}", parts)

    def _argument(self, kind: str) -> Expression | None:
        if not kind:
            return None
        if kind.endswith("_COLUMN"):
            return self._drawing.leaf(kind.removesuffix("_COLUMN"))
        return self._drawing.expression(kind, self._chance.choice((0, 0, 1, 2)))
