"""The values of `--from` and `--to`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.streams.backfill.places import (
    Files,
    TopicRange,
    Where,
    is_by_time,
    offsets_of,
    read_source,
    read_sources,
    read_target,
)

NAMES = {"source": "in", "orders": "all_orders", "in": "in", "all_orders": "all_orders"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("/a/b.parquet", Files(Path("/a/b.parquet"))),
        ("/a/key=1/b.parquet", Files(Path("/a/key=1/b.parquet"))),
        ("topic:in", TopicRange("in")),
        ("topic:in@5..", TopicRange("in", "5", "")),
        ("topic:in@..2026-01-01", TopicRange("in", "", "2026-01-01")),
        ("topic:in@7..7", TopicRange("in", "7", "7")),
        ("topic:in@99..100", TopicRange("in", "99", "100")),
        (
            "topic:in@2026-01-01T10:00:00+01:00..7",
            TopicRange("in", "2026-01-01T10:00:00+01:00", "7"),
        ),
    ],
)
def test_a_source_is_a_path_or_a_part_of_a_topic(text: str, where: Where) -> None:
    assert read_source(text) == where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic:", "is empty"),
        ("topic:a b", "Kafka refuses in topic names"),
        ("topic:in@5", "write a range as @from..to"),
        ("topic:in@-5..", '"-5" is neither an offset nor a time'),
        ("topic:in@..yesterday", '"yesterday" is neither an offset nor a time'),
        ("topic:in@500..100", "the range ends before it starts"),
        ("topic:in@1000..999", "the range ends before it starts"),
        ("topic:in@2026-02-01..2026-01-01", "the range ends before it starts"),
        ("topic:in@2026-01-01T00:00:00+00:00..2026-01-01T00:30:00+01:00", "ends before it starts"),
        ("", "--from is empty"),
    ],
)
def test_what_is_no_source_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_source(text)


@pytest.mark.parametrize(
    ("texts", "topics"),
    [
        (["/a.csv"], {"in": "/a.csv"}),
        (["orders=/a.csv", "/b.csv"], {"all_orders": "/a.csv", "in": "/b.csv"}),
        (["all_orders=/a.csv"], {"all_orders": "/a.csv"}),
        (["eu_orders=/a.csv"], {"eu_orders": "/a.csv"}),
        (["/key=1/a.csv"], {"in": "/key=1/a.csv"}),
    ],
)
def test_sources_are_named_or_the_first_one(texts: Sequence[str], topics: dict[str, str]) -> None:
    found = read_sources(texts, NAMES, lambda topic: topic == "eu_orders")
    assert found == {topic: Files(Path(path)) for topic, path in topics.items()}


def test_a_source_without_a_name_is_refused_where_only_patterns_read() -> None:
    with pytest.raises(ConfigError, match=r"say for which topic, as NAME=a\.csv"):
        read_sources(["a.csv"], {}, lambda topic: False)


def test_a_target_is_a_folder_or_a_topic(tmp_path: Path) -> None:
    assert read_target(str(tmp_path)) == tmp_path
    assert read_target("topic:out") == "out"
    with pytest.raises(ConfigError, match="Kafka refuses"):
        read_target("topic:out@1..2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--to is empty"),
        (" ", "--to is empty"),
        ("/", "is the root of all folders"),
        ("//", "is the root of all folders"),
        ("/tmp/..", "is the root of all folders"),
    ],
)
def test_a_target_that_is_no_folder_of_its_own_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_target(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("history/", False),
        ("topic:in", False),
        ("topic:in@5..7", False),
        ("topic:in@5..2026-01-31", True),
        ("topic:in@2026-01-31..", True),
    ],
)
def test_times_can_limit_a_part_of_a_topic(text: str, expected: bool) -> None:
    assert is_by_time(read_source(text)) is expected


class Broker(Admin):
    """A topic of two partitions, of which one has records 10 to 19 and the other 100 to 199.

    The timestamps of both are their offsets in seconds.
    """

    def __init__(self) -> None: ...

    def oldest_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict(zip(partitions, (10, 100), strict=True))

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return dict(zip(partitions, (20, 200), strict=True))

    def offsets_at(
        self, partitions: Sequence[Partition], timestamp_ms: int
    ) -> dict[Partition, int | None]:
        ends = self.high_watermarks(partitions)
        found = {
            p: max(o, timestamp_ms // 1000) for p, o in self.oldest_offsets(partitions).items()
        }
        return {p: offset if offset < ends[p] else None for p, offset in found.items()}


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        ("", "", [(10, 20), (100, 200)]),
        ("15", "150", [(15, 20), (100, 150)]),
        ("", "5", [(10, 10), (100, 100)]),
        ("1", "5", [(10, 10), (100, 100)]),
        ("150", "", [(20, 20), (150, 200)]),
        ("200", "", [(20, 20), (200, 200)]),
        ("1970-01-01T00:00:15", "17", [(15, 17), (100, 100)]),
        ("15", "1970-01-01T00:00:12", [(15, 15), (100, 100)]),
        ("1970-01-01T00:00:15", "1970-01-01T00:02", [(15, 20), (100, 120)]),
        ("2026-01-01", "", [(20, 20), (200, 200)]),
    ],
)
def test_what_a_topic_has_of_a_range_is_read(
    start: str, end: str, offsets: list[tuple[int, int]]
) -> None:
    assert offsets_of(TopicRange("in", start, end), 2, Broker()) == offsets


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        ("150", "1970-01-01T00:00:12", "from 150 up to 1970-01-01T00:00:12"),
        ("1970-01-01T00:02", "7", "from 1970-01-01T00:02 up to 7"),
        ("201", "", "from 201 up to its end"),
        # A date without dashes is an offset.
        ("20260131", "20260201", r"end at 200 or before\. Digits alone are an offset"),
    ],
)
def test_a_range_that_starts_behind_its_end_everywhere_is_refused(
    start: str, end: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        offsets_of(TopicRange("in", start, end), 2, Broker())
