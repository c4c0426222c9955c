"""The stores of a join of two inputs: the rows of each side, and those without a partner."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.specs import JoinSpec
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.waiting import waiting_store
from kafka_pipeline.streams.event_time.step_time import times_store
from kafka_pipeline.streams.sql.state_stores import shape_store
from kafka_pipeline.streams.stores import StoreBuilder, window

JOIN = "join"
"""The name under which the time of a join is kept."""

UNMATCHED = "unmatched"
"""The store of the results of rows that have no partner yet."""

ROWS = ("left", "right")
"""The stores of the rows of both sides."""


def reach_of(join: JoinSpec, side: int) -> tuple[int, int]:
    """Return how much older and younger the partner of a side's record may be, in ms."""
    return (join.before_ms, join.after_ms) if side == 0 else (join.after_ms, join.before_ms)


def join_stores(join: JoinSpec) -> tuple[StoreBuilder[Any, Any], ...]:
    """Return the definitions of the stores.

    A row is kept as long as a partner may come: records are late after `grace_ms`.
    """
    sides = [
        window(
            name,
            serdes.bytes,
            serdes.bytes,
            retention_ms=max(reach_of(join, side)[1], 0) + join.grace_ms + 1,
            window_size_ms=1,
            retain_duplicates=True,
        ).spread("numbered")
        for side, name in enumerate(ROWS)
    ]
    waiting = [waiting_store(UNMATCHED, 0).spread("unmatched")] if join.keeps else []
    return (*sides, *waiting, times_store(JOIN).spread("numbered_times"), shape_store())
