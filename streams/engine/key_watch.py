"""Finds topics whose records cannot meet those of others by key, from a sample of their keys.

Records of two topics with the same key meet in one task only if they are in partitions of the same
number: the producers of both must choose partitions in the same way, and write keys in the same
bytes. Kafka Streams leaves that to its users; a task sees the keys and the partition, and can tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.nodes import Source
from kafka_pipeline.streams.partitioning import DEFAULT_PARTITIONER, PARTITIONERS
from kafka_pipeline.streams.serdes import Serde

FIRST_RECORDS = 200
"""So many records of a topic are looked at, and then one of every `INTERVAL`."""
INTERVAL = 1000
MOST_KEYS = 100
"""The keys seen last, each once, say which partitioner fits."""
_LONGEST_KEY = 1000
_FEWEST_MISSES = 2
_MOST_MISSES = 0.1
"""A partitioner is refuted once it would have sent more of these keys elsewhere. Single records may
come from another hand."""
_CHANCE = 0.0001
"""A partitioner is confirmed once so small a chance is left that all of its hits are luck."""


class _Keys:
    """What the keys of one topic have shown so far."""

    def __init__(
        self, source: Source, others: Collection[Source], partition: int, partitions: int
    ) -> None:
        """With less than 2 `partitions`, or an unknown number (0), partitioners do not matter."""
        self._read = source.key_serde.deserialize
        self._serdes = [
            serde
            for serde in {each.key_serde: None for each in (source, *others)}
            if not (serde is source.key_serde is serdes.bytes)
        ]
        self._partition = partition
        self._partitions = partitions
        self._seen = 0
        self._hits: dict[int, Sequence[bool]] = {}
        """By the hash of a key: for each partitioner, whether it would have sent the key here."""
        self.refuted: set[str] = set()
        """The partitioners that have not chosen the partitions."""
        self.confirmed: set[str] = set()
        """The partitioners that have; one, as a rule."""
        self.other_serde: Serde[object] | None = None
        """The serde that would write a key in other bytes, if that was found."""

    def take(self, keys: Sequence[bytes | None]) -> bool:
        """Look at some of the next keys; return whether one of them was new."""
        start, stop = self._seen, self._seen + len(keys)
        self._seen = stop
        first = range(start, min(stop, FIRST_RECORDS))
        later = range(-(-max(start, FIRST_RECORDS) // INTERVAL) * INTERVAL, stop, INTERVAL)
        is_new = False
        for at in chain(first, later):
            key = keys[at - start]
            # Some partitioners spread empty keys like null ones.
            if key and len(key) <= _LONGEST_KEY and hash(key) not in self._hits:
                self._add(key)
                is_new = True
        if is_new and self._partitions > 1:
            self._judge()
        return is_new

    def _judge(self) -> None:
        self.refuted, self.confirmed = set(), set()
        for name, hits in zip(PARTITIONERS, zip(*self._hits.values(), strict=True), strict=True):
            misses, most = hits.count(False), _MOST_MISSES * len(hits)
            if misses > most:
                if misses >= _FEWEST_MISSES:
                    self.refuted.add(name)
            elif self._partitions ** (misses - len(hits)) <= _CHANCE:
                self.confirmed.add(name)

    def differs_from(self, other: _Keys) -> bool:
        """Return whether the two topics were partitioned in different ways, as far as is known.

        One that fits by luck is confirmed together with the right one.
        """
        return bool(
            (self.confirmed and self.confirmed <= other.refuted)
            or (other.confirmed and other.confirmed <= self.refuted)
        )

    def _add(self, key: bytes) -> None:
        if len(self._hits) >= MOST_KEYS:
            del self._hits[next(iter(self._hits))]
        partitions, partition = max(self._partitions, 1), self._partition
        self._hits[hash(key)] = [
            choose(key, partitions) == partition for choose in PARTITIONERS.values()
        ]
        if self.other_serde is None:
            differing = (serde for serde in self._serdes if self._writes_other(serde, key))
            self.other_serde = next(differing, None)

    def _writes_other(self, serde: Serde[object], key: bytes) -> bool:
        try:
            return serde.serialize(self._read(key)) != key
        except BaseException:
            # User code may raise anything, and does so again where the record is processed.
            return False


@dataclass(frozen=True, slots=True)
class _Meeting:
    """The topics whose records meet in a step."""

    step: str
    topics: tuple[str, ...]

    def warning(self, topic: str, problem: KeyProblem, found: str) -> KeyWarning:
        others = tuple(each for each in self.topics if each != topic)
        return KeyWarning(topic, problem, self.step, others, found)


class KeyWatch:
    """Watches the keys of a task's topics that meet others by key. One thread at a time.

    Topics that were partitioned in the same way, whatever it is, do meet: that is no reason to
    warn.
    """

    def __init__(
        self,
        group: NodeGroup,
        partitions: Collection[tuple[str, int]],
        counts: Mapping[str, int] = {},
    ) -> None:
        """`partitions` are those that the task reads, and `counts` how many their topics have.

        Of topics without a count, only the bytes of the keys are looked at.
        """
        self.warnings: tuple[KeyWarning, ...] = ()
        """At most two for each topic; any thread may read them."""
        self._meetings: list[_Meeting] = []
        self._keys: dict[str, _Keys] = {}
        met = _meetings(group, [topic for topic, _ in partitions])
        for step, sources in met:
            self._meetings.append(_Meeting(step, tuple(sources)))
        for topic, number in partitions:
            partners = [sources for _, sources in met if topic in sources]
            if partners:
                others = [source for sources in partners for source in sources.values()]
                source = partners[0][topic]
                self._keys[topic] = _Keys(source, others, number, counts.get(topic, 0))

    def look(self, batch: RecordBatch) -> Sequence[KeyWarning]:
        """Look at some of the next keys of a topic; return the warnings that are new."""
        keys = self._keys.get(batch.topic)
        if keys is None or not keys.take(batch.keys):
            return ()
        told = {(each.topic, each.problem) for each in self.warnings}
        new: list[KeyWarning] = []
        for warning in chain.from_iterable(map(self._found, self._meetings)):
            if (warning.topic, warning.problem) not in told:
                told.add((warning.topic, warning.problem))
                new.append(warning)
        self.warnings = (*self.warnings, *new)
        return new

    def _found(self, meeting: _Meeting) -> Iterator[KeyWarning]:
        keys = {topic: self._keys[topic] for topic in meeting.topics}
        for topic, each in keys.items():
            if each.other_serde is not None:
                yield meeting.warning(topic, KeyProblem.BYTES, each.other_serde.name)
        for topic, each in keys.items():
            # With neither, more keys will tell which partitioner it is.
            is_decided = each.confirmed or len(each.refuted) == len(PARTITIONERS)
            if not is_decided or DEFAULT_PARTITIONER not in each.refuted:
                continue
            if any(map(each.differs_from, keys.values())):
                found = ", ".join(sorted(each.confirmed))
                yield meeting.warning(topic, KeyProblem.PARTITIONS, found)


def _meetings(group: NodeGroup, topics: Collection[str]) -> list[tuple[str, dict[str, Source]]]:
    """Return the topics whose records meet by key, with their sources, and the step for each."""
    found = []
    for step, sources in group.meetings():
        met = {
            topic: source
            for topic in topics
            for source in sources
            if source.by_key and source.reads(topic)
        }
        if len(met) > 1:
            found.append((step, met))
    return found
