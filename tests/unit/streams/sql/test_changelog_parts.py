"""Random upserts whose values reach the groups in parts, between those of another task."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_pipeline.streams.sql import kept_distinct
from kafka_pipeline.streams.sql.kept_values import KeptValues
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.test_changelog_model import PARTITIONS, PIPELINES, newest

pytestmark = pytest.mark.integration

TEXT, MODEL = PIPELINES["all functions"]


class JobOfParts(Job):
    """A job whose groups get the rows of its tasks when they are let through, one by one."""

    def __init__(self, queries: OpenedOnce) -> None:
        self.waiting = [deque[Any]() for _ in range(PARTITIONS)]
        self._sender = 0
        super().__init__(TEXT, queries, partitions=PARTITIONS)

    def send(self, rows: Sequence[Row], partition: int = 0, topic: str = "in") -> None:
        self._sender = partition
        super().send(rows, partition, topic)

    def deliver(self, topic: str, partition: int, *columns: Any) -> None:
        if topic == "in":
            super().deliver(topic, partition, *columns)
            return
        for record in zip(*columns, strict=True):
            self.waiting[self._sender].append((topic, partition, [[each] for each in record]))

    def let_through(self, sender: int, count: int = 1) -> None:
        """Let the next rows of a task through."""
        for _ in range(count):
            topic, partition, columns = self.waiting[sender].popleft()
            super().deliver(topic, partition, *columns)


def random_rows(chance: random.Random) -> list[Row]:
    """Return upserts of few keys, half of which are deleted: groups come and go."""
    rows: list[Row] = []
    for at in range(60):
        row = {"key": chance.choice("abcdef"), "at": at, "raw": None}
        if chance.random() < 0.5:
            del row["raw"]
            row |= {"category": chance.choice("xy"), "price": chance.choice([None, 1, 4, 7])}
        rows.append(row)
    return rows


def compare(seed: int, shared: OpenedOnce) -> None:
    """Compare the results with the model whenever all rows are through."""
    chance = random.Random(seed)
    rows = random_rows(chance)
    job, table, compared = JobOfParts(shared), dict[str | None, Any](), 0
    for at in range(0, len(rows), 5):
        for number in range(PARTITIONS):
            own = [row for row in rows[at : at + 5] if ord(row["key"]) % PARTITIONS == number]
            if own:
                job.send(own, number)
        while any(job.waiting) and (chance.random() < 0.9 or at + 5 == len(rows)):
            job.let_through(
                chance.choice([number for number in range(PARTITIONS) if job.waiting[number]])
            )
        table |= {result.key: result.value for result in job.take()}
        if not any(job.waiting):
            found = {key: value for key, value in table.items() if value is not None}
            assert found == MODEL(newest(rows[: at + 5])), f"seed {seed}, after {at + 5} records"
            compared += 1
    assert compared > 1
    job.close()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_distinct, "MOST_VALUES", 1)


def test_results_are_right_once_all_parts_are_there(shared: OpenedOnce, seeds: list[int]) -> None:
    for seed in seeds:
        compare(seed, shared)


def result_after_parts(shared: OpenedOnce) -> dict[str | None, Any]:
    """Return the results if a group loses its last row before the last part of that comes."""
    job = JobOfParts(shared)
    for key, price in (("a", 1), ("c", 4)):
        job.send([{"key": key, "at": 1, "category": "x", "price": price}], 1)
    job.let_through(1, 2)
    job.send([{"key": key, "at": 2, "raw": None} for key in "ac"], 1)
    job.let_through(1)
    job.send([{"key": "b", "at": 3, "category": "x", "price": 4}])
    job.let_through(0)
    job.let_through(1)
    assert not any(job.waiting)
    job.close()
    return job.latest()


def test_a_group_without_rows_waits_for_its_last_part(
    shared: OpenedOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = MODEL({"b": {"category": "x", "price": 4}})
    assert result_after_parts(shared) == wanted
    monkeypatch.setattr(KeptValues, "has_some", lambda self, key: False)
    assert result_after_parts(shared) != wanted
