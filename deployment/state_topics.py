"""Checks that the state which a job has kept so far is the state that its tasks will find."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import (
    GROUPS_TOPIC,
    SHAPE_STORE,
    SessionSpec,
    SparkSpec,
    TopologySpec,
)
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


def check_moved_state(pipeline: Pipeline, admin: Admin) -> None:
    """Raise `ConfigError` for stores of a topology that would begin empty in another group.

    The state topic of a store has the name of its group, and the group has that of its first
    source. A source that is put ahead of it would cost the state.
    """
    existing = admin.topics()
    kept = {t for each in pipeline.processors for t in pipeline.state_topics(each).values()}
    for processor in pipeline.processors:
        spec = processor.spec
        if not isinstance(spec, TopologySpec):
            continue
        entry = processor.id.removesuffix(f"-{spec.group}")
        for store, topic in pipeline.state_topics(processor).items():
            # "|" is in no name of a topic.
            start, end = pipeline.names.state(f"{entry}-|", store).split("|")
            former = "" if topic in existing else _between(start, end, existing.keys() - kept)
            if former:
                raise ConfigError(
                    f'the store "{store}" of "{entry}" was in the group "{former}", and would '
                    f'begin empty in the group "{spec.group}": a group has the name of its first '
                    f'source or repartition. Call that of "{former}" first again; or delete the '
                    f"topic {start}{former}{end} if its state may go"
                )


def check_kept_groups(pipeline: Pipeline, admin: Admin) -> None:
    """Raise `ConfigError` for queries with GROUP BY that cannot use the state they have kept.

    The topics show whether the former query had a window, and how the records of a group met. The
    rest, such as the types of groups, only Spark knows: tasks check it.
    """
    found = []
    for processor in pipeline.processors:
        spec, topics = processor.spec, pipeline.state_topics(processor)
        if not isinstance(spec, SparkSpec) or spec.grouping is None or SHAPE_STORE not in topics:
            continue
        tables = {table.store_of(name) for name, table in spec.topic_tables.items()}
        groups = next(topic for store, topic in topics.items() if store not in tables)
        between = pipeline.names.internal(processor.id, GROUPS_TOPIC)
        found.append((processor, spec.grouping, groups, topics[SHAPE_STORE], between))
    if not found:
        return
    existing = admin.partition_counts(topic for _, _, *wanted in found for topic in wanted)
    for processor, grouping, groups, shape, between in found:
        if shape not in existing:
            continue  # it has kept nothing yet
        changed = ""
        if groups not in existing:
            match grouping.window:
                case None:
                    changed = "had a window"
                case SessionSpec():
                    changed = "had no session_window(…)"
                case _:
                    changed = "had no window(…)"
        elif (between in existing) != (grouping.stage == "groups"):
            had_key = grouping.stage == "groups"
            changed = "grouped records by key" if had_key else "did not group records by key"
        if changed:
            raise ConfigError(
                f'the state of "{processor.id}" was kept for another query, which {changed}. Go '
                "back to the former query, or give the processor another id, with which it begins "
                'without state; see docs/how-to/change_a_pipeline.md, "Change a query with GROUP '
                'BY"'
            )


def check_kept_tables(pipeline: Pipeline, admin: Admin) -> None:
    """Raise `ConfigError` for tables of queries that were kept without their history, or with one.

    A versioned store has another format, and a topic of its own. It would begin empty, as the
    records that were read so far do not come again.
    """
    found = []
    for processor in pipeline.processors:
        spec, topics = processor.spec, pipeline.state_topics(processor)
        tables = spec.topic_tables if isinstance(spec, SparkSpec) else {}
        for name, table in tables.items():
            if topic := topics.get(table.store_of(name)):
                other = table.store_name(name, has_history=not table.has_history)
                former = pipeline.names.state(processor.id, other)
                found.append((processor.id, name, table.has_history, topic, former))
    if not found:
        return
    existing = admin.partition_counts(topic for *_, now, former in found for topic in (now, former))
    for id_, name, has, topic, former in found:
        if topic in existing or former not in existing:
            continue
        way, back = ("without", "leave history out") if has else ("with", "give it history")
        raise ConfigError(
            f'the table "{name}" of "{id_}" was kept {way} a history, in another format: {back} '
            "again, or give the processor another id, with which it begins without state; see "
            'docs/how-to/change_a_pipeline.md, "Change the history of a table"'
        )


def _between(start: str, end: str, names: Iterable[str]) -> str:
    """Return what the first of the names has between `start` and `end`; "" if none has both."""
    for name in sorted(names):
        if name.startswith(start) and name.endswith(end):
            return name.removeprefix(start).removesuffix(end)
    return ""
