"""Random expressions with types, as people write them; none of them raises an error for any value.

Errors would reject the record here, and end the whole query in Spark.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

ARRAYS = {"ARRAY<STRING>": "STRING", "ARRAY<INT>": "INT"}
_ALONE = re.compile(r"[\w.]+|'.*'|\w+\(.*\)|CASE .* END|NULL")


@dataclass(frozen=True)
class Expression:
    """SQL with places for other expressions, such as `coalesce({0}, {1})`."""

    template: str
    kind: str
    parts: tuple[Expression, ...] = ()

    @property
    def sql(self) -> str:
        """The text of the expression."""
        return self.template.format(*(part.enclosed for part in self.parts))

    @property
    def enclosed(self) -> str:
        """The text, in parentheses where it needs them within another one."""
        return self.sql if _ALONE.fullmatch(self.template) else f"({self.sql})"

    def smaller(self) -> Iterator[Expression]:
        """Yield expressions of the same kind with fewer parts."""
        for place, part in enumerate(self.parts):
            if part.kind == self.kind:
                yield part
            for less in part.smaller():
                parts = (*self.parts[:place], less, *self.parts[place + 1 :])
                yield replace(self, parts=parts)


def kind_of(type_: str) -> str:
    """Return what a type is among expressions: decimals of all sizes are one kind."""
    if type_.startswith("DECIMAL"):
        return "DECIMAL"
    return "STRUCT" if type_.startswith("STRUCT") else type_


def column(name: str, kind: str) -> Expression:
    """Return a column."""
    return Expression(name, kind)


_LITERALS = {
    "STRING": ("'a'", "''", "'é'", "'10'", "'x''y'", "CAST(NULL AS STRING)"),
    "INT": ("0", "1", "3", "-1"),
    "BIGINT": ("0L", "40L", "BIGINT(2)"),
    "DOUBLE": ("0.25D", "DOUBLE(1)", "-1.5D"),
    "DECIMAL": ("1.25", "0.0", "-3.75"),
    "BOOLEAN": ("true", "false"),
    "TIMESTAMP": ("TIMESTAMP '2024-02-29 12:00:00'", "TIMESTAMP '1969-12-31 00:00:01'"),
    "DATE": ("DATE '2024-02-29'", "DATE '1970-01-01'"),
    "ARRAY<STRING>": ("array('a', 'b')",),
    "ARRAY<INT>": ("array(1, NULL, 3)",),
    "STRUCT": ("named_struct('a', 1, 'b', 'x')",),
}

_OPERATIONS: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "STRING": (
        ("upper({0})", ("STRING",)),
        ("trim({0})", ("STRING",)),
        ("concat({0}, '-', {1})", ("STRING", "STRING")),
        ("concat_ws(',', {0}, {1})", ("STRING", "STRING")),
        ("concat_ws('|', {0})", ("ARRAY<STRING>",)),
        ("{0} || {1}", ("STRING", "STRING")),
        ("substring({0}, 2, 2)", ("STRING",)),
        ("left({0}, 1)", ("STRING",)),
        ("replace({0}, 'a', 'bb')", ("STRING",)),
        ("reverse({0})", ("STRING",)),
        ("lpad({0}, 4, '*')", ("STRING",)),
        ("regexp_replace({0}, '[0-9]+', '#')", ("STRING",)),
        ("split_part({0}, ',', 1)", ("STRING",)),
        ("nullif({0}, {1})", ("STRING", "STRING")),
        ("md5({0})", ("STRING",)),
        ("base64(encode({0}, 'UTF-8'))", ("STRING",)),
        ("to_json({0})", ("STRUCT",)),
        ("{0}.b", ("STRUCT",)),
        ("CAST({0} AS STRING)", ("INT",)),
        ("CAST({0} AS STRING)", ("BIGINT",)),
        ("CAST({0} AS STRING)", ("DOUBLE",)),
        ("CAST({0} AS STRING)", ("DECIMAL",)),
        ("CAST({0} AS STRING)", ("BOOLEAN",)),
        ("CAST({0} AS STRING)", ("TIMESTAMP",)),
        ("CAST({0} AS STRING)", ("DATE",)),
        ("CAST({0} AS STRING)", ("ARRAY<INT>",)),
        ("date_format({0}, 'yyyy-MM-dd HH:mm')", ("TIMESTAMP",)),
        ("format_string('%s:%d', {0}, {1})", ("STRING", "INT")),
        ("CAST(CASE WHEN {0} THEN double('NaN') ELSE {1} END AS STRING)", ("BOOLEAN", "DOUBLE")),
    ),
    "INT": (
        ("length({0})", ("STRING",)),
        ("try_add({0}, {1})", ("INT", "INT")),
        ("try_subtract({0}, 1)", ("INT",)),
        ("try_multiply({0}, 2)", ("INT",)),
        ("{0} % 3", ("INT",)),
        ("pmod({0}, 3)", ("INT",)),
        ("nullif({0}, {1})", ("INT", "INT")),
        ("size({0})", ("ARRAY<STRING>",)),
        ("get({0}, 0)", ("ARRAY<INT>",)),
        ("array_max({0})", ("ARRAY<INT>",)),
        ("try_cast({0} AS INT)", ("STRING",)),
        ("try_cast({0} AS INT)", ("DOUBLE",)),
        ("try_cast({0} AS INT)", ("BIGINT",)),
        ("CAST({0} AS INT)", ("BOOLEAN",)),
        ("year({0})", ("TIMESTAMP",)),
        ("hour({0})", ("TIMESTAMP",)),
        ("dayofweek({0})", ("DATE",)),
        ("datediff({0}, {1})", ("DATE", "DATE")),
        ("sign({0})::INT", ("INT",)),
        ("instr({0}, 'a')", ("STRING",)),
        ("{0}.a", ("STRUCT",)),
    ),
    "BIGINT": (
        ("CAST({0} AS BIGINT)", ("INT",)),
        ("try_add({0}, {1})", ("BIGINT", "INT")),
        ("try_multiply({0}, {1})", ("BIGINT", "BIGINT")),
        ("{0} DIV 7", ("BIGINT",)),
        ("unix_seconds({0})", ("TIMESTAMP",)),
        ("unix_millis({0})", ("TIMESTAMP",)),
        ("try_cast({0} AS BIGINT)", ("STRING",)),
        ("try_cast({0} AS BIGINT)", ("DECIMAL",)),
        ("xxhash64({0}, {1})", ("STRING", "INT")),
        ("greatest({0}, {1})", ("BIGINT", "BIGINT")),
    ),
    "DOUBLE": (
        ("{0} + {1}", ("DOUBLE", "DOUBLE")),
        ("{0} * 2", ("DOUBLE",)),
        ("{0} - {1}", ("DOUBLE", "INT")),
        ("try_divide({0}, {1})", ("DOUBLE", "DOUBLE")),
        ("CAST({0} AS DOUBLE)", ("INT",)),
        ("CAST({0} AS DOUBLE)", ("DECIMAL",)),
        ("abs({0})", ("DOUBLE",)),
        ("sqrt(abs({0}))", ("DOUBLE",)),
        ("nanvl({0}, {1})", ("DOUBLE", "DOUBLE")),
    ),
    "DECIMAL": (
        ("try_add({0}, {1})", ("DECIMAL", "DECIMAL")),
        ("try_multiply({0}, 2)", ("DECIMAL",)),
        ("try_divide({0}, 3)", ("DECIMAL",)),
        ("nullif({0}, {1})", ("DECIMAL", "DECIMAL")),
        ("try_cast({0} AS DECIMAL(12,3))", ("DECIMAL",)),
        ("try_cast({0} AS DECIMAL(8,1))", ("DOUBLE",)),
        ("CAST({0} AS DECIMAL(12,0))", ("INT",)),
        ("abs({0})", ("DECIMAL",)),
    ),
    "BOOLEAN": (
        ("{0} = {1}", ("STRING", "STRING")),
        ("{0} <=> {1}", ("STRING", "STRING")),
        ("{0} < {1}", ("INT", "INT")),
        ("{0} >= {1}", ("DOUBLE", "DOUBLE")),
        ("{0} > {1}", ("DECIMAL", "DECIMAL")),
        ("{0} <> {1}", ("BIGINT", "INT")),
        ("{0} < {1}", ("TIMESTAMP", "TIMESTAMP")),
        ("{0} IS NULL", ("STRING",)),
        ("{0} IS NOT NULL", ("DOUBLE",)),
        ("{0} AND {1}", ("BOOLEAN", "BOOLEAN")),
        ("{0} OR {1}", ("BOOLEAN", "BOOLEAN")),
        ("NOT {0}", ("BOOLEAN",)),
        ("{0} LIKE '%a%'", ("STRING",)),
        ("{0} IN ('a', 'é', NULL)", ("STRING",)),
        ("{0} BETWEEN 0 AND 3", ("INT",)),
        ("{0} BETWEEN {1} AND {2}", ("DECIMAL", "DECIMAL", "DECIMAL")),
        ("{0} NOT BETWEEN 'a' AND {1}", ("STRING", "STRING")),
        ("array_contains({0}, 'a')", ("ARRAY<STRING>",)),
        ("exists({0}, v -> v > 1)", ("ARRAY<INT>",)),
        ("{0} RLIKE '^[a-z]'", ("STRING",)),
    ),
    "TIMESTAMP": (
        ("date_trunc('HOUR', {0})", ("TIMESTAMP",)),
        ("{0} + INTERVAL 90 MINUTES", ("TIMESTAMP",)),
        ("try_to_timestamp({0})", ("STRING",)),
        ("CAST({0} AS TIMESTAMP)", ("DATE",)),
        ("timestamp_millis({0})", ("INT",)),
        ("least({0}, {1})", ("TIMESTAMP", "TIMESTAMP")),
    ),
    "DATE": (
        ("CAST({0} AS DATE)", ("TIMESTAMP",)),
        ("date_add({0}, 1)", ("DATE",)),
        ("last_day({0})", ("DATE",)),
        ("try_cast({0} AS DATE)", ("STRING",)),
    ),
    "ARRAY<STRING>": (
        ("split({0}, ',')", ("STRING",)),
        ("array({0}, {1})", ("STRING", "STRING")),
        ("array_distinct({0})", ("ARRAY<STRING>",)),
        ("filter({0}, v -> v <> 'a')", ("ARRAY<STRING>",)),
        ("transform({0}, v -> upper(v))", ("ARRAY<STRING>",)),
    ),
    "ARRAY<INT>": (
        ("sort_array({0})", ("ARRAY<INT>",)),
        ("array({0}, {1})", ("INT", "INT")),
        ("array_union({0}, {1})", ("ARRAY<INT>", "ARRAY<INT>")),
    ),
    "STRUCT": (("named_struct('a', {0}, 'b', {1})", ("INT", "STRING")),),
}
_ANY_KIND = (
    ("coalesce({0}, {1})", 0),
    ("CASE WHEN {2} THEN {0} ELSE {1} END", 1),
    ("if({2}, {0}, {1})", 1),
    ("CASE WHEN {2} THEN {0} END", 1),
)


class Drawing:
    """Draws expressions over the columns that are in sight."""

    def __init__(self, chance: random.Random, columns: Mapping[str, str]) -> None:
        """Take the kinds of the columns by name."""
        self._chance = chance
        self.columns = dict(columns)

    def expression(self, kind: str, depth: int = 2) -> Expression:
        """Return an expression of a kind that has at most `depth` operations in a row."""
        chance = self._chance
        if depth <= 0 or chance.random() < 0.25:
            return self.leaf(kind)
        if chance.random() < 0.2:
            template, conditions = chance.choice(_ANY_KIND)
            kinds = (kind, kind) + ("BOOLEAN",) * conditions
        else:
            template, kinds = self._operation(kind)
        return Expression(template, kind, tuple(self.expression(k, depth - 1) for k in kinds))

    def _operation(self, kind: str) -> tuple[str, tuple[str, ...]]:
        """Return an operation, if possible one of columns: constants find little."""
        seen = {*self.columns.values()}
        found = [each for each in _OPERATIONS[kind] if seen.issuperset(each[1])]
        return self._chance.choice(found or _OPERATIONS[kind])

    def leaf(self, kind: str) -> Expression:
        """Return a column of this kind, or a constant if there is none, and now and then."""
        found = [name for name, each in self.columns.items() if each == kind]
        if not found or self._chance.random() < 0.15:
            return self.constant(kind)
        return Expression(self._chance.choice(found), kind)

    def constant(self, kind: str) -> Expression:
        """Return a constant."""
        return Expression(self._chance.choice(_LITERALS[kind]), kind)

    def condition(self) -> Expression:
        """Return a condition that is true for some rows and not for others, mostly."""
        return self.varying("BOOLEAN", self._chance.choice((1, 1, 2)))

    def varying(self, kind: str, depth: int) -> Expression:
        """Return an expression of columns, if some tries find one."""
        for _ in range(20):
            found = self.expression(kind, depth)
            if self._has_column(found):
                return found
        return Expression("{0} IS NOT NULL", "BOOLEAN", (self.leaf("STRING"),))

    def _has_column(self, expression: Expression) -> bool:
        return expression.template in self.columns or any(map(self._has_column, expression.parts))

    def any(self, depth: int = 2, kinds: tuple[str, ...] | None = None) -> Expression:
        """Return an expression of any kind, or of some; mostly of those of the columns."""
        allowed = kinds or tuple(_LITERALS)
        seen = [kind for kind in self.columns.values() if kind in allowed]
        choice = seen if seen and self._chance.random() < 0.8 else allowed
        return self.expression(self._chance.choice(choice), depth)
