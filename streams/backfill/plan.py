"""The plan of a backfill, as a value: its inputs, its stages in order, and its outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import COMMAND_TIMEOUT_S, Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.backfill.files import find_files
from kafka_pipeline.streams.backfill.places import (
    Files,
    TopicRange,
    Where,
    are_nested,
    read_sources,
    read_target,
)
from kafka_pipeline.streams.pipeline.load import load_pipeline
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.patterns import with_matching_topics


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """The plan of a backfill.

    `stages` has the replicas of each processor, writers before their readers. `results` are the
    topics that only the user reads. `target` is a folder, or the topic that replaces the only sink.
    """

    config: Config
    pipeline: Pipeline
    sources: Mapping[str, Where]
    files: Mapping[str, Sequence[Path]]
    stages: Sequence[Sequence[ProcessorReplica]]
    arcs: Collection[str]
    results: Sequence[str]
    target: Path | str
    target_topics: Mapping[str, str] = field(default_factory=dict)
    """The name in Kafka of each topic of the results, if they go to Kafka."""

    def num_partitions(self, topic: str) -> int:
        """Return how many partitions a topic of the pipeline has."""
        return self.pipeline.partitions_of(topic)

    @property
    def identity(self) -> dict[str, Any]:
        """The parts that must not change for an interrupted backfill to resume, as JSON values."""
        return {
            "pipeline": [replica.fingerprint for stage in self.stages for replica in stage],
            "partitions": {topic: self.num_partitions(topic) for topic in sorted(self.sources)},
            "input": {topic: self._identity(topic) for topic in sorted(self.sources)},
            "target": str(self.target),
        }

    def _identity(self, topic: str) -> Any:
        where = self.sources[topic]
        if isinstance(where, TopicRange):
            return [where.name, where.start, where.end]
        stats = [(path, path.stat()) for path in self.files[topic]]
        return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def make_plan(config: Path, file: Path, from_: Sequence[str], to: str) -> BackfillPlan:
    """Read the files and the arguments; asks Kafka only if a topic is read or written.

    Raises `ConfigError` for mistakes, and `UnavailableError` if Kafka is needed and not reachable.
    """
    settings = load_config(config)
    pipeline = load_pipeline(file, settings)
    for each in pipeline.processors:
        if each.spec.writes_outside:
            raise ConfigError(
                f'"{each.id}" writes a table, which a backfill does not: backfill a pipeline '
                "without it, and load the results"
            )
    patterns = [pattern for each in pipeline.processors for pattern in each.patterns]
    sources = read_sources(
        from_,
        _sources_of(pipeline),
        lambda topic: any(pattern.fullmatch(topic) for pattern in patterns),
    )
    pipeline = with_matching_topics(pipeline, sources)
    missing = sorted({*_sources_of(pipeline).values()} - sources.keys())
    if missing:
        raise ConfigError(
            f"the pipeline also reads {', '.join(missing)}: say where their records are, as "
            f"--from {missing[0]}=PATH"
        )
    target = read_target(to)
    for where in sources.values():
        if not isinstance(where, Files) or not isinstance(target, Path):
            continue
        if are_nested(target, where.path):
            raise ConfigError(
                f"--to {target} is in, or around, {where.path}, which is read: move one"
            )
    results = _results(pipeline)
    target_topics = {} if isinstance(target, Path) else _renamed(pipeline, target, results)
    counts = _counts_in_kafka(settings, sources, target_topics)
    pipeline = with_counts(pipeline, counts)
    return BackfillPlan(
        config=settings,
        pipeline=pipeline,
        sources=sources,
        files={
            topic: find_files(where.path)
            for topic, where in sources.items()
            if isinstance(where, Files)
        },
        stages=_stages(pipeline),
        arcs=pipeline.arcs,
        results=results,
        target=target,
        target_topics=target_topics,
    )


def _sources_of(pipeline: Pipeline) -> dict[str, str]:
    """Return the topics that nothing in the pipeline writes, by source name and by topic name."""
    written = {topic for each in pipeline.processors for topic in _written(each, pipeline)}
    found: dict[str, str] = {}
    for each in pipeline.processors:
        read = pipeline.inputs(each).items()
        found |= {name: topic for name, topic in read if topic not in written}
        found |= {t: t for t in each.global_stores.values() if t not in written}
    return found | {topic: topic for topic in found.values()}


def _written(processor: PipelineProcessor, pipeline: Pipeline) -> tuple[str, ...]:
    dead = pipeline.dead_letter_topic(processor)
    return (*pipeline.out_topics(processor), *([dead] if dead else ()))


def _results(pipeline: Pipeline) -> tuple[str, ...]:
    arcs = pipeline.arcs
    written = (topic for each in pipeline.processors for topic in _written(each, pipeline))
    return tuple(dict.fromkeys(topic for topic in written if topic not in arcs))


def _renamed(pipeline: Pipeline, target: str, results: Sequence[str]) -> dict[str, str]:
    """Return the results' names in Kafka: dead letters keep theirs, the only sink is `target`."""
    for each in pipeline.processors:
        if each.chooses_topics:
            raise ConfigError(
                f'a function of "{each.id}" chooses topics that the pipeline does not name, and '
                f"--to topic:{target} takes one sink alone: use --to with a folder"
            )
    dead = {pipeline.dead_letter_topic(each) for each in pipeline.processors}
    sinks = [topic for topic in results if topic not in dead]
    if len(sinks) != 1:
        raise ConfigError(
            f"the pipeline writes {', '.join(sinks)}: --to topic:{target} takes one sink alone; "
            "use --to with a folder"
        )
    return {topic: topic for topic in results if topic in dead} | {sinks[0]: target}


def _counts_in_kafka(
    config: Config, sources: Mapping[str, Where], target_topics: Mapping[str, str]
) -> dict[str, int]:
    """Return the partition counts of the topics in Kafka, by their names in the pipeline."""
    read = {topic: where.name for topic, where in sources.items() if isinstance(where, TopicRange)}
    both = {*read.values()} & {*target_topics.values()}
    if both:
        raise ConfigError(f"topic {min(both)} cannot be read and written by one backfill")
    if not read and not target_topics:
        return {}
    admin = Admin(config)
    admin.check_broker(COMMAND_TIMEOUT_S)
    found = admin.partition_counts([*read.values(), *target_topics.values()])
    for name in read.values():
        if name not in found:
            raise ConfigError(f"there is no topic {name} to read")
    places = {**read, **target_topics}
    return {topic: found[name] for topic, name in places.items() if name in found}


def target_specs(plan: BackfillPlan) -> list[TopicSpec]:
    """Return the topics that results go to, under their names in Kafka."""
    specs = {spec.name: spec for spec in plan.pipeline.data_topics(plan.config.replication_factor)}
    return [replace(specs[topic], name=name) for topic, name in plan.target_topics.items()]


def _stages(pipeline: Pipeline) -> list[list[ProcessorReplica]]:
    by_id: dict[str, list[ProcessorReplica]] = {}
    for replica in replicas(pipeline):
        by_id.setdefault(replica.name, []).append(replica)
    return [by_id[each.id] for each in in_order(pipeline, pipeline.processors)]


def in_order(
    pipeline: Pipeline, processors: Sequence[PipelineProcessor]
) -> list[PipelineProcessor]:
    """Return processors in an order in which a topic's writers come before its readers.

    Raises `ConfigError` if some of them send to each other.
    """
    reads = {each.id: {*pipeline.read_topics(each)} for each in processors}
    waiting, ordered = list(processors), []
    while waiting:
        unwritten = {topic for each in waiting for topic in _written(each, pipeline)}
        ready = [each for each in waiting if not reads[each.id] & unwritten]
        if not ready:
            raise ConfigError(
                f"{', '.join(each.id for each in waiting)} read what they write, directly or by "
                "others: a backfill takes one processor after the other, and cannot run a circle"
            )
        ordered.append(ready[0])
        waiting.remove(ready[0])
    return ordered
