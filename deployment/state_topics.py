"""Checks that the state which a job has kept so far is the state that its tasks will find."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import TopologySpec
from kafka_pipeline.common.suggest import counted


def check_state_topics(pipeline: Pipeline, admin: Admin) -> None:
    """Raise `ConfigError` for stateful processors whose input's partition count has changed.

    A state topic has one partition for each partition of the input. If the input now has more or
    fewer, keys go to other tasks, which do not have their state.
    """
    existing = admin.partition_counts(
        topic
        for processor in pipeline.processors
        for topic in pipeline.state_topics(processor).values()
    )
    inputs = pipeline.user_topics
    for processor in pipeline.processors:
        needed = pipeline.task_count(processor)
        largest = [
            topic
            for topic in pipeline.in_topics(processor)
            if topic in inputs and pipeline.partitions_of(topic) == needed
        ]
        for topic in pipeline.state_topics(processor).values():
            has = existing.get(topic, needed)
            if has != needed and largest:
                raise ConfigError(
                    f'the input {" and ".join(largest)} of "{processor.id}" has '
                    f"{counted(needed, 'partition')}, and had {has} when its state began: keys "
                    "have moved to other partitions than their state. Keep the topic "
                    f"{topic}, it is the state; what to do: "
                    'docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'
                )


def check_moved_state(pipeline: Pipeline, admin: Admin, former: Pipeline | None) -> None:
    """Raise `ConfigError` for stores of a topology that would begin empty in another group.

    The state topic of a store has the name of its group, and the group has that of its first
    source. A source that is put ahead of it would cost the state. What stores the `former` pipeline
    has is known, if there is one: a name of a store may be the end of another one's.
    """
    existing = admin.topics()
    kept = _stores_by_topic(pipeline).keys()
    known = {} if former is None else _stores_by_topic(former)
    for processor in pipeline.processors:
        spec = processor.spec
        if not isinstance(spec, TopologySpec):
            continue
        entry = processor.id.removesuffix(f"-{spec.group}")
        for store, topic in pipeline.state_topics(processor).items():
            # "|" is in no name of a topic.
            start, end = pipeline.names.state(f"{entry}-|", store).split("|")
            left = {name for name in existing.keys() - kept if known.get(name, store) == store}
            group = "" if topic in existing else _between(start, end, left)
            if group:
                raise ConfigError(
                    f'the store "{store}" of "{entry}" was in the group "{group}", and would '
                    f'begin empty in the group "{spec.group}": a group has the name of its first '
                    f'source or repartition. Call that of "{group}" first again; or delete the '
                    f"topic {start}{group}{end} if its state may go"
                )


def _stores_by_topic(pipeline: Pipeline) -> dict[str, str]:
    return {
        topic: store
        for each in pipeline.processors
        for store, topic in pipeline.state_topics(each).items()
    }


def _between(start: str, end: str, names: Iterable[str]) -> str:
    """Return what the first of the names has between `start` and `end`; "" if none has both."""
    for name in sorted(names):
        if name.startswith(start) and name.endswith(end):
            return name.removeprefix(start).removesuffix(end)
    return ""
