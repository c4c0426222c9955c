"""`type: sql` and `type: dataframe`: records through Spark, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.clocks import clocks_by_time
from kafka_pipeline.streams.engine.mixed import MixedProcessor
from kafka_pipeline.streams.processor import ProcessorContext, RecordRejectedError
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.columns import batch_of, table_of
from kafka_pipeline.streams.sql.json_fields import JsonFields
from kafka_pipeline.streams.sql.spec import (
    RECORD,
    Prepared,
    QueryError,
    QuerySpec,
    SparkLostError,
    SparkQuery,
)
from kafka_pipeline.streams.sql.topic_tables import TopicTableLookup

Q = TypeVar("Q", bound=Prepared)


def other_rows(topic: str, problem: ValueError) -> ConfigError:
    """Return the error for rows of another query in an internal topic."""
    wrong = f"the topic {topic} of the processor has other rows than those of its query"
    advice = "process them with the former query, or give the processor another id"
    return ConfigError(f"{wrong} ({problem}): {advice}", shown=f"{wrong}: {advice}")


class QueryProcessor(MixedProcessor, Generic[Q]):
    """The base of all processors of queries, which are open from `init` to `close`."""

    def __init__(
        self,
        spec: QuerySpec,
        open_query: Callable[[QuerySpec], Q],
        children: Sequence[str | None] = (None,),
    ) -> None:
        """`children` are those that get results; `None` means all."""
        self.spec = spec
        self.open_query = open_query
        self.children = children

    def init(self, context: ProcessorContext) -> None:
        """Prepare the query. Raises `QueryError` if it cannot be run."""
        self.context = context
        self.partition = TaskId.parse(context.task_id).partition
        self.query = self.open_query(self.spec)

    def close(self) -> None:
        """Close the query."""
        self.query.close()

    def read(
        self, batch: Batch, columns: Collection[str], fields: JsonFields | None
    ) -> tuple[pa.Table, str]:
        """Return the records before the first malformed one; see `table_of`."""
        return table_of(
            batch,
            self.partition,
            columns,
            self.spec.format,
            fields,
            is_lenient=self.spec.is_lenient,
            decimals=self.spec.decimals,
        )

    def forward(self, results: Batch, *, held: bool = False) -> None:
        """Forward results, if there are any.

        Those that were `held` back have their own times as clocks, also if a record of the batch in
        hand has the same time and is behind.
        """
        if held:
            results.clocks = items_of(results.timestamps)
        if len(results):
            for child in self.children:
                self.context.forward(results, child)


class SparkProcessor(QueryProcessor[SparkQuery]):
    """Sends each batch to Spark as an Arrow table, and emits what comes back.

    Keys and values that are not UTF-8 are rejected unless the format is `binary`. Another record is
    rejected if Spark fails on it alone twice, but succeeds on an empty batch in between: Spark may
    also fail for lack of files, processes or time.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._lookup = TopicTableLookup(self.spec, self.query, context)

    def process(self, batch: Batch) -> None:
        """Emit the output of the query for the batch."""
        columns = [name for name in self.query.columns if name != RECORD]
        table, wrong = self.read(batch, columns, self.query.fields)
        if len(table):
            self.context.forward(self.results(batch.head(len(table)), table))
        if wrong:
            raise RecordRejectedError(wrong, batch, len(table))

    def results(self, batch: Batch, table: pa.Table) -> Batch:
        """Return the results of records, whose `table` has the columns that the query needs."""
        split = self.query.split
        if split is None or not split.is_possible(table):
            results = batch_of(self.rows(batch, table))
        else:
            call, needed = self.query.parts, split.for_spark(table)
            given = None if needed is None else self._given(call, batch, needed)
            results = split.results(batch, table, given)
        results.clocks = clocks_by_time(batch, results.timestamps)
        return results

    def rows(self, batch: Batch, table: pa.Table) -> pa.Table:
        """Return whole results by Spark. Raises as `run_carefully` does."""
        return self._given(self.query.run, batch, table)

    def _given(self, call: Callable[..., pa.Table], batch: Batch, table: pa.Table) -> pa.Table:
        run = partial(call, lookups=self._lookup.rows(batch))
        return run_carefully(run, table, is_alone=len(batch) == 1)


def run_carefully(
    run: Callable[[pa.Table], pa.Table], table: pa.Table, *, is_alone: bool
) -> pa.Table:
    """Return what `run` gives for a table. Raises `QueryError` if a record is to blame.

    With a record that `is_alone`, Spark must fail twice, but not on an empty table in between: that
    raises `SparkLostError`. With several records, the caller halves the batch.
    """
    try:
        return run(table)
    except QueryError:
        if not is_alone:
            raise
    try:
        run(table.slice(0, 0))
    except QueryError as error:
        failed = "Spark fails on no records: "
        raise SparkLostError(f"{failed}{error}", shown=f"{failed}{error.shown}") from error
    return run(table)
