"""The stores that the tests of this folder run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pipeline.streams.stores.bytes_store import BytesStore
from tests.unit.streams.stores.backends import Backend


@pytest.fixture(params=["memory", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened = Backend(request.param, tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def store(backend: Backend) -> BytesStore:
    return backend.open()
