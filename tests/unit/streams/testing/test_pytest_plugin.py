"""The fixture that users' tests get."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def test_fixture_makes_drivers_and_closes_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from streams import Processor, TopologyBuilder

        closed = []

        class Noting(Processor):
            def close(self):
                closed.append(True)

        def test_driver(topology_test_driver):
            builder = TopologyBuilder()
            builder.add_source("s", "in")
            builder.add_processor("p", Noting, ["s"])
            driver = topology_test_driver(builder.build(), partitions={"in": 2})
            assert driver.num_partitions("in") == 2
            assert closed == []

        def test_closed():
            assert closed == [True]
        """
    )
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(passed=2)
