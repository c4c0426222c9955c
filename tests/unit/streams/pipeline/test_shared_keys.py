"""Keys of results that several groups may have, although the key of one of them is deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.config.table_settings import TableSettings
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in

SCHEMA = "format: json, schema: 'auction STRING, category STRING, price DOUBLE, n BIGINT'"
SUMS = "SELECT category AS key, auction, sum(price) AS price FROM input GROUP BY category, auction"
PER_HOUR = f"{SUMS}, window(timestamp, '1 hour')"
VISITS = (
    "SELECT session_window.start AS key, auction, count(*) AS n FROM input GROUP BY auction, "
    "session_window(timestamp, '1 minute')"
)
HIGH = "SELECT key, price FROM ({}) WHERE price > 9"
PLACED = (
    "SELECT cast(place AS STRING) AS key, price FROM (SELECT *, row_number() OVER (PARTITION BY "
    "category ORDER BY price DESC) AS place FROM input) WHERE place <= 3"
)
CUBE = SUMS.replace("GROUP BY category, auction", "GROUP BY CUBE(category, auction)")
PRICES = "sources: {prices: {topic: prices, changelog: true}}\nprocessors:\n"


def one(query: str, source: str = "source") -> str:
    """Return a pipeline with one query, over upserts if it reads `prices`."""
    settings = f"{SCHEMA}, from: [{source}], to: [sink]"
    return f'{PRICES}- {{id: First, type: sql, query: "{query}", {settings}}}'


OF_EMPTY, OF_LEFT_OUT, OF_GROWN = (
    "a group whose rows are all gone",
    "a group that HAVING or WHERE leaves out later",
    "a session that has grown",
)
SHARED = {
    "groups of upserts": (SUMS, "prices", "auction", OF_EMPTY, "category, auction"),
    "groups with a constant": (
        SUMS.replace("category AS key", "'all' AS key"),
        "prices",
        "category and auction",
        OF_EMPTY,
        "category, auction",
    ),
    "sets of columns": (CUBE, "prices", "auction", OF_EMPTY, "category, auction"),
    "places of upserts": (PLACED, "prices", "category", OF_EMPTY, "category, place"),
    "different rows of upserts": (
        "SELECT key, a FROM (SELECT DISTINCT category AS key, auction AS a FROM input)",
        "prices",
        "auction",
        OF_EMPTY,
        "category, auction",
    ),
    "a condition on groups of records": (
        f"{SUMS} HAVING sum(price) > 9",
        "source",
        "auction",
        OF_LEFT_OUT,
        "category, auction",
    ),
    "a condition that is true at first": (
        f"{SUMS} HAVING count(*) < 9",
        "source",
        "auction",
        OF_LEFT_OUT,
        "category, auction",
    ),
    "a condition above the groups": (
        HIGH.format(SUMS),
        "source",
        "auction",
        OF_LEFT_OUT,
        "category, auction",
    ),
    "windows": (
        f"{PER_HOUR} HAVING sum(price) > 9",
        "source",
        "auction and WINDOW(timestamp, '1 hour')",
        OF_LEFT_OUT,
        "category, auction, window.start",
    ),
    "sessions": (VISITS, "source", "auction", OF_GROWN, "auction, session_window.start"),
}


@pytest.mark.parametrize(
    ("query", "source", "missing", "deleted", "columns"), SHARED.values(), ids=SHARED
)
def test_a_key_is_refused_whose_deletion_is_that_of_another_group(
    query: str, source: str, missing: str, deleted: str, columns: str
) -> None:
    (problem,) = problems_in(one(query, source))
    assert problem == (
        f'3:33: "First": the query groups by {missing}, which its column key does not have. The '
        f"key of {deleted} is deleted, and with it the result of another group that has it. Give a "
        "key that is made of all grouping columns, such as "
        f"concat_ws('|', {columns}), or none"
    )


OF_ITS_OWN = {
    "all columns": (SUMS.replace("category AS key", "concat(category, auction) AS key"), "prices"),
    "all columns, under other names": (
        "SELECT concat(a, c) AS key, s FROM (SELECT upper(auction) AS a, category AS c, concat(c) "
        "AS d, sum(n) AS s FROM input GROUP BY upper(auction), 2)",
        "prices",
    ),
    "a column that names others": (
        "SELECT upper(auction) AS a, concat(a, category) AS key, sum(n) AS n FROM input GROUP BY "
        "upper(auction), category",
        "prices",
    ),
    "different rows of upserts": (
        "SELECT DISTINCT concat(category, auction) AS key, category, auction FROM input",
        "prices",
    ),
    "different rows of records": ("SELECT DISTINCT category AS key, auction FROM input", "source"),
    "no key": (SUMS.replace("category AS key, ", ""), "prices"),
    "a key of aggregates": (SUMS.replace("category AS key", "max(price) AS key"), "prices"),
    "a constant": ("SELECT 'all' AS key, sum(price) AS price FROM input GROUP BY 'all'", "prices"),
    "sets of columns": (CUBE.replace("category AS key", "concat(category, auction)"), "prices"),
    "places of upserts": (
        PLACED.replace("cast(place", "concat(category, place").replace(" AS STRING)", ")"),
        "prices",
    ),
    "places of records, which always have a row": (PLACED, "source"),
    "groups of records, which stay": (SUMS, "source"),
    "windows of records, which stay": (PER_HOUR, "source"),
    "a condition on what grows": (f"{SUMS} HAVING count(*) > 9 AND 2 <= max(price)", "source"),
    "a condition on a smallest value, by its name": (
        f"{SUMS.replace('sum', 'min')} HAVING price < 9 AND category <> 'a'",
        "source",
    ),
    "a condition above the groups": (HIGH.format(SUMS.replace("sum", "max")), "source"),
    "sessions without their bounds": (
        VISITS.replace("session_window.start AS key", "auction AS key"),
        "source",
    ),
}


@pytest.mark.parametrize(("query", "source"), OF_ITS_OWN.values(), ids=OF_ITS_OWN)
def test_a_key_is_taken_that_deletes_no_other_group(query: str, source: str) -> None:
    load(one(query, source))


def test_results_on_close_may_have_any_key() -> None:
    query = f"{PER_HOUR} HAVING sum(price) > 9"
    load(one(query).replace("to: [sink]", "to: [sink], emit: on_close, grace: 0 s"))


def to_table(query: str, key: str, more: str = "") -> str:
    config = (
        "format: delta, path: /lake/t, mode: upsert, schema: 'auction STRING NOT NULL, category "
    )
    config += f"STRING NOT NULL, price DOUBLE', key: [{key}]{more}"
    first = one(query, "prices").replace("to: [sink]", "to: [Table]")
    return f"{first}\n- {{id: Table, type: table, {config}}}"


ROWS_OF_TABLE = (
    "SELECT to_json(struct(auction, category)) AS key, auction, category, sum(price) AS price FROM "
    "input GROUP BY auction, category"
)
WRITES = replace(CONFIG, tables=TableSettings(write_paths=("/lake",)))


def test_a_table_whose_key_is_that_of_several_groups_is_refused() -> None:
    (problem,) = problems_in(to_table(ROWS_OF_TABLE, "category"), WRITES)
    assert problem.startswith("4:")
    assert (
        '"Table": "First" groups by auction, which the key of the table does not have. The key of '
        f"{OF_EMPTY} is deleted, and with it"
    ) in problem
    assert '"First": the query groups' in problems_in(to_table(SUMS, "category"), WRITES)[0]


@pytest.mark.parametrize(
    ("key", "more"),
    [("auction, category", ""), ("name", ", record_columns: {key: name}")],
)
def test_a_table_whose_key_is_that_of_a_group_is_written(key: str, more: str) -> None:
    load(to_table(ROWS_OF_TABLE, key, more), WRITES)
