"""What `--from` and `--to` may say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from admin.backfill.places import Files, TopicRange, Where, read_source, read_sources, read_target
from common.errors import ConfigError

NAMES = {"source": "in", "orders": "all_orders", "in": "in", "all_orders": "all_orders"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("/a/b.parquet", Files(Path("/a/b.parquet"))),
        ("/a/key=1/b.parquet", Files(Path("/a/key=1/b.parquet"))),
        ("topic:in", TopicRange("in")),
        ("topic:in@5..", TopicRange("in", "5", "")),
        ("topic:in@..2026-01-01", TopicRange("in", "", "2026-01-01")),
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
        ("topic:in@-5..", '"-5" is no offset and no time'),
        ("topic:in@..yesterday", '"yesterday" is no offset and no time'),
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
