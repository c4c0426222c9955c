"""Every data source that this version of Spark brings was looked at."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyspark
import pytest

from kafka_pipeline.common.config.table_settings import FILE_FORMATS, TableSettings
from kafka_pipeline.streams.sql.access import table_problems
from kafka_pipeline.streams.sql.file_options import FILE_OPTIONS

_REGISTER = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SOURCES = "org.apache.spark.sql.execution.datasources."
_STREAMS = "org.apache.spark.sql.execution.streaming."
KNOWN = {
    f"{_SOURCES}v2.csv.CSVDataSourceV2": "csv",
    f"{_SOURCES}v2.json.JsonDataSourceV2": "json",
    f"{_SOURCES}v2.parquet.ParquetDataSourceV2": "parquet",
    f"{_SOURCES}v2.text.TextDataSourceV2": "text",
    f"{_SOURCES}orc.OrcFileFormat": "orc",
    "org.apache.spark.sql.hive.orc.OrcFileFormat": "orc",
    f"{_SOURCES}xml.XmlFileFormat": "xml",
    f"{_SOURCES}binaryfile.BinaryFileFormat": "binaryFile",
    f"{_SOURCES}jdbc.JdbcRelationProvider": "jdbc",
    f"{_SOURCES}noop.NoopDataSource": "noop",
    f"{_SOURCES}v2.state.StateDataSource": "statestore",
    f"{_SOURCES}v2.state.metadata.StateMetadataSource": "state-metadata",
    f"{_STREAMS}ConsoleSinkProvider": "console",
    f"{_STREAMS}sources.RateStreamProvider": "rate",
    f"{_STREAMS}sources.RatePerMicroBatchProvider": "rate-micro-batch",
    f"{_STREAMS}sources.TextSocketSourceProvider": "socket",
    "org.apache.spark.sql.hive.execution.HiveFileFormat": "hive",
    "org.apache.spark.ml.source.image.ImageFileFormat": "image",
    "org.apache.spark.ml.source.libsvm.LibSVMFileFormat": "libsvm",
}
"""The classes of sources, and their short names. To one that is new, say what it may read."""

NAMES = sorted(set(KNOWN.values()) - set(FILE_FORMATS))


def registered() -> set[str]:
    """Return the classes of the sources in Spark's jars."""
    found = set()
    for jar in Path(pyspark.__file__).parent.glob("jars/*.jar"):
        with zipfile.ZipFile(jar) as archive:
            if _REGISTER in archive.namelist():
                lines = archive.read(_REGISTER).decode().splitlines()
                found |= {line.strip() for line in lines if line.strip()[:1] not in ("", "#")}
    return found


def test_there_is_no_other_source() -> None:
    assert registered() == set(KNOWN)


def problem(format_: str, settings: TableSettings) -> str:
    return "".join(table_problems(settings, {"t": {"format": format_, "path": "t"}}))


@pytest.mark.parametrize(
    "format_", [*NAMES, *KNOWN, *map(str.upper, FILE_FORMATS), "com.databricks.spark.csv", "kafka"]
)
def test_sources_are_refused_unless_they_are_files_or_listed(format_: str) -> None:
    assert "config.yaml does not allow" in problem(format_, TableSettings())


@pytest.mark.parametrize("format_", [*FILE_FORMATS, "xml", "binaryFile", "image", "libsvm"])
def test_sources_of_files_are_held_to_the_paths(format_: str) -> None:
    assert format_.lower() in FILE_OPTIONS
    assert "is outside" in problem(format_, TableSettings((format_,), paths=()))
