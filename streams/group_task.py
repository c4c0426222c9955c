"""One task of a node group: queues in front of its nodes, and what becomes of bad records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from common.errors import EngineError, PipelineError, shorten
from common.kafka.record_size import record_size
from common.nodes import OnError
from common.record_batch import Headers, OutputRecord, RecordBatch
from streams.arguments import require_int
from streams.errors import InvalidArgumentError, StreamsError
from streams.gathering import Gathering
from streams.outputs import Dropped, Outlet, OutputColumns
from streams.processor import RecordRejectedError
from streams.punctuation import PunctuationType
from streams.record_queues import NEVER_WAIT, Partition, RecordQueues, Run
from streams.running import RecordTooLargeError
from streams.runtime import GroupRuntime, Rejection
from streams.stores.bytes_store import BytesStore, StoreBytes
from streams.timestamps import INVALID_TIMESTAMP, UNKNOWN_TIME, extract_column, stamped
from streams.topology import NodeGroup

DEFAULT_BUFFERED_RECORDS = 1000
_LONGEST_REASON = 500
EXPIRED = "expired"
"""The reason under which entries that come too late for a store are counted as dropped."""


class ProcessingFailedError(Exception):
    """A record with `on_error: fail`, or a punctuation, failed: `error` says how.

    What came before is done, and nothing of what failed; the caller commits that and stops the
    task.
    """

    def __init__(self, reason: str, error: Exception) -> None:
        super().__init__(reason)
        self.error = error


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How the tasks of a group run.

    `dead_letter_topic` comes with `OnError.DEAD_LETTER`. `max_task_idle_ms` and `buffered_records`
    are those of `RecordQueues`. Raises `InvalidArgumentError` for values that cannot be.
    """

    on_error: OnError = OnError.FAIL
    dead_letter_topic: str | None = None
    max_task_idle_ms: int = 0
    buffered_records: int = DEFAULT_BUFFERED_RECORDS
    takes_inputs_as_they_come: bool = False
    """Whether the order of records of different partitions makes no difference to the results."""
    gathers: bool = False
    """Whether records wait for more to come, as a call costs much; see `Gathering`."""

    def __post_init__(self) -> None:
        if not isinstance(self.on_error, OnError):
            one = ", ".join(f"OnError.{each.name}" for each in OnError)
            raise InvalidArgumentError(f"on_error is one of {one}, not {self.on_error!r}")
        if self.on_error is OnError.DEAD_LETTER and not self.dead_letter_topic:
            raise InvalidArgumentError("OnError.DEAD_LETTER needs a dead_letter_topic")
        require_int("max_task_idle_ms", self.max_task_idle_ms, NEVER_WAIT)
        require_int("buffered_records", self.buffered_records, 1)


@dataclass(slots=True)
class Figures:
    """What was done to records."""

    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    dropped: Counter[Dropped] = field(default_factory=Counter)
    enforced: int = 0

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        """How many records were dropped, by the reason, in the order of the alphabet."""
        counts: Counter[str] = Counter()
        for dropped, count in self.dropped.items():
            counts[dropped.reason] += count
        return dict(sorted(counts.items()))

    def __add__(self, other: Figures) -> Figures:
        """Return the sums."""
        return Figures(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.skipped + other.skipped,
            self.dead_letters + other.dead_letters,
            self.dropped + other.dropped,
            self.enforced + other.enforced,
        )


@dataclass(frozen=True, slots=True)
class _View:
    """A record as a timestamp extractor sees it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: object
    value: object
    headers: Headers


class GroupTask:
    """Takes batches in and processes their records in order. No Kafka in here.

    The caller fills it with `add`, calls `process` and `punctuate`, sends what it can `take`, and
    commits `position` and the stores. One thread at a time.
    """

    def __init__(
        self,
        group: NodeGroup,
        partitions: Sequence[Partition],
        settings: GroupSettings,
        *,
        application_id: str,
        task_id: str,
        number: int,
        stores: Mapping[str, BytesStore],
        outlet: Outlet,
        clock_ms: Callable[[], int],
        global_stores: Mapping[str, StoreBytes] = {},
    ) -> None:
        """Make the nodes. Raises whatever the user's processors raise in `init`."""
        self._settings = settings
        self._outlet = outlet
        self._runtime = GroupRuntime(
            group,
            application_id=application_id,
            task_id=task_id,
            partition=number,
            stores=stores,
            outlet=outlet,
            clock_ms=clock_ms,
            global_stores=global_stores,
        )
        idle_ms = NEVER_WAIT if settings.takes_inputs_as_they_come else settings.max_task_idle_ms
        self._times = dict.fromkeys(partitions, UNKNOWN_TIME)
        """The largest timestamp that was taken in, by partition."""
        self._queues = RecordQueues(partitions, idle_ms, settings.buffered_records)
        self._gathering = Gathering() if settings.gathers else None
        self._figures = Figures()
        self._late: Counter[str] = Counter()
        """How much of what came too late is in the figures already, by store."""
        self._enforced = 0

    @property
    def runtime(self) -> GroupRuntime:
        """The nodes."""
        return self._runtime

    @property
    def wants_commit(self) -> bool:
        """Whether a processor has asked for a commit; whoever commits sets it back."""
        return self._runtime.commit_requested

    @wants_commit.setter
    def wants_commit(self, wants: bool) -> None:
        self._runtime.commit_requested = wants

    @property
    def needs_turns(self) -> bool:
        """Whether `process` or `punctuate` may have something to do without new records."""
        waiting = len(self._queues) > 0 or self.has_gathered
        return waiting or self._runtime.has_wall_clock_punctuations

    @property
    def has_gathered(self) -> bool:
        """Whether records wait that `process` takes as soon as no more come."""
        return self._gathering is not None and len(self._gathering) > 0

    def position(self, partition: Partition) -> int | None:
        """Return the offset to commit; `None` if nothing of the partition was read yet."""
        return self._queues.position(partition)

    def is_full(self, partition: Partition) -> bool:
        """Whether reading of the partition should pause."""
        return self._queues.is_full(partition)

    def add(self, batch: RecordBatch) -> None:
        """Take records in that come behind all that was added of their partition.

        Raises as `process` where they are processed at once.
        """
        if self._gathering is not None:
            self._gathering.add(batch)
        else:
            self._take_in(batch)
            if self._settings.takes_inputs_as_they_come:
                self.process(0, ())

    def _take_in(self, batch: RecordBatch) -> None:
        partition = (batch.topic, batch.partition)
        end = batch.offsets[-1] + 1
        for part in self._timed(batch):
            self._queues.add(part)
        self._queues.read_up_to(partition, end)

    def process(self, now_ms: int, ends_reached: Container[Partition]) -> bool:
        """Process what can be; tell whether anything was.

        Where calls take long, the rest is left for the next turn. Raises `ProcessingFailedError`,
        after everything that comes before the record.
        """
        queues, runtime = self._queues, self._runtime
        worked = False
        if self._gathering is not None:
            for batch in self._gathering.take(ends_reached):
                self._take_in(batch)
        while queues.is_processable(now_ms, ends_reached):
            most = self._gathering.limit if self._gathering is not None else None
            run = queues.run(most, runtime.next_stream_time_punctuation)
            if run is None:
                break
            worked = True
            if self._gathering is None:
                self._process(run)
            elif self._process_gathered(run, self._gathering):
                break
            self._punctuate(PunctuationType.STREAM_TIME, runtime.stream_time)
        return worked

    def punctuate(self, now_ms: int) -> bool:
        """Call what is due by the wall clock; tell whether any was.

        Raises `ProcessingFailedError`.
        """
        return self._punctuate(PunctuationType.WALL_CLOCK_TIME, now_ms)

    def take(self) -> tuple[list[OutputRecord | OutputColumns], Figures]:
        """Return what was sent to topics since the last call, and what was done."""
        figures, self._figures = self._figures, Figures()
        outputs: list[OutputRecord | OutputColumns] = []
        run: Any
        for kind, run in groupby(self._runtime.outputs, type):
            if kind is Dropped:
                figures.dropped.update(run)
                continue
            taken = list(run)
            outputs += taken
            is_columns = kind is OutputColumns
            figures.records_out += sum(len(o.keys) for o in taken) if is_columns else len(taken)
        self._runtime.outputs.clear()
        for store in self._runtime.counting_stores:
            if late := store.dropped - self._late[store.name]:
                figures.dropped[Dropped(EXPIRED, store.name)] += late
                self._late[store.name] += late
        total = self._queues.enforced_processing_total
        figures.enforced, self._enforced = total - self._enforced, total
        # They are outputs, but no results.
        figures.records_out -= figures.dead_letters
        return outputs, figures

    def close(self) -> None:
        """Close the processors. Raises what they raise."""
        self._runtime.close()

    def _process(self, run: Run) -> None:
        start = run.start
        while start < run.stop:
            start, is_done = self._process_from(run, start)
            if is_done:
                return

    def _process_from(self, run: Run, start: int) -> tuple[int, bool]:
        """Process up to the first record that is rejected, that one included, or to the end.

        Return the index behind, and whether it was to the end.
        """
        batch = run.batch
        end: Rejection | int
        if batch.error:
            rejected = RecordRejectedError(batch.error)
            rejected.__cause__ = batch.cause
            end = Rejection(start, rejected)
        else:
            end = self._runtime.process(batch, start, run.stop)
        if not isinstance(end, Rejection):
            self._advance(run.partition, end - start)
            return end, True
        self._advance(run.partition, end.index - start)
        self._reject(batch, end)
        self._advance(run.partition, 1)
        return end.index + 1, False

    def _process_gathered(self, run: Run, gathering: Gathering) -> bool:
        """Process up to the first record that is rejected; tell whether that took long enough."""
        started_s = time.perf_counter()
        end, _ = self._process_from(run, run.start)
        return gathering.learn(end - run.start, time.perf_counter() - started_s)

    def _punctuate(self, type_: PunctuationType, now_ms: int) -> bool:
        try:
            return self._runtime.punctuate(type_, now_ms)
        except (EngineError, PipelineError):
            raise
        except Exception as error:
            raise ProcessingFailedError(f"a punctuation: {reason(error)}", error) from error

    def _advance(self, partition: Partition, count: int) -> None:
        self._queues.advance(partition, count)
        self._figures.records_in += count

    def _timed(self, batch: RecordBatch) -> list[RecordBatch]:
        """Return the batch with the times of its records, as several if some have none."""
        partition = (batch.topic, batch.partition)
        source = self._runtime.source(batch.topic)

        def view(index: int) -> _View:
            key, value = batch.keys[index], batch.values[index]
            return _View(
                batch.topic,
                batch.partition,
                batch.offsets[index],
                batch.timestamps[index],
                None if key is None else source.read_key(key),
                None if value is None else source.read_value(value),
                batch.headers[index] if batch.headers else None,
            )

        known_ms = self._times[partition]
        try:
            extracted = extract_column(source.timestamp_extractor, batch, view, known_ms)
        except (EngineError, PipelineError):
            raise
        except Exception as error:
            if len(batch) > 1:
                parts = (batch.part(index, index + 1) for index in range(len(batch)))
                return [timed for part in parts for timed in self._timed(part)]
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            times = [max(known_ms, 0)]
            return [replace(batch, timestamps=times, error=reason(error), cause=cause)]
        self._times[partition] = extracted.partition_time
        if extracted.dropped:
            dropped = Dropped(INVALID_TIMESTAMP, batch.topic)
            self._figures.dropped[dropped] += len(extracted.dropped)
        return [stamped(batch, extracted)]

    def _reject(self, batch: RecordBatch, rejection: Rejection) -> None:
        """Deal with a record as `on_error` says."""
        index, error = rejection.index, rejection.error
        place = f"record {batch.topic}[{batch.partition}]@{batch.offsets[index]}"
        settings = self._settings
        if settings.on_error is OnError.FAIL:
            raise ProcessingFailedError(f"{place}: {reason(error)}", error) from error
        if settings.on_error is OnError.SKIP:
            self._figures.skipped += 1
            return
        topic = settings.dead_letter_topic
        assert topic is not None, "dead_letter comes with a topic"
        key, value = batch.keys[index], batch.values[index]
        headers = [
            *((batch.headers[index] if batch.headers else None) or []),
            *_error_headers(batch, index, error),
        ]
        limit = self._outlet.size_limit(topic)
        if record_size(key, value, headers) > limit:
            raise ProcessingFailedError(
                f"{place}: {reason(error)}; and as a dead letter it is larger than the {limit} "
                f"bytes that topic {topic} takes (max.message.bytes)",
                error,
            ) from error
        # Inputs may have more partitions than the topic of dead letters.
        partition = -1
        if key is None:
            partition = batch.partition % self._outlet.num_partitions(topic)
        self._runtime.outputs.append(
            (topic, key, value, partition, batch.timestamps[index], headers)
        )
        self._figures.dead_letters += 1


def reason(error: Exception) -> str:
    """Return what went wrong, in words; not more of them than a header or a status can take."""
    is_ours = isinstance(error, StreamsError)
    return shorten(str(error) if is_ours else f"{type(error).__name__}: {error}", _LONGEST_REASON)


def _error_headers(
    batch: RecordBatch, index: int, error: Exception
) -> list[tuple[str, bytes | None]]:
    """Return the headers of KIP-1034, as Kafka Streams writes them to its dead letter queues."""
    return [
        ("__streams.errors.exception", _error_name(error).encode()),
        ("__streams.errors.message", reason(error).encode(errors="backslashreplace")),
        ("__streams.errors.topic", batch.topic.encode()),
        ("__streams.errors.partition", b"%d" % batch.partition),
        ("__streams.errors.offset", b"%d" % batch.offsets[index]),
    ]


def _error_name(error: Exception) -> str:
    match error:
        case RecordRejectedError():
            return "RecordRejected"
        case RecordTooLargeError():
            return "RecordTooLarge"
    return f"{type(error).__module__}.{type(error).__qualname__}"
