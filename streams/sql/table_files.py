"""Finds the files that Spark would read for a table, and keeps it from those that it must not.

Patterns and folders can lead to links, and these anywhere. So each file is checked, right before a
table is read. Remote file systems have no links that a command could make use of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafka_pipeline.common.config.table_paths import Location, location_of
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.sql.access import Readable, is_of_files
from kafka_pipeline.streams.sql.query_session import translated
from kafka_pipeline.streams.sql.spec import QueryError


def opened_tables(
    session: SparkSession, readable: Readable, tables: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return tables as `Readable.opened` does, whose files of this host may be read right now."""
    found = readable.opened(tables)
    for name, table in found.items():
        if is_of_files(table["format"]):
            location = location_of(tables[name]["path"], readable.tables.folder)
            _require_readable(session, readable.tables, name, location)
    return found


def _require_readable(
    session: SparkSession, settings: TableSettings, name: str, location: Location
) -> None:
    if not location.is_on_host:
        return
    with translated():
        files = list(_files(session, location))
    for file in files:
        # A link is followed here, and a wildcard in the name of a file stays what it is.
        names = os.path.realpath(file).split("/")
        wrong = settings.path_problem(Location("file", "", tuple(filter(None, names))))
        if wrong:
            raise QueryError(f'table "{name}": the file {file}, to which its path leads, {wrong}')


def _files(session: SparkSession, location: Location) -> Iterator[str]:
    """Yield the files and folders that a location leads to, with all in them but hidden ones."""
    seen: set[str] = set()
    for root in _roots(session, location):
        yield root
        for folder, folders, files in os.walk(root, followlinks=True):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in [*folders, *files]:
                if not name.startswith("."):
                    yield os.path.join(folder, name)
            real = os.path.realpath(folder)
            if real in seen:
                folders[:] = []
            seen.add(real)


def _roots(session: SparkSession, location: Location) -> Iterator[str]:
    """Yield the files and folders that a location names, as Hadoop understands its wildcards."""
    if not location.pattern:
        yield str(location.path)
        return
    jvm: Any = session._jvm
    java: Any = session._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(location.uri)
    for status in path.getFileSystem(java.sessionState().newHadoopConf()).globStatus(path) or ():
        yield str(Path(status.getPath().toUri().getPath()))
