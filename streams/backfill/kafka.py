"""Reads history from a topic, and writes results to a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.kafka.bulk import read_range
from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.record_batch import OutputRecord, parts
from kafka_pipeline.streams.backfill.outputs import SortedRuns
from kafka_pipeline.streams.backfill.sorted_runs import batches, run_table
from kafka_pipeline.streams.backfill.tasks import Done, Workspace

_TIMEOUT_S = 60.0
_RECORDS_PER_TRANSACTION = 20_000
_ATTEMPTS = 5
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """Puts the records of a topic's partition from offset `start` up to `end` into a run.

    The run belongs to `topic`, the topic of the pipeline that `read_topic` replaces.
    """

    folder: Path
    config: Config
    read_topic: str
    topic: str
    partition: int
    start: int
    end: int

    def work(self, workspace: Workspace) -> Done:
        """See `BackfillTask.work`.

        Raises `UnavailableError`, or `NonRetriableError` for lost offsets.
        """
        done, runs = Done(), SortedRuns(workspace.path)
        for batch in read_range(self.config, self.read_topic, self.partition, self.start, self.end):
            if batch.error:
                at = f"{batch.topic}[{batch.partition}]@{batch.offsets[0]}"
                raise PipelineError(f"record {at} cannot be taken along: {batch.error}")
            partitions = np.full(len(batch), self.partition, np.int32)
            keys = pa.array(batch.keys, pa.binary())
            columns = keys, batch.values, batch.timestamps, batch.headers, batch.offsets
            runs.write(self.topic, run_table(*columns), partitions)
            done.records_in += len(batch)
            workspace.progress(len(batch))
        done.count_written(runs.close())
        return done


@dataclass(frozen=True, slots=True)
class WritePartition:
    """Writes runs to a partition of a topic, exactly once however often it is interrupted.

    Each transaction commits how many records have been written, as the offset of `group` for the
    partition. The next writer fences the former one and continues after those records.
    """

    folder: Path
    config: Config
    runs: tuple[Path, ...]
    topic: str
    partition: int
    group: str
    size_limit: int

    def work(self, workspace: Workspace) -> Done:
        """See `BackfillTask.work`.

        Raises `FencedError`, `NonRetriableError` or `TransactionFailedError`.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return Done(written={self.topic: self._write(workspace)})
            except TransactionFailedError:
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(_RETRY_S)
        raise AssertionError("the last attempt returns or raises")

    def _write(self, workspace: Workspace) -> int:
        target = self.topic, self.partition
        transactional_id = f"{self.group}_{self.topic}_{self.partition}"
        producer = TaskProducer(self.config, transactional_id, {self.topic: self.size_limit})
        with closing(producer), closing(PartitionReader(self.config, self.group)) as reader:
            producer.fence(_TIMEOUT_S)
            # Only after fencing: before that, the former writer could still commit.
            proof = self.config.topic_names.coordinator_proof
            committed = reader.committed([target], _TIMEOUT_S, proof)
            written = committed.get(target, Committed(0)).offset
            workspace.progress(written)
            records = islice(self._records(workspace), written, None)
            for part in parts(records, _RECORDS_PER_TRANSACTION):
                producer.begin()
                producer.send_records(part)
                written += len(part)
                producer.commit({target: Committed(written)}, reader.group_metadata)
                workspace.progress(len(part))
        return written

    def _records(self, workspace: Workspace) -> Iterator[OutputRecord]:
        for batch in batches(self.runs, self.topic, self.partition, False, workspace.path):
            headers = batch.headers or [None] * len(batch)
            for key, value, timestamp, each in zip(
                batch.keys, batch.values, batch.timestamps, headers, strict=True
            ):
                yield self.topic, key, value, self.partition, timestamp, each
