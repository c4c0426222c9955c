"""A task whose records wait until no more come."""

from __future__ import annotations

import pytest

from kafka_pipeline import Batch, ProcessorContext
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from tests.unit.streams.nodes import Tasks, Whole, batch, calling_whole, chain

ACCUMULATES = GroupSettings(takes_inputs_as_they_come=True, accumulates=True)
SKIPS = GroupSettings(on_error=OnError.SKIP, takes_inputs_as_they_come=True, accumulates=True)


def test_batches_are_processed_as_one_when_no_more_come() -> None:
    """Until then, nothing of them is committed."""
    sizes = []

    def note(context: ProcessorContext, found: Batch) -> None:
        sizes.append(len(found))
        assert found.offsets is not None
        assert list(found.offsets) == [7, 8, 9]
        context.forward(found)

    task = Tasks(chain(calling_whole(note)), ACCUMULATES)
    task.task.add(batch([b"1", b"2"], offset=7))
    task.task.step(0, {})
    task.task.add(batch([b"3"], offset=9))
    task.task.step(0, {})
    assert task.task.is_accumulating
    assert task.task.wake_in_ms(0) == 5
    assert task.task.position(("in", 0)) is None
    assert task.taken() == []
    task.task.step(0, {})
    assert [value for _, _, value, _ in task.taken()] == [b"1", b"2", b"3"]
    assert task.task.position(("in", 0)) == 10
    assert sizes == [3]
    assert task.task.wake_in_ms(0) is None


def test_a_step_took_all_if_it_got_to_the_known_end_of_each_partition() -> None:
    task = Tasks(chain(Whole, topics=["a", "b"]), ACCUMULATES)
    a, b = ("a", 0), ("b", 0)
    task.task.add(batch([b"1"], topic="a"))
    assert not task.task.step(0, {a: 1}).took_all
    task.task.add(batch([b"2"], topic="a", offset=1))
    assert task.task.step(0, {a: 2, b: 0}).took_all


def test_a_step_that_leaves_records_has_not_taken_all() -> None:
    task = Tasks(chain(Whole), ACCUMULATES)
    task.task.add(batch([b"1"]))
    assert not task.task.step(0, {}).took_all
    assert task.task.is_accumulating
    assert task.task.step(0, task.partitions).took_all


def test_a_task_whose_records_do_not_wait_is_committed_by_other_reasons() -> None:
    task = Tasks(chain(Whole), GroupSettings())
    task.task.add(batch([b"1"]))
    assert not task.task.step(0, task.partitions).took_all


def test_the_input_of_several_partitions_need_not_wait_for_each_other() -> None:
    task = Tasks(chain(Whole, topics=["a", "b"]), ACCUMULATES)
    task.task.add(batch([b"1"], topic="a"))
    task.task.step(0, {})
    task.task.step(0, {})
    assert [value for _, _, value, _ in task.taken()] == [b"1"]


def test_what_accumulates_comes_before_younger_records_of_other_partitions() -> None:
    """The younger ones wait already, as nothing was known of the other partition."""
    task = Tasks(chain(Whole, topics=["a", "b"]), GroupSettings(accumulates=True))
    a, b = ("a", 0), ("b", 0)
    task.task.add(batch([b"2"], timestamps=[2], topic="a"))
    task.task.step(0, {a: 1})
    assert task.taken() == []
    task.task.add(batch([b"1"], timestamps=[1], topic="b"))
    task.task.add(batch([b"3"], timestamps=[3], topic="a", offset=1))
    task.task.step(0, {b: 1})
    assert task.task.is_accumulating
    assert task.taken() == []
    task.task.step(0, {a: 2, b: 1})
    assert [value for _, _, value, _ in task.taken()] == [b"1", b"2", b"3"]


def test_bad_records_of_accumulated_batches_are_found() -> None:
    """Each by halving what is left."""
    task = Tasks(chain(Whole), SKIPS)
    values = [b"bad" if number in (0, 13, 14, 99) else b"%d" % number for number in range(100)]
    task.task.add(batch(values[:50]))
    task.task.add(batch(values[50:], offset=50))
    task.task.step(0, task.partitions)
    assert [value for _, _, value, _ in task.taken()] == [v for v in values if v != b"bad"]
    assert task.task.position(("in", 0)) == 100


def test_what_comes_before_a_failure_is_done() -> None:
    task = Tasks(chain(Whole), ACCUMULATES)
    task.task.add(batch([b"1", b"2", b"bad", b"3"]))
    with pytest.raises(ProcessingFailedError, match="@2"):
        task.task.step(0, task.partitions)
    assert [value for _, _, value, _ in task.taken()] == [b"1", b"2"]
    assert task.task.position(("in", 0)) == 2


def test_long_search_for_a_bad_record_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread reports between them: else it would look as if it hung."""
    now_s = [0]
    monkeypatch.setattr(
        "kafka_pipeline.streams.engine.group_task.time.perf_counter", lambda: now_s[0]
    )
    sizes: list[int] = []

    def work(context: ProcessorContext, found: Batch) -> None:
        now_s[0] += 1
        sizes.append(len(found))
        if b"bad" in found.values:
            raise ValueError("no good")
        context.forward(found)

    task = Tasks(chain(calling_whole(work)), SKIPS)
    task.task.add(batch([*(b"%d" % number for number in range(9)), b"bad"]))
    turns = []
    has_more = True
    while has_more:
        has_more = task.task.step(0, task.partitions).has_more
        turns.append(list(sizes))
        sizes.clear()
    assert turns == [[10, 5], [5, 2], [3, 1], [2, 1], [1]]
    assert len(task.taken()) == 9
    assert task.task.position(("in", 0)) == 10
