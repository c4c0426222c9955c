"""What is no single bad record: mistakes in the code, and too many dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pipeline import Batch, ProcessorContext, Record, StreamsBuilder, col, serdes
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.user_errors import MISTAKES
from tests.unit.streams.nodes import Tasks, batch, calling, calling_whole, chain, sent

SKIP = GroupSettings(on_error=OnError.SKIP)
SKIP_ALL = GroupSettings(on_error=OnError.SKIP_ALL)
LETTERS = GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
ALL_LETTERS = GroupSettings(on_error=OnError.DEAD_LETTER_ALL, dead_letter_topic="dead")
TWO_LETTERS = GroupSettings(
    on_error=OnError.DEAD_LETTER, dead_letter_topic="dead", max_dead_letters_per_minute=2
)
MINUTE_MS = 60_000


def raising(error: Exception) -> list[Any]:
    """Return processors that raise an error for each value `bad`, one by one and by the batch.

    Its message is left out of reasons, as it is not in the code that raises it.
    """

    def process(context: ProcessorContext, record: Record) -> None:
        if record.value == b"bad":
            raise error
        context.forward(record)

    def process_batch(context: ProcessorContext, given: Batch) -> None:
        for record in given.records():
            process(context, record)

    return [calling(process), calling_whole(process_batch)]


def step(task: Tasks, values: list[bytes], now_ms: int = 0) -> None:
    task.task.add(batch(values, offset=task.task.position(("in", 0)) or 0))
    task.task.step(now_ms, task.partitions)


def rejecting() -> NodeGroup:
    return chain(raising(ValueError("no good"))[0])


# Mistakes


@pytest.mark.parametrize("kind", [*MISTAKES, UnboundLocalError, ModuleNotFoundError])
@pytest.mark.parametrize("settings", [SKIP, LETTERS])
def test_a_mistake_in_user_code_is_no_bad_record(
    kind: type[Exception], settings: GroupSettings
) -> None:
    for processor in raising(kind("oh")):
        task = Tasks(chain(processor), settings)
        with pytest.raises(ProcessingFailedError) as raised:
            step(task, [b"a", b"bad", b"b"])
        said = str(raised.value)
        assert said.startswith(f"record in[0]@1: {kind.__name__} (tests/unit/streams/engine/")
        assert said.endswith(
            f"; {kind.__name__} is a mistake in the code, so on_error: {settings.on_error} does "
            f"not apply: mend the code, or write on_error: {{{settings.on_error}: all}}"
        )
        assert task.task.position(("in", 0)) == 1
        assert [value for _, _, value, _ in sent(task.task.take()[0])] == [b"a"]


@pytest.mark.parametrize(("settings", "counts"), [(SKIP_ALL, (1, 0)), (ALL_LETTERS, (0, 1))])
def test_a_mistake_is_a_bad_record_if_all_errors_are(
    settings: GroupSettings, counts: tuple[int, int]
) -> None:
    for processor in raising(TypeError("oh")):
        task = Tasks(chain(processor), settings)
        step(task, [b"a", b"bad", b"b"])
        assert task.task.position(("in", 0)) == 3
        figures = task.task.take()[1]
        assert (figures.skipped, figures.dead_letters) == counts
        assert figures.rejected == {"builtins.TypeError": 1}


@pytest.mark.parametrize("error", [ValueError(), KeyError(), IndexError(), ZeroDivisionError()])
def test_an_error_that_a_record_can_cause_rejects_it(error: Exception) -> None:
    task = Tasks(chain(raising(error)[0]), SKIP)
    step(task, [b"a", b"bad", b"b"])
    assert task.task.take()[1].skipped == 1


def test_an_expression_over_a_value_of_another_type_rejects_the_record() -> None:
    """The engine computes it, so it is not user code that raises."""
    builder = StreamsBuilder()
    stream = builder.stream("in", value_serde=serdes.json)
    stream.filter(col("price") > 5).to("out")
    (group,) = builder.build().groups
    task = Tasks(group, SKIP)
    step(task, [b'{"price": 7}', b'{"price": "x"}', b'{"price": 9}'])
    figures = task.task.take()[1]
    assert (figures.records_out, figures.skipped) == (2, 1)


# Too many


def test_more_dead_letters_than_allowed_within_a_minute_fail_the_task() -> None:
    task = Tasks(rejecting(), TWO_LETTERS)
    step(task, [b"bad", b"a", b"bad"])
    with pytest.raises(ProcessingFailedError) as raised:
        step(task, [b"b", b"bad"], MINUTE_MS - 1)
    said = str(raised.value)
    assert said.startswith("record in[0]@4: ValueError (")
    assert said.endswith(
        "; this task has written 2 dead letters within a minute, and max_dead_letters_per_minute "
        "allows no more"
    )
    assert task.task.position(("in", 0)) == 4
    assert task.task.take()[1].dead_letters == 2


def test_dead_letters_of_more_than_a_minute_ago_do_not_count() -> None:
    task = Tasks(rejecting(), TWO_LETTERS)
    for minute in range(3):
        step(task, [b"bad", b"bad"], minute * MINUTE_MS)
    assert task.task.take()[1].dead_letters == 6


def test_a_task_that_starts_again_counts_anew() -> None:
    for _ in range(2):
        task = Tasks(rejecting(), TWO_LETTERS)
        step(task, [b"bad", b"bad"])
        assert task.task.take()[1].dead_letters == 2
