"""Changes the number of the tasks of a pipeline, as `pipeline rescale` does."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.streams.rescaling.saved import SavedRow
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.sql.spec import Queries
from kafka_pipeline.streams.stores.bytes_store import SEGMENT_BYTES, BytesStore
from tests.unit.streams.pipeline.loading import load
from tests.unit.streams.rescaling.sharded import Logs, spread
from tests.unit.streams.sql.grouped_job import Job


def rescaled(job: Job, text: str, queries: Queries, before: int, after: int) -> Job:
    """Return a job with another number of tasks, and the state of the former one."""
    job.close()
    found = Job(text, queries, partitions=after)
    for processor in load(text).processors:
        _fill(processor, job.stores, found.stores, Tasks(before, after))
    found.restart()
    found.results = job.results
    return found


def _fill(
    processor: PipelineProcessor,
    former: Mapping[str, Mapping[str, BytesStore]],
    stores: Mapping[str, Mapping[str, BytesStore]],
    tasks: Tasks,
) -> None:
    timed = {s.name for s in processor.stores if s.spreading.time in ("window", "session")}
    logs = Logs()
    for number in range(tasks.before):
        _add_logs(former[f"{processor.id}_{number}"], timed, number, logs)
    for name, row in spread(processor.stores, tasks, logs):
        stores[f"{processor.id}_{row.partition}"][name].restore({row.key: row.value}, 1)


def _add_logs(
    stores: Mapping[str, BytesStore], segmented: set[str], number: int, logs: Logs
) -> None:
    """Add the content of a task's stores to the logs of state topics."""
    for name, store in stores.items():
        start = SEGMENT_BYTES if name in segmented else 0
        rows = [SavedRow(key[start:], value, 0) for key, value in store.scan(b"", None)]
        logs.log[name, number] += rows
