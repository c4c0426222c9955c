"""A backfill of queries and functions that keep state gives the results of the stream."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from tests.history import Here, History, Row
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA

pytestmark = pytest.mark.integration

MINUTE_MS = 60_000
HOURLY = "window(timestamp, '1 hour')"
CLOSING = "emit: on_close\n  grace: 10 min"
JOINED = (
    "SELECT i.key, i.customer AS a, o.customer AS b, i.n FROM in i {how} JOIN others o "
    "ON i.key = o.key AND i.n = o.n "
    "AND o.timestamp BETWEEN i.timestamp - INTERVAL 30 MINUTES AND i.timestamp"
)
FUNCTIONS = [
    ("totals", "{}", "{key: true}"),
    ("hourly", "{group: customer}", "{window: 1 h}"),
    ("sessions", "{}", "{key: true, session: 9 min}"),
    ("distinct", "{}", "{key: true}"),
    ("best", "{}", "{window: 1 h}\n  emit: on_close\n  grace: 10 min"),
]
QUERIES = [
    ("SELECT customer AS key, count(*) AS c, sum(n) AS s FROM in GROUP BY customer", ""),
    (f"SELECT key, avg(n) AS a FROM in GROUP BY key, {HOURLY}", CLOSING),
    (f"SELECT customer AS key, max(n) AS m FROM in GROUP BY customer, {HOURLY}", CLOSING),
    (
        "SELECT key, count(*) AS c FROM in GROUP BY key, session_window(timestamp, '9 minutes')",
        CLOSING,
    ),
    (
        "SELECT concat(key, place) AS key, n, customer FROM (SELECT *, row_number() OVER "
        f"(PARTITION BY key, {HOURLY} ORDER BY n DESC) AS place FROM in) WHERE place <= 2",
        CLOSING,
    ),
    ("SELECT DISTINCT key, n FROM in", ""),
    (JOINED.format(how="INNER"), "grace: 10 min"),
    (JOINED.format(how="FULL"), "grace: 10 min"),
    ("SELECT i.key, i.n, o.n AS last FROM in i LEFT JOIN others o ON i.key = o.key", "TABLE"),
]


def random_rows(seed: int) -> list[Row]:
    """Return records in the order of time, in which a backfill processes them."""
    chance = random.Random(seed)
    rows = list[Row]()
    for number in range(100):
        value = {"customer": chance.choice("abc"), "n": chance.randint(0, 5), "amount": 0.5}
        time = 3 * number * MINUTE_MS + seed
        rows.append((chance.choice([b"k", b"l", b"m"]), json.dumps(value).encode(), time, []))
    return rows


def both(folder: Path, local: LocalQueries, text: str) -> tuple[list[Row], list[Row]]:
    """Return the results of a backfill, and those of a test driver."""
    sources = {"in": "in.parquet"}
    if "others: others" in text:
        sources["others"] = "others.parquet"
    history = History(folder, text, parallelism=2, sources=sources)
    rows: dict[str, Sequence[Row]] = {}
    for seed, name in enumerate(reversed(sources), 5):
        rows[name] = random_rows(seed)
        history.write(rows[name], f"{name}.parquet")
    history.run(Here(local=local))
    (streamed,) = history.streamed(rows, "out")
    return [row for partition in history.results("out") for row in partition], streamed


def latest(rows: list[Row]) -> dict[bytes | None, tuple[bytes, int]]:
    """Return the last result of each key, without those that were deleted."""
    table = {key: (value, time) for key, value, time, _ in rows}
    return {key: (value, time) for key, (value, time) in table.items() if value is not None}


@pytest.mark.long
@pytest.mark.parametrize(("function", "config", "group_by"), FUNCTIONS)
def test_a_function_ends_with_what_the_stream_ends_with(
    tmp_path: Path, local: LocalQueries, function: str, config: str, group_by: str
) -> None:
    found, streamed = both(
        tmp_path,
        local,
        "- id: P\n  type: dataframe\n  format: json\n  to: [sink]\n"
        f"  function: tests.user_code.grouped_frames:{function}\n  config: {config}\n"
        f"  group_by: {group_by}\n  schema: {SCHEMA}\n",
    )
    assert latest(found) == latest(streamed)
    assert latest(found), "nothing is compared"
    if function in ("distinct", "best"):  # each result comes once
        assert sorted(found, key=repr) == sorted(streamed, key=repr)


@pytest.mark.parametrize(("query", "more"), long_but_the_first(QUERIES))
def test_a_query_ends_with_what_the_stream_ends_with(
    tmp_path: Path, local: LocalQueries, query: str, more: str
) -> None:
    inputs = "[in, others]" if " o." in query and more != "TABLE" else "[in]"
    sources = "sources: {in: in, others: others}" if "others" in query else "sources: {in: in}"
    if more == "TABLE":
        more = f"tables: {{others: {{topic: others, schema: '{SCHEMA}'}}}}"
    found, streamed = both(
        tmp_path,
        local,
        f"{sources}\nprocessors:\n- id: P\n  type: sql\n  from: {inputs}\n  format: json\n"
        f"  schema: {SCHEMA}\n  query: {json.dumps(query)}\n  to: [sink]\n  {more}\n",
    )
    assert found, "nothing is compared"
    if "GROUP BY customer" in query and not more:
        assert latest(found) == latest(streamed)
    else:  # each result comes once
        assert sorted(found, key=repr) == sorted(streamed, key=repr)
