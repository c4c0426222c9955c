"""Times as people type and read them."""

from __future__ import annotations

import pytest

from kafka_pipeline.operations.times import parse_time, shown_time

EDGES = {
    "0001-01-01T00:00:00.000+00:00": -62_135_596_800_000,
    "1969-12-31T23:59:59.999+00:00": -1,
    "2026-11-23T18:00:00.007+00:00": 1_795_456_800_007,
    "9999-12-31T23:59:59.999+00:00": 253_402_300_799_999,
}


@pytest.mark.parametrize(("text", "ms"), EDGES.items())
def test_each_millisecond_is_shown_as_it_is_typed(text: str, ms: int) -> None:
    assert (parse_time(text), shown_time(ms)) == (ms, text)


@pytest.mark.parametrize("ms", [-62_135_596_800_001, 253_402_300_800_000, 1 << 62, -(1 << 63)])
def test_a_time_beyond_the_calendar_is_shown_in_milliseconds(ms: int) -> None:
    assert shown_time(ms) == f"{ms} ms"
