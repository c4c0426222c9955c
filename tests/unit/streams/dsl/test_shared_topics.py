"""Branches of a stream that write one topic keep the order of their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import Record, serdes
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.running import builder, outputs


@pytest.mark.parametrize("first", ["out", lambda record: "out"])
@pytest.mark.parametrize("second", ["out", lambda record: "out"])
def test_a_batch_comes_to_a_topic_in_its_order_by_whichever_branch(
    first: str | Callable[[Record], str], second: str | Callable[[Record], str]
) -> None:
    built = builder()
    branches = built.stream("in").split({"odd": _is_odd}, default="even")
    branches["odd"].to(first)
    branches["even"].map_values(lambda value: value).to(second)
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        topic.pipe_batch([Record("k", str(number), number) for number in range(6)])
        found = [value for _, value, _ in outputs(driver, "out")]
    assert found == ["0", "1", "2", "3", "4", "5"]


def _is_odd(key: Any, value: str) -> bool:
    return int(value) % 2 == 1
