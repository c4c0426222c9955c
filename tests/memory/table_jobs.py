"""Jobs with one task that writes a table, on brokers in memory, for tests of each format."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import deltalake
import duckdb
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable
from msgspec import structs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table, Transaction

from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import TableFormat, TableSinkSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.tables.iceberg import POSITION
from kafka_pipeline.taskmanager import task as task_module
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.running_task import TaskContext
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from tests.memory.broker import Broker
from tests.memory.clients import MemoryClients
from tests.memory.clock import Clock
from tests.postgres import PASSWORD, USER, Database
from tests.small_config import small_config
from tests.tasks import SteppedTask
from tests.unit.taskmanager.fakes import NobodyKnows, quiet_watch

INPUT = ("in", 0)


class StoppedError(Exception):
    """The process ends here."""


class Job(ABC):
    """The processor P with its table, and owners of its only task."""

    def __init__(self, folder: Path, spec: TableSinkSpec, **tables: Any) -> None:
        self.broker = Broker(Clock())
        self.broker.create_topics(TopicSpec(name, 1, 1) for name in ("in", "letters"))
        self.config = small_config(
            server_port=1,
            job_name="shop",
            state_dir=folder / "state",
            tables=TableSettings(folder=folder, **tables),
        )
        self.group = self.config.topic_names.consumer_group("P")
        self.replica = ProcessorReplica(
            TaskId("P", 0),
            spec,
            ("source",),
            (),
            ("in",),
            (),
            on_error=OnError.DEAD_LETTER,
            dead_letter_topic="letters",
        )

    def changed(self, **changes: Any) -> ProcessorReplica:
        """Return the task with another spec."""
        return replace(self.replica, spec=structs.replace(self.replica.spec, **changes))

    def write(self, *values: object) -> None:
        """Write records; what is not bytes is the number in a row."""
        for value in values:
            text = value if isinstance(value, bytes) else json.dumps({"n": value}).encode()
            self.broker.write(INPUT, b"k", text, 1)

    def owner(self, replica: ProcessorReplica | None = None) -> SteppedTask:
        clients = MemoryClients(self.broker, 15.0)
        stores = GlobalStores(self.config, 0, 0, clients)
        watch, times = quiet_watch(), TimeWatch(self.config, NobodyKnows())
        context = TaskContext(self.config, 0, 0, "memory", clients, stores, watch, times)
        return SteppedTask(replica or self.replica, context)

    def started(self, replica: ProcessorReplica | None = None) -> SteppedTask:
        """Return an owner that has processed all that is there, without a commit."""
        owner = self.owner(replica)
        owner.start()
        owner.drain()
        return owner

    def run(self, replica: ProcessorReplica | None = None) -> None:
        """Let an owner process all that is there, commit and leave."""
        owner = self.started(replica)
        if owner.running.has_uncommitted:
            owner.commit()
        owner.drop()

    def rows(self) -> list[tuple[int, int]]:
        """Return the offsets and values of the table, by offset."""
        return self.select("at", "n")

    @abstractmethod
    def select(self, *columns: str) -> list[Any]:
        """Return these columns of the table, in their order."""

    @property
    @abstractmethod
    def position(self) -> int | None:
        """The offset of the table."""

    @abstractmethod
    def move(self, position: int) -> None:
        """Set the offset of the table, as its documentation says."""

    @abstractmethod
    def delete(self) -> None:
        """Delete the table with its offsets."""

    @property
    def letters(self) -> list[bytes | None]:
        log = self.broker.log(("letters", 0))
        found, _ = log.visible(0)
        return [log.entries[at].value for at in found]

    @property
    def committed(self) -> int | None:
        return self.broker.offsets_of(self.group).get(INPUT)

    @property
    def application(self) -> str:
        return f"shop/P/in/{self.broker.topics['in'].id}/0"

    def refusal(self, replica: ProcessorReplica | None = None) -> str:
        """Return why the task fails at its start."""
        with pytest.raises(NonRetriableError) as caught:
            self.owner(replica).start()
        return str(caught.value)


class FolderJob(Job):
    """A job with a table in a folder."""

    format: ClassVar[TableFormat]

    def __init__(self, folder: Path, schema: str = "n BIGINT", **more: Any) -> None:
        spec = TableSinkSpec(
            format=self.format,
            path="lake/orders",
            schema=schema,
            record_columns={"offset": "at"},
            **more,
        )
        super().__init__(folder, spec, write_paths=("lake",))
        self.path = folder / "lake" / "orders"


class DeltaJob(FolderJob):
    """A job with a Delta table."""

    format = "delta"
    commit: tuple[Any, str] = (deltalake, "write_deltalake")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def select(self, *columns: str) -> list[Any]:
        rows = self.table.to_pyarrow_table().to_pylist()
        return sorted((tuple(row[name] for name in columns) for row in rows), key=_nulls_last)

    @property
    def position(self) -> int | None:
        found: int | None = self.table.transaction_version(self.application)
        return found

    def move(self, position: int) -> None:
        moved = CommitProperties(
            app_transactions=[deltalake.Transaction(self.application, position)]
        )
        table = self.table
        table.create_write_transaction([], "append", table.schema(), commit_properties=moved)

    def delete(self) -> None:
        shutil.rmtree(self.path)

    def restore(self) -> None:
        self.table.restore(1)


class IcebergJob(Job):
    """A job with an Iceberg table, in a catalog of SQLite."""

    commit: tuple[Any, str] = (Transaction, "commit_transaction")
    name = "shop.orders"

    def __init__(self, folder: Path, schema: str = "n BIGINT", uri: str = "", **more: Any) -> None:
        """`uri` is that of a catalog in PostgreSQL, without a login."""
        self.folder = folder / "lake"
        self.uri = uri.replace("://", f"://{USER}:{quote(PASSWORD)}@")
        spec = TableSinkSpec(
            format="iceberg",
            catalog={
                "name": "default",
                "type": "sql",
                "uri": self.uri or "sqlite:///lake/catalog.db",
                "warehouse": "lake",
            },
            table=self.name,
            schema=schema,
            record_columns={"offset": "at"},
            **more,
        )
        super().__init__(folder, spec, write_paths=("lake",), write_urls=(uri,))

    @property
    def catalog(self) -> Catalog:
        uri = self.uri or f"sqlite:///{self.folder}/catalog.db"
        uri = uri.replace("postgresql:", "postgresql+psycopg:")
        return load_catalog("default", type="sql", uri=uri, warehouse=f"file://{self.folder}")

    @property
    def table(self) -> Table:
        with self.catalog as catalog:
            return catalog.load_table(self.name)

    def select(self, *columns: str) -> list[Any]:
        rows = self.table.scan().to_arrow().to_pylist()
        return sorted((tuple(row[name] for name in columns) for row in rows), key=_nulls_last)

    @property
    def position(self) -> int | None:
        found = self.table.properties.get(f"{POSITION}{self.application}")
        return None if found is None else int(found)

    def move(self, position: int) -> None:
        table = self.table
        with table.transaction() as moved:
            moved.append(table.schema().as_arrow().empty_table())
            moved.set_properties({f"{POSITION}{self.application}": str(position)})

    def delete(self) -> None:
        self.catalog.drop_table(self.name)

    def restore(self) -> None:
        table = self.table
        first = table.history()[0].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(first).commit()


class ParquetJob(FolderJob):
    """A job with a folder of Parquet files."""

    format = "parquet"
    commit: tuple[Any, str] = (os, "link")

    def select(self, *columns: str) -> list[Any]:
        names = ", ".join(f'"{name}"' for name in columns)
        files = f"read_parquet('{self.path}/*.parquet', union_by_name = true)"
        rows = duckdb.sql(f"SELECT {names} FROM {files}")
        assert rows is not None, "a SELECT has rows"
        arrow = rows.to_arrow_table()
        found = [tuple(row[name] for name in columns) for row in arrow.to_pylist()]
        return sorted(found, key=_nulls_last)

    @property
    def newest(self) -> Path | None:
        about = self.application.encode()
        files = [
            file
            for file in self.path.glob("*.parquet")
            if pq.read_metadata(file).metadata[b"kafka-pipeline.application"] == about
        ]
        return max(files, default=None)

    @property
    def position(self) -> int | None:
        newest = self.newest
        if newest is None:
            return None
        return int(pq.read_metadata(newest).metadata[b"kafka-pipeline.next-offset"])

    def move(self, position: int) -> None:
        newest, end = self.newest, self.position
        assert newest is not None
        schema = pq.read_schema(newest)
        footer = {**schema.metadata, b"kafka-pipeline.next-offset": str(position).encode()}
        name = f"{newest.stem[:-20]}{end:020}.parquet"
        pq.write_table(schema.empty_table().replace_schema_metadata(footer), newest.with_name(name))

    def delete(self) -> None:
        shutil.rmtree(self.path)


class PostgresJob(Job):
    """A job with a table in PostgreSQL."""

    def __init__(
        self, folder: Path, database: Database, schema: str = "n BIGINT", **more: Any
    ) -> None:
        spec = TableSinkSpec(
            format="postgres",
            url=database.url,
            table="orders",
            user=USER,
            password=PASSWORD,
            schema=schema,
            record_columns={"offset": "at"},
            **more,
        )
        super().__init__(folder, spec, write_urls=(database.url,))
        self.database = database

    def select(self, *columns: str) -> list[Any]:
        return sorted(
            self.database.run(f"SELECT {', '.join(columns)} FROM orders"), key=_nulls_last
        )

    @property
    def position(self) -> int | None:
        found = self.database.run(
            "SELECT next_offset FROM kafka_pipeline_offsets "
            f"WHERE table_name = 'orders' AND application = '{self.application}'"
        )
        return found[0][0] if found else None

    def move(self, position: int) -> None:
        self.database.run(
            f"UPDATE kafka_pipeline_offsets SET next_offset = {position} "
            f"WHERE table_name = 'orders' AND application = '{self.application}'"
        )

    def delete(self) -> None:
        self.database.run("DROP TABLE orders, kafka_pipeline_offsets")


def _nulls_last(row: Sequence[Any]) -> list[tuple[bool, Any]]:
    return [(each is None, each) for each in row]


def stop_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop each process at a fault point of a commit."""

    def reach(reached: str) -> None:
        if reached == point:
            raise StoppedError

    monkeypatch.setattr(task_module, "reach", reach)


FileJob = DeltaJob | IcebergJob | ParquetJob
FILES: dict[str, type[FileJob]] = {"delta": DeltaJob, "iceberg": IcebergJob, "parquet": ParquetJob}
"""The formats of files."""


def before_commit(job: FileJob, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something once between the look at the position and the commit of a table."""
    commit = getattr(*job.commit)

    def delayed(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(*job.commit, commit)
        act()
        return commit(*args, **kwargs)

    monkeypatch.setattr(*job.commit, delayed)
