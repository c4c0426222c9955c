"""What a change of the number of tasks needs, and where the tasks begin in the arcs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.renames import with_new_ids
from kafka_pipeline.operations.savepoints.manifest import SavedInput
from kafka_pipeline.streams.rescaling.tasks import Tasks


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
        _require_equal_inputs(former, before)
        _require_equal_inputs(pipeline, processor)
        for topic in pipeline.in_topics(processor):
            is_source = topic in pipeline.user_topics and topic in former.in_topics(before)
            if is_source and former.partitions_of(topic) != pipeline.partitions_of(topic):
                raise ConfigError(
                    f"{topic} has {counted(pipeline.partitions_of(topic), 'partition')} now, and "
                    f'had {former.partitions_of(topic)} when "{processor.id}" began to read it. '
                    "Records that wait in it would miss the state of their keys; what to do: "
                    'docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'
                )
        said = [store.name for store in before.stores if store.spreading.rule == "said"]
        if said and processor.id not in by_key:
            names = ", ".join(f'"{name}"' for name in said)
            raise ConfigError(
                f'"{processor.id}" has stores that may have any keys ({names}), so it is unknown '
                "which task needs which part of them. If each key in them, without the time "
                "of a window, session or version, is byte for byte the key of the records that it "
                f"comes from, say so with --by-key {processor.id}; this is checked"
            )


def _require_equal_inputs(pipeline: Pipeline, processor: PipelineProcessor) -> None:
    """Raise `ConfigError` if not all topics that a processor reads have a partition per task."""
    counts = {topic: pipeline.partitions_of(topic) for topic in pipeline.in_topics(processor)}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
        raise ConfigError(
            f'"{processor.id}" reads topics with different numbers of partitions: {listed}. So '
            "it is unknown which task needs which part of its state"
        )


def spread_position(saved: SavedInput, tasks: Tasks) -> dict[int, Committed]:
    """Return where tasks begin in an arc that is made again.

    The stream time of a key is not to go back, so a task has the largest time of those of before
    that its keys can come from. What those have skipped and put aside is counted by the first task.
    """
    before = {position.partition: position.committed for position in saved.positions}
    skipped = sum(at.skipped for at in before.values())
    letters = sum(at.dead_letters for at in before.values())
    is_being_reset = any(at.is_being_reset for at in before.values())
    dropped = Counter[str]()
    for at in before.values():
        dropped.update(dict(at.dropped))
    found = {}
    for number in range(tasks.after):
        times = [before[n].time_ms for n in tasks.former(number) if n in before]
        found[number] = Committed(0, max(times, default=-1), is_being_reset=is_being_reset)
    counts = tuple(sorted(dropped.items()))
    found[0] = found[0]._replace(skipped=skipped, dead_letters=letters, dropped=counts)
    return found


def with_parallelism(pipeline: Pipeline, parallelism: int) -> Pipeline:
    """Return a pipeline with another parallelism, without what Kafka knows of its topics."""
    given = {
        processor.topics[topic]: count
        for processor in pipeline.processors
        for topic, count in processor.internal_topics.items()
        if count is not None
    }
    return replace(pipeline, parallelism=parallelism, partitions=given)
