"""Makes the topics of the user that a pipeline names, and changes them as far as state allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.suggest import counted, did_you_mean, listed
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.streams.pipeline.partitions import with_counts, with_more_partitions

_WHAT_TO_DO = 'what to do: docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """What topics are to have; what is `None` is as config.yaml says, or stays as it is."""

    partitions: int | None = None
    replication_factor: int | None = None
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """By Kafka's names; `None` takes a setting back to the brokers' default."""


def missing_topics(
    config: Config, pipeline: Pipeline, admin: Admin, names: Sequence[str], options: TopicOptions
) -> list[TopicSpec]:
    """Return those of the sources, sinks and dead-letter topics that Kafka does not have.

    All by default, or those of `names`. Raises `ConfigError` if the pipeline has no such topic, or
    if topics whose records meet by key would have different numbers of partitions.
    """
    specs = _topics_of_user(config, pipeline)
    existing = admin.topics()
    missing = [
        _with_options(specs[name], options)
        for name in _known(specs, names) or specs
        if name not in existing
    ]
    counts = {name: existing[name] for name in specs if name in existing}
    with_counts(pipeline, counts | {spec.name: spec.partitions for spec in missing})
    return missing


def _topics_of_user(config: Config, pipeline: Pipeline) -> dict[str, TopicSpec]:
    """Return the sources, sinks and dead-letter topics as the job would make them."""
    dead = {pipeline.dead_letter_topic(each) for each in pipeline.processors}
    wanted = {*pipeline.user_topics, *dead}
    specs = pipeline.data_topics(config.replication_factor)
    return {spec.name: spec for spec in specs if spec.name in wanted}


def _known(specs: Mapping[str, TopicSpec], names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in specs:
            hint = did_you_mean(name, specs) or f": it has {listed(list(specs))}"
            raise ConfigError(
                f'the pipeline has no source, sink or dead-letter topic "{name}"{hint}'
            )
    return list(dict.fromkeys(names))


def _with_options(spec: TopicSpec, options: TopicOptions) -> TopicSpec:
    given = {name: value for name, value in options.settings.items() if value is not None}
    return replace(
        spec,
        partitions=options.partitions or spec.partitions,
        replication_factor=options.replication_factor or spec.replication_factor,
        config={**spec.config, **given},
    )


class TopicChange:
    """More partitions, or other settings, for topics of the user that exist."""

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        admin: Admin,
        names: Sequence[str],
        options: TopicOptions,
    ) -> None:
        """Look at the topics, and change nothing yet.

        Raises `ConfigError` if the pipeline has no such topic, if one does not exist, if it has
        more partitions already, or if keys would move to tasks that do not have their state: by the
        pipeline of the file, or by what the job runs.
        """
        specs = _topics_of_user(config, pipeline)
        existing = admin.topics()
        self._admin = admin
        self._settings = options.settings
        self.topics = _known(specs, names)
        for name in self.topics:
            if name not in existing:
                raise ConfigError(f"topic {name} does not exist: `pipeline topic create` makes it")
        self.counts = _more(self.topics, options.partitions, existing)
        """How many partitions topics are to have, of those that get more."""
        self.cautions: list[str] = []
        """What somebody has to agree to."""
        if self.counts:
            running = read_deployment(config, admin).current
            now = {name: existing[name] for name in specs if name in existing}
            with_counts(pipeline, now | self.counts)
            pipelines = [pipeline, running.pipeline] if running else [pipeline]
            self._require_state_kept(pipelines, existing)
            takes_up = config.on_new_partitions == "read"
            self.cautions += self._cautions(
                running.pipeline if running else None, existing, takes_up
            )

    def make(self) -> None:
        """Make the change. Raises `ConfigError` if Kafka refuses it."""
        for topic, count in self.counts.items():
            self._admin.add_partitions(topic, count)
        for topic in self.topics if self._settings else ():
            self._admin.alter_settings(topic, self._settings)

    def _require_state_kept(
        self, pipelines: Sequence[Pipeline], existing: Mapping[str, int]
    ) -> None:
        for pipeline in pipelines:
            for each in pipeline.processors:
                state = [t for t in pipeline.state_topics(each).values() if t in existing]
                moved = [topic for topic in pipeline.in_topics(each) if topic in self.counts]
                if state and moved:
                    raise ConfigError(
                        f'{listed(moved)} cannot get more partitions: "{each.id}" keeps state by '
                        f"key ({listed(state)}), and keys would move to partitions where their "
                        f"state is not; {_WHAT_TO_DO}"
                    )
                followed = set(each.global_stores.values()) & self.counts.keys()
                for topic in sorted(followed):
                    if self._has_records(topic, existing[topic]):
                        raise ConfigError(
                            f'{topic} cannot get more partitions: "{each.id}" has a global store '
                            "of it. New values of a key would be in another partition than old "
                            "ones, and it would be undecided which of them is last"
                        )

    def _cautions(
        self, running: Pipeline | None, existing: Mapping[str, int], takes_up: bool
    ) -> Iterator[str]:
        for topic, count in self.counts.items():
            if self._has_records(topic, existing[topic]):
                yield (
                    f"{topic}: keys go to other partitions from now on, so records of one key that "
                    "are there already may be processed after later ones"
                )
            readers = [] if running is None else _readers(running, topic)
            if running is None or not readers:
                continue
            if takes_up and with_more_partitions(running, {topic: count}) is not running:
                continue
            latest = [each for each in readers if _begins_at_end(running, each, topic)]
            skipped = f". {listed(latest)} would skip what comes before that" if latest else ""
            yield (
                f"{topic}: nobody reads the new partitions until `pipeline apply` with the same "
                f"file{skipped}"
            )

    def _has_records(self, topic: str, count: int) -> bool:
        places = [(topic, number) for number in range(count)]
        return self._admin.oldest_offsets(places) != self._admin.high_watermarks(places)


def _more(names: Sequence[str], wanted: int | None, existing: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of those topics that get more partitions."""
    for name in names:
        if wanted is not None and wanted < existing[name]:
            raise ConfigError(
                f"topic {name} has {counted(existing[name], 'partition')}: Kafka cannot take "
                "partitions away"
            )
    return {name: wanted for name in names if wanted is not None and wanted > existing[name]}


def _readers(pipeline: Pipeline, topic: str) -> list[str]:
    return [each.id for each in pipeline.processors if topic in pipeline.read_topics(each)]


def _begins_at_end(pipeline: Pipeline, id_: str, topic: str) -> bool:
    processor = pipeline.processor(id_)
    names = dict(zip(pipeline.in_topics(processor), processor.from_, strict=True))
    source = processor.sources.get(names.get(topic, ""))
    return source is not None and source.auto_offset_reset == "latest"
