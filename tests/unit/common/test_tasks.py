"""The ids of tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.tasks import TaskId

processor_ids = st.text(alphabet="ab01_.-", min_size=1, max_size=6).filter(
    lambda id_: name_problem(id_) is None
)
task_ids = st.builds(TaskId, processor_ids, st.integers(0, 300))


@given(task_ids)
def test_a_task_id_is_parsed_from_its_text(task: TaskId) -> None:
    assert TaskId.parse(str(task)) == task


@given(st.lists(task_ids, unique=True))
def test_different_tasks_have_different_texts(tasks: list[TaskId]) -> None:
    assert len({str(task) for task in tasks}) == len(tasks)


def test_a_task_id_is_split_at_the_last_underscore() -> None:
    assert TaskId.parse("a_b_0") == TaskId("a_b", 0)


@given(st.text(max_size=8) | st.text(alphabet="a./_\\ \n", max_size=6), st.integers(0, 9))
def test_the_id_of_a_task_is_that_of_a_processor(processor: str, partition: int) -> None:
    """What is not a valid name, such as a path, is not a task id either."""
    try:
        parsed = TaskId.parse(f"{processor}_{partition}")
    except ValueError:
        assert name_problem(processor) is not None
    else:
        assert parsed == TaskId(processor, partition)
        assert name_problem(processor) is None


@pytest.mark.parametrize(
    "text",
    ["", "a", "a_", "_0", "a_01", "a_-1", "a_x", "a_٣", "a_0\n", "a_0.standby0", "a_99999999999"],
)
def test_other_texts_are_no_task_ids(text: str) -> None:
    with pytest.raises(ValueError, match="is not a task id"):
        TaskId.parse(text)


def test_tasks_sort_by_processor_and_partition_number() -> None:
    tasks = [TaskId("B", 0), TaskId("A", 10), TaskId("A", 9)]
    assert [str(task) for task in sorted(tasks)] == ["A_9", "A_10", "B_0"]
