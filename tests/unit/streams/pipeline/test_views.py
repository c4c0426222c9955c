"""Views in pipeline.yaml: queries by name, which others read."""

from __future__ import annotations

import json

import pytest

from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.streams.sql.query_text import read_stages
from kafka_pipeline.streams.sql.spec import QueryError
from tests.unit.streams.pipeline.loading import load, problems_in

VIEWS = {
    "good": "SELECT * FROM orders WHERE n > 0",
    "totals": "SELECT k, sum(n) AS s FROM Good GROUP BY k;",
    "unused": "SELECT 1 FROM nowhere",
}


def pipeline(query: str, more: str = "", views: object = VIEWS) -> str:
    return f"""
sources: {{orders: orders}}
views: {json.dumps(views)}
processors:
- id: Final
  type: sql
  from: [orders]
  format: json
  schema: k STRING, n INT
  query: {json.dumps(query)}
  to: [sink]
  {more}
"""


def queries(text: str) -> dict[str, str]:
    found = {}
    for each in load(text).processors:
        assert isinstance(each.spec, SqlSpec)
        found[each.id] = each.spec.query
    return found


def test_query_begins_with_the_views_that_it_reads() -> None:
    assert queries(pipeline("SELECT k AS key, n FROM GOOD")) == {
        "Final": "WITH `good` AS (SELECT * FROM orders WHERE n > 0) SELECT k AS key, n FROM GOOD"
    }


def test_views_read_views_and_become_stages_as_ctes_do() -> None:
    query = "WITH big AS (SELECT * FROM totals WHERE s > 9) SELECT s, count(*) FROM big GROUP BY s"
    found = queries(pipeline(query))
    assert found["Final.big"] == (
        "WITH `good` AS (SELECT * FROM orders WHERE n > 0), "
        "`totals` AS (SELECT k, sum(n) AS s FROM Good GROUP BY k) "
        "SELECT * FROM totals WHERE s > 9"
    )
    assert found["Final"] == "SELECT s, count(*) FROM `Final.big` AS big GROUP BY s"


@pytest.mark.parametrize("end", [";", " -- all", " -- all\n; /* of them */ -- now"])
def test_view_may_end_with_a_semicolon_and_comments(end: str) -> None:
    found = queries(pipeline("SELECT k AS key FROM v", views={"v": f"SELECT k FROM orders{end}"}))
    assert found["Final"] == "WITH `v` AS (SELECT k FROM orders) SELECT k AS key FROM v"


def test_query_without_views_stays_as_it_is() -> None:
    assert queries(pipeline("SELECT n FROM orders")) == {"Final": "SELECT n FROM orders"}


@pytest.mark.parametrize(
    "query", ["SELECT k,\n  nope FROM good", "WITH a AS (SELECT 1)\nSELECT k,\n  nope FROM good"]
)
def test_places_are_those_in_the_query(query: str) -> None:
    (stage,) = read_stages(query, (), "P", VIEWS)
    before = stage.query[: stage.query.index("nope")]
    line, column = before.count("\n") + 1, len(before.splitlines()[-1]) + 1
    wanted = (query[: query.index("nope")].count("\n") + 1, 3)
    assert stage.placed(f"wrong (line {line}, column {column})") == (
        "wrong (line {}, column {})".format(*wanted)
    )
    assert stage.placed("wrong (line 1, column 9)") == "wrong"


@pytest.mark.parametrize(
    ("views", "more", "problem"),
    [
        ({"orders": "SELECT 1"}, "", 'views: "orders" is the name of a source, too'),
        ({"final": "SELECT 1"}, "", 'views: "final" is the id of a processor, too'),
        ({"input": "SELECT 1"}, "", '"input" is a name that queries have for their inputs'),
        ({"a b": "SELECT 1"}, "", 'the name of view "a b" '),
        ({"v": 7}, "", "the view v must be a SELECT, got the number 7"),
        ({"v": " "}, "", "the view v must be a SELECT"),
        ({"v": "SELECT 1", "V": "SELECT 2"}, "", 'view "V" is given twice'),
        ({"v": "SELECT ((("}, "", "the view v cannot be read: reading stopped in line 1"),
        (
            {"v": "SELECT * FROM w", "w": "SELECT * FROM v"},
            "",
            "the view v reads itself: v reads w",
        ),
        (
            {"v": "SELECT 1"},
            "tables: {v: {format: csv, path: /v, schema: a INT}}",
            'table "v" has the name of a view',
        ),
    ],
)
def test_mistakes_are_reported(views: object, more: str, problem: str) -> None:
    found = problems_in(pipeline("SELECT k AS key, n FROM v", more, views))
    assert problem in "\n".join(found)


def test_view_with_another_input_is_refused_where_it_is_read() -> None:
    (problem,) = problems_in(pipeline("SELECT * FROM v", views={"v": "SELECT * FROM nowhere"}))
    assert 'the query reads "nowhere", which is neither an input nor a table' in problem


def test_longest_circle_is_found() -> None:
    views = {f"v{at}": f"SELECT * FROM v{(at + 1) % 5}" for at in range(5)}
    with pytest.raises(QueryError, match="v0 reads v1 reads v2 reads v3 reads v4 reads v0"):
        read_stages("SELECT * FROM v0", (), "P", views)
