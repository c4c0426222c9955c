"""Moments as people read them."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.clock import shown_moment


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "1970-01-01 00:00:00 UTC"),
        (1_795_000_000_999, "2026-11-18 11:06:40 UTC"),
        (253_402_300_800_000, "253402300800000 ms"),
        (2**63 - 1, "9223372036854775807 ms"),
        (None, "unknown"),
    ],
)
def test_moments_are_shown_to_the_second(ms: int | None, shown: str) -> None:
    assert shown_moment(ms) == shown
