"""Reads the records of a topic, and writes some, by serdes."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.bulk import FETCH_RECORDS, read_from
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.moving import RecordMover
from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch, parts
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.operations.record_lines import RecordLines
from kafka_pipeline.operations.starts import Latest, Start, of_last_records, records_from, starts

_MOST_RECORDS = 500
"""How many records a transaction has."""


class TopicRecords:
    """The records of one topic of the cluster."""

    def __init__(self, config: Config, topic: str, lines: RecordLines) -> None:
        """Find the topic, whose records `lines` reads and writes.

        Raises `UnavailableError` if Kafka does not answer, and `ConfigError` if there is no such
        topic.
        """
        self._config = config
        self._topic = topic
        self.lines = lines
        self._admin = connected(config)
        existing = self._admin.topics()
        if topic not in existing:
            raise ConfigError(f'there is no topic "{topic}"{did_you_mean(topic, existing)}')
        self._partitions = existing[topic]

    def read(
        self, start: Start, partitions: Collection[int], *, most: int | None, follow: bool = False
    ) -> Iterator[tuple[RecordBatch, int]]:
        """Yield committed records, each as a batch and an index; those of a partition in order.

        All partitions by default, and all records unless there are `most`. `Latest` counts records
        here, in each partition. With `follow`, this
        waits for more forever. Raises `ConfigError` if there is no such partition, and
        `UnavailableError` if it cannot be read.
        """
        for number in partitions:
            self._require_partition(number)
        chosen = [(self._topic, number) for number in partitions or range(self._partitions)]
        ends = self._admin.stable_ends(chosen)
        begins = self._begins(start, ends)
        # No more than are wanted: they are in memory together, and may be large.
        at_once = FETCH_RECORDS if most is None else min(most, FETCH_RECORDS)
        found = read_from(self._config, begins, None if follow else ends, most=at_once)
        return islice(records_from(start, found), most)

    def _begins(self, start: Start, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        if not isinstance(start, Latest) or not start.before:
            return starts(start, self._admin, ends)
        oldest = self._admin.oldest_offsets([*ends])
        read = partial(read_from, self._config, ends=ends)
        return of_last_records(start.before, oldest, ends, read)

    def write(self, lines: Iterable[str]) -> Iterator[int]:
        """Write the records of lines; yield how many were written after each transaction.

        Raises `ConfigError` for a wrong line, or if only the engine may write to the topic, and
        `UnavailableError` if Kafka does not take the records.
        """
        self._require_of_user()
        # Of its own, so that two runs do not fence each other.
        id_ = self._config.topic_names.tool_transactional_id(uuid.uuid4().hex[:12])
        mover = RecordMover(self._config, id_)
        written = 0
        for some in parts(self._records(lines), _MOST_RECORDS):
            mover.write(some)
            written += len(some)
            yield written

    def _records(self, lines: Iterable[str]) -> Iterator[OutputRecord]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            record = self.lines.from_json(line, number)
            try:
                self._require_partition(record[3])
            except ConfigError as error:
                raise ConfigError(f"line {number}: {error}") from error
            yield record

    def _require_partition(self, number: int) -> None:
        if number >= self._partitions:
            raise ConfigError(
                f"topic {self._topic} has no partition {number}: it has {self._partitions}"
            )

    def _require_of_user(self) -> None:
        """Raise `ConfigError` for a topic that only the engine may write."""
        owner = self._config.topic_names.reserved_for(self._topic)
        current = read_deployment(self._config, self._admin).current
        if current is not None and owner is None:
            own = {*current.pipeline.all_topics} - {*current.pipeline.user_topics}
            if self._topic in own:
                owner = "the pipeline that the job runs"
        if owner is not None:
            raise ConfigError(
                f"topic {self._topic} belongs to {owner}: nobody else may write to it"
            )
