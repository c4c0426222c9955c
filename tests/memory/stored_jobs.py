"""Jobs with one task that writes a table in an object store, on brokers in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow.fs import FileSelector
from pyiceberg.catalog import Catalog, load_catalog

from kafka_pipeline.common.kafka.clients import TransactionFailedError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from tests.memory.table_jobs import FILES, DeltaJob, FileJob, IcebergJob, Job
from tests.object_store.server import BUCKET, ObjectStore
from tests.rest_catalog.server import RestCatalog

_ROOT = f"s3://{BUCKET}"
_COLUMNS: dict[str, Any] = {"schema": "n BIGINT", "record_columns": {"offset": "at"}}


class StoredDelta(DeltaJob):
    """A job with a Delta table in an object store, which the environment names."""

    def __init__(self, folder: Path, store: ObjectStore, bucket: str = BUCKET) -> None:
        self.uri = f"s3://{bucket}/{folder.name}/orders"
        self.store = store
        spec = TableSinkSpec(format="delta", path=self.uri, **_COLUMNS)
        Job.__init__(self, folder, spec, write_paths=(f"s3://{bucket}",))

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri)

    def delete(self) -> None:
        files = self.store.files
        folder = FileSelector(self.uri.removeprefix("s3://"), recursive=True)
        for each in files.get_file_info(folder):
            if each.is_file:
                files.delete_file(each.path)


class StoredIceberg(IcebergJob):
    """A job with an Iceberg table in an object store, in a catalog of SQLite."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self.store = store
        self.place = {
            "name": "default",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"{_ROOT}/{folder.name}",
        }
        self._start(folder, self.place, write_paths=(_ROOT, str(folder)))

    def _start(self, folder: Path, catalog: dict[str, str], **tables: Any) -> None:
        spec = TableSinkSpec(format="iceberg", catalog=catalog, table=self.name, **_COLUMNS)
        Job.__init__(self, folder, spec, **tables)

    @property
    def catalog(self) -> Catalog:
        where = self.store.environment()
        return load_catalog(
            **self.place,
            **{"s3.endpoint": where["AWS_ENDPOINT_URL"], "s3.region": where["AWS_REGION"]},
        )


class RestIceberg(StoredIceberg):
    """A job with an Iceberg table in an object store, in a REST catalog."""

    def __init__(
        self, folder: Path, store: ObjectStore, catalog: RestCatalog, port: int | None = None
    ) -> None:
        """The task connects to the catalog on `port`, if that is given."""
        self.store = store
        self.name = f"{folder.name}.orders"
        self.place = {"name": "default", "type": "rest", "uri": catalog.uri}
        uri = f"http://127.0.0.1:{port or catalog.port}"
        self._start(folder, {**self.place, "uri": uri}, write_urls=(uri,))


def failure(job: Job) -> str:
    """Return why a task starts again, and not why it is FAILED."""
    with pytest.raises(TransactionFailedError) as caught:
        job.owner().start()
    return caught.value.shown


_STORED = ("delta-s3", "iceberg-s3", "iceberg-rest-s3")


def each_file_format() -> list[Any]:
    """Return parameters for `file_job`; those in an object store are for long tests."""
    return [*FILES, *(pytest.param(name, marks=pytest.mark.long) for name in _STORED)]


def file_job(request: pytest.FixtureRequest, folder: Path) -> FileJob:
    """Return a job of the format that a fixture has as its parameter."""
    if request.param in FILES:
        return FILES[request.param](folder)
    store: ObjectStore = request.getfixturevalue("object_store")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in store.environment().items():
        patch.setenv(name, value)
    if request.param == "iceberg-rest-s3":
        return RestIceberg(folder, store, request.getfixturevalue("rest_catalog"))
    return (
        StoredDelta(folder, store) if request.param == "delta-s3" else StoredIceberg(folder, store)
    )
