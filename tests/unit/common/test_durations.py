"""Times in YAML: what is read, and what is said."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.config.durations import UNITS, parsed, pattern, spoken


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0 s", 0),
        ("250ms", 250),
        ("2 s", 2000),
        ("2 sec", 2000),
        ("10 min", 600_000),
        ("36 h", 129_600_000),
        ("1 d", 86_400_000),
        ("", None),
        ("5", None),
        ("-5 s", None),
        ("05 s", None),
        ("1.5 h", None),
        ("1 h 30 min", None),
        ("1 month", None),
        ("1 h ", None),
        ("1 h\n", None),
    ],
)
def test_times_are_read_in_milliseconds(text: str, wanted: int | None) -> None:
    assert parsed(text, UNITS, 0) == wanted


def test_zero_and_other_units_may_be_refused() -> None:
    assert parsed("0 s", UNITS, 1) is None
    assert parsed("10 s", UNITS, 1) == 10_000
    assert parsed("10 ms", ("s", "min"), 0) is None


@pytest.mark.parametrize(
    ("duration_ms", "wanted"),
    [
        (0, "0 s"),
        (1, "1 ms"),
        (1500, "1500 ms"),
        (90_000, "90 s"),
        (5_400_000, "90 min"),
        (86_400_000, "1 d"),
    ],
)
def test_times_are_said_in_the_largest_unit(duration_ms: int, wanted: str) -> None:
    assert spoken(duration_ms) == wanted


@given(st.integers(0, 10**12), st.integers(0, 1))
def test_what_is_said_can_be_read_by_loader_and_schema(duration_ms: int, low: int) -> None:
    text = spoken(duration_ms)
    wanted = None if duration_ms < low else duration_ms
    assert parsed(text, UNITS, low) == wanted
    assert (re.search(pattern(UNITS, low), text) is None) is (wanted is None)
