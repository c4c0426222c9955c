"""Which worker of pytest-xdist gets which files."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.remote import Producer

from tests.scheduling import FromBothEnds, sort_by_need


def item(nodeid: str, *fixtures: str, is_integration: bool = False) -> pytest.Item:
    found = SimpleNamespace(
        nodeid=nodeid,
        fixturenames=fixtures,
        get_closest_marker=lambda name: name == "integration" and is_integration,
    )
    return cast(pytest.Item, found)


def test_files_that_need_spark_come_first_and_those_that_need_kafka_last() -> None:
    folder = "tests/integration"
    items = [
        item(f"{folder}/a.py::test_a", "bootstrap_servers", is_integration=True),
        item(f"{folder}/a.py::test_without", is_integration=True),
        item(f"{folder}/b.py::test_a", is_integration=True),
        item(f"{folder}/both.py::test_a", "bootstrap_servers", "queries", is_integration=True),
        item("tests/unit/plain.py::test_a"),
        item("tests/unit/fake.py::test_a", "bootstrap_servers", "queries"),
        item(f"{folder}/spark.py::test_plain"),
        item(f"{folder}/spark.py::test_a", "queries", is_integration=True),
        item("tests/unit/plain.py::test_b[x::y]"),
        item("tests/unit/spark.py::test_a", is_integration=True),
    ]
    sort_by_need(items)
    assert [each.nodeid.removeprefix("tests/") for each in items] == [
        "integration/spark.py::test_plain",
        "integration/spark.py::test_a",
        "unit/spark.py::test_a",
        "unit/plain.py::test_a",
        "unit/plain.py::test_b[x::y]",
        "unit/fake.py::test_a",
        "integration/both.py::test_a",
        "integration/b.py::test_a",
        "integration/a.py::test_a",
        "integration/a.py::test_without",
    ]


class Worker:
    """A worker that carries out each test as soon as it gets it."""

    def __init__(self, number: int, collection: list[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.files: list[str] = []
        self.given: list[int] = []
        self._collection = collection

    def send_runtest_some(self, indices: Iterable[int]) -> None:
        self.given += indices
        for index in indices:
            file = self._collection[index].partition("::")[0]
            if file not in self.files:
                self.files.append(file)

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(workers: int, files: int, tests_of_a_file: int = 3) -> list[Worker]:
    """Run all tests, in turns; return who got which."""
    collection = [f"{n}.py::test_{test}" for n in range(files) for test in range(tests_of_a_file)]
    config = SimpleNamespace(
        getvalue=lambda _: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=False)
    )
    scheduler: Any = FromBothEnds(cast(Any, config), Producer("test", enabled=False))
    made = [Worker(number, collection) for number in range(workers)]
    for worker in made:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, collection)
    scheduler.schedule()
    done = dict.fromkeys(range(workers), 0)
    while any(done[n] < len(worker.given) for n, worker in enumerate(made)):
        for number, worker in enumerate(made):
            if done[number] < len(worker.given):
                index = worker.given[done[number]]
                done[number] += 1
                scheduler.mark_test_complete(worker, index)
    assert sorted(index for worker in made for index in worker.given) == [*range(len(collection))]
    return made


def test_workers_take_files_from_both_ends_until_they_meet() -> None:
    assert [worker.files for worker in scheduled(workers=2, files=6)] == [
        ["0.py", "1.py", "2.py"],
        ["5.py", "4.py", "3.py"],
    ]


@pytest.mark.parametrize(("workers", "files"), [(1, 3), (4, 4), (4, 2), (3, 10), (4, 41)])
def test_every_test_runs_once(workers: int, files: int) -> None:
    # A scheduler without work for a worker ends it, so only the others have files.
    assert sum(len(worker.files) for worker in scheduled(workers, files)) == files
