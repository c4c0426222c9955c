"""Queries behind a topic that several tasks write: what is late, and when windows close."""

from __future__ import annotations

import pytest

from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Row
from tests.unit.streams.sql.join_pipeline import ON
from tests.unit.streams.sql.join_pipeline import pipeline as join
from tests.unit.streams.sql.test_grouped_queries import HOURLY, pipeline
from tests.unit.streams.sql.test_session_queries import SESSIONS, rows, shown

pytestmark = pytest.mark.integration

ON_CLOSE = "grace: 0 s\n  emit: on_close"


def hours(job: Job) -> list[tuple[str | None, str, list[int]]]:
    return [(each.key, each.value["hour"], sorted(each.value["l"])) for each in job.take()]


def test_window_waits_for_the_writer_that_is_behind(shared: OpenedOnce) -> None:
    job = Job(pipeline(HOURLY, ON_CLOSE), shared, writers=2)
    job.send([{"key": "a", "n": 1, "at": 5}, {"key": "a", "n": 2, "at": 500}])
    job.learn(30)
    job.send([{"key": "a", "n": 3, "at": 31}])
    assert job.take() == []
    job.restart()
    job.learn(60)
    assert hours(job) == [("a", "00:00", [1, 3])]
    # A record whose clock is there is late, however far the step is.
    job.send([{"key": "a", "n": 4, "at": 59}])
    assert job.dropped == {"expired after idle": 1}
    job.learn(600)
    assert hours(job) == [("a", "08:00", [2])]
    assert job.take() == []
    job.close()


def test_what_its_own_clock_makes_late_goes_to_late_to_in_front_of_the_topic_of_groups(
    shared: OpenedOnce,
) -> None:
    """Behind the topic, only rows of groups are known: what others have closed without them."""
    query = HOURLY.replace("key", "customer AS key", 1).replace("BY key", "BY customer")
    text = pipeline(query, "grace: 0 s\n  late_to: late")
    job = Job(text, shared, partitions=2, writers=2, sources=("in",))

    def records(*minutes: float) -> list[Row]:
        return [{"key": 1, "customer": "a", "n": int(at), "at": at} for at in minutes]

    job.send(records(10, 70, 11, 12, 71), 0)
    job.restart()
    job.send(records(13), 0)
    # The other partition is not as far, so its record is in time.
    job.send(records(14), 1)
    found = job.take()
    late = [each for each in found if each.topic == "late_records"]
    assert [each.value["n"] for each in late] == [11, 12, 13]
    results = [
        each.value for each in found if each.topic == "out" and each.value["hour"] == "00:00"
    ]
    assert sorted(results[-1]["l"]) == [10, 14]
    assert job.dropped == {"expired (late_to)": 3}
    # Now it was idle, and the window has closed without it.
    job.learn(70)
    job.send(records(15), 1)
    assert job.dropped == {"expired (late_to)": 3, "expired after idle": 1}
    job.close()


def test_results_on_update_are_not_lost_where_others_are_ahead(shared: OpenedOnce) -> None:
    job = Job(pipeline(HOURLY, "grace: 0 s"), shared, writers=2)
    job.send([{"key": "a", "n": 1, "at": 500}])
    job.send([{"key": "a", "n": 2, "at": 5}])
    job.learn(10)
    job.send([{"key": "a", "n": 3, "at": 15}])
    assert hours(job)[-1] == ("a", "00:00", [2, 3])
    assert job.dropped == {}
    job.close()


def test_session_waits_for_the_writer_that_is_behind(shared: OpenedOnce) -> None:
    job = Job(pipeline(SESSIONS, ON_CLOSE), shared, writers=2)
    job.send([*rows(10, 300), *rows(12)])
    job.learn(14)
    job.send(rows(16))
    assert job.take() == []
    job.learn(21)
    assert job.take() == []
    job.learn(21.1)
    assert shown(job.take()) == ["a: ('00:10-00:21', 10, 12, 16)"]
    job.restart()
    job.learn(400, is_idle=True)
    assert shown(job.take()) == ["a: ('05:00-05:05', 300)"]
    assert job.dropped == {}
    job.close()


@pytest.mark.parametrize("query", [HOURLY, SESSIONS], ids=["windows", "sessions"])
def test_windows_close_when_nothing_comes(shared: OpenedOnce, query: str) -> None:
    job = Job(pipeline(query, f"{ON_CLOSE}\n  close_after_idle: 30 s"), shared)
    job.send([{"key": "a", "n": 1, "at": 5}, {"key": "b", "n": 2, "at": 6}])
    job.wait(29_999)
    assert job.take() == []
    job.wait(1)
    assert [(each.key, each.value["l"]) for each in job.take()] == [("a", [1]), ("b", [2])]
    job.send([{"key": "a", "n": 3, "at": 5}])
    job.wait(60_000)
    assert job.take() == []
    assert job.dropped == {"expired": 1}
    job.close()


def test_row_waits_for_its_partner_whose_writer_is_behind(shared: OpenedOnce) -> None:
    query = f"SELECT o.n AS o, p.n AS p FROM orders o LEFT JOIN payments p {ON}"
    job = Job(join(query, "grace: 0 s"), shared, writers=2)
    job.send([{"key": "a", "n": 1, "at": 10}, {"key": "b", "n": 2, "at": 10}], topic="orders")
    job.send([{"key": "c", "n": 3, "at": 900}], topic="payments")
    job.learn(12)
    assert job.take() == []
    job.send([{"key": "a", "n": 4, "at": 13}], topic="payments")
    job.learn(20)
    assert [each.value for each in job.take()] == [{"o": 1, "p": 4}]
    job.learn(20.1)
    assert [each.value for each in job.take()] == [{"o": 2, "p": None}]
    job.send([{"key": "b", "n": 5, "at": 14}], topic="payments")
    assert job.dropped == {"expired after idle": 1}
    job.close()
