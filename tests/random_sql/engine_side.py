"""Runs a query over inputs in this engine, batch by batch, with restarts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.sql.spec import QueryError
from tests.random_sql.inputs import FAR_MS, MINUTE_MS, Inputs, Record, has_time
from tests.random_sql.queries import Query
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Result


class RefusedError(Exception):
    """The engine does not take the query; the message is what users see."""


class EngineSide:
    """Tasks in this process, which share what Spark has planned for a query."""

    def __init__(self, queries: OpenedOnce, folder: Path) -> None:
        """Take Spark's queries, and a folder for lookup tables that they may read."""
        self._queries, self._folder = queries, folder

    def run(self, query: Query, inputs: Inputs) -> list[Result]:
        """Return the results in their order. Raises `RefusedError`."""
        text = query.pipeline(str(self._with_files(query)))
        try:
            job = _Job(text, self._queries, inputs, query)
        except (ConfigError, QueryError) as error:
            raise RefusedError(str(error)) from error
        for place, batch in enumerate(inputs.batches):
            if place in inputs.restarts:
                job.restart()
            job.take_batch(batch)
        if has_time(query):
            job.end([*query.topic_tables, *query.inputs])
        job.close()
        if late := {reason for reason in job.dropped if reason.startswith("expired")}:
            raise AssertionError(f"no record is late, but some were dropped: {late}")
        return [each for each in job.take() if each.timestamp < FAR_MS]

    def forget(self) -> None:
        """Close what Spark has planned."""
        self._queries.forget()

    def _with_files(self, query: Query) -> Path:
        """Return a folder that has the lookup tables of a query."""
        folder = Path(self._folder, str(zlib.crc32(repr(query.files).encode())))
        folder.mkdir(exist_ok=True)
        for name, lines in query.files.items():
            (folder / f"{name}.csv").write_text("".join(f"{line}\n" for line in lines))
        return folder


class _Job(Job):
    """The tasks, which take the records of all topics in the order of time."""

    def __init__(self, text: str, queries: OpenedOnce, inputs: Inputs, query: Query) -> None:
        self._clocks: dict[int, int] = {}
        self._sent = 0
        count, sources = inputs.partitions, (*query.inputs, *query.topic_tables)
        super().__init__(text, queries, partitions=count, writers=count, sources=sources)

    def read_value(self, value: bytes) -> Any:
        return json.loads(value, parse_float=Decimal)

    def take_batch(self, records: Sequence[Record]) -> None:
        """Let the tasks process records, partition by partition."""
        topics = {record.topic: None for record in records}
        for partition in sorted({record.partition for record in records}):
            batches = []
            for topic in topics:
                found = [
                    each for each in records if (each.topic, each.partition) == (topic, partition)
                ]
                # Those of the judge, which knows nothing of topics in between.
                offsets = list(range(self._sent, self._sent + len(found)))
                self._sent += len(found)
                self._commits += len(found)
                keys = [None if each.key is None else each.key.encode() for each in found]
                values, times = [each.value for each in found], [each.time_ms for each in found]
                batches.append(RecordBatch(topic, partition, keys, values, times, offsets, None))
            for unit in self._units:
                if unit.task.partition == partition and {*topics} & {*unit.in_topics}:
                    read = [each for each in batches if each.topic in unit.in_topics]
                    self._process(unit, [each for each in read if len(each)])
        self._pass_on(records)

    def end(self, topics: Sequence[str]) -> None:
        """Let time pass everything that was sent, by a record in each partition."""
        last = [
            Record(topic, partition, f"end of {topic}", b"{}", FAR_MS)
            for partition in range(self._partitions)
            for topic in topics
        ]
        self.take_batch(last)

    def _pass_on(self, records: Sequence[Record]) -> None:
        """Let the tasks behind topics know how far all partitions are."""
        clocks = self._clocks
        for record in records:
            clocks[record.partition] = max(clocks.get(record.partition, 0), record.time_ms)
        if len(clocks) == self._partitions:
            self.learn(min(clocks.values()) / MINUTE_MS)
