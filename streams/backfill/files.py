"""Reads history from Parquet and CSV files into runs, and writes results to Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from kafka_pipeline.common.code.error_words import HOW_TO_SHOW
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.backfill.outputs import SortedRuns
from kafka_pipeline.streams.backfill.partitions import NO_KEY, partitions_of
from kafka_pipeline.streams.backfill.sorted_runs import SCHEMA, merged
from kafka_pipeline.streams.backfill.tasks import Done, Workspace
from kafka_pipeline.streams.sql.columns import HEADERS

REQUIRED = ("value", "timestamp")
OPTIONAL = ("key", "partition", "offset", "headers")
SUFFIXES = (".parquet", ".csv")

_CHUNK_RECORDS = 1_000_000
_CHUNK_BYTES = 64 * 1024 * 1024
_BATCH_RECORDS = 4_096
_PARQUET_BUFFER_BYTES = 1024 * 1024
_CSV_BLOCK_BYTES = 32 * 1024 * 1024
_FILE_BITS = 40
"""Without an offset, a record's position is its file's number shifted by this, plus its row."""
_RESULTS = pa.schema(
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
class Chunk:
    """A part of a file that one task reads: some row groups of a Parquet file, or a whole CSV."""

    path: Path
    first_position: int
    row_groups: tuple[int, ...] = ()
    records: int | None = None
    """How many records it has; unknown for CSV."""


def find_files(path: Path) -> list[Path]:
    """Return a file, or all files of a folder and its subfolders, sorted by name.

    Raises `ConfigError` if there are none.
    """
    if path.is_dir():
        found = sorted(each for suffix in SUFFIXES for each in path.rglob(f"*{suffix}"))
        found = [each for each in found if not any(map(_is_hidden, each.relative_to(path).parts))]
        if not found:
            raise ConfigError(f"folder {path} has no {' and no '.join(SUFFIXES)} file")
        return found
    if not path.is_file():
        raise ConfigError(
            f"there is no file or folder {path}; a topic is written as topic:NAME[@from..to]"
        )
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path} must end in {' or '.join(SUFFIXES)}")
    return [path]


def _is_hidden(name: str) -> bool:
    """Tell whether a file or folder is hidden, by the convention of Spark and Hadoop.

    A folder such as `_day=1` is not: it is a value of a column that they partition by.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def chunks_of(paths: Sequence[Path]) -> list[Chunk]:
    """Return the parts that tasks read. Raises `ConfigError` for a file that cannot be read."""
    chunks: list[Chunk] = []
    for number, path in enumerate(paths):
        position = number << _FILE_BITS
        if path.suffix == ".csv":
            chunks.append(Chunk(path, position))
        else:
            chunks += _row_groups(path, position)
    return chunks


def _row_groups(path: Path, position: int) -> Iterator[Chunk]:
    try:
        with pq.ParquetFile(path) as file:
            metadata, names = file.metadata, file.schema_arrow.names
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path} cannot be read as Parquet: {error}") from error
    _require_columns(path, names)
    taken: list[int] = []
    records = size = 0
    for group in range(metadata.num_row_groups):
        taken.append(group)
        records += metadata.row_group(group).num_rows
        size += metadata.row_group(group).total_byte_size
        is_last = group == metadata.num_row_groups - 1
        if records >= _CHUNK_RECORDS or size >= _CHUNK_BYTES or is_last:
            yield Chunk(path, position, tuple(taken), records)
            position, taken, records, size = position + records, [], 0, 0


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Puts the records of a chunk into runs of a topic's partitions, in order of time."""

    folder: Path
    chunk: Chunk
    topic: str
    num_partitions: int

    def work(self, workspace: Workspace) -> Done:
        """See `BackfillTask.work`. Raises `ConfigError` if the chunk cannot be read as records."""
        done = Done()
        position = self.chunk.first_position
        try:
            for number, table in enumerate(_tables(self.chunk)):
                records, partitions = records_of(
                    table, self.chunk.path, position, self.num_partitions
                )
                # Each table gets its own runs: records are in order only within a table.
                runs = SortedRuns(workspace.path, number)
                runs.write(self.topic, records, partitions)
                done.count_written(runs.close())
                position += len(table)
                done.records_in += len(table)
                workspace.progress(len(table))
        except pa.ArrowException as error:
            failed = f"{self.chunk.path} cannot be read: "
            raise ConfigError(
                f"{failed}{error}", shown=f"{failed}{type(error).__name__}; {HOW_TO_SHOW}"
            ) from error
        return done


def _tables(chunk: Chunk) -> Iterator[pa.Table]:
    """Yield the records of a chunk in tables of up to 1,000,000 records and 64 MB.

    Each table is sorted in memory, so it must not be larger. A row group may be larger, and many
    times as large in memory as in its file.
    """
    waiting: list[pa.Table] = []
    records = size = 0
    for table in _decoded(chunk):
        if waiting and (
            records + len(table) > _CHUNK_RECORDS or size + table.nbytes > _CHUNK_BYTES
        ):
            yield pa.concat_tables(waiting)
            waiting, records, size = [], 0, 0
        waiting.append(table)
        records += len(table)
        size += table.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _decoded(chunk: Chunk) -> Iterator[pa.Table]:
    """Yield the records of a chunk in small tables without dictionary-encoded columns."""
    for batch in _csv(chunk.path) if chunk.path.suffix == ".csv" else _parquet(chunk):
        table = pa.Table.from_batches([batch])
        for number, column in enumerate(table.schema):
            if pa.types.is_dictionary(column.type):
                plain = table[number].cast(column.type.value_type)
                table = table.set_column(number, column.name, plain)
        yield table


def _parquet(chunk: Chunk) -> Iterator[pa.RecordBatch]:
    # Otherwise, it would read whole row groups at once.
    options = {"pre_buffer": False, "buffer_size": _PARQUET_BUFFER_BYTES}
    with pq.ParquetFile(chunk.path, **options) as file:
        groups = [file.metadata.row_group(group) for group in chunk.row_groups]
        size = sum(group.total_byte_size for group in groups)
        records = sum(group.num_rows for group in groups)
        most = max(1, min(_BATCH_RECORDS, _CHUNK_BYTES // 4 * records // max(size, 1)))
        yield from file.iter_batches(most, list(chunk.row_groups), use_threads=False)


def _csv(path: Path) -> Iterator[pa.RecordBatch]:
    options = pyarrow.csv.ConvertOptions(
        column_types={"key": pa.binary(), "value": pa.binary()},
        # An empty field is null without quotes, and an empty string with quotes.
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    with pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=options,
    ) as reader:
        _require_columns(path, reader.schema.names)
        yield from reader


def _require_columns(path: Path, names: Sequence[str]) -> None:
    known = (*REQUIRED, *OPTIONAL)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f'{path}: column "{name}" is none of {", ".join(known)}{hint}: rename it or '
                "leave it out"
            )
    for name in REQUIRED:
        if name not in names:
            raise ConfigError(f'{path} has no column "{name}"')


def records_of(
    table: pa.Table, path: Path, first_position: int, num_partitions: int
) -> tuple[pa.Table, npt.NDArray[np.int32]]:
    """Return records of `SCHEMA` in the order of time and offset, and their partitions.

    Records with neither a key nor a partition are distributed round robin. Raises `ConfigError` if
    a column is wrong.
    """
    size = len(table)
    names = table.column_names

    def numbers(name: str) -> npt.NDArray[np.int64]:
        column = table[name]
        if column.null_count or not pa.types.is_integer(column.type):
            raise ConfigError(f'{path}: column "{name}" must have an integer in every row')
        return np.asarray(column.to_numpy(), np.int64)

    keys = _bytes(table, "key", path) if "key" in names else pa.nulls(size, pa.binary())
    rows = np.arange(first_position, first_position + size)
    positions = numbers("offset") if "offset" in names else rows
    if "partition" in names:
        partitions = numbers("partition").astype(np.int32)
    else:
        partitions = partitions_of(keys, num_partitions)
        keyless = partitions == NO_KEY
        partitions[keyless] = rows[keyless] % num_partitions
    if size and not 0 <= partitions.min() <= partitions.max() < num_partitions:
        raise ConfigError(
            f'{path}: column "partition" has {partitions.max()}, and the topic has '
            f"{num_partitions}, numbered from 0: set parallelism in config.yaml accordingly"
        )
    times = _times(table, path)
    columns = [keys, _bytes(table, "value", path), pa.array(times), _headers(table, path)]
    records = pa.Table.from_arrays([*columns, pa.array(positions)], schema=SCHEMA)
    later = times[1:] > times[:-1]
    if not np.all(later | ((times[1:] == times[:-1]) & (positions[1:] > positions[:-1]))):
        order = np.lexsort((positions, times))
        records, partitions = records.take(pa.array(order)), partitions[order]
    return records, partitions


def _bytes(table: pa.Table, name: str, path: Path) -> pa.Array:
    column = table[name]
    type_ = column.type
    if pa.types.is_integer(type_):
        column = column.cast(pa.string())
    elif not (
        pa.types.is_null(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
    ):
        raise ConfigError(
            f'{path}: column "{name}" is of the type {type_}: make it binary or text, as '
            "Kafka is to get it"
        )
    joined = column.cast(pa.binary()).combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def _times(table: pa.Table, path: Path) -> npt.NDArray[np.int64]:
    column = table["timestamp"]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise ConfigError(
            f'{path}: column "timestamp" is of the type {column.type}: make it a time, or '
            "milliseconds since 1970"
        )
    times = np.asarray(column.cast(pa.int64()).fill_null(-1).to_numpy(), np.int64)
    if len(times) and times.min() < 0:
        raise ConfigError(f'{path}: column "timestamp" has a null, or a time before 1970')
    return times


def _headers(table: pa.Table, path: Path) -> pa.ChunkedArray | pa.Array:
    if "headers" not in table.column_names:
        return pa.nulls(len(table), HEADERS)
    try:
        return table["headers"].cast(HEADERS)
    except pa.ArrowException as error:
        raise ConfigError(
            f'{path}: column "headers" is of the type {table["headers"].type}, and must be a list '
            "of structs with a key, a string, and a value, binary"
        ) from error


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A `BackfillTask`: writes runs of a partition to `target`, atomically; creates its folder."""

    folder: Path
    runs: tuple[Path, ...]
    topic: str
    partition: int
    target: Path

    def work(self, workspace: Workspace) -> Done:
        written = 0
        self.target.parent.mkdir(parents=True, exist_ok=True)
        for rubbish in self.target.parent.glob(f".{self.target.name}.*"):
            rubbish.unlink(missing_ok=True)
        unfinished = self.target.with_name(f".{self.target.name}.{workspace.path.name}")
        try:
            # Only keys repeat often: most values, times and offsets differ.
            with pq.ParquetWriter(unfinished, _RESULTS, use_dictionary=["key"]) as file:
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
                table["timestamp"].cast(_RESULTS.field("timestamp").type),
                pa.repeat(pa.scalar(self.partition, pa.int32()), len(table)),
                pa.array(np.arange(first, first + len(table))),
                table["headers"],
            ],
            schema=_RESULTS,
        )
