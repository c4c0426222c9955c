"""A stage is a processor; each of its tasks processes one partition of all inputs, as in a job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import NO_LIMITS, TopicLimits
from kafka_pipeline.streams.backfill.kept_state import KeptState
from kafka_pipeline.streams.backfill.outputs import OutputWriter, SortedRuns
from kafka_pipeline.streams.backfill.sorted_runs import batches, least_clocks
from kafka_pipeline.streams.backfill.tasks import Done, Workspace, require_runs
from kafka_pipeline.streams.engine.global_task import GlobalTask
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.node_group import GlobalStore, NodeGroup
from kafka_pipeline.streams.engine.nodes import ProcessorNode
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.event_time.input_time import InputTime, Mark
from kafka_pipeline.streams.event_time.progress import UNKNOWN, Progress
from kafka_pipeline.streams.pipeline.units import group_of, settings_of
from kafka_pipeline.streams.sql.spec import Queries
from kafka_pipeline.streams.stores.bytes_store import BytesStore

_MOST_UNCOMMITTED = 100_000
_NEVER_MS = 2**63


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
        return self.in_kafka.get(topic, NO_LIMITS)

    def recheck_limits(self, topic: str) -> None:
        """Confirm the limits of a topic: a bounded run does not follow changes."""


@dataclass(frozen=True, slots=True)
class Round:
    """What makes a task one of a round: it goes on from the former one, and leaves its state.

    `before` is the folder that the same task had then, if this is not the first round. Of each
    input in `ranges`, it takes the records with offsets from the first number up to the second one.
    Only what goes to the `outputs` is written.

    `clocks` has the least clock of the records that later rounds will bring, by internal input; -1
    while unknown. `reached` has the times, by store, that the steps of the task have reached in the
    job that runs: windows that have closed there close here, and no others do at the end.
    """

    before: Path | None
    ranges: Mapping[str, tuple[int, int]] = field(hash=False)
    outputs: frozenset[str]
    clocks: Mapping[str, int] = field(default_factory=dict, hash=False)
    reached: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StageTask:
    """Processes the inputs of one replica from their first to their last record.

    Inputs are taken in the order of time, whatever the processor's type, so that the result is
    deterministic. The wall clock stands still at `now_ms`: it triggers no calls.

    Without a `round`, the stores begin empty, and end with the task.
    """

    folder: Path
    config: Config
    replica: ProcessorReplica
    inputs: Mapping[str, Input]
    followed: Mapping[str, tuple[Input, ...]]
    """The partitions of topics that global stores follow."""
    topics: Topics
    now_ms: int
    round: Round | None = None

    def work(self, workspace: Workspace) -> Done:
        """See `BackfillTask.work`. Raises `ProcessingFailedError` as `on_error` says."""
        return self.work_with(workspace, None)

    def work_with(self, workspace: Workspace, queries: Queries | None) -> Done:
        """Do the same with `queries`, which runs the queries of Spark processors."""
        group = group_of(
            self.replica, UserCode.of(self.config), queries, self.config.schema_registry
        )
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
        input_time = self._input_time(group)
        readers = {
            (topic, number): self._records_of(topic, source, group, input_time, workspace)
            for topic, source in self.inputs.items()
        }
        kept, times = self._kept(stores), dict[str, int]()
        if kept is not None and self.round is not None and self.round.before is not None:
            times = require_runs(self.round.before).times
            kept.restore(self.round.before)
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
                clocked_topics=() if input_time is None else self.replica.arcs.keys(),
            ),
            times={(topic, number): time_ms for topic, time_ms in times.items()},
            input_time=input_time,
        )
        self._require_no_wall_clock(nodes)
        done, runs = Done(), SortedRuns(workspace.path)
        wanted = None if self.round is None else self.round.outputs
        writer = OutputWriter(runs, self.topics.num_partitions, wanted)
        try:
            for _ in self._feed(nodes, readers):
                outputs, figures = nodes.take()
                writer.write(outputs)
                done.add(figures)
                if sum(len(store.uncommitted) for store in stores.values()) > _MOST_UNCOMMITTED:
                    _commit(stores, kept)
                workspace.progress(figures.records_in)
            if kept is not None:
                self._require_no_wall_clock(nodes)
                kept.write(runs)
                done.times = {topic: nodes.partition_time((topic, number)) for topic in self.inputs}
                done.clocks = self._clocks(group, input_time, done.times)
        finally:
            nodes.close()
        done.count_written(runs.close())
        return done

    def _kept(self, stores: Mapping[str, BytesStore]) -> KeptState | None:
        return None if self.round is None else KeptState(stores, self.replica.task.partition)

    def _require_no_wall_clock(self, nodes: GroupTask) -> None:
        """Raise `ConfigError` if the state of a round depends on when something was done."""
        if self.round is not None and nodes.runtime.next_wall_clock_punctuation is not None:
            raise ConfigError(
                f"{self.replica.name} changes its state by the wall clock (a punctuation, or "
                "windows with close_after_idle_ms): its state cannot be computed again"
            )

    def _records_of(
        self,
        topic: str,
        source: Input,
        group: NodeGroup,
        input_time: InputTime | None,
        workspace: Workspace,
    ) -> Iterator[RecordBatch]:
        """Return the records of an input, each batch once event time knows of what follows it."""
        number, folder = self.replica.task.partition, workspace.path
        found = batches(source.runs, topic, number, source.keeps_offsets, folder)
        if self.round is None:
            return found
        if topic in self.round.ranges:
            return _within(found, *self.round.ranges[topic])
        if input_time is None:
            return found
        last = self._last_clock(topic, group, self.round)
        backwards = reversed(least_clocks(source.runs, folder))
        marks = [*accumulate(backwards, min, initial=last)][::-1]
        return _marked(found, (topic, number), input_time, marks)

    def _last_clock(self, topic: str, group: NodeGroup, at: Round) -> int:
        """Return how far event time is with an internal input at the end of a round."""
        if not at.reached:
            return at.clocks.get(topic, UNKNOWN)
        found = (
            now + group.hold_ms(node.name)
            for node in group.nodes
            if isinstance(node, ProcessorNode)
            for store in node.stores
            if (now := at.reached.get(store, UNKNOWN)) != UNKNOWN
        )
        return max(found, default=UNKNOWN)

    def _input_time(self, group: NodeGroup) -> InputTime | None:
        """Return the time of a round's inputs as in a running task: no source is ever idle."""
        spec, number = self.replica.event_time, self.replica.task.partition
        if self.round is None or spec is None:
            return None
        writers = {
            (topic, number): sum(writer.tasks for writer in spec.writers.get(topic, ()))
            for topic in self.inputs
        }
        if len(writers) > 1 and any(writers.values()) and group.looks_up:
            raise ConfigError(
                f"{self.replica.name} looks records up in a table, and reads other processors: "
                "which of their records came first cannot be computed again"
            )
        holds = any(map(group.hold_ms_to, self.replica.arcs))
        return InputTime(writers, _NEVER_MS, looked_up=spec.looked_up, passes_sources_on=holds)

    def _clocks(
        self, group: NodeGroup, input_time: InputTime | None, times: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the least clock that records for each internal topic will have from now on."""
        if input_time is None:
            return {}
        now = input_time.time_ms
        if input_time.follows_records:
            now = min((time for time in times.values() if time != UNKNOWN), default=UNKNOWN)
        return {topic: max(now - group.hold_ms_to(topic), UNKNOWN) for topic in self.replica.arcs}

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


def _within(found: Iterator[RecordBatch], start: int, end: int) -> Iterator[RecordBatch]:
    """Yield the records with offsets from `start` up to `end`."""
    for batch in found:
        part = batch.part(batch.count_before(start), batch.count_before(end))
        if len(part):
            yield part


def _marked(
    found: Iterator[RecordBatch], partition: Partition, input_time: InputTime, marks: Sequence[int]
) -> Iterator[RecordBatch]:
    """Yield batches; `marks` are the least clocks of all records after each number of batches."""
    first, *following = map(Progress, marks)
    input_time.learn({partition: Mark(0, first, first)})
    for batch, progress in zip(found, following, strict=True):
        input_time.learn({partition: Mark(batch.offsets[-1] + 1, progress, progress)})
        yield batch


def _commit(stores: Mapping[str, BytesStore], kept: KeptState | None) -> None:
    """Commit the stores, as many changes are in memory."""
    if kept is not None:
        kept.commit()
        return
    for store in stores.values():
        store.commit(0)
