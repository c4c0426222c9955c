"""Tables and their joins."""

from __future__ import annotations

from kafka_pipeline.streams.dsl.table import Table
from tests.user_code.operators.parts import Fill, Operator, pair


def to_table(of: Operator) -> Table:
    return of.a.to_table(name="Table").map_values(lambda value: value * 2, name="Doubled")


def filter_table(of: Operator) -> Table:
    return of.table.filter(lambda key, value: int(value) % 3 != 0).filter_not(
        lambda key, value: value == "4", name="Kept"
    )


def _of_tables(of: Operator, method: str, name: str | None) -> Table:
    left = of.a.to_table(name="Left")
    joined: Table = getattr(left, method)(of.table, pair, name=name)
    return joined


def join_tables(of: Operator) -> Table:
    return _of_tables(of, "join", None)


def left_join_tables(of: Operator) -> Table:
    return _of_tables(of, "left_join", "Joined")


def outer_join_tables(of: Operator) -> Table:
    return _of_tables(of, "outer_join", "Joined")


def _by_foreign_key(of: Operator, method: str) -> Table:
    rows = of.builder.table(f"{of.prefix}rows", name="Rows")
    rates = of.builder.table(f"{of.prefix}rates", name="Rates")
    joined: Table = getattr(rows, method)(
        rates, pair, foreign_key=lambda value: value[0], name="Rated"
    )
    return joined


def join_versioned_tables(of: Operator) -> Table:
    left = of.a.to_table(name="Left", history_retention_ms=1000)
    return left.join(of.versioned, pair, name="Joined")


def join_by_foreign_key(of: Operator) -> Table:
    return _by_foreign_key(of, "join")


def left_join_by_foreign_key(of: Operator) -> Table:
    return _by_foreign_key(of, "left_join")


TABLES: tuple[Fill, ...] = (
    to_table,
    filter_table,
    join_tables,
    left_join_tables,
    outer_join_tables,
    join_versioned_tables,
    join_by_foreign_key,
    left_join_by_foreign_key,
)
