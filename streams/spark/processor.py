"""`type: sql` and `type: dataframe`: records through Spark, a batch at a time."""

from __future__ import annotations

from common.nodes import TaskId
from streams.processor import BatchProcessor, ProcessorContext, RecordRejectedError
from streams.record import Batch
from streams.spark.columns import batch_of, table_of
from streams.spark.spec import Queries, QuerySpec


class SparkProcessor(BatchProcessor):
    """Sends each batch to Spark as an Arrow table, and emits what comes back.

    Keys and values that are no UTF-8 are rejected unless the format is `binary`. Other records
    are rejected if Spark fails on them alone.
    """

    def __init__(self, spec: QuerySpec, queries: Queries) -> None:
        self._spec = spec
        self._queries = queries

    def init(self, context: ProcessorContext) -> None:
        """Get the query ready. Raises `QueryError` if it is one that cannot be run."""
        self.context = context
        self._partition = TaskId.parse(context.task_id).partition
        self._query = self._queries.open(self._spec)

    def process(self, batch: Batch) -> None:
        """Emit what the query gives for the batch."""
        query = self._query
        table, wrong = table_of(batch, self._partition, query.columns, self._spec.format)
        if len(table):
            self.context.forward(batch_of(query.run(table)))
        if wrong:
            raise RecordRejectedError(wrong, batch, len(table))

    def close(self) -> None:
        """Let go of the query."""
        self._query.close()
