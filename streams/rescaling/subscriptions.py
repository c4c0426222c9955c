"""The row partitions inside the subscriptions of foreign-key joins."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.dsl.foreign_key_messages import (
    partition_of_subscription,
    parts_of_subscription,
    with_partition,
)
from kafka_pipeline.streams.dsl.topics import repartition_topic
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.rescaling.saved import SavedRow
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.stores.layout import without_end


def topic_of(store: str) -> str:
    """Return the internal topic of the subscriptions in a store."""
    return repartition_topic(store)


class RowPartitions:
    """Computes the new partitions; `where` names the store in errors."""

    def __init__(self, where: str, tasks: Tasks, after_row_key: int) -> None:
        self._where = where
        self._tasks = tasks
        self._after = after_row_key

    def check(self, rows: Sequence[SavedRow]) -> None:
        """Raise `ConfigError` for a row outside the default partition of its key."""
        if self._tasks.before == self._tasks.after:
            return
        for row in rows:
            if row.value is None:
                continue
            found = partition_of_subscription(row.value)
            if self._partition(row.value, self._tasks.before) != found:
                raise ConfigError(
                    f"{self._where} has subscriptions of rows in partition {found} that the "
                    "default partitioner would have sent to another one: where answers are to go "
                    "with another number of tasks is unknown"
                )

    def changed(self, value: bytes) -> bytes:
        """Return a subscription with the new partition of its row."""
        if self._tasks.before == self._tasks.after:
            return value
        return with_partition(value, self._partition(value, self._tasks.after))

    def _partition(self, value: bytes, count: int) -> int:
        key = parts_of_subscription(value)[1]
        return default_partition(without_end(key, self._after), count)
