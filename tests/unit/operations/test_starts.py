"""Where to begin in a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.operations.starts import (
    AtTime,
    Earliest,
    of_last_records,
    parse_start,
    records_from,
    starts,
)

PLACES = [("a", 0), ("a", 1)]


class Offsets:
    """Two partitions: one from 10 to 20, and one that is empty at 5."""

    def oldest_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict(zip(PLACES, (10, 5), strict=True))

    def offsets_at(
        self, partitions: Sequence[Partition], timestamp_ms: int
    ) -> dict[Partition, int | None]:
        assert timestamp_ms == 1_732_280_000_000
        return dict(zip(PLACES, (13, None), strict=True))


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("earliest", (10, 5)),
        ("latest", (20, 5)),
        ("15", (15, 5)),
        ("0", (10, 5)),
        ("99", (20, 5)),
        ("-3", (17, 5)),
        ("-99", (10, 5)),
        ("2024-11-22T12:53:20", (13, 5)),
        ("2024-11-22T13:53:20+01:00", (13, 5)),
    ],
)
def test_places_are_found_in_what_there_is(text: str, offsets: tuple[int, int]) -> None:
    admin = cast(Any, Offsets())
    found = starts(parse_start(text), cast(Admin, admin), dict(zip(PLACES, (20, 5), strict=True)))
    assert tuple(found.values()) == offsets


@pytest.mark.parametrize("text", ["", "begin", "-0", "1.5", "2024-13-01", "٣"])
def test_anything_else_is_refused_with_what_is_possible(text: str) -> None:
    with pytest.raises(ValueError, match="is not a position: write earliest, latest, an offset"):
        parse_start(text)


@pytest.mark.parametrize(
    ("count", "begins"),
    [(1, (19, 5, 7)), (2, (18, 5, 7)), (3, (11, 5, 7)), (4, (10, 5, 7)), (99, (10, 5, 7))],
)
def test_the_last_records_are_found_between_markers(
    count: int, begins: tuple[int, int, int]
) -> None:
    """The last offset of a transaction is that of its marker."""
    places = [("a", 0), ("a", 1), ("a", 2)]
    has = dict(zip(places, ([10, 11, 18, 19], [], [7]), strict=True))
    oldest, ends = (dict(zip(places, of, strict=True)) for of in ((10, 5, 0), (21, 5, 900)))
    tried = []

    def read(starts: Mapping[Partition, int]) -> Iterator[RecordBatch]:
        tried.append(starts)
        for place, start in starts.items():
            offsets = [each for each in has[place] if each >= start]
            none, empty = [None] * len(offsets), [0] * len(offsets)
            # A batch may go beyond the end.
            offsets = [*offsets, ends[place]]
            yield RecordBatch(*place, [*none, None], [*none, None], [*empty, 0], offsets)

    assert tuple(of_last_records(count, oldest, ends, read).values()) == begins
    assert len(tried) <= 4


def test_records_that_are_older_than_the_time_are_left_out_in_front_only() -> None:
    """Kafka begins at the marker of a transaction if that is newer."""

    def part(partition: int, *timestamps: int) -> RecordBatch:
        empty = [None] * len(timestamps)
        return RecordBatch("a", partition, empty, empty, timestamps, range(len(timestamps)))

    batches = [part(0, 1, 2), part(1, 4, 9), part(0, 7, 3, 8), part(1, 6)]
    found = [
        (batch.partition, batch.timestamps[index])
        for batch, index in records_from(AtTime(5), batches)
    ]
    assert found == [(1, 9), (0, 7), (0, 3), (0, 8), (1, 6)]
    assert len(list(records_from(Earliest(), batches))) == 8
