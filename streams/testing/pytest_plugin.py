"""A pytest fixture for tests of topologies; pytest finds it by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from streams.testing.driver import TopologyTestDriver
    from streams.topology import Topology


@pytest.fixture
def topology_test_driver() -> Iterator[Callable[..., TopologyTestDriver]]:
    """Return a function that makes drivers; they are closed when the test ends.

    def test_words(topology_test_driver):
        driver = topology_test_driver(topology, partitions={"words": 4})
    """
    # Imported here, so that tests without a driver do not wait for it.
    from streams.testing.driver import TopologyTestDriver

    with ExitStack() as stack:

        def make(topology: Topology, **options: Any) -> TopologyTestDriver:
            return stack.enter_context(TopologyTestDriver(topology, **options))

        yield make
