"""A planned query that runs on many batches, without being planned again.

What the plan computes is an RDD. Its leaves are RDDs of one partition, and only the rows in these
partitions are replaced for each batch: Spark neither parses, plans nor generates code again, and
broadcast tables stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kafka_pipeline.streams.sql.arrow_bytes import packed, unpacked
from kafka_pipeline.streams.sql.columns import completed
from kafka_pipeline.streams.sql.json_fields import JsonFields
from kafka_pipeline.streams.sql.plan_calls import Ask, PlanInJvm

INPUT = "input"
"""The name of the view with the records of a batch."""


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A planned query as an RDD of Arrow batches, which is computed again for each table.

    `columns` are the names of the columns of `INPUT` that the operators use. `leaves` are the types
    of the rows that are replaced, and `output` those of the rows that come out.

    If the operators use `fields`, they are columns of the leaf, and `columns` has `value` for them.
    The plan of `parser` gives all fields in place of `value`, for records that have that.
    """

    columns: tuple[str, ...]
    leaves: Mapping[str, pa.Schema]
    output: pa.Schema
    results: PlanInJvm
    fields: JsonFields | None = None
    parser: Callable[[], CompiledPlan] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "id": self.results.id,
            "columns": self.columns,
            "leaves": {name: packed(rows) for name, rows in self.leaves.items()},
            "output": packed(self.output),
            "fields": self.fields and self.fields.to_json(),
            "parser": self.parser is not None,
        }

    @classmethod
    def from_json(
        cls, values: Mapping[str, Any], ask: Ask, parser: Callable[[], CompiledPlan]
    ) -> CompiledPlan:
        """Read what `to_json` gave in the driver, which keeps the plan; `parser` is used if any."""
        return cls(
            tuple(values["columns"]),
            {name: unpacked(rows) for name, rows in values["leaves"].items()},
            unpacked(values["output"]),
            PlanInJvm(values["id"], ask),
            JsonFields.from_json(values["fields"]),
            parser if values["parser"] else None,
        )

    def lacks_columns(self, table: pa.Table) -> bool:
        """Whether the operators use a column that a table does not have."""
        given = {*table.column_names}
        if self.fields is not None and given.issuperset(self.fields.used):
            given.add("value")
        return not given.issuperset(self.columns)

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """Return the output for these rows; columns that the plan does not use may be missing."""
        if self.parser is not None and "value" in table.column_names and len(table):
            table = self.parser().run(table)
        given = {INPUT: table, **lookups}
        parts = self.results.of(
            [
                completed(given[name], rows) if name in given else rows.empty_table()
                for name, rows in self.leaves.items()
            ]
        )
        batches = [pa.ipc.read_record_batch(pa.py_buffer(part), self.output) for part in parts]
        return pa.Table.from_batches(batches, self.output)
