"""What the text of a query says about its groups."""

from __future__ import annotations

import pytest

from common.specs import WindowSpec
from streams.sql.query_text import GroupsText, read_groups
from streams.sql.spec import QueryError

HOUR_MS = 3_600_000
HOURLY = WindowSpec(size_ms=HOUR_MS, slide_ms=HOUR_MS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT key, value FROM input",
        "SELECT value AS `group`, 'GROUP BY' AS by FROM input -- GROUP BY key",
        "SELECT value /* a /* nested */ GROUP BY key */ FROM input",
        r"SELECT 'it\'s', r'\', \"GROUP BY\" FROM input".replace(r"\"", '"'),
        "SELECT i.key FROM input i JOIN (SELECT c, max(p) AS p FROM prices GROUP BY c) t USING (c)",
        "WITH t AS (SELECT c, max(p) AS p FROM prices GROUP BY c) SELECT i.key FROM input i, t",
        "SELECT key FROM input WHERE x IN (SELECT y FROM t GROUP BY y)",
        "",
        "SELECT (((",
        "SELECT 1) GROUP BY key",
        "/* not ended GROUP BY",
    ],
)
def test_query_that_does_not_group_records(query: str) -> None:
    assert read_groups(query) is None


@pytest.mark.parametrize(
    ("query", "has_key"),
    [
        ("SELECT key, count(*) AS c FROM input GROUP BY key", True),
        ("select count(*) from input group\nby  n, KEY having count(*) > 1", True),
        ("SELECT count(*) FROM input i GROUP BY i.key", True),
        ("SELECT count(*) FROM input AS i WHERE n > 1 GROUP BY n, i.`key`", True),
        ("SELECT count(*) FROM input GROUP BY input.key", True),
        ("SELECT count(*) FROM input JOIN t ON n = c GROUP BY t.key", False),
        ("SELECT count(*) FROM input GROUP BY customer", False),
        ("SELECT count(*) FROM input GROUP BY upper(key)", False),
        ("SELECT count(*) FROM input GROUP BY struct(key, n)", False),
        ("SELECT count(*) FROM input GROUP BY n || key", False),
        ("SELECT count(*) FROM input GROUP BY ALL", False),
        ("SELECT key, count(*) FROM input GROUP BY 1", False),
        ("SELECT count(*) FROM input GROUP BY CUBE (key)", False),
        ("SELECT count(*) FROM input GROUP BY key, n WITH ROLLUP", False),
        ("SELECT count(*) FROM input GROUP BY key, n GROUPING SETS ((key), (n))", False),
        ("SELECT count(*) FROM input GROUP BY window(timestamp, '1 hour'), key", True),
        ("SELECT * FROM (SELECT key, count(*) AS c FROM input GROUP BY key) WHERE c > 1", True),
        ("WITH a AS (SELECT key FROM input) SELECT count(*) FROM a GROUP BY key", True),
        (
            "WITH a AS (SELECT key FROM input), b (k, c) AS (SELECT key, count(*) FROM a "
            "GROUP BY key) SELECT * FROM b",
            True,
        ),
    ],
)
def test_key_among_the_grouping_columns(query: str, has_key: bool) -> None:
    found = read_groups(query)
    assert found is not None
    assert found.has_key is has_key


@pytest.mark.parametrize(
    ("window", "size_ms", "slide_ms", "start_ms"),
    [
        ("'1 hour'", HOUR_MS, HOUR_MS, 0),
        ('"INTERVAL 1 hour 30 minutes"', 5_400_000, 5_400_000, 0),
        ("'2 weeks', '1 day'", 1_209_600_000, 86_400_000, 0),
        ("'1 hour', '20 minutes', '5 minutes'", HOUR_MS, 1_200_000, 300_000),
        ("'1 Hour', '20 minutes', '-5 minutes'", HOUR_MS, 1_200_000, -300_000),
        ("'90 seconds', 30000000", 90_000, 30_000, 0),
        ("'1 second', '250 milliseconds'", 1000, 250, 0),
    ],
)
def test_times_of_windows(window: str, size_ms: int, slide_ms: int, start_ms: int) -> None:
    query = f"SELECT count(*) AS c FROM input GROUP BY window (timestamp, {window})"
    wanted = WindowSpec(size_ms=size_ms, slide_ms=slide_ms, start_ms=start_ms)
    assert read_groups(query) == GroupsText(wanted, False)


def test_window_may_be_written_twice() -> None:
    query = (
        "SELECT window(timestamp, '1 hour').start AS s FROM input GROUP BY "
        "window(timestamp, '1 hour') WINDOW w AS (ORDER BY s)"
    )
    assert read_groups(query) == GroupsText(HOURLY, False)


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ("window(timestamp, '1 month')", "the times of window(…) cannot be read: write its times"),
        ("window(timestamp, INTERVAL 1 HOUR)", "cannot be read"),
        ("window(timestamp, '1 hour' || '')", "cannot be read"),
        ("window(timestamp)", "takes a time and a duration"),
        ("window(timestamp, '1 hour', '1 hour', '0 days', 1)", "takes a time and a duration"),
        ("window(timestamp, '1 hour', '2 hours')", "a slide of up to the duration"),
        ("window(timestamp, '0 hours')", "needs a duration above 0"),
        ("window(timestamp, '1 hour', '10 minutes', '10 minutes')", "a start below the slide"),
        ("window(timestamp, '1500 microseconds')", "must be whole milliseconds"),
        ("window(timestamp, '1 hour'), window(timestamp, '2 hours')", "two different windows"),
        ("session_window(timestamp, '1 hour')", "session_window(…) merges windows as records come"),
    ],
)
def test_windows_that_are_refused(groups: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_groups(f"SELECT count(*) AS c FROM input GROUP BY {groups}")
    assert problem in str(caught.value)
