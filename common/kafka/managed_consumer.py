"""A consumer that is replaced when it stops delivering; its successor resumes its positions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafka_pipeline.common.kafka.clients import Partition, explain, is_out_of_range, is_passing
from kafka_pipeline.common.kafka.lifeline import Lifeline, connect_with_lifeline, successor
from kafka_pipeline.common.kafka.stall_watch import Scout, StallWatch

CHUNK_RECORDS = 500
REST_AFTER_S = 10.0
_LEADER_WAIT_S = 0.01

Take = Callable[[Partition, list[Message]], int]
"""Receives records of one partition, and returns the offset to read next."""

logger = structlog.get_logger()


@dataclass(slots=True)
class ConsumerSignals:
    """What a consumer reports besides records: the ends that it reached, and errors."""

    ends: list[tuple[Partition, int]] = field(default_factory=list)
    errors: list[tuple[Partition, KafkaError]] = field(default_factory=list)


class ManagedConsumer:
    """Owns a consumer, with its assigned partitions, their positions, and the paused ones.

    A consumer that lost all brokers (`Lifeline`) or is stalled (`StallWatch`) is replaced. The new
    one starts at the same positions. So is one whose broker does not have a position: that broker
    may be cut off from the others. It does not read that partition any more until it is assigned
    again.

    A consumer also counts as stalled if nothing has come from some partitions since their
    assignment: librdkafka never reads a topic that was deleted and created again if the leader
    epoch that it knows is larger.

    A consumer that is at the end of all its partitions, and has delivered no records for ten
    seconds, is replaced by one that rests: its settings cost less while nothing comes. It delivers
    records as soon as they come, and is then replaced by one that does not rest.

    For one thread at a time. confluent-kafka lets only one call into a consumer. Other callers
    retry every millisecond, in no order: if a few threads wait for a broker, one may starve for a
    minute.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        silence_s: float | None,
        rest_settings: Mapping[str, Any] = {},
    ) -> None:
        """Connect. A stalled consumer is detected only with `silence_s`, and after that time.

        `rest_settings` override the `settings` while the consumer rests; it does only with some.
        """
        self._settings = settings
        self._rest_settings = rest_settings
        self._scouts_sent = 0
        self._is_at_rest = self._is_roused = False
        self._active_s = time.monotonic()
        """When records or partitions last came."""
        self._ended: set[Partition] = set()
        """The partitions of which this consumer has reached the end."""
        self._stall_watch = self._unheard_watch = None
        if silence_s is not None:
            self._stall_watch = StallWatch(self.send_scout, silence_s)
            self._unheard_watch = StallWatch(self.send_scout, silence_s)
        self._unheard: set[Partition] = set()
        """The partitions from which nothing has come since they were assigned or resumed, not even
        an end."""
        self._begin(connect_with_lifeline(Consumer, self._settings_now()))
        self._positions: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._lost: set[Partition] = set()
        """The partitions whose leaders do not have the position; nothing reads these."""

    def _begin(self, client: tuple[Consumer, Lifeline]) -> None:
        self._consumer, self._lifeline = client
        self._ended.clear()
        self._starts: dict[Partition, int] = {}
        """The offsets at which this consumer started."""
        self._topics: set[str] = set()
        """The topics whose leaders this consumer has looked up."""

    def _settings_now(self) -> dict[str, Any]:
        return {**self._settings, **(self._rest_settings if self._is_at_rest else {})}

    def send_scout(self, partitions: Collection[Partition]) -> Scout:
        """Have a new consumer look where partitions end; does not block.

        It begins with the next of the brokers in the configuration: with three, of which one is cut
        off, the second one at the latest finds what that one does not know.
        """
        # librdkafka takes a list with nothing between two commas, but no address that is empty.
        servers = [each for each in self._settings["bootstrap.servers"].split(",") if each.strip()]
        first = servers[self._scouts_sent % len(servers)]
        self._scouts_sent += 1
        return Scout(self._settings_now() | {"bootstrap.servers": first}, partitions)

    @property
    def client(self) -> Consumer:
        """The current consumer, for requests that do not read records."""
        return self._consumer

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offsets to read next, of all partitions that are assigned."""
        return self._positions

    @property
    def paused(self) -> frozenset[Partition]:
        """The assigned partitions that are paused."""
        return frozenset(self._paused)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Start reading each partition at its offset."""
        self._note_activity()
        self._assign(positions)

    def _assign(self, positions: Mapping[Partition, int]) -> None:
        self._consumer.incremental_assign([TopicPartition(*p, o) for p, o in positions.items()])
        self._starts |= positions
        self._positions |= positions
        for watch in filter(None, (self._stall_watch, self._unheard_watch)):
            watch.begin(time.monotonic())
            self._unheard.update(positions)
        self.find_leaders({topic for topic, _ in positions})

    def find_leaders(self, topics: set[str]) -> None:
        """Look the leaders of topics up that are assigned, unless that was done already."""
        for topic in topics - self._topics:
            self._topics.add(topic)
            # librdkafka looks up the leaders of new topics once a second. This call starts the
            # search at once, and it continues after the call has ended.
            with suppress(KafkaException):
                self._consumer.list_topics(topic, timeout=_LEADER_WAIT_S)

    def unassign(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions; those that are not assigned are ignored."""
        leaving = self._positions.keys() & set(partitions)
        if read := leaving - self._lost - self._paused:
            self._consumer.incremental_unassign([TopicPartition(*p) for p in read])
        for partition in leaving:
            self._starts.pop(partition, None)
            del self._positions[partition]
        for known in (self._paused, self._unheard, self._ended, self._lost):
            known -= leaving

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching from these assigned partitions until they are resumed.

        librdkafka's own pause may take up to a second to end if the consumer reads nothing else of
        the broker. So librdkafka does not have a paused partition at all, which costs as little.
        """
        chosen = set(partitions) - self._paused
        if read := chosen - self._lost:
            self._consumer.incremental_unassign([TopicPartition(*p) for p in read])
        self._paused |= chosen
        self._unheard -= chosen

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Resume paused partitions at their positions."""
        chosen = self._paused.intersection(partitions)
        self._paused -= chosen
        if read := chosen - self._lost:
            self._assign({partition: self._positions[partition] for partition in read})

    def receive(self, max_records: int, wait_s: float, take: Take) -> ConsumerSignals:
        """Pass up to `max_records` that have arrived to `take`; waits up to `wait_s` for the first.

        Records of unassigned partitions are left out. If nothing has arrived, replaces the consumer
        when necessary.
        """
        signals = ConsumerSignals()
        has_records = self._receive(max_records, wait_s, signals, take)
        for partition, offset in signals.ends:
            # An end may have been reported before records that came in the same call.
            if offset >= self._positions[partition]:
                self._positions[partition] = offset
                self._ended.add(partition)
        if has_records:
            self._note_activity()
        if lost := {partition for partition, error in signals.errors if is_out_of_range(error)}:
            # A new client may learn of another leader: this one may be cut off from the others.
            self._lost |= lost
            self._unheard -= lost
            self._consumer.incremental_unassign([TopicPartition(*p) for p in lost])
            self.replace()
        if has_records or signals.ends or signals.errors:
            if self._stall_watch is not None:
                self._stall_watch.heard(time.monotonic())
            if self._unheard and (scout := self._finds_missing(signals)):
                logger.warning(
                    "a consumer reads nothing of some partitions, and is replaced",
                    partitions=[f"{topic}-{number}" for topic, number in sorted(self._unheard)],
                )
                self.replace(scout)
        elif self._lifeline.is_lost:
            logger.info("a consumer lost all brokers, and is replaced", positions=self._places())
            self.replace()
        elif scout := self._finds_more():
            logger.warning(
                "a consumer makes no progress, and is replaced", positions=self._places()
            )
            self.replace(scout)
        elif self._should_rest() != self._is_at_rest:
            self._is_at_rest, self._is_roused = not self._is_at_rest, False
            self.replace()
        return signals

    def refusal(self, wait_s: float = 0) -> KafkaError | None:
        """Return the error if a missing right hides the group's coordinator, else `None`.

        Waits up to `wait_s` for it, and meanwhile lets librdkafka call back.

        librdkafka reports it once, among the records, and keeps searching. With assigned
        partitions, returns `None` without looking, since records would be lost.
        """
        if self._positions:
            return None
        while (message := self._consumer.poll(wait_s)) is not None:
            if _is_refusal(error := message.error()):
                return error
        return None

    def replace(self, scout: Scout | None = None) -> None:
        """Continue with a new consumer, which knows only the brokers of the configuration.

        With `scout`, continue with that one. If none can be made now, goes on with the old one.
        """
        former = self._consumer
        if scout is not None:
            client = scout.take()
        elif (made := successor(Consumer, self._settings_now(), self._lifeline)) is not None:
            client = made
        else:
            return
        # In a thread of its own, because the old consumer may block for any time.
        threading.Thread(target=former.close, name="close", daemon=True).start()
        self._begin(client)
        self._assign(self._reading())

    def close(self) -> None:
        """Close the consumer; blocks for some milliseconds."""
        for watch in filter(None, (self._stall_watch, self._unheard_watch)):
            watch.end()
        self._consumer.close()

    def _receive(
        self, max_records: int, wait_s: float, signals: ConsumerSignals, take: Take
    ) -> bool:
        """Hand over the records that have arrived; return whether there were any.

        Each chunk is freed before the next one is made, so that all use the same memory, which
        stays in the processor's cache.
        """
        first = self._consumer.poll(wait_s)
        if first is None:
            return False
        messages = [first]
        del first
        left = max_records - 1
        has_records = False
        while True:
            wanted = min(left, CHUNK_RECORDS - len(messages))
            # A batch call with a timeout would wait for the batch to fill.
            more = self._consumer.consume(wanted, 0) if wanted else []
            left -= wanted
            is_last = len(more) < wanted or not left
            messages += more
            del more
            if any(map(Message.error, messages)):
                messages = self._set_aside_errors(messages, signals)
            if messages:
                has_records = True
                self._hand_over(messages, take)
            if is_last:
                return has_records
            messages = []

    def _hand_over(self, messages: list[Message], take: Take) -> None:
        for partition, run in self._runs(messages):
            if partition in self._positions:
                self._positions[partition] = take(partition, run)
                self._ended.discard(partition)

    def _runs(self, messages: list[Message]) -> Iterable[tuple[Partition, list[Message]]]:
        """Split records into runs of one partition."""
        partition = _partition(messages[0])
        if len(self._positions) == 1:
            return [(partition, messages)]
        topics, numbers = list(map(Message.topic, messages)), list(map(Message.partition, messages))
        size = len(messages)
        if numbers.count(partition[1]) == size and topics.count(partition[0]) == size:
            return [(partition, messages)]
        places = pairwise(zip(topics, numbers, strict=True))
        starts = [0, *(at for at, (one, other) in enumerate(places, 1) if one != other), size]
        return [(_partition(messages[at]), messages[at:to]) for at, to in pairwise(starts)]

    def _set_aside_errors(self, messages: list[Message], signals: ConsumerSignals) -> list[Message]:
        records = []
        for message in messages:
            error, partition = message.error(), _partition(message)
            if error is None:
                records.append(message)
            elif partition not in self._positions:
                if _is_refusal(error):
                    # Records can be read without this right, but the search for a coordinator never
                    # ends.
                    right = f"Describe of group {self._settings['group.id']}"
                    logger.warning("a right is missing", reason=explain(error, right))
            elif error.code() == KafkaError._PARTITION_EOF:
                signals.ends.append((partition, message.offset() or 0))
            elif (lost := truncation(error, message)) is not None:
                signals.errors.append((partition, lost))
            elif not is_passing(error) and self._is_of_now(error, message):
                signals.errors.append((partition, error))
        return records

    def _is_of_now(self, error: KafkaError, message: Message) -> bool:
        """Return whether an error belongs to the current assignment of a partition.

        librdkafka drops the records of an earlier assignment, but not its error "offset out of
        range", which the next assignment of the partition gets. The offset tells the two apart:
        only a consumer that fell behind, while another one read on, can have had that error.
        """
        is_lost_offset = error.code() == KafkaError._AUTO_OFFSET_RESET
        return not is_lost_offset or (message.offset() or 0) >= self._starts[_partition(message)]

    def _finds_missing(self, signals: ConsumerSignals) -> Scout | None:
        """Return one that found records of partitions from which nothing has come."""
        assert self._unheard_watch is not None
        heard = {partition for partition, _ in (*signals.ends, *signals.errors)}
        heard |= {p for p in self._unheard if self._positions[p] != self._starts[p]}
        now_s = time.monotonic()
        if not heard.isdisjoint(self._unheard):
            self._unheard -= heard
            self._unheard_watch.heard(now_s)
        waiting = {p: self._positions[p] for p in self._unheard}
        return self._unheard_watch.find_successor(waiting, now_s)

    def _finds_more(self) -> Scout | None:
        if self._stall_watch is None:
            return None
        return self._stall_watch.find_successor(self._reading(), time.monotonic())

    def _reading(self) -> dict[Partition, int]:
        """Return the positions in the partitions that the consumer reads now."""
        resting = self._paused | self._lost
        return {p: offset for p, offset in self._positions.items() if p not in resting}

    def _note_activity(self) -> None:
        self._active_s, self._is_roused = time.monotonic(), True

    def _should_rest(self) -> bool:
        """Whether the consumer should rest now, or go on with its rest."""
        if self._is_at_rest:
            return not self._is_roused
        if not self._rest_settings or not self._positions or self._paused:
            return False
        is_at_ends = len(self._ended) == len(self._positions)
        return is_at_ends and time.monotonic() - self._active_s >= REST_AFTER_S

    def _places(self) -> dict[str, int]:
        return {f"{topic}-{number}": at for (topic, number), at in self._positions.items()}


def truncation(error: KafkaError, message: Message) -> KafkaError | None:
    """Return the error of a log that has lost records that were read; `None` for other errors."""
    if error.code() != KafkaError._AUTO_OFFSET_RESET or message.offset() is not None:
        return None
    # Only a truncated log gives no offset, and only this text says what it is.
    return KafkaError(KafkaError._LOG_TRUNCATION, error.str())


def _is_refusal(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def _partition(message: Message) -> Partition:
    return message.topic(), message.partition()  # type: ignore[return-value]
