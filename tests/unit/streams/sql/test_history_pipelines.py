"""A pipeline.yaml whose table has a history: in a test driver, and in a backfill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from tests.history import Here, History, Row
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

MINUTE_MS = 60_000
PIPELINE = """
sources: {people: people_topic}
processors:
- id: P
  type: sql
  format: json
  schema: n INT
  tables: {people: {topic: people, schema: "city STRING"HISTORY}}
  query: >
    SELECT * FROM (SELECT i.key, n, city FROM input i LEFT JOIN people p ON i.key = p.key)
  to: [sink]
"""
# Minutes, the key, and the city or the number; None deletes. Records of one topic keep their order.
PEOPLE = [(1, "a", "Ulm"), (2, "b", "Köln"), (4, "a", "Bonn"), (6, "a", None), (9, "a", "Jena")]
ORDERS = [(1, "a"), (5, "a"), (3, "a"), (2, "b"), (7, "a"), (10, "a"), (5, "a"), (3, "a"), (1, "b")]
CITIES = ["Ulm", "Bonn", "Ulm", "Köln", None, "Jena", "Bonn", None, None]
"""The history begins with minute 4 at the end."""


def rows() -> tuple[list[Row], list[Row]]:
    """Return the changes of the table and the records."""
    changes: list[Row] = [
        (key.encode(), None if city is None else json.dumps({"city": city}).encode(), at, [])
        for minute, key, city in PEOPLE
        for at in (minute * MINUTE_MS,)
    ]
    records: list[Row] = [
        (key.encode(), b'{"n": %d}' % number, minute * MINUTE_MS, [])
        for number, (minute, key) in enumerate(ORDERS)
    ]
    return changes, records


def streamed(history: History) -> list[Row]:
    """Return what a test driver gives: at equal times, changes come first."""
    changes, records = rows()
    (found,) = history.streamed({"people_topic": changes, "in": records}, "out")
    return found


def history_of(folder: Path, history: str) -> History:
    text = PIPELINE.replace("HISTORY", history)
    return History(folder, text, sources={"in": "in.parquet", "people_topic": "people.parquet"})


@pytest.mark.parametrize(
    ("history", "cities"),
    long_but_the_first(
        [
            (", history: 5 min", CITIES),
            (", history: 1 d", [*CITIES[:7], "Ulm", None]),
            ("", ["Ulm", "Bonn", "Bonn", "Köln", None, "Jena", "Jena", "Jena", "Köln"]),
        ]
    ),
    ids=["short", "long", "none"],
)
def test_a_late_record_sees_the_row_of_its_time_within_the_history(
    tmp_path: Path, history: str, cities: list[str | None]
) -> None:
    found = streamed(history_of(tmp_path, history))
    assert [json.loads(value or b"")["city"] for _, value, *_ in found] == cities
    assert [time for *_, time, _ in found] == [minute * MINUTE_MS for minute, _ in ORDERS]


def test_a_backfill_gives_the_same_rows_as_a_history_that_is_long_enough(
    local: LocalQueries, tmp_path: Path
) -> None:
    """It takes the records of files in the order of time, so none is late."""
    history = history_of(tmp_path, ", history: 1 d")
    changes, records = rows()
    history.write(records)
    history.write(changes, "people.parquet")
    history.run(Here(local=local))
    (found,) = history.results("out")
    assert sorted(found) == sorted(streamed(history))
    assert [time for *_, time, _ in found] == sorted(time for *_, time, _ in found)


def test_the_time_of_a_row_may_be_in_a_field(local: LocalQueries, tmp_path: Path) -> None:
    """All changes have one time in Kafka."""
    time = "{topic: people_topic, timestamp: {field: at, on_invalid: partition_time}}"
    text = PIPELINE.replace("people: people_topic", f"people: {time}", 1)
    text = text.replace("HISTORY", ", history: 1 d")
    history = History(
        tmp_path, text, sources={"in": "in.parquet", "people_topic": "people.parquet"}
    )
    changes: list[Row] = [
        (key.encode(), json.dumps({"city": city, "at": minute * MINUTE_MS}).encode(), 1, [])
        for minute, key, city in PEOPLE
        if city is not None
    ]
    _, records = rows()
    (found,) = history.streamed({"people_topic": changes, "in": records}, "out")
    cities = ["Ulm", "Bonn", "Ulm", "Köln", "Bonn", "Jena", "Bonn", "Ulm", None]
    assert [json.loads(value or b"")["city"] for _, value, *_ in found] == cities
    history.write(records)
    history.write(changes, "people.parquet")
    history.run(Here(local=local))
    (batch,) = history.results("out")
    assert sorted(batch) == sorted(found)
