"""Waits, in a thread of its own, until the readers of arcs have processed what is left in them."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import closing

import structlog

from kafka_pipeline.common.committed import offsets_of
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import FencedError, Partition
from kafka_pipeline.common.kafka.control import CommandWriter
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.offsets import Offsets
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.plan import Arc

LOOK_INTERVAL_S = 0.5
_REQUEST_TIMEOUT_S = 30.0

logger = structlog.get_logger()


class DrainWatch:
    """Finds out which arcs are drained, of those to which nobody should write any more.

    A TaskManager that was taken for dead may still run a writer. So the writers' transactional ids
    are fenced before anything is believed: from then on, nothing can come to the arc. A TaskManager
    gives a fenced task up.
    """

    def __init__(self, config: Config, pipeline: Pipeline) -> None:
        """Take the pipeline that still runs."""
        self._config = config
        self._admin = Admin(config)
        self._pipeline = pipeline
        self._offsets = Offsets(config, self._admin)
        self._fenced: set[str] = set()
        self._left: dict[str, int] = {}
        """How many offsets each arc had left at the last look."""
        self._changing = threading.Lock()
        self._wanted: tuple[Arc, ...] = ()
        self._found: list[str] = []
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="drain", daemon=True).start()

    def look_at(self, arcs: Collection[Arc]) -> None:
        """Say which arcs to watch from now on; does not block."""
        with self._changing:
            self._wanted = tuple(arcs)

    def take_drained(self) -> list[str]:
        """Return the topics that were found drained since the last call."""
        with self._changing:
            found, self._found = self._found, []
        return found

    def stop(self) -> None:
        """Stop watching; does not wait for the thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_INTERVAL_S):
            with self._changing:
                arcs = [arc for arc in self._wanted if self._left.get(arc.topic) != 0]
            for arc in arcs:
                try:
                    left = self._count_left(arc)
                except (EngineError, PipelineError) as error:
                    logger.warning("an arc cannot be looked at", arc=arc.topic, reason=str(error))
                    continue
                if self._left.get(arc.topic) != left:
                    self._left[arc.topic] = left
                    logger.info("an arc is being drained", arc=arc.topic, offsets_left=left)
                if not left:
                    with self._changing:
                        self._found.append(arc.topic)

    def _count_left(self, arc: Arc) -> int:
        """Return how many offsets of an arc its reader has not committed; 0 if no record is left.

        The last offsets are markers of transactions. Readers pass them, but commit only records.
        """
        for writer in arc.writers:
            self._fence(writer)
        count = self._pipeline.partitions_of(arc.topic)
        partitions: list[Partition] = [(arc.topic, number) for number in range(count)]
        ends = self._admin.stable_ends(partitions)
        oldest = self._admin.oldest_offsets(partitions)
        group = self._pipeline.names.consumer_group(arc.reader)
        with closing(PartitionReader(self._config, group)) as reader:
            committed = offsets_of(reader.committed(partitions, _REQUEST_TIMEOUT_S))
        at = {each: max(committed.get(each, 0), oldest[each]) for each in partitions}
        behind = {each: offset for each, offset in at.items() if offset < ends[each]}
        first = self._offsets.first_records(behind)
        return sum(
            ends[each] - offset
            for each, offset in behind.items()
            if each not in first or first[each].offset < ends[each]
        )

    def _fence(self, processor: str) -> None:
        """Make sure that no task of a processor that was started before now can commit again."""
        if processor in self._fenced:
            return
        pipeline = self._pipeline
        for number in range(pipeline.task_count(pipeline.processor(processor))):
            task = pipeline.names.transactional_id(TaskId(processor, number))
            try:
                CommandWriter(self._config, task)
            except FencedError:
                logger.info("another JobManager fences the same tasks", processor=processor)
        self._fenced.add(processor)
