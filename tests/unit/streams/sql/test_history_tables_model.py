"""Tables with a history, with late records and late changes, compared with a model in Python.

The model says which version each record must see; plain Spark runs the query on these pairs.
"""

from __future__ import annotations

import random

import pytest
from pyspark.sql import functions as F

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import plain_session
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, Row, columns_of
from tests.unit.streams.sql.test_topic_tables_model import (
    GROUPS,
    JOINS,
    SIZE,
    TABLE_SCHEMA,
    is_taken,
    pipeline,
    random_rows,
    send,
)

pytestmark = pytest.mark.integration

HISTORY = 10
"""Minutes."""

ALL = {**JOINS, **GROUPS}
TABLES = ("customers", "raws")


class Versions:
    """What a table with a history holds: all versions, by key and time in minutes."""

    def __init__(self, history: float) -> None:
        self._history = history
        self._versions: dict[str, dict[float, bytes | None]] = {}
        self._now = -1.0
        self.dropped = 0
        self.former = 0
        """How many times a version was seen that is not the latest one."""

    def put(self, key: str, value: bytes | None, at: float) -> None:
        """Take a change, unless it is older than the history."""
        if at < self._now - self._history:
            self.dropped += 1
            return
        self._now = max(self._now, at)
        self._versions.setdefault(key, {})[at] = value

    def at(self, key: str | None, time: float) -> tuple[bytes, float] | None:
        """Return the value that a record of this time sees, and its time."""
        versions = self._versions.get(key or "", {})
        since = max((at for at in versions if at <= time), default=None)
        if since is None or (value := versions[since]) is None:
            return None
        if since == max(versions):
            return value, since
        if time < self._now - self._history:
            return None
        self.former += 1
        return value, since


class Model:
    """The records of the input, each with what it sees of both tables."""

    def __init__(self, history: float = HISTORY) -> None:
        self.tables = {"customers": Versions(history), "raws": Versions(float("inf"))}
        # Without a history, the last change of a key counts, whatever its time.
        self._last: dict[str, tuple[bytes, float] | None] = {}
        self._input: list[tuple[str | None, int, int]] = []
        self._seen: dict[str, list[tuple[str | None, str, int, int]]] = {
            name: [] for name in TABLES
        }

    def add(self, order: list[tuple[str, Row]]) -> None:
        """Take records in the order in which they count."""
        for topic, row in order:
            ((key,), (value,), _) = columns_of([row])
            if topic == "in":
                self._see(row)
            elif not is_taken(topic, key, value):
                continue
            elif topic == "raws":
                self._last[row["key"]] = None if value is None else (value, row["at"])
            else:
                self.tables[topic].put(row["key"], value, row["at"])

    def _see(self, row: Row) -> None:
        number = len(self._input)
        self._input.append((row["key"], row["n"], number))
        seen = {
            "customers": self.tables["customers"].at(row["key"], row["at"]),
            "raws": self._last.get(row["key"]),
        }
        for name, version in seen.items():
            if version is not None:
                value, at = version
                found = (row["key"], value.decode(), round(at * MINUTE_MS), number)
                self._seen[name].append(found)

    def run(self, query: str) -> list[tuple[str | None, dict[str, object]]]:
        """Return keys and values of the results, those of joins in the order of the records."""
        session = plain_session()
        types = "key STRING, n INT, number INT"
        session.createDataFrame(self._input, types).createOrReplaceTempView("input")
        for name, rows in self._seen.items():
            frame = session.createDataFrame(rows, "key STRING, value STRING, time LONG, number INT")
            frame = frame.withColumn("timestamp", F.timestamp_millis("time"))
            if name == "customers":
                parsed = F.from_json("value", TABLE_SCHEMA).alias("value")
                frame = frame.select("key", parsed, "timestamp", "number")
                frame = frame.select("key", "value.*", "timestamp", "number")
            frame.createOrReplaceTempView(name)
        for alias in "crd":
            query = query.replace(f"{{{alias}}}", f" AND i.number = {alias}.number")
        if "GROUP BY" not in query:
            query = (
                query.replace("SELECT i.key", "SELECT i.number, i.key", 1) + " ORDER BY i.number"
            )
        found = [row.asDict() for row in session.sql(query).collect()]
        return [(row.pop("key"), {n: v for n, v in row.items() if n != "number"}) for row in found]


def with_history(text: str) -> str:
    """Return the pipeline of the tests without a history, where `customers` has one."""
    before = f'schema: "{TABLE_SCHEMA}"'
    assert before in text
    return text.replace(before, f"{before}, history: {HISTORY} min")


def late_rows(chance: random.Random) -> dict[str, list[Row]]:
    """Return random records and changes of a few keys; some come later than the history."""
    first, second = random_rows(chance), random_rows(chance)
    rows = {
        topic: [*first[topic], *({**row, "at": row["at"] + SIZE} for row in second[topic])]
        for topic in first
    }
    delays = {"in": [0, 4, 7, 9, 15], "customers": [0, 0, 0, 4, 9, 25], "raws": [0, 9]}
    keys = {"c": "a", "d": "b"}

    def delayed(topic: str, row: Row) -> Row:
        at = max(row["at"] - chance.choice(delays[topic]), 0)
        return {**row, "key": keys.get(row["key"], row["key"]), "at": at}

    return {topic: [delayed(topic, row) for row in each] for topic, each in rows.items()}


@pytest.mark.parametrize("name", long_but_the_first(ALL))
def test_a_record_sees_the_row_of_its_own_time(
    shared: OpenedOnce, seeds: list[int], name: str
) -> None:
    for seed in seeds:
        chance = random.Random(f"{seed} {name}")
        job, model = Job(with_history(pipeline(ALL[name])), shared), Model()
        send(job, model.add, late_rows(chance), chance)
        table = model.tables["customers"]
        assert job.dropped["expired"] == table.dropped > 0, f"seed {seed}"
        assert table.former > 0, f"seed {seed}"
        expected = model.run(ALL[name])
        if name in GROUPS:
            latest = dict(expected)
            if name == "by key":
                # Records without a key are dropped.
                latest.pop(None, None)
            assert job.latest() == latest, f"seed {seed}"
        else:
            assert [(each.key, each.value) for each in job.take()] == expected, f"seed {seed}"
        assert expected
        job.close()
