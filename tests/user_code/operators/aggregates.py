"""Aggregates without windows."""

from __future__ import annotations

from kafka_pipeline import agg, serdes, value
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table
from tests.user_code.operators.parts import Fill, Operator, add


def count(of: Operator) -> Stream:
    return of.a.group_by_key().count(name="Counts").to_stream().map_values(str)


def reduce(of: Operator) -> Table:
    grouped = of.a.group_by(lambda key, value: value[0], name="ByDigit")
    return grouped.reduce(lambda total, value: f"{total},{value}", name="Reduced")


def aggregate(of: Operator) -> Table:
    return of.a.group_by_key().aggregate(lambda: "", add, name="Added")


def cogroup(of: Operator) -> Table:
    both = of.a.group_by_key().cogroup(add)
    return both.cogroup(
        of.b.group_by_key(), lambda key, value, total: f"{total};{value}"
    ).aggregate(lambda: "", name="Cogrouped")


def aggregate_fields(of: Operator) -> Table:
    number = value().cast(int)
    return of.a.group_by_key().agg(
        "Figures",
        serdes.json,
        count=agg.count(),
        sum=agg.sum(number),
        avg=agg.avg(number),
        min=agg.min(number),
        max=agg.max(number),
        first=agg.first(number),
        last=agg.last(number),
        approx_distinct=agg.approx_distinct(number % 3),
    )


def top_n(of: Operator) -> Table:
    return of.a.group_by_key().top_n(
        2, by=lambda key, value: int(value) % 5, name="Top", value_serde=serdes.json
    )


def group_table(of: Operator) -> Table:
    grouped = of.table.group_by(lambda key, value: (value[0], value), name="ByDigit")
    return grouped.aggregate(
        lambda: "",
        lambda key, value, total: f"{total}+{value}",
        lambda key, value, total: f"{total}-{value}",
        name="Groups",
    )


def count_and_reduce_groups(of: Operator) -> Stream:
    grouped = of.table.group_by(lambda key, value: (value[0], value), name="ByDigit")
    numbers = grouped.count(name="Counts").to_stream().map_values(str)
    reduced = grouped.reduce(
        lambda total, value: f"{total}+{value}",
        lambda total, value: f"{total}-{value}",
        name="Reduced",
    )
    return numbers.merge(reduced.to_stream())


def agg_groups(of: Operator) -> Table:
    grouped = of.table.group_by(lambda key, value: (value[0], value), name="ByDigit")
    number = value().cast(int)
    return grouped.agg("Sums", serdes.json, sum=agg.sum(number), avg=agg.avg(number / 4))


AGGREGATES: tuple[Fill, ...] = (
    count,
    reduce,
    aggregate,
    cogroup,
    aggregate_fields,
    top_n,
    group_table,
    count_and_reduce_groups,
    agg_groups,
)
