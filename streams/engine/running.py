"""The nodes of a group as they run in a task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from kafka_pipeline.common.code.error_words import is_literal
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.errors import OwnError
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.record_batch import (
    MAX_OVERHEAD,
    KafkaHeaders,
    RecordBatch,
    size_bound,
    sizes,
)
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.clocks import with_clock, with_clocks
from kafka_pipeline.streams.engine.accepted import Accepted
from kafka_pipeline.streams.engine.async_calls import PendingCall
from kafka_pipeline.streams.engine.either_way import EitherWay, MakeColumn, ReadsLazily
from kafka_pipeline.streams.engine.left_undone import refuse_lost
from kafka_pipeline.streams.engine.nodes import Sink, Source
from kafka_pipeline.streams.engine.outputs import Dropped, Output, OutputColumns, OutputTopics
from kafka_pipeline.streams.engine.running_async import RunningAsync
from kafka_pipeline.streams.engine.running_node import BatchReceiver, RunningNode, check_methods
from kafka_pipeline.streams.engine.sendable import sendable_headers
from kafka_pipeline.streams.engine.task_time import TaskTime
from kafka_pipeline.streams.errors import SerializationError, StreamsError, reworded
from kafka_pipeline.streams.partitioning import ChooseForAll, ColumnPartitioner, choose
from kafka_pipeline.streams.processor import (
    BatchProcessor,
    Processor,
    RecordRejectedError,
)
from kafka_pipeline.streams.record import Batch, LazyColumn, Record, items_of
from kafka_pipeline.streams.timestamps import following

if TYPE_CHECKING:
    from kafka_pipeline.streams.engine.context import RunningContext

Column = Sequence[Any]
ConvertAll = Callable[[Column], list[Any]]

DROPPED_BY_PARTITIONER = "partitioner"
_NULL = type(None)
_BYTES = frozenset((bytes, _NULL))


class RunningProcessor(RunningNode):
    """A `Processor` or `BatchProcessor`; either kind takes both records and batches."""

    def __init__(
        self, name: str, processor: Processor | BatchProcessor, task_time: TaskTime
    ) -> None:
        self.name = name
        self._task_time = task_time
        self.processor = processor
        self.context: RunningContext | None = None
        """Its view of the task, once that is made."""
        self.is_columnar = isinstance(processor, BatchProcessor)
        self.takes_records = isinstance(processor, Processor | EitherWay)
        """Whether there is a way for single records."""
        if isinstance(processor, BatchProcessor):
            if isinstance(processor, EitherWay):
                self.receive, self.receive_batch = processor.process_record, processor.process
            else:
                self.receive, self.receive_batch = self._receive_alone, self._receive_columns
        elif isinstance(processor, Processor):
            self.receive = processor.process
            self.receive_batch = self._receive_each
        else:
            raise StreamsError(
                f'processor "{name}" is a {type(processor).__name__}: make it a subclass of '
                "Processor, BatchProcessor or AsyncProcessor"
            )
        check_methods(name, processor)

    def _receive_each(self, batch: Batch) -> None:
        self._task_time.each(batch, self.receive)

    def _receive_alone(self, record: Record) -> None:
        batch = Batch.of(record)
        if self._task_time.clock > record.timestamp:
            batch.clocks = [self._task_time.clock]
        self._receive_columns(batch)

    def _receive_columns(self, batch: Batch) -> None:
        # A processor of a user knows nothing of clocks: what it forwards gets those of this batch.
        process: BatchReceiver = cast(BatchProcessor, self.processor).process
        context = self.context
        if batch.clocks is None or context is None:
            if (returned := process(batch)) is not None:
                refuse_lost(process, returned)
            return
        context.given = batch
        try:
            if (returned := process(batch)) is not None:
                refuse_lost(process, returned)
        finally:
            context.given = None

    def close(self) -> None:
        self.processor.close()


class RunningSink(RunningNode):
    """Serializes records and keeps them until they are sent."""

    is_columnar = True

    def __init__(
        self,
        sink: Sink,
        outputs: list[Output],
        output_topics: OutputTopics,
        keyless_partition: int,
        task_time: TaskTime,
        clocked_topics: Collection[str],
        clock_ms: Callable[[], int],
    ) -> None:
        """Records of the `clocked_topics` carry their clocks."""
        self.name = sink.name
        self._where = f'sink "{sink.name}"'
        self._topic = sink.topics[0] if sink.chooser is None else ""
        self._chooser = sink.chooser
        self._choices = dict(zip(sink.names, sink.topics, strict=True)) if sink.names else None
        self._partitioner = sink.partitioner
        self._serialize_key = sink.key_serde.serialize
        self._serialize_value = sink.value_serde.serialize
        self._write_keys, self._write_values = _writer(sink.key_serde), _writer(sink.value_serde)
        self._takes_bytes = sink.key_serde is sink.value_serde is serdes.bytes
        self._outputs = outputs
        self._output_topics = output_topics
        self._keyless_partition = keyless_partition
        self._task_time = task_time
        self._sends_clocks = self._topic in clocked_topics
        self._clock_ms = clock_ms
        self._accepted: dict[str, Accepted] = {}
        self._keyless: dict[str, int] = {}
        self.receive_batch = self._receive_columns
        self._choose_for_all: ChooseForAll | None = None
        if isinstance(sink.partitioner, ColumnPartitioner):
            self._choose_for_all = sink.partitioner.of_columns
        elif sink.chooser is not None or sink.partitioner is not None:
            self.receive_batch = self._receive_each

    def receive(self, record: Record) -> None:
        """Take a record. Raises errors that reject the input record that led to it."""
        key, value, timestamp = record.key, record.value, record.timestamp
        topic = self._topic if self._chooser is None else self._chosen(record)
        try:
            key_data = None if key is None else self._serialize_key(key)
        except SerializationError as error:
            raise self._unwritable("key", error) from error
        try:
            data = None if value is None else self._serialize_value(value)
        except SerializationError as error:
            raise self._unwritable("value", error) from error
        accepted = self._accepted.get(topic) or self._limits_of(topic)
        if timestamp.__class__ is not int or not accepted.from_ms <= timestamp <= accepted.until_ms:
            accepted.require_time(timestamp)
        headers = sendable_headers(self._where, record.headers) if record.headers else None
        if self._sends_clocks and self._task_time.clock > timestamp:
            headers = with_clock(headers, self._task_time.clock)
        size = MAX_OVERHEAD
        if key_data is not None:
            size += len(key_data)
        elif accepted.needs_key:
            accepted.refuse_keyless()
        if data is not None:
            size += len(data)
        if headers or size > accepted.size_bytes:
            accepted.require_fit(key_data, data, headers)
        if self._partitioner is not None:
            count = self._output_topics.num_partitions(topic)
            partitions = choose(self._partitioner, topic, key, value, count)
            if partitions is not None:
                if not partitions:
                    self._outputs.append(Dropped(DROPPED_BY_PARTITIONER, topic))
                for partition in partitions:
                    self._outputs.append((topic, key_data, data, partition, timestamp, headers))
                return
        partition = self._keyless_in(topic) if key_data is None else -1
        self._outputs.append((topic, key_data, data, partition, timestamp, headers))

    def _receive_each(self, batch: Batch) -> None:
        self._task_time.each(batch, self.receive)

    def _receive_columns(self, batch: Batch) -> None:
        if not len(batch):
            return
        given, keys, values = batch.given, batch.keys, batch.values
        kinds: set[type] = set()
        is_sendable = False
        if self._takes_bytes and isinstance(keys, list) and isinstance(values, list):
            kinds = set(map(type, keys))
            is_known = given is not None and values is given.values
            is_sendable = kinds <= _BYTES and (is_known or _BYTES.issuperset(map(type, values)))
        if is_sendable:
            keys = _kept(keys, None if given is None else given.keys)
            values = _kept(values, None if given is None else given.values)
        else:
            keys = self._written("key", keys, self._write_keys)
            values = self._written("value", values, self._write_values)
            kinds = set(map(type, keys))
        topic = self._topic
        accepted = self._accepted.get(topic) or self._limits_of(topic)
        timestamps = batch.timestamps
        if (
            given is None
            or timestamps is not given.timestamps
            or accepted.from_ms
            or given.largest_timestamp(0, len(given)) > accepted.until_ms
        ):
            timestamps = _kept(items_of(timestamps), None if given is None else given.timestamps)
            accepted.require_times(timestamps)
        if accepted.needs_key and _NULL in kinds:
            accepted.refuse_keyless()
        headers: list[KafkaHeaders] | None = None
        if batch.headers is not None:
            where = self._where
            headers = [sendable_headers(where, each) if each else None for each in batch.headers]
        if self._sends_clocks and batch.clocks is not None:
            headers = with_clocks(headers, timestamps, batch.clocks)
        value_sizes = sizes(values)
        if size_bound(keys, value_sizes, headers) > accepted.size_bytes:
            for index, (key, value) in enumerate(zip(keys, values, strict=True)):
                accepted.require_fit(key, value, headers[index] if headers else None)
        partitions: Sequence[int] | None = None
        if self._choose_for_all is not None:
            count = self._output_topics.num_partitions(topic)
            partitions = self._choose_for_all(batch.keys, batch.values, count)
        elif _NULL in kinds:
            keyless = self._keyless_in(topic)
            partitions = [keyless if key is None else -1 for key in keys]
        size = sum(value_sizes)
        columns = OutputColumns(topic, keys, values, timestamps, headers, partitions, size)
        self._outputs.append(columns)

    def _written(self, what: str, column: Column, write: ConvertAll) -> list[bytes | None]:
        try:
            return write(column)
        except SerializationError as error:
            raise self._unwritable(what, error) from error

    def _unwritable(self, what: str, error: SerializationError) -> SerializationError:
        return reworded(
            error,
            f"This is the {what} for {self._where}: give it another serde, by `out_{what}` under "
            f"serdes: in pipeline.yaml, or {what}_serde in the call that adds the sink",
        )

    def _chosen(self, record: Record) -> str:
        assert self._chooser is not None
        topic = self._chooser(record)
        if not isinstance(topic, str) or not topic:
            kind = f"a {type(topic).__name__}" if topic != "" else "an empty string"
            wanted = "it must return the name of a topic"
            raise StreamsError(
                f"{self._where} got {topic!r} from its function: {wanted}",
                shown=f"{self._where} got {kind} from its function: {wanted}",
            )
        if self._choices is not None:
            if topic not in self._choices:
                wanted = f"it must return one of its `topics`: {', '.join(self._choices)}"
                raise StreamsError(
                    f'{self._where} got "{topic}" from its function: {wanted}',
                    shown=f"{self._where} got another topic from its function: {wanted}",
                )
            return self._choices[topic]
        if topic not in self._accepted:
            if problem := name_problem(topic):
                raise StreamsError(
                    f'{self._where} got "{topic}" from its function, which {problem}',
                    shown=f"{self._where} got an invalid topic name from its function",
                )
            try:
                self._limits_of(topic)
            except OwnError as error:
                named = f'"{topic}"' if is_literal(topic, self._chooser) else "the name of a topic"
                error.show(
                    f"{self._where} got {named} from its function, and cannot write to that topic: "
                    "does it exist?"
                )
                raise
        return topic

    def _limits_of(self, topic: str) -> Accepted:
        accepted = Accepted(self._where, topic, self._output_topics, self._clock_ms)
        self._accepted[topic] = accepted
        return accepted

    def _keyless_in(self, topic: str) -> int:
        partition = self._keyless.get(topic)
        if partition is None:
            partition = self._keyless_partition % self._output_topics.num_partitions(topic)
            self._keyless[topic] = partition
        return partition


class RunningSource:
    """Turns what was read from a topic into records or columns for the children."""

    def __init__(
        self, source: Source, children: Sequence[RunningNode], clock_ms: Callable[[], int]
    ) -> None:
        self.name = source.name
        self.asynchronous = _only_async(source.name, children)
        """The only child, if it is an `AsyncProcessor`; then there are no receivers."""
        children = () if self.asynchronous else children
        self.is_columnar = not source.one_by_one and all(child.is_columnar for child in children)
        self.takes_records = self.asynchronous is None and not any(
            isinstance(child, RunningProcessor) and not child.takes_records for child in children
        )
        """Whether single records are no slower than batches of one record."""
        self.receivers = tuple(child.receive for child in children)
        self.batch_receivers = tuple(child.receive_batch for child in children)
        self.read_key = source.key_serde.deserialize
        self.read_value = source.value_serde.deserialize
        self._read_keys, self._read_values = _reader(source.key_serde), _reader(source.value_serde)
        self.timestamp_extractor = following(source.timestamp_extractor, clock_ms)
        self._lazily = _lazy_reader(children, self.read_value)
        self._reads_keys = source.key_serde is not serdes.bytes
        self._reads_values = source.value_serde is not serdes.bytes
        self.bytes_columns = tuple(
            column
            for column, is_read in (("key", self._reads_keys), ("value", self._reads_values))
            if not is_read
        )
        """Which of "key" and "value" processors get as bytes."""

    def record(self, batch: RecordBatch, index: int) -> Record:
        """Return one record. Raises SerializationError."""
        key, value = batch.keys[index], batch.values[index]
        return Record(
            None if key is None else self.read_key(key),
            None if value is None else self.read_value(value),
            batch.timestamps[index],
            () if batch.headers is None else tuple(batch.headers[index] or ()),
        )

    def entry(self, batch: RecordBatch, index: int) -> PendingCall:
        """Return a call to make, or one that has failed because its record cannot be read."""
        try:
            if batch.error:
                raise batch.cause or RecordRejectedError(batch.error)
            return PendingCall(batch, index, self.record(batch, index))
        except BaseException as error:
            return PendingCall(batch, index, None, as_exception(error))

    def columns(self, batch: RecordBatch, start: int, stop: int) -> Batch:
        """Return the records from `start` to `stop`. Raises SerializationError."""
        part = batch.part(start, stop)
        columns = Batch(
            self._read_keys(part.keys) if self._reads_keys else part.keys,
            self._values(part.values),
            part.timestamps,
            None if part.headers is None else [each and tuple(each) for each in part.headers],
            part.offsets,
            part.clocks,
        )
        columns.given = part
        return columns

    def _values(self, values: Column) -> Column:
        if self._lazily is not None:
            return self._lazily(values)
        return self._read_values(values) if self._reads_values else values


def _lazy_reader(
    children: Sequence[RunningNode], deserialize: Callable[[Any], Any]
) -> MakeColumn | None:
    """Return what makes columns of values; `None` if no child wants them, or one cannot."""
    processors = [each.processor for each in children if isinstance(each, RunningProcessor)]
    if any(isinstance(p, BatchProcessor) and not isinstance(p, ReadsLazily) for p in processors):
        return None
    lazy = [each.lazy_reader(deserialize) for each in processors if isinstance(each, ReadsLazily)]
    return next((each for each in lazy if each is not None), None)


def _only_async(source: str, children: Sequence[RunningNode]) -> RunningAsync | None:
    found = [child for child in children if isinstance(child, RunningAsync)]
    if found and len(children) > 1:
        raise StreamsError(
            f'source "{source}" feeds an AsyncProcessor and others: give it a source of its own'
        )
    return found[0] if found else None


def _converter(convert: Callable[[Any], Any], convert_all: ConvertAll | None) -> ConvertAll:
    """Return what converts columns; null stays null."""

    def converted(column: Column) -> list[Any]:
        if isinstance(column, LazyColumn):
            return column.converted(convert)
        items = items_of(column)
        if convert_all is not None:
            with suppress(Exception):
                return convert_all(items)
        return [None if item is None else convert(item) for item in items]

    return converted


def _kept(column: Column, given: Column | None) -> Column:
    """Return a column that stays as it is until it is sent; `given` is the one that was read.

    User code may go on to use a list that it has forwarded, and rows may have columns, too.
    """
    return column if column is given and column.__class__ is list else [*column]


def _reader(serde: serdes.Serde[Any]) -> ConvertAll:
    return _converter(serde.deserialize, getattr(serde, "deserialize_all", None))


def _writer(serde: serdes.Serde[Any]) -> ConvertAll:
    return _converter(serde.serialize, getattr(serde, "serialize_all", None))
