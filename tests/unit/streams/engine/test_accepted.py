"""Outputs that a topic does not take, for their time or since they have no key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from tests.unit.streams.nodes import Each, OutputTopics, Tasks, Whole, batch, chain

NOW_MS = 1_732_280_000_000
HOUR_MS = 3_600_000
SIZE = 1_000_000
SETTINGS = {
    "max.message.bytes": "1000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
}
PROCESSORS = pytest.mark.parametrize("processor", [Each, Whole, ForwardProcessor])


def task_of(
    processor: Any, out: TopicLimits, letters: TopicLimits | None = None, *, outdated: bool = False
) -> Tasks:
    limits = {"out": out, "dead": letters or TopicLimits(SIZE)}
    task = Tasks(
        chain(processor),
        GroupSettings(OnError.DEAD_LETTER, "dead"),
        OutputTopics(given=limits, outdated=outdated),
        log_record_values=True,
    )
    task.clock.now_ms = NOW_MS
    return task


def at(*timestamps: int, keys: Sequence[bytes | None] | None = None) -> RecordBatch:
    values = [b"%d" % n for n in range(len(timestamps))]
    return batch(values, timestamps=timestamps, keys=keys or [b"k"] * len(values))


def results(task: Tasks) -> list[bytes | None]:
    return [value for topic, _, value, _ in task.taken() if topic == "out"]


def reasons(task: Tasks, given: RecordBatch) -> dict[bytes, tuple[str, int]]:
    """Process records; return the reason and the time of each dead letter, by its value."""
    task.task.add(given)
    while task.task.step(0, task.partitions).has_more:
        pass
    outputs = task.task._runtime.outputs
    found = {}
    for each in outputs:
        if isinstance(each, tuple) and each[0] == "dead":
            message = dict(each[5] or [])["__streams.errors.message"] or b""
            found[each[2] or b""] = message.decode().partition(" (tests/")[0], each[4]
    return found


@PROCESSORS
def test_a_record_too_far_ahead_for_its_topic_is_rejected_and_the_others_come_out(
    processor: Any,
) -> None:
    """Kafka 4 takes one hour by default (KIP-937, KIP-1030)."""
    task = task_of(processor, TopicLimits(SIZE, after_ms=HOUR_MS))
    late = NOW_MS + HOUR_MS + 1
    assert reasons(task, at(NOW_MS, late, NOW_MS + HOUR_MS)) == {
        b"1": (
            f"topic out does not take the timestamp {late}: it is more than 3600000 ms ahead of "
            "the clock (message.timestamp.after.max.ms)",
            late,
        )
    }
    assert results(task) == [b"0", b"2"]
    # Time has gone on.
    task.clock.now_ms += 1
    assert reasons(task, at(late)) == {}
    assert results(task) == [b"0"]


@PROCESSORS
def test_a_record_too_old_for_its_topic_is_rejected(processor: Any) -> None:
    task = task_of(processor, TopicLimits(SIZE, before_ms=HOUR_MS))
    assert reasons(task, at(NOW_MS - HOUR_MS, NOW_MS // 1000, NOW_MS)) == {
        b"1": (
            f"topic out does not take the timestamp {NOW_MS // 1000}: it is more than 3600000 ms "
            "behind the clock (message.timestamp.before.max.ms); it looks like seconds, and must "
            "be in milliseconds",
            NOW_MS // 1000,
        )
    }
    assert results(task) == [b"0", b"2"]
    task.clock.now_ms += 1
    assert list(reasons(task, at(NOW_MS - HOUR_MS))) == [b"0"]


@PROCESSORS
def test_a_record_without_a_key_is_rejected_if_its_topic_is_compacted(processor: Any) -> None:
    task = task_of(processor, TopicLimits(SIZE, needs_key=True))
    found = reasons(task, at(1, 2, 3, keys=[b"k", None, b"k"]))
    assert found == {
        b"1": (
            "the output has no key, and topic out takes none without one (cleanup.policy=compact)",
            2,
        )
    }
    assert results(task) == [b"0", b"2"]


@PROCESSORS
@pytest.mark.parametrize(
    "limits",
    [
        TopicLimits(SIZE, after_ms=HOUR_MS),
        TopicLimits(SIZE, before_ms=HOUR_MS),
        TopicLimits(SIZE, needs_key=True),
    ],
)
def test_limits_that_have_changed_are_an_error_of_the_engine(
    processor: Any, limits: TopicLimits
) -> None:
    """The task starts again, and reads the new ones."""
    task = task_of(processor, limits, outdated=True)
    far = NOW_MS + 2 * HOUR_MS if limits.after_ms == HOUR_MS else 1
    with pytest.raises(Exception, match="the limit of out has changed"):
        reasons(task, at(far, keys=[None]))


def test_a_dead_letter_whose_time_is_refused_has_the_time_of_the_clock() -> None:
    after = TopicLimits(SIZE, after_ms=HOUR_MS)
    found = reasons(task_of(Each, after, after), at(NOW_MS + 2 * HOUR_MS))
    assert [time for _, time in found.values()] == [NOW_MS]


def test_a_dead_letter_without_a_key_does_not_go_to_a_compacted_topic() -> None:
    compacted = TopicLimits(SIZE, needs_key=True)
    with pytest.raises(Exception, match="has no key, which a dead letter needs, as topic dead is"):
        reasons(task_of(Each, compacted, compacted), at(1, keys=[None]))


def test_limits_are_those_of_the_topics_settings() -> None:
    assert TopicLimits.of(SETTINGS) == TopicLimits(1000, after_ms=HOUR_MS)
    compacted = SETTINGS | {"cleanup.policy": "compact,delete"}
    assert TopicLimits.of(compacted) == TopicLimits(1000, after_ms=HOUR_MS, needs_key=True)
    by_broker = SETTINGS | {"message.timestamp.type": "LogAppendTime"}
    assert TopicLimits.of(by_broker) == TopicLimits(1000)
    deletes = SETTINGS | {"retention.ms": "604800000"}
    assert TopicLimits.of(deletes) == TopicLimits(1000, after_ms=HOUR_MS, kept_ms=604_800_000)
    assert TopicLimits.of(by_broker | {"retention.ms": "604800000"}) == TopicLimits(1000)
    keeps = deletes | {"cleanup.policy": "compact"}
    assert TopicLimits.of(keeps) == TopicLimits(1000, after_ms=HOUR_MS, needs_key=True)


def test_brokers_before_3_6_have_one_limit_for_both_directions() -> None:
    old = {name: value for name, value in SETTINGS.items() if ".max.ms" not in name}
    old["message.timestamp.difference.max.ms"] = "5"
    assert TopicLimits.of(old) == TopicLimits(1000, before_ms=5, after_ms=5)
