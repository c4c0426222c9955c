"""Small processors and a node group in a task of its own, for the tests next to this file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    Processor,
    ProcessorContext,
    Record,
    Topology,
    TopologyBuilder,
    stores,
)
from kafka_pipeline import serdes as serde
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.record_batch import KafkaHeaders, OutputRecord, RecordBatch
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.engine.call_mark import CallMark, NoMark
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.outputs import (
    Counted,
    Dropped,
    Gauged,
    Note,
    Output,
    OutputColumns,
)
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.engine.runtime import GroupRuntime, Rejection
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.engine.task_time import TaskTime
from kafka_pipeline.streams.event_time.input_time import InputTime
from kafka_pipeline.streams.stores.bytes_store import BytesStore

SEEN = stores.key_value("seen", serde.bytes, serde.integer)

Sent = tuple[str, bytes | None, bytes | None, int]
"""Topic, key, value and partition; -1 where the key decides."""


class Each(Processor):
    """Forwards every record; raises `ValueError` for the value `bad`, after forwarding it."""

    def process(self, record: Record) -> None:
        self.context.forward(record)
        if record.value == b"bad":
            raise ValueError("no good")


class Whole(BatchProcessor):
    """Forwards every batch; raises `ValueError` for one with a value `bad`, after forwarding it."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch)
        if b"bad" in batch.values:
            raise ValueError("no good")


class CountSeen(Processor):
    """Counts in the store `seen` how often it saw a value, and forwards the record."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store(SEEN.name)

    def process(self, record: Record) -> None:
        self.seen.put(record.value, (self.seen.get(record.value) or 0) + 1)
        self.context.forward(record)


class CountSeenWhole(BatchProcessor):
    """Like `CountSeen`, but for batches, which it passes on unchanged."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.seen = context.get_state_store(SEEN.name)

    def process(self, batch: Batch) -> None:
        for value in batch.values:
            self.seen.put(value, (self.seen.get(value) or 0) + 1)
        self.context.forward(batch)


def calling(process: Callable[[ProcessorContext, Record], None]) -> type[Processor]:
    """Return a processor that calls a function."""

    class Calling(Processor):
        def process(self, record: Record) -> None:
            process(self.context, record)

    return Calling


def calling_whole(process: Callable[[ProcessorContext, Batch], None]) -> type[BatchProcessor]:
    """Return a processor of batches that calls a function."""

    class Calling(BatchProcessor):
        def process(self, batch: Batch) -> None:
            process(self.context, batch)

    return Calling


def starting(init: Callable[[ProcessorContext], object]) -> type[Processor]:
    """Return a processor that calls a function in `init`, and forwards records."""

    class Starting(Processor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            init(context)

        def process(self, record: Record) -> None:
            self.context.forward(record)

    return Starting


def sound() -> TopologyBuilder:
    """Return a builder with a source, a processor and a sink in a row."""
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("processor", Each, ["source"])
    builder.add_sink("sink", "out", ["processor"])
    return builder


def all_of(*calls: Callable[[TopologyBuilder], object]) -> Callable[[TopologyBuilder], object]:
    """Return one call that makes several."""

    def call(builder: TopologyBuilder) -> None:
        for each in calls:
            each(builder)

    return call


def groups(topology: Topology) -> list[set[str]]:
    """Return the names of the nodes of each group."""
    return [{node.name for node in group.nodes} for group in topology.groups]


def one(supplier: type[Processor] | type[BatchProcessor]) -> Topology:
    """Return a topology with one processor, as `chain` makes it."""
    group = chain(supplier)
    return Topology(group.nodes, group.stores)


def chain(*suppliers: Any, topics: Sequence[str] = ("in",), uses: Iterable[int] = ()) -> NodeGroup:
    """Return a group of processors one behind the other, and a sink that writes `out`.

    They are called `0`, `1` and so on; those in `uses` have the store `seen`.
    """
    builder = TopologyBuilder()
    builder.add_source("source", topics)
    parent = "source"
    for number, supplier in enumerate(suppliers):
        builder.add_processor(str(number), supplier, parent)
        parent = str(number)
    if users := [str(number) for number in uses]:
        builder.add_state_store(SEEN, users)
    builder.add_sink("sink", "out", parent)
    (group,) = builder.build().groups
    return group


def fork(parent: Any, **children: Any) -> NodeGroup:
    """Return a processor `parent` with children, each with a sink that writes the child's name."""
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("parent", parent, "source")
    for name, child in children.items():
        builder.add_processor(name, child, "parent")
        builder.add_sink(f"sink of {name}", name, name)
    (group,) = builder.build().groups
    return group


@dataclass
class OutputTopics:
    """Topics that have a number of partitions and a limit of bytes, or all limits."""

    partitions: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    given: Mapping[str, TopicLimits] = field(default_factory=dict)
    outdated: bool = False
    """Whether the limits do not hold any more."""

    def num_partitions(self, topic: str) -> int:
        return self.partitions.get(topic, 4)

    def limits(self, topic: str) -> TopicLimits:
        return self.given.get(topic) or TopicLimits(self.sizes.get(topic, 1_000_000))

    def recheck_limits(self, topic: str) -> None:
        if self.outdated:
            raise EngineError(f"the limit of {topic} has changed")


class Clock:
    """A wall clock that is set by hand."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def in_memory(group: NodeGroup) -> dict[str, BytesStore]:
    """Return an empty store in memory for each of the group."""
    return {s.name: replace(s, persistent=False).open(Path(), {}) for s in group.stores}


def content(store: BytesStore) -> dict[bytes, bytes]:
    """Return all entries, those of the open transaction included."""
    return dict(store.scan(b"", None))


class Nodes:
    """A `GroupRuntime` with its surroundings."""

    def __init__(
        self,
        group: NodeGroup,
        output_topics: OutputTopics | None = None,
        partition: int = 0,
        stores: dict[str, BytesStore] | None = None,
        *,
        follows_records: bool = True,
        clocked_topics: Sequence[str] = (),
    ) -> None:
        self.clock = Clock()
        self.stores = stores or in_memory(group)
        task_time = TaskTime([])
        task_time.follows_records = follows_records
        self.runtime = GroupRuntime(
            group,
            TaskEnvironment(
                application_id="app",
                task_id=f"{group.name}_{partition}",
                number=partition,
                stores=self.stores,
                output_topics=output_topics or OutputTopics(),
                clock_ms=self.clock,
                clocked_topics=clocked_topics,
            ),
            task_time,
        )

    def process(self, batch: RecordBatch) -> list[Rejection]:
        """Process a whole batch; return which records were rejected."""
        rejected = []
        start = 0
        while start < len(batch):
            end = self.runtime.process(batch, start, len(batch))
            if isinstance(end, Rejection):
                rejected.append(end)
                start = end.index + 1
            else:
                start = end
        return rejected

    @property
    def sent(self) -> list[Sent]:
        """The outputs of sinks so far."""
        return sent(self.runtime.outputs)

    @property
    def values(self) -> list[bytes | None]:
        """The values of that."""
        return [value for _, _, value, _ in self.sent]


class Tasks:
    """A `GroupTask` with its surroundings."""

    def __init__(
        self,
        group: NodeGroup,
        settings: GroupSettings,
        output_topics: OutputTopics | None = None,
        topics: Sequence[str] | None = None,
        number: int = 0,
        on_user_error: Callable[[Exception], None] = lambda error: None,
        times: Mapping[Partition, int] = {},
        log_record_values: bool = False,
        suspects: Sequence[Suspect] = (),
        new_mark: Callable[[], CallMark] = NoMark,
        input_time: InputTime | None = None,
    ) -> None:
        self.clock = Clock()
        self.stores = in_memory(group)
        self.partitions = {(topic, number): 0 for topic in topics or group.in_topics}
        self.enforced = 0
        """How often records were processed though a partition had none."""
        self.task = GroupTask(
            group,
            self.partitions,
            settings,
            TaskEnvironment(
                application_id="app",
                task_id=f"{group.name}_{number}",
                number=number,
                stores=self.stores,
                output_topics=output_topics or OutputTopics(),
                clock_ms=self.clock,
                log_record_values=log_record_values,
                suspects=suspects,
                new_mark=new_mark,
            ),
            times=times,
            input_time=input_time,
            on_user_error=on_user_error,
        )

    def run(self, *batches: RecordBatch) -> list[Sent]:
        """Take batches in and process all that can be; return what was put out."""
        for batch in batches:
            self.task.add(batch)
        self.task.step(self.clock.now_ms, self.partitions)
        return self.taken()

    def taken(self) -> list[Sent]:
        """Return what was put out since the last call."""
        outputs, figures = self.task.take()
        self.enforced += figures.enforced
        return sent(outputs)


def sent(outputs: Sequence[Output]) -> list[Sent]:
    """Return outputs record by record, whatever form they have."""
    records: list[Sent] = []
    for output in outputs:
        if isinstance(output, OutputColumns):
            partitions = output.partitions or [-1] * len(output.keys)
            for key, value, number in zip(output.keys, output.values, partitions, strict=True):
                assert key is not None or number >= 0
                records.append((output.topic, key, value, number))
        elif not isinstance(output, Note):
            topic, key, value, partition, *_ = output
            records.append((topic, key, value, partition))
    return records


def expanded(output: Output) -> Iterator[tuple[Any, ...]]:
    """Return the records of an output, or what was dropped."""
    if isinstance(output, OutputColumns):
        headers = output.headers or [None] * len(output.keys)
        rows = zip(output.keys, output.values, output.timestamps, headers, strict=True)
        yield from ((output.topic, *row) for row in rows)
    elif isinstance(output, Dropped):
        yield "dropped", output.reason
    elif isinstance(output, Counted):
        yield "counted", output.series, output.amount
    elif isinstance(output, Gauged):
        yield "gauged", output.series, output.value
    else:
        topic, key, value, _, timestamp, sent_headers = output
        yield topic, key, value, timestamp, sent_headers or None


def without_place(output: Output) -> OutputRecord:
    """Return a dead letter that does not say where in the user's code it was rejected."""
    assert isinstance(output, tuple)
    headers = [
        (name, value.split(b" (")[0] if value and name == "__streams.errors.message" else value)
        for name, value in output[5] or []
        if name != "__streams.errors.stacktrace"
    ]
    return (*output[:5], headers)


def batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    topic: str = "in",
    partition: int = 0,
    offset: int = 0,
    headers: Sequence[KafkaHeaders] | None = None,
) -> RecordBatch:
    """Return records with these values; without keys and at time 0 by default."""
    size = len(values)
    return RecordBatch(
        topic,
        partition,
        [None] * size if keys is None else keys,
        values,
        [0] * size if timestamps is None else timestamps,
        range(offset, offset + size),
        headers,
    )
