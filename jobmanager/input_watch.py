"""Warns of partitions and topics that are added while a pipeline runs, and that no task reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.jobmanager.patterns import matching_topics

LOOK_INTERVAL_S = 20.0
_INPUT_REMEDY = (
    "`pipeline apply` the pipeline again; if a processor with state reads it, see "
    'docs/how-to/change_a_pipeline.md, "When a source gets more partitions"'
)
_FIXED_REMEDY = (
    "tasks FAIL rather than write there, and no change of the pipeline is taken; see "
    'docs/how-to/troubleshoot.md, "A topic has the wrong number of partitions"'
)
_INPUT_HAS_GROWN = (
    f"an input has more partitions than before, and no task reads the new ones: {_INPUT_REMEDY}"
)
_FIXED_HAS_GROWN = (
    "a topic of the job has more partitions than the job made, and no task reads the new ones: "
    + _FIXED_REMEDY
)

logger = structlog.get_logger()


class InputWatch:
    """Checks three times a minute for new partitions and new topics that match a pattern.

    No task reads the records in new partitions of the inputs before the pipeline is applied again,
    and the consumer lag does not include them. Arcs and state topics must not get more: tasks FAIL
    rather than write there, and no change of the pipeline is taken. Each is logged once; `findings`
    has what is so at the last look.
    """

    def __init__(self, pipeline: Pipeline, config: Config, admin: Admin) -> None:
        """Take the pipeline with the topics that are read and their partition counts."""
        self._pipeline = pipeline
        self._config = config
        self._admin = admin
        processors, arcs = pipeline.processors, pipeline.arcs
        inputs = {
            topic: pipeline.partitions_of(topic)
            for processor in processors
            for topic in pipeline.read_topics(processor)
            if topic not in arcs
        }
        fixed = {topic: pipeline.partitions_of(topic) for topic in arcs} | {
            topic: pipeline.task_count(processor)
            for processor in processors
            for topic in pipeline.state_topics(processor).values()
        }
        self._fixed = frozenset(fixed)
        self._of_version = inputs | fixed
        """The partitions that the version has tasks for."""
        self._partitions = dict(self._of_version)
        """The most partitions that were seen."""
        self.findings: tuple[str, ...] = ()
        self._known = set(inputs)
        self._has_patterns = any(processor.patterns for processor in pipeline.processors)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start watching, in a thread of its own."""
        threading.Thread(target=self._run, name="inputs", daemon=True).start()

    def stop(self) -> None:
        """Stop watching; does not wait for the thread."""
        self._stopped.set()

    def look(self) -> None:
        """Log what is new. Raises `UnavailableError` if Kafka does not answer."""
        counts = self._admin.partition_counts(self._partitions)
        for topic, count in counts.items():
            before = self._partitions[topic]
            if count > before:
                logger.warning(
                    _FIXED_HAS_GROWN if topic in self._fixed else _INPUT_HAS_GROWN,
                    topic=topic,
                    partitions=count,
                    before=before,
                )
            self._partitions[topic] = max(count, before)
        if self._has_patterns:
            self._look_for_topics()
        self.findings = tuple(self._findings(counts))

    def _findings(self, counts: Mapping[str, int]) -> Iterator[str]:
        for topic, count in sorted(counts.items()):
            before = self._of_version[topic]
            if count <= before:
                continue
            has = f"{topic} has {counted(count, 'partition')}"
            if topic in self._fixed:
                yield f"{has}, the job made it with {before}: {_FIXED_REMEDY}"
                continue
            new = [(topic, number) for number in range(before, count)]
            starts, ends = self._admin.oldest_offsets(new), self._admin.high_watermarks(new)
            waiting = sum(ends[each] - starts.get(each, 0) for each in ends)
            readers = [
                processor.id
                for processor in self._pipeline.processors
                if topic in self._pipeline.read_topics(processor)
            ]
            yield (
                f"{has}, and {', '.join(readers)} {'reads' if len(readers) == 1 else 'read'} "
                f"{before}; waiting in the others: {counted(waiting, 'record')}. {_INPUT_REMEDY}"
            )

    def _look_for_topics(self) -> None:
        existing, _ = matching_topics(self._pipeline, self._config, self._admin)
        new = sorted(set(existing) - self._known)
        if new:
            logger.warning("topics match a pattern: `pipeline apply` it again", topics=new)
        self._known.update(new)

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_INTERVAL_S):
            try:
                self.look()
            except UnavailableError as error:
                logger.warning("the topics cannot be checked now", reason=str(error))
