"""The periods of many times at once are those of each time."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.streams.sql.group_codec import spans

LAST_MS = 2**62


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Pacific/Apia", "UTC"])
@pytest.mark.parametrize("period", ["1 day", "1 week", "1 month"])
def test_spans_are_those_of_each_time(period: str, zone: str) -> None:
    chance, calendar = random.Random(f"{period} {zone}"), Calendar(period, zone)
    middle = chance.randrange(2_000_000_000_000)
    times = [middle + chance.randrange(5_000_000_000) for _ in range(300)]
    times += [-1, -LAST_MS, 0, 1, LAST_MS, *(calendar.span(middle)[end] for end in (0, 1))]
    chance.shuffle(times)
    starts, ends = spans(calendar, np.array(times))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [
        calendar.span(time) for time in times
    ]


def test_no_times_have_no_spans() -> None:
    starts, ends = spans(Calendar("1 day", "UTC"), np.array([], np.int64))
    assert (len(starts), len(ends)) == (0, 0)
