"""Runs a pipeline.yaml task by task, with restarts, on the Spark of this process."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.engine.group_task import GroupTask
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.engine.record_queues import Partition
from kafka_pipeline.streams.engine.task_environment import TaskEnvironment
from kafka_pipeline.streams.event_time.input_time import SOURCE, InputTime, Mark
from kafka_pipeline.streams.event_time.progress import Progress
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.units import group_of, settings_of
from kafka_pipeline.streams.sql.join_shape import PreparedJoin
from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.over_shape import PreparedOver
from kafka_pipeline.streams.sql.spec import Queries, QuerySpec, SparkQuery
from kafka_pipeline.streams.sql.state_shape import PreparedAggregation
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from tests.unit.streams.nodes import Clock, in_memory
from tests.unit.streams.pipeline.loading import CONFIG, load

MINUTE_MS = 60_000

Row = Mapping[str, Any]


def best_of(query: str, more: str = "") -> str:
    """Return a pipeline with a query for the best rows of groups."""
    return (
        "sinks: {late: late_records}\nprocessors:\n- id: Best\n  type: sql\n  format: json\n"
        f"  schema: customer STRING, n INT\n  query: {json.dumps(query)}\n  to: [sink]\n  {more}\n"
    )


class Result(NamedTuple):
    """A record that the pipeline gave."""

    topic: str
    key: str | None
    value: Any
    timestamp: int
    headers: dict[str, bytes | None]


class OpenedOnce:
    """Opens each query once, for all tasks: they use it in turns."""

    def __init__(self, queries: LocalQueries) -> None:
        self._queries = queries
        self._opened: dict[str, _Kept] = {}
        self._opened_rows: dict[str, _KeptRows] = {}
        self._opened_joins: dict[str, _KeptJoin] = {}
        self._opened_over: dict[str, _KeptOver] = {}
        self._open: list[SparkQuery | PreparedJoin | PreparedOver | PreparedAggregation] = []

    def forget(self) -> None:
        """Close all queries, which no task uses any more."""
        for query in self._open:
            query.close()
        self._opened.clear()
        self._opened_rows.clear()
        self._opened_joins.clear()
        self._opened_over.clear()
        self._open.clear()

    def open(self, spec: QuerySpec) -> SparkQuery:
        name = spec.to_json()
        if name not in self._opened_rows:
            query = self._queries.open(spec)
            self._open.append(query)
            self._opened_rows[name] = _KeptRows(query)
        return self._opened_rows[name]

    def open_join(self, spec: QuerySpec) -> PreparedJoin:
        name = spec.to_json()
        if name not in self._opened_joins:
            query = self._queries.open_join(spec)
            self._open.append(query)
            self._opened_joins[name] = _KeptJoin(query)
        return self._opened_joins[name]

    def open_over(self, spec: QuerySpec) -> PreparedOver:
        name = spec.to_json()
        if name not in self._opened_over:
            query = self._queries.open_over(spec)
            self._open.append(query)
            self._opened_over[name] = _KeptOver(query)
        return self._opened_over[name]

    def open_aggregation(self, spec: QuerySpec) -> PreparedAggregation:
        name = spec.to_json()
        if name not in self._opened:
            query = self._queries.open_aggregation(spec)
            self._open.append(query)
            self._opened[name] = _Kept(query)
        return self._opened[name]


class _KeptJoin:
    """A join that stays open."""

    def __init__(self, query: PreparedJoin) -> None:
        self.columns, self.fields, self.shape = query.columns, query.fields, query.shape
        self.replace = query.replace
        self.left, self.right = query.left, query.right
        self.matches, self.results = query.matches, query.results

    def close(self) -> None:
        """Another task may use the query."""


class _KeptOver:
    """A query with `OVER (…)` that stays open."""

    def __init__(self, query: PreparedOver) -> None:
        self.columns, self.fields, self.shape = query.columns, query.fields, query.shape
        self.rows, self.results, self.replace = query.rows, query.results, query.replace

    def close(self) -> None:
        """Another task may use the query."""


class _KeptRows:
    """A query without GROUP BY that stays open."""

    def __init__(self, query: SparkQuery) -> None:
        self.columns, self.fields, self.split = query.columns, query.fields, query.split
        self.run, self.parts, self.replace = query.run, query.parts, query.replace

    def close(self) -> None:
        """Another task may use the query."""


class _Kept:
    """A query that stays open."""

    def __init__(self, query: PreparedAggregation) -> None:
        self.columns, self.fields, self.shape = query.columns, query.fields, query.shape
        self.partial, self.merge, self.replace = query.partial, query.merge, query.replace

    def close(self) -> None:
        """Another task may use the query."""


@dataclass(frozen=True)
class Topics:
    """The partitions of all topics."""

    partitions: int

    def num_partitions(self, topic: str) -> int:
        return self.partitions

    def limits(self, topic: str) -> TopicLimits:
        return TopicLimits(2**31 - 1)

    def recheck_limits(self, topic: str) -> None:
        """The limit stays."""


class Job:
    """The tasks of a pipeline, which process what is sent to them at once, and commit it.

    `stores` of an earlier job are what its tasks had committed. With `writers`, so many tasks write
    each topic that is read, except for `sources`, and event time goes on by `learn` only. Topics in
    `counts` have other numbers of partitions.
    """

    def __init__(
        self,
        text: str,
        queries: Queries,
        stores: Mapping[str, Mapping[str, BytesStore]] | None = None,
        partitions: int = 1,
        writers: int = 0,
        sources: Collection[str] = (),
        code: UserCode | None = None,
        counts: Mapping[str, int] = {},
    ) -> None:
        self._code = code or UserCode()
        self.clock = Clock()
        self._writers, self._sources = writers, sources
        self._input_times: dict[str, InputTime] = {}
        self.results: list[Result] = []
        self.dropped: Counter[str] = Counter()
        self.skipped = 0
        self._queries = queries
        self._partitions = partitions
        # A test's tables are in its temporary folder.
        tables = TableSettings(paths=(tempfile.gettempdir(),))
        pipeline = load(text, replace(CONFIG, parallelism=partitions, tables=tables))
        self._units = replicas(with_counts(pipeline, counts))
        self.stores: dict[str, dict[str, BytesStore]] = {
            name: dict(each) for name, each in (stores or {}).items()
        }
        self._times: dict[str, dict[Partition, int]] = {}
        self._tasks: dict[str, GroupTask] = {}
        self._commits = 0
        for unit in self._units:
            self._start(unit)

    def send(self, rows: Sequence[Row], partition: int = 0, topic: str = "in") -> None:
        """Send JSON records to the source; `at` is their minute, `key` their key."""
        self.deliver(topic, partition, *columns_of(rows))

    def restart(self) -> None:
        """Close all tasks and start them again from what they have committed."""
        self.close()
        for unit in self._units:
            self._start(unit)

    def read_value(self, value: bytes) -> Any:
        """Return a result's value as `Result` shows it."""
        return json.loads(value)

    def close(self) -> None:
        """Close all tasks."""
        for task in self._tasks.values():
            task.close()
        self._tasks = {}

    def take(self) -> list[Result]:
        """Return the results since the last call."""
        found, self.results = self.results, []
        return found

    def latest(self) -> dict[str | None, Any]:
        """Return the last value of each key, without those that were deleted."""
        table: dict[str | None, Any] = {}
        for result in self.take():
            table[result.key] = result.value
        return {key: value for key, value in table.items() if value is not None}

    def _start(self, unit: ProcessorReplica) -> None:
        name = str(unit.task)
        group = group_of(unit, self._code, self._queries)
        stores = {**in_memory(group), **self.stores.get(name, {})}
        self.stores[name] = stores
        partitions = {(topic, unit.task.partition): 0 for topic in unit.in_topics}
        environment = TaskEnvironment(
            application_id="app",
            task_id=name,
            number=unit.task.partition,
            stores={builder.name: stores[builder.name] for builder in group.stores},
            output_topics=Topics(self._partitions),
            clock_ms=self.clock,
            clocked_topics={topic for each in self._units for topic in each.in_topics},
        )
        known = None
        if self._writers:
            writers = {
                place: SOURCE if place[0] in self._sources else self._writers
                for place in partitions
            }
            known = InputTime(writers, idle_after_ms=1000)
            self._input_times[name] = known
        self._tasks[name] = GroupTask(
            group,
            partitions,
            settings_of(unit),
            environment,
            times=self._times.get(name, {}),
            input_time=known,
        )

    def learn(self, minute: float, *, is_idle: bool = False) -> None:
        """Let all tasks know that their writers have passed a minute with all that was sent."""
        progress = Progress(int(minute * MINUTE_MS), is_idle)
        for unit in self._units:
            for topic in set(unit.in_topics) - set(self._sources):
                partition = (topic, unit.task.partition)
                self._input_times[str(unit.task)].learn(
                    {partition: Mark(self._commits, progress, progress)}
                )
            self._process(unit, [])

    def wait(self, ms: int) -> None:
        """Let the wall clock go on."""
        self.clock.now_ms += ms
        for unit in self._units:
            self._process(unit, [])

    def deliver(
        self,
        topic: str,
        partition: int,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times: Sequence[int],
        headers: Sequence[KafkaHeaders] | None = None,
    ) -> None:
        """Let the task that reads a partition of a topic process records."""
        for unit in self._units:
            if topic in unit.in_topics and unit.task.partition == partition:
                offsets = list(range(self._commits, self._commits + len(times)))
                self._commits += len(times)
                columns = ([*keys], [*values], [*times], offsets)
                batch = RecordBatch(
                    topic, partition, *columns, None if headers is None else [*headers]
                )
                self._process(unit, [batch])

    def send_together(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Let the one task that reads all of these topics process their rows in the order of time.

        They are in partition 0.
        """
        (unit,) = (each for each in self._units if set(rows) <= set(each.in_topics))
        batches = []
        for topic, records in rows.items():
            columns = columns_of(records)
            offsets = list(range(self._commits, self._commits + len(records)))
            self._commits += len(records)
            batches.append(RecordBatch(topic, 0, *columns, offsets, None))
        self._process(unit, [batch for batch in batches if len(batch)])

    def _process(self, unit: ProcessorReplica, batches: Sequence[RecordBatch]) -> None:
        task = self._tasks[str(unit.task)]
        ends = self._commits if self._writers else 0
        partitions = {(topic, unit.task.partition): ends for topic in unit.in_topics}
        for batch in batches:
            task.add(batch)
        while task.step(0, partitions).has_more:
            pass
        outputs, figures = task.take()
        for store in self.stores[str(unit.task)].values():
            store.commit(self._commits)
        self._times[str(unit.task)] = {each: task.partition_time(each) for each in partitions}
        self.skipped += figures.skipped
        for dropped, count in figures.dropped.items():
            self.dropped[dropped.reason] += count
        for output in outputs:
            self._route(output)

    def _route(self, output: Any) -> None:
        if isinstance(output, OutputColumns):
            columns = (output.keys, output.values, output.timestamps)
            headers: Sequence[Any] = output.headers or [None] * len(output.keys)
            topic = output.topic
        else:
            topic, key, value, _, timestamp, header = output
            columns, headers = ([key], [value], [timestamp]), [header]
        if any(topic in unit.in_topics for unit in self._units):
            keys, values, times = columns
            to = [default_partition(key or b"", self._partitions) for key in keys]
            for number in range(self._partitions):
                chosen = [index for index, each in enumerate(to) if each == number]
                if chosen:
                    self.deliver(
                        topic,
                        number,
                        [keys[index] for index in chosen],
                        [values[index] for index in chosen],
                        [times[index] for index in chosen],
                        [headers[index] for index in chosen],
                    )
            return
        for key, value, timestamp, header in zip(*columns, headers, strict=True):
            shown = None if value is None else self.read_value(value)
            text = None if key is None else key.decode()
            self.results.append(Result(topic, text, shown, timestamp, dict(header or ())))


def columns_of(rows: Sequence[Row]) -> tuple[list[bytes | None], list[bytes | None], list[int]]:
    """Return the keys, values and timestamps of JSON records; a `raw` value is as it is."""
    return (
        [None if row.get("key") is None else str(row["key"]).encode() for row in rows],
        [_value(row) for row in rows],
        [round(row["at"] * MINUTE_MS) for row in rows],
    )


def _value(row: Row) -> bytes | None:
    if "raw" in row:
        return row["raw"]  # type: ignore[no-any-return]
    fields = {name: value for name, value in row.items() if name not in ("key", "at")}
    return json.dumps(fields).encode()
