"""A planned query that runs on many batches, without being planned again.

What the plan computes is an RDD. Its leaves are RDDs of one partition, and only the rows in these
partitions are replaced for each batch: Spark neither parses, plans nor generates code again, and
broadcast tables stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kafka_pipeline.streams.sql.columns import completed
from kafka_pipeline.streams.sql.json_fields import JsonFields

INPUT = "input"
"""The name of the view with the records of a batch."""


class Results(Protocol):
    """What a plan in the JVM gives."""

    def of(self, tables: Sequence[pa.Table]) -> list[bytes]:
        """Return the Arrow batches that it gives with these rows in its leaves, in their order."""


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A planned query as an RDD of Arrow batches, which is computed again for each table.

    `columns` are the names of the columns of `INPUT` that the operators use. `leaves` are the types
    of the rows that are replaced, and `output` those of the rows that come out.

    If the operators use `fields`, they are columns of the leaf, and `columns` has `value` for them.
    `parse` returns a table with all fields in place of its `value`.
    """

    columns: tuple[str, ...]
    leaves: Mapping[str, pa.Schema]
    output: pa.Schema
    results: Results
    fields: JsonFields | None = None
    parse: Callable[[pa.Table], pa.Table] | None = None

    def lacks_columns(self, table: pa.Table) -> bool:
        """Whether the operators use a column that a table does not have."""
        given = {*table.column_names}
        if self.fields is not None and given.issuperset(self.fields.used):
            given.add("value")
        return not given.issuperset(self.columns)

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """Return the output for these rows; columns that the plan does not use may be missing."""
        if self.parse is not None and "value" in table.column_names and len(table):
            table = self.parse(table)
        given = {INPUT: table, **lookups}
        parts = self.results.of(
            [
                completed(given[name], rows) if name in given else rows.empty_table()
                for name, rows in self.leaves.items()
            ]
        )
        batches = [pa.ipc.read_record_batch(pa.py_buffer(part), self.output) for part in parts]
        return pa.Table.from_batches(batches, self.output)
