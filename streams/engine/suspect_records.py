"""Records that were being processed when a worker process ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.errors import EndedProcessError
from kafka_pipeline.streams.processor import RecordRejectedError


class EndedWorkersError(RecordRejectedError, EndedProcessError):
    """A record has ended two worker processes. It is rejected without a call of user code."""


class SuspectRecords:
    """Knows which records go one at a time, and which not at all."""

    def __init__(self, suspects: Sequence[Suspect]) -> None:
        self._suspects = [each for each in suspects if each.is_about_records]

    @property
    def one_at_a_time(self) -> bool:
        """Whether that holds for all records of the task."""
        return any(not each.topic for each in self._suspects)

    def parts(self, batch: RecordBatch) -> Sequence[RecordBatch]:
        """Return a batch in parts, in which each suspect record is alone."""
        return tuple(self._cut(batch)) if self._suspects else (batch,)

    def _cut(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        begin = 0
        for index, offset in enumerate(batch.offsets):
            found = self._about(batch, offset)
            if found is None:
                continue
            if begin < index:
                yield batch.part(begin, index)
            yield _rejected(batch.part(index, index + 1), found)
            begin = index + 1
        if begin < len(batch):
            yield batch.part(begin, len(batch))

    def is_suspect(self, batch: RecordBatch, index: int) -> bool:
        """Whether a record may end the process."""
        return bool(self._suspects) and self._about(batch, batch.offsets[index]) is not None

    def _about(self, batch: RecordBatch, offset: int) -> Suspect | None:
        found = [
            each for each in self._suspects if each.covers(batch.topic, batch.partition, offset)
        ]
        # A verdict on the record counts more than a range that it is in.
        return max(found, key=lambda each: bool(each.verdict), default=None)


def _rejected(batch: RecordBatch, suspect: Suspect) -> RecordBatch:
    """Return a batch of one record, with the error that rejects it if there is a verdict."""
    if not suspect.verdict:
        return batch
    why = f"ended the process: {suspect.verdict}"
    times = [max(batch.timestamps[0], 0)]
    return replace(batch, timestamps=times, error=why, cause=EndedWorkersError(why))
