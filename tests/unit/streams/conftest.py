"""Fixtures of stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from tests.unit.streams.rocksdb_stores import IDENTITY


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "stores" / "Counter_0"


@pytest.fixture
def store(directory: Path) -> Iterator[RocksDBStore]:
    opened = RocksDBStore(directory, IDENTITY)
    yield opened
    opened.close()
