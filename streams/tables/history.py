"""Reads a table that a processor of `type: table` writes, as the records of its topic.

The rows, and the offset that follows them, are of one snapshot of the table. So together with the
topic from that offset on, they are all records, each once. Others may write the table meanwhile,
and compact it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kafka_pipeline.common.delta_storage import storage_options
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.pipelines.history import HistorySpec
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.tables.iceberg import POSITION as ICEBERG_POSITION
from kafka_pipeline.streams.tables.iceberg_catalog import open_catalog
from kafka_pipeline.streams.tables.parquet import POSITION as PARQUET_POSITION
from kafka_pipeline.streams.tables.parquet import prefix_of
from kafka_pipeline.streams.tables.table import missing_extra

_ENDLESS = 2**63 - 1
_MAPPING = "delta.columnMapping.mode"
_MERGE = "MERGE"
_VERSIONS = 1_000
"""How many versions of a Delta table are searched for rows that were replaced."""
_NEAR = 100_000
"""How many offsets without rows are read before the first row, at most."""
_encode = msgspec.json.Encoder(decimal_format="number").encode

Rows = Callable[[int, int, int | None], pa.Table]
"""Returns the rows from an offset up to another one, in any order; at most so many, if given."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The position of the writer in a table, `None` without one, and the rows before it."""

    position: int | None
    columns: list[str]
    rows: Rows


class History:
    """The records of one partition in one snapshot of a table; any thread may use it."""

    def __init__(self, spec: HistorySpec, topic: str, topic_id: str, partition: int) -> None:
        """Open the table; `spec` has the place on this host.

        Raises `NonRetriableError` if the table cannot be the history of the partition, and
        `TransactionFailedError` if it does not answer.
        """
        self._spec = spec
        self._topic = topic
        self._partition = partition
        self.place = spec.path or spec.table
        self.application = f"{spec.written_by}/{topic}/{topic_id}/{partition}"
        with self._answering():
            found = _OPEN[spec.format](spec, self.application, partition)
            self._rows = found.rows
            self.end = found.position or 0
            """The offset at which the topic goes on; 0 if the writer has not written anything."""
            self._require_columns(found)

    def _require_columns(self, found: _Snapshot) -> None:
        if not found.columns:
            return
        for part, column in self._spec.record_columns.items():
            if column not in found.columns:
                raise NonRetriableError(
                    f'table {self.place} has no column "{column}" for the {part} of records: the '
                    "processor that writes it needs record_columns for all four parts"
                )
        if len(found.rows(self.end, _ENDLESS, 1)):
            raise NonRetriableError(
                f"table {self.place} has rows of partition {self._partition} from offset "
                f"{self.end} on, which {self.application} has not written: it was written from "
                "another topic, perhaps one that was deleted and made again"
            )

    def skip_empty(self, start: int) -> int:
        """Return an offset from `start` on up to which there are no rows, close to the first one.

        A table that was begun late has none for most offsets. Raises as the constructor does.
        """
        with self._answering():
            step = _NEAR
            while start < self.end and not self._has_rows(start, step):
                start, step = start + step, step * 2
            while start < self.end and step > _NEAR:
                step //= 2
                if not self._has_rows(start, step):
                    start += step
        return min(start, self.end)

    def _has_rows(self, start: int, offsets: int) -> bool:
        return len(self._rows(start, min(start + offsets, self.end), 1)) > 0

    def read(self, start: int, end: int) -> RecordBatch:
        """Return the records from offset `start` up to `end`. Raises as the constructor does."""
        with self._answering():
            return self._records(self._rows(start, min(end, self.end), None))

    def _records(self, rows: pa.Table) -> RecordBatch:
        names = self._spec.record_columns
        rows = rows.sort_by(names["offset"])
        offsets = np.asarray(rows[names["offset"]].cast(pa.int64()).to_numpy(), np.int64)
        repeated = np.flatnonzero(offsets[1:] <= offsets[:-1])
        if len(repeated):
            raise NonRetriableError(
                f"table {self.place} has offset {offsets[repeated[0]]} of {self._topic}"
                f"[{self._partition}] twice: more than one processor has written it, or from more "
                "than one topic"
            )
        times = rows[names["timestamp"]]
        if times.null_count:
            raise NonRetriableError(f"table {self.place} has rows without a timestamp")
        zone = times.type.tz if pa.types.is_timestamp(times.type) else None
        times = times.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())
        values = rows.drop_columns([*names.values()]).to_pylist(maps_as_pydicts="strict")
        return RecordBatch(
            self._topic,
            self._partition,
            rows[names["key"]].cast(pa.binary()).to_pylist(),
            [*map(_encode, values)],
            times.to_pylist(),
            offsets.tolist(),
        )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except EngineError:
            raise
        except ImportError as error:
            raise missing_extra(error) from error
        except Exception as error:
            # Each format has errors of its own. Catalogs may quote a login.
            what = f"table {self.place} cannot be read: "
            shown = f"{what}{type(error).__name__}"
            raise TransactionFailedError(f"{what}{error}", shown=shown) from error


def _delta(spec: HistorySpec, application: str, partition: int) -> _Snapshot:
    import deltalake

    table = deltalake.DeltaTable(spec.path, storage_options=storage_options(spec.path))
    if any(each.get("operation") == _MERGE for each in table.history(_VERSIONS)):
        raise NonRetriableError(
            f"table {spec.path} has replaced rows: a history has each record, as tables with "
            "mode: append do"
        )
    if table.metadata().configuration.get(_MAPPING, "none") != "none":
        raise NonRetriableError(
            f"table {spec.path} has {_MAPPING}, with which deltalake reads all columns as null"
        )
    dataset: Any = table.to_pyarrow_dataset()
    return _of_dataset(dataset, table.transaction_version(application), spec, partition)


def _parquet(spec: HistorySpec, application: str, partition: int) -> _Snapshot:
    # Without the files of other partitions.
    files = sorted(Path(spec.path).glob(f"{prefix_of(application)}*.parquet"))
    if not files:
        return _Snapshot(None, [], lambda start, end, most: pa.table({}))
    newest = pq.read_schema(files[-1])
    # Older files lack columns that were added later.
    dataset = ds.dataset([*map(str, files)], schema=newest, format="parquet")
    return _of_dataset(dataset, int(newest.metadata[PARQUET_POSITION]), spec, partition)


def _of_dataset(
    dataset: ds.Dataset, position: int | None, spec: HistorySpec, partition: int
) -> _Snapshot:
    names = spec.record_columns
    number, offset = pc.field(names["partition"]), pc.field(names["offset"])

    def rows(start: int, end: int, most: int | None) -> pa.Table:
        chosen = (number == partition) & (offset >= start) & (offset < end)
        return (
            dataset.to_table(filter=chosen) if most is None else dataset.head(most, filter=chosen)
        )

    return _Snapshot(position, dataset.schema.names, rows)


def _iceberg(spec: HistorySpec, application: str, partition: int) -> _Snapshot:
    conditions = import_module("pyiceberg.expressions")
    with closing(open_catalog(spec.catalog)) as catalog:
        table = catalog.load_table(spec.table)
    names = spec.record_columns
    found = table.properties.get(f"{ICEBERG_POSITION}{application}")

    def rows(start: int, end: int, most: int | None) -> pa.Table:
        # All of the table's metadata is as it was when the table was loaded.
        chosen = conditions.And(
            conditions.EqualTo(names["partition"], partition),
            conditions.GreaterThanOrEqual(names["offset"], start),
            conditions.LessThan(names["offset"], end),
        )
        return table.scan(row_filter=chosen, limit=most).to_arrow()

    columns = [field.name for field in table.schema().fields]
    return _Snapshot(None if found is None else int(found), columns, rows)


_OPEN = {"delta": _delta, "iceberg": _iceberg, "parquet": _parquet}
