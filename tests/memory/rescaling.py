"""Gives a job on the brokers in memory other numbers of tasks, as `pipeline rescale` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.operations.savepoints.manifest import (
    SavedInput,
    SavedPartition,
    SavedPosition,
    SavedStore,
)
from kafka_pipeline.operations.savepoints.record_files import RecordFile, read_records
from kafka_pipeline.operations.savepoints.saved_state import Spreads
from kafka_pipeline.operations.savepoints.sharding import (
    check_spread,
    spread_position,
    with_parallelism,
)
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.rescaling.tasks import Tasks
from tests.memory.broker import Broker
from tests.memory.partition_log import Entry


class Rescaling:
    """A savepoint of a job that is stopped, and the pipeline with another parallelism."""

    def __init__(self, broker: Broker, former: Pipeline, parallelism: int, folder: Path) -> None:
        """Raises `ConfigError` if that is not possible, and changes nothing."""
        self._broker = broker
        self._former = former
        self._folder = folder
        target = with_parallelism(former, parallelism)
        counts = {topic: former.partitions_of(topic) for topic in former.user_topics}
        internal = dict.fromkeys(target.uncounted_topics, parallelism)
        self.pipeline = pipeline = with_counts(target, counts, internal)
        self._stores = list(self._saved_stores())
        self._inputs = list(self._saved_inputs())
        self._spreads = Spreads(folder, former, pipeline)
        check_spread(former, pipeline, {each.processor for each in self._stores}, ())
        self._spreads.check(self._stores)
        self._spreads.check_left(self._inputs)
        self.moved = {each.processor for each in self._inputs if self._changes(each.topic)}
        """The processors whose positions are set."""
        self._left = {
            each.topic: list(self._waiting(each))
            for each in self._inputs
            if each.is_arc and each.processor in self.moved
        }

    def carry_out(self) -> None:
        """Create the topics again, fill them, and commit where each processor begins."""
        spread = [each for each in self._stores if self._spreads.is_changed(*_place(each))]
        rows: dict[str, list[OutputRecord]] = {
            each.topic: [
                (each.topic, *row)
                for row in self._spreads.of(each.processor, self._stores).rows(each.store)
            ]
            for each in spread
        }
        specs = {spec.name: spec for spec in self.pipeline.data_topics(1)}
        for topic, records in {**rows, **self._left}.items():
            former_id = self._broker.topic(topic).id
            self._broker.create_topics([specs[topic]])
            self._broker.topic(topic).id = f"{former_id}+"
            for _, key, value, partition, timestamp, headers in records:
                self._broker.write((topic, partition), key, value, timestamp, headers)
        groups = {each: self._former.names.consumer_group(each) for each in self.moved}
        for group in groups.values():
            self._broker.forget(group)
        for each in self._inputs:
            if each.processor in self.moved:
                self._broker.set_committed(groups[each.processor], self._positions(each))

    def _changes(self, topic: str) -> bool:
        return self._former.partitions_of(topic) != self.pipeline.partitions_of(topic)

    def _tasks(self, topic: str) -> Tasks:
        return Tasks(self._former.partitions_of(topic), self.pipeline.partitions_of(topic))

    def _positions(self, saved: SavedInput) -> dict[Partition, Committed]:
        before = {each.partition: each.committed for each in saved.positions}
        if not saved.is_arc:
            found = {number: at.moved(at.offset) for number, at in before.items()}
        elif self._changes(saved.topic):
            found = spread_position(saved, self._tasks(saved.topic))
        else:
            found = {number: at.moved(0) for number, at in before.items()}
        return {(saved.topic, number): at for number, at in found.items()}

    def _waiting(self, saved: SavedInput) -> Iterator[OutputRecord]:
        for part in saved.left:
            if self._changes(saved.topic):
                tasks = self._tasks(saved.topic)
                yield from self._spreads.left(saved, part.partition, saved.topic, tasks)
                continue
            for records in read_records(self._folder, saved.topic, part.partition):
                for key, value, *rest in records.rows():
                    yield saved.topic, key, value, part.partition, *rest

    def _saved_stores(self) -> Iterator[SavedStore]:
        for each in self._former.processors:
            for name, topic in self._former.state_topics(each).items():
                tasks = range(self._former.task_count(each))
                parts = tuple(self._saved((topic, number), 0) for number in tasks)
                yield SavedStore(processor=each.id, store=name, topic=topic, partitions=parts)

    def _saved_inputs(self) -> Iterator[SavedInput]:
        former, arcs = self._former, self._former.arcs
        for processor in former.processors:
            at = self._broker.positions_of(former.names.consumer_group(processor.id))
            for name, topic in former.inputs(processor).items():
                places = former.places(topic)
                left: list[SavedPartition] = []
                if topic in arcs:
                    left = [self._saved(p, at[p].offset if p in at else 0) for p in places]
                yield SavedInput(
                    processor=processor.id,
                    name=name,
                    topic=topic,
                    topic_id=self._broker.topic(topic).id,
                    is_arc=topic in arcs,
                    positions=tuple(
                        SavedPosition(partition=p[1], offset=at[p].offset, metadata=at[p].metadata)
                        for p in places
                        if p in at
                    ),
                    left=tuple(each for each in left if each.records),
                )

    def _saved(self, place: Partition, begin: int) -> SavedPartition:
        """Write the records of a partition to a file."""
        log = self._broker.log(place)
        offsets, _ = log.visible(max(begin, log.start))
        entries = [log.entries[offset] for offset in offsets]
        file = RecordFile(self._folder, *place)
        if entries:
            file.write(_batch(place, entries))
        return file.finish()


def _batch(place: Partition, entries: Sequence[Entry]) -> RecordBatch:
    return RecordBatch(
        *place,
        [each.key for each in entries],
        [each.value for each in entries],
        [each.timestamp for each in entries],
        list(range(len(entries))),
        [each.headers for each in entries],
    )


def _place(saved: SavedStore) -> tuple[str, str]:
    return saved.processor, saved.store
