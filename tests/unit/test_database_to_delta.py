"""The page about PostgreSQL and Delta, with what a connector of Debezium gave of two tables."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from kafka_pipeline.testing import TopologyTestDriver
from tests.change_data.connector import Given
from tests.change_data.joined import recorded
from tests.docs.pages import blocks
from tests.small_config import SMALL_CONFIG
from tests.tiers import long_but_the_first

PAGE = Path(__file__).parents[2] / "docs/how-to/database_to_delta.md"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The files of the page."""
    for block in blocks(PAGE):
        name = block.text.partition("\n")[0].removeprefix("# ").partition(",")[0]
        if name in ("named_orders.py", "config.yaml", "pipeline.yaml"):
            begin = f"{SMALL_CONFIG}python_path: ['.']\n" if name == "config.yaml" else ""
            (tmp_path / name).write_text(begin + block.text)
    monkeypatch.delitem(sys.modules, "named_orders", raising=False)
    yield [tmp_path / "config.yaml", tmp_path / "pipeline.yaml"]
    sys.modules.pop("named_orders", None)


def shuffled(given: list[Given], chance: random.Random) -> list[Given]:
    """Return the records, those of the two topics mixed, and some of the last repeated."""
    topics = [[each for each in given if each.topic.endswith(end)] for end in ("orders", "mers")]
    for records in topics:
        records += records[chance.randrange(len(records)) :]
    mixed = []
    while any(topics):
        mixed.append(chance.choice([each for each in topics if each]).pop(0))
    return mixed


@pytest.mark.parametrize("seed", long_but_the_first([None, 1, 2, 3], 2))
def test_delta_table_ends_as_the_join_of_the_database(seed: int | None, files: list[Path]) -> None:
    given, rows = recorded()
    if seed is not None:
        given = shuffled(given, random.Random(seed))
    half = len(given) // 2
    with TopologyTestDriver.of_pipeline(*files) as driver:
        topics = {
            topic: driver.create_input_topic(topic) for topic in {each.topic for each in given}
        }
        for each in given[:half]:
            topics[each.topic].pipe_input(each.key, each.value)
        driver.advance_wall_clock_time(60_000)
        for each in given[half:]:
            topics[each.topic].pipe_input(each.key, each.value)
    found: list[dict[str, Any]] = (
        DeltaTable(str(files[0].parent / "lake" / "named_orders")).to_pyarrow_table().to_pylist()
    )
    assert sorted([*map(as_row, found)], key=lambda row: row[0]) == [
        [id_, customer, item, price and Decimal(price), placed and Decimal(placed), name]
        for id_, customer, item, price, placed, name in rows
    ]


def as_row(row: dict[str, Any]) -> list[Any]:
    placed: datetime | None = row["placed"]
    epoch = placed and Decimal(int(placed.timestamp())) + Decimal(placed.microsecond) / 1_000_000
    return [*(row[name] for name in ("id", "customer", "item", "price")), epoch, row["name"]]
