"""Times as text, by a pattern."""

from __future__ import annotations

from datetime import datetime

import pytest

from kafka_pipeline.streams.time_patterns import TimePattern


@pytest.mark.parametrize(
    ("pattern", "zone", "text", "moment"),
    [
        ("yyyy-MM-dd HH:mm:ss", "UTC", "2026-11-21 07:13:01", "2026-11-21T07:13:01Z"),
        ("yyyy-MM-dd HH:mm:ss", "Europe/Berlin", "2026-11-21 07:13:01", "2026-11-21T06:13:01Z"),
        ("yyyy-MM-dd HH:mm", "Europe/Berlin", "2024-10-27 02:30", "2024-10-27T00:30:00Z"),
        ("d.M.yyyy H:mm", "UTC", "1.2.2026 7:05", "2026-02-01T07:05:00Z"),
        ("dd/MMM/yyyy:HH:mm:ss Z", "UTC", "21/Nov/2026:07:13:01 +0130", "2026-11-21T05:43:01Z"),
        (
            "yyyy-MM-dd'T'HH:mm:ss.SSSX",
            "UTC",
            "2026-11-21T07:13:01.250Z",
            "2026-11-21T07:13:01.25Z",
        ),
        ("yyyy-MM-dd HH:mm:ssX", "UTC", "2026-11-21 07:13:01+02", "2026-11-21T05:13:01Z"),
        ("yyyyMMddHHmmssSSSSSS", "UTC", "20261121071301250999", "2026-11-21T07:13:01.25Z"),
        (
            "yyyy-MM-dd HH:mm:ss.SXX",
            "UTC",
            "2026-11-21 07:13:01.5-02:00",
            "2026-11-21T09:13:01.5Z",
        ),
        ("yyyy 'o''clock' HH", "UTC", "2026 o'clock 05", "2026-01-01T05:00:00Z"),
        ("yyyy''", "UTC", "2026'", "2026-01-01T00:00:00Z"),
    ],
)
def test_a_time_is_read(pattern: str, zone: str, text: str, moment: str) -> None:
    expected = round(datetime.fromisoformat(moment).timestamp() * 1000)
    assert TimePattern(pattern, zone).ms(text) == expected


@pytest.mark.parametrize(
    "text", ["2026-2-03", "2026-02-30", "2026-13-01", "2026-01-01 ", "", "٢٠٢٦-01-01", "0000-01-01"]
)
def test_text_that_is_not_such_a_time(text: str) -> None:
    assert TimePattern("yyyy-MM-dd").ms(text) is None


@pytest.mark.parametrize(
    ("pattern", "zone", "problem"),
    [
        ("hh:mm", "UTC", "has hh: use yyyy"),
        ("HH:mm", "UTC", "has no year: write yyyy"),
        ("yyyy MM M", "UTC", "has the same part of a time twice"),
        ("yyyy 'at", "UTC", "has a quote that is open"),
        ("yyyy", "Mars", '"Mars" is not a time zone'),
        (f"yyyy{3 * 'X'}", "Europe/Berlin", "has the offset, so there is no zone to add"),
    ],
)
def test_a_pattern_that_is_not_possible(pattern: str, zone: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TimePattern(pattern, zone)
