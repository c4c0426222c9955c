"""Waits, in a thread of its own, until the readers of arcs have processed what is left in them."""

from __future__ import annotations

import threading
from collections.abc import Collection

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import FencedError, Partition
from kafka_pipeline.common.kafka.control import CommandWriter
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.arc_contents import ArcContents
from kafka_pipeline.deployment.plan import Arc

LOOK_INTERVAL_S = 0.5

logger = structlog.get_logger()


class DrainWatch:
    """Finds out which arcs are drained, of those to which nobody should write any more.

    A TaskManager that was taken for dead may still run a writer. So the writers' transactional ids
    are fenced before anything is believed: from then on, nothing can come to the arc. A TaskManager
    gives a fenced task up. Then a record that is aborted proves where the arc ends: a leader that
    is cut off would name an end that is too early.
    """

    def __init__(self, config: Config, pipeline: Pipeline) -> None:
        """Take the pipeline that still runs."""
        self._config = config
        self._pipeline = pipeline
        self._contents = ArcContents(config, Admin(config), pipeline)
        self._fenced: set[str] = set()
        self._ends: dict[str, dict[Partition, int]] = {}
        """Where the arcs end, by topic: once their writers are fenced, that does not change."""
        self._left: dict[str, int] = {}
        self._changing = threading.Lock()
        self._wanted: tuple[Arc, ...] = ()
        self._to_silence: frozenset[str] = frozenset()
        self._found: list[str] = []
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="drain", daemon=True).start()

    def look_at(self, arcs: Collection[Arc], to_silence: Collection[str] = ()) -> None:
        """Say which arcs to watch from now on, and which processors to fence; does not block."""
        with self._changing:
            self._wanted = tuple(arcs)
            self._to_silence = frozenset(to_silence)

    def take_drained(self) -> list[str]:
        """Return the topics that were found drained since the last call."""
        with self._changing:
            found, self._found = self._found, []
        return found

    @property
    def silenced(self) -> frozenset[str]:
        """The processors that are fenced."""
        with self._changing:
            return frozenset(self._fenced)

    @property
    def left(self) -> dict[str, int]:
        """How many offsets the arcs had left at the last look, of those that were looked at."""
        with self._changing:
            return dict(self._left)

    def stop(self) -> None:
        """Stop watching; does not wait for the thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_INTERVAL_S):
            with self._changing:
                arcs = [arc for arc in self._wanted if self._left.get(arc.topic) != 0]
                to_silence = self._to_silence
            for processor in to_silence:
                try:
                    self._fence(processor)
                except (EngineError, PipelineError) as error:
                    logger.warning(
                        "tasks cannot be fenced now", processor=processor, reason=str(error)
                    )
            for arc in arcs:
                try:
                    for writer in arc.writers:
                        self._fence(writer)
                    if arc.topic not in self._ends:
                        self._ends[arc.topic] = self._contents.proven_ends(arc)
                    left = self._contents.left(arc, self._ends[arc.topic])
                except (EngineError, PipelineError) as error:
                    logger.warning("an arc cannot be checked", arc=arc.topic, reason=str(error))
                    continue
                if self._left.get(arc.topic) != left:
                    with self._changing:
                        self._left[arc.topic] = left
                    logger.info("an arc is being drained", arc=arc.topic, offsets_left=left)
                if not left:
                    with self._changing:
                        self._found.append(arc.topic)

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
        with self._changing:
            self._fenced.add(processor)
