"""Joins of streams with streams and tables."""

from __future__ import annotations

from kafka_pipeline import windows
from kafka_pipeline.streams.dsl.global_table import GlobalTable
from kafka_pipeline.streams.dsl.stream import Stream
from tests.user_code.operators.parts import Fill, Operator, pair

JOINED = windows.join(before_ms=4, after_ms=4, grace_ms=2)


def join_streams(of: Operator) -> Stream:
    return of.a.join(of.b, pair, JOINED, name="Joined")


def left_join_streams(of: Operator) -> Stream:
    return of.a.left_join(of.b, pair, JOINED, name="Joined")


def outer_join_streams(of: Operator) -> Stream:
    return of.a.outer_join(of.b, pair, JOINED, name="Joined")


def join_with_itself(of: Operator) -> Stream:
    stream = of.a
    return stream.join(stream, pair, JOINED, name="Joined")


def join_table(of: Operator) -> Stream:
    return of.a.join(of.table, pair)


def left_join_table(of: Operator) -> Stream:
    return of.a.left_join(of.table, pair)


def join_versioned_table(of: Operator) -> Stream:
    return of.a.join(of.versioned, pair)


def join_versioned_table_later(of: Operator) -> Stream:
    return of.a.join(of.versioned, pair, grace_ms=5, name="Joined")


def left_join_versioned_table_later(of: Operator) -> Stream:
    return of.a.left_join(of.versioned, pair, grace_ms=5, name="Joined")


def join_versioned_aggregate(of: Operator) -> Stream:
    total = of.b.group_by_key().reduce(
        lambda total, value: f"{total},{value}", name="Total", history_retention_ms=1000
    )
    return of.a.join(total, pair)


def join_global_table(of: Operator) -> Stream:
    return of.a.join(_names(of), pair, key=lambda key, value: value[0])


def left_join_global_table(of: Operator) -> Stream:
    return of.a.left_join(_names(of), pair, key=lambda key, value: value[0])


def _names(of: Operator) -> GlobalTable:
    return of.builder.global_table(f"{of.prefix}rates", name="Names")


JOINS: tuple[Fill, ...] = (
    join_streams,
    left_join_streams,
    outer_join_streams,
    join_with_itself,
    join_table,
    left_join_table,
    join_versioned_table,
    join_versioned_table_later,
    left_join_versioned_table_later,
    join_versioned_aggregate,
    join_global_table,
    left_join_global_table,
)
