"""Queries with GROUP BY: what is known about their groups and windows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.state_shape import OPEN_FROM, Merged
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import MINUTE_US, merged_of, opened, records, results_of

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("query", "has_key"),
    long_but_the_first(
        [
            (
                "SELECT count(*) AS c FROM (SELECT * FROM input UNPIVOT (part FOR name IN "
                "(key, customer))) GROUP BY part",
                False,
            ),
            ("SELECT count(*) AS c FROM input GROUP BY n, key", True),
            ("SELECT k AS key, count(*) AS c FROM (SELECT key AS k FROM input) GROUP BY 1", True),
            ("SELECT count(*) AS c FROM (SELECT upper(key) AS key FROM input) GROUP BY key", False),
            ("SELECT count(*) AS c FROM input GROUP BY CUBE (key, n)", False),
            (
                "SELECT window.end AS timestamp, max(timestamp) AS m, max(n) AS n FROM input "
                "GROUP BY window(timestamp, '2 hours', '1 hour'), key",
                True,
            ),
        ],
        2,
    ),
)
def test_shape_says_whether_the_records_of_a_group_have_one_key(
    local: LocalQueries, query: str, has_key: bool
) -> None:
    assert opened(local, query).shape.has_key is has_key


def test_last_time_is_kept_next_to_a_timestamp_of_the_query(local: LocalQueries) -> None:
    query = opened(
        local,
        "SELECT window.end AS timestamp, max(n) AS n FROM input GROUP BY "
        "window(timestamp, '1 hour')",
    )
    partial = query.partial(records([{"n": 9, "at": 7}, {"n": 1, "at": 8}, {"n": 2, "at": 100}]))
    times = partial[query.shape.last_time].cast(pa.int64()).to_pylist()
    assert sorted(times) == [8 * MINUTE_US, 100 * MINUTE_US]
    results = Merged.of(query.shape, query.merge(partial)).results
    assert sorted(results["timestamp"].to_pylist()) == [3_600_000, 7_200_000]


@pytest.mark.parametrize("window", ["'1 hour'", "'1 hour', '30 minutes'"])
def test_record_is_in_no_window_that_has_closed_for_it(local: LocalQueries, window: str) -> None:
    query = opened(
        local,
        "SELECT date_format(window.start, 'HH:mm') AS key, count(*) AS c, "
        f"collect_list(n) AS l FROM input GROUP BY window(timestamp, {window})",
    )
    table = records([{"n": 1, "at": 70}, {"n": 2, "at": 70}, {"n": 3, "at": 70}])
    opens = pa.array([at * MINUTE_US for at in (0, 60, 61)], pa.timestamp("us", tz="UTC"))
    partial = query.partial(table.set_column(table.column_names.index(OPEN_FROM), OPEN_FROM, opens))
    lists = {key: value["l"] for key, value, _ in results_of(merged_of(query, partial))}
    hopping = {b"00:30": [1]} if "30" in window else {}
    assert lists == {b"01:00": [1, 2], **hopping}
