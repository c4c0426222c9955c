"""Frames over rows have the same results when the number of their tasks changes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.rescaling import state_spread
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import all_at_once
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.random_rows import GRACE_MIN, pipeline, rounded, table_of
from tests.unit.streams.sql.rescaled_job import rescaled

pytestmark = pytest.mark.integration

KEYS = [f"k{number}" for number in range(12)]
FRAMES = (
    "lag(amount, 2, -1) OVER (PARTITION BY {by} ORDER BY timestamp) AS two_before, sum(amount) "
    "OVER (PARTITION BY {by} ORDER BY timestamp ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS four, "
    "count(*) OVER (PARTITION BY {by} ORDER BY timestamp RANGE BETWEEN INTERVAL '40 minutes' "
    "PRECEDING AND CURRENT ROW) AS lately"
)
QUERIES = {
    name: f"SELECT key, {FRAMES.format(by=by)}{{last}} FROM input"
    for name, by in {"by key": "key", "by another column": "n"}.items()
}
COUNTS = (2, 4, 2, 3)
STEP_MIN = 5


def rows_of(chance: random.Random) -> list[Row]:
    """Return rows in the order of time; groups rest for long, so tasks are at different times."""
    found: list[Row] = []
    for at in range(240):
        resting = {at // 40, at // 40 + 6}
        number = chance.choice([each for each in range(12) if each not in resting])
        found.append(
            {
                "key": KEYS[chance.choice([number, chance.randrange(12)])],
                "n": number,
                "amount": chance.choice([None, chance.randint(-20, 40) / 4]),
                "at": 1000 + at,
            }
        )
    return found


def run(
    text: str, rows: list[Row], shared: OpenedOnce, chance: random.Random
) -> list[tuple[str, Any, int]]:
    """Return the results, some of them after a change of the number of tasks."""
    job = Job(text, shared, partitions=COUNTS[0])
    for part, count in enumerate(COUNTS):
        if part:
            job = rescaled(job, text, shared, COUNTS[part - 1], count)
        share = rows[part * 60 : part * 60 + 60]
        for at in range(0, len(share), STEP_MIN):
            sent = share[at : at + STEP_MIN]
            for number in chance.sample(range(count), count):
                mine = [r for r in sent if default_partition(r["key"].encode(), count) == number]
                if mine:
                    job.send(mine, number)
    for number in range(COUNTS[-1]):
        last = [
            {"key": key, "n": n, "amount": 0, "at": 9000}
            for n in range(12)
            for key in KEYS
            if default_partition(key.encode(), COUNTS[-1]) == number
        ]
        job.send(last, number)
    assert not job.dropped
    job.close()
    found = [(str(each.key), rounded(each.value), each.timestamp) for each in job.take()]
    return sorted(found, key=repr)


@pytest.mark.parametrize("name", long_but_the_first(QUERIES))
def test_rows_that_wait_and_those_in_frames_go_with_their_group(
    shared: OpenedOnce, seeds: list[int], name: str
) -> None:
    for seed in seeds:
        chance = random.Random(f"{seed} {name}")
        rows = rows_of(chance)
        found = run(pipeline(QUERIES[name], f"grace: {GRACE_MIN} min"), rows, shared, chance)
        wanted = all_at_once(
            QUERIES[name].replace("{last}", ", unix_millis(timestamp) AS `last time`"),
            table_of(rows),
        )
        all_rows = [((key or b"").decode(), rounded(value), time) for key, value, time in wanted]
        assert found == sorted(all_rows, key=repr), f"seed {seed}"


@pytest.mark.long
def test_rows_that_were_given_twice_are_found(
    shared: OpenedOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that replaces two begins with the earlier time of both."""
    monkeypatch.setattr(state_spread, "marked_until", lambda time, data: data)
    with pytest.raises(AssertionError, match="seed 0"):
        test_rows_that_wait_and_those_in_frames_go_with_their_group(shared, [0], "by key")
