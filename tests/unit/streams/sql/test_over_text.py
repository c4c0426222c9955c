"""What the text of a query says about its `OVER (…)`, and how its state may change."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kafka_pipeline.common.pipelines.specs import OverSpec
from kafka_pipeline.streams.sql.over_shape import OverShape, over_change
from kafka_pipeline.streams.sql.query_text import read_over
from kafka_pipeline.streams.sql.spec import QueryError

WINDOW = "PARTITION BY key ORDER BY timestamp"
HOUR_MS = 3_600_000
SHAPE = OverShape(
    pa.schema([("partition0", pa.string()), ("column0", pa.int64())]),
    partitions=1,
    rows_before=1,
    range_ms=0,
    columns=("key string", "n bigint"),
    key_column="partition0",
)


def over(frame: str, function: str = "sum(n)") -> str:
    return f"SELECT {function} OVER ({WINDOW} {frame}) AS x FROM input"


@pytest.mark.parametrize(
    ("query", "range_ms", "counts_rows"),
    [
        (over("ROWS BETWEEN 9 PRECEDING AND CURRENT ROW"), 0, True),
        (over("rows 9 preceding"), 0, True),
        (over("", "lag(n, 3)"), 0, True),
        (over("", "lag(n) IGNORE NULLS"), 0, True),
        (over("RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW"), HOUR_MS, False),
        (over("RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW"), HOUR_MS, False),
        (over("RANGE INTERVAL 1 HOUR PRECEDING"), HOUR_MS, False),
        (
            over("RANGE BETWEEN INTERVAL 30 MINUTES 1800 SECONDS PRECEDING AND CURRENT ROW"),
            HOUR_MS,
            False,
        ),
        (over("RANGE BETWEEN INTERVAL 1 MICROSECOND PRECEDING AND CURRENT ROW"), 1, False),
        (over("RANGE BETWEEN CURRENT ROW AND CURRENT ROW"), 0, False),
        (
            "SELECT avg(n) OVER w, lag(n) OVER w FROM (SELECT * FROM input WHERE n > 0) "
            f"WINDOW w AS ({WINDOW} RANGE BETWEEN INTERVAL '1 hour' PRECEDING AND CURRENT ROW)",
            HOUR_MS,
            True,
        ),
    ],
)
def test_frames(query: str, range_ms: int, counts_rows: bool) -> None:
    assert read_over(query) == OverSpec(range_ms=range_ms, counts_rows=counts_rows)


@pytest.mark.parametrize(
    ("columns", "stage"),
    [
        ("key", "whole"),
        ("customer, key", "whole"),
        ("customer", "frames"),
        ("upper(key)", "frames"),
        (
            "key ORDER BY timestamp ROWS 2 PRECEDING), max(n) OVER (PARTITION BY customer",
            "frames",
        ),
    ],
)
def test_rows_of_a_group_without_the_key_meet_through_a_topic(columns: str, stage: str) -> None:
    window = f"PARTITION BY {columns} ORDER BY timestamp ROWS 1 PRECEDING"
    found = read_over(f"SELECT max(n) OVER ({window}) FROM input")
    assert found is not None
    assert found.stage == stage


@pytest.mark.parametrize(
    "query",
    [
        "SELECT over FROM input",
        "SELECT * FROM input WHERE value = 'sum(n) OVER (PARTITION BY key)'",
        "SELECT row_number() OVER (PARTITION BY key ORDER BY n) AS p FROM input QUALIFY p = 1",
        "SELECT * FROM input JOIN (SELECT c, sum(p) OVER (ORDER BY p) AS s FROM prices) ON n = c",
        "SELECT sum(n) OVER (PARTITION BY key |> DROP",
    ],
)
def test_queries_without_frames_of_records(query: str) -> None:
    assert read_over(query, ["prices"]) is None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (over(""), "OVER (…) over all rows so far would keep them forever: give a frame such as"),
        (over("RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"), "would keep them forever"),
        (over("RANGE BETWEEN 5 PRECEDING AND CURRENT ROW"), "the time of RANGE BETWEEN cannot be"),
        (over("RANGE INTERVAL 1 MONTH PRECEDING"), "days or smaller units"),
        (over("ROWS 9 PRECEDING").replace("key", "1"), "without a column in PARTITION BY"),
        (
            over("ROWS 9 PRECEDING").replace("PARTITION BY key", ""),
            "without a column in PARTITION BY would have all records in one task",
        ),
        (
            "SELECT lag(n) OVER (PARTITION BY key ORDER BY timestamp), row_number() OVER "
            "(PARTITION BY key ORDER BY timestamp) FROM input",
            "put one of them into a subquery",
        ),
        (
            "SELECT key, sum(x) FROM (SELECT key, lag(n) OVER (PARTITION BY key ORDER BY "
            "timestamp) AS x FROM input) GROUP BY key",
            "GROUP BY and DISTINCT cannot be in one SELECT with OVER (…)",
        ),
    ],
)
def test_frames_that_are_refused(query: str, reason: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_over(query)
    assert reason in str(caught.value)


def content(*columns: str) -> str:
    return json.dumps({"over": columns})


def test_state_belongs_to_the_columns_that_are_kept() -> None:
    over = OverSpec()
    # States of earlier versions do not say which column is the key.
    kept = content("key string", "n decimal(10,2)")
    assert over_change(over, kept, kept).different == ""
    wider = over_change(over, kept, content("key string", "n decimal(12,2)"))
    assert (wider.different, len(wider.converted)) == ("", 1)
    assert "n int are needed" in over_change(over, kept, content("key string", "n int")).different
    assert over_change(over, '{"groups": []}', kept).different == "it was not kept for OVER (…)"


def test_state_belongs_to_the_way_in_which_records_of_a_group_meet() -> None:
    by_key = SHAPE.content_at("whole")
    through_topic = SHAPE.content_at("frames")
    whole, frames = OverSpec(stage="whole"), OverSpec(stage="frames")
    assert over_change(whole, by_key, by_key).different == ""
    assert over_change(frames, through_topic, through_topic).different == ""
    assert (
        over_change(frames, by_key, through_topic).different
        == "the records of a group met by their key, and now meet through an internal topic"
    )
    assert (
        over_change(whole, through_topic, by_key).different
        == "the records of a group met through an internal topic, and now meet by their key"
    )
