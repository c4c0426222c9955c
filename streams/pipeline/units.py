"""Builds the node group that the tasks of a pipeline.yaml processor run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from common.processors import ON_SPARK, OnError, ProcessorType
from streams import serdes
from streams.builder import TopologyBuilder
from streams.builtin.count import COUNTS, CountProcessor
from streams.builtin.forward import ForwardProcessor
from streams.builtin.sum import SumProcessor
from streams.engine.node_group import GlobalStore, NodeGroup
from streams.engine.nodes import Node, ProcessorNode, Sink, Source, Supplier
from streams.engine.user_code import UserCode
from streams.errors import TopologyError
from streams.group_settings import DEFAULT_BUFFERED_RECORDS, GroupSettings
from streams.pipeline.sources import extractor_of
from streams.pipeline.stores import store_of
from streams.pipeline.user_class import class_supplier
from streams.pipeline.user_topology import build_topology
from streams.serdes import Serde
from streams.sql.spec import Queries, QuerySpec

_BUILT_IN: Mapping[ProcessorType, Callable[..., Any]] = {
    ProcessorType.FORWARD: ForwardProcessor,
    ProcessorType.SUM: SumProcessor,
    ProcessorType.COUNT: CountProcessor,
}


class Unit(Protocol):
    """A processor of pipeline.yaml with its topics, such as a `ProcessorReplica`."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> ProcessorType: ...
    @property
    def from_(self) -> tuple[str, ...]: ...
    @property
    def to(self) -> tuple[str, ...]: ...
    @property
    def in_topics(self) -> tuple[str, ...]: ...
    @property
    def out_topics(self) -> tuple[str, ...]: ...
    @property
    def on_error(self) -> OnError: ...
    @property
    def dead_letter_topic(self) -> str | None: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def code(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


def group_of(unit: Unit, code: UserCode, queries: Queries | None = None) -> NodeGroup:
    """Return the nodes of a processor, with the topics that it reads and writes in Kafka.

    A built-in type or a user's class is one node between sources and sinks; the sinks have the
    names of the targets in `to`. `queries` runs the processors that are Spark's. Raises ConfigError
    if user code is not found or fails, and TopologyError if it builds an invalid topology.
    """
    if unit.type is ProcessorType.TOPOLOGY:
        return _group_of_topology(unit, code)
    builder = TopologyBuilder()
    options = unit.options
    sources = []
    for from_, topic in zip(unit.from_, unit.in_topics, strict=True):
        own = options.get("sources", {}).get(from_, {})
        builder.add_source(
            f"{from_} of {unit.name}",
            topic,
            key_serde=_serde({**options, **own}, "key"),
            value_serde=_serde({**options, **own}, "value"),
            timestamp_extractor=extractor_of(own),
            auto_offset_reset=own.get("auto_offset_reset", "earliest"),
        )
        sources.append(f"{from_} of {unit.name}")
    builder.add_processor(unit.name, _supplier(unit, code, queries), sources)
    stores = [store_of(spec) for spec in options.get("stores", ())]
    for store in [COUNTS] if unit.type is ProcessorType.COUNT else stores:
        builder.add_state_store(store, [unit.name])
    for target, topic in zip(unit.to, unit.out_topics, strict=True):
        builder.add_sink(
            target,
            topic,
            [unit.name],
            key_serde=_serde(options, "out_key"),
            value_serde=_serde(options, "out_value"),
        )
    (group,) = builder.build().groups
    return group


def sharing_key(unit: Unit) -> str:
    """Return a string that is the same for units that have the same global stores."""
    return json.dumps([unit.code, dict(unit.config), unit.options.get("globals")], sort_keys=True)


def settings_of(unit: Unit) -> GroupSettings:
    """Return the settings of a processor's tasks."""
    return GroupSettings(
        on_error=unit.on_error,
        dead_letter_topic=unit.dead_letter_topic,
        max_task_idle_ms=unit.options.get("max_task_idle_ms", 0),
        buffered_records=unit.options.get("buffered_records", DEFAULT_BUFFERED_RECORDS),
        # The output of the built-in types does not depend on which input comes first.
        takes_inputs_as_they_come=unit.type in (*_BUILT_IN, *ON_SPARK),
        gathers=unit.type in ON_SPARK,
    )


def _supplier(unit: Unit, code: UserCode, queries: Queries | None) -> Supplier:
    if unit.type in ON_SPARK:
        # Imported late: Arrow takes a while to import, and most tasks do not need it.
        from streams.sql.processor import SparkProcessor

        spec = QuerySpec.of(unit.code, unit.options, unit.config)
        assert queries is not None, "whoever runs such a processor has a Spark"
        return partial(SparkProcessor, spec, queries)
    make = _BUILT_IN.get(unit.type)
    if make is None:
        return class_supplier(code, unit.code, unit.config, unit.options.get("async", {}))
    return partial(make, **unit.config)


def _serde(options: Mapping[str, Any], name: str) -> Serde[Any]:
    return serdes.by_name(options.get(name, "bytes"))


def _group_of_topology(unit: Unit, code: UserCode) -> NodeGroup:
    topology = build_topology(code, unit.code, unit.config)
    name = unit.options["group"]
    for group in topology.groups:
        if group.name == name:
            topics = {
                **dict(zip(unit.from_, unit.in_topics, strict=True)),
                **dict(zip(unit.to, unit.out_topics, strict=True)),
            }
            return replace(
                group,
                nodes=tuple(_moved(node, topics) for node in group.nodes),
                global_stores=tuple(
                    _followed(store, unit.options) for store in group.global_stores
                ),
            )
    raise TopologyError(
        f'{unit.code} builds no node group with the first source "{name}" any more: the code here '
        "is not that of the JobManager"
    )


def _followed(store: GlobalStore, options: Mapping[str, Any]) -> GlobalStore:
    """Return a global store with its topic in Kafka."""
    topic = options["globals"][store.store.name]
    return replace(store, source=replace(store.source, topics=(topic,)))


def _moved(node: Node, topics: Mapping[str, str]) -> Node:
    """Return a node with the topics in Kafka instead of the builder's topics."""
    match node:
        case Source() | Sink():
            return replace(node, topics=tuple(topics.get(topic, topic) for topic in node.topics))
        case ProcessorNode():
            return node
