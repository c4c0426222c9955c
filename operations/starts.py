"""Where to begin in the partitions of a topic."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.operations.times import parse_time

_FURTHER = 8
"""By how much more offsets are tried if those before held too few records."""
_OFFSET = re.compile(r"[0-9]{1,18}")
_FROM_END = re.compile(r"-[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Earliest:
    """The oldest record that is there."""


@dataclass(frozen=True, slots=True)
class Latest:
    """`before` offsets before the end, 0 or more; see `of_last_records`."""

    before: int = 0


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset, or the oldest record if that comes later."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of that time, in ms, or later."""

    time_ms: int


Start = Earliest | Latest | AtOffset | AtTime


def parse_start(text: str) -> Start:
    """Return the place that `earliest`, `latest`, `4711`, `-10` or a time in ISO 8601 mean.

    Raises ValueError, with a message for the user, for anything else.
    """
    if text == "earliest":
        return Earliest()
    if text == "latest":
        return Latest()
    if _OFFSET.fullmatch(text):
        return AtOffset(int(text))
    if _FROM_END.fullmatch(text):
        return Latest(-int(text))
    try:
        return AtTime(parse_time(text))
    except ValueError as error:
        raise ValueError(
            f'"{text}" is not a position: write earliest, latest, an offset such as 4711, -10 for '
            "the last 10 records, or a time such as 2026-11-23T18:00:00"
        ) from error


def starts(start: Start, admin: Admin, ends: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the offset at which to begin in each partition, at most its end."""
    places = list(ends)
    oldest = admin.oldest_offsets(places)
    wanted: Mapping[Partition, int | None]
    match start:
        case Earliest():
            wanted = oldest
        case Latest(before):
            wanted = {place: end - before for place, end in ends.items()}
        case AtOffset(offset):
            wanted = dict.fromkeys(places, offset)
        case AtTime(time_ms):
            wanted = admin.offsets_at(places, time_ms)
    return {place: _between(oldest[place], wanted[place], ends[place]) for place in places}


def records_from(start: Start, batches: Iterable[RecordBatch]) -> Iterator[tuple[RecordBatch, int]]:
    """Yield the records of batches that were read from `starts`, as a batch and an index.

    By time, Kafka also finds the markers of transactions, which are as new as their commit. So what
    comes in front of the first record of that time is left out.
    """
    since_ms = start.time_ms if isinstance(start, AtTime) else 0
    begun: set[Partition] = set()
    for batch in batches:
        place = batch.topic, batch.partition
        for index, timestamp_ms in enumerate(batch.timestamps):
            if timestamp_ms >= since_ms:
                begun.add(place)
            if place in begun:
                yield batch, index


def of_last_records(
    count: int,
    oldest: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    read: Callable[[Mapping[Partition, int]], Iterable[RecordBatch]],
) -> dict[Partition, int]:
    """Return where the last `count` records of each partition begin, 1 or more, or all it has.

    Offsets do not count records: markers of transactions have some, and so have records that were
    aborted or compacted. `read` yields the records from such offsets up to the `ends`.
    """
    begins, back = dict(ends), 2 * count
    left = [place for place, end in ends.items() if oldest[place] < end]
    while left:
        tried = {place: max(oldest[place], ends[place] - back) for place in left}
        found = {place: deque[int](maxlen=count) for place in left}
        for batch in read(tried):
            place = batch.topic, batch.partition
            found[place].extend(offset for offset in batch.offsets if offset < ends[place])
        begins |= {place: offsets[0] for place, offsets in found.items() if offsets}
        left = [p for p in left if len(found[p]) < count and tried[p] > oldest[p]]
        back *= _FURTHER
    return begins


def _between(oldest: int, wanted: int | None, end: int) -> int:
    return end if wanted is None else min(max(wanted, oldest), end)
