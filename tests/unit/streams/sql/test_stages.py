"""Queries that run in stages: what arrives from one to the next, and what an edit keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.pipeline.kinds.sql import Sql
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.testing import TopologyTestDriver
from tests.small_config import SMALL_CONFIG, small_config
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

_SQL = Sql()
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
IDLE_MS = 1000


def pipeline(query: str, more: str = "", schema: str = "a STRING, n INT") -> str:
    return f"""
- id: Final
  type: sql
  format: json
  schema: {schema}
  query: {json.dumps(query)}
  to: [sink]
  {more}
"""


def results(
    folder: Path, text: str, records: list[tuple[object, int]], key: str | None = None
) -> list[tuple[object, ...]]:
    """Return the keys, values and times of what a pipeline gives for values with their times."""
    (folder / "config.yaml").write_text(SMALL_CONFIG, "utf-8")
    (folder / "pipeline.yaml").write_text(text, "utf-8")
    with TopologyTestDriver.of_pipeline(folder / "config.yaml", folder / "pipeline.yaml") as driver:
        given = driver.create_input_topic("in", serdes.string, serdes.json)
        for value, time_ms in records:
            given.pipe_input(key, value, time_ms)
        driver.advance_wall_clock_time(IDLE_MS)
        found = driver.create_output_topic("out", serdes.string, serdes.json).read_records()
        return [(each.key, each.value, each.timestamp) for each in found]


def test_windows_of_windows_give_each_result_once(tmp_path: Path) -> None:
    query = (
        "WITH counts AS (SELECT a, count(*) AS n, window.start AS timestamp FROM input "
        "GROUP BY a, window(timestamp, '1 hour')) "
        "SELECT n AS key, count(*) AS customers FROM counts GROUP BY n, window(timestamp, '1 hour')"
    )
    names = "aabbc"
    records: list[tuple[object, int]] = [
        ({"a": name, "n": 1}, at * MINUTE_MS) for at, name in enumerate(names)
    ]
    records += [({"a": "d", "n": 1}, hour * HOUR_MS) for hour in (2, 4, 8)]
    text = pipeline(query, "emit: on_close\n  grace: 1 min")
    assert results(tmp_path, text, records) == [
        ("1", {"customers": 1}, 0),
        ("2", {"customers": 2}, 0),
        ("1", {"customers": 1}, 2 * HOUR_MS),
    ]


OF_GROUPS = {
    "groups by their size": (
        "SELECT n AS key, count(*) AS c FROM (SELECT a, count(*) AS n FROM input GROUP BY a) t "
        "GROUP BY n",
        {"1": 1, "2": 1, "3": 1},
    ),
    "groups by the number of groups of their size": (
        "SELECT m AS key, count(*) AS c FROM (SELECT n, count(*) AS m FROM (SELECT a, count(*) AS "
        "n FROM input GROUP BY a) t GROUP BY n) u GROUP BY m",
        {"1": 3},
    ),
    "groups that HAVING leaves out at last": (
        "SELECT s % 2 AS key, count(*) AS c FROM (SELECT a, sum(n) AS s FROM input GROUP BY a "
        "HAVING sum(n) > 0) t GROUP BY s % 2",
        {"0": 1, "1": 1},
    ),
    "groups by two columns, of which one is null": (
        "SELECT a AS key, count(*) AS c FROM (SELECT a, nullif(n, -9) AS n, sum(n) AS s FROM input "
        "GROUP BY a, nullif(n, -9)) t GROUP BY a",
        {"x": 2, "y": 1, "z": 3},
    ),
}


@pytest.mark.parametrize(
    ("query", "expected"),
    long_but_the_first(reversed(OF_GROUPS.values())),
    ids=reversed(OF_GROUPS),
)
def test_groups_of_groups_are_those_of_the_last_results(
    query: str, expected: dict[str, int], tmp_path: Path
) -> None:
    given = [("x", 1), ("y", 2), ("x", 4), ("z", 9), ("z", -9), ("z", -7)]
    records: list[tuple[object, int]] = [
        ({"a": name, "n": number}, at) for at, (name, number) in enumerate(given)
    ]
    found: dict[object, object] = {}
    for key, value, _ in results(tmp_path, pipeline(query), records):
        assert value is None or isinstance(value, dict)
        found[key] = None if value is None else value["c"]
    assert {key: count for key, count in found.items() if count is not None} == expected


def test_null_in_what_a_stage_calls_key_is_a_group(tmp_path: Path) -> None:
    query = (
        "SELECT coalesce(key, 'none') AS key, count(*) AS c FROM (SELECT DISTINCT nullif(a, 'x') "
        "AS key, n FROM input) v GROUP BY key"
    )
    records: list[tuple[object, int]] = [
        ({"a": name, "n": number}, at)
        for at, (name, number) in enumerate([("x", 1), ("x", 2), ("y", 1), ("x", 1)])
    ]
    found = {key: value for key, value, _ in results(tmp_path, pipeline(query), records)}
    assert found == {"none": {"c": 2}, "y": {"c": 1}}


VALUES = {
    "DECIMAL(38, 18)": "CAST('12345678901234567890.123456789012345678' AS DECIMAL(38, 18))",
    "TIMESTAMP": "TIMESTAMP '2024-02-29 12:34:56.789012'",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ '1883-11-18 00:00:00.000001'",
    "DATE": "DATE '0001-01-01'",
    "BINARY": "X'00ff10'",
    "DOUBLE": "double('NaN')",
    "FLOAT": "float('-Infinity')",
    "INTERVAL DAY TO SECOND": "INTERVAL '1 02:03:04.000005' DAY TO SECOND",
    "ARRAY<DOUBLE>": "array(double('Infinity'), CAST(NULL AS DOUBLE), -0.0D)",
    "MAP<STRING, BIGINT>": "map('x', 9223372036854775807L)",
    "STRUCT<t: TIMESTAMP, s: STRING>": (
        "named_struct('t', TIMESTAMP '1969-12-31 23:59:59.999999', 's', '\"\\n')"
    ),
    "STRING": "CAST(NULL AS STRING)",
    "STRING COLLATE": "'aB' COLLATE UTF8_LCASE",
    "INTERVAL HOUR TO MINUTE": "INTERVAL '1:02' HOUR TO MINUTE",
    "ARRAY<STRUCT<d: DECIMAL>>": "array(named_struct('d', 1.25BD), NULL)",
}
YEARS = {"INTERVAL YEAR TO MONTH": "INTERVAL '1-2' YEAR TO MONTH"}
"""Arrow does not know them, so they are JSON even within a task."""


@pytest.mark.parametrize(
    "values", long_but_the_first([VALUES | YEARS, VALUES]), ids=["with years", "all"]
)
@pytest.mark.parametrize("is_join", [False, True], ids=["to another task", "within a task"])
def test_values_arrive_as_they_were(values: dict[str, str], is_join: bool, tmp_path: Path) -> None:
    """The last stage compares what arrives with what was sent, type by type."""
    inner, same = [], []
    for type_, value in values.items():
        name, compared = f"`v {type_}`", "map_entries({})" if "map(" in value else "{}"
        inner.append(f"{value} AS {name}")
        arrived, sent = compared.format(name), compared.format(value)
        same.append(f"'{type_}', {arrived} <=> {sent} AND typeof({name}) = typeof({value})")
    within = (
        f"SELECT a, window.start AS timestamp, {', '.join(inner)} FROM input "
        "GROUP BY a, window(timestamp, '1 hour')"
    )
    more = "emit: on_close\n  grace: 1 min"
    if is_join:
        within = f"SELECT l.a, {', '.join(inner)} FROM source l JOIN source r ON l.n = r.n"
        more = "ttl: 1 h"
    query = (
        f"SELECT a AS key, count(*) AS c, first(named_struct({', '.join(same)})) AS same FROM ("
        f"{within}) rows GROUP BY a"
    )
    records: list[tuple[object, int]] = [({"a": "x", "n": 1}, 0), ({"a": "y", "n": 2}, 2 * HOUR_MS)]
    found = results(tmp_path, pipeline(query, more), records)
    assert found[0] == ("x", {"c": 1, "same": dict.fromkeys(values, True)}, 0)


def test_stage_within_a_task_sees_the_records_of_a_join_as_they_would_be_sent(
    tmp_path: Path,
) -> None:
    """Times in whole milliseconds, the key, and headers, of which an empty list is none."""
    inner = (
        "SELECT l.a, concat(l.a, r.a) AS key, l.timestamp + INTERVAL '0.0015' SECOND AS timestamp, "
        "CASE WHEN l.n = 1 THEN array() ELSE array(named_struct('key', 'h', 'value', X'01')) END "
        "AS headers FROM source l JOIN source r ON l.n = r.n"
    )
    query = (
        "SELECT a AS key, max(key) AS k, max(unix_micros(timestamp)) AS t, "
        f"max(size(headers)) AS h FROM ({inner}) rows GROUP BY a"
    )
    records: list[tuple[object, int]] = [({"a": "x", "n": 1}, 5), ({"a": "y", "n": 2}, 7)]
    assert results(tmp_path, pipeline(query, "ttl: 1 h"), records) == [
        ("x", {"k": "xx", "t": 6000, "h": None}, 6),
        ("y", {"k": "yy", "t": 8000, "h": 1}, 8),
    ]


@pytest.mark.long
@pytest.mark.parametrize("order", ["zly", "lzy", "zyl"])
def test_first_of_the_rows_of_a_join_that_tie_is_the_one_that_came_first(
    order: str, tmp_path: Path
) -> None:
    """Also of those that one record brings, though their values would sort the other way."""
    query = (
        "SELECT a AS key, b FROM (SELECT l.a, r.b, row_number() OVER (PARTITION BY l.a ORDER BY "
        "r.n) AS place FROM source l JOIN source r ON l.a = r.a WHERE l.b = 'l' AND r.b <> 'l') "
        "WHERE place = 1"
    )
    records: list[tuple[object, int]] = [({"a": "x", "n": 1, "b": each}, 5) for each in order]
    text = pipeline(query, "ttl: 1 h", "a STRING, n INT, b STRING")
    assert results(tmp_path, text, records) == [("x", {"b": "z"}, 5)]


def loaded(folder: Path, text: str, queries: LocalQueries | None = None) -> Pipeline:
    """Load a pipeline; Spark checks its `queries`."""
    (folder / "pipeline.yaml").write_text(text, "utf-8")
    config = small_config()
    return load_pipeline(folder / "pipeline.yaml", config, queries)


@pytest.fixture
def checked(local: LocalQueries) -> Callable[[Path, str], list[str]]:
    """Loads a pipeline as `pipeline validate` does, and returns the mistakes in it."""

    def check(folder: Path, text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            loaded(folder, text, local)
        return [problem.message for problem in caught.value.problems]

    return check


@pytest.mark.parametrize(
    ("column", "reason"),
    long_but_the_first(
        [
            (
                "count(*) AS key",
                "the query gives key as BIGINT, and the rest of the query would read the key of "
                "its records as STRING: cast it, or give the column another name",
            ),
            (
                "map(1, 2) AS m",
                "the query gives m as MAP<INT,INT>, which cannot go to another part of the query: "
                "cast it, or make text of it",
            ),
            (
                "collect_list(struct(n, n)) AS s",
                'the query gives s as ARRAY<STRUCT<N:INT,N:INT>>, and two fields called "n" cannot '
                "go "
                "to another part of the query: give each a name of its own, as in struct(n AS a, "
                "n + 1 AS b)",
            ),
            ("\n  wrong", "`offset`, `partition`]. (line 2, column 3)"),
        ],
        2,
    ),
)
def test_mistake_in_a_stage_is_reported_with_its_place(
    column: str, reason: str, tmp_path: Path, checked: Callable[[Path, str], list[str]]
) -> None:
    query = (
        f"SELECT a, max(most) AS n FROM (SELECT a, max(n) AS most, {column} FROM input GROUP BY a) "
        "t GROUP BY a"
    )
    found = checked(tmp_path, pipeline(query))
    assert found[0].startswith('"Final.t": '), found[0]
    assert found[0].endswith(reason), found[0]


def test_last_stage_does_not_see_more_than_the_columns_of_the_first(
    tmp_path: Path, checked: Callable[[Path, str], list[str]]
) -> None:
    query = "SELECT partition, count(*) AS c FROM (SELECT DISTINCT a FROM input) GROUP BY partition"
    assert any(
        "`partition` cannot be resolved" in each for each in checked(tmp_path, pipeline(query))
    )


def test_edit_of_a_stage_changes_nothing_that_the_others_keep(
    tmp_path: Path, local: LocalQueries
) -> None:
    query = (
        "SELECT a, max(most) AS n FROM (SELECT a, max(n) AS most FROM input GROUP BY a) t "
        "GROUP BY a"
    )
    edited = query.replace("FROM input", "FROM input WHERE n > 1")
    before, after = (loaded(tmp_path, pipeline(text)) for text in (query, edited))
    kept = [
        {
            each.id: _SQL.content(each.spec, local)
            for each in made.processors
            if isinstance(each.spec, SqlSpec) and _SQL.kept_for(each.spec)
        }
        for made in (before, after)
    ]
    assert kept[0] == kept[1]
    assert [*kept[0]] == ["Final.t", "Final"]


def test_join_of_two_stages_meets_their_results(tmp_path: Path) -> None:
    query = (
        "WITH many AS (SELECT a AS key, count(*) AS c, window.start AS timestamp FROM input "
        "GROUP BY a, window(timestamp, '1 hour')), "
        "high AS (SELECT a AS key, max(n) AS n, window.start AS timestamp FROM input WHERE n > 5 "
        "GROUP BY a, window(timestamp, '1 hour')) "
        "SELECT m.key, m.c FROM many m JOIN high h ON m.key = h.key AND m.timestamp = h.timestamp"
    )
    records: list[tuple[object, int]] = [
        ({"a": "x", "n": 1}, 0),
        ({"a": "x", "n": 9}, MINUTE_MS),
        ({"a": "y", "n": 1}, 2 * MINUTE_MS),
        ({"a": "y", "n": 9}, HOUR_MS),
        ({"a": "x", "n": 1}, HOUR_MS),
        ({"a": "z", "n": 9}, 9 * HOUR_MS),
    ]
    text = pipeline(query, f"emit: on_close\n  grace: 1 min\n  max_task_idle_ms: {IDLE_MS}")
    assert results(tmp_path, text, records) == [
        ("x", {"c": 2}, 0),
        ("y", {"c": 1}, HOUR_MS),
    ]


@pytest.mark.long
def test_rows_of_a_join_and_different_rows_are_counted_once(tmp_path: Path) -> None:
    query = (
        "SELECT m AS key, count(*) AS c FROM (SELECT DISTINCT a, m FROM ("
        "SELECT l.a, r.n AS m FROM source l JOIN Again r ON l.key = r.key AND r.timestamp BETWEEN "
        "l.timestamp AND l.timestamp + INTERVAL 1 MINUTE) pairs) d GROUP BY m"
    )
    text = pipeline(query, "grace: 1 min\n  from: [source]") + (
        "- {id: Again, type: forward, to: [Final]}\n"
    )
    # Each record meets itself and those after it.
    records: list[tuple[object, int]] = [
        ({"a": "x", "n": 1}, 0),
        ({"a": "x", "n": 2}, 1),
        ({"a": "x", "n": 2}, 2),
        ({"a": "y", "n": 2}, 9 * MINUTE_MS),
    ]
    found = results(tmp_path, text, records, key="k")
    assert {key: value for key, value, _ in found} == {"1": {"c": 1}, "2": {"c": 2}}


def test_first_stage_may_look_up_tables(tmp_path: Path) -> None:
    (tmp_path / "towns.csv").write_text("x,Ulm,2024-02-29\ny,Ulm,1999-12-31\nz,Bonn,\n", "utf-8")
    query = (
        "SELECT town AS key, count(*) AS c, max(since) AS since FROM (SELECT DISTINCT i.a, t.town, "
        "t.since FROM input i JOIN towns t ON i.a = t.a) d GROUP BY town"
    )
    tables = "{towns: {format: csv, path: towns.csv, schema: 'a STRING, town STRING, since DATE'}}"
    records: list[tuple[object, int]] = [({"a": name, "n": 1}, 0) for name in "xyzxq"]
    found = results(tmp_path, pipeline(query, f"tables: {tables}"), records)
    assert {key: value for key, value, _ in found} == {
        "Ulm": {"c": 2, "since": "2024-02-29"},
        "Bonn": {"c": 1, "since": None},
    }
