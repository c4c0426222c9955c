"""One copy of a global store, and the processor that fills it. No Kafka in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NoReturn

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.node_group import GlobalStore
from kafka_pipeline.streams.engine.outputs import Dropped
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.read_only import ReadOnlyBytes

NULL_KEY = "null key"
"""The reason under which records without a key are counted as dropped."""


class GlobalTask:
    """Takes in batches of a global store's topic; tasks read committed data through its `view`.

    Only one thread at a time may add or close; any thread may read the view.
    """

    def __init__(
        self,
        store: GlobalStore,
        partitions: Sequence[Partition],
        bytes_store: BytesStore,
        *,
        application_id: str,
        clock_ms: Callable[[], int],
        log_record_values: bool = False,
    ) -> None:
        """Make the nodes on `bytes_store`, which is empty. Raises what the user's `init` raises."""
        self._store = bytes_store
        self._lock = Lock()
        self._dropped: Counter[Dropped] = Counter()
        self.view = ReadOnlyBytes(store.store.name, bytes_store, self._lock)
        """The view that tasks read."""
        self.nodes = GroupTask(
            store.group,
            partitions,
            # Records of different partitions usually have different keys.
            GroupSettings(takes_inputs_as_they_come=True),
            TaskEnvironment(
                application_id=application_id,
                task_id=f"{store.source.name}_global",
                number=0,
                stores={store.store.name: bytes_store},
                output_topics=_NoTopics(),
                clock_ms=clock_ms,
                log_record_values=log_record_values,
            ),
        )

    def add(self, batch: RecordBatch) -> None:
        """Process records and commit their changes; records without a key are dropped.

        Raises `ProcessingFailedError` if a record fails; nothing of that record is kept.
        """
        kept = [index for index, key in enumerate(batch.keys) if key is not None]
        self._dropped[Dropped(NULL_KEY, batch.topic)] += len(batch) - len(kept)
        with self._lock:
            try:
                if kept:
                    self.nodes.add(batch if len(kept) == len(batch) else batch.only(kept))
                    while self.nodes.step(0, {}).has_more:
                        pass
            finally:
                self._dropped.update(self.nodes.take()[1].dropped)
                if self._store.uncommitted:
                    self._store.commit(0)
                    self.view.has_changed()

    def take_dropped(self) -> Counter[Dropped]:
        """Return how many records were dropped since the last call, by reason and topic."""
        dropped, self._dropped = self._dropped, Counter()
        return +dropped

    def close(self) -> None:
        """Close the processor and the store. Raises what the processor raises."""
        with self._lock:
            try:
                self.nodes.close()
            finally:
                self._store.close()


class _NoTopics:
    """The output topics of nodes that have no sinks."""

    def num_partitions(self, topic: str) -> NoReturn:
        raise AssertionError(f"a global store writes no topic, {topic} neither")

    limits = num_partitions

    def recheck_limits(self, topic: str) -> None:
        self.num_partitions(topic)
