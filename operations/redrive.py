"""Deals with dead letters in Kafka: reads them, sends them back, and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError, EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import WRITE
from kafka_pipeline.common.kafka.bulk import read_range, read_up_to
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.moving import RecordMover
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.deployment.desired_state import require_no_stop
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.operations.dead_letters import (
    DeadLetter,
    LetterId,
    Wanted,
    first_unhandled,
    letters,
    marker,
)
from kafka_pipeline.streams.partitioning import default_partition

FindEnds = Callable[[list[Partition]], Mapping[Partition, int]]
"""Returns where partitions end."""

_MOST_LETTERS = 500
_MOST_BYTES = 16_000_000
_ONE_TIMEOUT_S = 10


class DeadLetterTopics:
    """The dead letter topics of a job, of former versions of its pipeline too."""

    def __init__(self, config: Config) -> None:
        """Find them. Raises `UnavailableError` if Kafka does not answer."""
        self._config = config
        self._admin = connected(config)
        deployment = read_deployment(config, self._admin)
        existing = self._admin.topics()
        self._existing = existing
        pipelines = deployment.pipelines
        self.topics: dict[str, str] = {
            processor.id: topic
            for pipeline in pipelines
            for processor in pipeline.processors
            if (topic := pipeline.dead_letter_topic(processor)) and topic in existing
        }
        """The topics by processor."""
        self._read_now = frozenset(
            topic
            for version in (deployment.current, deployment.coming)
            if version is not None
            for processor in version.pipeline.processors
            for topic in version.pipeline.read_topics(processor)
        )
        self._former_counts: dict[str, set[int]] = {}
        """The partition counts of topics between processors in all versions."""
        for pipeline in pipelines:
            for topic in pipeline.arcs:
                self._former_counts.setdefault(topic, set()).add(pipeline.partitions_of(topic))

    def places(self) -> dict[Partition, str]:
        """Return all partitions of the topics, each with its processor."""
        return {
            (topic, number): processor
            for processor, topic in self.topics.items()
            for number in range(self._existing[topic])
        }

    def bounds(self) -> dict[Partition, tuple[int, int]]:
        """Return the oldest offset and the last stable one of each partition.

        Raises `UnavailableError` if Kafka does not answer.
        """
        places = list(self.places())
        if not places:
            return {}
        try:
            oldest, ends = self._admin.oldest_offsets(places), self._admin.stable_ends(places)
        except EngineError as error:
            raise UnavailableError(f"dead letters cannot be read: {error}") from error
        return {place: (oldest[place], ends[place]) for place in places}

    def read(self, id_: LetterId) -> DeadLetter:
        """Return one letter, without whether it was dealt with.

        Raises `ConfigError` if it is not there, and `UnavailableError` if it cannot be read.
        """
        place = self.topics.get(id_.processor, ""), id_.partition
        oldest, end = self.bounds().get(place, (0, 0))
        if oldest <= id_.offset < end:
            batches = list(
                read_range(self._config, *place, id_.offset, id_.offset + 1, _ONE_TIMEOUT_S)
            )
            for letter in letters(id_.processor, batches):
                return letter
        raise ConfigError(f"there is no dead letter {id_}")

    def find(self, wanted: Wanted, *, handled: bool = False) -> list[DeadLetter]:
        """Return the letters that are meant, without those that were dealt with unless `handled`.

        Raises `ConfigError` if a processor has no dead letters, or an id is none of them.
        """
        return self._find(wanted, self._admin.high_watermarks, handled=handled)

    def _find(
        self, wanted: Wanted, find_ends: FindEnds, *, handled: bool = False
    ) -> list[DeadLetter]:
        for unknown in sorted({*wanted.processors} - self.topics.keys()):
            has = ", ".join(self.topics) or "no processor"
            raise ConfigError(f'"{unknown}" has no dead letters; {has} has')
        found = [
            letter
            for processor in self.topics
            if not wanted.processors or processor in wanted.processors
            for letter in letters(processor, self._read(processor, find_ends))
            if wanted.has(letter) and (handled or not letter.handled)
        ]
        for missing in {*wanted.ids} - {letter.id for letter in found}:
            raise ConfigError(f"there is no dead letter {missing}, or it was dealt with")
        return found

    def redrive(self, wanted: Wanted) -> int:
        """Send the letters that are meant to where their records came from; return how many.

        Each is sent once, in a transaction with the note that says so, so an interruption does no
        harm: call it again. Raises `ConfigError` if a record's topic is gone or unknown, or nobody
        reads it any more, or while a savepoint of the job is made or restored.
        """
        mover = self._mover()
        # Read now: whatever others have done before is complete, and they can do no more. A leader
        # that is cut off from the other brokers does not know all of it, and gives no such ends.
        found = self._find(wanted, mover.find_ends)
        for letter in found:
            self._require_origin(letter)
        for some in _chunks(found):
            mover.write([*map(self._record_of, some), *self._notes("redriven", some)])
        return len(found)

    def purge(self, wanted: Wanted) -> int:
        """Forget the letters that are meant; return how many.

        Those with others in front of them stay in the topic, and are no longer listed. Raises
        `ConfigError` while a savepoint of the job is made or restored.
        """
        mover = self._mover()
        found = self._find(wanted, mover.find_ends)
        for some in _chunks(found):
            mover.write(self._notes("purged", some))
        for processor in {letter.id.processor for letter in found}:
            self._delete_handled(processor)
        return len(found)

    def _mover(self) -> RecordMover:
        """Return what writes to topics. Raises `ConfigError` while a tool works on them."""
        require_no_stop(read_deployment(self._config, self._admin).wish)
        return RecordMover(self._config, self._config.topic_names.dead_letters_transactional_id)

    def _read(self, processor: str, find_ends: FindEnds) -> list[RecordBatch]:
        topic = self.topics[processor]
        places = [(topic, number) for number in range(self._existing[topic])]
        try:
            return read_up_to(self._config, self._admin, find_ends(places))
        except EngineError as error:
            raise UnavailableError(f"topic {topic} cannot be read: {error}") from error

    def _require_origin(self, letter: DeadLetter) -> None:
        if letter.came_from is None:
            raise ConfigError(f"{letter.id} does not say where its record came from")
        topic, partition = self._destination(letter)
        if partition >= self._existing.get(topic, 0):
            for right in self._admin.missing_rights({topic: [WRITE]}):
                raise ConfigError(
                    f"{letter.id} came from {topic}[{partition}]: a right is missing, {right} "
                    "(`pipeline acls` lists them)"
                )
            raise ConfigError(
                f"{letter.id} came from {topic}[{partition}], which does not exist any more: purge "
                f"such letters by --topic {topic}, or choose others by --topic"
            )
        if topic not in self._read_now:
            raise ConfigError(
                f"{letter.id} came from {topic}, which no processor of the job reads any more, so "
                f"nobody would process it: purge such letters by --topic {topic}, or choose others "
                "by --topic"
            )

    def _destination(self, letter: DeadLetter) -> tuple[str, int]:
        """Return the topic and the partition that a letter's record goes to.

        That is where it came from. If a topic between processors has got another number of
        partitions since, by a rescale, it is where the key goes now: there is its state.
        """
        assert letter.came_from is not None
        topic, partition, _ = letter.came_from
        count, key = self._existing.get(topic, 0), letter.key
        former = self._former_counts.get(topic, set()) - {count}
        if count and key is not None and partition in {default_partition(key, n) for n in former}:
            partition = default_partition(key, count)
        return topic, partition

    def _record_of(self, letter: DeadLetter) -> OutputRecord:
        topic, partition = self._destination(letter)
        return topic, letter.key, letter.value, partition, letter.timestamp_ms, letter.headers

    def _notes(self, how: str, some: Sequence[DeadLetter]) -> Iterator[OutputRecord]:
        ids = sorted((self.topics[letter.id.processor], *_place(letter)) for letter in some)
        for (topic, partition), same in groupby(ids, key=lambda each: each[:2]):
            offsets = [offset for *_, offset in same]
            yield topic, None, None, partition, 0, marker(how, offsets)

    def _delete_handled(self, processor: str) -> None:
        """Delete the records of a topic up to the first letter that nobody dealt with."""
        topic = self.topics[processor]
        batches = self._read(processor, self._admin.high_watermarks)
        done = {_place(each) for each in letters(processor, batches) if each.handled}
        before: dict[Partition, int] = {}
        for number in range(self._existing[topic]):
            own = [batch for batch in batches if batch.partition == number]
            if own:
                first = first_unhandled(own, {offset for place, offset in done if place == number})
                # Not up to the end of the topic: another letter may have come since.
                before[topic, number] = own[-1].offsets[-1] + 1 if first is None else first
        try:
            self._admin.delete_before(before)
        except EngineError as error:
            raise UnavailableError(f"purged, but not deleted: {error}") from error


def _place(letter: DeadLetter) -> tuple[int, int]:
    return letter.id.partition, letter.id.offset


def _chunks(found: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Split letters into parts that fit into a transaction."""
    some: list[DeadLetter] = []
    size = 0
    for letter in found:
        length = len(letter.key or b"") + len(letter.value or b"")
        if some and (len(some) == _MOST_LETTERS or size + length > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(letter)
        size += length
    if some:
        yield some
