"""What the text of a query says about its groups."""

from __future__ import annotations

import sys

import pytest
from sqlglot import parse

from kafka_pipeline.common.pipelines.specs import CalendarSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.sql.query_text import read_groups, require_one_statement, without_end
from kafka_pipeline.streams.sql.query_tree import with_plain_windows
from kafka_pipeline.streams.sql.spec import GroupBy, QueryError

HOUR_MS = 3_600_000
TABLES = ("Prices", "t", "u", "other", "codes", "products")
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
        "SELECT count(DISTINCT key) FROM input",
        "SELECT key FROM input WHERE x IN (SELECT DISTINCT y FROM t)",
        "SELECT key FROM input UNION DISTINCT SELECT c FROM prices",
        "SELECT (SELECT max(p) FROM prices WHERE c = input.n GROUP BY c) AS p FROM input",
        "SELECT key FROM archive.input GROUP BY key",
        "WITH input AS (SELECT c FROM prices) SELECT c FROM input GROUP BY c",
        "SELECT id FROM range(5) GROUP BY id",
    ],
)
def test_query_that_does_not_group_records(query: str) -> None:
    assert read_groups(query, TABLES) is None


@pytest.mark.parametrize(
    ("query", "has_key"),
    [
        ("SELECT key, count(*) AS c FROM input GROUP BY key", True),
        ("select count(*) from input group\nby  n, KEY having count(*) > 1", True),
        ("SELECT count(*) FROM input i GROUP BY i.key", True),
        ("SELECT count(*) FROM orders GROUP BY Orders.key", True),
        ("SELECT count(*) FROM `my.orders-2` o JOIN t ON n = c GROUP BY o.key", True),
        ("SELECT count(*) FROM `my.orders-2` GROUP BY n", False),
        ("SELECT count(*) FROM input AS i WHERE n > 1 GROUP BY n, i.`key`", True),
        ("SELECT count(*) FROM input GROUP BY input.key", True),
        ("SELECT count(*) FROM input JOIN t ON n = c GROUP BY t.key", False),
        ("SELECT count(*) FROM input GROUP BY customer", False),
        ("SELECT count(*) FROM input GROUP BY upper(key)", False),
        ("SELECT count(*) FROM input GROUP BY struct(key, n)", False),
        ("SELECT count(*) FROM input GROUP BY n || key", False),
        ("SELECT count(*) FROM input GROUP BY (key)", True),
        ("SELECT count(*) FROM input GROUP BY (key, n)", False),
        ("SELECT count(*) FROM input GROUP BY value.key", False),
        ("SELECT count(*) FROM input GROUP BY input.value.key", False),
        ("SELECT count(*) FROM input GROUP BY ALL", False),
        ("SELECT DISTINCT n, key FROM input", True),
        ("SELECT DISTINCT key AS k FROM input i", True),
        ("SELECT DISTINCT * FROM input", True),
        ("SELECT DISTINCT * EXCEPT (key) FROM input", False),
        ("SELECT DISTINCT upper(key) AS key FROM input", False),
        ("SELECT n FROM (SELECT DISTINCT n, key FROM input) WHERE n > 1", True),
        ("SELECT DISTINCT c FROM (SELECT key, count(*) AS c FROM input GROUP BY key)", False),
        ("SELECT key, count(*) FROM input GROUP BY ALL", True),
        ("SELECT upper(key) AS key, count(*) FROM input GROUP BY ALL", False),
        ("SELECT key, count(*) FROM input GROUP BY 1", True),
        ("SELECT n, key, count(*) FROM input GROUP BY 1", False),
        ("SELECT *, key FROM input GROUP BY 2", False),
        ("SELECT key AS k, count(*) FROM input GROUP BY k", True),
        ("SELECT upper(key) AS k, count(*) FROM input GROUP BY k", False),
        ("SELECT count(*) FROM input GROUP BY offset", False),
        ("SELECT count(*) FROM input GROUP BY limit, key", True),
        ("SELECT count(*) FROM input GROUP BY CUBE (key)", False),
        ("SELECT count(*) FROM input GROUP BY key, CUBE (n)", True),
        ("SELECT count(*) FROM input GROUP BY key, GROUPING SETS ((n), ())", True),
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
    found = read_groups(query, TABLES)
    assert found is not None
    assert found.has_key is has_key


@pytest.mark.parametrize(
    ("source", "has_key"),
    [
        ("(SELECT * FROM input)", True),
        ("(SELECT i.* FROM input i)", True),
        ("(SELECT t.*, n FROM input i JOIN t ON n = c)", False),
        ("(SELECT * EXCEPT (key), upper(key) AS key FROM input)", False),
        ("(SELECT k AS key FROM (SELECT key AS k FROM input))", True),
        ("(SELECT customer AS key, key AS k FROM input)", False),
        ("(SELECT customer FROM input) AS i (key)", False),
        ("(SELECT n, key FROM input) AS i (m, key)", True),
        ("(SELECT * FROM input) AS i (key, k)", False),
        ("input AS i (k, key)", False),
        ("(SELECT key FROM input UNION ALL SELECT c FROM prices)", False),
        ("(SELECT key FROM input) JOIN (SELECT c FROM prices) ON key = c", True),
        ("input JOIN t USING (key)", True),
        ("t JOIN input USING (key)", False),
        ("t JOIN input USING (c)", True),
        ("input NATURAL JOIN t", True),
        ("t NATURAL JOIN input", False),
        ("input RIGHT JOIN t USING (key)", False),
        ("input LEFT SEMI JOIN t ON n = c", True),
        ("input LATERAL VIEW explode(list) t AS n", True),
    ],
)
def test_key_comes_through_what_is_read(source: str, has_key: bool) -> None:
    found = read_groups(f"SELECT count(*) FROM {source} GROUP BY key", TABLES)
    assert found == GroupBy(None, has_key)


@pytest.mark.parametrize(
    "query",
    [
        "FROM input SELECT key, count(*) GROUP BY key",
        "FROM input |> WHERE n > 1 |> AGGREGATE count(*) AS c GROUP BY key",
        "(SELECT key, count(*) FROM input GROUP BY key);",
        "WITH input AS (SELECT * FROM input WHERE n > 1) SELECT count(*) FROM input GROUP BY key",
        "SELECT key, transform(collect_list(n), x -> x + 1L) FROM input GROUP BY key",
        "SELECT key, max(n) FILTER (WHERE n <=> 2) FROM input TABLESAMPLE (10 ROWS) GROUP BY key",
    ],
)
def test_queries_of_other_forms(query: str) -> None:
    assert read_groups(query, TABLES) == GroupBy(None, True)


def numbered(columns: str, source: str = "input") -> str:
    return f"SELECT row_number() OVER (PARTITION BY {columns} ORDER BY n) AS place FROM {source}"


@pytest.mark.parametrize(
    ("query", "window", "has_key"),
    [
        (f"SELECT * FROM ({numbered('n')}) WHERE place <= 3", None, False),
        (numbered("n").upper() + " QUALIFY place <= 3", None, False),
        (numbered("n, key"), None, True),
        (numbered("k", "(SELECT key AS k FROM input)"), None, True),
        (numbered("i.key", "input i"), None, True),
        (numbered("upper(key)"), None, False),
        (numbered("n").replace("PARTITION BY n ", ""), None, False),
        (numbered("key, window(timestamp, '1 hour')"), HOURLY, True),
        (
            numbered("w, n", "(SELECT *, window(timestamp, '1 hour') AS w FROM input)"),
            HOURLY,
            False,
        ),
        (
            "SELECT `row_number`() OVER w AS p FROM input WINDOW v AS (ORDER BY n), "
            "w AS (PARTITION BY key, window(timestamp, '1 hour') ORDER BY n)",
            HOURLY,
            True,
        ),
    ],
)
def test_groups_of_numbered_rows(query: str, window: WindowSpec | None, has_key: bool) -> None:
    assert read_groups(query, TABLES) == GroupBy(window, has_key, is_numbered=True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT rank, row_number FROM input",
        "SELECT sum(n) OVER (PARTITION BY key) AS rank FROM input",
        "SELECT * FROM input JOIN (SELECT c, rank() OVER (ORDER BY p) FROM prices) ON n = c",
        "SELECT * FROM input JOIN (SELECT c, row_number() OVER (ORDER BY p) FROM prices) ON n = c",
    ],
)
def test_rows_of_inputs_that_are_not_numbered(query: str) -> None:
    assert read_groups(query, TABLES) is None


@pytest.mark.parametrize("function", ["rank", "dense_rank"])
def test_groups_of_ranked_rows(function: str) -> None:
    query = f"SELECT {function} () OVER (PARTITION BY key ORDER BY n) AS r FROM input"
    assert read_groups(query) == GroupBy(None, True, is_numbered=True)


def test_sessions_of_numbered_rows_are_refused() -> None:
    with pytest.raises(QueryError, match="would be a session for each record: Spark merges"):
        read_groups(
            "SELECT row_number() OVER (PARTITION BY session_window(timestamp, '5 minutes') "
            "ORDER BY n) AS place FROM input"
        )


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
        ("3600000000L, 1800000000, -600000000", HOUR_MS, 1_800_000, -600_000),
        (r"r'1 hour', '20\u0020minutes'", HOUR_MS, 1_200_000, 0),
    ],
)
def test_times_of_windows(window: str, size_ms: int, slide_ms: int, start_ms: int) -> None:
    query = f"SELECT count(*) AS c FROM input GROUP BY window (timestamp, {window})"
    wanted = WindowSpec(size_ms=size_ms, slide_ms=slide_ms, start_ms=start_ms)
    assert read_groups(query, TABLES) == GroupBy(wanted, False)


def test_window_may_be_written_twice() -> None:
    query = (
        "SELECT window(timestamp, '1 hour').start AS s FROM input GROUP BY "
        "window(timestamp, '1 hour') WINDOW w AS (ORDER BY s)"
    )
    assert read_groups(query, TABLES) == GroupBy(HOURLY, False)


@pytest.mark.parametrize(
    ("gap", "gap_ms"), [("5 minutes", 300_000), ("1 day 1 second", 86_401_000)]
)
def test_gap_of_sessions(gap: str, gap_ms: int) -> None:
    query = f"SELECT count(*) AS c FROM input GROUP BY session_window(timestamp, '{gap}'), key"
    assert read_groups(query) == GroupBy(SessionSpec(gap_ms=gap_ms), True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM input GROUP BY key, `window`(timestamp, '1 hour')",
        "SELECT count(*) FROM (SELECT *, window(timestamp, '1 hour') AS w FROM input) "
        "GROUP BY key, w",
        "SELECT w.start FROM (SELECT DISTINCT key, window(timestamp, '1 hour') AS w FROM input)",
        "WITH a AS (SELECT key, window(timestamp, '1 hour') AS window FROM input) "
        "SELECT count(*) FROM a GROUP BY window, key",
        "SELECT count(*) FROM input JOIN (SELECT c, window(day, '1 day') FROM prices) ON n = c "
        "GROUP BY window(timestamp, '1 hour'), key",
    ],
)
def test_window_of_what_is_read(query: str) -> None:
    assert read_groups(query, TABLES) == GroupBy(HOURLY, True)


DAY = "calendar_window(timestamp, '1 day', 'Europe/Berlin')"
DAILY = CalendarSpec(period="1 day", zone="Europe/Berlin")


@pytest.mark.parametrize(
    ("query", "has_key"),
    [
        (f"SELECT window.start, count(*) FROM input GROUP BY {DAY}", False),
        (f"SELECT count(*) FROM input GROUP BY key, {DAY.replace('calendar', 'CALENDAR')}", True),
        (f"SELECT {DAY}.end, count(*) FROM input i GROUP BY {DAY}, i.key", True),
        (f"SELECT count(*) FROM input GROUP BY key, `{DAY.replace('(', '`(input.')}", True),
        (f"SELECT count(*) FROM (SELECT *, {DAY} AS w FROM input) GROUP BY key, w", True),
        (f"SELECT w.start FROM (SELECT DISTINCT key, {DAY} AS w FROM input)", True),
        (f"SELECT key, {DAY} AS calendar_window, count(*) FROM input GROUP BY ALL", True),
        (f"FROM input |> AGGREGATE count(*) AS c GROUP BY key, {DAY}", True),
        (numbered(f"n, {DAY}"), False),
        (
            "WITH a AS (SELECT key, timestamp AS t FROM input) SELECT count(*) FROM a "
            f"GROUP BY key, {DAY.replace('timestamp', 'a.t')}",
            True,
        ),
    ],
)
def test_calendar_windows(query: str, has_key: bool) -> None:
    assert read_groups(query, TABLES) == GroupBy(DAILY, has_key, is_numbered="row_num" in query)


TAKES = "calendar_window(…) takes timestamp, and a period and a zone as text: write calendar_window"
NOT_IN_GROUPS = "calendar_window(…) says which records are a group: write it into GROUP BY, P"
OTHER_TIME = "it must be over timestamp, the time of the record. If the time is in a field, the"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("GROUP BY calendar_window(timestamp, '1 day')", TAKES),
        ("GROUP BY calendar_window(timestamp)", TAKES),
        ("GROUP BY calendar_window()", TAKES),
        ("GROUP BY calendar_window(timestamp, '1 day', 'UTC', '1 hour')", TAKES),
        ("GROUP BY calendar_window(timestamp, INTERVAL 1 DAY, 'UTC')", TAKES),
        ("GROUP BY calendar_window(timestamp, '1 day', zone)", TAKES),
        (
            "GROUP BY calendar_window(timestamp, '2 days', 'UTC')",
            'calendar_window(…): "2 days" is not a period: write "1 day", "1 week" or "1 month"',
        ),
        (
            "GROUP BY calendar_window(timestamp, '1 day', 'Europe/Berln')",
            '"Europe/Berln" is not a time zone, did you mean "Europe/Berlin"?',
        ),
        ("GROUP BY calendar_window(timestamp, '1 day', '+01:00')", "is not a time zone"),
        ("GROUP BY calendar_window(day, '1 day', 'UTC')", f"(…) is over day: {OTHER_TIME}"),
        ("GROUP BY calendar_window(timestamp + INTERVAL 1 HOUR, '1 day', 'UTC')", OTHER_TIME),
        ("GROUP BY calendar_window(timestamp.x, '1 day', 'UTC')", OTHER_TIME),
        ("GROUP BY calendar_window('1 day', 'UTC')", OTHER_TIME),
        (f"GROUP BY window(timestamp, '1 day'), {DAY}", "two different windows"),
        (f"GROUP BY {DAY}, {DAY.replace('day', 'week')}", "two different windows"),
        (f"GROUP BY {DAY}, {DAY.replace('Europe/Berlin', 'UTC')}", "two different windows"),
        (f"WHERE {DAY}.start > '2024-01-01'", NOT_IN_GROUPS),
        (f"JOIN (SELECT c, {DAY} AS w FROM t GROUP BY c) ON n = c", NOT_IN_GROUPS),
        (f"GROUP BY {DAY} HAVING calendar_window.start > '2024'", "gives the column window, as wi"),
        (f"GROUP BY {DAY} HAVING input.calendar_window IS NULL", "write window, window.start or "),
    ],
)
def test_calendar_windows_that_are_refused(query: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_groups(f"SELECT count(*) AS c FROM input {query}", TABLES)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("query", "read"),
    [
        (
            f"SELECT {DAY}.start, 'é😀 calendar_window(' FROM input -- {DAY}\nGROUP BY {DAY}",
            "SELECT window(timestamp, '1 day').start, 'é😀 calendar_window(' FROM input -- "
            f"{DAY}\nGROUP BY window(timestamp, '1 day')",
        ),
        (
            "GROUP BY `Calendar_Window` (i.timestamp /* a, b) */, '1 month', r'UTC' ), key",
            "GROUP BY window (i.timestamp /* a, b) */, '1 day'), key",
        ),
        (
            "GROUP BY calendar_window(coalesce(a[f(1, 2)], b), '1 week', 'UTC'), calendar_window.x",
            "GROUP BY window(coalesce(a[f(1, 2)], b), '1 day'), calendar_window.x",
        ),
        ("SELECT key FROM input", "SELECT key FROM input"),
    ],
)
def test_spark_reads_plain_windows_in_place_of_calendar_windows(query: str, read: str) -> None:
    assert with_plain_windows(query) == read


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ("window(timestamp, '1 month')", "the times of window(…) cannot be read: write its times"),
        ("window(timestamp, INTERVAL 1 HOUR)", "cannot be read"),
        ("window(timestamp, '1 hour' || '')", "cannot be read"),
        ("window(timestamp, -'1 hour')", "cannot be read"),
        ("window(timestamp)", "takes a time and a duration"),
        ("window(timestamp, '1 hour', '1 hour', '0 days', 1)", "takes a time and a duration"),
        ("window(timestamp, '1 hour', '2 hours')", "a slide of up to the duration"),
        ("window(timestamp, '0 hours')", "needs a duration above 0"),
        ("window(timestamp, '1 hour', '10 minutes', '10 minutes')", "a start below the slide"),
        ("window(timestamp, '1500 microseconds')", "must be whole milliseconds"),
        ("window(timestamp, '1 hour'), window(timestamp, '2 hours')", "two different windows"),
        ("session_window(timestamp, '1 hour'), window(timestamp, '1 hour')", "two different wi"),
        ("session_window(timestamp, '1 hour'), session_window(timestamp, '2 hours')", "two diffe"),
        ("session_window(timestamp, CASE WHEN n > 1 THEN '1 hour' END)", "the gap of session_win"),
        ("session_window(timestamp, 5000000)", "cannot be read: write it as text"),
        ("session_window(timestamp)", "the gap of session_window(…) cannot be read"),
        ("session_window(timestamp, '1 month')", "the gap of session_window(…) cannot be read"),
        ("session_window(timestamp, '0 minutes')", "must be whole milliseconds, 1 or more"),
        ("session_window(timestamp, '1500 microseconds')", "must be whole milliseconds"),
    ],
)
def test_windows_that_are_refused(groups: str, problem: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_groups(f"SELECT count(*) AS c FROM input GROUP BY {groups}")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT 1) GROUP BY key", 'in line 1 at ")", after "SELECT 1"'),
        ("SELECT key\nFROM input\nGROUP BY key n", 'in line 3 at "n", after "'),
        ("/* not ended GROUP BY", 'after "/* not ended GROUP BY", where a quote or a comment'),
        ("SELECT ' FROM input GROUP BY key", "where a quote or a comment may be open"),
        ("SELECT DISTINCT ) FROM input", 'in line 1 at ")"'),
        ("SELECT key FROM input i JOIN t i ON n = c GROUP BY key", "(Alias already used: i)"),
        ("FROM input |> AS i |> AGGREGATE count(*) AS c GROUP BY key", 'at "FROM i"'),
        (f"SELECT {'(' * 5000}1{')' * 5000} FROM input GROUP BY key", "nested too deeply"),
    ],
)
def test_query_with_groups_that_cannot_be_read(query: str, place: str) -> None:
    with pytest.raises(QueryError) as caught:
        read_groups(query, TABLES)
    assert "the groups of the query cannot be read: reading stopped " in str(caught.value)
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Write this part in another way, or move it to a sql processor" in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "SHOW TABLES LIKE 'GROUP BY'",
        "CACHE TABLE a AS SELECT key FROM input GROUP BY key",
        "-- GROUP BY key",
    ],
)
def test_anything_but_one_select_is_refused(query: str) -> None:
    with pytest.raises(QueryError, match="only a SELECT that reads input can be run"):
        read_groups(query, TABLES)


def test_one_of_several_statements_is_refused() -> None:
    two = "SELECT key FROM input; SELECT key FROM input GROUP BY key; -- both"
    with pytest.raises(QueryError, match="several statements, with a semicolon between them"):
        read_groups(two, TABLES)
    with pytest.raises(QueryError, match="several statements"):
        require_one_statement(two)
    for one in ("SELECT ';' FROM input; ;", "SELECT 1 FROM", "; ;", "SELECT ';"):
        require_one_statement(one)


@pytest.mark.parametrize("end", ["", ";", " ;\n; ", "; -- a; b", " -- a; b", "\n/* ; */ ; /* c */"])
def test_what_follows_a_query_changes_nothing(end: str) -> None:
    query = "-- a; b\nSELECT key, ';' AS x FROM input GROUP BY key"
    assert read_groups(query + end, TABLES) == read_groups(query, TABLES)
    assert without_end(query + end) == query


@pytest.mark.parametrize("text", ["", ";", "-- a;", "SELECT ';"])
def test_what_has_no_end_stays_as_it_is(text: str) -> None:
    assert without_end(text) == text


def test_warnings_of_sqlglot_are_dropped_but_not_those_for_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(QueryError):
        read_groups("SHOW TABLES LIKE 'GROUP BY'")
    assert not caplog.records
    parse("SHOW TABLES LIKE 'GROUP BY'", dialect="spark")
    assert "unsupported syntax" in caplog.text


def test_query_without_groups_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kafka_pipeline.streams.sql.query_tree", None)
    assert read_groups("SELECT key, value FROM input") is None
    with pytest.raises(ImportError):
        read_groups("SELECT key FROM input GROUP BY key")
