"""`type: sql` over sources that say where the time of their records is."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.errors import ConfigError
from tests.unit.streams.pipeline.loading import load
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce

TEXT = """
sources:
  orders: {{topic: orders_topic, timestamp: {time}}}
processors:
- id: PerHour
  type: sql
  from: [orders]
  format: json
  schema: n INT
  query: >
    SELECT key, date_format(window.start, 'MM-dd HH:mm') AS start, sum(n) AS n,
      max(timestamp) AS last
    FROM orders GROUP BY key, window(timestamp, '1 hour')
  on_error: skip
  emit: on_close
  grace: 0 s
  close_after_idle: 10 s
  to: [sink]
"""


@pytest.mark.integration
def test_windows_go_by_the_time_in_a_field(shared: OpenedOnce) -> None:
    time = "{field: meta.at, format: 'yyyy-MM-dd HH:mm', zone: Europe/Berlin}"
    job = Job(TEXT.format(time=time), shared)
    rows = [
        ("2026-11-21 07:10", 1),
        ("2026-11-21 07:59", 2),
        ("21.11.2026", 4),
        (None, 8),
        ("2026-11-21 08:00", 16),
        ("2026-11-21 07:58", 32),
    ]
    for text, n in rows:
        job.send([{"key": "a", "n": n, "meta": {"at": text}, "at": 5}], topic="orders_topic")
    job.send([{"key": "a", "raw": "not JSON", "at": 5}], topic="orders_topic")
    (found,) = job.take()
    job.close()
    assert found.value == {"start": "11-21 06:00", "n": 3, "last": "2026-11-21T06:59:00.000Z"}
    assert found.timestamp == 1795244340000
    assert job.skipped == 3
    assert job.dropped == {"expired": 1}


@pytest.mark.integration
def test_windows_of_processing_time_close_by_the_wall_clock(shared: OpenedOnce) -> None:
    job = Job(TEXT.format(time="wall_clock"), shared)
    job.clock.now_ms = 3_599_990
    job.send([{"key": "a", "n": 1, "at": 900}], topic="orders_topic")
    job.clock.now_ms = 3_599_999
    job.send([{"key": "a", "n": 2, "at": 100}], topic="orders_topic")
    job.clock.now_ms = 3_600_000
    job.send([{"key": "a", "n": 4, "at": 500}], topic="orders_topic")
    (first,) = job.take()
    assert (first.value["start"], first.value["n"], first.timestamp) == (
        "01-01 00:00",
        3,
        3_599_999,
    )
    job.wait(10_000)
    (last,) = job.take()
    job.close()
    assert (last.value["start"], last.value["n"], last.timestamp) == ("01-01 01:00", 4, 3_600_000)


def test_a_time_in_a_field_needs_values_of_json() -> None:
    text = TEXT.format(time="{field: at}").replace(
        "format: json\n  schema: n INT", "format: string"
    )
    with pytest.raises(ConfigError, match='source "orders": the time is in a field, which only'):
        load(text)


def test_a_format_that_is_not_possible_is_reported_with_its_place() -> None:
    with pytest.raises(ConfigError, match="timestamp: the pattern yyyy-QQ has QQ"):
        load(TEXT.format(time="{field: at, format: yyyy-QQ}"))
