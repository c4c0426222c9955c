"""Topologies that a user's function builds: `type: topology`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.code.user_code import CODE_PATTERN, UserCode
from kafka_pipeline.common.code.user_frames import with_place
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import ConfigKey, Text
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    Meeting,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.specs import PatternSpec, SourceSpec, TopologySpec
from kafka_pipeline.streams.dsl.streams_builder import StreamsBuilder
from kafka_pipeline.streams.engine.builder import TopologyBuilder
from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup, unique
from kafka_pipeline.streams.engine.nodes import Node, ProcessorNode, Sink, Source
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.errors import StreamsError, TopologyError
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.kind import (
    ARGUMENTS,
    BUFFERED_RECORDS,
    ID,
    MAX_DEAD_LETTERS,
    MAX_PROCESS_TIME,
    MAX_TASK_IDLE,
    ON_ERROR,
    TYPE,
    WAS,
    Kind,
    Unit,
    logged,
    read_arguments,
    read_reference,
)
from kafka_pipeline.streams.sql.spec import Queries

_BUILDER = Text(
    name="builder",
    doc=(
        "a function that returns a `StreamsBuilder` or a `TopologyBuilder`, "
        "as `package.module:function`"
    ),
    about="package.module:function",
    required=True,
    pattern=CODE_PATTERN,
)


class UserTopology(Kind[TopologySpec]):
    """`type: topology`."""

    spec = TopologySpec
    doc = "a topology that a Python function builds"
    names_topics = True
    runs_user_processors = True
    config = ARGUMENTS
    own_keys = (MAX_TASK_IDLE, BUFFERED_RECORDS, MAX_PROCESS_TIME)

    @property
    def keys(self) -> Sequence[ConfigKey]:
        return (
            *(ID, WAS, TYPE, _BUILDER, ON_ERROR, MAX_DEAD_LETTERS),
            *(self.config, *self.own_keys),
        )

    def read(self, fields: Fields, problems: Problems) -> TopologySpec:
        return TopologySpec(
            code=read_reference(fields, _BUILDER, problems),
            config=read_arguments(fields.pairs(ARGUMENTS), problems),
            max_process_time_ms=fields.number(MAX_PROCESS_TIME),
            max_task_idle_ms=fields.number(MAX_TASK_IDLE),
            buffered_records=fields.number(BUFFERED_RECORDS),
        )

    def processors(
        self,
        entry: Entry,
        spec: TopologySpec,
        file: PipelineFile,
        config: Config,
        problems: Problems,
    ) -> list[PipelineProcessor]:
        """Return a processor for each node group; imports and calls the user's function."""
        if not spec.code:
            return []
        try:
            topology = build_topology(UserCode.of(config), spec)
            own = _internal_topics(topology, file)
            names = config.topic_names
            topics = {
                topic: names.internal(entry.id, topic)
                if topic in own
                else file.topics.get(topic, topic)
                for group in topology.groups
                for topic in (*group.in_topics, *group.out_topics)
            }
            known = {SOURCE: names.source, SINK: names.sink, **file.topics}
            topics |= {
                store.topic: known.get(store.topic, store.topic) for store in topology.global_stores
            }
            found = []
            for group in topology.groups:
                processor = _group_processor(entry, spec, group, topics, own)
                # Which topics a pattern finds is known later.
                if topology.meets_in_stores and not processor.patterns:
                    processor = replace(processor, meetings=_meetings(group))
                found.append(processor)
            return found
        except (ConfigError, StreamsError) as error:
            for line in str(error).splitlines() or [type(error).__name__]:
                problems.add(entry.at, f'"{entry.id}": {line}')
            return []

    def group(
        self,
        unit: Unit,
        spec: TopologySpec,
        code: UserCode,
        queries: Queries | None,
        registry: RegistrySettings | None,
    ) -> NodeGroup:
        for group in build_topology(code, spec).groups:
            if group.name == spec.group:
                _require_serdes(group, spec)
                topics = {
                    **dict(zip(unit.from_, unit.in_topics, strict=True)),
                    **dict(zip(unit.to, unit.out_topics, strict=True)),
                }
                return replace(
                    group,
                    nodes=tuple(_moved(node, topics) for node in group.nodes),
                    global_stores=tuple(_followed(store, spec) for store in group.global_stores),
                )
        raise TopologyError(
            f'{spec.code} builds no node group with the first source "{spec.group}" any more: the '
            "code here is not that of the JobManager"
        )


def build_topology(code: UserCode, spec: TopologySpec) -> Topology:
    """Call the function with the config as keyword arguments; it returns a builder or topology.

    Raises ConfigError if the function is not found, fails, or returns something else, and
    TopologyError if the topology is invalid.
    """
    function = code.load(spec.code)
    try:
        built = function(**spec.config)
    except StreamsError:
        raise
    except BaseException as raised:
        error = as_exception(raised)
        raise ConfigError(f"{spec.code} fails: {with_place(error)}") from error
    if isinstance(built, TopologyBuilder | StreamsBuilder):
        built = built.build()
    if not isinstance(built, Topology):
        raise ConfigError(
            f"{spec.code} returns a {type(built).__name__}: it must return a StreamsBuilder, a "
            "TopologyBuilder, or what its build() returns"
        )
    return built


def _internal_topics(topology: Topology, file: PipelineFile) -> dict[str, int | None]:
    """Return the internal topics with their partition counts. Raises StreamsError."""
    own = {topic.name: topic.partitions for topic in topology.internal_topics}
    for topic in sorted(own.keys() & {SOURCE, SINK}):
        raise StreamsError(f'internal topic "{topic}" has a reserved name: choose another one')
    for source in sorted({t for g in topology.groups for t in g.in_topics}):
        if source in file.source_specs:
            raise StreamsError(
                f'source "{source}" has options, and a topology says itself how it reads its '
                "sources: give them to add_source, or name the topic once more without options"
            )
    return own


def _group_processor(
    entry: Entry,
    spec: TopologySpec,
    group: NodeGroup,
    topics: Mapping[str, str],
    own: Mapping[str, int | None],
) -> PipelineProcessor:
    id_ = f"{entry.id}-{group.name}"
    wrong = name_problem(id_)
    if wrong:
        raise StreamsError(f'the id "{id_}" of a node group {wrong}')
    used = (*group.in_topics, *group.out_topics)
    followed = {store.store.name: topics[store.topic] for store in group.global_stores}
    for topic in (*used, *followed.values()):
        wrong = name_problem(topic)
        if wrong:
            raise StreamsError(f'the topic "{topic}" {wrong}')
    return PipelineProcessor(
        id=id_,
        spec=structs.replace(
            spec,
            group=group.name,
            internal={topic: own[topic] for topic in group.in_topics if topic in own},
            serdes={topic: group.serdes_of(topic) for topic in unique(used) if topic in own},
            followed=followed,
            patterns=tuple(
                PatternSpec(
                    pattern=source.pattern.pattern,
                    flags=source.pattern.flags,
                    auto_offset_reset=source.auto_offset_reset,
                )
                for source in group.sources
                if source.pattern is not None
            ),
        ),
        to=group.out_topics,
        from_=group.in_topics,
        on_error=entry.on_error,
        max_dead_letters_per_minute=entry.max_dead_letters_per_minute,
        topics={topic: topics[topic] for topic in used},
        stores=tuple(_with_topics(store, topics) for store in logged(group.stores)),
        looked_up=_looked_up(group),
        led_to_by={
            topic: leading
            for topic in group.out_topics
            if topic in own and (leading := group.leading_to(topic)) != group.in_topics
        },
        chooses_topics=group.chooses_topics,
        sources={
            topic: read
            for source in group.sources
            if (read := _source_spec(source)) != SourceSpec()
            for topic in source.topics
            if topic not in own
        },
    )


def _with_topics(store: LoggedStore, topics: Mapping[str, str]) -> LoggedStore:
    """Return a store whose content comes from topics in Kafka instead of the builder's topics."""
    content = store.content
    if content is None or not content.sides:
        return store
    sides = tuple(tuple(topics.get(topic, topic) for topic in side) for side in content.sides)
    return structs.replace(store, content=structs.replace(content, sides=sides))


def _source_spec(source: Source) -> SourceSpec:
    """Return what matters to others about how a source is read."""
    return SourceSpec(auto_offset_reset=source.auto_offset_reset, feedback=source.feedback)


def _require_serdes(group: NodeGroup, spec: TopologySpec) -> None:
    """Raise `TopologyError` if the code here has other serdes than the version of the pipeline.

    What waits in an internal topic is drained when a version changes them, not when code does.
    """
    for topic, wanted in spec.serdes.items():
        found = group.serdes_of(topic)
        if found != wanted:
            raise TopologyError(
                f"{spec.code} has keys by {found.key} and values by {found.value} in its internal "
                f"topic {topic}, but this version of the pipeline has keys by {wanted.key} and "
                f"values by {wanted.value}: bring the former code back, give the new code another "
                "name, and apply a pipeline.yaml that names it"
            )


def _looked_up(group: NodeGroup) -> tuple[str, ...]:
    """Return the topics whose records are only looked up, if others say how far event time is."""
    has_others = any(not source.looked_up and not source.feedback for source in group.sources)
    return group.looked_up_topics if has_others else ()


def _meetings(group: NodeGroup) -> tuple[Meeting, ...]:
    """Return which topics meet, each time with the first step at which they do."""
    steps: dict[tuple[str, ...], str] = {}
    for step, sources in group.meetings():
        steps.setdefault(unique(topic for source in sources for topic in source.topics), step)
    return tuple(Meeting(step, topics) for topics, step in steps.items())


def _followed(store: GlobalStore, spec: TopologySpec) -> GlobalStore:
    """Return a global store with its topic in Kafka."""
    topic = spec.followed[store.store.name]
    return replace(store, source=replace(store.source, topics=(topic,)))


def _moved(node: Node, topics: Mapping[str, str]) -> Node:
    """Return a node with the topics in Kafka instead of the builder's topics."""
    match node:
        case Source() | Sink():
            return replace(node, topics=tuple(topics.get(topic, topic) for topic in node.topics))
        case ProcessorNode():
            return node
