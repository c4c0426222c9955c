"""Which worker of pytest-xdist runs which files: as few of them as possible start Kafka and Spark.

A worker keeps both until it ends, and Spark compiles much when it first runs queries. So files that
need Spark come first, those that need Kafka come last, and workers take files from both ends.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SPARK, _NEITHER, _KAFKA = range(3)


def sort_by_need(items: list[pytest.Item]) -> None:
    """Sort tests by what their file needs: Spark, neither, Kafka; otherwise, their order stays."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(_file_of(item), []).append(item)
    needs = {file: _need(tests) for file, tests in files.items()}
    items.sort(key=lambda item: needs[_file_of(item)])


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc]
    """Gives files from the front to one half of the workers, and from the back to the other."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _need(tests: Iterable[pytest.Item]) -> int:
    needs = [
        _KAFKA if "bootstrap_servers" in getattr(test, "fixturenames", ()) else _SPARK
        for test in tests
        if test.get_closest_marker("integration")
    ]
    return max(needs, default=_NEITHER)
