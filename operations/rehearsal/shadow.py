"""The shadow of a job: what it is called, which topics it writes, and how it is removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.names import MAX_NAME_LENGTH
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, PipelineProcessor
from kafka_pipeline.common.suggest import listed
from kafka_pipeline.common.topics import RECORDS, TopicSpec
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.operations.rehearsal.comparer import Output
from kafka_pipeline.operations.renewal import left_after_wait

MOST_TASK_MANAGERS = 8
"""How many TaskManagers a shadow has at most."""

_SUFFIX = "rehearsal"
_SINK = f"{_SUFFIX}-of-"
_OFF = ("metrics_port", "state_port", "console_port", "console_host", "console_names")
"""The settings that are left out: the ports may be in use by the job's own daemons."""


def shadow_name(job_name: str | None) -> str:
    """Return the `job_name` of the shadow of a job."""
    return f"{job_name}-{_SUFFIX}" if job_name else _SUFFIX


def shadow_sink(sink: str, job_name: str | None) -> str:
    """Return the topic that a shadow writes in the place of a sink.

    It ends as the topics of the shadow do, so that no pattern of a source takes it for a user's.
    """
    return f"{_SINK}{sink}_{shadow_name(job_name)}"


def shadow_settings(
    given: Mapping[str, Any], config: Config, task_managers: int, state_dir: str
) -> dict[str, Any]:
    """Return the settings of a shadow, made of those in a config.yaml as they are written there."""
    settings = {key: value for key, value in given.items() if key not in _OFF}
    return settings | {
        "job_name": shadow_name(config.job_name),
        "sink_topic": shadow_sink(config.sink_topic, config.job_name),
        "tm_number": task_managers,
        "num_standby_replicas": 0,
        "state_dir": state_dir,
    }


def shadow_config(config: Config) -> Config:
    """Return the configuration of the shadow of a job, for as many TaskManagers as it may have."""
    names = shadow_settings({}, config, MOST_TASK_MANAGERS, str(config.state_dir))
    return replace(
        config,
        job_name=names["job_name"],
        sink_topic=names["sink_topic"],
        tm_number=names["tm_number"],
    )


def sinks_of(pipeline: Pipeline) -> list[str]:
    """Return the topics of the user's that a pipeline writes."""
    arcs = pipeline.arcs
    written = (topic for each in pipeline.processors for topic in pipeline.out_topics(each))
    return [topic for topic in dict.fromkeys(written) if topic not in arcs]


def written_topics(pipeline: Pipeline) -> list[str]:
    """Return what a rehearsal compares of a pipeline: its sinks, and the topics of dead letters."""
    return [*sinks_of(pipeline), *_dead_letters(pipeline).values()]


def shadow_pipeline(pipeline: Pipeline, live: Config) -> Pipeline:
    """Return a pipeline that was loaded for the shadow of a job, with sinks of its own.

    Sources stay the same, also those that the pipeline writes itself: its readers read what the
    job writes there. Raises `ConfigError` if the name of a sink is too long, if a node group
    writes what it reads, or if a processor writes a table, or topics that only its code knows.
    """
    arcs = pipeline.arcs

    def with_own_sinks(processor: PipelineProcessor) -> PipelineProcessor:
        if processor.spec.writes_outside:
            raise ConfigError(
                f"{processor.id} writes a table: a rehearsal would write it too. Rehearse the "
                "pipeline without it"
            )
        if processor.chooses_topics:
            raise ConfigError(
                f"a function of {processor.id} chooses the topics of results, so a rehearsal would "
                "write to those of the job: name them by `topics`, where the function is given"
            )
        for name in {*processor.from_}.intersection(processor.to) - {*processor.internal_topics}:
            raise ConfigError(
                f"{processor.id} reads and writes the topic {processor.topics[name]}: a rehearsal "
                "cannot give it one to read and another one to write"
            )
        written = {
            name: shadow_sink(topic, live.job_name)
            for name in processor.to
            if (topic := processor.topics.get(name)) is not None and topic not in arcs
        }
        spec = structs.replace(processor.spec, job_topics=_topics_of_job(processor, pipeline, live))
        return replace(processor, spec=spec, topics={**processor.topics, **written})

    found = replace(pipeline, processors=tuple(map(with_own_sinks, pipeline.processors)))
    for sink in sinks_of(found):
        if len(sink) > MAX_NAME_LENGTH:
            raise ConfigError(
                f"the rehearsal needs the topic {sink}, whose name has {len(sink)} characters, "
                f"and Kafka takes at most {MAX_NAME_LENGTH}: shorten the sink's name or job_name"
            )
    return found


def _topics_of_job(
    processor: PipelineProcessor, pipeline: Pipeline, live: Config
) -> dict[str, str]:
    """Return the topics of the job by those that a processor of its shadow has in their place."""
    id_, names, of_job = processor.id, pipeline.names, live.topic_names
    found = {names.arc(each, id_): of_job.arc(each, id_) for each in processor.from_}
    for name in processor.to:
        if name == SINK:
            found[names.sink] = of_job.sink
        elif name in processor.topics:
            found[shadow_sink(processor.topics[name], live.job_name)] = processor.topics[name]
        else:
            found[names.arc(id_, name)] = of_job.arc(id_, name)
    return found


def outputs_of(live: Pipeline, shadow: Pipeline, job_name: str | None) -> list[Output]:
    """Return what is compared: each sink and each processor's dead letters, of either version."""
    old, new = sinks_of(live), set(sinks_of(shadow))
    by_shadow = {shadow_sink(sink, job_name): sink for sink in old}
    sinks = [
        Output(sink, sink, topic if topic in new else None) for topic, sink in by_shadow.items()
    ]
    prefix, suffix = shadow_sink("*", job_name).split("*")
    for topic in sorted(new - by_shadow.keys()):
        sinks.append(Output(topic.removeprefix(prefix).removesuffix(suffix), None, topic))
    new_ids = {former: id_ for id_, former in renames(live, shadow).items()}
    old_letters = {new_ids.get(id_, id_): topic for id_, topic in _dead_letters(live).items()}
    new_letters = _dead_letters(shadow)
    letters = [
        Output(f"dead letters of {each}", old_letters.get(each), new_letters.get(each), False)
        for each in dict.fromkeys([*old_letters, *new_letters])
    ]
    return [*sinks, *letters]


def _dead_letters(pipeline: Pipeline) -> dict[str, str]:
    found = {each.id: pipeline.dead_letter_topic(each) for each in pipeline.processors}
    return {processor: topic for processor, topic in found.items() if topic is not None}


def make_sinks(admin: Admin, config: Config, outputs: Sequence[Output]) -> None:
    """Make the sinks of a shadow, each with as many partitions as the job's has.

    They keep records of any age and size, until they are deleted.
    """
    sinks = [each for each in outputs if each.is_sink and each.new is not None]
    counts = admin.partition_counts(each.old for each in sinks if each.old is not None)
    admin.ensure_topics(
        [
            TopicSpec(
                each.new,
                counts.get(each.old or "", config.parallelism),
                config.replication_factor,
                RECORDS,
            )
            for each in sinks
            if each.new is not None
        ]
    )


def discard(admin: Admin, live: Config, shadow: Config, sinks: Collection[str] = ()) -> list[str]:
    """Delete all topics and offsets of a job's shadow; return the topics that were there.

    `sinks` are further topics of it that may exist. The pipeline topic is deleted last, so that
    what is interrupted can be repeated. Raises `ConfigError` if somebody has a job of their own
    with that name, and `UnavailableError` if Kafka does not do it.
    """
    try:
        jobs = [read_deployment(each, admin).pipelines for each in (live, shadow)]
        names = shadow.topic_names
        own = {
            *sinks,
            *(shadow_sink(sink, live.job_name) for each in jobs[0] for sink in sinks_of(each)),
            *(spec.name for spec in control_topics(shadow)),
            *(names.processors(str(number)) for number in range(MOST_TASK_MANAGERS)),
        }
        for each in jobs[1]:
            _require_shadow(each, shadow)
            own.update(_own_topics(each), sinks_of(each))
        existing = sorted(admin.partition_counts(own))
        admin.delete_topics([topic for topic in existing if topic != names.pipeline])
        groups = {names.consumer_group(each.id) for its in jobs[1] for each in its.processors}
        admin.delete_groups(sorted(groups))
        admin.delete_topics([topic for topic in existing if topic == names.pipeline])
        if left := left_after_wait(admin, existing):
            raise UnavailableError(f"Kafka does not delete {listed(left)}: repeat the command")
    except EngineError as error:
        raise UnavailableError(
            f"not everything of the rehearsal could be deleted: {error}. "
            "`pipeline rehearse CONFIG --discard` does the rest"
        ) from error
    return existing


def _require_shadow(pipeline: Pipeline, shadow: Config) -> None:
    """Raise `ConfigError` if a pipeline writes to topics that no rehearsal has made."""
    own = f"_{shadow.job_name}"
    for sink in sinks_of(pipeline):
        if not (sink.startswith(_SINK) and sink.endswith(own)):
            raise ConfigError(
                f'there is a job "{shadow.job_name}" that writes to {sink}, so it is not a '
                "rehearsal: a rehearsal needs that job_name, and would delete all of the job"
            )


def _own_topics(pipeline: Pipeline) -> Iterator[str]:
    yield from pipeline.arcs
    for each in pipeline.processors:
        yield from pipeline.state_topics(each).values()
    yield from _dead_letters(pipeline).values()
