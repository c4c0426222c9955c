"""Queries that read several inputs without joining them in FROM, and what is said of them."""

from __future__ import annotations

import json

import pytest

from tests.unit.streams.pipeline.loading import problems_in


def problems(query: str, more: str = "") -> list[str]:
    columns = "id INT, n INT"
    schema = columns if "input" in query else {"a": columns, "b": columns}
    text = f"""
sources: {{a: a, b: b}}
processors:
- id: P
  type: sql
  from: [a, b]
  format: json
  schema: {json.dumps(schema)}
  query: {json.dumps(query)}
  {more}
  to: [sink]
"""
    return [problem.partition(": ")[2] for problem in problems_in(text)]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (
            "EXISTS (SELECT 1 FROM b WHERE b.id = a.id)",
            "EXISTS reads b: join it in FROM, as in FROM a LEFT SEMI JOIN b ON a.id = b.id",
        ),
        (
            "n > 1 AND NOT EXISTS (SELECT 1 FROM (SELECT id AS i FROM b) WHERE i = id)",
            "NOT EXISTS reads b: join it in FROM, as in FROM a LEFT ANTI JOIN b ON a.id = b.id",
        ),
        (
            "id IN (SELECT id FROM b)",
            "IN reads b: join it in FROM, as in FROM a LEFT SEMI JOIN b ON a.id = b.id",
        ),
        (
            "(id NOT IN (SELECT id FROM b))",
            "NOT IN reads b: join it in FROM, as in FROM a LEFT ANTI JOIN b ON a.id = b.id, "
            "which also gives rows whose id is null",
        ),
        (
            "n > (SELECT max(n) FROM b)",
            "a subquery gives one value of b, which changes with each record: join it in FROM, as "
            "in FROM a JOIN (SELECT id, max(n) AS n FROM b GROUP BY id) b ON a.id = b.id",
        ),
    ],
)
def test_subqueries_are_refused_with_the_join_to_write(condition: str, problem: str) -> None:
    assert problems(f"SELECT key, id FROM a WHERE {condition}", "ttl: 1 d") == [problem]


def test_subqueries_for_each_row_are_refused_with_what_to_write() -> None:
    query = (
        "SELECT s.id AS key, t.n FROM (SELECT DISTINCT id FROM a) s, LATERAL (SELECT n FROM b "
        "WHERE b.id = s.id ORDER BY n LIMIT 3) t"
    )
    (found,) = problems(query)
    assert found.startswith("LATERAL (SELECT …) reads b for each row")
    assert "row_number()" in found


@pytest.mark.parametrize(
    ("how", "instead"),
    [
        ("UNION ALL", "read each in a processor of its own, and let both send to the one"),
        ("EXCEPT", "join them in FROM by LEFT ANTI JOIN"),
    ],
)
def test_operators_on_sets_are_refused(how: str, instead: str) -> None:
    union = f"SELECT key, id FROM a {how} SELECT key, id FROM b"
    for query in (union, f"SELECT id AS key, count(*) AS n FROM ({union}) GROUP BY id"):
        (found,) = problems(query)
        assert found.startswith(f"{how.split()[0]} of a and b: {instead}")


@pytest.mark.parametrize(
    ("query", "more", "problem"),
    [
        ("SELECT a.id AS key, b.n FROM a CROSS JOIN b", "ttl: 1 d", "two inputs are joined by"),
        ("SELECT id AS key, count(*) FROM a NATURAL JOIN b GROUP BY id", "ttl: 1 d", "NATURAL"),
        (
            "SELECT x.n AS key, x.c FROM (SELECT n, count(*) AS c FROM a GROUP BY n, "
            "session_window(timestamp, '1 month')) x JOIN b ON x.n = b.n",
            "ttl: 1 d",
            "the gap of session_window(…) cannot be read",
        ),
        (
            "SELECT sum(n) OVER (PARTITION BY key ORDER BY timestamp) AS s FROM input",
            "grace: 1 h",
            "OVER (…) over all rows so far",
        ),
    ],
)
def test_keys_that_another_form_would_have_are_not_reported_too(
    query: str, more: str, problem: str
) -> None:
    (found,) = problems(query, more)
    assert problem in found
