"""The Spark that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.random_sql.comparison import Comparison, opened


@pytest.fixture(scope="session")
def comparison() -> Iterator[Comparison]:
    """What compares both sides."""
    with opened() as found:
        yield found
