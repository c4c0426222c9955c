"""How many open files a TaskManager needs, and when it warns that the limit is too low."""

from __future__ import annotations

import resource

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.taskmanager.open_files import OpenFiles, needed


@pytest.mark.parametrize(
    ("threads", "tasks", "need"),
    [
        # Spark's JVM.
        (1, 0, 420),
        (8, 16, 560),
        # The worker of the thread that has one task more than others.
        (1, 40, 900),
        (2, 81, 920),
    ],
)
def test_the_largest_process_decides(threads: int, tasks: int, need: int) -> None:
    assert needed(threads, tasks) == need


def test_too_low_a_limit_is_told_once_with_what_is_needed() -> None:
    files = OpenFiles(threads=2, limit=919)
    with capture_logs() as logs:
        for tasks in range(100):
            files.check(tasks)
    [entry] = logs
    assert entry["log_level"] == "warning"
    assert (entry["limit"], entry["needed"], entry["tasks"]) == (919, 920, 81)


def test_no_limit_is_enough() -> None:
    files = OpenFiles(threads=1, limit=resource.RLIM_INFINITY)
    with capture_logs() as logs:
        files.check(1_000_000)
    assert logs == []


@pytest.mark.parametrize(
    ("limit", "words"), [(24, "The limit of open files is 24, and 440"), (440, "")]
)
def test_limit_is_named_if_spark_does_not_start_for_want_of_it(limit: int, words: str) -> None:
    with (
        pytest.raises(UnavailableError) as caught,
        OpenFiles(2, limit).for_spark(),
    ):
        raise UnavailableError("Java 17 is missing")
    said, _, more = str(caught.value).partition("\n")
    assert said == "Java 17 is missing"
    assert more.startswith(words)
    assert bool(more) is bool(words)
