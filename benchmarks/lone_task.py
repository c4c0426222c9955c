"""A task without Kafka around it, for benchmarks of what it does itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.engine.record_queues import NEVER_WAIT
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.spark.environment import DEFAULTS
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.stores.bytes_store import BytesStore

PARTITIONS = 4
"""The number of partitions of each topic, as librdkafka's mock broker creates them."""

_JVM_OPTIONS = "spark.driver.extraJavaOptions"


class OutputTopics:
    """Topics with the limits that Kafka has by default."""

    def num_partitions(self, topic: str) -> int:
        return PARTITIONS

    def limits(self, topic: str) -> TopicLimits:
        return TopicLimits(1_000_000, after_ms=3_600_000)

    def recheck_limits(self, topic: str) -> None:
        pass


def lone_task(
    group: NodeGroup,
    stores: Mapping[str, BytesStore],
    partitions: Sequence[tuple[str, int]] = (("source", 0),),
    *,
    is_ordered: bool = False,
) -> GroupTask:
    """Return a task that takes its inputs as they come, or in the order of what was added."""
    return GroupTask(
        group,
        partitions,
        GroupSettings(max_task_idle_ms=NEVER_WAIT, takes_inputs_as_they_come=not is_ordered),
        TaskEnvironment(
            application_id="bench",
            task_id="Stage_0",
            number=0,
            stores=stores,
            output_topics=OutputTopics(),
            clock_ms=lambda: int(time.time() * 1000),
            max_timestamp_ahead_ms=86_400_000,
        ),
    )


def lasting_queries(code: UserCode, config: Config) -> LocalQueries:
    """Return queries of this process, whose JVM is as that of a TaskManager, not of a command."""
    return LocalQueries(code, Readable.of(config), {_JVM_OPTIONS: DEFAULTS[_JVM_OPTIONS]})


def results_of(task: GroupTask, *batches: RecordBatch) -> list[OutputRecord | OutputColumns]:
    """Process batches, and return what they lead to."""
    for batch in batches:
        task.add(batch)
    while task.step(0, {}).has_more:
        pass
    return task.take()[0]
