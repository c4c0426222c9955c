"""Queries that aggregate the updates of another query, as if they were records."""

from __future__ import annotations

import pytest

from tests.unit.streams.pipeline.loading import load, problems_in

HIGHEST = (
    "SELECT auction AS key, category, max(price) AS price FROM input GROUP BY auction, category"
)
MEAN = "SELECT category AS key, avg(price) AS price FROM input GROUP BY category"
TOP = (
    "SELECT concat(category, place) AS key, price FROM (SELECT *, row_number() OVER (PARTITION BY "
    "category ORDER BY price DESC) AS place FROM input) WHERE place <= 3"
)
HOURLY = HIGHEST + ", window(timestamp, '1 hour')"
SCHEMA = "format: json, schema: 'auction STRING, category STRING, price DOUBLE, n BIGINT'"


def chain(first: str, second: str, *, closes: str = "", between: str = "") -> str:
    """Return a pipeline in which the results of one query are the records of another one."""
    target = "Between" if between else "Second"
    return f"""
processors:
- {{id: First, type: sql, query: "{first}", {SCHEMA}, to: [{target}]{closes}}}
- {{id: Second, type: sql, query: "{second}", {SCHEMA}, to: [sink]}}
{between}
"""


REFUSED = {
    "the mean of highest prices": (HIGHEST, MEAN),
    "the best rows of highest prices": (HIGHEST, TOP),
    "a count of highest prices": (
        HIGHEST,
        "SELECT category AS key, count(*) AS n FROM input GROUP BY category",
    ),
    "a mean in windows": (HIGHEST, MEAN + ", window(timestamp, '1 hour')"),
    "windows that give updates": (HOURLY, MEAN),
    "the lowest of highest prices": (HIGHEST, MEAN.replace("avg", "min")),
    "the highest of means": (HIGHEST.replace("max", "avg"), MEAN.replace("avg", "max")),
    "the highest of what a condition may take back": (
        HIGHEST + " HAVING avg(price) < 5",
        MEAN.replace("avg", "max"),
    ),
    "the highest below a limit": (
        HIGHEST,
        "SELECT category AS key, max(price) AS price FROM input WHERE price < 9 GROUP BY category",
    ),
    "the highest of negative values": (HIGHEST, MEAN.replace("avg(price)", "max(-price)")),
    "groups by what is updated": (
        HIGHEST,
        "SELECT price AS key, max(price) AS price FROM input GROUP BY price",
    ),
    "best rows": (TOP, MEAN),
}


@pytest.mark.parametrize(("first", "second"), REFUSED.values(), ids=REFUSED)
def test_an_aggregate_of_updates_is_refused(first: str, second: str) -> None:
    (problem,) = problems_in(chain(first, second))
    assert '"Second": its records are updates of "First"' in problem
    assert "emit: on_close" in problem
    assert "Table.group_by" in problem


DISTINCT = "SELECT auction AS key, category FROM (SELECT DISTINCT auction, category FROM input)"
LATEST = "SELECT upper(category) AS key, category FROM (SELECT DISTINCT category FROM input)"

ACCEPTED = {
    "rows without duplicates": (DISTINCT, MEAN.replace("avg(price)", "count(*)")),
    "duplicates of updates": (HIGHEST, LATEST),
    "the highest of the highest": (HIGHEST, MEAN.replace("avg", "max")),
    "the highest of a number": (
        HIGHEST.replace("max(price) AS price", "count(*) AS n"),
        "SELECT category AS key, max(cast(n AS INT)) AS n FROM input GROUP BY category",
    ),
    "the lowest of the lowest": (HIGHEST.replace("max", "min"), MEAN.replace("avg", "min")),
    "no groups": (HIGHEST, "SELECT key, value FROM input"),
    "groups of records": ("SELECT key, value FROM input", MEAN),
}


@pytest.mark.parametrize(("first", "second"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_updates_do_not_harm_is_accepted(first: str, second: str) -> None:
    load(chain(first, second))


def test_results_on_close_are_accepted() -> None:
    load(chain(HOURLY, MEAN, closes=", emit: on_close, grace: 0 s"))


@pytest.mark.parametrize(
    "between",
    [
        "- {id: Between, type: forward, to: [Second]}",
        "- {id: Between, type: sql, query: SELECT * FROM input, to: [Second]}",
    ],
)
def test_updates_pass_through_what_has_no_groups(between: str) -> None:
    (problem,) = problems_in(chain(HIGHEST, MEAN, between=between))
    assert '"Second": its records are updates of "First"' in problem


def test_a_query_in_between_may_turn_values_round() -> None:
    highest = MEAN.replace("avg", "max")
    load(chain(HIGHEST, highest, between="- {id: Between, type: forward, to: [Second]}"))
    query = "- {id: Between, type: sql, query: SELECT * FROM input, to: [Second]}"
    assert problems_in(chain(HIGHEST, highest, between=query))


def test_updates_come_through_a_topic_too() -> None:
    text = f"""
sources: {{read: prices}}
sinks: {{written: prices}}
processors:
- {{id: First, type: sql, query: "{HIGHEST}", {SCHEMA}, to: [written]}}
- {{id: Second, type: sql, query: "{MEAN}", {SCHEMA}, from: [read], to: [sink]}}
"""
    assert any('"Second": its records are updates of "First"' in each for each in problems_in(text))
