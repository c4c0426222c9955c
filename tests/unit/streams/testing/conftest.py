"""Fixtures of several tests of the test driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each, one


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    """Return a driver of a topology that passes records on."""
    with TopologyTestDriver(one(Each), application_id="app") as driver:
        yield driver
