"""Watches the topics of the version that runs, and says what others have changed there."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.open_transactions import held_partitions
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.suggest import counted, listed
from kafka_pipeline.common.topics import misfits
from kafka_pipeline.deployment.prepare import matching_topics
from kafka_pipeline.streams.pipeline.partitions import with_more_partitions

LOOK_INTERVAL_S = 20.0
OPEN_FOR_S = 300.0
"""How long a transaction must be open for a finding: longer than most of those of other writers."""
_GROWN_REMEDY = (
    "`pipeline apply` the pipeline again; if a processor with state reads it, see "
    'docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'
)

_LOST = "What was in it is lost; `pipeline savepoint restore` goes back to a savepoint"

logger = structlog.get_logger()


class TopicWatch:
    """Looks three times a minute at all topics that a version reads and writes.

    Each finding is logged once as a warning, and `findings` has those of the last look. A finding
    is one of these: a source has partitions that no task reads; a topic is gone; a sink was
    recreated with fewer partitions; an arc or a state topic was created again, or has other
    partitions or settings than the job needs; partitions have fewer copies in sync than
    `min.insync.replicas`, so nothing can be written there; a transaction stays open, so nothing
    after its beginning is read. Topics that come to match a pattern are logged only: the next
    `pipeline apply` reads them.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: Config,
        admin: Admin,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the pipeline with the topics that are read and their partition counts."""
        self._pipeline = pipeline
        self._config = config
        self._admin = admin
        self._clock = clock
        specs = pipeline.data_topics(config.replication_factor)
        self._counts = {spec.name: spec.partitions for spec in specs}
        self._own = [spec for spec in specs if spec.needs]
        """Arcs and state topics: nobody but the job may change them."""
        processors = pipeline.processors
        self._readers = {
            topic: [each.id for each in processors if topic in pipeline.read_topics(each)]
            for topic in pipeline.user_topics
        }
        self._writers = {
            topic: [each.id for each in processors if topic in pipeline.out_topics(each)]
            for topic in pipeline.user_topics
        }
        self._takes_up = config.on_new_partitions == "read"
        self.successor: Pipeline | None = None
        """The pipeline with new partitions that nobody has to decide about; for `Rollout`."""
        self._known = {topic for topic, readers in self._readers.items() if readers}
        self._has_patterns = any(processor.patterns for processor in processors)
        self._missing: frozenset[str] = frozenset()
        self._open: dict[Partition, tuple[int, float]] = {}
        """Where an open transaction begins, and since when it is known."""
        self._ids: dict[str, str] = {}
        """The ids that arcs and state topics had at first."""
        self._told: frozenset[str] = frozenset()
        self.findings: tuple[str, ...] = ()
        self.unread: Mapping[str, int] = {}
        """How many records wait in partitions that no task reads, by the processors concerned."""
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start watching, in a thread of its own; the first look is at once."""
        threading.Thread(target=self._run, name="topics", daemon=True).start()

    def stop(self) -> None:
        """Stop watching; does not wait for the thread."""
        self._stopped.set()

    def look(self) -> None:
        """Look once. Raises `UnavailableError` if Kafka does not answer."""
        counts = self._admin.partition_counts(self._counts)
        if self._has_patterns:
            self._look_for_topics()
        next_ = self._with_new_partitions(counts)
        self.successor = None if next_ is self._pipeline else next_
        unread = {
            topic: self._waiting(topic, counts[topic])
            for topic in self._grown(counts)
            if counts[topic] != next_.partitions_of(topic)
        }
        # What waits grows from look to look, and is no reason to log a finding again.
        found = dict(self._findings(counts, unread))
        for text in found.keys() - self._told:
            logger.warning("a topic is not what the job needs", finding=text + found[text])
        self._told = frozenset(found)
        self.findings = tuple(text + more for text, more in found.items())
        waiting: Counter[str] = Counter()
        for topic, records in unread.items():
            waiting.update(dict.fromkeys(self._readers[topic], records))
        self.unread = waiting

    def _findings(
        self, counts: Mapping[str, int], unread: Mapping[str, int]
    ) -> Iterator[tuple[str, str]]:
        """Yield each finding as two parts of its text: what it is, and what changes meanwhile."""
        missing = frozenset(self._counts.keys() - counts.keys())
        # A broker that starts does not know all topics yet: gone is what is missing twice.
        for topic in sorted(missing & self._missing):
            yield self._gone(topic), ""
        self._missing = missing
        for topic in self._readers:
            before, count = self._counts[topic], counts.get(topic, 0)
            if topic in unread:
                records = counted(unread[topic], "record")
                yield self._too_many(topic, count), f". Waiting in the others: {records}"
            elif self._writers[topic] and 0 < count < before:
                yield (
                    f"{topic} has {counted(count, 'partition')}, and had {before} when this "
                    f"version began: it was recreated, and what "
                    f"{listed(self._writers[topic])} wrote before is gone. Keys go to other "
                    "partitions from now on",
                    "",
                )
        own = [spec.name for spec in self._own if spec.name in counts]
        for topic, id_ in self._admin.topic_ids(own).items():
            if self._ids.setdefault(topic, id_) != id_:
                yield f"{topic} was deleted and created again, a topic of this job. {_LOST}", ""
        settings = self._admin.topic_settings(own)
        for misfit in misfits(self._own, counts, settings):
            yield misfit, ""
        if short := self._admin.short_of_copies(settings):
            yield (
                "nothing can be written to partitions that have fewer copies in sync than "
                f"min.insync.replicas: {listed(short)}. Brokers are down, or full",
                "",
            )

        yield from self._held_back(counts)

    def _held_back(self, counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
        """Yield a finding if transactions stay open in topics that tasks read.

        The lag of these tasks says nothing: it counts up to where the transaction begins.
        """
        processors, topics_of = self._pipeline.processors, self._pipeline.read_topics
        topics = sorted({topic for processor in processors for topic in topics_of(processor)})
        places = [(topic, number) for topic in topics for number in range(counts.get(topic, 0))]
        now_s, former = self._clock(), self._open
        with suppress(EngineError):  # a partition without a leader must not hide other findings
            self._open = {
                place: former[place]
                if place in former and former[place][0] == held.stable_end
                else (held.stable_end, now_s)
                for place, held in held_partitions(self._admin, places).items()
            }
        old = [p for p, (_, since_s) in self._open.items() if now_s - since_s >= OPEN_FOR_S]
        if old:
            names = listed([f"{topic}[{number}]" for topic, number in old])
            yield (
                f"a transaction has been open in {names} for {OPEN_FOR_S / 60:.0f} min or longer, "
                "so no task reads what came after its beginning: `pipeline transactions list` "
                "shows it",
                "",
            )

    def _with_new_partitions(self, counts: Mapping[str, int]) -> Pipeline:
        more = {topic: counts[topic] for topic in self._grown(counts)}
        return with_more_partitions(self._pipeline, more) if self._takes_up else self._pipeline

    def _grown(self, counts: Mapping[str, int]) -> list[str]:
        """Return the sources that have more partitions than when this version began."""
        read = [topic for topic, readers in self._readers.items() if readers]
        return [topic for topic in read if counts.get(topic, 0) > self._counts[topic]]

    def _gone(self, topic: str) -> str:
        if topic not in self._readers:
            return (
                f"{topic} does not exist any more, a topic of this job. {_LOST}. The JobManager "
                "makes it again, empty, when it starts"
            )
        use = " and ".join(
            f"{listed(who)} {verb}"
            for who, verb in ((self._readers[topic], "read it"), (self._writers[topic], "write it"))
            if who
        )
        return (
            f"{topic} does not exist any more ({use}): make it again with "
            f"{counted(self._counts[topic], 'partition')}, or take it out of the pipeline"
        )

    def _too_many(self, topic: str, count: int) -> str:
        readers = self._readers[topic]
        return (
            f"{topic} has {counted(count, 'partition')}, and {listed(readers)} "
            f"{'reads' if len(readers) == 1 else 'read'} {self._counts[topic]}. {_GROWN_REMEDY}"
        )

    def _waiting(self, topic: str, count: int) -> int:
        """Return how many records are in the partitions that a topic did not have before."""
        new = [(topic, number) for number in range(self._counts[topic], count)]
        starts, ends = self._admin.oldest_offsets(new), self._admin.high_watermarks(new)
        return sum(ends[each] - starts.get(each, 0) for each in ends)

    def _look_for_topics(self) -> None:
        existing, _ = matching_topics(self._pipeline, self._config, self._admin)
        new = sorted(set(existing) - self._known)
        if new:
            logger.warning("new topics match a pattern: run `pipeline apply` again", topics=new)
        self._known.update(new)

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except (PipelineError, EngineError) as error:
                logger.warning("the topics cannot be checked now", reason=str(error))
            if self._stopped.wait(LOOK_INTERVAL_S):
                return
