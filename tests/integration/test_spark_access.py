"""Queries cannot read or run what they must not, on a real Spark."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.sql.access import Readable
from kafka_pipeline.streams.sql.queries import SparkQueries
from kafka_pipeline.streams.sql.spec import Queries, QueryError, QuerySpec
from kafka_pipeline.streams.sql.tables import Tables
from kafka_pipeline.taskmanager.query_server import QueryServer
from kafka_pipeline.taskmanager.remote_queries import RemoteQueries
from tests.queries import refusal, results
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

KEY = b"secret"
DERBY = "jdbc:derby:memory:lookups;create=true"
ROWS_OF_DERBY = "SELECT * FROM (VALUES ('k1', 'One')) AS t (code, name)"
JOIN = "SELECT name AS value FROM input JOIN names ON key = code"
SECRET = "SELECT input.value FROM input CROSS JOIN {}"


@pytest.fixture
def session(queries: Queries) -> SparkSession:
    queries.open(QuerySpec("SELECT value FROM input")).close()
    running = SparkSession.getActiveSession()
    assert running is not None
    return running


@pytest.fixture
def remote(session: SparkSession) -> Iterator[RemoteQueries]:
    """Queries as a task has them: by way of its TaskManager, with the default configuration."""
    allowed = Readable(TableSettings(paths=(tempfile.gettempdir(),)))
    served = SparkQueries(session, UserCode(), allowed)
    server = QueryServer("127.0.0.1", KEY, served, allowed.references)
    yield RemoteQueries(("127.0.0.1", server.port), KEY)
    server.close()


def names_in_derby(**options: str) -> dict[str, dict[str, object]]:
    """Return a table in a database that is in the memory of Spark's JVM, and comes with it."""
    given = {"url": DERBY, "query": ROWS_OF_DERBY, **options}
    return {"names": {"format": "jdbc", "options": given}}


def test_a_database_that_would_run_code_here_is_not_even_connected_to(
    session: SparkSession, remote: RemoteQueries, tmp_path: Path
) -> None:
    """Derby's own procedures write files; others that a session makes first call any Java."""
    written = tmp_path / "written"
    command = f"CALL SYSCS_UTIL.SYSCS_EXPORT_QUERY('VALUES 1', '{written}', NULL, NULL, NULL)"
    tables = names_in_derby(sessionInitStatement=command)
    assert "does not allow jdbc" in refusal(remote, QuerySpec(JOIN, tables=tables))
    assert not written.exists()
    listed = SparkQueries(session, UserCode(), Readable(TableSettings(jdbc_urls=(DERBY,))))
    assert '"sessionInitStatement" is not allowed' in refusal(
        listed, QuerySpec(JOIN, tables=tables)
    )
    assert not written.exists()
    Tables(session, tables, dict)
    assert written.exists(), "it would have run"


def test_a_database_that_is_listed_is_read(session: SparkSession) -> None:
    listed = SparkQueries(session, UserCode(), Readable(TableSettings(jdbc_urls=(DERBY,))))
    found = results(listed, QuerySpec(JOIN, tables=names_in_derby()))
    assert [value for _, value, _ in found] == [b"One", b"One"]


@pytest.mark.parametrize(
    "source",
    [
        "csv.`{}`",
        "text.`{}`",
        "`org.apache.spark.sql.execution.datasources.csv.CSVFileFormat`.`{}`",
        "jdbc.`jdbc:derby:memory:other`",
        "`org.apache.spark.sql.jdbc`.`jdbc:derby:memory:other`",
    ],
)
@pytest.mark.parametrize(
    "query",
    long_but_the_first(
        [
            SECRET,
            "SELECT value FROM input WHERE value IN (SELECT * FROM {})",
            "SELECT (SELECT count(*) FROM {}) AS value FROM input",
            "WITH t AS (SELECT * FROM {}) SELECT input.value FROM input, t",
        ],
        2,
    ),
)
def test_files_that_a_query_names_are_not_read(
    queries: Queries, tmp_path: Path, source: str, query: str
) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("secret\n")
    assert "cannot be found" in refusal(queries, QuerySpec(query.format(source.format(file))))


def test_what_the_session_knows_of_is_not_read(
    queries: Queries, session: SparkSession, tmp_path: Path
) -> None:
    """Such as tables of catalogs that other code of this process uses."""
    (tmp_path / "secret.csv").write_text("secret\n")
    session.read.csv(str(tmp_path)).createGlobalTempView("secret")
    try:
        for query in (SECRET, "SELECT (SELECT max(_c0) FROM {}) AS value FROM input"):
            found = refusal(queries, QuerySpec(query.format("global_temp.secret")))
            assert "and nothing else (LogicalRelation)" in found
    finally:
        session.catalog.dropGlobalTempView("secret")


@pytest.mark.parametrize(
    "source",
    long_but_the_first(
        [
            "range(2)",
            "(VALUES (1), (2))",
            "(SELECT explode(array(1, 2)))",
            "(SELECT 1 UNION SELECT 2)",
        ],
        2,
    ),
)
def test_rows_that_a_query_makes_itself_are_fine(queries: Queries, source: str) -> None:
    assert len(results(queries, QuerySpec(SECRET.format(source)))) == 8


def test_a_recursive_query_beside_the_input_is_fine(queries: Queries) -> None:
    text = (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 3) "
        "SELECT (SELECT max(n) FROM t) AS value FROM input"
    )
    assert {value for _, value, _ in results(queries, QuerySpec(text))} == {b"3"}


@pytest.mark.parametrize("text", ["${env:PATH}", "${system:java.version}", "${spark.master}"])
def test_a_query_does_not_see_environment_and_settings(queries: Queries, text: str) -> None:
    """They may hold passwords."""
    found = results(queries, QuerySpec(f"SELECT '{text}' AS value FROM input"))
    assert {value for _, value, _ in found} == {text.encode()}


UDT = json.dumps(
    {
        "type": "struct",
        "fields": [
            {
                "name": "a",
                "type": {
                    "type": "udt",
                    "pyClass": "module_of_a_schema.Type",
                    "serializedClass": "",
                    "sqlType": "string",
                },
                "nullable": True,
                "metadata": {},
            }
        ],
    }
)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module that schemas name: it must not be imported."""
    (tmp_path / "module_of_a_schema.py").write_text("Type = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    assert "module_of_a_schema" not in sys.modules


@pytest.mark.usefixtures("trap")
@pytest.mark.parametrize(
    "spec",
    [
        QuerySpec("SELECT a FROM input", format="json", schema=UDT),
        QuerySpec(f"SELECT from_json(value, '{UDT}').a AS value FROM input"),
        QuerySpec(f"SELECT from_json(value, concat('{UDT}', '')) AS b FROM input"),
    ],
)
def test_a_schema_does_not_say_what_is_imported(queries: Queries, spec: QuerySpec) -> None:
    """PySpark imports the module that a user-defined type names, whatever it is."""
    assert "user-defined types cannot be read" in refusal(queries, spec)


@pytest.mark.usefixtures("trap")
def test_a_file_does_not_say_what_is_imported(
    queries: Queries, session: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "evil.parquet"
    table = pa.table({"a": ["1"]})
    metadata = {"org.apache.spark.sql.parquet.row.metadata": UDT}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), file)
    tables = {"t": {"format": "parquet", "path": str(file)}}
    assert "user-defined types" in refusal(queries, QuerySpec(SECRET.format("t"), tables=tables))
    with pytest.raises(QueryError):
        Tables(session, tables, dict)
