"""Every function and option of this version of Spark was looked at, and attacks with them fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_pipeline.streams.sql.file_options import FILE_OPTIONS, FUNCTION_OPTIONS
from kafka_pipeline.streams.sql.forbidden_functions import (
    CALLS_JAVA,
    OF_FILES,
    TABLE_FUNCTIONS,
    forbid_functions,
)
from kafka_pipeline.streams.sql.spec import Queries, QueryError, QuerySpec
from tests.queries import refusal, results
from tests.tiers import long_but_the_first

pytestmark = pytest.mark.integration

REVIEWED = Path(__file__).parent / "reviewed_functions.txt"
JOIN = "SELECT t._c0 AS value FROM input CROSS JOIN t"
CATALYST = "org.apache.spark.sql.catalyst"

# Options that name files or classes, or belong to the writing of files.
REFUSED = {
    "csv": {"codec", "compression", "extension"},
    "json": {"compression"},
    "xml": {"compression", "rowValidationXSDPath"},
    "text": {"compression"},
    "parquet": {"compression", "parquet.compression"},
    "orc": {"compression", "orc.compress"},
    "avro": {"avroSchemaUrl", "compression", "recordName", "recordNamespace"},
}
OPTIONS = {
    "csv": f"{CATALYST}.csv.CSVOptions",
    "json": f"{CATALYST}.json.JSONOptions",
    "xml": f"{CATALYST}.xml.XmlOptions",
    "text": "org.apache.spark.sql.execution.datasources.text.TextOptions",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcOptions",
    "avro": "org.apache.spark.sql.avro.AvroOptions",
}
OF_ALL_FILES = {
    "pathGlobFilter",
    "recursiveFileLookup",
    "modifiedBefore",
    "modifiedAfter",
    "timeZone",
    "ignoreCorruptFiles",
    "ignoreMissingFiles",
}


@pytest.fixture(scope="module")
def session(queries: Queries) -> SparkSession:
    queries.open(QuerySpec("SELECT value FROM input")).close()
    running = SparkSession.getActiveSession()
    assert running is not None
    return running


def names_in(registry: Any) -> set[str]:
    """Return the names of all functions of a registry."""
    functions = registry.listFunction()
    return {str(functions.apply(index).funcName()) for index in range(functions.size())}


def scala_object(session: SparkSession, name: str) -> Any:
    jvm: Any = session._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    found = jvm.java.lang.Class.forName(f"{name}$", True, loader)
    return found.getField("MODULE$").get(None)


def test_there_is_no_other_function(session: SparkSession) -> None:
    """One that is new may read files or call code: add it here, or to those that are removed."""
    state: Any = session.newSession()._jsparkSession.sessionState()
    known = set(REVIEWED.read_text().split())
    found = names_in(state.functionRegistry()) | names_in(state.tableFunctionRegistry())
    assert found == known


@pytest.mark.parametrize(
    ("is_text", "removed"), [(True, {*CALLS_JAVA, *OF_FILES}), (False, set(CALLS_JAVA))]
)
def test_functions_are_removed(session: SparkSession, is_text: bool, removed: set[str]) -> None:
    java: Any = session.newSession()._jsparkSession
    state = java.sessionState()
    before, tables = names_in(state.functionRegistry()), names_in(state.tableFunctionRegistry())
    forbid_functions(java, session._jvm, is_text=is_text)
    assert before - names_in(state.functionRegistry()) == removed
    gone = tables - names_in(state.tableFunctionRegistry())
    assert gone == (set(TABLE_FUNCTIONS) if is_text else set())


@pytest.mark.parametrize("format_", OPTIONS)
def test_there_is_no_other_option(session: SparkSession, format_: str) -> None:
    options = scala_object(session, OPTIONS[format_]).getAllOptions().toSeq()
    found = {str(options.apply(index)) for index in range(options.size())}
    allowed = FUNCTION_OPTIONS.get(format_, FILE_OPTIONS[format_])
    assert found - allowed == REFUSED[format_]
    assert allowed - found <= OF_ALL_FILES


def test_there_is_no_other_option_of_all_files(session: SparkSession) -> None:
    options = scala_object(session, f"{CATALYST}.FileSourceOptions")
    names = {m.getName() for m in options.getClass().getDeclaredMethods() if m.getName().isupper()}
    found = {str(getattr(options, name)()) for name in names if "PATTERN" not in name}
    assert found - OF_ALL_FILES == {"archivePathFilter", "ignoredPathSegmentRegex"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"SELECT {name}('java.lang.System', 'getenv', 'PATH') AS value FROM input", "reflect")
        for name in ("reflect", "`reflect`", "system.builtin.reflect", "IDENTIFIER('reflect')")
    ]
    + [
        (f"SELECT {call} AS value FROM input", reason)
        for call, reason in (
            ("java_method('a', 'b')", "Cannot resolve routine"),
            ("try_reflect('a', 'b')", "Cannot resolve routine"),
            ("from_avro(value, '\"int\"', map('avroSchemaUrl', 'file:/x'))", "Cannot resolve"),
            ("schema_of_avro('\"int\"', map('avroSchemaUrl', 'file:/x'))", "Cannot resolve"),
            ("from_protobuf(value, 'M', '/x')", "Cannot resolve"),
            ("to_protobuf(struct(value), 'M', '/x')", "Cannot resolve"),
            ("from_xml(value, 'a INT', map('rowValidationXSDPath', '/x'))", "takes no option"),
            (
                "from_xml(value, 'a INT', map(concat('ROWVALIDATION', 'xsdPath'), '/x'))",
                "takes no option",
            ),
            ("(SELECT max(from_csv('1', 'a INT', map('codec', 'a.B')).a))", "takes no option"),
            ("to_json(struct(value), map('compression', 'a.B'))", "takes no option"),
            (
                "from_xml('', schema_of_xml('<a/>', map('rowValidationXSDPath', '/x'))).a",
                "schema_of_xml",
            ),
        )
    ]
    + [
        (f"SELECT input.value FROM input, {source}", reason)
        for source, reason in (
            ("python_worker_logs()", "Could not resolve"),
            ("read_files('/etc/passwd')", "Could not resolve"),
            ("IDENTIFIER('text.`/etc/passwd`')", "cannot be found"),
            ("LATERAL (SELECT * FROM text.`/etc/passwd`)", "cannot be found"),
            ("information_schema.tables", "cannot be found"),
            ("STREAM(rate)", "cannot be found"),
        )
    ]
    + [
        (text, "only a SELECT that reads input")
        for text in (
            "ADD JAR '/tmp/x.jar'",
            "SET spark.sql.runSQLOnFiles = true",
            "EXECUTE IMMEDIATE 'SELECT value FROM input'",
            "BEGIN SELECT value FROM input; END",
            "DECLARE x = 1",
            "CREATE TEMPORARY FUNCTION f AS 'a.B' USING JAR '/tmp/x.jar'",
            "CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')",
            "SHOW FUNCTIONS",
        )
    ]
    + [
        ("SELECT TRANSFORM(value) USING 'cat' AS (value) FROM input", "TRANSFORM"),
        ("FROM input |> SELECT TRANSFORM(value) USING 'cat' AS (value)", "line 1"),
        ("SELECT 1; ADD JAR '/tmp/x.jar'", "several statements"),
        ("MAP value USING 'cat' AS value FROM input", "TRANSFORM"),
        (
            "WITH t AS (SELECT TRANSFORM(1) USING 'cat') SELECT input.value FROM input, t",
            "TRANSFORM",
        ),
    ],
)
def test_queries_reach_neither_files_nor_code(queries: Queries, text: str, reason: str) -> None:
    assert reason in refusal(queries, QuerySpec(text))


def test_options_that_are_known_work(queries: Queries) -> None:
    call = "from_csv('a;1', 'a STRING, n INT', map('SEP', ';', 'mode', 'FAILFAST')).n"
    text = f"SELECT to_json(named_struct('n', {call}), map('pretty', 'false')) AS value FROM input"
    assert {value for _, value, _ in results(queries, QuerySpec(text))} == {b'{"n":1}'}


def test_the_default_of_a_schema_is_not_computed(queries: Queries) -> None:
    """Such an expression would know the functions that were removed."""
    call = "reflect('java.lang.System', 'getProperty', 'user.home')"
    field = {
        "name": "a",
        "type": "string",
        "nullable": True,
        "metadata": {"EXISTS_DEFAULT": call, "CURRENT_DEFAULT": call},
    }
    schema = json.dumps({"type": "struct", "fields": [field]})
    spec = QuerySpec("SELECT a FROM input", format="json", schema=schema)
    with pytest.raises(QueryError, match="is not a constant expression"):
        results(queries, spec, [("k", "{}")])


def test_xml_does_not_say_what_is_loaded(queries: Queries, tmp_path: Path) -> None:
    """Without this, a record could have any file or URL loaded as its document type."""
    (tmp_path / "x.dtd").write_text('<!ENTITY secret "hunter2">')
    xml = f'<!DOCTYPE a SYSTEM "file:{tmp_path}/x.dtd"><a>&secret;</a>'
    spec = QuerySpec("SELECT xpath_string(value, 'a') AS value FROM input WHERE key = 'k'")
    query = queries.open(spec)
    query.close()
    with pytest.raises(QueryError, match="Error loading expression"):
        results(queries, spec, [("k", xml)])


def table(path: object, **others: object) -> QuerySpec:
    return QuerySpec(JOIN, tables={"t": {"format": "csv", "path": str(path), **others}})


@pytest.mark.parametrize(
    "path",
    long_but_the_first(
        [
            "link.csv",
            "l*.csv",
            "{link,other}.csv",
            "*",
            "",
            "folder",
            "f*",
            "*/a.csv",
            "circle/folder",
        ],
        3,
    ),
)
def test_links_out_of_a_folder_are_not_followed(
    queries: Queries, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    """Spark itself follows them, in patterns and in folders too."""
    outside = tmp_path_factory.getbasetemp().parent / "outside_of_all_tests"
    outside.mkdir(exist_ok=True)
    (outside / "a.csv").write_text("secret\n")
    (tmp_path / "other.csv").write_text("x\n")
    (tmp_path / "link.csv").symlink_to(outside / "a.csv")
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "circle").symlink_to(tmp_path)
    assert "is outside of what config.yaml allows" in refusal(queries, table(f"{tmp_path}/{path}"))
    found = results(queries, table(f"{tmp_path}/other.csv"), [("k", "v")])
    assert [value for _, value, _ in found] == [b"x"]


def test_hidden_files_are_neither_read_nor_in_the_way(queries: Queries, tmp_path: Path) -> None:
    """In a volume of Kubernetes, files are links into a hidden folder, and another one is current.

    A wildcard of Hadoop matches hidden folders.
    """
    (tmp_path / "..v1").mkdir()
    (tmp_path / "..v1" / "t.csv").write_text("7\n")
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "t.csv").symlink_to("..data/t.csv")
    for path in (tmp_path, tmp_path / "t.csv", tmp_path / "t*.csv"):
        assert results(queries, table(path), [("k", "v")])[0][1] == b"7"
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "t.csv").write_text("8\n")
    assert results(queries, table(tmp_path), [("k", "v")])[0][1] == b"7"
    for path in (tmp_path / "*" / "t.csv", tmp_path / "[.]git" / "t.csv", tmp_path / ".git"):
        assert 'a name that begins with "."' in refusal(queries, table(path))
