"""The two tiers of tests: every change must pass the short ones, and `--all` adds the long ones.

A test is in the second tier if it has the mark `long`, and in the first one if it does not.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def add_option(parser: pytest.Parser) -> None:
    """Add the option that runs both tiers."""
    parser.addoption("--all", action="store_true", help="also run the tests that are marked `long`")


def leave_out_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the long tests, unless `--all` is given."""
    if config.getoption("--all"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)


def long_but_the_first(cases: Iterable[object], short: int = 1) -> list[ParameterSet]:
    """Return the cases of a parametrized test, all but the first `short` ones marked as long."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if number < short else [pytest.mark.long],
        )
        for number, case in enumerate(cases)
    ]
