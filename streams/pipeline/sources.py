"""The options of a source in pipeline.yaml, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from streams.engine.nodes import OffsetReset
from streams.timestamps import (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    RecordTimestampExtractor,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    record_timestamp,
)

RESETS: tuple[OffsetReset, ...] = get_args(OffsetReset)
WALL_CLOCK = "wall_clock"
"""Makes the time at which a record is read the time of the record."""

UNITS = ("ms", "s", "us", "iso8601")
ON_INVALID: Mapping[str, RecordTimestampExtractor] = {
    "fail": FailOnInvalidTimestamp(),
    "skip": LogAndSkipOnInvalidTimestamp(),
    "partition_time": UsePartitionTimeOnInvalidTimestamp(),
}


def extractor_of(options: Mapping[str, Any]) -> TimestampExtractor:
    """Return the extractor of the time of a source's records."""
    timestamp = options.get("timestamp")
    if timestamp is None:
        return record_timestamp
    if timestamp == WALL_CLOCK:
        return WallclockTimestampExtractor()
    return FieldTimestampExtractor(
        timestamp["field"],
        unit=timestamp["unit"],
        on_invalid=ON_INVALID[timestamp["on_invalid"]],
    )
