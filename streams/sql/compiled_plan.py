"""A planned query that runs on many batches, without being planned again.

What the plan computes is an RDD. Its leaves are RDDs of one partition, and only the rows in these
partitions are replaced for each batch: Spark neither parses, plans nor generates code again, and
broadcast tables stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from kafka_pipeline.streams.sql.columns import completed
from kafka_pipeline.streams.sql.json_fields import JsonFields
from kafka_pipeline.streams.sql.jvm_batches import MOST_IN_CALL

INPUT = "input"
"""The name of the view with the records of a batch."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Rows of a plan that are replaced for each batch: an RDD of one partition.

    `rows` are their types. `put` puts Arrow batches into the partition.
    """

    rows: pa.Schema
    rdd: Any
    put: Callable[[Any], Any]


class Runner(Protocol):
    """Brings tables to the JVM, and has it compute a plan; `is_small` says how tables travel."""

    def put(self, table: pa.Table, *, is_small: bool) -> Any:
        """Return a table as Arrow batches in the JVM."""

    def compute(self, results: Any, *, is_small: bool) -> list[bytes]:
        """Return the Arrow batches that a plan gives."""


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A planned query as an RDD of Arrow batches, which is computed again for each table.

    `columns` are the names of the columns of `INPUT` that the operators use. `output` are the types
    of the rows that come out, and `results` is what `runner` computes. `nothing` is a leaf without
    rows, in the JVM.

    If the operators use `fields`, they are columns of the leaf, and `columns` has `value` for them.
    `parse` returns a table with all fields in place of its `value`.
    """

    columns: tuple[str, ...]
    leaves: Mapping[str, Leaf]
    output: pa.Schema
    results: Any
    nothing: Any
    runner: Runner
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
        is_small = sum(rows.nbytes for rows in given.values()) <= MOST_IN_CALL
        try:
            for name, rows in given.items():
                leaf = self.leaves[name]
                leaf.put(self.runner.put(completed(rows, leaf.rows), is_small=is_small))
            parts = self.runner.compute(self.results, is_small=is_small)
        finally:
            for name in given:
                self.leaves[name].put(self.nothing)  # or Spark would keep the batch in memory
        batches = [pa.ipc.read_record_batch(pa.py_buffer(part), self.output) for part in parts]
        return pa.Table.from_batches(batches, self.output)
