"""A stage is a processor; each of its tasks processes one partition of all inputs, as in a job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.backfill.outputs import OutputWriter, SortedRuns
from kafka_pipeline.streams.backfill.sorted_runs import batches
from kafka_pipeline.streams.backfill.tasks import Done, Workspace
from kafka_pipeline.streams.engine.global_task import GlobalTask
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.pipeline.units import group_of, settings_of
from kafka_pipeline.streams.sql.spec import Queries
from kafka_pipeline.streams.stores.bytes_store import BytesStore

_NO_LIMITS = TopicLimits(2**31 - 1)
_MOST_UNCOMMITTED = 100_000


@dataclass(frozen=True, slots=True)
class Input:
    """The runs of a topic's partition; `keeps_offsets` if they come from a topic in Kafka."""

    runs: tuple[Path, ...] = ()
    keeps_offsets: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    """What tasks must know about their output topics."""

    default_partitions: int
    partitions: Mapping[str, int] = field(default_factory=dict, hash=False)
    in_kafka: Mapping[str, TopicLimits] = field(default_factory=dict, hash=False)
    """The limits of those that go to topics, and not into files."""

    def num_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return self.partitions.get(topic, self.default_partitions)

    def limits(self, topic: str) -> TopicLimits:
        """Return what a topic accepts; a file takes all records."""
        return self.in_kafka.get(topic, _NO_LIMITS)

    def recheck_limits(self, topic: str) -> None:
        """Confirm the limits of a topic: a bounded run does not follow changes."""


@dataclass(frozen=True, slots=True)
class StageTask:
    """Processes the inputs of one replica from their first to their last record.

    Inputs are taken in the order of time, whatever the processor's type, so that the result is
    deterministic. The wall clock stands still at `now_ms`: it triggers no calls.
    """

    folder: Path
    config: Config
    replica: ProcessorReplica
    inputs: Mapping[str, Input]
    followed: Mapping[str, tuple[Input, ...]]
    """The partitions of topics that global stores follow."""
    topics: Topics
    now_ms: int

    def work(self, workspace: Workspace) -> Done:
        """See `BackfillTask.work`. Raises `ProcessingFailedError` as `on_error` says."""
        return self.work_with(workspace, None)

    def work_with(self, workspace: Workspace, queries: Queries | None) -> Done:
        """Do the same with `queries`, which runs the queries of Spark processors."""
        group = group_of(self.replica, UserCode.of(self.config), queries)
        stores: dict[str, BytesStore] = {}
        followers: dict[str, GlobalTask] = {}
        folder = workspace.path / "stores"
        try:
            for builder in group.stores:
                stores[builder.name] = builder.open(folder / builder.name, {})
            for store in group.global_stores:
                followers[store.store.name] = self._follow(store, workspace)
            return self._process(workspace, group, stores, followers)
        finally:
            for follower in followers.values():
                follower.close()
            for bytes_store in stores.values():
                bytes_store.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _follow(self, store: GlobalStore, workspace: Workspace) -> GlobalTask:
        """Return a global store filled with its whole topic, as tasks of a job find it."""
        inputs = self.followed[store.topic]
        task = GlobalTask(
            store,
            [(store.topic, number) for number in range(len(inputs))],
            store.store.open_in_memory(),
            application_id=self.config.job_name or "",
            clock_ms=lambda: self.now_ms,
            log_record_values=self.config.log_record_values,
        )
        for number, source in enumerate(inputs):
            for batch in batches(
                source.runs, store.topic, number, source.keeps_offsets, workspace.path
            ):
                task.add(batch)
        task.take_dropped()
        return task

    def _process(
        self,
        workspace: Workspace,
        group: NodeGroup,
        stores: Mapping[str, BytesStore],
        followers: Mapping[str, GlobalTask],
    ) -> Done:
        number = self.replica.task.partition
        readers = {
            (topic, number): batches(
                source.runs, topic, number, source.keeps_offsets, workspace.path
            )
            for topic, source in self.inputs.items()
        }
        nodes = GroupTask(
            group,
            list(readers),
            self._settings(),
            TaskEnvironment(
                application_id=self.config.job_name or "",
                task_id=str(self.replica.task),
                number=number,
                stores=stores,
                output_topics=self.topics,
                clock_ms=lambda: self.now_ms,
                max_timestamp_ahead_ms=self.config.max_timestamp_ahead_ms,
                global_stores={name: follower.view for name, follower in followers.items()},
                log_record_values=self.config.log_record_values,
            ),
        )
        done, runs = Done(), SortedRuns(workspace.path)
        writer = OutputWriter(runs, self.topics.num_partitions)
        try:
            for _ in self._feed(nodes, readers):
                outputs, figures = nodes.take()
                writer.write(outputs)
                done.add(figures)
                _commit(stores)
                workspace.progress(figures.records_in)
        finally:
            nodes.close()
        done.count_written(runs.close())
        return done

    def _feed(
        self, nodes: GroupTask, readers: Mapping[Partition, Iterator[RecordBatch]]
    ) -> Iterator[None]:
        """Let the nodes process all records, a batch of each input at a time; yield after steps."""
        ends: dict[Partition, int] = {}
        while len(ends) < len(readers):
            for partition, reader in readers.items():
                if partition in ends or nodes.waiting(partition):
                    continue
                batch = next(reader, None)
                if batch is None:
                    ends[partition] = 0
                else:
                    nodes.add(batch)
            while nodes.step(self.now_ms, ends).has_more:
                yield
            yield

    def _settings(self) -> GroupSettings:
        settings = settings_of(self.replica)
        return replace(
            settings,
            max_task_idle_ms=0,
            takes_inputs_as_they_come=settings.takes_inputs_as_they_come and len(self.inputs) == 1,
            # Backfill is as fast as it can be, so a minute says nothing about the records.
            max_dead_letters_per_minute=None,
            # Batches are large already.
            accumulates=False,
        )


def _commit(stores: Mapping[str, BytesStore]) -> None:
    """Commit the stores once many changes are in memory; nothing ever restores them."""
    if sum(len(store.uncommitted) for store in stores.values()) > _MOST_UNCOMMITTED:
        for store in stores.values():
            store.commit(0)
