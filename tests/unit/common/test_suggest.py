"""The wording that messages share."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.suggest import counted


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (12_000, "12,000 tasks")],
)
def test_noun_agrees_with_its_count(count: int, expected: str) -> None:
    assert counted(count, "task") == expected
