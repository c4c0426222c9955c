"""The load of Theodolite: sensors that send their active power, one record each a second."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_pipeline.common.kafka.bulk import Row, TimedRow

LOAD_W = 10.0
"""The power under load; only its record's time changes."""
CHILDREN = 4
"""How many sensors a group has, and how many groups a group of the next level."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a sensor has measured."""

    sensor: str
    timestamp: int
    """In ms."""
    watts: float

    @property
    def row(self) -> TimedRow:
        """The record: an `ActivePowerRecord` as JSON, with the sensor as its key."""
        value = {"identifier": self.sensor, "timestamp": self.timestamp, "valueInW": self.watts}
        return self.sensor.encode(), json.dumps(value).encode(), self.timestamp


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a number of sensors. Record n is of sensor n modulo that number."""

    sensors: int

    def record(self, number: int) -> Row:
        """Return a record with the current time."""
        sensor = b"s_%d" % (number % self.sensors)
        return sensor, b'{"identifier":"%b","timestamp":%d,"valueInW":%.1f}' % (
            sensor,
            time.time_ns() // 1_000_000,
            LOAD_W,
        )


def readings(sensors: int, times: range) -> Iterator[Reading]:
    """Yield a reading of each sensor for each time, in ms, in the order of time.

    Their sums and squares are exact as floats, so the order of additions does not matter.
    """
    for turn, timestamp in enumerate(times):
        for number in range(sensors):
            watts = (number * 7 + turn * 13) % 101 / 4
            yield Reading(f"s_{number}", timestamp, watts)


def parents(sensors: int) -> Mapping[str, str]:
    """Return the group of each sensor and of each group but the last, which has all sensors."""
    found: dict[str, str] = {}
    level, members = 0, [f"s_{number}" for number in range(sensors)]
    while not level or len(members) > 1:
        level += 1
        groups = [f"g_{level}_{number // CHILDREN}" for number in range(len(members))]
        found |= zip(members, groups, strict=True)
        members = list(dict.fromkeys(groups))
    return found


def registry(sensors: int, timestamp: int) -> Iterator[TimedRow]:
    """Yield the records of the topic `configuration`, with a timestamp in ms."""
    for member, group in parents(sensors).items():
        yield member.encode(), json.dumps({"parents": [group]}).encode(), timestamp
