"""Builds the node group that the tasks of a pipeline.yaml processor run."""

from __future__ import annotations

import json
from dataclasses import replace

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.references import References, with_values
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.pipeline.kinds.kind import Unit
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.sql.spec import Queries


def group_of(
    unit: Unit,
    code: UserCode,
    queries: Queries | None = None,
    registry: RegistrySettings | None = None,
) -> NodeGroup:
    """Return the nodes of a processor, with the topics that it reads and writes in Kafka.

    A built-in type or a user's class is one node between sources and sinks; the sinks have the
    names of the targets in `to`. `queries` runs the processors that are Spark's, and `registry` has
    the schemas of serdes. Raises ConfigError if user code is not found or fails, TopologyError if
    it builds an invalid topology, and UnavailableError without the packages for schemas.
    """
    return kind_of(unit.spec).group(unit, unit.spec, code, queries, registry)


def valued(
    replica: ProcessorReplica, of: References | None, tables: TableSettings
) -> ProcessorReplica:
    """Return a task whose user code gets values in place of the references in its `config`.

    A task that writes a table gets its place on this host, if `tables` allows that, and values in
    place of references too.

    Tables and functions of DataFrames get theirs from `Queries`. `of` may be None if no code has
    references. What comes back is for `group_of` alone: nothing may write, send or log it. Raises
    ConfigError, which names the processor.
    """
    spec = with_values(replica.spec, of, replica.name)
    spec = kind_of(spec).located(spec, tables)
    return replica if spec is replica.spec else replace(replica, spec=spec)


def sharing_key(unit: Unit) -> str:
    """Return a string that is the same for units that have the same global stores."""
    spec = unit.spec
    serdes = {name: [*map(repr, both)] for name, both in spec.global_serdes.items()}
    stores = [dict(spec.global_stores), sorted(spec.change_stores), serdes]
    content = [spec.what, dict(spec.parameters), stores]
    return json.dumps(content, sort_keys=True)


def settings_of(unit: Unit) -> GroupSettings:
    """Return the settings of a processor's tasks."""
    kind = kind_of(unit.spec)
    return GroupSettings(
        on_error=unit.on_error,
        dead_letter_topic=unit.dead_letter_topic,
        max_dead_letters_per_minute=unit.max_dead_letters_per_minute,
        max_task_idle_ms=unit.spec.max_task_idle_ms,
        buffered_records=unit.spec.buffered_records,
        takes_inputs_as_they_come=kind.takes_inputs_as_they_come(unit.spec),
        accumulates=kind.needs_spark,
    )
