"""Which worker of pytest-xdist runs which files: as few of them as possible start Spark.

A worker keeps its Spark until it ends, and Spark compiles much when it first runs queries. So files
that need Spark come first, those that need Kafka, which all workers share, come last, and workers
take files from both ends. The many short files that need neither are between them, so that workers
end at about the same time.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SPARK, _NEITHER, _KAFKA = range(3)


def sort_by_need(items: list[pytest.Item]) -> None:
    """Sort files by what they need: Spark, neither, Kafka; tests of a file keep their order.

    Files that need Kafka are in reverse order: they are taken from the end.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(_file_of(item), []).append(item)
    places = {}
    for number, (file, tests) in enumerate(files.items()):
        need = _need(file, tests)
        places[file] = (need, -number if need == _KAFKA else number)
    items.sort(key=lambda item: places[_file_of(item)])


class FromBothEnds(LoadFileScheduling):  # type: ignore[misc]
    """Gives files from the front to one half of the workers, and from the back to the other."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _need(file: str, tests: Iterable[pytest.Item]) -> int:
    marked = [test for test in tests if test.get_closest_marker("integration")]
    if not marked:
        return _NEITHER
    fixtures = {name for test in marked for name in getattr(test, "fixturenames", ())}
    # Unit tests with the mark start Spark, with a fixture of theirs or without one.
    has_spark = "queries" in fixtures or not file.startswith("tests/integration/")
    return _SPARK if has_spark and "bootstrap_servers" not in fixtures else _KAFKA
