"""Aggregates in windows."""

from __future__ import annotations

from kafka_pipeline import Suppress, agg, serdes, value, windows
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.dsl.table import Table
from tests.user_code.operators.parts import Fill, Operator, add, shown

IDLE_MS = 500
"""After how long without a record windows close, where they do."""


def tumbling(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=5))
    return shown(windowed.count(name="Counts"))


def tumbling_on_close(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=5), emit="on_close")
    return shown(windowed.count(name="Counts"))


def late_records(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=0), late_to=of.out)
    return shown(windowed.count(name="Counts"))


def days(of: Operator) -> Stream:
    kind = windows.calendar("1 day", tz="Europe/Berlin", grace_ms=5)
    return shown(of.a.group_by_key().windowed_by(kind).count(name="Counts"))


def hopping(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.hopping(10, advance_ms=5, grace_ms=5))
    return shown(windowed.reduce(lambda total, value: total + value, name="Reduced"))


def hopping_on_close(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(
        windows.hopping(10, advance_ms=5, grace_ms=5), emit="on_close"
    )
    return shown(windowed.reduce(lambda total, value: total + value, name="Reduced"))


def sliding(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.sliding(6, grace_ms=5))
    return shown(windowed.aggregate(lambda: "", add, name="Added"))


def sliding_on_close(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.sliding(6, grace_ms=5), emit="on_close")
    return shown(windowed.aggregate(lambda: "", add, name="Added"))


def sessions(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.session(3, grace_ms=5))
    return shown(windowed.count(name="Counts"))


def sessions_on_close(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.session(3, grace_ms=5), emit="on_close")
    return shown(windowed.count(name="Counts"))


def sessions_when_idle(of: Operator) -> Stream:
    """Each phase has one record, so that a task that stops for a while does not close too early."""
    few = of.a.filter(lambda key, value: value in ("1", "8", "12"))
    windowed = few.group_by_key().windowed_by(
        windows.session(3, grace_ms=5, close_after_idle_ms=IDLE_MS), emit="on_close"
    )
    return shown(windowed.count(name="Counts"))


def window_fields(of: Operator) -> Stream:
    number = value().cast(int)
    windowed = of.a.group_by_key().windowed_by(windows.session(3, grace_ms=5))
    return shown(windowed.agg("Figures", count=agg.count(), max=agg.max(number)))


def window_top_n(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=5))
    return shown(windowed.top_n(2, by=value().cast(int), name="Top", value_serde=serdes.json))


def cogroup_windows(of: Operator) -> Stream:
    both = of.a.group_by_key().cogroup(add).cogroup(of.b.group_by_key(), add)
    windowed = both.windowed_by(windows.tumbling(10, grace_ms=5))
    return shown(windowed.aggregate(lambda: "", name="Cogrouped"))


def cogroup_sessions(of: Operator) -> Stream:
    both = of.a.group_by_key().cogroup(add).cogroup(of.b.group_by_key(), add)
    windowed = both.windowed_by(windows.session(3, grace_ms=5))
    table = windowed.aggregate(
        lambda: "", merger=lambda key, left, right: f"{left}|{right}", name="Cogrouped"
    )
    return shown(table)


def suppress_windows(of: Operator) -> Stream:
    windowed = of.a.group_by_key().windowed_by(windows.tumbling(10, grace_ms=5))
    counted = windowed.count(name="Counts")
    return shown(counted.suppress(Suppress.until_window_closes(), name="Closed"))


def suppress_updates(of: Operator) -> Table:
    return of.table.suppress(Suppress.until_time_limit(8), name="Seldom")


WINDOWED: tuple[Fill, ...] = (
    tumbling,
    tumbling_on_close,
    late_records,
    days,
    hopping,
    hopping_on_close,
    sliding,
    sliding_on_close,
    sessions,
    sessions_on_close,
    sessions_when_idle,
    window_fields,
    window_top_n,
    cogroup_windows,
    cogroup_sessions,
    suppress_windows,
    suppress_updates,
)
