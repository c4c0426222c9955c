"""Rows whose results Spark cannot compute: the others get theirs."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from kafka_pipeline.streams.sql.over_failures import possible_results
from kafka_pipeline.streams.sql.over_shape import IS_DUE, PLACE, OverShape
from kafka_pipeline.streams.sql.spec import QueryError, SparkLostError

SHAPE = OverShape(
    pa.schema([("partition0", pa.string()), ("column0", pa.int64())]),
    partitions=1,
    rows_before=1,
    range_ms=10,
    columns=("key string", "n bigint"),
    key_column="partition0",
)
ROWS = [
    ("a", 1, 0, False),
    ("b", 2, 0, True),
    ("a", 3, 5, True),
    ("a", 4, 15, True),
    ("b", 5, 20, True),
    ("a", 6, 20, True),
    ("a", 7, 20, True),
]
"""The group, the number, the time in ms, and whether it is due."""


def table(rows: list[tuple[str, int, int, bool]] = ROWS) -> pa.Table:
    columns = {
        "partition0": [row[0] for row in rows],
        "column0": [row[1] for row in rows],
        "timestamp": [datetime.fromtimestamp(row[2] / 1000, UTC) for row in rows],
        PLACE: list(range(len(rows))),
        IS_DUE: [row[3] for row in rows],
    }
    return pa.table(columns, SHAPE.given)


class Query:
    """Gives the number of each row that is due, and fails on a call with any of `bad`."""

    def __init__(self, *bad: int) -> None:
        self.bad = set(bad)
        self.alone: dict[int, list[int]] = {}
        """The rows in the frames of each one that was computed alone."""

    def results(self, rows: pa.Table) -> pa.Table:
        numbers = rows["column0"].to_pylist()
        due = rows.filter(rows[IS_DUE])["column0"].to_pylist()
        if len(due) == 1:
            self.alone[due[0]] = numbers
        if self.bad & set(due):
            raise QueryError("a number is bad")
        return pa.table({"n": pa.array(due, pa.int64())})


@pytest.mark.parametrize("bad", [(), (3,), (2, 7), (4, 5, 6), (2, 3, 4, 5, 6, 7)])
def test_rows_that_fail_are_left_out_alone(bad: tuple[int, ...]) -> None:
    found, failed = possible_results(Query(*bad).results, table(), SHAPE)
    numbers = sorted(found["n"].to_pylist())
    assert (numbers, failed) == ([n for n in (2, 3, 4, 5, 6, 7) if n not in bad], len(bad))


def test_row_is_computed_with_the_rows_in_its_frames() -> None:
    query = Query(2, 3, 4, 5, 6, 7)
    possible_results(query.results, table(), SHAPE)
    # Those before it by one row or by 10 ms, and those of its time, all of its group.
    assert query.alone == {2: [2], 3: [1, 3], 4: [3, 4], 5: [2, 5], 6: [4, 6, 7], 7: [4, 6, 7]}


def test_no_row_is_to_blame_if_spark_fails_on_none() -> None:
    def lost(rows: pa.Table) -> pa.Table:
        raise QueryError("there is no memory")

    with pytest.raises(SparkLostError, match="Spark fails on no records: there is no memory"):
        possible_results(lost, table(), SHAPE)
