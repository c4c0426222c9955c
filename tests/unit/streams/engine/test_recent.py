"""Rates: counts of the last minute."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.engine.recent import WINDOW_MS, RecentCount


@pytest.mark.parametrize(
    ("now_ms", "count"),
    [(1_000, 5), (WINDOW_MS - 1, 5), (WINDOW_MS, 3), (WINDOW_MS + 999, 3), (WINDOW_MS + 1_000, 0)],
)
def test_events_count_for_a_minute(now_ms: int, count: int) -> None:
    recent = RecentCount()
    recent.add(2, 0)
    recent.add(0, 500)
    recent.add(3, 1_000)
    assert recent.in_window(now_ms) == count
