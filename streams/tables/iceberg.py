"""An Iceberg table whose commits carry offsets, as properties of the table.

Iceberg replaces all metadata of a table in one step, so one commit adds rows and sets a property.
Properties outlive snapshots: Kafka Connect and Flink keep what they know in the summaries of
snapshots, and lose it when others expire these. A commit is refused unless the branch is still at
the snapshot that was current when the position was read. pyiceberg is imported late: it is an
extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.streams.tables.columns import Columns
from kafka_pipeline.streams.tables.iceberg_catalog import named, open_catalog
from kafka_pipeline.streams.tables.partitions import column_problem, first_misfit
from kafka_pipeline.streams.tables.table import lacking_columns, missing_extra, overtaken

MOST_TRIES = 20
"""How often a commit is tried while others change the same table: all but one of those that are
under way at the same time must begin again."""

POSITION = "kafka-pipeline.next-offset."
"""How the properties with offsets begin; the application id follows."""

_NEWEST_FORMAT = 2
"""The newest version of Iceberg's format that PyIceberg 0.12 writes."""

_SQLITE = "sqlite:///"
_FOR_MANY_COMMITS = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}
"""Properties of a table that is created. Without them, each commit leaves one more file of
metadata, and makes the list longer that the next one reads."""

_NO_OTHER_TRY = {"commit.retry.num-retries": "0"}
_MODULES = ("pyiceberg.exceptions", "pyiceberg.io.pyarrow", "sqlalchemy.exc", "pyiceberg.catalog")


class IcebergTable:
    """See `Table`. A catalog or storage that does not answer is a `TransactionFailedError`."""

    def __init__(self, spec: TableSinkSpec, columns: Columns, application: str) -> None:
        """Open the table, or create it.

        Raises `NonRetriableError` without pyiceberg, or if the table has other columns.
        """
        try:
            errors, self._arrow, sql, _ = map(import_module, _MODULES)
        except ImportError as error:
            raise missing_extra(error) from error
        self._errors: Any = errors
        self._quoting = (sql.SQLAlchemyError, errors.RESTError)
        self._passing = (
            *(*self._quoting, OSError, ValueError, NotImplementedError),
            *(errors.CommitFailedException, errors.ValidationException),
            *(errors.NoSuchTableError, errors.NoSuchNamespaceError, errors.TableAlreadyExistsError),
        )
        self._name = spec.table
        self._schema = pa.schema(_stored(pa.struct([*columns.schema])).fields)
        self._partition_by = [*spec.partition_by]
        self._application = application
        with self._answering():
            if (uri := spec.catalog["uri"]).startswith(_SQLITE):
                folder = Path(uri.removeprefix(_SQLITE)).parent
                folder.mkdir(parents=True, exist_ok=True)
            self._catalog = open_catalog(spec.catalog)
        with self._answering():
            self._table = self._opened()
        self._require_columns(evolves=spec.evolve == "add")

    def position(self) -> int | None:
        with self._answering():
            self._table.refresh()
        found = self._table.properties.get(f"{POSITION}{self._application}")
        return None if found is None else int(found)

    def misfit(self, rows: pa.RecordBatch) -> tuple[int, str]:
        schema, names = self._table.schema(), rows.schema.names
        whole, found = list[str](), (len(rows), "")
        for field in self._table.spec().fields:
            name, transform = schema.find_column_name(field.source_id), str(field.transform)
            if transform == "identity" and name in names:
                whole.append(name)
            elif transform.startswith("truncate") and name in names:
                found = min(found, _below_the_least(rows, name, field.transform.width))
        return min(found, first_misfit(rows, whole, null_is_empty=False))

    def write(self, rows: Sequence[pa.RecordBatch], position: int, former: int | None) -> None:
        """See `Table`. Files of rows are written once, however often the commit is tried."""
        self._require_position(former)
        with self._answering():
            files = self._written(rows)
        spec = self._table.spec()
        for tries in range(1, MOST_TRIES + 1):
            if self._table.spec() != spec:
                raise TransactionFailedError(f"table {self._name}: its partitions have changed")
            appends: list[Any] = []
            try:
                with self._answering():
                    self._commit(files, position, appends)
                return
            except TransactionFailedError as error:
                if not isinstance(error.__cause__, self._errors.CommitFailedException):
                    raise
                if self.position() == position:
                    return  # a commit that a proxy has repeated is refused, as the first is there
                self._require_position(former)
                for append in appends:
                    type(append)._clean_all_uncommitted(append)
                if tries == MOST_TRIES:
                    raise

    def _written(self, rows: Sequence[pa.RecordBatch]) -> list[Any]:
        """Write files of data, which no snapshot has yet."""
        if not rows:
            return []
        table = pa.Table.from_batches(rows).cast(self._schema)
        write = self._arrow._dataframe_to_data_files
        return list(write(table_metadata=self._table.metadata, df=table, io=self._table.io))

    def _commit(self, files: Sequence[Any], position: int, appends: list[Any]) -> None:
        """Commit on top of the snapshot that was current when the position was read.

        By default, PyIceberg puts an append that was refused on top of whatever others committed,
        also if that was another owner of the task. The property that it asks is changed in memory
        only. A snapshot without rows is made too, so that it conflicts with another owner's.

        What made the snapshot is added to `appends`. It would delete the snapshot's manifests if
        the commit is refused, but a commit may be refused because it is there already.
        """
        table = self._table
        properties = {**table.properties, **_NO_OTHER_TRY}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        key = f"{POSITION}{self._application}"
        with table.transaction() as transaction:
            # The summary tells readers which snapshot has which records.
            summary = {key: str(position)}
            with transaction.update_snapshot(snapshot_properties=summary).merge_append() as append:
                append._clean_all_uncommitted = lambda: None
                appends.append(append)
                for file in files:
                    append.append_data_file(file)
            transaction.set_properties({key: str(position)})

    def _require_position(self, former: int | None) -> None:
        found = self.position()
        if found != former:
            raise overtaken(self._name, found, former)

    def _opened(self) -> Any:
        try:
            return self._catalog.load_table(self._name)
        except self._errors.NoSuchTableError:
            self._require_namespace()
        created = self._catalog.create_table_transaction(
            self._name, self._schema, properties=_FOR_MANY_COMMITS
        )
        # If another task is first, this one starts again.
        with created as transaction, transaction.update_spec() as spec:
            for name in self._partition_by:
                spec.add_identity(name)
        return self._catalog.load_table(self._name)

    def _require_namespace(self) -> None:
        """Create the namespace, and those around it, unless they exist: not every user may."""
        names = self._name.split(".")[:-1]
        for count in range(1, len(names) + 1):
            namespace = ".".join(names[:count])
            if not self._catalog.namespace_exists(namespace):
                self._catalog.create_namespace_if_not_exists(namespace)

    def _require_columns(self, *, evolves: bool) -> None:
        if (version := self._table.format_version) > _NEWEST_FORMAT:
            raise NonRetriableError(
                f"table {self._name} has version {version} of Iceberg's format, and PyIceberg "
                f"writes no newer one than {_NEWEST_FORMAT}: write another table"
            )
        schema = self._arrow.schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        found = _by_name(_stored(pa.struct([*schema])).fields)
        if lacking := lacking_columns(_by_name(self._schema), found, self._name, evolves=evolves):
            with self._answering(), self._table.update_schema() as update:
                # If another task is first, this one starts again.
                update.union_by_name(pa.schema([self._schema.field(name) for name in lacking]))
        table = self._table
        partition_by = [_described(field, table.schema()) for field in table.spec().fields]
        if self._partition_by and partition_by != self._partition_by:
            raise NonRetriableError(
                f"table {self._name} is partitioned by {partition_by}, not by {self._partition_by}"
            )
        divided = [field for field in self._schema if field.name in partition_by]
        if problem := column_problem("iceberg", divided):
            raise NonRetriableError(f"table {self._name} has partitions by values, and {problem}")

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except self._passing as error:
            # Databases and servers may quote a login, which may come from references.
            words = named(error) if isinstance(error, self._quoting) else str(error)
            what = f"table {self._name}: "
            raise TransactionFailedError(f"{what}{error}", shown=f"{what}{words}") from error
        finally:
            if hasattr(self, "_catalog"):
                # Nothing is idle between two commits.
                self._catalog.close()


def _by_name(fields: Iterable[pa.Field]) -> dict[str, tuple[pa.DataType, bool]]:
    return {field.name: (field.type, field.nullable) for field in fields}


def _described(field: Any, schema: Any) -> str:
    """Return the column of a field of partitions, or its transform, such as `day(at)`."""
    column, transform = schema.find_column_name(field.source_id), str(field.transform)
    return column if transform == "identity" else f"{transform}({column})"


def _below_the_least(rows: pa.RecordBatch, name: str, width: int) -> tuple[int, str]:
    """Return the first DECIMAL that `truncate` gives more digits than its type has.

    It rounds down: -999.99 of a DECIMAL(5, 2) becomes -1000.00 with a width of 100.
    """
    column = rows.column(name)
    if pa.types.is_decimal(column.type):
        digits = str((10**column.type.precision - 1) // width * width)
        least = Decimal(f"-{digits}e-{column.type.scale}")
        index = pc.index(pc.less(column, pa.scalar(least, column.type)), True).as_py()
        if index >= 0:
            return index, (
                f'the value does not fit column "{name}": truncate[{width}], by which the table is '
                f"partitioned, makes it smaller than a DECIMAL({column.type.precision}, "
                f"{column.type.scale}) can be"
            )
    return len(rows), ""


def _stored(type_: pa.DataType) -> pa.DataType:
    """Return the type as Iceberg has it: no integers of less than 32 bits, one kind of text."""
    if pa.types.is_struct(type_):
        return pa.struct(
            [pa.field(each.name, _stored(each.type), each.nullable) for each in type_.fields]
        )
    if pa.types.is_map(type_):
        value = pa.field("value", _stored(type_.item_type), type_.item_field.nullable)
        return pa.map_(_stored(type_.key_type), value)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        element = pa.field("element", _stored(type_.value_type), type_.value_field.nullable)
        return pa.list_(element)
    return _PLAIN.get(type_, type_)


_PLAIN = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
