"""Results as Parquet files, one for each topic and partition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_pipeline.streams.backfill.sorted_runs import merged
from kafka_pipeline.streams.backfill.tasks import Done, Workspace
from kafka_pipeline.streams.sql.columns import HEADERS

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("headers", HEADERS),
    ]
)
"""A backfill can read this schema too: the result of one can be the input of another."""


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Writes runs of a partition to the file `target`, atomically; creates its folder."""

    folder: Path
    runs: tuple[Path, ...]
    topic: str
    partition: int
    target: Path

    def work(self, workspace: Workspace) -> Done:
        """See `BackfillTask.work`."""
        written = 0
        self.target.parent.mkdir(parents=True, exist_ok=True)
        for rubbish in self.target.parent.glob(f".{self.target.name}.*"):
            rubbish.unlink(missing_ok=True)
        unfinished = self.target.with_name(f".{self.target.name}.{workspace.path.name}")
        try:
            # Only keys repeat often: most values, times and offsets differ.
            with pq.ParquetWriter(unfinished, SCHEMA, use_dictionary=["key"]) as file:
                for table in merged(self.runs, workspace.path):
                    file.write_table(self._rows(table, written))
                    written += len(table)
                    workspace.progress(len(table))
            unfinished.replace(self.target)
        finally:
            unfinished.unlink(missing_ok=True)
        return Done(written={self.topic: written})

    def _rows(self, table: pa.Table, first: int) -> pa.Table:
        return pa.Table.from_arrays(
            [
                table["key"],
                table["value"],
                table["timestamp"].cast(SCHEMA.field("timestamp").type),
                pa.repeat(pa.scalar(self.partition, pa.int32()), len(table)),
                pa.array(np.arange(first, first + len(table))),
                table["headers"],
            ],
            schema=SCHEMA,
        )
