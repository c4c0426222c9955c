"""Fixtures of several integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tasks import Job


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Job]:
    """Topics of a job of its own, with nothing in them."""
    made = Job(tmp_path, bootstrap_servers)
    yield made
    made.close()
