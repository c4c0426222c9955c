"""SQL of other stream processors is refused with what to write."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.sql.query_text import read_stages
from kafka_pipeline.streams.sql.spec import QueryError


@pytest.mark.parametrize(
    ("query", "instead"),
    [
        ("SELECT x FROM a CROSS JOIN UNNEST(a.l) AS t (x)", "LATERAL VIEW explode"),
        ("SELECT x FROM a, unnest(`l`) t(x)", "LATERAL VIEW explode"),
        (
            "SELECT a.x FROM a JOIN b FOR SYSTEM_TIME  AS OF a.timestamp ON a.key = b.key",
            "with a history",
        ),
        ("SELECT a.x FROM a JOIN b WITHIN 7 DAYS ON a.key = b.key", "b.timestamp BETWEEN"),
        ("SELECT a.x FROM a JOIN b WITHIN (1 HOUR, 2 HOURS) ON a.k = b.k", "b.timestamp BETWEEN"),
        ("SELECT x, count(*) FROM a WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY x", r"window\(time"),
        ("SELECT x, count(*) FROM a GROUP BY x EMIT CHANGES;", "emit: on_update"),
        ("SELECT x, count(*) FROM a GROUP BY x EMIT ON WINDOW CLOSE", "emit: on_close"),
        ("SELECT DISTINCT ON (x) x, n FROM a ORDER BY x, n", "row_number"),
        ("SELECT x, latest_by_offset(n) AS n FROM a GROUP BY x", r"last\(x\)"),
        ("SELECT x, customer->address->city AS city FROM a", "item.name"),
        ("SELECT `x`->y FROM a", "item.name"),
        ("SELECT x->>'city' AS city FROM a", "get_json_object"),
    ],
)
def test_forms_are_refused_with_those_of_spark(query: str, instead: str) -> None:
    with pytest.raises(QueryError, match=instead):
        read_stages(query, (), "P")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'UNNEST (1)', \"EMIT CHANGES\", `WINDOW SESSION (` FROM a -- EMIT FINAL",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) AS within FROM a GROUP BY key",
        "SELECT sum(x) OVER session AS emit FROM a WINDOW session AS (PARTITION BY key)",
        "SELECT emit CHANGES FROM a JOIN (SELECT x FROM UNNEST(array(1, 2)) u(x)) t ON t.x = a.x",
        "SELECT transform(l, v -> v) AS l, filter(l, v -> v > 1) AS m FROM a",
        "SELECT aggregate(l, 0, (s, v) -> s + CAST(v AS INT)) AS latest_by_offset FROM a",
        "SELECT transform(l, v -> named_struct('n', v)) FROM a WHERE '->>' <> x",
        "SELECT a.x FROM a JOIN (SELECT v FROM t, LATERAL UNNEST(t.l) u(v)) t ON t.v = a.x",
    ],
)
def test_words_of_these_forms_can_be_used_otherwise(query: str) -> None:
    (stage,) = read_stages(query, ("t",), "P")
    assert stage.query == query
