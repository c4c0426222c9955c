"""The state of processors in the files of a savepoint, to be spread over other tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.record_batch import OutputRecord
from kafka_pipeline.deployment.plan import NOTHING_LOST, Lost
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.operations.savepoints.manifest import SavedInput, SavedStore
from kafka_pipeline.operations.savepoints.record_files import read_records
from kafka_pipeline.streams.rescaling.saved import SavedRow
from kafka_pipeline.streams.rescaling.state_spread import StateSpread
from kafka_pipeline.streams.rescaling.subscriptions import topic_of
from kafka_pipeline.streams.rescaling.tasks import Tasks


class FolderState:
    """The `SavedState` of a processor in a savepoint, which may not be complete yet."""

    def __init__(self, folder: Path, topics: Mapping[str, tuple[str, set[int]]]) -> None:
        """`topics` has the state topic of each store, and the partitions that have files."""
        self._folder = folder
        self._topics = topics

    def read(self, store: str, task: int) -> Iterator[Sequence[SavedRow]]:
        topic, partitions = self._topics.get(store, ("", set()))
        if task not in partitions:
            return
        for records in read_records(self._folder, topic, task):
            yield [*map(SavedRow._make, records.rows())]

    def last(self, store: str, task: int) -> dict[bytes, SavedRow]:
        found = {row.key: row for rows in self.read(store, task) for row in rows}
        return {key: row for key, row in found.items() if row.value is not None}


class Spreads:
    """How the state of each processor goes from the tasks of one pipeline to those of another."""

    def __init__(
        self, folder: Path, former: Pipeline, pipeline: Pipeline, lost: Lost = NOTHING_LOST
    ) -> None:
        """Take both pipelines; what is `lost` goes nowhere."""
        self.lost = lost
        self._folder = folder
        self._former = former
        self._pipeline = pipeline
        self._new_ids = {old: new for new, old in renames(former, pipeline).items()}

    def is_changed(self, processor_id: str, store: str) -> bool:
        """Whether a store of the former pipeline is to be written again for the other tasks."""
        before, after = self._processors(processor_id)
        tasks, answers = self._tasks(before, after), self._answers(before, after)
        (spreading,) = (each.spreading for each in before.stores if each.name == store)
        of_rows = answers.get(spreading.answers or "")
        has_moved_rows = of_rows is not None and of_rows.before != of_rows.after
        return tasks.before != tasks.after or has_moved_rows

    def of(self, processor_id: str, stores: Sequence[SavedStore]) -> StateSpread:
        """Return what spreads these stores of a processor of the former pipeline."""
        before, after = self._processors(processor_id)
        topics = {
            each.store: (each.topic, {part.partition for part in each.partitions})
            for each in stores
            if each.processor == processor_id
        }
        return StateSpread(
            after.id,
            before.stores,
            self._tasks(before, after),
            FolderState(self._folder, topics),
            self._answers(before, after),
        )

    def check_left(self, inputs: Sequence[SavedInput]) -> None:
        """Raise `ConfigError` if subscriptions that wait name tasks of rows that change."""
        for each in inputs:
            id_ = self._new_ids.get(each.processor, each.processor)
            if not each.left or id_ not in self._ids or (id_, each.name) in self.lost.inputs:
                continue
            before, after = self._processors(each.processor)
            for store in before.stores:
                answers = self._answers(before, after).get(store.spreading.answers or "")
                is_moved = answers is not None and answers.before != answers.after
                if is_moved and topic_of(store.name) == each.name:
                    raise ConfigError(
                        f"subscriptions of a foreign-key join wait in {each.topic}, since "
                        "processors that send to each other cannot be drained. They name tasks of "
                        "rows, which change: try again when less is written"
                    )

    def left(
        self, saved: SavedInput, part: int, topic: str, tasks: Tasks
    ) -> Iterator[OutputRecord]:
        """Yield what waits in a partition of an arc, for the new partitions of `topic`.

        Raises `ConfigError` if those do not follow from the keys.
        """
        for records in read_records(self._folder, saved.topic, part):
            try:
                places = tasks.places_of_left(records.keys, part)
            except ValueError as error:
                raise ConfigError(
                    f"records wait in {saved.topic}, and {error}: its number of partitions cannot "
                    "change"
                ) from error
            for (key, value, *rest), place in zip(records.rows(), places, strict=True):
                yield topic, key, value, place, *rest

    def check(self, stores: Sequence[SavedStore], *, is_complete: bool = True) -> None:
        """Raise `ConfigError` if one of these stores cannot be spread; reads its files.

        If the savepoint is not complete yet, only keys are checked: times still change.
        """
        for each in stores:
            id_ = self._new_ids.get(each.processor, each.processor)
            if id_ not in self._ids or (id_, each.store) in self.lost.stores:
                continue
            if self.is_changed(each.processor, each.store):
                spread = self.of(each.processor, stores)
                spread.check_keys(each.store)
                if is_complete:
                    spread.check_times(each.store)

    @property
    def _ids(self) -> set[str]:
        return {processor.id for processor in self._pipeline.processors}

    def _processors(self, former_id: str) -> tuple[PipelineProcessor, PipelineProcessor]:
        """Return a processor as it was, and as it becomes."""
        after = self._pipeline.processor(self._new_ids.get(former_id, former_id))
        return self._former.processor(former_id), after

    def _tasks(self, before: PipelineProcessor, after: PipelineProcessor) -> Tasks:
        return Tasks(self._former.task_count(before), self._pipeline.task_count(after))

    def _answers(self, before: PipelineProcessor, after: PipelineProcessor) -> dict[str, Tasks]:
        """Return the tasks that read the internal topics that a processor writes."""
        found = {}
        for name in set(before.to) & set(after.to) & before.topics.keys() & after.topics.keys():
            former = self._former.partitions_of(before.topics[name])
            found[name] = Tasks(former, self._pipeline.partitions_of(after.topics[name]))
        return found
