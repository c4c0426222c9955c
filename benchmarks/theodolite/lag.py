"""The lag of a job over all topics that it reads, and its trend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from benchmarks.bench import Bench

Partition = tuple[str, int]

_TIMEOUT_S = 30.0


class Lag:
    """Asks for the lag of the consumer groups that have appeared since it was made."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._client = AdminClient({**bench.kafka, "log_level": 0})
        self._others = self._groups()

    def now(self) -> int:
        """Return how many offsets are unread in all topics of which something is committed.

        Transaction markers count as well: they add a constant, and no trend. Topics with another
        number of partitions than the job's do not count: daemons talk to each other there.
        """
        committed = [self._committed(group) for group in self._groups() - self._others]
        counts = self._bench.admin.partition_counts(
            {topic for found in committed for topic, _ in found}
        )
        places = [
            (topic, number)
            for topic, count in counts.items()
            if count == self._bench.partitions
            for number in range(count)
        ]
        ends = self._bench.admin.high_watermarks(places) if places else {}
        return sum(unread(found, ends) for found in committed)

    def _groups(self) -> set[str]:
        found = self._client.list_consumer_groups(request_timeout=_TIMEOUT_S).result()
        return {group.group_id for group in found.valid}

    def _committed(self, group: str) -> dict[Partition, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        (answer,) = self._client.list_consumer_group_offsets(
            asked, request_timeout=_TIMEOUT_S
        ).values()
        found = answer.result(_TIMEOUT_S).topic_partitions
        return {(each.topic, each.partition): max(each.offset, 0) for each in found}


def unread(committed: Mapping[Partition, int], ends: Mapping[Partition, int]) -> int:
    """Return how many offsets a group has not committed in the topics of which it committed some.

    A partition of such a topic without a commit is unread as a whole. `ends` has the topics that
    count.
    """
    topics = {topic for topic, _ in committed}
    return sum(
        max(end - committed.get(partition, 0), 0)
        for partition, end in ends.items()
        if partition[0] in topics
    )


def trend(times_s: Sequence[float], lags: Sequence[int]) -> float:
    """Return the slope of the line through two or more lags by least squares, in records/s."""
    return float(np.polyfit(times_s, lags, 1)[0])
