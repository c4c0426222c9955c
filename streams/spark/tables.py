"""Lookup tables: read by Spark, kept in the driver's memory, and read again every now and then."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession

from streams.spark.messages import one_line
from streams.spark.spec import QueryError

_AS_LOCAL_RELATION = str(2**40)

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Rows:
    """What was read of some tables, by their names; `version` grows when one was read again."""

    version: int
    frames: Mapping[str, DataFrame]


class Tables:
    """Some tables, as DataFrames whose rows are in memory, so that a join needs no Spark job."""

    def __init__(self, session: SparkSession, specs: Mapping[str, Mapping[str, Any]]) -> None:
        """Read all of them. Raises `QueryError` that names the one that cannot be read."""
        self._session = session.newSession()
        self._session.conf.set(
            "spark.sql.execution.arrow.localRelationThreshold", _AS_LOCAL_RELATION
        )
        self._specs = specs
        self.rows = Rows(0, {name: self._read(name) for name in specs})
        self._changing = threading.Lock()
        self._closed = threading.Event()
        for name, spec in specs.items():
            if spec.get("refresh_s"):
                threading.Thread(
                    target=self._keep_fresh, args=(name,), name=f"table-{name}", daemon=True
                ).start()

    def close(self) -> None:
        """Read no table again."""
        self._closed.set()

    def _read(self, name: str) -> DataFrame:
        spec = self._specs[name]
        reader = self._session.read.format(spec["format"]).options(**spec.get("options", {}))
        try:
            if spec.get("schema"):
                reader = reader.schema(spec["schema"])
            found = reader.load(spec["path"]) if spec.get("path") else reader.load()
            return self._session.createDataFrame(found.toArrow(), found.schema)
        except Exception as error:
            raise QueryError(f'table "{name}" cannot be read: {one_line(error)}') from error

    def refresh(self, name: str) -> None:
        """Read a table again. Raises `QueryError` if it cannot be read; its rows stay then."""
        frame = self._read(name)
        with self._changing:
            self.rows = Rows(self.rows.version + 1, {**self.rows.frames, name: frame})

    def _keep_fresh(self, name: str) -> None:
        while not self._closed.wait(self._specs[name]["refresh_s"]):
            try:
                self.refresh(name)
            except QueryError as error:
                logger.warning("table keeps its old rows", table=name, reason=str(error))


class SharedTables:
    """The tables of all queries of a process: those that are the same are read once."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._used: dict[str, tuple[Tables, int]] = {}

    def take(self, specs: Mapping[str, Mapping[str, Any]]) -> Tables:
        """Return tables, and count who uses them. Raises as `Tables`."""
        name = json.dumps(specs, sort_keys=True)
        with self._lock:
            tables, users = self._used.get(name) or (Tables(self._session, specs), 0)
            self._used[name] = tables, users + 1
            return tables

    def give_back(self, tables: Tables) -> None:
        """Let go of tables; whoever is the last closes them."""
        with self._lock:
            for name, (used, users) in list(self._used.items()):
                if used is tables and users > 1:
                    self._used[name] = used, users - 1
                elif used is tables:
                    tables.close()
                    del self._used[name]
