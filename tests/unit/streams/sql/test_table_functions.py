"""TUMBLE, HOP and SESSION in FROM, in the text of queries."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.pipelines.specs import SessionSpec, WindowSpec
from kafka_pipeline.streams.sql.query_text import as_spark_reads, read_groups
from kafka_pipeline.streams.sql.spec import GroupBy, QueryError

MINUTE_MS = 60_000
TUMBLE = "TUMBLE(TABLE input, DESCRIPTOR(timestamp), INTERVAL '10' MINUTES)"
SESSION = "SESSION(TABLE input PARTITION BY key, DESCRIPTOR(timestamp), INTERVAL '5' MINUTES)"
ROWS = as_spark_reads(f"FROM {TUMBLE} SELECT key").removeprefix("FROM ").removesuffix(" SELECT key")


def windows(size: int, slide: int, start: int = 0) -> WindowSpec:
    return WindowSpec(
        size_ms=size * MINUTE_MS, slide_ms=slide * MINUTE_MS, start_ms=start * MINUTE_MS
    )


@pytest.mark.parametrize(
    ("source", "window"),
    [
        (TUMBLE, windows(10, 10)),
        (f"TABLE({TUMBLE})", windows(10, 10)),
        (f"TABLE( {TUMBLE} ) AS t", windows(10, 10)),
        ("tumble(input, DESCRIPTOR(timestamp), interval 1 hour)", windows(60, 60)),
        (
            "TUMBLE(TABLE `input`, DESCRIPTOR(timestamp), INTERVAL '1' DAY, INTERVAL '2' HOURS)",
            windows(1440, 1440, 120),
        ),
        (
            "TUMBLE(TABLE (SELECT *, (n + 1) AS m FROM input), DESCRIPTOR(timestamp), "
            "INTERVAL '10 minutes')",
            windows(10, 10),
        ),
        (
            "TUMBLE(DATA => TABLE input, SIZE => INTERVAL '10' MINUTE, "
            "TIMECOL => DESCRIPTOR(timestamp))",
            windows(10, 10),
        ),
        (
            "HOP(TABLE input, DESCRIPTOR(timestamp), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
            windows(10, 5),
        ),
        (
            "HOP(DATA => TABLE input, TIMECOL => DESCRIPTOR(timestamp), SIZE => INTERVAL '1' HOUR, "
            "SLIDE => INTERVAL '30' MINUTES, OFFSET => INTERVAL '-5' MINUTES)",
            windows(60, 30, -5),
        ),
        (
            "CUMULATE(TABLE input, DESCRIPTOR(timestamp), INTERVAL '20' MINUTE, INTERVAL '1' HOUR)",
            windows(60, 20),
        ),
        (
            "CUMULATE(DATA => TABLE input, TIMECOL => DESCRIPTOR(timestamp), SIZE => INTERVAL '1' "
            "DAY, STEP => INTERVAL '1' HOUR, OFFSET => INTERVAL '30' MINUTES)",
            windows(1440, 60, 30),
        ),
        (SESSION, SessionSpec(gap_ms=5 * MINUTE_MS)),
        (
            "SESSION(DATA => TABLE input PARTITION BY (key), TIMECOL => DESCRIPTOR(timestamp), "
            "GAP => INTERVAL '5' MINUTES)",
            SessionSpec(gap_ms=5 * MINUTE_MS),
        ),
    ],
)
def test_groups_are_those_of_the_windows(source: str, window: WindowSpec | SessionSpec) -> None:
    query = f"SELECT key, count(*) FROM {source} GROUP BY key, window_start, window_end"
    assert read_groups(query) == GroupBy(window, has_key=True)


@pytest.mark.parametrize(
    ("query", "for_spark"),
    [
        ("SELECT hop, session(a) FROM tumble", "SELECT hop, session(a) FROM tumble"),
        (
            "SELECT 'TUMBLE(TABLE a, DESCRIPTOR(b))' AS session FROM input",
            "SELECT 'TUMBLE(TABLE a, DESCRIPTOR(b))' AS session FROM input",
        ),
        ("SELECT * FROM TUMBLE", "SELECT * EXCEPT (tumble_window) FROM ROWS"),
        (
            "SELECT t.*, 1 AS one FROM TUMBLE t",
            "SELECT t.* EXCEPT (tumble_window), 1 AS one FROM ROWS t",
        ),
        ("SELECT * EXCEPT (n) FROM TUMBLE", "SELECT * EXCEPT (tumble_window, n) FROM ROWS"),
        (
            "SELECT window_start, date(t.window_end) AS d FROM TUMBLE t GROUP BY n, t.window_end, "
            "window_start, window_time HAVING window_time > x",
            "SELECT tumble_window.start AS window_start, date((t.tumble_window.end)) AS d FROM "
            "ROWS t GROUP BY n, t.tumble_window HAVING "
            "(tumble_window.end - INTERVAL '1' MILLISECOND) > x",
        ),
        (
            "WITH w AS (SELECT window_start, window_end, n FROM TUMBLE) SELECT sum(n) FROM w "
            "GROUP BY window_start, window_end",
            "WITH w AS (SELECT window_start, tumble_window, window_end, n FROM ROWS) SELECT sum(n) "
            "FROM w GROUP BY tumble_window",
        ),
        (
            "SELECT * FROM (SELECT *, row_number() OVER w AS p FROM TUMBLE WINDOW w AS "
            "(PARTITION BY window_start, window_end ORDER BY n)) WHERE p = 1",
            "SELECT * FROM (SELECT * EXCEPT (tumble_window), row_number() OVER w AS p FROM ROWS "
            "WINDOW w AS (PARTITION BY tumble_window ORDER BY n)) WHERE p = 1",
        ),
    ],
)
def test_what_spark_reads(query: str, for_spark: str) -> None:
    query = query.replace("FROM TUMBLE", f"FROM {TUMBLE}")
    assert as_spark_reads(query) == for_spark.replace("ROWS", ROWS)


def test_lines_stay_where_they_are() -> None:
    query = f"SELECT *\nFROM TABLE(\n {TUMBLE.replace(', ', ',' + chr(10))})\nWHERE n > 1"
    assert as_spark_reads(query).splitlines()[5] == "WHERE n > 1"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "SELECT count(*) FROM input GROUP BY key, TUMBLE(timestamp, INTERVAL '1' DAY)",
            r"TUMBLE\(…\) in line 1: it is a table function here: write FROM TUMBLE\(TABLE input",
        ),
        (
            "SELECT 1 FROM CUMULATE(TABLE input, DESCRIPTOR(timestamp), INTERVAL '5' HOURS, "
            "INTERVAL '1' DAY)",
            r"CUMULATE\(…\) in line 1: the size, 1 day, must be a multiple of the step, 5 hours",
        ),
        (
            "SELECT 1\nFROM TUMBLE(TABLE input, DESCRIPTOR(timestamp), INTERVAL '1' MONTH)",
            r"TUMBLE\(…\) in line 2: INTERVAL '1' MONTH cannot be read",
        ),
        (
            "SELECT 1 FROM TUMBLE(TABLE input, DESCRIPTOR(timestamp))",
            r"write TUMBLE\(TABLE input, DESCRIPTOR\(timestamp\), size\), where",
        ),
        (
            "SELECT 1 FROM HOP(DATA => TABLE input, TIMECOL => DESCRIPTOR(timestamp), "
            "STEP => INTERVAL '1' DAY, SIZE => INTERVAL '1' DAY)",
            r"write HOP\(TABLE input, DESCRIPTOR\(timestamp\), slide, size\)",
        ),
        (
            "SELECT 1 FROM SESSION(TABLE input, timestamp, INTERVAL '1' DAY)",
            r"write SESSION\(TABLE input PARTITION BY key, DESCRIPTOR\(timestamp\), gap\)",
        ),
        (
            "SELECT 1 FROM TUMBLE(TABLE input PARTITION BY key, DESCRIPTOR(timestamp), "
            "INTERVAL '1' DAY)",
            r"write TUMBLE\(TABLE input, DESC",
        ),
        (f"SELECT key, count(*) FROM {TUMBLE} GROUP BY key", "GROUP BY must name window_start and"),
        (
            f"SELECT window_start, window_end FROM {TUMBLE} GROUP BY 1, 2",
            "GROUP BY must name window_start and",
        ),
        (
            f"SELECT row_number() OVER (PARTITION BY window_end ORDER BY n) FROM {TUMBLE}",
            "PARTITION BY must name window_start and",
        ),
        (f"SELECT DISTINCT window_start FROM {TUMBLE}", "SELECT DISTINCT cannot follow it: write"),
        (f"SELECT *\nFROM\n{SESSION}", r"SESSION\(…\) in line 3: only GROUP BY makes sessions"),
        (
            f"SELECT count(*) FROM {SESSION} GROUP BY window_start, window_end",
            "GROUP BY must have window_start, window_end, key, and nothing else",
        ),
        (f"SELECT 'a FROM {TUMBLE}", "reading stopped after"),
    ],
)
def test_calls_that_are_refused(query: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        as_spark_reads(query)
