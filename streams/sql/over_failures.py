"""Finds the rows whose results Spark cannot compute, so that the others get theirs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from kafka_pipeline.streams.sql.columns import with_items
from kafka_pipeline.streams.sql.over_shape import IS_DUE, OverShape
from kafka_pipeline.streams.sql.processor import run_carefully
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError

logger = structlog.get_logger()


def possible_results(
    run: Callable[[pa.Table], pa.Table], rows: pa.Table, shape: OverShape
) -> tuple[pa.Table, int]:
    """Return what `run` gives for the rows that are due, and how many of them it fails on.

    Those are found by halving. Each is computed with the rows in its own frames only, so it does
    not matter with which others it is due. Raises `SparkLostError` if no row is to blame.
    """
    try:
        return run(rows), 0
    except QueryError:
        frames = _Frames(rows, shape)
    found = [run_carefully(run, rows.slice(0, 0), is_alone=True)]
    errors = list[QueryError]()
    parts = [np.flatnonzero(rows[IS_DUE])]
    while parts:
        part = parts.pop()
        try:
            found.append(run_carefully(run, frames.of(part), is_alone=len(part) == 1))
        except QueryError as error:
            if len(part) > 1:
                parts += np.array_split(part, 2)
            else:
                errors.append(error)
    if errors:
        logger.warning("results left out", results=len(errors), reason=errors[0].shown)
    return pa.concat_tables(found), len(errors)


class _Frames:
    """The frames of rows, which are in the order of their `PLACE`."""

    def __init__(self, rows: pa.Table, shape: OverShape) -> None:
        self._rows = rows
        self._rows_before = shape.rows_before
        self._range_us = shape.range_ms * 1000
        self._times = np.asarray(rows["timestamp"].cast(pa.int64()))
        self._groups = RowCodec(shape.groups).encode(rows)
        members: dict[bytes, list[int]] = {}
        for index, group in enumerate(self._groups):
            members.setdefault(group, []).append(index)
        self._members = {group: np.array(indexes) for group, indexes in members.items()}

    def of(self, due: npt.NDArray[np.int64]) -> pa.Table:
        """Return rows, which are due, with those in their frames, which are not."""
        is_kept, is_due = np.zeros((2, len(self._rows)), np.bool_)
        for index in due:
            members, time = self._members[self._groups[index]], self._times[index]
            since, until = np.searchsorted(self._times[members], [time - self._range_us, time + 1])
            place = int(np.searchsorted(members, index))
            is_kept[members[min(since, max(place - self._rows_before, 0)) : until]] = True
        is_due[due] = True
        return with_items(self._rows, IS_DUE, pa.array(is_due)).filter(pa.array(is_kept))
