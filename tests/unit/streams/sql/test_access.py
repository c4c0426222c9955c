"""Which lookup tables config.yaml allows to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.config.secret_settings import SecretSettings
from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.streams.sql.access import Readable, located, table_problems
from kafka_pipeline.streams.sql.spec import QueryError

URL = "jdbc:postgresql://db.example:5432/shop"
OPTIONS = {"url": URL, "dbtable": "rates"}
SETTINGS = TableSettings(jdbc_urls=(URL,), jdbc_drivers=("org.postgresql.Driver",))

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def problem(settings: TableSettings = SETTINGS, **table: object) -> str:
    """Return what is wrong with the only table, "" if it may be read."""
    return "".join(table_problems(settings, {"t": table}))


def jdbc(options: Mapping[str, str], settings: TableSettings = SETTINGS) -> str:
    return problem(settings, format="jdbc", path="", options={**OPTIONS, **options})


@pytest.mark.parametrize("format_", ["parquet", "csv", "json", "orc", "avro", "text"])
def test_files_are_read_by_default(format_: str) -> None:
    table = {"path": "t", "options": {"recursiveFileLookup": "true", "pathGlobFilter": "*.x"}}
    assert problem(TableSettings(), format=format_, **table) == ""


@pytest.mark.parametrize(
    "format_",
    [
        "CSV",
        "binaryFile",
        "xml",
        "hive",
        "JDBC",
        "Jdbc",
        " jdbc",
        "org.apache.spark.sql.jdbc",
        "org.apache.spark.sql.execution.datasources.jdbc.JdbcRelationProvider",
        "org.foo.Bar",
        "",
        None,
        ["csv"],
    ],
)
def test_other_formats_are_refused(format_: object) -> None:
    """Though Spark would know them by another spelling, or by the names of their classes."""
    assert "format" in problem(format=format_, options=OPTIONS)


def test_the_refusal_of_a_format_names_what_is_allowed() -> None:
    assert problem(TableSettings(("csv", "orc")), format="delta") == (
        'table "t": config.yaml does not allow the format "delta", only "csv" or "orc": '
        "see tables: {formats: […]}"
    )
    assert 'did you mean "csv"?' in problem(format="CSV")
    assert "only none" in problem(TableSettings(()), format="csv")


def test_a_format_that_is_listed_is_read() -> None:
    assert problem(TableSettings(("delta",)), format="delta", path="t") == ""
    assert problem(TableSettings(("iceberg",)), format="iceberg", path="shop.t") == ""


@pytest.mark.parametrize(
    "option", ["fs.s3a.impl", "spark.sql.x", "hadoop.security.group.mapping", "FS.file.impl"]
)
def test_settings_of_hadoop_are_refused_as_options(option: str) -> None:
    """They can name classes."""
    assert f'"{option}" is a setting of Hadoop' in problem(format="csv", options={option: "x"})


def test_databases_are_refused_by_default() -> None:
    assert jdbc({}, TableSettings()) == (
        'table "t": config.yaml does not allow jdbc: list the table\'s url under '
        "tables: {jdbc: {urls: […]}}"
    )


def test_a_database_that_is_listed_is_read() -> None:
    assert jdbc({}) == ""
    assert jdbc({"user": "u", "password": "p", "numPartitions": "2", "fetchSize": "100"}) == ""
    assert jdbc({"driver": "org.postgresql.Driver"}) == ""


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sessionInitStatement", "CALL run()"),
        ("SESSIONINITSTATEMENT", "CALL run()"),
        ("prepareQuery", "CREATE ALIAS"),
        ("connectionProvider", "basic"),
        ("socketFactory", "a.B"),
        ("INIT", "RUNSCRIPT FROM 'x'"),
        ("create", "true"),
        ("keytab", "/etc/krb5.keytab"),
        ("autoDeserialize", "true"),
    ],
)
def test_options_that_can_run_code_are_refused(option: str, value: str) -> None:
    """Spark hands to the driver what it does not know."""
    assert f'the option "{option}" is not allowed' in jdbc({option: value})


def test_a_driver_is_refused_unless_it_is_listed() -> None:
    assert 'the driver "org.evil.Driver"' in jdbc({"driver": "org.evil.Driver"})
    without = TableSettings(jdbc_urls=(URL,))
    assert "the driver" in jdbc({"driver": "org.postgresql.Driver"}, without)


@pytest.mark.parametrize("name", ["URL", "Url"])
def test_a_second_url_in_other_letters_is_refused(name: str) -> None:
    """Spark would take the last one."""
    assert "given twice" in jdbc({name: "jdbc:derby:memory:x;create=true"})


def test_the_url_is_checked_in_any_letters() -> None:
    for name in ("url", "URL"):
        found = problem(format="jdbc", options={name: "jdbc:derby:memory:x", "dbtable": "t"})
        assert "its url is not allowed" in found
        assert "derby" not in found, "it may hold a password"
    assert "its url is not allowed" in problem(format="jdbc", options={"dbtable": "t"})
    assert problem(format="jdbc", options={"URL": URL, "dbtable": "t"}) == ""


def test_a_path_of_a_database_is_refused() -> None:
    assert "has no path" in problem(format="jdbc", path=URL, options=OPTIONS)


@pytest.mark.parametrize("tables", [None, [], "t", {"t": None}, {"t": []}, {"t": {}}])
def test_what_is_no_table_is_refused(tables: Any) -> None:
    assert table_problems(SETTINGS, tables)


@given(json_values)
def test_anything_that_json_can_say_is_refused_or_read_and_raises_nothing(value: Any) -> None:
    for table in (value, {"format": value}, {"format": "jdbc", "options": value}):
        for problem in table_problems(SETTINGS, {"t": table}):
            assert problem.startswith('table "t": ')
    table_problems(SETTINGS, value)


def test_all_tables_are_checked() -> None:
    readable = Readable(SETTINGS)
    fine = {"format": "csv", "path": "t.csv"}
    tables = {"a": fine, "b": {"format": "b"}, "c": {"format": "c"}}
    with pytest.raises(QueryError, match=r'^table "b": .*; table "c": '):
        readable.opened(tables)
    assert list(readable.opened({"a": fine})) == ["a"]
    assert readable.opened({}) == {}


REFERENCES = HostReferences(
    SecretSettings(("DB_URL", "DB_USER", "DB_PASSWORD")), "TaskManager 0 at host7"
)
REFERRING = {"url": "${DB_URL}", "user": "${DB_USER}", "password": "${DB_PASSWORD}"}


def opened(environment: Mapping[str, str], **options: str) -> Mapping[str, Any]:
    """Return the options with which a table is read where these variables are set."""
    here = Readable(SETTINGS, replace(REFERENCES, environment=environment))
    table = {"format": "jdbc", "options": {"dbtable": "rates", **options}}
    found: Mapping[str, Any] = here.opened({"t": table}, "P")["t"]["options"]
    return found


def test_references_get_their_values_when_a_table_is_read() -> None:
    environment = {"DB_URL": URL, "DB_USER": "me", "DB_PASSWORD": "hunter2${DB_USER}"}
    assert opened(environment, **REFERRING, fetchsize="$${1}") == {
        **OPTIONS,
        "user": "me",
        "password": "hunter2${DB_USER}",
        "fetchsize": "${1}",
    }
    config = {"a": ["${DB_USER}"]}
    named = Readable(SETTINGS, replace(REFERENCES, environment=environment))
    assert named.arguments(config, "P") == {"a": ["me"]}
    with pytest.raises(QueryError, match=r"^TaskManager 0 at host7: P\.config\.a\[0\]: the env"):
        Readable(SETTINGS, replace(REFERENCES, environment={})).arguments(config, "P")
    with pytest.raises(QueryError) as caught:
        opened({"DB_URL": URL, "DB_PASSWORD": "hunter2"}, **REFERRING)
    assert str(caught.value) == (
        "TaskManager 0 at host7: P.tables.t.options.user: the environment variable DB_USER is not "
        "set: set it, or give a default as in ${DB_USER:-default}"
    )


@pytest.mark.parametrize("text", ["${DB_URL}", "${DB_URL:-jdbc:derby:memory:x}"])
def test_a_url_is_checked_when_its_value_is_known(text: str) -> None:
    for value in ("jdbc:derby:memory:x", "hunter2", "${x}", ""):
        with pytest.raises(QueryError, match="its url is not allowed") as caught:
            opened({"DB_URL": value}, url=text)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(QueryError, match="its url is not allowed"):
        opened({}, url="$${x}")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dbtable", "(SELECT '${DB_PASSWORD}') t"),
        ("query", "SELECT '${DB_PASSWORD:-x}'"),
        ("URL", f"{URL}${{DB_PASSWORD}}"),
        ("customSchema", "${file:/etc/shadow}"),
        ("fetchsize", "${"),
    ],
)
def test_an_option_that_a_query_could_show_takes_no_reference(option: str, value: str) -> None:
    """Whoever commands would otherwise have the value written to a topic."""
    options = {} if option == "URL" else {"url": URL}
    table = {"format": "jdbc", "options": {**options, option: value}}
    found = str(table_problems(SETTINGS, {"t": table}, is_written=True))
    assert f'the option "{option}" takes no reference' in found


def path_of(folder: str, **table: object) -> object:
    """Return where a table is, for a config.yaml in `folder`."""
    settings = TableSettings(folder=Path(folder))
    return located(settings, {"t": {"format": "csv", **table}})["t"]["path"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rates.csv", "file:///job/rates.csv"),
        ("../rates 1/*.csv", "file:///rates 1/*.csv"),
        ("./day/10:00.csv", "file:///job/day/10:00.csv"),
        ("~/rates.csv", "file:///home/ann/rates.csv"),
        ("/data/rates.csv", "file:///data/rates.csv"),
        ("s3a://bucket/rates", "s3a://bucket/rates"),
        ("file:/data/rates.csv", "file:///data/rates.csv"),
    ],
)
def test_path_of_a_table_is_relative_to_the_folder_of_config_yaml(
    path: object, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert path_of("/job", path=path) == expected


def test_folder_of_config_yaml_is_taken_literally() -> None:
    assert path_of("/jobs[1]/{a}", path="r*.csv") == r"file:///jobs\[1\]/\{a\}/r*.csv"


def test_path_of_other_formats_may_be_the_name_of_a_table() -> None:
    assert path_of("/job", format="iceberg", path="shop.rates") == "shop.rates"


@pytest.mark.parametrize("path", ["", None, 7, ["/etc/passwd"]])
def test_a_table_of_files_needs_a_path(path: object) -> None:
    assert "it needs a path" in problem(format="csv", path=path)


@pytest.mark.parametrize(
    ("format_", "option"),
    [
        ("csv", "paths"),
        ("csv", "PATHS"),
        ("csv", "basePath"),
        ("csv", "compression"),
        ("csv", "codec"),
        ("json", "compression"),
        ("text", "header"),
        ("avro", "avroSchemaUrl"),
        ("avro", "AVROSCHEMAURL"),
        ("parquet", "archivePathFilter"),
        ("orc", "ignoredPathSegmentRegex"),
        ("xml", "rowValidationXSDPath"),
        ("binaryFile", "mode"),
        ("delta", "deltaTable"),
    ],
)
def test_options_that_are_not_known_are_refused(format_: str, option: str) -> None:
    """Some of them name more files, and some name classes."""
    settings = TableSettings((format_,))
    found = problem(settings, format=format_, path="t", options={option: "/etc/passwd"})
    assert f'the option "{option}" is none with which tables of {format_} are read' in found


def test_a_path_is_not_an_option() -> None:
    for options in ({"path": "t"}, {"PATH": "/etc/passwd"}):
        assert "write it as path:" in problem(format="csv", options=options)


def test_an_option_with_a_mistake_has_a_hint() -> None:
    found = problem(format="csv", path="t", options={"headr": "true"})
    assert found.endswith('did you mean "header"?')
