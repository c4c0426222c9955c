"""Random records, and how a job gets them: in batches, with restarts in between."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.unit.streams.sql.folding import SCHEMA, records
from tests.unit.streams.sql.grouped_job import Job, Row

SIZE = 60
GRACE_MIN = 30


def pipeline(query: str, more: str) -> str:
    return (
        f"- id: P\n  type: sql\n  format: json\n  schema: {SCHEMA}\n"
        f"  query: {json.dumps(query.replace('{last}', ''))}\n  to: [sink]\n"
        f"  on_error: skip\n  {more}\n"
    )


def random_rows(chance: random.Random, *, spread: int) -> list[Row]:
    """Return records whose times go on, give or take `spread` minutes; some are not JSON."""

    def row(index: int) -> Row:
        fields = {
            "key": chance.choice("xyz"),
            "customer": chance.choice(["a", "b", "é", "", None]),
            "amount": chance.choice([None, 0.0, chance.randint(-20, 40) / 4]),
            "n": chance.choice([None, *range(6)]),
            "price": chance.choice([None, "1.25", "-3.75"]),
            "at": 1000 + index + chance.randint(-spread, spread),
        }
        bad = chance.random() < 0.03
        return {**fields, "raw": chance.choice([b"\xff", b"{"])} if bad else fields

    return [row(index) for index in range(SIZE)]


def run(job: Job, rows: list[Row], chance: random.Random) -> None:
    """Send the rows in batches, and restart now and then."""
    while rows:
        size = chance.choice([1, 5, 30])
        job.send(rows[:size])
        rows = rows[size:]
        if chance.random() < 0.1:
            job.restart()


def final(job: Job) -> dict[str | None, Any]:
    """Return the last value and its time of each key whose result was not deleted."""
    table = {each.key: (each.value, each.timestamp) for each in job.take()}
    return {key: (rounded(value), at) for key, (value, at) in table.items() if value is not None}


def closed(job: Job, rows: list[Row], chance: random.Random, seed: int) -> dict[str | None, Any]:
    """Run the rows, and close all windows; return the value and the time of each result."""
    run(job, rows, chance)
    job.send([{"key": "x", "customer": "a", "n": 0, "at": 10_000}])
    results = job.take()
    found = {each.key: (rounded(each.value), each.timestamp) for each in results}
    assert len(found) == len(results), f"seed {seed}: each row is given once"
    return found


def by_key(found: list[tuple[bytes | None, Any, int]]) -> dict[str | None, Any]:
    """Return the same by key as Spark gives for all records at once."""
    return {
        None if key is None else key.decode(): (rounded(value), time) for key, value, time in found
    }


def table_of(rows: list[Row]) -> Any:
    """Return the rows that are JSON, as Spark takes them."""
    right = [row for row in rows if "raw" not in row]
    table = records([{name: row[name] for name in row if name != "key"} for row in right])
    return table.set_column(0, "key", [[row["key"] for row in right]])


def without_last_digits(value: float) -> float:
    """Return a number as it is in any order of additions; what should be 0 is often nearly 0."""
    return round(float(f"{value:.9g}"), 12)


def rounded(value: Any) -> Any:
    match value:
        case float():
            return without_last_digits(value)
        case list():
            return tuple(sorted((rounded(each) for each in value), key=repr))
        case dict():
            return tuple(sorted((name, rounded(each)) for name, each in value.items()))
    return value


def without_late(rows: list[Row], *, with_rejected: bool) -> tuple[list[Row], int]:
    """Return the records whose hour is open when they come, and how many others there are.

    `with_rejected` says whether time goes on with records that are rejected.
    """
    in_time: list[Row] = []
    now = late = 0
    for row in rows:
        then = max(now, row["at"])
        is_late = row["at"] // 60 * 60 + 60 + GRACE_MIN <= then and "raw" not in row
        late += is_late
        in_time += [] if is_late or "raw" in row else [row]
        now = then if with_rejected or "raw" not in row else now
    return in_time, late
