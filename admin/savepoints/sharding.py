"""Spreads the state and the positions of tasks over another number of tasks, by key."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from admin.savepoints.manifest import SavedInput, SavedStore
from admin.savepoints.record_files import read_records
from common.errors import ConfigError
from common.kafka.committed import Committed
from common.pipeline import Pipeline
from common.processors import PipelineProcessor
from common.specs import CountSpec
from common.suggest import counted
from jobmanager.renames import with_new_ids
from streams.backfill.partitions import partitions_of


def spread_processors(former: Pipeline, pipeline: Pipeline) -> list[PipelineProcessor]:
    """Return the processors of both pipelines that have another number of tasks in the second."""
    former = with_new_ids(former, pipeline)
    counts = {each.id: former.task_count(each) for each in former.processors}
    return [
        each
        for each in pipeline.processors
        if each.id in counts and counts[each.id] != pipeline.task_count(each)
    ]


def check_spread(
    former: Pipeline, pipeline: Pipeline, stateful: Collection[str], by_key: Collection[str]
) -> None:
    """Raise `ConfigError` for state that cannot go to another number of tasks, as far as is known.

    `stateful` are the processors with saved state, and `by_key` those of which somebody says that
    their stores have the keys of records.
    """
    former = with_new_ids(former, pipeline)
    for processor in spread_processors(former, pipeline):
        if processor.id not in stateful:
            continue
        before = former.processor(processor.id)
        for topic in pipeline.in_topics(processor):
            is_source = topic in pipeline.user_topics and topic in former.in_topics(before)
            if is_source and former.partitions_of(topic) != pipeline.partitions_of(topic):
                raise ConfigError(
                    f"{topic} has {counted(pipeline.partitions_of(topic), 'partition')} now, and "
                    f'had {former.partitions_of(topic)} when "{processor.id}" began to read it. '
                    "Records that wait in it would miss the state of their keys; what to do: "
                    'docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'
                )
        if not isinstance(processor.spec, CountSpec) and processor.id not in by_key:
            raise ConfigError(
                f'the state of "{processor.id}" may have any keys, so nobody can tell which task '
                "is to have which part of it. If each key in its stores is, byte for byte, the key "
                "of the records that it comes from, say so by --by-key "
                f"{processor.id}; this is checked"
            )


def check_keys(folder: Path, store: SavedStore, former_count: int) -> None:
    """Raise `ConfigError` if a store has a key that no record of its task can have had."""
    for part in store.partitions:
        for records in read_records(folder, store.topic, part.partition):
            found = partitions_of(records.keys, former_count)
            if np.any(found != part.partition):
                raise ConfigError(
                    f'the store "{store.store}" of "{store.processor}" has keys in task '
                    f"{part.partition} that are not keys of its records, such as those of windows, "
                    "or a partitioner has spread its records: its state cannot be spread over "
                    "another number of tasks"
                )


def require_empty(saved: SavedInput) -> None:
    """Raise `ConfigError` if an arc has records left: they would have to change places too."""
    if saved.left:
        raise ConfigError(
            f"{saved.topic} has records that were not processed, as processors which send to each "
            "other cannot be drained: its number of partitions cannot change"
        )


def spread_position(saved: SavedInput, count: int) -> dict[int, Committed]:
    """Return where `count` tasks begin in an arc that is empty.

    Each key's stream time is not to go back, so all tasks have the largest time of before. What
    former tasks have skipped and put aside is counted by the first one.
    """
    before = [position.committed for position in saved.positions]
    time_ms = max((at.time_ms for at in before), default=-1)
    skipped, letters = sum(at.skipped for at in before), sum(at.dead_letters for at in before)
    first = Committed(0, time_ms, skipped, letters)
    return {number: Committed(0, time_ms) if number else first for number in range(count)}


def with_parallelism(pipeline: Pipeline, parallelism: int) -> Pipeline:
    """Return a pipeline with another parallelism, without what Kafka knows of its topics."""
    given = {
        processor.topics[topic]: count
        for processor in pipeline.processors
        for topic, count in processor.internal_topics.items()
        if count is not None
    }
    return replace(pipeline, parallelism=parallelism, partitions=given)
